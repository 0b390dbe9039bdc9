"""What a store's refusal means, and what it says is to be done."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import format_datetime

import pytest

from everstep.core.errors import NotFoundError, StoreRefuses, Unavailable
from everstep.objectstore.s3_errors import SKEW_MS_MAX, Answer, explain

WHAT = "object 'jobs/j/rank-00003.shard'"
NOW_MS = 1_700_000_000_000


def error_of(status: int, code: str, *, message: str = "", ahead_ms: int | None = None):
    """Return the error of an answer; ``ahead_ms`` is this clock against the server's."""
    date = ""
    if ahead_ms is not None:
        date = format_datetime(datetime.fromtimestamp((NOW_MS - ahead_ms) / 1_000, UTC))
    answer = Answer(status=status, code=code, message=message, date=date)
    return explain(WHAT, "b", answer, NOW_MS)


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (404, "NoSuchKey", NotFoundError),
        (404, "NoSuchUpload", NotFoundError),
        (400, "InvalidPart", NotFoundError),
        (404, "NoSuchBucket", Unavailable),
        (503, "SlowDown", Unavailable),
        (500, "InternalError", Unavailable),
        (502, "", Unavailable),
        (400, "RequestTimeout", Unavailable),
        (429, "", Unavailable),
        (409, "OperationAborted", Unavailable),
        (400, "BadDigest", Unavailable),
        (403, "InvalidAccessKeyId", StoreRefuses),
        (403, "SignatureDoesNotMatch", StoreRefuses),
        (400, "ExpiredToken", StoreRefuses),
        (403, "AccessDenied", StoreRefuses),
        (403, "QuotaExceeded", StoreRefuses),
        (507, "", StoreRefuses),
        (507, "XMinioStorageFull", StoreRefuses),
        (403, "RequestTimeTooSkewed", StoreRefuses),
        (400, "EntityTooLarge", StoreRefuses),
        (405, "MethodNotAllowed", StoreRefuses),
    ],
)
def test_answer_is_one_to_wait_for_or_one_for_a_person(status: int, code: str, kind: type) -> None:
    """Asked again is what may go through by itself, and only that; the object is named."""
    error = error_of(status, code)
    assert type(error) is kind
    assert error.retryable == (kind is Unavailable)
    assert "jobs/j/rank-00003.shard" in str(error)
    assert "'b'" in str(error)


@pytest.mark.parametrize(
    ("status", "code", "advice"),
    [
        (403, "SignatureDoesNotMatch", "EVERSTEP_S3_SECRET_KEY"),
        (403, "AccessDenied", "they need to list, read, write and delete"),
        (403, "QuotaExceeded", "raise the quota"),
        (507, "", "keep fewer checkpoints"),
        (404, "NoSuchBucket", "made at the next try"),
    ],
)
def test_refusal_says_what_to_do(status: int, code: str, advice: str) -> None:
    """Whoever reads the line need not look the code up."""
    assert advice in str(error_of(status, code))


@pytest.mark.parametrize(
    ("ahead_ms", "said"),
    [
        (25 * 60_000 + 3_000, "25 min 3 s ahead of the object store's"),
        (-16 * 60_000, "16 min 0 s behind the object store's"),
    ],
)
@pytest.mark.parametrize("code", ["RequestTimeTooSkewed", "AccessDenied", "SignatureDoesNotMatch"])
def test_skewed_clock_is_named_with_its_error_whatever_the_code(
    code: str, ahead_ms: int, said: str
) -> None:
    """Signed addresses expire with codes that speak of rights; the date header knows better."""
    error = error_of(403, code, ahead_ms=ahead_ms)
    assert isinstance(error, StoreRefuses)
    assert f"this host's clock is {said}" in str(error)
    assert "NTP" in str(error)


def test_clock_that_is_about_right_is_not_blamed() -> None:
    """A denied request is then about rights."""
    assert "clock" not in str(error_of(403, "AccessDenied", ahead_ms=SKEW_MS_MAX - 1_000))


def test_skewed_clock_without_a_date_is_still_named() -> None:
    """A server behind a proxy may tell none."""
    assert "differ by too much" in str(error_of(403, "RequestTimeTooSkewed"))


def test_server_that_knows_no_reason_may_be_full() -> None:
    """It is asked again, and when that does not help, somebody has to look at its disk."""
    assert "a server whose disk is full may say no more" in str(error_of(500, "InternalError"))
    assert "disk is full" not in str(error_of(503, "SlowDown"))
