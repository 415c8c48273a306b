"""A walk through the state graph by hand: a path of the environment's answers, and what it leads to.

A path is a sequence of numbers: which initial state, then which successor of each state, in the
order of ``models.environment``. Because the answers are independent per request, the number of a
successor is put together from the choices one by one, and nobody has to list all of them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from itertools import islice, pairwise, product
from math import prod
from typing import Any, TypeAlias

from checker.check import CheckResult, PropertyResult
from checker.narrate import decisions, narrate
from checker.outputs.graphs import phase
from checker.render import instance_line
from checker.scenario import to_document
from checker.trace import least_answer, take_step
from models.config import Scenario
from models.environment import (
    after_schedule,
    arrivals,
    initial_states,
    outcomes,
    prompts,
    samples,
    schedule,
    successors,
    tick,
)
from models.scheduler import SchedulerOutput
from models.state import FINISHED, UNARRIVED, Request, State
from properties.properties import STEP_PROPERTIES

Json: TypeAlias = dict[str, Any]
Path: TypeAlias = tuple[int, ...]


class PathError(ValueError):
    """A path that this scenario does not have."""


def parse_path(words: str) -> Path:
    """A path from its text: numbers between dots.

    >>> parse_path("3.0.12"), parse_path("")
    ((3, 0, 12), ())
    """
    parts = words.split(".") if words else []
    if not all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts):
        raise PathError(f"{words[:40]!r} is not a path; a path is numbers between dots")
    return tuple(int(part) for part in parts)


class Walk:
    """One scenario to walk in, and what a check of it found."""

    def __init__(self, result: CheckResult, policy: str) -> None:
        self.scenario: Scenario = result.scenario
        self._result = result
        self.overview = self._overview(policy)

    def _overview(self, policy: str) -> Json:
        """The scenario, its verdicts, and a path to every violation."""
        scenario = to_document(self.scenario, policy)
        text = json.dumps(scenario, sort_keys=True)
        return {
            "key": hashlib.sha256(text.encode()).hexdigest()[:8],
            "instance": instance_line(self.scenario),
            "scenario": scenario,
            "states": self._result.num_states,
            "complete": self._result.stopped is None,
            "properties": [self._property(checked) for checked in self._result.properties],
        }

    def _property(self, checked: PropertyResult) -> Json:
        return {
            "name": checked.property.name,
            "statement": checked.property.statement,
            "required": checked.property.required,
            "verdict": checked.verdict.value,
            "evidence": checked.evidence,
            "path": self._path(checked),
        }

    def _path(self, checked: PropertyResult) -> list[int] | None:
        """The path to a violation; through a loop once, so that it ends where the loop began."""
        if checked.trace is None:
            return None
        states = [step.before for step in checked.trace.steps]
        if checked.trace.loop_start is not None:
            states.append(states[checked.trace.loop_start])
        path = [_number(initial_states(self.scenario), states[0])]
        for state, following in pairwise(states):
            output = schedule(self.scenario, state)
            path.append(_number(successors(self.scenario, state, output), following))
        return path

    # --- where a path leads ------------------------------------------------------------------

    def states(self, path: Sequence[int]) -> list[State]:
        """The states on a path.

        Raises
        ------
        PathError
            If a number is not one of a state that follows.
        """
        found: list[State] = []
        for step, number in enumerate(path):
            state = next(islice(self._following(found[-1] if found else None), number, None), None)
            if state is None:
                raise PathError(f"step {step} of the path: there is no answer number {number}")
            found.append(state)
        return found

    def _following(self, state: State | None) -> Iterator[State]:
        if state is None:
            return initial_states(self.scenario)
        return successors(self.scenario, state, schedule(self.scenario, state))

    def view(self, path: Sequence[int]) -> Json:
        """Everything that the page shows at the end of a path."""
        states = self.states(path)
        view: Json = {"path": list(path), "history": list(self._history(states))}
        if not states:
            return view | {"state": None, "choices": initial_choices(self.scenario)}
        state = states[-1]
        output = schedule(self.scenario, state)
        earlier = states.index(state)
        return view | {
            "state": self._state(state),
            "decision": self._decision(states, output),
            "violates": list(self._violated(state, output)),
            "repeats": earlier if earlier < len(states) - 1 else None,
            "choices": choices(self.scenario, state, output),
        }

    def _history(self, states: Sequence[State]) -> Iterator[Json]:
        """The steps that have been taken."""
        previous = None
        for state, following in pairwise(states):
            output = schedule(self.scenario, state)
            step = take_step(self.scenario, previous, state, output, following)
            yield {
                "what": narrate(self.scenario, step),
                "violates": [name for name, _ in self._findings(state, output)],
            }
            previous = state

    def _state(self, state: State) -> Json:
        ids = [spec.id for spec in self.scenario.requests]
        return {
            "requests": [
                _request(name, request) for name, request in zip(ids, state.requests, strict=True)
            ],
            "running": [ids[index] for index in state.running],
            "waiting": [ids[index] for index in state.waiting],
            "usable": self.scenario.engine.usable_blocks,
            "free": self.scenario.engine.usable_blocks - state.blocks_held(),
        }

    def _decision(self, states: Sequence[State], output: SchedulerOutput) -> Json:
        state = states[-1]
        before = states[-2].requests if len(states) > 1 else (UNARRIVED,) * len(state.requests)
        ids = [spec.id for spec in self.scenario.requests]
        arrived = [
            f"{name} has arrived with {request.prompt} tokens"
            for name, old, request in zip(ids, before, state.requests, strict=True)
            if old is UNARRIVED and request is not UNARRIVED
        ]
        runs = [
            f"{ids[index]} runs {_tokens(tokens, output.drafts.get(index, 0))}"
            for index, tokens in output.scheduled.items()
        ]
        return {
            "arrived": arrived,
            "what": [*decisions(self.scenario, state, output), *(runs or ["nothing runs"])],
            "blocks": [sum(blocks) for blocks in output.blocks],
            "free": output.free,
        }

    def _violated(self, state: State, output: SchedulerOutput) -> Iterator[Json]:
        for name, finding in self._findings(state, output):
            yield {"name": name, "finding": finding}

    def _findings(self, state: State, output: SchedulerOutput) -> Iterator[tuple[str, str]]:
        for checked in STEP_PROPERTIES:
            if output.preempted or not checked.preempting:
                finding = checked.check(self.scenario, state, output)
                if finding is not None:
                    yield checked.property.name, finding


def _number(states: Iterator[State], wanted: State) -> int:
    return next(number for number, state in enumerate(states) if state == wanted)


def _tokens(tokens: int, drafts: int) -> str:
    if drafts < 0:
        return f"{tokens + drafts} token{'s' * (tokens + drafts != 1)} and {-drafts} of padding"
    more = f" and {drafts} draft{'s' * (drafts != 1)}" if drafts else ""
    return f"{tokens - drafts} token{'s' * (tokens - drafts != 1)}{more}"


def _request(name: str, request: Request) -> Json:
    return {
        "id": name,
        "phase": phase(request),
        "computed": request.computed,
        "known": request.num_tokens,
        "outputs": request.outputs,
        "drafts": request.drafts,
        "blocks": list(request.blocks),
        "window": request.window.name.lower(),
    }


# --- what the environment can answer ---------------------------------------------------------


def initial_choices(scenario: Scenario) -> Json:
    """Who may be there before the first step."""
    nobody = State((UNARRIVED,) * len(scenario.requests), (), (), -1)
    return _choices(scenario, nobody, [], 0)


def choices(scenario: Scenario, state: State, output: SchedulerOutput) -> Json:
    """What may be answered to a step.

    ``answers`` has the outcomes of every request that sampled, ``arrivals`` who may arrive with
    what. With ``c`` the choices of ``answers`` in mixed radix, the last changing fastest, the
    number of the successor is ``base + c * stride + offset`` of the arrivals chosen.
    """
    answers: list[Json] = []
    for index, request in enumerate(after_schedule(state, output)):
        tokens = output.scheduled.get(index)
        if tokens is None or not samples(request, tokens):
            continue
        ends = outcomes(scenario, index, request, tokens, output.drafts.get(index, 0))
        options = [_answer(scenario, index, request, output, end) for end in ends]
        answers.append({"id": scenario.requests[index].id, "options": options})
    return _choices(scenario, state, answers, tick(scenario, state.clock))


def _choices(scenario: Scenario, state: State, answers: list[Json], clock: int) -> Json:
    combined = prod(len(answer["options"]) for answer in answers)
    options = []
    base = 0
    for arrived in arrivals(scenario, state, clock):
        lengths = list(product(*(prompts(scenario.requests[index]) for index in arrived)))
        for offset, chosen in enumerate(lengths):
            words = " and ".join(
                f"{scenario.requests[index].id} arrives with {tokens} tokens"
                for index, tokens in zip(arrived, chosen, strict=True)
            )
            options.append(
                {
                    "words": words or "nobody arrives",
                    "base": base,
                    "stride": len(lengths),
                    "offset": offset,
                }
            )
        base += combined * len(lengths)
    return {"answers": answers, "arrivals": options, "count": base}


def _answer(
    scenario: Scenario, index: int, request: Request, output: SchedulerOutput, end: Request
) -> str:
    """An outcome of a request in words."""
    answer = least_answer(scenario, index, request, output, end)
    drafts = max(output.drafts.get(index, 0), 0)
    if answer.eos:
        return "ends early, with an end of sequence"
    words = f"{answer.accepted} of {drafts} drafts accepted" if drafts else "emits a token"
    if end == FINISHED:
        return f"{words}, and ends"
    if scenario.environment.proposed == "up-to":
        words += f", {answer.proposed} proposed next"
    return words
