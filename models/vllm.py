"""vLLM's scheduler step: prefill and decode mixed in one batch.

Mirrors ``v1/core/sched/scheduler.py Scheduler.schedule`` of vLLM 0.30 to 0.33: first the running
requests, then, if nobody was preempted, the waiting ones.
"""

from __future__ import annotations

from models.config import Scenario
from models.kv_cache import decode_tokens
from models.scheduler import SchedulerOutput, ScheduleStep
from models.state import State


def schedule(scenario: Scenario, state: State) -> SchedulerOutput:
    """Decide one step; deterministic."""
    step = ScheduleStep(scenario, state)
    budget = _Budget(scenario.engine.max_num_batched_tokens, scenario.engine.draft_slots)
    prefill_scheduled = _schedule_running(step, budget)
    if not step.preempted:  # R16: any preemption skips the waiting loop
        _schedule_waiting(step, budget, prefill_scheduled)
    return step.output()


class _Budget:
    """Token budget and input budget of a step, in tokens; draft slots count in the latter (R10)."""

    __slots__ = ("draft_slots", "inputs", "tokens")

    def __init__(self, max_num_batched_tokens: int, draft_slots: int) -> None:
        self.tokens = max_num_batched_tokens
        self.inputs = max_num_batched_tokens
        self.draft_slots = draft_slots

    @property
    def room(self) -> int:
        """Tokens that one more request may take; none left if not positive."""
        return min(self.tokens, self.inputs - self.draft_slots)

    def spend(self, tokens: int) -> None:
        self.tokens -= tokens
        self.inputs -= tokens + self.draft_slots

    def restore(self, tokens: int) -> None:
        self.tokens += tokens
        self.inputs += tokens + self.draft_slots


def _schedule_running(step: ScheduleStep, budget: _Budget) -> bool:
    """The running loop; returns whether a prefill was scheduled, by last step's flag (rule R22)."""
    prefill_scheduled = False
    position = 0
    running = step.running
    max_model_len = step.engine.max_model_len
    while position < len(running) and (room := budget.room) > 0:
        index = running[position]
        request = step.requests[index]
        wanted = decode_tokens(request.num_tokens, request.drafts, request.computed, max_model_len)
        tokens = min(wanted, room)
        if tokens == 0:  # R11: skipped, not a stop
            position += 1
            continue
        self_preempted = False
        while shortage := step.allocate_slots(index, request.computed + tokens):
            ahead = running[:position]
            victim = step.preempt_for(index, shortage)
            if victim in ahead:  # R17: the index steps back if the victim stood before
                position -= 1
            if restored := step.take_back(victim):
                budget.restore(restored)
            if victim == index:
                self_preempted = True
                break
        if self_preempted:
            if step.engine.outlives_self_preemption:
                continue
            break  # R15: later requests are not scheduled in this step
        step.schedule_running(index, tokens)
        budget.spend(tokens)
        prefill_scheduled |= request.is_prefill_chunk
        position += 1
    return prefill_scheduled


def _schedule_waiting(step: ScheduleStep, budget: _Budget, prefill_scheduled: bool) -> None:
    """The waiting loop: head of line, the first refusal ends it (rules R19 to R21b)."""
    engine = step.engine
    running_scheduled = bool(step.scheduled)
    while step.waiting and (room := budget.room) > 0:
        if len(step.running) >= engine.max_num_seqs:  # R20
            break
        index = step.waiting[0]
        request = step.requests[index]
        tokens = request.num_tokens - request.computed
        padded = False
        if tokens == 1 and engine.num_spec_tokens and not prefill_scheduled:
            window = 1 + engine.num_spec_tokens
            below_limit = request.computed + window + 1 <= engine.max_model_len
            if below_limit and (running_scheduled or request.computed):  # R21
                if window > room:  # R21b: rather not scheduled than unpadded
                    break
                tokens, padded = window, True
        tokens = min(tokens, room)
        if not step.admit(index, request.computed + tokens):
            break
        step.scheduled[index] = tokens
        if padded:
            step.drafts[index] = -engine.num_spec_tokens
        budget.spend(tokens)
