"""Any scheduler, followed step by step: held against the model, or against the safety properties.

The scheduler under test decides; a shadow of its requests is kept in the model's own terms. Nothing
here draws anything: ``checker.machine`` does, with hypothesis.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from typing import Any, Protocol

from checker.trace import Answer, Trace, TraceStep
from models.config import Blocks, Scenario
from models.environment import (
    accepted_drafts,
    after_schedule,
    arrive,
    enqueue,
    proposed_drafts,
    samples,
    schedule,
    tick,
    update_from_output,
)
from models.kv_cache import decode_tokens
from models.scheduler import Admitted, Allocated, Event, Preempted, SchedulerOutput
from models.state import FINISHED, UNARRIVED, State, Status
from properties.properties import NO_DEADLOCK, NO_LIVELOCK, STEP_PROPERTIES

WIDTH = 120  # columns of the table in a failure
# What can be said of a scheduler whose gate and whose refusals are not known.
PROPERTIES_OF_ANY = (
    *(
        checked.property.name
        for checked in STEP_PROPERTIES
        if checked.property.required and checked.property.name != "no-unservable-wait"
    ),
    NO_LIVELOCK.name,
    NO_DEADLOCK.name,
)


@dataclass(frozen=True, slots=True)
class Decision:
    """What a scheduler decided in one step; requests by id.

    ``scheduled``: tokens of each request in the step, drafts and placeholders counted in.
    ``running`` and ``waiting``: the queues, in order. ``blocks``: held by every request that is in
    a queue, one number per KV cache group; ``free``: the scheduler's own count of free blocks.
    ``preempted``: (victim, the request that needed its blocks), in order.
    """

    scheduled: Mapping[str, int]
    running: Sequence[str]
    waiting: Sequence[str]
    blocks: Mapping[str, Blocks]
    free: int
    preempted: Sequence[tuple[str, str]] = ()


class SchedulerUnderTest(Protocol):
    """A scheduler, driven as an engine drives it: requests come in, it decides, it is told.

    >>> from checker.scenario import build, read_preset
    >>> scheduler: SchedulerUnderTest = ModelScheduler(build(read_preset("vllm"), "vllm"))
    >>> scheduler.add_request("a", prompt=17, max_tokens=8, priority=0)
    >>> decision = scheduler.schedule()
    >>> decision.scheduled, decision.blocks, decision.free
    ({'a': 17}, {'a': (2,)}, 5)
    >>> scheduler.update({"a": Answer(accepted=0, proposed=3, eos=False)})
    """

    def add_request(self, id: str, prompt: int, max_tokens: int, priority: int) -> None:
        """A request arrives, with so many prompt tokens."""

    def schedule(self) -> Decision:
        """Decide a step."""

    def update(self, answers: Mapping[str, Answer]) -> None:
        """The step has run. Each request that reached its last known token has an answer.

        It emits one token and the ``accepted`` drafts, cut at its end (``max_tokens``,
        max_model_len); ``proposed`` drafts come for its next step; with ``eos`` it ends here.
        """


class SchedulerFaultError(AssertionError):
    """What is wrong with a scheduler's decision, with the run that led there as a table."""


class ModelScheduler:
    """The model as a scheduler under test; also an example of how to wrap one."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self._state = State((UNARRIVED,) * len(scenario.requests), (), (), 0)
        self._output: SchedulerOutput | None = None

    def add_request(self, id: str, prompt: int, max_tokens: int, priority: int) -> None:
        """Queue a request of the scenario's workload."""
        index = _index(self.scenario, id)
        self._state = _queued(self.scenario, self._state, index, prompt)

    def schedule(self) -> Decision:
        """Decide a step."""
        self._output = self.decide(self._state)
        return decision(self.scenario, self._output)

    def decide(self, state: State) -> SchedulerOutput:
        """What the model does in a state; the place to break it in a test of a test."""
        return schedule(self.scenario, state)

    def update(self, answers: Mapping[str, Answer]) -> None:
        """End the step."""
        assert self._output is not None
        known = {_index(self.scenario, id): answer for id, answer in answers.items()}
        self._state, _ = advance(self.scenario, self._state, self._output, known)


