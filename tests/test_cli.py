"""The command: exit codes, limits, interruption, terminals and pipes, start-up time."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import pty
import resource
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from select import select

import pytest
from command import CHECK, check, document, run

from checker.cli import command_names
from checker.trace import ReplayError

ESCAPE = "\x1b["
LARGE = (  # minutes of exploration, few initial states
    *("--preset", "vllm", "--policy", "first-decode-step", "--usable-blocks", "24"),
    *("--eos", "true", "--proposed", "up-to"),
    *(word for name in "abcdef" for word in ("--request", f"id={name},prompt=17,max_tokens=9")),
)


# --- what the policies come to ---------------------------------------------------------------


def verdicts(*arguments: str) -> dict[str, dict[str, str]]:
    """Scheduler -> property -> verdict."""
    return {
        checked["scenario"]["scheduler"]["scheduler"]: {
            prop["name"]: prop["verdict"] for prop in checked["properties"]
        }
        for checked in document(*arguments)["checks"]
    }


def test_the_released_gate_fails_under_both_schedulers() -> None:
    outcome = check("--policy", "prompt-only")
    assert outcome.code == 1
    vllm, rbln = outcome.out.split("\n\n\n", 1)[0], outcome.out[outcome.out.index("rbln 0.12.0") :]
    assert "no-self-preemption, step 3: v preempts itself in its admission window" in vllm
    assert "v needs block 3 for 33 slots, none free:" in vllm
    assert "HOLDS     no-livelock" in vllm
    assert "no-livelock, step 4: a cycle of 2 steps, for ever" in rbln
    assert "↻ 4" in rbln
    assert "↻ 5" in rbln
    assert "↻ = repeats for ever" in rbln


def test_the_first_attempt_ends_the_livelock_and_not_the_self_preemption() -> None:
    assert check("--policy", "lookahead-only", "--trace", "none").code == 1
    for found in verdicts("--policy", "lookahead-only").values():
        assert found["no-self-preemption"] == "VIOLATED"
        assert found["no-livelock"] == "HOLDS"


def test_the_corrected_gate_holds_and_says_what_is_only_contention() -> None:
    outcome = check("--policy", "first-decode-step")
    assert outcome.code == 0
    assert "VIOLATED  no-self-preemption-strict" in outcome.out
    assert "(not required of a gate)" in outcome.out
    assert outcome.out.count("note: the strict form fails by contention only") == 1  # vllm alone
    found = verdicts("--policy", "first-decode-step")
    assert set(found) == {"vllm", "rbln"}
    assert {v for one in found.values() for n, v in one.items() if "strict" not in n} == {"HOLDS"}


def test_without_speculation_the_corrected_gate_is_the_old_one_and_says_so() -> None:
    outcome = check("--preset", "vllm-no-spec", "--policy", "first-decode-step")
    assert outcome.code == 1
    assert "without speculation (k = 0) first-decode-step is the old gate" in outcome.out
    assert "v needs block 3 for 33 slots, none free:" in outcome.out
    always = check("--preset", "vllm-no-spec", "--policy", "first-decode-step-always")
    assert always.code == 0
    assert "without speculation" not in always.out


def test_no_preset_is_green_under_the_released_gate_nor_red_under_the_one_with_the_margin() -> None:
    assert check("--help").out.count("vllm-two-groups") == 1
    for preset in ("vllm", "rbln", "vllm-draft-model", "vllm-eagle", "vllm-no-spec"):
        arguments = ("--preset", preset, "--no-theorems", "--policy")
        assert check(*arguments, "prompt-only").code == 1
        assert check(*arguments, "first-decode-step-always").code == 0


def test_all_policies_stand_side_by_side() -> None:
    outcome = check("--all-policies", "--preset", "rbln")
    assert outcome.code == 1
    rows = {
        cells[0].rstrip(" *"): cells[1:]
        for line in outcome.out.splitlines()
        if line.startswith("│") and (cells := [cell.strip() for cell in line.strip("│").split("│")])
    }
    assert rows["no-livelock"] == ["VIOLATED"] * 2 + ["HOLDS"] * 3
    assert rows["no-self-preemption"] == ["VIOLATED"] * 3 + ["HOLDS"] * 2
    assert rows["most tokens thrown away"] == ["no bound", "no bound", "84", "0", "0"]
    assert rows["longest run, steps lost"] == ["no bound", "no bound", "0", "0", "0"]
    assert "…" not in outcome.out


def test_all_policies_keeps_the_schedulers_apart() -> None:
    outcome = check("--all-policies", "--preset", "vllm", "--scheduler", "both")
    assert outcome.out.count("vllm: property") == 1
    assert outcome.out.count("rbln: property") == 1


def test_all_policies_takes_a_gate_of_ones_own_along(tmp_path: Path) -> None:
    gate = tmp_path / "own.py"
    gate.write_text(
        "class Own:\n    name = 'own'\n    def tokens(self, request):\n"
        "        return request.num_tokens + 7\n"
    )
    checks = document("--all-policies", "--preset", "rbln", "--policy", f"{gate}:Own")["checks"]
    assert [c["scenario"]["scheduler"]["policy"] for c in checks][-1] == f"{gate}:Own"
    assert len(checks) == 6


@pytest.mark.parametrize("scheduler", ["vllm", "rbln"])
def test_one_scheduler_can_be_chosen(scheduler: str) -> None:
    assert list(verdicts("--scheduler", scheduler)) == [scheduler]
    assert list(verdicts("--scheduler", scheduler, "--preset", "vllm")) == [scheduler]


def test_a_preset_can_be_put_under_both_schedulers() -> None:
    assert list(verdicts("--scheduler", "both", "--preset", "vllm")) == ["vllm", "rbln"]


def test_the_trace_to_show_can_be_chosen() -> None:
    strict = check("--preset", "rbln", "--trace", "no-self-preemption-strict").out
    assert "no-self-preemption-strict, step 4:" in strict
    assert "↻" not in strict
    everything = check("--preset", "rbln", "--trace", "all").out
    assert everything.count("┏") == 4  # two safety properties, the livelock, the recompute
    assert "┏" not in check("--preset", "rbln", "--trace", "none").out


# --- limits ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "value"),
    [("--max-states", "500"), ("--max-seconds", "0.001"), ("--max-memory", "1")],
)
def test_a_limit_is_inconclusive_and_names_the_figure_to_raise(option: str, value: str) -> None:
    arguments = ("--preset", "vllm", "--policy", "first-decode-step", option, value)
    outcome = check(*arguments)
    assert outcome.code == 3
    assert f"raise {option}" in outcome.out
    assert "not every reachable state" in outcome.out
    (checked,) = document(*arguments)["checks"]
    assert checked["verdict"] == "INCONCLUSIVE"
    assert checked["search"]["stopped_by"] == option
    assert not checked["search"]["complete"]
    assert "HOLDS" not in {prop["verdict"] for prop in checked["properties"]}
    assert checked["worst_case"] is None


def test_a_limit_on_states_is_exact() -> None:
    arguments = ("--preset", "vllm", "--policy", "first-decode-step", "--max-states")
    assert check(*arguments, "2699").code == 0
    assert check(*arguments, "2698").code == 3


def test_a_violation_found_before_the_limit_stands() -> None:
    arguments = ("--preset", "vllm", "--policy", "prompt-only", "--max-states", "2700")
    outcome = check(*arguments)
    assert outcome.code == 1
    assert "v preempts itself" in outcome.out
    (checked,) = document(*arguments)["checks"]
    assert checked["verdict"] == "VIOLATED"
    assert not checked["search"]["complete"]
    found = {prop["name"]: prop["verdict"] for prop in checked["properties"]}
    assert found.pop("no-self-preemption") == "VIOLATED"
    assert found.pop("no-self-preemption-strict") == "VIOLATED"
    assert set(found.values()) == {"INCONCLUSIVE"}


def test_one_scenario_that_was_cut_short_decides_over_one_that_holds() -> None:
    arguments = ("--policy", "first-decode-step", "--max-states", "2000")
    assert check(*arguments).code == 3
    assert [c["verdict"] for c in document(*arguments)["checks"]] == ["INCONCLUSIVE", "HOLDS"]


def test_without_the_graph_the_safety_verdicts_are_the_same() -> None:
    with_graph = verdicts("--preset", "vllm", "--policy", "prompt-only")["vllm"]
    without = verdicts("--preset", "vllm", "--policy", "prompt-only", "--no-graph")["vllm"]
    del with_graph["bounded-recompute"], without["bounded-recompute"]
    assert with_graph == without


# --- interruption and pipes ------------------------------------------------------------------


class Terminal:
    """A process that has a terminal of its own."""

    def __init__(self, *arguments: str, columns: int = 100, **environment: str) -> None:
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
        usual = {key: value for key, value in os.environ.items() if key not in UNUSUAL}
        self.process = subprocess.Popen(
            [*CHECK, *arguments],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=usual | {"TERM": "xterm-256color"} | environment,
        )
        os.close(slave)
        self.text = ""

    def __iter__(self) -> Iterator[str]:
        """The text so far, each time there is more of it."""
        while True:
            if not select([self.master], [], [], 60)[0]:
                raise TimeoutError(self.text)
            try:
                read = os.read(self.master, 65536)
            except OSError as error:
                if error.errno != errno.EIO:
                    raise
                return
            if not read:
                return
            self.text += read.decode("utf-8", errors="replace")
            yield self.text

    def finish(self) -> int:
        """Read to the end; the exit code."""
        for _ in self:
            pass
        os.close(self.master)
        return self.process.wait(timeout=60)


UNUSUAL = {"COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"}


def test_an_interrupt_reports_what_was_explored_and_leaves_the_terminal_whole() -> None:
    terminal = Terminal(*LARGE)
    for text in terminal:
        if "states explored" in text:  # the progress line is up
            break
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.finish() == 130
    text = terminal.text
    assert text.rindex(f"{ESCAPE}?25h") > text.rindex(f"{ESCAPE}?25l")  # the cursor is back
    assert "INCONCLUSIVE" in text
    assert "interrupted" in text
    assert "HOLDS" not in text
    assert "Traceback" not in text


SPEAKING_GATE = """
import sys
class Speaking:
    name = "speaking"
    def tokens(self, request):
        if request.num_lookahead_tokens == 0:  # not when it is loaded and tried
            print("exploring", file=sys.stderr, flush=True)
        return request.num_tokens + 7
