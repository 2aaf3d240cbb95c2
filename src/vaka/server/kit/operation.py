"""``Operation``: a method of a route as data. It makes the route, and its entry in the OpenAPI document."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeAlias, TypeVar

import msgspec
from starlette.requests import Request
from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from vaka.server.kit.bodies import invalid_fields
from vaka.server.kit.guard import Handler, guard_route
from vaka.server.kit.service import AgentService

T = TypeVar("T")

RestHandler: TypeAlias = Callable[[AgentService, Request], Awaitable[ASGIApp]]

PREFIX = "/api/v1"
EVENT_STREAM = "text/event-stream"


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One method of one route."""

    method: str
    path: str
    """The path below ``/api/v1``, with parameters such as ``{session}``."""
    scope: str
    """The scope that a caller needs; ``""``: any caller."""
    handler: RestHandler
    summary: str
    query: type[msgspec.Struct] | None = None
    """The parameters of the address."""
    body: Any = None
    """The type of the request's body."""
    result: Any = None
    """The type of the response's body; ``None``: it has none, or it is not JSON."""
    other_results: tuple[Any, ...] = ()
    """Further types of the body, which a parameter of the request chooses."""
    status: int = 200
    other_statuses: tuple[int, ...] = ()
    """Further statuses of success, with the same body."""
    streams: bool = False
    """Whether it sends an event stream to a client that accepts one."""
    idempotent: bool = False
    """Whether it takes an ``Idempotency-Key``."""
    media_type: str = "application/json"


def operation_routes(
    service: AgentService,
    operations: Iterable[Operation],
    names_of: Callable[[str], Iterable[str]] = lambda path: (path,),
) -> list[BaseRoute]:
    """Return the routes of operations below ``/api/v1``; ``names_of`` returns the paths that a path is reached at."""
    by_path: dict[str, list[Operation]] = {}
    for operation in operations:
        by_path.setdefault(operation.path, []).append(operation)
    return [
        guard_route(
            service.guard, PREFIX + name, {each.method: (each.scope, _make_handler(service, each)) for each in group}
        )
        for path, group in by_path.items()
        for name in names_of(path)
    ]


def _make_handler(service: AgentService, operation: Operation) -> Handler:
    """Return the handler of an operation, which reads the parameters of the address before anything else."""

    async def handle(request: Request) -> ASGIApp:
        if operation.query is not None:
            read_query(request, operation.query)
        return await operation.handler(service, request)

    return handle


def read_query(request: Request, type: type[T]) -> T:
    """Return the parameters of the address. Raises a ``Problem`` (422) for unknown and invalid parameters."""
    try:
        return msgspec.convert(dict(request.query_params), type, strict=False)
    except msgspec.ValidationError as error:
        raise invalid_fields(error, "invalid_query", "the parameters of the address are not valid", type) from error


def wants_stream(request: Request) -> bool:
    """Return whether the client accepts an event stream."""
    return EVENT_STREAM in request.headers.get("accept", "")
