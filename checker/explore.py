"""Breadth-first search over every reachable state of a scenario.

The search visits states in a fixed order, so counts, traces and verdicts are the same on every
run. A limit that is met, or Ctrl-C, ends it early and is kept in the result: what was not explored
is never taken for explored.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import count
from typing import TypeAlias

import psutil

from checker.packed import Expansion, PackedSpace
from models.config import Scenario
from models.state import State

CHECK_EVERY = 256  # states between two looks at the clock, the memory and the progress


class Stop(Enum):
    """Why not every reachable state was explored."""

    STATES = "--max-states"
    SECONDS = "--max-seconds"
    MEMORY = "--max-memory"
    INTERRUPTED = "interrupted"
    WALKS = "--walks"


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on a search: states, seconds of wall time, MiB of resident memory; ``None`` = none."""

    states: int | None = None
    seconds: float | None = None
    memory: int | None = None


NO_LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a running search is."""

    states: int
    explored: int
    transitions: int
    depth: int
    seconds: float


Observer: TypeAlias = Callable[[int, Expansion], None]


@dataclass(slots=True)
class Edges:
    """Transitions as rows: those of state ``n`` are ``targets[offsets[n]:offsets[n + 1]]``."""

    offsets: array[int] = field(default_factory=lambda: array("L", [0]))
    targets: array[int] = field(default_factory=lambda: array("I"))

    def of(self, number: int) -> array[int]:
        """The successors of an explored state."""
        return self.targets[self.offsets[number] : self.offsets[number + 1]]


@dataclass(slots=True)
class Exploration:
    """What was explored: states by number, in breadth-first order, and how each was first reached.

    ``num_states`` counts the states found, ``explored`` those whose successors were computed; they
    are equal unless ``stopped`` says why not. ``silent`` has the packed successors of every
    explored state whose step emits nothing; only those can lie on a cycle of a closed workload.
    ``edges`` has all transitions, if the graph is kept.
    """

    space: PackedSpace
    edges: Edges | None
    packed: list[int] = field(default_factory=list)
    parents: array[int] = field(default_factory=lambda: array("l"))
    levels: array[int] = field(default_factory=lambda: array("L"))
    silent: dict[int, list[int]] = field(default_factory=dict)
    explored: int = 0
    num_transitions: int = 0
    seconds: float = 0.0
    stopped: Stop | None = None

    @property
    def scenario(self) -> Scenario:
        """The instance that was explored."""
        return self.space.scenario

    @property
    def num_states(self) -> int:
        """Distinct states found."""
        return len(self.packed)

    @property
    def depth(self) -> int:
        """The most steps from an initial state to a state, by shortest runs."""
        return max(len(self.levels) - 1, 0)

    @property
    def complete(self) -> bool:
        """Whether every reachable state was explored."""
        return self.stopped is None

    def state(self, number: int) -> State:
        """The state with a number."""
        return self.space.unpack(self.packed[number])

    def path(self, number: int) -> list[int]:
        """The numbers of the states on a shortest run from an initial state to this one."""
        path = [number]
        while (parent := self.parents[path[-1]]) >= 0:
            path.append(parent)
        return path[::-1]


def explore(
    scenario: Scenario,
    *,
    limits: Limits = NO_LIMITS,
    observers: Sequence[Observer] = (),
    keep_graph: bool = False,
    progress: Callable[[Progress], None] | None = None,
) -> Exploration:
    """Explore every reachable state, shortest runs first.

    Each observer is called once per explored state with its number and its expansion.
    ``keep_graph`` keeps every transition (4 bytes each, and a dictionary in place of a set).
    """
    result = Exploration(PackedSpace(scenario), Edges() if keep_graph else None)
    started = time.monotonic()
    try:
        for tick, _ in enumerate(_search(result, observers), 1):
            if limits.states is not None and result.num_states > limits.states:
                result.stopped = Stop.STATES
            elif tick % CHECK_EVERY == 0:
                result.seconds = time.monotonic() - started
                result.stopped = _limit_met(result, limits)
                if progress is not None:
                    progress(_progress(result))
            if result.stopped:
                break
    except KeyboardInterrupt:
        result.stopped = Stop.INTERRUPTED
        del result.packed[len(result.parents) :]
    result.seconds = time.monotonic() - started
    return result


def _search(result: Exploration, observers: Sequence[Observer]) -> Iterator[None]:
    """The breadth-first search; pauses after every initial state and every state explored.

    The list of states found is also the queue: it grows while it is walked.
    """
    expand, packed, parents, edges = (
        result.space.expand,
        result.packed,
        result.parents,
        result.edges,
    )
    for root in result.space.roots():
        packed.append(root)
        parents.append(-1)
        yield
    numbers = {key: number for number, key in enumerate(packed)}
    seen = set(packed)
    next_level = 0
    for number, key in enumerate(packed):
        if number == next_level:
            result.levels.append(number)
            next_level = len(packed)
        expansion = expand(key)
        successors = expansion.successors
        if edges is None:
            fresh = [key for key in successors if key not in seen]
            seen.update(fresh)
        else:
            fresh = [key for key in successors if key not in numbers]
            numbers.update(zip(fresh, count(len(packed))))
            edges.targets.extend(map(numbers.__getitem__, successors))
            edges.offsets.append(len(edges.targets))
        packed += fresh
        parents.extend([number] * len(fresh))
        for observe in observers:
            observe(number, expansion)
        if not expansion.emits:
            result.silent[number] = successors
        result.num_transitions += len(successors)
        result.explored += 1
        yield


def _limit_met(result: Exploration, limits: Limits) -> Stop | None:
    if limits.seconds is not None and result.seconds > limits.seconds:
        return Stop.SECONDS
    if limits.memory is not None and psutil.Process().memory_info().rss > limits.memory << 20:
        return Stop.MEMORY
    return None


def _progress(result: Exploration) -> Progress:
    return Progress(
        result.num_states,
        result.explored,
        result.num_transitions,
        result.depth,
        result.seconds,
    )
