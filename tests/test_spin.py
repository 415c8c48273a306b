"""SPIN counts the same states and the same transitions, from a second writing of the semantics.

The Promela model (``benchmarks/step.pml``) shares nothing with the Python step but the scenario's
constants. The peer here is a naive search over ``models.environment.successors``.
"""

from __future__ import annotations

import json
import random
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from checker.explore import explore
from models.config import EngineConfig, Environment, RequestSpec, Scenario, SchedulerName
from models.environment import initial_states
from models.gates import GATES

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import bench
import promela
from instances import INSTANCES

MISSING = promela.missing_tools()
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")

SCHEDULERS: tuple[SchedulerName, ...] = ("vllm", "rbln")
# Small models are searched faster than optimised.
COMPILE_OPTIONS = tuple(option for option in promela.COMPILE_OPTIONS if option != "-O2")


def request(name: str, prompt: int, max_tokens: int, **settings: Any) -> RequestSpec:
    return RequestSpec(name, (prompt, prompt), max_tokens, **settings)


def plain(scheduler: SchedulerName) -> Scenario:
    """Three requests that cannot all grow in five blocks of four tokens."""
    engine = EngineConfig(
        scheduler=scheduler,
        gate=GATES["prompt-only"],
        block_sizes=(4,),
        usable_blocks=5,
        num_spec_tokens=2,
        num_lookahead_tokens=0,
        draft_slots=0,
        max_num_batched_tokens=8,
        max_model_len=18,
        max_num_seqs=4,
    )
    requests = (request("a", 5, 6), request("b", 6, 5), request("c", 1, 4))
    return Scenario("plain", engine, requests)


@dataclass(frozen=True)
class Variation:
    """A setting other than that of ``plain``."""

    engine: dict[str, Any] = field(default_factory=dict)
    environment: Environment | None = None
    requests: tuple[RequestSpec, ...] = ()
    schedulers: tuple[SchedulerName, ...] = SCHEDULERS

    def of(self, scheduler: SchedulerName) -> Scenario:
        scenario = plain(scheduler)
        return replace(
            scenario,
            engine=replace(scenario.engine, **self.engine),
            environment=self.environment or scenario.environment,
            requests=self.requests or scenario.requests,
        )


RANKED = (request("a", 5, 6, priority=2), request("b", 6, 5), request("c", 1, 4, priority=1))
PRIORITY = {"priority_policy": True, "usable_blocks": 6}
FIXED = (request("a", 5, 6, arrival=2), request("b", 6, 5, arrival=9), request("c", 1, 4))
LATE = (request("a", 5, 6, arrival=2), request("b", 6, 5, arrival=300), request("c", 1, 4))
CAPPED = Variation({"max_model_len": 9, "usable_blocks": 3, "num_lookahead_tokens": 6})
LONG = (request("a", 250, 60), request("b", 30, 40))

VARIATIONS: dict[str, Variation] = {
    "no-gate": Variation({"gate": GATES["none"], "max_num_batched_tokens": 4}),
    "lookahead-gate": Variation({"gate": GATES["lookahead-only"], "num_lookahead_tokens": 3}),
    "corrected-gate": Variation({"gate": GATES["first-decode-step"]}),
    "always-gate": Variation({"gate": GATES["first-decode-step-always"], "num_spec_tokens": 0}),
    "no-speculation": Variation({"num_spec_tokens": 0}),
    "lookahead": Variation({"num_lookahead_tokens": 3}),
    "draft-slots": Variation({"draft_slots": 2}, schedulers=("vllm",)),
    "chunks": Variation({"max_num_batched_tokens": 3}),
    "max-num-seqs": Variation({"max_num_seqs": 1}),
    "model-length": Variation({"max_model_len": 9}),
    "watermark": Variation({"watermark": 0.34}),
    "groups": Variation({"block_sizes": (4, 8), "usable_blocks": 7}),
    "priority": Variation(PRIORITY, requests=RANKED),
    "priority-0.33": Variation({**PRIORITY, "release": "0.33"}, requests=RANKED),
    "eos": Variation(environment=Environment(eos=True)),
    "proposed-up-to": Variation(environment=Environment(proposed="up-to")),
    "accepted-bounds": Variation(environment=Environment(accepted=(1, 1))),
    "prompt-range": Variation(
        requests=(request("a", 5, 6), RequestSpec("b", (4, 7), 5), RequestSpec("c", (1, 3), 3))
    ),
    "fixed-arrivals": Variation(requests=FIXED),
    "late-arrival": Variation(requests=LATE),
    "fixed-with-range": Variation(
        requests=(*FIXED[:2], RequestSpec("c", (1, 3), 4)), environment=Environment(eos=True)
    ),
    "long-requests": Variation(
        {"max_model_len": 310, "usable_blocks": 72, "max_num_batched_tokens": 64}, requests=LONG
    ),
}
CASES = [
    pytest.param(variation.of(scheduler), id=f"{scheduler}-{name}")
    for name, variation in VARIATIONS.items()
    for scheduler in variation.schedulers
]


