"""TaskGet: look at a task."""

from typing import Any

from vaka.core.ports.tool import ToolContext
from vaka.core.types.message import ToolResult
from vaka.tools.builtin.declare import declare
from vaka.tools.tasks.keeping import load
from vaka.tools.tasks.shown import ID, ONE_ID, full, refs, task_id, told

PARAMETERS: dict[str, Any] = {"type": "object", "properties": {"taskId": ID}, "anyOf": ONE_ID}


@declare("TaskGet", effect="read", parameters=PARAMETERS)
async def task_get(context: ToolContext, **given: Any) -> ToolResult:
    """Return a task."""
    board = load(context).board
    task = board.get(task_id(given))
    value = {**full(task), "blocks": refs(board, task.blocks), "blockedBy": refs(board, task.blocked_by)}
    return told(context, value)
