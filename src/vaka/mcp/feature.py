"""The feature ``mcp``: the tools of MCP servers for agents, and agents as tools for MCP clients."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from vaka.feature import Feature

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from typing import Any, TypeAlias

    import click

    from vaka.cli.kit.checks import Check
    from vaka.core.loop.feature_middleware import FeatureMiddlewareFactory
    from vaka.mcp.definition import McpServer
    from vaka.mcp.logins import LoginStore
    from vaka.server.kit.door import DoorFactory

    LogIn: TypeAlias = Callable[[McpServer, LoginStore, Callable[[str], None], float], Awaitable[str]]


def load_commands() -> "Sequence[click.Command]":
    from vaka.mcp.cli import mcp, mcp_server

    return [mcp, mcp_server]


def load_door() -> "DoorFactory":
    from vaka.mcp.http import door

    return door


def load_middleware() -> "FeatureMiddlewareFactory":
    from vaka.mcp.middleware import connect_servers

    return connect_servers


def load_checks() -> "Iterable[Check]":
    from vaka.mcp.cli import check_servers

    return check_servers()


def load_login() -> "LogIn":
    from vaka.mcp.login import log_in

    return log_in


def load_protocol() -> None:
    """Import the library that speaks the protocol."""
    from vaka.mcp import session as session


def load_stdio_server() -> "Callable[[Sequence[str], Sequence[str], Mapping[str, Any]], None]":
    from vaka.mcp.server_cli import serve_stdio

    return serve_stdio


FEATURE = Feature(
    name="mcp",
    extra="mcp",
    commands={
        "mcp": "List, try, add and remove MCP servers, whose tools agents use.",
        "mcp-server": "Serve agents to MCP clients on stdin and stdout.",
    },
    load_commands=load_commands,
    load_door=load_door,
    server_feature="mcp",
    load_middleware=load_middleware,
    load_checks=load_checks,
)
