"""What the reports are made of: one case for each thing that can pass or fail."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeAlias

from properties.verdict import Verdict

if TYPE_CHECKING:
    from checker.check import CheckResult, PropertyResult

Json: TypeAlias = dict[str, Any]


class Outcome(Enum):
    """What a case comes to."""

    PASSED = "passed"
    FAILED = "failed"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True)
class Case:
    """One thing reported: a property of an instance, or an obligation.

    ``trace`` is a run in the form of ``docs/json.md``. ``file`` and ``line`` are where it is asked
    for.
    """

    group: str
    name: str
    outcome: Outcome
    verdict: str
    message: str
    seconds: float = 0.0
    details: tuple[str, ...] = ()
    trace: Json | None = None
    file: str | None = None
    line: int | None = None


def check_cases(results: Sequence[tuple[CheckResult, str]]) -> list[Case]:
    """A case for each property of each result; what a gate need not have is reported, and passes."""
    from checker.render import instance_line

    cases = []
    for result, policy in results:
        engine = result.scenario.engine
        group = f"{result.scenario.name}, {engine.scheduler}, {policy}"
        instance = instance_line(result.scenario)
        # The search is one for all properties; its time stands in the first case.
        for number, checked in enumerate(result.properties):
            seconds = 0.0 if number else result.seconds
            cases.append(_property_case(group, instance, checked, seconds))
    return cases


def _property_case(group: str, instance: str, checked: PropertyResult, seconds: float) -> Case:
    from checker.document import trace_document

    outcome = {
        Verdict.VIOLATED: Outcome.FAILED,
        Verdict.INCONCLUSIVE: Outcome.INCONCLUSIVE,
    }.get(checked.verdict, Outcome.PASSED)
    message = checked.evidence
    if not checked.property.required:
        outcome, message = Outcome.PASSED, f"{message} (not required of a gate)"
    return Case(
        group=group,
        name=checked.property.name,
        outcome=outcome,
        verdict=checked.verdict.value,
        message=message,
        seconds=seconds,
        details=(instance, checked.property.statement),
        trace=None if checked.trace is None else trace_document(checked.trace),
    )


def trace_rows(trace: Json) -> Iterator[list[str]]:
    """A run as rows of a table, the header first; cells may have several lines."""
    steps = trace["steps"]
    ids = list(steps[0]["requests"])
    yield ["step", "what happened", *ids, "free"]
    for step in steps:
        looping = trace["loop_start"] is not None and step["step"] >= trace["loop_start"]
        yield [
            f"↻ {step['step']}" if looping else str(step["step"]),
            "\n".join(step["what"]),
            *(_request(step["requests"][name]) for name in ids),
            str(step["free"]),
        ]


def _request(request: Json) -> str:
    if request["status"] != "running":
        return "" if request["status"] == "unarrived" else str(request["status"])
    known = request["prompt"] + request["outputs"]
    blocks = "+".join(str(held) for held in request["blocks"])
    noun = "block" if blocks == "1" else "blocks"
    return f"{request['computed']}/{known}, {request['outputs']} out\n{blocks} {noun}"


def trace_text(trace: Json) -> Iterator[str]:
    """A run as plain lines, for where there are no tables."""
    header, *rows = trace_rows(trace)
    for number, what, *requests, free in rows:
        yield f"step {number}, {free} free"
        yield from (f"  {line}" for line in what.splitlines())
        for name, cell in zip(header[2:-1], requests, strict=True):
            if cell:
                yield f"    {name}: {', '.join(cell.splitlines())}"
