"""TodoList: reminds the model of its open tasks."""

from collections.abc import Sequence
from typing import Any, cast

import msgspec

from vaka.core.loop.context import Turn
from vaka.core.loop.middleware import Middleware
from vaka.core.ports.model import Prompt
from vaka.core.ports.tool import Tool
from vaka.core.ports.turn_protocols import ToolSource
from vaka.core.types.errors import ConfigError
from vaka.core.types.message import AssistantMessage, Message, Text, ToolMessage, UserMessage

TOOL_NAME = "TodoWrite"
STATE_KEY = "todos"
"""The session value with the list that TodoWrite wrote; for a child agent its path is appended."""
MAX_LISTED = 10
_STATUS_SIGNS = {"in_progress": "[>]", "pending": "[ ]"}


class TodoList(Middleware, ToolSource):
    """Adds a reminder of open tasks to the prompt, every ``every`` steps after the list was written.

    ``tool`` adds TodoWrite to agents that do not have it. The reminder is in the prompt only, not in the log.
    """

    def __init__(self, tool: Tool | None = None, *, every: int = 5, at_start: bool = True) -> None:
        if every < 1:
            raise ConfigError(f"every must be at least 1, not {every!r}")
        self._tool = tool
        self._every = every
        self._at_start = at_start

    def tools(self) -> Sequence[Tool]:
        return () if self._tool is None else (self._tool,)

    async def before_model(self, turn: Turn, prompt: Prompt) -> Prompt:
        steps, todos = _last_todo_list(prompt.messages)
        at_start = self._at_start and turn.scope.step == 1
        if todos is None:  # its call may be outside the context window
            todos = turn.get_state("/".join((STATE_KEY, *turn.path)))
        open_todos = _select_open(todos)
        if not open_todos or not (at_start or (steps and steps % self._every == 0)):
            return prompt
        reminder = UserMessage(content=(Text(text=reminder_of(open_todos)),))
        return msgspec.structs.replace(prompt, messages=(*prompt.messages, reminder))


def reminder_of(todos: Sequence[dict[str, Any]]) -> str:
    lines = [
        f"{_STATUS_SIGNS[todo['status']]} {' '.join(str(todo.get('content', '')).split())}"
        for todo in todos[:MAX_LISTED]
    ]
    if len(todos) > MAX_LISTED:
        lines.append(f"… and {len(todos) - MAX_LISTED} more")
    return (
        "<system-reminder>\nThis is left on your list of things to do. Go on with it, or bring it up to date with "
        f"{TOOL_NAME}; do not speak of this reminder.\n" + "\n".join(lines) + "\n</system-reminder>"
    )


def _last_todo_list(messages: Sequence[Message]) -> tuple[int, Any]:
    """Return the number of answers since the list was written, and the list; ``None`` when it is not in the prompt."""
    failed: set[str] = set()
    steps = 0
    for message in reversed(messages):
        if isinstance(message, ToolMessage):
            failed |= {result.call for result in message.results if result.failed}
        elif isinstance(message, AssistantMessage):
            for call in reversed(message.calls):
                if call.name == TOOL_NAME and call.id not in failed:
                    return steps, call.arguments.get("todos", ())
            steps += 1
    return steps, None


def _select_open(todos: Any) -> list[dict[str, Any]]:
    items: list[Any] = cast("Any", todos) if isinstance(todos, list) else []
    return [item for item in items if isinstance(item, dict) and cast("Any", item).get("status") in _STATUS_SIGNS]
