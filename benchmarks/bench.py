"""The packed search against its peers on the same instances: states, transitions, time, memory.

    python benchmarks/bench.py [--instance NAME ...] [--spin] [--repeat N] [--json FILE]

Exit codes: 0 all engines counted the same, 1 the counts differ, 2 wrong input, 3 an engine that
was asked for could not run. See benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil
from instances import INSTANCES
from promela import COMPILE_OPTIONS, SPIN_OPTIONS, SpinError, count, missing_tools
from rich.console import Console
from rich.table import Table

from checker.explore import explore
from models.config import Scenario
from models.environment import initial_states, schedule, successors
from models.state import State

NAIVE_LIMIT = 3_000_000  # transitions; the naive search is left out of larger instances
MEMORY_FROM = 10_000  # states; below, the memory of a search is lost in its surroundings


@dataclass(frozen=True, slots=True)
class Measurement:
    """One engine on one instance: counts, the best time of the repeats, and the most memory.

    ``seconds`` are of processor time, one thread; ``wall_seconds`` those of the same repeat.
    ``bytes_used``: what the search added to the process, at its peak.
    """

    engine: str
    num_states: int
    num_transitions: int
    depth: int | None
    seconds: float
    wall_seconds: float
    bytes_used: int

    @property
    def rate(self) -> float:
        """Transitions per second of processor time."""
        return self.num_transitions / self.seconds if self.seconds else float("inf")

    @property
    def bytes_per_state(self) -> float | None:
        """Bytes per state; ``None`` where the instance is too small to tell."""
        return self.bytes_used / self.num_states if self.num_states >= MEMORY_FROM else None

    @property
    def counts(self) -> tuple[int, int]:
        """States and transitions: what all engines must agree on."""
        return self.num_states, self.num_transitions


# --- the engines -----------------------------------------------------------------------------


def naive_search(scenario: Scenario) -> tuple[int, int, int]:
    """States, transitions and depth by breadth-first search over the reference semantics."""
    level: list[State] = list(initial_states(scenario))
    seen, transitions, depth = set(level), 0, -1
    while level:
        found: list[State] = []
        for state in level:
            for successor in successors(scenario, state, schedule(scenario, state)):
                transitions += 1
                if successor not in seen:
                    seen.add(successor)
                    found.append(successor)
        level, depth = found, depth + 1
    return len(seen), transitions, depth


def packed_search(scenario: Scenario) -> tuple[int, int, int]:
    """States, transitions and depth by ``checker.explore``."""
    result = explore(scenario)
    return result.num_states, result.num_transitions, result.depth


SEARCHES: dict[str, Callable[[Scenario], tuple[int, int, int]]] = {
    "naive": naive_search,
    "packed": packed_search,
}


def measure_here(engine: str, scenario: Scenario) -> Measurement:
    """Run a Python engine in this process, which should be a fresh one."""
    before = psutil.Process().memory_info().rss
    wall, busy = time.perf_counter(), time.process_time()
    states, transitions, depth = SEARCHES[engine](scenario)
    seconds, wall_seconds = time.process_time() - busy, time.perf_counter() - wall
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    used = max(peak - before, 0)
    return Measurement(engine, states, transitions, depth, seconds, wall_seconds, used)


def measure_in_process(engine: str, instance: str) -> Measurement:
    """Run a Python engine in a process of its own, so that no run warms up another."""
    command = [sys.executable, __file__, "--worker", engine, "--instance", instance]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{engine} on {instance} failed:\n{done.stderr}")
    return Measurement(**json.loads(done.stdout))


def measure_spin(scenario: Scenario, num_states: int) -> Measurement:
    """Run SPIN's verifier, with a hash table that has a slot for each of so many states."""
    roots = sum(1 for _ in initial_states(scenario))
    with tempfile.TemporaryDirectory() as directory:
        bits = max(num_states.bit_length(), 16)
        counts = count(scenario, roots, Path(directory), hash_bits=bits)
    return Measurement(
        "spin",
        counts.num_states,
        counts.num_transitions,
        None,
        counts.seconds,
        counts.wall_seconds,
        counts.bytes_used,
    )


# --- the benchmark ---------------------------------------------------------------------------


