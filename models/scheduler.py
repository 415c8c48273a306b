"""One ``schedule()`` call: the working copy that the vLLM and the vllm-rbln step share, and its output.

Mirrors what ``v1/core/sched/scheduler.py Scheduler`` and ``v1/core/kv_cache_manager.py
KVCacheManager`` do for both: allocate slots, pick a victim, preempt, test an admission.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

from models.config import Allocation, Blocks, EngineConfig, Scenario
from models.kv_cache import fits, num_blocks_to_allocate
from models.state import Request, State


class Allocated(NamedTuple):
    """A request was given ``blocks`` new blocks, to reach ``slots`` slots."""

    request: int
    blocks: int
    slots: int


class Admitted(NamedTuple):
    """A waiting request joined the running ones; its own allocation follows."""

    request: int


class Preempted(NamedTuple):
    """``victim`` lost its blocks because ``by`` found none.

    ``computed`` tokens are thrown away; ``by`` needed ``needed`` new blocks for ``slots`` slots and
    ``free`` were free.
    """

    victim: int
    by: int
    computed: int
    slots: int
    needed: int
    free: int


class Evicted(NamedTuple):
    """A decode was thrown out of the step by an admission; it keeps its blocks (rule R36)."""

    request: int


class Refused(NamedTuple):
    """The head of the waiting queue was not admitted: ``needed`` blocks against ``available``.

    ``needed`` includes the watermark. ``test`` says which of the two tests refused (rule R8).
    """

    request: int
    test: Literal["gate", "slots"]
    needed: int
    available: int


Event: TypeAlias = Allocated | Admitted | Preempted | Evicted | Refused


class SchedulerOutput(NamedTuple):
    """What one ``schedule()`` call decided (vLLM ``v1/core/sched/output.py SchedulerOutput``).

    ``scheduled``: request -> tokens, drafts included, running requests first. ``drafts``: request ->
    drafts scheduled; ``-n`` = n placeholders of a padded first decode. ``pending``: request ->
    drafts that it keeps although it was picked (rule R36). ``blocks`` and ``free`` are the step's
    high water, before finished requests give theirs back (rule R18).
    """

    scheduled: dict[int, int]
    drafts: dict[int, int]
    pending: dict[int, int]
    running: tuple[int, ...]
    waiting: tuple[int, ...]
    blocks: tuple[Blocks, ...]
    free: int
    events: tuple[Event, ...]
    preempted: bool


class ScheduleStep:
    """The scheduler's working copy during one step."""

    __slots__ = (
        "blocks",
        "drafts",
        "engine",
        "events",
        "free",
        "pending",
        "preempted",
        "requests",
        "running",
        "scenario",
        "scheduled",
        "waiting",
    )

    def __init__(self, scenario: Scenario, state: State) -> None:
        self.scenario = scenario
        self.engine: EngineConfig = scenario.engine
        self.requests: tuple[Request, ...] = state.requests
        self.running = list(state.running)
        self.waiting = list(state.waiting)
        self.blocks: list[Blocks] = [request.blocks for request in state.requests]
        self.free = scenario.engine.usable_blocks - sum(map(sum, self.blocks))
        self.scheduled: dict[int, int] = {}
        self.drafts: dict[int, int] = {}
        self.pending: dict[int, int] = {}
        self.events: list[Event] = []
        self.preempted = False

    def allocate_slots(self, index: int, tokens: int) -> Allocation | None:
        """Give a request slots up to its first ``tokens`` tokens and the lookahead (rules R2-R4).

        Returns ``None`` if granted, else the allocation that found too few free blocks.
        """
        wanted = self.engine.allocation(self.blocks[index], tokens)
        if not fits(wanted.new_blocks, 0, self.free):
            return wanted
        self._take(index, wanted)
        return None

    def preempt_for(self, index: int, wanted: Allocation) -> int:
        """Preempt one request so that ``index`` may get its blocks; returns the victim (R13, R14).

        Mirrors ``v1/core/sched/scheduler.py schedule`` and ``_preempt_request``.
        """
        rank = self.scenario.rank
        priority = self.engine.priority_policy
        victim = max(self.running, key=rank) if priority else self.running[-1]
        self.running.remove(victim)
        self.events.append(
            Preempted(
                victim=victim,
                by=index,
                computed=self.requests[victim].computed,
                slots=wanted.slots,
                needed=wanted.new_blocks,
                free=self.free,
            )
        )
        self.preempted = True
        self.free += sum(self.blocks[victim])
        self.blocks[victim] = self.engine.no_blocks
        self.waiting.insert(0, victim)
        if priority:
            self.waiting.sort(key=rank)
        return victim

    def take_back(self, victim: int) -> int | None:
        """Undo what this step scheduled for a victim (rule R17); returns its tokens, if any."""
        self.drafts.pop(victim, None)
        return self.scheduled.pop(victim, None)

    def admit(self, index: int, tokens: int) -> bool:
        """Admit the head of the waiting queue with its first ``tokens`` tokens, or refuse it.

        Two tests in one call, the gate and the slots of this chunk, both with the watermark, which
        counts only if something is running (rules R6, R8). Mirrors ``v1/core/kv_cache_manager.py
        allocate_slots`` with ``full_sequence_must_fit``.
        """
        engine = self.engine
        held = self.blocks[index]
        watermark = engine.watermark_blocks if self.running else 0
        gate_tokens = engine.gate_tokens(self.requests[index].num_tokens)
        if gate_tokens is not None:
            whole = num_blocks_to_allocate(gate_tokens, engine.block_sizes, held)
            if not fits(whole, watermark, self.free):
                self.events.append(Refused(index, "gate", whole + watermark, self.free))
                return False
        wanted = engine.allocation(held, tokens)
        if not fits(wanted.new_blocks, watermark, self.free):
            self.events.append(Refused(index, "slots", wanted.new_blocks + watermark, self.free))
            return False
        del self.waiting[0]
        self.running.append(index)
        self.events.append(Admitted(index))
        self._take(index, wanted)
        return True

    def schedule_running(self, index: int, tokens: int) -> None:
        """Put a running request in the step; drafts past the budget are cut for good (rule R12)."""
        request = self.requests[index]
        self.scheduled[index] = tokens
        if request.drafts:
            drafts = tokens + request.computed - request.num_tokens
            if drafts > 0:
                self.drafts[index] = drafts

    def output(self) -> SchedulerOutput:
        """What the step decided."""
        return SchedulerOutput(
            self.scheduled,
            self.drafts,
            self.pending,
            tuple(self.running),
            tuple(self.waiting),
            tuple(self.blocks),
            self.free,
            tuple(self.events),
            self.preempted,
        )

    def _take(self, index: int, wanted: Allocation) -> None:
        if wanted.new_blocks:
            self.free -= wanted.new_blocks
            self.blocks[index] = wanted.table
            self.events.append(Allocated(index, wanted.new_blocks, wanted.slots))
