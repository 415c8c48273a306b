"""vllm-rbln's scheduler step: one prefill alone, or all decodes.

Mirrors ``vllm_rbln/v1/core/rbln_scheduler.py RBLNScheduler.schedule`` of vllm-rbln 0.12.0.
"""

from __future__ import annotations

from models.config import Scenario
from models.kv_cache import decode_tokens
from models.scheduler import Evicted, SchedulerOutput, ScheduleStep
from models.state import Request, State


def schedule(scenario: Scenario, state: State) -> SchedulerOutput:
    """Decide one step; deterministic."""
    step = ScheduleStep(scenario, state)
    token_budget = _schedule_running(step)
    first = next(iter(step.scheduled), None)
    prefill_runs = first is not None and is_prefill(step.requests[first])
    if not step.preempted and not prefill_runs:  # R16, R34
        _schedule_waiting(step, token_budget)
    return step.output()


def is_prefill(request: Request) -> bool:
    """Whether a request is still in prefill; one token left counts as decode (rule R33).

    Mirrors ``vllm_rbln/v1/core/utils.py is_prefill``.
    """
    return request.computed < request.num_tokens - 1


def _schedule_running(step: ScheduleStep) -> int:
    """The running loop; returns the token budget that is left (rule R35)."""
    running = step.running
    max_model_len = step.engine.max_model_len
    token_budget = step.engine.max_num_batched_tokens
    # R33: a prefill at the end of the running list goes alone.
    prefill_last = bool(running) and is_prefill(step.requests[running[-1]])
    position = len(running) - 1 if prefill_last else 0
    while position < len(running) and token_budget > 0:
        index = running[position]
        request = step.requests[index]
        wanted = decode_tokens(request.num_tokens, request.drafts, request.computed, max_model_len)
        tokens = min(wanted, token_budget)
        if tokens == 0:  # R11: skipped, not a stop
            position += 1
            continue
        self_preempted = False
        while shortage := step.allocate_slots(index, request.computed + tokens):
            victim = step.preempt_for(index, shortage)
            if restored := step.take_back(victim):  # R17: here only a scheduled one counts
                token_budget += restored
                position -= 1
            if victim == index:
                self_preempted = True
                break
        if self_preempted:  # R15, R40
            break
        step.schedule_running(index, tokens)
        token_budget -= tokens
        position += 1
    return token_budget


def _schedule_waiting(step: ScheduleStep, token_budget: int) -> None:
    """The waiting loop: one prefill, alone, or one-token requests beside the decodes (R35 to R38)."""
    engine = step.engine
    decodes = list(step.scheduled)
    while step.waiting and token_budget > 0:  # R35: budget left by the decodes
        if len(step.running) >= engine.max_num_seqs:  # R20, R39
            break
        index = step.waiting[0]
        request = step.requests[index]
        prefill = is_prefill(request)
        if prefill and len(step.scheduled) > len(decodes):  # R37: it waits without a refusal
            break
        tokens = min(request.num_tokens - request.computed, engine.max_num_batched_tokens)
        if not step.admit(index, request.computed + tokens):
            break
        step.scheduled[index] = tokens
        token_budget -= tokens
        if prefill:
            _evict(step, decodes)
            break


def _evict(step: ScheduleStep, decodes: list[int]) -> None:
    """An admitted prefill throws the decodes out of the step; blocks and drafts stay (rule R36)."""
    for index in decodes:
        del step.scheduled[index]
        step.pending[index] = step.drafts.pop(index, 0)
        step.events.append(Evicted(index))
