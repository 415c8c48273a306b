"""Hypothesis strategies for small instances and for what the environment answers.

Every scenario drawn can be checked: its longest request fits in the pool alone, and no setting
keeps a request from ever being scheduled. Simpler ones come first, so failures shrink towards one
request, blocks of two tokens, no speculation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from checker.trace import Answer
from models.config import EngineConfig, Environment, RequestSpec, Scenario, SchedulerName
from models.environment import accepted_drafts, proposed_drafts
from models.gates import GATES, Gate
from models.kv_cache import num_blocks_to_allocate


def gates() -> SearchStrategy[Gate]:
    """The shipped gates."""
    return st.sampled_from(list(GATES.values()))


def environments(*, eos: bool = True) -> SearchStrategy[Environment]:
    """What the environment may answer: bounds on accepted drafts, drafts proposed, ends."""
    return _environments(eos)


@st.composite
def _environments(draw: DrawFn, eos: bool) -> Environment:
    accepted: tuple[int, int | None] = (0, None)
    if draw(st.booleans()):
        least = draw(st.integers(0, 2))
        accepted = (least, least + draw(st.integers(0, 2)))
    proposed: Literal["always", "up-to"] = "up-to" if draw(st.booleans()) else "always"
    return Environment(accepted, proposed, eos and draw(st.booleans()))


def answers(scenario: Scenario, drafts: int) -> SearchStrategy[Answer]:
    """The environment's answer to a request that samples, ``drafts`` of it having been scheduled.

    Placeholders (negative) are never accepted.
    """
    environment = scenario.environment
    accepted = accepted_drafts(environment, drafts)
    proposed = proposed_drafts(environment, scenario.engine.num_spec_tokens)
    return st.tuples(
        st.integers(accepted[0], accepted[-1]),
        st.integers(proposed[0], proposed[-1]),
        st.booleans() if environment.eos else st.just(False),
    ).map(Answer._make)


@st.composite
def workloads(
    draw: DrawFn,
    max_model_len: int,
    *,
    max_requests: int = 3,
    max_tokens: int = 6,
    fixed_arrivals: bool | None = None,
) -> tuple[RequestSpec, ...]:
    """Requests whose prompts are below ``max_model_len``.

    ``fixed_arrivals``: each arrives before a step of its own; left out: sometimes.
    """
    fixed = draw(st.booleans()) if fixed_arrivals is None else fixed_arrivals
    specs = []
    for number in range(draw(st.integers(1, max_requests))):
        shortest = draw(st.integers(1, max_model_len - 1))
        longest = min(shortest + draw(st.integers(0, 2)), max_model_len - 1)
        specs.append(
            RequestSpec(
                id=f"r{number}",
                prompt=(shortest, longest),
                max_tokens=draw(st.integers(1, max_tokens)),
                priority=draw(st.integers(0, 2)),
                arrival=draw(st.integers(0, 4)) if fixed else None,
            )
        )
    return tuple(specs)


@st.composite
def scenarios(
    draw: DrawFn,
    *,
    gate: Gate | SearchStrategy[Gate] | None = None,
    schedulers: Sequence[SchedulerName] = ("vllm", "rbln"),
    speculative: bool | None = None,
    max_requests: int = 3,
    environment: SearchStrategy[Environment] | None = None,
    fixed_arrivals: bool | None = None,
) -> Scenario:
    """Small instances.

    ``gate``: one, or a strategy; left out: any shipped one. ``speculative``: with or without
    drafts; left out: either. ``environment``: left out: any that ``environments`` draws.
    """
    scheduler = draw(st.sampled_from(list(schedulers)))
    drafting = draw(st.booleans()) if speculative is None else speculative
    k = draw(st.integers(1, 3)) if drafting else 0
    lookahead = draw(st.sampled_from((0, k, k + 1))) if k else 0
    slots = draw(st.integers(0, 1)) if k and scheduler == "vllm" else 0
    sizes = tuple(draw(st.lists(st.integers(2, 5), min_size=1, max_size=2)))
    max_model_len = draw(st.integers(10, 20))
    alone = num_blocks_to_allocate(max_model_len, sizes, (0,) * len(sizes))
    least_budget = 2 + lookahead + k + slots  # R21b: or a padded request may never be scheduled
    engine = EngineConfig(
        scheduler=scheduler,
        gate=draw(_gate(gate)),
        block_sizes=sizes,
        usable_blocks=alone + draw(st.integers(0, 2)),
        num_spec_tokens=k,
        num_lookahead_tokens=lookahead,
        draft_slots=slots,
        max_num_batched_tokens=least_budget + draw(st.integers(0, 6)),
        max_model_len=max_model_len,
        max_num_seqs=draw(st.sampled_from((8, 3, 2))),
        watermark=draw(st.sampled_from((0.0, 0.2))),
        priority_policy=draw(st.booleans()),
        release=draw(st.sampled_from(("0.32", "0.33"))) if scheduler == "vllm" else "0.32",
    )
    requests = draw(
        workloads(max_model_len, max_requests=max_requests, fixed_arrivals=fixed_arrivals)
    )
    answering = draw(environments() if environment is None else environment)
    return Scenario("drawn", engine, requests, answering)


def _gate(gate: Gate | SearchStrategy[Gate] | None) -> SearchStrategy[Gate]:
    if gate is None:
        return gates()
    return gate if isinstance(gate, SearchStrategy) else st.just(gate)
