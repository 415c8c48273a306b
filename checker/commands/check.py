"""``check``: explore a scenario and print the verdicts."""

from __future__ import annotations

import argparse
import io
import sys
import traceback
from collections.abc import Callable, Iterator
from importlib.metadata import version
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

from checker.fields import FIELDS
from checker.outputs import FILE_HELP, REPORTS, OutputError, targets, write
from checker.policy import PolicyError
from checker.scenario import (
    Document,
    ScenarioError,
    build,
    override,
    parse_option,
    parse_request,
    preset_names,
    read_file,
    read_preset,
    to_document,
    to_toml,
)
from checker.words import version_text
from models.config import Scenario
from models.gates import GATES
from properties.verdict import Verdict, worst

if TYPE_CHECKING:
    from rich.console import Console

    from checker.check import CheckResult, PropertyResult

NAME = "check"
HELP = "explore a scenario and print the verdicts"
DEFAULT = "prompt-only"  # the policy that is checked if none is named
TERMINAL = ("text", "github")  # formats that have the text
PIPE_WIDTH = 120  # columns where stdout is not a terminal
EXIT = {Verdict.PROVED: 0, Verdict.HOLDS: 0, Verdict.VIOLATED: 1, Verdict.INCONCLUSIVE: 3}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options; every field of a scenario is one."""
    parser.add_argument("--version", action="version", version=version_text(version("kvgate")))
    scenario_options(parser)
    search = parser.add_argument_group("the search")
    search.add_argument("--max-states", type=positive, metavar="N", help="stop after N states")
    search.add_argument("--max-seconds", type=_seconds, metavar="S", help="stop after S seconds")
    search.add_argument(
        "--max-memory", type=positive, metavar="MIB", help="stop at this resident memory"
    )
    search.add_argument(
        "--no-graph",
        action="store_true",
        help="do not keep the transitions: less memory, but no exact worst case of recompute",
    )
    search.add_argument(
        "--walks",
        type=positive,
        metavar="N",
        help="do not enumerate: N random runs, shrunk if one violates; never says HOLDS",
    )
    search.add_argument(
        "--no-theorems",
        action="store_true",
        help="only explore: leave out what the theorems say of the gate for all sizes",
    )
    search.add_argument("--seed", type=int, metavar="N", help="seed of --walks (default: 0)")
    output = parser.add_argument_group("output")
    output.add_argument(
        "--format",
        choices=("text", *REPORTS),
        default="text",
        help="what stdout has; github is the text with annotations",
    )
    output.add_argument("-o", dest="output", action="append", metavar="FILE", help=FILE_HELP)
    output.add_argument(
        "--trace",
        metavar="PROPERTY",
        help="the property whose counterexample to show (default: the gravest violated; all, none)",
    )
    output.add_argument(
        "--print-scenario", action="store_true", help="print the scenario as a TOML file and stop"
    )


def scenario_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say what to check; ``scenarios`` reads them."""
    source = parser.add_argument_group("what to check")
    source.add_argument(
        "--scheduler",
        choices=("vllm", "rbln", "both"),
        help="default: both, each with its own preset, unless a scenario says which",
    )
    source.add_argument("--scenario", type=Path, metavar="FILE", help="a scenario file (TOML)")
    source.add_argument("--preset", metavar="NAME", help="one of: " + ", ".join(preset_names()))
    source.add_argument(
        "--policy",
        metavar="GATE",
        help=f"{', '.join(GATES)}, package.module:Class or file.py:Class (default: {DEFAULT})",
    )
    source.add_argument(
        "--all-policies",
        action="store_true",
        help="every policy, side by side; with --policy, one of your own beside them",
    )
    source.add_argument(
        "--request",
        action="append",
        metavar="id=v,prompt=26..33,max_tokens=4",
        help="a request of the workload; given once or more, replaces the scenario's requests",
    )
    fields = parser.add_argument_group("fields of the scenario (docs/scenarios.md)")
    for field in FIELDS:
        if field.flag in ("--scheduler", "--policy"):
            continue
        unit = f"{field.unit}: " if field.unit else ""
        fields.add_argument(
            field.flag,
            dest=field.path,
            metavar="VALUE",
            help=f"{unit}{field.doc}".replace("%", "%%"),
        )


def run(args: argparse.Namespace) -> int:
    """Check what the options say; returns the exit code."""
    try:
        _sensible(args)
        files = targets(args.output)
        chosen = list(scenarios(args))
    except (ScenarioError, PolicyError, OutputError) as error:
        return _wrong_input(error)
    if args.print_scenario:
        if len(chosen) > 1:
            return _wrong_input("--print-scenario: these are several; choose one --scheduler")
        print(to_toml(to_document(*chosen[0])), end="")
        return 0
    results: list[tuple[CheckResult, str]] = []
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal that cannot show every id
    show = _printer(args)
    for scenario, policy in chosen:
        try:
            result = _check(args, scenario)
        except PolicyError as error:
            return _wrong_input(error)
        except OverflowError as error:
            print(f"check: no verdict: {error}", file=sys.stderr)
            return 3
        except Exception:  # exit code 1 means a violation, never this
            traceback.print_exc()
            print("check: no verdict: a fault of the checker, please report it", file=sys.stderr)
            return 3
        results.append((result, policy))
        show(result)
        if _interrupted(result):
            break
    _finish(args, results)
    try:
        for file in files:
            write(file, _report(file.format, results))
    except OutputError as error:
        return _wrong_input(error)
    if any(_interrupted(result) for result, _ in results):
        return 130
    return EXIT[worst(result.verdict for result, _ in results)]


