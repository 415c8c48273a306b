"""Random runs: repeatable, short counterexamples, and never more said than was seen."""

from __future__ import annotations

import re
from typing import Any

import pytest
from command import check, document

from checker import walks
from checker.explore import Limits
from checker.scenario import build, override, read_preset
from models.config import Scenario
from properties.verdict import Verdict


def scenario(preset: str, **changes: Any) -> Scenario:
    fields = {name.replace("__", "."): value for name, value in changes.items()}
    return build(override(read_preset(preset), fields), preset)


def without_time(found: dict[str, Any]) -> dict[str, Any]:
    for checked in found["checks"]:
        checked["search"]["seconds"] = 0
    return found


def test_the_same_seed_takes_the_same_runs() -> None:
    arguments = ("--preset", "vllm", "--policy", "first-decode-step", "--walks", "60", "--seed")
    first = without_time(document(*arguments, "3"))
    check.cache_clear()
    again = without_time(document(*arguments, "3"))
    assert first == again
    assert without_time(document(*arguments, "4")) != first


@pytest.mark.parametrize(("preset", "most"), [("vllm", 5), ("rbln", 6)])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_fault_of_the_released_gate_is_found_and_shrunk(
    preset: str, most: int, seed: int
) -> None:
    result = walks.walk(scenario(preset), runs=300, seed=seed)
    found = result.result("no-self-preemption")
    assert found.verdict is Verdict.VIOLATED
    assert found.trace is not None
    assert len(found.trace.steps) <= most
    assert found.evidence.startswith(f"step {len(found.trace.steps) - 1}: v preempts itself")
    assert result.verdict is Verdict.VIOLATED


def test_the_command_shows_the_trace_and_exits_1() -> None:
    outcome = check("--preset", "rbln", "--walks", "300")
    assert outcome.code == 1
    assert "preempts itself, " in outcome.out


def test_a_loop_is_found_and_shrunk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walks, "STEP_PROPERTIES", ())  # or the self-preemption is found before
    result = walks.walk(scenario("rbln"), runs=300)
    found = result.result("no-livelock")
    assert found.verdict is Verdict.VIOLATED
    assert found.evidence.endswith("a cycle of 2 steps, for ever")
    assert found.trace is not None
    assert found.trace.loop_start is not None
    assert len(found.trace.steps) - found.trace.loop_start == 2


def test_a_state_that_is_left_no_more_is_a_deadlock() -> None:
    alone = [{"id": "v", "prompt": 33, "max_tokens": 4}]
    result = walks.walk(scenario("vllm", pool__usable_blocks=2, requests=alone), runs=5)
    assert result.result("no-unservable-wait").verdict is Verdict.VIOLATED


@pytest.mark.parametrize("preset", ["vllm", "rbln"])
def test_what_is_not_found_is_inconclusive_with_runs_and_states(preset: str) -> None:
    arguments = ("--preset", preset, "--policy", "first-decode-step-always", "--walks", "50")
    outcome = check(*arguments)
    assert outcome.code == 3
    assert "HOLDS" not in outcome.out
    (counted,) = set(
        re.findall(r"not seen in ([\d,]+) random runs over ([\d,]+) distinct states", outcome.out)
    )
    (checked,) = document(*arguments)["checks"]
    assert checked["search"]["states"] == int(counted[1].replace(",", ""))
    assert checked["search"]["stopped_by"] == "--walks"
    assert not checked["search"]["complete"]
    assert {prop["verdict"] for prop in checked["properties"]} == {"INCONCLUSIVE"}


def test_even_one_state_seen_whole_is_inconclusive() -> None:
    tiny = [{"id": "v", "prompt": 3, "max_tokens": 1}]
    result = walks.walk(scenario("vllm", requests=tiny), runs=50)
    assert {found.verdict for found in result.properties} == {Verdict.INCONCLUSIVE}


def test_seconds_end_the_runs() -> None:
    result = walks.walk(
        scenario("vllm", scheduler__policy="first-decode-step"),
        runs=10**6,
        limits=Limits(seconds=0.5),
    )
    assert result.seconds < 60
    assert result.verdict is Verdict.INCONCLUSIVE


def test_an_instance_too_large_to_enumerate_is_walked() -> None:
    many = [{"id": f"r{n}", "prompt": 17 + n, "max_tokens": 8} for n in range(9)]
    result = walks.walk(scenario("vllm", pool__usable_blocks=18, requests=many), runs=20)
    assert result.verdict in (Verdict.INCONCLUSIVE, Verdict.VIOLATED)
    assert result.num_states > 100
    assert result.depth > 8
