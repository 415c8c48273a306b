"""Driver of vLLM's ``Scheduler``: real requests, cache manager and block pool; no model runs.

Importing this module imports vLLM; ``checker.engines.driver.load`` does it when asked to.
"""

from __future__ import annotations

import copy
import json
import math
import tempfile
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

import torch
from vllm.config import (
    CacheConfig,
    DeviceConfig,
    ModelConfig,
    ParallelConfig,
    SchedulerConfig,
    SpeculativeConfig,
    VllmConfig,
)
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

from checker.engines.driver import (
    Answers,
    Arrival,
    EngineRefusedError,
    Record,
    model_release,
    vllm_release,
)
from checker.engines.watch import Notes, watch
from models.config import Scenario, SchedulerName
from models.gates import GATES

TOKEN, DRAFT, EOS = 7, 8, 9
LONGEST = 1 << 20
# Stands in for a model: nothing but its config is ever read.
MODEL = {
    "architectures": ["OPTForCausalLM"],
    "model_type": "opt",
    "hidden_size": 64,
    "word_embed_proj_dim": 64,
    "ffn_dim": 64,
    "num_attention_heads": 2,
    "num_hidden_layers": 1,
    "vocab_size": 512,
    "max_position_embeddings": LONGEST,
    "torch_dtype": "float32",
}


class VllmEngine:
    """The installed vLLM."""

    name: SchedulerName = "vllm"
    scheduler_class: Any = Scheduler

    def __init__(self) -> None:
        self.release = vllm_release()
        self.modelled = model_release(self.release)

    def start(
        self, scenario: Scenario, prompts: Sequence[Sequence[int]] | None = None
    ) -> EngineRun:
        """A fresh run; see ``checker.engines.driver.Engine``."""
        scheduler = self.scheduler(scenario, prompts is not None)
        return EngineRun(scenario, scheduler, self.gate(scenario), prompts)

    @staticmethod
    def sampled_token(request: int, number: int) -> int:
        """No two requests ever sample the same; see ``checker.engines.driver.Engine``."""
        return (request + 1) * LONGEST + number

    def gate(self, scenario: Scenario) -> Notes:
        """The wrapper around the gate; the released gate and the engine's own switch need none."""
        if scenario.engine.gate in (GATES["prompt-only"], GATES["none"]):
            return Notes()
        return Notes(scenario.engine.gate_tokens)

    def scheduler(self, scenario: Scenario, prefix_caching: bool) -> Any:
        """A scheduler with a scenario's settings."""
        engine = scenario.engine
        try:
            config = self.config(scenario, prefix_caching)
        except (ValueError, AssertionError) as error:
            reason = _first_line(error)
            raise EngineRefusedError(f"vLLM {self.release} refuses: {reason}") from error
        cache = _cache(scenario)
        config.cache_config.num_gpu_blocks = cache.num_blocks
        scheduler = self.scheduler_class(
            vllm_config=config,
            kv_cache_config=cache,
            structured_output_manager=StructuredOutputManager(config),
            block_size=math.lcm(*engine.block_sizes),
        )
        # Drafters without a config of their own here (eagle, dflash): set on the built object.
        scheduler.num_lookahead_tokens = engine.lookahead
        return scheduler

    def config(self, scenario: Scenario, prefix_caching: bool) -> Any:
        """vLLM's configuration of a scenario."""
        engine = scenario.engine
        model = copy.copy(_model())
        model.max_model_len = engine.max_model_len
        parallel = ParallelConfig()
        return VllmConfig(
            model_config=model,
            parallel_config=parallel,
            device_config=DeviceConfig("cpu"),
            cache_config=CacheConfig(
                block_size=math.lcm(*engine.block_sizes), enable_prefix_caching=prefix_caching
            ),
            scheduler_config=SchedulerConfig(
                max_num_seqs=engine.max_num_seqs,
                max_num_batched_tokens=engine.max_num_batched_tokens,
                max_model_len=engine.max_model_len,
                is_encoder_decoder=False,
                enable_chunked_prefill=True,
                async_scheduling=False,
                watermark=engine.watermark,
                policy="priority" if engine.priority_policy else "fcfs",
                scheduler_reserve_full_isl=engine.gate is not GATES["none"],
            ),
            speculative_config=_speculation(scenario, model, parallel),
        )


