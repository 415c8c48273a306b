"""The environment's answers to a step, and the states that follow.

After ``schedule()`` the model runs, tokens are accepted, drafts proposed, requests arrive. The
answers are independent per request, so the successors of a state are a product: one ``schedule()``
call serves them all. Rules R23 to R27; mirrors ``v1/core/sched/scheduler.py
_update_after_schedule``, ``update_from_output`` and ``update_draft_token_ids``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import TypeAlias

from models import rbln, vllm
from models.config import EngineConfig, Environment, RequestSpec, Scenario
from models.scheduler import Preempted, SchedulerOutput
from models.state import FINISHED, UNARRIVED, Request, State, Status
from models.window import admission_windows

Scheduler: TypeAlias = Callable[[Scenario, State], SchedulerOutput]
SCHEDULERS: dict[str, Scheduler] = {"vllm": vllm.schedule, "rbln": rbln.schedule}


def schedule(scenario: Scenario, state: State) -> SchedulerOutput:
    """One call of the scheduler that the scenario names."""
    return SCHEDULERS[scenario.engine.scheduler](scenario, state)


# --- after the model -------------------------------------------------------------------------


def samples(request: Request, tokens: int) -> bool:
    """Whether a request scheduled for ``tokens`` tokens samples in this step (rule R24)."""
    return request.computed + tokens >= request.num_tokens


def update_from_output(
    engine: EngineConfig,
    max_tokens: int,
    request: Request,
    tokens: int,
    drafts: int,
    accepted: int,
    proposed: int,
) -> Request:
    """A scheduled request at the end of the step, blocks and window already being those of the step.

    ``drafts`` were scheduled and ``accepted`` of them hold; ``proposed`` come for the next step.
    Computed tokens advance by all that was scheduled, then the rejected ones come off (R23); a
    request that reached its last token emits one and the accepted ones (R24), cut at the first
    stop (R25); proposals for prefill chunks are ignored (R26).
    """
    computed = request.computed + tokens
    num_tokens = request.num_tokens
    if computed < num_tokens:
        return request._replace(
            status=Status.RUNNING, computed=computed, drafts=0, is_prefill_chunk=True
        )
    emitted = 1 + accepted
    if num_tokens + emitted >= engine.max_model_len or request.outputs + emitted >= max_tokens:
        return FINISHED
    return request._replace(
        status=Status.RUNNING,
        outputs=request.outputs + emitted,
        computed=computed - (drafts - accepted),
        drafts=proposed,
        is_prefill_chunk=False,
    )


def outcomes(
    scenario: Scenario, index: int, request: Request, tokens: int, drafts: int
) -> tuple[Request, ...]:
    """Every distinct end of the step of one scheduled request, in a fixed order.

    ``drafts`` as in ``SchedulerOutput.drafts``: placeholders (negative) are never accepted (R21).
    """
    engine, environment = scenario.engine, scenario.environment
    spec = scenario.requests[index]
    if not samples(request, tokens):
        return (update_from_output(engine, spec.max_tokens, request, tokens, 0, 0, 0),)
    results = [
        update_from_output(
            engine, spec.max_tokens, request, tokens, abs(drafts), accepted, proposed
        )
        for accepted in accepted_drafts(environment, drafts)
        for proposed in proposed_drafts(environment, engine.num_spec_tokens)
    ]
    if environment.eos:
        results.append(FINISHED)
    return tuple(dict.fromkeys(results))


def accepted_drafts(environment: Environment, drafts: int) -> range:
    """How many of the scheduled drafts may be accepted."""
    scheduled = max(drafts, 0)
    least, most = environment.accepted
    return range(min(least, scheduled), min(scheduled if most is None else most, scheduled) + 1)


def proposed_drafts(environment: Environment, num_spec_tokens: int) -> range:
    """How many drafts may be proposed for the next step."""
    return range(0 if environment.proposed == "up-to" else num_spec_tokens, num_spec_tokens + 1)


def after_schedule(state: State, output: SchedulerOutput) -> list[Request]:
    """Every request with the blocks, drafts and window that the step leaves it, before the model runs.

    A preempted one has lost its blocks, its computed tokens and its drafts, and keeps its outputs
    (rule R14).
    """
    requests = list(state.requests)
    opened = any([request.window for request in requests])  # noqa: C419 (a list is faster here)
    if not output.events and not output.pending and not opened:
        return requests
    windows = admission_windows(state, output)
    for index, request in enumerate(requests):
        blocks = output.blocks[index]
        if blocks != request.blocks or windows[index] is not request.window:
            requests[index] = request._replace(blocks=blocks, window=windows[index])
    for index, drafts in output.pending.items():
        requests[index] = requests[index]._replace(drafts=drafts)
    for event in output.events:
        if isinstance(event, Preempted):
            requests[event.victim] = requests[event.victim]._replace(
                status=Status.PREEMPTED, computed=0, drafts=0, is_prefill_chunk=False
            )
    return requests


# --- arrivals --------------------------------------------------------------------------------


def arrive(scenario: Scenario, index: int, prompt: int) -> Request:
    """A request as it enters the waiting queue."""
    return UNARRIVED._replace(
        status=Status.WAITING, prompt=prompt, blocks=scenario.engine.no_blocks
    )


def arrivals(scenario: Scenario, state: State, clock: int) -> list[tuple[int, ...]]:
    """Which requests may arrive together before the step ``clock``, as index tuples in queue order.

    With fixed arrivals there is one choice; otherwise any number of the next requests of the
    workload. An engine without work sleeps: its next step needs an arrival (or the clock to run).
    """
    absent = [i for i, request in enumerate(state.requests) if request is UNARRIVED]
    if scenario.fixed_arrivals:
        due = tuple(i for i in absent if (scenario.requests[i].arrival or 0) <= clock)
        return [due] if due or state.busy or clock != state.clock else []
    counts = range(0 if state.busy else 1, len(absent) + 1)
    return [tuple(absent[:count]) for count in counts]


def prompts(spec: RequestSpec) -> range:
    """The prompt lengths that the environment may choose from, in tokens."""
    shortest, longest = spec.prompt
    return range(shortest, longest + 1)


def enqueue(
    scenario: Scenario, waiting: tuple[int, ...], arrived: tuple[int, ...]
) -> tuple[int, ...]:
    """The waiting queue with new arrivals: at the back, or by priority (rules R14, R27)."""
    queue = waiting + arrived
    if scenario.engine.priority_policy:
        return tuple(sorted(queue, key=scenario.rank))
    return queue


def tick(scenario: Scenario, clock: int) -> int:
    """The next step's clock; it counts only as far as a fixed arrival is to come."""
    return min(clock + 1, scenario.horizon) if scenario.fixed_arrivals else 0