class Shadow:
    """One run of a scheduler under test, in the model's terms.

    With ``lockstep`` every decision must be the model's. ``properties`` names the safety and
    liveness properties that every step must have.
    """

    def __init__(
        self,
        scenario: Scenario,
        scheduler: SchedulerUnderTest,
        *,
        lockstep: bool = True,
        properties: Iterable[str] = (),
    ) -> None:
        self.scenario = scenario
        self.scheduler = scheduler
        self.lockstep = lockstep
        self.properties = frozenset(properties)
        self.state = State((UNARRIVED,) * len(scenario.requests), (), (), 0)
        self.steps: list[TraceStep] = []
        self._arrived: dict[int, int] = {}
        self._output: SchedulerOutput | None = None
        self._silent: dict[State, int] = {}

    @property
    def absent(self) -> list[int]:
        """The requests of the workload that have not arrived, in its order."""
        return [n for n, request in enumerate(self.state.requests) if request is UNARRIVED]

    @property
    def due(self) -> list[int]:
        """Those whose fixed step of arrival has come."""
        specs, clock = self.scenario.requests, self.state.clock
        return [n for n in self.absent if (at := specs[n].arrival) is not None and at <= clock]

    def arrive(self, index: int, prompt: int) -> None:
        """A request of the workload arrives before the next step."""
        spec = self.scenario.requests[index]
        self.scheduler.add_request(spec.id, prompt, spec.max_tokens, spec.priority)
        self.state = _queued(self.scenario, self.state, index, prompt)
        self._arrived[index] = prompt

    def schedule(self) -> dict[int, int]:
        """Let the scheduler decide; returns the requests that want an answer, and their drafts.

        Raises
        ------
        SchedulerFaultError
            If the decision is not the model's, or a property does not hold in it.
        """
        taken = self.scheduler.schedule()
        if self.lockstep:
            output = schedule(self.scenario, self.state)
            self._output = output
            self._compare(taken, decision(self.scenario, output))
        else:
            output = self._output = self._reconstructed(taken)
        self._look(output)
        after = after_schedule(self.state, output)
        return {
            index: output.drafts.get(index, 0)
            for index, tokens in output.scheduled.items()
            if samples(after[index], tokens)
        }

    def finish(self, answers: Mapping[int, Answer]) -> None:
        """End the step with the environment's answers."""
        assert self._output is not None
        step = self._step(self._output, answers)
        ids = self.scenario.requests
        self.scheduler.update({ids[index].id: answer for index, answer in answers.items()})
        self.steps.append(step)
        self.state, _ = advance(self.scenario, self.state, self._output, answers)
        if step.emitted:
            self._silent.clear()
        self._output, self._arrived = None, {}

    def _compare(self, theirs: Decision, ours: Decision) -> None:
        for field in ("scheduled", "running", "waiting", "blocks", "free", "preempted"):
            their, our = _plain(getattr(theirs, field)), _plain(getattr(ours, field))
            if their != our:
                self._fail(f"field {field!r}: the scheduler has {their!r}, the model {our!r}")

    def _look(self, output: SchedulerOutput) -> None:
        """Check the properties on this step."""
        for checked in STEP_PROPERTIES:
            if checked.property.name not in self.properties:
                continue
            finding = checked.check(self.scenario, self.state, output)
            if finding is not None:
                self._fail(f"{checked.property.name}: {finding}")
        since = self._silent.setdefault(self.state, len(self.steps))
        if since == len(self.steps):
            return
        scheduled = any(step.output.scheduled for step in self.steps[since:])
        prop = NO_LIVELOCK if scheduled else NO_DEADLOCK
        if prop.name in self.properties:
            self._fail(
                f"{prop.name}: in the state of step {since} again, and nothing emitted since",
                loop_start=since,
            )

    def _step(self, output: SchedulerOutput, answers: Mapping[int, Answer]) -> TraceStep:
        following, emitted = advance(self.scenario, self.state, output, answers)
        after = following.requests
        return TraceStep(dict(self._arrived), self.state, output, dict(answers), after, emitted)

    def _fail(self, what: str, loop_start: int | None = None) -> None:
        """Raise, with the steps so far and, unless they already are a loop, this one."""
        steps = list(self.steps)
        if self._output is not None and loop_start is None:
            steps.append(self._step(self._output, least_answers(self.scenario, self._output)))
        table = _table(Trace(self.scenario, tuple(steps), loop_start))
        raise SchedulerFaultError(f"step {len(self.steps)}, {what}\n\n{table}")

    # --- a decision as the model would have written it down ----------------------------------

    def _reconstructed(self, taken: Decision) -> SchedulerOutput:
        """The output of a step, of which only the decision is known.

        The order of its allocations is not: each is taken to come before the preemptions, so that
        a request is called uncontended only when it was.
        """
        self._sane(taken)
        scenario, state = self.scenario, self.state
        index = {spec.id: number for number, spec in enumerate(scenario.requests)}
        blocks = [scenario.engine.no_blocks if r.blocks else () for r in state.requests]
        for id, held in taken.blocks.items():
            blocks[index[id]] = tuple(held)
        scheduled = {index[id]: tokens for id, tokens in taken.scheduled.items()}
        drafts = {n: d for n, tokens in scheduled.items() if (d := self._drafts(n, tokens))}
        preempted = [(index[victim], index[by]) for victim, by in taken.preempted]
        return SchedulerOutput(
            scheduled,
            drafts,
            {},
            tuple(index[id] for id in taken.running),
            tuple(index[id] for id in taken.waiting),
            tuple(blocks),
            taken.free,
            tuple(self._events([index[id] for id in taken.running], blocks, preempted)),
            bool(preempted),
        )

    def _drafts(self, index: int, tokens: int) -> int:
        """Drafts among the tokens of a request; placeholders of a request just admitted, negative."""
        request = self.state.requests[index]
        beyond = max(request.computed + tokens - request.num_tokens, 0)
        return beyond if request.status is Status.RUNNING else -beyond

    def _events(
        self,
        running: Sequence[int],
        blocks: Sequence[Blocks],
        preempted: Sequence[tuple[int, int]],
    ) -> list[Event]:
        engine, before = self.scenario.engine, self.state
        grown: list[Event] = []
        for n in running:
            new = sum(blocks[n]) - sum(before.requests[n].blocks)
            if n in before.running and new > 0:
                slots = min(map(lambda b, size: b * size, blocks[n], engine.block_sizes))
                grown.append(Allocated(n, new, slots))
        grown += [Allocated(victim, 1, 0) for victim, by in preempted if victim != by]
        free = engine.usable_blocks - before.blocks_held()
        free -= sum(event.blocks for event in grown if isinstance(event, Allocated) and event.slots)
        events = grown
        for victim, by in preempted:
            request = before.requests[by]
            wants = decode_tokens(
                request.num_tokens, request.drafts, request.computed, engine.max_model_len
            )
            wanted = engine.allocation(request.blocks, request.computed + wants)
            lost = before.requests[victim]
            events.append(
                Preempted(victim, by, lost.computed, wanted.slots, wanted.new_blocks, max(free, 0))
            )
            free += sum(lost.blocks)
        for n in running:
            if n not in before.running:
                events += [Admitted(n), Allocated(n, sum(blocks[n]), 0)]
        return events

    def _sane(self, taken: Decision) -> None:
        """What must be so for the rest to make sense."""
        known = {spec.id for spec in self.scenario.requests} - {
            self.scenario.requests[index].id for index in self.absent
        }
        pairs = [id for pair in taken.preempted for id in pair]
        for id in (*taken.scheduled, *taken.running, *taken.waiting, *taken.blocks, *pairs):
            if id not in known:
                self._fail(f"a decision about {id!r}, which has not arrived")
        groups = len(self.scenario.engine.block_sizes)
        for id in (*taken.running, *taken.waiting):
            if len(taken.blocks.get(id, ())) != groups:
                self._fail(f"blocks of {id!r}: must be one number for each of {groups} groups")
        for id, tokens in taken.scheduled.items():
            if tokens < 1 or id not in taken.running:
                self._fail(f"{id!r} is scheduled for {tokens} tokens and must run, with at least 1")
            self._at_most_what_is_there(id, tokens)

    def _at_most_what_is_there(self, id: str, tokens: int) -> None:
        index = _index(self.scenario, id)
        request = self.state.requests[index]
        drafts = abs(self._drafts(index, tokens))
        pending = (
            request.drafts
            if request.status is Status.RUNNING
            else self.scenario.engine.num_spec_tokens
        )
        if drafts > pending:
            self._fail(f"{id!r} is scheduled for {drafts} drafts, and there are {pending}")


