"""The model and a real scheduler run together, every field compared after every step.

Three ways to choose what the environment answers: from a script (drawn at random by the tests),
from a counterexample (``check replay``), or all of them (``exhaust``: every transition of the state
graph is executed on the real scheduler).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Self, TypeAlias

from checker.conform import record
from checker.engines.driver import Answer, Answers, Arrival, Engine, Record, Run
from models.config import Scenario
from models.environment import (
    accepted_drafts,
    after_schedule,
    arrivals,
    arrive,
    enqueue,
    initial_states,
    prompts,
    proposed_drafts,
    samples,
    schedule,
    tick,
    update_from_output,
)
from models.scheduler import SchedulerOutput
from models.script import DraftScript, Step
from models.state import FINISHED, UNARRIVED, Request, State

Labels: TypeAlias = dict[int, Answer]
Transition: TypeAlias = tuple[Labels, list[Arrival], State]

STATE_FIELDS = ("run", "wait", "c", "o", "d", "b", "free")


@dataclass(frozen=True, slots=True)
class Difference:
    """The first field, of the first step, in which the real scheduler and the model differ."""

    step: int
    field: str
    engine: Any
    model: Any

    def __str__(self) -> str:
        return (
            f"step {self.step}, field {self.field!r}: the scheduler has {self.engine!r}, "
            f"the model {self.model!r}"
        )


# --- the model as a run ----------------------------------------------------------------------


class ModelRun:
    """The model, driven like a real scheduler (``checker.engines.driver.Run``).

    ``before`` is the state that the next step starts from; a run may begin in any.
    """

    output: SchedulerOutput

    def __init__(self, scenario: Scenario, before: State | None = None) -> None:
        self._scenario = scenario
        self._number = 0
        self._arrived: tuple[int, ...] = ()
        nobody = (UNARRIVED,) * len(scenario.requests)
        self.before = before or State(nobody, (), (), 0)

    def arrive(self, arrived: Sequence[Arrival]) -> None:
        """Put requests in the queue, in this order."""
        before, requests = self.before, list(self.before.requests)
        for index, prompt in arrived:
            requests[index] = arrive(self._scenario, index, prompt)
        self._arrived = tuple(arrival.request for arrival in arrived)
        queue = enqueue(self._scenario, before.waiting, self._arrived)
        self.before = before._replace(requests=tuple(requests), waiting=queue)

    def schedule(self) -> None:
        """Decide a step."""
        self.output = schedule(self._scenario, self.before)

    def finish(self, answers: Answers) -> Record:
        """Run the model and end the step; its record."""
        scenario, output = self._scenario, self.output
        after = after_schedule(self.before, output)
        sampled: dict[int, int] = {}
        for index, tokens in output.scheduled.items():
            request, drafts = after[index], output.drafts.get(index, 0)
            answer = Answer()
            if samples(request, tokens):
                answer = answers(index, request.outputs, drafts)
                sampled[index] = 1 + answer.accepted
            after[index] = _end(scenario, index, request, tokens, drafts, answer)
        running = tuple(index for index in output.running if after[index] is not FINISHED)
        step = Step(self.before, self._arrived, output, sampled, tuple(after), running)
        result = record(scenario, self._number, step)
        clock = tick(scenario, self.before.clock)
        self.before = State(step.after, running, output.waiting, clock)
        self._arrived = ()
        self._number += 1
        return result

    def state(self) -> Record:
        """What the scheduler remembers between two steps."""
        return state_record(self._scenario, self.before)

    def fork(self) -> Self:
        """A copy that goes on by itself."""
        copy = type(self)(self._scenario)
        vars(copy).update(vars(self))
        return copy


def state_record(scenario: Scenario, state: State) -> Record:
    """A state of the model in the fields of a record."""
    nothing = SchedulerOutput({}, {}, {}, state.running, state.waiting, (), 0, (), False)
    blocks = tuple(request.blocks for request in state.requests)
    step = Step(state, (), nothing._replace(blocks=blocks), {}, state.requests, state.running)
    whole = record(scenario, 0, step)
    return {field: whole[field] for field in STATE_FIELDS if field in whole}


def _end(
    scenario: Scenario, index: int, request: Request, tokens: int, drafts: int, answer: Answer
) -> Request:
    if answer.eos:
        return FINISHED
    return update_from_output(
        scenario.engine,
        scenario.requests[index].max_tokens,
        request,
        tokens,
        abs(drafts),
        answer.accepted,
        answer.proposed,
    )


# --- two runs side by side -------------------------------------------------------------------


def step_both(
    engine: Run, model: Run, arrived: Sequence[Arrival], answers: Answers
) -> tuple[Record, Record]:
    """One step of both; their records."""
    records = []
    for run in (engine, model):
        run.arrive(arrived)
        run.schedule()
        records.append(run.finish(answers))
    return records[0], records[1]


def difference(engine: Record, model: Record) -> Difference | None:
    """The first field in which two records of a step differ."""
    for field in (*model, *engine):
        if engine.get(field) != model.get(field):
            return Difference(model.get("t", 0), field, engine.get(field), model.get(field))
    return None


def scripted(scenario: Scenario, scripts: Sequence[DraftScript]) -> Answers:
    """The answers of the recorded runs: functions of a request's own outputs."""
    k = scenario.engine.num_spec_tokens

    def answers(index: int, outputs: int, drafts: int) -> Answer:
        accepted = scripts[index].accepted(outputs, drafts)
        return Answer(accepted, scripts[index].proposed(outputs + 1 + accepted, k))

    return answers


