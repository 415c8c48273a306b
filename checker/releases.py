"""An installed release held against the recorded runs: which rules it keeps, where it departs.

``witnesses.json`` (written by ``scripts/rule_witnesses.py``) has, for every rule, steps of recorded
runs at which a scheduler without that rule would do something else than was recorded. A release
that does what was recorded up to such a step keeps the rule.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from importlib import resources
from pathlib import Path
from typing import Any

from checker.conform import not_covered, read_run, scenario_of
from checker.engines.driver import (
    Engine,
    EngineRefusedError,
    Record,
    Run,
)
from checker.lockstep import Difference, ModelRun, difference, due, scripted
from models.config import EngineConfig, RequestSpec, Scenario
from models.gates import GATES
from models.script import DraftScript


class RuleVerdict(Enum):
    """What the runs say about a rule."""

    KEPT = "kept"
    DEPARTS = "departs"
    UNSEEN = "not shown by these runs"


@dataclass(frozen=True, slots=True)
class Surveyed:
    """One recorded run on the installed release.

    ``departure`` is where it does something else than was recorded, ``modelled`` whether the model
    of the installed release does the same (``None``: the model does not cover the run), ``refused``
    why it would not start.
    """

    name: str
    steps: int
    departure: Difference | None = None
    modelled: bool | None = True
    refused: str | None = None


@dataclass(frozen=True, slots=True)
class Aspect:
    """A rule, what a scheduler without it does, and what the runs say."""

    rule: str
    instead: str
    verdict: RuleVerdict
    shown_by: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Survey:
    """All runs on an installed release, and all rules."""

    runs: tuple[Surveyed, ...]
    aspects: tuple[Aspect, ...]
    skipped: int

    @property
    def departing(self) -> list[Surveyed]:
        """The runs that went otherwise than recorded, or not at all."""
        return [run for run in self.runs if run.departure or run.refused]


def survey(engine: Engine, paths: Iterable[Path]) -> Survey:
    """Play every recorded run of the scheduler's kind on the installed release.

    Raises
    ------
    RecordError
        If a file is no recorded run.
    """
    runs: list[Surveyed] = []
    skipped = 0
    for path in paths:
        recorded = read_run(path)
        settings = recorded["scenario"]
        if settings["batching"] != engine.name or not_driven(settings):
            skipped += 1
        else:
            runs.append(_play(engine, f"{path.parent.name}/{path.stem}", recorded))
    by_name = {run.name: run for run in runs}
    aspects = [*_aspects(engine.name, by_name), *_probes(engine)]
    return Survey(tuple(runs), tuple(aspects), skipped)


def record_again(engine: Engine, path: Path) -> Record | None:
    """What the installed release does with the scenario of a recorded run, in the same format.

    ``None`` if the run is of another scheduler, needs what the driver does not drive, or the
    release refuses its settings.
    """
    recorded = read_run(path)
    settings = recorded["scenario"]
    if settings["batching"] != engine.name or not_driven(settings):
        return None
    scenario, scripts = scenario_of(settings)
    try:
        run = engine.start(scenario, _prompts(settings))
    except EngineRefusedError:
        return None
    steps = len(recorded["trace"])
    return {"scenario": settings, "trace": play(run, scenario, scripts, steps)}


def play(run: Run, scenario: Scenario, scripts: Sequence[DraftScript], steps: int) -> list[Record]:
    """The records of the first steps of a run."""
    answers, records = scripted(scenario, scripts), []
    for number in range(steps):
        run.arrive(due(scenario, number))
        run.schedule()
        records.append(run.finish(answers))
    return records


def not_driven(settings: Record) -> str | None:
    """Why the driver cannot play a recorded run, if it cannot; prefix caching it can."""
    return not_covered({**settings, "prefix_caching": settings.get("sub_block_size") is not None})


def _prompts(settings: Record) -> list[list[int]] | None:
    return contents(settings) if settings["prefix_caching"] else None


def contents(settings: Record) -> list[list[int]]:
    """The token ids of every prompt: what is shared comes from a common pool, the rest is its own."""
    prompts = []
    for index, request in enumerate(settings["requests"]):
        pool, shared = request.get("shared") or (0, 0)
        own = 1_000_000 * (index + 1)
        common = 1_000_000_000 * (pool + 1)
        prompts.append([(common if n < shared else own) + n for n in range(request["prompt"])])
    return prompts


def _play(engine: Engine, name: str, recorded: Record) -> Surveyed:
    scenario, scripts = scenario_of(recorded["scenario"])
    trace: list[Record] = recorded["trace"]
    prompts = _prompts(recorded["scenario"])
    try:
        real = play(engine.start(scenario, prompts), scenario, scripts, len(trace))
    except EngineRefusedError as error:
        return Surveyed(name, 0, refused=str(error))
    found = _first(real, trace)
    if found is None:
        return Surveyed(name, len(trace))
    if prompts is not None:
        return Surveyed(name, len(trace), found, modelled=None)
    settings = replace(scenario.engine, release=engine.modelled)
    newer = replace(scenario, engine=settings)
    model = play(ModelRun(newer), newer, scripts, len(trace))
    return Surveyed(name, len(trace), found, modelled=_first(real, model) is None)


def _first(ours: Sequence[Record], theirs: Sequence[Record]) -> Difference | None:
    pairs = zip(ours, theirs, strict=True)
    return next((found for pair in pairs if (found := difference(*pair))), None)


def _aspects(kind: str, runs: dict[str, Surveyed]) -> Iterable[Aspect]:
    for row in _witnesses():
        steps = {
            one["run"]: one["step"] for one in row["witnesses"] if one["run"].startswith(f"{kind}/")
        }
        if steps and (kind == "rbln" or int(row["rule"][1:].rstrip("b")) < 33):
            seen = [(runs[name], step) for name, step in steps.items() if name in runs]
            verdict, shown_by = _judge(seen)
            yield Aspect(row["rule"], row["instead"], verdict, shown_by)


def _probes(engine: Engine) -> Iterable[Aspect]:
    """Rules that no run within the model shows, each asked by a small run of its own."""
    if engine.name == "vllm":
        yield _probe(
            "R30", "a block of accepted drafts is cached a step earlier", _caches_early(engine)
        )
        instead = "a budget that is not above the lookahead is refused at start-up"
        yield _probe("R49", instead, _refuses_low_budget(engine))


def _probe(rule: str, instead: str, departs: bool) -> Aspect:
    verdict = RuleVerdict.DEPARTS if departs else RuleVerdict.KEPT
    return Aspect(rule, instead, verdict, ("a run of its own",))


PROBE = EngineConfig(
    scheduler="vllm",
    gate=GATES["prompt-only"],
    block_sizes=(2,),
    usable_blocks=16,
    num_spec_tokens=3,
    num_lookahead_tokens=0,
    draft_slots=0,
    max_num_batched_tokens=16,
    max_model_len=32,
    max_num_seqs=2,
)


def _caches_early(engine: Engine) -> bool:
    """a ends with accepted drafts in its third block; b, with the same tokens, hits it or not."""
    specs = (RequestSpec("a", (3, 3), 5, arrival=0), RequestSpec("b", (8, 8), 1, arrival=2))
    scenario = Scenario("R30", PROBE, specs)
    prompt = [1, 2, 3]
    emitted = [engine.sampled_token(0, number) for number in range(4)]
    run = engine.start(scenario, [prompt, [*prompt, *emitted, 4]])
    records = play(run, scenario, [DraftScript(((3, 3),)), DraftScript()], 3)
    return bool(records[2]["sched"] == [["b", 2]])


def _refuses_low_budget(engine: Engine) -> bool:
    """Four tokens a step under a draft model with a lookahead of four."""
    settings = replace(
        PROBE,
        num_spec_tokens=4,
        num_lookahead_tokens=4,
        draft_slots=1,
        max_num_batched_tokens=4,
    )
    try:
        engine.start(Scenario("R49", settings, (RequestSpec("a", (5, 5), 2),)))
    except EngineRefusedError:
        return True
    return False


def _judge(witnesses: list[tuple[Surveyed, int]]) -> tuple[RuleVerdict, tuple[str, ...]]:
    """Kept if any run agrees through its witness step; departs if one departs at that very step."""
    agree, depart = [], []
    for run, step in witnesses:
        if run.refused:
            continue
        if run.departure is None or run.departure.step > step:
            agree.append(f"{run.name} step {step}")
        elif run.departure.step == step:
            depart.append(f"{run.name} step {step}")
    if agree:
        return RuleVerdict.KEPT, tuple(agree)
    return (RuleVerdict.DEPARTS if depart else RuleVerdict.UNSEEN), tuple(depart)


def _witnesses() -> list[dict[str, Any]]:
    file = resources.files("checker") / "witnesses.json"
    rows: list[dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))
    return rows
