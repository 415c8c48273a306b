"""Every property can fail, and does not where nothing is wrong.

Safety properties are tried on decisions made by hand and on models that were broken on purpose;
liveness and cost on small instances of public reports, whose figures were worked out elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from random_scenarios import instances

from checker.check import CheckResult, check
from checker.scenario import build, read_preset
from models.config import EngineConfig, Environment, RequestSpec, Scenario, SchedulerName
from models.environment import initial_states, schedule, successors
from models.gates import GATES
from models.scheduler import (
    Admitted,
    Allocated,
    Event,
    Preempted,
    Refused,
    SchedulerOutput,
    ScheduleStep,
)
from models.state import Request, State, Status, Window
from properties.properties import (
    COVERAGE,
    PROPERTIES,
    STEP_PROPERTIES,
    CoverageProperty,
    Kind,
    admitted_alone,
)
from properties.verdict import SEVERITY, Verdict, worst

CHECKS = {checked.property.name: checked.check for checked in STEP_PROPERTIES}


def instance(
    scheduler: SchedulerName,
    policy: str,
    *requests: tuple[str, int, int],
    blocks: int,
    size: int | tuple[int, ...],
    budget: int,
    longest: int,
    k: int = 0,
    lookahead: int = 0,
    **settings: Any,
) -> Scenario:
    """An instance whose requests (id, prompt, max_tokens) arrive together; no draft is accepted."""
    engine = EngineConfig(
        scheduler=scheduler,
        gate=GATES[policy],
        block_sizes=(size,) if isinstance(size, int) else size,
        usable_blocks=blocks,
        num_spec_tokens=k,
        num_lookahead_tokens=lookahead,
        draft_slots=0,
        max_num_batched_tokens=budget,
        max_model_len=longest,
        max_num_seqs=8,
        **settings,
    )
    specs = tuple(
        RequestSpec(name, (prompt, prompt), most, arrival=0) for name, prompt, most in requests
    )
    return Scenario("instance", engine, specs, Environment(accepted=(0, 0)))


# --- safety properties on decisions made by hand ---------------------------------------------

PAIR = instance(
    "vllm", "prompt-only", ("a", 4, 3), ("b", 4, 3), blocks=6, size=4, budget=64, longest=16, k=1
)


def running(window: Window = Window.CLOSED, computed: int = 4) -> Request:
    return Request(Status.RUNNING, 4, computed - 3, computed, 1, (2,), False, window)


def decision(a: Window, b: Window, *events: Event) -> tuple[State, SchedulerOutput]:
    """Both requests run; the decision has these events, whatever they say."""
    state = State((running(a), running(b)), (0, 1), (), 0)
    output = schedule(PAIR, state)
    preempted = any(isinstance(event, Preempted) for event in events)
    return state, output._replace(events=events, preempted=preempted)


def preempted(victim: int, by: int) -> Preempted:
    return Preempted(victim, by, computed=4, slots=9, needed=1, free=0)


CLEAN, CONTENDED, CLOSED = Window.CLEAN, Window.CONTENDED, Window.CLOSED


@pytest.mark.parametrize(
    ("windows", "events", "promised", "strict"),
    [
        pytest.param((CLEAN, CLOSED), (), False, False, id="nothing happens"),
        pytest.param((CLEAN, CLOSED), (preempted(0, 0),), True, True, id="in a clean window"),
        pytest.param((CONTENDED, CLOSED), (preempted(0, 0),), False, True, id="in a contended one"),
        pytest.param((CLOSED, CLOSED), (preempted(0, 0),), False, False, id="after its window"),
        pytest.param((CLEAN, CLEAN), (preempted(0, 1),), False, False, id="by another"),
        pytest.param(
            (CLEAN, CLOSED),
            (Allocated(1, 1, 9), preempted(0, 0)),
            False,
            True,
            id="after another took a block in this step",
        ),
        pytest.param(
            (CLEAN, CLOSED),
            (Allocated(0, 1, 9), preempted(0, 0)),
            True,
            True,
            id="after it took one itself",
        ),
        pytest.param(
            (CLEAN, CLEAN),
            (preempted(1, 0), preempted(0, 0)),
            True,
            True,
            id="after it preempted another",
        ),
        pytest.param(
            (CLEAN, CLEAN),
            (Allocated(0, 1, 9), preempted(1, 1)),
            False,
            True,
            id="the other one, contended",
        ),
        pytest.param((CLEAN, CLOSED), (Refused(1, "gate", 3, 0),), False, False, id="a refusal"),
        pytest.param((CLEAN, CLOSED), (Admitted(1),), False, False, id="an admission"),
    ],
)
def test_self_preemption(
    windows: tuple[Window, Window], events: tuple[Event, ...], promised: bool, strict: bool
) -> None:
    state, output = decision(*windows, *events)
    assert (CHECKS["no-self-preemption"](PAIR, state, output) is not None) is promised
    assert (CHECKS["no-self-preemption-strict"](PAIR, state, output) is not None) is strict


def test_self_preemption_names_the_request_and_what_it_lost() -> None:
    finding = CHECKS["no-self-preemption"](PAIR, *decision(CLOSED, CLEAN, preempted(1, 1)))
    assert finding == (
        "b preempts itself in its admission window, with nobody else having taken a block: "
        "4 computed tokens lost"
    )


WAITING = Request(Status.WAITING, 4, 0, 0, 0, (0,), False, CLOSED)
SOUND = State((running(), WAITING), (0,), (1,), 0)  # b is admitted


def sound() -> tuple[State, SchedulerOutput]:
    output = schedule(PAIR, SOUND)
    assert output.running == (0, 1)
    return SOUND, output


@pytest.mark.parametrize("name", CHECKS)
def test_no_property_complains_about_a_sound_decision(name: str) -> None:
    assert CHECKS[name](PAIR, *sound()) is None


Change = Callable[[State, SchedulerOutput], tuple[State, SchedulerOutput]]


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        pytest.param(
            "block-conservation",
            lambda s, o: (s, o._replace(free=o.free + 1)),
            "3 blocks held and 4 free, of 6 usable",
            id="a block too many",
        ),
        pytest.param(
            "block-conservation",
            lambda s, o: (s, o._replace(blocks=((5,), (2,)), free=-1)),
            "7 blocks held and -1 free, of 6 usable",
            id="more than there are",
        ),
        pytest.param(
            "one-queue-per-request",
            lambda s, o: (s, o._replace(running=(0,))),
            "queues hold requests [0], present are [0, 1]",
            id="in no queue",
        ),
        pytest.param(
            "one-queue-per-request",
            lambda s, o: (s, o._replace(waiting=(1,))),
            "queues hold requests [0, 1, 1], present are [0, 1]",
            id="in both queues",
        ),
        pytest.param(
            "one-queue-per-request",
            lambda s, o: (s._replace(running=(0, 0)), o),
            "queues hold requests [0, 0, 1], present are [0, 1]",
            id="twice before the step",
        ),
        pytest.param(
            "one-queue-per-request",
            lambda s, o: (s._replace(running=(1,), waiting=(0,)), o),
            "b is in the running queue and is not RUNNING",
            id="waiting in the running queue",
        ),
        pytest.param(
            "waiting-hold-nothing",
            lambda s, o: (s, o._replace(running=(0,), waiting=(1,))),
            "b waits and holds 1 blocks",
            id="a waiting request with blocks",
        ),
        pytest.param(
            "write-window-owned",
            lambda s, o: (s, o._replace(blocks=((1,), (1,)))),
            "a may write 6 slots and owns 4",
            id="a slot beyond the blocks",
        ),
        pytest.param(
            "no-preemption-by-admission",
            lambda s, o: (s, o._replace(events=(preempted(0, 1),), preempted=True)),
            "a is preempted for b, which was not running yet",
            id="for a waiting request",
        ),
    ],
)
def test_a_broken_decision_is_reported(name: str, change: Change, said: str) -> None:
    assert CHECKS[name](PAIR, *change(*sound())) == said


def test_the_write_window_counts_lookahead_every_group_and_ends_at_the_longest_sequence() -> None:
    scenario = instance(
        "vllm",
        "none",
        ("a", 6, 3),
        blocks=9,
        size=(4, 3),
        budget=64,
        longest=8,
        k=1,
        lookahead=1,
    )
    (state,) = initial_states(scenario)
    output = schedule(scenario, state)  # 6 + 1 slots
    owned = CHECKS["write-window-owned"]
    assert output.blocks == ((2, 3),)
    assert owned(scenario, state, output) is None
    finding = owned(scenario, state, output._replace(blocks=((2, 2),)))
    assert finding == "a may write 7 slots and owns 6"
    engine = replace(scenario.engine, num_lookahead_tokens=5)
    capped = replace(scenario, engine=engine)
    output = schedule(capped, state)  # 8 slots, not 6 + 5
    assert output.blocks == ((2, 3),)
    assert owned(capped, state, output) is None


def test_a_wait_in_a_full_pool_is_no_unservable_wait() -> None:
    scenario = instance(
        "vllm", "prompt-only", ("a", 8, 3), ("b", 8, 3), blocks=3, size=4, budget=64, longest=16
    )
    (state,) = initial_states(scenario)
    output = schedule(scenario, state)
    assert output.waiting == (1,)
    assert admitted_alone(scenario, 1, state.requests[1])
    assert CHECKS["no-unservable-wait"](scenario, state, output) is None


# --- safety properties on a model that was broken on purpose ---------------------------------

CONTENTION = instance(
    "vllm", "none", ("a", 4, 6), ("b", 4, 6), blocks=3, size=4, budget=64, longest=12, k=1
)


def test_nothing_is_wrong_with_the_model_as_it_is() -> None:
    result = check(CONTENTION)
    assert result.coverage[0].depth is not None  # preemption-reachable
    invariants = [r for r in result.properties if "self-preemption" not in r.property.name]
    assert {r.verdict for r in invariants} == {Verdict.HOLDS}


def _leaks(step: ScheduleStep, index: int, wanted: Any) -> None:
    TAKE(step, index, wanted)
    step.free -= 1


def _gives_less(step: ScheduleStep, index: int, wanted: Any) -> None:
    table = tuple(max(blocks - 1, 0) for blocks in wanted.table)
    TAKE(step, index, wanted._replace(table=table, new_blocks=max(wanted.new_blocks - 1, 0)))


def _forgets(step: ScheduleStep, index: int, wanted: Any) -> int:
    victim = PREEMPT(step, index, wanted)
    step.waiting.remove(victim)
    return victim


def _keeps_its_blocks(step: ScheduleStep, index: int, wanted: Any) -> int:
    victim = PREEMPT(step, index, wanted)
    step.blocks[victim] = (1,)
    return victim


def _evicts_to_admit(step: ScheduleStep, index: int, tokens: int) -> bool:
    if step.running:
        wanted = step.engine.allocation(step.blocks[index], tokens)
        step.preempt_for(index, wanted)
        step.waiting.remove(index)
        step.waiting.insert(0, index)
    return ADMIT(step, index, tokens)


TAKE, PREEMPT, ADMIT = ScheduleStep._take, ScheduleStep.preempt_for, ScheduleStep.admit


@pytest.mark.parametrize(
    ("method", "broken", "name"),
    [
        ("_take", _leaks, "block-conservation"),
        ("_take", _gives_less, "write-window-owned"),
        ("preempt_for", _forgets, "one-queue-per-request"),
        ("preempt_for", _keeps_its_blocks, "waiting-hold-nothing"),
        ("admit", _evicts_to_admit, "no-preemption-by-admission"),
    ],
)
def test_a_broken_model_is_caught(
    method: str,
    broken: Callable[..., object],
    name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ScheduleStep, method, broken)
    result = check(CONTENTION)
    found = result.result(name)
    assert found.verdict is Verdict.VIOLATED
    assert found.trace is not None
    assert result.verdict is Verdict.VIOLATED


# --- liveness and cost on small instances of public reports ----------------------------------


def violated(result: CheckResult) -> dict[str, str]:
    return {
        found.property.name: found.evidence
        for found in result.properties
        if found.verdict is Verdict.VIOLATED
    }


def cost(result: CheckResult) -> tuple[int | None, int | None]:
    """Most tokens thrown away, most preemptions of one request."""
    assert result.recompute is not None
    return result.recompute.tokens, result.recompute.preemptions


def mixed(policy: str, k: int, lookahead: int) -> CheckResult:
    return check(
        instance(
            "vllm",
            policy,
            ("a", 1, 4),
            ("b", 2, 2),
            blocks=3,
            size=2,
            budget=6,
            longest=6,
            k=k,
            lookahead=lookahead,
        )
    )


def test_a_prompt_that_fills_its_blocks_preempts_itself_and_costs_its_prefill() -> None:
    old, corrected = mixed("prompt-only", 2, 0), mixed("first-decode-step", 2, 0)
    assert violated(old) == {
        "no-self-preemption-strict": "step 1: b preempts itself in its admission window: "
        "2 computed tokens lost"
    }
    assert cost(old) == (2, 1)
    assert violated(corrected) == {}
    assert cost(corrected) == (0, 0)
    assert old.recompute is not None
    assert corrected.recompute is not None
    assert old.recompute.steps is not None
    assert corrected.recompute.steps == old.recompute.steps + 1


def test_with_lookahead_it_holds_its_last_block_already_and_the_other_one_preempts_it() -> None:
    old = mixed("prompt-only", 1, 1)
    assert violated(old) == {}
    assert cost(old) == (2, 1)
    assert cost(mixed("first-decode-step", 1, 1)) == (0, 0)


@pytest.mark.parametrize("policy", ["none", "prompt-only"])
def test_a_prefill_that_runs_alone_loops_in_two_steps(policy: str) -> None:
    result = exclusive(policy)
    assert violated(result) == {
        "no-self-preemption": "step 2: b preempts itself in its admission window, with nobody else "
        "having taken a block: 4 computed tokens lost",
        "no-self-preemption-strict": "step 2: b preempts itself in its admission window: "
        "4 computed tokens lost",
        "no-livelock": "step 2: a cycle of 2 steps, for ever",
        "bounded-recompute": "step 2: no bound, the loop preempts",
    }
    assert cost(result) == (None, None)
    trace = result.result("no-livelock").trace
    assert trace is not None
    assert [sorted(step.output.scheduled) for step in trace.steps] == [[0], [1], [], [1]]


@pytest.mark.parametrize("policy", ["lookahead-only", "first-decode-step"])
def test_it_does_not_loop_where_the_lookahead_is_counted(policy: str) -> None:
    result = exclusive(policy)
    assert violated(result) == {}
    assert cost(result) == (0, 0)


def exclusive(policy: str) -> CheckResult:
    return check(
        instance(
            "rbln",
            policy,
            ("a", 1, 3),
            ("b", 6, 2),
            blocks=5,
            size=2,
            budget=4,
            longest=10,
            k=1,
            lookahead=1,
        )
    )


def edge(blocks: int, prompt: int, most: int) -> CheckResult:
    """A request that needs the whole of ``max_model_len`` 16, before another one."""
    first = ("a", prompt, most)
    return check(
        instance(
            "vllm", "prompt-only", first, ("b", 4, 2), blocks=blocks, size=4, budget=64, longest=16
        )
    )


def test_a_prompt_larger_than_the_pool_waits_for_ever_and_blocks_the_line() -> None:
    result = edge(3, 13, 2)
    assert violated(result) == {
        "no-deadlock": "step 0: stuck, for ever",
        "no-unservable-wait": "step 0: a (13 tokens) waits at the head of the line and would not be "
        "admitted even alone in an empty pool",
    }
    assert result.num_states == 1
    assert violated(edge(4, 13, 2)) == {}


def test_a_request_that_outgrows_the_pool_is_stuck_after_one_token() -> None:
    result = edge(3, 12, 4)
    assert violated(result) == {
        "no-self-preemption": "step 1: a preempts itself in its admission window, with nobody else "
        "having taken a block: 12 computed tokens lost",
        "no-self-preemption-strict": "step 1: a preempts itself in its admission window: "
        "12 computed tokens lost",
        "no-deadlock": "step 2: stuck, for ever",
        "no-unservable-wait": "step 2: a (13 tokens) waits at the head of the line and would not be "
        "admitted even alone in an empty pool",
    }
    assert cost(result) == (12, 1)
    assert violated(edge(4, 12, 4)) == {}


def too_long(policy: str) -> CheckResult:
    """A prompt of 20 tokens in a pool of 16, in chunks of 8."""
    first, second = ("a", 20, 2), ("b", 4, 2)
    return check(instance("vllm", policy, first, second, blocks=4, size=4, budget=8, longest=64))


def test_a_prompt_that_can_never_fit_is_a_deadlock_with_a_gate_and_a_livelock_without() -> None:
    gated, ungated = too_long("prompt-only"), too_long("none")
    assert violated(gated)["no-deadlock"] == "step 0: stuck, for ever"
    assert "no-livelock" not in violated(gated)
    assert violated(ungated)["no-livelock"] == "step 1: a cycle of 3 steps, for ever"
    assert "no-deadlock" not in violated(ungated)
    assert violated(ungated)["bounded-recompute"] == "step 1: no bound, the loop preempts"


@pytest.mark.parametrize(("policy", "thrown"), [("none", (12, 3)), ("prompt-only", (0, 0))])
def test_chunks_admitted_one_by_one_are_thrown_away_three_times(
    policy: str, thrown: tuple[int, int]
) -> None:
    requests = (("a", 4, 8), ("b", 12, 2))
    result = check(instance("vllm", policy, *requests, blocks=4, size=4, budget=4, longest=16))
    assert cost(result) == thrown
    assert result.result("bounded-recompute").verdict is Verdict.HOLDS


@pytest.mark.parametrize(("watermark", "thrown"), [(0.0, (8, 1)), (0.2, (0, 0))])
def test_a_watermark_trades_steps_for_recompute(watermark: float, thrown: tuple[int, int]) -> None:
    requests = (("a", 6, 4), ("b", 6, 4))
    settings = {"blocks": 4, "size": 4, "budget": 64, "longest": 16, "watermark": watermark}
    assert cost(check(instance("vllm", "prompt-only", *requests, **settings))) == thrown
    alone = check(instance("vllm", "prompt-only", ("c", 15, 1), **settings))
    assert violated(alone) == {}  # a watermark does not count while nothing runs


def test_recompute_is_bounded_where_three_long_outputs_fight() -> None:
    requests = tuple((name, 3, 20) for name in "abc")
    result = check(
        instance("vllm", "prompt-only", *requests, blocks=12, size=2, budget=64, longest=24)
    )
    assert cost(result) == (30, 2)
    assert result.result("bounded-recompute").evidence == (
        "worst run: 30 tokens thrown away, 2 preemptions of one request"
    )


# --- coverage --------------------------------------------------------------------------------


def test_what_is_never_seen_is_said() -> None:
    result = check(instance("vllm", "none", ("a", 4, 3), blocks=9, size=4, budget=64, longest=16))
    assert {c.property.name: c.depth for c in result.coverage} == {
        "preemption-reachable": None,
        "pool-full-reachable": None,
        "refusal-reachable": None,
    }
    assert result.verdict is Verdict.HOLDS


def test_what_is_seen_is_dated() -> None:
    assert {c.property.name: c.depth for c in edge(3, 12, 4).coverage} == {
        "preemption-reachable": 1,
        "pool-full-reachable": 0,
        "refusal-reachable": 0,
    }


# --- the first violation is at the least depth -----------------------------------------------


def first_depths(scenario: Scenario) -> dict[str, int]:
    """Property -> the least number of steps to a state that violates it, or where it is seen."""
    found: dict[str, int] = {}
    level, seen, depth = list(initial_states(scenario)), set(), 0
    while level:
        following = []
        for state in level:
            if state in seen:
                continue
            seen.add(state)
            output = schedule(scenario, state)
            for checked in (*STEP_PROPERTIES, *COVERAGE):
                if _shows(checked, scenario, state, output):
                    found.setdefault(checked.property.name, depth)
            following += successors(scenario, state, output)
        level, depth = following, depth + 1
    return found


def _shows(checked: Any, scenario: Scenario, state: State, output: SchedulerOutput) -> bool:
    if isinstance(checked, CoverageProperty):
        return checked.seen(state, output)
    return checked.check(scenario, state, output) is not None


def reported_depths(result: CheckResult) -> dict[str, int]:
    safety = {
        found.property.name: len(found.trace.steps) - 1
        for found in result.properties
        if found.trace is not None and found.property.kind is Kind.SAFETY
    }
    seen = {c.property.name: c.depth for c in result.coverage if c.depth is not None}
    return safety | seen


@pytest.mark.parametrize("scheduler", ["vllm", "rbln"])
@pytest.mark.parametrize("policy", ["none", "prompt-only", "first-decode-step"])
def test_the_first_violation_is_at_the_least_depth(scheduler: SchedulerName, policy: str) -> None:
    compared: set[str] = set()
    for scenario in instances(11, 12, scheduler, policy):
        expected = first_depths(scenario)
        assert reported_depths(check(scenario)) == expected
        compared |= set(expected)
    assert compared >= {"preemption-reachable", "pool-full-reachable", "refusal-reachable"}
    if policy == "none":
        assert "no-self-preemption" in compared


@pytest.mark.parametrize("scheduler", ["vllm", "rbln"])
def test_the_first_violation_of_the_default_instance_is_at_the_least_depth(scheduler: str) -> None:
    scenario = build(read_preset(scheduler), scheduler)
    assert reported_depths(check(scenario)) == first_depths(scenario)


# --- names and verdicts ----------------------------------------------------------------------


def test_properties_have_names_and_statements_of_their_own() -> None:
    names = [prop.name for prop in PROPERTIES]
    assert len(set(names)) == len(names)
    assert all(prop.statement for prop in PROPERTIES)
    assert [p.name for p in PROPERTIES if not p.required and p.kind is not Kind.COVERAGE] == [
        "no-self-preemption-strict"
    ]


def test_the_worst_verdict_decides() -> None:
    assert [verdict.name for verdict in SEVERITY] == [
        "PROVED",
        "HOLDS",
        "INCONCLUSIVE",
        "VIOLATED",
    ]
    for number, verdict in enumerate(SEVERITY):
        assert worst(SEVERITY[: number + 1]) is verdict
        assert worst(reversed(SEVERITY[: number + 1])) is verdict


def test_a_property_that_is_not_required_does_not_decide() -> None:
    result = check(build(read_preset("vllm") | {"scheduler": {"policy": "first-decode-step"}}, "x"))
    assert result.result("no-self-preemption-strict").verdict is Verdict.VIOLATED
    assert result.verdict is Verdict.HOLDS
    assert result.worst_violated is None
