"""The properties that the explorer checks, each with its statement.

Safety properties look at one step: a state and the scheduler's decision. Liveness properties look
at the state graph: a cycle of steps that emit nothing. Cost is the exact worst case over all runs.
Coverage says what must have been seen for a green run to mean anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from operator import mul
from typing import TypeAlias

from models.config import Scenario
from models.environment import schedule
from models.scheduler import Preempted, Refused, SchedulerOutput
from models.state import UNARRIVED, Request, State, Status, Window
from models.window import advance_windows


class Kind(Enum):
    """What a property speaks of."""

    SAFETY = "safety"
    LIVENESS = "liveness"
    COST = "cost"
    COVERAGE = "coverage"


@dataclass(frozen=True, slots=True)
class Property:
    """A property by name; ``required`` ones decide the exit code.

    ``no-self-preemption-strict`` is not required: no gate can promise it, see its statement.
    """

    name: str
    kind: Kind
    statement: str
    required: bool = True


StepCheck: TypeAlias = Callable[[Scenario, State, SchedulerOutput], str | None]


@dataclass(frozen=True, slots=True)
class StepProperty:
    """A property of single steps; ``check`` returns what is wrong in words, or ``None``.

    With ``preempting`` it speaks only of steps that preempt, and holds in all others.
    """

    property: Property
    check: StepCheck
    preempting: bool = False


# --- self-preemption -------------------------------------------------------------------------


def self_preemptions(state: State, output: SchedulerOutput) -> Iterator[tuple[Preempted, Window]]:
    """Every preemption of a request by its own allocation, with its admission window at that moment."""
    windows = [request.window for request in state.requests]
    for event in output.events:
        if isinstance(event, Preempted) and event.victim == event.by:
            yield event, windows[event.victim]
        advance_windows(windows, event)


def _no_self_preemption(scenario: Scenario, state: State, output: SchedulerOutput) -> str | None:
    for event, window in self_preemptions(state, output):
        if window is Window.CLEAN:
            return (
                f"{scenario.requests[event.victim].id} preempts itself in its admission window, "
                f"with nobody else having taken a block: {event.computed} computed tokens lost"
            )
    return None


def _no_self_preemption_strict(
    scenario: Scenario, state: State, output: SchedulerOutput
) -> str | None:
    for event, window in self_preemptions(state, output):
        if window is not Window.CLOSED:
            return (
                f"{scenario.requests[event.victim].id} preempts itself in its admission window: "
                f"{event.computed} computed tokens lost"
            )
    return None


# --- invariants ------------------------------------------------------------------------------


def _block_conservation(scenario: Scenario, state: State, output: SchedulerOutput) -> str | None:
    held = sum(map(sum, output.blocks))
    if output.free < 0 or held + output.free != scenario.engine.usable_blocks:
        return (
            f"{held} blocks held and {output.free} free, of {scenario.engine.usable_blocks} usable"
        )
    return None


def _one_queue_per_request(scenario: Scenario, state: State, output: SchedulerOutput) -> str | None:
    absent = (Status.UNARRIVED, Status.FINISHED)
    present = [i for i, request in enumerate(state.requests) if request.status not in absent]
    for queued in (state.running + state.waiting, output.running + output.waiting):
        if sorted(queued) != present:
            return f"queues hold requests {sorted(queued)}, present are {present}"
    for index in state.running:
        if state.requests[index].status is not Status.RUNNING:
            return f"{scenario.requests[index].id} is in the running queue and is not RUNNING"
    return None


def _waiting_hold_nothing(scenario: Scenario, state: State, output: SchedulerOutput) -> str | None:
    for index in output.waiting:
        if any(output.blocks[index]):
            return (
                f"{scenario.requests[index].id} waits and holds {sum(output.blocks[index])} blocks"
            )
    return None


def _no_preemption_by_admission(
    scenario: Scenario, state: State, output: SchedulerOutput
) -> str | None:
    for event in output.events:
        if isinstance(event, Preempted) and event.by not in state.running:
            return (
                f"{scenario.requests[event.victim].id} is preempted for "
                f"{scenario.requests[event.by].id}, which was not running yet"
            )
    return None


def _write_window_owned(scenario: Scenario, state: State, output: SchedulerOutput) -> str | None:
    engine = scenario.engine
    for index, tokens in output.scheduled.items():
        written = state.requests[index].computed + tokens + engine.lookahead
        owned = min(map(mul, output.blocks[index], engine.block_sizes))
        if owned < written and owned < engine.max_model_len:
            return f"{scenario.requests[index].id} may write {written} slots and owns {owned}"
    return None


def _no_unservable_wait(scenario: Scenario, state: State, output: SchedulerOutput) -> str | None:
    if not output.waiting or output.waiting[0] not in state.waiting:
        return None
    head = output.waiting[0]
    if output.running and not any(isinstance(event, Refused) for event in output.events):
        return None
    if admitted_alone(scenario, head, state.requests[head]):
        return None
    return (
        f"{scenario.requests[head].id} ({state.requests[head].num_tokens} tokens) waits at the head "
        "of the line and would not be admitted even alone in an empty pool"
    )


def admitted_alone(scenario: Scenario, index: int, request: Request) -> bool:
    """Whether a waiting request would be admitted if it were the only one."""
    requests = [UNARRIVED._replace(blocks=()) for _ in scenario.requests]
    requests[index] = request
    output = schedule(scenario, State(tuple(requests), (), (index,), 0))
    return index in output.scheduled


NO_SELF_PREEMPTION = Property(
    "no-self-preemption",
    Kind.SAFETY,
    "no request is preempted by its own allocation between its admission and the end of its first "
    "decode step, unless another request was allocated a block since its admission",
)
NO_SELF_PREEMPTION_STRICT = Property(
    "no-self-preemption-strict",
    Kind.SAFETY,
    "the same without 'unless'; no gate that is a test and not a reservation has it, since running "
    "requests may take the blocks that it counted (contention)",
    required=False,
)

STEP_PROPERTIES: tuple[StepProperty, ...] = (
    StepProperty(NO_SELF_PREEMPTION, _no_self_preemption, preempting=True),
    StepProperty(NO_SELF_PREEMPTION_STRICT, _no_self_preemption_strict, preempting=True),
    StepProperty(
        Property(
            "no-preemption-by-admission",
            Kind.SAFETY,
            "nobody is preempted to admit a waiting request",
        ),
        _no_preemption_by_admission,
        preempting=True,
    ),
    StepProperty(
        Property(
            "no-unservable-wait",
            Kind.SAFETY,
            "no request waits at the head of the line that would not be admitted even alone in an "
            "empty pool",
        ),
        _no_unservable_wait,
    ),
    StepProperty(
        Property(
            "block-conservation", Kind.SAFETY, "blocks held and blocks free add up to the pool"
        ),
        _block_conservation,
    ),
    StepProperty(
        Property(
            "one-queue-per-request",
            Kind.SAFETY,
            "every unfinished request that arrived stands in exactly one queue, once",
        ),
        _one_queue_per_request,
    ),
    StepProperty(
        Property(
            "waiting-hold-nothing",
            Kind.SAFETY,
            "a waiting request holds no block, so with nothing running every block is free",
        ),
        _waiting_hold_nothing,
    ),
    StepProperty(
        Property(
            "write-window-owned",
            Kind.SAFETY,
            "every slot that a scheduled request may write, lookahead included, lies in a block "
            "that it owns, in every KV cache group",
        ),
        _write_window_owned,
    ),
)

NO_LIVELOCK = Property(
    "no-livelock",
    Kind.LIVENESS,
    "no reachable cycle of steps in which tokens are scheduled, none is emitted and nothing finishes",
)
NO_DEADLOCK = Property(
    "no-deadlock",
    Kind.LIVENESS,
    "no reachable state with an unfinished, arrived request in which nothing is scheduled, for ever",
)
BOUNDED_RECOMPUTE = Property(
    "bounded-recompute",
    Kind.COST,
    "there is a bound on the prefill tokens that a run throws away, and on the preemptions of one "
    "request",
)


# --- coverage --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CoverageProperty:
    """Something that must have been seen; a green run without it may be vacuous."""

    property: Property
    seen: Callable[[State, SchedulerOutput], bool]


def _any(*kinds: type) -> Callable[[State, SchedulerOutput], bool]:
    return lambda state, output: any(isinstance(event, kinds) for event in output.events)


COVERAGE: tuple[CoverageProperty, ...] = (
    CoverageProperty(
        Property("preemption-reachable", Kind.COVERAGE, "a request is preempted", False),
        lambda state, output: output.preempted,
    ),
    CoverageProperty(
        Property("pool-full-reachable", Kind.COVERAGE, "the pool fills", False),
        lambda state, output: output.free == 0,
    ),
    CoverageProperty(
        Property("refusal-reachable", Kind.COVERAGE, "an admission is refused", False),
        _any(Refused),
    ),
)

PROPERTIES: tuple[Property, ...] = (
    *(checked.property for checked in STEP_PROPERTIES),
    NO_LIVELOCK,
    NO_DEADLOCK,
    BOUNDED_RECOMPUTE,
    *(covered.property for covered in COVERAGE),
)
