"""``check explore``: a page on which a person walks through the state graph of a scenario."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from checker.commands import check
from checker.commands.graph import one_scenario
from checker.policy import PolicyError
from checker.scenario import ScenarioError
from models.config import Scenario

if TYPE_CHECKING:
    from checker.check import CheckResult

NAME = "explore"
HELP = "walk through the state graph on a page in the browser (on this machine only)"
MOST_STATES = 200_000  # of the check before the page, which finds the violations to jump to


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    check.scenario_options(parser)
    page = parser.add_argument_group("the page")
    page.add_argument(
        "--port", type=_port, default=0, metavar="N", help="of 127.0.0.1 (default: any free one)"
    )
    page.add_argument(
        "--max-states",
        type=check.positive,
        default=MOST_STATES,
        metavar="N",
        help="stop looking for violations after N states (default: %(default)s); to walk there "
        "is no limit",
    )


def run(args: argparse.Namespace) -> int:
    """Serve the page until Ctrl-C."""
    try:
        scenario, policy = one_scenario(args)
        result = _checked(args, scenario)
    except (ScenarioError, PolicyError) as error:
        print(f"check explore: {error}", file=sys.stderr)
        return 2
    if result.stopped is not None and result.stopped.name == "INTERRUPTED":
        print("interrupted", file=sys.stderr)
        return 130
    return _serve(result, policy, args.port)


def _checked(args: argparse.Namespace, scenario: Scenario) -> CheckResult:
    from checker.check import check as explore
    from checker.explore import Limits
    from checker.progress import progress

    limits = Limits(states=args.max_states)
    with progress() as report:
        return explore(scenario, limits=limits, progress=report)


def _serve(result: CheckResult, policy: str, port: int) -> int:
    from checker.explorer import Walk
    from checker.explorer_server import ADDRESS, ExplorerServer
    from checker.render import instance_line

    try:
        server = ExplorerServer(Walk(result, policy), port)
    except OSError as error:
        print(f"check explore: --port {port} of {ADDRESS}: {error.strerror}", file=sys.stderr)
        return 2
    with server:
        print(instance_line(result.scenario))
        print(f"{server.url}  (Ctrl-C ends)", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print()
    return 0


def _port(text: str) -> int:
    port = int(text) if text.isascii() and text.isdigit() else -1
    if not 0 <= port <= 65535:
        raise argparse.ArgumentTypeError(f"got {text!r}; must be a port number from 0 to 65535")
    return port
