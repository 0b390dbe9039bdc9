"""The services' HTTP APIs as the command line uses them: the only place that knows their paths.

Every failure becomes one of ``core.errors`` with a sentence that a person can act on. Which service
lives where comes from the local stack, or from ``EVERSTEP_CONTROLLER_URL`` and its like for a
cluster.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from everstep.core.errors import (
    EverstepError,
    InvalidInput,
    NotFoundError,
    RefusedError,
    Unavailable,
)
from everstep.local.launch import require_stack
from everstep.local.state import StatePaths

if TYPE_CHECKING:
    import httpx

CONTROLLER: Final = "controller"
MONITOR: Final = "monitor"
REGISTRY: Final = "checkpoint_registry"
INVENTORY: Final = "host_inventory"
SERVICES: Final = (CONTROLLER, MONITOR, REGISTRY, INVENTORY)
TIMEOUT_S: Final = 10.0  # answers take milliseconds; a placement of thousands of hosts a second
POINTS_MAX: Final = (
    10_000  # points asked for at once: a minute's steps of the fastest job, and more
)

Json = dict[str, Any]


def service_urls(paths: StatePaths) -> dict[str, str]:
    """Return each service's base URL, from the environment before the stack in ``paths``.

    Raises:
        NotFoundError: neither names all of them.
    """
    named = {name: os.environ.get(_url_variable(name), "") for name in SERVICES}
    missing = [_url_variable(name) for name, url in named.items() if not url]
    if missing:
        try:
            stack = require_stack(paths)
        except NotFoundError as error:
            if len(missing) == len(SERVICES):
                raise
            raise NotFoundError(
                f"a cluster is named without {', '.join(missing)}: set all "
                f"{len(SERVICES)} URLs, or none for the stack of this machine"
            ) from error
        named = {name: url or stack.url(name) for name, url in named.items()}
    return {name: url.rstrip("/") for name, url in named.items()}


def is_local_stack() -> bool:
    """Say whether jobs go to a stack on this machine: no cluster's controller is named."""
    return not os.environ.get("EVERSTEP_CONTROLLER_URL")


