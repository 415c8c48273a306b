"""Results as text and as JSON: the words, the tables, the schema, what a limit changes."""

from __future__ import annotations

import json
import re
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from command import check, document
from jsonschema import Draft202012Validator
from rich.console import Console

from checker.check import CheckResult
from checker.check import check as check_scenario
from checker.document import REDUCTIONS, SCHEMA_VERSION, trace_document
from checker.explore import Limits
from checker.narrate import narrate
from checker.progress import progress
from checker.render import instance_line, notes, render_check, render_policies, render_trace
from checker.scenario import build, override, preset_names, read_preset
from models.config import Scenario
from models.gates import GATES

SCHEMA = json.loads((Path(__file__).parent.parent / "docs" / "schema.json").read_text())


def scenario(preset: str, **changes: Any) -> Scenario:
    fields = {name.replace("__", "."): value for name, value in changes.items()}
    return build(override(read_preset(preset), fields), preset)


def text(result: CheckResult, columns: int = 200, terminal: bool = True) -> str:
    """A result as a terminal shows it, without colours."""
    out = StringIO()
    console = Console(file=out, width=columns, force_terminal=terminal, color_system=None)
    render_check(console, result, [p for p in result.properties if p.trace is not None])
    return out.getvalue()


RBLN = check_scenario(scenario("rbln"))


# --- the JSON document -----------------------------------------------------------------------


def test_the_schema_is_a_schema() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["properties"]["schema_version"] == {"const": SCHEMA_VERSION}


@pytest.mark.parametrize(
    "arguments",
    [
        ("--policy", "prompt-only"),
        ("--policy", "first-decode-step"),
        ("--all-policies", "--preset", "rbln"),
        ("--preset", "vllm", "--max-states", "100", "--max-seconds", "9.5", "--max-memory", "9999"),
        ("--preset", "vllm", "--no-graph"),
        ("--preset", "vllm", "--walks", "40"),
        ("--preset", "vllm-eagle", "--release", "0.33", "--accepted", "1..2", "--eos", "true"),
        ("--preset", "vllm", "--request", "id=a,prompt=30,max_tokens=2,arrival=2"),
        *(("--preset", name) for name in preset_names()),
    ],
    ids=" ".join,
)
def test_the_document_is_valid(arguments: tuple[str, ...]) -> None:
    found = document(*arguments)
    Draft202012Validator(SCHEMA).validate(found)
    assert found["checks"]


def test_the_schema_refuses_what_it_does_not_know() -> None:
    found = document("--preset", "rbln")
    validator = Draft202012Validator(SCHEMA)
    assert not validator.is_valid(found | {"schema_version": 2})
    assert not validator.is_valid(found | {"more": 1})
    (checked,) = found["checks"]
    assert not validator.is_valid(found | {"checks": [checked | {"verdict": "OK"}]})
    assert not validator.is_valid(found | {"checks": [{**checked, "search": {}}]})


def test_the_document_has_all_parameters_limits_and_reductions() -> None:
    arguments = ("--preset", "vllm-eagle", "--max-states", "100", "--max-seconds", "60")
    (checked,) = document(*arguments)["checks"]
    same = build(checked["scenario"], "elsewhere")
    assert same == scenario("vllm-eagle", scheduler__policy="prompt-only")
    assert checked["search"]["limits"] == {"states": 100, "seconds": 60.0, "memory_mib": None}
    assert checked["search"]["reductions"] == list(REDUCTIONS)
    assert checked["search"]["explored"] < checked["search"]["states"]


def test_the_document_says_the_same_as_the_text() -> None:
    (checked,) = document("--preset", "rbln")["checks"]
    lines = check("--preset", "rbln").out.splitlines()
    for prop in checked["properties"]:
        informal = "" if prop["required"] else " (not required of a gate)"
        line = f"{prop['verdict']:<10}{prop['name']:<28}{prop['evidence']}{informal}"
        assert line in lines
    counts = checked["search"]
    assert f"{counts['states']:,} states, {counts['transitions']:,} transitions" in lines[1]


