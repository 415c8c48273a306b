"""The figures of the public threads, run on the model.

(a) and (b): vllm-project/vllm#63288; (c): its sizes end to end; (d): RBLN-SW/vllm-rbln#1330 with
prefix caching off. Numbers, not only verdicts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, product

import pytest

from checker.check import CheckResult, check
from models.config import EngineConfig, Environment, RequestSpec, Scenario
from models.environment import schedule
from models.gates import GATES
from models.scheduler import Admitted, Preempted, Refused
from models.script import DraftScript, play
from models.state import FINISHED, Request, State, Status, Window
from properties.verdict import Verdict

ALL_REJECTED = DraftScript(((3, 0),))


@dataclass(frozen=True)
class Run:
    """A scripted run to its end: preemptions (victim, by, computed) and the step each one finished."""

    preemptions: list[tuple[str, str, int]]
    finished: dict[str, int]


def run(scenario: Scenario, scripts: list[DraftScript], most: int = 300) -> Run:
    ids = [spec.id for spec in scenario.requests]
    preemptions: list[tuple[str, str, int]] = []
    finished: dict[str, int] = {}
    for number, step in enumerate(islice(play(scenario, scripts), most)):
        preemptions += [
            (ids[event.victim], ids[event.by], event.computed)
            for event in step.output.events
            if isinstance(event, Preempted)
        ]
        for index in step.output.scheduled:
            if step.after[index] is FINISHED:
                finished[ids[index]] = number
        if len(finished) == len(ids):
            break
    return Run(preemptions, finished)


# --- (a) vLLM, three preemptions ---------------------------------------------------------------


def seed_a(policy: str, decode_tokens: int = 12) -> Scenario:
    engine = EngineConfig(
        scheduler="vllm",
        gate=GATES[policy],
        block_sizes=(16,),
        usable_blocks=6,
        num_spec_tokens=3,
        num_lookahead_tokens=0,
        draft_slots=0,
        max_num_batched_tokens=8192,
        max_model_len=256,
        max_num_seqs=8,
    )
    requests = (
        RequestSpec("a", (17, 17), decode_tokens, arrival=0),
        RequestSpec("b", (17, 17), decode_tokens, arrival=0),
        RequestSpec("v", (30, 30), 8, arrival=1),
    )
    return Scenario("seed a", engine, requests, Environment(accepted=(0, 0)))


def own_preemptions(run: Run, request: str = "v") -> list[int]:
    return [computed for victim, by, computed in run.preemptions if victim == by == request]


@pytest.mark.parametrize("policy", ["none", "prompt-only", "lookahead-only"])
def test_a_preempts_itself_at_30_31_32(policy: str) -> None:
    scripted = run(seed_a(policy), [ALL_REJECTED] * 3)
    assert scripted.preemptions == [("v", "v", 30), ("v", "v", 31), ("v", "v", 32)]
    assert scripted.finished["v"] == 16


def test_a_corrected_gate_never_and_three_steps_later() -> None:
    scripted = run(seed_a("first-decode-step"), [ALL_REJECTED] * 3)
    assert scripted.preemptions == []
    assert scripted.finished["v"] == 19


@pytest.mark.parametrize(
    ("policy", "times"),
    [("none", 4), ("prompt-only", 4), ("lookahead-only", 4), ("first-decode-step", 1)],
)
def test_a_with_decodes_of_40_tokens(policy: str, times: int) -> None:
    scripted = run(seed_a(policy, decode_tokens=40), [ALL_REJECTED] * 3)
    assert len([p for p in scripted.preemptions if p[0] == "v"]) == times


def test_a_the_explorer_says_the_same() -> None:
    """With every answer fixed the state graph is one path, and its worst case is the run's."""
    old, new = check(seed_a("prompt-only")), check(seed_a("first-decode-step"))
    assert old.result("no-self-preemption").verdict is Verdict.VIOLATED
    assert old.recompute is not None
    assert (old.recompute.tokens, old.recompute.preemptions) == (30 + 31 + 32, 3)
    assert old.num_states == old.num_transitions + 1
    assert new.verdict is Verdict.HOLDS
    assert new.recompute is not None
    assert (new.recompute.tokens, new.recompute.preemptions) == (0, 0)


def test_a_the_search_finds_the_prompts_that_fail() -> None:
    """Among prompts of 26 to 33 tokens, by itself: 29 to 32 fail with two blocks free."""
    failing = []
    for prompt in range(26, 34):
        base = seed_a("prompt-only")
        victim = RequestSpec("v", (prompt, prompt), 1 + 1, arrival=1)
        scenario = Scenario("one prompt", base.engine, (*base.requests[:2], victim))
        trace = check(scenario).result("no-self-preemption").trace
        if trace is not None and len(trace.steps) == 3:  # on its first decode step
            failing.append(prompt)
    assert failing == [29, 30, 31, 32]


