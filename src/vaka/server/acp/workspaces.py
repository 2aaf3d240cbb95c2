"""Where the sessions of a client work: what a request says about it, and the runtime that is made for it."""

import os
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import msgspec

from vaka.agents.react import Agent
from vaka.core.ports.store import Store
from vaka.core.types.control import RunSettings
from vaka.core.types.errors import InvalidInput
from vaka.runtime.runtime import Runtime
from vaka.server.json_rpc import JsonObject
from vaka.views.media import as_object, is_list, read_field

MODES = {
    "default": ("Default", "Asks before a call that no rule allows."),
    "acceptEdits": ("Accept edits", "Allows edits of files in the workspace, and asks before other calls."),
    "plan": ("Plan", "Reads only, and makes a plan."),
    "dontAsk": ("Don't ask", "Refuses calls that no rule allows, without a question."),
    "bypassPermissions": ("Bypass permissions", "Allows every call that no rule forbids."),
}


class AcpPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Where a session works, and the MCP servers that the client gives it."""

    folder: str
    directories: tuple[str, ...] = ()
    servers: dict[str, JsonObject] = {}
    """The entries of ``mcpServers`` by their names, as in ``.mcp.json``."""


class AcpWorkspace(msgspec.Struct, kw_only=True):
    """The runtime of one session, made from the settings of its folder, and what the client may choose in it."""

    runtime: Runtime
    agent: Agent
    run_settings: RunSettings | None = None
    models: tuple[str, ...] = ()
    """The models that a turn may use in place of the agent's own."""
    commands: Mapping[str, str] = {}
    """The slash commands of the project, with their descriptions."""
    set_mode: Callable[[str], None] = lambda mode: None
    find_mode: Callable[[], str] = lambda: "default"


class AcpWorkspaces(Protocol):
    """Makes the runtimes of sessions."""

    def open(self, place: AcpPlace) -> AcpWorkspace:
        """Return a new workspace; the caller closes its runtime. Raises ``VakaError``."""
        ...

    def find_store(self, folder: str = "") -> Store:
        """Return the store of the sessions of a folder, by default the current one. Raises ``VakaError``."""
        ...


def describe_options(workspace: AcpWorkspace, model: str) -> list[JsonObject]:
    """Return the options of a session; ``model`` is the chosen one, ``""`` for the agent's own."""
    modes = [{"value": id, "name": name, "description": about} for id, (name, about) in MODES.items()]
    options: list[JsonObject] = [
        {
            "id": "mode",
            "name": "Permission mode",
            "category": "mode",
            "type": "select",
            "currentValue": workspace.find_mode(),
            "options": modes,
        }
    ]
    if len(workspace.models) > 1:
        models = [{"value": name, "name": name} for name in workspace.models]
        options.append(
            {
                "id": "model",
                "name": "Model",
                "category": "model",
                "type": "select",
                "currentValue": model or workspace.models[0],
                "options": models,
            }
        )
    return options


def choose_mode(workspace: AcpWorkspace, mode: str) -> str:
    """Change the permission mode, also of a turn that runs, and return it. Raises ``InvalidInput``."""
    if mode not in MODES:
        raise InvalidInput(f"there is no mode {mode!r}; there are {', '.join(MODES)}")
    before = workspace.find_mode()
    workspace.set_mode(mode)
    if workspace.find_mode() != mode:
        workspace.set_mode(before)
        raise InvalidInput(f"the settings do not allow the mode {mode!r} here")
    return mode


def read_place(params: JsonObject) -> AcpPlace:
    """Return the place that a request names. Raises ``InvalidInput``."""
    folder = _read_folder(read_field(params, "cwd", "params"), "cwd")
    further: Any = params.get("additionalDirectories") or []
    if not is_list(further) or not all(isinstance(path, str) for path in further):
        raise InvalidInput("params: 'additionalDirectories' must be a list of paths")
    directories = tuple(_read_folder(path, "additionalDirectories") for path in further)
    return AcpPlace(folder=folder, directories=directories, servers=_read_servers(params.get("mcpServers") or []))


def _read_folder(path: str, name: str) -> str:
    if not os.path.isabs(path):  # noqa: PTH117  # texts of the protocol
        raise InvalidInput(f"params: {name!r} must be an absolute path, not {path!r}")
    if not os.path.isdir(path):  # noqa: PTH112
        raise InvalidInput(f"params: {name!r}: there is no folder {path!r}")
    return os.path.realpath(path)


def _read_servers(entries: Any) -> dict[str, JsonObject]:
    """Return the MCP servers of a client as the entries of ``.mcp.json``."""
    servers: dict[str, JsonObject] = {}
    if not is_list(entries):
        raise InvalidInput("params: 'mcpServers' must be a list")
    for at, entry in enumerate(entries):
        place = f"mcpServers[{at}]"
        name, kind = read_field(entry, "name", place), as_object(entry).get("type", "stdio")
        if name in servers:
            raise InvalidInput(f"{place}: there are two servers named {name!r}")
        if kind == "stdio":
            args: Any = entry.get("args") or []
            servers[name] = {"command": read_field(entry, "command", place), "args": args}
            servers[name]["env"] = _read_pairs(entry.get("env") or [], f"{place}.env")
        elif kind in ("http", "sse"):
            headers = _read_pairs(entry.get("headers") or [], f"{place}.headers")
            servers[name] = {"type": kind, "url": read_field(entry, "url", place), "headers": headers}
        else:
            raise InvalidInput(f"{place}: a server of the type {kind!r} cannot be used; use stdio, http or sse")
    return servers


def _read_pairs(pairs: Any, place: str) -> dict[str, str]:
    if not is_list(pairs):
        raise InvalidInput(f"{place} must be a list of objects with name and value")
    return {read_field(pair, "name", place): read_field(pair, "value", place) for pair in pairs}
