"""A run as an ITF trace: the Informal Trace Format of Apalache, which Quint and TLA+ tools read.

A state of the trace is a state of the model before a step; ``#meta.what`` says what that step did,
so that a lasso, whose last state leads back to the state ``loop``, is told in full.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from checker.narrate import narrate
from checker.trace import Trace, TraceStep
from models.config import Scenario
from models.state import FINISHED, Request

Json: TypeAlias = dict[str, Any]

FORMAT = "https://apalache-mc.org/docs/adr/015adr-trace.html"
EXACT = 2**53  # from here on a JSON number need not be exact
# What a request is made of, each a variable of the trace: a map from the requests' ids.
REQUEST_VARS = (
    "status",
    "prompt",
    "outputs",
    "computed",
    "drafts",
    "blocks",
    "prefilling",
    "window",
)
VARS = (*REQUEST_VARS, "running", "waiting", "free", "clock")
PARAMS = (
    *("usable_blocks", "block_sizes", "num_spec_tokens", "lookahead"),
    *("max_num_batched_tokens", "max_num_seqs", "max_model_len"),
)


def itf(trace: Trace, *, policy: str, name: str, evidence: str) -> Json:
    """The trace of a counterexample to the property ``name``, under a policy."""
    scenario = trace.scenario
    states = [
        _state(scenario, number, step.before.requests, step.before.running, step.before.waiting)
        | {"clock": _number(step.before.clock)}
        for number, step in enumerate(trace.steps)
    ]
    for state, step in zip(states, trace.steps, strict=True):
        state["#meta"]["what"] = narrate(scenario, step)
    if trace.loop_start is None:
        states.append(_last(scenario, len(states), trace.steps[-1]))
    states[0] |= {param: _value(getattr(scenario.engine, param)) for param in PARAMS}
    loop = {} if trace.loop_start is None else {"loop": trace.loop_start}
    meta = {
        "format": "ITF",
        "format-description": FORMAT,
        "source": "kvgate",
        "description": f"{name}: {evidence}",
        "scenario": scenario.name,
        "scheduler": scenario.engine.scheduler,
        "policy": policy,
        "property": name,
    }
    return {"#meta": meta, "params": list(PARAMS), "vars": list(VARS), "states": states} | loop


def _last(scenario: Scenario, number: int, step: TraceStep) -> Json:
    """Where the last step leads, before anyone else arrives."""
    left = [index for index in step.output.running if step.after[index] != FINISHED]
    state = _state(scenario, number, step.after, left, step.output.waiting)
    state["#meta"]["what"] = []
    return state | {"clock": _number(step.before.clock)}


def _state(
    scenario: Scenario,
    number: int,
    requests: Sequence[Request],
    running: Sequence[int],
    waiting: Sequence[int],
) -> Json:
    ids = [spec.id for spec in scenario.requests]
    fields = [_fields(request) for request in requests]
    return {
        "#meta": {"index": number},
        **{
            var: {"#map": [[name, _value(one[var])] for name, one in zip(ids, fields, strict=True)]}
            for var in REQUEST_VARS
        },
        "running": [ids[index] for index in running],
        "waiting": [ids[index] for index in waiting],
        "free": _number(
            scenario.engine.usable_blocks - sum(sum(request.blocks) for request in requests)
        ),
    }


def _fields(request: Request) -> Json:
    return {
        "status": request.status.name.lower(),
        "prompt": int(request.prompt),
        "outputs": int(request.outputs),
        "computed": int(request.computed),
        "drafts": int(request.drafts),
        "blocks": request.blocks,
        "prefilling": request.is_prefill_chunk,
        "window": request.window.name.lower(),
    }


def _value(value: Any) -> Any:
    if isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return _number(value)
    return [_value(item) for item in value]


def _number(value: int) -> int | dict[str, str]:
    """A number as JSON has it, or as text where JSON's numbers end to be exact."""
    return value if -EXACT < value < EXACT else {"#bigint": str(value)}
