"""The driver held against the recorded runs: it must make the real scheduler do what was recorded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from checker.conform import not_covered, read_run, scenario_of
from checker.engines.driver import (
    Engine,
    EngineRefusedError,
)
from checker.lockstep import ModelRun, difference
from checker.releases import contents, play
from checker.scenario import build, override

pytestmark = pytest.mark.engine

GOLDEN = Path(__file__).resolve().parent.parent / "golden"


def corpus(kind: str) -> list[tuple[str, dict[str, Any]]]:
    """The recorded runs of a kind that the model covers."""
    runs = [(path.stem, read_run(path)) for path in sorted((GOLDEN / kind).glob("*.json"))]
    return [(name, run) for name, run in runs if not_covered(run["scenario"]) is None]


def test_every_recorded_run_is_reproduced(engine: Engine) -> None:
    """0.30 to 0.32 do what was recorded; 0.33 departs only where the model of 0.33 does (R15, R49)."""
    release = engine.modelled
    departing, refused, steps = [], [], 0
    runs = corpus(engine.name)
    for name, recorded in runs:
        scenario, scripts = scenario_of(recorded["scenario"])
        trace = recorded["trace"]
        try:
            real = play(engine.start(scenario), scenario, scripts, len(trace))
        except EngineRefusedError:
            refused.append(name)
            continue
        steps += len(real)
        if real != trace:
            departing.append(name)
            newer = replace(scenario, engine=replace(scenario.engine, release=release))
            model = play(ModelRun(newer), newer, scripts, len(trace))
            assert not [d for d in map(difference, real, model) if d], name
    assert len(runs) > 200
    assert steps > 4500
    if release < "0.33":
        assert (departing, refused) == ([], [])
        return
    older_differ = [name for name, recorded in runs if _differs(recorded, release)]
    assert departing == older_differ
    assert departing


def test_a_budget_within_the_lookahead_is_refused_from_0_33_on(engine: Engine) -> None:
    """R49, with a draft model, where vLLM itself derives the lookahead."""
    name = "draft-model-budget"
    fixed = {"scheduler.scheduler": engine.name, "speculation.method": "draft_model"}
    changes = {"speculation.num_speculative_tokens": 4, "budgets.max_num_batched_tokens": 4}
    seats = {"budgets.max_num_seqs": 2, "requests": [{"id": "a", "prompt": 5, "max_tokens": 2}]}
    scenario = build(override({}, fixed | changes | seats), name)
    settings = replace(scenario.engine, draft_slots=1)  # vllm-rbln has them in its configuration
    scenario = replace(scenario, engine=settings)
    if engine.modelled < "0.33":
        engine.start(scenario)
        return
    with pytest.raises(EngineRefusedError, match=r"vLLM 0\.33"):
        engine.start(scenario)


def test_prefix_caching_runs_are_reproduced(engine: Engine) -> None:
    """Beyond the model, but the driver drives them; 0.33 differs by R30."""
    if engine.name != "vllm":
        pytest.skip("runs of vLLM's own scheduler")
    departing, steps = [], 0
    paths = sorted((GOLDEN / "vllm-prefix").glob("*.json"))
    for path in paths:
        recorded = read_run(path)
        scenario, scripts = scenario_of(recorded["scenario"])
        run = engine.start(scenario, contents(recorded["scenario"]))
        trace = recorded["trace"]
        steps += len(trace)
        if play(run, scenario, scripts, len(trace)) != trace:
            departing.append(path.stem)
    assert len(paths) > 20
    assert steps > 500
    assert len(departing) == (3 if engine.modelled >= "0.33" else 0)


def _differs(recorded: dict[str, Any], release: Any) -> bool:
    """Whether the models of two releases differ on a run."""
    scenario, scripts = scenario_of(recorded["scenario"])
    newer = replace(scenario, engine=replace(scenario.engine, release=release))
    count = len(recorded["trace"])
    return play(ModelRun(scenario), scenario, scripts, count) != play(
        ModelRun(newer), newer, scripts, count
    )
