"""Rules R1 to R8 and R19 to R22: pool, slots, the admission gate and the waiting loop.

Figures are worked out by hand; ``example`` steps are those of the rule's recorded run. Each test
must fail once its rule is left out (``test_rules.py``), so all of them take the model as argument.
"""

from __future__ import annotations

import pytest
from mutation import Model
from stepping import Ask, decide, engine, example, request, run

REJECTED = ((3, 0),)


# --- pool, blocks, slots ---------------------------------------------------------------------


def test_r1_a_pool_of_three_blocks_holds_two_and_has_a_watermark_of_one(model: Model) -> None:
    step = example(model, "vllm-167", 0)  # int(0.34 * 3) = 1; r1 needs 1 + 1
    assert step["sched"] == [["r0", 1]]
    assert step["refuse"] == ["r1", "gate", 2, 1]
    assert step["free"] == 1


def test_r2_every_group_rounds_up_to_its_own_blocks(model: Model) -> None:
    step = example(model, "rbln-075", 0)  # 16 + 4 slots in blocks of 8 and of 16
    assert step["b"] == [[3, 2], None]
    assert step["free"] == 8 - 5


def test_r2_an_allocation_is_granted_as_a_whole_or_not_at_all(model: Model) -> None:
    asks = {"a": Ask(20)}  # 3 blocks of 8 and 2 of 16
    (refused,) = run(model, asks, 1, B=(8, 16), F=4, gate="none")
    assert refused["refuse"] == ["a", "slots", 5, 4]
    assert refused["mid"] == {"b": [[0, 0]], "free": 4}
    (granted,) = run(model, asks, 1, B=(8, 16), F=5, gate="none")
    assert granted["mid"] == {"b": [[3, 2]], "free": 0}


def test_r3_blocks_of_rejected_drafts_are_kept(model: Model) -> None:
    step = example(model, "vllm-132", 1)  # 5 + 4 + 3 slots in blocks of 5
    assert (step["b"][0], step["c"][0]) == (3, 6)
    step = example(model, "vllm-132", 2)  # 6 + 1 + 3 would fit in 2
    assert (step["b"][0], step["c"][0]) == (3, 7)


def test_r4_lookahead_is_allocated_from_the_first_chunk_on(model: Model) -> None:
    step = example(model, "vllm-132", 0)  # 5 + 3 slots in blocks of 5
    assert step["b"][0] == 2


def test_r4_slots_end_at_the_longest_sequence(model: Model) -> None:
    step = example(model, "rbln-215", 1)  # min(2 + 5 + 4, 9) slots in blocks of 3
    assert step["b"][0] == 3
    assert "pre" not in step


@pytest.mark.parametrize(
    ("drafter", "chunk", "blocks"),
    [
        ("ngram", 10, 10),
        ("draft_model", 10 - 1, 9 + 3),
        ("eagle", 10, 10 + 3),
        ("mtp", 10, 10 + 3),
        ("dflash", 10 - 3, 7 + 4),
    ],
)
def test_r5_every_drafter_has_its_lookahead_and_draft_slots(
    model: Model, drafter: str, chunk: int, blocks: int
) -> None:
    lookahead, slots = model.fields.DRAFTERS[drafter](3)
    settings = {"k": 3, "L": lookahead, "draft_slots": slots, "C": 10}
    (step,) = run(model, {"a": Ask(20)}, 1, B=(1,), **settings)
    assert step["sched"] == [["a", chunk]]
    assert step["b"] == [blocks]


# --- admission gate --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gate", "speculating", "without", "longest"),
    [
        ("none", None, None, None),
        ("prompt-only", 50, 50, 52),
        ("lookahead-only", 53, 50, 52),
        ("first-decode-step", 57, 50, 52),
        ("first-decode-step-always", 57, 51, 52),
    ],
)
def test_r6_what_each_gate_counts_of_fifty_tokens(
    model: Model, gate: str, speculating: int | None, without: int | None, longest: int | None
) -> None:
    def count(tokens: int, **settings: int) -> int | None:
        return engine(model, gate=gate, **settings).gate_tokens(tokens)

    assert count(50, k=3, L=3) == speculating
    assert count(50, k=0, L=0) == without
    assert count(60, k=3, L=3, M=52) == longest


def test_r6_the_gate_counts_emitted_tokens_of_a_resumed_request(model: Model) -> None:
    step = example(model, "vllm-195", 5)  # cdiv(11 + 1 + 1 + 4, 8)
    assert step["refuse"] == ["r1", "gate", 3, 1]


