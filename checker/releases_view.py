"""The survey of an installed release, for a person and for a program."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

from rich.console import Console
from rich.table import Table

from checker.engines.driver import Engine
from checker.releases import Aspect, RuleVerdict, Survey, Surveyed

STYLES = {
    RuleVerdict.KEPT: "green",
    RuleVerdict.DEPARTS: "bold red",
    RuleVerdict.UNSEEN: "yellow",
}
EXPLANATIONS = {
    True: "as the model of this release does",
    False: "no release of the model does so",
    None: "beyond the model, prefix caching (R28 to R32)",
}


def survey_text(engine: Engine, found: Survey) -> None:
    """One table of the rules, then the runs that went otherwise."""
    console = Console(highlight=False)
    equal = len(found.runs) - len(found.departing)
    steps = sum(run.steps for run in found.runs)
    console.print(
        f"{engine.name} {engine.release}: {len(found.runs)} recorded runs, {steps:,} steps, "
        f"{equal} as recorded, {len(found.departing)} not; {found.skipped} of another kind or not "
        "covered"
    )
    table = Table("rule", "verdict", "shown by, or what it does instead")
    for rule, aspects in groupby(found.aspects, key=lambda aspect: aspect.rule):
        verdict, words = _row(list(aspects))
        table.add_row(rule, f"[{STYLES[verdict]}]{verdict.value}[/]", words)
    console.print(table)
    for line in _departures(found.departing):
        console.print(line, markup=False)


def survey_document(engine: Engine, found: Survey) -> dict[str, Any]:
    """The same as a JSON document."""
    return {
        "schema_version": 1,
        "engine": engine.name,
        "release": engine.release,
        "rules": [
            {
                "rule": aspect.rule,
                "instead": aspect.instead,
                "verdict": aspect.verdict.name.lower(),
                "shown_by": list(aspect.shown_by),
            }
            for aspect in found.aspects
        ],
        "runs": [
            {
                "run": run.name,
                "steps": run.steps,
                "refused": run.refused,
                "departure": run.departure
                and {"step": run.departure.step, "field": run.departure.field},
                "as_modelled": run.modelled,
            }
            for run in found.runs
        ],
    }


def _row(aspects: list[Aspect]) -> tuple[RuleVerdict, str]:
    """A rule departs if it does in any aspect, and is kept if it is in every one that was shown."""
    for aspect in aspects:
        if aspect.verdict is RuleVerdict.DEPARTS:
            return aspect.verdict, f"{aspect.instead} ({', '.join(aspect.shown_by)})"
    shown = [name for aspect in aspects for name in aspect.shown_by]
    if not shown:
        return RuleVerdict.UNSEEN, ""
    return RuleVerdict.KEPT, f"{shown[0]} and {len(shown) - 1} more" if shown[1:] else shown[0]


def _departures(runs: list[Surveyed]) -> Iterator[str]:
    for run in runs:
        if run.refused:
            yield f"{run.name}: {run.refused}"
        elif run.departure:
            yield (
                f"{run.name}: departs at step {run.departure.step}, field {run.departure.field!r}: "
                f"{EXPLANATIONS[run.modelled]}"
            )
