"""Given/when/then for deciders: ``spec(aggregate).given(*events).when(command).then(*events)``."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import Any

from everstep.core.decision import Accepted, Rejected
from everstep.service.handler import Aggregate


@dataclass(frozen=True, slots=True, kw_only=True)
class When:
    """A command put to a state."""

    aggregate: Aggregate[Any, Any, Any]
    state: Any
    command: Any

    @property
    def decision(self) -> Accepted[Any] | Rejected:
        """What the decider answers."""
        return self.aggregate.decide(self.command, self.state)

    def then(self, *events: Any) -> None:
        """Expect exactly these events; none means "already so"."""
        assert self.decision == Accepted(events)

    def then_rejected(self, why: str) -> None:
        """Expect a refusal with this code."""
        decision = self.decision
        assert isinstance(decision, Rejected), f"expected a refusal ({why}), got {decision}"
        assert decision.why == why, f"expected {why}, got {decision}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """An aggregate and the events that happened to it."""

    aggregate: Aggregate[Any, Any, Any]
    events: tuple[Any, ...] = ()

    @property
    def state(self) -> Any:
        """The fold of the events given."""
        return reduce(self.aggregate.evolve, self.events, self.aggregate.initial())

    def given(self, *events: Any) -> Spec:
        """Add events that happened before."""
        return Spec(aggregate=self.aggregate, events=(*self.events, *events))

    def when(self, command: Any) -> When:
        """Put a command to the state."""
        return When(aggregate=self.aggregate, state=self.state, command=command)


def spec(aggregate: Aggregate[Any, Any, Any]) -> Spec:
    """Start from an aggregate to which nothing has happened."""
    return Spec(aggregate=aggregate)
