"""Tasks as they are told, in words and as data, and the names by which they are asked for."""

from typing import Any

import msgspec

from vaka.core.ports.tool import ToolContext
from vaka.core.types.content import Text, clean
from vaka.core.types.errors import InvalidInput
from vaka.core.types.message import ToolResult
from vaka.tools.tasks.board import Board, Task

NAMES = ("taskId", "task_id", "id")
ID: dict[str, Any] = {"type": "string", "description": "What TaskCreate returned for the task."}
ONE_ID = [{"required": [name]} for name in NAMES]


def task_id(given: dict[str, Any]) -> str:
    """Return the id that was given. Raises ``InvalidInput`` when there is none, or there are two."""
    ids = {str(given[name]) for name in NAMES if given.get(name)}
    if len(ids) != 1:
        raise InvalidInput("one task must be named, with taskId")
    return ids.pop()


def full(task: Task) -> dict[str, Any]:
    """Return a task with all its fields."""
    return {
        "id": task.id, "subject": task.subject, "activeForm": task.active, "description": task.description,
        "status": task.status, "owner": task.owner, "blocks": list(task.blocks), "blockedBy": list(task.blocked_by),
    }  # fmt: skip


def refs(board: Board, ids: tuple[str, ...]) -> list[dict[str, str]]:
    """Return what is said of tasks where another one names them."""
    return [
        {"id": id, "subject": board.tasks[id].subject, "status": board.tasks[id].status, "owner": board.tasks[id].owner}
        for id in ids
    ]


def told(context: ToolContext, value: dict[str, Any], text: str = "") -> ToolResult:
    """Return a result that a model reads as JSON, or as words if there are some."""
    said = text or msgspec.json.encode(value).decode()
    return ToolResult(call=context.call, content=(Text(text=clean(said)),), value=value)
