"""Scenarios from TOML files, presets and the command line."""

from __future__ import annotations

import difflib
import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, TypeAlias

from checker.fields import DRAFTERS, FIELDS, NAME, REQUEST_FIELDS, Field, FieldError, text
from checker.policy import load_gate
from models.config import EngineConfig, Environment, RequestSpec, Scenario

Document: TypeAlias = dict[str, Any]


class ScenarioError(ValueError):
    """A scenario that cannot be read; the message says which field, what it was, what is allowed."""


def preset_names() -> list[str]:
    """The names that ``--preset`` takes."""
    folder = resources.files("checker") / "presets"
    return sorted(
        entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name[-5:] == ".toml"
    )


def read_preset(name: str) -> Document:
    """The document of a named preset."""
    if name not in preset_names():
        raise ScenarioError(
            f"--preset {name}: no such preset; there are {', '.join(preset_names())}"
        )
    preset = resources.files("checker") / "presets" / f"{name}.toml"
    return tomllib.loads(preset.read_text(encoding="utf-8"))


def read_file(path: Path) -> Document:
    """The document of a scenario file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ScenarioError(f"{path}: cannot be read ({error.strerror})") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ScenarioError(f"{path}: not valid TOML: {error}") from error


def override(document: Document, changes: Mapping[str, Any]) -> Document:
    """The document with fields replaced, by ``section.name``; ``requests`` replaces the workload."""
    merged = {
        key: dict(value) if isinstance(value, dict) else value for key, value in document.items()
    }
    for path, value in changes.items():
        section, _, name = path.partition(".")
        if not name:
            merged[section] = value
        elif isinstance(table := merged.setdefault(section, {}), dict):
            table[name] = value
    return merged


def build(document: Document, source: str) -> Scenario:
    """The scenario of a document; ``source`` names it in errors.

    Raises
    ------
    ScenarioError
        For the first field that is unknown, missing or wrong.
    """
    try:
        return _build(document, source)
    except FieldError as error:
        raise ScenarioError(f"{source}: {error}") from error


def to_document(scenario: Scenario, policy: str) -> Document:
    """The document that ``build`` turns into this scenario, every field spelled out."""
    engine, environment = scenario.engine, scenario.environment
    least, most = environment.accepted
    document: Document = {
        "name": scenario.name,
        "scheduler": {
            "scheduler": engine.scheduler,
            "policy": policy,
            "scheduling_policy": "priority" if engine.priority_policy else "fcfs",
            "watermark": engine.watermark,
        },
        "pool": {
            "usable_blocks": engine.usable_blocks,
            "block_size": list(engine.block_sizes),
        },
        "budgets": {
            "max_num_batched_tokens": engine.max_num_batched_tokens,
            "max_num_seqs": engine.max_num_seqs,
            "max_model_len": engine.max_model_len,
        },
        "speculation": {
            "num_speculative_tokens": engine.num_spec_tokens,
            "num_lookahead_tokens": engine.num_lookahead_tokens,
            "draft_slots": engine.draft_slots,
        },
        "environment": {
            "accepted": "any" if most is None else [least, most],
            "proposed": environment.proposed,
            "eos": environment.eos,
        },
        "requests": [_request_document(spec) for spec in scenario.requests],
    }
    if engine.scheduler == "vllm":
        document["scheduler"]["release"] = engine.release
    return document


def to_toml(document: Document) -> str:
    """A document as a TOML file, every field with its unit and meaning as a comment."""
    docs = {field.path: field for field in (*FIELDS, *REQUEST_FIELDS)}
    lines = [f"name = {_toml(document['name'])}"]
    for section, table in document.items():
        rows = table if isinstance(table, list) else [table]
        for number, row in enumerate(rows):
            if not isinstance(row, dict):
                continue
            lines += ["", f"[[{section}]]" if isinstance(table, list) else f"[{section}]"]
            for name, value in row.items():
                field = docs[f"{section}.{name}"]
                unit = f"{field.unit}: " if field.unit else ""
                comment = f"  # {unit}{field.doc}" if number == 0 else ""
                lines.append(f"{name} = {_toml(value)}{comment}")
    return "\n".join(lines) + "\n"


def parse_request(words: str) -> Document:
    """A request from the command line: ``id=v,prompt=26..33,max_tokens=4``."""
    request: Document = {}
    for word in words.split(","):
        name, separator, value = (part.strip() for part in word.partition("="))
        if not separator:
            raise ScenarioError(
                f"--request {words}: got {word!r}; write name=value pairs with commas between, "
                "such as id=v,prompt=26..33,max_tokens=4"
            )
        if name in request:
            raise ScenarioError(f"--request {words}: {name} is given twice")
        request[name] = value if name == "id" else parse_value(value)
    try:
        _table(request, REQUEST_FIELDS, "")
    except FieldError as error:
        raise ScenarioError(f"--request {words}: {error}") from error
    return request


def parse_option(field: Field, words: str) -> Any:
    """The value of a field from the command line."""
    value = words if field.parse is text else parse_value(words)
    try:
        field.parse(value)
    except FieldError as error:
        raise ScenarioError(f"{field.flag}{_unit(field)}: got {value!r}; {error}") from error
    return value


def parse_value(words: str) -> Any:
    """A value as written on the command line: a TOML value, ``a..b`` for [a, b], or plain text."""
    low, dots, high = words.partition("..")
    if dots and low.strip().isdigit() and high.strip().isdigit():
        return [int(low), int(high)]
    try:
        return tomllib.loads(f"value = {words}")["value"]
    except tomllib.TOMLDecodeError:
        return words


def _build(document: Document, source: str) -> Scenario:
    _known(document, {field.section for field in FIELDS} | {"name", "requests"}, "")
    values = {
        section: _section(document, section)
        for section in dict.fromkeys(field.section for field in FIELDS)
    }
    scheduler, pool, budgets = values["scheduler"], values["pool"], values["budgets"]
    speculation, environment = values["speculation"], values["environment"]
    k = speculation["num_speculative_tokens"]
    lookahead, slots = DRAFTERS[speculation["method"]](k) if k else (0, 0)
    if speculation["num_lookahead_tokens"] is not None:
        lookahead = speculation["num_lookahead_tokens"]
    if speculation["draft_slots"] is not None:
        slots = speculation["draft_slots"]
    engine = EngineConfig(
        scheduler=scheduler["scheduler"],
        gate=load_gate(scheduler["policy"]),
        block_sizes=pool["block_size"],
        usable_blocks=pool["usable_blocks"],
        num_spec_tokens=k,
        num_lookahead_tokens=lookahead,
        draft_slots=0 if scheduler["scheduler"] == "rbln" else slots,
        max_num_batched_tokens=budgets["max_num_batched_tokens"],
        max_model_len=budgets["max_model_len"],
        max_num_seqs=budgets["max_num_seqs"],
        watermark=scheduler["watermark"],
        priority_policy=scheduler["scheduling_policy"] == "priority",
        release=scheduler["release"],
    )
    requests = _requests(document)
    _consistent(engine, requests)
    return Scenario(
        name=_value({"name": source} | document, NAME, ""),
        engine=engine,
        requests=requests,
        environment=Environment(
            accepted=environment["accepted"],
            proposed=environment["proposed"],
            eos=environment["eos"],
        ),
    )


def _section(document: Document, section: str) -> Document:
    table = document.get(section, {})
    fields = [field for field in FIELDS if field.section == section]
    return _table(table, fields, f"{section}.")


def _table(table: Any, fields: Sequence[Field], where: str) -> Document:
    """The values of a table's fields; ``where`` is the prefix of their names in errors."""
    if not isinstance(table, dict):
        raise FieldError(f"{where.rstrip('.')}: got {table!r}; must be a table")
    _known(table, {field.name for field in fields}, where)
    return {field.name: _value(table, field, where) for field in fields}