"""


@pytest.mark.parametrize("options", [("--format", "json"), ("--walks", "1000000")], ids=" ".join)
def test_an_interrupt_in_a_pipe_gives_a_whole_report(
    options: tuple[str, ...], tmp_path: Path
) -> None:
    gate = tmp_path / "gate.py"
    gate.write_text(SPEAKING_GATE)
    process = subprocess.Popen(
        [*CHECK, *LARGE, *options, "--policy", f"{gate}:Speaking"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    assert process.stderr.readline() == "exploring\n"
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert set(err.splitlines()) <= {"exploring"}
    assert "INCONCLUSIVE" in out
    if "json" in options:
        (checked,) = json.loads(out)["checks"]
        assert checked["search"]["stopped_by"] == "interrupted"
        assert {prop["verdict"] for prop in checked["properties"]} == {"INCONCLUSIVE"}


@pytest.mark.parametrize(
    "arguments",
    [
        ("--preset", "rbln", "--no-theorems"),
        ("--all-policies", "--preset", "rbln"),
        ("--format", "json", "--preset", "rbln", "--no-theorems"),
        ("--help",),
        ("--preset", "vllm", "--print-scenario"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_a_reader_that_leaves_is_no_error(arguments: tuple[str, ...]) -> None:
    read, write = os.pipe()
    process = subprocess.Popen([*CHECK, *arguments], stdout=write, stderr=subprocess.PIPE)
    os.close(write)
    os.read(read, 1)
    os.close(read)
    assert process.communicate(timeout=60)[1] == b""


def test_a_pipe_has_no_escapes_and_one_line_per_property() -> None:
    outcome = run("--policy", "prompt-only", "--preset", "vllm", COLUMNS="40")
    assert ESCAPE not in outcome.out
    assert outcome.out.splitlines()[2].endswith("29 computed tokens lost")
    assert [line for line in outcome.out.splitlines() if line != line.rstrip()] == []


@pytest.mark.parametrize(("no_color", "coloured"), [("", True), ("1", False)])
def test_colours_in_a_terminal_unless_no_color_is_set(no_color: str, coloured: bool) -> None:
    environment = {"NO_COLOR": no_color} if no_color else {}
    terminal = Terminal("--preset", "rbln", "--no-theorems", columns=120, **environment)
    assert terminal.finish() == 1
    assert (f"{ESCAPE}1;31mVIOLATED" in terminal.text) is coloured
    assert "VIOLATED" in terminal.text


@pytest.mark.parametrize("columns", [40, 60, 80, 100])
def test_a_narrow_terminal_loses_nothing(columns: int) -> None:
    terminal = Terminal("--preset", "rbln", "--no-theorems", columns=columns, NO_COLOR="1")
    assert terminal.finish() == 1
    text = terminal.text.replace(f"{ESCAPE}1m", "").replace(f"{ESCAPE}2m", "")
    words = " ".join(text.replace(f"{ESCAPE}0m", "").replace("│", " ").split())
    assert "…" not in text
    assert "16/30, 0 out" in words
    assert "step 4: a cycle of 2 steps, for ever" in words
    assert "aabbbvv" in words


def test_an_output_that_cannot_show_every_character_still_says_everything() -> None:
    outcome = run("--preset", "rbln", "--no-theorems", PYTHONIOENCODING="ascii")
    assert outcome.code == 1
    assert outcome.err == ""
    assert "no-livelock, step 4: a cycle of 2 steps, for ever" in outcome.out


# --- start-up --------------------------------------------------------------------------------


def processor_seconds(*arguments: str) -> float:
    """What a command costs; with the machine to itself, that is how long it takes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run(*arguments)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_the_default_check_answers_at_once() -> None:
    assert min(processor_seconds("--policy", "prompt-only") for _ in range(2)) < 3.0  # asked: 2.0


