"""The packed search against the reference semantics, and what ends a search early."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import networkx as nx
import pytest
from random_scenarios import instances

from checker.check import check
from checker.explore import Exploration, Limits, Stop, explore
from checker.graph import cycles, heaviest_run, state_graph
from checker.packed import FIELD_MASK, Expansion, PackedSpace, _check_field
from checker.scenario import build, read_preset
from checker.trace import ReplayError, replay
from models.config import Scenario, SchedulerName
from models.environment import initial_states, schedule, successors
from models.scheduler import Preempted
from models.state import State
from properties.verdict import Verdict


def naive(scenario: Scenario) -> tuple[dict[State, int], set[tuple[State, State]]]:
    """Breadth-first search over the reference semantics: depth of every state, every transition."""
    depths = dict.fromkeys(initial_states(scenario), 0)
    transitions = set()
    queue = list(depths)
    for state in queue:
        for following in successors(scenario, state, schedule(scenario, state)):
            transitions.add((state, following))
            if following not in depths:
                depths[following] = depths[state] + 1
                queue.append(following)
    return depths, transitions


def default(scheduler: str = "vllm", policy: str = "prompt-only") -> Scenario:
    document = read_preset(scheduler)
    document["scheduler"]["policy"] = policy
    return build(document, scheduler)


def small(scheduler: SchedulerName, count: int) -> list[Scenario]:
    policies = ["none", "prompt-only", "lookahead-only", "first-decode-step"]
    found = []
    for number, policy in enumerate(policies):
        found += list(instances(number, count, scheduler, policy))
    fixed = found[0]
    arriving = tuple(replace(s, arrival=n * 2) for n, s in enumerate(fixed.requests))
    return [*found, Scenario("fixed arrivals", fixed.engine, arriving, fixed.environment)]


@pytest.mark.parametrize("scheduler", ["vllm", "rbln"])
def test_packed_search_is_the_reference_search(scheduler: SchedulerName) -> None:
    """Same states, same transitions, same depths."""
    for scenario in small(scheduler, 6):
        depths, transitions = naive(scenario)
        found = explore(scenario, keep_graph=True)
        states = [found.state(number) for number in range(found.num_states)]
        assert set(states) == set(depths), scenario
        assert len(states) == len(depths)
        assert found.num_transitions == len(transitions)
        assert found.edges is not None
        edges = [
            (states[number], states[target])
            for number in range(found.num_states)
            for target in found.edges.of(number)
        ]
        assert len(edges) == len(transitions)
        assert set(edges) == transitions
        assert all(
            len(found.path(number)) - 1 == depths[state] for number, state in enumerate(states)
        )
        assert found.depth == max(depths.values())


def test_the_search_with_and_without_the_graph_is_the_same() -> None:
    without, kept = explore(default()), explore(default(), keep_graph=True)
    assert without.edges is None
    assert without.packed == kept.packed
    assert without.parents == kept.parents
    assert without.num_transitions == kept.num_transitions


def test_the_search_is_deterministic() -> None:
    first, second = explore(default("rbln")), explore(default("rbln"))
    assert first.packed == second.packed


def test_pack_and_unpack() -> None:
    space = PackedSpace(default())
    for state in list(initial_states(space.scenario)):
        assert space.unpack(space.pack(state)) == state


def test_a_field_that_overflows_is_an_error() -> None:
    _check_field(FIELD_MASK, "states")
    with pytest.raises(OverflowError, match="too large to pack"):
        _check_field(FIELD_MASK + 1, "states")


@pytest.mark.parametrize(
    ("limits", "stop"),
    [
        (Limits(states=500), Stop.STATES),
        (Limits(seconds=0.0), Stop.SECONDS),
        (Limits(memory=1), Stop.MEMORY),
    ],
)
def test_a_limit_is_inconclusive_never_holds(limits: Limits, stop: Stop) -> None:
    result = check(default(policy="first-decode-step"), limits=limits)
    assert result.stopped is stop
    assert result.explored < result.num_states
    assert result.verdict is Verdict.INCONCLUSIVE
    assert {r.verdict for r in result.properties} <= {Verdict.INCONCLUSIVE, Verdict.VIOLATED}
    assert all(
        stop.value in r.evidence for r in result.properties if r.verdict is Verdict.INCONCLUSIVE
    )
    assert result.recompute is None


def test_a_limit_that_is_just_enough_is_no_limit() -> None:
    states = explore(default()).num_states
    assert explore(default(), limits=Limits(states=states)).complete
    assert not explore(default(), limits=Limits(states=states - 1)).complete


def test_a_violation_found_before_the_limit_stays() -> None:
    result = check(default(), limits=Limits(states=2_800))
    assert result.stopped is Stop.STATES
    assert result.verdict is Verdict.VIOLATED
    assert result.result("no-livelock").verdict is Verdict.INCONCLUSIVE


def test_ctrl_c_keeps_what_was_explored() -> None:
    def interrupt(number: int, expansion: Expansion) -> None:
        if number == 700:
            raise KeyboardInterrupt

    found = explore(default(), observers=(interrupt,))
    assert found.stopped is Stop.INTERRUPTED
    assert found.explored == 700
    assert len(found.parents) == found.num_states
    assert not found.complete


def test_state_graph_is_a_networkx_graph_on_numbers() -> None:
    found = explore(default(), keep_graph=True)
    graph = state_graph(found)
    assert graph.number_of_nodes() == found.num_states
    assert graph.number_of_edges() == found.num_transitions
    assert isinstance(found.state(next(iter(graph.nodes))), State)
    with pytest.raises(ValueError, match="keep_graph"):
        state_graph(explore(default()))


@pytest.mark.parametrize("scheduler", ["vllm", "rbln"])
def test_cycles_are_those_of_the_whole_graph(scheduler: SchedulerName) -> None:
    """The search for loops looks at silent steps only; the whole graph has no others."""
    looping = 0
    for scenario in small(scheduler, 8):
        found = explore(scenario, keep_graph=True)
        graph = state_graph(found)
        components = [
            component
            for component in nx.strongly_connected_components(graph)
            if len(component) > 1 or graph.has_edge(*(2 * tuple(component)))
        ]
        lassos = cycles(found)
        assert sorted(map(min, components)) == [lasso.cycle[0] for lasso in lassos]
        for lasso in lassos:
            ring = (*lasso.cycle, lasso.cycle[0])
            assert all(graph.has_edge(a, b) for a, b in pairwise(ring))
        looping += len(lassos)
    assert looping or scheduler == "vllm"


def brute_force(found: Exploration, weight: Counter[int]) -> int | None:
    """Heaviest run by relaxation until nothing changes; ``None`` if it never stops."""
    assert found.edges is not None
    best = [weight[number] for number in range(found.num_states)]
    for _ in range(found.num_states + 1):
        changed = False
        for number in range(found.num_states):
            for target in found.edges.of(number):
                if target != number and best[number] + weight[target] > best[target]:
                    best[target] = best[number] + weight[target]
                    changed = True
        if not changed:
            return max(best)
    return None


@pytest.mark.parametrize("scheduler", ["vllm", "rbln"])
def test_the_worst_case_is_that_of_brute_force(scheduler: SchedulerName) -> None:
    preempting = 0
    for scenario in small(scheduler, 5):
        lost: Counter[int] = Counter()

        def note(number: int, expansion: Expansion, lost: Counter[int] = lost) -> None:
            for event in expansion.output.events:
                if isinstance(event, Preempted):
                    lost[number] += event.computed

        found = explore(scenario, observers=(note,), keep_graph=True)
        if found.num_states > 1_500:
            continue
        result = check(scenario)
        assert result.recompute is not None
        assert result.recompute.tokens == brute_force(found, lost)
        preempting += bool(lost)
    assert preempting


def test_heaviest_run_has_no_bound_on_a_cycle() -> None:
    found = explore(default("rbln"), keep_graph=True)
    assert found.edges is not None
    assert heaviest_run(found.edges, found.num_states, lambda _: 1) is None


def test_replay_refuses_what_the_model_does_not_do() -> None:
    scenario = default()
    found = explore(scenario)
    states = [found.state(number) for number in found.path(2_000)]
    assert len(replay(scenario, states).steps) == len(states)
    with pytest.raises(ReplayError, match="initial state"):
        replay(scenario, states[1:])
    with pytest.raises(ReplayError, match="not a step"):
        replay(scenario, [states[0], states[0]])
    with pytest.raises(ReplayError):
        replay(scenario, states, loop_start=0)
