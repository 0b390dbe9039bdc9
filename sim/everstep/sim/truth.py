"""What the training really did, and whether it may: no service knows this, and none can bend it.

Every training state has a name that follows from its whole past (``Training.state``), so the world
knows the one history that counts: the newest generation's, behind the step that it went on from.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from everstep.sim.samples import Taken, expected
from everstep.sim.training import Training

if TYPE_CHECKING:
    from everstep.sim.host import Host, HostRun
    from everstep.sim.world import World

# A heartbeat names it within a second, a few seconds pass before it is taken for stray, a command
# is tried again; some more for a network at its worst.
STRAY_S: Final = 15.0
# Three raised losses, two steps in which a message may still come, and the way to the ranks.
SPIKE_STEPS: Final = 10
# A message that is lost is told again with the next step; then two services decide.
FLIP_STEPS: Final = 8
# Where stored messages get lost, each is told again after some seconds, and those behind it wait.
BAD_FLIP_STEPS: Final = 30
FLIP_S: Final = 20.0  # as below
SPOILT_STEPS: Final = 4  # memory holds two; a copy on its way, and one that was found bad
SPIKE_S: Final = 20.0  # that all services and the bus were well, of steps of about a second


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A step that was made; ``took_ms`` is from the one before it, or from when all had loaded.

    ``stall_ms`` of that went to snapshots, ``shadow_ms`` to work that was done twice; so many
    ``ranks`` made it.
    """

    generation: int
    at_ms: int
    state: str
    took_ms: int
    first: bool  # of its generation
    stall_ms: int = 0
    shadow_ms: int = 0
    ranks: int = 0
    taken: Taken | None = None  # the samples


