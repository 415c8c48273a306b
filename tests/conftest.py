"""Fixtures that several test files share."""

from __future__ import annotations

import pytest
from mutation import Model, load


@pytest.fixture(scope="session")
def model() -> Model:
    """A copy of the model with every rule in place."""
    return load()
