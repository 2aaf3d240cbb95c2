"""TodoWrite: the list of what is to be done, one for each agent of a session, in its log."""

from typing import Annotated, Any, Literal, NotRequired, TypedDict

from msgspec import Meta

from vaka.core.ports.tool import ToolContext
from vaka.core.types.content import Text, clean
from vaka.core.types.errors import InvalidInput
from vaka.core.types.ids import JSON
from vaka.core.types.message import ToolResult
from vaka.tools.builtin.declare import declare

KEY = "todos"
MOST = 200
"""Items of a list."""
_MARKS = {"pending": "[ ]", "in_progress": "[>]", "completed": "[x]"}


class Todo(TypedDict):
    """Something to be done."""

    content: Annotated[str, "What to do.", Meta(min_length=1, max_length=500)]
    status: Literal["pending", "in_progress", "completed"]
    activeForm: NotRequired[Annotated[str, "The same while it is being done.", Meta(max_length=500)]]


@declare("TodoWrite", effect="idempotent")
async def todo_write(
    context: ToolContext, todos: Annotated[list[Todo], "The whole list, in order.", Meta(max_length=MOST)]
) -> ToolResult:
    """Replace the list."""
    current = [_item(todo) for todo in todos]
    active = [item["content"] for item in current if item["status"] == "in_progress"]
    if len(active) > 1:
        raise InvalidInput(f"one item can be in_progress, not {len(active)}: {', '.join(map(repr, active))}")
    key = "/".join((KEY, *context.path))  # a child agent has a list of its own
    previous: JSON = context.kept(key) or []
    if current != previous:
        context.keep(key, current or None)
    text = "\n".join(f"{_MARKS[item['status']]} {item['content']}" for item in current) or "The list is empty."
    value = {"todos": current, "previous": previous}
    return ToolResult(call=context.call, content=(Text(text=text),), value=value)


def _item(todo: Todo) -> dict[str, Any]:
    content = clean(todo["content"].strip())
    if not content:
        raise InvalidInput("an item needs a content that is not blank")
    return {"content": content, "status": todo["status"], "activeForm": clean(todo.get("activeForm") or content)}
