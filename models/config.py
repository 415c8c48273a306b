"""What stays fixed during a run: the engine's settings, the workload and the environment's freedom.

Field names are vLLM's own where vLLM has the setting.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

from models.gates import Admission, Gate
from models.kv_cache import grown, num_blocks_to_allocate, num_tokens_need_slot

SchedulerName: TypeAlias = Literal["vllm", "rbln"]
Release: TypeAlias = Literal["0.30", "0.31", "0.32", "0.33"]
Blocks: TypeAlias = tuple[int, ...]  # blocks held, one entry per KV cache group


class Allocation(NamedTuple):
    """An allocation to be tried: slots to reach, new blocks it takes, block table that results."""

    slots: int
    new_blocks: int
    table: Blocks


def _no_allocations() -> dict[tuple[Blocks, int], Allocation]:
    return {}


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """One engine: pool, budgets, speculation, queue rules and the admission gate.

    Blocks and tokens as named; ``block_sizes`` has the tokens of a block for each KV cache group
    (full attention). ``usable_blocks`` leaves the null block out (rule R1), so vLLM's
    ``num_gpu_blocks`` is one more. Derived: ``lookahead``, the slots allocated past the scheduled
    tokens (rules R4, R5; vllm-rbln raises the setting to at least k, R38), and
    ``watermark_blocks``, the blocks kept free at admission.
    """

    scheduler: SchedulerName
    gate: Gate
    block_sizes: tuple[int, ...]
    usable_blocks: int
    num_spec_tokens: int
    num_lookahead_tokens: int
    draft_slots: int
    max_num_batched_tokens: int
    max_model_len: int
    max_num_seqs: int
    watermark: float = 0.0
    priority_policy: bool = False
    release: Release = "0.32"
    lookahead: int = field(init=False)
    watermark_blocks: int = field(init=False)
    _allocations: dict[tuple[Blocks, int], Allocation] = field(
        default_factory=_no_allocations, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        lookahead = self.num_lookahead_tokens
        if self.scheduler == "rbln":  # R38; rbln_scheduler.py RBLNScheduler.__init__
            lookahead = max(lookahead, self.num_spec_tokens)
        object.__setattr__(self, "lookahead", lookahead)
        # R1: the null block counts here; kv_cache_manager.py KVCacheManager.__init__
        watermark_blocks = int(self.watermark * (self.usable_blocks + 1))
        object.__setattr__(self, "watermark_blocks", watermark_blocks)

    @property
    def outlives_self_preemption(self) -> bool:
        """Whether the running loop goes on after a self-preemption (rule R15: 0.33, priority)."""
        return self.priority_policy and self.scheduler == "vllm" and self.release >= "0.33"

    @property
    def no_blocks(self) -> Blocks:
        """The block table of a request that holds nothing."""
        return (0,) * len(self.block_sizes)

    def gate_tokens(self, num_tokens: int) -> int | None:
        """Slots that the gate wants for a request of ``num_tokens`` tokens; ``None`` = no test (R6)."""
        wanted = self.gate.tokens(
            Admission(
                num_tokens=num_tokens,
                num_spec_tokens=self.num_spec_tokens,
                num_lookahead_tokens=self.lookahead,
                max_model_len=self.max_model_len,
            )
        )
        if wanted is not None and (not isinstance(wanted, int) or isinstance(wanted, bool)):
            raise TypeError(
                f"gate {self.gate.name!r} returned {wanted!r} for {num_tokens} tokens; "
                "tokens() must return an int or None"
            )
        return wanted

    def allocation(self, held: Blocks, tokens: int) -> Allocation:
        """What it takes to give a request slots for ``tokens`` tokens and the lookahead (rules R2-R4).

        A table never shrinks: blocks past the request's tokens stay.
        """
        known = self._allocations.get((held, tokens))
        if known is None:
            slots = num_tokens_need_slot(tokens, 0, self.lookahead, self.max_model_len)
            table = grown(slots, self.block_sizes, held)
            new = num_blocks_to_allocate(slots, self.block_sizes, held)
            known = self._allocations[held, tokens] = Allocation(slots, new, table)
        return known


@dataclass(frozen=True, slots=True)
class RequestSpec:
    """A request of the workload; tokens, and engine steps for ``arrival``.

    ``prompt`` is the shortest and the longest prompt that the environment may choose from.
    ``arrival`` is the step it arrives before; ``None`` = at any step, in the workload's order.
    A lower ``priority`` is more urgent, as in vLLM.
    """

    id: str
    prompt: tuple[int, int]
    max_tokens: int
    priority: int = 0
    arrival: int | None = None


@dataclass(frozen=True, slots=True)
class Environment:
    """What the environment may answer.

    ``accepted`` bounds the drafts accepted per decode step (further bounded by those scheduled);
    ``None`` as upper bound = all. ``proposed`` is ``"always"`` (always k drafts) or ``"up-to"``
    (0..k, as ngram may). With ``eos`` a request may end at any token.
    """

    accepted: tuple[int, int | None] = (0, None)
    proposed: Literal["always", "up-to"] = "always"
    eos: bool = False


@dataclass(frozen=True, slots=True)
class Scenario:
    """An instance to check: an engine, its workload and its environment.

    ``fixed_arrivals``: requests arrive at steps of their own instead of at any step; ``horizon``
    is the last such step, where the clock stops.
    """

    name: str
    engine: EngineConfig
    requests: tuple[RequestSpec, ...]
    environment: Environment = Environment()
    fixed_arrivals: bool = field(init=False)
    horizon: int = field(init=False)

    def __post_init__(self) -> None:
        steps = [spec.arrival for spec in self.requests if spec.arrival is not None]
        object.__setattr__(self, "fixed_arrivals", bool(steps))
        object.__setattr__(self, "horizon", max(steps, default=0))

    @property
    def rank(self) -> Callable[[int], tuple[int, int, int]]:
        """Sort key of a request: the most urgent first (vLLM ``v1/request.py Request.__lt__``)."""

        def key(index: int) -> tuple[int, int, int]:
            spec = self.requests[index]
            return (spec.priority, spec.arrival or 0, index)

        return key