def run(instance: str, repeat: int, spin: bool) -> Iterator[Measurement]:
    """Every engine that can do the instance; the fastest of ``repeat`` runs each."""

    def best(once: Callable[[], Measurement]) -> Measurement:
        return min((once() for _ in range(repeat)), key=lambda measured: measured.seconds)

    packed = best(lambda: measure_in_process("packed", instance))
    if packed.num_transitions <= NAIVE_LIMIT:
        yield best(lambda: measure_in_process("naive", instance))
    yield packed
    if spin:
        yield best(lambda: measure_spin(INSTANCES[instance], packed.num_states))


def report(instance: str, measurements: list[Measurement]) -> dict[str, Any]:
    """The measurements of one instance as JSON, with the ratios to the packed search's rate."""
    packed = next(found for found in measurements if found.engine == "packed")
    return {
        "instance": instance,
        "equal": len({found.counts for found in measurements}) == 1,
        "engines": [
            {
                **asdict(found),
                "transitions_per_second": found.rate,
                "bytes_per_state": found.bytes_per_state,
                "rate_to_packed": found.rate / packed.rate,
            }
            for found in measurements
        ],
    }


def table(reports: list[dict[str, Any]]) -> Table:
    """The reports for a person."""
    grid = Table(title="One thread; seconds of processor time, best of the repeats")
    for title in ("instance", "engine"):
        grid.add_column(title, no_wrap=True)
    for title in ("states", "transitions", "per state", "seconds", "per second", "bytes/state"):
        grid.add_column(title, justify="right", no_wrap=True)
    grid.add_column("to packed", justify="right", no_wrap=True)
    for entry in reports:
        for row in entry["engines"]:
            states, transitions = row["num_states"], row["num_transitions"]
            used = row["bytes_per_state"]
            grid.add_row(
                entry["instance"],
                row["engine"],
                f"{states:,}",
                f"{transitions:,}",
                f"{transitions / states:.1f}",
                f"{row['seconds']:.2f}",
                f"{row['transitions_per_second']:,.0f}",
                "-" if used is None else f"{used:.0f}",
                f"x {row['rate_to_packed']:.2f}",
                style=None if entry["equal"] else "bold red",
                end_section=row is entry["engines"][-1],
            )
    return grid


def arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="The packed search against a naive one and against SPIN, on the same instances.",
        epilog="Exit codes: 0 equal counts, 1 counts differ, 2 wrong input, 3 an engine is missing.",
    )
    parser.add_argument(
        "--instance",
        action="append",
        choices=INSTANCES,
        metavar="NAME",
        help=f"an instance to run (repeatable; default all): {', '.join(INSTANCES)}",
    )
    parser.add_argument("--spin", action="store_true", help="also run SPIN; needs spin and cc")
    parser.add_argument("--repeat", type=int, default=1, metavar="N", help="runs of each engine")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures as JSON")
    parser.add_argument("--worker", choices=SEARCHES, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.repeat < 1:
        parser.error(f"--repeat: at least 1, not {options.repeat}")
    return options


def main(argv: list[str] | None = None) -> int:
    options = arguments(argv)
    names = options.instance or list(INSTANCES)
    if options.worker:
        print(json.dumps(asdict(measure_here(options.worker, INSTANCES[names[0]]))))
        return 0
    if options.spin and (missing := missing_tools()):
        print(f"--spin: not installed: {', '.join(missing)}", file=sys.stderr)
        return 3
    reports = []
    for name in names:
        try:
            reports.append(report(name, list(run(name, options.repeat, options.spin))))
        except SpinError as error:
            print(f"{name}: {error}", file=sys.stderr)
            return 3
    Console(width=None if sys.stdout.isatty() else 130).print(table(reports))
    if options.json:
        document = {
            "schema": 1,
            "python": platform.python_version(),
            "spin_options": SPIN_OPTIONS,
            "compile_options": COMPILE_OPTIONS,
            "repeat": options.repeat,
            "instances": reports,
        }
        options.json.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    differing = [entry["instance"] for entry in reports if not entry["equal"]]
    for name in differing:
        print(f"{name}: the engines' counts differ", file=sys.stderr)
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
