"""``create_app``: the ASGI application of a server, with the doors of the features that are on."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from http import HTTPStatus

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from vaka.core.types.errors import VakaError
from vaka.server.doors import doors_of
from vaka.server.guard import RequestLimits, request_id_of
from vaka.server.problems import Problem, problem_of, problem_response
from vaka.server.service import AgentService


def create_app(service: AgentService) -> ASGIApp:
    """Return the application of a service. Its lifespan continues unfinished turns."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[None]:
        async with service.run():
            yield

    routes: list[BaseRoute] = []
    for make_door in doors_of(service.settings.features):
        routes.extend(make_door(service).routes)
    app = Starlette(routes=routes, lifespan=lifespan, exception_handlers={Exception: _handle_bug})
    for kind in (Problem, VakaError, HTTPException):
        app.add_exception_handler(kind, _handle_error)
    app.router.redirect_slashes = False
    return RequestLimits(app, service.guard)


async def _handle_error(request: Request, error: Exception) -> Response:
    """Answer an error of a route that has no error shape, or of an address that no route has."""
    if isinstance(error, HTTPException):
        code = HTTPStatus(error.status_code).name.lower()
        detail = f"there is nothing at {request.url.path[:200]!r}" if error.status_code == 404 else str(error.detail)
        problem = Problem(error.status_code, code, detail, headers=error.headers)
    else:
        assert isinstance(error, Problem | VakaError)  # noqa: S101  # no other type is registered
        problem = problem_of(error) if isinstance(error, VakaError) else error
    return problem_response(problem, request_id_of(request))


async def _handle_bug(request: Request, error: Exception) -> Response:
    """Answer an unexpected error without its details, which Starlette logs."""
    problem = Problem(500, "internal", "the server has failed to answer; its log has the reason")
    return problem_response(problem, request_id_of(request))
