"""Driver of vllm-rbln's ``RBLNScheduler``; no device and no device library is needed.

Importing this module imports vllm-rbln; ``checker.engines.driver.load`` does it when asked to.
"""

from __future__ import annotations

from typing import Any

from vllm_rbln.config import RBLNConfig
from vllm_rbln.v1.core.rbln_scheduler import RBLNScheduler

from checker.engines.driver import rbln_release, vllm_release
from checker.engines.vllm import VllmEngine
from checker.engines.watch import Notes
from models.config import Scenario, SchedulerName
from models.gates import GATES


class RblnEngine(VllmEngine):
    """The installed vllm-rbln."""

    name: SchedulerName = "rbln"
    scheduler_class: Any = RBLNScheduler

    def __init__(self) -> None:
        super().__init__()
        self.release = f"{rbln_release()} on vLLM {vllm_release()}"

    def gate(self, scenario: Scenario) -> Notes:
        """The wrapper around the gate, which has no switch here: ``none`` needs it too (R38)."""
        if scenario.engine.gate is GATES["prompt-only"]:
            return Notes()
        return Notes(scenario.engine.gate_tokens)

    def config(self, scenario: Scenario, prefix_caching: bool) -> Any:
        """vLLM's configuration of a scenario, with vllm-rbln's own part."""
        config = super().config(scenario, prefix_caching)
        config.additional_config = RBLNConfig(enable_sub_block_cache=False)
        return config


ENGINE = RblnEngine()
