"""``check completion``: a completion script for a shell."""

from __future__ import annotations

import argparse

NAME = "completion"
HELP = "print a completion script for bash, zsh or fish"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the argument."""
    parser.add_argument("shell", choices=("bash", "zsh", "fish"))


def run(args: argparse.Namespace) -> int:
    """Print the script."""
    from checker.completion import script

    print(script(args.shell), end="")
    return 0
