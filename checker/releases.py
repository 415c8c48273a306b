"""An installed release held against the recorded runs: which rules it keeps, where it departs.

``witnesses.json`` (written by ``scripts/rule_witnesses.py``) has, for every rule, steps of recorded
runs at which a scheduler without that rule would do something else than was recorded. A release
that does what was recorded up to such a step keeps the rule.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from importlib import resources
from pathlib import Path
from typing import Any

from checker.conform import not_covered, read_run, scenario_of
from checker.engines.driver import (
    Engine,
    EngineRefusedError,
    Record,
    Run,
    model_release,
    vllm_release,
)
from checker.lockstep import Difference, ModelRun, difference, due, scripted
from models.config import Scenario
from models.script import DraftScript


class RuleVerdict(Enum):
    """What the runs say about a rule."""

    KEPT = "kept"
    DEPARTS = "departs"
    UNSEEN = "not shown by these runs"


@dataclass(frozen=True, slots=True)
class Surveyed:
    """One recorded run on the installed release.

    ``departure`` is where it does something else than was recorded, ``modelled`` whether the model
    of the installed release does the same, ``refused`` why it would not start.
    """

    name: str
    steps: int
    departure: Difference | None = None
    modelled: bool = True
    refused: str | None = None


@dataclass(frozen=True, slots=True)
class Aspect:
    """A rule, what a scheduler without it does, and what the runs say."""

    rule: str
    instead: str
    verdict: RuleVerdict
    shown_by: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Survey:
    """All runs on an installed release, and all rules."""

    runs: tuple[Surveyed, ...]
    aspects: tuple[Aspect, ...]
    skipped: int

    @property
    def departing(self) -> list[Surveyed]:
        """The runs that went otherwise than recorded, or not at all."""
        return [run for run in self.runs if run.departure or run.refused]


def survey(engine: Engine, paths: Iterable[Path]) -> Survey:
    """Play every recorded run of the scheduler's kind on the installed release.

    Raises
    ------
    RecordError
        If a file is no recorded run.
    """
    runs: list[Surveyed] = []
    skipped = 0
    for path in paths:
        recorded = read_run(path)
        settings = recorded["scenario"]
        if settings["batching"] != engine.name or not_covered(settings):
            skipped += 1
        else:
            runs.append(_play(engine, f"{path.parent.name}/{path.stem}", recorded))
    by_name = {run.name: run for run in runs}
    return Survey(tuple(runs), tuple(_aspects(engine.name, by_name)), skipped)


def play(run: Run, scenario: Scenario, scripts: Sequence[DraftScript], steps: int) -> list[Record]:
    """The records of the first steps of a run."""
    answers, records = scripted(scenario, scripts), []
    for number in range(steps):
        run.arrive(due(scenario, number))
        run.schedule()
        records.append(run.finish(answers))
    return records


def _play(engine: Engine, name: str, recorded: Record) -> Surveyed:
    scenario, scripts = scenario_of(recorded["scenario"])
    trace: list[Record] = recorded["trace"]
    try:
        real = play(engine.start(scenario), scenario, scripts, len(trace))
    except EngineRefusedError as error:
        return Surveyed(name, 0, refused=str(error))
    found = _first(real, trace)
    if found is None:
        return Surveyed(name, len(trace))
    settings = replace(scenario.engine, release=model_release(vllm_release()))
    newer = replace(scenario, engine=settings)
    model = play(ModelRun(newer), newer, scripts, len(trace))
    return Surveyed(name, len(trace), found, modelled=_first(real, model) is None)


def _first(ours: Sequence[Record], theirs: Sequence[Record]) -> Difference | None:
    pairs = zip(ours, theirs, strict=True)
    return next((found for pair in pairs if (found := difference(*pair))), None)


def _aspects(kind: str, runs: dict[str, Surveyed]) -> Iterable[Aspect]:
    for row in _witnesses():
        steps = {
            one["run"]: one["step"] for one in row["witnesses"] if one["run"].startswith(f"{kind}/")
        }
        if steps:
            seen = [(runs[name], step) for name, step in steps.items() if name in runs]
            verdict, shown_by = _judge(seen)
            yield Aspect(row["rule"], row["instead"], verdict, shown_by)


def _judge(witnesses: list[tuple[Surveyed, int]]) -> tuple[RuleVerdict, tuple[str, ...]]:
    """Kept if any run agrees through its witness step; departs if one departs at that very step."""
    agree, depart = [], []
    for run, step in witnesses:
        if run.refused:
            continue
        if run.departure is None or run.departure.step > step:
            agree.append(f"{run.name} step {step}")
        elif run.departure.step == step:
            depart.append(f"{run.name} step {step}")
    if agree:
        return RuleVerdict.KEPT, tuple(agree)
    return (RuleVerdict.DEPARTS if depart else RuleVerdict.UNSEEN), tuple(depart)


def _witnesses() -> list[dict[str, Any]]:
    file = resources.files("checker") / "witnesses.json"
    rows: list[dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))
    return rows
