"""This process's one run: made by ``rank_main`` or by a script's ``train.init``.

A process is one rank, so this is the one place with state of the module: a script that is run
unchanged in the rank's process must find the channel that was opened before it began.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from everstep.core.errors import InvalidInput
from everstep.core.spec import JobSpec, parse_spec
from everstep.core.system import Clock, SystemClock
from everstep.train.channel import AgentChannel
from everstep.train.environment import RankEnvironment, read_environment
from everstep.train.run import Run


@dataclass(slots=True, kw_only=True)
class Session:
    """What the process has of Everstep; ``run`` is made when it is first asked for."""

    environment: RankEnvironment
    channel: AgentChannel
    clock: Clock
    run: Run | None = None

    def start_run(self, spec: JobSpec) -> Run:
        """Return the process's run, made from ``spec`` when there is none yet."""
        if self.run is None:
            self.run = Run(self.environment, spec, self.channel, self.clock)
        return self.run


_sessions: list[Session] = []  # at most one


def open_session(env: Mapping[str, str], clock: Clock) -> Session:
    """Read the environment and say hello to the agent, if there is one; once a process.

    Raises:
        InvalidInput: the environment is wrong.
    """
    if _sessions:
        return _sessions[0]
    environment = read_environment(env)
    hello = {
        "job_id": environment.job_id,
        "generation": environment.generation,
        "rank": environment.rank,
        "pid": os.getpid(),
        "restored": False,
        "step": 0,
    }
    channel = AgentChannel(environment.agent_socket, hello, clock)
    channel.connect()
    session = Session(environment=environment, channel=channel, clock=clock)
    _sessions.append(session)
    return session


def init(spec: Mapping[str, Any] | JobSpec | None = None) -> Run:
    """Return this process's run; for scripts that Everstep, torchrun or nothing starts.

    Args:
        spec: for runs that Everstep does not start; under Everstep the job's own spec holds.
            ``name`` and ``entry`` may be left out.

    Raises:
        InvalidInput: there is no spec at all, or a wrong one.
    """
    session = open_session(os.environ, SystemClock())
    if session.run is not None:
        return session.run
    if session.environment.spec is not None:
        return session.start_run(session.environment.spec)
    if spec is None:
        raise InvalidInput("train.init() needs a spec when Everstep does not start the script")
    if not isinstance(spec, JobSpec):
        defaults = {"name": "bare", "entry": sys.argv[0] if sys.argv[0].endswith(".py") else "x.py"}
        spec = parse_spec({**defaults, **spec})
    return session.start_run(spec)
