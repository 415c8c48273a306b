"""The command ``check``."""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import sys
import traceback
from collections.abc import Sequence
from typing import NoReturn

from checker import commands
from checker.words import EXIT_CODES, VERDICTS

EXIT_OK, EXIT_VIOLATED, EXIT_INPUT, EXIT_INCONCLUSIVE, EXIT_INTERRUPTED = 0, 1, 2, 3, 130

DESCRIPTION = """\
Can this admission policy make a request preempt itself, or make the engine livelock or deadlock?
Explores every reachable state of a scenario and answers with the shortest run that shows it, or
with the verdict that none does.
"""

EPILOG = """\
verdicts
{verdicts}

exit codes
{codes}

examples
  check --policy prompt-only                  the gate as vLLM ships it, under both schedulers
  check --policy first-decode-step            the corrected gate
  check --policy gates.py:MyGate --scheduler rbln
  check --preset vllm-eagle --usable-blocks 5 --request id=v,prompt=26..33,max_tokens=4
  check --scenario deployment.toml --format json
  check --all-policies                        every policy side by side
""".format(
    verdicts="\n".join(f"  {name:<13} {evidence}" for name, evidence in VERDICTS.items()),
    codes="\n".join(f"  {code:<4} {meaning}" for code, meaning in EXIT_CODES.items()),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    names = command_names()
    try:
        if arguments and arguments[0] in names:
            return _subcommand(arguments[0], arguments[1:])
        return _check(arguments, names)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        sys.stderr.close()
        return EXIT_OK


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(EXIT_INPUT, f"{self.prog}: {message}; {self.prog} --help has all options\n")


def command_names() -> list[str]:
    """The subcommands, each a module of ``checker.commands``."""
    return sorted(
        module.name.replace("_", "-")
        for module in pkgutil.iter_modules(commands.__path__)
        if module.name != "check"
    )


def _subcommand(name: str, arguments: list[str]) -> int:
    module = importlib.import_module(f"checker.commands.{name.replace('-', '_')}")
    parser = _Parser(prog=f"check {name}", description=module.HELP)
    module.configure(parser)
    args = parser.parse_args(arguments)
    try:
        code: int = module.run(args)
    except BrokenPipeError:
        raise
    except OverflowError as error:
        print(f"check {name}: no verdict: {error}", file=sys.stderr)
        return EXIT_INCONCLUSIVE
    except Exception:  # exit code 1 means a violation, never this
        traceback.print_exc()
        print(f"check {name}: a fault of the checker, please report it", file=sys.stderr)
        return EXIT_INCONCLUSIVE
    return code


def _check(arguments: list[str], names: list[str]) -> int:
    from checker.commands import check

    lines = []
    for name in names:
        module = importlib.import_module(f"checker.commands.{name.replace('-', '_')}")
        lines.append(f"  check {name:<10} {module.HELP}")
    parser = _Parser(
        prog="check",
        description=DESCRIPTION,
        epilog=EPILOG + "\nother commands (each has its own --help)\n" + "\n".join(lines),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    check.configure(parser)
    code: int = check.run(parser.parse_args(arguments))
    return code


if __name__ == "__main__":
    sys.exit(main())
