"""``check graph``: the state graph of a scenario as GraphML, DOT or an SVG picture."""

from __future__ import annotations

import argparse
import io
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from checker.commands import check
from checker.policy import PolicyError
from checker.scenario import ScenarioError
from models.config import Scenario

if TYPE_CHECKING:
    from checker.outputs.graphs import StateGraph

NAME = "graph"
HELP = "write the state graph: GraphML, DOT, or a picture of a small one (SVG)"
FORMS = ("graphml", "dot", "svg")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    check.scenario_options(parser)
    output = parser.add_argument_group("output")
    output.add_argument(
        "--as", dest="form", choices=FORMS, help="default: by the file's name, or dot"
    )
    output.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="default: standard output"
    )
    output.add_argument(
        "--max-states",
        type=check.positive,
        metavar="N",
        help="give up, with exit code 3, after N states (default: no limit; 200 for a picture)",
    )


def run(args: argparse.Namespace) -> int:
    """Write the graph."""
    try:
        scenario = one_scenario(args)[0]
        form = chosen_form(args, FORMS, "dot")
        most = _most(args, form)
        graph = _explore(scenario, most)
    except (ScenarioError, PolicyError) as error:
        print(f"check graph: {error}", file=sys.stderr)
        return 2
    if not graph.exploration.complete:
        return _unfinished(graph, form, most)
    what = f"{len(graph.nodes):,} states, {len(graph.edges):,} transitions"
    return write(args.output, _text(graph, form), "graph", what)


def one_scenario(args: argparse.Namespace) -> tuple[Scenario, str]:
    """The one instance that the options name, with its policy; vLLM's if they leave it open."""
    if args.all_policies:
        raise ScenarioError("--all-policies: there is one graph for each; choose one --policy")
    if args.scheduler == "both":
        raise ScenarioError("--scheduler both: there is one graph for each; choose vllm or rbln")
    return next(iter(check.scenarios(args)))


def chosen_form(args: argparse.Namespace, forms: tuple[str, ...], default: str) -> str:
    """What to write: as ``--as`` says, else by the ending of the file's name."""
    if args.form:
        return str(args.form)
    if args.output is None:
        return default
    ending = args.output.suffix.lower().removeprefix(".")
    if ending in forms:
        return str(ending)
    raise ScenarioError(f"{args.output}: cannot tell the format; give --as {', '.join(forms)}")


def write(path: Path | None, text: str, command: str, what: str) -> int:
    """Write to a file, and say what, or to standard output; returns the exit code."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # What is written says that it is UTF-8; a terminal may not be able to show every name.
        if path is None:
            sys.stdout.reconfigure(encoding="utf-8", newline="\n")
        sys.stdout.reconfigure(errors="replace")
    if path is None:
        sys.stdout.write(text)
        sys.stdout.flush()
        return 0
    try:
        path.write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        print(f"check {command}: {path}: {error.strerror}", file=sys.stderr)
        return 2
    print(f"{path}: {what}")
    return 0


def _most(args: argparse.Namespace, form: str) -> int | None:
    """After how many states to give up."""
    from checker.outputs.graphs import MOST_DRAWN

    most: int | None = args.max_states
    return min(most or MOST_DRAWN, MOST_DRAWN) if form == "svg" else most


def _explore(scenario: Scenario, most: int | None) -> StateGraph:
    from checker.explore import Limits
    from checker.outputs.graphs import state_graph
    from checker.progress import progress

    with progress() as report:
        return state_graph(scenario, Limits(states=most), report)


def _unfinished(graph: StateGraph, form: str, most: int | None) -> int:
    from checker.explore import Stop
    from checker.outputs.graphs import MOST_DRAWN

    if graph.exploration.stopped is Stop.INTERRUPTED:
        print("interrupted", file=sys.stderr)
        return 130
    hint = "raise --max-states"
    if form == "svg" and most == MOST_DRAWN:
        hint = "a picture has no room for more: draw a smaller instance, or use --as dot or graphml"
    print(f"check graph: more than {most:,} states; {hint}", file=sys.stderr)
    return 3


def _text(graph: StateGraph, form: str) -> str:
    from checker.outputs.graphs import dot, graphml, svg
    from checker.render import instance_line

    if form == "svg":
        return svg(graph, instance_line(graph.scenario))
    return "\n".join((dot if form == "dot" else graphml)(graph)) + "\n"
