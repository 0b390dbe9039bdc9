"""Two views of a running job: a panel that changes in place, and plain lines for logs and pipes."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Final, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from everstep.cli.follow import Seen
from everstep.cli.output import PHASE_STYLES, clock_time, duration, ranges, share

INCIDENTS_SHOWN: Final = 5  # more scroll the loss off a small screen
HEALTH_SKIPPED: Final = "skipped_non_finite"  # as the ranks tell it of an update that was left out
NOT_FINITE: Final = "not finite"


class LineView:
    """Prints a line for each news; nothing is ever overwritten."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._phase: tuple[str, int] | None = None
        self._incidents: dict[str, bool] = {}
        self._trouble = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None

    def show(self, seen: Seen) -> None:
        """Print what has changed since the last call."""
        for incident in seen.incidents:
            self._incident(incident)
        if seen.trouble != self._trouble:
            self._trouble = seen.trouble
            self._say(seen.trouble or "all services answer again")
        if seen.fresh:
            self._say(step_line(seen))
        phase = (seen.job["phase"], seen.job["generation"])
        if phase != self._phase:
            self._phase = phase
            self._say(phase_line(seen.job))

    def _incident(self, incident: dict[str, Any]) -> None:
        recovered = bool(incident["recovered_at_ms"])
        if self._incidents.get(incident["incident_id"]) == recovered:
            return
        self._incidents[incident["incident_id"]] = recovered
        self._say(incident_line(incident))

    def _say(self, text: str) -> None:
        self._console.print(text, markup=False)


class LiveView:
    """A panel that is drawn anew with each look."""

    def __init__(self, console: Console) -> None:
        self._live = Live(console=console, auto_refresh=False)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.stop()

    def show(self, seen: Seen) -> None:
        """Draw the job."""
        self._live.update(panel(seen), refresh=True)


def view_for(console: Console) -> LineView | LiveView:
    """Return the view that fits where the output goes."""
    return LiveView(console) if console.is_terminal else LineView(console)


def panel(seen: Seen) -> RenderableType:
    """Return the whole panel."""
    job, last = seen.job, seen.last
    step = last["step"] if last is not None else job["step"]
    total = job.get("steps") or step or 1
    facts = Table.grid(padding=(0, 2))
    phase = Text(job["phase"], style=PHASE_STYLES.get(job["phase"], ""))
    facts.add_row("job", job["job_id"])
    facts.add_row("phase", Text.assemble(phase, f"  generation {job['generation']}"))
    facts.add_row(
        "step", Group(f"{step}/{total}", ProgressBar(total=total, completed=step, width=40))
    )
    if last is not None:
        facts.add_row("loss", f"{loss_of(last)}   gradient norm {norm_of(last)}")
        facts.add_row("speed", f"{seen.tokens_per_s:,.0f} tokens/s, {last['step_time_ms']:.0f} ms")
    facts.add_row("goodput", goodput_line(seen.goodput))
    facts.add_row("hosts", hosts_line(job))
    parts: list[RenderableType] = [facts]
    parts += [Text(incident_line(i), style="yellow") for i in seen.incidents[-INCIDENTS_SHOWN:]]
    if shortage(job):
        parts.append(Text(shortage(job), style="yellow"))
    if job["detail"]:
        parts.append(Text(job["detail"], style="yellow"))
    if seen.trouble:
        parts.append(Text(seen.trouble, style="red"))
    return Group(*parts)


def step_line(seen: Seen) -> str:
    """Return the newest step in one line."""
    last = seen.last
    assert last is not None, "called for a new step"
    total = seen.job.get("steps")
    return (
        f"step {last['step']}{f'/{total}' if total else ''}  loss {loss_of(last)}  "
        f"{seen.tokens_per_s:,.0f} tokens/s  goodput {useful_share(seen.goodput)}"
    )


def loss_of(point: dict[str, Any]) -> str:
    """Return a step's loss; the monitor tells null where there was none, or no finite one.

    A loss that is not finite is never applied, so a step that was tells null because nobody gave
    one.
    """
    if point["loss"] is not None:
        return f"{point['loss']:.4f}"
    return NOT_FINITE if point.get("health") == HEALTH_SKIPPED else "-"


