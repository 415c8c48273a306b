"""``checker.testing``: what passes, what fails and how it reads, and that what is drawn is sound."""

from __future__ import annotations

import re
import time
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command import check as check_command
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import run_state_machine_as_test

from checker.assertions import evidence
from checker.check import check
from checker.explore import Limits, Stop
from checker.policy import PolicyError
from checker.scenario import ScenarioError, build, override, read_preset, to_document
from checker.testing import (
    Answer,
    Decision,
    ModelScheduler,
    SchedulerFaultError,
    SchedulerMachine,
    SchedulerUnderTest,
    Shadow,
    answers,
    assert_policy,
    environments,
    gates,
    scenarios,
    scheduler_machine,
    workloads,
)
from models.arithmetic import Num, cdiv, minimum
from models.config import Environment, Scenario
from models.environment import outcomes
from models.gates import GATES, Admission
from models.scheduler import SchedulerOutput
from models.state import Request, State, Status, Window
from properties.properties import PROPERTIES
from properties.verdict import Verdict

# --- assert_policy -----------------------------------------------------------------------------


class Corrected:
    """A gate of somebody's own."""

    name = "corrected"

    def tokens(self, request: Admission) -> Num | None:
        margin = 1 + request.num_spec_tokens + request.num_lookahead_tokens
        return minimum(request.num_tokens + margin, request.max_model_len)


class Careless:
    """Half of what is there."""

    name = "careless"

    def tokens(self, request: Admission) -> Num | None:
        return cdiv(request.num_tokens, 2)


class Crashing:
    name = "crashing"

    def tokens(self, request: Admission) -> Num | None:
        raise LookupError("no such table")


def failure(*arguments: Any, **options: Any) -> str:
    with pytest.raises(AssertionError) as caught:
        assert_policy(*arguments, **options)
    return str(caught.value)


@pytest.mark.parametrize("gate", ["first-decode-step", Corrected, Corrected()])
def test_a_gate_passes_under_both_schedulers(gate: Any) -> None:
    results = assert_policy(gate)
    assert [result.scenario.engine.scheduler for result in results] == ["vllm", "rbln"]
    assert {result.verdict for result in results} == {Verdict.HOLDS}
    assert evidence(results[0]).endswith(
        "under vllm: HOLDS, 2,699 states, 3 of 3 coverage properties seen"
    )


def test_a_failure_says_what_and_shows_the_run() -> None:
    text = failure(Careless, scheduler="rbln")
    first, _, rest = text.partition("\n\n")
    assert first.startswith(
        "careless under rbln: VIOLATED no-livelock, no-self-preemption, bounded-recompute"
    )
    assert rest.startswith("rbln 0.12.0, careless: 7 blocks of 16")
    assert "no-livelock, step " in rest
    assert "preempts itself, 16 tokens lost" in rest
    assert "↻ = repeats for ever" in rest
    assert "\x1b" not in text


def test_the_table_of_a_failure_is_that_of_the_command() -> None:
    shown = check_command("--policy", "prompt-only", "--scheduler", "rbln").out
    text = failure("prompt-only", scheduler="rbln")
    rows = [line for line in text.splitlines() if "│" in line]
    assert len(rows) > 10
    assert rows == [line.rstrip() for line in shown.splitlines() if "│" in line]


def test_both_failures_are_shown() -> None:
    text = failure("prompt-only")
    assert re.findall(r"^prompt-only under (\w+): VIOLATED", text, re.MULTILINE) == ["vllm", "rbln"]


@pytest.mark.parametrize(
    ("limits", "met"), [({"max_states": 100}, "max_states"), ({"max_memory": 1}, "max_memory")]
)
def test_a_search_that_met_a_limit_fails(limits: dict[str, int], met: str) -> None:
    text = failure("first-decode-step", preset="vllm", **limits)
    assert text.startswith("first-decode-step under vllm: INCONCLUSIVE ")
    assert f"; the search met {met}\n" in text


def test_a_violation_within_a_limit_is_one() -> None:
    assert "VIOLATED no-self-preemption" in failure("none", preset="vllm", max_states=2900)


def test_some_properties_alone() -> None:
    assert_policy("prompt-only", scheduler="vllm", properties=["no-livelock", "no-deadlock"])
    text = failure("first-decode-step", preset="vllm", properties=["no-self-preemption-strict"])
    assert text.startswith("first-decode-step under vllm: VIOLATED no-self-preemption-strict\n")
    assert "no-self-preemption-strict, step 2: v preempts itself" in text


def test_a_property_of_coverage_must_be_seen() -> None:
    assert_policy("first-decode-step", preset="vllm", properties=["preemption-reachable"])
    text = failure(
        "first-decode-step",
        preset="vllm",
        fields={"pool.usable_blocks": 40},
        properties=["preemption-reachable"],
    )
    assert text.startswith("first-decode-step under vllm: never seen preemption-reachable\n")


