"""Random runs: model and real scheduler together, every field compared after every step.

``KVGATE_SEED=random`` draws other runs each time; ``KVGATE_RUNS`` says how many.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, Phase, given, note, seed, settings
from workloads import Workload, workloads

from checker.engines.driver import Engine
from checker.lockstep import ModelRun, difference, due, run_lockstep, scripted, step_both
from models.config import EngineConfig, RequestSpec, Scenario
from models.gates import GATES
from models.script import DraftScript

pytestmark = pytest.mark.engine

RUNS = int(os.environ.get("KVGATE_RUNS", "2000"))
SEED = os.environ.get("KVGATE_SEED", "20261201")
LONGEST = 120
HAPPENINGS = {
    "preempted",
    "preempted itself",
    "refused by gate",
    "refused by slots",
    "cut",
    "drafts",
    "empty step",
}


def draws(test):
    """Hypothesis with the fixed seed, or a random one if the environment says so."""
    if SEED != "random":
        test = seed(int(SEED))(test)
    return settings(
        max_examples=RUNS,
        deadline=None,
        database=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
        print_blob=True,
    )(test)


@pytest.mark.timeout(1200)
def test_random_runs_agree_field_by_field(
    engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    """At least 2,000 runs per scheduler; shrunk to the smallest workload on a difference."""
    seen: Counter[str] = Counter()
    drawn = workloads(engine.name, engine.modelled)

    @draws
    @given(drawn)
    def agree(workload: Workload) -> None:
        result = run_lockstep(engine, workload.scenario, workload.answers, LONGEST, seen.update)
        seen.update({"runs": 1, "steps": result.steps})
        note(str(result.difference))
        assert result.difference is None

    agree()
    with capsys.disabled():
        print(
            f"\n{engine.name} {engine.release}: " + ", ".join(f"{n} {w}" for w, n in seen.items())
        )
    assert seen["runs"] >= RUNS
    # Runs in which nothing happens would agree as well: what the rules are about must have occurred.
    padded = {"padded"} if engine.name == "vllm" else set()
    rare = {what: seen[what] for what in HAPPENINGS | padded if seen[what] < RUNS // 100}
    assert not rare


def test_a_model_without_a_rule_is_caught(engine: Engine) -> None:
    """Lockstep would be worth nothing if it agreed with a wrong model (here: no watermark)."""
    settings = EngineConfig(
        scheduler=engine.name,
        gate=GATES["prompt-only"],
        block_sizes=(8,),
        usable_blocks=4,
        num_spec_tokens=0,
        num_lookahead_tokens=0,
        draft_slots=0,
        max_num_batched_tokens=64,
        max_model_len=32,
        max_num_seqs=4,
        watermark=0.5,
    )
    specs = (
        RequestSpec("a", (4, 4), 12, arrival=0),
        RequestSpec("b", (12, 12), 4, arrival=1),
    )
    right = Scenario("watermark", settings, specs)
    wrong = replace(right, engine=replace(settings, watermark=0.0))
    scripts = [DraftScript(), DraftScript()]
    answers = scripted(right, scripts)
    assert run_lockstep(engine, right, answers).difference is None
    real, model = engine.start(right), ModelRun(wrong)
    first, found = [
        difference(*step_both(real, model, due(right, step), answers)) for step in range(2)
    ]
    assert first is None
    assert found is not None
    assert (found.step, found.field) == (1, "sched")
