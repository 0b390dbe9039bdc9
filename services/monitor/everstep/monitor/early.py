"""Keeps what ranks tell of a generation before the controller's word of it has come.

Reports and the controller's events come by two ways, and the event that begins a generation may be
the later one: lost on its way to the store, it is sent again seconds later. What was told by then
counts once the generation has begun. Dropped, ranks that have finished would look as if they had
vanished, and a run that is through would be started again.

Rejected: to leave such a report with the bus until the word has come. It would hold up the reports
of all other jobs, for ever if the word never comes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from everstep.monitor.events import RankEnded, SourceRefused

# One end each of the 16,384 ranks of the largest run that is planned for, and as many refusals.
EARLY_MAX: Final = 32_768

Told = RankEnded | SourceRefused
Source = tuple[int, int, str, str, str]  # rank, step, kind, host, uri


def source_of(event: SourceRefused) -> Source:
    """Return what tells one source from another."""
    return (event.rank, event.step, event.kind, event.host_id, event.uri)


@dataclass(frozen=True, slots=True, kw_only=True)
class Early:
    """What is told of one generation: the newest that anybody has told of."""

    generation: int = 0
    told: Mapping[int | Source, Told] = field(default_factory=dict)

    def is_news(self, event: Told) -> bool:
        """Whether there is a place for it, and it has not been told before."""
        if event.generation != self.generation:
            return event.generation > self.generation
        return _key(event) not in self.told and len(self.told) < EARLY_MAX

    def having(self, event: Told) -> Early:
        """Return it with one more; what an older generation has told gives way."""
        if event.generation < self.generation:
            return self
        known = self.told if event.generation == self.generation else {}
        return Early(generation=event.generation, told={**known, _key(event): event})

    def of(self, generation: int) -> tuple[Told, ...]:
        """Return what was told of a generation, in the order in which it came."""
        return tuple(self.told.values()) if generation == self.generation else ()

    def after(self, generation: int) -> Early:
        """Return what is left once a generation has begun."""
        return self if self.generation > generation else Early()


def _key(event: Told) -> int | Source:
    return event.rank if isinstance(event, RankEnded) else source_of(event)
