"""Discharging obligations: two solvers, least counterexamples, and everything evaluated again on ints.

An obligation is PROVED only if z3 and cvc5 both find its negation unsatisfiable. A counterexample
counts only if the same code, run on its numbers, satisfies the assumptions and breaks the goal.
Anything else is INCONCLUSIVE.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from random import Random
from typing import Any, Literal, TypeAlias, cast

import z3

from checker.smtlib import cvc5_check
from checker.symbolic import Context, SymbolicBranchError, formula, raw
from models.gates import Admission, Gate
from properties.theorems import Obligation
from properties.verdict import Verdict

Answer: TypeAlias = Literal["unsat", "sat", "unknown"]

TIMEOUT_MS = 5_000  # of each solver, for each obligation
SAMPLES = 32  # requests of each size on which symbols and ints are compared
LEAST_TRIES = 64  # values tried for each variable before the one found is kept


class UnsoundError(AssertionError):
    """A solver's example that the code does not reproduce: a fault of the checker."""


class UnprovableGateError(ValueError):
    """A gate that cannot be run on symbols; the message says where in its code."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """An obligation as formulas: what is assumed, what is to be shown, and the ceilings' facts."""

    variables: dict[str, Any]
    assumptions: tuple[Any, ...]
    goal: Any
    context: Context

    def negation(self, *, definitions: bool = True) -> list[Any]:
        """Formulas that are unsatisfiable if and only if the goal follows.

        Without the definitions of the ceilings, of which then only linear facts are known, they
        are weaker: unsatisfiable still means proved, satisfiable means nothing.
        """
        context = self.context
        known = [*context.definitions, *context.bounds] if definitions else []
        return [*self.assumptions, *context.order, *context.sums, *known, z3.Not(self.goal)]


@dataclass(frozen=True, slots=True)
class Proof:
    """The outcome of one obligation for one gate.

    ``example`` is the least counterexample, by variable. ``seconds`` are of z3 and of cvc5.
    """

    obligation: Obligation
    verdict: Verdict
    z3: Answer
    cvc5: Answer
    seconds: tuple[float, float]
    example: dict[str, int] | None = None


def encode(obligation: Obligation, gate: Gate) -> Encoded:
    """Run the gate and the block arithmetic on symbols.

    Raises
    ------
    UnprovableGateError
        If the gate's code needs the value of a symbol, answers symbols differently from ints, or
        divides by a number that may be zero or negative.
    """
    _same_on_ints(cast(Hashable, gate))
    context = Context()
    values = {name: context.symbol(name) for name in obligation.variables}
    try:
        domain = formula(obligation.domain(values))
        assumptions = tuple(formula(a.holds(gate, values)) for a in obligation.assumptions)
        goal = formula(obligation.goal(gate, values))
    except Exception as error:
        raise _unprovable(error) from error
    _require_positive_divisors(context, domain)
    for name in obligation.counts:
        context.compare(values[name].term)
    variables = {name: value.term for name, value in values.items()}
    return Encoded(variables, (domain, *assumptions), goal, context)


def prove(obligation: Obligation, gate: Gate, *, timeout_ms: int = TIMEOUT_MS) -> Proof:
    """Discharge one obligation with both solvers."""
    encoded = encode(obligation, gate)
    started = time.perf_counter()
    ours, solver = _z3_check(encoded, timeout_ms)
    example = _least(encoded, solver, obligation.variables) if ours == "sat" else None
    halfway = time.perf_counter()
    theirs = cvc5_check(smt2(encoded, example), timeout_ms)
    seconds = (halfway - started, time.perf_counter() - halfway)
    if example is not None:
        confirm(obligation, gate, example)
    verdict = {
        ("unsat", "unsat"): Verdict.PROVED,
        ("sat", "sat"): Verdict.VIOLATED,
    }.get((ours, theirs), Verdict.INCONCLUSIVE)
    return Proof(obligation, verdict, ours, theirs, seconds, example)


def smt2(encoded: Encoded, example: dict[str, int] | None = None) -> str:
    """The negation of an obligation as an SMT-LIB 2 script; ``unsat`` means proved.

    With an example its numbers are put in, and ``sat`` means that it is a counterexample.
    """
    solver = z3.Solver()
    solver.add(*encoded.negation())
    for name, value in (example or {}).items():
        solver.add(encoded.variables[name] == value)
    lines = [line for line in solver.to_smt2().splitlines() if not line.startswith((";", "(set-"))]
    return "\n".join(["(set-logic QF_NIA)", *lines]) + "\n"


def witness(obligation: Obligation, gate: Gate) -> dict[str, int] | None:
    """Least numbers that satisfy all assumptions of an obligation, ``None`` if there are none."""
    encoded = encode(obligation, gate)
    solver = z3.Solver()
    solver.set("timeout", TIMEOUT_MS)
    solver.add(*encoded.assumptions, *encoded.context.definitions)
    if str(solver.check()) != "sat":
        return None
    return _least(encoded, solver, obligation.variables)