def test_every_step_of_a_trace_adds_up() -> None:
    for checked in document("--policy", "prompt-only")["checks"]:
        usable = checked["scenario"]["pool"]["usable_blocks"]
        traces = [prop["trace"] for prop in checked["properties"] if prop["trace"]]
        assert traces
        for trace in traces:
            emitted = dict.fromkeys("abv", 0)
            for number, step in enumerate(trace["steps"]):
                assert step["step"] == number
                held = sum(sum(request["blocks"]) for request in step["requests"].values())
                assert held + step["free"] == usable
                for name, tokens in step["emitted"].items():
                    emitted[name] += tokens
                for name, request in step["requests"].items():
                    if request["status"] in ("running", "preempted"):
                        assert request["outputs"] == emitted[name]
                present = {n for n, r in step["requests"].items() if r["status"] != "unarrived"}
                done = {n for n, r in step["requests"].items() if r["status"] == "finished"}
                assert sorted(step["running"] + step["waiting"]) == sorted(present - done)


def test_only_a_violated_property_has_a_trace() -> None:
    for checked in document("--all-policies", "--preset", "rbln")["checks"]:
        for prop in checked["properties"]:
            assert (prop["trace"] is not None) == (prop["verdict"] == "VIOLATED")


def test_a_loop_begins_where_the_document_says() -> None:
    (checked,) = document("--preset", "rbln")["checks"]
    trace = next(p["trace"] for p in checked["properties"] if p["name"] == "no-livelock")
    assert trace["loop_start"] == 4
    before, last = trace["steps"][3], trace["steps"][-1]
    assert last["requests"] == before["requests"]  # the loop's first step is taken from here
    assert not any(step["emitted"] for step in trace["steps"][4:])


# --- the words -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("preset", "changes", "line"),
    [
        (
            "vllm",
            {},
            "vllm 0.32, prompt-only: 7 blocks of 16, k 3, lookahead 0, budget 8192, "
            "max_model_len 96; a(17+8) b(26+8) v(26..33+4)",
        ),
        (
            "rbln",
            {"scheduler__policy": "none"},
            "rbln 0.12.0, none: 7 blocks of 16, k 3, lookahead 3, budget 16, "
            "max_model_len 96; a(17+8) b(26+8) v(26..33+4)",
        ),
        (
            "vllm-draft-model",
            {},
            "vllm 0.32, prompt-only: 5 blocks of 64, k 3, lookahead 3, draft slots 1, budget 32, "
            "max_model_len 256; a(65+8) b(121+8) v(121..129+4)",
        ),
        (
            "vllm-two-groups",
            {"scheduler__scheduling_policy": "priority", "scheduler__watermark": 0.1},
            "vllm 0.32, prompt-only: 21 blocks of 16+8, k 3, lookahead 0, budget 8192, "
            "max_model_len 96, watermark 2, priority; a(17+8 p0) b(26+8 p0) v(26..33+4 p0)",
        ),
        (
            "vllm",
            {
                "budgets__max_num_seqs": 2,
                "environment__accepted": [1, 2],
                "environment__proposed": "up-to",
                "environment__eos": True,
                "requests": [
                    {"id": name, "prompt": 17, "max_tokens": 8, "arrival": step}
                    for step, name in enumerate("abc")
                ],
            },
            "vllm 0.32, prompt-only: 7 blocks of 16, k 3, lookahead 0, budget 8192, "
            "max_model_len 96, at most 2 running, accepted 1..2, proposed up-to, eos; "
            "a(17+8 at 0) b(17+8 at 1) c(17+8 at 2)",
        ),
    ],
)
def test_the_instance_in_one_line(preset: str, changes: dict[str, Any], line: str) -> None:
    assert instance_line(scenario(preset, **changes)) == line


