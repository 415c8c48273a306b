"""The state graph for other programs and for the eye: GraphML, DOT, and SVG for a small one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from checker.explore import NO_LIMITS, Exploration, Limits, Observer, Progress, explore
from checker.graph import cycles
from checker.narrate import decisions
from checker.outputs.svg import cut, element, picture, text, title
from checker.packed import Expansion
from models.config import Scenario
from models.scheduler import SchedulerOutput
from models.state import Request, State, Status
from properties.properties import STEP_PROPERTIES

if TYPE_CHECKING:
    from collections.abc import Callable

    import networkx as nx

MOST_DRAWN = 200  # states of an SVG picture
WIDTH, HEIGHT, ACROSS, DOWN, MARGIN, HEAD = 168, 50, 84, 16, 24, 84  # pixels


@dataclass(frozen=True, slots=True)
class Node:
    """A state of the graph in words: what is there, what the scheduler decides, what is wrong."""

    summary: str
    decision: str
    emits: bool
    initial: bool
    depth: int
    free: int
    loops: bool
    violates: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StateGraph:
    """Every explored state with its words, and the transitions between them by number."""

    scenario: Scenario
    nodes: tuple[Node, ...]
    edges: tuple[tuple[int, int], ...]
    exploration: Exploration


def state_graph(
    scenario: Scenario,
    limits: Limits = NO_LIMITS,
    progress: Callable[[Progress], None] | None = None,
) -> StateGraph:
    """Explore a scenario and describe every state that was explored."""
    found: list[tuple[str, str, bool, int, tuple[str, ...]]] = []

    def observe(number: int, expansion: Expansion) -> None:
        state, output = expansion.state, expansion.output
        found.append(
            (
                summary(scenario, state),
                decision(scenario, state, output),
                expansion.emits,
                scenario.engine.usable_blocks - state.blocks_held(),
                violated(scenario, state, output),
            )
        )

    observers: list[Observer] = [observe]
    result = explore(
        scenario, limits=limits, observers=observers, keep_graph=True, progress=progress
    )
    assert result.edges is not None
    depths = _depths(result)
    looping = {number for lasso in cycles(result) for number in lasso.cycle}
    nodes = tuple(
        Node(
            summary=words,
            decision=decided,
            emits=emits,
            initial=result.parents[number] < 0,
            depth=depths[number],
            free=free,
            loops=number in looping,
            violates=wrong,
        )
        for number, (words, decided, emits, free, wrong) in enumerate(found)
    )
    edges = tuple((n, t) for n in range(len(nodes)) for t in result.edges.of(n))
    return StateGraph(scenario, nodes, edges, result)


def _depths(result: Exploration) -> list[int]:
    starts = [*result.levels, result.num_states]
    return [level for level, (start, end) in enumerate(pairwise(starts)) for _ in range(start, end)]


# --- words -----------------------------------------------------------------------------------


def phase(request: Request) -> str:
    """What a request is doing, in a word."""
    if request.status is not Status.RUNNING:
        return Status(request.status).name.lower()
    return "prefill" if request.is_prefill_chunk else "decode"


def summary(scenario: Scenario, state: State) -> str:
    """A state in a line: each request that has arrived, its tokens and its blocks."""
    words = []
    for spec, request in zip(scenario.requests, state.requests, strict=True):
        if request.status is Status.UNARRIVED:
            continue
        told = f"{spec.id} {phase(request)}"
        if request.status is Status.RUNNING:
            blocks = "+".join(str(held) for held in request.blocks)
            told += f" {request.computed}/{request.num_tokens} in {blocks}"
        elif request.status is not Status.FINISHED:
            told += f" {request.num_tokens}"
        words.append(told)
    return "; ".join(words)


def decision(scenario: Scenario, state: State, output: SchedulerOutput) -> str:
    """What the scheduler decides in a state, in a line; the environment has not answered yet."""
    ids = [spec.id for spec in scenario.requests]
    return "; ".join(
        (
            *decisions(scenario, state, output),
            *(f"{ids[index]} runs {_tokens(index, output)}" for index in output.scheduled),
        )
    ) or ("nothing runs" if state.busy else "nobody is there")


def _tokens(index: int, output: SchedulerOutput) -> str:
    tokens, drafts = output.scheduled[index], output.drafts.get(index, 0)
    if drafts < 0:
        return f"{tokens + drafts}+{-drafts} padding"
    return f"{tokens - drafts}+{drafts} drafts" if drafts else f"{tokens}"


def violated(scenario: Scenario, state: State, output: SchedulerOutput) -> tuple[str, ...]:
    """The safety properties that the step from a state violates."""
    return tuple(
        checked.property.name
        for checked in STEP_PROPERTIES
        if (output.preempted or not checked.preempting)
        and checked.check(scenario, state, output) is not None
    )


# --- GraphML and DOT -------------------------------------------------------------------------


def as_networkx(graph: StateGraph) -> nx.DiGraph[int]:
    """The graph with its words as attributes of plain types."""
    import networkx as nx

    digraph: nx.DiGraph[int] = nx.DiGraph(
        scheduler=graph.scenario.engine.scheduler,
        gate=graph.scenario.engine.gate.name,
        complete=graph.exploration.complete,
    )
    for number, node in enumerate(graph.nodes):
        digraph.add_node(
            number,
            label=_writable(node.summary),
            decision=_writable(node.decision),
            emits=node.emits,
            initial=node.initial,
            depth=node.depth,
            free=node.free,
            loops=node.loops,
            violates=" ".join(node.violates),
        )
    digraph.add_edges_from(graph.edges)
    return digraph


def _writable(words: str) -> str:
    from checker.outputs.svg import UNWRITABLE

    return UNWRITABLE.sub("\ufffd", words)


def graphml(graph: StateGraph) -> Iterator[str]:
    """The lines of a GraphML document."""
    import networkx as nx

    yield '<?xml version="1.0" encoding="UTF-8"?>'
    yield from nx.generate_graphml(as_networkx(graph), named_key_ids=True)


def dot(graph: StateGraph) -> Iterator[str]:
    """The lines of a DOT file for Graphviz."""
    yield "digraph states {"
    yield "  rankdir=LR;"
    yield '  node [shape=box, style="rounded,filled", fillcolor=white, fontname="sans-serif"];'
    for number, node in enumerate(graph.nodes):
        yield f"  {number} [{_dot_attributes(number, node)}];"
    for source, target in graph.edges:
        silent = graph.nodes[source].loops and graph.nodes[target].loops
        yield f"  {source} -> {target}" + (' [color="#b26b00", penwidth=2];' if silent else ";")
    yield "}"


def _dot_attributes(number: int, node: Node) -> str:
    emits = "emits" if node.emits else "emits nothing"
    attributes = {"label": f"{number}: {node.summary}\n{node.decision}\n{emits}"}
    if node.initial:
        attributes["penwidth"] = "2"
    if node.loops:
        attributes |= {"fillcolor": "#ffefcf", "color": "#b26b00"}
    if node.violates:
        attributes |= {"color": "#c4162a", "penwidth": "3", "tooltip": " ".join(node.violates)}
    return ", ".join(f"{name}={_quoted(value)}" for name, value in attributes.items())


def _quoted(words: str) -> str:
    """A DOT string: only quotes and backslashes mean something in it."""
    escaped = words.replace("\\", "\\\\").replace('"', '\\"').replace("\r", " ")
    return '"' + escaped.replace("\n", "\\n") + '"'


# --- SVG -------------------------------------------------------------------------------------


def svg(graph: StateGraph, instance: str) -> str:
    """The picture of a small graph: a column for each depth, so every shortest run goes right."""
    if len(graph.nodes) > MOST_DRAWN:
        raise ValueError(f"{len(graph.nodes)} states; a picture has at most {MOST_DRAWN}")
    columns = layers(graph)
    deepest = max(len(column) for column in columns)
    width = 2 * MARGIN + len(columns) * (WIDTH + ACROSS) - ACROSS // 2
    height = HEAD + deepest * (HEIGHT + DOWN) + MARGIN + 60
    middle = HEAD + deepest * (HEIGHT + DOWN) / 2
    places: dict[int, tuple[float, float]] = {
        number: (
            MARGIN + depth * (WIDTH + ACROSS),
            middle + (row - len(column) / 2) * (HEIGHT + DOWN),
        )
        for depth, column in enumerate(columns)
        for row, number in enumerate(column)
    }
    width = max(width, 720)
    return picture(
        width,
        height,
        f"state graph: {instance}",
        (
            ARROW,
            text(MARGIN, 28, f"{len(graph.nodes)} states, {len(graph.edges)} transitions", "title"),
            text(MARGIN, 48, cut(instance, width - 2 * MARGIN), "soft small"),
            *(_edge(graph, source, target, places) for source, target in graph.edges),
            *(_box(number, graph.nodes[number], *places[number]) for number in places),
            *_key(graph, height - 24),
        ),
        GRAPH_STYLE,
    )


ARROW = (
    '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
    'markerHeight="7" orient="auto" markerUnits="userSpaceOnUse">'
    '<path d="M0,0.8 L8,4 L0,7.2 z" style="fill: var(--soft)"/></marker></defs>'
)
GRAPH_STYLE = """
.edge { fill: none; stroke: var(--line); stroke-width: 1.2; marker-end: url(#arrow); }
.edge.loop { stroke: var(--warn); stroke-width: 2.2; }
.state { fill: var(--box); stroke: var(--line); } .state.initial { stroke: var(--ink); }
.state.loops { fill: var(--warnfill); stroke: var(--warn); }
.state.violates { stroke: var(--bad); stroke-width: 2.5; }
g:hover > .state { stroke-width: 3; }
"""


def layers(graph: StateGraph) -> list[list[int]]:
    """The states by depth, each put near the middle of those that lead to it."""
    columns: list[list[int]] = [[] for _ in range(max(n.depth for n in graph.nodes) + 1)]
    sources: dict[int, list[int]] = {}
    for source, target in graph.edges:
        if graph.nodes[source].depth < graph.nodes[target].depth:
            sources.setdefault(target, []).append(source)
    for number, node in enumerate(graph.nodes):
        columns[node.depth].append(number)
    rank: dict[int, float] = {}
    for column in columns:
        column.sort(key=lambda n: _mean([rank[s] for s in sources.get(n, [])]))
        rank |= {n: (row + 0.5) / len(column) for row, n in enumerate(column)}
    return columns


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _edge(
    graph: StateGraph, source: int, target: int, places: dict[int, tuple[float, float]]
) -> str:
    (x1, y1), (x2, y2) = places[source], places[target]
    silent = graph.nodes[source].loops and graph.nodes[target].loops
    a = (x1 + WIDTH, y1 + HEIGHT / 2 + 5 * (x2 <= x1))
    if x2 > x1:  # onward: from the right side to the left side
        b = (x2 - 1.0, y2 + HEIGHT / 2)
        bend, ahead = (b[0] - a[0]) / 2, -1
    elif x2 == x1:  # in a column, or to itself: out at the right side and in there again
        b = (x2 + WIDTH + 1.0, y2 + HEIGHT / 2 - 5)
        bend, ahead = min(22 + abs(y2 - y1) / 6, ACROSS - 8), 1
    else:  # back: out at the left side, in at the right side
        a, b = (x1, y1 + HEIGHT / 2 + 5), (x2 + WIDTH + 1.0, y2 + HEIGHT / 2 - 5)
        bend, ahead = -(a[0] - b[0]) / 2, -1
    path = f"M{_at(*a)} C{_at(a[0] + bend, a[1])} {_at(b[0] + ahead * bend, b[1])} {_at(*b)}"
    return element("path", title(f"{source} → {target}"), d=path, class_="edge" + " loop" * silent)


def _at(x: float, y: float) -> str:
    return f"{x:.1f},{y:.1f}"


def _box(number: int, node: Node, x: float, y: float) -> str:
    classes = ["state"]
    classes += ["initial"] * node.initial + ["loops"] * node.loops
    classes += ["violates"] * bool(node.violates)
    emits = "emits" if node.emits else "emits nothing"
    full = "\n".join(
        (
            f"state {number}, {node.free} blocks free",
            *(node.summary, node.decision, emits),
            *(f"violates {name}" for name in node.violates),
        )
    )
    words = "bad bold" if node.violates else "warn bold" if node.loops else "bold"
    room = WIDTH - 14
    head = f"{number}" + " ↻" * node.loops + " ✕" * bool(node.violates)
    return element(
        "g",
        title(full),
        element("rect", x=x, y=y, width=WIDTH, height=HEIGHT, rx=7, class_=" ".join(classes)),
        text(x + 7, y + 15, head, f"small {words}"),
        text(x + WIDTH - 7, y + 15, f"{node.free} free", "end soft small"),
        text(x + 7, y + 30, cut(node.summary, room, 11), "small"),
        text(x + 7, y + 44, cut(node.decision, room, 11), "small soft"),
    )


def _key(graph: StateGraph, y: float) -> Iterator[str]:
    words = ["A column is a step; ↻ on a cycle without emission; ✕ the step violates a property."]
    words.append("Rest the pointer on a state to read all of it.")
    yield text(MARGIN, y, " ".join(words), "soft small")
