"""The one shape in which all services answer what they cannot do, as OpenAPI tells it too.

Generated clients and readers of ``/docs`` see every status that a route may answer with.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from everstep.core.errors import Conflict, InvalidInput, NotFoundError, Unavailable


class Problem(BaseModel):
    """What is wrong, for programs and for people."""

    code: str = Field(description="stable: programs compare this")
    message: str = Field(description="a sentence that says what to do; its words may change")


class ErrorAnswer(BaseModel):
    """The body of every answer from 400 on."""

    error: Problem


ERROR_ANSWERS: Final[dict[int | str, dict[str, Any]]] = {
    status: {"model": ErrorAnswer, "description": description}
    for status, description in (
        (NotFoundError.http_status, "There is no such thing"),
        (Conflict.http_status, "Refused as things are: `code` says why"),
        (InvalidInput.http_status, "The request cannot be used: the message names each value"),
        (Unavailable.http_status, "Something that the service needs does not answer: try again"),
    )
}


def error_response(
    status: int, code: str, message: str, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    """Return an error in the shape that all services answer with."""
    answer = ErrorAnswer(error=Problem(code=code, message=message))
    return JSONResponse(answer.model_dump(), status_code=status, headers=headers)
