"""The prover held against ints: its facts, random gates, gates that mislead it, random requests."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from random import Random
from typing import ClassVar

import pytest
import z3

from checker.bridge import reproduce
from checker.check import check
from checker.prove import UnprovableGateError, confirm, encode, evaluate, prove
from models.arithmetic import Condition, Num, both, cdiv, maximum, minimum, same, where
from models.config import EngineConfig, RequestSpec, Scenario
from models.gates import GATES, Admission, Gate
from models.kv_cache import fits, num_blocks_to_allocate, num_tokens_need_slot
from properties.theorems import Assumption, Obligation, Values, obligations, sufficiency
from properties.verdict import Verdict

# --- what the prover takes for known about ceilings --------------------------------------------


CEILINGS = [o for o in obligations(GATES["first-decode-step"]) if o.theorem in (1, 2, 6, 7)]
QUICK = [o for o in CEILINGS if o.name in ("first-decode-step", "fails-exactly-when-block-aligned")]
SLOW = [pytest.param(o, marks=pytest.mark.long) for o in CEILINGS if o not in QUICK]


@pytest.mark.parametrize("obligation", [*QUICK, *SLOW], ids=lambda o: f"{o.theorem}-{o.name}")
def test_every_fact_about_ceilings_follows_from_their_definition(obligation: Obligation) -> None:
    encoded = encode(obligation, GATES["first-decode-step"])
    context = encoded.context
    domain = encoded.assumptions[0]
    facts = [*context.order, *context.bounds, *context.sums]
    assert len(facts) > 0 or not context.divisors
    for fact in facts:
        solver = z3.Solver()
        solver.set("timeout", 60_000)
        solver.add(domain, *context.definitions, z3.Not(fact))
        assert str(solver.check()) == "unsat", fact


# --- random gates ------------------------------------------------------------------------------


class RandomGate:
    """``T``, a margin that depends on k and L, and some cap, or none; some of it only sometimes."""

    name: ClassVar[str] = "random"

    def __init__(self, random: Random) -> None:
        self.constant = random.choice((-2, -1, 0, 1, 1, 2))
        self.drafts, self.lookahead = random.choice((0, 1, 1, 2)), random.choice((0, 1, 1, 2))
        self.cap, self.when = random.randrange(6), random.randrange(4)

    def tokens(self, request: Admission) -> Num | None:
        k, lookahead, limit = (
            request.num_spec_tokens,
            request.num_lookahead_tokens,
            request.max_model_len,
        )
        wanted = request.num_tokens + self.constant + self.drafts * k + self.lookahead * lookahead
        if self.when == 1:
            wanted = where(k > 1, wanted, request.num_tokens)
        elif self.when == 2:
            wanted = where(request.num_tokens > 2, wanted, request.num_tokens)
        caps = (minimum(wanted, limit), minimum(wanted, limit - 1), maximum(wanted, limit))
        return [*caps, wanted, limit, minimum(wanted, limit + lookahead)][self.cap]


def small(obligation: Obligation) -> list[dict[str, int]]:
    """All small numbers for the letters of an obligation, as far as its domain has them."""
    ranges = {"M": range(2, 6), "B": range(1, 3), "F": range(5), "T": range(1, 4)}
    every = [ranges.get(name[0], range(3)) for name in obligation.variables]
    cases = [dict(zip(obligation.variables, numbers, strict=True)) for numbers in product(*every)]
    return [case for case in cases if obligation.domain(case)]


@pytest.mark.parametrize(
    "seed", [*range(3), *(pytest.param(s, marks=pytest.mark.long) for s in range(3, 15))]
)
def test_a_random_gate_is_judged_as_ints_judge_it(seed: int) -> None:
    gate = RandomGate(Random(seed))
    for obligation in sufficiency(speculating=True):
        proof = prove(obligation, gate, timeout_ms=60_000)
        assert proof.verdict is not Verdict.INCONCLUSIVE
        broken = any(
            all(assumptions) and not goal
            for assumptions, goal in (
                evaluate(obligation, gate, case) for case in small(obligation)
            )
        )
        if broken:
            assert proof.verdict is Verdict.VIOLATED, obligation.name
        if proof.example is not None:
            confirm(obligation, gate, proof.example)
            assert reproduce(proof, gate)


def test_random_gates_are_of_both_kinds() -> None:
    decode_step = sufficiency(speculating=True)[-1]
    verdicts = [prove(decode_step, RandomGate(Random(seed))).verdict for seed in range(12)]
    assert verdicts.count(Verdict.PROVED) >= 2
    assert verdicts.count(Verdict.VIOLATED) >= 2


# --- gates that would mislead it ---------------------------------------------------------------


class ToldApart:
    """Right for symbols, wrong for ints."""

    name: ClassVar[str] = "told-apart"

    def tokens(self, request: Admission) -> Num | None:
        if isinstance(request.num_tokens, int):
            return request.num_tokens
        return GATES["first-decode-step-always"].tokens(request)


class NeverForSymbols(ToldApart):
    def tokens(self, request: Admission) -> Num | None:
        return None if isinstance(request.num_tokens, int) else request.num_tokens


class DividesByZero(ToldApart):
    def tokens(self, request: Admission) -> Num | None:
        return request.num_tokens + cdiv(request.num_tokens, request.num_spec_tokens)


class DividesByANegative(ToldApart):
    """Enough for k <= 2; a ceiling of 3 - k by its definition would leave all other k out."""

    def tokens(self, request: Admission) -> Num | None:
        divisor = 3 - request.num_spec_tokens
        if isinstance(divisor, int) and divisor == 0:
            divisor = 1
        wanted = request.num_tokens + 3 + request.num_lookahead_tokens
        return minimum(wanted + 0 * cdiv(1, divisor), request.max_model_len)


class Missing(ToldApart):
    def tokens(self, request: Admission) -> Num | None:
        return request.num_tokens.bit_length()  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("gate", "complaint"),
    [
        (ToldApart(), "answers symbols differently from ints: for Admission"),
        (NeverForSymbols(), "answers symbols differently from ints: for Admission"),
        (DividesByZero(), "tokens() fails for Admission"),
        (DividesByANegative(), "cdiv() by a number that may be 0 or less: 3 - k"),
        (Missing(), "no attribute 'bit_length'"),
    ],
)
@pytest.mark.parametrize("obligation", sufficiency(speculating=True), ids=lambda o: o.name)
def test_a_gate_that_would_mislead_the_prover_is_refused(
    gate: Gate, complaint: str, obligation: Obligation
) -> None:
    with pytest.raises(UnprovableGateError) as refused:
        prove(obligation, gate)
    assert complaint in str(refused.value)


class Divides(ToldApart):
    def tokens(self, request: Admission) -> Num | None:
        spare = cdiv(request.num_tokens, 1 + request.num_spec_tokens)
        margin = 1 + request.num_spec_tokens + request.num_lookahead_tokens
        return minimum(request.num_tokens + margin + spare, request.max_model_len)


def test_a_gate_may_divide_by_what_is_positive() -> None:
    verdicts = {prove(o, Divides()).verdict for o in sufficiency(speculating=True)}
    assert verdicts == {Verdict.PROVED}


# --- random requests, alone: symbolic and explored verdicts, both ways -------------------------


def request_alone(random: Random, gate: str) -> dict[str, int]:
    k = random.randint(0 if gate == "first-decode-step-always" else 1, 4)
    lookahead = random.choice((0, k, k + 1)) if k else 0
    size, limit = random.randint(1, 6), random.randint(2, 20)
    tokens = random.randint(1, limit - 1)
    near = cdiv(tokens + random.randint(0, 1 + k + lookahead), size)
    free = max(near + random.choice((-1, 0, 0, 0, 1)), 1)
    return {"B": size, "T": tokens, "k": k, "L": lookahead, "M": limit, "F": free}


def chunk_is_granted(gate: Gate, values: Values) -> Condition:
    """That of ``every-chunk`` which is seen when more is free than the gate counts."""
    slots = num_tokens_need_slot(values["c"], values["n"], values["L"], values["M"])
    new = num_blocks_to_allocate(slots, (values["B"],), (values["h"],))
    return fits(new, 0, values["F"] - values["h"])


def symbolic(gate: Gate, values: dict[str, int]) -> Verdict:
    """The verdict of the later chunks and of the decode step, for these sizes alone."""

    def these(gate: Gate, letters: Values) -> Condition:
        return both(*(same(letters[name], value) for name, value in values.items()))

    _, _, chunk, decode = sufficiency(speculating=False)
    decided = []
    for obligation in (replace(chunk, goal=chunk_is_granted), decode):
        sizes = Assumption("sizes", "the sizes of this request", these)
        pinned = replace(obligation, assumptions=(*obligation.assumptions, sizes))
        decided.append(prove(pinned, gate).verdict)
    assert Verdict.INCONCLUSIVE not in decided
    return Verdict.VIOLATED if Verdict.VIOLATED in decided else Verdict.PROVED


def explored(gate: Gate, values: dict[str, int]) -> Verdict:
    """The verdict of the model: whole, all but the last token first, or token by token."""
    for budget in {values["T"] + values["k"], max(values["T"] - 1, 1), 1}:
        engine = EngineConfig(
            scheduler="vllm",
            gate=gate,
            block_sizes=(values["B"],),
            usable_blocks=values["F"],
            num_spec_tokens=values["k"],
            num_lookahead_tokens=values["L"],
            draft_slots=0,
            max_num_batched_tokens=budget,
            max_model_len=values["M"],
            max_num_seqs=1,
        )
        request = RequestSpec("v", (values["T"], values["T"]), 2)
        result = check(Scenario("alone", engine, (request,)))
        if result.result("no-self-preemption").verdict is Verdict.VIOLATED:
            return Verdict.VIOLATED
    return Verdict.PROVED


@pytest.mark.parametrize(
    ("seed", "count"), [(0, 12), *(pytest.param(n, 100, marks=pytest.mark.long) for n in range(4))]
)
@pytest.mark.parametrize("policy", GATES)
def test_symbolic_and_explored_verdicts_of_a_lone_request_are_the_same(
    policy: str, seed: int, count: int
) -> None:
    """Five gates of 400 requests each in the long run."""
    random, gate = Random(f"{policy}/{seed}"), GATES[policy]
    violated = 0
    for _ in range(count):
        values = request_alone(random, policy)
        verdict = symbolic(gate, values)
        assert verdict is explored(gate, values), values
        violated += verdict is Verdict.VIOLATED
    assert (violated > 0) == (policy not in ("first-decode-step", "first-decode-step-always"))