# --- (b) the gate alone ------------------------------------------------------------------------


def admission(policy: str, prompt: int, outputs: int, k: int, lookahead: int) -> list[object]:
    """Events of a step that considers one waiting request, alone, with four blocks of 16."""
    engine = EngineConfig(
        scheduler="vllm",
        gate=GATES[policy],
        block_sizes=(16,),
        usable_blocks=4,
        num_spec_tokens=k,
        num_lookahead_tokens=lookahead,
        draft_slots=0,
        max_num_batched_tokens=16,
        max_model_len=256,
        max_num_seqs=4,
    )
    scenario = Scenario("gate", engine, (RequestSpec("v", (prompt, prompt), 8),))
    waiting = Request(Status.WAITING, prompt, outputs, 0, 0, (0,), False, Window.CLOSED)
    return list(schedule(scenario, State((waiting,), (), (0,), 0)).events)


@pytest.mark.parametrize(
    ("prompt", "decode_step", "lookahead", "fits"),
    [
        (64, 0, 0, (True, True, True)),
        (62, 0, 3, (True, False, False)),
        (57, 4, 3, (True, True, True)),
        (58, 4, 3, (True, True, False)),
    ],
)
def test_b_the_gate_alone(
    prompt: int, decode_step: int, lookahead: int, fits: tuple[bool, bool, bool]
) -> None:
    """A decode step of n tokens is one token and n - 1 drafts; none means no speculation."""
    k = max(decode_step - 1, 0)
    for policy, expected in zip(
        ("prompt-only", "lookahead-only", "first-decode-step"), fits, strict=True
    ):
        if policy == "first-decode-step" and (prompt, lookahead) == (62, 3):
            k = 3  # the row has no decode step; the corrected gate counts one
        events = admission(policy, prompt, 0, k, lookahead)
        assert any(isinstance(event, Admitted) for event in events) == expected, policy


def test_b_the_corrected_gate_says_5_of_4() -> None:
    assert admission("first-decode-step", 58, 0, 3, 3) == [Refused(0, "gate", 5, 4)]


def test_b_the_last_chunk_then_fails() -> None:
    """62 tokens and lookahead 3: the gate passes, the last chunk wants a fifth block."""
    engine = check_b_engine()
    scenario = Scenario("62/0/3", engine, (RequestSpec("v", (62, 62), 8, arrival=0),))
    steps = list(islice(play(scenario, [DraftScript()]), 4))
    event = next(e for e in steps[3].output.events if isinstance(e, Preempted))
    assert (event.victim, event.by, event.computed, event.slots) == (0, 0, 48, 65)
    assert sum(steps[3].before.requests[0].blocks) + event.needed == 5


def check_b_engine() -> EngineConfig:
    return EngineConfig(
        scheduler="vllm",
        gate=GATES["prompt-only"],
        block_sizes=(16,),
        usable_blocks=4,
        num_spec_tokens=0,
        num_lookahead_tokens=3,
        draft_slots=0,
        max_num_batched_tokens=16,
        max_model_len=256,
        max_num_seqs=4,
    )


# --- (c) end to end sizes ----------------------------------------------------------------------


def seed_c(policy: str, prompt: int) -> Scenario:
    """Two decodes of 65 tokens; both have prefilled before step 5, when v arrives."""
    engine = EngineConfig(
        scheduler="vllm",
        gate=GATES[policy],
        block_sizes=(64,),
        usable_blocks=6,
        num_spec_tokens=3,
        num_lookahead_tokens=3,
        draft_slots=1,
        max_num_batched_tokens=32,
        max_model_len=256,
        max_num_seqs=4,
    )
    requests = (
        RequestSpec("a", (65, 65), 40, arrival=0),
        RequestSpec("b", (65, 65), 40, arrival=0),
        RequestSpec("v", (prompt, prompt), 8, arrival=5),
    )
    return Scenario("seed c", engine, requests)


def accepting(pattern: tuple[int, ...]) -> DraftScript:
    return DraftScript(tuple((3, accepted) for accepted in pattern))


def patterns() -> Iterator[list[DraftScript]]:
    """Decodes that accept two or three drafts each time."""
    for a, b in product([(2,), (3,), (2, 3), (3, 2)], repeat=2):
        yield [accepting(a), accepting(b), accepting((2,))]


@pytest.mark.parametrize(("prompt", "thrown_away"), [(125, 125), (128, 105)])
def test_c_prompt_only_throws_the_prefill_away_once(prompt: int, thrown_away: int) -> None:
    for scripts in patterns():
        scripted = run(seed_c("prompt-only", prompt), scripts)
        assert own_preemptions(scripted) == [thrown_away]


