"""TodoWrite: one to-do list for each agent of a session, in its state."""

from typing import Annotated, Any, Literal, NotRequired, TypedDict

from msgspec import Meta

from vaka.core.ports.tool import ToolContext
from vaka.core.types.errors import InvalidInput
from vaka.core.types.ids import JSON
from vaka.core.types.message import Text, ToolResult, replace_surrogates
from vaka.tools.builtin.builtin_tool import builtin_tool

STATE_KEY = "todos"
MAX_TODOS = 200
"""Items of a list."""
_STATUS_MARKS = {"pending": "[ ]", "in_progress": "[>]", "completed": "[x]"}


class Todo(TypedDict):
    """Something to be done."""

    content: Annotated[str, "What to do.", Meta(min_length=1, max_length=500)]
    status: Literal["pending", "in_progress", "completed"]
    activeForm: NotRequired[Annotated[str, "The same while it is being done.", Meta(max_length=500)]]


@builtin_tool("TodoWrite", effect="idempotent")
async def todo_write(
    context: ToolContext, todos: Annotated[list[Todo], "The whole list, in order.", Meta(max_length=MAX_TODOS)]
) -> ToolResult:
    """Replace the list."""
    current = [_clean_item(todo) for todo in todos]
    active = [item["content"] for item in current if item["status"] == "in_progress"]
    if len(active) > 1:
        raise InvalidInput(f"one item can be in_progress, not {len(active)}: {', '.join(map(repr, active))}")
    key = "/".join((STATE_KEY, *context.path))  # a child agent has a list of its own
    previous: JSON = context.get_state(key) or []
    if current != previous:
        context.set_state(key, current or None)
    text = "\n".join(f"{_STATUS_MARKS[item['status']]} {item['content']}" for item in current) or "The list is empty."
    value = {"todos": current, "previous": previous}
    return ToolResult(call=context.call, content=(Text(text=text),), value=value)


def _clean_item(todo: Todo) -> dict[str, Any]:
    content = replace_surrogates(todo["content"].strip())
    if not content:
        raise InvalidInput("an item needs a content that is not blank")
    return {
        "content": content,
        "status": todo["status"],
        "activeForm": replace_surrogates(todo.get("activeForm") or content),
    }
