"""Small random instances, the same for a given seed."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from models.config import EngineConfig, Environment, RequestSpec, Scenario, SchedulerName
from models.gates import GATES
from models.kv_cache import num_blocks_to_allocate


def instances(
    seed: int, count: int, scheduler: SchedulerName, policy: str, *, speculative: bool = True
) -> Iterator[Scenario]:
    """``count`` instances whose longest request fits in the pool alone."""
    random = Random(f"{seed}/{scheduler}")
    for number in range(count):
        yield _instance(random, f"{scheduler}-{number}", scheduler, policy, speculative)


def _instance(
    random: Random, name: str, scheduler: SchedulerName, policy: str, speculative: bool
) -> Scenario:
    sizes = tuple(random.choice((2, 3, 4, 5)) for _ in range(random.choice((1, 1, 1, 2))))
    k = random.randint(1, 3) if speculative else 0
    lookahead = random.choice((0, k, k + 1)) if speculative else 0
    slots = random.choice((0, 0, 1)) if speculative and scheduler == "vllm" else 0
    max_model_len = random.randint(10, 20)
    alone = num_blocks_to_allocate(max_model_len, sizes, (0,) * len(sizes))
    # Below 1 + k + slots a one-token remainder is never scheduled (R21b): out of scope here.
    budget = 1 + k + slots + random.randint(0, 6)
    count = random.choice((2, 2, 3))
    requests = tuple(
        RequestSpec(
            id="abc"[index],
            prompt=_span(random, max_model_len),
            max_tokens=random.randint(1, 6),
            priority=random.randint(0, 2),
        )
        for index in range(count)
    )
    engine = EngineConfig(
        scheduler=scheduler,
        gate=GATES[policy],
        block_sizes=sizes,
        usable_blocks=alone + random.randint(0, 2),
        num_spec_tokens=k,
        num_lookahead_tokens=lookahead,
        draft_slots=slots,
        max_num_batched_tokens=budget,
        max_model_len=max_model_len,
        max_num_seqs=random.choice((2, 3, 8)),
        watermark=random.choice((0.0, 0.0, 0.2)),
        priority_policy=random.random() < 0.25,
    )
    environment = Environment(
        proposed=random.choice(("always", "always", "up-to")), eos=random.random() < 0.2
    )
    return Scenario(name, engine, requests, environment)


def _span(random: Random, max_model_len: int) -> tuple[int, int]:
    shortest = random.randint(1, max_model_len - 1)
    return shortest, min(shortest + random.choice((0, 0, 2)), max_model_len - 1)
