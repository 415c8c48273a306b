"""GitHub annotations: workflow commands on stdout that mark what is wrong."""

from __future__ import annotations

from collections.abc import Sequence

from checker.outputs.cases import Case, Outcome

MOST = 10  # errors that GitHub shows for one step


def github_annotations(cases: Sequence[Case]) -> str:
    """A line for each case that did not pass, and one that counts those beyond the tenth."""
    wrong = [case for case in cases if case.outcome is not Outcome.PASSED]
    lines = [_annotation(case) for case in wrong[:MOST]]
    if len(wrong) > MOST:
        more = f"{len(wrong) - MOST} more did not pass; the log and the summary have them all"
        lines.append(f"::notice title=kvgate::{_data(more)}")
    return "".join(f"{line}\n" for line in lines)


def _annotation(case: Case) -> str:
    properties = {"title": f"{case.verdict} {case.name}"}
    if case.file is not None:
        properties["file"] = case.file
    if case.line is not None:
        properties["line"] = str(case.line)
    words = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    return f"::error {words}::{_data(f'{case.group}: {case.message}')}"


def _data(text: str) -> str:
    """A message, escaped as GitHub unescapes it."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    """The value of a property, in which colons and commas are escaped too."""
    return _data(text).replace(":", "%3A").replace(",", "%2C")
