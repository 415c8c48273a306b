"""The admission window of a request: from its admission to the end of its first decode step.

A history variable beside the scheduler's own state: no rule reads it, the properties do.
"""

from __future__ import annotations

from models.scheduler import Admitted, Allocated, Event, Preempted, SchedulerOutput
from models.state import State, Status, Window


def advance_windows(windows: list[Window], event: Event) -> None:
    """Update the windows, one per request, by one event of a step.

    A window opens with the admission, is contended once another request is allocated a block, and
    closes with a preemption.
    """
    if isinstance(event, Allocated):
        for other, window in enumerate(windows):
            if window is Window.CLEAN and other != event.request:
                windows[other] = Window.CONTENDED
    elif isinstance(event, Admitted):
        windows[event.request] = Window.CLEAN
    elif isinstance(event, Preempted):
        windows[event.victim] = Window.CLOSED


def admission_windows(state: State, output: SchedulerOutput) -> tuple[Window, ...]:
    """The window of every request at the end of a step; the first decode step closes it."""
    windows = [request.window for request in state.requests]
    for event in output.events:
        advance_windows(windows, event)
    for index in output.scheduled:
        request = state.requests[index]
        if request.status is Status.RUNNING and not request.is_prefill_chunk:
            windows[index] = Window.CLOSED
    return tuple(windows)
