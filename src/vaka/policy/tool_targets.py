"""What each built-in tool works on: which of its arguments the rules look at, and as what."""

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal, TypeAlias, cast

import msgspec

from vaka.core.types.tool import ToolSpec
from vaka.policy.decision import AccessKind

TargetKind: TypeAlias = Literal["command", "read", "search", "edit", "url", "words", "none"]
"""What a tool's main argument is: a command, a file to read, a folder to search, a file to change, a URL, or a name."""


class ToolTargets(msgspec.Struct, frozen=True):
    """A built-in tool as the rules know it."""

    target_kind: TargetKind
    main_arguments: tuple[str, ...] = ()
    """The arguments that say what the call works on; when several are given, each counts."""
    access: AccessKind = "change"
    other_arguments: tuple[str, ...] = ()
    """Further arguments that a rule may name, as in ``Grep(output_mode:content)``."""


_TASK_ID_ARGUMENTS = ("taskId", "task_id", "id")

_SHELL_ID_ARGUMENTS = ("task_id", "bash_id", "shell_id")

_SEARCH_ARGUMENTS = ("output_mode", "glob", "type", "multiline", "head_limit", "offset", "context_lines")

BUILTIN_TOOLS: Mapping[str, ToolTargets] = {
    "Bash": ToolTargets("command", ("command",), "change", ("run_in_background", "async", "workdir", "sandbox")),
    "Read": ToolTargets("read", ("file_path", "path"), "read", ("offset", "limit", "pages")),
    "NotebookRead": ToolTargets("read", ("notebook_path", "file_path", "path"), "read"),
    "LS": ToolTargets("search", ("path",), "read"),
    "Glob": ToolTargets("search", ("path",), "read", ("pattern",)),
    "Grep": ToolTargets("search", ("path",), "read", ("pattern", *_SEARCH_ARGUMENTS)),
    "Write": ToolTargets("edit", ("file_path", "path"), "edit", ("content",)),
    "Edit": ToolTargets("edit", ("file_path", "path"), "edit", ("old_string", "new_string", "replace_all")),
    "MultiEdit": ToolTargets("edit", ("file_path", "path"), "edit"),
    "NotebookEdit": ToolTargets("edit", ("notebook_path", "file_path", "path"), "edit", ("edit_mode", "cell_type")),
    "WebFetch": ToolTargets("url", ("url",), "reach", ("url", "prompt")),
    "WebSearch": ToolTargets("words", ("query",), "reach", ("query",)),
    "Task": ToolTargets(
        "words", ("subagent_type",), "note", ("subagent_type", "model", "resume", "description", "prompt")
    ),
    "Skill": ToolTargets("words", ("command", "skill"), "change", ("args",)),
    "SlashCommand": ToolTargets("words", ("command",), "change"),
    "BashOutput": ToolTargets("words", _SHELL_ID_ARGUMENTS, "note", _SHELL_ID_ARGUMENTS),
    "BashStatus": ToolTargets("words", _SHELL_ID_ARGUMENTS, "note", _SHELL_ID_ARGUMENTS),
    "KillTask": ToolTargets("words", _SHELL_ID_ARGUMENTS, "note", _SHELL_ID_ARGUMENTS),
    "KillShell": ToolTargets("words", _SHELL_ID_ARGUMENTS, "note", _SHELL_ID_ARGUMENTS),
    "TodoWrite": ToolTargets("none", (), "note"),
    "DMail": ToolTargets("none", (), "note"),
    "TaskCreate": ToolTargets("none", (), "note"),
    "TaskGet": ToolTargets("words", _TASK_ID_ARGUMENTS, "note", _TASK_ID_ARGUMENTS),
    "TaskList": ToolTargets("none", (), "note"),
    "TaskUpdate": ToolTargets("words", _TASK_ID_ARGUMENTS, "note", (*_TASK_ID_ARGUMENTS, "status", "owner", "delete")),
    "AskUserQuestion": ToolTargets("none", (), "note"),
    "ExitPlanMode": ToolTargets("none", (), "note"),
    "PowerShell": ToolTargets("words", ("command",), "change"),
}

FOREIGN_TOOLS = frozenset({
    "Monitor", "LSP", "ToolSearch", "TodoRead", "KillBash", "TaskOutput", "TaskStop", "AgentOutputTool",
    "EnterPlanMode", "EnterWorktree", "ExitWorktree", "ListMcpResourcesTool", "ReadMcpResourceTool", "StructuredOutput",
    "SendMessage", "TeamCreate", "TeamDelete", "Workflow", "CronCreate", "CronDelete", "CronList",
})  # fmt: skip
"""Tools of others that rules name, and that are no slip of the pen."""

