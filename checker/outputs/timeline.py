"""A counterexample as an SVG timeline: who holds the pool, step by step, and what goes wrong."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from textwrap import wrap

from checker.narrate import narrate
from checker.outputs.svg import colour, cut, element, picture, text, title, wide
from checker.trace import Trace, TraceStep
from models.config import Scenario
from models.scheduler import Preempted, Refused

COLUMN, GAP, LEFT, MARGIN = 168, 18, 64, 20
TOP, POOL, TALLEST, SHORTEST = 58, 240, 34, 3  # pixels; of the pool, and of one block
LINE, WORDS = 15, 26  # pixels and letters of a line of a step's sentences
DOT = "#00000033"
BADGE = 22  # pixels from one mark to the next
PER_ROW = 6  # steps side by side, so that a page does not shrink the words away


@dataclass(frozen=True, slots=True)
class Band:
    """Steps that are drawn side by side; ``top`` is that of the pool, ``bottom`` that of the words."""

    steps: range
    top: float
    bottom: float


def timeline(trace: Trace, name: str, evidence: str, instance: str) -> str:
    """The picture of a run that violates the property ``name``."""
    told = [_told(trace.scenario, step) for step in trace.steps]
    scale = _scale(trace.scenario)
    pool = trace.scenario.engine.usable_blocks * scale
    width = max(LEFT + min(len(told), PER_ROW) * (COLUMN + GAP) + MARGIN, 560)
    head = _head(evidence, instance, width)
    bands = list(_bands(told, TOP + 17.0 * len(head), pool))
    legend = list(_legend(trace, width))
    height = bands[-1].bottom + 26 + LINE * 1.5 * len(legend)
    drawn = [
        part
        for band in bands
        for part in (
            *_axis(trace.scenario, band.top, pool),
            *_loop(trace, band),
            *_columns(trace, told, band, pool, scale),
        )
    ]
    return picture(
        width,
        height,
        f"{name}: {evidence}",
        (
            text(MARGIN, 26, f"{name}: violated", "title bad"),
            *(text(MARGIN, 46 + 17 * row, *line) for row, line in enumerate(head)),
            *drawn,
            *_rows(legend, bands[-1].bottom + 32),
        ),
    )


def _bands(told: list[list[tuple[str, str]]], top: float, pool: float) -> Iterator[Band]:
    for first in range(0, len(told), PER_ROW):
        steps = range(first, min(first + PER_ROW, len(told)))
        bottom = top + pool + 44 + max(len(told[number]) for number in steps) * LINE
        yield Band(steps, top, bottom)
        top = bottom + 44


def _scale(scenario: Scenario) -> float:
    """Pixels of one block."""
    return max(min(POOL / scenario.engine.usable_blocks, TALLEST), 0.01)


def _head(evidence: str, instance: str, width: float) -> list[tuple[str, str | None]]:
    """The lines under the title, each with the class that it is drawn in."""
    letters = int((width - 2 * MARGIN) / wide("n"))
    lines: list[tuple[str, str | None]] = [(line, None) for line in wrap(evidence, letters)]
    return lines + [(line, "soft small") for line in wrap(instance, letters)]


def _axis(scenario: Scenario, top: float, pool: float) -> Iterator[str]:
    blocks = scenario.engine.usable_blocks
    yield text(LEFT - 8, top + 10, f"{blocks}", "end soft small")
    yield text(LEFT - 8, top + pool + 2, "0", "end soft small")
    middle = top + pool / 2
    label = text(0, 0, "blocks held", "mid soft small")
    yield element("g", label, transform=f"translate({LEFT - 34} {middle:.0f}) rotate(-90)")


def _loop(trace: Trace, band: Band) -> Iterator[str]:
    """A frame around the steps of a band that repeat for ever."""
    if trace.loop_start is None or band.steps.stop <= trace.loop_start:
        return
    left = _left(max(trace.loop_start - band.steps.start, 0)) - GAP / 2
    right = _left(len(band.steps)) - GAP / 2
    yield element(
        "rect",
        title(f"steps {trace.loop_start} to {len(trace.steps) - 1} repeat for ever"),
        x=left,
        y=band.top - 18,
        width=right - left,
        height=band.bottom - band.top + 22,
        rx=8,
        style="fill: var(--warnfill); stroke: var(--warn); stroke-width: 1.5; "
        "stroke-dasharray: 6 4",
    )


def _columns(
    trace: Trace, told: list[list[tuple[str, str]]], band: Band, pool: float, scale: float
) -> Iterator[str]:
    bottom = band.top + pool
    for place, number in enumerate(band.steps):
        step, left = trace.steps[number], _left(place)
        looping = trace.loop_start is not None and number >= trace.loop_start
        yield element(
            "rect",
            x=left,
            y=band.top,
            width=COLUMN,
            height=pool,
            style="fill: var(--box); stroke: var(--line)",
        )
        yield from _stack(trace.scenario, step, left, bottom, scale)
        yield from _marks(trace.scenario, step, left, bottom, scale)
        words = f"step {number}" + (" ↻" if looping else "")
        yield text(left + COLUMN / 2, bottom + 20, words, "mid bold" + " warn" * looping)
        for row, (line, kind) in enumerate(told[number]):
            yield text(left + 2, bottom + 42 + row * LINE, line, f"small {kind}".strip())


def _stack(
    scenario: Scenario, step: TraceStep, left: float, bottom: float, scale: float
) -> Iterator[str]:
    """The blocks that are held at the step's high water, one request upon another."""
    base = bottom
    for index, held in enumerate(step.output.blocks):
        blocks = sum(held)
        if not blocks:
            continue
        spec = scenario.requests[index]
        tall = blocks * scale
        base -= tall
        shape = element(
            "rect",
            title(f"{spec.id} holds {blocks} of {scenario.engine.usable_blocks} blocks"),
            x=left + 1,
            y=base,
            width=COLUMN - 2,
            height=tall,
            fill=colour(index),
        )
        yield shape
        yield from _rules(left, base, blocks, scale)
        if tall >= LINE:
            label = cut(f"{spec.id}  {blocks}", COLUMN - 12)
            yield text(left + COLUMN / 2, base + tall / 2 + 4, label, "onfill")