def story(preset: str, name: str, **changes: Any) -> list[list[str]]:
    """The sentences of each step of a property's counterexample."""
    found = check_scenario(scenario(preset, **changes))
    trace = found.result(name).trace
    assert trace is not None
    return [narrate(trace.scenario, step) for step in trace.steps]


def test_a_livelock_in_words() -> None:
    steps = story("rbln", "no-livelock")
    assert steps[3:] == [
        [
            "v arrives with 30 tokens",
            "v admitted",
            "a and b thrown out of the step, blocks kept",
            "v prefills 16",
        ],
        [
            "v needs block 3 for 33 slots, none free: preempts itself, 16 tokens lost",
            "nothing runs",
        ],
        ["v admitted", "a and b thrown out of the step, blocks kept", "v prefills 16"],
    ]


def test_decodes_drafts_and_ends_in_words() -> None:
    steps = story("vllm-no-spec", "no-self-preemption")
    assert steps[1][1:] == ["a decodes, emits 1", "b decodes, emits 1"]
    steps = story("vllm", "no-self-preemption")
    assert "b decodes 1+3, 2 accepted, emits 3" in steps[1]


def test_a_refusal_and_a_shortage_of_several_blocks_in_words() -> None:
    steps = story(
        "vllm-two-groups", "no-self-preemption", pool__block_size=[4, 4], pool__usable_blocks=48
    )
    assert any("needs 2 more blocks" in words for step in steps for words in step)
    steps = story("vllm", "no-self-preemption", pool__block_size=[16, 64], pool__usable_blocks=10)
    assert any("needs 1 more block for 33 slots, none free" in words for words in steps[-1])
    alone = {"id": "v", "prompt": 33, "max_tokens": 4}
    steps = story("vllm", "no-deadlock", pool__usable_blocks=2, requests=[alone])
    assert "v refused: the gate wants 3 blocks, 2 free" in steps[0]
    ungated = story(
        "vllm",
        "no-deadlock",
        pool__usable_blocks=2,
        requests=[alone],
        scheduler__policy="none",
    )
    assert "v refused: its first chunk wants 3 blocks, 2 free" in ungated[0]


# --- the tables ------------------------------------------------------------------------------


def test_a_pool_of_many_blocks_is_drawn_to_scale() -> None:
    wide = scenario("rbln", pool__block_size=2, pool__usable_blocks=54)
    trace = check_scenario(wide).result("no-self-preemption").trace
    assert trace is not None
    out = StringIO()
    render_trace(Console(file=out, width=200, color_system=None), trace)
    strips = [line.strip("│").split("│")[-1].strip() for line in out.getvalue().splitlines()]
    drawn = [strip for strip in strips if strip and set(strip) <= set("abv·")]
    assert len(drawn) == len(trace.steps)
    assert {len(strip) for strip in drawn} == {32}


def test_requests_with_the_same_initial_get_letters_and_a_legend() -> None:
    same = [
        {"id": f"req-{n}", "prompt": prompt, "max_tokens": 8}
        for n, prompt in enumerate((17, 26, 29))
    ]
    shown = text(check_scenario(scenario("vllm", requests=same)))
    assert "AABBBCC" in shown
    assert "pool: A = req-0, B = req-1, C = req-2" in shown


def test_a_trace_too_wide_for_the_terminal_becomes_a_list_with_the_same_content() -> None:
    table, listed = text(RBLN, columns=140), text(RBLN, columns=70)
    assert "┏" in table
    assert "┏" not in listed
    for words in ("v needs block 3 for 33 slots", "16/30, 0 out", "step ↻ 4, 2 free  aabbb··"):
        assert words in listed


@pytest.mark.parametrize("columns", range(24, 128, 3))
def test_no_cell_of_a_trace_is_cut_off(columns: int) -> None:
    shown = text(RBLN, columns)
    assert "…" not in shown
    assert shown.count("16/30, 0 out") >= 2


