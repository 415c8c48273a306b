"""Small changes of the gates and of the block arithmetic, and what refutes each.

``python tests/gate_mutants.py`` writes the table of ``docs/theorems.md``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from mutation import KINDS, ROOT, Model, Mutant, disagreeing, load

from checker.explore import Limits

PAGE = ROOT / "docs" / "theorems.md"
BEGIN = "<!-- mutants, generated -->"
END = "<!-- end -->"

GATES = "models/gates.py"
KV_CACHE = "models/kv_cache.py"
ARITHMETIC = "models/arithmetic.py"

CORRECTED = "first-decode-step"
ALWAYS = "first-decode-step-always"
LOOKAHEAD = "lookahead-only"
PROMPT = "prompt-only"
POLICIES = (CORRECTED, ALWAYS, LOOKAHEAD, PROMPT)

PRESETS = ("vllm", "rbln", "vllm-no-spec")
ENOUGH = Limits(states=10_000)  # an edited model may never end
OVER = ("properties.theorems", "checker.prove", "checker.check", "checker.scenario")


@dataclass(frozen=True, slots=True)
class Killer:
    """What refutes a mutant.

    An obligation proved of the gate ``policy`` that no longer is (``by`` is its number and name),
    an obligation whose counterexample the ints do not reproduce, a preset whose exploration under
    ``policy`` has other verdicts, or recorded runs that are not reproduced (no ``policy``).
    """

    by: str
    policy: str = ""

    @property
    def is_theorem(self) -> bool:
        return self.by[0].isdigit()

    @property
    def kind(self) -> str:
        """A theorem, the ints, an exploration or recorded runs: what ``killers`` asks in this order."""
        return "theorem" if self.is_theorem else self.by.split(" of ")[0]


def theorem(by: str, policy: str = CORRECTED) -> Killer:
    return Killer(by, policy)


def exploration(preset: str, policy: str = CORRECTED) -> Killer:
    return Killer(f"exploration of {preset}", policy)


def runs(kind: str) -> Killer:
    return Killer(f"recorded runs of {kind}")


INTS_DIFFER = Killer("symbols and ints disagree", CORRECTED)


@dataclass(frozen=True, slots=True)
class GateMutant:
    """A mutant and what refutes it, a theorem if any does; ``None``: nothing does."""

    mutant: Mutant
    killer: Killer | None

    def __str__(self) -> str:
        return f"{Path(self.mutant.file).stem}: {self.mutant.instead}"


def edits(file: str, old: str, *changes: tuple[str, str, Killer | None]) -> list[GateMutant]:
    """Mutants that put something else in one place: in words, the new text, what refutes it."""
    return [
        GateMutant(Mutant("", instead, file, old, new), killer) for instead, new, killer in changes
    ]


# --- the mutants -----------------------------------------------------------------------------

T = "request.num_tokens"
K = "request.num_spec_tokens"
L = "request.num_lookahead_tokens"
M = "request.max_model_len"

THE_GATES = (
    *edits(
        GATES,
        f"{K} > 0",
        ("no margin for one draft", f"{K} > 1", theorem("1 first-chunk")),
        ("the margin at k = 0 too", f"{K} >= 0", theorem("6 old-gate-without-speculation")),
    ),
    *edits(
        GATES,
        f"1 + {K} + {L},\n            0,",
        ("the margin at k = 0 only", f"0, 1 + {K} + {L},", theorem("1 first-chunk")),
        ("a margin without 1", f"{K} + {L}, 0,", theorem("1 first-decode-step")),
        ("a margin without k", f"1 + {L}, 0,", theorem("1 padded-first-chunk")),
        ("a margin without the lookahead", f"1 + {K}, 0,", theorem("1 first-chunk")),
        ("a margin of one more", f"2 + {K} + {L}, 0,", theorem("7 at-most-the-margin")),
        ("the lookahead twice", f"1 + {K} + {L} + {L}, 0,", theorem("7 at-most-the-margin")),
    ),
    *edits(
        GATES,
        f"return minimum({T} + margin, {M})",
        ("no cap at M", f"return {T} + margin", theorem("4 idle-engine-admits")),
        ("a cap at M - 1", f"return minimum({T} + margin, {M} - 1)", theorem("1 first-chunk")),
        (
            "max for min",
            f"return where({T} + margin >= {M}, {T} + margin, {M})",
            theorem("4 idle-engine-admits"),
        ),
    ),
    *edits(
        GATES,
        f"first_decode = 1 + {K}",
        ("always without 1", f"first_decode = {K}", theorem("1 first-decode-step", ALWAYS)),
        ("always without k", "first_decode = 1", theorem("1 padded-first-chunk", ALWAYS)),
    ),
    *edits(
        GATES,
        f"{T} + first_decode + {L},",
        ("always without the lookahead", f"{T} + first_decode,", theorem("1 first-chunk", ALWAYS)),
    ),
    *edits(
        GATES,
        f"return minimum({T} + {L}, {M})",
        (
            "lookahead-only without the lookahead",
            f"return minimum({T}, {M})",
            theorem("1 first-chunk", LOOKAHEAD),
        ),
        (
            "lookahead-only without a cap",
            f"return {T} + {L}",
            theorem("4 idle-engine-admits", LOOKAHEAD),
        ),
    ),
    *edits(
        GATES,
        f"return minimum({T}, {M})",
        (
            "prompt-only counts one less",
            f"return minimum({T} - 1, {M})",
            theorem("6 old-gate-without-speculation"),
        ),
        ("prompt-only without a cap", f"return {T}", None),
    ),
)

SLOTS = edits(
    KV_CACHE,
    "return minimum(computed + new_tokens + lookahead, max_model_len)",
    (
        "slots without the lookahead",
        "return minimum(computed + new_tokens, max_model_len)",
        theorem("2 every-smaller-margin-fails"),
    ),
    (
        "slots without those computed",
        "return minimum(new_tokens + lookahead, max_model_len)",
        theorem("2 every-smaller-margin-fails"),
    ),
    (
        "slots without the new tokens",
        "return minimum(computed + lookahead, max_model_len)",
        theorem("2 every-smaller-margin-fails"),
    ),
    (
        "one slot more",
        "return minimum(computed + new_tokens + lookahead + 1, max_model_len)",
        theorem("1 first-decode-step"),
    ),
    ("slots beyond M", "return computed + new_tokens + lookahead", theorem("1 first-chunk")),
    (
        "max for min in the slots",
        "return maximum(computed + new_tokens + lookahead, max_model_len)",
        theorem("1 first-chunk"),
    ),
)

BLOCKS = (
    *edits(
        KV_CACHE,
        "total = total + maximum(cdiv(tokens, block_size) - have, 0)",
        (
            "a floor for a ceiling",
            "total = total + maximum(cdiv(tokens - block_size + 1, block_size) - have, 0)",
            theorem("1 every-chunk-2-groups"),
        ),
        (
            "one block more",
            "total = total + maximum(cdiv(tokens, block_size) + 1 - have, 0)",
            theorem("1 first-chunk"),
        ),
        (
            "blocks held are asked for again",
            "total = total + maximum(cdiv(tokens, block_size), 0)",
            theorem("1 every-chunk"),
        ),
        (
            "a table that shrinks",
            "total = total + cdiv(tokens, block_size) - have",
            runs("vllm"),
        ),
        (
            "min for max in the new blocks",
            "total = total + minimum(cdiv(tokens, block_size) - have, 0)",
            theorem("2 every-smaller-margin-fails"),
        ),
        (
            "all groups have the first block size",
            "total = total + maximum(cdiv(tokens, block_sizes[0]) - have, 0)",
            theorem("1 every-chunk-2-groups"),
        ),
        (
            "only the last group counts",
            "total = maximum(cdiv(tokens, block_size) - have, 0)",
            theorem("1 every-chunk-2-groups"),
        ),
        (
            "every group has a pool of its own",
            "total = maximum(total, cdiv(tokens, block_size) - have)",
            theorem("1 every-chunk-2-groups"),
        ),
    ),
    *edits(
        KV_CACHE,
        "have + num_blocks_to_allocate(tokens",
        (
            "an allocation replaces the table",
            "num_blocks_to_allocate(tokens",
            exploration("vllm"),
        ),
    ),
    *edits(
        KV_CACHE,
        "return new_blocks + watermark_blocks <= free_blocks",
        (
            "one block must stay free",
            "return new_blocks + watermark_blocks < free_blocks",
            theorem("2 every-smaller-margin-fails"),
        ),
        (
            "one block too many is granted",
            "return new_blocks + watermark_blocks <= free_blocks + 1",
            theorem("2 every-smaller-margin-fails"),
        ),
        (
            "the watermark is forgotten",
            "return new_blocks <= free_blocks",
            runs("vllm"),
        ),
        (
            "the watermark may be used",
            "return new_blocks - watermark_blocks <= free_blocks",
            runs("vllm"),
        ),
    ),
)

DECODE = edits(
    KV_CACHE,
    "return minimum(num_tokens + drafts - computed, max_model_len - computed - 1)",
    (
        "no position kept for the next token",
        "return minimum(num_tokens + drafts - computed, max_model_len - computed)",
        theorem("2 failing-set-is-no-larger"),
    ),
    (
        "two positions kept",
        "return minimum(num_tokens + drafts - computed, max_model_len - computed - 2)",
        theorem("2 every-smaller-margin-fails"),
    ),
    (
        "drafts not scheduled",
        "return minimum(num_tokens - computed, max_model_len - computed - 1)",
        theorem("2 every-smaller-margin-fails"),
    ),
    (
        "tokens computed are computed again",
        "return minimum(num_tokens + drafts, max_model_len - computed - 1)",
        theorem("1 first-decode-step"),
    ),
    (
        "max for min in the tokens of a step",
        "return maximum(num_tokens + drafts - computed, max_model_len - computed - 1)",
        theorem("1 first-decode-step"),
    ),
)

NUMBERS = (
    *edits(
        ARITHMETIC,
        "return -(-numerator // divisor)",
        ("a floor for a ceiling, of ints", "return numerator // divisor", exploration("vllm")),
    ),
    *edits(
        ARITHMETIC,
        "return a if a <= b else b",
        ("min swapped, of ints", "return b if a <= b else a", INTS_DIFFER),
    ),
    *edits(
        ARITHMETIC,
        "return where(a <= b, a, b)",
        ("min swapped, of symbols", "return where(a <= b, b, a)", INTS_DIFFER),
    ),
    *edits(
        ARITHMETIC,
        "return a if a >= b else b",
        (
            "max swapped, of ints",
            "return b if a >= b else a",
            replace(INTS_DIFFER, policy=LOOKAHEAD),
        ),
    ),
    *edits(
        ARITHMETIC,
        "return where(a >= b, a, b)",
        ("max swapped, of symbols", "return where(a >= b, b, a)", INTS_DIFFER),
    ),
    *edits(
        ARITHMETIC,
        "return condition.where(then, otherwise)",
        ("where() swapped, of symbols", "return condition.where(otherwise, then)", INTS_DIFFER),
    ),
    *edits(
        ARITHMETIC,
        "if condition is False:\n        return otherwise",
        (
            "where() takes the first, of ints",
            "if condition is False:\n        return then",
            INTS_DIFFER,
        ),
    ),
    *edits(
        ARITHMETIC,
        "return both(a <= b, b <= a)",
        ("same() means at most", "return both(a <= b, a <= b)", theorem("5 decode-emits")),
    ),
    *edits(
        ARITHMETIC,
        "return either(negate(premise), conclusion)",
        ("implies() is or", "return either(premise, conclusion)", theorem("0 cdiv-fits")),
    ),
)

MUTANTS = (*THE_GATES, *SLOTS, *BLOCKS, *DECODE, *NUMBERS)


# --- what refutes them -----------------------------------------------------------------------


def load_prover(mutants: tuple[Mutant, ...] = ()) -> Model:
    """A copy of the model, the theorems, the prover and the search, with edits made."""
    return load(mutants, OVER)


def killers(model: Model) -> Iterator[Killer]:
    """All that refutes a copy: theorems first, then explorations, then recorded runs."""
    for policy in POLICIES:
        yield from _refuted(model, policy)
    for policy in POLICIES:
        for preset in PRESETS:
            if (killer := exploration(preset, policy)) and kills(model, killer):
                yield killer
    for kind in KINDS:
        if kills(model, runs(kind)):
            yield runs(kind)


def kills(model: Model, killer: Killer) -> bool:
    """Whether one of them refutes a copy."""
    if killer.is_theorem or killer.by == INTS_DIFFER.by:
        return killer in _refuted(model, killer.policy, killer.by if killer.is_theorem else None)
    if not killer.policy:
        return next(disagreeing(model, killer.by.rpartition(" ")[2]), None) is not None
    preset = killer.by.rpartition(" ")[2]
    return _verdicts(model, preset, killer.policy) != _unedited_verdicts(preset, killer.policy)


def _refuted(model: Model, policy: str, only: str | None = None) -> Iterator[Killer]:
    gate = model.gates.GATES[policy]
    for obligation in model.theorems.obligations(gate):
        named = title(obligation)
        if only not in (None, named):
            continue
        try:
            refuted = _verdict(model, obligation, gate) == "VIOLATED"
        except (model.prove.UnsoundError, model.prove.UnprovableGateError):
            yield replace(INTS_DIFFER, policy=policy)
            return
        if refuted and is_proved(policy, named):
            yield theorem(named, policy)


def title(obligation: Any) -> str:
    """Number of the theorem and name, as ``check prove`` has them."""
    return f"{obligation.theorem} {obligation.name}"


@cache
def is_proved(policy: str, named: str) -> bool:
    """Whether an obligation is proved of a gate as it is."""
    model = _unedited()
    gate = model.gates.GATES[policy]
    (obligation,) = (o for o in model.theorems.obligations(gate) if title(o) == named)
    return _verdict(model, obligation, gate) == "PROVED"


def _verdict(model: Model, obligation: Any, gate: Any) -> str:
    verdict: str = model.prove.prove(obligation, gate).verdict.value
    return verdict


def _verdicts(model: Model, preset: str, policy: str) -> Any:
    """The verdicts of an exploration, or how it broke down."""
    as_shipped = model.scenario.build(model.scenario.read_preset(preset), preset)
    engine = replace(as_shipped.engine, gate=model.gates.GATES[policy])
    try:
        results = model.check.check(replace(as_shipped, engine=engine), limits=ENOUGH).properties
    except Exception as error:
        return type(error).__name__
    return {result.property.name: result.verdict.value for result in results}


@cache
def _unedited_verdicts(preset: str, policy: str) -> Any:
    return _verdicts(_unedited(), preset, policy)


@cache
def _unedited() -> Model:
    return load_prover()


# --- the table -------------------------------------------------------------------------------


def table() -> str:
    """A row for every mutant."""
    rows = [
        f"| `{Path(each.mutant.file).stem}` | {each.mutant.instead} | {_in_words(each.killer)} |"
        for each in MUTANTS
    ]
    return "\n".join(["| file | edit | refuted by |", "|---|---|---|", *rows])


def current(page: str) -> str:
    """The page with its table made anew."""
    head, _, rest = page.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n\n{table()}\n\n{END}{tail}"


def _in_words(killer: Killer | None) -> str:
    if killer is None:
        return "nothing, since it changes nothing: T < M"
    return killer.by + (f", `{killer.policy}`" if killer.policy not in ("", CORRECTED) else "")


if __name__ == "__main__":
    PAGE.write_text(current(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