def test_help_is_there_at_once() -> None:
    assert min(processor_seconds("--help") for _ in range(2)) < 0.5


def imported(*arguments: str) -> set[str]:
    """The modules that a command imports."""
    program = (
        "import sys\nfrom checker.cli import main\n"
        "try:\n    main(sys.argv[1:])\nexcept SystemExit:\n    pass\n"
        "print(' '.join(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True
    )
    return {name.partition(".")[0] for name in done.stdout.splitlines()[-1].split()}


HEAVY = {"z3", "cvc5", "rich", "networkx", "hypothesis", "numpy", "psutil"}


def test_help_imports_nothing_heavy() -> None:
    assert imported("--help") & HEAVY == set()


@pytest.mark.parametrize("name", command_names())
def test_help_of_a_command_imports_nothing_heavy(name: str) -> None:
    assert imported(name, "--help") & HEAVY == set()


def test_a_check_imports_no_prover_and_no_test_library() -> None:
    provers = {"z3", "cvc5", "hypothesis"}
    assert imported("--preset", "rbln", "--trace", "none", "--no-theorems") & provers == set()


# --- options ---------------------------------------------------------------------------------


def test_help_names_every_command_and_exit_code() -> None:
    text = check("--help").out
    assert "0    every required property holds" in text
    assert "130  interrupted" in text
    for name in command_names():
        assert f"check {name}" in text


