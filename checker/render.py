"""Results for a person: the instance, the table of properties, the counterexample."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from checker.check import CheckResult, PropertyResult
from checker.narrate import narrate
from checker.trace import Trace, TraceStep
from models.config import Blocks, Scenario
from models.state import Request, Status
from properties.properties import NO_SELF_PREEMPTION_STRICT
from properties.verdict import Verdict

STYLES = {
    Verdict.PROVED: "bold green",
    Verdict.HOLDS: "green",
    Verdict.VIOLATED: "bold red",
    Verdict.INCONCLUSIVE: "bold yellow",
}
POLICIES_WIDTH = 100  # columns that the policies need side by side
STRIP_CELLS = 32  # a pool with more blocks is drawn to scale
COLOURS = ("cyan", "magenta", "blue", "green", "yellow", "red", "white")
PHASES = {
    Status.UNARRIVED: "",
    Status.WAITING: "waits",
    Status.PREEMPTED: "preempted",
    Status.FINISHED: "done",
}


def instance_line(scenario: Scenario) -> str:
    """The instance in one line."""
    engine = scenario.engine
    sizes = "+".join(str(size) for size in engine.block_sizes)
    release = f" {engine.release}" if engine.scheduler == "vllm" else " 0.12.0"
    spec = f"k {engine.num_spec_tokens}, lookahead {engine.lookahead}"
    if engine.draft_slots:
        spec += f", draft slots {engine.draft_slots}"
    extras = f", watermark {engine.watermark_blocks}" if engine.watermark_blocks else ""
    extras += ", priority" if engine.priority_policy else ""
    requests = " ".join(
        f"{spec.id}({_span(spec.prompt)}+{spec.max_tokens})" for spec in scenario.requests
    )
    return (
        f"{engine.scheduler}{release}, {engine.gate.name}: {engine.usable_blocks} blocks of {sizes}, "
        f"{spec}, budget {engine.max_num_batched_tokens}, max_model_len {engine.max_model_len}"
        f"{extras}; {requests}"
    )


def _span(prompt: tuple[int, int]) -> str:
    low, high = prompt
    return str(low) if low == high else f"{low}..{high}"


def render_check(console: Console, result: CheckResult, shown: Sequence[PropertyResult]) -> None:
    """Print one scenario's verdicts, and the counterexamples ``shown``."""
    console.print(Text(instance_line(result.scenario), style="bold"))
    console.print(Text(_search_line(result), style="dim"))
    console.print(_properties_table(result))
    for note in notes(result):
        console.print(Text(f"note: {note}", style="yellow"))
    for checked in shown:
        if checked.trace is not None:
            console.print()
            console.print(Text(f"{checked.property.name}, {checked.evidence}", style="bold"))
            console.print(trace_table(checked.trace))
    console.print()


def render_policies(console: Console, results: Sequence[tuple[CheckResult, str]]) -> None:
    """Print the policies side by side: verdicts, worst recompute, longest run."""
    for name in dict.fromkeys(result.scenario.name for result, _ in results):
        group = [(r, policy) for r, policy in results if r.scenario.name == name]
        first = group[0][0]
        console.print(Text(instance_line(first.scenario).split(": ", 1)[1], style="bold"))
        table = Table(header_style="bold")
        table.add_column(f"{first.scenario.engine.scheduler}: property", no_wrap=True)
        for _, policy in group:
            table.add_column(policy)
        for checked in first.properties:
            cells = [result.result(checked.property.name) for result, _ in group]
            table.add_row(
                checked.property.name,
                *(Text(cell.verdict.value, style=_style(cell)) for cell in cells),
            )
        for title, value in (
            ("most tokens thrown away", "tokens"),
            ("most preemptions of one request", "preemptions"),
            ("longest run, steps", "steps"),
        ):
            table.add_row(title, *(_worst(result, value) for result, _ in group))
        table.add_row("longest run, steps lost", *_steps_lost([result for result, _ in group]))
        table.add_row("states", *(f"{result.num_states:,}" for result, _ in group))
        console.print(table, width=max(console.width, POLICIES_WIDTH))


def _worst(result: CheckResult, name: str) -> str:
    if result.recompute is None:
        return "not known"
    value = getattr(result.recompute, name)
    return "no bound" if value is None else str(value)


def _steps_lost(results: Sequence[CheckResult]) -> list[str]:
    """Steps of the longest run beyond that of the policy whose longest run is shortest."""
    steps = [result.recompute.steps if result.recompute else None for result in results]
    known = [count for count in steps if count is not None]
    return [
        _worst(result, "steps") if count is None else str(count - min(known))
        for result, count in zip(results, steps, strict=True)
    ]


def _style(checked: PropertyResult) -> str:
    informal = not checked.property.required
    return "yellow" if informal and checked.verdict is Verdict.VIOLATED else STYLES[checked.verdict]


