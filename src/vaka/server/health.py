"""Health, readiness and version of a server: the only routes that need no credentials."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from vaka import __version__
from vaka.core.ports.store import SessionQuery
from vaka.core.types.errors import VakaError
from vaka.runtime.runtime import Runtime
from vaka.server.kit.bodies import json_response
from vaka.server.kit.door import Door
from vaka.server.kit.service import AgentService

PROBE_PATHS = ("/healthz", "/readyz", "/version")
READY_SECONDS = 1.0
"""Seconds that the store has to answer a probe."""


class StoreProbe:
    """Asks the store whether it can be used: one question at a time, however many probes wait for its answer."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._question: asyncio.Task[str] | None = None

    async def find_problem(self) -> str:
        """Return why the store cannot be used now: the code of an error, or ``timeout``; ``""`` if it can.

        The answer has no text of an error: it may name the address of the database.
        """
        if self._question is None or self._question.done():
            self._question = asyncio.create_task(self._ask())
        question, limit = self._question, asyncio.create_task(self._runtime.env.clock.sleep(READY_SECONDS))
        try:
            await asyncio.wait([question, limit], return_when=asyncio.FIRST_COMPLETED)
        finally:
            limit.cancel()
        return question.result() if question.done() else "timeout"

    async def _ask(self) -> str:
        try:
            await self._runtime.store.sessions.list(SessionQuery(limit=1))
        except VakaError as error:
            return error.code
        except OSError:
            return "unavailable"
        return ""

    @asynccontextmanager
    async def run(self) -> AsyncGenerator[None]:
        """Cancel a question that is still open at the end."""
        try:
            yield
        finally:
            if self._question is not None:
                self._question.cancel()
                await asyncio.wait([self._question])


def door(service: AgentService) -> Door:
    """Return the routes for probes, at the root and below ``/api/v1``."""
    probe = StoreProbe(service.runtime)

    async def health(request: Request) -> Response:
        return json_response({"status": "ok"})

    async def readiness(request: Request) -> Response:
        if service.draining:
            return json_response({"status": "draining"}, 503)
        problem = await probe.find_problem()
        if problem:
            return json_response({"status": "unavailable", "reason": problem}, 503)
        return json_response({"status": "ready"})

    async def version(request: Request) -> Response:
        return json_response({"name": "vaka", "version": __version__})

    handlers = dict(zip(PROBE_PATHS, (health, readiness, version), strict=True))
    routes = [
        Route(prefix + path, handler, methods=["GET"])
        for prefix in ("", "/api/v1")
        for path, handler in handlers.items()
    ]
    return Door(routes, probe.run)
