"""JUnit XML: violated is a failure, inconclusive an error, and nothing is skipped."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby
from xml.etree import ElementTree

from checker.outputs.cases import Case, Outcome, trace_text

NOT_XML = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(cases: Sequence[Case]) -> str:
    """The document: a suite for each group of cases, in order."""
    root = ElementTree.Element("testsuites", {"name": "kvgate", **_counts(cases)})
    for group, members in groupby(cases, key=lambda case: case.group):
        suite = list(members)
        element = ElementTree.SubElement(root, "testsuite", {"name": _xml(group), **_counts(suite)})
        for case in suite:
            _case(element, case)
    ElementTree.indent(root)
    text = ElementTree.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def _counts(cases: Sequence[Case]) -> dict[str, str]:
    return {
        "tests": str(len(cases)),
        "failures": str(sum(case.outcome is Outcome.FAILED for case in cases)),
        "errors": str(sum(case.outcome is Outcome.INCONCLUSIVE for case in cases)),
        "skipped": "0",
        "time": f"{sum(case.seconds for case in cases):.3f}",
    }


def _case(suite: ElementTree.Element, case: Case) -> None:
    element = ElementTree.SubElement(
        suite,
        "testcase",
        classname=_xml(case.group),
        name=_xml(case.name),
        time=f"{case.seconds:.3f}",
    )
    tag = {Outcome.FAILED: "failure", Outcome.INCONCLUSIVE: "error"}.get(case.outcome)
    if tag is None:
        ElementTree.SubElement(element, "system-out").text = _xml(case.message)
        return
    found = ElementTree.SubElement(element, tag, message=_xml(case.message), type=case.verdict)
    lines = [case.message, *case.details]
    if case.trace is not None:
        lines += trace_text(case.trace)
    found.text = _xml("\n".join(lines))


def _xml(text: str) -> str:
    """Text without the characters that XML has no way to write."""
    return NOT_XML.sub("\ufffd", text)