def test_r6_three_self_preemptions_until_the_prompt_gate_refuses(model: Model) -> None:
    decode = Ask(17, 12, drafts=REJECTED)
    asks = {"a": decode, "b": decode, "v": Ask(30, 8, arrival=1, drafts=REJECTED)}
    steps = run(model, asks, 20, B=(16,), F=6, k=3, C=8192)
    assert [step["pre"] for step in steps if "pre" in step] == [
        [["v", "v", 30]],
        [["v", "v", 31]],
        [["v", "v", 32]],
    ]
    assert next(step["refuse"] for step in steps if "refuse" in step) == ["v", "gate", 3, 2]
    steps = run(model, asks, 20, B=(16,), F=6, k=3, C=8192, gate="first-decode-step")
    assert not [step for step in steps if "pre" in step]


def test_r7_blocks_that_the_gate_counted_may_go_to_a_decode(model: Model) -> None:
    """``v`` is admitted with three blocks free, prefills into two, and a decode takes the third."""
    asks = {"a": Ask(9, drafts=((3, 3),)), "v": Ask(30, arrival=1, drafts=REJECTED)}
    steps = run(model, asks, 4, B=(16,), F=4, k=3, C=24, gate="first-decode-step")
    assert [step["b"] for step in steps] == [[1, None], [1, 2], [2, 2], [2, 0]]
    assert [step["sched"] for step in steps[1:3]] == [[["a", 4], ["v", 20]], [["a", 4], ["v", 10]]]
    assert steps[3]["pre"] == [["v", "v", 30]]


def test_r8_the_watermark_does_not_count_for_a_request_alone(model: Model) -> None:
    step = example(model, "rbln-262", 5)  # 3 blocks of 3, watermark 1
    assert step["sched"] == [["r0", 4]]


def test_r8_both_tests_keep_the_watermark_free(model: Model) -> None:
    asks = {"a": Ask(8), "b": Ask(8)}
    for gate, test in (("prompt-only", "gate"), ("none", "slots")):
        (step,) = run(model, asks, 1, F=4, watermark=0.2, gate=gate)  # int(0.2 * 5) = 1
        assert step["sched"] == [["a", 8]]
        assert step["refuse"] == ["b", test, 3, 2]


def test_r8_a_running_request_may_take_the_watermark(model: Model) -> None:
    steps = run(model, {"a": Ask(16)}, 2, F=4, C=8, watermark=0.2)
    assert [step["b"] for step in steps] == [[2], [4]]


def test_r8_the_watermark_counts_beside_a_running_request_that_is_not_scheduled(
    model: Model,
) -> None:
    idle = request(model, prompt=15, outputs=1, computed=15, blocks=(0,))
    waiting = request(model, status=model.state.Status.WAITING, prompt=8, blocks=(0,))
    output = decide(model, (idle,), (waiting,), M=16, F=2, watermark=0.4)
    (refused,) = output.events
    assert (refused.test, refused.needed, refused.available) == ("gate", 3, 2)


# --- waiting loop ----------------------------------------------------------------------------


@pytest.mark.parametrize("scheduler", ["vllm", "rbln"])
def test_r19_nobody_goes_past_a_refused_head(model: Model, scheduler: str) -> None:
    asks = {"a": Ask(12), "b": Ask(8, arrival=1), "c": Ask(4, arrival=1)}
    steps = run(model, asks, 2, scheduler=scheduler, F=5)
    assert steps[1]["sched"] == [["a", 1]]  # takes the fourth block; c would fit in the fifth
    assert steps[1]["refuse"] == ["b", "gate", 2, 1]
    assert steps[1]["wait"] == ["b", "c"]


def test_r19_a_resumed_request_computes_its_outputs_again(model: Model) -> None:
    asks = {"a": Ask(4, 2, drafts=((7, 0),)), "b": Ask(4), "c": Ask(4)}
    steps = run(model, asks, 3, F=3, k=7)
    assert steps[1]["pre"] == [["c", "a", 4], ["b", "a", 4]]
    assert steps[2]["sched"] == [["b", 5]]
    assert steps[2]["refuse"] == ["c", "gate", 2, 1]


def test_r19_a_resumed_request_computes_its_outputs_again_under_rbln(model: Model) -> None:
    asks = {"a": Ask(7, priority=1), "b": Ask(3, 3, arrival=1)}
    steps = run(model, asks, 6, scheduler="rbln", F=3, priority_policy=True)
    assert steps[3]["pre"] == [["a", "a", 8]]
    assert steps[4]["fin"] == ["b"]
    assert steps[5]["sched"] == [["a", 7 + 2]]


