"""``ServerSettings``: addresses, limits and features of a server."""

import msgspec

from vaka.config.server_tables import FEATURE_NAMES
from vaka.server.workspaces import WorkspaceSettings

MIB = 1024 * 1024


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a server listens, what it offers, and how much one caller may use."""

    features: frozenset[str] = frozenset(FEATURE_NAMES)
    """If a feature is off, its routes do not exist and its modules are not imported."""
    hosts: tuple[str, ...] = ("localhost", "127.0.0.1", "::1")
    """The names in ``Host`` that requests may have, without a port; ``*`` accepts all."""
    origins: tuple[str, ...] = ()
    """The origins of pages that may call the server, such as ``https://app.example``; its own is always allowed."""
    public_url: str = ""
    """The address of the server for its clients, in cards of agents and links to the console; default: as requested.

    Requests may name its host, and pages of its origin may call the server.
    """
    max_body_bytes: int = 10 * MIB
    body_timeout: float = 30.0
    """Seconds within which the body of a request must arrive."""
    heartbeat: float = 10.0
    """Seconds without an event after which a stream sends a comment."""
    stall_timeout: float = 60.0
    """Seconds that a stream waits for a client that does not read, before it closes the connection."""
    socket_heartbeat: float = 20.0
    """Seconds of silence after which a WebSocket client is asked for a sign of life; after three times it is closed."""
    socket_auth_seconds: float = 5.0
    """Seconds that a WebSocket client without credentials has to send a token."""
    max_subscriptions: int = 100
    """Subscriptions of one WebSocket."""
    requests_per_minute: int = 600
    """Requests of one credential; 0: no limit."""
    burst: int = 100
    concurrent_turns: int = 200
    """Turns of one credential that run at the same time; 0: no limit."""
    max_streams: int = 5000
    """Open streams and sockets of the process."""
    workers: int = 1
    """Processes that answer at the same address; each request of a client may reach another one."""
    streams_per_credential: int = 100
    """Open streams and sockets of one credential, and subscriptions of its sockets together; 0: no limit."""
    sweep_seconds: float = 5.0
    """Seconds between two searches for unfinished turns that no process runs; 0: only at the start."""
    credential_seconds: float = 5.0
    """Seconds between two checks of the credentials that opened the streams and sockets."""
    workspaces: WorkspaceSettings = WorkspaceSettings()
    """Where file tools and commands of tenants work; by default they are off for all but the default tenant."""
    private_folders: tuple[str, ...] = ()
    """Folders that no command of a tenant may see, for example of settings and stores. The server masks its own too."""
    drain_seconds: float = 10.0
    """Seconds that running turns get to end when the server stops; the others go on at the next start."""
