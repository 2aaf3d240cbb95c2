"""TaskCreate: put a task on the board."""

from typing import Annotated

from msgspec import Meta

from vaka.core.ports.tool import ToolContext
from vaka.core.types.content import clean
from vaka.core.types.errors import InvalidInput
from vaka.core.types.message import ToolResult
from vaka.tools.builtin.declare import declare
from vaka.tools.tasks.board import Task
from vaka.tools.tasks.keeping import id_for, load, save
from vaka.tools.tasks.shown import told


@declare("TaskCreate", effect="idempotent")
async def task_create(
    context: ToolContext,
    subject: Annotated[str, "What is to be done, in a few words.", Meta(min_length=1, max_length=1_000)],
    activeForm: Annotated[str, "The same while it is being done.", Meta(min_length=1, max_length=1_000)],  # noqa: N803  # so it is called
    description: Annotated[str, "All that is to be known about it.", Meta(max_length=50_000)] = "",
) -> ToolResult:
    """Make a task."""
    if not subject.strip():
        raise InvalidInput("a task needs a subject")
    kept, id = load(context), id_for(context)
    if id not in kept.board.tasks:
        task = Task(id=id, subject=clean(subject.strip()), active=clean(activeForm), description=clean(description))
        save(context, kept, kept.board.create(task))
    return told(context, {"taskId": id})
