"""The arguments of each built-in tool that rules match, and what they name: a command, files, a URL."""

import os
import re
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

import msgspec

from vaka.core.types.tool import UNTRUSTED_LAYER, FileUse, ToolSpec
from vaka.core.types.traits import NO_TRAITS, ToolTraits, add_defaults, builtin_traits, find_builtin_traits, find_traits
from vaka.policy.decision import AccessKind
from vaka.policy.paths import absolute_path, fold_path_case, resolve_links, split_path

if TYPE_CHECKING:
    from vaka.core.ports.tool import Tool

TargetKind: TypeAlias = Literal["command", "read", "search", "edit", "url", "words", "none"]
"""The kind of object that a tool's main argument names; ``words`` is plain text such as the name of an agent."""


_FOLDER_TARGETS: frozenset[TargetKind] = frozenset({"command", "read", "search", "edit"})


class ToolTargets(msgspec.Struct, frozen=True):
    """How rules look at a built-in tool."""

    target_kind: TargetKind
    main_arguments: tuple[str, ...] = ()
    """The arguments that name the target of a call; when several are given, rules match each."""
    access: AccessKind = "change"
    other_arguments: tuple[str, ...] = ()
    """Other arguments that a rule may name, as in ``Grep(output_mode:content)``."""
    pattern_argument: str = ""
    """The argument with a pattern of files, which may lead out of the folder of a search."""


_CLAUDE_CODE_TRAITS: Mapping[str, ToolTraits] = {
    "ExitPlanMode": NO_TRAITS,
    "KillShell": find_builtin_traits("KillTask"),
    "LS": ToolTraits(reads=True, folders=("path",)),
    "NotebookRead": ToolTraits(reads=True, paths=("notebook_path", "file_path", "path")),
    "PowerShell": ToolTraits(commands=True, summary=("command",)),
}
"""Tools of Claude Code that vaka does not have: settings that were written for it have rules about them."""


@cache
def find_targets(traits: ToolTraits) -> ToolTargets:
    """Return how rules look at a tool with these traits."""
    access, others = _find_access(traits), traits.rule_arguments
    if traits.command:
        return ToolTargets("command", (traits.command,), access, others)
    if traits.paths:
        return ToolTargets("edit" if traits.writes else "read", traits.paths, access, others)
    if traits.folders:
        return ToolTargets("search", traits.folders, access, others, traits.pattern)
    if traits.url:
        return ToolTargets("url", (traits.url,), access, others)
    return ToolTargets("words" if traits.summary else "none", traits.summary, access, others)


@cache
def find_file_targets(traits: ToolTraits) -> tuple[ToolTargets, ...]:
    """Return the arguments that name files, and the arguments that name folders, of a tool with these traits."""
    files = msgspec.structs.replace(traits, command="", folders=(), pattern="", url="", summary=())
    folders = msgspec.structs.replace(traits, command="", paths=(), url="", summary=())
    return tuple([find_targets(each) for each in (files, folders) if each.paths or each.folders])


def _find_access(traits: ToolTraits) -> AccessKind:
    if traits.session:
        return "note"
    if traits.commands:
        return "change"
    if traits.writes:
        return "edit"
    return "reach" if traits.network else "read" if traits.reads else "note"


BUILTIN_TOOLS: Mapping[str, ToolTargets] = {
    name: find_targets(traits) for name, traits in {**builtin_traits(), **_CLAUDE_CODE_TRAITS}.items()
}

FOREIGN_TOOLS = frozenset(
    {
        "Monitor",
        "LSP",
        "ToolSearch",
        "TodoRead",
        "KillBash",
        "TaskOutput",
        "TaskStop",
        "AgentOutputTool",
        "EnterPlanMode",
        "EnterWorktree",
        "ExitWorktree",
        "ListMcpResourcesTool",
        "ReadMcpResourceTool",
        "StructuredOutput",
        "SendMessage",
        "TeamCreate",
        "TeamDelete",
        "Workflow",
        "CronCreate",
        "CronDelete",
        "CronList",
    }
)
"""Tools of other programs: rules may name them without a note about a typing error."""

READ_TOOLS = frozenset(name for name, known in BUILTIN_TOOLS.items() if known.target_kind in ("read", "search"))

FOLDER_TOOLS = tuple(name for name, known in BUILTIN_TOOLS.items() if known.target_kind in _FOLDER_TARGETS)
"""The tools that work in a folder."""

EDIT_TOOLS = frozenset(name for name, known in BUILTIN_TOOLS.items() if known.target_kind == "edit")

_TOOL_ALIASES = {
    "Agent": "Task",
    "file_read": "Read",
    "file_write": "Write",
    "file_edit": "Edit",
    "web_fetch": "WebFetch",
    "web_search": "WebSearch",
    "bash_output": "BashOutput",
    "bash_status": "BashStatus",
    "kill_task": "KillTask",
    "task_create": "TaskCreate",
    "task_list": "TaskList",
    "task_get": "TaskGet",
    "task_update": "TaskUpdate",
    "ask_user_question": "AskUserQuestion",
    "slash_command": "SlashCommand",
} | {name.lower(): name for name in BUILTIN_TOOLS}

_WILDCARDS = frozenset("*?[{\\")

_UNKNOWN_TOOL = ToolTargets("none")

