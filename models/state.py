"""What the scheduler remembers between steps, as immutable tuples of ints."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from models.config import Blocks


class Status(IntEnum):
    """Where a request stands (vLLM ``v1/request.py RequestStatus``)."""

    UNARRIVED = 0
    WAITING = 1
    PREEMPTED = 2
    RUNNING = 3
    FINISHED = 4


class Window(IntEnum):
    """The admission window of a request: from its admission to the end of its first decode step.

    ``CONTENDED``: another request was allocated a block since. This is a history variable: no
    scheduler rule reads it, only the properties do.
    """

    CLOSED = 0
    CLEAN = 1
    CONTENDED = 2


class Request(NamedTuple):
    """One request between two steps; tokens, and blocks per KV cache group.

    ``is_prefill_chunk`` is the flag of the step that scheduled it last (rule R22); it is cleared
    while the request waits, where nothing reads it.
    """

    status: Status
    prompt: int
    outputs: int
    computed: int
    drafts: int
    blocks: Blocks
    is_prefill_chunk: bool
    window: Window

    @property
    def num_tokens(self) -> int:
        """Prompt and outputs so far, in tokens."""
        return self.prompt + self.outputs


UNARRIVED = Request(Status.UNARRIVED, 0, 0, 0, 0, (), False, Window.CLOSED)
FINISHED = Request(Status.FINISHED, 0, 0, 0, 0, (), False, Window.CLOSED)


class State(NamedTuple):
    """The scheduler just before ``schedule()``; the arrivals of this step are in the queue.

    Requests are named by their index in the workload. ``running`` and ``waiting`` are in queue
    order; ``clock`` counts steps up to the last fixed arrival and stays 0 without fixed arrivals.
    """

    requests: tuple[Request, ...]
    running: tuple[int, ...]
    waiting: tuple[int, ...]
    clock: int

    def blocks_held(self) -> int:
        """Blocks of the pool that requests hold."""
        return sum(sum(request.blocks) for request in self.requests)

    @property
    def busy(self) -> bool:
        """Whether an arrived request is unfinished; if not, the engine sleeps."""
        return bool(self.running or self.waiting)
