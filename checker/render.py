"""Results for a person: the instance, the table of properties, the counterexample."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import wrap

from rich.cells import cell_len
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from checker.check import CheckResult, PropertyResult
from checker.narrate import narrate
from checker.trace import Trace, TraceStep
from models.config import Blocks, Scenario
from models.state import Request, Status
from properties.properties import NO_SELF_PREEMPTION, NO_SELF_PREEMPTION_STRICT
from properties.verdict import Verdict

STYLES = {
    Verdict.PROVED: "bold green",
    Verdict.HOLDS: "green",
    Verdict.VIOLATED: "bold red",
    Verdict.INCONCLUSIVE: "bold yellow",
}
WIDE, SLIM = (32, 13), (21, 8)  # columns of a property and of a policy, side by side
UNBOUNDED = 10_000  # columns
NARROWEST = 24  # columns of wrapped words beside something
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
    requests = " ".join(_request(scenario, index) for index in range(len(scenario.requests)))
    return (
        f"{engine.scheduler}{release}, {engine.gate.name}: {engine.usable_blocks} blocks of {sizes}, "
        f"{spec}, budget {engine.max_num_batched_tokens}, max_model_len {engine.max_model_len}"
        f"{''.join(f', {extra}' for extra in _extras(scenario))}; {requests}"
    )


def _extras(scenario: Scenario) -> Iterator[str]:
    """What is not as usual."""
    engine, environment = scenario.engine, scenario.environment
    if engine.watermark_blocks:
        yield f"watermark {engine.watermark_blocks}"
    if engine.max_num_seqs < len(scenario.requests):
        yield f"at most {engine.max_num_seqs} running"
    if engine.priority_policy:
        yield "priority"
    least, most = environment.accepted
    if (least, most) != (0, None):
        yield f"accepted {least}.." + ("" if most is None else str(most))
    if environment.proposed != "always":
        yield f"proposed {environment.proposed}"
    if environment.eos:
        yield "eos"


def _request(scenario: Scenario, index: int) -> str:
    spec = scenario.requests[index]
    low, high = spec.prompt
    prompt = str(low) if low == high else f"{low}..{high}"
    priority = f" p{spec.priority}" if scenario.engine.priority_policy else ""
    arrival = "" if spec.arrival is None else f" at {spec.arrival}"
    return f"{spec.id}({prompt}+{spec.max_tokens}{priority}{arrival})"


def render_check(console: Console, result: CheckResult, shown: Sequence[PropertyResult]) -> None:
    """Print one scenario's verdicts, and the counterexamples ``shown``."""
    _line(console, Text(instance_line(result.scenario), style="bold"))
    _line(console, Text(_search_line(result), style="dim"))
    for line in _property_lines(result, console.width if console.is_terminal else None):
        _line(console, line)
    for note in notes(result):
        _line(console, Text(f"note: {note}", style="yellow"))
    for checked in shown:
        if checked.trace is not None:
            console.print()
            _line(console, Text(f"{checked.property.name}, {checked.evidence}", style="bold"))
            render_trace(console, checked.trace)
    console.print()


def _least_width(console: Console, table: Table) -> int:
    """The columns that a table needs for no cell to be cut off."""
    options = console.options.update_width(UNBOUNDED)
    for column in table.columns:
        if column.no_wrap:
            cells = (column.header, *column.cells)
            column.min_width = max(Measurement.get(console, options, c).maximum for c in cells)
    return Measurement.get(console, options, table).minimum


def _line(console: Console, text: Text) -> None:
    """Print a line; the terminal wraps it, and in a pipe it stays one line."""
    console.print(text, soft_wrap=True)


def render_trace(console: Console, trace: Trace) -> None:
    """Print a run as a table, or as a list where the table would not fit."""
    table = trace_table(trace)
    if _least_width(console, table) <= console.width:
        console.print(table)
    else:
        for line in _trace_list(trace):
            _line(console, line)
    _line(console, Text(_legend(trace, marked=console.is_terminal), style="dim"))


def render_policies(console: Console, results: Sequence[tuple[CheckResult, str]]) -> None:
    """Print the policies side by side: verdicts, worst recompute, longest run."""
    instances = [(r.scenario.name, r.scenario.engine.scheduler) for r, _ in results]
    for instance in dict.fromkeys(instances):
        group = [pair for pair, one in zip(results, instances, strict=True) if one == instance]
        _line(console, Text(instance_line(group[0][0].scenario).split(": ", 1)[1], style="bold"))
        table = _policies_table(group, *WIDE)
        if console.is_terminal and _least_width(console, table) > console.width:
            table = _policies_table(group, *SLIM)
        console.width = max(console.width, _least_width(console, table))
        console.print(table)
    _line(console, Text("* not required of a gate", style="dim"))


def _policies_table(
    group: Sequence[tuple[CheckResult, str]], name_width: int, policy_width: int
) -> Table:
    first = group[0][0]
    table = Table(header_style="bold")
    table.add_column(f"{first.scenario.engine.scheduler}: property", no_wrap=True)
    for _, policy in group:
        table.add_column(_folded(policy, policy_width), no_wrap=True)
    for checked in first.properties:
        cells = [result.result(checked.property.name) for result, _ in group]
        informal = "" if checked.property.required else " *"
        table.add_row(
            _folded(checked.property.name + informal, name_width),
            *(_folded(cell.verdict.value, policy_width, _style(cell)) for cell in cells),
        )
    for title, value in (
        ("most tokens thrown away", "tokens"),
        ("most preemptions of one request", "preemptions"),
        ("longest run, steps", "steps"),
    ):
        worst = [_folded(_worst(result, value), policy_width) for result, _ in group]
        table.add_row(_folded(title, name_width), *worst)
    lost = [_folded(steps, policy_width) for steps in _steps_lost([r for r, _ in group])]
    table.add_row(_folded("longest run, steps lost", name_width), *lost)
    table.add_row("states", *(f"{result.num_states:,}" for result, _ in group))
    return table


