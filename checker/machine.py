"""A hypothesis state machine that drives any scheduler, and shrinks what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from hypothesis.strategies import SearchStrategy

from checker.shadow import PROPERTIES_OF_ANY, SchedulerUnderTest, Shadow
from checker.strategies import answers
from models.config import Scenario
from models.environment import prompts
from properties.properties import NO_DEADLOCK, NO_LIVELOCK, STEP_PROPERTIES

Start: TypeAlias = Callable[[Scenario], SchedulerUnderTest]

KNOWN = (
    *(checked.property.name for checked in STEP_PROPERTIES),
    NO_LIVELOCK.name,
    NO_DEADLOCK.name,
)


class SchedulerMachine(RuleBasedStateMachine):
    """Requests arrive, the scheduler decides, the environment answers, in any order that can be."""

    shadow: Shadow | None = None

    def follow(self, shadow: Shadow) -> None:
        """Begin a run."""
        self.shadow = shadow

    @precondition(lambda self: _free_to_arrive(self.shadow))
    @rule(data=st.data())
    def arrive(self, data: st.DataObject) -> None:
        """The next request of the workload arrives."""
        assert self.shadow is not None
        self._arrive(data, self.shadow.absent[0])

    @precondition(lambda self: _can_step(self.shadow))
    @rule(data=st.data())
    def step(self, data: st.DataObject) -> None:
        """A step: the scheduler decides, the environment answers."""
        shadow = self.shadow
        assert shadow is not None
        for index in shadow.due:
            self._arrive(data, index)
        asked = shadow.schedule()
        shadow.finish(
            {
                index: data.draw(answers(shadow.scenario, drafts), label=self._id(index))
                for index, drafts in asked.items()
            }
        )

    @precondition(lambda self: _over(self.shadow))
    @rule()
    def rest(self) -> None:
        """All requests have come and gone; hypothesis wants something to do until it ends the run."""

    def _arrive(self, data: st.DataObject, index: int) -> None:
        assert self.shadow is not None
        lengths = prompts(self.shadow.scenario.requests[index])
        label = f"prompt of {self._id(index)}"
        prompt = data.draw(st.integers(lengths[0], lengths[-1]), label=label)
        self.shadow.arrive(index, prompt)

    def _id(self, index: int) -> str:
        assert self.shadow is not None
        return self.shadow.scenario.requests[index].id


def scheduler_machine(
    start: Start,
    scenarios: Scenario | SearchStrategy[Scenario],
    *,
    lockstep: bool = True,
    properties: Iterable[str] | None = None,
) -> type[SchedulerMachine]:
    """A state machine for a scheduler; its ``TestCase`` is what pytest runs.

    Parameters
    ----------
    start
        Makes a scheduler for a scenario.
    scenarios
        The instances to run it on: one, or a strategy.
    lockstep
        Whether every decision must be the model's.
    properties
        Properties that every step must have; left out: none in lockstep, where the model is the
        judge, and otherwise all that can be said of any scheduler.
    """
    if properties is None:
        properties = () if lockstep else PROPERTIES_OF_ANY
    chosen = frozenset(properties)
    if unknown := sorted(chosen.difference(KNOWN)):
        raise ValueError(f"properties: no such {', '.join(unknown)}; there are {', '.join(KNOWN)}")
    if not lockstep and not chosen:
        raise ValueError("neither lockstep nor a property: nothing would be tested")
    drawn = st.just(scenarios) if isinstance(scenarios, Scenario) else scenarios

    class Machine(SchedulerMachine):
        @initialize(scenario=drawn)
        def begin(self, scenario: Scenario) -> None:
            """A fresh scheduler."""
            scheduler = start(scenario)
            self.follow(Shadow(scenario, scheduler, lockstep=lockstep, properties=chosen))

    return Machine


def _free_to_arrive(shadow: Shadow | None) -> bool:
    return shadow is not None and bool(shadow.absent) and not shadow.scenario.fixed_arrivals


def _can_step(shadow: Shadow | None) -> bool:
    """An engine without work sleeps, unless its clock has an arrival to come."""
    if shadow is None:
        return False
    return shadow.state.busy or (shadow.scenario.fixed_arrivals and bool(shadow.absent))


def _over(shadow: Shadow | None) -> bool:
    return not _free_to_arrive(shadow) and not _can_step(shadow)
