"""The fields of a payload about a tool call, with results in the shapes that hooks written for Claude Code read."""

import os
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias, cast

from vaka.core.types.message import Text, ToolCall, ToolResult, text_of
from vaka.core.types.traits import ToolTraits, find_builtin_traits

_CHILD_TOOL = "Task"
"""The tool that runs a child agent. Only its result has this shape, so its name decides."""
_LINE_NUMBER = re.compile(r"^ *\d+\t", re.MULTILINE)


def call_fields(call: ToolCall, cwd: str, traits: ToolTraits) -> dict[str, Any]:
    """Return the fields of a call; the paths of files are absolute."""
    arguments, named = call.arguments, {name: call.arguments.get(name) for name in traits.paths}
    absolute = {
        name: os.path.join(cwd, path)  # noqa: PTH118  # a Path would change ".."
        for name, path in named.items()
        if isinstance(path, str) and path
    }
    return {"tool_name": call.name, "tool_input": {**arguments, **absolute}, "tool_use_id": call.id}


def tool_response(call: ToolCall, result: ToolResult, cwd: str) -> Any:
    """Return the result of a call as ``tool_response``.

    For built-in tools it has the fields of Claude Code and of vaka. For tools of servers it is the list of content
    blocks, and for other tools their value, or else their text.
    """
    if call.name.startswith("mcp__") and result.value is None:
        return [{"type": "text", "text": part.text} for part in result.content if isinstance(part, Text)]
    traits = find_builtin_traits(call.name)
    describe = _describe_child if call.name == _CHILD_TOOL else _find_shape(traits)
    if describe is None:
        return result.text if result.value is None else result.value
    known: object = result.value
    value = cast("dict[str, Any]", known) if isinstance(known, dict) else {}
    arguments: dict[str, Any] = call_fields(call, cwd, traits)["tool_input"]
    path = next((arguments[name] for name in traits.paths if arguments.get(name)), None)
    return {**value, **describe(_Outcome(traits, arguments, path, result, value))}


class _Outcome(NamedTuple):
    """A call of a built-in tool with its result."""

    traits: ToolTraits
    arguments: Mapping[str, Any]
    path: Any
    """The file that the arguments name."""
    result: ToolResult
    value: Mapping[str, Any]


_Shape: TypeAlias = Callable[[_Outcome], dict[str, Any]]


def _find_shape(traits: ToolTraits) -> _Shape | None:
    """Return the shape in which Claude Code reports results of a tool with these traits."""
    shapes: tuple[tuple[object, _Shape], ...] = (
        (traits.command, _describe_command),
        (traits.content, _describe_written),
        (traits.replacements, _describe_edits),
        (traits.replacement, _describe_edit),
        (traits.writes and traits.paths, _describe_changed),
        (traits.paths, _describe_read),
        (traits.pattern, _describe_names),
        (traits.folders, _describe_search),
    )
    return next((shape for is_so, shape in shapes if is_so), None)


def _describe_command(outcome: _Outcome) -> dict[str, Any]:
    content = outcome.result.content
    output = content[:-1] if "exit_code" in outcome.value else content  # the last part is about the exit
    is_interrupted = outcome.result.reason in ("interrupted", "timeout")
    return {"stdout": text_of(output), "stderr": "", "interrupted": is_interrupted, "isImage": False}


def _describe_read(outcome: _Outcome) -> dict[str, Any]:
    value, text = outcome.value, outcome.result.text
    if "media_type" in value:
        return {"type": str(value["media_type"]).partition("/")[0], "file": {"filePath": outcome.path}}
    lines = value.get("returned_lines", 0)
    content = "\n".join(text.split("\n")[:lines]) if isinstance(lines, int) else text
    file = {
        "filePath": outcome.path,
        "content": _LINE_NUMBER.sub("", content),
        "numLines": lines,
        "startLine": value.get("offset", 1),
        "totalLines": value.get("total_lines"),
    }
    return {"type": "text", "file": file}


def _describe_written(outcome: _Outcome) -> dict[str, Any]:
    kind = "create" if outcome.value.get("created") else "update"
    content = outcome.arguments.get(outcome.traits.content, "")
    return {"type": kind, "filePath": outcome.path, "content": content, "success": True}


def _describe_edit(outcome: _Outcome) -> dict[str, Any]:
    old, new = (outcome.arguments.get(name, "") for name in outcome.traits.replacement)
    replaces_all = bool(outcome.arguments.get("replace_all"))
    return {"filePath": outcome.path, "oldString": old, "newString": new, "replaceAll": replaces_all, "success": True}


def _describe_edits(outcome: _Outcome) -> dict[str, Any]:
    edits = outcome.arguments.get(outcome.traits.replacements, [])
    return {"filePath": outcome.path, "edits": edits, "success": True}


def _describe_changed(outcome: _Outcome) -> dict[str, Any]:
    return {"filePath": outcome.path, "success": True}


def _describe_names(outcome: _Outcome) -> dict[str, Any]:
    return {"filenames": outcome.value.get("files", []), "numFiles": outcome.value.get("count", 0)}


def _describe_search(outcome: _Outcome) -> dict[str, Any]:
    value = outcome.value
    found = {"mode": value.get("output_mode", ""), "numFiles": value.get("total_files", 0)}
    return {**found, "filenames": value.get("files", []), "content": outcome.result.text}


def _describe_child(outcome: _Outcome) -> dict[str, Any]:
    content = [{"type": "text", "text": outcome.result.text}]
    return {"status": "completed", "prompt": outcome.arguments.get("prompt", ""), "content": content}
