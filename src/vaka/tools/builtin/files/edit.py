"""Write, Edit and MultiEdit: change files that the session has read, atomically."""

import asyncio
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Annotated, Any
from weakref import WeakValueDictionary

import msgspec

from vaka.core.ports.files import FileInfo
from vaka.core.ports.tool import CHANGED_FILE_KEY, ToolContext
from vaka.core.types import message
from vaka.core.types.errors import FileChanged, FileError, FileMissing, InvalidInput
from vaka.core.types.ids import Digest, SessionId
from vaka.core.types.message import ToolResult
from vaka.tools.builtin.builtin_tool import builtin_tool
from vaka.tools.builtin.files import file_content, read_record
from vaka.tools.builtin.files.file_content import LINE_END, DecodedText, decode_text, media_type_of
from vaka.tools.builtin.files.replace_text import (
    TextReplacement,
    check_replacement,
    make_diff,
    replace_text,
    was_applied,
)
from vaka.tools.builtin.search.walk import suggest_file

_THREAD_BYTES = 1 << 18
"""Bytes from which on passages are looked for beside the event loop: others wait for that."""

_edit_locks: "WeakValueDictionary[tuple[int, SessionId], asyncio.Lock]" = WeakValueDictionary()


@asynccontextmanager
async def edit_lock(context: ToolContext) -> AsyncGenerator[None]:
    """Let calls of a session that change files come one after the other: each then knows what the last one left."""
    turn = _edit_locks.setdefault((id(context.files), context.session), asyncio.Lock())
    async with turn:
        yield


class KnownFile(msgspec.Struct, frozen=True, kw_only=True):
    """A text file the session may change."""

    info: FileInfo
    data: bytes
    digest: Digest
    text: DecodedText


class WrittenFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that was written."""

    info: FileInfo
    digest: Digest
    size: int


async def open_text_file(context: ToolContext, path: str) -> KnownFile:
    """Return a text file. Whether the session knows it is not looked at yet."""
    try:
        loaded = await file_content.load_file(context.files, path)
    except FileMissing as error:
        raise FileMissing(f"{error}{await suggest_file(context, path)}") from error
    if loaded.digest is None:
        raise FileError(
            f"{path!r} has {loaded.info.size} bytes; files up to {file_content.MAX_WHOLE_BYTES} bytes can be edited"
        )
    text = decode_text(loaded.data)
    if text is None:
        raise file_content.binary_file_error(path)
    return KnownFile(info=loaded.info, data=loaded.data, digest=loaded.digest, text=text)


async def write_file(
    context: ToolContext, path: str, data: bytes, *, known: Digest | None, new: bool = False
) -> WrittenFile:
    """Write a file whole or not at all, if it is still what is ``known``; the session knows it from then on."""
    digest = read_record.digest_of(data)
    if context.world.snapshots is not None:
        await context.set_state_now(CHANGED_FILE_KEY, await context.world.snapshots.back_up(path, becomes=digest))
    info = await context.files.write(path, data, known=known, new=new)
    read_record.save_record(context, info, digest)
    return WrittenFile(info=info, digest=digest, size=len(data))


async def replace_in_file(context: ToolContext, path: str, wanted: Sequence[TextReplacement]) -> ToolResult:
    """Exchange passages of a file, all or none, one after the other."""
    for number, one in enumerate(wanted, 1):
        with _number_errors(number, wanted):
            check_replacement(one)
    file = await open_text_file(context, path)
    try:
        read_record.check_unchanged(context, file.info, file.digest)
    except FileChanged as error:
        return await _already_done_result(context, file, wanted, error)
    large = len(file.data) > _THREAD_BYTES
    text, counts = (
        await asyncio.to_thread(_apply_replacements, file, wanted) if large else _apply_replacements(file, wanted)
    )
    made = await write_file(context, path, file.text.encode(text), known=file.digest)
    shown = await asyncio.to_thread(make_diff, file.text.text, text)
    total, every = sum(counts), any(one.every for one in wanted)
    said = f"{total} {'replacement' if total == 1 else 'replacements'} in {made.info.path}"
    value = {
        "path": made.info.path, "matches": total, "replaced": total, "replace_all": every, "edits": counts,
        "before": file.digest, "after": made.digest, "diff": shown,
    }  # fmt: skip
    return edit_result(context, f"{said}\n{shown}", value)


def _apply_replacements(file: KnownFile, wanted: Sequence[TextReplacement]) -> tuple[str, list[int]]:
    """Return the text with every passage exchanged, and how often each was."""
    text, counts = file.text.text, list[int]()
    for number, one in enumerate(wanted, 1):
        with _number_errors(number, wanted):
            done = replace_text(text, file.text.eol, one)
        text = done.text
        counts.append(done.replaced)
    return text, counts


def edit_result(context: ToolContext, text: str, value: dict[str, Any]) -> ToolResult:
    """Return what a model and a program are told of a change."""
    return ToolResult(call=context.call, content=(message.Text(text=message.replace_surrogates(text)),), value=value)


async def _already_done_result(
    context: ToolContext, file: KnownFile, wanted: Sequence[TextReplacement], error: FileChanged
) -> ToolResult:
    """Say that a call which runs again had its effect already, if that is sure; else what is wrong."""
    if context.attempt == 1:
        raise error
    known = read_record.find_record(context, file.info.path)
    if known is None or not await asyncio.to_thread(was_applied, file.text, wanted, known.digest):
        raise maybe_applied_error(error)
    read_record.save_record(context, file.info, file.digest)
    value = {"path": file.info.path, "replaced": 0, "before": known.digest, "after": file.digest, "already": True}
    return edit_result(context, f"{file.info.path} already has this change: it was made before vaka was stopped", value)


def maybe_applied_error(error: FileChanged) -> FileChanged:
    """Return what to say when a call that runs again finds a file it does not know."""
    return FileChanged(f"{error}. The change of this very call may be in it, from before vaka was stopped")


@contextmanager
def _number_errors(number: int, wanted: Sequence[TextReplacement]) -> Generator[None]:
    """Say in an error which of several exchanges it is about."""
    try:
        yield
    except InvalidInput as error:
        if len(wanted) == 1:
            raise
        raise InvalidInput(f"edit {number} of {len(wanted)}: {error}; nothing was changed") from error


@builtin_tool("Write", effect="idempotent")
async def write(
    context: ToolContext,
    file_path: Annotated[str, "The file: absolute, or from the working folder. Folders on the way are made."],
    content: Annotated[str, "All of its new content."],
) -> ToolResult:
    """Make a file, or replace one that was read."""
    async with edit_lock(context):
        return await _write_content(context, file_path, content)


async def _write_content(context: ToolContext, file_path: str, content: str) -> ToolResult:
    try:
        there = await file_content.load_file(context.files, file_path)
    except FileMissing:
        made = await write_file(context, file_path, content.encode("utf-8", "replace"), known=None, new=True)
        return _written_result(context, made, "created", "")
    old = decode_text(there.data) if there.whole else None
    data = _encode_like(old, content)
    if there.whole and there.data == data:
        read_record.save_record(context, there.info, there.digest)
        value = {"path": there.info.path, "bytes": len(data), "created": False, "already": True}
        return edit_result(context, f"{there.info.path} already has exactly this content ({len(data)} bytes)", value)
    try:
        read_record.check_unchanged(context, there.info, there.digest)
    except FileChanged as error:
        if file_content.is_binary(there.data) and not media_type_of(there.data):
            said = f"{there.info.path!r} is binary: Read does not show it, so it is not replaced; remove it first"
            raise FileError(said) from error
        raise (maybe_applied_error(error) if context.attempt > 1 else error) from error
    made = await write_file(context, file_path, data, known=there.digest)
    shown = await asyncio.to_thread(make_diff, old.text, content) if old else ""
    return _written_result(context, made, "replaced", shown)


def _encode_like(old: DecodedText | None, content: str) -> bytes:
    """Return the new content in the way of the old one: its mark, its encoding, and how its lines end."""
    if old is None:
        return content.encode("utf-8", "replace")
    if old.eol != "\n" and "\r" not in content:
        content = LINE_END.sub(old.eol, content)
    try:
        return old.encode(content.removeprefix("\ufeff") if old.mark else content)
    except FileError:
        return content.encode("utf-8", "replace")  # letters the old encoding lacks: all of it is new anyway


def _written_result(context: ToolContext, made: WrittenFile, action: str, shown: str) -> ToolResult:
    value = {
        "path": made.info.path, "bytes": made.size, "created": action == "created", "after": made.digest, "diff": shown,
    }  # fmt: skip
    said = f"wrote {made.size} bytes to {made.info.path} ({action})"
    return edit_result(context, f"{said}\n{shown}".rstrip("\n"), value)


@builtin_tool("Edit", effect="idempotent")
async def edit(
    context: ToolContext,
    file_path: Annotated[str, "The file: absolute, or from the working folder."],
    old_string: Annotated[str, "The passage to replace, letter by letter as it is in the file."],
    new_string: Annotated[str, "What to put in its place."],
    replace_all: Annotated[bool, "Replace every place where the passage is, instead of the only one."] = False,
) -> ToolResult:
    """Exchange a passage of a file."""
    async with edit_lock(context):
        return await replace_in_file(
            context, file_path, [TextReplacement(old=old_string, new=new_string, every=replace_all)]
        )


class Replacement(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One passage for another."""

    old_string: Annotated[str, msgspec.Meta(description="The passage to replace, letter by letter.")]
    new_string: Annotated[str, msgspec.Meta(description="What to put in its place.")]
    replace_all: Annotated[bool, msgspec.Meta(description="Replace every place where the passage is.")] = False


@builtin_tool("MultiEdit", effect="idempotent")
async def multi_edit(
    context: ToolContext,
    file_path: Annotated[str, "The file: absolute, or from the working folder."],
    edits: Annotated[
        list[Replacement], "The replacements, made one after the other.", msgspec.Meta(min_length=1, max_length=1000)
    ],
) -> ToolResult:
    """Exchange several passages of a file, all or none."""
    wanted = [TextReplacement(old=one.old_string, new=one.new_string, every=one.replace_all) for one in edits]
    async with edit_lock(context):
        return await replace_in_file(context, file_path, wanted)
