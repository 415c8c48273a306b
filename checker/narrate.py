"""What happened in a step, in words."""

from __future__ import annotations

from collections.abc import Iterator

from checker.trace import TraceStep
from models.config import Blocks, Scenario
from models.scheduler import Admitted, Allocated, Evicted, Preempted, Refused, SchedulerOutput
from models.state import FINISHED, State, Status


def narrate(scenario: Scenario, step: TraceStep) -> list[str]:
    """One sentence per thing that happened, in order: arrivals, decisions, tokens, ends."""
    ids = [spec.id for spec in scenario.requests]
    return [
        *(f"{ids[index]} arrives with {prompt} tokens" for index, prompt in step.arrived.items()),
        *decisions(scenario, step.before, step.output),
        *_work(scenario, step),
    ]


def decisions(scenario: Scenario, before: State, output: SchedulerOutput) -> Iterator[str]:
    """What the scheduler preempted, refused, admitted and threw out of a step."""
    ids = [spec.id for spec in scenario.requests]
    evicted = [ids[event.request] for event in output.events if isinstance(event, Evicted)]
    for event in output.events:
        match event:
            case Preempted(victim, by, computed, slots, needed, free):
                whom = "itself" if victim == by else ids[victim]
                need = _need(before.requests[by].blocks, needed)
                have = "none" if free == 0 else f"{free}"
                yield (
                    f"{ids[by]} needs {need} for {slots} slots, {have} free: "
                    f"preempts {whom}, {computed} tokens lost"
                )
            case Refused(request, test, needed, available):
                what = "the gate" if test == "gate" else "its first chunk"
                yield f"{ids[request]} refused: {what} wants {needed} blocks, {available} free"
            case Admitted(request):
                yield f"{ids[request]} admitted"
            case Allocated() | Evicted():
                pass
    if evicted:
        yield f"{' and '.join(evicted)} thrown out of the step, blocks kept"


def _need(held: Blocks, needed: int) -> str:
    if needed == 1 and len(held) == 1:
        return f"block {held[0] + 1}"
    return f"{needed} more block{'s' * (needed != 1)}"


def _work(scenario: Scenario, step: TraceStep) -> Iterator[str]:
    if not step.output.scheduled:
        yield "nothing runs"
    for index, tokens in step.output.scheduled.items():
        before = step.before.requests[index]
        name = scenario.requests[index].id
        drafts = step.output.drafts.get(index, 0)
        if before.status is Status.RUNNING and not before.is_prefill_chunk:
            what = f"{name} decodes"
            if drafts:
                accepted = step.answers[index].accepted
                what += f" 1+{drafts}, {accepted} accepted"
        else:
            padding = f" (+{-drafts} padding)" if drafts < 0 else ""
            what = f"{name} prefills {tokens - max(-drafts, 0)}{padding}"
        if index in step.emitted:
            what += f", emits {step.emitted[index]}"
        if step.after[index] == FINISHED:
            what += " and ends"
        yield what
