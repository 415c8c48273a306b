"""Watching a scheduler from outside: the gate's wrapper, refusals and preemptions.

Live objects get a subclass of their own class (see ``watch``): the scheduler's methods run as they
are, and what they are asked and answer is noted. The only thing that can be changed is the
number of tokens that the admission gate counts; allocation below the gate stays as released.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeAlias

GateTokens: TypeAlias = Callable[[int], int | None]


@dataclass(slots=True)
class Notes:
    """What was seen during one ``schedule()`` call.

    ``gate`` gives the slots that must fit for a request of so many tokens; ``None`` leaves the
    engine's own gate alone.
    """

    gate: GateTokens | None = None
    preempted: list[list[Any]] = field(default_factory=list)
    refused: list[Any] | None = None
    asking: Any = None
    counts: list[int] = field(default_factory=list)
    wanted: int | None = None

    def clear(self) -> None:
        """Forget the last step."""
        self.preempted = []
        self.refused = None


def watch(scheduler: Any, notes: Notes) -> None:
    """Give a scheduler, its cache manager and its coordinator the watching methods."""
    manager = scheduler.kv_cache_manager
    for live, subclass in (
        (scheduler, _watched_scheduler),
        (manager, _watched_manager),
        (manager.coordinator, _watched_coordinator),
    ):
        own: Any = type(live)
        live.__class__ = subclass(own)
        live.notes = notes


@cache
def _watched_scheduler(engine: Any) -> type:
    class WatchedScheduler(engine):
        """Notes who was preempted, for whom, and what it lost."""

        notes: Notes

        def _preempt_request(self, request: Any, *args: Any, **kwargs: Any) -> None:
            self.notes.preempted.append(
                [request.request_id, self.notes.asking.request_id, request.num_computed_tokens]
            )
            super()._preempt_request(request, *args, **kwargs)

    return WatchedScheduler


@cache
def _watched_manager(engine: Any) -> type:
    class WatchedManager(engine):
        """Wraps the admission gate; notes who was refused and by which of the two tests."""

        notes: Notes

        def allocate_slots(self, request: Any, *args: Any, **kwargs: Any) -> Any:
            notes = self.notes
            notes.asking, notes.counts, notes.wanted = request, [], None
            gated = kwargs.get("full_sequence_must_fit", False)
            if gated and notes.gate is not None:
                notes.wanted = notes.gate(request.num_tokens)
                gated = kwargs["full_sequence_must_fit"] = notes.wanted is not None
            free = self.block_pool.get_num_free_blocks()
            blocks = super().allocate_slots(request, *args, **kwargs)
            if blocks is None and request.status.name != "RUNNING":
                by_gate = gated and len(notes.counts) == 1
                watermark = self.watermark_blocks if kwargs.get("has_scheduled_reqs", True) else 0
                notes.refused = [
                    request.request_id,
                    "gate" if by_gate else "slots",
                    notes.counts[-1] + watermark,
                    free if by_gate else free - kwargs.get("reserved_blocks", 0),
                ]
            return blocks

    return WatchedManager


@cache
def _watched_coordinator(engine: Any) -> type:
    class WatchedCoordinator(engine):
        """Puts the wrapper's number into the gate's question, an allocation's first one."""

        notes: Notes

        def get_num_blocks_to_allocate(self, *args: Any, **kwargs: Any) -> Any:
            notes = self.notes
            if notes.wanted is not None and not notes.counts:
                kwargs["num_tokens"] = kwargs["num_tokens_main_model"] = notes.wanted
            count = super().get_num_blocks_to_allocate(*args, **kwargs)
            notes.counts.append(count)
            return count

    return WatchedCoordinator
