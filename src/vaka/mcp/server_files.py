"""The files that define MCP servers: add or remove a server in the file of a scope."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, cast

from vaka.core.types.errors import ConfigError, InvalidInput, NotFound
from vaka.mcp.definition import is_entry
from vaka.mcp.settings import McpSettings

ServerScope = Literal["local", "project", "user"]
SCOPES: tuple[ServerScope, ...] = ("local", "project", "user")


def list_scopes(settings: McpSettings, name: str) -> list[ServerScope]:
    """Return the scopes whose file has a server of that name. Raises ``ConfigError``."""
    return [scope for scope in SCOPES if name in _read_scope(settings, scope)]


def add_server(settings: McpSettings, scope: ServerScope, name: str, entry: Mapping[str, Any]) -> Path:
    """Add a server to the file of a scope and return the file. Raises ``ConfigError`` and ``InvalidInput``."""
    path, keys = file_of_scope(settings, scope)

    def add(document: dict[str, Any]) -> None:
        entries = _entries_of(document, keys, scope, create=True)
        if name in entries:
            raise InvalidInput(
                f"{path} has a server {name!r} already; remove it first: vaka mcp remove {name} --scope {scope}"
            )
        entries[name] = dict(entry)

    settings.edit(path, add)
    return path


def remove_server(settings: McpSettings, scope: ServerScope, name: str) -> Path:
    """Remove a server from the file of a scope and return the file. Raises ``ConfigError`` and ``NotFound``."""
    path, keys = file_of_scope(settings, scope)

    def remove(document: dict[str, Any]) -> None:
        if _entries_of(document, keys, scope).pop(name, path) is path:
            raise NotFound(f"{path} has no server {name!r}")

    settings.edit(path, remove)
    return path


def file_of_scope(settings: McpSettings, scope: ServerScope) -> tuple[Path, tuple[str, ...]]:
    """Return the file of a scope, and the path of keys to the map of servers in it. Raises ``InvalidInput``."""
    state, root = settings.state_file, settings.repository
    if scope == "user":
        return state, ("mcpServers",)
    if root == settings.home:
        raise InvalidInput(f"{str(root)!r} is your home directory, not a project; use --scope user")
    if scope == "local":
        return state, ("projects", str(root), "mcpServers")
    nearest = [*settings.shared_files()][-1:]
    return (nearest or [root / settings.shared_name])[0], ("mcpServers",)


def _read_scope(settings: McpSettings, scope: ServerScope) -> dict[str, Any]:
    try:
        path, keys = file_of_scope(settings, scope)
    except InvalidInput:
        return {}
    return _entries_of(settings.read_editable(path), keys, scope)


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
