"""What each built-in tool works on: which of its arguments the rules look at, and as what."""

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal, TypeAlias, cast

import msgspec

from vaka.core.types.tool import ToolSpec
from vaka.policy.modes import Act

About: TypeAlias = Literal["command", "read", "search", "edit", "url", "words", "none"]
"""What a tool's main argument is: a command, a file to read, a folder to search, a file to change, a URL, or a name."""


class Known(msgspec.Struct, frozen=True):
    """A built-in tool as the rules know it."""

    about: About
    main: tuple[str, ...] = ()
    """The arguments that say what the call works on; when several are given, each counts."""
    act: Act = "change"
    others: tuple[str, ...] = ()
    """Further arguments that a rule may name, as in ``Grep(output_mode:content)``."""


_TASK = ("taskId", "task_id", "id")
_SHELL = ("task_id", "bash_id", "shell_id")
_SEARCH = ("output_mode", "glob", "type", "multiline", "head_limit", "offset", "context_lines")

TOOLS: Mapping[str, Known] = {
    "Bash": Known("command", ("command",), "change", ("run_in_background", "async", "workdir", "sandbox")),
    "Read": Known("read", ("file_path", "path"), "read", ("offset", "limit", "pages")),
    "NotebookRead": Known("read", ("notebook_path", "file_path", "path"), "read"),
    "LS": Known("search", ("path",), "read"),
    "Glob": Known("search", ("path",), "read", ("pattern",)),
    "Grep": Known("search", ("path",), "read", ("pattern", *_SEARCH)),
    "Write": Known("edit", ("file_path", "path"), "edit", ("content",)),
    "Edit": Known("edit", ("file_path", "path"), "edit", ("old_string", "new_string", "replace_all")),
    "MultiEdit": Known("edit", ("file_path", "path"), "edit"),
    "NotebookEdit": Known("edit", ("notebook_path", "file_path", "path"), "edit", ("edit_mode", "cell_type")),
    "WebFetch": Known("url", ("url",), "reach", ("url", "prompt")),
    "WebSearch": Known("words", ("query",), "reach", ("query",)),
    "Task": Known("words", ("subagent_type",), "note", ("subagent_type", "model", "resume", "description", "prompt")),
    "Skill": Known("words", ("command", "skill"), "change", ("args",)),
    "SlashCommand": Known("words", ("command",), "change"),
    "BashOutput": Known("words", _SHELL, "note", _SHELL),
    "BashStatus": Known("words", _SHELL, "note", _SHELL),
    "KillTask": Known("words", _SHELL, "note", _SHELL),
    "KillShell": Known("words", _SHELL, "note", _SHELL),
    "TodoWrite": Known("none", (), "note"),
    "DMail": Known("none", (), "note"),
    "TaskCreate": Known("none", (), "note"),
    "TaskGet": Known("words", _TASK, "note", _TASK),
    "TaskList": Known("none", (), "note"),
    "TaskUpdate": Known("words", _TASK, "note", (*_TASK, "status", "owner", "delete")),
    "AskUserQuestion": Known("none", (), "note"),
    "ExitPlanMode": Known("none", (), "note"),
    "PowerShell": Known("words", ("command",), "change"),
}  # fmt: skip

FOREIGN = frozenset({
    "Monitor", "LSP", "ToolSearch", "TodoRead", "KillBash", "TaskOutput", "TaskStop", "AgentOutputTool",
    "EnterPlanMode", "EnterWorktree", "ExitWorktree", "ListMcpResourcesTool", "ReadMcpResourceTool", "StructuredOutput",
    "SendMessage", "TeamCreate", "TeamDelete", "Workflow", "CronCreate", "CronDelete", "CronList",
})  # fmt: skip
"""Tools of others that rules name, and that are no slip of the pen."""

READS = frozenset(name for name, known in TOOLS.items() if known.about in ("read", "search"))
EDITS = frozenset(name for name, known in TOOLS.items() if known.about == "edit")

_OTHER_NAMES = {"Agent": "Task"} | {name.lower(): name for name in TOOLS}
_MAGIC = frozenset("*?[{\\")

_OTHER = Known("none")


def built_in(name: str) -> str:
    """Return what a built-in tool is called here, also for another name of it; anything else as it is."""
    return _OTHER_NAMES.get(name, name)


def known(name: str) -> Known:
    """Return how the rules look at a tool; of one that is not built in they know nothing."""
    return TOOLS.get("Task" if name == "Agent" else name, _OTHER)


def given(tool: Known, arguments: Mapping[str, Any]) -> list[str]:
    """Return what a call says it works on. Raises ``ValueError`` when it says something that is no text."""
    return [_text(name, arguments[name]) for name in tool.main if arguments.get(name) is not None]


def folders(tool: str, arguments: Mapping[str, Any]) -> Iterator[str]:
    """Yield the folders a search looks into. Raises ``ValueError`` when a pattern may lead out of them unseen."""
    bases = given(known(tool), arguments) or ["."]
    pattern = _text("pattern", arguments.get("pattern", "")) if tool == "Glob" else ""
    start = _plain_start(pattern)
    if start.startswith("~"):
        yield start
    for base in bases:
        yield os.path.join(base, start)  # noqa: PTH118  # text, not a file


def _text(name: str, value: object) -> str:
    if isinstance(value, str):
        return value
    raise ValueError(f"{name} is {type(value).__name__}, not a text")


def _plain_start(pattern: str) -> str:
    """Return the folders at the start of a glob pattern that are written out."""
    parts = pattern.split("/")
    plain = next((at for at, part in enumerate(parts) if _MAGIC & set(part)), len(parts) - 1)
    loose = [part for part in parts[plain:] if ".." in part]
    if loose or re.search(r"[{,][/~]", pattern):
        raise ValueError("the pattern may lead out of its folder")
    return "/".join(parts[:plain]) or ("/" if pattern.startswith("/") else "")


def values(arguments: Mapping[str, Any], field: str, schema: Mapping[str, Any]) -> list[str]:
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
    of_name = TOOLS.get("Task" if name == "Agent" else name)
    if of_name is None:
        return ToolSpec(name=name, layer="mcp" if name.startswith("mcp__") else "")
    return ToolSpec(name=name, layer="builtin", effect="read" if of_name.act in ("read", "reach") else "once")
