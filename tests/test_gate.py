"""``check gate``: what meets an expectation and what does not, whatever is done to it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from command import CHECK, Outcome, check, run
from jsonschema import Draft202012Validator

from checker.gating import judge
from checker.obligations import Cell, Obligation, ObligationError, read_obligations
from checker.outputs.cases import Outcome as CaseOutcome
from checker.tasks import Finding, Task
from checker.workers import Done
from models.gates import GATES
from properties.verdict import Verdict

ROOT = Path(__file__).parent.parent
SCHEMA = json.loads((ROOT / "docs" / "gate-schema.json").read_text(encoding="utf-8"))

SMALL = """
[obligations.fields]
pool.usable_blocks = 3
requests = ["id=v,prompt=29..33,max_tokens=4"]
"""
HOLDS = """
[[obligations]]
name = "corrected"
property = "no-self-preemption"
policy = "first-decode-step"
scheduler = "vllm"
expect = "holds"
"""
VIOLATED = """
[[obligations]]
name = "old"
property = "no-self-preemption"
policy = "prompt-only"
preset = "vllm"
expect = "violated"
"""
PROVED = """
[[obligations]]
name = "theorem"
theorem = 4
policy = "first-decode-step"
expect = "proved"
"""
ONE_TOKEN_SHORT = """
from models.arithmetic import minimum


class Gate:
    name = "one-token-short"

    def tokens(self, request):
        margin = request.num_spec_tokens + request.num_lookahead_tokens
        return minimum(request.num_tokens + margin, request.max_model_len)
