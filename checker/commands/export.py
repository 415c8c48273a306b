"""``check export``: a counterexample as a test for the scheduler's own test folder."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

NAME = "export"
HELP = "write a counterexample as a self-contained test of the real scheduler"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("trace", type=Path, metavar="TRACE", help="what check --format json wrote")
    parser.add_argument("--as", dest="form", choices=("pytest",), default="pytest")
    parser.add_argument("--scheduler", choices=("vllm", "rbln"), help="whose (default: the first)")
    parser.add_argument(
        "--property", metavar="NAME", help="whose counterexample (default: the first violated)"
    )
    parser.add_argument(
        "--output", type=Path, metavar="FILE", help="where to write it (default: standard output)"
    )


def run(args: argparse.Namespace) -> int:
    """Write the test."""
    from checker.export import ExportError, pytest_file
    from checker.tracefile import TraceFileError, read

    try:
        text = pytest_file(read(args.trace, args.scheduler, args.property))
        if args.output is None:
            print(text, end="")
        else:
            args.output.write_text(text, encoding="utf-8")
    except (TraceFileError, ExportError) as error:
        print(f"check export: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"check export: {args.output}: {error.strerror}", file=sys.stderr)
        return 2
    return 0
