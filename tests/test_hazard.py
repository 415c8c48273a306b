"""``check hazard``: its figures, and its closed form against every run of the model."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import pytest
from command import Outcome, check, document

from checker.check import check as explore
from checker.commands.hazard import ranges
from models.config import EngineConfig, RequestSpec, Scenario
from properties.theorems import MarginGate, in_failing_set
from properties.verdict import Verdict


def hazard(block_size: int, k: int, lookahead: int, *more: str) -> tuple[str, ...]:
    sizes = ("--block-size", str(block_size), "--spec-tokens", str(k))
    return ("hazard", *sizes, "--lookahead", str(lookahead), *more)


# --- the figures of a deployment -------------------------------------------------------------


@pytest.mark.parametrize(
    ("lookahead", "prompt_only", "lookahead_only"),
    [(0, [[29, 32]], [[29, 32]]), (3, [[26, 32]], [[26, 29]])],
)
def test_two_blocks_of_16_with_three_drafts(
    lookahead: int, prompt_only: list[list[int]], lookahead_only: list[list[int]]
) -> None:
    exposed = document(*hazard(16, 3, lookahead, "--free-blocks", "2", "--max-model-len", "512"))[
        "exposed"
    ]
    assert exposed["prompt-only"]["ranges"] == prompt_only
    assert exposed["lookahead-only"]["ranges"] == lookahead_only


def test_with_any_number_of_free_blocks_the_residues_repeat() -> None:
    found = document(*hazard(16, 3, 0, "--max-model-len", "100"))
    exposed = found["exposed"]["prompt-only"]
    assert exposed["residues"] == [0, 13, 14, 15]
    assert exposed["ranges"] == [[16 * n - 3, 16 * n] for n in range(1, 7)]
    assert exposed["prompts"] == 24
    assert exposed["share"] == 24 / 99
    assert found["corrected_gate"] == {"most_extra_blocks": 1, "share": 24 / 99}


@pytest.mark.parametrize(("limit", "expected"), [(9, [[3, 4]]), (10, [[3, 4], [7, 8]])])
def test_where_max_model_len_ends_the_drafts_they_need_no_block(
    limit: int, expected: list[list[int]]
) -> None:
    """A step computes at most M - 1 tokens: with M - 1 = 8, two blocks of 4 are enough to the end."""
    exposed = document(*hazard(4, 1, 0, "--max-model-len", str(limit)))["exposed"]
    assert exposed["prompt-only"]["ranges"] == expected


def test_without_speculation_only_full_blocks_are_exposed() -> None:
    exposed = document(*hazard(16, 0, 0, "--max-model-len", "100"))["exposed"]
    assert exposed["prompt-only"]["ranges"] == [[16 * n, 16 * n] for n in range(1, 7)]
    assert exposed["lookahead-only"] == exposed["prompt-only"]


def test_a_margin_of_many_blocks_costs_many() -> None:
    found = document(*hazard(1, 3, 3, "--max-model-len", "100"))
    assert found["corrected_gate"] == {"most_extra_blocks": 7, "share": 1.0}
    assert found["exposed"]["prompt-only"]["share"] == 1.0


def test_the_document_repeats_the_deployment() -> None:
    found = document(*hazard(64, 3, 4, "--max-model-len", "2048", "--free-blocks", "9"))
    del found["exposed"], found["corrected_gate"]
    assert found == {
        "schema_version": 1,
        "block_size": 64,
        "num_speculative_tokens": 3,
        "num_lookahead_tokens": 4,
        "max_model_len": 2048,
        "free_blocks": 9,
    }


def test_the_text_has_residues_ranges_and_cost() -> None:
    outcome = check(*hazard(64, 3, 3))
    assert outcome.code == 0
    assert [line.strip() for line in outcome.out.splitlines()[1:4]] == [
        "prompt-only: 3,577 of 32,767 prompt lengths exposed (10.9%)",
        "prompt mod 64: 0, 58..63",
        "prompts: 58..64, 122..128, 186..192, 250..256 and 507 more ranges",
    ]
    assert "first-decode-step: none exposed" in outcome.out
    assert "at most 1 more blocks at admission, for 10.9% of the prompt lengths" in outcome.out


def test_the_text_says_that_without_speculation_the_correction_is_the_old_gate() -> None:
    short = ("--max-model-len", "64")
    assert "use first-decode-step-always" in check(*hazard(16, 0, 0, *short)).out
    assert "use first-decode-step-always" not in check(*hazard(16, 1, 0, *short)).out


def test_the_text_says_that_with_a_long_lookahead_some_are_never_admitted() -> None:
    """Exposed with one block free: two tokens fit, the first with its lookahead does not."""
    first, *_ = check(*hazard(4, 3, 8)).out.splitlines()
    assert first.endswith("; or it waits, let in by the gate and refused its first chunk")
    assert not_served(dict(zip("BTkLMFm", (4, 2, 3, 8, 99, 1, 0), strict=True)), 1)
    assert "refused its first chunk" not in check(*hazard(4, 3, 3)).out


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("hazard",), "--block-size, --spec-tokens"),
        (hazard(0, 3, 0), "must be at least 1"),
        (hazard(16, -1, 0), "must be at least 0"),
        (hazard(16, 3, -1), "must be at least 0"),
        (hazard(16, 3, 0, "--max-model-len", "1"), "must be at least 2"),
        (hazard(16, 3, 0, "--free-blocks", "0"), "must be at least 1"),
        (("hazard", "--block-size", "many", "--spec-tokens", "3"), "invalid integer"),
    ],
)
def test_wrong_input(arguments: tuple[str, ...], complaint: str) -> None:
    outcome: Outcome = check(*arguments)
    assert outcome.code == 2
    assert complaint in outcome.err
    assert outcome.out == ""


def test_ranges() -> None:
    assert ranges([]) == []
    assert ranges([7]) == [(7, 7)]
    assert ranges([1, 2, 3, 5, 8, 9]) == [(1, 3), (5, 5), (8, 9)]


# --- the closed form against the model -------------------------------------------------------


def fails(values: dict[str, int]) -> bool:
    """Whether a request that passes the gate fails alone in F blocks, as every run of it says."""
    size, tokens, free = values["B"], values["T"], values["F"]
    counted = min(tokens + values["m"], values["M"])
    if -(-counted // size) > free:
        return False
    in_one_chunk = tokens + values["k"] + 1
    return any(not_served(values, budget) for budget in {in_one_chunk, max(tokens - 1, 1)})


def not_served(values: dict[str, int], budget: int) -> bool:
    """Whether the request preempts itself in its window, or is not admitted though it passed."""
    engine = EngineConfig(
        scheduler="vllm",
        gate=MarginGate(values["m"]),
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
    result = explore(Scenario("alone", engine, (request,)))
    assert result.stopped is None
    wanted = ("no-self-preemption", "no-unservable-wait")
    return any(result.result(name).verdict is Verdict.VIOLATED for name in wanted)


def grid(block_sizes: range, drafts: range, longest: range) -> Iterator[dict[str, int]]:
    """All small deployments, every prompt and every number of free blocks in them."""
    for size, k, limit in product(block_sizes, drafts, longest):
        for lookahead in sorted({0, k, k + 1} if k else {0}):
            for margin in sorted({0, lookahead, k + lookahead, 1 + k + lookahead}):
                for tokens, free in product(range(1, limit), range(1, -(-limit // size) + 1)):
                    letters = (size, tokens, k, lookahead, limit, free, margin)
                    yield dict(zip("BTkLMFm", letters, strict=True))


def differing(cases: Iterator[dict[str, int]]) -> tuple[int, int, list[dict[str, int]]]:
    """How many cases there are, how many fail, and those that the closed form has wrong."""
    seen, failing, wrong = 0, 0, []
    for case in cases:
        failed = fails(case)
        seen, failing = seen + 1, failing + failed
        if in_failing_set(case) != failed:
            wrong.append(case)
    return seen, failing, wrong


def test_the_closed_form_is_what_every_run_says() -> None:
    seen, failing, wrong = differing(grid(range(1, 4), range(3), range(2, 8)))
    assert wrong == []
    assert (seen, failing) == (5_256, 699)


def test_with_the_whole_margin_nothing_fails() -> None:
    cases = [case for case in grid(range(1, 4), range(4), range(2, 9)) if whole(case)]
    assert cases
    assert not any(in_failing_set(case) for case in cases)


def whole(case: dict[str, int]) -> bool:
    return case["m"] == 1 + case["k"] + case["L"]


@pytest.mark.long
@pytest.mark.parametrize("block_size", [1, 2, 3, 4, 5])
def test_the_closed_form_is_what_every_run_says_of_larger_ones(block_size: int) -> None:
    sizes = range(block_size, block_size + 1)
    _, failing, wrong = differing(grid(sizes, range(5), range(2, 13)))
    assert wrong == []
    assert failing > 300


@pytest.mark.parametrize("free_blocks", [None, 1, 2, 3])
@pytest.mark.parametrize("deployment", [(3, 2, 0), (3, 2, 2), (4, 1, 2), (2, 0, 0), (1, 1, 1)])
def test_the_prompts_of_a_deployment_are_those_that_fail(
    deployment: tuple[int, int, int], free_blocks: int | None
) -> None:
    """With no number of free blocks given: those that fail with any."""
    size, k, lookahead = deployment
    limit = 11
    more = ("--max-model-len", str(limit))
    if free_blocks:
        more += ("--free-blocks", str(free_blocks))
    exposed = document(*hazard(size, k, lookahead, *more))["exposed"]
    frees = [free_blocks] if free_blocks else range(1, limit + 1)
    for policy, margin in (("prompt-only", 0), ("lookahead-only", lookahead)):
        expected = [
            tokens
            for tokens in range(1, limit)
            if any(
                fails(dict(zip("BTkLMFm", (*case, free, margin), strict=True)))
                for case in [(size, tokens, k, lookahead, limit)]
                for free in frees
            )
        ]
        assert [tuple(run) for run in exposed[policy]["ranges"]] == ranges(expected)
