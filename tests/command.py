"""Running ``check`` in tests: in this process, or as a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import cache
from io import StringIO
from typing import Any

from checker.cli import main

CHECK = (sys.executable, "-m", "checker.cli")


@dataclass(frozen=True, slots=True)
class Outcome:
    """Exit code and output of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The output as a JSON document."""
        return json.loads(self.out)


@cache
def check(*arguments: str) -> Outcome:
    """``check`` in this process, its output taken as a pipe; the same arguments run once."""
    out, err = StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            code = main(arguments)
        except SystemExit as stop:
            code = int(stop.code or 0)
    return Outcome(code, out.getvalue(), err.getvalue())


def document(*arguments: str) -> Any:
    """The JSON document of a run, whatever its exit code."""
    return check(*arguments, "--format", "json").json


def run(*arguments: str, **environment: str) -> Outcome:
    """``check`` as a process of its own."""
    done = subprocess.run(
        [*CHECK, *arguments],
        capture_output=True,
        encoding="utf-8",
        env=os.environ | environment,
        timeout=120,
        check=False,
    )
    return Outcome(done.returncode, done.stdout, done.stderr)
