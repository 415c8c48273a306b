"""Reports in files and for other programs; each is made of results and changes nothing.

``-o FILE`` takes the format from the file's name, ``-o FORMAT=FILE`` from the word before it. The
terminal is never silenced by a file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from checker.outputs.cases import Case

REPORTS = ("json", "junit", "github", "markdown")
SUFFIXES = {".json": "json", ".xml": "junit", ".md": "markdown"}
FILE_HELP = (
    "also write FILE: JSON (.json), JUnit XML (.xml) or Markdown (.md) by its name, or by "
    "json=FILE, junit=FILE, github=FILE, markdown=FILE; may be repeated"
)


class OutputError(ValueError):
    """A file that cannot be written, or whose format is not known."""


@dataclass(frozen=True, slots=True)
class Target:
    """A file to write, and its format."""

    format: str
    path: Path


def target(words: str) -> Target:
    """What ``-o`` means.

    >>> target("report.xml").format, target("markdown=summary").format
    ('junit', 'markdown')
    """
    name, equals, path = words.partition("=")
    if equals and name in REPORTS:
        if not path:
            raise OutputError(f"-o {words}: names no file")
        return Target(name, Path(path))
    known = SUFFIXES.get(Path(words).suffix.lower())
    if known is None:
        raise OutputError(
            f"-o {words}: the format is not clear from the name; end it in "
            f"{', '.join(SUFFIXES)}, or write FORMAT=FILE with one of {', '.join(REPORTS)}"
        )
    return Target(known, Path(words))


def targets(words: Sequence[str] | None) -> list[Target]:
    """All of them, each file once and in a folder that exists: said before anything is run."""
    found = [target(one) for one in words or ()]
    for one in found:
        if sum(other.path == one.path for other in found) > 1:
            raise OutputError(f"-o {one.path}: given twice")
        if one.path.is_dir() or not one.path.parent.is_dir():
            raise OutputError(f"-o {one.path}: cannot be written (no such folder, or a folder)")
    return found


def write(target: Target, text: str) -> None:
    """Write a report.

    Raises
    ------
    OutputError
        If that is not possible.
    """
    try:
        target.path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise OutputError(f"-o {target.path}: cannot be written ({error.strerror})") from error


Renderers = dict[str, Callable[[], str]]


def renderers(cases: Callable[[], Sequence[Case]], document: Callable[[], str]) -> Renderers:
    """How each format is made, of cases or, for JSON, of the document."""
    from checker.outputs.annotations import github_annotations
    from checker.outputs.junit import junit
    from checker.outputs.summary import summary

    return {
        "json": document,
        "junit": lambda: junit(cases()),
        "github": lambda: github_annotations(cases()),
        "markdown": lambda: summary(cases()),
    }