def test_the_ways_to_name_a_scenario(tmp_path: Path) -> None:
    document = read_preset("rbln")
    path = tmp_path / "mine.toml"
    path.write_text(
        check_command("--preset", "rbln", "--print-scenario").out, encoding="utf-8", newline="\r\n"
    )
    assert tomllib.loads(path.read_text())["scheduler"]["scheduler"] == "rbln"
    for scenario in (document, build(document, "object"), path, str(path)):
        (result,) = assert_policy(Corrected, scenario=scenario)
        assert result.num_states == 1175
        assert result.scenario.engine.scheduler == "rbln"


def test_a_scheduler_in_place_of_the_scenario_s() -> None:
    (one,) = assert_policy(Corrected, scenario=read_preset("rbln"), scheduler="vllm")
    assert one.scenario.engine.scheduler == "vllm"
    both = assert_policy(Corrected, preset="vllm-eagle", scheduler="both")
    assert [result.scenario.engine.scheduler for result in both] == ["vllm", "rbln"]


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"properties": ["no-livelok"]}, ValueError, "did you mean 'no-livelock'"),
        ({"properties": []}, ValueError, "at least one"),
        ({"properties": "no-livelock"}, ValueError, "must be a list"),
        ({"scheduler": "vlm"}, ValueError, "must be 'vllm', 'rbln' or 'both'"),
        ({"preset": "vllm", "scenario": {}}, ValueError, "give one of the two"),
        ({"preset": "nope"}, ScenarioError, "no such preset"),
        ({"fields": {"pool.usable_block": 3}}, ScenarioError, "did you mean pool.usable_blocks"),
    ],
)
def test_wrong_input_is_no_failed_assertion(
    options: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=re.escape(words)) as caught:
        assert_policy("first-decode-step", **options)
    assert not isinstance(caught.value, AssertionError)


def test_a_fault_in_a_gate_s_code_is_its_own() -> None:
    with pytest.raises(PolicyError, match="no such table") as caught:
        assert_policy(Crashing)
    assert f"{__name__}:Crashing" in str(caught.value)
    assert f"{__file__}, line " in str(caught.value)
    assert isinstance(caught.value.__cause__, LookupError)


def test_a_slow_gate_is_reported_as_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(Corrected):
        def tokens(self, request: Admission) -> Num | None:
            time.sleep(0.02)
            return super().tokens(request)

    monkeypatch.setattr("checker.policy.SLOWEST", 0.01)
    with pytest.raises(PolicyError, match=r"Slow': tokens\(\) took 0\.\d s for Admission"):
        assert_policy(Slow)


def test_an_interrupted_search_interrupts_the_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(scenario: Scenario, *, limits: Limits) -> Any:
        return replace(check(scenario, limits=Limits(states=1)), stopped=Stop.INTERRUPTED)

    monkeypatch.setattr("checker.assertions.check", interrupted)
    with pytest.raises(KeyboardInterrupt):
        assert_policy("first-decode-step")


# --- what is drawn -----------------------------------------------------------------------------

FEW = settings(max_examples=60, deadline=None, database=None)
RUNS = settings(
    max_examples=25,
    stateful_step_count=16,
    report_multiple_bugs=False,
    deadline=None,
    database=None,
    derandomize=True,
    phases=(Phase.generate, Phase.shrink),
    suppress_health_check=list(HealthCheck),
)


@FEW
@given(scenarios())
def test_a_scenario_drawn_is_one_that_could_be_written_down(scenario: Scenario) -> None:
    document = to_document(scenario, scenario.engine.gate.name)
    assert build(document, "drawn") == scenario


@FEW
@given(scenarios(gate=GATES["first-decode-step"], speculative=True, max_requests=2))
def test_the_corrected_gate_keeps_its_promise_on_what_is_drawn(scenario: Scenario) -> None:
    result = check(scenario, limits=Limits(states=2_000))
    assert result.verdict in (Verdict.HOLDS, Verdict.INCONCLUSIVE), result.worst_violated


@FEW
@given(st.data())
def test_answers_are_the_environment_s(data: st.DataObject) -> None:
    scenario = data.draw(scenarios(max_requests=1))
    k = scenario.engine.num_spec_tokens
    drafts = data.draw(st.integers(-k, k))
    answer = data.draw(answers(scenario, drafts))
    request = Request(Status.RUNNING, 2, 1, 2, max(drafts, 0), (9, 9), False, Window.CLOSED)
    every = outcomes(scenario, 0, request, 1 + abs(drafts), drafts)
    assert answer.eos <= scenario.environment.eos
    assert answer.accepted <= max(drafts, 0)
    assert answer.proposed <= k
    assert every


