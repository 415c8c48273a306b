"""The admission gates: how many tokens of a request must fit in the pool before it may start.

A gate is a small class with a ``name`` and one pure method, ``tokens``. The step functions and the
theorems run the very same method, with ints and with symbols. ``--policy`` takes the name of a gate
below, or ``package.module:Class`` or ``path/to/file.py:Class`` for one of your own.

The gate stands where vLLM has ``full_sequence_must_fit`` (``v1/core/kv_cache_manager.py
allocate_slots``); rule R6 of ``docs/rules.md``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

from models.arithmetic import Num, minimum, where


@dataclass(frozen=True, slots=True)
class Admission:
    """What a gate may look at: one waiting request and the engine's settings, all in tokens.

    ``num_tokens`` counts the prompt and, for a preempted request, the outputs so far.
    """

    num_tokens: Num
    num_spec_tokens: Num
    num_lookahead_tokens: Num
    max_model_len: Num


class Gate(Protocol):
    """The admission test: the request may start if ``tokens`` slots of it fit in the free blocks."""

    name: ClassVar[str]

    def __hash__(self) -> int: ...

    def tokens(self, request: Admission) -> Num | None:
        """Slots (tokens) that must fit at admission; ``None`` = no test of the whole sequence.

        Must be a pure function. Use ``minimum``, ``maximum``, ``where`` and ``cdiv`` of
        ``models.arithmetic`` instead of ``min``, ``max``, ``if`` and ``//``, so that the gate can
        be proved for all sizes as well as explored.
        """
        ...


class NoGate:
    """Nothing but the next chunk must fit (vLLM ``scheduler_reserve_full_isl=False``)."""

    name: ClassVar[str] = "none"

    def tokens(self, request: Admission) -> Num | None:
        return None


class PromptOnly:
    """The released gate of vLLM up to and including 0.33: the tokens that the request has."""

    name: ClassVar[str] = "prompt-only"

    def tokens(self, request: Admission) -> Num | None:
        return minimum(request.num_tokens, request.max_model_len)


class LookaheadOnly:
    """The first revision of the fix: room for the last chunk's lookahead, not for a decode step."""

    name: ClassVar[str] = "lookahead-only"

    def tokens(self, request: Admission) -> Num | None:
        return minimum(request.num_tokens + request.num_lookahead_tokens, request.max_model_len)


class FirstDecodeStepAlways:
    """Room for the whole prefill and the first decode step, with or without speculation."""

    name: ClassVar[str] = "first-decode-step-always"

    def tokens(self, request: Admission) -> Num | None:
        first_decode = 1 + request.num_spec_tokens
        return minimum(
            request.num_tokens + first_decode + request.num_lookahead_tokens,
            request.max_model_len,
        )


class FirstDecodeStep:
    """The corrected gate: as ``first-decode-step-always`` if the engine speculates, else the old one."""

    name: ClassVar[str] = "first-decode-step"

    def tokens(self, request: Admission) -> Num | None:
        margin = where(
            request.num_spec_tokens > 0,
            1 + request.num_spec_tokens + request.num_lookahead_tokens,
            0,
        )
        return minimum(request.num_tokens + margin, request.max_model_len)


GATES: dict[str, Gate] = {
    gate.name: gate
    for gate in (
        NoGate(),
        PromptOnly(),
        LookaheadOnly(),
        FirstDecodeStep(),
        FirstDecodeStepAlways(),
    )
}