"""
IN_A_WORKER = "multiprocessing.parent_process() is not None"


def write(folder: Path, text: str) -> Path:
    path = folder / "obligations.toml"
    path.write_text(text, encoding="utf-8")
    return path


def gate(path: Path, *arguments: str) -> Outcome:
    """``check gate`` in this process, without a store unless one is named."""
    store = () if "--store" in arguments else ("--no-cache",)
    return check.__wrapped__("gate", str(path), "--jobs", "1", *store, *arguments)


# --- exit codes ----------------------------------------------------------------------------------


def test_every_expectation_met(tmp_path: Path) -> None:
    outcome = gate(write(tmp_path, HOLDS + SMALL + VIOLATED + PROVED))
    assert outcome.code == 0
    lines = outcome.out.splitlines()
    assert [line.split()[:2] for line in lines[:3]] == [
        ["met", "corrected"],
        ["met", "old"],
        ["met", "theorem"],
    ]
    assert "expected holds: HOLDS by exploration, " in lines[0]
    assert "expected violated: VIOLATED by exploration, step " in lines[1]
    assert "expected proved: PROVED by theorem, for all sizes" in lines[2]
    assert lines[-1].startswith("3 of 3 obligations met: 3 verdicts, 0 from the store")


def test_a_gate_that_is_broken_on_purpose_is_found(tmp_path: Path) -> None:
    (tmp_path / "gates.py").write_text(ONE_TOKEN_SHORT)
    text = HOLDS.replace("first-decode-step", "gates.py:Gate")
    outcome = gate(write(tmp_path, text))
    assert outcome.code == 1
    assert outcome.out.startswith("NOT MET")
    assert "expected holds, VIOLATED, step " in outcome.out
    assert "preempts itself" in outcome.out
    assert "step 0, " in outcome.out  # the run that shows it


def test_an_old_gate_that_passes_is_not_met(tmp_path: Path) -> None:
    text = VIOLATED.replace("prompt-only", "first-decode-step")
    outcome = gate(write(tmp_path, text))
    assert outcome.code == 1
    assert "the fault is gone, or the checker no longer sees it" in outcome.out


def test_a_broken_gate_is_refuted_by_the_theorem(tmp_path: Path) -> None:
    (tmp_path / "gates.py").write_text(ONE_TOKEN_SHORT)
    text = PROVED.replace("theorem = 4", "theorem = 1").replace(
        '"first-decode-step"', '"gates.py:Gate"'
    )
    outcome = gate(write(tmp_path, text))
    assert outcome.code == 1
    assert "expected proved: VIOLATED by theorem, " in outcome.out


@pytest.mark.parametrize("text", [HOLDS, VIOLATED.replace("prompt-only", "first-decode-step")])
def test_what_is_inconclusive_meets_nothing(tmp_path: Path, text: str) -> None:
    outcome = gate(write(tmp_path, text + "max_states = 10\n"))
    assert outcome.code == 3
    assert outcome.out.startswith("INCONCLUSIVE")
    assert "raise --max-states" in outcome.out


def test_wrong_weighs_more_than_inconclusive(tmp_path: Path) -> None:
    wrong = VIOLATED.replace("prompt-only", "first-decode-step") + SMALL
    assert gate(write(tmp_path, HOLDS + "max_states = 10\n" + wrong)).code == 1


@pytest.mark.parametrize("expect", ["holds", "proved", "violated"])
@pytest.mark.parametrize("verdict", list(Verdict))
def test_an_expectation_is_met_by_its_own_verdict_alone(expect: str, verdict: Verdict) -> None:
    task = Task("explore", "none", "{}")
    found = Done(task, (Finding("p", verdict, "", "exploration", 0.0),))
    one = Obligation("o", expect, (Cell("c", task, ("p",)),), None)
    outcome = judge(one, {task: found}, set()).outcome
    if verdict is Verdict.INCONCLUSIVE:
        assert outcome is CaseOutcome.INCONCLUSIVE
    else:
        assert (outcome is CaseOutcome.PASSED) == (verdict.value == expect.upper())


def test_a_proof_of_a_property_says_when_it_does_not_speak_of_the_instance(tmp_path: Path) -> None:
    proved = HOLDS.replace('"holds"', '"proved"')
    assert "PROVED by theorem, theorem 1" in gate(write(tmp_path, proved)).out
    without = proved.replace('scheduler = "vllm"', 'preset = "vllm-no-spec"')
    outcome = gate(write(tmp_path, without))
    assert outcome.code == 3
    assert "does not speak of this instance: k = 0" in outcome.out


def test_coverage_is_asked_for_like_a_property(tmp_path: Path) -> None:
    text = HOLDS.replace('"no-self-preemption"', '["refusal-reachable", "preemption-reachable"]')
    outcome = gate(write(tmp_path, text + SMALL.replace("= 3", "= 30")))
    assert outcome.code == 1
    assert "refusal-reachable: expected holds, VIOLATED, never seen in " in outcome.out


# --- wrong input -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "must have at least one [[obligations]] table"),
        ("obligations = []", "must have at least one"),
        ("x = ", "not valid TOML"),
        ("[[obligation]]\nname = 'a'", "obligation: unknown field; did you mean 'obligations'?"),
        ("[[obligations]]\n", "obligations[0].name: is missing"),
        (HOLDS + HOLDS, "name: got 'corrected' twice"),
        (HOLDS.replace("policy", "polcy"), "polcy: unknown field; did you mean 'policy'?"),
        (HOLDS.replace('"holds"', '"hold"'), "expect: got 'hold'; did you mean 'holds'?"),
        (HOLDS.replace('expect = "holds"', ""), "expect: is missing; must be one of 'holds'"),
        (HOLDS.replace("no-self-", "no-slf-"), "did you mean 'no-self-preemption'?"),
        (HOLDS.replace("first-decode-step", "first"), "policy 'first': no such gate"),
        (HOLDS.replace('"vllm"', '"vlm"'), "scheduler: got 'vlm'; did you mean 'vllm'?"),
        (HOLDS + "preset = 'vllm-egle'", "preset: got 'vllm-egle'; did you mean 'vllm-eagle'?"),
        (HOLDS + "preset = 'vllm'\nscenario = 'x'", "give one of the two"),
        (HOLDS + "scenario = 'absent.toml'", "cannot be read"),
        (HOLDS + "max_states = 0", "max_states: got 0; must be a number above 0"),
        (HOLDS + "fields.pool.usable_block = 3", "did you mean 'pool.usable_blocks'?"),
        (HOLDS + "fields.pool.usable_blocks = 0", "usable_blocks (blocks): got 0; must be"),
        (HOLDS + "grid.pool.usable_blocks = 3", "must be a list of at least one value"),
        (HOLDS + "grid.pool.usable_blocks = []", "must be a list of at least one value"),
        (HOLDS + "grid.pool.usable_blocks = [3, 3]", "a value is there twice"),
        (HOLDS + SMALL + "[obligations.grid]\npool.usable_blocks = [3]", "is in fields too"),
        (HOLDS + "theorem = 1", "give a property or a theorem"),
        (PROVED.replace('"proved"', '"holds"'), "a theorem is 'proved' or 'violated'"),
        (PROVED.replace("= 4", "= 9"), "theorem: got 9, which says nothing of first-decode-step"),
        (PROVED + "scheduler = 'vllm'", "a theorem speaks of all sizes; leave it out"),
        (
            HOLDS.replace('"holds"', '"proved"').replace("no-self-preemption", "no-deadlock"),
            "no theorem on no-deadlock",
        ),
        (VIOLATED.replace("no-self-preemption", "required"), "'required' stands alone"),
    ],
)
def test_a_wrong_file_is_one_clear_line(tmp_path: Path, text: str, message: str) -> None:
    outcome = gate(write(tmp_path, text))
    assert (outcome.code, outcome.out) == (2, "")
    assert message in outcome.err
    assert outcome.err.startswith("check gate: ")
    assert outcome.err.count("\n") == 1


def test_a_selection_that_matches_nothing_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path, HOLDS + SMALL + VIOLATED)
    outcome = gate(path, "--select", "corected")
    assert outcome.code == 2
    assert "did you mean 'corrected'?" in outcome.err
    assert gate(path, "--select", "*", "--select", "new*").code == 2
    outcome = gate(path, "--select", "corr*")
    assert outcome.code == 0
    assert "1 of 1 obligations met" in outcome.out


def test_a_fault_of_ones_own_policy_is_shown_as_theirs(tmp_path: Path) -> None:
    source = ONE_TOKEN_SHORT.replace(
        "        margin", "        1 // (request.num_tokens - 29)\n        margin"
    )
    (tmp_path / "gates.py").write_text(source)
    outcome = gate(write(tmp_path, HOLDS.replace("first-decode-step", "gates.py:Gate")))
    assert outcome.code == 2
    assert "gates.py, line 9: ZeroDivisionError" in outcome.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("-o", "report.pdf"), "the format is not clear"),
        (("-o", "absent/report.xml"), "cannot be written"),
        (("-o", "junit="), "names no file"),
        (("-o", "a.xml", "-o", "junit=a.xml"), "given twice"),
    ],
)
def test_a_report_that_cannot_be_written_is_said_first(
    tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    outcome = gate(write(tmp_path, HOLDS + SMALL), *arguments)
    assert (outcome.code, outcome.out) == (2, "")
    assert message in outcome.err


# --- what is run -----------------------------------------------------------------------------------


def test_a_grid_is_the_product_of_its_lists(tmp_path: Path) -> None:
    text = HOLDS.replace('"first-decode-step"', '["none", "prompt-only"]').replace("vllm", "both")
    text += (
        "grid.pool.usable_blocks = [6, 7, 8]\ngrid.speculation.num_speculative_tokens = [1, 2]\n"
    )
    (one,) = read_obligations(write(tmp_path, text))
    assert len(one.cells) == len({cell.task for cell in one.cells}) == 2 * 2 * 3 * 2
    points = set()
    for cell in one.cells:
        found = json.loads(cell.task.document)
        points.add((found["pool"]["usable_blocks"], found["speculation"]["num_speculative_tokens"]))
    assert points == {(f, k) for f in (6, 7, 8) for k in (1, 2)}
    lookahead = {json.loads(cell.task.document)["scheduler"]["scheduler"] for cell in one.cells}
    assert lookahead == {"vllm", "rbln"}


def test_a_grid_of_workloads_and_of_block_sizes(tmp_path: Path) -> None:
    text = HOLDS + (
        'grid.requests = [["id=v,prompt=26,max_tokens=4"], ["id=v,prompt=27,max_tokens=4"]]\n'
        "grid.pool.block_size = [16, [16, 8]]\n"
    )
    (one,) = read_obligations(write(tmp_path, text))
    assert len({cell.task for cell in one.cells}) == 4


def test_a_grid_without_end_is_refused(tmp_path: Path) -> None:
    many = list(range(1, 102))
    text = HOLDS + f"grid.pool.usable_blocks = {many}\ngrid.budgets.max_num_seqs = {many}\n"
    with pytest.raises(ObligationError, match=r"grid: 10,201 instances; at most 10,000"):
        read_obligations(write(tmp_path, text))


def test_a_scenario_is_found_beside_the_file(tmp_path: Path) -> None:
    (tmp_path / "my.toml").write_text(
        "[pool]\nusable_blocks = 3\n[[requests]]\nid = 'v'\nprompt = 29\nmax_tokens = 3\n"
    )
    text = HOLDS.replace('scheduler = "vllm"', 'scenario = "my.toml"')
    assert gate(write(tmp_path, text)).code == 0


def test_windows_line_ends_a_byte_order_mark_and_other_alphabets(tmp_path: Path) -> None:
    path = tmp_path / "obligations.toml"
    text = (HOLDS + SMALL).replace("corrected", "보정된 게이트").replace("\n", "\r\n")
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())
    outcome = gate(path)
    assert outcome.code == 0
    assert "보정된 게이트" in outcome.out
    (one,) = read_obligations(path)
    assert one.line == 2


def test_reports_do_not_silence_the_terminal(tmp_path: Path) -> None:
    path = write(tmp_path, HOLDS + SMALL)
    files = [tmp_path / name for name in ("r.json", "r.xml", "r.md", "notes")]
    arguments = [word for file in files[:3] for word in ("-o", str(file))]
    outcome = gate(path, *arguments, "-o", f"github={files[3]}")
    assert outcome.out.startswith("met ")
    assert all(file.is_file() for file in files)


def test_the_document(tmp_path: Path) -> None:
    path = write(tmp_path, HOLDS + SMALL + VIOLATED + PROVED)
    document = gate(path, "--format", "json").json
    assert (document["schema_version"], document["complete"], document["outcome"]) == (
        1,
        True,
        "met",
    )
    first, second, third = document["obligations"]
    assert [one["name"] for one in document["obligations"]] == ["corrected", "old", "theorem"]
    assert (first["line"], first["outcome"]) == (2, "met")
    assert first["findings"][0]["trace"] is None
    assert second["findings"][0]["trace"]["steps"]
    assert (third["findings"][0]["theorem"], third["findings"][0]["by"]) == ("4", "theorem")
    Draft202012Validator.check_schema(SCHEMA)
    Draft202012Validator(SCHEMA).validate(document)
    text = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
    for field in (*document, *first, *first["findings"][0]):
        assert f"`{field}`" in text


# --- processes -------------------------------------------------------------------------------------


def without_times(document: Any) -> Any:
    for obligation in document["obligations"]:
        for finding in obligation["findings"]:
            del finding["seconds"]
    return document


def test_processes_say_the_same_as_one(tmp_path: Path) -> None:
    grid = SMALL + "[obligations.grid]\nspeculation.num_speculative_tokens = [1, 2, 3]\n"
    path = write(tmp_path, HOLDS + grid + PROVED)
    alone = gate(path, "--format", "json")
    several = run("gate", str(path), "--jobs", "2", "--no-cache", "--format", "json")
    assert several.code == alone.code == 0
    assert without_times(several.json) == without_times(alone.json)


def test_a_process_that_dies_decides_nothing(tmp_path: Path) -> None:
    deadly = f"import multiprocessing, os\nif {IN_A_WORKER}:\n    os._exit(9)\n"
    (tmp_path / "gates.py").write_text(deadly + ONE_TOKEN_SHORT)
    dies = HOLDS.replace("first-decode-step", "gates.py:Gate").replace("corrected", "dies")
    outcome = run("gate", str(write(tmp_path, dies + SMALL + HOLDS + SMALL)), "--jobs", "2")
    assert outcome.code == 3
    assert "INCONCLUSIVE  dies" in outcome.out
    assert "exit code 9" in outcome.out
    assert "met           corrected" in outcome.out


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_the_children_and_keeps_what_is_known(
    tmp_path: Path, number: signal.Signals
) -> None:
    slow = ONE_TOKEN_SHORT.replace(
        "margin =", f"time.sleep(1.5 * ({IN_A_WORKER}))\n        margin ="
    )
    (tmp_path / "gates.py").write_text("import multiprocessing, time\n" + slow)
    waits = HOLDS.replace("first-decode-step", "gates.py:Gate").replace("corrected", "slow")
    path = write(tmp_path, HOLDS + SMALL + waits)
    report = tmp_path / "report.json"
    process = subprocess.Popen(
        [*CHECK, "gate", str(path), "--jobs", "2", "-o", str(report)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline().startswith("met           corrected")
    children = psutil.Process(process.pid).children(recursive=True)
    # Ctrl-C reaches the children too, a cancelled job the parent alone.
    (os.killpg if number is signal.SIGINT else os.kill)(process.pid, number)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "interrupted" in err
    assert "Traceback" not in err
    assert "INCONCLUSIVE  slow" in out
    document = json.loads(report.read_text())
    Draft202012Validator(SCHEMA).validate(document)
    assert (document["complete"], document["outcome"]) == (False, "inconclusive")
    _, alive = psutil.wait_procs(children, timeout=5)
    assert not alive
    again = run("gate", str(path), "--select", "corrected")
    assert (again.code, "from the store" in again.out) == (0, True)


def test_the_command_is_light_to_import() -> None:
    heavy = {"z3", "cvc5", "rich", "networkx", "sqlite3", "psutil", "multiprocessing"}
    code = f"import sys, checker.commands.gate; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# --- the project's own -----------------------------------------------------------------------------


def test_the_projects_obligations_speak_of_every_gate_and_scheduler() -> None:
    tasks = [cell.task for one in read_obligations(ROOT / "obligations.toml") for cell in one.cells]
    for policy in GATES:
        schedulers = {
            json.loads(task.document)["scheduler"]["scheduler"]
            for task in tasks
            if task.policy == policy and task.kind == "explore"
        }
        assert schedulers == {"vllm", "rbln"}
        assert any(task.policy == policy and task.kind == "prove" for task in tasks)


@pytest.mark.long
def test_the_projects_obligations_are_met_in_a_minute(tmp_path: Path) -> None:
    started = time.monotonic()
    outcome = run("gate", str(ROOT / "obligations.toml"), "--no-cache")
    assert outcome.code == 0, outcome.out
    assert time.monotonic() - started < 60
