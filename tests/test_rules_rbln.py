"""Rules R33 to R41: the scheduler of vllm-rbln, one prefill alone or all decodes.

Figures are worked out by hand; ``example`` steps are those of the rule's recorded run. Each test
must fail once its rule is left out (``test_rules.py``), so all of them take the model as argument.
"""

from __future__ import annotations

from typing import Any

from mutation import Model
from stepping import Ask, decide, example, request
from stepping import run as run_any

REJECTED = ((3, 0),)
DECODE = Ask(17, 12, drafts=REJECTED)


def run(model: Model, asks: dict[str, Ask], steps: int, **settings: Any) -> list[dict[str, Any]]:
    return run_any(model, asks, steps, scheduler="rbln", **settings)


def beside_decodes(model: Model, prompt: int, gate: str, steps: int) -> list[dict[str, Any]]:
    """``v`` arrives when two decodes hold four of six 16-token blocks."""
    asks = {"a": DECODE, "b": DECODE, "v": Ask(prompt, 8, arrival=3, drafts=REJECTED)}
    return run(model, asks, steps, B=(16,), F=6, k=3, L=3, C=16, gate=gate)


def test_r33_a_prefill_at_the_end_of_the_list_goes_alone(model: Model) -> None:
    step = example(model, "rbln-208", 2)
    assert (step["run"], step["sched"]) == (["r0", "r1"], [["r1", 3]])


def test_r33_one_token_left_is_a_decode(model: Model) -> None:
    step = example(model, "rbln-208", 1)  # r0: 3 of 4 computed, so r1 is admitted beside it
    assert (step["c"][0], step["sched"]) == (3, [["r1", 3]])


def test_r34_a_running_prefill_skips_the_waiting_loop(model: Model) -> None:
    steps = run(model, {"a": Ask(6), "b": Ask(4)}, 2, C=4)
    assert (steps[1]["sched"], steps[1]["wait"]) == ([["a", 2]], ["b"])


def test_r35_decodes_that_fill_the_budget_starve_prefills(model: Model) -> None:
    step = example(model, "rbln-021", 1)
    assert (step["sched"], step["wait"]) == ([["r0", 3]], ["r1"])
    assert "refuse" not in step


def test_r35_an_admitted_chunk_has_the_whole_budget(model: Model) -> None:
    step = example(model, "rbln-208", 1)  # r0 had taken one of three tokens
    assert step["sched"] == [["r1", 3]]
    steps = run(model, {"a": Ask(2), "b": Ask(4)}, 2, C=2)  # one is left, and enough
    assert steps[1]["sched"] == [["b", 2]]


def test_r35_one_token_requests_use_the_budget_up(model: Model) -> None:
    asks = {"a": Ask(2), "b": Ask(1, arrival=1), "c": Ask(1, arrival=1)}
    steps = run(model, asks, 2, C=2)
    assert (steps[1]["sched"], steps[1]["wait"]) == ([["a", 1], ["b", 1]], ["c"])


def test_r36_an_admission_throws_the_decodes_out(model: Model) -> None:
    step = example(model, "rbln-025", 3)
    assert step["sched"] == [["r1", 24]]
    assert step["run"] == ["r0", "r1"]
    assert (step["c"], step["d"]) == ([53, 24], [2, 0])


def test_r36_the_step_tells_who_was_thrown_out(model: Model) -> None:
    decode = request(model, prompt=4, outputs=1, computed=4, drafts=3, blocks=(2,))
    waiting = request(model, status=model.state.Status.WAITING, prompt=8, blocks=(0,))
    output = decide(model, (decode,), (waiting,), scheduler="rbln", k=3)
    assert (output.scheduled, output.drafts, output.pending) == ({1: 8}, {}, {0: 3})
    event = model.scheduler
    assert output.events == (
        event.Allocated(0, 1, 4 + 4 + 3),
        event.Admitted(1),
        event.Allocated(1, 3, 8 + 3),
        event.Evicted(0),
    )


def test_r36_they_keep_the_blocks_of_this_step(model: Model) -> None:
    steps = run(model, {"a": Ask(4), "b": Ask(4)}, 2)
    assert steps[1]["sched"] == [["b", 4]]
    assert (steps[1]["b"], steps[1]["c"]) == ([2, 1], [4, 4])


