"""Tool calls in the Agent Client Protocol: title, kind, files and changes."""

import posixpath
from collections.abc import Iterator, Mapping
from typing import Any, Literal, TypeAlias

from vaka.core.types.message import ToolCall
from vaka.core.types.traits import NO_TRAITS, ToolTraits, find_builtin_traits
from vaka.views.acp.content import JsonObject, without_empty
from vaka.views.media import as_object, is_list

ToolKind: TypeAlias = Literal[
    "read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode", "other"
]

_TARGETS = ("command", "file_path", "notebook_path", "path", "pattern", "url", "query")
"""The arguments that the title shows of a call whose tool has no traits, or does not have those: the first one."""
_PATHS = ("file_path", "notebook_path", "path")
"""The arguments of a tool without traits that are taken for paths."""
_TITLE_LENGTH = 120


def describe_call(
    call: ToolCall,
    *,
    effect: str = "",
    root: str = "",
    kinds: Mapping[str, ToolKind] | None = None,
    traits: Mapping[str, ToolTraits] | None = None,
) -> JsonObject:
    """Return a call as the fields of a ``tool_call``: title, kind, input, files, and the change of an edit.

    ``root`` is the folder that relative paths start from. ``traits`` and ``kinds`` are about tools that are not built
    in, by name; without a kind, the traits decide, and without traits the effect.
    """
    given, known = call.arguments, (traits or {}).get(call.name) or find_builtin_traits(call.name)
    names = (*known.main_arguments, *_TARGETS)
    target = next((given[name] for name in names if isinstance(given.get(name), str) and given[name]), "")
    return without_empty(
        {
            "toolCallId": call.id,
            "title": shorten(f"{call.name} {target}"),
            "kind": (kinds or {}).get(call.name) or _kind_of(known, effect),
            "rawInput": given if given or not call.raw else call.raw,
            "locations": [{"path": path} for path in _paths_of(call, known, root)],
            "content": list(_diffs_of(call, known, root)),
        }
    )


def _kind_of(traits: ToolTraits, effect: str) -> ToolKind:
    if traits.writes:
        return "edit"
    if traits.folders:
        return "search"
    if traits.command or (traits.commands and traits.session):
        return "execute"
    if traits.network:
        return "fetch"
    if traits.session and not traits.reads:
        return "think"
    return "read" if traits.reads or effect == "read" else "other"


def shorten(text: str) -> str:
    title = " ".join(text.split())
    return title if len(title) <= _TITLE_LENGTH else f"{title[: _TITLE_LENGTH - 1]}…"


def _paths_of(call: ToolCall, traits: ToolTraits, root: str) -> Iterator[str]:
    for name in _PATHS if traits == NO_TRAITS else (*traits.paths, *traits.folders):
        path = call.arguments.get(name)
        if isinstance(path, str) and path:
            yield posixpath.join(root, path)


def _diffs_of(call: ToolCall, traits: ToolTraits, root: str) -> Iterator[JsonObject]:
    """Return the changes that a call makes to its file."""
    given, path = call.arguments, next(_paths_of(call, traits, root), "")
    for old, new in _changes_of(given, traits) if path else ():
        if isinstance(new, str) and (old is None or isinstance(old, str)):
            yield {"type": "diff", "path": path, "oldText": old, "newText": new}


def _changes_of(given: Mapping[str, Any], traits: ToolTraits) -> Iterator[tuple[object, object]]:
    """Return each former passage and its replacement; the whole new content has no former one."""
    if traits.content:
        yield None, given.get(traits.content)
    elif traits.replacement:
        old, new = traits.replacement
        edits: Any = given.get(traits.replacements) if traits.replacements else [given]
        for edit in map(as_object, edits if is_list(edits) else ()):
            yield edit.get(old), edit.get(new)