@pytest.mark.parametrize("prompt", [125, 128])
def test_c_first_decode_step_none_and_later(prompt: int) -> None:
    delays = set()
    for scripts in patterns():
        old = run(seed_c("prompt-only", prompt), scripts)
        new = run(seed_c("first-decode-step", prompt), scripts)
        assert new.preemptions == []
        delays.add(new.finished["v"] - old.finished["v"])
    assert delays <= set(range(0, 6))
    assert max(delays) >= 1


def test_c_with_no_draft_accepted_there_are_six() -> None:
    scripted = run(seed_c("prompt-only", 125), [ALL_REJECTED] * 3)
    assert len(own_preemptions(scripted)) == 6


@pytest.mark.parametrize(("prompt", "thrown_away"), [(125, [125]), (128, [])])
def test_c_lookahead_only(prompt: int, thrown_away: list[int]) -> None:
    for scripts in patterns():
        assert own_preemptions(run(seed_c("lookahead-only", prompt), scripts)) == thrown_away


# --- (d) vllm-rbln, prefix caching off ---------------------------------------------------------


def seed_d(policy: str, prompt: int, decode_tokens: int = 40) -> Scenario:
    """Two drafting decodes hold four of six blocks from step 5 on, when v arrives."""
    engine = EngineConfig(
        scheduler="rbln",
        gate=GATES[policy],
        block_sizes=(16,),
        usable_blocks=6,
        num_spec_tokens=3,
        num_lookahead_tokens=0,
        draft_slots=0,
        max_num_batched_tokens=16,
        max_model_len=256,
        max_num_seqs=8,
    )
    requests = (
        RequestSpec("a", (17, 17), decode_tokens, arrival=0),
        RequestSpec("b", (17, 17), decode_tokens, arrival=0),
        RequestSpec("v", (prompt, prompt), 8, arrival=4),
    )
    return Scenario("seed d", engine, requests, Environment(accepted=(0, 0)))


def self_preemptions_before(result: CheckResult, name: str) -> list[int]:
    """Computed tokens of v at each self-preemption on the run to the loop of a property."""
    trace = result.result(name).trace
    assert trace is not None
    return [
        event.computed
        for step in trace.steps[: trace.loop_start]
        for event in step.output.events
        if isinstance(event, Preempted) and event.victim == event.by == 2
    ]


def test_d_32_tokens_loop_in_two_steps_and_v_never_emits() -> None:
    result = check(seed_d("prompt-only", 32))
    livelock = result.result("no-livelock")
    assert livelock.verdict is Verdict.VIOLATED
    assert livelock.trace is not None
    loop = livelock.trace.steps[livelock.trace.loop_start :]
    assert len(loop) == 2
    assert all(step.before.requests[2].outputs == 0 for step in loop)
    scheduled = [step.output.scheduled for step in loop]
    assert sorted(scheduled, key=len) == [{}, {2: 16}]
    assert [e.computed for s in loop for e in s.output.events if isinstance(e, Preempted)] == [16]
    assert result.result("bounded-recompute").verdict is Verdict.VIOLATED


def test_d_26_tokens_four_self_preemptions_then_livelock_at_30() -> None:
    result = check(seed_d("prompt-only", 26))
    livelock = result.result("no-livelock")
    assert livelock.verdict is Verdict.VIOLATED
    assert livelock.trace is not None
    assert self_preemptions_before(result, "no-livelock") == [26, 27, 28, 29]
    victim = livelock.trace.steps[livelock.trace.loop_start].before.requests[2]
    assert (victim.num_tokens, victim.outputs) == (30, 4)
    assert len(livelock.trace.steps) - (livelock.trace.loop_start or 0) == 2


def test_d_lookahead_only_26_ends_after_four() -> None:
    result = check(seed_d("lookahead-only", 26))
    assert result.result("no-livelock").verdict is Verdict.HOLDS
    scripted = run(seed_d("lookahead-only", 26), [ALL_REJECTED] * 3)
    assert own_preemptions(scripted) == [26, 27, 28, 29]
    assert set(scripted.finished) == {"a", "b", "v"}


def test_d_lookahead_only_32_is_never_preempted_by_itself() -> None:
    assert own_preemptions(run(seed_d("lookahead-only", 32), [ALL_REJECTED] * 3)) == []


@pytest.mark.parametrize("prompt", [26, 32])
def test_d_first_decode_step_never_preempts_v(prompt: int) -> None:
    scripted = run(seed_d("first-decode-step", prompt, decode_tokens=12), [ALL_REJECTED] * 3)
    assert scripted.preemptions == []
    result = check(seed_d("first-decode-step", prompt, decode_tokens=12))
    assert result.verdict is Verdict.HOLDS
