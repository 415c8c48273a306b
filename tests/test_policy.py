"""Policies by name and from one's own code: what is loaded, what is refused, what is said."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest
from command import check, document

from checker.policy import PolicyError, load_gate
from models.arithmetic import Symbol
from models.gates import GATES, Admission

REQUEST = Admission(num_tokens=30, num_spec_tokens=3, num_lookahead_tokens=0, max_model_len=96)

MARGIN = """
from models.arithmetic import minimum

class Margin:
    name = "margin"

    def tokens(self, request):
        first_decode = 1 + request.num_spec_tokens + request.num_lookahead_tokens
        return minimum(request.num_tokens + first_decode, request.max_model_len)
"""


@pytest.fixture
def gate_file(tmp_path: Path) -> Path:
    path = tmp_path / "gates.py"
    path.write_text(MARGIN)
    return path


def write(tmp_path: Path, body: str, name: str = "own") -> str:
    """A policy whose ``tokens`` has this body."""
    path = tmp_path / f"{name}.py"
    lines = "\n".join(f"        {line}" for line in body.splitlines())
    path.write_text(
        f"import random\nimport time\n\n\nclass Own:\n    name = 'own'\n\n"
        f"    def tokens(self, request):\n{lines}\n"
    )
    return f"{path}:Own"


def refused(policy: str) -> str:
    """The one line that is said of a policy that cannot be used."""
    outcome = check("--preset", "vllm", "--policy", policy)
    assert outcome.code == 2
    assert outcome.out == ""
    (line,) = outcome.err.splitlines()
    assert line.startswith(f"check: policy {policy!r}: ")
    return line.removeprefix(f"check: policy {policy!r}: ")


# --- what is loaded --------------------------------------------------------------------------


@pytest.mark.parametrize("name", GATES)
def test_a_shipped_gate_by_name(name: str) -> None:
    assert load_gate(name) is GATES[name]


def test_a_class_of_a_file(gate_file: Path) -> None:
    gate = load_gate(f"{gate_file}:Margin")
    assert gate.name == "margin"
    assert gate.tokens(REQUEST) == 34


def test_a_class_of_a_module() -> None:
    assert load_gate("models.gates:PromptOnly").tokens(REQUEST) == 30


def test_a_class_of_a_module_in_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gates_of_this_test.py").write_text(MARGIN)
    monkeypatch.chdir(tmp_path)
    assert load_gate("gates_of_this_test:Margin").name == "margin"


def test_an_instance_will_do_in_place_of_a_class(tmp_path: Path) -> None:
    path = tmp_path / "gates.py"
    path.write_text(MARGIN + "\n\nready = Margin()\n")
    assert load_gate(f"{path}:ready").tokens(REQUEST) == 34


def test_a_gate_may_make_no_test(tmp_path: Path) -> None:
    policy = write(tmp_path, "return None")
    theirs = document("--preset", "rbln", "--policy", policy)["checks"][0]
    ours = document("--preset", "rbln", "--policy", "none")["checks"][0]
    assert theirs["search"]["states"] == ours["search"]["states"]


def test_ones_own_gate_is_checked_like_a_shipped_one(gate_file: Path) -> None:
    outcome = check("--policy", f"{gate_file}:Margin")
    assert outcome.code == 0
    assert "vllm 0.32, margin: 7 blocks" in outcome.out
    assert "rbln 0.12.0, margin: 7 blocks" in outcome.out
    theirs = document("--policy", f"{gate_file}:Margin")["checks"]
    ours = document("--policy", "first-decode-step")["checks"]
    for mine, shipped in zip(theirs, ours, strict=True):
        assert mine["scenario"]["scheduler"]["policy"] == f"{gate_file}:Margin"
        assert mine["properties"] == shipped["properties"]
        assert mine["worst_case"] == shipped["worst_case"]


def test_a_gate_may_look_at_everything_that_it_is_given(tmp_path: Path) -> None:
    policy = write(
        tmp_path,
        "assert request.num_spec_tokens == 3\n"
        "assert request.max_model_len == 96\n"
        "return request.num_tokens + request.num_lookahead_tokens",
    )
    theirs = document("--preset", "vllm-eagle", "--policy", policy)["checks"][0]
    ours = document("--preset", "vllm-eagle", "--policy", "lookahead-only")["checks"][0]
    assert theirs["properties"] == ours["properties"]


def test_a_slow_gate_is_asked_twice_for_a_request_and_no_more(tmp_path: Path) -> None:
    policy = write(tmp_path, "time.sleep(0.05)\nreturn request.num_tokens + 7")
    gate = load_gate(policy)
    started = time.monotonic()
    for _ in range(1000):
        assert gate.tokens(REQUEST) == 37
    assert time.monotonic() - started < 5.0


class Unknown(Symbol):
    """A symbol that does nothing but add."""

    def __add__(self, other):  # type: ignore[no-untyped-def]
        return self

    __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __add__
    __lt__ = __le__ = __gt__ = __ge__ = __add__

    def cdiv(self, numerator, divisor):  # type: ignore[no-untyped-def]
        return self


def test_symbols_reach_the_gate_as_they_are(tmp_path: Path) -> None:
    gate = load_gate(write(tmp_path, "return request.num_tokens + 7"))
    symbol = Unknown()
    assert gate.tokens(replace(REQUEST, num_tokens=symbol)) is symbol
    assert gate.tokens(replace(REQUEST, num_spec_tokens=symbol)) == 37


# --- what is refused -------------------------------------------------------------------------


def test_an_unknown_name_lists_the_known_ones() -> None:
    line = refused("prompt-olny")
    assert line.startswith("no such gate; there are none, prompt-only, lookahead-only,")
    assert line.endswith("package.module:Class or path/to/file.py:Class")


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        ("nowhere.py:Gate", "no file nowhere.py"),
        ("no_such_module:Gate", "no module 'no_such_module'"),
        ("models.gates:Nope", "models.gates has no Nope"),
        ("models.gates:", "no such gate"),
        (":Gate", "no such gate"),
        ("models.gates:Admission", "TypeError: Admission.__init__() missing 4"),
        ("models.gates:GATES", "not a gate; it needs a method tokens(self, request)"),
    ],
)
def test_what_is_no_gate(policy: str, said: str) -> None:
    assert said in refused(policy)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("return 1.5", "tokens() returned 1.5 for Admission(num_tokens="),
        ("return '34'", "tokens() returned '34' for Admission(num_tokens="),
        ("return True", "tokens() returned True for Admission(num_tokens="),
        ("return request.num_tokens / 2", "tokens() returned 15.0 for Admission(num_tokens=30"),
        ("return request", "tokens() returned Admission(num_tokens="),
        ("return random.random() < 2", "tokens() returned True for"),
        ("raise ValueError('no')", "line 9: ValueError: no"),
        ("return request.num_tokens // 0", "line 9: ZeroDivisionError: integer division"),
        ("return request.nothing", "line 9: AttributeError: 'Admission' object has no attribute"),
        ("request.num_tokens = 5\nreturn 5", "line 9: FrozenInstanceError: cannot assign"),
    ],
)
def test_a_tokens_that_is_wrong_at_once(body: str, said: str, tmp_path: Path) -> None:
    assert said in refused(write(tmp_path, body))


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (
            "return 'x' if request.num_tokens == 26 else 40",
            "tokens() returned 'x' for Admission(num",
        ),
        ("return 100 // (request.num_tokens - 26)", "line 9: ZeroDivisionError"),
        ("return 2.5 if request.num_tokens == 26 else 40", "tokens() returned 2.5"),
    ],
)
@pytest.mark.parametrize("options", [(), ("--walks", "20")], ids=["search", "walks"])
def test_a_tokens_that_is_wrong_for_some_request(
    body: str, said: str, options: tuple[str, ...], tmp_path: Path
) -> None:
    policy = write(tmp_path, body)
    outcome = check("--preset", "vllm", "--policy", policy, *options)
    assert outcome.code == 2
    assert outcome.out == ""
    (line,) = outcome.err.splitlines()
    assert said in line


@pytest.mark.parametrize("options", [(), ("--walks", "20")], ids=["search", "walks"])
def test_a_tokens_that_changes_its_mind(options: tuple[str, ...], tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    path.write_text(
        "class Own:\n    name = 'own'\n    calls = 0\n\n    def tokens(self, request):\n"
        "        self.calls += request.num_tokens == 26\n"
        "        return request.num_tokens + self.calls\n"
    )
    outcome = check("--preset", "vllm", "--policy", f"{path}:Own", *options)
    assert outcome.code == 2
    assert "tokens() returned 27 and then 28 for Admission(num_tokens=26" in outcome.err
    assert outcome.err.rstrip().endswith("it must be a pure function")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("class Own:\n    name = 'own'\n", "not a gate; it needs a method tokens"),
        (
            "class Own:\n    def tokens(self, request):\n        return 1\n",
            "not a gate; it needs a class attribute name: str",
        ),
        ("class Own:\n    name = 'own'\n    tokens = 5\n", "not a gate; it needs a method tokens"),
        ("class Own\n", "SyntaxError: expected ':'"),
        ("import no_such_module\n", "no module 'no_such_module'"),
        ("raise RuntimeError('no')\n", "line 1: RuntimeError: no"),
        ("", "has no Own"),
        (
            "class Own:\n    name = 'own'\n    def __init__(self):\n        raise OSError('no')\n",
            "line 4: OSError: no",
        ),
    ],
)
def test_a_file_without_a_gate(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    path.write_text(text)
    assert said in refused(f"{path}:Own")


def test_the_errors_are_of_one_kind(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="no such gate"):
        load_gate("nope")
    with pytest.raises(PolicyError, match="ZeroDivisionError"):
        load_gate(write(tmp_path, "return 1 // 0"))
