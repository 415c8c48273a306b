"""A counterexample run on the real scheduler, step by step beside what it says."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from checker.engines.driver import Answer, Answers, Arrival, Engine, Record, Run
from checker.lockstep import Difference, ModelRun, step_both
from checker.tracefile import FIELDS, Counterexample
from models.config import Scenario
from models.gates import Gate
from models.state import State

TURNS = 3  # a loop is gone through once more than twice
MOST_STEPS = 500


@dataclass(frozen=True, slots=True)
class Replayed:
    """A step as it should be and as the real scheduler took it."""

    step: int
    expected: Record
    engine: Record

    @property
    def difference(self) -> Difference | None:
        """The first field that is not as it should be."""
        for field in FIELDS:
            if self.expected.get(field) != self.engine.get(field):
                return Difference(
                    self.step, field, self.engine.get(field), self.expected.get(field)
                )
        return None


def replay(engine: Engine, trace: Counterexample) -> Iterator[Replayed]:
    """Every step of the counterexample on the real scheduler, up to the first that differs.

    A loop is gone through ``TURNS`` times.
    """
    run = engine.start(trace.scenario)
    steps = list(trace.steps)
    turns = [] if trace.loop_start is None else steps[trace.loop_start :] * (TURNS - 1)
    for number, given in enumerate([*steps, *turns]):
        arrived = given.arrived if number < len(steps) else ()
        replayed = Replayed(number, given.expected, _take(run, arrived, _given(given.answers)))
        yield replayed
        if replayed.difference:
            return


def replay_under(engine: Engine, trace: Counterexample, gate: Gate) -> Iterator[Replayed]:
    """The counterexample's workload and environment under another gate, beside the model.

    Requests arrive when they did; each gets the answers that it got at the same number of outputs,
    or none accepted and all proposed where the counterexample does not say. Ends when all is done,
    when the state comes back, or at the first difference.
    """
    settings = replace(trace.scenario.engine, gate=gate)
    scenario = replace(trace.scenario, engine=settings)
    real, model = engine.start(scenario), ModelRun(scenario)
    answers = by_outputs(trace)
    arrivals = [given.arrived for given in trace.steps]
    seen: set[State] = set()
    for number in range(MOST_STEPS):
        arrived = arrivals[number] if number < len(arrivals) else ()
        theirs, ours = step_both(real, model, arrived, answers)
        replayed = Replayed(number, ours, theirs)
        yield replayed
        if replayed.difference:
            return
        if number + 1 >= len(arrivals) and (not model.before.busy or model.before in seen):
            return
        seen.add(model.before)


def by_outputs(trace: Counterexample) -> Answers:
    """A counterexample's answers as functions of a request's own outputs."""
    known: dict[tuple[int, int], Answer] = {}
    outputs = [0] * len(trace.scenario.requests)
    for given in trace.steps:
        for index, answer in given.answers.items():
            known.setdefault((index, outputs[index]), answer)
        for index, count in enumerate(given.expected["o"]):
            outputs[index] = outputs[index] if count is None else count
    fallback = Answer(0, trace.scenario.engine.num_spec_tokens)

    def answers(index: int, emitted: int, drafts: int) -> Answer:
        answer = known.get((index, emitted), fallback)
        return answer._replace(accepted=min(answer.accepted, max(drafts, 0)))

    return answers


def self_preemptions(steps: Iterable[Replayed]) -> dict[str, list[int]]:
    """Requests that the real scheduler preempted for themselves, and the tokens lost each time."""
    lost: defaultdict[str, list[int]] = defaultdict(list)
    for replayed in steps:
        for victim, by, computed in replayed.engine.get("pre", ()):
            if victim == by:
                lost[victim].append(computed)
    return dict(lost)


def describe(scenario: Scenario, step: Record) -> str:
    """A step in one line: who ran, who was preempted or refused, what is free."""
    drafts = step.get("spec", {})
    words = [f"{name} {tokens}{_drafts(drafts.get(name, 0))}" for name, tokens in step["sched"]]
    lines = [", ".join(words) or "nothing runs"]
    for victim, by, computed in step.get("pre", ()):
        who = f"{by} preempts {'itself' if by == victim else victim}"
        lines.append(f"{who}: {computed} lost")
    if refused := step.get("refuse"):
        name, test, needed, available = refused
        lines.append(f"{name} refused by {test}: {needed} > {available}")
    lines.append(f"{step['free']} of {scenario.engine.usable_blocks} free")
    return "; ".join(lines)


def _drafts(count: int) -> str:
    if count < 0:
        return f" (padded by {-count})"
    return f" ({count} drafts)" if count else ""


def _take(run: Run, arrived: Sequence[Arrival], answers: Answers) -> Record:
    run.arrive(arrived)
    run.schedule()
    return run.finish(answers)


def _given(known: dict[int, Answer]) -> Answers:
    """The answers of a step; a scheduler that departs may ask for one that is not there."""

    def answers(index: int, outputs: int, drafts: int) -> Answer:
        answer = known.get(index, Answer())
        return answer._replace(accepted=min(answer.accepted, max(drafts, 0)))

    return answers
