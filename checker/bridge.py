"""Between theorems and instances: what a theorem says of a scenario, and examples replayed.

A theorem that applies to a scenario and the exploration of it must agree; a solver's example must
happen in the model. If not, the fault is the checker's, and it says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from checker.check import CheckResult, TheoremResult, check
from checker.prove import Proof, UnprovableGateError, UnsoundError, prove
from models.config import EngineConfig, RequestSpec, Scenario, SchedulerName
from models.environment import schedule
from models.gates import FirstDecodeStepAlways, Gate
from models.kv_cache import num_blocks_to_allocate
from models.scheduler import Refused
from models.state import Request, State, Status, Window
from properties.theorems import (
    Obligation,
    no_livelock_exclusive,
    no_livelock_mixed,
    sufficiency,
)
from properties.verdict import Verdict, worst


class DisagreementError(AssertionError):
    """A theorem and an exploration that contradict each other: a fault of the checker."""


def with_theorems(result: CheckResult) -> CheckResult:
    """The result of an exploration with what the theorems say, held against each other.

    Raises
    ------
    DisagreementError
        If a theorem that applies is proved and the exploration violates it.
    """
    theorems = tuple(theorems_of(result.scenario))
    agree(result, theorems)
    return replace(result, theorems=theorems)


def theorems_of(scenario: Scenario) -> list[TheoremResult]:
    """The theorems on the scenario's gate, scheduler and number of KV cache groups."""
    engine = scenario.engine
    excludes = {1: _sufficiency_excludes(engine)}
    return [
        replace(result, excludes=excludes.get(result.theorem, _livelock_excludes(engine)))
        for result in _theorems(engine.gate, engine.scheduler, len(engine.block_sizes))
    ]


@lru_cache(maxsize=64)
def _theorems(gate: Gate, scheduler: SchedulerName, groups: int) -> tuple[TheoremResult, ...]:
    always = gate.name == FirstDecodeStepAlways.name
    enough = sufficiency(speculating=not always, groups=groups)
    if scheduler == "vllm":
        live, number = no_livelock_mixed(groups), 4
    else:
        live, number = no_livelock_exclusive(groups, always=always), 5
    return (
        _result("no-self-preemption", 1, enough, gate),
        _result("no-livelock", number, live, gate),
    )


def agree(result: CheckResult, theorems: Sequence[TheoremResult]) -> None:
    """Hold an exploration against the theorems that apply to it."""
    for theorem in theorems:
        if theorem.verdict is not Verdict.PROVED or theorem.excludes is not None:
            continue
        if result.result(theorem.property).verdict is Verdict.VIOLATED:
            gate = result.scenario.engine.gate.name
            raise DisagreementError(
                f"theorem {theorem.theorem} proves {theorem.property} for {gate} "
                f"and the exploration of {result.scenario.name} violates it"
            )


def _result(
    name: str, theorem: int, obligations: Sequence[Obligation], gate: Gate
) -> TheoremResult:
    try:
        proofs = [prove(obligation, gate) for obligation in obligations]
    except UnprovableGateError as error:
        return TheoremResult(name, theorem, Verdict.INCONCLUSIVE, f"not provable: {error}", None)
    verdict = worst(proof.verdict for proof in proofs)
    if verdict is Verdict.PROVED:
        evidence = f"for all sizes ({len(proofs)} obligations, z3 and cvc5)"
    else:
        failed = [proof for proof in proofs if proof.verdict is verdict][-1]
        evidence = f"not for all sizes: {failed.obligation.name}, {example_words(failed)}"
    return TheoremResult(name, theorem, verdict, evidence, None)


def example_words(proof: Proof) -> str:
    """A counterexample in one line."""
    if proof.example is None:
        return f"z3 says {proof.z3}, cvc5 {proof.cvc5}"
    return ", ".join(f"{name}={value}" for name, value in proof.example.items())


def _sufficiency_excludes(engine: EngineConfig) -> str | None:
    if engine.num_spec_tokens == 0 and engine.gate.name != FirstDecodeStepAlways.name:
        return "k = 0, and the theorem is for k >= 1"
    return None