class Client:
    """Asks the four services."""

    def __init__(
        self, urls: Mapping[str, str], *, transport: httpx.BaseTransport | None = None
    ) -> None:
        import httpx  # here: commands that ask nobody start without it

        self._urls = urls
        self._http = httpx.Client(timeout=TIMEOUT_S, transport=transport, trust_env=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._http.close()

    # ---- controller

    def submit(self, spec: Json, *, job_id: str = "") -> Json:
        """Launch a job; return at least its ``job_id``."""
        body: Json = {"spec": spec}
        if job_id:
            body["job_id"] = job_id
        return self._ask(CONTROLLER, "POST", "/v1/jobs", body=body)

    def jobs(self, *, audits: bool = False) -> list[Json]:
        """Return all jobs, newest first; with ``audits`` also those that did steps again."""
        params = {"audits": "true"} if audits else None
        return list(self._ask(CONTROLLER, "GET", "/v1/jobs", params=params)["jobs"])

    def job(self, job_id: str) -> Json:
        """Return one job with its recoveries."""
        return self._ask(CONTROLLER, "GET", f"/v1/jobs/{job_id}")

    def act(self, job_id: str, action: str, body: Json | None = None) -> Json:
        """Ask for ``stop``, ``pause``, ``resume``, ``restart`` or ``checkpoint``; return its phase.

        What a job that has ended cannot do is refused; stopping it is not.
        """
        return self._ask(CONTROLLER, "POST", f"/v1/jobs/{job_id}/{action}", body=body or {})

    def interval(self, job_id: str) -> Json:
        """Return how often a job snapshots, and why."""
        return self._ask(CONTROLLER, "GET", f"/v1/jobs/{job_id}/interval")

    def set_interval(
        self, job_id: str, *, auto: bool, memory_steps: int | None, object_steps: int | None
    ) -> Json:
        """Change how often a job snapshots; None: as it is."""
        body = {
            "auto": auto,
            "memory_every_steps": memory_steps,
            "object_every_steps": object_steps,
        }
        return self.act(job_id, "interval", body)

    # ---- monitor

    def audits(self, job_id: str) -> list[Json]:
        """Return what came of steps of a job that spare hosts did again, newest first."""
        return list(self._ask(MONITOR, "GET", f"/v1/jobs/{job_id}/audits")["audits"])

    def incidents(self, job_id: str = "") -> list[Json]:
        """Return incidents, of one job if asked; none of one the monitor has not heard of yet.

        Whether there is such a job the controller knows.
        """
        return self._listing(MONITOR, "incidents", job_id)

    def metrics(self, job_id: str, *, after_step: int = -1, limit: int = POINTS_MAX) -> list[Json]:
        """Return the steps after ``after_step`` in order, as the latest generation saw them."""
        params = {"after_step": after_step, "limit": limit}
        return list(
            self._ask(MONITOR, "GET", f"/v1/jobs/{job_id}/metrics", params=params)["points"]
        )

    def refused_sources(self, job_id: str) -> list[Json]:
        """Return copies of the job's state that could not be used, oldest first."""
        answer = self._ask(MONITOR, "GET", f"/v1/jobs/{job_id}/refused-sources")
        found: list[Json] = answer["refused_sources"]
        return found

    def goodput(self, job_id: str) -> Json:
        """Return ``wall_ms`` and ``causes``."""
        return self._ask(MONITOR, "GET", f"/v1/jobs/{job_id}/goodput")

    def uncopied(self, job_id: str) -> list[Json]:
        """Return the ranks whose snapshots no other host keeps, by host."""
        return list(self._ask(MONITOR, "GET", f"/v1/jobs/{job_id}/uncopied")["uncopied"])

    def stacks(self, job_id: str) -> Json:
        """Look at what a job's ranks do right now."""
        return self._ask(MONITOR, "GET", f"/v1/jobs/{job_id}/stacks")

    # ---- checkpoint-registry, host-inventory

    def checkpoints(self, job_id: str = "") -> list[Json]:
        """Return checkpoints, of one job if asked; none of one the registry has not heard of yet.

        Whether there is such a job the controller knows.
        """
        return self._listing(REGISTRY, "checkpoints", job_id)

    def checkpoint(self, job_id: str, step: int, generation: int | None = None) -> Json:
        """Return one checkpoint with its shards; the newest generation's unless asked."""
        params = {} if generation is None else {"generation": generation}
        return self._ask(REGISTRY, "GET", f"/v1/checkpoints/{job_id}/{step}", params=params)

    def judge(
        self,
        method: str,
        which: tuple[str, int, int | None],
        what: str,
        body: Json | None = None,
        **params: Any,
    ) -> Json:
        """Say something of a checkpoint: ``what`` is ``pin``, ``trust`` or ``check``."""
        job_id, step, generation = which
        if generation is not None:
            params["generation"] = generation
        path = f"/v1/checkpoints/{job_id}/{step}/{what}"
        return self._ask(REGISTRY, method, path, body=body, params=params)

    def suspicions(self, job_id: str) -> list[Json]:
        """Return what is suspected of a job's steps."""
        return list(self._ask(REGISTRY, "GET", f"/v1/jobs/{job_id}/suspicions")["suspicions"])

    def suspect(self, job_id: str, body: Json) -> list[Json]:
        """Make a stretch of steps suspect; returns all suspicions."""
        path = f"/v1/jobs/{job_id}/suspicions"
        return list(self._ask(REGISTRY, "POST", path, body=body)["suspicions"])

    def end_suspicion(self, job_id: str, suspicion_id: str, body: Json) -> list[Json]:
        """End a suspicion; returns those that are left."""
        path = f"/v1/jobs/{job_id}/suspicions/{suspicion_id}/end"
        return list(self._ask(REGISTRY, "POST", path, body=body)["suspicions"])

    def restore_plan(self, job_id: str, from_step: int) -> Json:
        """Return what a restart would restore now."""
        params = {"from_step": from_step}
        return self._ask(REGISTRY, "GET", f"/v1/jobs/{job_id}/restore-plan", params=params)

    def hosts(self) -> list[Json]:
        """Return all hosts."""
        return list(self._ask(INVENTORY, "GET", "/v1/hosts")["hosts"])

    def cordon(self, host_id: str, reason: str) -> Json:
        """Take a host out of service."""
        return self._ask(INVENTORY, "POST", f"/v1/hosts/{host_id}/cordon", body={"reason": reason})

    def host(self, host_id: str) -> Json:
        """Return one host, also one that left."""
        return self._ask(INVENTORY, "GET", f"/v1/hosts/{host_id}")

    def uncordon(self, host_id: str, *, now: bool = False) -> Json:
        """Put a host back into service, through its probes or ``now``."""
        body = {"now": True} if now else {}
        return self._ask(INVENTORY, "POST", f"/v1/hosts/{host_id}/uncordon", body=body)

    def maintain(self, host_id: str, reason: str, until_ms: int) -> Json:
        """Free a host without losing a step."""
        body = {"reason": reason, "until_ms": until_ms}
        return self._ask(INVENTORY, "POST", f"/v1/hosts/{host_id}/maintain", body=body)

    def _ask(
        self,
        service: str,
        method: str,
        path: str,
        *,
        body: Json | None = None,
        params: Mapping[str, Any] | None = None,
    ) -> Json:
        from httpx import HTTPError

        url = self._urls[service] + path
        try:
            answer = self._http.request(method, url, json=body, params=params)
        except HTTPError as error:
            raise Unavailable(
                f"the {service.replace('_', '-')} at {self._urls[service]} does not answer "
                f"({error or type(error).__name__}): `everstep status` shows what runs"
            ) from error
        if not answer.is_success:
            raise _refusal(service, answer)
        try:
            return dict(answer.json())
        except (ValueError, TypeError) as error:
            raise Unavailable(
                f"what answers at {url} is not the {service.replace('_', '-')}: it says "
                f"{answer.text[:100]!r}; {_url_variable(service)} must be the service's address"
            ) from error

    def _listing(self, service: str, what: str, job_id: str) -> list[Json]:
        params = {"job_id": job_id} if job_id else {}
        try:
            return list(self._ask(service, "GET", f"/v1/{what}", params=params)[what])
        except NotFoundError:
            if not job_id:
                raise
            return []


def _url_variable(service: str) -> str:
    return f"EVERSTEP_{service.upper()}_URL"


def _refusal(service: str, answer: httpx.Response) -> EverstepError:
    """Turn ``{"error": {"code", "message"}}`` into the matching exception."""
    try:
        error = answer.json()["error"]
        code, message = str(error["code"]), str(error["message"])
    except (ValueError, KeyError, TypeError):
        code = "error"
        message = f"{service} answered {answer.status_code}: {answer.text[:200]}"
    match answer.status_code:
        case 404:
            return NotFoundError(message)
        case 400 | 422:
            return InvalidInput(message)
        case 502 | 503 | 504:
            return Unavailable(message)
        case _:
            return RefusedError(code, message)
