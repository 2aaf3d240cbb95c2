"""``create_app`` and ``open_service``: the ASGI application of a server, and all that it needs besides a socket."""

import os
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from http import HTTPStatus
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp

from vaka.agents.react import Agent
from vaka.core.types.errors import VakaError
from vaka.runtime.runtime import Runtime
from vaka.server.access_log import AccessLog, WriteLine
from vaka.server.auth.authenticator import open_authenticator
from vaka.server.auth.jwt import JwtSettings
from vaka.server.cors import AllowedOrigins
from vaka.server.doors import doors_of
from vaka.server.kit.guard import PRINCIPAL_KEY, Guard, RequestLimits, request_id_of
from vaka.server.kit.principal import LOCAL_PRINCIPAL
from vaka.server.kit.problems import Problem, problem_before_login, problem_of, problem_response
from vaka.server.kit.service import AgentService
from vaka.server.limits import RateLimiter
from vaka.server.settings import ServerSettings


async def open_service(
    runtime: Runtime,
    agents: "Mapping[str, Agent] | Sequence[Agent]",
    settings: ServerSettings | None = None,
    *,
    jwt: JwtSettings | None = None,
    insecure: bool = False,
    describe_settings: Callable[[], Sequence[Mapping[str, Any]]] = tuple,
) -> AgentService:
    """Return the service of agents for ``create_app``; API keys and logins are in the store of the runtime.

    Args:
        runtime: Runs the turns; the caller closes it.
        agents: The agents, or a mapping of them by name; the first is the default.
        settings: Limits and features.
        jwt: Tokens of another issuer that count besides API keys.
        insecure: Whether requests without a token are accepted, with all rights.
        describe_settings: Returns the settings that the console shows.
    """
    settings, clock = settings or ServerSettings(), runtime.env.clock
    runtime.models.factory.use_aiohttp()
    authenticator = await open_authenticator(
        runtime.store.values,
        os.environ,
        clock,
        jwt=jwt,
        network=runtime.env.world.network if jwt else None,
        anonymous=LOCAL_PRINCIPAL if insecure else None,
    )
    limiter = RateLimiter(clock, requests_per_minute=settings.requests_per_minute, burst=settings.burst)
    named = agents if isinstance(agents, Mapping) else {agent.name: agent for agent in agents}
    guard = Guard(settings, authenticator, limiter)
    return AgentService(runtime, named, guard, describe_settings=describe_settings)


def create_app(service: AgentService, access_log: WriteLine | None = None) -> ASGIApp:
    """Return the application of a service. Its lifespan continues unfinished turns.

    ``access_log`` is called with a line of JSON for each request that has ended.
    """

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[None]:
        async with AsyncExitStack() as stack:
            for door in doors:
                await stack.enter_async_context(door.run())
            await stack.enter_async_context(service.run())
            yield

    doors = [make_door(service) for make_door in doors_of(service.settings.features)]
    routes: list[BaseRoute] = [route for door in doors for route in door.routes]
    app = Starlette(routes=routes, lifespan=lifespan, exception_handlers={Exception: _handle_bug})
    for kind in (Problem, VakaError, HTTPException):
        app.add_exception_handler(kind, _handle_error)
    app.router.redirect_slashes = False
    limited = AllowedOrigins(RequestLimits(app, service.guard), service.settings)
    if access_log is None:
        return limited
    return AccessLog(limited, access_log, service.runtime.env.clock, service.runtime.secrets.redact_data)


def _describe_missing(request: Request) -> str:
    """Return the message about an unknown address; suggest a route that differs only at the beginning or end."""
    path = request.url.path
    others = (path.rstrip("/"), f"/v1{path}", f"/api{path}", f"/api/v1{path}", path.replace("/v1/v1/", "/v1/", 1))
    for other in others:
        scope = {**request.scope, "path": other}
        if other not in ("", path) and any(route.matches(scope)[0] is not Match.NONE for route in request.app.routes):
            return f"there is nothing at {path[:200]!r}; did you mean {other[:200]!r}?"
    return f"there is nothing at {path[:200]!r}"


async def _handle_error(request: Request, error: Exception) -> Response:
    """Answer an error of a route that has no error shape, or of an address that no route has."""
    if isinstance(error, HTTPException):
        code = HTTPStatus(error.status_code).name.lower()
        detail = _describe_missing(request) if error.status_code == 404 else str(error.detail)
        problem = Problem(error.status_code, code, detail, headers=error.headers)
    else:
        assert isinstance(error, Problem | VakaError)  # noqa: S101  # no other type is registered
        problem = problem_of(error) if PRINCIPAL_KEY in request.scope else problem_before_login(error)
    return problem_response(problem, request_id_of(request))


async def _handle_bug(request: Request, error: Exception) -> Response:
    """Answer an unexpected error without its details, which Starlette logs."""
    problem = Problem(500, "internal", "the server has failed to answer; its log has the reason")
    return problem_response(problem, request_id_of(request))