def test_r19_a_chunk_may_be_one_token(model: Model) -> None:
    (step,) = run(model, {"a": Ask(4), "b": Ask(10)}, 1, C=5)
    assert step["sched"] == [["a", 4], ["b", 1]]


def test_r20_the_loop_ends_silently_at_max_num_seqs(model: Model) -> None:
    step = example(model, "vllm-306", 0)
    assert (step["sched"], step["wait"]) == ([["r0", 7]], ["r1"])
    assert "refuse" not in step
    steps = run(model, {"a": Ask(4), "b": Ask(4)}, 2, scheduler="rbln", max_num_seqs=1)
    assert (steps[1]["sched"], steps[1]["wait"]) == ([["a", 1]], ["b"])


def test_r20_a_running_request_that_is_not_scheduled_counts(model: Model) -> None:
    idle = request(model, prompt=15, outputs=1, computed=15, blocks=(4,))
    waiting = request(model, status=model.state.Status.WAITING, prompt=4, blocks=(0,))
    output = decide(model, (idle,), (waiting,), M=16, max_num_seqs=1)
    assert output.scheduled == {}
    assert output.waiting == (1,)


def test_r21_a_one_token_prompt_beside_a_decode_is_padded(model: Model) -> None:
    asks = {"a": Ask(5, drafts=REJECTED), "b": Ask(1, arrival=1, drafts=((3, 3),))}
    steps = run(model, asks, 2, B=(1,), k=3)
    assert steps[1]["sched"] == [["a", 4], ["b", 4]]
    assert steps[1]["spec"] == {"a": 3, "b": -3}
    assert steps[1]["samp"] == {"a": 1, "b": 1}
    assert (steps[1]["b"][1], steps[1]["c"][1], steps[1]["d"][1]) == (4, 1, 3)


def test_r21_without_speculation_nothing_is_padded(model: Model) -> None:
    steps = run(model, {"a": Ask(5), "b": Ask(1, arrival=1)}, 2)
    assert steps[1]["sched"] == [["a", 1], ["b", 1]]
    assert "spec" not in steps[1]


def test_r21_alone_it_is_not_padded(model: Model) -> None:
    (step,) = run(model, {"a": Ask(1, drafts=REJECTED)}, 1, k=3)
    assert step["sched"] == [["a", 1]]


@pytest.mark.parametrize(("longest", "tokens"), [(5, 4), (4, 1)])
def test_r21_padding_needs_room_for_one_token_more(model: Model, longest: int, tokens: int) -> None:
    asks = {"a": Ask(2, drafts=REJECTED), "b": Ask(1, arrival=1)}
    steps = run(model, asks, 2, k=3, M=longest)
    assert steps[1]["sched"] == [["a", longest - 3], ["b", tokens]]


def test_r21_loaded_tokens_are_reason_enough_to_pad(model: Model) -> None:
    waiting = model.state.Status.WAITING
    loaded = request(model, status=waiting, prompt=5, computed=4, blocks=(1,))
    output = decide(model, (), (loaded,), k=3)
    assert (output.scheduled, output.drafts) == ({0: 4}, {0: -3})
    assert output.blocks == ((2,),)


def test_r21b_what_does_not_fit_the_budget_padded_waits(model: Model) -> None:
    step = example(model, "vllm-243", 2)  # 4 of 5 tokens are gone
    assert (step["sched"], step["wait"]) == ([["r0", 4]], ["r1", "r2"])
    assert "refuse" not in step
    asks = {"a": Ask(2, drafts=REJECTED), "b": Ask(1, arrival=1)}
    steps = run(model, asks, 2, k=3, C=7)
    assert (steps[1]["sched"], steps[1]["wait"]) == ([["a", 4]], ["b"])
    steps = run(model, asks, 2, k=3, C=8)
    assert steps[1]["sched"] == [["a", 4], ["b", 4]]


def test_r22_the_last_chunk_of_a_prefill_stops_padding(model: Model) -> None:
    step = example(model, "vllm-213", 1)
    assert step["sched"] == [["r0", 3], ["r1", 1]]
    assert "spec" not in step


def test_r22_a_prompt_admitted_in_this_step_does_not(model: Model) -> None:
    asks = {"a": Ask(5, drafts=REJECTED), "b": Ask(3, arrival=1), "c": Ask(1, arrival=1)}
    steps = run(model, asks, 2, k=3)
    assert steps[1]["sched"] == [["a", 4], ["b", 3], ["c", 4]]
    assert steps[1]["spec"] == {"a": 3, "c": -3}
