"""Rules R9 to R18 and R23 to R27: the running loop, preemption, and what follows the model.

Figures are worked out by hand; ``example`` steps are those of the rule's recorded run. Each test
must fail once its rule is left out (``test_rules.py``), so all of them take the model as argument.
"""

from __future__ import annotations

from typing import Any

import pytest
from mutation import Model
from stepping import Ask, decide, example, request, run

REJECTED = ((3, 0),)
THREE = {"a": Ask(4, 2, drafts=((7, 0),)), "b": Ask(4), "c": Ask(4)}  # one block each


def decoding(model: Model, prompt: int, blocks: int, drafts: int = 3) -> Any:
    """A request that has emitted one token, its last one still to be computed."""
    return request(
        model, prompt=prompt, outputs=1, computed=prompt, drafts=drafts, blocks=(blocks,)
    )


def idle(model: Model, blocks: int = 4) -> Any:
    """A running request with nothing to do: it has all but one of M = 16 positions computed."""
    return request(model, prompt=15, outputs=1, computed=15, blocks=(blocks,))


# --- running loop ----------------------------------------------------------------------------


def test_r9_drafts_count_like_tokens(model: Model) -> None:
    step = example(model, "vllm-132", 1)
    assert (step["sched"], step["spec"]) == ([["r0", 4]], {"r0": 3})


def test_r9_one_position_is_kept_for_the_sampled_token(model: Model) -> None:
    step = example(model, "vllm-325", 3)  # C 25, M 27, one draft pending
    assert step["sched"] == [["r0", 1]]
    assert step["fin"] == ["r0"]


@pytest.mark.parametrize("scheduler", ["vllm", "rbln"])
def test_r9_a_running_prefill_gets_a_chunk_of_the_budget(model: Model, scheduler: str) -> None:
    steps = run(model, {"a": Ask(20)}, 3, scheduler=scheduler, C=8)
    assert [step["sched"] for step in steps] == [[["a", 8]], [["a", 8]], [["a", 4]]]


def test_r10_a_chunk_leaves_room_for_its_draft_slots(model: Model) -> None:
    step = example(model, "vllm-248", 3)  # budget 10, one slot
    assert step["sched"] == [["r0", 9]]


def test_r10_decodes_are_charged_for_their_draft_slots(model: Model) -> None:
    decode = Ask(5, drafts=REJECTED)
    asks = {"a": decode, "b": decode, "v": Ask(128, arrival=1)}
    steps = run(model, asks, 2, k=3, L=3, draft_slots=1, C=32)
    assert steps[1]["sched"] == [["a", 4], ["b", 4], ["v", 32 - 2 * (4 + 1) - 1]]


def test_r10_the_loops_end_when_only_draft_slots_are_left(model: Model) -> None:
    (step,) = run(model, {"a": Ask(8), "b": Ask(8)}, 1, draft_slots=1, C=10)  # 10 - 8 - 1
    assert (step["sched"], step["run"]) == ([["a", 8]], ["a"])


@pytest.mark.parametrize("scheduler", ["vllm", "rbln"])
def test_r11_a_request_with_nothing_to_do_does_not_stop_the_loop(
    model: Model, scheduler: str
) -> None:
    output = decide(
        model, (idle(model), decoding(model, 4, 2, drafts=0)), M=16, scheduler=scheduler
    )
    assert output.scheduled == {1: 1}


def test_r12_drafts_past_the_budget_are_not_scheduled(model: Model) -> None:
    assert "spec" not in example(model, "vllm-325", 3)
    steps = run(model, {"a": Ask(2, drafts=REJECTED)}, 2, k=3, C=3)
    assert (steps[1]["sched"], steps[1]["spec"]) == ([["a", 3]], {"a": 2})


def test_r12_a_request_that_is_not_scheduled_keeps_its_drafts(model: Model) -> None:
    decode = Ask(2, drafts=((3, 0), (1, 0)))
    steps = run(model, {"a": decode, "b": decode}, 2, k=3, C=4)
    assert steps[0]["d"] == [3, 3]
    assert (steps[1]["sched"], steps[1]["d"]) == ([["a", 4]], [1, 3])


# --- preemption ------------------------------------------------------------------------------


def test_r13_fcfs_takes_the_last_of_the_running_even_the_requester(model: Model) -> None:
    assert example(model, "vllm-084", 2)["pre"] == [["r0", "r1", 6]]
    assert example(model, "vllm-202", 1)["pre"] == [["r1", "r1", 14]]


def test_r13_priority_takes_the_least_urgent_even_if_scheduled(model: Model) -> None:
    step = example(model, "vllm-013", 3)  # r0 stood first, its tokens were in the step
    assert step["pre"] == [["r0", "r1", 10]]
    assert step["sched"] == [["r1", 4]]


