"""Random runs, for instances too large to enumerate: hypothesis draws the environment's answers.

What it finds is shrunk to a short run and replayed. What it does not find proves nothing: the
verdict is then INCONCLUSIVE, with how many runs and states were seen.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from checker.check import CheckResult, CoverageResult, PropertyResult
from checker.explore import Limits, Stop
from checker.trace import ReplayError, Trace, replay
from models.config import Scenario
from models.environment import (
    arrivals,
    following,
    nobody,
    prompts,
    request_ends,
    samples,
    schedule,
    tick,
)
from models.scheduler import SchedulerOutput
from models.state import Request, State
from properties.properties import (
    BOUNDED_RECOMPUTE,
    COVERAGE,
    NO_DEADLOCK,
    NO_LIVELOCK,
    STEP_PROPERTIES,
    Property,
)
from properties.verdict import Verdict

LONGEST_WALK = 400  # steps; an engine whose run is longer is seen up to there


class _FoundError(Exception):
    """A walk that violates a property."""


class _OutOfTimeError(KeyboardInterrupt):
    """The seconds are used up; hypothesis lets it through as it lets Ctrl-C through."""


@dataclass(slots=True)
class _Walks:
    """What all walks saw together; ``found`` is the last, so the shortest, violating run."""

    scenario: Scenario
    deadline: float | None
    runs: int = 0
    steps: int = 0
    deepest: int = 0
    states: set[State] = field(default_factory=set)
    seen: dict[str, int] = field(default_factory=dict)
    found: tuple[Property, str, list[State], int | None] | None = None

    def walk(self, pick: Callable[[int], int]) -> None:
        """One run; ``pick(n)`` draws a number below n. Raises ``_FoundError`` at a violation."""
        self.runs += 1
        path: list[State] = []
        since: dict[State, int] = {}  # states since the last emission, and their step
        empty = nobody(self.scenario)
        state = self._next(pick, empty, list(zip(empty.requests, strict=True)), (), (), 0)
        while state is not None and len(path) < LONGEST_WALK:
            if self.deadline is not None and time.monotonic() > self.deadline:
                raise _OutOfTimeError
            if state in since:
                self._report_loop(path, since[state])
            path.append(state)
            self.states.add(state)
            self.deepest = max(self.deepest, len(path) - 1)
            output = schedule(self.scenario, state)
            self._look(path, state, output)
            emits = any(samples(state.requests[i], n) for i, n in output.scheduled.items())
            since = {} if emits else since | {state: len(path) - 1}
            ends = request_ends(self.scenario, state, output)
            clock = tick(self.scenario, state.clock)
            state = self._next(pick, state, ends, output.running, output.waiting, clock)

    def _next(
        self,
        pick: Callable[[int], int],
        state: State,
        ends: list[tuple[Request, ...]],
        running: tuple[int, ...],
        waiting: tuple[int, ...],
        clock: int,
    ) -> State | None:
        """One state that can follow, its answers drawn one by one; ``None`` if the run is over."""
        options = arrivals(self.scenario, state, clock)
        if not options:
            return None
        arrived = options[pick(len(options))]
        chosen = tuple(alternatives[pick(len(alternatives))] for alternatives in ends)
        lengths = {
            index: (span := prompts(self.scenario.requests[index]))[pick(len(span))]
            for index in arrived
        }
        return following(self.scenario, chosen, running, waiting, clock, lengths)

    def _look(self, path: list[State], state: State, output: SchedulerOutput) -> None:
        self.steps += 1
        for covered in COVERAGE:
            if covered.property.name not in self.seen and covered.seen(state, output):
                self.seen[covered.property.name] = len(path) - 1
        for checked in STEP_PROPERTIES:
            if not checked.property.required:
                continue
            finding = checked.check(self.scenario, state, output)
            if finding is not None:
                self.found = (checked.property, finding, list(path), None)
                raise _FoundError

    def _report_loop(self, path: list[State], start: int) -> None:
        scheduled = any(schedule(self.scenario, state).scheduled for state in path[start:])
        prop = NO_LIVELOCK if scheduled else NO_DEADLOCK
        steps = len(path) - start
        what = f"a cycle of {steps} step{'s' * (steps > 1)}" if scheduled else "stuck"
        self.found = (prop, f"{what}, for ever", list(path), start)
        raise _FoundError


def walk(
    scenario: Scenario, *, runs: int, seed: int = 0, limits: Limits | None = None
) -> CheckResult:
    """Take ``runs`` random runs of a scenario; repeatable for a given seed."""
    started = time.monotonic()
    seconds = limits.seconds if limits is not None else None
    walks = _Walks(scenario, None if seconds is None else started + seconds)
    stopped = Stop.WALKS
    try:
        _drive(walks, runs, seed)
    except (_FoundError, _OutOfTimeError):
        pass
    except KeyboardInterrupt:
        stopped = Stop.INTERRUPTED
    found = None if walks.found is None else _trace(walks)
    return CheckResult(
        scenario=scenario,
        limits=limits or Limits(),
        stopped=stopped,
        num_states=len(walks.states),
        explored=len(walks.states),
        num_transitions=walks.steps,
        depth=walks.deepest,
        seconds=time.monotonic() - started,
        properties=tuple(_result(walks, prop, found) for prop in _properties()),
        coverage=tuple(
            CoverageResult(covered.property, walks.seen.get(covered.property.name))
            for covered in COVERAGE
        ),
        recompute=None,
    )


def _drive(walks: _Walks, runs: int, seed_value: int) -> None:
    @seed(seed_value)
    @settings(
        max_examples=runs,
        database=None,
        deadline=None,
        phases=(Phase.generate, Phase.shrink),
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def one(data: st.DataObject) -> None:
        walks.walk(lambda n: data.draw(st.integers(0, n - 1)) if n > 1 else 0)

    one()


def _properties() -> list[Property]:
    safety = [checked.property for checked in STEP_PROPERTIES]
    return [*safety[:2], NO_LIVELOCK, NO_DEADLOCK, BOUNDED_RECOMPUTE, *safety[2:]]


def _trace(walks: _Walks) -> Trace:
    assert walks.found is not None
    prop, _, path, loop_start = walks.found
    trace = replay(walks.scenario, path, loop_start=loop_start)
    for checked in STEP_PROPERTIES:
        last = trace.steps[-1]
        if checked.property is prop and not checked.check(walks.scenario, last.before, last.output):
            raise ReplayError(f"the run for {prop.name} does not violate it when replayed")
    return trace


def _result(walks: _Walks, prop: Property, trace: Trace | None) -> PropertyResult:
    if walks.found is not None and walks.found[0] is prop:
        step = len(walks.found[2]) - 1 if walks.found[3] is None else walks.found[3]
        return PropertyResult(prop, Verdict.VIOLATED, f"step {step}: {walks.found[1]}", trace)
    return PropertyResult(
        prop,
        Verdict.INCONCLUSIVE,
        f"not seen in {walks.runs:,} random runs over {len(walks.states):,} distinct states",
    )
