"""Runs with given answers."""

from __future__ import annotations

from itertools import islice

import pytest

from models.config import EngineConfig, RequestSpec, Scenario
from models.gates import GATES
from models.script import DraftScript, play

ENGINE = EngineConfig(
    scheduler="vllm",
    gate=GATES["prompt-only"],
    block_sizes=(4,),
    usable_blocks=8,
    num_spec_tokens=3,
    num_lookahead_tokens=0,
    draft_slots=0,
    max_num_batched_tokens=16,
    max_model_len=64,
    max_num_seqs=4,
)


def test_requests_without_an_arrival_come_first_and_a_run_outlasts_them() -> None:
    requests = (RequestSpec("a", (4, 6), 1), RequestSpec("b", (5, 5), 2))
    steps = list(islice(play(Scenario("free", ENGINE, requests), [DraftScript()] * 2), 4))
    assert [step.arrived for step in steps] == [(0, 1), (), (), ()]
    assert [step.output.scheduled for step in steps] == [{0: 4, 1: 5}, {1: 1}, {}, {}]


def test_requests_arrive_at_their_steps() -> None:
    requests = (RequestSpec("a", (4, 4), 1, arrival=3), RequestSpec("b", (5, 5), 1))
    steps = list(islice(play(Scenario("fixed", ENGINE, requests), [DraftScript()] * 2), 6))
    assert [step.arrived for step in steps] == [(1,), (), (), (0,), (), ()]


@pytest.mark.parametrize(
    ("outputs", "proposed", "accepted"), [(1, 2, 1), (2, 3, 3), (3, 0, 0), (9, 0, 0)]
)
def test_an_entry_is_for_the_decode_after_its_output(
    outputs: int, proposed: int, accepted: int
) -> None:
    script = DraftScript(((2, 1), (5, 4), (0, 0)))
    assert script.proposed(outputs, 3) == proposed  # at most k
    assert script.accepted(outputs, proposed) == accepted  # at most those scheduled
    assert script.accepted(outputs, -3) == 0  # placeholders


def test_without_entries_nothing_is_proposed() -> None:
    assert DraftScript().proposed(1, 3) == 0
    assert DraftScript().accepted(1, 3) == 0
