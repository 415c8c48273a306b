"""A repository's proof obligations, from ``obligations.toml`` (docs/ci.md)."""

from __future__ import annotations

import difflib
import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import inf, prod
from pathlib import Path
from typing import Any, TypeAlias

from checker.fields import FIELDS
from checker.policy import PolicyError, load_gate
from checker.scenario import (
    ScenarioError,
    build,
    override,
    parse_request,
    preset_names,
    read_file,
    read_preset,
    to_document,
)
from checker.tasks import Kind, Task, chosen, theorem_name
from properties.properties import PROPERTIES
from properties.properties import Kind as PropertyKind

Json: TypeAlias = dict[str, Any]

EXPECTED = ("holds", "proved", "violated")
SCHEDULERS = ("vllm", "rbln")
REQUIRED = "required"  # stands for every required property
MOST_CELLS = 10_000  # instances of one obligation
KEYS = (
    "name",
    "property",
    "theorem",
    "policy",
    "scheduler",
    "preset",
    "scenario",
    "fields",
    "grid",
    "expect",
    "max_states",
    "max_seconds",
)
OF_INSTANCES = ("scheduler", "preset", "scenario", "fields", "grid", "max_states", "max_seconds")
WITH_THEOREMS = ("no-self-preemption", "no-livelock")
HEADER = re.compile(r"^\s*\[\[\s*obligations\s*\]\]", re.MULTILINE)


class ObligationError(ValueError):
    """An obligation that cannot be read; says which, which field, what it was, what is allowed."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One instance, or one gate, of an obligation: the task and what of its findings is asked."""

    label: str
    task: Task
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Obligation:
    """What is expected of its cells; ``line`` is where it stands in the file, if that is clear."""

    name: str
    expect: str
    cells: tuple[Cell, ...]
    line: int | None


