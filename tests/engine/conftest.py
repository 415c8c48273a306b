"""The installed schedulers; a test whose scheduler is not installed says so and is skipped."""

from __future__ import annotations

import pytest

from checker.engines.driver import Engine, installed, load


@pytest.fixture(scope="session", params=["vllm", "rbln"])
def engine(request: pytest.FixtureRequest) -> Engine:
    """A real scheduler."""
    missing = installed(request.param)
    if missing:
        pytest.skip(missing)
    return load(request.param)
