"""For every rule of ``docs/rules.md``: edits of the model that leave the rule out."""

from __future__ import annotations

from mutants_admission import GATE, POOL, WAITING_LOOP
from mutants_rbln import RBLN_SCHEDULER
from mutants_running import AFTER_THE_MODEL, PREEMPTION, RUNNING_LOOP

MUTANTS = (
    *POOL,
    *GATE,
    *RUNNING_LOOP,
    *PREEMPTION,
    *WAITING_LOOP,
    *AFTER_THE_MODEL,
    *RBLN_SCHEDULER,
)
