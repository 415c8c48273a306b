"""The pictures of counterexamples and of costs: valid, self-contained, and true to the run."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from command import check, document

from checker.explore import explore
from checker.outputs.svg import cut, text_of
from checker.outputs.timeline import timeline
from checker.scenario import build, override, read_preset
from checker.trace import Trace, replay
from models.environment import schedule
from models.scheduler import Preempted, Refused

SVG = "{http://www.w3.org/2000/svg}"


def words_of(text: str) -> list[str]:
    """Every text of a picture, which must be well-formed and load nothing."""
    root = ElementTree.fromstring(text)
    assert root.tag == f"{SVG}svg"
    assert not re.search(r"(?:href|src)=|@import|url\((?!#)|<script|<foreignObject", text)
    assert "prefers-color-scheme: dark" in text
    return [node.text or "" for node in root.iter() if node.tag in (f"{SVG}text", f"{SVG}title")]


@pytest.mark.parametrize("scheduler", ["vllm", "rbln"])
def test_every_step_and_every_block_is_there(scheduler: str) -> None:
    outcome = check("picture", "--scheduler", scheduler)
    assert outcome.code == 0
    said = words_of(outcome.out)
    (checked,) = document("--policy", "prompt-only", "--scheduler", scheduler)["checks"]
    name = "no-livelock" if scheduler == "rbln" else "no-self-preemption"
    trace = next(p["trace"] for p in checked["properties"] if p["name"] == name)
    for step in trace["steps"]:
        number = step["step"]
        assert f"step {number}" in said or f"step {number} ↻" in said
        for sentence in step["what"]:
            assert sentence.split()[0] in " ".join(said)
    preempted = [e for s in trace["steps"] for e in s["events"] if e["event"] == "preempted"]
    badges = [line for line in said if line.startswith("✕ v preempted:")]
    assert len(badges) == len(preempted) == 1
    assert f"{preempted[0]['computed']} tokens lost" in badges[0]
    assert (trace["loop_start"] is not None) == ("steps 4 to 5 repeat for ever" in said)


def test_a_long_run_goes_on_in_the_next_row() -> None:
    outcome = check("picture", "--scheduler", "rbln", "--max-num-batched-tokens", "8")
    root = ElementTree.fromstring(outcome.out)
    said = words_of(outcome.out)
    assert [f"step {n}" + " ↻" * (n >= 7) in said for n in range(11)] == [True] * 11
    width, height = float(root.get("width", 0)), float(root.get("height", 0))
    assert width <= 1200
    steps = [
        (float(node.get("x", -1)), float(node.get("y", -1)))
        for node in root.iter(f"{SVG}text")
        if (node.text or "").startswith("step ") and "mid" in (node.get("class") or "").split()
    ]
    assert len({y for _, y in steps}) == 2
    assert all(0 < x < width and 0 < y < height for x, y in steps)


def run_to(seen: type[Preempted] | type[Refused], least: int, **changes: object) -> Trace:
    """A shortest run to a step with so many events of a kind."""
    wanted = {"scheduler.policy": "prompt-only"} | changes
    scenario = build(override(read_preset("vllm"), wanted), "test")
    exploration = explore(scenario)
    number = next(
        number
        for number in range(exploration.num_states)
        if sum(
            isinstance(event, seen)
            for event in schedule(scenario, exploration.state(number)).events
        )
        >= least
    )
    return replay(scenario, [exploration.state(n) for n in exploration.path(number)])


def test_refusals_are_marked() -> None:
    said = words_of(timeline(run_to(Refused, 1), "a name", "evidence", "instance"))
    assert any(re.fullmatch(r"⊘ v refused: wants \d+ blocks, \d+ free", line) for line in said)
    assert "⊘ not admitted" in said
    assert "✕ loses its blocks and its computed tokens" not in said


def test_more_marks_than_there_is_room_for_are_counted() -> None:
    requests = [{"id": name, "prompt": 1, "max_tokens": 3} for name in "abc"]
    changes = {"requests": requests, "pool.block_size": 2, "pool.usable_blocks": 3}
    speculation = {"speculation.num_speculative_tokens": 0, "budgets.max_model_len": 6}
    trace = run_to(Preempted, 1, **(changes | speculation))
    step = trace.steps[-1]
    events = step.output.events * 9
    crowded = replace(step, output=step.output._replace(events=events))
    steps = (*trace.steps[:-1], crowded)
    said = words_of(timeline(replace(trace, steps=steps), "a name", "evidence", "instance"))
    assert any(re.fullmatch(r"and \d+ more", line) for line in said)


def test_ids_of_any_kind_are_escaped() -> None:
    outcome = check(
        *("picture", "--preset", "rbln", "--usable-blocks", "4", "--accepted", "0"),
        *(
            "--request",
            'id=<b>&",prompt=17,max_tokens=2',
            "--request",
            "id=漢字,prompt=29,max_tokens=2",
        ),
    )
    assert outcome.code == 0
    said = words_of(outcome.out)
    assert any(line.startswith("✕ 漢字 preempted") for line in said)
    assert '<b>&"' in said


def test_what_xml_cannot_write_is_replaced() -> None:
    assert text_of("a\x00\x1b\ud800<") == "a\ufffd\ufffd\ufffd&lt;"
    assert cut("a" * 100, 60).endswith("…")
    assert cut("short", 600) == "short"


def test_the_costs_are_those_of_the_table() -> None:
    outcome = check("picture", "--all-policies")
    assert outcome.code == 0
    said = words_of(outcome.out)
    for checked in document("--all-policies")["checks"]:
        policy = checked["scenario"]["scheduler"]["policy"]
        costs = checked["worst_case"]
        most = costs["tokens_thrown_away"]
        figure = "no bound" if most is None else most
        assert f"{policy}: {figure} tokens thrown away, worst run" in said
        figure = "no bound" if costs["steps"] is None else costs["steps"]
        assert f"{policy}: {figure} steps of the longest run" in said


def test_what_was_not_explored_is_not_drawn_as_known() -> None:
    outcome = check("picture", "--all-policies", "--scheduler", "vllm", "--max-states", "300")
    said = words_of(outcome.out)
    assert "none: not known tokens thrown away, worst run" in said
    assert not any(re.fullmatch(r"[\d,]+", line) for line in said)


def test_without_a_counterexample_there_is_no_picture(tmp_path: Path) -> None:
    path = tmp_path / "run.svg"
    whole = check(
        *("picture", "--scheduler", "rbln", "--policy", "first-decode-step"),
        *("--property", "no-livelock", "-o", str(path)),
    )
    assert whole.code == 2
    assert "check picture: no counterexample to no-livelock in" in whole.err
    part = check(
        *("picture", "--scheduler", "rbln", "--policy", "first-decode-step"),
        *("--max-states", "100", "-o", str(path)),
    )
    assert part.code == 3
    assert not path.exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--property", "no-such"), "--property no-such: no such property; there are"),
        (("--all-policies", "--as", "itf"), "is drawn as svg only"),
        (("--all-policies", "--property", "no-livelock"), "draws no counterexample"),
        (("--scheduler", "both"), "choose vllm or rbln"),
        (("-o", "run.png"), "cannot tell the format"),
        (("--policy", "no-such"), "no-such"),
    ],
)
def test_wrong_input_is_one_line(arguments: tuple[str, ...], words: str) -> None:
    outcome = check("picture", *arguments)
    assert (outcome.code, outcome.out) == (2, "")
    assert words in outcome.err
    assert outcome.err.count("\n") == 1


def test_the_form_follows_the_name_of_the_file(tmp_path: Path) -> None:
    for name, start in (("run.svg", "<?xml"), ("run.itf.json", "{"), ("run.itf", "{")):
        path = tmp_path / name
        assert check("picture", "--scheduler", "rbln", "-o", str(path)).code == 0
        assert path.read_text(encoding="utf-8").startswith(start)
