"""Write ``checker/witnesses.json``: for every rule, the steps of recorded runs that show it.

At a witness step a scheduler that lacks the rule does something else than was recorded; so a
release that does what was recorded up to there keeps the rule. Found with the models that leave one
rule out (``tests/rule_mutants.py``); the earliest few of each are kept.

Usage: ``python scripts/rule_witnesses.py``
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from mutation import Model, Mutant, load, recorded_runs  # noqa: E402
from rule_mutants import MUTANTS  # noqa: E402

TARGET = ROOT / "checker" / "witnesses.json"
MOST = 4


def witnesses(mutant: Mutant) -> list[dict[str, Any]]:
    """The earliest steps at which a model without the rule does something else, per scheduler."""
    model = load([mutant])
    found: list[dict[str, Any]] = []
    for kind in mutant.kinds:
        steps = [
            {"run": f"{kind}/{path.stem}", "step": step}
            for path in recorded_runs(kind)
            if (step := first_difference(model, path)) is not None
        ]
        found += sorted(steps, key=lambda one: (one["step"], one["run"]))[:MOST]
    return found


def first_difference(model: Model, path: Path) -> int | None:
    """The step at which a model departs from a recorded run; ``None`` also if it breaks down."""
    try:
        mismatch = model.conform.compare(path).mismatch
    except Exception:
        return None
    return None if mismatch is None else int(mismatch.step)


def table() -> list[dict[str, Any]]:
    """Every rule with what is done instead, and the steps that show it."""
    return [
        {"rule": mutant.rule, "instead": mutant.instead, "witnesses": found}
        for mutant in MUTANTS
        if (found := witnesses(mutant))
    ]


if __name__ == "__main__":
    rows = ",\n".join(json.dumps(row) for row in table())
    TARGET.write_text(f"[\n{rows}\n]\n", encoding="utf-8")
