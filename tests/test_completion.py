"""``check completion``: what each shell offers, asked of the shell itself where it is installed."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from command import check

from checker.cli import command_names
from checker.completion import commands
from checker.scenario import preset_names
from models.gates import GATES

SHELLS = [shell for shell in ("bash", "zsh", "fish") if shutil.which(shell)]


@cache
def script(shell: str) -> str:
    outcome = check("completion", shell)
    assert outcome.code == 0
    assert outcome.err == ""
    return outcome.out


def bash(words: tuple[str, ...], folder: Path) -> str:
    return f"""{script("bash")}
COMP_WORDS=({" ".join(f"'{word}'" for word in words)}); COMP_CWORD={len(words) - 1}
_check
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


def zsh(words: tuple[str, ...], folder: Path) -> str:
    current = f"'{words[-1]}'"
    return f"""compdef() {{ }}
compadd() {{ shift; for word; do [[ $word == {current}* ]] && print -r -- "$word"; done }}
_files() {{ for word in {current}*(N); do print -r -- "$word"; done }}
{script("zsh")}
words=({" ".join(f"'{word}'" for word in words)}); CURRENT={len(words)}
_check
"""


def fish(words: tuple[str, ...], folder: Path) -> str:
    return f"""{script("fish")}
complete -C '{" ".join(words)}' | string replace -r '\\t.*' ''
"""


ASK: dict[str, Callable[[tuple[str, ...], Path], str]] = {"bash": bash, "zsh": zsh, "fish": fish}


def offered(shell: str, folder: Path, *words: str) -> list[str]:
    """What a shell offers for the last word of a command line."""
    options = {"bash": ["--norc"], "zsh": ["-f"], "fish": ["--no-config"]}[shell]
    done = subprocess.run(
        [shell, *options, "-c", ASK[shell](("check", *words), folder)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.stderr == ""
    return sorted(line for line in done.stdout.splitlines() if line)


def test_bash_is_there_to_be_asked() -> None:
    assert "bash" in SHELLS


@pytest.mark.parametrize("shell", SHELLS)
def test_what_a_shell_offers(shell: str, tmp_path: Path) -> None:
    (tmp_path / "first-gates.py").touch()
    for words, expected in (
        (("--preset", "vllm-"), [name for name in preset_names() if name.startswith("vllm-")]),
        (("--preset", "rbln", "--max-st"), ["--max-states"]),
        (("ex",), [name for name in command_names() if name.startswith("ex")]),
        (("prove", "--theo"), ["--theorem"]),
        (
            ("--policy", "first-"),
            ["first-decode-step", "first-decode-step-always", "first-gates.py"],
        ),
        (("--scenario", "first-"), ["first-gates.py"]),
        (("--scheduler", "r"), ["rbln"]),
        (("--scheduling-policy", "p"), ["priority"]),
        (("--eos", "t"), ["true"]),
        (("--trace", "no-self"), ["no-self-preemption", "no-self-preemption-strict"]),
        (("explain", "R21"), ["R21", "R21b"]),
        (("conform", "first"), ["first-gates.py"]),
        (("completion", "z"), ["zsh"]),
        (("--max-states", "x"), []),
    ):
        assert offered(shell, tmp_path, *words) == expected, words


def test_every_option_of_every_command_is_offered(tmp_path: Path) -> None:
    for command in commands():
        words = (command.name, "--") if command.name else ("--",)
        flags = {flag for option in command.options for flag in option.flags if flag[1] == "-"}
        assert "--help" in flags
        assert set(offered("bash", tmp_path, *words)) == flags
    assert set(offered("bash", tmp_path, "")) == set(command_names())


def test_every_command_is_completed_and_the_policies_are_offered_where_one_is_asked_for() -> None:
    found = {command.name: command for command in commands()}
    assert set(found) == {"", *command_names()}
    for command in found.values():
        for option in command.options:
            if option.flags[-1] == "--policy" and option.values is not None:
                assert set(GATES) <= set(option.values.words)


def test_an_unknown_shell_is_refused() -> None:
    outcome = check("completion", "tcsh")
    assert outcome.code == 2
    assert "invalid choice: 'tcsh'" in outcome.err
