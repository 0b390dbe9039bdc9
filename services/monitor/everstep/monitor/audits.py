"""What the audits of one job have come to, as far as the next ones and a verdict need it.

A part of the fold of its watch: a monitor that has just begun knows it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Final

from everstep.monitor.detectors.audit import OPEN_MAX
from everstep.monitor.events import Finding, StepAudited

# An audit's word comes within seconds of its step; one that is told again is among the newest.
TOLD_MAX: Final = 16
HOSTS_MAX: Final = 4_096  # twice as many as serve the largest runs
PLANS_MAX: Final = 64  # more generations than that do not begin within an audit


@dataclass(frozen=True, slots=True, kw_only=True)
class Audits:
    """Of one job.

    Args:
        ever_alike: one has come out alike.
        opens: how many shares have named nobody; it matters until one has come out alike.
        shares: how many have been audited: they take turns.
        alike: by replica, the newest checkpoint after which all was alike.
        sound: by host, the newest one after which what it had made was alike, on whatever seat.
        differing: one that waits for a second one of the same share.
        told: audit and number of the newest findings.
        plans: (generation, step) to which the job has gone back, or from which it has gone on.
    """

    ever_alike: bool = False
    opens: int = 0
    shares: int = 0
    alike: Mapping[int, int] = field(default_factory=dict)
    sound: Mapping[str, int] = field(default_factory=dict)
    differing: StepAudited | None = None
    told: tuple[tuple[str, int], ...] = ()
    plans: tuple[tuple[int, int], ...] = ()

    @property
    def given_up(self) -> bool:
        """Whether no more are asked for: the program does not repeat its bits."""
        return not self.ever_alike and self.opens >= OPEN_MAX

    def second_of(self, step: int, replica: int) -> StepAudited | None:
        """Return the first audit of a share that came out otherwise, if it waits for a second."""
        one = self.differing
        return one if one is not None and (one.step, one.replica) == (step, replica) else None

    def went_back(self, step: int, since: int) -> bool:
        """Say whether the step after this one was undone by a generation after ``since``."""
        return any(generation > since and to <= step for generation, to in self.plans)

    def is_news(self, event: StepAudited, asked_in: int | None) -> bool:
        """Whether a finding is to be stored.

        The job may have undone the step since it was concluded. Who was wrong was wrong all the
        same, but nothing waits for a second audit then, and no state is known to be sound.
        """
        says_of_states = event.finding is Finding.DIFFERS or not event.ranks
        undone = asked_in is not None and self.went_back(event.step, asked_in)
        return (event.audit_job_id, event.number) not in self.told and not (
            says_of_states and undone
        )

    def after(self, event: StepAudited) -> Audits:
        """Take a finding.

        Two monitors may each ask for an audit: what one share has come to settles no other one's
        difference, and of two that differ the first one waits for its second audit.
        """
        fresh = self.second_of(event.step, event.replica) is None
        waiting = self.differing if fresh else None
        differs = event if event.finding is Finding.DIFFERS else None
        after = replace(
            self,
            shares=self.shares + fresh,
            told=(*self.told, (event.audit_job_id, event.number))[-TOLD_MAX:],
            differing=waiting or differs,
        )
        if not event.ranks:
            newest = max(event.step, self.alike.get(event.replica, 0))
            alike = {**self.alike, event.replica: newest}
            return replace(after, ever_alike=True, alike=alike, sound=self._sound_after(event))
        return replace(after, opens=self.opens + (event.finding is Finding.OPEN))

    def _sound_after(self, event: StepAudited) -> Mapping[str, int]:
        """Take who made what came out alike; who left longest ago goes first."""
        here = {host: max(event.step, self.sound.get(host, 0)) for host in event.owners if host}
        before = {host: step for host, step in self.sound.items() if host not in here}
        kept = sorted(before.items(), key=itemgetter(1))[
            max(len(before) + len(here) - HOSTS_MAX, 0) :
        ]
        return {**dict(kept), **here}

    def planned(self, generation: int, step: int) -> Audits:
        """Take where a generation goes on from, 0 for the beginning: what was after it is over."""
        differing = self.differing
        undone = differing is not None and step <= differing.step
        return replace(
            self,
            plans=(*self.plans, (generation, step))[-PLANS_MAX:],
            alike={replica: min(newest, step) for replica, newest in self.alike.items()},
            sound={host: min(newest, step) for host, newest in self.sound.items()},
            differing=None if undone else differing,
        )
