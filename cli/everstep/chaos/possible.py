"""Tells which faults of a campaign cannot happen, from what is known before a job runs. Pure.

What only a rank can know (the names and widths of its tensors) it tells when it looks for them:
``everstep.train.faults`` sets such a fault aside, and the report says that the campaign was wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from everstep.chaos.campaign import Campaign, Planned
from everstep.core.errors import InvalidInput


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What is known of where a campaign meets whom; None or 0: nothing.

    Args:
        steps: of the job.
        object_every_steps: how often the job stores checkpoints.
        hosts: all that the stack has.
        job_hosts: how many of them the job gets.
    """

    steps: int | None = None
    object_every_steps: int | None = None
    hosts: frozenset[str] | None = None
    job_hosts: int = 0


def require_possible(campaign: Campaign, setting: Setting) -> None:
    """Refuse faults that cannot happen.

    Raises:
        InvalidInput: one line for each of them: what is wrong, and what there is.
    """
    problems = [
        f"faults[{one.number}] ({one.kind.name}): {why}"
        for one in campaign.faults
        for why in _wrong_with(one, setting)
    ]
    if problems:
        raise InvalidInput("\n  ".join(problems))


def not_checked(campaign: Campaign, setting: Setting) -> list[str]:
    """Say what nobody could check yet, and what it would take."""
    hosts = sorted({one.host for one in campaign.faults if one.host})
    steps = [one.at_step for one in campaign.faults if one.at_step >= 0]
    tensors = sorted(
        {str(one.options["tensor"]) for one in campaign.faults if one.options.get("tensor")}
    )
    bits = any(one.options.get("bit", -1) >= 0 for one in campaign.faults)
    found = []
    if hosts and setting.hosts is None:
        found.append(f"whether there are hosts {', '.join(hosts)}: no stack runs here")
    if steps and setting.steps is None:
        found.append(f"whether the job has a step {max(steps)}: --spec tells")
    if tensors:
        found.append(f"whether the job has tensors {', '.join(tensors)}: its ranks tell")
    if bits:
        found.append("whether the tensors' elements have as many bits: the job's ranks tell")
    return found


def _wrong_with(planned: Planned, setting: Setting) -> Iterator[str]:
    steps, hosts = setting.steps, setting.hosts
    if steps is not None and planned.at_step >= steps:
        yield (
            f"at_step {planned.at_step} is behind the job's end: it has {steps} steps, the last "
            f"fault can strike at {steps - 1} (a random one lies within `window`)"
        )
    if hosts is not None and planned.host and planned.host not in hosts:
        known = ", ".join(sorted(hosts))
        yield f"there is no host {planned.host!r}: the stack has {known}"
    if planned.kind.name == "damage_object" and setting.object_every_steps == 0:
        yield "the job stores no checkpoints: its checkpoint.object_every_steps is 0"
