"""The policies side by side as an SVG bar chart of what each costs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from checker.check import CheckResult
from checker.outputs.svg import cut, element, picture, text, title
from checker.render import instance_line
from properties.verdict import Verdict

MEASURES = (
    ("tokens", "tokens thrown away, worst run"),
    ("preemptions", "preemptions of one request, most"),
    ("steps", "steps of the longest run"),
)
NAMES, PANEL, GAP, MARGIN = 250, 210, 34, 20  # pixels across
ROW, BAR, HEAD = 30, 14, 58  # pixels down
STYLE = """
.bar { fill: #0b72b5; } .endless { fill: url(#endless); stroke: var(--bad); }
"""
SHADES = {
    Verdict.PROVED: "good",
    Verdict.HOLDS: "good",
    Verdict.VIOLATED: "bad",
    Verdict.INCONCLUSIVE: "warn",
}
HATCH = (
    '<defs><pattern id="endless" width="8" height="8" patternUnits="userSpaceOnUse" '
    'patternTransform="rotate(45)"><rect width="8" height="8" style="fill: var(--paper)"/>'
    '<rect width="3.5" height="8" style="fill: var(--bad)"/></pattern></defs>'
)


@dataclass(frozen=True, slots=True)
class Group:
    """The results of one instance, each with its policy as it was named."""

    results: tuple[tuple[CheckResult, str], ...]

    @property
    def scheduler(self) -> str:
        """Whose step it is."""
        return self.results[0][0].scenario.engine.scheduler

    @property
    def height(self) -> float:
        """Pixels that the group takes."""
        return HEAD + ROW * len(self.results) + 26


def policies_chart(results: Sequence[tuple[CheckResult, str]]) -> str:
    """A chart with a group of bars for every instance."""
    groups = list(_groups(results))
    width = MARGIN + NAMES + len(MEASURES) * (PANEL + GAP)
    height = 60 + sum(group.height for group in groups) + 30
    content = [HATCH, text(MARGIN, 30, "What each policy costs, worst case over all runs", "title")]
    top = 60.0
    for group in groups:
        content += _group(group, top)
        top += group.height
    content.append(_legend(height - 16))
    return picture(width, height, "What each policy costs", content, STYLE)


def _groups(results: Sequence[tuple[CheckResult, str]]) -> Iterator[Group]:
    keys = [(r.scenario.name, r.scenario.engine.scheduler) for r, _ in results]
    for key in dict.fromkeys(keys):
        yield Group(tuple(p for p, one in zip(results, keys, strict=True) if one == key))


def _group(group: Group, top: float) -> Iterator[str]:
    line = f"{group.scheduler}: " + instance_line(group.results[0][0].scenario).split(": ", 1)[1]
    room = NAMES + len(MEASURES) * (PANEL + GAP) - MARGIN
    yield text(MARGIN, top + 12, cut(line, room), "bold")
    for column, (_, words) in enumerate(MEASURES):
        yield text(_left(column), top + 38, words, "soft small")
    for row, (result, policy) in enumerate(group.results):
        y = top + HEAD + row * ROW
        yield text(MARGIN, y + 10, cut(policy, NAMES - 12), "bold")
        yield text(MARGIN, y + 22, result.verdict.value.lower(), f"small {SHADES[result.verdict]}")
    for column, (name, words) in enumerate(MEASURES):
        yield from _bars(group, column, name, words, top + HEAD)


def _bars(group: Group, column: int, name: str, words: str, top: float) -> Iterator[str]:
    figures = [_figure(result, name) for result, _ in group.results]
    most = max((figure for figure in figures if isinstance(figure, int)), default=0) or 1
    left, bottom = _left(column), top + ROW * len(figures) - 8
    yield element("line", x1=left, y1=top - 8, x2=left, y2=bottom, style="stroke: var(--line)")
    for row, ((_, policy), figure) in enumerate(zip(group.results, figures, strict=True)):
        y = top + row * ROW
        said = title(f"{policy}: {figure} {words}")
        room = PANEL - 60
        if isinstance(figure, int):
            long = room * figure / most
            yield element("rect", said, x=left, y=y, width=long, height=BAR, class_="bar")
            yield text(left + long + 6, y + 11.5, f"{figure:,}")
        elif figure == "no bound":
            yield element("rect", said, x=left, y=y, width=room, height=BAR, class_="endless")
            yield text(left + room + 6, y + 11.5, "no bound", "bad bold")
        else:
            yield element("g", said, text(left + 6, y + 11.5, figure, "warn"))


def _figure(result: CheckResult, name: str) -> int | str:
    if result.recompute is None:
        return "not known"
    value: int | None = getattr(result.recompute, name)
    return "no bound" if value is None else value


def _left(column: int) -> float:
    return MARGIN + NAMES + column * (PANEL + GAP)


def _legend(y: float) -> str:
    return text(
        MARGIN,
        y,
        "Exact, over every run of the instance. no bound: some run pays it for ever. "
        "not known: not every state was explored.",
        "soft small",
    )