class EngineRun:
    """One run of a real scheduler; see ``checker.engines.driver.Run``."""

    def __init__(
        self,
        scenario: Scenario,
        scheduler: Any,
        notes: Notes,
        prompts: Sequence[Sequence[int]] | None = None,
    ) -> None:
        watch(scheduler, notes)
        self._prompts = prompts
        self._scenario = scenario
        self._scheduler = scheduler
        self._notes = notes
        self._requests: dict[str, Any] = {}
        self._step = 0
        self._output: Any = None
        self._record: Record = {}
        self._indices = {spec.id: index for index, spec in enumerate(scenario.requests)}

    def arrive(self, arrived: Sequence[Arrival]) -> None:
        """Put requests in the queue, in this order."""
        self._record = {"t": self._step}
        if arrived:
            self._record["add"] = [self._scenario.requests[a.request].id for a in arrived]
        for arrival in arrived:
            self._add(arrival)

    def schedule(self) -> None:
        """Decide a step."""
        self._notes.clear()
        self._output = self._scheduler.schedule()
        self._record = self._record | self._decision()

    def finish(self, answers: Answers) -> Record:
        """Answer for the model, update the scheduler; the record of the step."""
        output, scheduler, record = self._output, self._scheduler, self._record
        sampled: dict[str, list[int]] = {}
        proposed: dict[str, int] = {}
        for name, tokens in output.num_scheduled_tokens.items():
            request = self._requests[name]
            sampled[name] = []
            if request.num_computed_tokens < request.num_tokens:
                continue
            drafts = output.scheduled_spec_decode_tokens.get(name, [])
            answer = answers(self._indices[name], request.num_output_tokens, _count(drafts))
            if answer.accepted > max(_count(drafts), 0) or tokens < 1:
                raise ValueError(f"{name}: {answer.accepted} drafts accepted of {_count(drafts)}")
            sampled[name] = [EOS] if answer.eos else self._tokens(name, 1 + answer.accepted)
            proposed[name] = answer.proposed
        # Counted now: update_from_output cuts these lists in place at a stop (R25).
        emitted = {name: len(tokens) for name, tokens in sampled.items() if tokens}
        before = {name: self._requests[name].num_output_tokens for name in sampled}
        present = list(scheduler.requests)
        scheduler.update_from_output(output, _model_output(sampled))
        alive = [name for name in proposed if name in scheduler.requests]
        if output.num_scheduled_tokens:
            drafted = [[DRAFT] * proposed[name] for name in alive]
            scheduler.update_draft_token_ids(DraftTokenIds(alive, drafted))
        kept = {name: self._requests[name].num_output_tokens - before[name] for name in emitted}
        if emitted:
            record["samp"] = emitted
        if cut := {name: tokens for name, tokens in kept.items() if tokens < emitted[name]}:
            record["kept"] = cut
        if finished := [name for name in present if name not in scheduler.requests]:
            record["fin"] = finished
        self._step += 1
        return record | self.state()

    def state(self) -> Record:
        """What the scheduler remembers between two steps."""
        scheduler = self._scheduler
        live = [scheduler.requests.get(spec.id) for spec in self._scenario.requests]
        record: Record = {
            "run": [request.request_id for request in scheduler.running],
            "wait": [request.request_id for request in _waiting(scheduler)],
            "c": [request and request.num_computed_tokens for request in live],
            "o": [request and request.num_output_tokens for request in live],
        }
        if self._scenario.engine.num_spec_tokens:
            record["d"] = [request and len(request.spec_token_ids) for request in live]
        return record | {"b": self._blocks(), "free": self._free()}

    def fork(self) -> Self:
        """A copy that goes on by itself; configurations are shared, they do not change."""
        scheduler = self._scheduler
        shared = [
            self._scenario,
            self._indices,
            self._notes.gate,
            *(value for value in vars(scheduler).values() if _is_fixed(value)),
            *(value for value in vars(scheduler.kv_cache_manager).values() if _is_fixed(value)),
        ]
        return copy.deepcopy(self, {id(value): value for value in shared})

    def _add(self, arrival: Arrival) -> None:
        spec = self._scenario.requests[arrival.request]
        prompt, hasher = [TOKEN] * arrival.prompt, None
        if self._prompts is not None:
            prompt = list(self._prompts[arrival.request])
            hasher = _block_hasher(self._scheduler.block_size)
        request = Request(
            request_id=spec.id,
            prompt_token_ids=prompt,
            sampling_params=SamplingParams(max_tokens=spec.max_tokens, stop_token_ids=[EOS]),
            pooling_params=None,
            arrival_time=float((spec.arrival or 0) * 1000 + arrival.request),
            priority=spec.priority,
            block_hasher=hasher,
        )
        self._requests[spec.id] = request
        self._scheduler.add_request(request)

    def _tokens(self, name: str, count: int) -> list[int]:
        """Sampled tokens; where content matters, no two requests ever sample the same."""
        if self._prompts is None:
            return [TOKEN] * count
        index, outputs = self._indices[name], self._requests[name].num_output_tokens
        return [VllmEngine.sampled_token(index, outputs + more) for more in range(count)]

    def _decision(self) -> Record:
        """What ``schedule()`` decided, and the pool at its high water."""
        output, notes = self._output, self._notes
        record: Record = {"sched": [list(item) for item in output.num_scheduled_tokens.items()]}
        if output.scheduled_spec_decode_tokens:
            drafts = output.scheduled_spec_decode_tokens
            record["spec"] = {name: _count(tokens) for name, tokens in drafts.items()}
        if notes.preempted:
            record["pre"] = notes.preempted
        if notes.refused:
            record["refuse"] = notes.refused
        record["mid"] = {"b": self._blocks(), "free": self._free()}
        return record

    def _blocks(self) -> list[Any]:
        """Blocks held by each request, a list per group if there are several."""
        managers = self._scheduler.kv_cache_manager.coordinator.single_type_managers
        held: list[Any] = []
        for spec in self._scenario.requests:
            if spec.id not in self._scheduler.requests:
                held.append(None)
                continue
            counts = [len(manager.req_to_blocks.get(spec.id, ())) for manager in managers]
            held.append(counts[0] if len(counts) == 1 else counts)
        return held

    def _free(self) -> int:
        free: int = self._scheduler.kv_cache_manager.block_pool.get_num_free_blocks()
        return free