def _livelock_excludes(engine: EngineConfig) -> str | None:
    if engine.priority_policy:
        return "priority, and the theorem is for FCFS"
    longest = num_blocks_to_allocate(engine.max_model_len, engine.block_sizes, engine.no_blocks)
    if longest > engine.usable_blocks:
        return "a request of max_model_len does not fit alone, and the theorem assumes it"
    if engine.scheduler == "vllm" and engine.max_num_batched_tokens <= engine.draft_slots:
        return "the budget leaves no room beside the draft slots"
    if engine.scheduler == "rbln" and engine.num_spec_tokens == 0 and engine.lookahead:
        return "lookahead without speculation, which the theorem excludes"
    return None


# --- examples, replayed on the model -----------------------------------------------------------


def reproduce(proof: Proof, gate: Gate) -> str:
    """Replay a counterexample of theorem 1, 3 or 5 on the model; says what happened there.

    Raises
    ------
    UnsoundError
        If the model does not show the fault.
    """
    assert proof.example is not None
    if proof.obligation.name.startswith("padded-first-chunk"):
        padded = {**proof.example, "T": 1, "n": 1 + proof.example["k"]}
        seen = _refused_after_the_gate(padded, gate, padded=True)
    elif proof.obligation.name.startswith(("first-chunk", "lone-prefill-first-chunk")):
        seen = _refused_after_the_gate(proof.example, gate)
    else:
        scheduler: SchedulerName = "rbln" if proof.obligation.theorem == 5 else "vllm"
        seen = _alone(proof.example, gate, scheduler)
    if seen is None:
        raise UnsoundError(
            f"{proof.obligation.name}: the model does not show {example_words(proof)}"
        )
    return seen


def _engine(
    values: dict[str, int], gate: Gate, scheduler: SchedulerName, budget: int, extra: int = 0
) -> EngineConfig:
    sizes = tuple(value for name, value in values.items() if name[0] == "B")
    blocks = values["F"] + extra
    return EngineConfig(
        scheduler=scheduler,
        gate=gate,
        block_sizes=sizes,
        usable_blocks=blocks,
        num_spec_tokens=values["k"],
        num_lookahead_tokens=values["L"],
        draft_slots=0,
        max_num_batched_tokens=budget,
        max_model_len=values["M"],
        max_num_seqs=8,
        watermark=(values.get("W", 0) + 0.5) / (blocks + 1),
    )


def _alone(values: dict[str, int], gate: Gate, scheduler: SchedulerName) -> str | None:
    """The request alone in F blocks, prefilled in chunks of all but the last token, or at once.

    If that is refused at admission, in chunks of one token.
    """
    wanted = ("no-livelock", "no-deadlock") if scheduler == "rbln" else ("no-self-preemption",)
    budget = values["T"] - 1 if "n" in values else values["T"] + values["k"]
    request = RequestSpec("v", (values["T"], values["T"]), 2)
    for chunk in (max(budget, 1), 1):
        result = check(Scenario("example", _engine(values, gate, scheduler, chunk), (request,)))
        for name in wanted:
            if result.result(name).verdict is Verdict.VIOLATED:
                return f"{name}, {result.result(name).evidence}"
    return None


def _refused_after_the_gate(
    values: dict[str, int], gate: Gate, *, padded: bool = False
) -> str | None:
    """The request at the head of the line behind a running one, F blocks free.

    One token is padded unless the last step of the running one was a prefill chunk (R21, R22).
    """
    sizes = [value for name, value in values.items() if name[0] == "B"]
    held = tuple(-(-values["M"] // size) for size in sizes)
    engine = _engine(values, gate, "vllm", values["n"] + 1, sum(held))
    runs = Request(Status.RUNNING, 1, 1, 1, 0, held, not padded, Window.CLOSED)
    nothing = (0,) * len(sizes)
    waits = Request(Status.WAITING, values["T"], 0, 0, 0, nothing, False, Window.CLOSED)
    requests = (RequestSpec("a", (1, 1), 8), RequestSpec("v", (values["T"], values["T"]), 8))
    output = schedule(Scenario("example", engine, requests), State((runs, waits), (0,), (1,), 0))
    for event in output.events:
        if isinstance(event, Refused) and event.test == "slots":
            return f"the gate lets it in, its first chunk wants {event.needed} of {event.available}"
    return None
