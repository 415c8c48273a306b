"""The model against the recorded runs, and the comparison itself against broken recordings."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import pytest
from mutation import KINDS, ROOT, recorded_runs

from checker.conform import Comparison, Mismatch, RecordError, compare, read_run, scenario_of
from models.config import Environment
from models.environment import SCHEDULERS, after_schedule, outcomes, successors
from models.scheduler import Preempted
from models.script import Step, play
from models.state import FINISHED

ANYTHING = Environment(proposed="up-to")


# --- the recorded runs -----------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_every_recorded_run_is_reproduced_field_by_field(kind: str) -> None:
    comparisons = [compare(path) for path in recorded_runs(kind)]
    assert comparisons
    assert [told(comparison) for comparison in comparisons if told(comparison)] == []
    for comparison in comparisons:
        assert comparison.steps == len(read_run(comparison.path)["trace"])


@pytest.mark.parametrize(
    ("kind", "feature"), [("vllm-prefix", "prefix caching"), ("vllm-async", "KV connector")]
)
def test_runs_beyond_the_model_are_not_covered_and_never_agree(kind: str, feature: str) -> None:
    comparisons = [compare(path) for path in recorded_runs(kind)]
    assert Counter(c.not_covered for c in comparisons) == {feature: len(recorded_runs(kind))}
    assert {(c.steps, c.mismatch) for c in comparisons} == {(0, None)}


def test_groups_beyond_the_model_are_not_covered(tmp_path: Path) -> None:
    run = read_run(recorded_runs("vllm")[0])
    run["scenario"]["groups"].append({"kind": "sliding", "block_size": 4, "window": 8})
    assert compare(written(tmp_path, run)).not_covered == "KV cache groups of kind sliding"


def test_the_recorded_runs_show_every_field_and_every_scheduler() -> None:
    """Agreement says something: nothing that is compared is missing from the recordings."""
    runs = [read_run(path) for kind in KINDS for path in recorded_runs(kind)]
    assert {run["scenario"]["batching"] for run in runs} == set(SCHEDULERS)
    seen = Counter(field for run in runs for step in run["trace"] for field in step)
    assert set(seen) == set(FIELDS.split())
    assert {step["refuse"][1] for run in runs for step in run["trace"] if "refuse" in step} == {
        "gate",
        "slots",
    }


@pytest.mark.parametrize("kind", KINDS)
def test_the_end_of_every_run_is_that_of_the_recording(kind: str) -> None:
    """``final`` sums a run up; here it is worked out from the model's steps alone."""
    for path in recorded_runs(kind):
        run = read_run(path)
        ours = summary(run)
        assert ours == {key: run["final"][key] for key in ours}, f"{kind}-{path.stem}"


@pytest.mark.parametrize("kind", KINDS)
def test_every_recorded_step_is_a_transition_of_the_state_graph(kind: str) -> None:
    """What the real schedulers did is among what the environment may answer."""
    whole_states = 0
    for path in recorded_runs(kind):
        run = read_run(path)
        scenario = replace(scenario_of(run["scenario"])[0], environment=ANYTHING)
        for step, following in pairwise(played(run)):
            left = after_schedule(step.before, step.output)
            choices = 1
            for index, tokens in step.output.scheduled.items():
                drafts = step.output.drafts.get(index, 0)
                possible = outcomes(scenario, index, left[index], tokens, drafts)
                assert step.after[index] in possible, f"{kind}-{path.stem}"
                choices *= len(possible)
            if choices <= 16:
                possible_states = list(successors(scenario, step.before, step.output))
                assert len(set(possible_states)) == len(possible_states) == choices
                assert following.before in possible_states, f"{kind}-{path.stem}"
                whole_states += 1
    assert whole_states


def test_a_recorded_livelock_is_a_cycle_of_the_model() -> None:
    cycles = 0
    for path in (path for kind in KINDS for path in recorded_runs(kind)):
        run = read_run(path)
        if run["final"]["cycle"]:
            first, length = run["final"]["cycle"]
            ends = [(step.after, step.running, step.output.waiting) for step in played(run)]
            assert ends[first] == ends[first + length], path.stem
            tokens = any(
                step.output.scheduled for step in played(run)[first + 1 : first + length + 1]
            )
            assert run["final"]["final"] == ("livelock" if tokens else "deadlock")
            cycles += 1
    assert cycles


