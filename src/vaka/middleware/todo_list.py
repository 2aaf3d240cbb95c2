"""TodoList: remind the model of its open tasks."""

from collections.abc import Sequence
from typing import Any, cast

import msgspec

from vaka.core.loop.context import Turn
from vaka.core.loop.middleware import Middleware
from vaka.core.ports.model import Prompt
from vaka.core.ports.tool import Tool
from vaka.core.types.errors import ConfigError
from vaka.core.types.message import AssistantMessage, Message, Text, ToolMessage, UserMessage

TOOL_NAME = "TodoWrite"
STATE_KEY = "todos"
"""Under which the session keeps the list that TodoWrite made; the path of a child agent stands behind it."""
MAX_LISTED = 10
"""Things that are listed at most."""
_STATUS_SIGNS = {"in_progress": "[>]", "pending": "[ ]"}


class TodoList(Middleware):
    """Reminds of what is left to do when ``every`` steps went by since the list was last written, and again then.

    ``tool`` brings TodoWrite along for agents that do not have it. The reminder is in the prompt only, not in the log.
    """

    def __init__(self, tool: Tool | None = None, *, every: int = 5, at_start: bool = True) -> None:
        if every < 1:
            raise ConfigError(f"every is at least 1 step, not {every!r}")
        self._tool, self._every, self._at_start = tool, every, at_start

    def tools(self) -> Sequence[Tool]:
        """The tool that writes the list, if it was given."""
        return () if self._tool is None else (self._tool,)

    async def before_model(self, turn: Turn, prompt: Prompt) -> Prompt:
        """Add the reminder when it is time."""
        since, written = _last_todo_list(prompt.messages)
        begins = self._at_start and turn.scope.step == 1
        if written is None:  # it may have left the window meanwhile
            written = turn.get_state("/".join((STATE_KEY, *turn.path)))
        todos = _parse_todos(written)
        left = [todo for todo in todos if todo.get("status") in _STATUS_SIGNS]
        if not left or not (begins or (since and since % self._every == 0)):
            return prompt
        reminder = UserMessage(content=(Text(text=reminder_of(left)),))
        return msgspec.structs.replace(prompt, messages=(*prompt.messages, reminder))


def reminder_of(left: Sequence[dict[str, Any]]) -> str:
    """Return the words that remind of what is left to do."""
    lines = [
        f"{_STATUS_SIGNS[todo['status']]} {' '.join(str(todo.get('content', '')).split())}"
        for todo in left[:MAX_LISTED]
    ]
    if len(left) > MAX_LISTED:
        lines.append(f"… and {len(left) - MAX_LISTED} more")
    return (
        "<system-reminder>\nThis is left on your list of things to do. Go on with it, or bring it up to date with "
        f"{TOOL_NAME}; do not speak of this reminder.\n" + "\n".join(lines) + "\n</system-reminder>"
    )


def _last_todo_list(messages: Sequence[Message]) -> tuple[int, Any]:
    """Return how many answers ago the list was written, and the list; all and ``None`` when that is not among them."""
    failed: set[str] = set()
    since = 0
    for message in reversed(messages):
        if isinstance(message, ToolMessage):
            failed |= {result.call for result in message.results if result.failed}
        elif isinstance(message, AssistantMessage):
            for call in reversed(message.calls):
                if call.name == TOOL_NAME and call.id not in failed:
                    return since, call.arguments.get("todos", ())
            since += 1
    return since, None


def _parse_todos(given: Any) -> list[dict[str, Any]]:
    things: list[Any] = cast("Any", given) if isinstance(given, list) else []
    return [cast("Any", thing) for thing in things if isinstance(thing, dict)]
