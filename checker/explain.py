"""What a name means: rules, properties, theorems, policies, verdicts, exit codes, terms, fields.

Every text is read where it stands: in the code that uses it, or in the pages of the documentation,
which are part of the package.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

PAGES = ("rules.md", "policies.md", "theorems.md", "terms.md")
CELLS = re.compile(r"(?<!\\)\|")
RULE = re.compile(r"\*\*(R\d+b?)\*\*")
THEOREM = re.compile(r"^(\d)\. (\*\*(.+?)\*\*.+?)(?=^\S|\Z)", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Entry:
    """Something that has a name; ``details`` are (what, text)."""

    kind: str
    name: str
    text: str
    aliases: tuple[str, ...] = ()
    details: tuple[tuple[str, str], ...] = ()


def entries() -> list[Entry]:
    """Everything that can be explained, by kind."""
    found: list[Entry] = []
    for kind in (
        _verdicts,
        _exit_codes,
        _properties,
        _policies,
        _theorems,
        _rules,
        _terms,
        _fields,
    ):
        found += kind()
    return found


def explain(name: str) -> list[Entry]:
    """The entries that a name means; several if it is ambiguous, such as ``3``."""
    wanted = _folded(name)
    return [entry for entry in entries() if wanted in _names(entry)]


def suggestions(name: str) -> list[str]:
    """Names close to one that does not exist."""
    known = {folded: entry.name for entry in entries() for folded in _names(entry)}
    close = difflib.get_close_matches(_folded(name), known, 3)
    return list(dict.fromkeys(known[one] for one in close))


def _names(entry: Entry) -> set[str]:
    own = (entry.name, *entry.aliases)
    return {_folded(name) for name in own} | {_folded(f"{entry.kind} {entry.name}")}


def _folded(name: str) -> str:
    return " ".join(name.casefold().replace("_", "-").replace("-", " ").split())


# --- from the code ---------------------------------------------------------------------------


def _verdicts() -> Iterator[Entry]:
    from checker.words import VERDICTS

    for name, text in VERDICTS.items():
        yield Entry("verdict", name, text)


def _exit_codes() -> Iterator[Entry]:
    from checker.words import EXIT_CODES

    for code, text in EXIT_CODES.items():
        yield Entry("exit code", str(code), text, (f"exit {code}",))


def _properties() -> Iterator[Entry]:
    from properties.properties import PROPERTIES, Kind

    for prop in PROPERTIES:
        required = "yes" if prop.required else "no"
        if prop.kind is Kind.COVERAGE:
            required = "no: it says whether a green verdict means anything"
        details = (("of the kind", prop.kind.value), ("required of a gate", required))
        yield Entry("property", prop.name, prop.statement, details=details)


def _fields() -> Iterator[Entry]:
    from checker.fields import FIELDS, REQUEST_FIELDS

    for field in (*FIELDS, *REQUEST_FIELDS):
        details = [("in a scenario file", field.path)]
        if field.unit:
            details.append(("unit", field.unit))
        option = field in FIELDS
        if option:
            details.append(("option", field.flag))
        aliases = (field.path, field.flag) if option else (field.path,)
        yield Entry("field", field.name, field.doc, aliases, tuple(details))


# --- from the code and the pages -------------------------------------------------------------


def _policies() -> Iterator[Entry]:
    from models.gates import GATES

    counts = dict(_table(_page("policies.md"), "counts at admission"))
    for name, gate in GATES.items():
        words = _plain(type(gate).__doc__ or "")
        yield Entry("policy", name, words, (f"gate {name}",), (("counts", counts[name]),))


def _theorems() -> Iterator[Entry]:
    from models.gates import FirstDecodeStep
    from properties.theorems import Obligation, obligations

    parts: dict[int, list[Obligation]] = {}
    for obligation in obligations(FirstDecodeStep(), groups=(1,)):
        parts.setdefault(obligation.theorem, []).append(obligation)
    for number, text, title in THEOREM.findall(_page("theorems.md")):
        names = ", ".join(part.name for part in parts.get(int(number), ()))
        details = (("obligations", names),) if names else ()
        yield Entry("theorem", number, _plain(text), (title.rstrip("."),), details)
    for several in parts.values():
        for one in several:
            about = (("theorem", str(one.theorem)), ("mathematics", one.mathematics))
            assumed = tuple((f"assuming {part.name}", part.words) for part in one.assumptions)
            yield Entry("obligation", one.name, one.words, details=about + assumed)


# --- from the pages --------------------------------------------------------------------------


def _rules() -> Iterator[Entry]:
    for line in _page("rules.md").splitlines():
        cells = _cells(line)
        if len(cells) == 5 and (rule := RULE.fullmatch(cells[0])):
            source, model, tests = (_plain(cell) for cell in cells[2:])
            details = (("in the real scheduler", source), ("in the model", model), ("tests", tests))
            yield Entry("rule", rule[1], _plain(cells[1]), details=details)


def _terms() -> Iterator[Entry]:
    for term, meaning in _table(_page("terms.md"), "meaning"):
        name, _, others = term.removesuffix(")").partition(" (")
        aliases = tuple(word.strip() for word in others.split(",")) if others else ()
        yield Entry("term", name, meaning, aliases)


def _table(page: str, column: str) -> Iterator[tuple[str, str]]:
    """The rows of the table of two columns whose second one has this title."""
    rows = iter(page.splitlines())
    for line in rows:
        if _cells(line)[1:] == [column]:
            next(rows)
            break
    for line in rows:
        cells = _cells(line)
        if len(cells) != 2:
            return
        yield _plain(cells[0]), _plain(cells[1])


def _cells(line: str) -> list[str]:
    if not line.startswith("|"):
        return []
    return [cell.strip().replace("\\|", "|") for cell in CELLS.split(line.strip())[1:-1]]


def _plain(text: str) -> str:
    """Text without its marks."""
    return " ".join(re.sub(r"\*\*|`", "", text).split())


def _page(name: str) -> str:
    """A page, of the package or, in a checkout, of its documentation."""
    packaged = resources.files("checker") / "docs" / name
    if packaged.is_file():
        return packaged.read_text(encoding="utf-8")
    return (Path(__file__).parent.parent / "docs" / name).read_text(encoding="utf-8")
