"""The theorems: what a gate guarantees for every size, stated over the code that exploration runs.

A statement is a function of numbers that may be ints or symbols. The prover calls it with symbols;
the same call with ints evaluates it on one example, which is how counterexamples and witnesses are
checked. Nothing here knows a solver. ``docs/theorems.md`` says what they mean and what they leave
out.

Letters: B block size, T tokens of a request (prompt and outputs so far), k drafts, L lookahead,
M max_model_len, F free blocks at admission, W watermark blocks, c tokens computed, n tokens of a
chunk, d drafts of a decode step, h blocks held, o blocks that others took since the admission, m
margin, C max_num_batched_tokens, S draft slots.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, TypeAlias

from models.arithmetic import (
    Condition,
    Num,
    both,
    cdiv,
    either,
    equivalent,
    implies,
    minimum,
    negate,
    same,
)
from models.gates import (
    Admission,
    FirstDecodeStep,
    FirstDecodeStepAlways,
    Gate,
    PromptOnly,
)
from models.kv_cache import (
    decode_tokens,
    fits,
    grown,
    num_blocks_to_allocate,
    num_tokens_need_slot,
)

# Block sizes, tokens of a request, of a chunk and computed by a running one, budget, M.
POSITIVE = "BTncMC"

Values: TypeAlias = Mapping[str, Num]
Formula: TypeAlias = Callable[[Gate, Values], Condition]


@dataclass(frozen=True, slots=True)
class Assumption:
    """A named assumption of a theorem, in words and as a condition."""

    name: str
    words: str
    holds: Formula


@dataclass(frozen=True, slots=True)
class Obligation:
    """One thing to prove.

    ``variables`` are in the order in which counterexamples are made small: the first one least,
    then the second, and so on. They are natural numbers, those of ``POSITIVE`` at least 1, and
    T < M, since a request that reaches max_model_len has ended (R25); with ``integers`` they are
    any integers. ``mathematics`` is the goal as written on paper. An
    obligation that is not ``required`` of a gate says what it costs, or speaks of other gates.
    ``counts`` names variables that count blocks, for which the prover may use ``cdiv-fits``.
    """

    theorem: int
    name: str
    words: str
    mathematics: str
    variables: tuple[str, ...]
    assumptions: tuple[Assumption, ...]
    goal: Formula
    integers: bool = False
    required: bool = True
    counts: tuple[str, ...] = ()

    def domain(self, values: Values) -> Condition:
        """What the variables range over."""
        if self.integers:
            return True
        live = values["T"] + 1 <= values["M"] if {"T", "M"} <= values.keys() else True
        return both(live, *(number >= int(name[0] in POSITIVE) for name, number in values.items()))

    def without(self, name: str) -> Obligation:
        """The same without one assumption."""
        return replace(self, assumptions=tuple(a for a in self.assumptions if a.name != name))


# --- the code of the model, on these letters ---------------------------------------------------


def _sizes(v: Values) -> list[Num]:
    """Block sizes of the groups: B alone, or B1, B2, ..."""
    return [v["B"]] if "B" in v else [v[f"B{g}"] for g in range(1, _groups(v) + 1)]


def _held(v: Values) -> list[Num]:
    """Blocks that the request holds, per group."""
    return [v["h"]] if "h" in v else [v[f"h{g}"] for g in range(1, _groups(v) + 1)]


def _groups(v: Values) -> int:
    return sum(1 for name in v if _is_size(name) and name != "B")


def _is_size(name: str) -> bool:
    return name[0] == "B" and (name == "B" or name[1:].isdigit())


def _nothing(v: Values) -> list[Num]:
    return [0 for _ in _sizes(v)]


def gate_tokens(gate: Gate, v: Values) -> Num | None:
    """Slots that the gate wants."""
    return gate.tokens(
        Admission(
            num_tokens=v["T"],
            num_spec_tokens=v["k"],
            num_lookahead_tokens=v["L"],
            max_model_len=v["M"],
        )
    )


def _passes(gate: Gate, v: Values, watermark: Num = 0) -> Condition:
    """Whether the gate lets the request in, with F blocks free and none held."""
    wanted = gate_tokens(gate, v)
    if wanted is None:
        return True
    return fits(num_blocks_to_allocate(wanted, _sizes(v), _nothing(v)), watermark, v["F"])


def _admitted(gate: Gate, v: Values) -> Condition:
    """Whether the gate lets the request in and the shortest first chunk, one token, is granted."""
    first = num_tokens_need_slot(0, 1, v["L"], v["M"])
    return both(_passes(gate, v), _granted(first, v, _nothing(v)))


def _granted(
    slots: Num, v: Values, held: Sequence[Num], watermark: Num = 0, taken: Num = 0
) -> Condition:
    """Whether an allocation is granted: of F blocks this request holds some, others took some."""
    free = v["F"] - taken
    for have in held:
        free = free - have
    return fits(num_blocks_to_allocate(slots, _sizes(v), held), watermark, free)


def _prefill_slots(v: Values) -> Num:
    return num_tokens_need_slot(v["c"], v["n"], v["L"], v["M"])


def _first_slots(v: Values) -> Num:
    return num_tokens_need_slot(0, v["n"], v["L"], v["M"])


def _decode_slots(v: Values, drafts: Num) -> Num:
    """Slots of the first decode step: T computed, T + 1 known, so many drafts."""
    tokens = decode_tokens(v["T"] + 1, drafts, v["T"], v["M"])
    return num_tokens_need_slot(v["T"], tokens, v["L"], v["M"])


def _within_gate(gate: Gate, v: Values, held: Sequence[Num]) -> Condition:
    """The invariant of the window: no more blocks held than the gate counted, per group."""
    wanted = gate_tokens(gate, v)
    bound = v["M"] if wanted is None else wanted
    return both(*(have <= cdiv(bound, size) for have, size in zip(held, _sizes(v), strict=True)))


# --- assumptions -------------------------------------------------------------------------------


SPECULATING = Assumption("speculating", "the engine speculates", lambda gate, v: v["k"] >= 1)
NO_DRAFTER = Assumption(
    "no-drafter",
    "without speculation there is no lookahead (R5)",
    lambda gate, v: either(v["k"] >= 1, same(v["L"], 0)),
)
PASSED = Assumption(
    "passed",
    "the gate let the request in: what it counted, and the watermark, were free",
    lambda gate, v: _passes(gate, v, v["W"]),
)
ADMITTED = Assumption(
    "admitted",
    "the request was admitted: the gate let it in, and a first chunk was granted",
    lambda gate, v: _admitted(gate, v),
)
CHUNK = Assumption(
    "chunk",
    "a chunk ends at T or before",
    lambda gate, v: v["c"] + v["n"] <= v["T"],
)
FIRST_CHUNK = Assumption(
    "chunk", "the first chunk ends at T or before", lambda gate, v: v["n"] <= v["T"]
)
DRAFTS = Assumption(
    "drafts",
    "no more drafts are scheduled than were proposed",
    lambda gate, v: v["d"] <= v["k"],
)
ALONE = Assumption(
    "alone",
    "nobody else took a block since the admission",
    lambda gate, v: same(v["o"], 0),
)
WITHIN = Assumption(
    "within",
    "of the F blocks free at admission the request holds h, in no group more than the gate counted",
    lambda gate, v: both(sum(_held(v)) <= v["F"], _within_gate(gate, v, _held(v))),
)
FITS_ALONE = Assumption(
    "fits-alone",
    "a request of max_model_len tokens fits in the empty pool of F blocks",
    lambda gate, v: num_blocks_to_allocate(v["M"], _sizes(v), _nothing(v)) <= v["F"],
)
TABLE = Assumption(
    "table",
    "a request holds no more blocks than max_model_len tokens take",
    lambda gate, v: both(
        *(have <= cdiv(v["M"], size) for have, size in zip(_held(v), _sizes(v), strict=True))
    ),
)


def _names(letter: str, groups: int) -> tuple[str, ...]:
    return (letter,) if groups == 1 else tuple(f"{letter}{g}" for g in range(1, groups + 1))


def _suffix(groups: int) -> str:
    return "" if groups == 1 else f"-{groups}-groups"


# --- 0. lemma ----------------------------------------------------------------------------------


_CEILINGS = Assumption(
    "ceilings",
    "p and q are the ceilings of x/B and y/B",
    lambda gate, v: both(
        v["B"] * (v["p"] - 1) < v["x"],
        v["x"] <= v["B"] * v["p"],
        v["B"] * (v["q"] - 1) < v["y"],
        v["y"] <= v["B"] * v["q"],
    ),
)


def lemmas() -> list[Obligation]:
    """What the prover adds about ceilings, proved from their definition alone."""
    return [
        Obligation(
            0,
            "cdiv-monotone",
            "a ceiling does not shrink when its numerator grows; the other proofs use this",
            "B(p-1) < x <= Bp, B(q-1) < y <= Bq, x <= y  =>  p <= q",
            ("B", "x", "y", "p", "q"),
            (
                _CEILINGS,
                Assumption("order", "x is at most y", lambda gate, v: v["x"] <= v["y"]),
            ),
            lambda gate, v: v["p"] <= v["q"],
            integers=True,
        ),
        Obligation(
            0,
            "cdiv-fits",
            "x tokens fit in q blocks if and only if their ceiling is at most q",
            "B(p-1) < x <= Bp  =>  (p <= q  <=>  x <= Bq)",
            ("B", "x", "y", "p", "q"),
            (_CEILINGS,),
            lambda gate, v: equivalent(v["p"] <= v["q"], v["x"] <= v["B"] * v["q"]),
            integers=True,
        ),
        Obligation(
            0,
            "cdiv-subadditive",
            "the ceiling of a sum is at most the sum of the ceilings",
            "B(p-1) < x <= Bp, B(q-1) < y <= Bq, z <= x + y, (r <= p+q <=> z <= B(p+q))  =>  r <= p+q",
            ("B", "x", "y", "z", "p", "q", "r"),
            (
                _CEILINGS,
                Assumption("sum", "z is at most x + y", lambda gate, v: v["z"] <= v["x"] + v["y"]),
                Assumption(
                    "fits",
                    "r is the ceiling of z/B, of which cdiv-fits says: z fits in p + q blocks if "
                    "and only if r is at most p + q",
                    lambda gate, v: equivalent(
                        v["r"] <= v["p"] + v["q"],
                        v["z"] <= v["B"] * v["p"] + v["B"] * v["q"],
                    ),
                ),
            ),
            lambda gate, v: v["r"] <= v["p"] + v["q"],
            integers=True,
        ),
    ]


# --- 1. sufficiency ----------------------------------------------------------------------------


def sufficiency(*, speculating: bool, groups: int = 1) -> list[Obligation]:
    """Base, step and decode step of the induction over the chunks of a prefill.

    The invariant: of the F blocks free at admission the request holds, per group, no more than the
    gate counted, and nobody else took one.
    """
    common = (SPECULATING,) if speculating else ()
    sizes, held = _names("B", groups), _names("h", groups)
    return [
        Obligation(
            1,
            "first-chunk" + _suffix(groups),
            "at admission the first chunk is granted, watermark included, and what is then held "
            "is within what the gate counted",
            "sum_g cdiv(G, B_g) + W <= F  =>  sum_g cdiv(min(n+L, M), B_g) + W <= F",
            (*sizes, "T", "k", "L", "n", "W", "F", "M"),
            (*common, PASSED, FIRST_CHUNK),
            lambda gate, v: both(
                _granted(_first_slots(v), v, _nothing(v), v["W"]),
                _within_gate(gate, v, grown(_first_slots(v), _sizes(v), _nothing(v))),
            ),
        ),
        Obligation(
            1,
            "padded-first-chunk" + _suffix(groups),
            "a request of one token that is padded to 1 + k tokens at admission (R21) is granted "
            "them, and what is then held is within what the gate counted",
            "T = 1, k+2 <= M, sum_g cdiv(G, B_g) + W <= F  =>  "
            "sum_g cdiv(min(1+k+L, M), B_g) + W <= F",
            (*sizes, "k", "L", "W", "F", "M"),
            (*common, _of_one_token(PASSED)),
            lambda gate, v: implies(v["k"] + 2 <= v["M"], _padded(gate, {**v, "T": 1})),
        ),
        Obligation(
            1,
            "every-chunk" + _suffix(groups),
            "every later chunk is granted, and what is then held is still within what the gate "
            "counted",
            "h_g <= cdiv(G, B_g), o = 0  =>  "
            "sum_g max(cdiv(min(c+n+L, M), B_g) - h_g, 0) <= F - o - sum_g h_g",
            (*sizes, "T", "k", "L", "c", "n", *held, "o", "F", "M"),
            (*common, ADMITTED, CHUNK, ALONE, WITHIN),
            lambda gate, v: both(
                _granted(_prefill_slots(v), v, _held(v), taken=v["o"]),
                _within_gate(gate, v, grown(_prefill_slots(v), _sizes(v), _held(v))),
            ),
        ),
        Obligation(
            1,
            "first-decode-step" + _suffix(groups),
            "the first decode step is granted, whatever number of drafts is scheduled",
            "h_g <= cdiv(G, B_g), o = 0, d <= k  =>  "
            "sum_g max(cdiv(s, B_g) - h_g, 0) <= F - o - sum_g h_g "
            "with s = min(T + min(1+d, M-T-1) + L, M)",
            (*sizes, "T", "k", "L", "d", *held, "o", "F", "M"),
            (*common, ADMITTED, DRAFTS, ALONE, WITHIN),
            lambda gate, v: _granted(_decode_slots(v, v["d"]), v, _held(v), taken=v["o"]),
        ),
    ]


def _of_one_token(assumption: Assumption) -> Assumption:
    """The assumption about a request of one token."""
    return replace(assumption, holds=lambda gate, v: assumption.holds(gate, {**v, "T": 1}))


def _padded(gate: Gate, v: Values) -> Condition:
    slots = num_tokens_need_slot(0, 1 + v["k"], v["L"], v["M"])
    return both(
        _granted(slots, v, _nothing(v), v["W"]),
        _within_gate(gate, v, grown(slots, _sizes(v), _nothing(v))),
    )


# --- 2. tightness ------------------------------------------------------------------------------


@dataclass(frozen=True)
class MarginGate:
    """A gate with a margin of m tokens: ``min(T + m, M)``."""

    name: ClassVar[str] = "margin"
    margin: Num

    def tokens(self, request: Admission) -> Num | None:
        return minimum(request.num_tokens + self.margin, request.max_model_len)


def _window_fails(v: Values) -> Condition:
    """Whether the last chunk or the decode step with all drafts is refused, alone with F blocks."""
    return either(
        negate(_granted(num_tokens_need_slot(v["T"], 0, v["L"], v["M"]), v, _nothing(v))),
        both(
            v["T"] + 2 <= v["M"],
            negate(_granted(_decode_slots(v, v["k"]), v, _nothing(v))),
        ),
    )


CLOSED_FORM = (
    "min(T+m, M) <= FB and (FB < min(T+L, M) or (T+2 <= M and FB < min(min(T+1+k, M-1) + L, M)))"
)


def tightness() -> list[Obligation]:
    """Every smaller margin fails; the failing set of a margin in closed form, both inclusions."""

    def witness(gate: Gate, v: Values) -> Condition:
        margin = MarginGate(v["m"])
        tokens = 1 + v["L"]
        case: dict[str, Num] = {
            "B": tokens + v["m"],
            "T": tokens,
            "k": v["k"],
            "L": v["L"],
            "M": tokens + v["k"] + v["L"] + 2,
            "F": 1,
        }
        return both(_admitted(margin, case), _window_fails(case))

    def failing(v: Values) -> Condition:
        return both(_passes(MarginGate(v["m"]), v), _window_fails(v))

    return [
        Obligation(
            2,
            "every-smaller-margin-fails",
            "for every margin below 1 + k + L there is a request that is admitted with its first "
            "token and preempts itself: 1 + L tokens, one free block of as many and the margin",
            "0 <= m < 1+k+L  =>  T = 1+L, B = T+m, F = 1, M = T+k+L+2 is admitted and fails",
            ("m", "k", "L"),
            (
                Assumption(
                    "smaller",
                    "the margin is below 1 + k + L",
                    lambda gate, v: v["m"] + 1 <= 1 + v["k"] + v["L"],
                ),
            ),
            witness,
        ),
        Obligation(
            2,
            "failing-set-is-no-larger",
            "with F blocks free, a request that passes a gate of margin m and then fails is in the "
            "closed form",
            f"passes and fails  =>  {CLOSED_FORM}",
            ("B", "T", "k", "L", "m", "F", "M"),
            (),
            lambda gate, v: implies(failing(v), in_failing_set(v)),
            counts=("F",),
        ),
        Obligation(
            2,
            "failing-set-is-no-smaller",
            "and a request in the closed form passes and fails",
            f"{CLOSED_FORM}  =>  passes and fails",
            ("B", "T", "k", "L", "m", "F", "M"),
            (),
            lambda gate, v: implies(in_failing_set(v), failing(v)),
            counts=("F",),
        ),
    ]


def in_failing_set(v: Values) -> Condition:
    """The closed form: T among the requests that pass with margin m, F blocks free, and fail."""
    slots = v["F"] * v["B"]
    last_chunk = slots < minimum(v["T"] + v["L"], v["M"])
    decode = minimum(minimum(v["T"] + 1 + v["k"], v["M"] - 1) + v["L"], v["M"])
    return both(
        minimum(v["T"] + v["m"], v["M"]) <= slots,
        either(last_chunk, both(v["T"] + 2 <= v["M"], slots < decode)),
    )


# --- 3. exclusive batching, the last chunk -----------------------------------------------------


def last_chunk(theorem: int, groups: int = 1, *, always: bool = False) -> list[Obligation]:
    """Under exclusive batching a prefill runs alone, so its last chunk succeeds and emits.

    The chunks of sufficiency, with or without speculation (vllm-rbln never pads, R38): of a gate
    only the lookahead is asked.
    """
    return [
        Obligation(
            theorem,
            f"lone-prefill-{chunk.name}",
            f"the prefill that runs alone: {chunk.words}",
            chunk.mathematics,
            chunk.variables,
            chunk.assumptions if always else (*chunk.assumptions, NO_DRAFTER),
            chunk.goal,
        )
        for chunk in sufficiency(speculating=False, groups=groups)
        if chunk.name.startswith(("first-chunk", "every-chunk"))
    ]


# --- 4. and 5. no livelock ---------------------------------------------------------------------


def no_livelock_mixed(groups: int = 1) -> list[Obligation]:
    """The oldest running request always advances; an idle engine always admits (FCFS, mixed)."""
    return [
        _head_is_granted(4, groups),
        Obligation(
            4,
            "head-advances",
            "the oldest running request is scheduled for at least one token; either it reaches its "
            "last token and emits, or its rank T - c falls",
            "c <= T-1, T <= M-1, C > S  =>  n >= 1 and (c+n >= T or 0 < T-(c+n) < T-c)",
            ("T", "c", "d", "C", "S", "M"),
            (
                Assumption(
                    "unfinished",
                    "a running request has a token to compute (R11)",
                    lambda gate, v: v["c"] + 1 <= v["T"],
                ),
                Assumption(
                    "budget",
                    "the budget leaves room beside the draft slots",
                    lambda gate, v: v["C"] >= v["S"] + 1,
                ),
            ),
            lambda gate, v: _advances(v),
        ),
        _pops_end(4),
        _idle_admits(4, groups),
    ]


def _advances(v: Values) -> Condition:
    room = minimum(v["C"], v["C"] - v["S"])
    tokens = minimum(decode_tokens(v["T"], v["d"], v["c"], v["M"]), room)
    computed = v["c"] + tokens
    return both(
        tokens >= 1,
        either(
            computed >= v["T"],
            both(v["T"] - computed >= 1, v["T"] - computed < v["T"] - v["c"]),
        ),
    )


def _head_is_granted(theorem: int, groups: int) -> Obligation:
    return Obligation(
        theorem,
        "head-is-granted" + _suffix(groups),
        "once all others are preempted, the oldest running request gets what it asks for",
        "sum_g cdiv(M, B_g) <= F, h_g <= cdiv(M, B_g)  =>  "
        "sum_g max(cdiv(min(s, M), B_g) - h_g, 0) <= F - sum_g h_g",
        (*_names("B", groups), "s", *_names("h", groups), "F", "M"),
        (FITS_ALONE, TABLE),
        lambda gate, v: _granted(num_tokens_need_slot(v["s"], 0, 0, v["M"]), v, _held(v)),
    )


def _pops_end(theorem: int) -> Obligation:
    """The preemption loop of one allocation ends: each victim leaves, the requester is the last."""
    return Obligation(
        theorem,
        "preemptions-end",
        "with N others behind the head, preempting the last of them leaves N - 1, and nobody who "
        "holds a block when N is 0: the loop ends with the head alone",
        "N >= 1, u = a + r, (N = 1 => r = 0)  =>  0 <= N-1 < N, u-a = r <= u, (N-1 = 0 => u-a = 0)",
        ("N", "a", "r", "u"),
        (
            Assumption("others", "somebody stands behind the head", lambda gate, v: v["N"] >= 1),
            Assumption(
                "theirs",
                "the last one holds a blocks, the others behind the head r, together u; if there "
                "are no others, r is 0",
                lambda gate, v: both(
                    same(v["u"], v["a"] + v["r"]), implies(v["N"] <= 1, v["r"] <= 0)
                ),
            ),
        ),
        lambda gate, v: both(
            v["N"] - 1 >= 0,
            v["N"] - 1 < v["N"],
            same(v["u"] - v["a"], v["r"]),
            v["u"] - v["a"] <= v["u"],
            implies(v["N"] - 1 <= 0, v["u"] - v["a"] <= 0),
        ),
    )


def _idle_admits(theorem: int, groups: int) -> Obligation:
    return Obligation(
        theorem,
        "idle-engine-admits" + _suffix(groups),
        "with nothing running, the head of the waiting line is admitted: gate and first chunk fit "
        "(the watermark does not count then)",
        "sum_g cdiv(M, B_g) <= F  =>  sum_g cdiv(G, B_g) <= F, sum_g cdiv(min(n+L, M), B_g) <= F",
        (*_names("B", groups), "T", "k", "L", "n", "F", "M"),
        (FITS_ALONE,),
        lambda gate, v: both(
            _passes(gate, v),
            _granted(_first_slots(v), v, _nothing(v)),
        ),
    )


def no_livelock_exclusive(groups: int = 1, *, always: bool = False) -> list[Obligation]:
    """The rank (not arrived, waiting, T - c of the prefill alone) falls, or a token is emitted."""
    return [
        *last_chunk(5, groups, always=always),
        Obligation(
            5,
            "decode-emits",
            "in a step of decodes the oldest one, once granted its blocks, emits a token",
            "C >= 1, T <= M-1, c = T-1  =>  c + min(T+d-c, M-c-1, C) >= T",
            ("T", "c", "d", "C", "M"),
            (
                Assumption(
                    "decode",
                    "a decode has one token to compute (R33), and its drafts",
                    lambda gate, v: same(v["c"] + 1, v["T"]),
                ),
            ),
            lambda gate, v: (
                v["c"] + minimum(decode_tokens(v["T"], v["d"], v["c"], v["M"]), v["C"]) >= v["T"]
            ),
        ),
        _head_is_granted(5, groups),
        _pops_end(5),
        _idle_admits(5, groups),
        Obligation(
            5,
            "rank-falls",
            "a step that emits nothing lowers the rank: a chunk of the lone prefill lowers T - c, "
            "an admission lowers the number of waiting requests, an arrival that of those to come",
            "(U, W, r) > (U', W', r') lexicographically for each silent step: chunk (U, W, r-n), "
            "admission (U, W-1, r'), arrival with either (U-a, W+a, ...)",
            ("U", "Q", "r", "n", "q", "a"),
            (
                Assumption(
                    "silent",
                    "the chunk does not reach the last token, or it would emit one",
                    lambda gate, v: v["n"] + 1 <= v["r"],
                ),
                Assumption(
                    "arrivals", "no more arrive than are to come", lambda gate, v: v["a"] <= v["U"]
                ),
            ),
            lambda gate, v: both(
                _lower(
                    (v["U"] - v["a"], v["Q"] + v["a"], v["r"] - v["n"]), (v["U"], v["Q"], v["r"])
                ),
                implies(
                    v["Q"] >= 1,
                    _lower((v["U"] - v["a"], v["Q"] - 1 + v["a"], v["q"]), (v["U"], v["Q"], 1)),
                ),
            ),
        ),
    ]


def _lower(after: Sequence[Num], before: Sequence[Num]) -> Condition:
    """Whether a rank is lexicographically lower, and no component negative."""
    (u, w, r), (u0, w0, r0) = after, before
    return both(
        *(part >= 0 for part in after),
        either(u < u0, both(same(u, u0), w < w0), both(same(u, u0), same(w, w0), r < r0)),
    )


# --- 6. without speculation --------------------------------------------------------------------


def without_speculation() -> list[Obligation]:
    """For k = 0 the corrected gate is the old one, and fails exactly at block boundaries."""
    goes_on = Assumption(
        "goes-on",
        "the request does not end with the token of its prefill, so there is a decode step",
        lambda gate, v: v["T"] + 2 <= v["M"],
    )
    off = Assumption("off", "no speculation", lambda gate, v: same(v["k"], 0))
    none = Assumption("no-lookahead", "no lookahead", lambda gate, v: same(v["L"], 0))

    def no_more(gate: Gate, v: Values) -> Condition:
        ours, theirs = gate_tokens(gate, v), gate_tokens(PromptOnly(), v)
        return True if ours is None or theirs is None else same(ours, theirs)

    return [
        Obligation(
            6,
            "old-gate-without-speculation",
            "for k = 0 the gate counts what the released gate counts",
            "k = 0  =>  G = min(T, M)",
            ("T", "k", "L", "M"),
            (off,),
            no_more,
        ),
        Obligation(
            6,
            "fails-exactly-when-block-aligned",
            "for k = 0, L = 0, with just the blocks that the released gate counts free: the request "
            "fails exactly if its tokens fill whole blocks",
            "F = cdiv(T, B), T+2 <= M  =>  (T+1 > FB  <=>  T = FB)",
            ("B", "T", "k", "L", "F", "M"),
            (
                goes_on,
                off,
                none,
                Assumption(
                    "just-enough",
                    "just the blocks that the released gate counts are free",
                    lambda gate, v: same(v["F"], cdiv(v["T"], v["B"])),
                ),
            ),
            lambda gate, v: equivalent(_window_fails(v), same(v["T"], v["F"] * v["B"])),
        ),
    ]


# --- 7. cost -----------------------------------------------------------------------------------


def cost() -> list[Obligation]:
    """What a gate asks for beyond the released one."""

    def extra(gate: Gate, v: Values) -> Num:
        ours, theirs = gate_tokens(gate, v), gate_tokens(PromptOnly(), v)
        if ours is None or theirs is None:
            return 0
        return cdiv(ours, v["B"]) - cdiv(theirs, v["B"])

    variables = ("B", "T", "k", "L", "M")
    return [
        Obligation(
            7,
            "at-most-the-margin",
            "the gate asks for at most cdiv(1+k+L, B) blocks more than the released one",
            "cdiv(G, B) - cdiv(min(T, M), B) <= cdiv(1+k+L, B)",
            variables,
            (),
            lambda gate, v: extra(gate, v) <= cdiv(1 + v["k"] + v["L"], v["B"]),
            required=False,
        ),
        Obligation(
            7,
            "only-near-a-boundary",
            "and only for requests that end within 1+k+L tokens of a block boundary",
            "cdiv(G, B) > cdiv(min(T, M), B)  =>  cdiv(T, B) B - T < 1+k+L",
            variables,
            (),
            lambda gate, v: implies(
                extra(gate, v) >= 1,
                cdiv(v["T"], v["B"]) * v["B"] - v["T"] < 1 + v["k"] + v["L"],
            ),
            required=False,
        ),
    ]


def obligations(gate: Gate, groups: Sequence[int] = (1, 2)) -> list[Obligation]:
    """All obligations of a gate, for the given numbers of KV cache groups.

    Sufficiency is asked for k >= 1, of ``first-decode-step-always`` for every k. Theorem 6 speaks
    of ``first-decode-step`` alone.
    """
    always = gate.name == FirstDecodeStepAlways.name
    corrected = gate.name == FirstDecodeStep.name
    return [
        *lemmas(),
        *(o for g in groups for o in sufficiency(speculating=not always, groups=g)),
        *tightness(),
        *(o for g in groups for o in last_chunk(3, g, always=always)),
        *no_livelock_mixed(),
        *no_livelock_exclusive(always=always),
        *(without_speculation() if corrected else ()),
        *cost(),
    ]
