"""``check prove``: what it prints, what it leaves, and its exit codes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import z3
from command import check, document

from checker.prove import Proof, UnsoundError
from checker.smtlib import cvc5_check
from models.gates import GATES
from properties.theorems import obligations

LINE = re.compile(
    r"(PROVED|VIOLATED) +(\d [a-z0-9-]+) +z3 (\w+) \d+\.\d\d s, cvc5 (\w+) \d+\.\d\d s"
)
BRANCHING = """
class Mine:
    name = "mine"

    def tokens(self, request):
        if request.num_spec_tokens > 0:
            return request.num_tokens + 9
        return request.num_tokens
"""


def titles(policy: str) -> list[str]:
    return [f"{o.theorem} {o.name}" for o in obligations(GATES[policy])]


def test_one_line_for_every_obligation_with_both_solvers() -> None:
    outcome = check("prove")
    *lines, summary = outcome.out.splitlines()
    found = [LINE.fullmatch(line) for line in lines]
    assert [match and match.groups() for match in found] == [
        ("PROVED", title, "unsat", "unsat") for title in titles("first-decode-step")
    ]
    assert re.fullmatch(rf"PROVED: first-decode-step, {len(lines)} obligations, [\d.]+ s", summary)
    assert outcome.code == 0


def test_all_theorems_are_there() -> None:
    assert {o["theorem"] for o in document("prove")["obligations"]} == set(range(8))


def test_a_refuted_gate_exits_1_with_its_least_counterexample_and_the_model() -> None:
    outcome = check("prove", "--policy", "lookahead-only", "--theorem", "1")
    lines = outcome.out.splitlines()
    at = next(n for n, line in enumerate(lines) if "1 first-decode-step " in line)
    assert lines[at].startswith("VIOLATED ")
    assert (
        lines[at + 1].strip()
        == "least: B = 1, T = 1, k = 1, L = 0, d = 0, h = 0, o = 0, F = 1, M = 3"
    )
    assert lines[at + 2].strip().startswith("in the model: no-self-preemption, step 1: ")
    assert lines[-1].startswith("VIOLATED: lookahead-only, ")
    assert outcome.code == 1


def test_what_a_gate_costs_is_no_fault_unless_asked() -> None:
    always = "first-decode-step-always"
    assert check("prove", "--policy", always).code == 0
    assert check("prove", "--policy", "none", "--theorem", "7").code == 0


def test_the_document_has_everything() -> None:
    found = document("prove", "--policy", "prompt-only", "--theorem", "1")
    assert (found["schema_version"], found["policy"]) == (1, "prompt-only")
    assert found["verdict"] == "VIOLATED"
    by_name = {o["name"]: o for o in found["obligations"]}
    decode = by_name["first-decode-step"]
    assert decode["assumptions"].keys() == {"speculating", "admitted", "drafts", "alone", "within"}
    assert "cdiv(G, B_g)" in decode["mathematics"]
    assert decode["statement"].startswith("the first decode step is granted")
    assert decode["required"] is True
    assert decode["z3"]["answer"] == decode["cvc5"]["answer"] == "sat"
    assert decode["example"] == dict(zip("BTkLdhoFM", (1, 1, 1, 0, 0, 0, 0, 1, 3), strict=True))
    assert decode["in_the_model"].startswith("no-self-preemption, step 1: v preempts itself")


def test_the_smt2_files_are_unsatisfiable_for_whoever_reads_them(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "smt2"
    assert check("prove", "--theorem", "1", "--smt2", str(folder)).code == 0
    files = sorted(folder.iterdir())
    of_theorem_1 = [title for title in titles("first-decode-step") if title[0] == "1"]
    assert {path.name for path in files} == {f"{t.replace(' ', '-')}.smt2" for t in of_theorem_1}
    for path in files:
        script = path.read_text(encoding="utf-8")
        assert script.splitlines()[1] == "; unsat = proved"
        assert cvc5_check(script, 10_000) == "unsat"
        solver = z3.Solver()
        solver.from_string(script)
        assert str(solver.check()) == "unsat"


def test_the_smt2_files_of_a_refuted_gate_are_satisfiable(tmp_path: Path) -> None:
    check("prove", "--policy", "prompt-only", "--theorem", "1", "--smt2", str(tmp_path))
    script = (tmp_path / "1-first-decode-step.smt2").read_text(encoding="utf-8")
    assert cvc5_check(script, 10_000) == "sat"


def test_a_solver_without_time_is_inconclusive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("checker.prove.cvc5_check", lambda *_: "unknown")
    outcome = check.__wrapped__("prove", "--theorem", "1")
    assert outcome.code == 3
    assert outcome.out.splitlines()[-1].startswith("INCONCLUSIVE: ")
    assert "PROVED  " not in outcome.out


def test_an_example_that_the_model_does_not_show_is_loud_and_no_verdict(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def nothing(proof: Proof, gate: object) -> str:
        raise UnsoundError("the model does not show it")

    monkeypatch.setattr("checker.bridge.reproduce", nothing)
    outcome = check.__wrapped__("prove", "--policy", "none", "--theorem", "1")
    assert outcome.code == 3
    assert outcome.err.splitlines() == [
        "check prove: the model does not show it",
        "check prove: no verdict: a fault of the checker, please report it",
    ]


def test_a_gate_that_branches_is_named_with_its_line_and_not_proved(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(BRANCHING, encoding="utf-8")
    outcome = check("prove", "--policy", f"{path}:Mine")
    assert outcome.code == 3
    assert f"{path}, line 6: a branch on a symbolic condition" in outcome.err
    assert "explore it instead" in outcome.err
    assert outcome.out == ""


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--policy", "nope"), "policy 'nope': no such gate; there are none, prompt-only"),
        (("--theorem", "8"), "invalid choice: 8"),
        (("--theorem", "6", "--policy", "none"), "theorem 6 says nothing about none"),
        (("--timeout", "0"), "must be at least 1"),
        (("--timeout", "soon"), "invalid integer value: 'soon'"),
        (("--smt2", __file__), "File exists"),
    ],
)
def test_wrong_input_is_one_line_and_exit_2(arguments: tuple[str, ...], complaint: str) -> None:
    outcome = check("prove", *arguments)
    assert outcome.code == 2
    assert complaint in outcome.err
    assert "Traceback" not in outcome.err
    assert outcome.out == ""
