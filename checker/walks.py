"""Random runs, for instances too large to enumerate: hypothesis draws the environment's answers.

What it finds is shrunk to a short run and replayed. What it does not find proves nothing: the
verdict is then INCONCLUSIVE, with how many runs and states were seen.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from checker.check import CheckResult, CoverageResult, PropertyResult
from checker.explore import Limits, Stop
from checker.packed import Expansion, PackedSpace
from checker.trace import ReplayError, Trace, replay
from models.config import Scenario
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


@dataclass(slots=True)
class _Walks:
    """What all walks saw together; ``found`` is the last, so the shortest, violating run."""

    space: PackedSpace
    runs: int = 0
    steps: int = 0
    deepest: int = 0
    states: set[int] = field(default_factory=set)
    seen: dict[str, int] = field(default_factory=dict)
    found: tuple[Property, str, list[int], int | None] | None = None

    def walk(self, data: st.DataObject, deadline: float | None) -> None:
        """One run, its choices drawn; raises ``_FoundError`` at the first violation."""
        self.runs += 1
        path: list[int] = []
        since: dict[int, int] = {}  # states since the last emission, and their step
        options = self.space.roots()
        while options and len(path) < LONGEST_WALK:
            if deadline is not None and time.monotonic() > deadline:
                return
            choice = data.draw(st.integers(0, len(options) - 1)) if len(options) > 1 else 0
            packed = options[choice]
            if packed in since:
                self._report_loop(path, since[packed])
            path.append(packed)
            self.states.add(packed)
            self.deepest = max(self.deepest, len(path) - 1)
            expansion = self.space.expand(packed)
            self._look(path, expansion)
            since = {} if expansion.emits else since | {packed: len(path) - 1}
            options = expansion.successors

    def _look(self, path: list[int], expansion: Expansion) -> None:
        self.steps += 1
        for covered in COVERAGE:
            if covered.property.name not in self.seen and covered.seen(
                expansion.state, expansion.output
            ):
                self.seen[covered.property.name] = len(path) - 1
        for checked in STEP_PROPERTIES:
            if not checked.property.required:
                continue
            finding = checked.check(self.space.scenario, expansion.state, expansion.output)
            if finding is not None:
                self.found = (checked.property, finding, list(path), None)
                raise _FoundError

    def _report_loop(self, path: list[int], start: int) -> None:
        scheduled = any(self.space.expand(packed).output.scheduled for packed in path[start:])
        prop = NO_LIVELOCK if scheduled else NO_DEADLOCK
        steps = len(path) - start
        what = f"a cycle of {steps} step{'s' * (steps > 1)}" if scheduled else "stuck"
        self.found = (prop, f"{what}, for ever", list(path), start)
        raise _FoundError


def walk(
    scenario: Scenario, *, runs: int, seed: int = 0, limits: Limits | None = None
) -> CheckResult:
    """Take ``runs`` random runs of a scenario; repeatable for a given seed."""
    walks = _Walks(PackedSpace(scenario))
    started = time.monotonic()
    seconds = limits.seconds if limits is not None else None
    stopped = Stop.WALKS
    try:
        _drive(walks, runs, seed, None if seconds is None else started + seconds)
    except _FoundError:
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


def _drive(walks: _Walks, runs: int, seed_value: int, deadline: float | None) -> None:
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
        walks.walk(data, deadline)

    one()


def _properties() -> list[Property]:
    safety = [checked.property for checked in STEP_PROPERTIES]
    return [*safety[:2], NO_LIVELOCK, NO_DEADLOCK, BOUNDED_RECOMPUTE, *safety[2:]]


def _trace(walks: _Walks) -> Trace:
    assert walks.found is not None
    prop, _, path, loop_start = walks.found
    states = [walks.space.unpack(packed) for packed in path]
    trace = replay(walks.space.scenario, states, loop_start=loop_start)
    for checked in STEP_PROPERTIES:
        last = trace.steps[-1]
        if checked.property is prop and not checked.check(
            walks.space.scenario, last.before, last.output
        ):
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