# --- broken recordings -----------------------------------------------------------------------


FIELDS = "t add sched spec pre refuse mid samp kept fin run wait c o d b free"


def changed(value: Any) -> Iterator[Any]:
    """The same value with one number, id or null in it changed, for each of them."""
    match value:
        case dict():
            for key in value:
                yield from (value | {key: other} for other in changed(value[key]))
        case list():
            for place, entry in enumerate(value):
                yield from ([*value[:place], new, *value[place + 1 :]] for new in changed(entry))
        case str():
            yield value + "?"
        case None:
            yield 0
        case _:
            yield value + 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("field", FIELDS.split())
def test_a_changed_value_is_found_at_its_step_and_field(
    tmp_path: Path, kind: str, field: str
) -> None:
    run, number = recorded_with(kind, field)
    step = run["trace"][number]
    original = step[field]
    others = list(changed(original))
    assert others
    for other in others:
        step[field] = other
        mismatch = compare(written(tmp_path, run)).mismatch
        assert mismatch == Mismatch(number, field, recorded=other, modelled=original)


@pytest.mark.parametrize("field", ["spec", "pre", "refuse", "samp", "kept", "fin"])
def test_a_field_that_is_gone_is_found(tmp_path: Path, field: str) -> None:
    run, number = recorded_with("vllm", field)
    modelled = run["trace"][number].pop(field)
    mismatch = compare(written(tmp_path, run)).mismatch
    assert mismatch is not None
    assert (mismatch.step, mismatch.field) == (number, field)
    assert (mismatch.recorded, mismatch.modelled) == (None, modelled)


@pytest.mark.parametrize("value", [None, 7])
def test_a_field_that_the_model_does_not_have_is_found(tmp_path: Path, value: int | None) -> None:
    run = read_run(recorded_runs("vllm")[0])
    run["trace"][2]["load"] = value
    mismatch = compare(written(tmp_path, run)).mismatch
    assert mismatch is not None
    assert (mismatch.step, mismatch.field, mismatch.modelled) == (2, "load", None)


def test_only_the_first_mismatch_is_reported(tmp_path: Path) -> None:
    run = read_run(recorded_runs("vllm")[0])
    for step in run["trace"][3:]:
        step["free"] += 1
    comparison = compare(written(tmp_path, run))
    assert comparison.mismatch is not None
    assert (comparison.steps, comparison.mismatch.step) == (4, 3)


# --- files that are no recorded runs ---------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "cannot be read as JSON"),
        ("{", "cannot be read as JSON"),
        ("[1, 2]", 'expected an object with "scenario" and "trace"'),
        ('{"scenario": {}}', 'expected an object with "scenario" and "trace"'),
        ('{"scenario": [], "trace": []}', "scenario must be an object"),
        ('{"scenario": {}, "trace": []}', 'scenario has no "name"'),
    ],
)
def test_other_files_are_errors(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "run.json"
    path.write_text(content)
    with pytest.raises(RecordError) as raised:
        compare(path)
    assert str(raised.value).startswith(f"{path}: ")
    assert message in str(raised.value)


def test_files_that_cannot_be_read_are_errors(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="cannot be read"):
        compare(tmp_path / "missing.json")
    (tmp_path / "run.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(RecordError, match="cannot be read"):
        compare(tmp_path / "run.json")


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (("scenario", "gate"), "prompt-only", "scenario.gate must be one of 'none', 'prompt'"),
        (("scenario", "batching"), "sglang", "scenario.batching must be one of 'vllm', 'rbln'"),
        (("scenario", "usable_blocks"), 0, "scenario.usable_blocks must be an integer"),
        (("scenario", "k"), "3", "scenario.k must be an integer of at least 0"),
        (("scenario", "watermark"), 1, "scenario.watermark must be a number from 0 to below 1"),
        (("scenario", "groups"), [], "scenario.groups must be a list with at least one entry"),
        (("scenario", "groups", 0, "block_size"), 0, "scenario.groups[0].block_size must be"),
        (("scenario", "requests"), None, "scenario.requests must be a list"),
        (("scenario", "requests", 1), "r1", "scenario.requests[1] must be an object"),
        (("scenario", "requests", 0, "spec"), [3], "requests[0].spec must be a list of [proposed"),
        (("trace",), [], "trace must be a list with at least one entry"),
        (("trace", 1), 5, "trace[1] must be an object"),
        (("trace", 1), {}, 'trace[1] has no "t"'),
    ],
)
def test_a_value_that_the_format_does_not_allow_is_named(
    tmp_path: Path, place: tuple[Any, ...], value: Any, message: str
) -> None:
    run = read_run(recorded_runs("vllm")[0])
    inner = run
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    with pytest.raises(RecordError) as raised:
        compare(written(tmp_path, run))
    assert message in str(raised.value)


