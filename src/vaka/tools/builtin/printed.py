"""What a command has printed, as a model is told it: whole when it is short, else how it begins and ends."""

import msgspec

from vaka.core.ports.tool import ToolContext
from vaka.core.types.content import Part, Text, clean
from vaka.tools.builtin.outputs import name_of, put_away
from vaka.tools.builtin.spool import Spool

SHOWN = 30_000
"""Characters that are told as they are."""
HEAD, TAIL = 4_000, 8_000
WHOLE = 4 * 1024**2
"""Bytes that are put away in one piece: of longer output as many from the beginning and from the end."""


class Printed(msgspec.Struct, frozen=True, kw_only=True):
    """Output as parts of a result."""

    parts: tuple[Part, ...]
    names: tuple[str, ...] = ()
    """Under which names ``Read`` finds what is not shown."""
    partly: bool = False
    """Whether some of it is nowhere but with the command itself."""


async def printed(context: ToolContext, spool: Spool) -> Printed:
    """Return all that was printed."""
    if spool.lost == 0 and spool.characters <= SHOWN:
        text = _text(await spool.read(0, spool.size)).rstrip("\r\n")
        return Printed(parts=(Text(text=text),) if text else ())
    if spool.lost == 0 and spool.size <= WHOLE:
        stored = await put_away(context, _text(await spool.read(0, spool.size)), head=HEAD, tail=TAIL)
        return Printed(parts=(stored,), names=(name_of(stored.blob),))
    return await _ends(context, spool)


async def _ends(context: ToolContext, spool: Spool) -> Printed:
    """Put away how it begins and how it ends."""
    first = await context.put_away(_text(await spool.read(0, WHOLE)))
    head, rest = (await context.put_back(first.blob))[:HEAD], _size(first.size)
    end = _text(spool.last() if spool.lost else await spool.read(max(spool.size - WHOLE, WHOLE), WHOLE))
    last = await context.put_away(end)
    tail, size = (await context.put_back(last.blob))[-TAIL:], _size(last.size)
    names = name_of(first.blob), name_of(last.blob)
    lost = f"; {_size(spool.lost)} at the end were not kept but for what is here: {spool.trouble}" if spool.lost else ""
    total = _size(spool.size + spool.lost)
    said = f"[… {total} were printed. The first {rest} are {names[0]}, give Read that as file_path …]"
    more = f"[… the last {size} are {names[1]}{lost} …]"
    parts = (
        msgspec.structs.replace(first, preview=f"{head}\n{said}\n"),
        msgspec.structs.replace(last, preview=f"{more}\n{tail}"),
    )
    return Printed(parts=parts, names=names, partly=True)


def _text(data: bytes) -> str:
    """Return bytes as text; a character that was cut at either end is left out."""
    return clean(data.decode("utf-8", "ignore"))


def _size(count: int) -> str:
    return (
        f"{count} bytes"
        if count < 10_000
        else f"{count / 1024**2:.1f} MiB"
        if count >= 1024**2
        else f"{count // 1024} KiB"
    )