class Truth:
    """The history of every job, and what breaks its rules (into ``World.failures``)."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.histories: dict[str, dict[int, Made]] = {}  # job -> step -> how it was made
        self.lost: dict[str, list[tuple[int, Made]]] = {}  # job -> steps that are done again
        self._moved_ms: dict[tuple[str, int], int] = {}  # job, generation -> its newest step
        self._newest: dict[str, int] = {}
        self._newest_ms: dict[str, int] = {}  # since when it is
        self.followed: dict[tuple[str, int, int], int] = {}  # job, generation, step -> version
        self._versions: dict[str, int] = {}
        self._loses = world.network.conditions.lost_share > 0
        self._flip_steps = BAD_FLIP_STEPS if self._loses else FLIP_STEPS

    def _fail(self, training: Training, text: str) -> None:
        self._world.failures.append(
            f"{self._world.now_ms} ms: {training.job_id} generation {training.generation} {text}"
        )

    def began(self, training: Training) -> None:
        """All ranks have loaded: one state, of this history."""
        states = sorted(set(training.ready.values()))
        if len(states) != 1:
            self._fail(training, f"mixes states {states} at step {training.restore_step}")
        if training.generation < self._newest.get(training.job_id, 0):
            self._fail(training, f"began after {self._newest[training.job_id]}")
        self._newest[training.job_id] = training.generation
        self._newest_ms[training.job_id] = self._world.now_ms
        history = self.histories.setdefault(training.job_id, {})
        before = history.get(training.step)
        wanted = "fresh" if not training.step else before and before.state
        if states[0] != wanted:
            self._fail(training, f"began at step {training.step} with a state of another history")
        lost = self.lost.setdefault(training.job_id, [])
        for step in [step for step in history if step > training.step]:
            lost.append((step, history.pop(step)))
        self._moved_ms[training.job_id, training.generation] = self._world.now_ms

    def committed(self, training: Training) -> None:
        """A step is done: only the newest generation may."""
        newest = self._newest[training.job_id]
        if training.generation != newest:
            self._check_stray(training, newest)
            return
        self._check_schedule(training)
        key = (training.job_id, training.generation)
        self.histories[training.job_id][training.step] = Made(
            generation=training.generation,
            at_ms=self._world.now_ms,
            state=training.state,
            took_ms=self._world.now_ms - self._moved_ms[key],
            first=training.step == max(training.restore_step, 0) + 1,
            stall_ms=max(run.stall_ms for run in training.runs.values()),
            shadow_ms=max(run.shadow_ms for run in training.runs.values()),
            ranks=training.world_size,
            taken=training.taken,
        )
        self._moved_ms[key] = self._world.now_ms
        self._check_samples(training)
        self._check_numbers(training)
        self._check_bits(training)
        self._check_work(training)

    def _check_samples(self, training: Training) -> None:
        """Every step is made from the undisturbed run's list, however many ranks share it."""
        taken = training.taken
        if taken is None:
            return
        earlier = self.histories[training.job_id].get(training.step - 1)
        before = earlier.taken if earlier is not None else None
        spec = self._world.specs[training.job_id]
        if taken.samples != expected(spec, training.layout, taken, before):
            self._fail(
                training,
                f"makes step {training.step} from {len(taken.samples)} samples from place "
                f"{taken.first} on, after {before}",
            )

    def _check_numbers(self, training: Training) -> None:
        """No run ends with a wrecked state whose losses somebody could have looked at."""
        since = self._world.numbers.wrecked.get(training.state)
        if since is None or training.step < training.spec.steps:
            return
        seen_s = self._world.control_s()
        if training.step - since > SPIKE_STEPS and seen_s > SPIKE_S:
            self._fail(training, f"ends with what a batch wrecked at step {since}")

    def _check_bits(self, training: Training) -> None:
        """No run goes on with a wrong bit that ranks have kept and that somebody could hear of."""
        since = training.sharing.wrong_since
        wanted = training.spec.corruption.on_corruption == "replace"
        if not since or not wanted or training.step - since <= self._flip_steps:
            return
        sound_s = min(self._world.sound_s(host_id) for host_id in training.runs)
        if min(sound_s, self._world.control_s()) > FLIP_S:
            self._fail(training, f"goes on with a wrong bit that ranks hold since step {since}")

    def _check_work(self, training: Training) -> None:
        """No run goes on with work that came out otherwise when it was done twice."""
        since = training.remaking.differs_since
        wanted = training.spec.corruption.on_corruption == "replace"
        wanted &= training.spec.deterministic  # else bits may vary, and that is only noted
        if not since or not wanted or training.step - since <= self._flip_steps:
            return
        sound_s = min(self._world.sound_s(host_id) for host_id in training.runs)
        if min(sound_s, self._world.control_s()) > FLIP_S:
            self._fail(training, f"goes on with work that differs since step {since}")

    def _check_schedule(self, training: Training) -> None:
        """All ranks make a step under one schedule, and never under an older one than before.

        A new generation begins with the newest, so no step of it goes back either.
        """
        job_id = training.job_id
        versions = {
            run.followed.version for run in training.runs.values() if run.followed is not None
        }
        if len(versions) != 1:
            self._fail(training, f"made step {training.step} under schedules {sorted(versions)}")
            return
        [version] = versions
        before = self._versions.get(job_id, 0)
        if version < before:
            self._fail(training, f"went back from schedule {before} to {version}")
        self._versions[job_id] = version
        self.followed[job_id, training.generation, training.step] = version

    def _check_stray(self, training: Training, newest: int) -> None:
        """An older generation may step on only where nobody can tell it to stop.

        All its hosts' agents were away at once: nothing broke it, and no fence has reached it. It
        writes nothing that counts. Once one of the agents is back, it must soon be ended. Where
        messages get lost, all its hosts may have been taken for lost, and were not told either.
        """
        since_s = (self._world.now_ms - self._newest_ms[training.job_id]) / 1e3
        for host_id in sorted(training.runs):
            told_s = min(self._world.sound_s(host_id), self._world.control_s())
            told_s = min(told_s, since_s) if self._loses else told_s
            if told_s > STRAY_S:
                self._fail(training, f"stepped on {host_id} while {newest} was up")

    def before_loss(self, host: Host) -> None:
        """A machine is about to be lost: the others must still have a common step in memory.

        The two-slot rule promises it as soon as one snapshot of the generation has been replicated
        everywhere, unless replication was given up or a copy went bad. A host that was lost and is
        back has lost its memory all the same.
        """
        for run in host.runs.values():
            training = run.training
            others = [other for other in training.runs.values() if other.host is not host]
            everybody = [*others, run]
            settled = all(
                one.host.on and one.alive and one.replicated_step > training.restore_step
                for one in everybody
            )
            if not training.stepping or not settled or self._spoilt(training):
                continue
            if any(one.replication_off for one in everybody):
                continue
            if not self._common_steps(training, others):
                self._fail(training, f"has no common step in memory once {host.host_id} is lost")

    def _spoilt(self, training: Training) -> bool:
        """Whether a copy has gone bad, or one has of a step that memory may still hold."""
        job_id = training.job_id
        return any(
            training.step - host.memory.dropped.get(job_id, -SPOILT_STEPS) < SPOILT_STEPS
            or any(not copy.sound for copy, _ in host.memory.held(job_id))
            for host in self._world.hosts.values()
        )

    def _common_steps(self, training: Training, runs: list[HostRun]) -> set[int]:
        history = self.histories[training.job_id]
        found: dict[int, set[int]] = {rank: set() for rank in range(training.world_size)}
        for run in runs:
            for copy, _ in run.host.memory.held(training.job_id, old=False):
                made = history.get(copy.step)
                if made is not None and made.state == copy.state:
                    found[copy.rank].add(copy.step)
        return set.intersection(*found.values())
