"""States packed into one integer each, and the successors of a state as sums.

Every request state and every queue order that occurs is interned: it gets a small number. A packed
state is the sum of its requests' numbers and its order's number, each shifted to a field of its
own. The outcomes of a scheduled request are looked up once per (request state, tokens, drafts) and
kept as shifted numbers, so the successors of a state are sums of known terms. One ``schedule()``
call serves all successors of a state.

The rules are those of ``models.environment``; nothing of the semantics is written again here, and
``tests/test_explore.py`` holds the successors against ``models.environment.successors``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from models.config import Scenario
from models.environment import (
    SCHEDULERS,
    after_schedule,
    arrivals,
    arrive,
    enqueue,
    initial_states,
    outcomes,
    prompts,
    samples,
    tick,
)
from models.scheduler import SchedulerOutput
from models.state import FINISHED, UNARRIVED, Request, State

FIELD_BITS = 20
FIELD_MASK = (1 << FIELD_BITS) - 1
# Multiplying by an odd constant of about 61 bits spreads the fields over the low bits of Python's
# integer hash (the value modulo 2**61 - 1), which would otherwise be those of the first request.
SPREAD = 0x1B873593CC9E2D51

Order: TypeAlias = tuple[tuple[int, ...], tuple[int, ...], int]


class Expansion(NamedTuple):
    """A state, the scheduler's decision, and the packed states that can follow.

    ``emits``: whether the step emits a token; the answers cannot change that.
    """

    state: State
    output: SchedulerOutput
    successors: list[int]
    emits: bool


class _Outcome(NamedTuple):
    """Ends of a step for one scheduled request: shifted numbers if it lives, and whether it may end."""

    alive: tuple[int, ...]
    may_finish: bool
    emits: bool


class _Arrival(NamedTuple):
    """Requests that arrive together, the terms of their prompts, and the clock then."""

    arrived: tuple[int, ...]
    terms: list[int]
    clock: int


class PackedSpace:
    """The state space of one scenario, packed."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self._schedule = SCHEDULERS[scenario.engine.scheduler]
        count = len(scenario.requests)
        self._shifts = tuple(FIELD_BITS * (1 + index) for index in range(count))
        self._requests: list[list[Request]] = [[UNARRIVED, FINISHED] for _ in range(count)]
        self._tables = tuple(zip(self._requests, self._shifts, strict=True))
        self._numbers: list[dict[Request, int]] = [
            {UNARRIVED: 0, FINISHED: 1} for _ in range(count)
        ]
        self._orders: list[Order] = []
        self._order_numbers: dict[Order, int] = {}
        self._arrived: dict[tuple[tuple[int, ...], bool, int], list[_Arrival]] = {}
        self._outcomes: dict[tuple[int, int, int, int], _Outcome] = {}
        self._finished = tuple(SPREAD << shift for shift in self._shifts)

    def roots(self) -> Iterator[int]:
        """The packed initial states."""
        return map(self.pack, initial_states(self.scenario))

    def pack(self, state: State) -> int:
        """The packed form of a state."""
        requests = sum(self._term(index, request) for index, request in enumerate(state.requests))
        return requests + self._order((state.running, state.waiting, state.clock))

    def unpack(self, packed: int) -> State:
        """The state of a packed form."""
        numbers = packed // SPREAD
        requests = tuple([table[(numbers >> shift) & FIELD_MASK] for table, shift in self._tables])
        return State(requests, *self._orders[numbers & FIELD_MASK])

    def expand(self, packed: int) -> Expansion:
        """One scheduler call, and every state that can follow it, each once."""
        state = self.unpack(packed)
        output = self._schedule(self.scenario, state)
        scheduled, drafts = output.scheduled, output.drafts
        numbers = packed // SPREAD
        base = 0  # what every successor has in common
        choices: list[tuple[int, ...]] = []
        finishers: list[tuple[int, tuple[int, ...]]] = []
        emits = False
        known = self._outcomes
        before = state.requests
        shifts = self._shifts
        for index, request in enumerate(after_schedule(state, output)):
            shift = shifts[index]
            if request is before[index]:
                number = (numbers >> shift) & FIELD_MASK
            else:
                number = self._number(index, request)
            tokens = scheduled.get(index)
            if tokens is None:
                base += number << shift
                continue
            key = (index, number, tokens, drafts.get(index, 0))
            outcome = known.get(key) or self._new_outcome(key, request)
            emits |= outcome.emits
            if outcome.may_finish:
                finishers.append((index, outcome.alive))
            else:
                choices.append(outcome.alive)
        sums = [base * SPREAD]
        for alive in choices:
            sums = [total + term for total in sums for term in alive]
        arrived = self._arrivals(state)
        successors: list[int] = []
        for finished, ended in self._endings(finishers, sums):
            running = output.running
            if finished:
                running = tuple([index for index in running if index not in finished])
            for term in self._queues(running, output.waiting, arrived):
                successors += [total + term for total in ended]
        return Expansion(state, output, successors, emits)

    def _endings(
        self, finishers: list[tuple[int, tuple[int, ...]]], sums: list[int]
    ) -> list[tuple[tuple[int, ...], list[int]]]:
        """For every set of requests that finish together: the set, and the sums that go with it."""
        endings: list[tuple[tuple[int, ...], list[int]]] = [((), sums)]
        for index, alive in finishers:
            final = self._finished[index]
            living = [
                (finished, [total + term for total in ended for term in alive])
                for finished, ended in endings
                if alive
            ]
            endings = living + [
                ((*finished, index), [total + final for total in ended])
                for finished, ended in endings
            ]
        return endings

    def _arrivals(self, state: State) -> list[_Arrival]:
        """Who may arrive before the next step, with the terms of their choice of prompts."""
        absent = tuple([i for i, request in enumerate(state.requests) if request is UNARRIVED])
        key = (absent, state.busy, state.clock)
        known = self._arrived.get(key)
        if known is None:
            known = self._arrived[key] = self._new_arrivals(state)
        return known

    def _new_arrivals(self, state: State) -> list[_Arrival]:
        scenario = self.scenario
        clock = tick(scenario, state.clock)
        options: list[_Arrival] = []
        for arrived in arrivals(scenario, state, clock):
            sums = [0]
            for index in arrived:
                entering = [
                    self._term(index, arrive(scenario, index, prompt))
                    for prompt in prompts(scenario.requests[index])
                ]
                sums = [total + term for total in sums for term in entering]
            options.append(_Arrival(arrived, sums, clock))
        return options

    def _queues(
        self, running: tuple[int, ...], waiting: tuple[int, ...], options: list[_Arrival]
    ) -> list[int]:
        """The queue orders that may follow, arrivals included, as terms to add."""
        terms: list[int] = []
        for arrived, sums, clock in options:
            queue = enqueue(self.scenario, waiting, arrived) if arrived else waiting
            order = self._order((running, queue, clock))
            terms += [order + total for total in sums]
        return terms

    def _new_outcome(self, key: tuple[int, int, int, int], request: Request) -> _Outcome:
        index, _, tokens, drafts = key
        ends = outcomes(self.scenario, index, request, tokens, drafts)
        outcome = self._outcomes[key] = _Outcome(
            tuple(self._term(index, end) for end in ends if end is not FINISHED),
            FINISHED in ends,
            samples(request, tokens),
        )
        return outcome

    def _term(self, index: int, request: Request) -> int:
        return SPREAD * self._number(index, request) << self._shifts[index]

    def _number(self, index: int, request: Request) -> int:
        numbers = self._numbers[index]
        number = numbers.get(request)
        if number is None:
            number = numbers[request] = len(numbers)
            _check_field(number, f"states of request {self.scenario.requests[index].id!r}")
            self._requests[index].append(request)
        return number

    def _order(self, order: Order) -> int:
        number = self._order_numbers.get(order)
        if number is None:
            number = self._order_numbers[order] = len(self._orders)
            _check_field(number, "queue orders")
            self._orders.append(order)
        return SPREAD * number


def _check_field(number: int, what: str) -> None:
    if number > FIELD_MASK:
        raise OverflowError(f"more than {FIELD_MASK + 1} {what}: the instance is too large to pack")
