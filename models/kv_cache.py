"""Block arithmetic of the KV cache, over ints or symbols.

Mirrors vLLM ``v1/core/kv_cache_manager.py allocate_slots`` and
``v1/core/single_type_kv_cache_manager.py get_num_blocks_to_allocate``. Tokens and slots are counted
in tokens, blocks in whole blocks; ``block_sizes`` and ``held`` have one entry per KV cache group.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

from models.arithmetic import Condition, Num, cdiv, maximum, minimum


@overload
def num_tokens_need_slot(
    computed: int, new_tokens: int, lookahead: int, max_model_len: int
) -> int: ...
@overload
def num_tokens_need_slot(
    computed: Num, new_tokens: Num, lookahead: Num, max_model_len: Num
) -> Num: ...
def num_tokens_need_slot(computed: Num, new_tokens: Num, lookahead: Num, max_model_len: Num) -> Num:
    """Slots (tokens) that one allocation must provide (rule R4)."""
    return minimum(computed + new_tokens + lookahead, max_model_len)


@overload
def num_blocks_to_allocate(tokens: int, block_sizes: Sequence[int], held: Sequence[int]) -> int: ...
@overload
def num_blocks_to_allocate(tokens: Num, block_sizes: Sequence[Num], held: Sequence[Num]) -> Num: ...
def num_blocks_to_allocate(tokens: Num, block_sizes: Sequence[Num], held: Sequence[Num]) -> Num:
    """New blocks, summed over the groups, that give each group ``tokens`` slots (rules R2, R3).

    >>> num_blocks_to_allocate(20, (8, 16), (0, 0))
    5
    """
    total: Num = 0
    for block_size, have in zip(block_sizes, held, strict=True):
        total = total + maximum(cdiv(tokens, block_size) - have, 0)
    return total


@overload
def grown(tokens: int, block_sizes: Sequence[int], held: Sequence[int]) -> tuple[int, ...]: ...
@overload
def grown(tokens: Num, block_sizes: Sequence[Num], held: Sequence[Num]) -> tuple[Num, ...]: ...
def grown(tokens: Num, block_sizes: Sequence[Num], held: Sequence[Num]) -> tuple[Num, ...]:
    """The block table after an allocation of ``tokens`` slots; it never shrinks (rule R3).

    >>> grown(20, (8, 16), (0, 3))
    (3, 3)
    """
    return tuple(
        have + num_blocks_to_allocate(tokens, (block_size,), (have,))
        for block_size, have in zip(block_sizes, held, strict=True)
    )


@overload
def fits(new_blocks: int, watermark_blocks: int, free_blocks: int) -> bool: ...
@overload
def fits(new_blocks: Num, watermark_blocks: Num, free_blocks: Num) -> Condition: ...
def fits(new_blocks: Num, watermark_blocks: Num, free_blocks: Num) -> Condition:
    """Whether an allocation is granted (rules R2, R8)."""
    return new_blocks + watermark_blocks <= free_blocks


@overload
def decode_tokens(num_tokens: int, drafts: int, computed: int, max_model_len: int) -> int: ...
@overload
def decode_tokens(num_tokens: Num, drafts: Num, computed: Num, max_model_len: Num) -> Num: ...
def decode_tokens(num_tokens: Num, drafts: Num, computed: Num, max_model_len: Num) -> Num:
    """Tokens that a running request wants, prefill and decode alike, drafts included (rule R9).

    The budgets of the step may still cut it. One position is kept for the token to be sampled.
    Mirrors ``v1/core/sched/scheduler.py schedule``, running loop.
    """
    return minimum(num_tokens + drafts - computed, max_model_len - computed - 1)
