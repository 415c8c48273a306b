"""Reports for other programs, read back as those read them."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from command import check, document
from markdown_it import MarkdownIt
from test_gate import HOLDS, SMALL

from checker.outputs.annotations import github_annotations
from checker.outputs.cases import Case, Outcome
from checker.outputs.junit import junit
from checker.outputs.summary import summary

PASSED = Case("suite", "name", Outcome.PASSED, "HOLDS", "9 states")
FAILED = replace(PASSED, outcome=Outcome.FAILED, verdict="VIOLATED", message="step 1: lost")
UNKNOWN = replace(PASSED, outcome=Outcome.INCONCLUSIVE, verdict="INCONCLUSIVE", message="limit")
AWKWARD = 'a|b <b>&amp; `x` *y* [z](u) #1 @u \\| "q" % \x1b[31m\x00 %0A : , 한'


# --- JUnit XML -------------------------------------------------------------------------------------


def test_junit_counts_failures_and_errors_and_skips_nothing() -> None:
    root = ElementTree.fromstring(junit([PASSED, FAILED, UNKNOWN, replace(FAILED, group="other")]))
    assert {name: root.get(name) for name in ("tests", "failures", "errors", "skipped")} == {
        "tests": "4",
        "failures": "2",
        "errors": "1",
        "skipped": "0",
    }
    assert [suite.get("tests") for suite in root] == ["3", "1"]
    tags = [[child.tag for child in case] for case in root.iter("testcase")]
    assert tags == [["system-out"], ["failure"], ["error"], ["failure"]]
    assert root.find(".//skipped") is None


def test_junit_takes_any_text() -> None:
    case = replace(FAILED, name=AWKWARD, message=AWKWARD, group=AWKWARD)
    found = ElementTree.fromstring(junit([case])).find(".//testcase")
    assert found is not None
    clean = AWKWARD.replace("\x1b", "\ufffd").replace("\x00", "\ufffd")
    assert found.get("name") == clean
    failure = found.find("failure")
    assert failure is not None
    assert failure.get("message") == clean


def test_junit_of_a_check() -> None:
    outcome = check("--preset", "rbln", "--format", "junit")
    assert outcome.code == 1
    root = ElementTree.fromstring(outcome.out)
    failed = {c.get("name") for c in root.iter("testcase") if c.find("failure") is not None}
    (checked,) = document("--preset", "rbln")["checks"]
    assert failed == {
        found["name"]
        for found in checked["properties"]
        if found["verdict"] == "VIOLATED" and found["required"]
    }
    assert root.get("tests") == str(len(checked["properties"]))
    text = root.findtext(".//failure") or ""
    assert "step 0, " in text
    assert "v needs block 3 for 33 slots, none free: preempts itself" in text


def test_a_limit_is_an_error_in_junit() -> None:
    outcome = check("--preset", "rbln", "--max-states", "5", "--format", "junit", "--no-theorems")
    assert outcome.code == 3
    root = ElementTree.fromstring(outcome.out)
    assert int(root.get("errors") or 0) > 0
    assert root.get("failures") == "0"


# --- GitHub annotations ----------------------------------------------------------------------------


def unescape(text: str) -> str:
    for code, character in (("%0D", "\r"), ("%0A", "\n"), ("%3A", ":"), ("%2C", ","), ("%25", "%")):
        text = text.replace(code, character)
    return text


def read(line: str) -> tuple[dict[str, str], str]:
    """An annotation as GitHub's runner takes it apart."""
    head, message = line.removeprefix("::error ").split("::", 1)
    pairs = (pair.split("=", 1) for pair in head.split(","))
    return {name: unescape(value) for name, value in pairs}, unescape(message)


@pytest.mark.parametrize("text", [AWKWARD, "a\nb\r\nc", "x::y,title=z", "100%", "%250A"])
def test_an_annotation_says_what_was_written(text: str) -> None:
    case = replace(FAILED, name=text, message=text, file=f"{text}.toml", line=7)
    lines = github_annotations([case]).split("\n")
    assert lines[1:] == [""]
    properties, message = read(lines[0])
    assert properties == {"title": f"VIOLATED {text}", "file": f"{text}.toml", "line": "7"}
    assert message == f"suite: {text}"


