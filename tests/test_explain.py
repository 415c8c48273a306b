"""``check explain`` and ``--version``: every name, one source for every text."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from command import check

from checker import explain as explain_module
from checker.cli import EPILOG, EXIT_INCONCLUSIVE, EXIT_INPUT, EXIT_INTERRUPTED, EXIT_VIOLATED
from checker.explain import entries, explain
from checker.words import EXIT_CODES, HELD_AGAINST, VERDICTS
from models.gates import GATES, FirstDecodeStep
from properties.properties import PROPERTIES
from properties.theorems import obligations
from properties.verdict import Verdict

ROOT = Path(__file__).parent.parent


def names(kind: str) -> list[str]:
    return [entry.name for entry in entries() if entry.kind == kind]


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def test_everything_that_there_is_has_an_entry() -> None:
    assert names("property") == [prop.name for prop in PROPERTIES]
    assert names("policy") == list(GATES)
    assert set(names("verdict")) == {verdict.value for verdict in Verdict}
    assert names("exit code") == ["0", "1", "2", "3", "130"]
    assert names("rule") == re.findall(r"^\| \*\*(R\d+b?)\*\* \|", page("rules.md"), re.MULTILINE)
    assert len(names("rule")) > 30
    assert names("theorem") == [str(number) for number in range(1, 8)]
    proved = obligations(FirstDecodeStep(), groups=(1,))
    assert names("obligation") == [obligation.name for obligation in proved]
    terms = re.findall(r"^\| (.+?) \| ", page("terms.md"), re.MULTILINE)[1:]
    assert [term.split(" (")[0] for term in terms] == names("term")


def test_every_entry_says_something_and_is_found_by_each_name() -> None:
    for entry in entries():
        assert len(entry.text) > 5
        assert all(text for _, text in entry.details)
        assert "`" not in entry.text
        for name in (entry.name, f"{entry.kind} {entry.name}", *entry.aliases):
            assert entry in explain(name.upper())


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("R6", "R6 (rule)"),
        ("r21B", "R21b (rule)"),
        ("no-livelock", "of the kind: liveness"),
        ("theorem 2", "failing-set-is-no-smaller"),
        ("gate first-decode-step", "counts: min(num_tokens + 1 + k + L, M) if k > 0"),
        ("INCONCLUSIVE", "a limit was met"),
        ("exit code 130", "interrupted"),
        ("L", "slots allocated past the scheduled tokens"),
        ("admission_window", "admission window (term)"),
        ("--usable-blocks", "in a scenario file: pool.usable_blocks"),
    ],
)
def test_a_name(asked: str, said: str) -> None:
    outcome = check("explain", *asked.split()) if asked[0] != "-" else check("explain", "--", asked)
    assert outcome.code == 0
    assert outcome.err == ""
    assert said in outcome.out
    assert max(map(len, outcome.out.splitlines())) <= 100


def test_a_name_that_means_several_things_has_them_all() -> None:
    out = check("explain", "3").out
    assert "3 (exit code)" in out
    assert "3 (theorem)" in out


def test_without_a_name_everything_is_listed() -> None:
    outcome = check("explain")
    assert outcome.code == 0
    for entry in entries():
        assert f"\n  {entry.name} " in outcome.out


def test_an_unknown_name() -> None:
    close = check("explain", "no-livelok")
    assert close.code == 2
    assert close.out == ""
    assert close.err.startswith(
        "check explain: nothing is called 'no-livelok'; did you mean no-livelock, "
    )
    assert "lists all names" in check("explain", "zzzz").err


def test_the_texts_are_those_of_the_code_and_of_the_pages() -> None:
    (rule,) = explain("R16")
    assert f"| **R16** | {rule.text} |" in page("rules.md")
    for prop in PROPERTIES:
        assert explain(prop.name)[0].text == prop.statement
    for name, evidence in VERDICTS.items():
        assert f"| {name} | {evidence} |" in (ROOT / "README.md").read_text(encoding="utf-8")
        assert evidence in EPILOG
    assert {EXIT_VIOLATED, EXIT_INPUT, EXIT_INCONCLUSIVE, EXIT_INTERRUPTED} < set(EXIT_CODES)


def test_version_names_the_releases_that_the_page_of_rules_names() -> None:
    lines = check("--version").out.splitlines()
    assert re.fullmatch(r"kvgate \d+\.\d+\.\d+", lines[0])
    (versions,) = re.findall(r"^- Versions: (.*)$", page("rules.md"), re.MULTILINE)
    for line, (name, releases) in zip(lines[1:], HELD_AGAINST.items(), strict=True):
        assert line == f"model held against {name} {', '.join(releases)}"
        for release in releases:
            assert release.split()[0] in versions


def test_the_pages_are_in_the_wheel(tmp_path: Path) -> None:
    """What a build puts beside the code is what is read where there is no checkout."""
    build = (
        "import sys; sys.argv = ['setup.py', '-q', 'build_py', '--build-lib', sys.argv[1]]\n"
        "exec(open('setup.py').read(), {'__file__': 'setup.py', '__name__': '__main__'})"
    )
    copy = tmp_path / "copy"
    for name in ("checker", "models", "properties", "docs"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.py", "pyproject.toml", "README.md", "pytest_kvgate.py"):
        shutil.copy(ROOT / name, copy / name)
    built = tmp_path / "built"
    subprocess.run([sys.executable, "-c", build, str(built)], cwd=copy, check=True)
    assert {path.name for path in (built / "checker" / "docs").iterdir()} == set(
        explain_module.PAGES
    )
    run = (
        "import checker; from checker.explain import explain\n"
        "print(explain('R6')[0].name, checker.__file__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", run], cwd=built, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["R6", str(built / "checker" / "__init__.py")]