# --- the model's own functions, by id --------------------------------------------------------


def decision(scenario: Scenario, output: SchedulerOutput) -> Decision:
    """What the model decided, by id."""
    ids = [spec.id for spec in scenario.requests]
    present = (*output.running, *output.waiting)
    return Decision(
        scheduled={ids[index]: tokens for index, tokens in output.scheduled.items()},
        running=[ids[index] for index in output.running],
        waiting=[ids[index] for index in output.waiting],
        blocks={ids[index]: output.blocks[index] for index in present},
        free=output.free,
        preempted=[
            (ids[event.victim], ids[event.by])
            for event in output.events
            if isinstance(event, Preempted)
        ],
    )


def advance(
    scenario: Scenario, state: State, output: SchedulerOutput, answers: Mapping[int, Answer]
) -> tuple[State, dict[int, int]]:
    """The state after a step with these answers, and the tokens that each request emitted."""
    after = after_schedule(state, output)
    emitted: dict[int, int] = {}
    for index, tokens in output.scheduled.items():
        request, spec = after[index], scenario.requests[index]
        answer = Answer(0, 0, False)
        if samples(request, tokens):
            answer = answers[index]
            ends = scenario.engine.max_model_len - request.num_tokens
            emitted[index] = min(1 + answer.accepted, spec.max_tokens - request.outputs, ends)
        drafts = abs(output.drafts.get(index, 0))
        after[index] = (
            FINISHED
            if answer.eos
            else update_from_output(
                scenario.engine,
                spec.max_tokens,
                request,
                tokens,
                drafts,
                answer.accepted,
                answer.proposed,
            )
        )
    running = tuple(index for index in output.running if after[index] is not FINISHED)
    for index in running:  # a scheduler may admit a request and leave it out of the step
        if after[index].status is not Status.RUNNING:
            after[index] = after[index]._replace(status=Status.RUNNING)
    clock = tick(scenario, state.clock)
    return State(tuple(after), running, output.waiting, clock), emitted


