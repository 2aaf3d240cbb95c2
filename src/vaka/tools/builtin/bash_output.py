"""BashOutput: what a command in the background has printed since the session last looked."""

from typing import Any

import msgspec

from vaka.core.ports.tool import ToolContext
from vaka.core.types.content import Text, clean
from vaka.core.types.message import ToolResult
from vaka.tools.builtin.declare import declare
from vaka.tools.builtin.shell import Shell
from vaka.tools.builtin.sieve import sifted
from vaka.tools.builtin.started import Gone, find, note, notes
from vaka.tools.builtin.task_id import described, id_in, parameters

SHOWN = 30_000
"""Characters that are told at once."""
LAST = 2_000
"""Characters of the end of what was not kept."""
DATA = 4_000
"""Characters that are told a second time, as data."""

PARAMETERS = parameters(filter={"type": "string", "description": "Only lines in which this regular expression is."})


class Piece(msgspec.Struct, frozen=True):
    """Some output, and how far it reaches."""

    text: str
    end: int


@declare("BashOutput", effect="read", poll=True, parameters=PARAMETERS)
async def bash_output(context: ToolContext, **given: Any) -> ToolResult:
    """Return new output."""
    shell = find(context, id_in("BashOutput", given, "filter"))
    if isinstance(shell, Gone):
        gone = {"task_id": shell.id, "status": shell.status, "output": ""}
        return ToolResult(call=context.call, content=(Text(text=shell.text),), value=gone)
    known = notes(context).tasks.get(shell.id)
    start, ended = min(known.read if known else 0, shell.spool.size), not shell.running
    pattern: str = given.get("filter", "")
    piece = await (_filtered(shell, start, pattern, ended=ended) if pattern else _next(shell, start, ended=ended))
    note(context, shell, read=piece.end)
    said = [piece.text or "(no new output)", *_more(shell, piece, ended=ended)]
    text = "\n".join([f"[{described(shell)}]", *said])
    value: dict[str, Any] = {"task_id": shell.id, "status": shell.status, "exit_code": shell.code}
    if len(piece.text) <= DATA:
        value["output"] = piece.text
    return ToolResult(call=context.call, content=(Text(text=clean(text)),), value=value)


async def _next(shell: Shell, start: int, *, ended: bool) -> Piece:
    data = await shell.spool.read(start, 4 * SHOWN)  # no character takes more than four bytes
    text = data.decode("utf-8", "ignore")[:SHOWN]
    if not ended or start + len(text.encode()) < shell.spool.size:
        # A line that may go on is left for the next time, unless it is all there is: what is in it, such as a secret
        # that is not to be seen, is known for what it is only as a whole.
        text = text[: text.rfind("\n") + 1] or text
    return Piece(text.rstrip("\r\n"), start + len(text.encode()))


async def _filtered(shell: Shell, start: int, pattern: str, *, ended: bool) -> Piece:
    found = await sifted(shell.spool, start, pattern, most=SHOWN, final=ended)
    return Piece("\n".join(found.lines), start + found.used)


def _more(shell: Shell, piece: Piece, *, ended: bool) -> list[str]:
    spool, said = shell.spool, list[str]()
    left = spool.size - piece.end
    if left and (ended or left > SHOWN):
        said.append(f"[{left} bytes more were printed; call again for them]")
    if spool.lost and not left:
        last = spool.last().decode("utf-8", "ignore")[-LAST:]
        said.append(f"[{spool.lost} bytes after this were not kept ({spool.trouble}); they end so:]\n{last}")
    return said
