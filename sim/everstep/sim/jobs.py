"""The jobs of a seed: layouts, what they do without a spare, what they compare, their budgets.

Drawn from a stream of its own, beside the faults, so that the faults of a seed stay what they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from random import Random
from typing import Any, Final

from everstep.core.spec import JobSpec, parse_spec
from everstep.sim.stage import STEPS, spec_of

# Samples a step; every number of groups that is drawn divides it.
GLOBAL_BATCH: Final = 12
ELASTIC_STEPS: Final = 90  # long enough to shrink and to grow back
SMALL_BUDGET: Final = 4
LARGE_BUDGET: Final = 1_000
# (pp, dp_replicate, dp_shard) of tensor-parallel pairs: a host each.
WIDE: Final = ((2, 1, 2), (1, 2, 2), (1, 4, 1), (1, 1, 4))
NARROW: Final = ((2, 1, 1), (1, 2, 1), (1, 3, 1), (1, 1, 3))


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPlan:
    """What a person launches; ``at_s`` after the first one.

    Args:
        layout: pp, dp_replicate and dp_shard, with two tensor-parallel ranks a host.
        elastic: goes on with fewer groups, ``dp_min`` at least, when hosts are short.
        scale: with a smaller batch then.
        recompute: every so many steps work is done twice; 0: never.
        audit: after every so many checkpoints spares do a step again; 0: never.
        budget: restarts an hour; where it is small, a person begins the job again.
    """

    number: int
    layout: tuple[int, int, int]
    at_s: float = 0.0
    elastic: bool = False
    dp_min: int = 1
    scale: bool = False
    recompute: int = 0
    audit: int = 0
    budget: int = LARGE_BUDGET

    @property
    def job_id(self) -> str:
        """Return its id."""
        return f"job-{self.number}"

    @property
    def hosts(self) -> int:
        """Return how many hosts it wants."""
        pp, replicate, shard = self.layout
        return pp * replicate * shard

    def spec(self) -> JobSpec:
        """Return what is launched."""
        pp, replicate, shard = self.layout
        steps = ELASTIC_STEPS if self.elastic else STEPS
        document: dict[str, Any] = spec_of(self.number, steps=steps).model_dump()
        document["layout"] = {"pp": pp, "dp_replicate": replicate, "dp_shard": shard, "tp": 2}
        document["data"] = {"path": "corpus", "sequence_tokens": 8, "global_batch": GLOBAL_BATCH}
        document["corruption"] |= {
            "recompute_every_steps": self.recompute,
            "audit_every_checkpoints": self.audit,
        }
        document["recovery"] |= {
            "no_spare": "elastic" if self.elastic else "wait",
            "dp_min": self.dp_min,
            "elastic_batch": "scale" if self.scale else "keep",
            "restarts_per_hour_max": self.budget,
        }
        return parse_spec(document)

    def __str__(self) -> str:
        """Say what differs from the plainest job."""
        plain = asdict(plain_job(self.number))
        mine = asdict(self)
        words = [f"{key}={value}" for key, value in mine.items() if value != plain[key]]
        return " ".join([self.job_id, *words])


def plain_job(number: int) -> JobPlan:
    """Return a job of eight ranks for an even number, of four for an odd one, and no wishes."""
    return JobPlan(number=number, layout=(2, 1, 1) if number % 2 else (2, 1, 2))


def draw_jobs(random: Random, count: int, hosts: int) -> tuple[JobPlan, ...]:
    """Draw what is launched: a third of the jobs are plain ones."""
    return tuple(_draw(random, number, hosts) for number in range(count))


def draw_audits(random: Random, jobs: Sequence[JobPlan]) -> tuple[JobPlan, ...]:
    """Have some of the jobs audited."""
    return tuple(replace(job, audit=random.choice((0, 0, 0, 1, 2))) for job in jobs)


def _draw(random: Random, number: int, hosts: int) -> JobPlan:
    if random.random() < 0.33:
        return plain_job(number)
    elastic = random.random() < 0.7
    layout = random.choice((*WIDE, *WIDE, *NARROW) if hosts >= 4 and elastic else NARROW)
    return JobPlan(
        number=number,
        layout=layout,
        at_s=random.choice((0.0, 0.0, 5.0, 30.0)),
        elastic=elastic,
        dp_min=random.choice((1, 1, 2)) if elastic else 1,
        scale=elastic and random.random() < 0.4,
        recompute=random.choice((0, 0, 5, 10)),
        budget=SMALL_BUDGET if random.random() < 0.1 else LARGE_BUDGET,
    )
