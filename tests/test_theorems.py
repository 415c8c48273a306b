"""The obligations: proved by both solvers, refuted where they should be, not vacuous."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import ClassVar

import pytest

from checker.prove import (
    UnprovableGateError,
    UnsoundError,
    confirm,
    encode,
    evaluate,
    prove,
    smt2,
    witness,
)
from checker.smtlib import cvc5_check
from checker.symbolic import Context, SymbolicBranchError
from models.arithmetic import Num, both, cdiv, either, equivalent, implies, minimum, negate, same
from models.gates import GATES, Admission
from properties.theorems import Obligation, in_failing_set, obligations
from properties.verdict import Verdict

CORRECTED = ("first-decode-step", "first-decode-step-always")
NO_DECODE_STEP = {(1, "padded-first-chunk"), (1, "first-decode-step")}
REFUTED = {
    "none": {(1, "first-chunk"), (1, "every-chunk"), *NO_DECODE_STEP},
    "prompt-only": {(1, "first-chunk"), (1, "every-chunk"), *NO_DECODE_STEP},
    "lookahead-only": NO_DECODE_STEP,
}
LONE_PREFILL = {
    (theorem, f"lone-prefill-{chunk}")
    for theorem in (3, 5)
    for chunk in ("first-chunk", "every-chunk")
}


def named(policy: str, name: str, theorem: int = 1) -> Obligation:
    return next(o for o in obligations(GATES[policy]) if (o.theorem, o.name) == (theorem, name))


def every(policies: tuple[str, ...]) -> list[tuple[str, Obligation]]:
    return [(policy, o) for policy in policies for o in obligations(GATES[policy])]


def identify(value: object) -> str:
    return f"{value.theorem}-{value.name}" if isinstance(value, Obligation) else str(value)


@pytest.mark.parametrize(("policy", "obligation"), every(CORRECTED), ids=identify)
def test_the_corrected_gates_are_proved_by_both_solvers(
    policy: str, obligation: Obligation
) -> None:
    proof = prove(obligation, GATES[policy])
    assert (proof.verdict, proof.z3, proof.cvc5) == (Verdict.PROVED, "unsat", "unsat")
    assert proof.example is None


@pytest.mark.parametrize("policy", REFUTED)
def test_the_old_gates_fail_exactly_where_they_should(policy: str) -> None:
    expected = REFUTED[policy] | (LONE_PREFILL if policy != "lookahead-only" else set())
    refuted = set()
    for obligation in obligations(GATES[policy], groups=(1,)):
        proof = prove(obligation, GATES[policy])
        assert proof.verdict is not Verdict.INCONCLUSIVE, obligation.name
        if proof.verdict is Verdict.VIOLATED:
            refuted.add((obligation.theorem, obligation.name))
    assert refuted == expected


def test_first_decode_step_without_speculation_is_refuted_by_a_block_aligned_prompt() -> None:
    obligation = named("first-decode-step", "first-decode-step").without("speculating")
    proof = prove(obligation, GATES["first-decode-step"])
    assert proof.verdict is Verdict.VIOLATED
    assert proof.example is not None
    assert proof.example["k"] == 0
    assert proof.example["T"] % proof.example["B"] == 0


def test_least_counterexamples_are_least() -> None:
    """The first one in the order of the variables, by brute force on ints."""
    obligation = named("prompt-only", "first-decode-step")
    gate = GATES["prompt-only"]
    ranges = [range(1, 4) if name in "BTFM" else range(3) for name in obligation.variables]
    for numbers in product(*ranges):
        values = dict(zip(obligation.variables, numbers, strict=True))
        assumptions, goal = evaluate(obligation, gate, values)
        if all(assumptions) and not goal:
            break
    assert prove(obligation, gate).example == values
    assert values == {"B": 1, "T": 1, "k": 1, "L": 0, "d": 0, "h": 0, "o": 0, "F": 1, "M": 3}


@pytest.mark.parametrize("policy", CORRECTED)
def test_assumptions_are_together_satisfiable(policy: str) -> None:
    for obligation in obligations(GATES[policy]):
        values = witness(obligation, GATES[policy])
        assert values is not None, obligation.name
        assumptions, goal = evaluate(obligation, GATES[policy], values)
        assert all(assumptions)
        assert goal


@pytest.mark.parametrize("policy", CORRECTED)
def test_every_assumption_is_needed(policy: str) -> None:
    dropped = 0
    for obligation in obligations(GATES[policy]):
        for assumption in obligation.assumptions:
            proof = prove(obligation.without(assumption.name), GATES[policy])
            assert proof.verdict is Verdict.VIOLATED, (obligation.name, assumption.name)
            assert proof.example is not None
            assert not assumption.holds(GATES[policy], proof.example)
            dropped += 1
    assert dropped > 40


@pytest.mark.parametrize(
    ("k", "lookahead", "margin", "failing"),
    [
        (3, 0, 0, range(29, 33)),
        (3, 3, 0, range(26, 33)),
        (3, 3, 3, range(26, 30)),
        (3, 0, 4, range(0)),
        (0, 0, 0, range(32, 33)),
    ],
)
def test_the_failing_prompts_of_block_16_and_two_free_blocks(
    k: int, lookahead: int, margin: int, failing: range
) -> None:
    found = [
        tokens
        for tokens in range(1, 256)
        if in_failing_set(
            {"B": 16, "F": 2, "T": tokens, "k": k, "L": lookahead, "m": margin, "M": 256}
        )
    ]
    assert found == list(failing)


@pytest.mark.parametrize("name", ["every-chunk", "first-decode-step"])
def test_contention_breaks_the_window_of_any_gate(name: str) -> None:
    """What the gate counted, and somebody took one of the blocks since."""
    proof = prove(named("first-decode-step", name).without("alone"), GATES["first-decode-step"])
    assert proof.verdict is Verdict.VIOLATED
    assert proof.example is not None
    assert proof.example["o"] >= 1
    assert proof.example["h"] <= proof.example["F"]


def test_smt2_scripts_say_what_z3_says() -> None:
    obligation = named("prompt-only", "first-decode-step")
    proved = encode(obligation, GATES["first-decode-step"])
    refuted = encode(obligation, GATES["prompt-only"])
    assert cvc5_check(smt2(proved), 5_000) == "unsat"
    assert cvc5_check(smt2(refuted), 5_000) == "sat"


def test_a_solver_that_disagrees_or_gives_up_is_inconclusive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    obligation = named("first-decode-step", "first-decode-step")
    for answer in ("unknown", "sat"):
        monkeypatch.setattr("checker.prove.cvc5_check", lambda *_, answer=answer: answer)
        assert prove(obligation, GATES["first-decode-step"]).verdict is Verdict.INCONCLUSIVE
    monkeypatch.setattr("checker.prove.cvc5_check", lambda *_: "unsat")
    assert prove(obligation, GATES["prompt-only"]).verdict is Verdict.INCONCLUSIVE


def test_an_example_that_the_code_does_not_confirm_is_an_error() -> None:
    obligation = named("first-decode-step", "first-decode-step")
    values = witness(obligation, GATES["first-decode-step"])
    assert values is not None
    with pytest.raises(UnsoundError, match="no counterexample"):
        confirm(obligation, GATES["first-decode-step"], values)


class Branching:
    name: ClassVar[str] = "branching"

    def tokens(self, request: Admission) -> Num | None:
        if request.num_spec_tokens > 0:
            return request.num_tokens + 1
        return request.num_tokens


class Builtin(Branching):
    def tokens(self, request: Admission) -> Num | None:
        return min(request.num_tokens, request.max_model_len)  # type: ignore[type-var]


class Equality(Branching):
    def tokens(self, request: Admission) -> Num | None:
        return request.num_tokens if request.num_spec_tokens == 0 else request.max_model_len


class Flooring(Branching):
    def tokens(self, request: Admission) -> Num | None:
        return request.num_tokens // 16  # type: ignore[operator]


@pytest.mark.parametrize("gate", [Branching(), Builtin(), Equality(), Flooring()])
def test_a_gate_that_branches_on_symbols_is_refused_with_its_line(gate: Branching) -> None:
    with pytest.raises(UnprovableGateError, match=r"test_theorems\.py, line \d+: "):
        encode(named("prompt-only", "first-decode-step"), gate)


def symbol() -> Num:
    return Context().symbol("x")


@pytest.mark.parametrize(
    "use",
    [
        lambda x: bool(x),
        lambda x: bool(x < 1),
        lambda x: x == 1,
        lambda x: x != 1,
        lambda x: (x < 1) == (x < 2),
        lambda x: [0, 1][x],
        lambda x: x % 2,
        lambda x: 1 // x,
        lambda x: x + 1.5,
        lambda x: x + True,
    ],
)
def test_symbols_have_no_value(use: Callable[[Num], object]) -> None:
    with pytest.raises(SymbolicBranchError):
        use(symbol())


def test_logic_and_arithmetic_on_ints() -> None:
    assert [cdiv(x, 16) for x in (0, 1, 16, 17)] == [0, 1, 1, 2]
    assert minimum(2, 3) == 2
    assert both(True, 1 < 2) is True
    assert both(True, False) is False
    assert either(False, False) is False
    assert either(False, True) is True
    assert implies(True, False) is False
    assert implies(False, False) is True
    assert negate(True) is False
    assert same(2, 2) is True
    assert same(2, 3) is False
    assert equivalent(True, False) is False