def read_obligations(path: Path) -> list[Obligation]:
    """All obligations of a file, every field looked at.

    Raises
    ------
    ObligationError
        For the first field that is unknown, missing or wrong.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
        document = tomllib.loads(text.replace("\r\n", "\n"))
    except OSError as error:
        raise ObligationError(f"{path}: cannot be read ({error.strerror})") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ObligationError(f"{path}: not valid TOML: {error}") from error
    _known(document, ("obligations",), str(path))
    tables = document.get("obligations")
    if not isinstance(tables, list) or not tables or not all(isinstance(t, dict) for t in tables):
        raise ObligationError(f"{path}: must have at least one [[obligations]] table")
    lines = [text.count("\n", 0, found.end()) + 1 for found in HEADER.finditer(text)]
    found = []
    for number, table in enumerate(tables):
        line = lines[number] if len(lines) == len(tables) else None
        found.append(_obligation(table, number, path, line))
    names = [one.name for one in found]
    for name in names:
        if names.count(name) > 1:
            raise ObligationError(f"{path}: name: got {name!r} twice; names must differ")
    return found


def _obligation(table: Json, number: int, path: Path, line: int | None) -> Obligation:
    named = table.get("name")
    if not isinstance(named, str) or not named.strip() or not named.isprintable():
        got = "is missing" if named is None else f"got {named!r}"
        raise ObligationError(f"{path}: obligations[{number}].name: {got}; must be a line of text")
    where = f"{path}: obligation {named!r}"
    _known(table, KEYS, where)
    expect = _one_of(table, "expect", EXPECTED, where)
    if ("property" in table) == ("theorem" in table):
        raise ObligationError(f"{where}: give a property or a theorem, one of the two")
    try:
        read = _theorem_cells if "theorem" in table else _property_cells
        cells = tuple(read(table, expect, path.parent, where))
    except (ScenarioError, PolicyError) as error:
        raise ObligationError(f"{where}: {error}") from error
    return Obligation(named, expect, cells, line)


# --- theorems ----------------------------------------------------------------------------------


def _theorem_cells(table: Json, expect: str, folder: Path, where: str) -> Iterator[Cell]:
    for name in OF_INSTANCES:
        if name in table:
            raise ObligationError(f"{where}: {name}: a theorem speaks of all sizes; leave it out")
    if expect == "holds":
        raise ObligationError(f"{where}: expect: a theorem is 'proved' or 'violated'")
    for policy in _policies(table, folder, where):
        gate = load_gate(policy)
        for theorem in _list(table, "theorem", where, (int, str)):
            if not chosen(str(theorem), gate):
                raise ObligationError(_no_theorem(where, theorem, gate))
            task = Task("prove", policy, theorem=str(theorem))
            yield Cell(policy, task, (theorem_name(str(theorem)),))


def _no_theorem(where: str, theorem: object, gate: Any) -> str:
    from properties.theorems import obligations

    known = obligations(gate)
    numbers = sorted({str(one.theorem) for one in known})
    names = list(dict.fromkeys(one.name for one in known))
    hint = _hint(str(theorem), names, f"there are {', '.join(numbers)} and {', '.join(names)}")
    return f"{where}: theorem: got {theorem!r}, which says nothing of {gate.name}; {hint}"


# --- properties of instances ---------------------------------------------------------------------


def _property_cells(table: Json, expect: str, folder: Path, where: str) -> Iterator[Cell]:
    names = _properties(table, expect, where)
    max_states = _limit(table, "max_states", int, where)
    max_seconds = _limit(table, "max_seconds", (int, float), where)
    if expect == "proved" and (max_states or max_seconds):
        raise ObligationError(f"{where}: max_states, max_seconds: nothing is explored for a proof")
    policies = list(_policies(table, folder, where))
    grid = _grid(table, where)
    documents = list(_documents(table, folder, where))
    count = len(policies) * len(documents) * prod(len(values) for values in grid.values())
    if count > MOST_CELLS:
        raise ObligationError(f"{where}: grid: {count:,} instances; at most {MOST_CELLS:,}")
    for (document, source), policy in product(documents, policies):
        for values in product(*grid.values()):
            point = dict(zip(grid, values, strict=True))
            resolved = override(document, point | {"scheduler.policy": policy})
            scenario = build(resolved, source)
            spelled = json.dumps(to_document(scenario, policy), sort_keys=True)
            kind: Kind = "theorems" if expect == "proved" else "explore"
            label = _label(policy, scenario.engine.scheduler, source, point)
            limits = (max_states, None if max_seconds is None else float(max_seconds))
            yield Cell(label, Task(kind, policy, spelled, "", *limits), names)


def _label(policy: str, scheduler: str, source: str, point: Json) -> str:
    words = [f"{policy} under {scheduler}", source]
    words += [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in point.items()]
    return ", ".join(words)


def _properties(table: Json, expect: str, where: str) -> tuple[str, ...]:
    known = [prop.name for prop in PROPERTIES]
    names = [str(name) for name in _list(table, "property", where, (str,))]
    if names == [REQUIRED] and expect == "holds":
        return tuple(
            p.name for p in PROPERTIES if p.required and p.kind is not PropertyKind.COVERAGE
        )
    for name in names:
        if name == REQUIRED:
            raise ObligationError(
                f"{where}: property: {REQUIRED!r} stands alone and goes with expect = 'holds'"
            )
        if name not in known:
            hint = _hint(name, known, "there are " + ", ".join(known))
            raise ObligationError(f"{where}: property: no property {name!r}; {hint}")
        if expect == "proved" and name not in WITH_THEOREMS:
            raise ObligationError(
                f"{where}: property: no theorem on {name}; there is one on each of "
                + ", ".join(WITH_THEOREMS)
            )
    return tuple(names)


def _limit(table: Json, name: str, kinds: Any, where: str) -> Any:
    value = table.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, kinds) or not 0 < value < inf:
        raise ObligationError(f"{where}: {name}: got {value!r}; must be a number above 0")
    return value


def _documents(table: Json, folder: Path, where: str) -> Iterator[tuple[Json, str]]:
    """The instances before the grid, each with what it is called in errors."""
    if "preset" in table and "scenario" in table:
        raise ObligationError(f"{where}: preset and scenario: give one of the two")
    schedulers = _schedulers(table, where)
    fields = _fields(table, "fields", where)
    if "preset" not in table and "scenario" not in table:
        for name in schedulers or SCHEDULERS:
            yield override(read_preset(name), fields), f"preset {name}"
        return
    if "preset" in table:
        name = _one_of(table, "preset", preset_names(), where)
        document, source = read_preset(name), f"preset {name}"
    else:
        file = table["scenario"]
        if not isinstance(file, str):
            raise ObligationError(f"{where}: scenario: got {file!r}; must be the path of a file")
        document, source = read_file(folder / file), file
    changes = [{"scheduler.scheduler": scheduler} for scheduler in schedulers] or [{}]
    for change in changes:
        yield override(document, change | fields), source


def _schedulers(table: Json, where: str) -> list[str]:
    if table.get("scheduler") == "both":
        return list(SCHEDULERS)
    if "scheduler" not in table:
        return []
    return [_one_of(table, "scheduler", (*SCHEDULERS, "both"), where)]


def _grid(table: Json, where: str) -> dict[str, list[Any]]:
    grid = _fields(table, "grid", where)
    both = grid.keys() & _fields(table, "fields", where).keys()
    if both:
        raise ObligationError(f"{where}: grid: {min(both)} is in fields too")
    for name, values in grid.items():
        if not isinstance(values, list) or not values:
            raise ObligationError(
                f"{where}: grid.{name}: got {values!r}; must be a list of at least one value"
            )
        if any(values.count(value) > 1 for value in values):
            raise ObligationError(f"{where}: grid.{name}: got {values!r}; a value is there twice")
    if "requests" in grid:
        grid["requests"] = [_requests(one, f"{where}: grid.requests") for one in grid["requests"]]
    return grid


def _fields(table: Json, key: str, where: str) -> Json:
    """Fields of a scenario by section and name; ``requests`` replaces the workload."""
    tables = table.get(key, {})
    if not isinstance(tables, dict):
        raise ObligationError(f"{where}: {key}: got {tables!r}; must be a table")
    known = {f.path for f in FIELDS if f.path != "scheduler.policy"} | {"requests"}
    if "scheduler" in table:
        known.discard("scheduler.scheduler")
    changes: Json = {}
    for section, rows in tables.items():
        if section == "requests" or not isinstance(rows, dict):
            changes[section] = rows
        else:
            changes |= {f"{section}.{name}": value for name, value in rows.items()}
    _known(changes, sorted(known), f"{where}: {key}")
    if key == "fields" and "requests" in changes:
        changes["requests"] = _requests(changes["requests"], f"{where}: fields.requests")
    return changes


def _requests(value: Any, where: str) -> list[Any]:
    """A workload: tables, or the words of ``--request``."""
    if not isinstance(value, list) or not value:
        raise ObligationError(f"{where}: got {value!r}; must be a list of at least one request")
    return [parse_request(one) if isinstance(one, str) else one for one in value]


# --- fields ------------------------------------------------------------------------------------


def _policies(table: Json, folder: Path, where: str) -> Iterator[str]:
    """The policies, files of one's own found from the folder of the obligations."""
    for policy in _list(table, "policy", where, (str,)):
        module, colon, name = policy.rpartition(":")
        if colon and module.endswith(".py"):
            policy = f"{(folder / module).as_posix()}:{name}"
        load_gate(policy)
        yield policy