def _rules(left: float, top: float, blocks: int, scale: float) -> Iterator[str]:
    """A line between one block and the next, where they are tall enough to be told apart."""
    if scale < 2 * SHORTEST:
        return
    for row in range(blocks):
        y = top + row * scale
        yield element(
            "line", x1=left + 1, y1=y, x2=left + COLUMN - 1, y2=y, stroke=DOT, stroke_width=1
        )


def _marks(
    scenario: Scenario, step: TraceStep, left: float, bottom: float, scale: float
) -> Iterator[str]:
    """A badge for each preemption and refusal, in the free part of the column if there is one."""
    free = scenario.engine.usable_blocks - sum(map(sum, step.output.blocks))
    top = bottom - scenario.engine.usable_blocks * scale
    ids = [spec.id for spec in scenario.requests]
    words = []
    for event in step.output.events:
        if isinstance(event, Preempted):
            words.append(
                (f"✕ {ids[event.victim]} preempted", "--bad", f"{event.computed} tokens lost")
            )
        elif isinstance(event, Refused):
            need = f"wants {event.needed} blocks, {event.available} free"
            words.append((f"⊘ {ids[event.request]} refused", "--warn", need))
    room = max(int((bottom - top) // BADGE), 1)
    if len(words) > room:
        rest = [label for label, _, _ in words[room - 1 :]]
        words[room - 1 :] = [(f"and {len(rest)} more", "--bad", ", ".join(rest))]
    for row, (label, shade, more) in enumerate(words):
        y = top + 4 + row * BADGE
        yield element(
            "g",
            title(f"{label}: {more}"),
            element(
                "rect",
                x=left + 6,
                y=y,
                width=COLUMN - 12,
                height=19,
                rx=9,
                style=f"fill: var(--paper); stroke: var({shade}); stroke-width: 1.5",
            ),
            text(
                left + COLUMN / 2,
                y + 13.5,
                cut(label, COLUMN - 24),
                "mid small bold " + shade.removeprefix("--"),
            ),
        )
    if free == 0 and not words:
        yield text(left + COLUMN - 6, top - 5, "full", "end soft small")


def _told(scenario: Scenario, step: TraceStep) -> list[tuple[str, str]]:
    """The step's sentences as short lines, each with the class that it is drawn in."""
    lines = []
    for sentence in narrate(scenario, step):
        kind = "bad" if "preempts" in sentence else "warn" if " refused: " in sentence else ""
        lines += [(line, kind) for line in wrap(sentence, WORDS)]
    return lines


def _legend(trace: Trace, width: float) -> Iterator[list[tuple[str, str]]]:
    """Rows of (colour, words)."""
    entries = [(colour(index), spec.id) for index, spec in enumerate(trace.scenario.requests)]
    entries.append(("var(--box)", "free"))
    if any(isinstance(e, Preempted) for step in trace.steps for e in step.output.events):
        entries.append(("var(--bad)", "✕ loses its blocks and its computed tokens"))
    if any(isinstance(e, Refused) for step in trace.steps for e in step.output.events):
        entries.append(("var(--warn)", "⊘ not admitted"))
    if trace.loop_start is not None:
        entries.append(("var(--warnfill)", "↻ repeats for ever"))
    row: list[tuple[str, str]] = []
    used = 0.0
    for shade, words in entries:
        words = cut(words, width - 2 * MARGIN - 30)
        if row and used + wide(words) + 40 > width - 2 * MARGIN:
            yield row
            row, used = [], 0.0
        row.append((shade, words))
        used += wide(words) + 40
    yield row


def _rows(legend: list[list[tuple[str, str]]], top: float) -> Iterator[str]:
    for number, row in enumerate(legend):
        x, y = float(MARGIN), top + number * LINE * 1.5
        for shade, words in row:
            yield element(
                "rect",
                x=x,
                y=y - 10,
                width=12,
                height=12,
                rx=2,
                style=f"fill: {shade}; stroke: var(--line)",
            )
            yield text(x + 18, y, words)
            x += wide(words) + 40


def _left(place: int) -> float:
    """Where the column at a place of its band begins."""
    return LEFT + place * (COLUMN + GAP)
