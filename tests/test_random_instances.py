"""What the gates promise, on many small random instances whose longest request fits alone."""

from __future__ import annotations

from collections import Counter

import pytest
from random_scenarios import instances

from checker.check import check
from models.config import SchedulerName
from properties.verdict import Verdict

PROMISED = ("no-self-preemption", "no-livelock", "no-deadlock", "no-unservable-wait")


def verdicts(
    scheduler: SchedulerName, policy: str, count: int, *, seed: int = 1, speculative: bool = True
) -> Counter[str]:
    """How many instances violate each property."""
    violated: Counter[str] = Counter()
    for scenario in instances(seed, count, scheduler, policy, speculative=speculative):
        result = check(scenario)
        assert result.stopped is None
        for checked in result.properties:
            violated[checked.property.name] += checked.verdict is Verdict.VIOLATED
    return violated


@pytest.mark.parametrize(
    "count", [100, pytest.param(500, marks=pytest.mark.long)], ids=["some", "500"]
)
@pytest.mark.parametrize("scheduler", ["vllm", "rbln"])
def test_the_corrected_gate_keeps_its_promise(scheduler: SchedulerName, count: int) -> None:
    violated = verdicts(scheduler, "first-decode-step", count)
    assert {name: violated[name] for name in PROMISED} == dict.fromkeys(PROMISED, 0)
    assert violated["bounded-recompute"] == 0


@pytest.mark.parametrize("scheduler", ["vllm", "rbln"])
def test_the_old_gates_do_not(scheduler: SchedulerName) -> None:
    """The same instances show the fault, so that the test above is not vacuous."""
    old = verdicts(scheduler, "prompt-only", 100)
    assert old["no-self-preemption"] > 0
    assert (old["no-livelock"] > 0) == (scheduler == "rbln")
    assert verdicts(scheduler, "lookahead-only", 100)["no-self-preemption"] > 0


@pytest.mark.parametrize("scheduler", ["vllm", "rbln"])
def test_lookahead_only_has_no_livelock(scheduler: SchedulerName) -> None:
    assert verdicts(scheduler, "lookahead-only", 100)["no-livelock"] == 0


@pytest.mark.parametrize("scheduler", ["vllm", "rbln"])
def test_without_speculation_the_corrected_gate_is_the_old_one(scheduler: SchedulerName) -> None:
    corrected = verdicts(scheduler, "first-decode-step", 100, speculative=False)
    assert corrected == verdicts(scheduler, "prompt-only", 100, speculative=False)
    assert corrected["no-self-preemption"] > 0
    always = verdicts(scheduler, "first-decode-step-always", 100, speculative=False)
    assert always["no-self-preemption"] == 0
    assert always["no-livelock"] == 0
