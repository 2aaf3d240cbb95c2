"""Data for an operator: settings with their origins, and connections."""

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from vaka.server.kit.bodies import json_response
from vaka.server.kit.door import Door
from vaka.server.kit.operation import Operation, operation_routes
from vaka.server.kit.pages import Page
from vaka.server.kit.principal import DEBUG
from vaka.server.kit.service import AgentService


class SettingDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A setting; secrets are redacted. ``origin`` is the file, variable or flag that sets it."""

    key: str
    value: Any
    origin: str
    layer: str


class ConnectionsDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The open streams and sockets of this process."""

    open: int
    max_streams: int
    draining: bool


async def get_config(service: AgentService, request: Request) -> Response:
    return json_response(Page(data=[dict(setting) for setting in service.describe_settings()]))


async def get_connections(service: AgentService, request: Request) -> Response:
    open, limit = len(service.streams), service.settings.max_streams
    return json_response(ConnectionsDocument(open=open, max_streams=limit, draining=service.draining))


OPERATIONS = (
    Operation(
        method="GET",
        path="/debug/config",
        scope=DEBUG,
        handler=get_config,
        summary="List settings",
        result=Page[SettingDocument],
    ),
    Operation(
        method="GET",
        path="/debug/connections",
        scope=DEBUG,
        handler=get_connections,
        summary="Count open streams and sockets",
        result=ConnectionsDocument,
    ),
)


def door(service: AgentService) -> Door:
    """Return the routes below ``/api/v1/debug``."""
    return Door(operation_routes(service, OPERATIONS))