# --- whole states ----------------------------------------------------------------------------


def nobody(scenario: Scenario) -> State:
    """The engine before the first arrival; its clock is one step before the first."""
    return State((UNARRIVED,) * len(scenario.requests), (), (), -1)


def initial_states(scenario: Scenario) -> Iterator[State]:
    """The states before the first step: with nobody there the engine sleeps, so someone arrives."""
    empty = nobody(scenario)
    for arrived in arrivals(scenario, empty, 0):
        yield from _with_arrivals(scenario, empty.requests, (), (), 0, arrived)


def successors(scenario: Scenario, state: State, output: SchedulerOutput) -> Iterator[State]:
    """Every state that can follow a step, each once, in a fixed order.

    This is the reference semantics: replay uses it, and the explorer's packed one is tested
    against it.
    """
    clock = tick(scenario, state.clock)
    ends = request_ends(scenario, state, output)
    for arrived in arrivals(scenario, state, clock):
        for chosen in product(*ends):
            yield from _with_arrivals(
                scenario, chosen, output.running, output.waiting, clock, arrived
            )


def request_ends(
    scenario: Scenario, state: State, output: SchedulerOutput
) -> list[tuple[Request, ...]]:
    """For every request, how it may stand at the end of the step; the answers are independent."""
    return [
        outcomes(scenario, index, request, output.scheduled[index], output.drafts.get(index, 0))
        if index in output.scheduled
        else (request,)
        for index, request in enumerate(after_schedule(state, output))
    ]


def following(
    scenario: Scenario,
    chosen: tuple[Request, ...],
    running: tuple[int, ...],
    waiting: tuple[int, ...],
    clock: int,
    arrived: dict[int, int],
) -> State:
    """The state before the next step: one end for every request, and arrivals with their prompts."""
    present = list(chosen)
    for index, prompt in arrived.items():
        present[index] = arrive(scenario, index, prompt)
    left = tuple(index for index in running if chosen[index] is not FINISHED)
    return State(tuple(present), left, enqueue(scenario, waiting, tuple(arrived)), clock)


def _with_arrivals(
    scenario: Scenario,
    requests: tuple[Request, ...],
    running: tuple[int, ...],
    waiting: tuple[int, ...],
    clock: int,
    arrived: tuple[int, ...],
) -> Iterator[State]:
    for lengths in product(*(prompts(scenario.requests[index]) for index in arrived)):
        present = dict(zip(arrived, lengths, strict=True))
        yield following(scenario, requests, running, waiting, clock, present)
