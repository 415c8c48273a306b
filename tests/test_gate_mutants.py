"""Every small change of a gate or of the block arithmetic is refuted, most by a theorem.

``docs/theorems.md`` has the table of what refutes which; ``tests/gate_mutants.py`` writes it.
"""

from __future__ import annotations

import gate_mutants
import pytest
from gate_mutants import INTS_DIFFER, MUTANTS, GateMutant, Killer, killers, kills, load_prover
from mutation import Model

REFUTED = [each for each in MUTANTS if each.killer is not None]
RECORDED = sorted({each.killer for each in REFUTED if each.killer.by != INTS_DIFFER.by}, key=str)


@pytest.fixture(scope="module")
def unedited() -> Model:
    return load_prover()


@pytest.mark.parametrize("each", REFUTED, ids=str)
def test_what_the_table_says_refutes_a_mutant_does(each: GateMutant) -> None:
    assert each.killer is not None
    assert kills(load_prover((each.mutant,)), each.killer)


@pytest.mark.parametrize("killer", RECORDED, ids=lambda killer: f"{killer.by} {killer.policy}")
def test_none_of_it_refutes_the_code_as_it_is(killer: Killer, unedited: Model) -> None:
    assert not kills(unedited, killer)


@pytest.mark.long
@pytest.mark.parametrize("each", MUTANTS, ids=str)
def test_no_theorem_does_where_the_table_has_none(each: GateMutant) -> None:
    """Nor an exploration where it has recorded runs, nor anything where it has nothing."""
    first = next(killers(load_prover((each.mutant,))), None)
    assert (first and first.kind) == (each.killer and each.killer.kind)


@pytest.mark.long
def test_nothing_at_all_refutes_the_code_as_it_is(unedited: Model) -> None:
    assert list(killers(unedited)) == []


def test_theorems_refute_at_least_half_of_at_least_twenty() -> None:
    assert len(REFUTED) >= 20
    by_theorem = [each for each in REFUTED if each.killer and each.killer.is_theorem]
    assert len(by_theorem) >= len(MUTANTS) / 2


def test_the_gates_are_edited_and_refuted_by_theorems_alone() -> None:
    """But for one that changes nothing: the cap of a count that is below M."""
    gates = [each for each in MUTANTS if each.mutant.file == gate_mutants.GATES]
    survivors = [each.mutant.instead for each in gates if not each.killer]
    assert survivors == ["prompt-only without a cap"]
    assert all(each.killer.is_theorem for each in gates if each.killer)


def test_mutants_differ_from_the_code_and_from_each_other() -> None:
    sources = [each.mutant.source for each in MUTANTS]
    assert len(set(sources)) == len(sources)
    assert len({str(each) for each in MUTANTS}) == len(MUTANTS)


def test_the_table_of_the_page_is_current() -> None:
    page = gate_mutants.PAGE.read_text(encoding="utf-8")
    assert gate_mutants.current(page) == page, "run tests/gate_mutants.py"
