"""The page of theorems says what the prover says."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest

from models.gates import GATES, Gate
from properties.theorems import CLOSED_FORM, Obligation, obligations

ROOT = Path(__file__).parent.parent
TABLES: dict[str, Any] = runpy.run_path(str(ROOT / "scripts" / "theorem_table.py"))
PAGE: Path = TABLES["PAGE"]
CORRECTED, ALWAYS = GATES["first-decode-step"], GATES["first-decode-step-always"]


@pytest.fixture(scope="module")
def page() -> str:
    return PAGE.read_text(encoding="utf-8")


@pytest.mark.long
def test_the_generated_parts_are_current(page: str) -> None:
    assert TABLES["current"](page) == page, "run scripts/theorem_table.py"


def one_group(gate: Gate, theorem: int) -> list[Obligation]:
    return [o for o in obligations(gate, groups=(1,)) if o.theorem == theorem]


@pytest.mark.parametrize(
    ("gate", "theorem"),
    [(CORRECTED, 0), (CORRECTED, 1), (CORRECTED, 4), (CORRECTED, 6), (ALWAYS, 1)],
    ids=lambda value: getattr(value, "name", value),
)
def test_some_sections_are_current(gate: Gate, theorem: int, page: str) -> None:
    for obligation in one_group(gate, theorem):
        assert TABLES["section"](obligation, gate) in page, "run scripts/theorem_table.py"


def test_rows_of_the_gates_are_current(page: str) -> None:
    for named in ("1 first-decode-step", "3 lone-prefill-every-chunk", "4 idle-engine-admits"):
        assert f"| {' | '.join(TABLES['row'](named))} |" in page


def test_every_obligation_has_a_row_and_a_section(page: str) -> None:
    for gate in GATES.values():
        for obligation in obligations(gate):
            assert f"\n| {TABLES['title'](obligation)} |" in page
    for obligation in obligations(CORRECTED):
        assert f"\n**{TABLES['title'](obligation)}**: " in page


def test_every_assumption_is_needed_and_in_words(page: str) -> None:
    """In the table of assumptions of the first half, and nowhere without a counterexample."""
    names = {a.name for g in GATES.values() for o in obligations(g) for a in o.assumptions}
    table = page.partition("### Every assumption")[2].partition("\n### ")[0]
    explained = set(re.findall(r"`([a-z-]+)`", table))
    assert names - explained == set()
    assert "not needed" not in page.partition("### Not vacuous")[2]


def test_the_closed_form_is_on_the_page(page: str) -> None:
    assert CLOSED_FORM in page.replace("*", "")
