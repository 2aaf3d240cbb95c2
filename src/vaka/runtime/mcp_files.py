"""The files that define MCP servers: read them, and add or remove a server in the file of a scope."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, cast

import msgspec

from vaka.config.claude_settings import (
    CLAUDE_STATE,
    MAX_STATE_BYTES,
    PROJECT_SERVERS,
    project_server_files,
    read_settings_text,
)
from vaka.config.claude_writer import edit_document, read_editable
from vaka.config.documents import parse_tolerant_json, read_errors
from vaka.config.settings import ConfigContext
from vaka.core.types.errors import ConfigError, InvalidInput, NotFound
from vaka.mcp.definition import is_entry

ServerScope = Literal["local", "project", "user"]
SCOPES: tuple[ServerScope, ...] = ("local", "project", "user")


def read_server_file(path: Path) -> tuple[object, str]:
    """Return a file of servers as data, and what is wrong with its JSON. Raises ``ConfigError``."""
    with read_errors(path):
        text = read_settings_text(path)
    return parse_tolerant_json(text if text.strip() else "{}", str(path))


def read_claude_state(path: Path) -> dict[str, Any]:
    """Return ``~/.claude.json``, ``{}`` when it does not exist. Raises ``ConfigError``."""
    with read_errors(path):
        try:
            text = read_settings_text(path, MAX_STATE_BYTES)
        except FileNotFoundError:
            return {}
    try:
        state: object = msgspec.json.decode(text or "{}")
    except msgspec.DecodeError as error:
        raise ConfigError(f"{path}: not JSON: {error}") from None
    if not isinstance(state, dict):
        raise ConfigError(f"{path}: expected an object")
    return cast("dict[str, Any]", state)


def list_scopes(context: ConfigContext, name: str) -> list[ServerScope]:
    """Return the scopes whose file has a server of that name. Raises ``ConfigError``."""
    return [scope for scope in SCOPES if name in _read_scope(context, scope)]


def add_server(context: ConfigContext, scope: ServerScope, name: str, entry: Mapping[str, Any]) -> Path:
    """Add a server to the file of a scope and return the file. Raises ``ConfigError`` and ``InvalidInput``."""
    path, keys = file_of_scope(context, scope)

    def add(document: dict[str, Any]) -> None:
        entries = _entries_of(document, keys, scope, create=True)
        if name in entries:
            raise InvalidInput(
                f"{path} has a server {name!r} already; remove it first: vaka mcp remove {name} --scope {scope}"
            )
        entries[name] = dict(entry)

    edit_document(path, add, MAX_STATE_BYTES)
    return path


def remove_server(context: ConfigContext, scope: ServerScope, name: str) -> Path:
    """Remove a server from the file of a scope and return the file. Raises ``ConfigError`` and ``NotFound``."""
    path, keys = file_of_scope(context, scope)

    def remove(document: dict[str, Any]) -> None:
        if _entries_of(document, keys, scope).pop(name, path) is path:
            raise NotFound(f"{path} has no server {name!r}")

    edit_document(path, remove, MAX_STATE_BYTES)
    return path


def file_of_scope(context: ConfigContext, scope: ServerScope) -> tuple[Path, tuple[str, ...]]:
    """Return the file of a scope, and the path of keys to the map of servers in it. Raises ``InvalidInput``."""
    state, root = context.home / CLAUDE_STATE, context.repository
    if scope == "user":
        return state, ("mcpServers",)
    if root == context.home:
        raise InvalidInput(f"{str(root)!r} is your home directory, not a project; use --scope user")
    if scope == "local":
        return state, ("projects", str(root), "mcpServers")
    nearest = [*project_server_files(context)][-1:]
    return (nearest or [root / PROJECT_SERVERS])[0], ("mcpServers",)


def _read_scope(context: ConfigContext, scope: ServerScope) -> dict[str, Any]:
    try:
        path, keys = file_of_scope(context, scope)
    except InvalidInput:
        return {}
    return _entries_of(read_editable(path, MAX_STATE_BYTES), keys, scope)


def _entries_of(
    document: dict[str, Any], keys: Sequence[str], scope: ServerScope, *, create: bool = False
) -> dict[str, Any]:
    """Return the map of servers in a document; a project's document may be that map itself."""
    if scope == "project" and "mcpServers" not in document and any(map(is_entry, document.values())):
        return document
    for key in keys:
        inner: object = document.get(key)
        if inner is not None and not isinstance(inner, dict):
            raise ConfigError(f"{key}: expected an object, so no server can be changed there")
        found = cast("dict[str, Any]", inner) if inner is not None else {}
        if create:
            document[key] = found
        document = found
    return document
