"""The tools vaka brings along: one file each, with its words beside it."""

from collections.abc import Iterable
from importlib import import_module

from vaka.core.ports.tool import Tool
from vaka.core.types.errors import InvalidInput
from vaka.tools.validate import near

TOOLS: dict[str, str] = {
    "AskUserQuestion": "vaka.tools.builtin.ask_user_question:ask_user_question",
    "Bash": "vaka.tools.builtin.bash:bash",
    "BashOutput": "vaka.tools.builtin.bash_output:bash_output",
    "BashStatus": "vaka.tools.builtin.bash_status:bash_status",
    "DMail": "vaka.tools.builtin.d_mail:d_mail",
    "Edit": "vaka.tools.builtin.edit:edit",
    "Glob": "vaka.tools.builtin.glob:glob",
    "Grep": "vaka.tools.builtin.grep:grep",
    "KillTask": "vaka.tools.builtin.kill_task:kill_task",
    "MultiEdit": "vaka.tools.builtin.multi_edit:multi_edit",
    "NotebookEdit": "vaka.tools.builtin.notebook_edit:notebook_edit",
    "Read": "vaka.tools.builtin.read:read",
    "TaskCreate": "vaka.tools.tasks.task_create:task_create",
    "TaskGet": "vaka.tools.tasks.task_get:task_get",
    "TaskList": "vaka.tools.tasks.task_list:task_list",
    "TaskUpdate": "vaka.tools.tasks.task_update:task_update",
    "TodoWrite": "vaka.tools.builtin.todo_write:todo_write",
    "WebFetch": "vaka.tools.builtin.web_fetch:web_fetch",
    "WebSearch": "vaka.tools.builtin.web_search:web_search",
    "Write": "vaka.tools.builtin.write:write",
}
"""Where each tool is; a module is imported when its tool is asked for."""

OPT_IN: frozenset[str] = frozenset({"DMail"})
"""Those that an agent only gets when they are named."""


def builtin(names: Iterable[str] | None = None) -> list[Tool]:
    """Return the built-in tools with these names, or all that come by themselves. Raises ``InvalidInput``."""
    return [find(name) for name in ((name for name in TOOLS if name not in OPT_IN) if names is None else names)]


def find(name: str) -> Tool:
    """Return the built-in tool of that name. Raises ``InvalidInput`` when there is none."""
    if name not in TOOLS:
        raise InvalidInput(
            f"there is no built-in tool {name!r}{near(name, TOOLS)}; there are {', '.join(sorted(TOOLS))}"
        )
    module, _, attribute = TOOLS[name].partition(":")
    tool: Tool = getattr(import_module(module), attribute)
    return tool


__all__ = ["OPT_IN", "TOOLS", "builtin", "find"]