READ_TOOLS = frozenset(name for name, known in BUILTIN_TOOLS.items() if known.target_kind in ("read", "search"))

EDIT_TOOLS = frozenset(name for name, known in BUILTIN_TOOLS.items() if known.target_kind == "edit")

_TOOL_ALIASES = {"Agent": "Task"} | {name.lower(): name for name in BUILTIN_TOOLS}

_WILDCARDS = frozenset("*?[{\\")

_UNKNOWN_TOOL = ToolTargets("none")


def builtin_name_of(name: str) -> str:
    """Return what a built-in tool is called here, also for another name of it; anything else as it is."""
    return _TOOL_ALIASES.get(name, name)


def targets_of(name: str) -> ToolTargets:
    """Return how the rules look at a tool; of one that is not built in they know nothing."""
    return BUILTIN_TOOLS.get("Task" if name == "Agent" else name, _UNKNOWN_TOOL)


def read_targets(tool: ToolTargets, arguments: Mapping[str, Any]) -> list[str]:
    """Return what a call says it works on. Raises ``ValueError`` when it says something that is no text."""
    return [_require_text(name, arguments[name]) for name in tool.main_arguments if arguments.get(name) is not None]


def list_search_folders(tool: str, arguments: Mapping[str, Any]) -> Iterator[str]:
    """Yield the folders a search looks into. Raises ``ValueError`` when a pattern may lead out of them unseen."""
    bases = read_targets(targets_of(tool), arguments) or ["."]
    pattern = _require_text("pattern", arguments.get("pattern", "")) if tool == "Glob" else ""
    start = _literal_prefix(pattern)
    if start.startswith("~"):
        yield start
    for base in bases:
        yield os.path.join(base, start)  # noqa: PTH118  # text, not a file


def _require_text(name: str, value: object) -> str:
    if isinstance(value, str):
        return value
    raise ValueError(f"{name} is {type(value).__name__}, not a text")


def _literal_prefix(pattern: str) -> str:
    """Return the folders at the start of a glob pattern that are written out."""
    parts = pattern.split("/")
    plain = next((at for at, part in enumerate(parts) if _WILDCARDS & set(part)), len(parts) - 1)
    loose = [part for part in parts[plain:] if ".." in part]
    if loose or re.search(r"[{,][/~]", pattern):
        raise ValueError("the pattern may lead out of its folder")
    return "/".join(parts[:plain]) or ("/" if pattern.startswith("/") else "")


def argument_values_of(arguments: Mapping[str, Any], field: str, schema: Mapping[str, Any]) -> list[str]:
    """Return what an argument is, as texts that a rule can be held against; of a list each item, too."""
    value: Any = arguments.get(field)
    if field not in arguments:
        properties: Any = schema.get("properties", {})
        of_field: Any = cast("dict[str, Any]", properties).get(field) if isinstance(properties, dict) else None
        if not isinstance(of_field, dict) or "default" not in of_field:
            return []
        value = cast("dict[str, Any]", of_field)["default"]
    items: list[Any] = [*value] if isinstance(value, list) else [value]
    return [item if isinstance(item, str) else msgspec.json.encode(item).decode() for item in items]


def spec_of(name: str) -> ToolSpec:
    """Return what the rules need to know of a tool of which only the name is known."""
    of_name = BUILTIN_TOOLS.get("Task" if name == "Agent" else name)
    if of_name is None:
        return ToolSpec(name=name, layer="mcp" if name.startswith("mcp__") else "")
    return ToolSpec(name=name, layer="builtin", effect="read" if of_name.access in ("read", "reach") else "once")


def is_command_tool(spec: ToolSpec) -> bool:
    return targets_of(builtin_name_of(spec.name)).target_kind == "command"


def access_of(spec: ToolSpec, tool: ToolTargets) -> AccessKind:
    """Return what a call of the tool does; what a stranger's server says of its own tools does not count."""
    if spec.layer == "builtin" and builtin_name_of(spec.name) in BUILTIN_TOOLS:
        return tool.access
    return "read" if spec.effect == "read" and not (spec.layer == "mcp" or spec.name.startswith("mcp__")) else "change"


def raise_missing_target(tool: ToolTargets) -> str:
    raise ValueError(f"expected {' or '.join(tool.main_arguments)}")
