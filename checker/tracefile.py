"""Counterexamples read back from ``check --format json``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from checker.engines.driver import Answer, Arrival, Record
from checker.policy import PolicyError
from checker.scenario import ScenarioError, build
from models.config import Scenario, SchedulerName

SCHEMA_VERSION = 1
# What a step of a trace says about the scheduler, by its name in the recorded runs.
FIELDS = ("sched", "spec", "pre", "refuse", "run", "wait", "c", "o", "d", "b", "free")
GONE = ("unarrived", "finished")


class TraceFileError(ValueError):
    """A file without the counterexample that was asked for; the message says what it has."""


@dataclass(frozen=True, slots=True)
class GivenStep:
    """One step of a counterexample: the environment's part, and what the scheduler should do."""

    arrived: tuple[Arrival, ...]
    answers: dict[int, Answer]
    expected: Record


@dataclass(frozen=True, slots=True)
class Counterexample:
    """A counterexample; from ``loop_start`` on it repeats for ever, if that is not ``None``."""

    scenario: Scenario
    document: dict[str, Any]
    property: str
    evidence: str
    steps: tuple[GivenStep, ...]
    loop_start: int | None


def read(path: Path, scheduler: SchedulerName | None, name: str | None) -> Counterexample:
    """The counterexample of a file: of a scheduler, to a property, or the first that is violated.

    Raises
    ------
    TraceFileError
        If the file is no result of ``check --format json``, or has no such counterexample.
    """
    document = _read_json(path)
    try:
        found = list(_traces(document))
    except (KeyError, TypeError, AttributeError) as error:
        raise TraceFileError(f"{path}: not a result of check --format json: {error!r}") from error
    wanted = [
        (check, checked)
        for check, checked in found
        if scheduler in (None, check["scenario"]["scheduler"]["scheduler"])
        and name in (None, checked["name"])
    ]
    if not wanted:
        has = ", ".join(
            f"{checked['name']} ({check['scenario']['scheduler']['scheduler']})"
            for check, checked in found
        )
        asked = " ".join(word for word in (scheduler, name) if word)
        raise TraceFileError(
            f"{path}: no counterexample for {asked or 'anything'}; it has: {has or 'none'}"
        )
    check, checked = next(
        (pair for pair in wanted if pair[1].get("required", True)),
        wanted[0],
    )
    try:
        scenario = build(check["scenario"], str(path))
        steps = tuple(_step(scenario, step) for step in checked["trace"]["steps"])
        loop_start = checked["trace"]["loop_start"]
        evidence = str(checked["evidence"])
    except (ScenarioError, PolicyError) as error:
        raise TraceFileError(str(error)) from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise TraceFileError(
            f"{path}: the trace of {checked['name']} is not one of check --format json: {error!r}"
        ) from error
    return Counterexample(scenario, check["scenario"], checked["name"], evidence, steps, loop_start)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise TraceFileError(f"{path}: cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise TraceFileError(f"{path}: not JSON: {error}") from error
    if isinstance(document, dict) and {"scenario", "trace"} <= document.keys():
        raise TraceFileError(f"{path}: a recorded run, not a counterexample: use check conform")
    if not isinstance(document, dict) or "checks" not in document:
        raise TraceFileError(f'{path}: not a result of check --format json: it has no "checks"')
    version = document.get("schema_version")
    if version != SCHEMA_VERSION:
        raise TraceFileError(
            f"{path}: schema_version {version!r} is not one that this kvgate reads ({SCHEMA_VERSION})"
        )
    return document


def _traces(document: dict[str, Any]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    for check in document["checks"]:
        check["scenario"]["scheduler"]["scheduler"]
        for checked in check["properties"]:
            checked["name"], checked["verdict"]
            if checked["trace"] is not None:
                yield check, checked


def _step(scenario: Scenario, step: dict[str, Any]) -> GivenStep:
    numbers = {spec.id: index for index, spec in enumerate(scenario.requests)}
    answers = {
        numbers[name]: Answer(int(a["accepted"]), int(a["proposed"]), bool(a["eos"]))
        for name, a in step["answers"].items()
    }
    arrived = tuple(Arrival(numbers[a["id"]], int(a["prompt"])) for a in step["arrived"])
    return GivenStep(arrived, answers, dict(_expected(scenario, step)))


def _expected(scenario: Scenario, step: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """What the scheduler should do, in the fields of the recorded runs."""
    yield "sched", [list(item) for item in step["scheduled"].items()]
    if step["drafts"]:
        yield "spec", step["drafts"]
    preempted = [
        [event["victim"], event["by"], event["computed"]]
        for event in step["events"]
        if event["event"] == "preempted"
    ]
    if preempted:
        yield "pre", preempted
    for event in step["events"]:
        if event["event"] == "refused":
            yield "refuse", [event[key] for key in ("request", "test", "needed", "available")]
    yield "run", step["running"]
    yield "wait", step["waiting"]
    requests = [step["requests"][spec.id] for spec in scenario.requests]
    live = [None if request["status"] in GONE else request for request in requests]
    for field, key in (("c", "computed"), ("o", "outputs"), ("d", "drafts")):
        if key != "drafts" or scenario.engine.num_spec_tokens:
            yield field, [request and request[key] for request in live]
    one = len(scenario.engine.block_sizes) == 1
    yield (
        "b",
        [request and (request["blocks"][0] if one else request["blocks"]) for request in live],
    )
    yield "free", step["free"]