def given(labels: Mapping[int, Answer]) -> Answers:
    """Answers by request, whatever its outputs; a request without one got no say."""
    return lambda index, outputs, drafts: labels[index]


def due(scenario: Scenario, step: int) -> list[Arrival]:
    """The requests of fixed arrivals that arrive before a step; of their prompts the shortest."""
    return [
        Arrival(index, spec.prompt[0])
        for index, spec in enumerate(scenario.requests)
        if spec.arrival == step
    ]


@dataclass(frozen=True, slots=True)
class Lockstep:
    """How far two runs went together."""

    steps: int
    difference: Difference | None


def run_lockstep(
    engine: Engine,
    scenario: Scenario,
    answers: Answers,
    max_steps: int = 200,
    observe: Callable[[Counter[str]], None] | None = None,
) -> Lockstep:
    """Model and engine with fixed arrivals, until all is done, the state comes back, or a limit.

    ``observe`` is told what happened in each step of the real scheduler.
    """
    real, model = engine.start(scenario), ModelRun(scenario)
    seen: set[State] = set()
    for number in range(max_steps):
        records = step_both(real, model, due(scenario, number), answers)
        if observe is not None:
            observe(happenings(records[0]))
        if found := difference(*records):
            return Lockstep(number + 1, found)
        if number >= scenario.horizon:
            if not model.before.busy or model.before in seen:
                return Lockstep(number + 1, None)
            seen.add(model.before)
    return Lockstep(max_steps, None)


def happenings(step: Record) -> Counter[str]:
    """What happened in a step, in words that can be counted."""
    seen: Counter[str] = Counter()
    for victim, by, _ in step.get("pre", ()):
        seen["preempted itself" if victim == by else "preempted"] += 1
    if "refuse" in step:
        seen[f"refused by {step['refuse'][1]}"] += 1
    for drafts in step.get("spec", {}).values():
        seen["padded" if drafts < 0 else "drafts"] += 1
    if "kept" in step:
        seen["cut"] += 1
    if not step["sched"] and (step["run"] or step["wait"]):
        seen["empty step"] += 1
    return seen


# --- every transition ------------------------------------------------------------------------


@dataclass(slots=True)
class Exhaustion:
    """What was executed on a real scheduler, of the model's whole state graph."""

    states: int = 0
    transitions: int = 0
    difference: Difference | None = None
    path: tuple[Transition, ...] = ()