def test_r13_among_equals_priority_takes_the_latest_arrival(model: Model) -> None:
    asks = {"late": Ask(8, arrival=1), "early": Ask(4)}
    steps = run(model, asks, 3, F=4, priority_policy=True)
    assert (steps[1]["b"], steps[1]["free"]) == ([2, 2], 0)
    assert steps[2]["pre"] == [["late", "late", 8]]


@pytest.mark.parametrize("scheduler", ["vllm", "rbln"])
def test_r13_as_many_victims_as_it_takes(model: Model, scheduler: str) -> None:
    running = (decoding(model, 3, 1, 5), decoding(model, 3, 1, 0), decoding(model, 3, 1, 0))
    output = decide(model, running, scheduler=scheduler, F=3)  # 9 slots, two more blocks
    assert output.scheduled == {0: 6}
    assert output.waiting == (1, 2)


def test_r14_victims_lose_all_but_their_outputs_and_go_to_the_front(model: Model) -> None:
    asks = THREE | {"d": Ask(4, arrival=1)}
    steps = run(model, asks, 2, F=3, k=7)
    after = steps[1]
    assert after["pre"] == [["c", "a", 4], ["b", "a", 4]]
    assert after["sched"] == [["a", 8]]
    assert (after["run"], after["wait"]) == ([], ["b", "c", "d"])
    assert after["mid"] == {"b": [3, 0, 0, 0], "free": 0}
    assert (after["c"][1:3], after["o"][1:3]) == ([0, 0], [1, 1])


def test_r14_drafts_of_a_victim_are_dropped(model: Model) -> None:
    asks = {"a": Ask(4, drafts=((7, 0),)), "b": Ask(4, drafts=((7, 0),))}
    steps = run(model, asks, 2, F=3, k=7)
    assert [step["d"] for step in steps] == [[7, 7], [7, 0]]


def test_r14_priority_puts_a_victim_where_it_ranks(model: Model) -> None:
    asks = {
        "a": Ask(4, drafts=((7, 0),)),
        "v": Ask(4, priority=2),
        "w": Ask(4, priority=1, arrival=1),
    }
    steps = run(model, asks, 2, F=3, k=7, priority_policy=True)
    assert steps[1]["pre"] == [["v", "a", 4]]
    assert steps[1]["wait"] == ["w", "v"]


def test_r15_a_self_preemption_ends_the_running_loop(model: Model) -> None:
    step = example(model, "vllm-367", 5)
    assert step["pre"] == [["r1", "r1", 4]]
    assert step["sched"] == [["r2", 1], ["r0", 1]]  # r3 stands behind r1


def test_r15_vllm_033_goes_on_under_priority(model: Model) -> None:
    step = example(model, "vllm-367", 5, release="0.33")
    assert step["sched"] == [["r2", 1], ["r0", 1], ["r3", 2]]


def test_r15_a_self_preemption_ends_the_running_loop_of_rbln(model: Model) -> None:
    asks = {"a": Ask(7, priority=1), "b": Ask(3, arrival=1)}
    steps = run(model, asks, 4, scheduler="rbln", F=3, priority_policy=True)
    assert steps[2]["sched"] == [["a", 1], ["b", 1]]
    assert steps[3]["pre"] == [["a", "a", 8]]
    assert steps[3]["sched"] == []


def test_r16_nobody_is_admitted_after_a_preemption(model: Model) -> None:
    step = example(model, "vllm-084", 2)
    assert (step["sched"], step["wait"]) == ([["r1", 3]], ["r0"])
    assert "refuse" not in step


def test_r16_nobody_is_admitted_after_a_preemption_under_rbln(model: Model) -> None:
    asks = {"a": Ask(7, priority=1), "b": Ask(3, arrival=1)}
    steps = run(model, asks, 4, scheduler="rbln", F=3, priority_policy=True)
    assert steps[3]["wait"] == ["a"]
    assert "refuse" not in steps[3]


def test_r17_a_scheduled_victim_gives_back_tokens_slots_and_drafts(model: Model) -> None:
    assert example(model, "vllm-124", 2)["sched"] == [["r1", 4], ["r2", 1]]
    # Budget 8: a takes 4 + 1, which leaves b 2 of its 4; b preempts a for its second block and
    # keeps its 2; then 8 - 3 are left, 4 of them for c.
    prefill = request(model, prompt=30, computed=4, blocks=(10,), is_prefill_chunk=True)
    running = (decoding(model, 3, 2), decoding(model, 4, 1), prefill)
    output = decide(
        model, running, (), (2, 0, 1), priority_policy=True, F=13, k=3, draft_slots=1, C=8
    )
    assert (output.scheduled, output.drafts) == ({1: 2, 2: 4}, {1: 1})
    assert output.running == (1, 2)


