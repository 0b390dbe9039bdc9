"""How things are printed: tables for people, JSON for programs, one sentence for errors."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from rich.console import Console
from rich.table import Table

PIPE_WIDTH: Final = 1_000  # wider than any row: what is not read on a screen is never folded
OUT: Final = Console(
    highlight=False,
    emoji=False,  # ":b:" in a user's text is a user's text
    soft_wrap=True,
    width=None if sys.stdout.isatty() else PIPE_WIDTH,
)
ERR: Final = Console(stderr=True, highlight=False, emoji=False, soft_wrap=True)

PHASE_STYLES: Final[Mapping[str, str]] = {
    "running": "green",
    "succeeded": "bold green",
    "ready": "green",
    "active": "green",
    "spare": "cyan",
    "recovering": "yellow",
    "launching": "yellow",
    "starting": "yellow",
    "waiting": "yellow",
    "waiting_for_hosts": "yellow",
    "probing": "yellow",
    "cordoned": "red",
    "abandoned": "yellow",
    "spoilt": "red",
    "failed": "bold red",
    "stopped": "dim",
}


def print_json(value: Any) -> None:
    """Print a value for programs: indented, in one piece, on standard output."""
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def print_table(columns: Sequence[str], rows: Sequence[Sequence[Any]], *, empty: str) -> None:
    """Print rows for people; ``empty`` is the sentence when there are none."""
    if not rows:
        OUT.print(empty)
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:  # the last one takes what is left, folded
        table.add_column(column, overflow="fold", no_wrap=column != columns[-1])
    for row in rows:
        table.add_row(*(styled(str("" if cell is None else cell)) for cell in row))
    OUT.print(table)


def styled(text: str) -> str:
    """Colour a phase or state; other text is escaped as it is."""
    style = PHASE_STYLES.get(text)
    plain = text.replace("[", r"\[")
    return f"[{style}]{plain}[/]" if style else plain


def clock_time(at_ms: int | None) -> str:
    """Return a moment in local time, to the second; "" for none."""
    if not at_ms:
        return ""
    moment = _moment(at_ms)
    if moment is None:
        return "after 9999" if at_ms > 0 else "before the year 1"
    return moment.strftime("%Y-%m-%d %H:%M:%S")


def short_time(at_ms: int | None, *, now_ms: int) -> str:
    """Return a moment for a listing: the time of day, with the day if it is not today's.

    Args:
        at_ms: of the moment; None or 0 for none.
        now_ms: of now, to know what today is.
    """
    if not at_ms:
        return ""
    moment, now = _moment(at_ms), _moment(now_ms)
    if moment is None or now is None:
        return "after 9999"
    if moment.date() == now.date():
        return moment.strftime("%H:%M:%S")
    return moment.strftime("%d %b %H:%M" if moment.year == now.year else "%Y-%m-%d")


def _moment(at_ms: int) -> datetime | None:
    """Return a moment in local time; None when the calendar has no such year."""
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC).astimezone()
    except (ValueError, OverflowError, OSError):
        return None


def duration(milliseconds: float | None) -> str:
    """Return a length of time as a person says it: ``850 ms``, ``12.3 s``, ``2 h 05 min``."""
    if milliseconds is None:
        return ""
    if milliseconds < 1_000:
        return f"{milliseconds:.0f} ms"
    seconds = milliseconds / 1_000
    if seconds < 120:
        return f"{seconds:.1f} s"
    minutes = seconds / 60
    if minutes < 120:
        return f"{minutes:.0f} min"
    return f"{minutes // 60:.0f} h {minutes % 60:02.0f} min"


def size(count: float) -> str:
    """Return a number of bytes in binary units."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if count < 1024 or unit == "TiB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError("unreachable: the last unit takes everything")


def counted(count: int, what: str) -> str:
    """Return a number of things: ``1 host``, ``2 hosts``."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def ranges(numbers: Sequence[int]) -> str:
    """Return ranks as ``0-3,6``."""
    parts: list[str] = []
    ordered = sorted(numbers)
    start = 0
    for i in range(1, len(ordered) + 1):
        if i == len(ordered) or ordered[i] != ordered[i - 1] + 1:
            first, last = ordered[start], ordered[i - 1]
            parts.append(str(first) if first == last else f"{first}-{last}")
            start = i
    return ",".join(parts)


def share(part_ms: float, whole_ms: float) -> str:
    """Return a percentage; "-" of nothing."""
    return f"{100 * part_ms / whole_ms:.1f} %" if whole_ms > 0 else "-"
