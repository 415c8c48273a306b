"""The table of ``docs/rules.md``: how many recorded runs each left-out rule breaks.

``python tests/rule_table.py`` measures it and writes it into the document.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from mutation import KINDS, ROOT, Mutant, disagreeing, load, recorded_runs
from rule_mutants import MUTANTS

DOCUMENT = ROOT / "docs" / "rules.md"
BEGIN = "<!-- measured by tests/rule_table.py -->"
END = "<!-- end of the measured table -->"
ROW = re.compile(r"^\| (R\d+b?) \| (.+?) \| +(\d+|·) \| +(\d+|·) \|$", re.MULTILINE)
NOT_CONCERNED = "·"


def measure(mutant: Mutant) -> dict[str, int]:
    """Recorded runs that a mutant breaks, per kind that it concerns."""
    model = load([mutant])
    return {kind: sum(1 for _ in disagreeing(model, kind)) for kind in mutant.kinds}


def documented() -> dict[tuple[str, str], dict[str, int]]:
    """The figures of the document, by rule and by what is done instead."""
    rows = ROW.findall(_between_markers(DOCUMENT.read_text(encoding="utf-8"))[1])
    return {
        (rule, instead): {
            kind: int(count)
            for kind, count in zip(KINDS, counts, strict=True)
            if count != NOT_CONCERNED
        }
        for rule, instead, *counts in rows
    }


def table() -> Iterator[str]:
    """The lines of the table, measured."""
    sizes = [len(recorded_runs(kind)) for kind in KINDS]
    yield f"| rule | what the model does instead | vllm, of {sizes[0]} | rbln, of {sizes[1]} |"
    yield "| --- | --- | ---: | ---: |"
    for mutant in MUTANTS:
        measured = measure(mutant)
        counts = (str(measured.get(kind, NOT_CONCERNED)) for kind in KINDS)
        yield f"| {mutant.rule} | {mutant.instead} | {' | '.join(counts)} |"


def _between_markers(text: str) -> tuple[str, str, str]:
    before, _, rest = text.partition(BEGIN)
    middle, _, after = rest.partition(END)
    return before, middle, after


if __name__ == "__main__":
    head, _, tail = _between_markers(DOCUMENT.read_text(encoding="utf-8"))
    lines = "\n".join(table())
    DOCUMENT.write_text(f"{head}{BEGIN}\n{lines}\n{END}{tail}", encoding="utf-8")