def test_r36_they_get_back_the_drafts_that_were_scheduled(model: Model) -> None:
    asks = {"a": Ask(5, drafts=REJECTED), "b": Ask(4)}
    steps = run(model, asks, 2, k=3, M=8)  # 8 - 5 - 1 tokens, so two of three drafts are cut
    assert [step["d"] for step in steps] == [[3, 0], [1, 0]]


def test_r37_one_token_requests_join_the_decodes_and_prefills_wait(model: Model) -> None:
    step = example(model, "rbln-058", 0)
    assert (step["sched"], step["wait"]) == ([["r0", 1]], ["r1"])
    assert "refuse" not in step
    asks = {"a": Ask(4), "b": Ask(1, arrival=1), "c": Ask(1, arrival=1)}
    steps = run(model, asks, 2)
    assert steps[1]["sched"] == [["a", 1], ["b", 1], ["c", 1]]


def test_r37_a_prefill_goes_alone(model: Model) -> None:
    for behind in (4, 1):
        (step,) = run(model, {"a": Ask(4), "b": Ask(behind)}, 1)
        assert (step["sched"], step["wait"]) == ([["a", 4]], ["b"])


def test_r38_lookahead_is_at_least_k(model: Model) -> None:
    (step,) = run(model, {"a": Ask(10)}, 1, B=(1,), k=4, L=0)
    assert step["b"] == [14]
    (step,) = run(model, {"a": Ask(10)}, 1, B=(1,), k=4, L=5)
    assert step["b"] == [15]


def test_r38_draft_slots_are_free(model: Model) -> None:
    decode = Ask(2, drafts=REJECTED)
    steps = run(model, {"a": decode, "b": decode}, 3, k=3, draft_slots=1, C=8)
    assert steps[2]["sched"] == [["a", 4], ["b", 4]]


def test_r38_nothing_is_padded(model: Model) -> None:
    asks = {"a": Ask(4, drafts=REJECTED), "b": Ask(1, arrival=1)}
    steps = run(model, asks, 2, k=3)
    assert (steps[1]["sched"], steps[1]["spec"]) == ([["a", 4], ["b", 1]], {"a": 3})


def test_r39_no_more_decodes_than_max_num_seqs(model: Model) -> None:
    asks = {"a": Ask(4), "b": Ask(4), "c": Ask(4)}
    steps = run(model, asks, 4, max_num_seqs=2)
    assert [step["sched"] for step in steps[2:]] == [[["a", 1], ["b", 1]]] * 2
    assert steps[3]["wait"] == ["c"]


def test_r40_a_lone_prefill_that_preempts_itself_leaves_the_step_empty(model: Model) -> None:
    steps = beside_decodes(model, 32, "prompt-only", 7)
    for turn in (steps[3:5], steps[5:7]):
        assert [step["sched"] for step in turn] == [[["v", 16]], []]
        assert turn[1]["pre"] == [["v", "v", 16]]
        assert (turn[1]["wait"], turn[1]["c"]) == (["v"], [17, 17, 0])
        assert "refuse" not in turn[1]


def test_r41_on_its_first_decode_step_the_decodes_run(model: Model) -> None:
    steps = beside_decodes(model, 26, "prompt-only", 19)
    turns = [step for step in steps if "pre" in step]
    assert [step["pre"] for step in turns] == [[["v", "v", n]] for n in (26, 27, 28, 29, 16, 16)]
    assert [step["sched"] for step in turns] == [[["a", 4], ["b", 4]]] * 4 + [[]] * 2
    assert [step["o"] for step in turns[:4]] == [[2, 2, 1], [3, 3, 2], [4, 4, 3], [5, 5, 4]]


def test_r41_with_room_for_the_last_chunk_it_ends_there(model: Model) -> None:
    steps = beside_decodes(model, 26, "lookahead-only", 30)
    assert [step["pre"][0][2] for step in steps if "pre" in step] == [26, 27, 28, 29]
    assert any(step.get("fin") == ["v"] for step in steps)
    assert not [
        step for step in beside_decodes(model, 26, "first-decode-step", 30) if "pre" in step
    ]
