"""Scenarios and the environment's answers, drawn by hypothesis.

Small pools, prompts around block boundaries and long enough outputs, so that admissions are
refused and requests preempted in most runs. Nothing here knows a scheduler's rules.
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

from checker.engines.driver import Answer, Answers
from checker.lockstep import scripted
from models.config import EngineConfig, Release, RequestSpec, Scenario, SchedulerName
from models.gates import GATES
from models.script import DraftScript

DRAFTERS = {
    "ngram": lambda k: (0, 0),
    "draft_model": lambda k: (k, 1),
    "eagle": lambda k: (k, 0),
    "dflash": lambda k: (k + 1, k),
}


@dataclass(frozen=True)
class Workload:
    """A scenario with the answers that its environment gives; ``eos``: output at which one stops."""

    scenario: Scenario
    scripts: tuple[DraftScript, ...]
    eos: tuple[int | None, ...]

    @property
    def answers(self) -> Answers:
        """The answers, as functions of a request's own outputs."""
        drafts = scripted(self.scenario, self.scripts)

        def answers(index: int, outputs: int, scheduled: int) -> Answer:
            stop = self.eos[index]
            if stop is not None and outputs >= stop:
                return Answer(eos=True)
            return drafts(index, outputs, scheduled)

        return answers


@st.composite
def workloads(draw: st.DrawFn, scheduler: SchedulerName, release: Release) -> Workload:
    """One to four requests under a small engine of every kind that the model has."""
    engine = draw(engines(scheduler, release))
    count = draw(st.sampled_from([3, 2, 4, 1]))
    longest = engine.max_model_len
    half, whole = lengths(longest // 2), lengths(longest - 1)
    prompts = st.one_of(half, whole, half, whole, st.just(1))
    specs, scripts, eos = [], [], []
    for index in range(count):
        specs.append(
            RequestSpec(
                id=f"r{index}",
                prompt=(length := draw(prompts), length),
                max_tokens=draw(lengths(16)),
                priority=draw(st.integers(0, 2)) if engine.priority_policy else 0,
                arrival=draw(st.integers(0, 4)),
            )
        )
        k = engine.num_spec_tokens
        pairs = st.tuples(st.integers(0, k), st.integers(0, k))
        scripts.append(DraftScript(tuple(draw(st.lists(pairs, max_size=6)) if k else ())))
        eos.append(draw(st.sampled_from([None, None, None, None, 0, 1, 2, 5])))
    scenario = Scenario("drawn", engine, tuple(specs))
    return Workload(scenario, tuple(scripts), tuple(eos))


def lengths(most: int) -> st.SearchStrategy[int]:
    """Tokens, from 1 on, as likely long as short."""
    return st.integers(0, most - 1).map(lambda less: most - less)


@st.composite
def engines(draw: st.DrawFn, scheduler: SchedulerName, release: Release) -> EngineConfig:
    """An engine whose pool holds about one to two of its longest requests."""
    groups = draw(st.sampled_from([1, 1, 1, 2, 3]))
    sizes = [draw(lengths(9)) for _ in range(groups)]
    longest = draw(st.integers(8, 40))
    k = draw(st.sampled_from([3, 2, 1, 4, 0]))
    lookahead, slots = DRAFTERS[draw(st.sampled_from(sorted(DRAFTERS)))](k) if k else (0, 0)
    if scheduler == "rbln":
        slots = 0
    whole = sum(-(-longest // size) for size in sizes)
    seats = draw(st.integers(1, 4))
    # vLLM refuses a budget below max_num_seqs, and 0.33 one that is not above the lookahead (R49).
    least = max(slots + 1, seats, lookahead + 1 if release >= "0.33" else 0)
    return EngineConfig(
        scheduler=scheduler,
        gate=GATES[draw(st.sampled_from(sorted(GATES)))],
        block_sizes=tuple(sizes),
        usable_blocks=max(1, whole - 1 + draw(st.integers(0, whole))),
        num_spec_tokens=k,
        num_lookahead_tokens=lookahead,
        draft_slots=slots,
        max_num_batched_tokens=draw(st.integers(least, least + 40)),
        max_model_len=longest,
        max_num_seqs=seats,
        watermark=draw(st.sampled_from([0.0, 0.0, 0.1, 0.34])),
        priority_policy=draw(st.booleans()),
        release=release,
    )
