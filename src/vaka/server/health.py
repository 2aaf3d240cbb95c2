"""Health, readiness and version of a server: the only routes that need no credentials."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from vaka import __version__
from vaka.core.ports.store import SessionQuery
from vaka.core.types.errors import VakaError
from vaka.server.bodies import json_response
from vaka.server.guard import Door
from vaka.server.service import AgentService

PROBE_PATHS = ("/healthz", "/readyz", "/version")


def door(service: AgentService) -> Door:
    """Return the routes for probes, at the root and below ``/api/v1``."""

    async def health(request: Request) -> Response:
        return json_response({"status": "ok"})

    async def readiness(request: Request) -> Response:
        if service.draining:
            return json_response({"status": "draining"}, 503)
        try:
            await service.runtime.store.sessions.list(SessionQuery(limit=1))
        except VakaError as error:
            return json_response({"status": "unavailable", "reason": error.code}, 503)
        return json_response({"status": "ready"})

    async def version(request: Request) -> Response:
        return json_response({"name": "vaka", "version": __version__})

    handlers = dict(zip(PROBE_PATHS, (health, readiness, version), strict=True))
    return Door(
        [
            Route(prefix + path, handler, methods=["GET"])
            for prefix in ("", "/api/v1")
            for path, handler in handlers.items()
        ]
    )
