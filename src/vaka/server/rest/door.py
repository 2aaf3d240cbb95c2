"""The door of the native API: the routes of all resources, and their aliases."""

from collections.abc import Sequence
from functools import partial

from starlette.routing import BaseRoute

from vaka.server.guard import Door, guard_route
from vaka.server.rest import approvals, events, sessions, tickets, turns
from vaka.server.rest.operation import PREFIX, Operation
from vaka.server.service import AgentService

OPERATIONS: Sequence[Operation] = (
    *turns.OPERATIONS, *events.OPERATIONS, *sessions.OPERATIONS, *approvals.OPERATIONS, *tickets.OPERATIONS
)  # fmt: skip
"""Every operation. Of two paths that match the same address, the more specific one comes first."""
ALIASES = {"/sessions": "/threads", "/turns": "/runs"}


def door(service: AgentService) -> Door:
    """Return the routes below ``/api/v1``. Routes of other features below it belong to their own doors."""
    routes: list[BaseRoute] = []
    by_path: dict[str, list[Operation]] = {}
    for operation in OPERATIONS:
        by_path.setdefault(operation.path, []).append(operation)
    for alias in (False, True):
        for path, operations in by_path.items():
            handlers = {each.method: (each.scope, partial(each.handler, service)) for each in operations}
            names = _aliases_of(path) if alias else [path]
            routes.extend(guard_route(service.guard, PREFIX + name, handlers) for name in names)
    return Door(routes)


def _aliases_of(path: str) -> list[str]:
    """Return the other names of a path: each of its parts that has an alias may have either name."""
    names = [path]
    for name, alias in ALIASES.items():
        names += [each.replace(name, alias, 1) for each in names if name in each]
    return names[1:]
