"""``Problem``: an error of a request, and its form as RFC 9457 problem details."""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

import msgspec
from starlette.responses import Response

from vaka.core.types.errors import VakaError

STATUS_OF_CODES: Mapping[str, int] = {
    "invalid_input": 400, "not_found": 404, "exists": 409, "erased": 410, "config": 500, "busy": 409, "conflict": 409,
    "head_moved": 409,
    "unavailable": 503, "closed": 503, "suspended": 409, "rejected": 409, "interrupted": 409, "cancelled": 409,
    "rate_limited": 503, "model_unavailable": 503, "stream_cut": 502, "model": 502, "model_refused": 502,
    "bad_request": 502, "authentication": 502, "context_too_long": 422, "file_missing": 404, "file_refused": 403,
}  # fmt: skip
"""The HTTP status of each error code that has one; the others are 500."""

_RETRY_SECONDS = {409: 1, 503: 2}


class Problem(Exception):
    """Ends a request with an error. ``code`` is stable and meant for programs."""

    def __init__(
        self, status: int, code: str, detail: str, *, headers: Mapping[str, str] | None = None,
        errors: Sequence[Mapping[str, Any]] = (),
    ) -> None:  # fmt: skip
        """``errors``: what is wrong with single fields of the request."""
        super().__init__(detail)
        self.status, self.code, self.detail = status, code, detail
        self.headers, self.errors = dict(headers or {}), tuple(errors)

    @property
    def title(self) -> str:
        return HTTPStatus(self.status).phrase


def problem_of(error: Problem | VakaError) -> Problem:
    """Return the problem that an error is for the caller of a request."""
    if isinstance(error, Problem):
        return error
    status = STATUS_OF_CODES.get(error.code, 500)
    retry = _RETRY_SECONDS.get(status) if error.code in ("busy", "unavailable", "closed", "rate_limited") else None
    return Problem(status, error.code, str(error), headers={"Retry-After": str(retry)} if retry else None)


def not_found(what: str) -> Problem:
    """Return the answer for an object that does not exist, or that the caller may not know of."""
    return Problem(404, "not_found", f"there is no {what}")


def problem_response(problem: Problem, request_id: str) -> Response:
    """Return a problem as ``application/problem+json``."""
    document: dict[str, Any] = {
        "type": f"urn:vaka:problem:{problem.code}", "title": problem.title, "status": problem.status,
        "detail": problem.detail, "code": problem.code, "request_id": request_id,
    }  # fmt: skip
    if problem.errors:
        document["errors"] = problem.errors
    body = msgspec.json.encode(document)
    return Response(body, problem.status, {**problem.headers, "x-request-id": request_id}, "application/problem+json")
