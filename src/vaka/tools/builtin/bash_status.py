"""BashStatus: whether a command in the background still runs."""

from typing import Any

from vaka.core.ports.tool import ToolContext
from vaka.core.types.content import Text
from vaka.core.types.message import ToolResult
from vaka.tools.builtin.declare import declare
from vaka.tools.builtin.started import Gone, find, note, notes
from vaka.tools.builtin.task_id import described, id_in, parameters


@declare("BashStatus", effect="read", poll=True, parameters=parameters())
async def bash_status(context: ToolContext, **given: Any) -> ToolResult:
    """Return how a command is."""
    shell = find(context, id_in("BashStatus", given))
    value: dict[str, Any] = {"task_id": shell.id, "status": shell.status}
    if isinstance(shell, Gone):
        value["exit_code"] = shell.note.exit_code
        return ToolResult(call=context.call, content=(Text(text=shell.text),), value=value)
    note(context, shell)
    read = notes(context).tasks[shell.id].read
    unread = shell.spool.size - min(read, shell.spool.size)
    value |= {"exit_code": shell.code, "unread_bytes": unread}
    text = f"{described(shell)}; {unread} bytes of its output were not read yet"
    return ToolResult(call=context.call, content=(Text(text=text),), value=value)
