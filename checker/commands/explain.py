"""``check explain``: what a name means."""

from __future__ import annotations

import argparse
import shutil
import sys
from textwrap import wrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from checker.explain import Entry

NAME = "explain"
HELP = "what a rule, property, theorem, policy, verdict, exit code or term means"
PIPE_WIDTH = 100


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "name",
        nargs="*",
        metavar="NAME",
        help="such as R6, no-livelock, 'theorem 2', 'exit code 3', watermark; none: list all",
    )


def run(args: argparse.Namespace) -> int:
    """Print what a name means; 2 if it means nothing."""
    from checker.explain import entries, explain, suggestions

    if not args.name:
        _print_list(entries())
        return 0
    name = " ".join(args.name)
    found = explain(name)
    if not found:
        close = suggestions(name)
        hint = f"did you mean {', '.join(close)}?" if close else "'check explain' lists all names"
        print(f"check explain: nothing is called {name!r}; {hint}", file=sys.stderr)
        return 2
    print("\n\n".join(_words(entry) for entry in found))
    return 0


def _words(entry: Entry) -> str:
    lines = [f"{entry.name} ({entry.kind})", *_wrapped(entry.text, "  ", "  ")]
    for what, text in entry.details:
        lines += _wrapped(f"{what}: {text}", "  ", "    ")
    return "\n".join(lines)


def _print_list(found: list[Entry]) -> None:
    kind = ""
    width = max(len(entry.name) for entry in found) + 4
    for entry in found:
        if entry.kind != kind:
            print(("\n" if kind else "") + entry.kind)
            kind = entry.kind
        first = wrap(entry.text, max(_width() - width, 24))
        more = " …" if len(first) > 1 else ""
        print(f"  {entry.name}".ljust(width) + first[0] + more)


def _wrapped(text: str, first: str, rest: str) -> list[str]:
    return wrap(
        text,
        _width(),
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _width() -> int:
    if not sys.stdout.isatty():
        return PIPE_WIDTH
    return max(40, min(shutil.get_terminal_size().columns, PIPE_WIDTH))
