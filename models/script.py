"""A run with given answers: the environment of a recorded run, played to the model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from models.config import Scenario
from models.environment import (
    after_schedule,
    arrivals,
    arrive,
    enqueue,
    samples,
    schedule,
    tick,
    update_from_output,
)
from models.scheduler import SchedulerOutput
from models.state import FINISHED, UNARRIVED, Request, State


@dataclass(frozen=True, slots=True)
class DraftScript:
    """Drafts of one request: entry ``n - 1`` is for the decode after its n-th output token.

    Each entry is (proposed, accepted); the last one repeats; an empty script never proposes.
    """

    entries: tuple[tuple[int, int], ...] = ()

    def proposed(self, outputs: int, num_spec_tokens: int) -> int:
        """Drafts proposed once the request has ``outputs`` output tokens."""
        return min(self._entry(outputs)[0], num_spec_tokens)

    def accepted(self, outputs: int, drafts: int) -> int:
        """Drafts accepted of ``drafts`` scheduled ones; placeholders (negative) never are."""
        return min(self._entry(outputs)[1], drafts) if drafts > 0 else 0

    def _entry(self, outputs: int) -> tuple[int, int]:
        if not self.entries:
            return (0, 0)
        return self.entries[min(outputs, len(self.entries)) - 1]


class Step(NamedTuple):
    """One step of a run: before (arrivals in), the decision, what each request sampled, after."""

    before: State
    arrived: tuple[int, ...]
    output: SchedulerOutput
    sampled: dict[int, int]
    after: tuple[Request, ...]
    running: tuple[int, ...]


def play(scenario: Scenario, scripts: Sequence[DraftScript]) -> Iterator[Step]:
    """Run the model without end; arrivals at their steps, drafts as scripted, shortest prompts.

    Requests without a step of arrival arrive together, at the first.
    """
    requests: list[Request] = [UNARRIVED] * len(scenario.requests)
    running: tuple[int, ...] = ()
    waiting: tuple[int, ...] = ()
    clock = 0
    while True:
        between = State(tuple(requests), running, waiting, clock - 1)
        choices = arrivals(scenario, between, clock)
        arrived = choices[-1] if choices else ()
        for index in arrived:
            requests[index] = arrive(scenario, index, scenario.requests[index].prompt[0])
        waiting = enqueue(scenario, waiting, arrived)
        state = State(tuple(requests), running, waiting, clock)
        output = schedule(scenario, state)
        requests = after_schedule(state, output)
        sampled: dict[int, int] = {}
        for index, tokens in output.scheduled.items():
            drafts = output.drafts.get(index, 0)
            requests[index], emitted = _answer(
                scenario, scripts[index], index, requests[index], tokens, drafts
            )
            if emitted:
                sampled[index] = emitted
        running = tuple(i for i in output.running if requests[i] is not FINISHED)
        waiting = output.waiting
        yield Step(state, arrived, output, sampled, tuple(requests), running)
        clock = tick(scenario, clock)


def _answer(
    scenario: Scenario,
    script: DraftScript,
    index: int,
    request: Request,
    tokens: int,
    drafts: int,
) -> tuple[Request, int]:
    emitted = 0
    accepted = proposed = 0
    if samples(request, tokens):
        accepted = script.accepted(request.outputs, drafts)
        emitted = 1 + accepted
        proposed = script.proposed(request.outputs + emitted, scenario.engine.num_spec_tokens)
    after = update_from_output(
        scenario.engine,
        scenario.requests[index].max_tokens,
        request,
        tokens,
        abs(drafts),
        accepted,
        proposed,
    )
    return after, emitted
