"""Changing files the session knows: what was read is what is changed, whole or not at all."""

import asyncio
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any
from weakref import WeakValueDictionary

import msgspec

from vaka.core.ports.files import FileInfo
from vaka.core.ports.tool import ToolContext
from vaka.core.ports.world import CHANGED_FILE
from vaka.core.types import content
from vaka.core.types.errors import FileChanged, FileError, FileMissing, InvalidInput
from vaka.core.types.ids import Digest, SessionId
from vaka.core.types.message import ToolResult
from vaka.tools.builtin import lines, seen
from vaka.tools.builtin.diff import diff
from vaka.tools.builtin.lookalike import near_files
from vaka.tools.builtin.passage import Exchange, check, exchanged, was_done
from vaka.tools.builtin.text import Text, decode

_THREADED = 1 << 18
"""Bytes from which on passages are looked for beside the event loop: others wait for that."""
_turns: "WeakValueDictionary[tuple[int, SessionId], asyncio.Lock]" = WeakValueDictionary()


@asynccontextmanager
async def in_turn(context: ToolContext) -> AsyncGenerator[None]:
    """Let calls of a session that change files come one after the other: each then knows what the last one left."""
    turn = _turns.setdefault((id(context.files), context.session), asyncio.Lock())
    async with turn:
        yield


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """A text file the session may change."""

    info: FileInfo
    data: bytes
    digest: Digest
    text: Text


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """A file that was written."""

    info: FileInfo
    digest: Digest
    size: int


async def open_known(context: ToolContext, path: str) -> Known:
    """Return a text file. Whether the session knows it is not looked at yet."""
    try:
        loaded = await lines.load(context.files, path)
    except FileMissing as error:
        raise FileMissing(f"{error}{await near_files(context, path)}") from error
    if loaded.digest is None:
        raise FileError(f"{path!r} has {loaded.info.size} bytes; files up to {lines.WHOLE} bytes can be edited")
    text = decode(loaded.data)
    if text is None:
        raise lines.not_text(path)
    return Known(info=loaded.info, data=loaded.data, digest=loaded.digest, text=text)


async def put(context: ToolContext, path: str, data: bytes, *, known: Digest | None, new: bool = False) -> Made:
    """Write a file whole or not at all, if it is still what is ``known``; the session knows it from then on."""
    digest = seen.digest_of(data)
    if context.world.snapshots is not None:
        await context.keep_first(CHANGED_FILE, await context.world.snapshots.before(path, becomes=digest))
    info = await context.files.write(path, data, known=known, new=new)
    seen.note(context, info, digest)
    return Made(info=info, digest=digest, size=len(data))


async def exchange(context: ToolContext, path: str, wanted: Sequence[Exchange]) -> ToolResult:
    """Exchange passages of a file, all or none, one after the other."""
    for number, one in enumerate(wanted, 1):
        with _naming(number, wanted):
            check(one)
    file = await open_known(context, path)
    try:
        seen.check(context, file.info, file.digest)
    except FileChanged as error:
        return await _done_before(context, file, wanted, error)
    large = len(file.data) > _THREADED
    text, counts = await asyncio.to_thread(_made, file, wanted) if large else _made(file, wanted)
    made = await put(context, path, file.text.encoded(text), known=file.digest)
    shown = await asyncio.to_thread(diff, file.text.text, text)
    total, every = sum(counts), any(one.every for one in wanted)
    said = f"{total} {'replacement' if total == 1 else 'replacements'} in {made.info.path}"
    value = {
        "path": made.info.path, "matches": total, "replaced": total, "replace_all": every, "edits": counts,
        "before": file.digest, "after": made.digest, "diff": shown,
    }  # fmt: skip
    return result(context, f"{said}\n{shown}", value)


def _made(file: Known, wanted: Sequence[Exchange]) -> tuple[str, list[int]]:
    """Return the text with every passage exchanged, and how often each was."""
    text, counts = file.text.text, list[int]()
    for number, one in enumerate(wanted, 1):
        with _naming(number, wanted):
            done = exchanged(text, file.text.eol, one)
        text = done.text
        counts.append(done.replaced)
    return text, counts


def result(context: ToolContext, text: str, value: dict[str, Any]) -> ToolResult:
    """Return what a model and a program are told of a change."""
    return ToolResult(call=context.call, content=(content.Text(text=content.clean(text)),), value=value)


async def _done_before(context: ToolContext, file: Known, wanted: Sequence[Exchange], error: FileChanged) -> ToolResult:
    """Say that a call which runs again had its effect already, if that is sure; else what is wrong."""
    if context.attempt == 1:
        raise error
    known = seen.seen(context, file.info.path)
    if known is None or not await asyncio.to_thread(was_done, file.text, wanted, known.digest):
        raise doubtful(error)
    seen.note(context, file.info, file.digest)
    value = {"path": file.info.path, "replaced": 0, "before": known.digest, "after": file.digest, "already": True}
    return result(context, f"{file.info.path} already has this change: it was made before vaka was stopped", value)


def doubtful(error: FileChanged) -> FileChanged:
    """Return what to say when a call that runs again finds a file it does not know."""
    return FileChanged(f"{error}. The change of this very call may be in it, from before vaka was stopped")


@contextmanager
def _naming(number: int, wanted: Sequence[Exchange]) -> Generator[None]:
    """Say in an error which of several exchanges it is about."""
    try:
        yield
    except InvalidInput as error:
        if len(wanted) == 1:
            raise
        raise InvalidInput(f"edit {number} of {len(wanted)}: {error}; nothing was changed") from error
