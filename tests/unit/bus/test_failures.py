"""How a handler's exception looks to whoever asked."""

from __future__ import annotations

import pytest

from everstep.bus.failures import failure, failure_in
from everstep.core.errors import (
    Conflict,
    CorruptData,
    InvalidInput,
    NoResponders,
    NotFoundError,
    RefusedError,
    Unavailable,
)


@pytest.mark.parametrize(
    ("raised", "arrives"),
    [
        (InvalidInput("m"), InvalidInput),
        (NotFoundError("m"), NotFoundError),
        (CorruptData("m"), CorruptData),
        (RefusedError("why", "m"), RefusedError),
        (Unavailable("m"), Unavailable),
        (Conflict("m"), Unavailable),
        (NoResponders("m"), Unavailable),
        (KeyError("m"), Unavailable),
        (TimeoutError("m"), Unavailable),
    ],
)
def test_failure_arrives_as_what_the_requester_can_do(
    raised: Exception, arrives: type[Exception]
) -> None:
    """Final errors stay final; everything else may be sent again, and is not ``NoResponders``."""
    headers, data = failure(raised)
    error = failure_in("subject", headers, data)
    assert type(error) is arrives
    assert "subject" in str(error)
    assert "m" in str(error)


def test_ordinary_answer_is_no_failure() -> None:
    """Headers of other kinds mean nothing."""
    assert failure_in("subject", {"traceparent": "x"}, b"data") is None