def spin_counts(scenario: Scenario, directory: Path) -> tuple[int, int]:
    roots = len(list(initial_states(scenario)))
    found = promela.count(scenario, roots, directory, compile_options=COMPILE_OPTIONS)
    return found.num_states, found.num_transitions


def naive_counts(scenario: Scenario) -> tuple[int, int]:
    return bench.naive_search(scenario)[:2]


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_spin_counts_the_plain_instance(scheduler: SchedulerName, tmp_path: Path) -> None:
    scenario = plain(scheduler)
    assert spin_counts(scenario, tmp_path) == naive_counts(scenario)


@pytest.mark.parametrize("scenario", CASES)
def test_spin_counts_every_setting(scenario: Scenario, tmp_path: Path) -> None:
    expected = naive_counts(scenario)
    assert expected != naive_counts(plain(scenario.engine.scheduler)), "the setting changes nothing"
    assert spin_counts(scenario, tmp_path) == expected


@pytest.mark.parametrize("name", ["vllm-two", "rbln-two", "vllm-three", "rbln-three"])
def test_spin_counts_the_small_benchmarks(name: str, tmp_path: Path) -> None:
    assert spin_counts(INSTANCES[name], tmp_path) == naive_counts(INSTANCES[name])


@pytest.mark.parametrize(
    ("scenario", "rule", "without"),
    [
        (plain("vllm"), "window[j] = CONTENDED", "skip"),
        (CAPPED.of("vllm"), "MIN((t) + LOOKAHEAD, MAX_MODEL_LEN)", "((t) + LOOKAHEAD)"),
        (plain("vllm"), ":: !preempted ->", ":: true ->"),
        (plain("rbln"), "drafts[j] = spec[j]", "drafts[j] = 0"),
        (VARIATIONS["chunks"].of("rbln"), ":: !preempted && !prefill ->", ":: !preempted ->"),
    ],
    ids=["window", "cap", "skip-waiting", "drafts-given-back", "prefill-alone"],
)
def test_the_counts_notice_a_missing_rule(
    scenario: Scenario,
    rule: str,
    without: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    template = promela.TEMPLATE.read_text(encoding="utf-8")
    assert template.count(rule) == 1
    mutant = tmp_path / "mutant.pml"
    mutant.write_text(template.replace(rule, without), encoding="utf-8")
    monkeypatch.setattr(promela, "TEMPLATE", mutant)
    assert spin_counts(scenario, tmp_path) != naive_counts(scenario)


def test_a_deeper_search_is_made_when_the_stack_is_too_small(tmp_path: Path) -> None:
    scenario = plain("vllm")
    roots = len(list(initial_states(scenario)))
    found = promela.count(scenario, roots, tmp_path, depth=10, compile_options=COMPILE_OPTIONS)
    assert (found.num_states, found.num_transitions) == naive_counts(scenario)


def test_a_gate_without_a_promela_form_is_an_error() -> None:
    class Mine:
        name: ClassVar[str] = "mine"

        def tokens(self, request: object) -> None:
            return None

    scenario = plain("vllm")
    own = replace(scenario, engine=replace(scenario.engine, gate=Mine()))
    with pytest.raises(ValueError, match="gate 'mine' has no Promela form"):
        promela.promela(own)


# --- the benchmark ---------------------------------------------------------------------------


def test_the_benchmark_writes_equal_counts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = tmp_path / "figures.json"
    assert bench.main(["--instance", "vllm-two", "--spin", "--json", str(figures)]) == 0
    assert capsys.readouterr().out.count("1,417") == 3
    (instance,) = json.loads(figures.read_text(encoding="utf-8"))["instances"]
    assert instance["equal"]
    counts = [
        (row["engine"], row["num_states"], row["num_transitions"]) for row in instance["engines"]
    ]
    assert counts == [("naive", 172, 1417), ("packed", 172, 1417), ("spin", 172, 1417)]


def test_the_benchmark_fails_when_counts_differ(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = bench.Measurement("spin", 172, 1418, None, 0.1, 0.1, 0)
    monkeypatch.setattr(bench, "measure_spin", lambda scenario, num_states: wrong)
    assert bench.main(["--instance", "vllm-two", "--spin"]) == 1
    assert "vllm-two: the engines' counts differ" in capsys.readouterr().err


def test_the_benchmark_says_which_program_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench, "missing_tools", lambda: ["spin"])
    assert bench.main(["--instance", "vllm-two", "--spin"]) == 3
    assert "--spin: not installed: spin" in capsys.readouterr().err


# --- larger ----------------------------------------------------------------------------------


def random_scenario(rng: random.Random, scheduler: SchedulerName) -> Scenario:
    """A small instance with any setting at all."""
    count = rng.choice([2, 2, 3, 3, 4])
    spec_tokens = rng.choice([0, 1, 2, 2, 3, 3, 4])
    sizes = rng.choice([(2,), (3,), (4,), (4,), (8,), (2, 4), (4, 8)])
    length = rng.choice([10, 16, 20, 24])
    slots = rng.choice([0, 0, 1, spec_tokens]) if scheduler == "vllm" else 0
    alone = sum(-(-length // size) for size in sizes)
    engine = EngineConfig(
        scheduler=scheduler,
        gate=GATES[rng.choice(list(GATES))],
        block_sizes=sizes,
        usable_blocks=rng.randint(max(2, alone // 2), alone + 4),
        num_spec_tokens=spec_tokens,
        num_lookahead_tokens=rng.choice([0, 0, spec_tokens, spec_tokens + 1]),
        draft_slots=slots,
        max_num_batched_tokens=max(rng.choice([4, 6, 8, 12, 32]), slots + 2),
        max_model_len=length,
        max_num_seqs=rng.choice([1, 2, 4, 8]),
        watermark=rng.choice([0, 0, 0.1, 0.3]),
        priority_policy=rng.random() < 0.4,
        release=rng.choice(["0.32", "0.33"]),
    )
    fixed = rng.random() < 0.25
    requests = []
    for index in range(count):
        shortest = rng.randint(1, min(length - 3, 12))
        requests.append(
            RequestSpec(
                f"r{index}",
                (shortest, shortest + (rng.choice([0, 0, 1, 2]) if count < 4 else 0)),
                rng.randint(1, 7 if count < 4 else 4),
                rng.choice([0, 0, 1, 2]),
                rng.randint(0, 4) if fixed else None,
            )
        )
    least = rng.choice([0, 0, 0, 1])
    environment = Environment(
        (least, rng.choice([None, None, least, 2])),
        "up-to" if count < 4 and rng.random() < 0.3 else "always",
        rng.random() < 0.3,
    )
    return Scenario("random", engine, tuple(requests), environment)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_spin_counts_random_instances(scheduler: SchedulerName, seed: int, tmp_path: Path) -> None:
    rng = random.Random(f"spin {scheduler} {seed}")
    left = 4
    while left:
        scenario = random_scenario(rng, scheduler)
        if 100 <= explore(scenario).num_states <= 40_000:
            assert spin_counts(scenario, tmp_path) == naive_counts(scenario), scenario
            left -= 1


@pytest.mark.long
@pytest.mark.parametrize("name", INSTANCES)
def test_spin_and_the_packed_search_agree_on_the_benchmarks(name: str, tmp_path: Path) -> None:
    scenario = INSTANCES[name]
    packed = explore(scenario)
    roots = len(list(initial_states(scenario)))
    found = promela.count(scenario, roots, tmp_path)
    assert (found.num_states, found.num_transitions) == (packed.num_states, packed.num_transitions)
