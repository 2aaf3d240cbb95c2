"""Errors in the form that OpenAI's clients read."""

from typing import Any

from starlette.responses import Response

from vaka.server.kit.bodies import json_response
from vaka.server.kit.problems import Problem
from vaka.views.openai import error_type_of


def error_object(problem: Problem) -> dict[str, Any]:
    """Return the value of ``error`` for a problem."""
    param = problem.errors[0].get("field") if problem.errors else None
    return {"message": problem.detail, "type": error_type_of(problem.status), "param": param, "code": problem.code}


def error_response(problem: Problem, request_id: str) -> Response:
    """Return a problem as ``{"error": {…}}``."""
    return json_response({"error": error_object(problem)}, problem.status, problem.headers)
