"""``check conform``: the model held against recorded runs of the real schedulers."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from checker.conform import Comparison

NAME = "conform"
HELP = "hold the model against recorded runs of the real schedulers"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "paths", nargs="+", type=Path, metavar="PATH", help="a recorded run (JSON), or a folder"
    )
    parser.add_argument(
        "--engine",
        choices=("vllm", "rbln"),
        help="play the runs on the installed release instead: which rules it keeps, where it departs",
    )
    parser.add_argument(
        "--record",
        type=Path,
        metavar="FOLDER",
        help="with --engine: write what the installed release does, as recorded runs",
    )
    parser.add_argument("--format", choices=("text", "json"), default="text")


def run(args: argparse.Namespace) -> int:
    """Compare every run; 0 only if at least one was compared and all agree."""
    if args.record and not args.engine:
        print("check conform: --record needs --engine", file=sys.stderr)
        return 2
    if args.engine:
        return _record(args) if args.record else _survey(args)
    from checker.conform import RecordError, compare

    try:
        comparisons = [compare(path) for path in _files(args.paths)]
    except RecordError as error:
        print(f"check conform: {error}", file=sys.stderr)
        return 2
    compared = [comparison for comparison in comparisons if comparison.not_covered is None]
    different = [comparison for comparison in compared if comparison.mismatch is not None]
    if args.format == "json":
        _print_json(comparisons)
    else:
        _print_text(comparisons, compared, different)
    if not compared:
        print("check conform: no run that the model covers", file=sys.stderr)
        return 2
    return 1 if different else 0


def _survey(args: argparse.Namespace) -> int:
    """The installed release against the recorded runs."""
    from checker.conform import RecordError
    from checker.engines.driver import EngineError, load
    from checker.releases import survey
    from checker.releases_view import survey_document, survey_text

    try:
        engine = load(args.engine)
        found = survey(engine, _files(args.paths))
    except (RecordError, EngineError) as error:
        print(f"check conform: {error}", file=sys.stderr)
        return 2
    if not found.runs:
        print(
            f"check conform: no recorded run of {args.engine} that the model covers",
            file=sys.stderr,
        )
        return 2
    if args.format == "json":
        print(json.dumps(survey_document(engine, found), indent=1))
    else:
        survey_text(engine, found)
    return 1 if found.departing else 0


def _record(args: argparse.Namespace) -> int:
    """Write what the installed release does with the scenarios of recorded runs."""
    from checker.conform import RecordError
    from checker.engines.driver import EngineError, load
    from checker.releases import record_again

    try:
        engine = load(args.engine)
        args.record.mkdir(parents=True, exist_ok=True)
        written = 0
        for path in _files(args.paths):
            if (run := record_again(engine, path)) is not None:
                target = args.record / f"{path.parent.name}-{path.name}"
                target.write_text(json.dumps(run, separators=(",", ":")) + "\n", encoding="utf-8")
                written += 1
    except (RecordError, EngineError) as error:
        print(f"check conform: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"check conform: {args.record}: {error.strerror}", file=sys.stderr)
        return 2
    print(f"{written} runs of {engine.name} {engine.release} written to {args.record}")
    return 0 if written else 2


def _files(paths: Sequence[Path]) -> list[Path]:
    from checker.conform import RecordError

    files: list[Path] = []
    for path in paths:
        found = sorted(path.rglob("*.json")) if path.is_dir() else [path]
        if not found:
            raise RecordError(f"{path}: no recorded run (*.json) in this folder")
        files += found
    return files


def _print_text(
    comparisons: Sequence[Comparison],
    compared: Sequence[Comparison],
    different: Sequence[Comparison],
) -> None:
    steps = sum(comparison.steps for comparison in compared)
    print(
        f"{len(compared)} runs compared, {steps:,} steps, {len(different)} mismatches; "
        f"{len(comparisons) - len(compared)} runs not covered"
    )
    missing = Counter(c.not_covered for c in comparisons if c.not_covered is not None)
    for feature, count in missing.most_common():
        print(f"  not covered: {count} runs with {feature}")
    for comparison in different:
        assert comparison.mismatch is not None
        print(f"  {comparison.path}: step {comparison.mismatch.step}, {comparison.mismatch.field}")
    if different and different[0].mismatch is not None:
        first = different[0].mismatch
        print(f"first mismatch, step {first.step}, field {first.field}:")
        print(f"  recorded: {json.dumps(first.recorded)}")
        print(f"  model:    {json.dumps(first.modelled)}")


def _print_json(comparisons: Sequence[Comparison]) -> None:
    runs = [
        {
            "path": str(comparison.path),
            "steps": comparison.steps,
            "agrees": comparison.mismatch is None if comparison.not_covered is None else None,
            "not_covered": comparison.not_covered,
            "mismatch": None
            if (found := comparison.mismatch) is None
            else {
                "step": found.step,
                "field": found.field,
                "recorded": found.recorded,
                "modelled": found.modelled,
            },
        }
        for comparison in comparisons
    ]
    print(json.dumps({"schema_version": 1, "runs": runs}, indent=1))
