"""Obligations held against what is found: met, not met, or not decided."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from checker.obligations import Cell, Obligation
from checker.outputs.cases import Case, Json, Outcome
from checker.tasks import Finding, Task
from checker.workers import Done
from properties.verdict import SEVERITY, Verdict

SCHEMA_VERSION = 1
MEETS = {"holds": Verdict.HOLDS, "proved": Verdict.PROVED, "violated": Verdict.VIOLATED}
WORDS = {Outcome.PASSED: "met", Outcome.FAILED: "not met", Outcome.INCONCLUSIVE: "inconclusive"}
SHOWN = 5  # cells of one obligation whose difference is shown in the details


@dataclass(frozen=True, slots=True)
class CellResult:
    """One finding of one cell, and whether it is as expected."""

    cell: Cell
    finding: Finding
    outcome: Outcome
    stored: bool


@dataclass(frozen=True, slots=True)
class ObligationResult:
    """What became of an obligation."""

    obligation: Obligation
    cells: tuple[CellResult, ...]

    @property
    def outcome(self) -> Outcome:
        """Met only if every cell is as expected; one that is not weighs more than one undecided."""
        return worst_outcome([cell.outcome for cell in self.cells])

    @property
    def different(self) -> list[CellResult]:
        """The cells that are not as expected, those that are wrong first."""
        wrong = [cell for cell in self.cells if cell.outcome is Outcome.FAILED]
        return wrong + [cell for cell in self.cells if cell.outcome is Outcome.INCONCLUSIVE]

    @property
    def verdict(self) -> Verdict:
        """The verdict of the first cell that is not as expected, or of all."""
        return (self.different or self.cells)[0].finding.verdict

    @property
    def stored(self) -> int:
        """Cells whose verdict came from the store."""
        return sum(cell.stored for cell in self.cells)

    @property
    def seconds(self) -> float:
        """Time spent on it in this run; a task that serves several counts in each."""
        spent = {c.cell.task: c.finding.seconds for c in self.cells if not c.stored}
        return sum(spent.values())


def worst_outcome(outcomes: Sequence[Outcome]) -> Outcome:
    """Failed before inconclusive before passed."""
    order = (Outcome.PASSED, Outcome.INCONCLUSIVE, Outcome.FAILED)
    return max(outcomes, key=order.index)


def judge(obligation: Obligation, done: dict[Task, Done], stored: set[Task]) -> ObligationResult:
    """Hold the findings against what is expected; a task that was not carried out decides nothing."""
    cells = []
    for cell in obligation.cells:
        found = done.get(cell.task, Done(cell.task, fault="interrupted before it was decided"))
        by_name = {finding.name: finding for finding in found.findings}
        for name in cell.names:
            finding = by_name.get(name) or _missing(name, found)
            outcome = _outcome(obligation.expect, finding)
            cells.append(CellResult(cell, finding, outcome, cell.task in stored))
    return ObligationResult(obligation, tuple(cells))


def _missing(name: str, found: Done) -> Finding:
    basis = "exploration" if found.task.kind == "explore" else "theorem"
    words = found.policy_error or found.fault or "there is no theorem on it"
    return Finding(name, Verdict.INCONCLUSIVE, words, basis, 0.0)  # type: ignore[arg-type]


def _outcome(expect: str, finding: Finding) -> Outcome:
    if finding.verdict is Verdict.INCONCLUSIVE:
        return Outcome.INCONCLUSIVE
    return Outcome.PASSED if finding.verdict is MEETS[expect] else Outcome.FAILED


# --- in words ------------------------------------------------------------------------------------


def line(result: ObligationResult) -> str:
    """What was expected and what was found, in one line."""
    words = f"expected {result.obligation.expect}: {_found(result)}"
    if result.stored:
        of = (
            "" if result.stored == len(result.cells) else f"{result.stored} of {len(result.cells)} "
        )
        words += f" ({of}from the store)"
    else:
        words += f" ({result.seconds:.2f} s)"
    return words


def _found(result: ObligationResult) -> str:
    if len(result.cells) == 1:
        finding = result.cells[0].finding
        return f"{finding.verdict.value} by {finding.basis}, {finding.evidence}"
    counts = dict.fromkeys(SEVERITY, 0)
    for cell in result.cells:
        counts[cell.finding.verdict] += 1
    basis = result.cells[0].finding.basis
    found = ", ".join(f"{verdict.value} {count}" for verdict, count in counts.items() if count)
    instances = len({cell.cell.task for cell in result.cells})
    noun = "instance" if result.cells[0].cell.task.kind != "prove" else "gate"
    noun += "s" * (instances != 1)
    of = "" if instances == len(result.cells) else f"{len(result.cells)} verdicts on "
    return f"{found} of {of}{instances} {noun}, by {basis}"


def difference(result: ObligationResult, cell: CellResult) -> str:
    """One cell that is not as expected, in one line."""
    finding = cell.finding
    words = f"{cell.cell.label}: {finding.name}: expected {result.obligation.expect}, "
    words += f"{finding.verdict.value}, {finding.evidence}"
    if result.obligation.expect == "violated" and cell.outcome is Outcome.FAILED:
        words += "; the fault is gone, or the checker no longer sees it"
    return words


# --- reports -------------------------------------------------------------------------------------


def gate_cases(results: Sequence[ObligationResult], file: str) -> list[Case]:
    """A case for each obligation."""
    return [_case(result, file) for result in results]


def _case(result: ObligationResult, file: str) -> Case:
    different = result.different
    shown = tuple(difference(result, cell) for cell in different[:SHOWN])
    if len(different) > SHOWN:
        shown += (f"{len(different) - SHOWN} more are not as expected",)
    return Case(
        group=file,
        name=result.obligation.name,
        outcome=result.outcome,
        verdict=result.verdict.value,
        message=line(result),
        seconds=result.seconds,
        details=shown,
        trace=next((c.finding.trace for c in different if c.finding.trace), None),
        file=file,
        line=result.obligation.line,
    )


def gate_document(results: Sequence[ObligationResult], file: str, *, complete: bool) -> Json:
    """The document of ``--format json``, described in ``docs/ci.md``."""
    return {
        "schema_version": SCHEMA_VERSION,
        "file": file,
        "complete": complete,
        "outcome": WORDS[worst_outcome([result.outcome for result in results])],
        "obligations": [
            {
                "name": result.obligation.name,
                "line": result.obligation.line,
                "expect": result.obligation.expect,
                "outcome": WORDS[result.outcome],
                "findings": list(_findings(result)),
            }
            for result in results
        ],
    }


def _findings(result: ObligationResult) -> Iterator[dict[str, Any]]:
    for cell in result.cells:
        finding, task = cell.finding, cell.cell.task
        yield {
            "instance": cell.cell.label,
            "policy": task.policy,
            "property": None if task.kind == "prove" else finding.name,
            "theorem": task.theorem or None,
            "verdict": finding.verdict.value,
            "by": finding.basis,
            "evidence": finding.evidence,
            "outcome": WORDS[cell.outcome],
            "from_store": cell.stored,
            "seconds": round(finding.seconds, 3),
            "trace": finding.trace,
        }
