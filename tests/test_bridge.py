"""Theorems and explorations held against each other, and symbolic examples replayed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from random_scenarios import instances

from checker.bridge import DisagreementError, agree, reproduce, theorems_of, with_theorems
from checker.check import TheoremResult, check
from checker.prove import UnsoundError, prove
from checker.scenario import build, override, read_preset
from models.config import Scenario, SchedulerName
from models.gates import GATES
from properties.theorems import obligations
from properties.verdict import Verdict

POLICIES = tuple(GATES)


def preset(name: str, policy: str, **changes: object) -> Scenario:
    document = override(read_preset(name), {"scheduler.policy": policy, **changes})
    return build(document, name)


def proved(scenario: Scenario) -> dict[str, tuple[Verdict, str | None]]:
    return {t.property: (t.verdict, t.excludes) for t in theorems_of(scenario)}


@pytest.mark.parametrize("scheduler", ["vllm", "rbln"])
def test_what_the_theorems_say_of_the_presets(scheduler: str) -> None:
    corrected = proved(preset(scheduler, "first-decode-step"))
    assert corrected == {
        "no-self-preemption": (Verdict.PROVED, None),
        "no-livelock": (Verdict.PROVED, None),
    }
    released = proved(preset(scheduler, "prompt-only"))
    assert released["no-self-preemption"] == (Verdict.VIOLATED, None)
    mixed = scheduler == "vllm"
    assert released["no-livelock"][0] is (Verdict.PROVED if mixed else Verdict.VIOLATED)
    lookahead = proved(preset(scheduler, "lookahead-only"))
    assert lookahead["no-self-preemption"][0] is Verdict.VIOLATED
    assert lookahead["no-livelock"][0] is Verdict.PROVED


def test_a_theorem_that_does_not_apply_says_why() -> None:
    plain = proved(preset("vllm-no-spec", "first-decode-step"))
    assert "k = 0" in str(plain["no-self-preemption"][1])
    assert (
        proved(preset("vllm-no-spec", "first-decode-step-always"))["no-self-preemption"][1] is None
    )
    priority = proved(preset("vllm-priority", "first-decode-step"))
    assert "priority" in str(priority["no-livelock"][1])
    tight = proved(preset("vllm", "first-decode-step", **{"pool.usable_blocks": 3}))
    assert "does not fit alone" in str(tight["no-livelock"][1])


def test_a_contradiction_is_an_error() -> None:
    result = check(preset("vllm", "prompt-only"))
    claim = TheoremResult("no-self-preemption", 1, Verdict.PROVED, "for all sizes", None)
    with pytest.raises(DisagreementError, match="theorem 1 proves no-self-preemption"):
        agree(result, [claim])
    agree(result, [replace(claim, excludes="k = 0")])
    agree(result, [replace(claim, verdict=Verdict.VIOLATED)])


@pytest.mark.parametrize("policy", ["none", "prompt-only", "lookahead-only"])
def test_every_counterexample_happens_in_the_model(policy: str) -> None:
    replayed = 0
    for obligation in obligations(GATES[policy]):
        proof = prove(obligation, GATES[policy])
        if proof.example is not None and obligation.theorem in (1, 3, 5):
            assert reproduce(proof, GATES[policy])
            replayed += 1
    assert replayed >= 2


def test_an_example_that_does_not_happen_is_an_error() -> None:
    obligation = next(
        o for o in obligations(GATES["prompt-only"]) if (o.theorem, o.name) == (1, "every-chunk")
    )
    proof = prove(obligation, GATES["prompt-only"])
    with pytest.raises(UnsoundError, match="the model does not show"):
        reproduce(proof, GATES["first-decode-step"])


@pytest.mark.parametrize("count", [15, pytest.param(200, marks=pytest.mark.long)])
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("scheduler", ["vllm", "rbln"])
def test_theorem_and_exploration_agree_on_random_instances(
    scheduler: SchedulerName, policy: str, count: int
) -> None:
    """Ten times 200 in the long run; with and without speculation."""
    applied = 0
    for speculative in (True, False):
        for scenario in instances(9, count // 2 + 1, scheduler, policy, speculative=speculative):
            result = with_theorems(check(scenario))
            applied += sum(
                t.excludes is None and t.verdict is Verdict.PROVED for t in result.theorems
            )
    assert applied > 0 or (scheduler == "rbln" and policy in ("none", "prompt-only"))