def _value(table: Document, field: Field, where: str) -> Any:
    value = table.get(field.name, field.default)
    try:
        return field.parse(value)
    except FieldError as error:
        got = "is missing" if field.name not in table else f"got {value!r}"
        raise FieldError(f"{where}{field.name}{_unit(field)}: {got}; {error}") from None


def _unit(field: Field) -> str:
    return f" ({field.unit})" if field.unit else ""


def _known(table: Mapping[str, Any], allowed: Iterable[str], where: str) -> None:
    allowed = sorted(allowed)
    for name in table:
        if name not in allowed:
            close = difflib.get_close_matches(name, allowed, 1)
            hint = f"did you mean {where}{close[0]}?" if close else "known: " + ", ".join(allowed)
            raise FieldError(f"{where}{name}: unknown field; {hint}")


def _requests(document: Document) -> tuple[RequestSpec, ...]:
    tables = document.get("requests")
    if not isinstance(tables, list) or not tables:
        raise FieldError("requests: must be a list of at least one [[requests]] table")
    specs = []
    for number, table in enumerate(tables):
        values = _table(table, REQUEST_FIELDS, f"requests[{number}].")
        specs.append(RequestSpec(**values))
    return tuple(specs)


def _consistent(engine: EngineConfig, requests: tuple[RequestSpec, ...]) -> None:
    """What no single field can say."""
    ids = [spec.id for spec in requests]
    for spec in requests:
        where = f"requests[{ids.index(spec.id)}]"
        if ids.count(spec.id) > 1:
            raise FieldError(f"{where}.id: got {spec.id!r} twice; ids must differ")
        if spec.prompt[1] >= engine.max_model_len:
            raise FieldError(
                f"{where}.prompt: got {spec.prompt[1]} tokens; must be below "
                f"budgets.max_model_len = {engine.max_model_len}"
            )
        if (spec.arrival is None) != (requests[0].arrival is None):
            raise FieldError(f"{where}.arrival: give every request a fixed arrival, or none")
    refuses = engine.release >= "0.33" and engine.scheduler == "vllm"  # R49
    if refuses and engine.max_num_batched_tokens <= engine.num_lookahead_tokens:
        raise FieldError(
            f"budgets.max_num_batched_tokens: got {engine.max_num_batched_tokens}; vLLM 0.33 "
            f"refuses to start unless it is above the lookahead, {engine.num_lookahead_tokens}"
        )
    if engine.scheduler == "vllm" and engine.max_num_batched_tokens <= engine.draft_slots:
        raise FieldError(
            f"budgets.max_num_batched_tokens: got {engine.max_num_batched_tokens}; must be above "
            f"speculation.draft_slots = {engine.draft_slots}, or nothing is ever scheduled"
        )


def _request_document(spec: RequestSpec) -> Document:
    low, high = spec.prompt
    document: Document = {
        "id": spec.id,
        "prompt": low if low == high else [low, high],
        "max_tokens": spec.max_tokens,
        "priority": spec.priority,
    }
    if spec.arrival is not None:
        document["arrival"] = spec.arrival
    return document


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_toml(one) for one in value) + "]"
    return str(value)
