"""Pieces of work of ``check gate``: an instance to explore, or theorems to prove.

A task is plain data, so that it can be sent to a process, and its content is the key of its verdicts
in the store. What it finds is plain data too.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from checker.policy import load_gate
from checker.scenario import build
from properties.verdict import Verdict, worst

Json: TypeAlias = dict[str, Any]
Kind: TypeAlias = Literal["explore", "theorems", "prove"]
Basis: TypeAlias = Literal["exploration", "theorem"]

TIMEOUT_MS = 5_000  # of each solver, for each obligation of a theorem


@dataclass(frozen=True, slots=True)
class Task:
    """What to find out.

    ``explore``: every property of an instance, by every reachable state. ``theorems``: what the
    theorems say of an instance. ``prove``: theorem ``theorem`` (a number, or the name of one of its
    obligations) on the gate. ``document`` is the instance as JSON, every field spelled out.
    """

    kind: Kind
    policy: str
    document: str = ""
    theorem: str = ""
    max_states: int | None = None
    max_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """A verdict, by which kind of evidence, and a run that shows it, if any."""

    name: str
    verdict: Verdict
    evidence: str
    basis: Basis
    seconds: float
    trace: Json | None = None


def find(task: Task) -> list[Finding]:
    """Carry a task out.

    Raises
    ------
    PolicyError
        If the policy's own code is at fault.
    KeyboardInterrupt
        If the search was interrupted.
    """
    if task.kind == "explore":
        return _explore(task)
    if task.kind == "theorems":
        return _theorems(task)
    return [_prove(task)]


def _explore(task: Task) -> list[Finding]:
    from checker.check import check
    from checker.document import trace_document
    from checker.explore import Limits, Stop

    scenario = build(json.loads(task.document), "obligation")
    result = check(scenario, limits=Limits(task.max_states, task.max_seconds))
    if result.stopped is Stop.INTERRUPTED:
        raise KeyboardInterrupt
    found = [
        Finding(
            checked.property.name,
            checked.verdict,
            checked.evidence,
            "exploration",
            result.seconds,
            None if checked.trace is None else trace_document(checked.trace),
        )
        for checked in result.properties
    ]
    for covered in result.coverage:
        verdict, words = Verdict.HOLDS, f"seen, first at step {covered.depth}"
        if covered.depth is None and result.stopped is None:
            verdict, words = Verdict.VIOLATED, f"never seen in {result.num_states:,} states"
        elif covered.depth is None:
            verdict, words = Verdict.INCONCLUSIVE, f"not seen in {result.explored:,} states"
        name = covered.property.name
        found.append(Finding(name, verdict, words, "exploration", result.seconds))
    return found


def _theorems(task: Task) -> list[Finding]:
    from checker.bridge import theorems_of

    started = time.perf_counter()
    scenario = build(json.loads(task.document), "obligation")
    found = []
    for theorem in theorems_of(scenario):
        verdict, words = theorem.verdict, f"theorem {theorem.theorem}, {theorem.evidence}"
        if theorem.excludes is not None:
            verdict = Verdict.INCONCLUSIVE
            words += f"; it does not speak of this instance: {theorem.excludes}"
        seconds = time.perf_counter() - started
        found.append(Finding(theorem.property, verdict, words, "theorem", seconds))
    return found


def _prove(task: Task) -> Finding:
    from checker.bridge import example_words
    from checker.prove import UnprovableGateError, prove

    started = time.perf_counter()
    gate = load_gate(task.policy)
    try:
        proofs = [prove(one, gate, timeout_ms=TIMEOUT_MS) for one in chosen(task.theorem, gate)]
        verdict = worst(proof.verdict for proof in proofs)
    except UnprovableGateError as error:
        proofs, verdict, evidence = [], Verdict.INCONCLUSIVE, f"not provable: {error}"
    if verdict is Verdict.PROVED:
        names = ", ".join(proof.obligation.name for proof in proofs)
        evidence = f"for all sizes, z3 and cvc5: {names}"
    elif proofs:
        failed = next(proof for proof in proofs if proof.verdict is verdict)
        evidence = f"{failed.obligation.name}: {example_words(failed)}"
    seconds = time.perf_counter() - started
    return Finding(theorem_name(task.theorem), verdict, evidence, "theorem", seconds)


def theorem_name(theorem: str) -> str:
    """How a theorem is called in a report."""
    return f"theorem {theorem}"


def chosen(theorem: str, gate: Any) -> list[Any]:
    """The proof obligations of a theorem, by its number or by their name, on a gate."""
    from properties.theorems import obligations

    return [one for one in obligations(gate) if theorem in (str(one.theorem), one.name)]