_TARGETS = {**BUILTIN_TOOLS, **{alias: BUILTIN_TOOLS[name] for alias, name in _TOOL_ALIASES.items()}}
_FOLDER_TOOL_NAMES = frozenset(name for name, tool in _TARGETS.items() if tool.target_kind in _FOLDER_TARGETS)
_COMMAND_TOOL_NAMES = frozenset(name for name, tool in _TARGETS.items() if tool.target_kind == "command")
"""The names of the built-in tools that work in a folder, and that run commands, with their aliases."""


def builtin_name_of(name: str) -> str:
    """Return the name of a built-in tool for any of its aliases; any other name unchanged."""
    return _TOOL_ALIASES.get(name, name)


def targets_of(name: str) -> ToolTargets:
    """Return how rules look at a tool, by its name or an alias; a tool that is not built in has no known targets."""
    return _TARGETS.get(name, _UNKNOWN_TOOL)


def read_targets(tool: ToolTargets, arguments: Mapping[str, Any]) -> list[str]:
    """Return the targets that a call names. Raises ``ValueError`` when one is not a string."""
    return [_require_text(name, arguments[name]) for name in tool.main_arguments if arguments.get(name) is not None]


def names_files(tool: ToolTargets, arguments: Mapping[str, Any]) -> bool:
    """Return whether a call names a file, or searches a folder: without an argument the working folder."""
    return tool.target_kind == "search" or any(arguments.get(name) is not None for name in tool.main_arguments)


def target_paths_of(tool: ToolTargets, arguments: Mapping[str, Any]) -> list[str]:
    """Return the files, or the folders of a search, that a call names.

    Raises ``ValueError`` when one is not a string, and when the pattern of a search may lead out of its folder.
    """
    paths = read_targets(tool, arguments)
    if tool.target_kind != "search":
        return paths
    named = tool.pattern_argument
    start = _literal_prefix(_require_text(named, arguments.get(named, "")) if named else "")
    folders = [os.path.join(base, start) for base in paths or ["."]]  # noqa: PTH118  # text, not a file
    return [start, *folders] if start.startswith("~") else folders


def find_file_use(tool: "Tool", arguments: Mapping[str, Any], cwd: str) -> FileUse | None:
    """Return which files a call uses by the traits of its tool, all of them for a command; ``None`` without traits.

    Names that differ only in case are taken for one file, as some disks do.
    """
    traits = find_traits(tool, tool.spec.name if tool.spec.layer == "builtin" else "")
    if traits.command:
        return FileUse(((),), writes=True)
    targets = find_file_targets(traits)
    if not targets:
        return None
    given, home = add_defaults(arguments, tool.spec.parameters), os.path.expanduser("~")  # noqa: PTH111  # no error
    try:
        absolute = [absolute_path(path, cwd, home) for each in targets for path in target_paths_of(each, given)]
        paths = tuple(fold_path_case(split_path(resolve_links(os.path.normpath(path)))) for path in absolute)
    except ValueError:
        paths = ((),)
    return FileUse(paths, writes=any(each.target_kind == "edit" for each in targets))


def _require_text(name: str, value: object) -> str:
    if isinstance(value, str):
        return value
    raise ValueError(f"{name} is {type(value).__name__}, not a string")


def _literal_prefix(pattern: str) -> str:
    """Return the leading folders of a glob pattern that have no wildcard."""
    parts = pattern.split("/")
    first = next((index for index, part in enumerate(parts) if _WILDCARDS & set(part)), len(parts) - 1)
    if any(".." in part for part in parts[first:]) or re.search(r"[{,][/~]", pattern):
        raise ValueError("the pattern may lead out of its folder")
    return "/".join(parts[:first]) or ("/" if pattern.startswith("/") else "")


def argument_values_of(arguments: Mapping[str, Any], field: str, schema: Mapping[str, Any]) -> list[str]:
    """Return an argument, or its default in the schema, as strings that a rule can match: one per list item."""
    value: Any = arguments.get(field)
    if field not in arguments:
        properties: Any = schema.get("properties", {})
        declared: Any = cast("dict[str, Any]", properties).get(field) if isinstance(properties, dict) else None
        if not isinstance(declared, dict) or "default" not in declared:
            return []
        value = cast("dict[str, Any]", declared)["default"]
    items: list[Any] = [*value] if isinstance(value, list) else [value]
    return [item if isinstance(item, str) else msgspec.json.encode(item).decode() for item in items]


def spec_of(name: str) -> ToolSpec:
    """Return a spec for a tool of which only the name is known, with the layer and effect of a built-in one."""
    targets = BUILTIN_TOOLS.get("Task" if name == "Agent" else name)
    if targets is None:
        return ToolSpec(name=name, layer="mcp" if name.startswith("mcp__") else "")
    return ToolSpec(name=name, layer="builtin", effect="read" if targets.access in ("read", "reach") else "once")


def works_in_folder(name: str) -> bool:
    """Return whether a built-in tool reads, changes or runs files, whose relative paths start from a folder."""
    return name in _FOLDER_TOOL_NAMES


def is_command_tool(spec: ToolSpec) -> bool:
    return spec.name in _COMMAND_TOOL_NAMES


def access_of(spec: ToolSpec, tool: ToolTargets) -> AccessKind:
    """Return what a call of the tool does; what MCP servers and untrusted folders declare does not count."""
    if spec.layer == "builtin" and builtin_name_of(spec.name) in BUILTIN_TOOLS:
        return tool.access
    claimed = spec.layer in ("mcp", UNTRUSTED_LAYER) or spec.name.startswith("mcp__")
    return "read" if spec.effect == "read" and not claimed else "change"


def raise_missing_target(tool: ToolTargets) -> str:
    raise ValueError(f"expected {' or '.join(tool.main_arguments)}")
