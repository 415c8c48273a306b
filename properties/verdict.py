"""The four verdicts. No summary turns one into another."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum


class Verdict(Enum):
    """What is known about a property, and by which evidence.

    ``PROVED``: a theorem, for all parameters, with its assumptions.
    ``HOLDS``: every reachable state of *this* instance was explored.
    ``VIOLATED``: a trace shows it, replayed before it is shown.
    ``INCONCLUSIVE``: a limit was met, or a solver gave no answer.
    """

    PROVED = "PROVED"
    HOLDS = "HOLDS"
    INCONCLUSIVE = "INCONCLUSIVE"
    VIOLATED = "VIOLATED"


SEVERITY = (Verdict.PROVED, Verdict.HOLDS, Verdict.INCONCLUSIVE, Verdict.VIOLATED)


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The verdict that decides for several together.

    >>> worst([Verdict.HOLDS, Verdict.INCONCLUSIVE]).name
    'INCONCLUSIVE'
    """
    return max(verdicts, key=SEVERITY.index)
