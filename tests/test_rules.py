"""Every rule is needed: with it left out, its own tests fail and recorded runs are not reproduced.

``docs/rules.md`` has the table of how many; ``tests/rule_table.py`` measures it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import rule_table
import test_rules_admission
import test_rules_rbln
import test_rules_running
from mutants_running import UNREAD
from mutation import KINDS, ROOT, Model, Mutant, disagreeing, load, recorded_runs
from rule_mutants import MUTANTS

RULES = [f"R{n}" for n in (*range(1, 28), *range(33, 42))] + ["R21b"]
TEST_FILES = (test_rules_admission, test_rules_rbln, test_rules_running)
PLACE = re.compile(r"`((?:models|checker|tests)/[\w/]+\.py)(?::([\w.]+))?`")
EVERY_MUTANT = pytest.mark.parametrize(
    "mutant", MUTANTS, ids=lambda mutant: f"{mutant.rule}: {mutant.instead}"
)


# --- the mutants -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_with_every_rule_in_place_all_recorded_runs_are_reproduced(model: Model, kind: str) -> None:
    assert recorded_runs(kind)
    assert list(disagreeing(model, kind)) == []


@EVERY_MUTANT
def test_a_left_out_rule_is_noticed(mutant: Mutant) -> None:
    """By a test of that rule, always, and by a recorded run where the table says so."""
    without = load([mutant])
    assert any(fails(check, without) for check in checks_of(mutant.rule))
    broken = rule_table.documented()[mutant.rule, mutant.instead]
    for kind in mutant.kinds:
        if broken[kind]:
            assert next(disagreeing(without, kind), None), f"all {kind} runs agree"


@pytest.mark.long
@EVERY_MUTANT
def test_the_table_says_how_many_runs_break(mutant: Mutant) -> None:
    assert rule_table.documented()[mutant.rule, mutant.instead] == rule_table.measure(mutant)


def test_the_prefill_flag_of_a_victim_is_never_read() -> None:
    """The one liberty that the model takes: it clears a flag that vLLM keeps."""
    keeping = load([UNREAD])
    assert [name for kind in KINDS for name in disagreeing(keeping, kind)] == []


def test_a_mutant_whose_text_is_gone_is_an_error() -> None:
    stale = Mutant("R0", "nothing", "models/vllm.py", "no such text", "")
    with pytest.raises(ValueError, match=r"R0: 0 places in models/vllm\.py"):
        load([stale])


# --- the documents ---------------------------------------------------------------------------


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_has_tests_mutants_and_a_row(rule: str) -> None:
    assert list(checks_of(rule))
    assert [mutant for mutant in MUTANTS if mutant.rule == rule]
    places = PLACE.findall(row_of(rule))
    assert [file for file, _ in places if file.startswith("models/")]
    for file, name in places:
        assert (ROOT / file).is_file(), file
        assert not name or name in names_in(ROOT / file), f"{file} has no {name}"


def test_the_table_has_the_mutants_in_order_and_no_others() -> None:
    assert list(rule_table.documented()) == [(mutant.rule, mutant.instead) for mutant in MUTANTS]


def test_what_no_recorded_run_shows_is_explained() -> None:
    """The section on unobservable rules names exactly the rules with a row of zeros."""
    unseen = {
        rule for (rule, _), counts in rule_table.documented().items() if not any(counts.values())
    }
    section = document().partition("## What the recorded runs cannot show")[2]
    assert set(re.findall(r"^- \*\*(R\d+b?)\*\*", section, re.MULTILINE)) == unseen


# --- helpers ---------------------------------------------------------------------------------


def checks_of(rule: str) -> Iterator[Callable[[Model], None]]:
    """The tests of a rule, one for each set of parameters."""
    for module in TEST_FILES:
        for name, test in vars(module).items():
            if name.startswith(f"test_{rule.lower()}_"):
                for arguments in parameters(test):
                    yield lambda model, test=test, arguments=arguments: test(model, **arguments)


def parameters(test: Callable[..., None]) -> list[dict[str, Any]]:
    marks = [mark for mark in getattr(test, "pytestmark", ()) if mark.name == "parametrize"]
    if not marks:
        return [{}]
    (mark,) = marks
    names, sets = mark.args
    names = (names,) if isinstance(names, str) else names
    values = [getattr(each, "values", each if len(names) > 1 else (each,)) for each in sets]
    return [dict(zip(names, each, strict=True)) for each in values]


def fails(check: Callable[[Model], None], model: Model) -> bool:
    """Whether a test fails on a model; breaking down counts."""
    try:
        check(model)
    except Exception:
        return True
    return False


@cache
def document() -> str:
    return rule_table.DOCUMENT.read_text(encoding="utf-8")


def row_of(rule: str) -> str:
    (row,) = (line for line in document().splitlines() if line.startswith(f"| **{rule}** |"))
    return row


@cache
def names_in(path: Path) -> set[str]:
    """Classes, functions, methods and fields of a file, methods and fields as ``Class.name``."""
    found = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef):
            found.add(node.name)
            found |= {f"{node.name}.{name}" for name in map(defined, node.body) if name}
        else:
            found.add(defined(node))
    return found


def defined(node: ast.stmt) -> str | None:
    match node:
        case ast.FunctionDef(name=name):
            return name
        case ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]):
            return name
        case _:
            return None
