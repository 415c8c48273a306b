"""A counterexample written out as a test of the real scheduler that needs nothing of kvgate."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import resources
from string import Template
from textwrap import fill

from checker.tracefile import Counterexample
from models.gates import GATES

MAX_STEPS = 200

ALONE = '''\
def test_no_request_preempts_itself_while_it_is_admitted(run):
    """Unless somebody else was given a block since its admission."""
    watch, _ = run
    assert [(name, lost) for name, lost, alone in watch.self_preemptions if alone] == []'''
STRICT = """\
def test_no_request_preempts_itself_while_it_is_admitted(run):
    watch, _ = run
    assert [(name, lost) for name, lost, _ in watch.self_preemptions] == []"""
ENDS = '''\
def test_every_request_finishes(run):
    """No livelock and no deadlock: MAX_STEPS is far more than the work takes."""
    _, requests = run
    unfinished = [name for name, request in requests.items() if not request.is_finished()]
    assert unfinished == []'''
TESTS = {
    "no-self-preemption": ALONE,
    "no-self-preemption-strict": STRICT,
    "no-livelock": ENDS,
    "no-deadlock": ENDS,
}
# What only vllm-rbln's scheduler needs.
RBLN = {
    "environment": 'os.environ.setdefault("VLLM_PLUGINS", "")  # no device is needed\n\n',
    "vllm_import": "",
    "rbln_imports": "from vllm_rbln.config import RBLNConfig\n"
    "from vllm_rbln.v1.core.rbln_scheduler import RBLNScheduler\n",
    "additional_config": "    vllm_config.additional_config = "
    "RBLNConfig(enable_sub_block_cache=False)\n",
    "scheduler_class": "RBLNScheduler",
}
VLLM = {
    "environment": "",
    "vllm_import": "from vllm.v1.core.sched.scheduler import Scheduler\n",
    "rbln_imports": "",
    "additional_config": "",
    "scheduler_class": "Scheduler",
}


class ExportError(ValueError):
    """A counterexample that cannot be written as a test; the message says why."""


def pytest_file(trace: Counterexample) -> str:
    """The text of the test file.

    Raises
    ------
    ExportError
        If no test of the real scheduler can show the property or the gate.
    """
    engine = trace.scenario.engine
    if trace.property not in TESTS:
        raise ExportError(
            f"{trace.property}: only counterexamples to {', '.join(TESTS)} can be exported"
        )
    policy = trace.document["scheduler"]["policy"]
    if policy not in GATES:
        raise ExportError(f"policy {policy!r}: only the gates {', '.join(GATES)} can be exported")
    if engine.draft_slots > 1:
        raise ExportError("draft_slots: vLLM has no plain configuration with more than one")
    template = resources.files("checker") / "templates" / "vllm_test.py.in"
    summary = f"{trace.property} is violated: {trace.evidence}."
    return Template(template.read_text(encoding="utf-8")).substitute(
        RBLN if engine.scheduler == "rbln" else VLLM,
        summary=fill(summary, 96, initial_indent="   ").lstrip(),
        scheduler=engine.scheduler,
        policy=policy,
        instance=f"{engine.usable_blocks} blocks of {'+'.join(map(str, engine.block_sizes))} "
        f"tokens, {engine.num_spec_tokens} drafts.",
        property=trace.property,
        block_sizes=engine.block_sizes,
        usable_blocks=engine.usable_blocks,
        num_spec_tokens=engine.num_spec_tokens,
        num_lookahead_tokens=engine.lookahead,
        draft_slots=engine.draft_slots,
        max_num_batched_tokens=engine.max_num_batched_tokens,
        max_model_len=engine.max_model_len,
        max_num_seqs=engine.max_num_seqs,
        watermark=engine.watermark,
        scheduling_policy="priority" if engine.priority_policy else "fcfs",
        arrivals="\n".join(_arrivals(trace)),
        answers="\n".join(_answers(trace)),
        max_steps=MAX_STEPS,
        test=TESTS[trace.property],
    )


def _arrivals(trace: Counterexample) -> Iterator[str]:
    for step, given in enumerate(trace.steps):
        for index, prompt in given.arrived:
            spec = trace.scenario.requests[index]
            time = float((spec.arrival or 0) * 1000 + index)
            values = (step, spec.id, prompt, spec.max_tokens, spec.priority, time)
            yield f"    {_python(values)},"


def _answers(trace: Counterexample) -> Iterator[str]:
    outputs = [0] * len(trace.scenario.requests)
    for given in trace.steps:
        for index, answer in given.answers.items():
            key = (trace.scenario.requests[index].id, outputs[index])
            yield f"    {_python(key)}: {_python(tuple(answer))},"
        for index, count in enumerate(given.expected["o"]):
            outputs[index] = outputs[index] if count is None else count


def _python(values: tuple[object, ...]) -> str:
    """A tuple as Python, strings in double quotes."""
    words = (f'"{v}"' if isinstance(v, str) and '"' not in v else repr(v) for v in values)
    return f"({', '.join(words)})"
