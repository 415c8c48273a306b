"""``check picture``: a counterexample as an SVG timeline or an ITF trace, the policies as a chart."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from checker.commands import check
from checker.commands.graph import chosen_form, write
from checker.policy import PolicyError
from checker.scenario import ScenarioError
from models.config import Scenario

if TYPE_CHECKING:
    from checker.check import CheckResult, PropertyResult

NAME = "picture"
HELP = "draw a counterexample (SVG, or ITF for other tools), or the policies' costs"
FORMS = ("svg", "itf")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    check.scenario_options(parser)
    output = parser.add_argument_group("output")
    output.add_argument(
        "--as", dest="form", choices=FORMS, help="default: by the file's name, or svg"
    )
    output.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="default: standard output"
    )
    output.add_argument(
        "--property", metavar="NAME", help="whose counterexample (default: the gravest violated)"
    )
    output.add_argument(
        "--max-states", type=check.positive, metavar="N", help="stop after N states"
    )


def run(args: argparse.Namespace) -> int:
    """Draw what the options say."""
    from properties.properties import PROPERTIES

    names = [prop.name for prop in PROPERTIES]
    try:
        form = _form(args)
        if args.property not in (None, *names):
            known = ", ".join(names)
            raise ScenarioError(f"--property {args.property}: no such property; there are {known}")
        chosen = list(check.scenarios(args))
        if args.all_policies:
            return _chart(args, [(_explored(args, one), policy) for one, policy in chosen])
        return _counterexample(args, form, chosen)
    except (ScenarioError, PolicyError) as error:
        print(f"check picture: {error}", file=sys.stderr)
        return 2


def _form(args: argparse.Namespace) -> str:
    if args.output is not None and args.output.name.endswith(".itf.json"):
        form = args.form or "itf"
    else:
        form = chosen_form(args, FORMS, "svg")
    if args.all_policies and form != "svg":
        raise ScenarioError("--all-policies: is drawn as svg only")
    if args.all_policies and args.property:
        raise ScenarioError("--property: --all-policies draws no counterexample")
    if args.scheduler == "both" and not args.all_policies:
        raise ScenarioError("--scheduler both: a picture is of one run; choose vllm or rbln")
    return form


def _explored(args: argparse.Namespace, scenario: Scenario) -> CheckResult:
    from checker.check import check as explore
    from checker.explore import Limits, Stop
    from checker.progress import progress

    with progress() as report:
        result = explore(scenario, limits=Limits(states=args.max_states), progress=report)
    if result.stopped is Stop.INTERRUPTED:
        raise KeyboardInterrupt
    return result


def _chart(args: argparse.Namespace, results: list[tuple[CheckResult, str]]) -> int:
    from checker.outputs.chart import policies_chart

    what = "what each policy costs, worst case over all runs"
    return write(args.output, policies_chart(results), "picture", what)


def _counterexample(args: argparse.Namespace, form: str, chosen: list[tuple[Scenario, str]]) -> int:
    """The first scenario's; with no scheduler named, vLLM's."""
    scenario, policy = chosen[0]
    result = _explored(args, scenario)
    found = _violated(result, args.property)
    if found is None:
        wanted = args.property or "any property"
        looked = f"{result.explored:,} states of {scenario.engine.scheduler}, {policy}"
        print(f"check picture: no counterexample to {wanted} in {looked}", file=sys.stderr)
        return 2 if result.stopped is None else 3
    what = f"{scenario.engine.scheduler}, {policy}: {found.property.name}, {found.evidence}"
    return write(args.output, _text(form, found, policy), "picture", what)


def _violated(result: CheckResult, name: str | None) -> PropertyResult | None:
    shown = [checked for checked in result.properties if checked.trace is not None]
    if name is not None:
        return next((checked for checked in shown if checked.property.name == name), None)
    return result.worst_violated or next(iter(shown), None)


def _text(form: str, found: PropertyResult, policy: str) -> str:
    from checker.render import instance_line

    assert found.trace is not None
    name, evidence = found.property.name, found.evidence
    if form == "itf":
        from checker.outputs.itf import itf

        trace = itf(found.trace, policy=policy, name=name, evidence=evidence)
        return json.dumps(trace, indent=1) + "\n"
    from checker.outputs.timeline import timeline

    return timeline(found.trace, name, evidence, instance_line(found.trace.scenario))
