"""``check conform --engine`` as far as it goes without a real scheduler."""

from __future__ import annotations

import json
import runpy
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from checker.engines.driver import EngineRefusedError
from checker.lockstep import ModelRun
from checker.releases import RuleVerdict, survey
from checker.releases_view import survey_document, survey_text
from models.config import Release, Scenario, SchedulerName

ROOT = Path(__file__).resolve().parent.parent
RUNS = sorted((ROOT / "tests" / "golden" / "vllm").glob("*.json"))


class ModelEngine:
    """The model of a release in the place of the real scheduler; it has no prefix caching."""

    name: SchedulerName = "vllm"

    def __init__(self, release: Release, **settings: Any) -> None:
        self.release = f"{release}.0"
        self.modelled = release
        self._settings = settings

    def start(self, scenario: Scenario, prompts: Sequence[Sequence[int]] | None = None) -> ModelRun:
        engine = scenario.engine
        if self.modelled >= "0.33" and engine.max_num_batched_tokens <= engine.num_lookahead_tokens:
            raise EngineRefusedError(f"vLLM {self.release} refuses: the budget is too low")
        changed = replace(engine, release=self.modelled, **self._settings)
        return ModelRun(replace(scenario, engine=changed))

    def sampled_token(self, request: int, number: int) -> int:
        return number


def departing(release: Release, **settings: Any) -> set[str]:
    found = survey(ModelEngine(release, **settings), RUNS)
    return {a.rule for a in found.aspects if a.verdict is RuleVerdict.DEPARTS}


def test_a_release_that_does_as_recorded_keeps_every_rule() -> None:
    found = survey(ModelEngine("0.32"), RUNS)
    assert found.departing == []
    assert {a.verdict for a in found.aspects} == {RuleVerdict.KEPT}
    assert len({a.rule for a in found.aspects}) == 29


def test_a_release_that_goes_on_after_a_self_preemption_departs_there() -> None:
    found = survey(ModelEngine("0.33"), RUNS)
    assert departing("0.33") == {"R15", "R49"}
    assert all(run.modelled for run in found.departing if run.departure)


def test_a_scheduler_without_a_rule_is_found_out() -> None:
    """The watermark left out: every run that shows it departs, and no release of the model does so."""
    assert "R1" in departing("0.32", watermark=0.0)
    found = survey(ModelEngine("0.32", watermark=0.0), RUNS)
    assert found.departing
    assert not any(run.modelled for run in found.departing)


def test_both_outputs_say_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    engine = ModelEngine("0.33")
    found = survey(engine, RUNS)
    survey_text(engine, found)
    text = capsys.readouterr().out
    assert "vllm 0.33.0: 209 recorded runs" in text
    assert "as the model of this release does" in " ".join(text.split())
    document = json.loads(json.dumps(survey_document(engine, found)))
    rules = {rule["rule"] for rule in document["rules"] if rule["verdict"] == "departs"}
    assert rules == {"R15", "R49"}
    refused = sum(run["refused"] is not None for run in document["runs"])
    departed = sum(run["departure"] is not None for run in document["runs"])
    assert refused + departed == len(found.departing)


@pytest.mark.long
def test_the_witnesses_are_those_of_the_recorded_runs() -> None:
    table = runpy.run_path(str(ROOT / "scripts" / "rule_witnesses.py"))["table"]
    written = json.loads((ROOT / "checker" / "witnesses.json").read_text(encoding="utf-8"))
    assert table() == written, "run scripts/rule_witnesses.py"
