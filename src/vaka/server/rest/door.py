"""The door of the native API: the routes of all resources, and their aliases."""

from collections.abc import Sequence

from vaka.feature import find_features
from vaka.server.kit.door import Door
from vaka.server.kit.operation import Operation, operation_routes
from vaka.server.kit.service import AgentService
from vaka.server.rest import (
    agents,
    approvals,
    checkpoints,
    events,
    messages,
    sessions,
    tickets,
    tools,
    turns,
    usage,
)
from vaka.server.rest.idempotency import IdempotentRequests

OPERATIONS: Sequence[Operation] = (
    *turns.OPERATIONS,
    *events.OPERATIONS,
    *sessions.OPERATIONS,
    *messages.OPERATIONS,
    *checkpoints.OPERATIONS,
    *approvals.OPERATIONS,
    *agents.OPERATIONS,
    *tools.OPERATIONS,
    *usage.OPERATIONS,
    *tickets.OPERATIONS,
)
"""The operations of the server. Of two paths that match the same address, the more specific one comes first."""
ALIASES = {"/sessions": "/threads", "/turns": "/runs"}


def list_operations() -> list[Operation]:
    """Return the operations of installed features, whose addresses may be more specific, and of the server."""
    loaders = [(feature, feature.load_operations) for feature in find_features()]
    found = [operation for feature, load in loaders if load is not None for operation in feature.load(load)]
    return [*found, *OPERATIONS]


def door(service: AgentService) -> Door:
    """Return the routes below ``/api/v1``. Features that may be off have doors of their own."""
    requests = IdempotentRequests()
    operations = [requests.protect(operation) for operation in list_operations()]
    return Door([*operation_routes(service, operations), *operation_routes(service, operations, _aliases_of)])


def _aliases_of(path: str) -> list[str]:
    """Return the other names of a path: each of its parts that has an alias may have either name."""
    names = [path]
    for name, alias in ALIASES.items():
        names += [each.replace(name, alias, 1) for each in names if name in each]
    return names[1:]
