"""Counterexamples: runs of the model, replayed step by step before anyone sees them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from models.config import Scenario
from models.environment import (
    accepted_drafts,
    after_schedule,
    initial_states,
    proposed_drafts,
    samples,
    schedule,
    successors,
    update_from_output,
)
from models.scheduler import SchedulerOutput
from models.state import FINISHED, UNARRIVED, Request, State


class ReplayError(AssertionError):
    """A counterexample that the model does not reproduce: a fault of the checker, not of the policy."""


class Answer(NamedTuple):
    """What the environment answered for one request that sampled."""

    accepted: int
    proposed: int
    eos: bool


@dataclass(frozen=True, slots=True)
class TraceStep:
    """One step of a run.

    ``arrived`` came in before it (request -> prompt tokens), ``before`` is the state with them in
    the queue, ``output`` the scheduler's decision, ``answers`` the environment's, ``after`` each
    request at the end of the step.
    """

    arrived: dict[int, int]
    before: State
    output: SchedulerOutput
    answers: dict[int, Answer]
    after: tuple[Request, ...]
    emitted: dict[int, int]


@dataclass(frozen=True, slots=True)
class Trace:
    """A run that shows something; from step ``loop_start`` on it repeats for ever, if not ``None``."""

    scenario: Scenario
    steps: tuple[TraceStep, ...]
    loop_start: int | None = None


def replay(scenario: Scenario, states: Sequence[State], *, loop_start: int | None = None) -> Trace:
    """Run the model along ``states`` and record every step.

    The last state's step is taken too: with a loop it must lead back to ``states[loop_start]``,
    otherwise to any state.

    Raises
    ------
    ReplayError
        If the model does not do what the states say.
    """
    if states[0] not in set(initial_states(scenario)):
        raise ReplayError("the run does not begin in an initial state")
    steps: list[TraceStep] = []
    previous: State | None = None
    for number, state in enumerate(states):
        output = schedule(scenario, state)
        following = list(successors(scenario, state, output))
        if number + 1 < len(states):
            after = states[number + 1]
        elif loop_start is not None:
            after = states[loop_start]
        else:
            after = following[0] if following else state
        if after not in following and following:
            raise ReplayError(f"step {number} of the run is not a step of the model")
        steps.append(take_step(scenario, previous, state, output, after))
        previous = state
    trace = Trace(scenario, tuple(steps), loop_start)
    if loop_start is not None and any(step.emitted for step in steps[loop_start:]):
        raise ReplayError("the loop of the run emits a token")
    return trace


def take_step(
    scenario: Scenario,
    previous: State | None,
    state: State,
    output: SchedulerOutput,
    following: State,
) -> TraceStep:
    """The record of the step from ``state`` to ``following``, reached from ``previous``."""
    arrived = {
        index: request.prompt
        for index, request in enumerate(state.requests)
        if request is not UNARRIVED and (previous is None or previous.requests[index] is UNARRIVED)
    }
    after = tuple(
        UNARRIVED if before is UNARRIVED else request
        for before, request in zip(state.requests, following.requests, strict=True)
    )
    answers: dict[int, Answer] = {}
    emitted: dict[int, int] = {}
    for index, request in enumerate(after_schedule(state, output)):
        tokens = output.scheduled.get(index)
        if tokens is None or not samples(request, tokens):
            continue
        answers[index] = least_answer(scenario, index, request, output, after[index])
        emitted[index] = _emitted(scenario, index, request, answers[index])
    return TraceStep(arrived, state, output, answers, after, emitted)


def least_answer(
    scenario: Scenario, index: int, request: Request, output: SchedulerOutput, after: Request
) -> Answer:
    """The least answer of the environment that leads from the step to ``after``."""
    drafts = output.drafts.get(index, 0)
    for accepted in accepted_drafts(scenario.environment, drafts):
        for proposed in proposed_drafts(scenario.environment, scenario.engine.num_spec_tokens):
            end = update_from_output(
                scenario.engine,
                scenario.requests[index].max_tokens,
                request,
                output.scheduled[index],
                abs(drafts),
                accepted,
                proposed,
            )
            if end == after:
                return Answer(accepted, proposed, False)
    if scenario.environment.eos and after == FINISHED:
        return Answer(0, 0, True)
    raise ReplayError(f"no answer of the environment explains request {index}")


def _emitted(scenario: Scenario, index: int, request: Request, answer: Answer) -> int:
    """Tokens emitted, after the stop checks (rule R25)."""
    room = min(
        scenario.requests[index].max_tokens - request.outputs,
        scenario.engine.max_model_len - request.num_tokens,
    )
    return min(1 + answer.accepted, room)