def norm_of(point: dict[str, Any]) -> str:
    """Return a step's gradient norm, which every step has: null is one that is not finite."""
    return NOT_FINITE if point["grad_norm"] is None else f"{point['grad_norm']:.3f}"


def phase_line(job: dict[str, Any]) -> str:
    """Return the phase in one line; of a traceback its last one, which says what was raised."""
    lines = job["detail"].strip().splitlines()
    reasons = [text for text in (shortage(job), *lines[-1:]) if text]
    why = f": {'; '.join(reasons)}" if reasons else ""
    return f"{job['job_id']} is {job['phase']} (generation {job['generation']}){why}"


def shortage(job: dict[str, Any]) -> str:
    """Return what a job that waits for hosts needs; "" if it does not wait."""
    if job["phase"] != "waiting_for_hosts":
        return ""
    missing = job["hosts_short"]
    return f"{missing} more host{'' if missing == 1 else 's'} needed: add, start or uncordon some"


def ranks_of(job: dict[str, Any]) -> str:
    """Return how many ranks a job has, and of how many if it should have more."""
    ranks, whole = job.get("ranks") or job["world_size"], job["world_size"]
    return str(whole) if ranks == whole or job["ended_at_ms"] else f"{ranks} of {whole}"


def reduction(job: dict[str, Any]) -> str:
    """Return since when a job has been running with fewer ranks; "" if it has all, or has ended."""
    since_ms = job.get("reduced_since_ms")
    if since_ms is None or job["ended_at_ms"]:
        return ""
    return (
        f"running with {ranks_of(job)} ranks since {clock_time(since_ms)}: grows back when there "
        "are hosts"
    )


def incident_line(incident: dict[str, Any]) -> str:
    """Return an incident in one line."""
    after = incident_outcome(incident) or "recovering"
    place = incident_place(incident)
    return f"incident {incident['kind']} at step {incident['step']} ({place}): {after}"


_AHEAD: Final = {
    "FAIL": "the job stops: another try would end the same way",
    "HOLD": "held: look at the loss, then resume the job, restart it from a step, or stop it",
    "NOTE": "the run goes on",
    "DRAIN": "the run moves off them once spares are there",
}


def incident_place(incident: dict[str, Any]) -> str:
    """Return the hosts and ranks that an incident names; it may be about none of them."""
    where = f"hosts {', '.join(incident['hosts'])}" if incident["hosts"] else ""
    ranks = f"ranks {ranges(incident['ranks'])}" if incident["ranks"] else ""
    return " ".join(part for part in (where, ranks) if part) or "the whole run"


def incident_outcome(incident: dict[str, Any]) -> str:
    """Return what an incident has cost or led to; "" while that is not known."""
    if incident["recovered_at_ms"]:
        steps = incident["lost_steps"]
        lost = f"{steps} step{'' if steps == 1 else 's'}"
        return f"recovered, {duration(incident['lost_ms'])} and {lost} lost{_without(incident)}"
    if incident.get("closed_because"):
        return f"not recovered: {incident['closed_because']}"
    return _AHEAD.get(incident["action"], "")


def _without(incident: dict[str, Any]) -> str:
    """Say which batches the run goes on without."""
    if incident["action"] != "ROLL_BACK":
        return ""
    parts = [f"{first} to {end - 1}" for first, end in incident["skipped"]]
    return f", batches {', '.join(parts)} left out"


def goodput_line(goodput: dict[str, Any]) -> str:
    """Return the useful share and the largest other causes."""
    others = sorted(
        ((ms, cause) for cause, ms in goodput["causes"].items() if cause != "useful" and ms),
        reverse=True,
    )
    rest = ", ".join(f"{cause} {duration(ms)}" for ms, cause in others[:3])
    return f"{useful_share(goodput)}{f'   ({rest})' if rest else ''}"


def useful_share(goodput: dict[str, Any]) -> str:
    """Return the useful share of the wall time."""
    return share(goodput["causes"].get("useful", 0), goodput["wall_ms"])


def hosts_line(job: dict[str, Any]) -> str:
    """Return which host runs which ranks."""
    hosts = (job["placement"] or {}).get("hosts", [])
    if not hosts:
        return "none yet"
    return "  ".join(f"{host['host_id']}:{ranges(host['ranks'])}" for host in hosts)
