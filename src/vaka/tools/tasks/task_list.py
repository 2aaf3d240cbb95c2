"""TaskList: the whole board, in the order it can be worked off."""

from typing import Annotated, Any

from vaka.core.ports.tool import ToolContext
from vaka.core.types.message import ToolResult
from vaka.tools.builtin.declare import declare
from vaka.tools.tasks.board import STATUSES, Row, status_of
from vaka.tools.tasks.keeping import load
from vaka.tools.tasks.shown import full, told

_INDENT = 10
"""Deeper tasks are indented no further."""


@declare("TaskList", effect="read")
async def task_list(
    context: ToolContext,
    status: Annotated[str, "Only tasks that are pending, in_progress, completed or blocked."] = "",
    owner: Annotated[str, "Only tasks of this owner, upper and lower case alike."] = "",
) -> ToolResult:
    """Return the tasks."""
    wanted = status_of(status) if status.strip() else None
    kept = load(context)
    rows = [
        row
        for row in kept.board.rows()
        if (wanted is None or row.task.status == wanted)
        and (not owner.strip() or row.task.owner.casefold() == owner.strip().casefold())
    ]
    counts = {name: sum(row.task.status == name for row in rows) for name in STATUSES}
    value: dict[str, Any] = {
        "tasks": [{**_brief(row), "depth": row.depth} for row in rows], "counts": counts,
        "total": len(rows), "revision": kept.head.revision,
    }  # fmt: skip
    said = ", ".join(f"{count} {name}" for name, count in counts.items())
    return told(context, value, "\n".join([f"{len(rows)} tasks: {said}", *map(_line, rows)]))


def _brief(row: Row) -> dict[str, Any]:
    value = full(row.task)
    del value["description"]
    return value


def _line(row: Row) -> str:
    task = row.task
    owner = f" ({task.owner})" if task.owner else ""
    waits = f" <- {', '.join(task.blocked_by)}" if task.status == "blocked" else ""
    return f"{'  ' * min(row.depth, _INDENT)}- [{task.status}] {task.subject}{owner} {task.id}{waits}"
