"""Checking one scenario: explore, judge every property, replay what is shown."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

from checker.explore import NO_LIMITS, Exploration, Limits, Progress, Stop, explore
from checker.graph import Lasso, cycles, heaviest_run
from checker.packed import Expansion
from checker.trace import ReplayError, Trace, replay
from models.config import Scenario
from models.scheduler import Preempted
from properties.properties import (
    BOUNDED_RECOMPUTE,
    COVERAGE,
    NO_DEADLOCK,
    NO_LIVELOCK,
    STEP_PROPERTIES,
    CoverageProperty,
    Kind,
    Property,
    StepProperty,
)
from properties.verdict import Verdict, worst

STOPPED = {
    Stop.STATES: "raise --max-states",
    Stop.SECONDS: "raise --max-seconds",
    Stop.MEMORY: "raise --max-memory",
    Stop.INTERRUPTED: "interrupted",
    Stop.WALKS: "random runs",
}


@dataclass(frozen=True, slots=True)
class PropertyResult:
    """The verdict on one property, the evidence in words, and a run that shows it, if any."""

    property: Property
    verdict: Verdict
    evidence: str
    trace: Trace | None = None


@dataclass(frozen=True, slots=True)
class CoverageResult:
    """Whether something was seen at all; ``depth`` is the step of the first time."""

    property: Property
    depth: int | None


@dataclass(frozen=True, slots=True)
class TheoremResult:
    """What a theorem says about a property, for all sizes.

    ``excludes`` is why it does not speak of this scenario, ``None`` if it does. Of a gate that
    cannot be run on symbols the verdict is INCONCLUSIVE.
    """

    property: str
    theorem: int
    verdict: Verdict
    evidence: str
    excludes: str | None


@dataclass(frozen=True, slots=True)
class Recompute:
    """Exact worst cases over all runs; ``None`` = unbounded.

    ``tokens`` thrown away by a run, ``preemptions`` of one request, ``steps`` of the longest run.
    """

    tokens: int | None
    preemptions: int | None
    steps: int | None


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What is known about one scenario."""

    scenario: Scenario
    limits: Limits
    stopped: Stop | None
    num_states: int
    explored: int
    num_transitions: int
    depth: int
    seconds: float
    properties: tuple[PropertyResult, ...]
    coverage: tuple[CoverageResult, ...]
    recompute: Recompute | None
    theorems: tuple[TheoremResult, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """The verdict of the required properties together."""
        return worst(result.verdict for result in self.properties if result.property.required)

    @property
    def worst_violated(self) -> PropertyResult | None:
        """The required property whose violation matters most: an engine that is stuck comes first."""
        violated = [
            result
            for result in self.properties
            if result.property.required and result.verdict is Verdict.VIOLATED
        ]
        stuck = [result for result in violated if result.property.kind is Kind.LIVENESS]
        return next(iter(stuck + violated), None)

    def result(self, name: str) -> PropertyResult:
        """The result of a property by name."""
        return next(result for result in self.properties if result.property.name == name)


class _Watch:
    """Observes a search: the first state that violates each property, and what was seen."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.always = [checked for checked in STEP_PROPERTIES if not checked.preempting]
        self.preempting = [checked for checked in STEP_PROPERTIES if checked.preempting]
        self.violated: dict[str, tuple[int, str]] = {}
        self.unseen = list(COVERAGE)
        self.seen: dict[str, int] = {}
        self.preemptions: dict[int, list[Preempted]] = {}
        self.scheduling: set[int] = set()
        self.asleep: set[int] = set()

    def __call__(self, number: int, expansion: Expansion) -> None:
        state, output = expansion.state, expansion.output
        for checked in self.always:
            finding = checked.check(self.scenario, state, output)
            if finding is not None:
                self.always = self._found(number, checked, finding, self.always)
        for covered in self.unseen:
            if covered.seen(state, output):
                self._saw(number, covered)
        if output.preempted:
            for checked in self.preempting:
                finding = checked.check(self.scenario, state, output)
                if finding is not None:
                    self.preempting = self._found(number, checked, finding, self.preempting)
            self.preemptions[number] = [e for e in output.events if isinstance(e, Preempted)]
        if not expansion.emits and output.scheduled:
            self.scheduling.add(number)
        if not state.busy:
            self.asleep.add(number)

    def _found(
        self, number: int, checked: StepProperty, finding: str, checks: list[StepProperty]
    ) -> list[StepProperty]:
        """Note the first violation; returns the checks that are still open."""
        self.violated[checked.property.name] = (number, finding)
        return [other for other in checks if other is not checked]

    def _saw(self, number: int, covered: CoverageProperty) -> None:
        self.seen[covered.property.name] = number
        self.unseen = [other for other in self.unseen if other is not covered]


def check(
    scenario: Scenario,
    *,
    limits: Limits = NO_LIMITS,
    keep_graph: bool = True,
    progress: Callable[[Progress], None] | None = None,
) -> CheckResult:
    """Explore a scenario and judge every property.

    Without the graph, ``bounded-recompute`` has no exact worst case.
    """
    watch = _Watch(scenario)
    exploration = explore(
        scenario, limits=limits, observers=(watch,), keep_graph=keep_graph, progress=progress
    )
    loops = cycles(exploration)
    recompute = _recompute(exploration, watch, loops)
    safety = [_safety(exploration, watch, checked) for checked in STEP_PROPERTIES]
    properties = (
        *safety[:2],
        *_liveness(exploration, watch, loops),
        _bounded(exploration, recompute, watch, loops),
        *safety[2:],
    )
    depths = _depths(exploration)
    return CheckResult(
        scenario=scenario,
        limits=limits,
        stopped=exploration.stopped,
        num_states=exploration.num_states,
        explored=exploration.explored,
        num_transitions=exploration.num_transitions,
        depth=exploration.depth,
        seconds=exploration.seconds,
        properties=properties,
        coverage=tuple(
            CoverageResult(covered.property, depths(watch.seen.get(covered.property.name)))
            for covered in COVERAGE
        ),
        recompute=recompute,
    )


def _safety(exploration: Exploration, watch: _Watch, checked: StepProperty) -> PropertyResult:
    name = checked.property.name
    if name not in watch.violated:
        return _unviolated(exploration, checked.property)
    number, finding = watch.violated[name]
    path = exploration.path(number)
    trace = replay(exploration.scenario, [exploration.state(n) for n in path])
    last = trace.steps[-1]
    if checked.check(exploration.scenario, last.before, last.output) is None:
        raise ReplayError(f"the run for {name} does not violate it when replayed")
    return PropertyResult(
        checked.property, Verdict.VIOLATED, f"step {len(path) - 1}: {finding}", trace
    )


def _liveness(
    exploration: Exploration, watch: _Watch, loops: list[Lasso]
) -> tuple[PropertyResult, PropertyResult]:
    """A cycle with scheduled tokens is a livelock, one without a deadlock."""
    live = next((loop for loop in loops if watch.scheduling.intersection(loop.cycle)), None)
    dead = next((loop for loop in loops if not watch.scheduling.intersection(loop.cycle)), None)
    return _lasso(exploration, NO_LIVELOCK, live), _lasso(exploration, NO_DEADLOCK, dead)


def _lasso(exploration: Exploration, prop: Property, loop: Lasso | None) -> PropertyResult:
    if loop is None:
        return _unviolated(exploration, prop)
    states = [exploration.state(number) for number in loop.stem + loop.cycle]
    trace = replay(exploration.scenario, states, loop_start=len(loop.stem))
    steps = len(loop.cycle)
    what = f"a cycle of {steps} step{'s' * (steps > 1)}" if prop is NO_LIVELOCK else "stuck"
    return PropertyResult(prop, Verdict.VIOLATED, f"step {len(loop.stem)}: {what}, for ever", trace)


def _recompute(exploration: Exploration, watch: _Watch, loops: list[Lasso]) -> Recompute | None:
    """The exact worst cases, if the whole graph is known."""
    if not exploration.complete or exploration.edges is None:
        return None
    lost = {n: sum(e.computed for e in events) for n, events in watch.preemptions.items()}
    if any(number in lost for loop in loops for number in loop.cycle):
        return Recompute(None, None, None)
    edges, size = exploration.edges, exploration.num_states
    counts: list[int | None] = [0]
    for request in range(len(exploration.scenario.requests)):
        times = Counter(
            n
            for n, events in watch.preemptions.items()
            for event in events
            if event.victim == request
        )
        if times:
            counts.append(heaviest_run(edges, size, times.__getitem__))
    tokens = heaviest_run(edges, size, Counter(lost).__getitem__) if lost else 0
    steps = None if loops else heaviest_run(edges, size, lambda n: n not in watch.asleep)
    return Recompute(tokens, None if None in counts else max(c or 0 for c in counts), steps)


def _bounded(
    exploration: Exploration, recompute: Recompute | None, watch: _Watch, loops: list[Lasso]
) -> PropertyResult:
    endless = next((loop for loop in loops if watch.preemptions.keys() & set(loop.cycle)), None)
    if endless is not None:
        loop = _lasso(exploration, BOUNDED_RECOMPUTE, endless)
        return replace(loop, evidence=f"{loop.evidence.split(':')[0]}: no bound, the loop preempts")
    if not exploration.complete:
        return _unviolated(exploration, BOUNDED_RECOMPUTE)
    if recompute is None or recompute.tokens is None or recompute.preemptions is None:
        bound = "no cycle preempts; the worst case needs the graph (--no-graph)"
        evidence = bound if watch.preemptions else "nothing is ever preempted"
        return PropertyResult(BOUNDED_RECOMPUTE, Verdict.HOLDS, evidence)
    return PropertyResult(
        BOUNDED_RECOMPUTE,
        Verdict.HOLDS,
        f"worst run: {recompute.tokens} tokens thrown away, "
        f"{recompute.preemptions} preemption{'s' * (recompute.preemptions != 1)} of one request",
    )


def _unviolated(exploration: Exploration, prop: Property) -> PropertyResult:
    if exploration.complete:
        return PropertyResult(prop, Verdict.HOLDS, f"{exploration.num_states:,} states")
    assert exploration.stopped is not None
    return PropertyResult(
        prop,
        Verdict.INCONCLUSIVE,
        f"no violation in {exploration.explored:,} states; {STOPPED[exploration.stopped]}",
    )


def _depths(exploration: Exploration) -> Callable[[int | None], int | None]:
    """From a state's number to its step: the level of the search that found it."""

    def depth(number: int | None) -> int | None:
        return None if number is None else bisect_right(exploration.levels, number) - 1

    return depth
