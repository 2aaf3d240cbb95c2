"""The settings tables of the server: ``[server]`` and ``[features]``."""

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeAlias, cast

import msgspec

from vaka.config.documents import suggest
from vaka.config.model_tables import InvalidTable
from vaka.core.types.keywords import Flag

FEATURE_NAMES = (
    "a2a",
    "agui",
    "ai_sdk",
    "anthropic_compat",
    "debug_api",
    "mcp",
    "openai_compat",
    "tracing",
    "ui",
    "websocket",
)
"""What a server offers besides its own API; all are on by default."""

_HOST_NAME = re.compile(r"\*|[a-z0-9_.-]+|[0-9a-f:.]+")
_PUBLIC_URL = re.compile(r"https?://[^/?#@\sA-Z]+(/[^?#\s]*)?")
_ORIGIN = re.compile(r"\*|[a-z][a-z0-9+.-]*://[^/\sA-Z]+")
_Positive: TypeAlias = Annotated[int, msgspec.Meta(ge=1)]
_Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
_Seconds: TypeAlias = Annotated[float, msgspec.Meta(gt=0)]


class JwtTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """``[server.jwt]``: which tokens of another issuer count."""

    issuer: str
    audience: str
    jwks: str = ""
    """The keys of the issuer: a file, or an https address."""
    secret_env: str = ""
    """The variable with the secret of HS256 tokens, in place of ``jwks``."""
    algorithms: tuple[str, ...] = ()
    tenant_claim: str = ""
    """The claim that names the tenant; without it all callers share the default namespace."""
    scope_claim: str = ""
    own_sessions_only: bool = True
    allow_operator: bool = False
    """Whether the scopes ``operator`` and ``debug`` of a token count; else no token has them."""


class WorkspacesTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """``[server.workspaces]``: the folders in which file tools and commands of tenants work."""

    root: str = ""
    """The folder in which each tenant gets a folder of its own."""
    tenants: dict[str, str] = {}
    """The folders of single tenants."""


class ServerTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """``[server]``; docs/guides/server.md says what each key means. The marked ones are flags of ``vaka serve``."""

    host: Annotated[
        str, Flag("--host", "The address to listen on (default: 127.0.0.1, this machine only).", metavar="ADDRESS")
    ] = "127.0.0.1"
    port: Annotated[
        int,
        msgspec.Meta(ge=0, le=65535),
        Flag("--port", "The port to listen on (default: 8321; 0: a free one)."),
    ] = 8321
    workers: Annotated[int, msgspec.Meta(ge=1), Flag("--workers", "Processes that answer requests (default: 1).")] = 1
    hosts: Annotated[
        tuple[str, ...],
        Flag(
            "--allow-hostname",
            "A host name that requests may use besides the name of --host; may be repeated.",
            metavar="NAME",
        ),
    ] = ()
    origins: Annotated[
        tuple[str, ...], Flag("--origin", "A web origin that may call the server; may be repeated.", metavar="URL")
    ] = ()
    public_url: str = ""
    max_body_mib: _Positive = 10
    requests_per_minute: _Count = 600
    burst: _Positive = 100
    concurrent_turns: _Count = 200
    max_streams: _Positive = 5000
    streams_per_credential: _Count = 100
    drain_seconds: _Seconds = 10.0
    access_log: bool = True
    jwt: JwtTable | None = None
    workspaces: WorkspacesTable = WorkspacesTable()


def check_server(value: object) -> dict[str, Any]:
    """Return ``[server]`` checked. Raises ``InvalidTable``."""
    table = _require_known_keys(value, ServerTable.__struct_fields__)
    if "jwt" in table:
        _require_known_keys(table["jwt"], JwtTable.__struct_fields__, "jwt")
    if "workspaces" in table:
        _require_known_keys(table["workspaces"], WorkspacesTable.__struct_fields__, "workspaces")
    try:
        server = msgspec.convert(table, ServerTable)
    except msgspec.ValidationError as error:
        words, _, place = str(error).partition(" - at `$")
        at = [part for part in re.split(r"[.\[\]`]+", place) if part]
        raise InvalidTable(words[:1].lower() + words[1:], *at, part=tuple(at)) from None
    check_names(server)
    return {name: getattr(server, name) for name in table}


def check_names(server: ServerTable) -> None:
    """Check names that are compared with the headers of requests. Raises ``InvalidTable``."""
    for name in server.hosts:
        if not _HOST_NAME.fullmatch(name):
            raise InvalidTable(f"expected a name such as agents.example.com, without port, not {name!r}", "hosts")
    for origin in server.origins:
        if not _ORIGIN.fullmatch(origin):
            raise InvalidTable(f"expected an origin such as https://app.example.com, not {origin!r}", "origins")
    if server.public_url and not _PUBLIC_URL.fullmatch(server.public_url):
        expected = "an address such as https://agents.example.com, in small letters"
        raise InvalidTable(f"expected {expected}, not {server.public_url!r}", "public_url")


def check_features(value: object) -> dict[str, bool]:
    """Return ``[features]`` checked. Raises ``InvalidTable``."""
    table = _require_known_keys(value, FEATURE_NAMES)
    for name, on in table.items():
        if not isinstance(on, bool):
            raise InvalidTable(f"expected true or false, not {on!r}", name)
    return table


SERVER_TABLE_CHECKS: dict[str, Callable[[object], Mapping[str, Any]]] = {
    "server": check_server,
    "features": check_features,
}


def _require_known_keys(value: object, known: tuple[str, ...], *at: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InvalidTable(f"expected a table, not {type(value).__name__}", *at)
    table = cast("dict[str, Any]", value)
    for name in table:
        if name not in known:
            raise InvalidTable(f"unknown key {name!r}; {suggest(name, known)}", *at, part=(*at, name))
    return table
