"""Every transition of an explored state graph, executed on the real scheduler and compared."""

from __future__ import annotations

import pytest

from checker.engines.driver import Engine
from checker.explore import explore
from checker.lockstep import exhaust, transitions
from checker.scenario import build, override, read_preset
from models.config import Scenario
from models.environment import initial_states, schedule, successors

pytestmark = pytest.mark.engine

REQUESTS = [
    {"id": "a", "prompt": 3, "max_tokens": 3},
    {"id": "b", "prompt": [1, 2], "max_tokens": 2},
    {"id": "v", "prompt": [6, 8], "max_tokens": 2},
]
SMALL = {
    "pool.block_size": 2,
    "pool.usable_blocks": 6,
    "budgets.max_num_batched_tokens": 8,
    "budgets.max_num_seqs": 4,
    "budgets.max_model_len": 12,
    "speculation.num_speculative_tokens": 1,
    "requests": REQUESTS,
}
URGENT = [{**request, "priority": 2 - n} for n, request in enumerate(REQUESTS)]
FIXED = [{**request, "arrival": n} for n, request in enumerate(REQUESTS)]
INSTANCES = {
    "prompt-only": {},
    "none": {"scheduler.policy": "none"},
    "lookahead-only": {"scheduler.policy": "lookahead-only", "speculation.method": "eagle"},
    "first-decode-step": {"scheduler.policy": "first-decode-step"},
    "first-decode-step-always": {"scheduler.policy": "first-decode-step-always"},
    "draft-model": {"speculation.method": "draft_model", "budgets.max_num_batched_tokens": 6},
    "dflash": {"speculation.method": "dflash", "budgets.max_num_batched_tokens": 10},
    "no-speculation": {"speculation.num_speculative_tokens": 0},
    "ngram-proposes-fewer": {"environment.proposed": "up-to"},
    "end-of-sequence": {"environment.eos": True},
    "priority": {"scheduler.scheduling_policy": "priority", "requests": URGENT},
    "two-groups": {"pool.block_size": [2, 3], "pool.usable_blocks": 10},
    "watermark": {"scheduler.watermark": 0.34, "pool.usable_blocks": 8},
    "fixed-arrivals": {"requests": FIXED},
    "small-chunks": {"budgets.max_num_batched_tokens": 4},
    "two-seats": {"budgets.max_num_seqs": 2},
}


def instance(engine: Engine, changes: dict[str, object]) -> Scenario:
    """A small instance under the installed scheduler."""
    fixed = {"scheduler.scheduler": engine.name, "scheduler.release": engine.modelled}
    return build(override({}, SMALL | fixed | changes), "small instance")


def check(engine: Engine, scenario: Scenario, capsys: pytest.CaptureFixture[str]) -> None:
    """Execute the graph; edges executed must be all the edges that the explorer has."""
    explored = explore(scenario)
    executed = exhaust(engine, scenario)
    with capsys.disabled():
        print(
            f"\n{engine.name} {engine.release}, {scenario.name}: {executed.transitions:,} of "
            f"{explored.num_transitions:,} transitions executed, {executed.states:,} states"
        )
    assert executed.difference is None, executed.path
    assert explored.complete
    assert executed.states == explored.num_states
    assert executed.transitions == explored.num_transitions


@pytest.mark.timeout(1200)
def test_the_default_scenario(engine: Engine, capsys: pytest.CaptureFixture[str]) -> None:
    """What ``check --policy prompt-only`` explores."""
    preset = override(read_preset(engine.name), {"scheduler.policy": "prompt-only"})
    check(engine, build(preset, engine.name), capsys)


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", INSTANCES)
def test_a_small_instance(engine: Engine, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One of each kind that the model has."""
    check(engine, instance(engine, {"name": name, **INSTANCES[name]}), capsys)


@pytest.mark.parametrize("name", INSTANCES)
def test_transitions_are_those_of_the_reference(engine: Engine, name: str) -> None:
    """The labelled transitions are the successors of the reference semantics, in its order."""
    scenario = instance(engine, {"name": name, **INSTANCES[name]})
    stack = list(initial_states(scenario))
    seen = set(stack)
    while stack and len(seen) < 2000:
        state = stack.pop()
        output = schedule(scenario, state)
        following = [state for _, _, state in transitions(scenario, state, output)]
        assert following == list(successors(scenario, state, output))
        fresh = [state for state in dict.fromkeys(following) if state not in seen]
        seen.update(fresh)
        stack += fresh
    assert len(seen) > 20