def test_r17_a_scheduled_victim_gives_back_its_tokens_under_rbln(model: Model) -> None:
    running = (decoding(model, 3, 3), decoding(model, 4, 2), decoding(model, 4, 10))
    output = decide(
        model, running, (), (2, 0, 1), scheduler="rbln", priority_policy=True, F=15, k=3, C=8
    )
    assert (output.scheduled, output.drafts) == ({1: 4, 2: 4}, {1: 3, 2: 3})
    assert output.running == (1, 2)


@pytest.mark.parametrize(("scheduler", "scheduled"), [("vllm", {1: 1, 2: 1}), ("rbln", {1: 1})])
def test_r17_a_victim_that_was_not_scheduled(
    model: Model, scheduler: str, scheduled: dict[int, int]
) -> None:
    """vLLM steps back whenever the victim stood before, vllm-rbln only if it was scheduled."""
    running = (idle(model), decoding(model, 4, 1, 0), decoding(model, 4, 2, 0))
    output = decide(
        model, running, (), (1, 0, 0), scheduler=scheduler, priority_policy=True, F=7, M=16
    )
    assert output.scheduled == scheduled
    assert output.running == (1, 2)


def test_r18_blocks_of_a_finished_request_are_free_in_the_next_step(model: Model) -> None:
    asks = {"a": Ask(12, 1), "b": Ask(4, arrival=1)}
    steps = run(model, asks, 3, F=3, C=8)
    assert steps[1]["fin"] == ["a"]
    assert steps[1]["refuse"] == ["b", "gate", 1, 0]
    assert (steps[1]["mid"]["free"], steps[1]["free"]) == (0, 3)
    assert steps[2]["sched"] == [["b", 4]]


# --- after the model -------------------------------------------------------------------------


def test_r23_rejected_drafts_come_off_again(model: Model) -> None:
    assert example(model, "vllm-132", 0)["c"][0] == 5
    step = example(model, "vllm-132", 1)  # 4 scheduled, 3 of them rejected
    assert step["c"][0] == 6


def test_r23_accepted_drafts_are_computed(model: Model) -> None:
    steps = run(model, {"a": Ask(5, drafts=((3, 2),))}, 2, k=3)
    assert (steps[1]["c"], steps[1]["o"]) == ([5 + 4 - 1], [1 + 3])


def test_r24_only_the_last_chunk_samples(model: Model) -> None:
    step = example(model, "vllm-041", 0)  # 5 of 40 tokens
    assert (step["c"][0], step["o"][0]) == (5, 0)
    assert "samp" not in step
    step = example(model, "vllm-041", 7)  # 40 of 40
    assert (step["samp"], step["o"][0]) == ({"r0": 1}, 1)


def test_r25_tokens_past_the_stop_are_cut(model: Model) -> None:
    step = example(model, "rbln-018", 2)  # 2 outputs at most, one of them emitted before
    assert (step["samp"], step["kept"], step["fin"]) == ({"r0": 2}, {"r0": 1}, ["r0"])


def test_r25_the_longest_sequence_stops_a_request(model: Model) -> None:
    steps = run(model, {"a": Ask(4)}, 2, M=6)
    assert "fin" not in steps[0]
    assert steps[1]["fin"] == ["a"]


def test_r26_drafts_come_with_the_sampled_token(model: Model) -> None:
    steps = run(model, {"a": Ask(10, drafts=REJECTED)}, 2, k=3, C=5)
    assert [step["d"] for step in steps] == [[0], [3]]
    (step,) = run(model, {"a": Ask(4)}, 1, k=3)  # a drafter that proposes nothing
    assert step["d"] == [0]


def test_r27_arrivals_go_to_the_back_of_the_queue(model: Model) -> None:
    asks = {"a": Ask(4), "b": Ask(4), "c": Ask(4, arrival=1)}
    steps = run(model, asks, 2, max_num_seqs=1)
    assert (steps[0]["add"], steps[0]["sched"]) == (["a", "b"], [["a", 4]])
    assert steps[1]["wait"] == ["b", "c"]


def test_r27_arrivals_stand_behind_victims(model: Model) -> None:
    assert example(model, "vllm-202", 1)["wait"] == ["r1", "r2"]


def test_r27_priority_orders_arrivals(model: Model) -> None:
    asks = {"a": Ask(4), "b": Ask(4, priority=1), "c": Ask(4, arrival=1)}
    steps = run(model, asks, 2, max_num_seqs=1, priority_policy=True)
    assert steps[1]["wait"] == ["c", "b"]