def test_what_may_be_asked_of_the_strategies() -> None:
    @FEW
    @given(
        scenarios(schedulers=("rbln",), speculative=False, fixed_arrivals=True, gate=gates()),
        environments(eos=False),
        workloads(8, max_requests=2, fixed_arrivals=False),
    )
    def drawn(scenario: Scenario, environment: Environment, workload: tuple[Any, ...]) -> None:
        assert scenario.engine.scheduler == "rbln"
        assert scenario.engine.num_spec_tokens == 0
        assert scenario.fixed_arrivals
        assert not environment.eos
        assert len(workload) <= 2
        assert all(spec.prompt[1] < 8 and spec.arrival is None for spec in workload)

    drawn()


# --- schedulers --------------------------------------------------------------------------------


def preset(name: str, policy: str = "prompt-only") -> Scenario:
    changes: dict[str, Any] = {"scheduler.policy": policy}
    if name == "vllm":
        changes["pool.usable_blocks"] = 6  # v finds just the blocks of its prompt free
    document = override(read_preset(name), changes)
    requests = [one | {"max_tokens": 4} for one in document["requests"]]
    requests[2]["prompt"] = 30
    return build(document | {"requests": requests}, name)


def fault(machine: type[SchedulerMachine], runs: int = 400) -> str:
    """What the machine finds, shrunk."""
    with pytest.raises(SchedulerFaultError) as caught:
        run_state_machine_as_test(machine, settings=settings(RUNS, max_examples=runs))
    return str(caught.value)


TestTheModelInLockstep = scheduler_machine(ModelScheduler, scenarios()).TestCase
TestTheModelInLockstep.settings = RUNS

TestTheModelByItsProperties = scheduler_machine(
    ModelScheduler,
    scenarios(gate=GATES["first-decode-step-always"]),
    lockstep=False,
).TestCase
TestTheModelByItsProperties.settings = RUNS


class Forgetful(ModelScheduler):
    """Deliberately broken: a running request gets one lookahead slot less than it was promised."""

    def decide(self, state: State) -> SchedulerOutput:
        engine = self.scenario.engine
        less = replace(engine, num_lookahead_tokens=max(engine.num_lookahead_tokens - 1, 0))
        broken = Forgetful.__mro__[1](replace(self.scenario, engine=less))
        return ModelScheduler.decide(broken, state)


def test_a_broken_scheduler_is_caught_in_lockstep_and_the_run_is_shrunk() -> None:
    text = fault(scheduler_machine(Forgetful, scenarios()))
    assert re.match(r"step \d, field '(blocks|free|running|scheduled)': the scheduler has ", text)
    assert len(re.findall(r"^│ +\d+ │", text, re.MULTILINE)) <= 3
    assert len(re.findall(r"r\d\(", text)) == 1


def old_gate(scenario: Scenario) -> SchedulerUnderTest:
    """A scheduler whose gate is the released one, whatever the scenario says."""
    engine = replace(scenario.engine, gate=GATES["prompt-only"])
    return ModelScheduler(replace(scenario, engine=engine))


def test_a_scheduler_with_another_gate_is_caught_in_lockstep() -> None:
    text = fault(scheduler_machine(old_gate, preset("vllm", "first-decode-step")))
    assert re.match(r"step \d, field '\w+': the scheduler has ", text)
    assert len(re.findall(r"^│ +\d+ │", text, re.MULTILINE)) <= 3


def test_self_preemption_is_caught_by_its_property_alone() -> None:
    machine = scheduler_machine(
        old_gate, preset("rbln"), lockstep=False, properties=["no-self-preemption"]
    )
    text = fault(machine)
    assert re.match(r"step \d, no-self-preemption: v preempts itself in its admission", text)
    assert "preempts itself, " in text.split("\n\n", 1)[1]
    assert len(re.findall(r"^│ +\d+ │", text, re.MULTILINE)) <= 6


def test_a_livelock_is_caught_and_drawn_as_a_loop() -> None:
    machine = scheduler_machine(
        old_gate,
        preset("rbln"),
        lockstep=False,
        properties=["no-livelock"],
    )
    text = fault(machine, runs=1500)
    assert re.match(r"step \d+, no-livelock: in the state of step \d+ again", text)
    assert "↻" in text


class Leaking(ModelScheduler):
    """Deliberately broken: a block of every preempted request is gone for good."""

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(scenario)
        self.lost = 0

    def schedule(self) -> Decision:
        decision = super().schedule()
        self.lost += len(decision.preempted)
        return replace(decision, free=decision.free - self.lost)


def test_a_leak_is_caught() -> None:
    text = fault(
        scheduler_machine(
            Leaking, preset("vllm"), lockstep=False, properties=["block-conservation"]
        )
    )
    assert text.partition(", ")[2].startswith("block-conservation: ")


