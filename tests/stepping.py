"""Small runs of a copy of the model, seen through the record format of ``docs/conformance.md``.

Settings have the letters of the rules: ``B`` block sizes, ``F`` usable blocks, ``k`` drafts,
``L`` lookahead, ``C`` max_num_batched_tokens, ``M`` max_model_len.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from mutation import GOLDEN, Model

SETTINGS = {
    "scheduler": "vllm",
    "gate": "prompt-only",
    "B": (4,),
    "F": 100,
    "k": 0,
    "L": 0,
    "draft_slots": 0,
    "C": 100,
    "M": 1000,
    "max_num_seqs": 8,
}
FIELDS = {
    "B": "block_sizes",
    "F": "usable_blocks",
    "k": "num_spec_tokens",
    "L": "num_lookahead_tokens",
    "C": "max_num_batched_tokens",
    "M": "max_model_len",
}


@dataclass(frozen=True, slots=True)
class Ask:
    """A request: prompt and output tokens, its drafts as (proposed, accepted) per decode step."""

    prompt: int
    max_tokens: int = 100
    arrival: int = 0
    priority: int = 0
    drafts: tuple[tuple[int, int], ...] = ()


def engine(model: Model, **settings: Any) -> Any:
    """An engine; what is not given is wide enough not to matter."""
    values = {FIELDS.get(key, key): value for key, value in (SETTINGS | settings).items()}
    return model.config.EngineConfig(**values | {"gate": model.gates.GATES[values["gate"]]})


def run(model: Model, asks: Mapping[str, Ask], steps: int, **settings: Any) -> list[dict[str, Any]]:
    """The first steps of a run, as records."""
    requests = tuple(
        model.config.RequestSpec(
            id=name,
            prompt=(ask.prompt, ask.prompt),
            max_tokens=ask.max_tokens,
            priority=ask.priority,
            arrival=ask.arrival,
        )
        for name, ask in asks.items()
    )
    scenario = model.config.Scenario("unit", engine(model, **settings), requests)
    scripts = [model.script.DraftScript(ask.drafts) for ask in asks.values()]
    return list(islice(_records(model, scenario, scripts), steps))


def example(model: Model, name: str, step: int, **changes: Any) -> dict[str, Any]:
    """One step of the model on the scenario of a recorded run; the recording itself is not read."""
    kind, _, number = name.partition("-")
    path = GOLDEN / kind / f"{number}.json"
    scenario, scripts = model.conform.scenario_of(json.loads(path.read_text())["scenario"])
    if changes:
        scenario = replace(scenario, engine=replace(scenario.engine, **changes))
    return next(islice(_records(model, scenario, scripts), step, None))


def request(model: Model, **values: Any) -> Any:
    """A request as it stands between two steps, running if nothing else is said."""
    state = model.state
    known = {
        "status": state.Status.RUNNING,
        "outputs": 0,
        "computed": 0,
        "drafts": 0,
        "is_prefill_chunk": False,
        "window": state.Window.CLOSED,
    }
    return state.Request(**known | values)


def decide(
    model: Model,
    running: tuple[Any, ...],
    waiting: tuple[Any, ...] = (),
    priorities: tuple[int, ...] = (),
    **settings: Any,
) -> Any:
    """One ``schedule()`` call on a state made by hand; requests are numbered running first."""
    count = len(running) + len(waiting)
    specs = tuple(
        model.config.RequestSpec(f"r{i}", (1, 1), 100, priority=priority, arrival=0)
        for i, priority in enumerate(priorities or (0,) * count)
    )
    scenario = model.config.Scenario("by hand", engine(model, **settings), specs)
    first_waiting = len(running)
    state = model.state.State(
        running + waiting, tuple(range(first_waiting)), tuple(range(first_waiting, count)), 0
    )
    return model.environment.schedule(scenario, state)


def _records(model: Model, scenario: Any, scripts: Any) -> Iterator[dict[str, Any]]:
    for number, step in enumerate(model.script.play(scenario, scripts)):
        yield model.conform.record(scenario, number, step)
