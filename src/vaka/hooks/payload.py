"""The fields of a payload about a tool call, with results in the shapes that hooks written for Claude Code read."""

import os
import re
from collections.abc import Callable, Mapping
from typing import Any, cast

from vaka.core.types.message import Text, ToolCall, ToolResult, text_of

_PATH_FIELDS = {
    "Read": "file_path", "Write": "file_path", "Edit": "file_path", "MultiEdit": "file_path",
    "NotebookEdit": "notebook_path",
}  # fmt: skip
"""The arguments of file tools that hooks expect as absolute paths."""
_LINE_NUMBER = re.compile(r"^ *\d+\t", re.MULTILINE)


def call_fields(call: ToolCall, cwd: str) -> dict[str, Any]:
    """Return the fields of a call; the path of a file tool is absolute."""
    arguments, field = call.arguments, _PATH_FIELDS.get(call.name, "")
    if isinstance(path := arguments.get(field), str) and path:
        arguments = {**arguments, field: os.path.join(cwd, path)}  # noqa: PTH118  # a Path would change ".."
    return {"tool_name": call.name, "tool_input": arguments, "tool_use_id": call.id}


def tool_response(call: ToolCall, result: ToolResult, cwd: str) -> Any:
    """Return the result of a call as ``tool_response``.

    For built-in tools it has the fields of Claude Code besides those of vaka, for tools of servers it is the list of
    content blocks, and for other tools their value, or else their text.
    """
    if call.name.startswith("mcp__") and result.value is None:
        return [{"type": "text", "text": part.text} for part in result.content if isinstance(part, Text)]
    make = _SHAPES.get(call.name)
    if make is None:
        return result.text if result.value is None else result.value
    known: object = result.value
    value = cast("dict[str, Any]", known) if isinstance(known, dict) else {}
    return {**value, **make(call_fields(call, cwd)["tool_input"], result, value)}


def _bash(arguments: Mapping[str, Any], result: ToolResult, value: Mapping[str, Any]) -> dict[str, Any]:
    output = result.content[:-1] if "exit_code" in value else result.content  # the last part is about the exit
    return {
        "stdout": text_of(output), "stderr": "", "interrupted": result.reason in ("interrupted", "timeout"),
        "isImage": False,
    }  # fmt: skip


def _read(arguments: Mapping[str, Any], result: ToolResult, value: Mapping[str, Any]) -> dict[str, Any]:
    path = arguments.get("file_path")
    if "media_type" in value:
        return {"type": str(value["media_type"]).partition("/")[0], "file": {"filePath": path}}
    lines = value.get("returned_lines", 0)
    content = "\n".join(result.text.split("\n")[:lines]) if isinstance(lines, int) else result.text
    file = {
        "filePath": path, "content": _LINE_NUMBER.sub("", content), "numLines": lines,
        "startLine": value.get("offset", 1), "totalLines": value.get("total_lines"),
    }  # fmt: skip
    return {"type": "text", "file": file}


def _write(arguments: Mapping[str, Any], result: ToolResult, value: Mapping[str, Any]) -> dict[str, Any]:
    kind = "create" if value.get("created") else "update"
    return {
        "type": kind, "filePath": arguments.get("file_path"), "content": arguments.get("content", ""), "success": True,
    }  # fmt: skip


def _edit(arguments: Mapping[str, Any], result: ToolResult, value: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "filePath": arguments.get("file_path"), "oldString": arguments.get("old_string", ""),
        "newString": arguments.get("new_string", ""), "replaceAll": bool(arguments.get("replace_all")), "success": True,
    }  # fmt: skip


def _multi_edit(arguments: Mapping[str, Any], result: ToolResult, value: Mapping[str, Any]) -> dict[str, Any]:
    return {"filePath": arguments.get("file_path"), "edits": arguments.get("edits", []), "success": True}


def _notebook(arguments: Mapping[str, Any], result: ToolResult, value: Mapping[str, Any]) -> dict[str, Any]:
    return {"filePath": arguments.get("notebook_path"), "success": True}


def _glob(arguments: Mapping[str, Any], result: ToolResult, value: Mapping[str, Any]) -> dict[str, Any]:
    return {"filenames": value.get("files", []), "numFiles": value.get("count", 0)}


def _grep(arguments: Mapping[str, Any], result: ToolResult, value: Mapping[str, Any]) -> dict[str, Any]:
    found = {"mode": value.get("output_mode", ""), "numFiles": value.get("total_files", 0)}
    return {**found, "filenames": value.get("files", []), "content": result.text}


def _task(arguments: Mapping[str, Any], result: ToolResult, value: Mapping[str, Any]) -> dict[str, Any]:
    content = [{"type": "text", "text": result.text}]
    return {"status": "completed", "prompt": arguments.get("prompt", ""), "content": content}


_SHAPES: Mapping[str, Callable[[Mapping[str, Any], ToolResult, Mapping[str, Any]], dict[str, Any]]] = {
    "Bash": _bash, "Read": _read, "Write": _write, "Edit": _edit, "MultiEdit": _multi_edit, "NotebookEdit": _notebook,
    "Glob": _glob, "Grep": _grep, "Task": _task,
}  # fmt: skip
