"""The model held against recorded runs of the real schedulers, field by field.

The record format is described in ``docs/conformance.md``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

from checker.fields import FieldError, Parse, boolean, choice, fraction, integer, text
from models.config import EngineConfig, RequestSpec, Scenario
from models.gates import GATES
from models.scheduler import Preempted, Refused
from models.script import DraftScript, Step, play
from models.state import FINISHED, Request, Status

Record: TypeAlias = dict[str, Any]

GATE_NAMES = {
    "none": "none",
    "prompt": "prompt-only",
    "lookahead": "lookahead-only",
    "first-decode-step": "first-decode-step",
}


def _draft_pairs(value: Any) -> tuple[tuple[int, int], ...]:
    count = integer(0)
    try:
        return tuple((count(proposed), count(accepted)) for proposed, accepted in value)
    except (FieldError, TypeError, ValueError):
        raise FieldError("must be a list of [proposed, accepted]") from None


SCENARIO_FIELDS: dict[str, Parse] = {
    "name": text,
    "batching": choice("vllm", "rbln"),
    "gate": choice(*GATE_NAMES),
    "usable_blocks": integer(1),
    "k": integer(0),
    "lookahead": integer(0),
    "draft_slots": integer(0),
    "max_num_batched_tokens": integer(1),
    "max_model_len": integer(1),
    "max_num_seqs": integer(1),
    "watermark": fraction,
    "policy": choice("fcfs", "priority"),
    "prefix_caching": boolean,
}
GROUP_FIELDS: dict[str, Parse] = {"kind": text, "block_size": integer(1)}
REQUEST_FIELDS: dict[str, Parse] = {
    "id": text,
    "arrival": integer(0),
    "prompt": integer(1),
    "max_tokens": integer(1),
    "spec": _draft_pairs,
}


class RecordError(ValueError):
    """A file that is not a recorded run; the message says what was expected."""


@dataclass(frozen=True, slots=True)
class Mismatch:
    """The first step where model and recording differ."""

    step: int
    field: str
    recorded: Any
    modelled: Any


@dataclass(frozen=True, slots=True)
class Comparison:
    """One recorded run against the model; ``not_covered`` names what the model lacks for it."""

    path: Path
    steps: int
    mismatch: Mismatch | None = None
    not_covered: str | None = None


def compare(path: Path) -> Comparison:
    """Run the model on the scenario of a recorded run and compare every field of every step."""
    run = read_run(path)
    missing = not_covered(run["scenario"])
    if missing:
        return Comparison(path, 0, not_covered=missing)
    scenario, scripts = scenario_of(run["scenario"])
    recorded: list[Record] = run["trace"]
    steps = islice(play(scenario, scripts), len(recorded))
    for number, (step, theirs) in enumerate(zip(steps, recorded, strict=True)):
        ours = record(scenario, number, step)
        if ours != theirs:
            field = next(key for key in (*theirs, *ours) if not _same(key, theirs, ours))
            mismatch = Mismatch(number, field, theirs.get(field), ours.get(field))
            return Comparison(path, number + 1, mismatch)
    return Comparison(path, len(recorded))


def read_run(path: Path) -> Record:
    """Read a recorded run.

    Raises
    ------
    RecordError
        If the file is no JSON object with a scenario and a trace in the record format.
    """
    try:
        run = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RecordError(f"{path}: cannot be read as JSON ({error})") from error
    if not isinstance(run, dict) or not {"scenario", "trace"} <= run.keys():
        raise RecordError(
            f'{path}: not a recorded run: expected an object with "scenario" and "trace"'
        )
    try:
        _check(run["scenario"], "scenario", SCENARIO_FIELDS)
        for name, fields in (("groups", GROUP_FIELDS), ("requests", REQUEST_FIELDS)):
            for number, one in enumerate(_list(run["scenario"].get(name), f"scenario.{name}")):
                _check(one, f"scenario.{name}[{number}]", fields)
        for number, step in enumerate(_list(run["trace"], "trace")):
            _check(step, f"trace[{number}]", {"t": integer(0)})
    except FieldError as error:
        raise RecordError(f"{path}: {error}") from None
    return run


def _list(value: Any, where: str) -> list[Any]:
    if not isinstance(value, list) or not value:
        raise FieldError(f"{where} must be a list with at least one entry")
    return value


def _check(value: Any, where: str, fields: dict[str, Parse]) -> None:
    if not isinstance(value, dict):
        raise FieldError(f"{where} must be an object")
    for name, parse in fields.items():
        if name not in value:
            raise FieldError(f'{where} has no "{name}"')
        try:
            parse(value[name])
        except FieldError as error:
            raise FieldError(f"{where}.{name} {error}") from None


def _same(key: str, theirs: Record, ours: Record) -> bool:
    return key in theirs and key in ours and bool(theirs[key] == ours[key])


def not_covered(recorded: Record) -> str | None:
    """The feature of a recorded scenario that the model does not have, if any."""
    kinds = sorted({group["kind"] for group in recorded["groups"]} - {"full"})
    if kinds:
        return f"KV cache groups of kind {', '.join(kinds)}"
    if recorded.get("prefix_caching"):
        return "prefix caching"
    if recorded.get("connector"):
        return "KV connector"
    return None


def scenario_of(recorded: Record) -> tuple[Scenario, list[DraftScript]]:
    """The scenario of a recorded run and the drafts of its requests."""
    engine = EngineConfig(
        scheduler=recorded["batching"],
        gate=GATES[GATE_NAMES[recorded["gate"]]],
        block_sizes=tuple(group["block_size"] for group in recorded["groups"]),
        usable_blocks=recorded["usable_blocks"],
        num_spec_tokens=recorded["k"],
        num_lookahead_tokens=recorded["lookahead"],
        draft_slots=recorded["draft_slots"],
        max_num_batched_tokens=recorded["max_num_batched_tokens"],
        max_model_len=recorded["max_model_len"],
        max_num_seqs=recorded["max_num_seqs"],
        watermark=recorded["watermark"],
        priority_policy=recorded["policy"] == "priority",
    )
    requests = tuple(
        RequestSpec(
            id=request["id"],
            prompt=(request["prompt"], request["prompt"]),
            max_tokens=request["max_tokens"],
            priority=request.get("priority", 0),
            arrival=request["arrival"],
        )
        for request in recorded["requests"]
    )
    scripts = [
        DraftScript(tuple((proposed, accepted) for proposed, accepted in request["spec"]))
        for request in recorded["requests"]
    ]
    return Scenario(recorded["name"], engine, requests), scripts


def record(scenario: Scenario, number: int, step: Step) -> Record:
    """One step of the model in the format of the recorded runs."""
    return dict(_fields(scenario, number, step))


def _fields(scenario: Scenario, number: int, step: Step) -> Iterator[tuple[str, Any]]:
    ids = [spec.id for spec in scenario.requests]
    output = step.output
    yield "t", number
    if step.arrived:
        yield "add", [ids[i] for i in step.arrived]
    yield "sched", [[ids[i], tokens] for i, tokens in output.scheduled.items()]
    if output.drafts:
        yield "spec", {ids[i]: drafts for i, drafts in output.drafts.items()}
    preempted = [e for e in output.events if isinstance(e, Preempted)]
    if preempted:
        yield "pre", [[ids[e.victim], ids[e.by], e.computed] for e in preempted]
    for event in output.events:
        if isinstance(event, Refused):
            yield "refuse", [ids[event.request], event.test, event.needed, event.available]
    before = step.before.requests
    tables = [
        _blocks(blocks) if _present(request) else None
        for request, blocks in zip(before, output.blocks, strict=True)
    ]
    yield "mid", {"b": tables, "free": output.free}
    if step.sampled:
        yield "samp", {ids[i]: tokens for i, tokens in step.sampled.items()}
    kept = {
        ids[i]: k for i, tokens in step.sampled.items() if (k := _kept(scenario, step, i)) < tokens
    }
    if kept:
        yield "kept", kept
    by_arrival = sorted(output.scheduled, key=lambda i: (scenario.requests[i].arrival or 0, i))
    finished = [ids[i] for i in by_arrival if step.after[i] is FINISHED]
    if finished:
        yield "fin", finished
    yield "run", [ids[i] for i in step.running]
    yield "wait", [ids[i] for i in output.waiting]
    after = step.after
    yield "c", [r.computed if _present(r) else None for r in after]
    yield "o", [r.outputs if _present(r) else None for r in after]
    if scenario.engine.num_spec_tokens:
        yield "d", [r.drafts if _present(r) else None for r in after]
    yield "b", [_blocks(r.blocks) if _present(r) else None for r in after]
    yield "free", scenario.engine.usable_blocks - sum(sum(r.blocks) for r in after)


def _present(request: Request) -> bool:
    return request.status not in (Status.UNARRIVED, Status.FINISHED)


def _blocks(blocks: tuple[int, ...]) -> int | list[int]:
    return blocks[0] if len(blocks) == 1 else list(blocks)


def _kept(scenario: Scenario, step: Step, index: int) -> int:
    """Tokens of a request's sample that the stop checks keep (rule R25)."""
    before = step.before.requests[index]
    room = min(
        scenario.requests[index].max_tokens - before.outputs,
        scenario.engine.max_model_len - before.num_tokens,
    )
    return min(step.sampled[index], room)
