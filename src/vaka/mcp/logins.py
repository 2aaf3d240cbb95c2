"""Logins at MCP servers (OAuth): what is stored of one, the port of the store, and the messages about them."""

import shlex
import time
from collections.abc import Callable
from typing import Literal, Protocol, TypeAlias

import msgspec

from vaka.mcp.definition import McpServer

LoginState: TypeAlias = Literal["", "stored", "needed"]


class McpLogin(msgspec.Struct, frozen=True, kw_only=True):
    """The tokens of a user for one server, and what is needed to refresh them."""

    url: str
    """The only address that gets the access token."""
    access_token: str
    refresh_token: str = ""
    expires_at: float | None = None
    """When the access token is refreshed before it is used, a little before it expires."""
    scope: str = ""
    token_endpoint: str = ""
    """The only address that gets the refresh token."""
    resource: str = ""
    client_id: str = ""
    client_secret: str = ""
    auth_method: str = ""

    def __repr__(self) -> str:
        return f"McpLogin(url={self.url!r})"

    @property
    def secrets(self) -> tuple[str, ...]:
        return tuple(value for value in (self.access_token, self.refresh_token, self.client_secret) if value)

    @property
    def is_expired(self) -> bool:
        return self.expires_at is not None and time.time() >= self.expires_at


class LoginStore(Protocol):
    """Where logins are stored, by the URL of the server.

    ``read`` and ``write`` may wait for the system keyring: call them in a thread.
    """

    secrets: set[str]
    """The registered tokens, for messages that must not contain them."""

    def register(self, login: McpLogin) -> None:
        """Take the tokens of a login for redaction."""
        ...

    def read(self, url: str) -> McpLogin | None:
        """Return the login for exactly this URL."""
        ...

    def write(self, login: McpLogin) -> str:
        """Store a login, replace an earlier login for its URL, and return its place as a text for people."""
        ...

    def try_lock(self, url: str) -> Callable[[], None] | None:
        """Return what releases the lock on a login, ``None`` while another process or connection holds it.

        The tokens change only while the lock is held.
        """
        ...

    def note_needed(self, url: str, *, needed: bool) -> None:
        """Remember whether the server refused what there is; ``write`` forgets it."""
        ...


def uses_login(server: McpServer) -> bool:
    """Whether a login counts for a server: not with a process, a header Authorization or credentials of a program."""
    given = {name.lower() for name in server.headers}
    return server.transport != "stdio" and "authorization" not in given and not has_credentials(server)


def has_credentials(server: McpServer) -> bool:
    """Whether the definition has the credentials of a program."""
    return "clientSecret" in server.oauth or "privateKey" in server.oauth


def describe_login_needed(server: McpServer) -> str:
    return f"login needed: vaka mcp login {shlex.quote(server.name)}"


def describe_refusal(server: McpServer, status: int) -> str:
    """Return what to do about a server that answers with HTTP 401 or 403."""
    if not uses_login(server):
        return f"HTTP {status}: the server wants other credentials; set its header Authorization"
    if status == 401:
        return f"HTTP 401: {describe_login_needed(server)} (or set its header Authorization)"
    return f"HTTP 403: the login does not permit this; log in again: vaka mcp login {shlex.quote(server.name)}"
