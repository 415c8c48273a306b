"""``docs/replay.md`` says what the commands print: its ``text`` blocks are run and compared."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from checker.cli import main
from checker.engines.driver import Engine

pytestmark = pytest.mark.engine

PAGE = Path(__file__).resolve().parents[2] / "docs" / "replay.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def commands(text: str) -> Iterator[tuple[str, list[str]]]:
    """The commands of a block, each with the lines that it is said to print."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, *lines = part.splitlines()
        yield command, lines


def test_the_page_says_what_is_printed(
    engine: Engine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    replayed = 0
    for language, text in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        if language == "toml":
            Path(text.splitlines()[0].removeprefix("# ")).write_text(text, encoding="utf-8")
        if language != "text":
            continue
        for command, lines in commands(text):
            words, _, target = command.partition(" > ")
            program, *arguments = words.split()
            assert program == "check"
            if "--engine" in arguments and engine.name not in arguments:
                continue
            code = main(arguments)
            printed = capsys.readouterr().out
            if target:
                assert code == 1
                Path(target).write_text(printed, encoding="utf-8")
                continue
            assert code == 0, printed
            replayed += 1
            rows = iter(printed.splitlines())
            for line in lines:
                assert any(row.startswith(line) for row in rows), f"{command}: {line}\n{printed}"
    assert replayed == 2
