"""The second solver: SMT-LIB 2 scripts discharged by cvc5."""

from __future__ import annotations

from typing import Literal


def cvc5_check(script: str, timeout_ms: int) -> Literal["unsat", "sat", "unknown"]:
    """What cvc5 answers to a script with one ``check-sat``; ``unknown`` if it gives up in time."""
    import cvc5

    solver = cvc5.Solver()
    solver.setOption("tlimit-per", str(timeout_ms))
    parser = cvc5.InputParser(solver)
    parser.setStringInput(cvc5.InputLanguage.SMT_LIB_2_6, script, "obligation")
    symbols = parser.getSymbolManager()
    answer = "unknown"
    while not (command := parser.nextCommand()).isNull():
        said = str(command.invoke(solver, symbols)).strip()
        if said:
            answer = said
    if answer == "unsat":
        return "unsat"
    return "sat" if answer == "sat" else "unknown"
