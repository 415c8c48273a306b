"""The pytest plugin: a fixture ``kvgate``, and nothing else until a test asks for it.

A module of its own, outside the packages, so that a project with packages of the same names is not
disturbed: nothing of the checker is imported before the fixture is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from checker.check import CheckResult


class Kvgate:
    """``assert_policy`` of ``checker.testing``, which leaves its evidence in the report as well."""

    def __init__(self, properties: list[tuple[str, object]]) -> None:
        self._properties = properties

    def assert_policy(self, gate: Any, **options: Any) -> tuple[CheckResult, ...]:
        """Fail unless every property holds under the gate; see ``checker.testing``."""
        __tracebackhide__ = True
        from checker.assertions import assert_policy, evidence

        results = assert_policy(gate, **options)
        self._properties += [("kvgate", evidence(result)) for result in results]
        return results


@pytest.fixture
def kvgate(request: pytest.FixtureRequest) -> Kvgate:
    """Checks admission policies; every green verdict is a property of the test in JUnit XML."""
    return Kvgate(request.node.user_properties)
