"""Counterexamples as ITF traces, read by the format's own library."""

from __future__ import annotations

import json
from typing import Any

import pytest
from command import check, document

from checker.outputs.itf import EXACT, PARAMS, VARS, _number

itf_py = pytest.importorskip("itf_py", reason="itf-py, the format's library, is not installed")


def trace(*arguments: str) -> Any:
    """The ITF document that the command writes."""
    outcome = check("picture", "--as", "itf", *arguments)
    assert outcome.code == 0, outcome.err
    return outcome.json


@pytest.mark.parametrize("scheduler", ["vllm", "rbln"])
def test_the_library_reads_every_state(scheduler: str) -> None:
    written = trace("--scheduler", scheduler)
    read = itf_py.trace_from_json(written)
    assert read.params == list(PARAMS)
    assert read.vars == list(VARS)
    assert [state.meta["index"] for state in read.states] == list(range(len(read.states)))
    for state in read.states:
        assert set(VARS) <= set(state.values)
        held = sum(sum(blocks) for blocks in state.values["blocks"].values())
        assert state.values["free"] + held == read.states[0].values["usable_blocks"] == 7
        queued = [*state.values["running"], *state.values["waiting"]]
        assert len(queued) == len(set(queued))
        status = state.values["status"]
        assert set(queued) == {i for i in status if status[i] not in ("unarrived", "finished")}


def test_what_the_library_writes_of_it_is_the_same_trace() -> None:
    read = itf_py.trace_from_json(trace("--scheduler", "rbln"))
    again = itf_py.trace_from_json(itf_py.trace_to_json(read))
    assert [s.values for s in again.states] == [s.values for s in read.states]
    assert again.loop == read.loop


def test_a_livelock_is_a_lasso() -> None:
    written = trace("--scheduler", "rbln")
    assert written["#meta"]["property"] == "no-livelock"
    assert written["loop"] == 4
    assert len(written["states"]) == 6
    assert any("preempts itself" in words for words in written["states"][4]["#meta"]["what"])


def test_a_finite_run_ends_where_its_last_step_leads() -> None:
    written = trace("--scheduler", "vllm", "--property", "no-self-preemption")
    assert "loop" not in written
    last, before = written["states"][-1], written["states"][-2]
    assert last["#meta"]["what"] == []
    assert ["v", "preempted"] in last["status"]["#map"]
    assert ["v", "running"] in before["status"]["#map"]
    assert last["waiting"] == ["v"]


@pytest.mark.parametrize("scheduler", ["vllm", "rbln"])
def test_the_states_are_those_of_the_json_trace(scheduler: str) -> None:
    written = trace("--scheduler", scheduler)
    (checked,) = document("--policy", "prompt-only", "--scheduler", scheduler)["checks"]
    name = written["#meta"]["property"]
    told = next(p["trace"] for p in checked["properties"] if p["name"] == name)
    states = [state.values for state in itf_py.trace_from_json(written).states]
    after = states[1:] if told["loop_start"] is None else [*states[1:], states[told["loop_start"]]]
    assert len(after) == len(told["steps"])
    for step, state in zip(told["steps"], after, strict=True):
        for one, request in step["requests"].items():
            if request["status"] == "unarrived":
                assert state["status"][one] in ("unarrived", "waiting")
                continue
            for field in ("status", "outputs", "computed", "drafts", "window"):
                assert state[field][one] == request[field]
            assert list(state["blocks"][one]) == request["blocks"]
        assert state["free"] == step["free"]
        assert list(state["running"]) == step["running"]
    for state, step in zip(written["states"], told["steps"], strict=False):
        assert state["#meta"]["what"] == step["what"]


def test_numbers_that_json_does_not_keep_are_texts() -> None:
    assert _number(EXACT - 1) == EXACT - 1
    assert _number(EXACT) == {"#bigint": str(EXACT)}
    assert itf_py.value_from_json(json.loads(json.dumps(_number(-EXACT)))) == -EXACT
