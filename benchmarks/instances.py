"""The named instances of the benchmark, smallest first."""

from __future__ import annotations

from models.config import EngineConfig, Environment, RequestSpec, Scenario, SchedulerName
from models.gates import GATES


def _deployment(scheduler: SchedulerName, blocks: int, max_model_len: int) -> EngineConfig:
    """Blocks of 16 tokens, three ngram drafts without lookahead, the gate as vLLM ships it."""
    return EngineConfig(
        scheduler=scheduler,
        gate=GATES["prompt-only"],
        block_sizes=(16,),
        usable_blocks=blocks,
        num_spec_tokens=3,
        num_lookahead_tokens=0,
        draft_slots=0,
        max_num_batched_tokens=8192,
        max_model_len=max_model_len,
        max_num_seqs=8,
    )


def _workload(*requests: tuple[int, int]) -> tuple[RequestSpec, ...]:
    """Requests from their prompts and most output tokens, in the order of arrival."""
    return tuple(
        RequestSpec(f"r{index}", (prompt, prompt), max_tokens)
        for index, (prompt, max_tokens) in enumerate(requests)
    )


def _instances() -> list[Scenario]:
    scenarios = []
    schedulers: tuple[SchedulerName, ...] = ("vllm", "rbln")
    for scheduler in schedulers:
        seed = _deployment(scheduler, 6, 64)
        four = _deployment(scheduler, 8, 128)
        scenarios += [
            Scenario(f"{scheduler}-two", seed, _workload((17, 16), (30, 8))),
            Scenario(f"{scheduler}-three", seed, _workload((17, 24), (17, 24), (30, 8))),
            Scenario(
                f"{scheduler}-open",
                seed,
                (*_workload((17, 8), (17, 8)), RequestSpec("v", (26, 33), 4)),
                Environment(proposed="up-to", eos=True),
            ),
            Scenario(f"{scheduler}-four", four, _workload((17, 16), (17, 16), (17, 16), (30, 8))),
        ]
    four = _deployment("vllm", 8, 128)
    large = _workload((17, 40), (17, 40), (17, 32), (30, 12))
    return [*scenarios, Scenario("vllm-four-large", four, large)]


INSTANCES: dict[str, Scenario] = {scenario.name: scenario for scenario in _instances()}
