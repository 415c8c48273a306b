"""Results for a program: one JSON document, described in ``docs/json.md``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from checker.check import CheckResult, PropertyResult
from checker.narrate import narrate
from checker.scenario import to_document
from checker.trace import Trace, TraceStep
from models.config import Scenario
from models.scheduler import Event
from models.state import Request

SCHEMA_VERSION = 1
# What makes the state count smaller than a count of every variable of the real scheduler.
REDUCTIONS = (
    "a finished request keeps nothing",
    "the prefill flag of a waiting request, which nothing reads, is cleared",
    "answers of the environment that lead to the same state are one transition",
    "free blocks are not stored: they are the pool less what is held",
)

Json: TypeAlias = dict[str, Any]


def document(results: Sequence[tuple[CheckResult, str]]) -> Json:
    """The document of some results, each with the policy as it was named."""
    return {
        "schema_version": SCHEMA_VERSION,
        "checks": [check_document(result, policy) for result, policy in results],
    }


def check_document(result: CheckResult, policy: str) -> Json:
    """One scenario's verdicts, evidence and traces."""
    recompute = result.recompute
    return {
        "scenario": to_document(result.scenario, policy),
        "verdict": result.verdict.value,
        "search": {
            "complete": result.stopped is None,
            "stopped_by": None if result.stopped is None else result.stopped.value,
            "states": result.num_states,
            "explored": result.explored,
            "transitions": result.num_transitions,
            "depth": result.depth,
            "seconds": round(result.seconds, 3),
            "limits": {
                "states": result.limits.states,
                "seconds": result.limits.seconds,
                "memory_mib": result.limits.memory,
            },
            "reductions": list(REDUCTIONS),
        },
        "properties": [_property(checked) for checked in result.properties],
        "coverage": [
            {
                "name": covered.property.name,
                "statement": covered.property.statement,
                "seen": covered.depth is not None,
                "depth": covered.depth,
            }
            for covered in result.coverage
        ],
        "theorems": [
            {
                "property": theorem.property,
                "theorem": theorem.theorem,
                "verdict": theorem.verdict.value,
                "evidence": theorem.evidence,
                "excludes_this_instance": theorem.excludes,
            }
            for theorem in result.theorems
        ],
        "worst_case": None
        if recompute is None
        else {
            "tokens_thrown_away": recompute.tokens,
            "preemptions_of_one_request": recompute.preemptions,
            "steps": recompute.steps,
        },
    }


def _property(checked: PropertyResult) -> Json:
    return {
        "name": checked.property.name,
        "kind": checked.property.kind.value,
        "required": checked.property.required,
        "statement": checked.property.statement,
        "verdict": checked.verdict.value,
        "evidence": checked.evidence,
        "trace": None if checked.trace is None else trace_document(checked.trace),
    }


def trace_document(trace: Trace) -> Json:
    """A run; ``loop_start`` is the step to which the last one leads back, or null."""
    return {
        "loop_start": trace.loop_start,
        "steps": [_step(trace.scenario, number, step) for number, step in enumerate(trace.steps)],
    }


def _step(scenario: Scenario, number: int, step: TraceStep) -> Json:
    ids = [spec.id for spec in scenario.requests]
    output = step.output
    return {
        "step": number,
        "what": narrate(scenario, step),
        "arrived": [{"id": ids[index], "prompt": prompt} for index, prompt in step.arrived.items()],
        "scheduled": {ids[index]: tokens for index, tokens in output.scheduled.items()},
        "drafts": {ids[index]: drafts for index, drafts in output.drafts.items()},
        "events": [_event(ids, event) for event in output.events],
        "answers": {ids[index]: answer._asdict() for index, answer in step.answers.items()},
        "emitted": {ids[index]: tokens for index, tokens in step.emitted.items()},
        "requests": {
            name: _request(request) for name, request in zip(ids, step.after, strict=True)
        },
        "running": [ids[index] for index in output.running if any(step.after[index].blocks)],
        "waiting": [ids[index] for index in output.waiting],
        "free": scenario.engine.usable_blocks - sum(sum(r.blocks) for r in step.after),
    }


def _event(ids: Sequence[str], event: Event) -> Json:
    fields = event._asdict()
    for name in ("request", "victim", "by"):
        if name in fields:
            fields[name] = ids[fields[name]]
    return {"event": type(event).__name__.lower(), **fields}


def _request(request: Request) -> Json:
    return {
        "status": request.status.name.lower(),
        "prompt": request.prompt,
        "outputs": request.outputs,
        "computed": request.computed,
        "drafts": request.drafts,
        "blocks": list(request.blocks),
        "window": request.window.name.lower(),
    }
