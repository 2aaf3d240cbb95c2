"""The built-in tools by name, loaded on first use, and the selection an agent gets."""

from collections.abc import Iterable, Sequence
from functools import cache, cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

from vaka.core.ports.tool import Tool, ToolContext
from vaka.core.types.errors import InvalidInput
from vaka.core.types.ids import JSON
from vaka.core.types.message import Part, ToolResult
from vaka.core.types.tool import InvalidArguments, ParsedArguments, ToolSpec
from vaka.core.types.traits import find_builtin_traits

TOOLS: dict[str, str] = {
    "AskUserQuestion": "vaka.tools.builtin.conversation:ask_user_question",
    "Bash": "vaka.tools.builtin.shell.bash:bash",
    "BashOutput": "vaka.tools.builtin.shell.background:bash_output",
    "BashStatus": "vaka.tools.builtin.shell.background:bash_status",
    "DMail": "vaka.tools.builtin.conversation:d_mail",
    "Edit": "vaka.tools.builtin.files.edit:edit",
    "Glob": "vaka.tools.builtin.search.glob:glob",
    "Grep": "vaka.tools.builtin.search.grep:grep",
    "KillTask": "vaka.tools.builtin.shell.background:kill_task",
    "MultiEdit": "vaka.tools.builtin.files.edit:multi_edit",
    "NotebookEdit": "vaka.tools.builtin.files.notebook:notebook_edit",
    "Read": "vaka.tools.builtin.files.read:read",
    "TaskCreate": "vaka.tools.builtin.task_tools:task_create",
    "TaskGet": "vaka.tools.builtin.task_tools:task_get",
    "TaskList": "vaka.tools.builtin.task_tools:task_list",
    "TaskUpdate": "vaka.tools.builtin.task_tools:task_update",
    "TodoWrite": "vaka.tools.builtin.task_tools:todo_write",
    "WebFetch": "vaka.tools.builtin.web:web_fetch",
    "WebSearch": "vaka.tools.builtin.web:web_search",
    "Write": "vaka.tools.builtin.files.edit:write",
}
"""``module:attribute`` of each tool; the module is imported when its tool is called."""

SPECS_FILE = Path(__file__).with_name("specs.json")
"""The specs that the functions and their ``.md`` files give; ``python -m scripts.schema`` writes it."""

OPT_IN: frozenset[str] = frozenset({"DMail"})
"""Tools that an agent gets only when they are named."""


def builtin_tools(names: Iterable[str] | None = None) -> list[Tool]:
    """Return the built-in tools with these names, by default all but ``OPT_IN``. Raises ``InvalidInput``."""
    return [find_builtin(name) for name in (select_tools() if names is None else names)]


def find_builtin(name: str) -> Tool:
    """Return the built-in tool with this name. Raises ``InvalidInput`` for an unknown name."""
    if name not in TOOLS:
        raise _unknown_tool_error(name)
    return _deferred_tools()[name]


def import_tool(name: str) -> Tool:
    """Import the module of a built-in tool and return the tool."""
    module, _, attribute = TOOLS[name].partition(":")
    tool: Tool = getattr(import_module(module), attribute)
    return tool


class DeferredTool:
    """A built-in tool whose module is imported by its first call; its spec is read from ``SPECS_FILE``."""

    def __init__(self, spec: ToolSpec) -> None:
        self.spec, self.traits = spec, find_builtin_traits(spec.name)

    def __repr__(self) -> str:
        return f"DeferredTool({self.spec.name!r})"

    @cached_property
    def _tool(self) -> Tool:
        return import_tool(self.spec.name)

    def parse(self, raw: "str | dict[str, Any]") -> ParsedArguments | InvalidArguments:
        """Parse arguments as the tool itself does."""
        return self._tool.parse(raw)

    async def call(
        self, context: ToolContext, arguments: dict[str, Any]
    ) -> "ToolResult | Part | Sequence[Part] | JSON":
        """Call the tool."""
        return await self._tool.call(context, arguments)


@cache
def _deferred_tools() -> dict[str, Tool]:
    specs = msgspec.json.decode(SPECS_FILE.read_bytes(), type=dict[str, ToolSpec])
    return {name: DeferredTool(spec) for name, spec in specs.items()}


_SETTING_NAMES = {"file_read": "Read", "file_write": "Write", "file_edit": "Edit"}
"""Names used in settings that differ from the tool's own."""


def select_tools(enabled: Iterable[str] | None = None, disallowed: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the names of the selected built-in tools in their order; by default all but ``OPT_IN``.

    ``bash_output``, ``BashOutput`` and ``bash-output`` name one tool; ``all`` is all but ``OPT_IN``. Raises
    ``InvalidInput`` for an unknown name in ``enabled``; ``disallowed`` may name other tools.
    """
    names = [enabled] if isinstance(enabled, str) else ["all"] if enabled is None else list(enabled)
    wanted: set[str] = set()
    for name in names:
        wanted |= set(TOOLS) - OPT_IN if normalize_name(name) == "all" else {_resolve_name(name)}
    refused = {normalize_name(name) for name in ([disallowed] if isinstance(disallowed, str) else disallowed)}
    return tuple(name for name in TOOLS if name in wanted and normalize_name(name) not in refused)


def normalize_name(name: str) -> str:
    """Return a tool's name for comparison: without case, ``-``, ``_`` and spaces."""
    joined = name.strip().lower().replace("-", "_").replace(" ", "_")
    return _SETTING_NAMES.get(joined, joined).lower().replace("_", "")


def _resolve_name(name: str) -> str:
    for known in TOOLS:
        if normalize_name(known) == normalize_name(name):
            return known
    raise _unknown_tool_error(name)


def _unknown_tool_error(name: str) -> InvalidInput:
    from vaka.tools.validate import suggest_name  # noqa: PLC0415  # only for this error

    return InvalidInput(
        f"there is no built-in tool {name!r}{suggest_name(name, TOOLS)}; there are {', '.join(sorted(TOOLS))}"
    )


__all__ = ["OPT_IN", "TOOLS", "builtin_tools", "find_builtin", "import_tool", "normalize_name", "select_tools"]
