"""The pytest plugin: the fixture, its failures, and that nobody who does not use it notices it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parent.parent

TESTS = """
class Corrected:
    name = "corrected"

    def tokens(self, request):
        return request.num_tokens + 1 + request.num_spec_tokens + request.num_lookahead_tokens

class Careless:
    name = "careless"

    def tokens(self, request):
        return request.num_tokens

class Broken:
    name = "broken"

    def tokens(self, request):
        return request.no_such_number

def test_good(kvgate):
    (result,) = kvgate.assert_policy(Corrected, scheduler="rbln")
    assert result.num_states > 1000

def test_bad(kvgate):
    kvgate.assert_policy(Careless, scheduler="rbln")

def test_cut_short(kvgate):
    kvgate.assert_policy(Corrected, scheduler="rbln", max_states=10)

def test_broken(kvgate):
    kvgate.assert_policy(Broken)

def test_bad_without_the_fixture():
    from checker.testing import assert_policy
    assert_policy(Careless, scheduler="rbln")
"""


def test_the_fixture(pytester: pytest.Pytester) -> None:
    path = pytester.makepyfile(test_own=TESTS)
    result = pytester.runpytest_subprocess("-q", "--color=no", "--junitxml=report.xml")
    result.assert_outcomes(passed=1, failed=4)
    result.stdout.fnmatch_lines(
        [
            "E * careless under rbln: VIOLATED no-livelock, no-self-preemption*",
            "E * step ? what happened*",
            "E * preempts itself, 16 tokens lost *",
            "E * corrected under rbln: INCONCLUSIVE *; the search met max_states",
        ]
    )
    out = result.stdout.str()
    line = 1 + path.read_text().splitlines().index("        return request.no_such_number")
    assert f"{path}, line {line}: AttributeError: " in out
    assert "PytestWarning" not in out
    assert "checker/assertions.py" not in out.split("test_broken")[0]
    report = Path("report.xml").read_text(encoding="utf-8")
    assert 'name="kvgate" value="corrected under rbln: HOLDS, ' in report
    assert report.count('name="kvgate"') == 1


def test_a_project_with_packages_of_the_same_names_is_left_alone(
    pytester: pytest.Pytester,
) -> None:
    for name in ("models", "properties", "checker"):
        package = pytester.mkpydir(name)
        (package / "__init__.py").write_text("OURS = True\n", encoding="utf-8")
    pytester.makepyfile(
        test_own="def test_own():\n"
        "    import checker, models, properties\n"
        "    assert checker.OURS and models.OURS and properties.OURS\n"
    )
    result = pytester.runpytest_subprocess("-q", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=1)


def test_the_plugin_imports_nothing_but_pytest() -> None:
    program = (
        "import sys, pytest; before = set(sys.modules)\n"
        "import pytest_kvgate\n"
        "print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["pytest_kvgate"]


def test_the_plugin_is_registered(pytestconfig: pytest.Config) -> None:
    assert pytestconfig.pluginmanager.has_plugin("kvgate")


def test_the_tests_of_the_page_pass(pytester: pytest.Pytester) -> None:
    page = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(# (test_\w+)\.py\n.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert [name for _, name in blocks] == ["test_gate", "test_drawn", "test_scheduler"]
    pytester.makepyfile(**{name: text for text, name in blocks})
    result = pytester.runpytest_subprocess("-q", "-p", "no:cacheprovider", "-W", "error")
    result.assert_outcomes(passed=5)
