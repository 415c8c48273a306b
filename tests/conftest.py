"""Fixtures that several test files share."""

from __future__ import annotations

import signal

import pytest
from mutation import Model, load

# Where Ctrl-C is ignored (a job in the background of a script), children would ignore it as well,
# and the tests of interrupts would wait for ever. A handler of one's own is not inherited.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def model() -> Model:
    """A copy of the model with every rule in place."""
    return load()
