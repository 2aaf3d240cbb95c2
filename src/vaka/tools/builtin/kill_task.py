"""KillTask: end a command in the background."""

from typing import Any

from vaka.core.ports.tool import ToolContext
from vaka.core.types.content import Text
from vaka.core.types.message import ToolResult
from vaka.tools.builtin.declare import declare
from vaka.tools.builtin.started import Gone, find, note
from vaka.tools.builtin.task_id import described, id_in, parameters


@declare("KillTask", effect="idempotent", parameters=parameters())
async def kill_task(context: ToolContext, **given: Any) -> ToolResult:
    """End a command."""
    shell = find(context, id_in("KillTask", given))
    if isinstance(shell, Gone):
        value: dict[str, Any] = {"task_id": shell.id, "status": shell.status, "exit_code": shell.note.exit_code}
        return ToolResult(call=context.call, content=(Text(text=shell.text),), value=value)
    ran = shell.running
    if ran:
        await shell.stop()
    note(context, shell)
    said = described(shell) if ran else f"{described(shell)}; there was nothing to end"
    value = {"task_id": shell.id, "status": shell.status, "exit_code": shell.code}
    return ToolResult(call=context.call, content=(Text(text=said),), value=value)