def test_the_record_format_is_documented() -> None:
    """Every field that is compared or read has a line in ``docs/conformance.md``."""
    text = (ROOT / "docs" / "conformance.md").read_text(encoding="utf-8")
    runs = [read_run(path) for kind in KINDS for path in recorded_runs(kind)]
    steps = {field for run in runs for step in run["trace"] for field in step}
    settings = {field for run in runs for field in run["scenario"]}
    requests = {field for run in runs for one in run["scenario"]["requests"] for field in one}
    assert {field for field in steps | settings | requests if f"`{field}`" not in text} == set()


# --- helpers ---------------------------------------------------------------------------------


def told(comparison: Comparison) -> str | None:
    """Where a run first differs, in one line; ``None`` if it agrees."""
    name = f"{comparison.path.parent.name}-{comparison.path.stem}"
    if comparison.not_covered:
        return f"{name}: not covered, {comparison.not_covered}"
    if (found := comparison.mismatch) is None:
        return None
    return (
        f"{name}: step {found.step}, {found.field}: "
        f"recorded {found.recorded}, modelled {found.modelled}"
    )


def summary(run: dict[str, Any]) -> dict[str, Any]:
    """What ``final`` says of a run, of the model's run of the same scenario."""
    scenario, _ = scenario_of(run["scenario"])
    steps = played(run)
    ids = [spec.id for spec in scenario.requests]
    zero = dict.fromkeys(ids, 0)
    result: dict[str, Any] = {"steps": len(steps), "finish": {}, "first_token": {}}
    for name in ("preemptions", "self_preemptions", "discarded", "outputs"):
        result[name] = dict(zero)
    for number, step in enumerate(steps):
        for event in step.output.events:
            if isinstance(event, Preempted):
                victim = ids[event.victim]
                result["preemptions"][victim] += 1
                result["self_preemptions"][victim] += event.victim == event.by
                result["discarded"][victim] += event.computed
        for index, tokens in step.sampled.items():
            name = ids[index]
            room = scenario.requests[index].max_tokens - step.before.requests[index].outputs
            length = scenario.engine.max_model_len - step.before.requests[index].num_tokens
            result["outputs"][name] += min(tokens, room, length)
            result["first_token"].setdefault(name, number)
            if step.after[index] is FINISHED:
                result["finish"][name] = number
    result["unfinished"] = [name for name in ids if name not in result["finish"]]
    return result


def played(run: dict[str, Any]) -> list[Step]:
    scenario, scripts = scenario_of(run["scenario"])
    return list(islice(play(scenario, scripts), len(run["trace"])))


def recorded_with(kind: str, field: str) -> tuple[dict[str, Any], int]:
    """A run, and the last of its steps where a field says something."""
    for path in recorded_runs(kind):
        run = read_run(path)
        for number, step in reversed(list(enumerate(run["trace"]))):
            if step.get(field):
                return run, number
    raise AssertionError(f"no {kind} run has {field}")


def written(folder: Path, run: dict[str, Any]) -> Path:
    path = folder / "run.json"
    path.write_text(json.dumps(run))
    return path