def least_answers(scenario: Scenario, output: SchedulerOutput) -> dict[int, Answer]:
    """The least that the environment may answer in a step."""
    environment, k = scenario.environment, scenario.engine.num_spec_tokens
    proposed = proposed_drafts(environment, k)[0]
    return {
        index: Answer(
            accepted_drafts(environment, output.drafts.get(index, 0))[0], proposed, eos=False
        )
        for index in output.scheduled
    }


def _queued(scenario: Scenario, state: State, index: int, prompt: int) -> State:
    requests = list(state.requests)
    requests[index] = arrive(scenario, index, prompt)
    waiting = enqueue(scenario, state.waiting, (index,))
    return state._replace(requests=tuple(requests), waiting=waiting)


def _index(scenario: Scenario, id: str) -> int:
    return next(number for number, spec in enumerate(scenario.requests) if spec.id == id)


def _plain(value: Any) -> Any:
    """A field as plain lists and dicts, so that a scheduler may use containers of its own."""
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(one) for one in value]
    return value


def _table(trace: Trace) -> str:
    from rich.console import Console

    from checker.render import instance_line, render_trace

    page = StringIO()
    console = Console(file=page, width=WIDTH, color_system=None, force_terminal=False)
    if trace.steps:
        render_trace(console, trace)
    lines = [line.rstrip() for line in page.getvalue().splitlines()]
    return "\n".join([instance_line(trace.scenario), *lines])