def evaluate(obligation: Obligation, gate: Gate, values: dict[str, int]) -> tuple[list[bool], bool]:
    """The domain and the assumptions, each, and the goal of an obligation on ints."""
    holds = [bool(obligation.domain(values))]
    holds += [bool(assumption.holds(gate, values)) for assumption in obligation.assumptions]
    return holds, bool(obligation.goal(gate, values))


def confirm(obligation: Obligation, gate: Gate, values: dict[str, int]) -> None:
    """Check a counterexample by running the same code on its numbers."""
    assumptions, goal = evaluate(obligation, gate, values)
    if not all(assumptions) or goal:
        raise UnsoundError(f"{obligation.name}: {values} is no counterexample when run on ints")


def _z3_check(encoded: Encoded, timeout_ms: int) -> tuple[Answer, Any]:
    """First with linear facts about the ceilings alone, then with their definitions."""
    for definitions in (False, True):
        solver = z3.Solver()
        solver.set("timeout", timeout_ms)
        solver.add(*encoded.negation(definitions=definitions))
        answer = _answer(str(solver.check()))
        if answer == "unsat" or definitions:
            return answer, solver
    raise AssertionError


def _answer(word: str) -> Answer:
    return "unsat" if word == "unsat" else "sat" if word == "sat" else "unknown"


def _least(encoded: Encoded, solver: Any, variables: Sequence[str]) -> dict[str, int]:
    """A model with the first variable least, then the second, and so on; values from 0 up."""
    values = _model(encoded, solver)
    for name in variables:
        term = encoded.variables[name]
        for candidate in range(min(values[name], LEAST_TRIES)):
            solver.push()
            solver.add(term == candidate)
            if str(solver.check()) == "sat":
                values = _model(encoded, solver)
                break
            solver.pop()
        else:
            solver.push()
            solver.add(term == values[name])
            if str(solver.check()) == "sat":
                values = _model(encoded, solver)
    return values


def _model(encoded: Encoded, solver: Any) -> dict[str, int]:
    model = solver.model()
    return {
        name: model.eval(term, model_completion=True).as_long()
        for name, term in encoded.variables.items()
    }


# --- gates that cannot be proved ---------------------------------------------------------------


@lru_cache(maxsize=64)
def _same_on_ints(hashable: Hashable) -> None:
    """Hold the gate's answer to symbols against its answers to ints.

    A gate may tell symbols from ints without branching on their values (by type, by a global); then
    what is proved is not what runs.
    """
    gate = cast(Gate, hashable)
    context = Context()
    names = [field.name for field in fields(Admission)]
    try:
        symbolic = gate.tokens(Admission(*map(context.symbol, names)))
        term = None if symbolic is None else raw(symbolic)
    except Exception as error:
        raise _unprovable(error) from error
    for request in _requests():
        try:
            concrete = gate.tokens(request)
        except Exception as error:
            raise UnprovableGateError(f"tokens() fails for {request}: {error}") from error
        numbers = {name: getattr(request, name) for name in names}
        try:
            proved = None if term is None else context.value(term, numbers)
        except ZeroDivisionError:
            continue  # _require_positive_divisors says so
        if proved != concrete:
            raise UnprovableGateError(
                f"tokens() answers symbols differently from ints: for {request} that is {proved}, "
                f"and {concrete} when run"
            )


def _requests() -> Iterator[Admission]:
    """Requests around every kind of boundary, the same on every run."""
    random = Random(0)
    for largest in (4, 20, 100, 100_000):
        for spec in range(SAMPLES):
            tokens, lookahead = random.randint(1, largest), random.randint(0, 9)
            yield Admission(tokens, spec % 9, lookahead, tokens + random.randint(1, largest))


def _require_positive_divisors(context: Context, domain: Any) -> None:
    """Refuse ``cdiv(x, b)`` if b may be 0 or less: its definition would exclude just these cases."""
    solver = z3.Solver()
    solver.set("timeout", TIMEOUT_MS)
    solver.add(domain)
    for divisor in context.divisors:
        if str(solver.check(divisor <= 0)) != "unsat":
            raise UnprovableGateError(f"cdiv() by a number that may be 0 or less: {divisor}")


def _unprovable(error: Exception) -> Exception:
    """What to say of an error: the gate's own line if it was there, else the error as it is."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.name == "tokens"]
    if not frames and not isinstance(error, SymbolicBranchError):
        return error
    place = f"{frames[-1].filename}, line {frames[-1].lineno}: " if frames else ""
    return UnprovableGateError(f"{place}{error}")
