"""``check replay``: a counterexample on the real scheduler."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from checker.engines.driver import Engine
    from checker.replay import Replayed
    from checker.tracefile import Counterexample

NAME = "replay"
HELP = "run a counterexample on the real scheduler of vLLM or vllm-rbln"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("trace", type=Path, metavar="TRACE", help="what check --format json wrote")
    parser.add_argument(
        "--engine",
        required=True,
        choices=("vllm", "rbln"),
        help="the scheduler; it must be installed in this Python (docs/replay.md)",
    )
    parser.add_argument(
        "--property", metavar="NAME", help="whose counterexample (default: the first violated)"
    )
    parser.add_argument(
        "--policy",
        metavar="GATE",
        help="run the same workload under another gate, a wrapper around the real one, "
        "beside the model under that gate",
    )
    parser.add_argument("--format", choices=("text", "json"), default="text")


def run(args: argparse.Namespace) -> int:
    """Replay; 0 if the real scheduler does what the counterexample says, 1 if it departs."""
    from checker.engines.driver import EngineError, load
    from checker.policy import PolicyError, load_gate
    from checker.replay import replay, replay_under
    from checker.tracefile import TraceFileError, read

    try:
        trace = read(args.trace, args.engine, args.property)
        gate = load_gate(args.policy) if args.policy else None
        engine = load(args.engine)
        runs = replay(engine, trace) if gate is None else replay_under(engine, trace, gate)
        steps = list(runs)
    except (TraceFileError, PolicyError, EngineError) as error:
        print(f"check replay: {error}", file=sys.stderr)
        return 2
    show = _print_json if args.format == "json" else _print_text
    show(engine, trace, args.policy, steps)
    return 1 if steps[-1].difference else 0


def _print_text(
    engine: Engine, trace: Counterexample, policy: str | None, steps: Sequence[Replayed]
) -> None:
    from rich.console import Console
    from rich.table import Table

    from checker.replay import describe, self_preemptions

    console = Console(highlight=False)
    gate = policy or trace.document["scheduler"]["policy"]
    left = f"model, {gate}" if policy else "counterexample"
    console.print(f"{trace.property}: {trace.evidence}", markup=False)
    if (made := trace.scenario.engine.release) not in engine.release and engine.name == "vllm":
        console.print(f"found in the model of vLLM {made}, replayed on {engine.release}")
    table = Table("step", left, f"{engine.name} {engine.release}, {gate}", "")
    for replayed in steps:
        cells = [describe(trace.scenario, r) for r in (replayed.expected, replayed.engine)]
        mark = "[bold red]differs[/]" if replayed.difference else "[green]same[/]"
        table.add_row(str(replayed.step), *cells, mark)
    console.print(table)
    for name, lost in self_preemptions(steps).items():
        times = "once" if len(lost) == 1 else f"{len(lost)} times"
        tokens = ", ".join(map(str, lost))
        console.print(f"{name} was preempted by its own allocation {times}, at {tokens} tokens")
    found = steps[-1].difference
    if found:
        console.print(f"the scheduler departs at {found}", markup=False)
    else:
        console.print(
            f"the scheduler does what the {left.split(',')[0]} says: {len(steps)} steps, "
            f"every field of every step equal{_loop(trace, policy)}"
        )


def _loop(trace: Counterexample, policy: str | None) -> str:
    from checker.replay import TURNS

    if policy or trace.loop_start is None:
        return ""
    last = len(trace.steps) - 1
    return f"; the loop, steps {trace.loop_start} to {last}, was gone through {TURNS} times"


def _print_json(
    engine: Engine, trace: Counterexample, policy: str | None, steps: Sequence[Replayed]
) -> None:
    from checker.replay import self_preemptions

    found = steps[-1].difference
    document = {
        "schema_version": 1,
        "engine": engine.name,
        "release": engine.release,
        "policy": policy or trace.document["scheduler"]["policy"],
        "property": trace.property,
        "agrees": found is None,
        "difference": found
        and {
            "step": found.step,
            "field": found.field,
            "engine": found.engine,
            "expected": found.model,
        },
        "self_preemptions": self_preemptions(steps),
        "steps": [{"step": r.step, "expected": r.expected, "engine": r.engine} for r in steps],
    }
    print(json.dumps(document, indent=1))