def _folded(words: str, width: int, style: str = "") -> Text:
    return Text("\n".join(wrap(words, width)), style=style)


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
    promised = result.result(NO_SELF_PREEMPTION.name)
    if strict.verdict is Verdict.VIOLATED and promised.verdict is Verdict.HOLDS:
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


def _property_lines(result: CheckResult, width: int | None) -> Iterator[Text]:
    """A line for each property: verdict, name, evidence; wrapped to ``width`` columns, if given."""
    rows = [
        (
            (checked.verdict.value, _style(checked)),
            checked.property.name,
            checked.evidence + ("" if checked.property.required else " (not required of a gate)"),
        )
        for checked in result.properties
    ] + [
        (
            ("never seen", "yellow") if covered.depth is None else ("seen", "dim"),
            covered.property.name,
            covered.property.statement
            if covered.depth is None
            else f"first at step {covered.depth}",
        )
        for covered in result.coverage
    ]
    rows += [
        (
            (theorem.verdict.value, STYLES[theorem.verdict]),
            theorem.property,
            f"theorem {theorem.theorem}, {theorem.evidence}"
            + (f"; not of this instance: {theorem.excludes}" if theorem.excludes else ""),
        )
        for theorem in result.theorems
    ]
    first = max(len(verdict) for (verdict, _), _, _ in rows) + 2
    second = max(len(name) for _, name, _ in rows) + 2
    for (verdict, style), name, evidence in rows:
        head = Text.assemble((verdict, style), " " * (first - len(verdict)), name.ljust(second))
        yield from _hang(head, evidence, width)


def _hang(head: Text, words: str, width: int | None) -> Iterator[Text]:
    """``head`` and ``words``, the words wrapped behind it, or below where there is no room."""
    if width is None:
        yield head + Text(words)
        return
    indent = len(head) if width - len(head) >= NARROWEST else 4
    lines = [Text(line) for line in wrap(words, max(width - indent, NARROWEST))]
    if indent == len(head):
        yield head + lines.pop(0)
    else:
        head.rstrip()
        yield head
    for line in lines:
        yield Text(" " * indent) + line


def trace_table(trace: Trace) -> Table:
    """A run as a table: what happened, every request, the pool; changed cells stand out."""
    scenario = trace.scenario
    table = Table(show_lines=True, header_style="bold")
    table.add_column("step", justify="right", no_wrap=True)
    table.add_column("what happened", min_width=24, overflow="fold")
    for spec in scenario.requests:
        table.add_column(Text(spec.id), no_wrap=True)
    table.add_column("free", justify="right", no_wrap=True)
    table.add_column("pool", no_wrap=True)
    for number, (step, cells) in enumerate(zip(trace.steps, _cells(trace), strict=True)):
        table.add_row(
            _step_number(trace, number),
            Text("\n".join(narrate(scenario, step))),
            *cells,
            Text(_free_cell(scenario, step)),
            _strip(scenario, _at_rest(step)),
        )
    return table


def _trace_list(trace: Trace) -> Iterator[Text]:
    """The same as a list, for a narrow terminal or many requests."""
    scenario = trace.scenario
    for number, (step, cells) in enumerate(zip(trace.steps, _cells(trace), strict=True)):
        free = Text(f", {_free_cell(scenario, step)} free  ")
        yield Text("step ") + _step_number(trace, number) + free + _strip(scenario, _at_rest(step))
        for sentence in narrate(scenario, step):
            yield Text(f"  {sentence}")
        for spec, cell in zip(scenario.requests, cells, strict=True):
            if cell:
                yield Text(f"    {spec.id}: ") + Text(cell.plain.replace("\n", ", "), cell.style)


def _cells(trace: Trace) -> Iterator[list[Text]]:
    """The requests after each step; what did not change is dimmed."""
    shown = [""] * len(trace.scenario.requests)
    for step in trace.steps:
        cells = [_request_cell(request) for request in step.after]
        yield [
            Text(cell, style="bold" if cell != before else "dim")
            for cell, before in zip(cells, shown, strict=True)
        ]
        shown = cells


def _step_number(trace: Trace, number: int) -> Text:
    looping = trace.loop_start is not None and number >= trace.loop_start
    return Text(f"↻ {number}", style="bold yellow") if looping else Text(str(number))


def _legend(trace: Trace, *, marked: bool) -> str:
    legend = "cells: phase, tokens computed/known, tokens emitted, blocks"
    if marked:
        legend += "; bold = changed"
    if trace.loop_start is not None:
        legend += "; ↻ = repeats for ever"
    letters = _letters(trace.scenario)
    if letters != _initials(trace.scenario):
        names = zip(letters, trace.scenario.requests, strict=True)
        legend += "; pool: " + ", ".join(f"{letter} = {spec.id}" for letter, spec in names)
    return legend


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
    drawn = total = 0
    for index, blocks in enumerate(held):
        total += sum(blocks)
        width = round(total * cells / usable) - drawn
        strip.append(letters[index] * width, style=COLOURS[index % len(COLOURS)])
        drawn += width
    strip.append("·" * (cells - drawn), style="dim")
    return strip


def _letters(scenario: Scenario) -> list[str]:
    """One letter per request: its initial if that will do, else A, B, C."""
    first = _initials(scenario)
    if len(set(first)) == len(first) and all(one.isalnum() and cell_len(one) == 1 for one in first):
        return first
    return [chr(ord("A") + index % 26) for index in range(len(first))]


def _initials(scenario: Scenario) -> list[str]:
    return [spec.id[0] for spec in scenario.requests]