def test_many_requests_become_a_list_in_a_pipe() -> None:
    few = [word for n in range(13) for word in ("--request", f"id=r{n},prompt=30,max_tokens=2")]
    outcome = check(
        "--preset",
        "vllm",
        "--usable-blocks",
        "26",
        "--max-num-seqs",
        "13",
        *few,
        "--max-states",
        "3000",
    )
    assert "step 0, " in outcome.out
    assert "…" not in outcome.out


def test_the_policies_fit_eighty_columns_without_a_cell_cut_off() -> None:
    pairs = [
        (check_scenario(scenario("rbln", scheduler__policy=name), limits=Limits(states=50)), name)
        for name in GATES
    ]
    out = StringIO()
    terminal = Console(file=out, width=80, force_terminal=True, color_system=None)
    render_policies(terminal, pairs)
    assert {len(line) for line in out.getvalue().splitlines() if "│" in line} == {80}
    assert "…" not in out.getvalue()


def test_a_policy_with_a_long_name_is_folded() -> None:
    name = "a_package.with_a_long_name.gates:AGateOfMyOwn"
    pairs = [(RBLN, policy) for policy in (*GATES, name)]
    out = StringIO()
    render_policies(Console(file=out, width=120, color_system=None), pairs)
    assert "…" not in out.getvalue()
    head = [line.strip("┃").split("┃")[-1].strip() for line in out.getvalue().splitlines()[2:8]]
    assert "".join(head).startswith(name)


# --- notes -----------------------------------------------------------------------------------


def test_a_pool_too_small_for_the_longest_sequence_is_pointed_out() -> None:
    (note, *_) = notes(check_scenario(scenario("vllm", pool__usable_blocks=5)))
    assert note == (
        "max_model_len 96 takes 6 blocks and the pool has 5: vLLM refuses to start like this"
    )


def test_contention_is_only_named_where_the_search_was_complete() -> None:
    arguments = ("--preset", "vllm", "--policy", "first-decode-step")
    whole, cut = check(*arguments).out, check(*arguments, "--max-states", "2000").out
    assert "VIOLATED" in cut
    assert "by contention only" in whole
    assert "by contention only" not in cut


def test_what_never_happened_is_pointed_out_where_the_search_was_complete() -> None:
    plenty = ("--preset", "vllm", "--usable-blocks", "40")
    outcome = check(*plenty)
    assert "never seen  preemption-reachable        a request is preempted" in outcome.out
    assert (
        "note: never happens in this instance: a request is preempted; the pool fills; an admission "
        "is refused. A green verdict says nothing about it"
    ) in outcome.out
    assert "never happens" not in check(*plenty, "--max-states", "50").out


# --- progress --------------------------------------------------------------------------------


def test_a_short_search_shows_no_progress(capsys: pytest.CaptureFixture[str]) -> None:
    with progress() as report:
        check_scenario(scenario("vllm"), progress=report)
    assert capsys.readouterr().err == ""


def test_a_long_search_shows_its_progress_in_lines(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("checker.progress.PLAIN_EVERY", 0.0)
    with progress() as report:
        check_scenario(scenario("vllm"), progress=report)
    out, err = capsys.readouterr()
    assert out == ""
    lines = err.splitlines()
    assert len(lines) > 5
    shown = re.compile(
        r"[\d,]+ of [\d,]+ states explored, [\d,]+ transitions, depth \d+, \d+ s "
        r"\([\d,]+ transitions/s\)"
    )
    assert all(shown.fullmatch(line) for line in lines)


def test_a_trace_document_stands_alone() -> None:
    trace = RBLN.result("no-livelock").trace
    assert trace is not None
    found = trace_document(trace)
    (checked,) = document("--preset", "rbln")["checks"]
    assert found == next(p["trace"] for p in checked["properties"] if p["name"] == "no-livelock")