def _waiting(scheduler: Any) -> list[Any]:
    """The waiting requests in order: those that hold blocks or were passed over come first."""
    ahead = getattr(scheduler, "kv_holding_waiting", None)
    if ahead is None:
        ahead = scheduler.skipped_waiting
    return [*ahead, *scheduler.waiting]


def _count(drafts: Sequence[int]) -> int:
    """Drafts scheduled; negative for the placeholders of a padded first decode."""
    return -len(drafts) if drafts and drafts[0] == -1 else len(drafts)


def _is_fixed(value: Any) -> bool:
    """Whether a scheduler's attribute is a configuration or a service without state of a run."""
    module = type(value).__module__
    return module.startswith(("vllm.config", "vllm_rbln.config")) or isinstance(
        value, KVCacheConfig | StructuredOutputManager
    )


def _model_output(sampled: dict[str, list[int]]) -> Any:
    return ModelRunnerOutput(
        req_ids=list(sampled),
        req_id_to_index={name: index for index, name in enumerate(sampled)},
        sampled_token_ids=list(sampled.values()),
    )


def _cache(scenario: Scenario) -> Any:
    groups = [
        KVCacheGroupSpec(
            [f"layer{index}"],
            FullAttentionSpec(block_size=size, num_kv_heads=1, head_size=1, dtype=torch.float32),
        )
        for index, size in enumerate(scenario.engine.block_sizes)
    ]
    return KVCacheConfig(
        num_blocks=scenario.engine.usable_blocks + 1, kv_cache_tensors=[], kv_cache_groups=groups
    )


def _speculation(scenario: Scenario, model: Any, parallel: Any) -> Any:
    """The drafter: ngram, or a draft model where one takes a slot (rule R5); others by override."""
    engine = scenario.engine
    if not engine.num_spec_tokens:
        if engine.draft_slots:
            raise ValueError("draft slots without speculation")
        return None
    settings: dict[str, Any] = {
        "num_speculative_tokens": engine.num_spec_tokens,
        "target_model_config": model,
        "target_parallel_config": parallel,
    }
    if engine.draft_slots == 1 and engine.num_lookahead_tokens == engine.num_spec_tokens:
        return SpeculativeConfig(method="draft_model", model=str(_model_path()), **settings)
    config = SpeculativeConfig(method="ngram", prompt_lookup_max=3, prompt_lookup_min=1, **settings)
    if engine.draft_slots:
        slots = property(lambda _: engine.draft_slots)
        config.__class__ = type(
            "OtherDrafter", (type(config),), {"max_num_new_slots_for_drafting": slots}
        )
    return config


@lru_cache
def _block_hasher(block_size: int) -> Any:
    init_none_hash(sha256)
    return get_request_block_hasher(block_size, sha256)


@lru_cache(maxsize=1)
def _model_path() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="kvgate-model-"))
    (folder / "config.json").write_text(json.dumps(MODEL), encoding="utf-8")
    return folder


@lru_cache(maxsize=1)
def _model() -> Any:
    path = str(_model_path())
    return ModelConfig(
        model=path,
        tokenizer=path,
        skip_tokenizer_init=True,
        dtype="float32",
        seed=0,
        max_model_len=LONGEST,
        enforce_eager=True,
    )


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[:3])


ENGINE = VllmEngine()
