"""Errors in the form that OpenAI's clients read."""

from typing import Any

from starlette.responses import Response

from vaka.server.bodies import json_response
from vaka.server.problems import STATUS_OF_CODES, Problem

_TYPES = {
    401: "authentication_error", 403: "permission_error", 404: "not_found_error", 409: "conflict_error",
    429: "rate_limit_error",
}  # fmt: skip


def error_object(problem: Problem) -> dict[str, Any]:
    """Return the value of ``error`` for a problem."""
    kind = _TYPES.get(problem.status, "invalid_request_error" if problem.status < 500 else "server_error")
    param = problem.errors[0].get("field") if problem.errors else None
    return {"message": problem.detail, "type": kind, "param": param, "code": problem.code}


def error_response(problem: Problem, request_id: str) -> Response:
    """Return a problem as ``{"error": {…}}``."""
    return json_response({"error": error_object(problem)}, problem.status, problem.headers)


def failure_of(code: str, message: str) -> Problem:
    """Return the problem of a turn that has no answer. Clients do not repeat it: its tools may have run."""
    return Problem(STATUS_OF_CODES.get(code, 500), code, message, headers={"x-should-retry": "false"})