def test_the_version_is_that_of_the_distribution() -> None:
    assert check("--version").out.startswith("kvgate 0.")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--preset", "nope"), "--preset nope: no such preset; there are rbln, vllm,"),
        (("--preset", "vllm", "--scenario", "x.toml"), "give one of the two"),
        (("--scenario", "nope.toml"), "nope.toml: cannot be read (No such file or directory)"),
        (("--trace", "nope"), "--trace nope: no such property; there are no-self-preemption,"),
        (("--trace", "pool-full-reachable"), "no such property"),
        (("--print-scenario",), "--print-scenario: these are several; choose one --scheduler"),
        (("--trace", "all", "--format", "json"), "--trace: the JSON document has every counter"),
        (("--trace", "all", "--all-policies"), "--trace: --all-policies shows no counterexample"),
        (("--seed", "4"), "--seed: only --walks draws anything"),
        (("--walks", "5", "--max-states", "9"), "--max-states: does not go with --walks"),
        (("--walks", "5", "--max-memory", "9"), "--max-memory: does not go with --walks"),
        (("--walks", "5", "--no-graph"), "--no-graph: does not go with --walks"),
        (("--max-states", "0"), "--max-states: got '0'; must be an integer of at least 1"),
        (("--max-states", "many"), "--max-states: got 'many'; must be an integer of at least 1"),
        (("--max-memory", "1.5"), "--max-memory: got '1.5'; must be an integer of at least 1"),
        (("--max-seconds", "-1"), "got '-1'; must be a number of seconds above 0"),
        (("--max-seconds", "nan"), "got 'nan'; must be a number of seconds above 0"),
        (("--max-seconds", "soon"), "got 'soon'; must be a number of seconds above 0"),
        (("--walks", "0"), "--walks: got '0'; must be an integer of at least 1"),
        (("--scheduler", "sglang"), "invalid choice: 'sglang'"),
        (("--format", "xml"), "invalid choice: 'xml'"),
        (("nope",), "unrecognized arguments: nope"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_wrong_option_is_said_to_be_wrong(arguments: tuple[str, ...], said: str) -> None:
    outcome = check(*arguments)
    assert outcome.code == 2
    assert outcome.out == ""
    assert said in outcome.err.splitlines()[-1]


def test_a_fault_of_the_checker_is_no_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    def faulty(*arguments: object, **options: object) -> None:
        raise ReplayError("step 3 of the run is not a step of the model")

    monkeypatch.setattr("checker.check.check", faulty)
    outcome = check.__wrapped__("--preset", "vllm")
    assert outcome.code == 3
    assert outcome.out == ""
    assert "step 3 of the run is not a step of the model" in outcome.err
    assert outcome.err.endswith("check: no verdict: a fault of the checker, please report it\n")


@pytest.mark.parametrize(
    ("policy", "told"), [("first-decode-step", "PROVED"), ("none", "VIOLATED")]
)
def test_theorems_stand_beside_the_instance_and_do_not_decide(policy: str, told: str) -> None:
    arguments = ("--preset", "vllm-no-spec", "--policy", policy, "--trace", "none")
    outcome = check(*arguments)
    lines = [line for line in outcome.out.splitlines() if "theorem 1" in line]
    assert [line.split()[:2] for line in lines] == [[told, "no-self-preemption"]]
    assert outcome.code == 1  # the instance, which the theorem leaves out
    without = check(*arguments, "--no-theorems")
    assert without.code == 1
    assert "theorem" not in without.out


@pytest.mark.long
def test_an_instance_too_large_to_pack_gets_no_verdict() -> None:
    huge = ("--request", "id=v,prompt=1..1048600,max_tokens=1", "--max-model-len", "2000000")
    outcome = check("--preset", "vllm", *huge)
    assert outcome.code == 3
    assert outcome.out == ""
    last = outcome.err.splitlines()[-1]  # progress may stand before it
    assert last.startswith("check: no verdict: more than 1048576 states of request 'v'")
