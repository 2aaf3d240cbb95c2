"""Errors of A2A: the code of JSON-RPC, and the status and reason of HTTP+JSON."""

from typing import Any, NamedTuple

import msgspec
from starlette.responses import Response

from vaka.server.json_rpc import INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, PARSE_ERROR
from vaka.server.kit.problems import Problem

A2A_JSON = "application/a2a+json"
_ERROR_INFO = "type.googleapis.com/google.rpc.ErrorInfo"


class A2aError(NamedTuple):
    """An error in the forms of both bindings."""

    rpc_code: int
    status: str
    reason: str


_ERRORS_OF_CODES = {
    "task_not_found": A2aError(-32001, "NOT_FOUND", "TASK_NOT_FOUND"),
    "task_not_cancelable": A2aError(-32002, "FAILED_PRECONDITION", "TASK_NOT_CANCELABLE"),
    "push_not_supported": A2aError(-32003, "FAILED_PRECONDITION", "PUSH_NOTIFICATION_NOT_SUPPORTED"),
    "unsupported": A2aError(-32004, "FAILED_PRECONDITION", "UNSUPPORTED_OPERATION"),
    "version_not_supported": A2aError(-32009, "FAILED_PRECONDITION", "VERSION_NOT_SUPPORTED"),
    "invalid_json": A2aError(PARSE_ERROR, "INVALID_ARGUMENT", "INVALID_REQUEST"),
    "invalid_request": A2aError(INVALID_REQUEST, "INVALID_ARGUMENT", "INVALID_REQUEST"),
    "method_not_found": A2aError(METHOD_NOT_FOUND, "NOT_FOUND", "METHOD_NOT_FOUND"),
}
"""The errors of the protocol, by the code of a problem."""
_ERRORS_OF_STATUSES = {
    400: A2aError(INVALID_PARAMS, "INVALID_ARGUMENT", "INVALID_PARAMS"),
    401: A2aError(INVALID_REQUEST, "UNAUTHENTICATED", "UNAUTHENTICATED"),
    403: A2aError(INVALID_REQUEST, "PERMISSION_DENIED", "PERMISSION_DENIED"),
    404: A2aError(INVALID_PARAMS, "NOT_FOUND", "NOT_FOUND"),
    409: A2aError(-32004, "FAILED_PRECONDITION", "UNSUPPORTED_OPERATION"),
    422: A2aError(INVALID_PARAMS, "INVALID_ARGUMENT", "INVALID_PARAMS"),
    429: A2aError(INTERNAL_ERROR, "RESOURCE_EXHAUSTED", "RESOURCE_EXHAUSTED"),
    503: A2aError(INTERNAL_ERROR, "UNAVAILABLE", "UNAVAILABLE"),
}
_INTERNAL = A2aError(INTERNAL_ERROR, "INTERNAL", "INTERNAL_ERROR")


def _error_of(problem: Problem) -> A2aError:
    return _ERRORS_OF_CODES.get(problem.code) or _ERRORS_OF_STATUSES.get(problem.status, _INTERNAL)


def rpc_error(problem: Problem, id: Any = None) -> dict[str, Any]:
    """Return a problem as a response of JSON-RPC."""
    error = _error_of(problem)
    details = [_error_info(problem, error)]
    return {
        "jsonrpc": "2.0",
        "id": id,
        "error": {"code": error.rpc_code, "message": problem.detail, "data": details},
    }


def rest_error(problem: Problem) -> dict[str, Any]:
    """Return a problem as the body of an error of HTTP+JSON."""
    error = _error_of(problem)
    details = [_error_info(problem, error)]
    fields = {"code": problem.status, "status": error.status, "message": problem.detail, "details": details}
    return {"error": fields}


def _error_info(problem: Problem, error: A2aError) -> dict[str, Any]:
    metadata = {"code": problem.code}
    return {"@type": _ERROR_INFO, "reason": error.reason, "domain": "a2a-protocol.org", "metadata": metadata}


def rpc_problem(problem: Problem, request_id: str) -> Response:
    """Return the response to a request that did not reach JSON-RPC."""
    return Response(msgspec.json.encode(rpc_error(problem)), problem.status, problem.headers, "application/json")


def rest_problem(problem: Problem, request_id: str) -> Response:
    """Return the response to a request of HTTP+JSON that failed."""
    return Response(msgspec.json.encode(rest_error(problem)), problem.status, problem.headers, A2A_JSON)
