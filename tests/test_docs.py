"""The pages say what the tool does: every ``check`` command in them is run, every figure compared."""

from __future__ import annotations

import json
import re
import runpy
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from command import Outcome, check, document
from jsonschema import Draft202012Validator

from checker.cli import command_names
from checker.fields import FIELDS, REQUEST_FIELDS
from checker.scenario import preset_names
from models.gates import GATES
from properties.properties import PROPERTIES

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TIME = re.compile(r"[\d.]+ s \([\d,]+ transitions/s\)")


@dataclass(frozen=True, slots=True)
class Quote:
    """A command of a page with what the page says that it prints, and its exit code."""

    page: Path
    command: str
    lines: tuple[str, ...]
    code: int | None


def quotes(page: Path) -> Iterator[Quote]:
    """The commands of a page's ``console`` blocks."""
    for language, text in BLOCK.findall(page.read_text(encoding="utf-8")):
        if language != "console":
            continue
        parts = re.split(r"^\$ ", text, flags=re.MULTILINE)
        assert parts[0] == "", f"{page.name}: a console block begins with a command"
        commands = [part.split("\n") for part in parts[1:]]
        for (command, *lines), following in zip(commands, [*commands[1:], [""]], strict=True):
            code = int(following[1]) if following[0] == "echo $?" else None
            if command != "echo $?":
                quoted = tuple(line for line in lines if line.strip() not in ("", "...", "…"))
                yield Quote(page, command, quoted, code)


QUOTES = [quote for page in PAGES for quote in quotes(page)]


def words(command: str) -> list[str]:
    """A command's arguments; double quotes keep one together."""
    return [quoted or plain for quoted, plain in re.findall(r'"([^"]*)"|(\S+)', command)]


def flat(line: str) -> str:
    """A line without what differs between two runs: times, and blanks that align."""
    return " ".join(TIME.sub("TIME", line).split())


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with the repository's data and the files of the pages in it."""
    for name in ("tests", "docs"):
        (tmp_path / name).symlink_to(ROOT / name)
    for page in PAGES:
        for _, text in BLOCK.findall(page.read_text(encoding="utf-8")):
            if named := re.match(r"# (\S+\.(?:py|toml))\n", text):
                (tmp_path / named[1]).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("quote", QUOTES, ids=lambda quote: f"{quote.page.name}: {quote.command}")
def test_a_command_of_a_page_does_what_the_page_says(quote: Quote, folder: Path) -> None:
    program, *arguments = words(quote.command)
    assert program == "check"
    outcome: Outcome = check.__wrapped__(*arguments)
    assert "Traceback" not in outcome.err
    if quote.code is None:
        assert outcome.code in ((2,) if outcome.err.startswith("check: ") else (0, 1))
    else:
        assert outcome.code == quote.code
    printed = iter([flat(line) for line in (outcome.out + outcome.err).splitlines()])
    for line in quote.lines:
        assert any(says(line, one) for one in printed), f"not printed, or not in order: {line}"


def says(quoted: str, printed: str) -> bool:
    """Whether a line is the quoted one; an ellipsis stands for the rest of it."""
    start, ellipsis, _ = quoted.partition("…")
    return printed.startswith(flat(start)) if ellipsis else printed == flat(quoted)


def test_the_pages_quote_commands() -> None:
    assert {quote.page.name for quote in QUOTES} >= {
        "README.md",
        "guide.md",
        "policies.md",
        "scenarios.md",
        "json.md",
    }
    assert all(quote.lines for quote in QUOTES)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8")):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target


# --- the README ------------------------------------------------------------------------------

README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_two_commands_of_the_readme() -> None:
    first, second = (text.strip() for language, text in BLOCK.findall(README) if language == "sh")
    assert first.startswith("python3 -m venv .venv && ")
    assert first.endswith("&& .venv/bin/check --policy prompt-only")
    assert second.startswith("python3 -m venv .venv && ")
    assert second.endswith("pip install -e '.[test]' && .venv/bin/python -m pytest")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert "test" in project["optional-dependencies"]
    assert project["scripts"]["check"] == "checker.cli:main"


def schedulers(checks: list[dict[str, Any]], policy: str, name: str) -> str:
    """The schedulers under which a policy violates a property, as the table has it."""
    found = [
        checked["scenario"]["scheduler"]["scheduler"]
        for checked in checks
        if checked["scenario"]["scheduler"]["policy"] == policy
        for prop in checked["properties"]
        if prop["name"] == name and prop["verdict"] == "VIOLATED"
    ]
    return {0: "-", 1: "".join(found), 2: "both"}[len(found)]


def test_the_policy_table_of_the_readme_is_what_a_run_says() -> None:
    checks = document("--all-policies")["checks"]
    rows = re.findall(
        r"^\| `(\w[\w-]*)` \|.*\| (.+) \| (.+) \| (.+) \| (.+) \|$", README, re.MULTILINE
    )
    assert [row[0] for row in rows] == list(GATES)
    for policy, own, livelock, *thrown in rows:
        assert own == schedulers(checks, policy, "no-self-preemption")
        assert livelock == schedulers(checks, policy, "no-livelock")
        costs = [
            "no bound"
            if (most := checked["worst_case"]["tokens_thrown_away"]) is None
            else str(most)
            for checked in checks
            if checked["scenario"]["scheduler"]["policy"] == policy
        ]
        assert thrown == costs


# --- the other pages -------------------------------------------------------------------------


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def test_the_page_of_scenarios_is_current() -> None:
    current = runpy.run_path(str(ROOT / "scripts" / "scenario_docs.py"))["current"]
    assert current(page("scenarios.md")) == page("scenarios.md"), "run scripts/scenario_docs.py"


def test_the_page_of_scenarios_has_every_field_option_and_preset() -> None:
    text = page("scenarios.md")
    for field in FIELDS:
        assert f"| `{field.name}` | `{field.flag}` |" in text
        assert field.flag in check("--help").out
    for field in REQUEST_FIELDS:
        assert f"| `{field.name}` |" in text
    for name in preset_names():
        assert f"**`{name}`**" in text


def test_the_guide_explains_every_property() -> None:
    text = page("guide.md")
    for prop in PROPERTIES:
        assert f"`{prop.name}`" in text or prop.kind.value == "coverage"


def test_the_page_of_policies_has_every_gate() -> None:
    for name in GATES:
        assert f"| `{name}` |" in page("policies.md")


def test_the_page_of_the_json_document_has_every_field_of_a_step() -> None:
    (checked,) = document("--preset", "rbln")["checks"]
    text = page("json.md")
    trace = next(prop["trace"] for prop in checked["properties"] if prop["trace"])
    for field in (*checked, *trace["steps"][0]):
        assert f"`{field}`" in text or field == "step"


def test_the_program_of_the_json_page_runs(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = check("--preset", "rbln", "--format", "json")
    (folder / "out.json").write_text(outcome.out)
    with (folder / "out.json").open() as stream:
        monkeypatch.setattr("sys.stdin", stream)
        runpy.run_path(str(folder / "violated.py"))
    assert "rbln no-livelock step 4: a cycle of 2 steps, for ever" in capsys.readouterr().out


def test_the_schema_of_the_page_is_a_schema() -> None:
    Draft202012Validator.check_schema(json.loads(page("schema.json")))


def test_every_command_is_on_some_page() -> None:
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    for name in command_names():
        assert f"check {name}" in text