def _list(table: Json, name: str, where: str, kinds: tuple[type, ...]) -> list[Any]:
    """One value, or a list of different ones."""
    value = table.get(name)
    values = value if isinstance(value, list) else [value]
    right = all(isinstance(one, kinds) and not isinstance(one, bool) for one in values)
    if not values or not right or any(values.count(one) > 1 for one in values):
        got = "is missing" if value is None else f"got {value!r}"
        raise ObligationError(f"{where}: {name}: {got}; must be one, or a list of different ones")
    return values


def _one_of(table: Json, name: str, allowed: Sequence[str], where: str) -> str:
    value = table.get(name)
    if value in allowed:
        return str(value)
    got = "is missing" if name not in table else f"got {value!r}"
    words = "must be one of " + ", ".join(repr(word) for word in allowed)
    raise ObligationError(f"{where}: {name}: {got}; {_hint(str(value), allowed, words)}")


def _known(table: Mapping[str, Any], allowed: Iterable[str], where: str) -> None:
    allowed = list(allowed)
    for name in table:
        if name not in allowed:
            hint = _hint(name, allowed, "known: " + ", ".join(allowed))
            raise ObligationError(f"{where}: {name}: unknown field; {hint}")


def _hint(word: str, allowed: Sequence[str], otherwise: str) -> str:
    close = difflib.get_close_matches(word, allowed, 1)
    return f"did you mean {close[0]!r}?" if close else otherwise
