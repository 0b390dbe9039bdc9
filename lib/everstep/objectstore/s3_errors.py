"""Says what an S3 server's refusal means to us, and what to do about it.

A pure function of the answer, because the one thing worse than a refusal is the wrong advice about
it: asked again in vain, or given up although a second later it would have gone through.
"""

from __future__ import annotations

from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Final

from everstep.core.errors import EverstepError, NotFoundError, StoreRefuses, Unavailable

_MISSING: Final = frozenset({"NoSuchKey", "NoSuchObject"})
_UPLOAD_GONE: Final = frozenset({"NoSuchUpload", "InvalidPart", "InvalidPartOrder"})
_KEYS: Final = frozenset(
    {
        "InvalidAccessKeyId",
        "SignatureDoesNotMatch",
        "InvalidToken",
        "ExpiredToken",
        "TokenRefreshRequired",
    }
)
_CLOCK: Final = frozenset({"RequestTimeTooSkewed", "RequestExpired", "RequestNotReadyYet"})
_FULL: Final = frozenset(
    {"QuotaExceeded", "InsufficientStorage", "XMinioStorageFull", "XMinioAdminBucketQuotaExceeded"}
)
# What a server that knows no reason says; SeaweedFS also when its disk or its volumes are full.
_NO_REASON: Final = frozenset({"InternalError"})
_FULL_PERHAPS: Final = (
    " (if it goes on: a server whose disk is full may say no more; look at its free space and its "
    "log, free some, or keep fewer checkpoints: checkpoint.keep_last)"
)
# 4xx by number, and yet what goes through when it is asked again.
_PASSING: Final = frozenset(
    {"RequestTimeout", "IncompleteBody", "BadDigest", "OperationAborted", "SlowDown"}
)
_PASSING_STATUS: Final = frozenset({408, 429})
# Servers allow 15 minutes (AWS Signature Version 4); a third of it already explains a refusal that
# does not name the clock, and no working clock is that far off.
SKEW_MS_MAX: Final = 5 * 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer that is not a success; ``date`` is the server's header, "" if there was none."""

    status: int
    code: str
    message: str
    date: str


def explain(what: str, bucket: str, answer: Answer, now_ms: int) -> EverstepError:
    """Return the error to raise.

    Args:
        what: the object, or what else was asked for.
        bucket: where.
        answer: of the server.
        now_ms: this host's clock when the answer came.
    """
    where = f"{what} in bucket {bucket!r}"
    code = answer.code or f"HTTP {answer.status}"
    said = f"{code}: {answer.message}" if answer.message else code
    if answer.code in _MISSING:
        return NotFoundError(f"no {where}")
    if answer.code in _UPLOAD_GONE:
        return NotFoundError(f"{where}: its upload by parts is gone ({said})")
    if answer.code == "NoSuchBucket":
        return Unavailable(f"{where}: there is no such bucket any more; it is made at the next try")
    off_ms = _clock_off_ms(answer.date, now_ms)
    if answer.code in _CLOCK or (answer.status == 403 and abs(off_ms or 0) > SKEW_MS_MAX):
        return StoreRefuses(f"{where}: {_clock(off_ms)} ({code}): set this host's clock (NTP)")
    if answer.code in _KEYS:
        return StoreRefuses(
            f"{where}: the object store does not take our keys ({code}): "
            "check EVERSTEP_S3_ACCESS_KEY and EVERSTEP_S3_SECRET_KEY"
        )
    if answer.code in _FULL or answer.status == 507:
        return StoreRefuses(
            f"{where}: the object store is full ({said}): raise the quota, free some space, or "
            "keep fewer checkpoints (checkpoint.keep_last)"
        )
    if answer.code in _PASSING or answer.status in _PASSING_STATUS:
        return Unavailable(f"{where}: {said}")
    if answer.code == "AccessDenied" or answer.status in (401, 403):
        return StoreRefuses(
            f"{where}: our keys may not do that ({said}): they need to list, read, write and "
            "delete there"
        )
    if 400 <= answer.status < 500:
        return StoreRefuses(f"{where}: the object store refuses the request ({said})")
    return Unavailable(f"{where}: {said}{_FULL_PERHAPS if answer.code in _NO_REASON else ''}")


def _clock_off_ms(date: str, now_ms: int) -> int | None:
    """Return how far this clock is ahead of the server's, None when it did not say."""
    try:
        return now_ms - int(parsedate_to_datetime(date).timestamp() * 1_000)
    except ValueError:
        return None


def _clock(off_ms: int | None) -> str:
    if off_ms is None:
        return "this host's clock and the object store's differ by too much"
    minutes, seconds = divmod(abs(off_ms) // 1_000, 60)
    direction = "ahead of" if off_ms > 0 else "behind"
    return f"this host's clock is {minutes} min {seconds} s {direction} the object store's"