def test_ten_annotations_and_one_that_counts_the_rest() -> None:
    cases = [replace(FAILED, name=f"property {number}") for number in range(23)]
    lines = github_annotations([PASSED, *cases]).splitlines()
    assert [line.partition(" ")[0] for line in lines] == ["::error"] * 10 + ["::notice"]
    assert "13 more" in lines[-1]
    assert len(github_annotations(cases[:10]).splitlines()) == 10
    assert github_annotations([PASSED]) == ""


def test_one_annotation_for_a_property_of_several_instances() -> None:
    (line,) = github_annotations([FAILED, replace(FAILED, group="other")]).splitlines()
    assert read(line)[1] == "suite: step 1: lost\nalso: other"


def test_the_annotations_follow_the_text() -> None:
    outcome = check("--preset", "rbln", "--format", "github")
    assert "no-livelock" in outcome.out.split("::error")[0]
    assert outcome.out.count("::error title=VIOLATED no-livelock::") == 1


# --- Markdown --------------------------------------------------------------------------------------


def tables(text: str) -> list[list[list[str]]]:
    """The cells of the tables of a page, as text."""
    found: list[list[list[str]]] = []
    for token in MarkdownIt("commonmark").enable("table").parse(text):
        if token.type == "table_open":
            found.append([])
        elif token.type == "tr_open":
            found[-1].append([])
        elif token.type == "inline" and token.level > 2 and found:
            found[-1][-1].append("".join(words(child) for child in token.children or ()))
    return found


def words(token: Any) -> str:
    return "\n" if token.content == "<br>" else str(token.content)


def test_any_text_stands_in_a_cell_as_it_is() -> None:
    clean = AWKWARD.replace("\x00", "")
    case = replace(PASSED, name=clean, message=clean + "\nsecond line")
    ((_, row),) = tables(summary([case]))
    assert row == ["✅", clean, "HOLDS", clean + "\nsecond line"]


def test_the_summary_has_the_trace_as_a_table(tmp_path: Path) -> None:
    path = tmp_path / "summary.md"
    outcome = check.__wrapped__("--preset", "rbln", "-o", str(path))
    assert "no-livelock" in outcome.out
    text = path.read_text(encoding="utf-8")
    verdicts, *runs = tables(text)
    (checked,) = document("--preset", "rbln")["checks"]
    assert [row[1] for row in verdicts[1:]] == [one["name"] for one in checked["properties"]]
    assert len(runs) == 3
    trace = next(one for one in checked["properties"] if one["name"] == "no-livelock")["trace"]
    assert runs[1][0] == ["step", "what happened", "a", "b", "v", "free"]
    assert [row[1].split("\n") for row in runs[1][1:]] == [step["what"] for step in trace["steps"]]
    assert [row[0] for row in runs[1][1:]] == ["0", "1", "2", "3", "↻ 4", "↻ 5"]


def test_a_long_summary_says_what_it_leaves_out() -> None:
    text = summary([replace(FAILED, name=f"n{number}", details=("d",)) for number in range(12)])
    assert "2 more are not shown here." in text
    assert text.startswith("## kvgate: 12 failed\n")


# --- the action ------------------------------------------------------------------------------------

ROOT = Path(__file__).parent.parent


def test_the_action_runs_a_command_that_there_is(tmp_path: Path) -> None:
    """What its last step runs, on a file of its own."""
    script = (ROOT / "action.yml").read_text(encoding="utf-8").rpartition("run: |\n")[2]
    (tmp_path / "obligations.toml").write_text(HOLDS + SMALL, encoding="utf-8")
    names = {
        "OBLIGATIONS": "obligations.toml",
        "SELECT": "*",
        "JUNIT": "junit.xml",
        "GITHUB_STEP_SUMMARY": "summary",
    }
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "check").symlink_to(Path(sys.executable).parent / "check")
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=tmp_path,
        env=os.environ | names | {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert ElementTree.parse(tmp_path / "junit.xml").getroot().get("tests") == "1"
    assert (tmp_path / "summary").read_text(encoding="utf-8").startswith("## kvgate: 1 passed")
    assert (tmp_path / ".kvgate_cache" / "verdicts.sqlite").is_file()


def test_inputs_reach_the_shell_only_through_its_environment() -> None:
    """An expression inside a script could be made to run something else."""
    text = (ROOT / "action.yml").read_text(encoding="utf-8")
    scripts = [line for line in text.splitlines() if line.strip().startswith(("run:", "check"))]
    assert scripts
    assert not any("${{" in line for line in scripts)
