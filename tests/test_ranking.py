"""The abstraction of the livelock theorems against explored graphs: a silent step lowers the rank."""

from __future__ import annotations

from typing import Any

import pytest
from random_scenarios import instances

from checker.explore import explore
from checker.packed import Expansion, PackedSpace
from models.config import Scenario, SchedulerName
from properties.ranking import exclusive_rank, mixed_rank


def ranks(scenario: Scenario) -> Any:
    return mixed_rank if scenario.engine.scheduler == "vllm" else exclusive_rank


def not_lowered(scenario: Scenario) -> tuple[int, int]:
    """Silent transitions of busy states, and how many of them do not lower the rank."""
    rank = ranks(scenario)
    space: list[PackedSpace] = []
    seen = wrong = 0
    silent: list[Expansion] = []

    def note(number: int, expansion: Expansion) -> None:
        if not expansion.emits and expansion.state.busy:
            silent.append(expansion)

    space.append(explore(scenario, observers=(note,)).space)
    for expansion in silent:
        before = rank(scenario, expansion.state)
        for packed in expansion.successors:
            seen += 1
            wrong += not rank(scenario, space[0].unpack(packed)) < before
    return seen, wrong


def fcfs(scheduler: SchedulerName, policy: str, count: int) -> list[Scenario]:
    drawn = instances(5, count, scheduler, policy)
    return [scenario for scenario in drawn if not scenario.engine.priority_policy]


@pytest.mark.parametrize("count", [60, pytest.param(1000, marks=pytest.mark.long)])
@pytest.mark.parametrize(
    ("scheduler", "policy"),
    [
        ("vllm", "none"),
        ("vllm", "prompt-only"),
        ("vllm", "lookahead-only"),
        ("vllm", "first-decode-step"),
        ("rbln", "lookahead-only"),
        ("rbln", "first-decode-step"),
    ],
)
def test_every_silent_step_lowers_the_rank(
    scheduler: SchedulerName, policy: str, count: int
) -> None:
    seen = 0
    for scenario in fcfs(scheduler, policy, count):
        transitions, wrong = not_lowered(scenario)
        assert wrong == 0, scenario
        seen += transitions
    assert seen > count


@pytest.mark.parametrize("policy", ["none", "prompt-only"])
def test_the_rank_does_not_fall_where_the_theorem_is_refuted(policy: str) -> None:
    """Under vllm-rbln these gates let the lone prefill preempt itself, which raises the rank."""
    assert sum(not_lowered(scenario)[1] for scenario in fcfs("rbln", policy, 120)) > 0
