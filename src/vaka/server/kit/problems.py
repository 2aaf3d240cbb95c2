"""``Problem``: an error of a request, and its form as RFC 9457 problem details."""

import logging
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

import msgspec
from starlette.responses import Response

from vaka.core.types.ending import Ending
from vaka.core.types.errors import CannotOpen, Unavailable, VakaError
from vaka.views.failures import Failure, make_failure

_log = logging.getLogger("vaka.server")

CLIENT_LEFT = 499
"""The status of a request whose client has left before the answer; no client sees it."""
_RETRY_SECONDS = {409: 1, 503: 2}


class Problem(Exception):
    """Ends a request with an error. ``code`` is stable and meant for programs."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        headers: Mapping[str, str] | None = None,
        errors: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        """``errors``: what is wrong with single fields of the request."""
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.headers, self.errors = dict(headers or {}), tuple(errors)

    @property
    def title(self) -> str:
        return "Client Closed Request" if self.status == CLIENT_LEFT else HTTPStatus(self.status).phrase


def problem_of(error: Problem | VakaError) -> Problem:
    """Return the problem that an error is for the caller of a request."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, Unavailable | CannotOpen):
        _log.warning("a request failed: %s", error)
        detail = "the store of this server cannot be reached now; try again later"  # its address is for the log only
        return Problem(503, "unavailable", detail, headers={"Retry-After": "2"})
    ending = Ending.of_error(error, "")
    failure = make_failure(error.code, str(error), ending.status, ending.retry_after)
    retry = _RETRY_SECONDS.get(failure.status) if error.code in ("busy", "unavailable", "closed") else None
    headers = {"Retry-After": str(retry)} if retry else failure.retry_headers
    return Problem(failure.status, failure.code, failure.message, headers=headers)


_REPEATABLE = frozenset({"rate_limited", "model_unavailable", "stream_cut"})
"""The codes of turns that a client may repeat if no tool has run."""


def describe_failure(code: str, message: str) -> str:
    """Return the message for a turn that has failed, by the code and the message of its error."""
    return make_failure(code, message).message


def problem_of_failure(failure: Failure, *, ran_tools: bool = True) -> Problem:
    """Return the problem of a turn that has no answer. Clients do not repeat a turn whose tools may have run."""
    is_repeatable = failure.code in _REPEATABLE and not ran_tools
    headers = failure.retry_headers | ({} if is_repeatable else {"x-should-retry": "false"})
    return Problem(failure.status, failure.code, failure.message, headers=headers)


def problem_before_login(error: Problem | VakaError) -> Problem:
    """Return the problem that an error is for a caller who is not known yet: errors of the server have no details."""
    problem = problem_of(error)
    if isinstance(error, Problem) or problem.status < HTTPStatus.INTERNAL_SERVER_ERROR:
        return problem
    if not isinstance(error, Unavailable | CannotOpen):
        _log.warning("a caller could not be authenticated: %s", error)
    detail = "the caller cannot be authenticated now; the log of the server has the reason"
    return Problem(problem.status, problem.code, detail, headers=problem.headers)


def not_found(what: str) -> Problem:
    """Return the answer for an object that does not exist, or that the caller may not know of."""
    return Problem(404, "not_found", f"there is no {what}")


def problem_response(problem: Problem, request_id: str) -> Response:
    """Return a problem as ``application/problem+json``."""
    document: dict[str, Any] = {
        "type": f"urn:vaka:problem:{problem.code}",
        "title": problem.title,
        "status": problem.status,
        "detail": problem.detail,
        "code": problem.code,
        "request_id": request_id,
    }
    if problem.errors:
        document["errors"] = problem.errors
    body = msgspec.json.encode(document)
    return Response(body, problem.status, {**problem.headers, "x-request-id": request_id}, "application/problem+json")