def _interrupted(result: CheckResult) -> bool:
    return result.stopped is not None and result.stopped.name == "INTERRUPTED"


def _wrong_input(error: object) -> int:
    print(f"check: {error}", file=sys.stderr)
    return 2


def _sensible(args: argparse.Namespace) -> None:
    """Refuse what would silently do nothing."""
    from properties.properties import PROPERTIES, Kind

    names = [prop.name for prop in PROPERTIES if prop.kind is not Kind.COVERAGE]
    if args.trace not in (None, "all", "none", *names):
        raise ScenarioError(f"--trace {args.trace}: no such property; there are {', '.join(names)}")
    if args.trace is not None and args.format not in TERMINAL:
        name = "JSON" if args.format == "json" else args.format
        raise ScenarioError(f"--trace: the {name} document has every counterexample")
    if args.output and args.print_scenario:
        raise ScenarioError("-o: does not go with --print-scenario, which checks nothing")
    if args.trace is not None and args.all_policies:
        raise ScenarioError("--trace: --all-policies shows no counterexample")
    if args.seed is not None and not args.walks:
        raise ScenarioError("--seed: only --walks draws anything")
    for option, given in (
        ("--max-states", args.max_states),
        ("--max-memory", args.max_memory),
        ("--no-graph", args.no_graph),
    ):
        if args.walks and given:
            raise ScenarioError(f"{option}: does not go with --walks, which enumerates nothing")


def positive(text: str) -> int:
    """An option that is a count."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"got {text!r}; must be an integer of at least 1")
    return value


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < inf:
        raise argparse.ArgumentTypeError(f"got {text!r}; must be a number of seconds above 0")
    return value


def scenarios(args: argparse.Namespace) -> Iterator[tuple[Scenario, str]]:
    """The scenarios to check, each with its policy as it was named."""
    changes = {
        field.path: parse_option(field, value)
        for field in FIELDS
        if (value := getattr(args, field.path, None)) is not None
    }
    if args.request:
        changes["requests"] = [parse_request(words) for words in args.request]
    for document, source in _documents(args):
        for policy in _policies(args, document):
            yield build(override(document, changes | {"scheduler.policy": policy}), source), policy


def _policies(args: argparse.Namespace, document: Document) -> list[str]:
    scheduler = document.get("scheduler")
    policy = args.policy
    if policy is None:
        policy = scheduler.get("policy", DEFAULT) if isinstance(scheduler, dict) else DEFAULT
    if not args.all_policies:
        return [policy]
    names = list(GATES)
    return names if policy in names else [*names, policy]


def _documents(args: argparse.Namespace) -> Iterator[tuple[Document, str]]:
    if args.scenario and args.preset:
        raise ScenarioError("--scenario and --preset: give one of the two")
    if args.scenario:
        document, source = read_file(args.scenario), str(args.scenario)
    elif args.preset:
        document, source = read_preset(args.preset), f"preset {args.preset}"
    else:
        for name in ("vllm", "rbln"):
            if args.scheduler in (None, "both", name):
                yield read_preset(name), f"preset {name}"
        return
    if args.scheduler in (None, "vllm", "rbln"):
        change = {"scheduler.scheduler": args.scheduler} if args.scheduler else {}
        yield override(document, change), source
    else:
        for name in ("vllm", "rbln"):
            yield override(document, {"scheduler.scheduler": name}), source


def _check(args: argparse.Namespace, scenario: Scenario) -> CheckResult:
    result = _explore(args, scenario)
    if args.no_theorems or args.all_policies or _interrupted(result):
        return result
    from checker.bridge import with_theorems

    return with_theorems(result)


def _explore(args: argparse.Namespace, scenario: Scenario) -> CheckResult:
    from checker.check import check
    from checker.explore import Limits

    limits = Limits(args.max_states, args.max_seconds, args.max_memory)
    if args.walks:
        from checker.walks import walk

        return walk(scenario, runs=args.walks, seed=args.seed or 0, limits=limits)
    from checker.progress import progress

    with progress() as report:
        return check(scenario, limits=limits, keep_graph=not args.no_graph, progress=report)


def _printer(args: argparse.Namespace) -> Callable[[CheckResult], None]:
    """How a result is printed as soon as it is there."""
    if args.format not in TERMINAL or args.all_policies:
        return lambda result: None
    from checker.render import render_check

    console = _console()
    return lambda result: render_check(console, result, _shown(args.trace, result))


def _console() -> Console:
    from rich.console import Console

    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = max(console.width, PIPE_WIDTH)
    return console


def _shown(trace: str | None, result: CheckResult) -> list[PropertyResult]:
    """The property results whose traces to show."""
    violated = [checked for checked in result.properties if checked.trace is not None]
    if trace == "none":
        return []
    if trace == "all":
        return violated
    if trace is not None:
        return [checked for checked in violated if checked.property.name == trace]
    worst_one = result.worst_violated
    return [worst_one] if worst_one is not None else violated[:1]


def _finish(args: argparse.Namespace, results: list[tuple[CheckResult, str]]) -> None:
    if args.format in TERMINAL and args.all_policies:
        from checker.render import render_policies

        render_policies(_console(), results)
    if args.format != "text":
        print(_report(args.format, results), end="")


def _report(name: str, results: list[tuple[CheckResult, str]]) -> str:
    """A report by the name of its format."""
    import json

    from checker.document import document
    from checker.outputs import renderers
    from checker.outputs.cases import check_cases

    return renderers(
        lambda: check_cases(results), lambda: json.dumps(document(results), indent=1) + "\n"
    )[name]()
