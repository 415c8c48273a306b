"""The ranking functions of the livelock theorems, on concrete states.

A state's rank is all that the abstraction keeps of it, whatever the number of requests. Theorems 4
and 5 prove that an abstract step that emits nothing lowers the rank; ``tests/test_ranking.py``
holds every silent transition of explored graphs against that.
"""

from __future__ import annotations

from models.config import Scenario
from models.rbln import is_prefill
from models.state import State, Status


def mixed_rank(scenario: Scenario, state: State) -> int:
    """Mixed batching, FCFS: tokens left to compute of the oldest running request.

    With nothing running it is above all of those: the step admits the head of the line.
    """
    if not state.running:
        return scenario.engine.max_model_len + 1
    oldest = state.requests[state.running[0]]
    return oldest.num_tokens - oldest.computed


def exclusive_rank(scenario: Scenario, state: State) -> tuple[int, int, int]:
    """Exclusive batching, FCFS: requests to come, requests waiting, tokens left of the lone prefill.

    The last component is 1 without a prefill that runs alone. Lower ranks come first in tuple order.
    """
    to_come = sum(request.status is Status.UNARRIVED for request in state.requests)
    last = state.requests[state.running[-1]] if state.running else None
    left = last.num_tokens - last.computed if last is not None and is_prefill(last) else 1
    return (to_come, len(state.waiting), left)