def notes(result: CheckResult) -> list[str]:
    """What a reader must know to read the verdicts rightly."""
    engine = result.scenario.engine
    found = []
    longest = engine.allocation(engine.no_blocks, engine.max_model_len).new_blocks
    if longest > engine.usable_blocks:
        found.append(
            f"max_model_len {engine.max_model_len} takes {longest} blocks and the pool has "
            f"{engine.usable_blocks}: vLLM refuses to start like this"
        )
    strict = result.result(NO_SELF_PREEMPTION_STRICT.name)
    if strict.verdict is Verdict.VIOLATED and result.verdict is not Verdict.VIOLATED:
        found.append(
            "the strict form fails by contention only: a running request took a block that the "
            "gate had counted. A gate is a test, not a reservation, and cannot promise more"
        )
    if engine.num_spec_tokens == 0 and engine.gate.name == "first-decode-step":
        found.append(
            "without speculation (k = 0) first-decode-step is the old gate; "
            "first-decode-step-always has the margin there too"
        )
    missing = [c.property.statement for c in result.coverage if c.depth is None]
    if missing and result.stopped is None:
        found.append(
            f"never happens in this instance: {'; '.join(missing)}. A green verdict says nothing "
            "about it"
        )
    return found


def _search_line(result: CheckResult) -> str:
    rate = result.num_transitions / result.seconds if result.seconds else 0
    whole = "every reachable state" if result.stopped is None else "not every reachable state"
    return (
        f"{result.num_states:,} states, {result.num_transitions:,} transitions, "
        f"depth {result.depth}, {result.seconds:.2f} s ({rate:,.0f} transitions/s), {whole}"
    )


def _properties_table(result: CheckResult) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for checked in result.properties:
        verdict = checked.verdict
        informal = "" if checked.property.required else " (not required of a gate)"
        table.add_row(
            Text(verdict.value, style=_style(checked)),
            checked.property.name,
            Text(checked.evidence + informal),
        )
    for covered in result.coverage:
        seen = covered.depth is not None
        table.add_row(
            Text("seen" if seen else "never seen", style="dim" if seen else "yellow"),
            covered.property.name,
            Text(f"first at step {covered.depth}" if seen else covered.property.statement),
        )
    return table


def trace_table(trace: Trace) -> RenderableType:
    """A run as a table: what happened, every request, the pool; changed cells stand out."""
    scenario = trace.scenario
    table = Table(show_lines=True, header_style="bold")
    table.add_column("step", justify="right", no_wrap=True)
    table.add_column("what happened", min_width=24, overflow="fold")
    for spec in scenario.requests:
        table.add_column(spec.id, no_wrap=True)
    table.add_column("free", justify="right", no_wrap=True)
    table.add_column("pool", no_wrap=True)
    shown = [""] * len(scenario.requests)
    for number, step in enumerate(trace.steps):
        cells = [_request_cell(request) for request in step.after]
        looping = trace.loop_start is not None and number >= trace.loop_start
        mark = "↻ " if looping else ""
        table.add_row(
            Text(f"{mark}{number}", style="bold yellow" if looping else ""),
            Text("\n".join(narrate(scenario, step))),
            *(
                Text(cell, style="bold" if cell != before else "dim")
                for cell, before in zip(cells, shown, strict=True)
            ),
            Text(_free_cell(scenario, step)),
            _strip(scenario, _at_rest(step)),
        )
        shown = cells
    legend = "cells: phase, tokens computed/known, tokens emitted, blocks; bold = changed"
    if trace.loop_start is not None:
        legend += "; ↻ = repeats for ever"
    return Group(table, Text(legend, style="dim"))


def _request_cell(request: Request) -> str:
    if request.status in PHASES:
        outputs = f"\n{request.outputs} out" if request.outputs else ""
        return PHASES[request.status] + outputs
    phase = "prefill" if request.is_prefill_chunk else "decode"
    blocks = "+".join(str(held) for held in request.blocks)
    noun = "block" if blocks == "1" else "blocks"
    return (
        f"{phase}\n{request.computed}/{request.num_tokens}, {request.outputs} out\n{blocks} {noun}"
    )


def _at_rest(step: TraceStep) -> list[Blocks]:
    return [request.blocks for request in step.after]


def _free_cell(scenario: Scenario, step: TraceStep) -> str:
    return str(scenario.engine.usable_blocks - sum(sum(held) for held in _at_rest(step)))


def _strip(scenario: Scenario, held: Sequence[Blocks]) -> Text:
    """Who holds which part of the pool: one letter per block, a dot for a free one."""
    usable = scenario.engine.usable_blocks
    cells = min(usable, STRIP_CELLS)
    strip = Text()
    letters = _letters(scenario)
    for index, blocks in enumerate(held):
        width = round(sum(blocks) * cells / usable)
        strip.append(letters[index] * width, style=COLOURS[index % len(COLOURS)])
    strip.append("·" * (cells - len(strip)), style="dim")
    return strip


def _letters(scenario: Scenario) -> list[str]:
    first = [spec.id[0] for spec in scenario.requests]
    if len(set(first)) == len(first):
        return first
    return [chr(ord("A") + index % 26) for index in range(len(first))]
