"""The fields of a scenario: one table for the file reader, the command line and the docs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from models.config import Release

RELEASES: tuple[Release, ...] = ("0.30", "0.31", "0.32", "0.33")

# Lookahead and draft slots by drafter, in multiples of k and a constant (rule R5; vLLM
# config/vllm.py num_lookahead_tokens, config/speculative.py max_num_new_slots_for_drafting).
DRAFTERS: dict[str, Callable[[int], tuple[int, int]]] = {
    "ngram": lambda k: (0, 0),
    "draft_model": lambda k: (k, 1),
    "eagle": lambda k: (k, 0),
    "mtp": lambda k: (k, 0),
    "dflash": lambda k: (k + 1, k),
}


class FieldError(ValueError):
    """A value that its field does not allow; the message says what is allowed."""


Parse: TypeAlias = Callable[[Any], Any]


def integer(least: int) -> Parse:
    """An integer of at least ``least``."""

    def parse(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise FieldError(f"must be an integer of at least {least}")
        return value

    return parse


def optional(parse: Parse) -> Parse:
    """The same, or left out."""
    return lambda value: None if value is None else parse(value)


def choice(*allowed: str) -> Parse:
    """One of the given words."""

    def parse(value: Any) -> str:
        if value not in allowed:
            raise FieldError("must be one of " + ", ".join(repr(word) for word in allowed))
        return str(value)

    return parse


def release(value: Any) -> str:
    """A release of vLLM; a number is taken for its text."""
    return str(choice(*RELEASES)(f"{value:.2f}" if isinstance(value, float) else value))


def boolean(value: Any) -> bool:
    """``true`` or ``false``."""
    if not isinstance(value, bool):
        raise FieldError("must be true or false")
    return value


def text(value: Any) -> str:
    """A non-empty string on one line, without control characters."""
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise FieldError("must be a non-empty string of printable characters")
    return value


def fraction(value: Any) -> float:
    """A number from 0 to below 1."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
        raise FieldError("must be a number from 0 to below 1")
    return float(value)


def sizes(value: Any) -> tuple[int, ...]:
    """One positive integer, or one for each KV cache group."""
    values = value if isinstance(value, list) else [value]
    try:
        parsed = tuple(integer(1)(one) for one in values)
    except FieldError:
        parsed = ()
    if not parsed:
        raise FieldError(
            "must be a positive integer, or a list of one for each KV cache group, such as [16, 8]"
        )
    return parsed


def span(least: int) -> Parse:
    """One integer, or ``[shortest, longest]`` for the environment to choose from."""

    def parse(value: Any) -> tuple[int, int]:
        values = value if isinstance(value, list) else [value, value]
        try:
            low, high = (integer(least)(one) for one in values)
        except (FieldError, ValueError):
            low, high = 1, 0
        if low > high:
            raise FieldError(
                f"must be an integer of at least {least}, or [least, most] with least <= most"
            )
        return low, high

    return parse


def accepted(value: Any) -> tuple[int, int | None]:
    """``"any"``, one integer, or ``[least, most]``."""
    if value == "any":
        return (0, None)
    try:
        low, high = span(0)(value)
    except FieldError:
        raise FieldError('must be "any", an integer of at least 0, or [least, most]') from None
    return low, high


@dataclass(frozen=True, slots=True)
class Field:
    """One field: its section and name in a scenario file, its unit, default and meaning."""

    section: str
    name: str
    parse: Parse
    default: Any
    unit: str
    doc: str

    @property
    def path(self) -> str:
        """The name as error messages spell it."""
        return f"{self.section}.{self.name}"

    @property
    def flag(self) -> str:
        """The option on the command line."""
        return "--" + self.name.replace("_", "-")


NAME = Field("", "name", text, None, "", "name of the scenario; left out = its file")

FIELDS: tuple[Field, ...] = (
    Field(
        "scheduler",
        "scheduler",
        choice("vllm", "rbln"),
        "vllm",
        "",
        "vllm mixes prefill and decode in a step; rbln runs one prefill alone, or all decodes",
    ),
    Field(
        "scheduler",
        "release",
        release,
        "0.32",
        "",
        "release of vLLM, where they differ (vllm only; rbln is 0.12.0)",
    ),
    Field(
        "scheduler",
        "policy",
        text,
        "prompt-only",
        "",
        "the admission gate: a name, package.module:Class or path/to/file.py:Class",
    ),
    Field(
        "scheduler",
        "scheduling_policy",
        choice("fcfs", "priority"),
        "fcfs",
        "",
        "queue order and victims: first come first served, or by priority",
    ),
    Field(
        "scheduler",
        "watermark",
        fraction,
        0.0,
        "share of the pool",
        "blocks kept free at admission",
    ),
    Field(
        "pool",
        "usable_blocks",
        integer(1),
        6,
        "blocks",
        "blocks that requests can hold; vLLM's num_gpu_blocks is one more (the null block)",
    ),
    Field(
        "pool",
        "block_size",
        sizes,
        [16],
        "tokens",
        "tokens of a block; a list has one entry for each KV cache group (full attention)",
    ),
    Field(
        "budgets",
        "max_num_batched_tokens",
        integer(1),
        8192,
        "tokens",
        "token budget of a step, so the largest prefill chunk",
    ),
    Field("budgets", "max_num_seqs", integer(1), 8, "requests", "most running requests"),
    Field(
        "budgets",
        "max_model_len",
        integer(2),
        96,
        "tokens",
        "longest sequence; every count of slots is capped at it",
    ),
    Field(
        "speculation",
        "method",
        choice(*DRAFTERS),
        "ngram",
        "",
        "drafter; sets lookahead and draft slots unless those are given",
    ),
    Field(
        "speculation",
        "num_speculative_tokens",
        integer(0),
        3,
        "tokens",
        "k: drafts proposed per decode step; 0 = no speculative decoding",
    ),
    Field(
        "speculation",
        "num_lookahead_tokens",
        optional(integer(0)),
        None,
        "tokens",
        "L: slots allocated past the scheduled tokens (rbln raises it to at least k)",
    ),
    Field(
        "speculation",
        "draft_slots",
        optional(integer(0)),
        None,
        "tokens",
        "input budget charged for each scheduled request on top of its tokens (vllm only)",
    ),
    Field(
        "environment",
        "accepted",
        accepted,
        "any",
        "tokens",
        'drafts accepted per decode step: "any", a number, or [least, most]',
    ),
    Field(
        "environment",
        "proposed",
        choice("always", "up-to"),
        "always",
        "",
        "drafts proposed: always k, or any number up to k (as ngram may)",
    ),
    Field("environment", "eos", boolean, False, "", "whether a request may end before max_tokens"),
)

REQUEST_FIELDS: tuple[Field, ...] = (
    Field("requests", "id", text, None, "", "name in tables and traces"),
    Field(
        "requests",
        "prompt",
        span(1),
        None,
        "tokens",
        "prompt length, or [shortest, longest] for the environment to choose from",
    ),
    Field("requests", "max_tokens", integer(1), None, "tokens", "output tokens at which it ends"),
    Field("requests", "priority", integer(0), 0, "", "lower is more urgent"),
    Field(
        "requests",
        "arrival",
        optional(integer(0)),
        None,
        "steps",
        "the step it arrives before; left out = at any step, in the order of the file",
    ),
)
