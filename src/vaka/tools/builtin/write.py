"""Write: make a file, or replace one the session has read."""

import asyncio
from typing import Annotated

from vaka.core.ports.tool import ToolContext
from vaka.core.types.errors import FileChanged, FileError, FileMissing
from vaka.core.types.message import ToolResult
from vaka.tools.builtin import lines, seen
from vaka.tools.builtin.change import Made, doubtful, in_turn, put, result
from vaka.tools.builtin.declare import declare
from vaka.tools.builtin.diff import diff
from vaka.tools.builtin.media import kind_of
from vaka.tools.builtin.text import ENDS, Text, decode


@declare("Write", effect="idempotent")
async def write(
    context: ToolContext,
    file_path: Annotated[str, "The file: absolute, or from the working folder. Folders on the way are made."],
    content: Annotated[str, "All of its new content."],
) -> ToolResult:
    """Make a file, or replace one that was read."""
    async with in_turn(context):
        return await _write(context, file_path, content)


async def _write(context: ToolContext, file_path: str, content: str) -> ToolResult:
    try:
        there = await lines.load(context.files, file_path)
    except FileMissing:
        made = await put(context, file_path, content.encode("utf-8", "replace"), known=None, new=True)
        return _written(context, made, "created", "")
    old = decode(there.data) if there.whole else None
    data = _as_it_was(old, content)
    if there.whole and there.data == data:
        seen.note(context, there.info, there.digest)
        value = {"path": there.info.path, "bytes": len(data), "created": False, "already": True}
        return result(context, f"{there.info.path} already has exactly this content ({len(data)} bytes)", value)
    try:
        seen.check(context, there.info, there.digest)
    except FileChanged as error:
        if lines.is_binary(there.data) and not kind_of(there.data):
            said = f"{there.info.path!r} is binary: Read does not show it, so it is not replaced; remove it first"
            raise FileError(said) from error
        raise (doubtful(error) if context.attempt > 1 else error) from error
    made = await put(context, file_path, data, known=there.digest)
    shown = await asyncio.to_thread(diff, old.text, content) if old else ""
    return _written(context, made, "replaced", shown)


def _as_it_was(old: Text | None, content: str) -> bytes:
    """Return the new content in the way of the old one: its mark, its encoding, and how its lines end."""
    if old is None:
        return content.encode("utf-8", "replace")
    if old.eol != "\n" and "\r" not in content:
        content = ENDS.sub(old.eol, content)
    try:
        return old.encoded(content.removeprefix("\ufeff") if old.mark else content)
    except FileError:
        return content.encode("utf-8", "replace")  # letters the old encoding lacks: all of it is new anyway


def _written(context: ToolContext, made: Made, how: str, shown: str) -> ToolResult:
    value = {
        "path": made.info.path, "bytes": made.size, "created": how == "created", "after": made.digest, "diff": shown,
    }  # fmt: skip
    said = f"wrote {made.size} bytes to {made.info.path} ({how})"
    return result(context, f"{said}\n{shown}".rstrip("\n"), value)
