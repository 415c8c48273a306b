"""A summary in Markdown (GitHub flavoured), for the page of a workflow run or a pull request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from checker.outputs.cases import Case, Outcome, trace_rows

MOST_TRACES = 10  # a step summary may have 1 MiB
PLAIN = {ord(mark): f"&#{ord(mark)};" for mark in "&<>|@\\"} | {
    ord(mark): f"\\{mark}" for mark in "`*_[]#~"
}
MARKS = {Outcome.PASSED: "✅", Outcome.FAILED: "❌", Outcome.INCONCLUSIVE: "❓"}


def summary(cases: Sequence[Case]) -> str:
    """Tables of the verdicts, then the runs that show what is wrong."""
    lines = [f"## kvgate: {_headline(cases)}", ""]
    for group, members in groupby(cases, key=lambda case: case.group):
        lines += [f"### {_cell(group)}", "", "| | | verdict | evidence |", "|---|---|---|---|"]
        lines += [
            f"| {MARKS[case.outcome]} | {_cell(case.name)} | {case.verdict} | {_cell(case.message)} |"
            for case in members
        ]
        lines.append("")
    wrong = [case for case in cases if case.outcome is not Outcome.PASSED]
    shown = [case for case in wrong if case.trace is not None or case.details]
    for case in shown[:MOST_TRACES]:
        lines += _details(case)
    if len(shown) > MOST_TRACES:
        lines += [f"{len(shown) - MOST_TRACES} more are not shown here.", ""]
    return "\n".join(lines)


def _headline(cases: Sequence[Case]) -> str:
    counts = {
        outcome: sum(case.outcome is outcome for case in cases)
        for outcome in (Outcome.FAILED, Outcome.INCONCLUSIVE, Outcome.PASSED)
    }
    return ", ".join(f"{count} {outcome.value}" for outcome, count in counts.items() if count)


def _details(case: Case) -> Iterator[str]:
    yield f"### {_cell(case.name)}"
    yield ""
    yield f"{_cell(case.group)}: {_cell(case.message)}"
    yield ""
    for detail in case.details:
        yield f"- {_cell(detail)}"
    if case.details:
        yield ""
    if case.trace is None:
        return
    header, *rows = trace_rows(case.trace)
    yield _row(header)
    yield "|" + "---|" * len(header)
    for row in rows:
        yield _row(row)
    yield ""


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(_cell(cell) for cell in cells) + " |"


def _cell(text: str) -> str:
    """Text that stands as it is in a cell: no HTML, no Markdown, no new column or row."""
    return "<br>".join(line.translate(PLAIN) for line in text.splitlines())