class Reserving:
    """A scheduler that knows nothing of the model: all blocks at admission, one prefill chunk."""

    def __init__(self, scenario: Scenario) -> None:
        self.engine = scenario.engine
        self.free = scenario.engine.usable_blocks
        self.waiting: list[str] = []
        self.running: list[str] = []
        self.known: dict[str, list[int]] = {}  # tokens, computed, drafts, the most tokens
        self.took: dict[str, int] = {}

    def add_request(self, id: str, prompt: int, max_tokens: int, priority: int) -> None:
        self.waiting.append(id)
        most = min(prompt + max_tokens, self.engine.max_model_len)
        self.known[id] = [prompt, 0, 0, most]

    def schedule(self) -> Decision:
        budget = self.engine.max_num_batched_tokens
        self.took = {}
        while self.waiting and self._whole() <= self.free:
            self.free -= self._whole()
            self.running.append(self.waiting.pop(0))
        for id in self.running:
            tokens, computed, drafts, _ = self.known[id]
            room = self.engine.max_model_len - 1 - computed
            if took := min(tokens + drafts - computed, budget, max(room, tokens - computed)):
                self.took[id] = took
                budget -= took
        size = self._whole()
        blocks = dict.fromkeys(self.running, (size,)) | dict.fromkeys(self.waiting, (0,))
        return Decision(self.took, self.running, self.waiting, blocks, self.free)

    def update(self, answers: Mapping[str, Answer]) -> None:
        for id, took in self.took.items():
            state = self.known[id]
            state[1] += took
            if id not in answers:
                continue
            drafts = max(state[1] - state[0], 0)
            state[0] += 1 + answers[id].accepted
            state[1] -= drafts - answers[id].accepted
            state[2] = answers[id].proposed
            if answers[id].eos or state[0] >= state[3]:
                self.running.remove(id)
                self.free += self._whole()

    def _whole(self) -> int:
        """Blocks of the longest request there can be."""
        (size,) = self.engine.block_sizes
        return -(-self.engine.max_model_len // size)


def one_group(scenario: Scenario) -> Scenario:
    sizes = scenario.engine.block_sizes[:1]
    return replace(scenario, engine=replace(scenario.engine, block_sizes=sizes))


TestASchedulerOfSomeoneElse = scheduler_machine(
    Reserving, scenarios().map(one_group), lockstep=False
).TestCase
TestASchedulerOfSomeoneElse.settings = RUNS


class Stuck(Reserving):
    """Deliberately broken: does nothing once somebody waits."""

    def schedule(self) -> Decision:
        decision = super().schedule()
        if self.waiting:
            self.took = {}
        return replace(decision, scheduled=self.took)


def test_a_deadlock_of_someone_else_s_is_caught() -> None:
    text = fault(scheduler_machine(Stuck, preset("vllm"), lockstep=False))
    assert re.match(r"step \d+, no-deadlock: in the state of step \d+ again", text)
    assert "nothing runs" in text


class Inventing(Reserving):
    """Deliberately broken, in the way that ``change`` says."""

    change: dict[str, Any]

    def schedule(self) -> Decision:
        return replace(super().schedule(), **self.change)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"scheduled": {"x": 1}}, "a decision about 'x', which has not arrived"),
        ({"blocks": {}}, "blocks of 'a': must be one number for each of 1 groups"),
        ({"scheduled": {"a": 0}}, "'a' is scheduled for 0 tokens and must run"),
        ({"scheduled": {"a": 99}}, "'a' is scheduled for 82 drafts, and there are 3"),
        ({"running": ["a", "a"]}, "one-queue-per-request: "),
        ({"free": 6}, "block-conservation: 6 blocks held and 6 free, of 7 usable"),
        ({"blocks": {"a": (1,)}, "free": 6}, "write-window-owned: a may write 17 slots and owns"),
    ],
)
def test_a_decision_that_makes_no_sense(change: dict[str, Any], words: str) -> None:
    scenario = build(read_preset("vllm"), "vllm")
    scheduler = Inventing(scenario)
    scheduler.change = change
    names = [prop.name for prop in PROPERTIES]
    shadow = Shadow(scenario, scheduler, lockstep=False, properties=names)
    shadow.arrive(0, 17)
    with pytest.raises(SchedulerFaultError) as caught:
        shadow.schedule()
    assert str(caught.value).startswith(f"step 0, {words}")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"properties": ["no-livelok"]}, "no such no-livelok"),
        ({"lockstep": False, "properties": []}, "nothing would be tested"),
    ],
)
def test_a_machine_that_tests_nothing_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        scheduler_machine(ModelScheduler, scenarios(), **options)
