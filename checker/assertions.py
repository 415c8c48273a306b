"""A policy checked in a test: an AssertionError that shows the run, or the results."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any, Literal, TypeAlias

from checker.check import CheckResult, CoverageResult, PropertyResult, check
from checker.explore import Limits, Stop
from checker.policy import load_gate, own_gate
from checker.scenario import Document, build, override, read_file, read_preset, to_document
from models.config import Scenario
from models.gates import GATES, Gate
from properties.properties import COVERAGE, PROPERTIES, Kind
from properties.verdict import Verdict

SchedulerChoice: TypeAlias = Literal["vllm", "rbln", "both"]

WIDTH = 120  # columns of a table in a failure
GREEN = (Verdict.HOLDS, Verdict.PROVED)
ANY_POLICY = next(iter(GATES))  # stands in a document until the gate under test takes its place


def assert_policy(
    gate: str | Gate | type[Gate],
    *,
    scheduler: SchedulerChoice | None = None,
    preset: str | None = None,
    scenario: Scenario | Mapping[str, Any] | str | Path | None = None,
    fields: Mapping[str, Any] | None = None,
    properties: Sequence[str] | None = None,
    max_states: int | None = None,
    max_seconds: float | None = None,
    max_memory: int | None = None,
) -> tuple[CheckResult, ...]:
    """Explore every reachable state under an admission gate; fail unless every property holds.

    Parameters
    ----------
    gate
        A gate, its class, or what ``--policy`` takes.
    scheduler
        ``"vllm"``, ``"rbln"`` or ``"both"``; left out: both, each with its own preset, or the one
        that the preset or scenario says.
    preset, scenario
        What to check it on: the name of a preset, or a scenario (an object, a document, the path
        of a TOML file).
    fields
        Fields of the scenario to replace, by section and name: ``{"pool.usable_blocks": 5}``.
    properties
        The properties that must hold, and of the coverage ones that must be seen; left out: every
        required one.
    max_states, max_seconds, max_memory
        Limits of the search. A search that meets one fails: what was not explored does not hold.

    Raises
    ------
    AssertionError
        If a property is violated, with the shortest run that shows it, or inconclusive.
    PolicyError
        If the gate's own code is at fault.
    """
    __tracebackhide__ = True
    named = None if properties is None else _named(properties)
    tested = load_gate(gate) if isinstance(gate, str) else own_gate(_name(gate), gate)
    limits = Limits(max_states, max_seconds, max_memory)
    results: list[CheckResult] = []
    failures: list[str] = []
    for instance in _instances(scheduler, preset, scenario, fields or {}):
        engine = replace(instance.engine, gate=tested)
        try:
            result = check(replace(instance, engine=engine), limits=limits)
        except OverflowError as error:
            failures.append(f"{tested.name} under {engine.scheduler}: no verdict: {error}")
            continue
        if result.stopped is Stop.INTERRUPTED:
            raise KeyboardInterrupt
        results.append(result)
        if wrong := list(_wrong(result, named)):
            failures.append(_failure(result, wrong))
    if failures:
        raise AssertionError("\n\n".join(failures))
    return tuple(results)


def _name(gate: object) -> str:
    found = gate if isinstance(gate, type) else type(gate)
    return f"{found.__module__}:{found.__qualname__}"


def _named(properties: Sequence[str]) -> frozenset[str]:
    """The properties asked for, all of which exist."""
    if isinstance(properties, str) or not properties:
        raise ValueError(f"properties: got {properties!r}; must be a list of at least one name")
    known = [prop.name for prop in PROPERTIES]
    for name in properties:
        if name not in known:
            close = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {close[0]!r}?" if close else "there are " + ", ".join(known)
            raise ValueError(f"properties: no property {name!r}; {hint}")
    return frozenset(properties)


# --- on what ---------------------------------------------------------------------------------


def _instances(
    scheduler: SchedulerChoice | None,
    preset: str | None,
    scenario: Scenario | Mapping[str, Any] | str | Path | None,
    fields: Mapping[str, Any],
) -> Iterator[Scenario]:
    if scheduler not in (None, "vllm", "rbln", "both"):
        raise ValueError(f"scheduler: got {scheduler!r}; must be 'vllm', 'rbln' or 'both'")
    if preset is not None and scenario is not None:
        raise ValueError("preset and scenario: give one of the two")
    names = ("vllm", "rbln") if scheduler in (None, "both") else (scheduler,)
    for document, source, only in _documents(names, preset, scenario):
        for name in (None,) if scheduler is None or only else names:
            change = {} if name is None else {"scheduler.scheduler": name}
            changes = {**change, "scheduler.policy": ANY_POLICY, **fields}
            yield build(override(document, changes), source)


def _documents(
    names: Iterable[str],
    preset: str | None,
    scenario: Scenario | Mapping[str, Any] | str | Path | None,
) -> Iterator[tuple[Document, str, bool]]:
    """Documents, the source of each, and whether it is for one scheduler only."""
    if preset is not None:
        yield read_preset(preset), f"preset {preset}", False
    elif isinstance(scenario, Scenario):
        yield to_document(scenario, ANY_POLICY), scenario.name, False
    elif isinstance(scenario, str | Path):
        yield read_file(Path(scenario)), str(scenario), False
    elif scenario is not None:
        yield dict(scenario), str(scenario.get("name", "scenario")), False
    else:
        for name in names:
            yield read_preset(name), f"preset {name}", True


# --- what is wrong ---------------------------------------------------------------------------


def _wrong(
    result: CheckResult, named: frozenset[str] | None
) -> Iterator[PropertyResult | CoverageResult]:
    """What must hold and does not, an engine that is stuck first."""
    asked = [
        checked
        for checked in result.properties
        if (checked.property.required if named is None else checked.property.name in named)
    ]
    bad = [checked for checked in asked if checked.verdict not in GREEN]
    yield from sorted(bad, key=_gravity)
    for seen in result.coverage:
        if named is not None and seen.property.name in named and seen.depth is None:
            yield seen


def _gravity(checked: PropertyResult) -> tuple[bool, bool]:
    return checked.verdict is not Verdict.VIOLATED, checked.property.kind is not Kind.LIVENESS


def _failure(result: CheckResult, wrong: Sequence[PropertyResult | CoverageResult]) -> str:
    """The verdicts as ``check`` prints them, and the run that shows the gravest one."""
    from rich.console import Console

    from checker.render import render_check

    page = StringIO()
    console = Console(file=page, width=WIDTH, color_system=None, force_terminal=False)
    violated = [one for one in wrong if isinstance(one, PropertyResult) and one.trace is not None]
    render_check(console, result, violated[:1])
    engine = result.scenario.engine
    lines = [line.rstrip() for line in page.getvalue().splitlines()]
    head = f"{engine.gate.name} under {engine.scheduler}: {_summary(result, wrong)}"
    return f"{head}\n\n" + "\n".join(lines).rstrip()


def _summary(result: CheckResult, wrong: Sequence[PropertyResult | CoverageResult]) -> str:
    names: dict[str, list[str]] = {}
    for one in wrong:
        verdict = one.verdict.value if isinstance(one, PropertyResult) else "never seen"
        names.setdefault(verdict, []).append(one.property.name)
    words = [f"{verdict} {', '.join(found)}" for verdict, found in names.items()]
    if result.stopped is not None:
        words.append(f"the search met {result.stopped.value.removeprefix('--').replace('-', '_')}")
    return "; ".join(words)


def evidence(result: CheckResult) -> str:
    """A green result in one line, for a report."""
    engine = result.scenario.engine
    shown = sum(1 for seen in result.coverage if seen.depth is not None)
    return (
        f"{engine.gate.name} under {engine.scheduler}: {result.verdict.value}, "
        f"{result.num_states:,} states, {shown} of {len(COVERAGE)} coverage properties seen"
    )
