"""For tests of one's own: a policy asserted, instances drawn, a scheduler driven.

Described in ``docs/testing.md``.
"""

from __future__ import annotations

from checker.assertions import assert_policy
from checker.machine import SchedulerMachine, scheduler_machine
from checker.shadow import (
    Decision,
    ModelScheduler,
    SchedulerFaultError,
    SchedulerUnderTest,
    Shadow,
)
from checker.strategies import answers, environments, gates, scenarios, workloads
from checker.trace import Answer

__all__ = [
    "Answer",
    "Decision",
    "ModelScheduler",
    "SchedulerFaultError",
    "SchedulerMachine",
    "SchedulerUnderTest",
    "Shadow",
    "answers",
    "assert_policy",
    "environments",
    "gates",
    "scenarios",
    "scheduler_machine",
    "workloads",
]
