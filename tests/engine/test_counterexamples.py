"""Counterexamples that the checker finds, run on the real schedulers."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from checker.check import check
from checker.cli import main
from checker.document import document
from checker.engines.driver import Engine
from checker.replay import TURNS, replay, replay_under, self_preemptions
from checker.scenario import build, override, read_preset
from checker.tracefile import Counterexample, read
from models.gates import GATES

pytestmark = pytest.mark.engine

PAGE = Path(__file__).resolve().parents[2] / "docs" / "replay.md"
PRESETS = {
    "vllm": ("vllm", "vllm-draft-model", "vllm-eagle", "vllm-priority", "vllm-two-groups"),
    "rbln": ("rbln", "vllm-priority", "vllm-two-groups"),
}


def scenario_of_the_page(name: str) -> dict[str, Any]:
    """A scenario file that the page prints."""
    text = PAGE.read_text(encoding="utf-8")
    found = re.search(rf"^```toml\n# {re.escape(name)}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert found, name
    return tomllib.loads(found[1])


def results(folder: Path, scenario: dict[str, Any], policy: str) -> Path:
    """What ``check --format json`` writes for a scenario."""
    checked = check(build(override(scenario, {"scheduler.policy": policy}), "scenario"))
    path = folder / "results.json"
    path.write_text(json.dumps(document([(checked, policy)])), encoding="utf-8")
    return path


@pytest.mark.parametrize("policy", ["none", "prompt-only", "lookahead-only", "first-decode-step"])
def test_every_counterexample_of_the_presets_runs_on_the_scheduler(
    engine: Engine, policy: str, tmp_path: Path
) -> None:
    fixed = {"scheduler.scheduler": engine.name, "scheduler.release": engine.modelled}
    replayed = 0
    for preset in PRESETS[engine.name]:
        path = results(tmp_path, override(read_preset(preset), fixed), policy)
        for checked in json.loads(path.read_text(encoding="utf-8"))["checks"][0]["properties"]:
            if checked["trace"] is None:
                continue
            trace = read(path, engine.name, checked["name"])
            steps = list(replay(engine, trace))
            assert steps[-1].difference is None, (preset, trace.property)
            turn = len(trace.steps) - (trace.loop_start or 0)
            more = 0 if trace.loop_start is None else (TURNS - 1) * turn
            assert len(steps) == len(trace.steps) + more
            replayed += 1
    if (engine.name, policy) == ("rbln", "first-decode-step"):
        assert replayed == 0  # nothing is violated, not even by contention
    else:
        assert replayed >= 2


def three_preemptions(folder: Path) -> Counterexample:
    path = results(folder, scenario_of_the_page("three-preemptions.toml"), "prompt-only")
    return read(path, "vllm", "no-self-preemption")


@pytest.mark.parametrize(
    ("policy", "lost", "last"),
    [
        ("none", [30, 31, 32], 16),
        ("prompt-only", [30, 31, 32], 16),
        ("lookahead-only", [30, 31, 32], 16),
        ("first-decode-step", None, 19),
    ],
)
def test_vllm_preempts_the_30_token_prompt_three_times(
    engine: Engine, policy: str, lost: list[int] | None, last: int, tmp_path: Path
) -> None:
    if engine.name != "vllm":
        pytest.skip("a run of vLLM's own scheduler")
    steps = list(replay_under(engine, three_preemptions(tmp_path), GATES[policy]))
    assert steps[-1].difference is None
    assert self_preemptions(steps) == ({"v": lost} if lost else {})
    assert steps[-1].step == last
    assert not steps[-1].engine["run"] + steps[-1].engine["wait"]


def test_vllm_rbln_livelocks_in_two_steps(engine: Engine, tmp_path: Path) -> None:
    if engine.name != "rbln":
        pytest.skip("a run of vllm-rbln's scheduler")
    scenario = scenario_of_the_page("livelock.toml")
    trace = read(results(tmp_path, scenario, "prompt-only"), "rbln", "no-livelock")
    steps = list(replay(engine, trace))
    assert steps[-1].difference is None
    assert trace.loop_start is not None
    assert len(trace.steps) - trace.loop_start == 2
    loop = [r.engine for r in steps[trace.loop_start :]]
    assert len(loop) == 2 * TURNS
    assert not any("samp" in step for step in loop)
    states = [{key: step[key] for key in ("run", "wait", "c", "o", "d", "b")} for step in loop]
    assert states[0::2] == [states[0]] * TURNS
    assert states[1::2] == [states[1]] * TURNS
    assert all(lost == 16 for lost in self_preemptions(steps)["v"])
    for policy in ("lookahead-only", "first-decode-step"):
        under = list(replay_under(engine, trace, GATES[policy]))
        assert under[-1].difference is None
        assert not under[-1].engine["run"] + under[-1].engine["wait"]
        assert not self_preemptions(under)


@pytest.mark.parametrize("name", ["no-self-preemption", "no-livelock"])
@pytest.mark.timeout(300)
def test_an_exported_test_fails_with_the_fault_and_passes_without(
    engine: Engine, name: str, tmp_path: Path
) -> None:
    if name == "no-livelock" and engine.name != "rbln":
        pytest.skip("vLLM has no livelock, whatever the gate")
    fixed = {"scheduler.scheduler": engine.name}
    path = results(tmp_path, override(read_preset(engine.name), fixed), "prompt-only")
    exported = tmp_path / "test_exported.py"
    options = ["--scheduler", engine.name, "--property", name, "--output", str(exported)]
    assert main(["export", str(path), *options]) == 0
    codes = {}
    for policy in ("prompt-only", "first-decode-step"):
        run = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", exported.name],
            cwd=tmp_path,
            env={**os.environ, "KVGATE_POLICY": policy},
            capture_output=True,
            text=True,
            check=False,
        )
        codes[policy] = run.returncode
        summary = "1 failed" if policy == "prompt-only" else "1 passed"
        assert summary in run.stdout, run.stdout + run.stderr
    assert codes == {"prompt-only": 1, "first-decode-step": 0}


def test_the_command_shows_both_side_by_side(
    engine: Engine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = results(tmp_path, read_preset(engine.name), "prompt-only")
    assert main(["replay", str(path), "--engine", engine.name]) == 0
    text = capsys.readouterr().out
    assert "every field of every step equal" in " ".join(text.split())
    assert engine.release.split(" ")[0] in text
    assert main(["replay", str(path), "--engine", engine.name, "--format", "json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["agrees"]
    assert printed["release"] == engine.release
    assert list(printed["self_preemptions"]) == ["v"]
    assert all(step["engine"]["sched"] == step["expected"]["sched"] for step in printed["steps"])


def test_a_trace_that_the_scheduler_does_not_follow_is_exit_1(
    engine: Engine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = results(tmp_path, read_preset(engine.name), "prompt-only")
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace('"usable_blocks": 7', '"usable_blocks": 8'), encoding="utf-8")
    assert main(["replay", str(path), "--engine", engine.name]) == 1
    assert "the scheduler departs at step 0, field 'free'" in capsys.readouterr().out
