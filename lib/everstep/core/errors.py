"""Faults from outside, as exceptions of the shell.

::

    EverstepError
    ├── Conflict            another writer appended first           retryable  409
    ├── Unavailable         a dependency does not answer            retryable  503
    │   ├── NoResponders    nobody serves the subject: known at once
    │   └── StoreRefuses    the object store wants a person    final      503
    ├── RefusedError        a service refused a command             final      409
    ├── NotFoundError       no such thing                           final      404
    ├── InvalidInput        the caller's input cannot be used       final      422
    └── CorruptData         stored bytes fail their checksum        final      500

Expected refusals inside a decider are values (``core.decision.Rejected``), never exceptions.
Messages name ids, what was expected and got, and what to do next.
"""

from __future__ import annotations

from typing import ClassVar


class EverstepError(Exception):
    """Base of all; ``retryable`` says whether the same call may succeed later."""

    retryable: ClassVar[bool] = False
    http_status: ClassVar[int] = 500
    code: ClassVar[str] = "error"


class Conflict(EverstepError):  # noqa: N818 - named after what happened, like the HTTP status
    """Another writer appended to the stream first."""

    retryable = True
    http_status = 409
    code = "conflict"


class Unavailable(EverstepError):  # noqa: N818 - as above
    """A dependency (bus, database, object store, service) does not answer."""

    retryable = True
    http_status = 503
    code = "unavailable"


class NoResponders(Unavailable):
    """Nobody serves the subject; the server says so at once, without a timeout."""

    code = "no_responders"


class StoreRefuses(Unavailable):
    """The object store answers and will not serve us: keys, rights, quota, this host's clock.

    Asking again at once changes nothing; somebody has to. It says nothing against the object.
    """

    retryable = False
    code = "store_refuses"


class RefusedError(EverstepError):
    """A service refused a command; ``why`` is its stable code."""

    http_status = 409
    code = "refused"

    def __init__(self, why: str, detail: str = "") -> None:
        super().__init__(detail or why)
        self.why = why


class NotFoundError(EverstepError):
    """There is no such job, host, checkpoint or object."""

    http_status = 404
    code = "not_found"


class InvalidInput(EverstepError):  # noqa: N818 - as above
    """The caller's input cannot be used."""

    http_status = 422
    code = "invalid_input"


class CorruptData(EverstepError):  # noqa: N818 - as above
    """Stored bytes do not match their checksum."""

    code = "corrupt_data"