def exhaust(
    engine: Engine, scenario: Scenario, progress: Callable[[int, int], None] | None = None
) -> Exhaustion:
    """Execute every transition of a scenario's state graph on the real scheduler.

    Depth first. Each state keeps the real scheduler that first reached it; for each of its
    transitions a copy of that one takes the step, so every transition starts from a scheduler that
    really came there. Stops at the first difference, with the run that leads to it.
    """
    result = Exhaustion()
    seen: set[State] = set()
    stack: list[tuple[State, Run, tuple[Transition, ...]]] = []
    start = engine.start(scenario)
    for state, arrived in _roots(scenario):
        run = start.fork()
        run.arrive(arrived)
        seen.add(state)
        stack.append((state, run, (({}, arrived, state),)))
    while stack:
        state, run, path = stack.pop()
        result.states += 1
        model = ModelRun(scenario, state)
        run.schedule()
        model.schedule()
        for transition in transitions(scenario, state, model.output):
            following = transition[2]
            branch = run.fork()
            result.difference = _take(scenario, branch, model.fork(), transition, len(path) - 1)
            result.transitions += 1
            if result.difference:
                result.path = (*path, transition)
                return result
            if following not in seen:
                seen.add(following)
                stack.append((following, branch, (*path, transition)))
        if progress is not None:
            progress(result.states, result.transitions)
    return result


def transitions(scenario: Scenario, state: State, output: SchedulerOutput) -> Iterator[Transition]:
    """The successors of a state, each with answers and arrivals that lead there."""
    after = after_schedule(state, output)
    choices = [
        list(_labelled(scenario, index, request, output)) for index, request in enumerate(after)
    ]
    clock = tick(scenario, state.clock)
    for arrived in arrivals(scenario, state, clock):
        for chosen in product(*choices):
            ends = [end for _, end in chosen]
            running = tuple(index for index in output.running if ends[index] is not FINISHED)
            labels = {i: answer for i, (answer, _) in enumerate(chosen) if answer is not None}
            for entering in _prompts(scenario, arrived):
                present = list(ends)
                for index, prompt in entering:
                    present[index] = arrive(scenario, index, prompt)
                queue = enqueue(scenario, output.waiting, arrived)
                yield labels, entering, State(tuple(present), running, queue, clock)


def _labelled(
    scenario: Scenario, index: int, request: Request, output: SchedulerOutput
) -> Iterator[tuple[Answer | None, Request]]:
    """Every distinct end of the step of one request, each with the first answer that leads to it."""
    tokens = output.scheduled.get(index)
    if tokens is None:
        yield None, request
        return
    drafts = output.drafts.get(index, 0)
    if not samples(request, tokens):
        yield None, _end(scenario, index, request, tokens, 0, Answer())
        return
    seen: set[Request] = set()
    for answer in _answers(scenario, drafts):
        end = _end(scenario, index, request, tokens, drafts, answer)
        if end not in seen:
            seen.add(end)
            yield answer, end


def _answers(scenario: Scenario, drafts: int) -> Iterator[Answer]:
    environment = scenario.environment
    for accepted in accepted_drafts(environment, drafts):
        for proposed in proposed_drafts(environment, scenario.engine.num_spec_tokens):
            yield Answer(accepted, proposed)
    if environment.eos:
        yield Answer(eos=True)


def _prompts(scenario: Scenario, arrived: Iterable[int]) -> Iterator[list[Arrival]]:
    indices = list(arrived)
    for lengths in product(*(prompts(scenario.requests[index]) for index in indices)):
        yield [Arrival(index, prompt) for index, prompt in zip(indices, lengths, strict=True)]


def _roots(scenario: Scenario) -> Iterator[tuple[State, list[Arrival]]]:
    for state in initial_states(scenario):
        arrived = sorted(state.waiting)
        yield state, [Arrival(index, state.requests[index].prompt) for index in arrived]


def _take(
    scenario: Scenario, run: Run, model: ModelRun, transition: Transition, number: int
) -> Difference | None:
    """Take one transition on the real scheduler and compare the step and the state that follows."""
    labels, arrived, following = transition
    theirs, ours = run.finish(given(labels)), model.finish(given(labels))
    run.arrive(arrived)
    for one in (ours, theirs):  # the model began at this very state
        one.pop("t")
        one.pop("add", None)
    found = difference(theirs, ours) or difference(run.state(), state_record(scenario, following))
    if found is None:
        return None
    return Difference(number, found.field, found.engine, found.model)
