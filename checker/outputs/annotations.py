"""GitHub annotations: workflow commands on stdout that mark what is wrong."""

from __future__ import annotations

from collections.abc import Sequence

from checker.outputs.cases import Case, Outcome

MOST = 10  # errors that GitHub shows for one step


def github_annotations(cases: Sequence[Case]) -> str:
    """A line for each name that did not pass, and one that counts those beyond the tenth."""
    wrong: dict[str, list[Case]] = {}
    for case in cases:
        if case.outcome is not Outcome.PASSED:
            wrong.setdefault(case.name, []).append(case)
    lines = [_annotation(same) for same in list(wrong.values())[:MOST]]
    if len(wrong) > MOST:
        more = f"{len(wrong) - MOST} more did not pass; the log and the summary have them all"
        lines.append(f"::notice title=kvgate::{_data(more)}")
    return "".join(f"{line}\n" for line in lines)


def _annotation(cases: Sequence[Case]) -> str:
    """Of cases with one name, such as a property of several instances."""
    case = cases[0]
    properties = {"title": f"{case.verdict} {case.name}"}
    if case.file is not None:
        properties["file"] = case.file
    if case.line is not None:
        properties["line"] = str(case.line)
    words = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    message = f"{case.group}: {case.message}"
    if len(cases) > 1:
        message += "\nalso: " + "; ".join(other.group for other in cases[1:])
    return f"::error {words}::{_data(message)}"


def _data(text: str) -> str:
    """A message, escaped as GitHub unescapes it."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    """The value of a property, in which colons and commas are escaped too."""
    return _data(text).replace(":", "%3A").replace(",", "%2C")
