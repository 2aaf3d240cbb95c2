"""Tool calls in the Agent Client Protocol: title, kind, files and changes."""

import posixpath
from collections.abc import Iterator, Mapping
from typing import Any, Literal, TypeAlias

from vaka.core.types.message import ToolCall
from vaka.views.acp.content import JsonObject, without_empty
from vaka.views.media import as_object, is_list

ToolKind: TypeAlias = Literal[
    "read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode", "other"
]

TOOL_KINDS: dict[str, ToolKind] = {
    "Read": "read", "BashOutput": "read", "BashStatus": "read", "Write": "edit", "Edit": "edit", "MultiEdit": "edit",
    "NotebookEdit": "edit", "Glob": "search", "Grep": "search", "WebFetch": "fetch", "WebSearch": "fetch",
    "Bash": "execute", "KillTask": "execute", "TodoWrite": "think", "TaskCreate": "think", "TaskGet": "think",
    "TaskList": "think", "TaskUpdate": "think",
}  # fmt: skip
"""The kinds of the built-in tools. Child agents are ``think``, other tools ``read`` or ``other`` by their effect."""

_TARGETS = ("command", "file_path", "notebook_path", "path", "pattern", "url", "query")
"""The arguments that a title shows, the first one that a call has."""
_PATHS = ("file_path", "notebook_path", "path")
_TITLE_LENGTH = 120


def describe_call(
    call: ToolCall, *, effect: str = "", root: str = "", kinds: Mapping[str, ToolKind] = TOOL_KINDS
) -> JsonObject:
    """Return a call as the fields of a ``tool_call``: title, kind, input, files, and the change of an edit.

    ``root`` is the folder that relative paths start from.
    """
    given = call.arguments
    target = next((given[name] for name in _TARGETS if isinstance(given.get(name), str) and given[name]), "")
    return without_empty(
        {
            "toolCallId": call.id,
            "title": shorten(f"{call.name} {target}"),
            "kind": kinds.get(call.name) or ("read" if effect == "read" else "other"),
            "rawInput": given if given or not call.raw else call.raw,
            "locations": [{"path": path} for path in _paths_of(call, root)],
            "content": list(_diffs_of(call, root)),
        }
    )


def shorten(text: str) -> str:
    title = " ".join(text.split())
    return title if len(title) <= _TITLE_LENGTH else f"{title[: _TITLE_LENGTH - 1]}…"


def _paths_of(call: ToolCall, root: str) -> Iterator[str]:
    for name in _PATHS:
        path = call.arguments.get(name)
        if isinstance(path, str) and path:
            yield posixpath.join(root, path)


def _diffs_of(call: ToolCall, root: str) -> Iterator[JsonObject]:
    """Return the changes that a call of a built-in editing tool makes."""
    given, path = call.arguments, next(_paths_of(call, root), "")
    edits: Any = {"Write": [given], "Edit": [given], "MultiEdit": given.get("edits")}.get(call.name)
    for edit in edits if is_list(edits) and path else ():
        old, new = as_object(edit).get("old_string"), as_object(edit).get("new_string")
        if call.name == "Write":
            old, new = None, given.get("content")
        if isinstance(new, str) and (old is None or isinstance(old, str)):
            yield {"type": "diff", "path": path, "oldText": old, "newText": new}
