"""The Edit, MultiEdit and Write tools, and the replacement of text they share."""

import asyncio
import hashlib
import os
import re
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from difflib import SequenceMatcher
from typing import Annotated
from weakref import WeakValueDictionary

import msgspec

from vaka.core.ports.files import FileInfo
from vaka.core.ports.tool import CHANGED_FILE_KEY, ToolContext
from vaka.core.types.errors import FileChanged, FileError, FileMissing, InvalidInput
from vaka.core.types.ids import Digest, SessionId
from vaka.core.types.message import ToolResult
from vaka.core.types.traits import ToolTraits
from vaka.text.decoding import LINE_END, DecodedText, decode_text, is_binary
from vaka.tools.builtin.builtin_tool import builtin_tool, text_result
from vaka.tools.builtin.files import file_content
from vaka.tools.builtin.files.file_content import encode_like, media_type_of

_MAX_TRIES = 500
"""Possible originals that are hashed to find out whether a change was applied before a crash."""

_MAX_HASHED_BYTES = 400_000_000
"""Bytes hashed for that at most."""

_LINE_NUMBER = re.compile(r"\s*\d+\t")


class Replacement(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One passage for another."""

    old_string: str
    new_string: str
    replace_all: bool = False


def check_replacement(replacement: Replacement) -> None:
    """Raise ``InvalidInput`` for an empty passage or one replaced by itself."""
    if not replacement.old_string:
        raise InvalidInput("old_string is empty; it must be the passage to replace (a new file is made with Write)")
    if replacement.old_string == replacement.new_string:
        raise InvalidInput("old_string and new_string are the same, so there is nothing to change")


def replace_text(text: str, eol: str, replacement: Replacement) -> tuple[str, int]:
    """Return the text with a passage replaced, and how often; the new lines get the line ends of the file.

    Raises ``InvalidInput`` when the passage is missing, or ambiguous without ``every``.
    """
    check_replacement(replacement)
    pattern = _pattern_of(replacement.old_string)
    new = LINE_END.sub(eol, replacement.new_string)
    if replacement.replace_all:
        changed, count = pattern.subn(lambda _: new, text)
        if not count:
            raise InvalidInput(_missing_message(text, replacement.old_string))
        return changed, count
    match = pattern.search(text)
    if match is None:
        raise InvalidInput(_missing_message(text, replacement.old_string))
    if pattern.search(text, match.start() + 1):
        raise InvalidInput(_ambiguous_message(text, pattern))
    return text[: match.start()] + new + text[match.end() :], 1


def was_applied(text: DecodedText, replacements: Sequence[Replacement], known: Digest | None) -> bool:
    """Return whether a text is certainly the result of the replacements on the text with the digest ``known``."""
    if known is None:
        return False
    work, tries = 0, 0
    for before in _possible_originals(text.text, text.eol, list(reversed(replacements))):
        data = text.mark + before.encode(text.encoding, "replace")
        work, tries = work + len(data), tries + 1
        if tries > _MAX_TRIES + len(text.text) or work > _MAX_HASHED_BYTES:
            return False
        if hashlib.sha256(data).hexdigest() == known:
            return True
    return False


def _possible_originals(text: str, eol: str, replacements: list[Replacement]) -> Iterator[str]:
    """Yield the texts from which the replacements, given last first, may have made this text."""
    if not replacements:
        yield text
        return
    last, rest = replacements[0], replacements[1:]
    old, new = LINE_END.sub(eol, last.old_string), LINE_END.sub(eol, last.new_string)
    if last.replace_all and new:
        yield from _possible_originals(text.replace(new, old), eol, rest)
        return
    at = text.find(new)
    while at >= 0:
        yield from _possible_originals(text[:at] + old + text[at + len(new) :], eol, rest)
        at = text.find(new, at + 1) if at < len(text) else -1


def _pattern_of(old: str) -> re.Pattern[str]:
    """Return a pattern for a passage with any line ends; its pieces are literal, so it runs in linear time."""
    return re.compile("(?:\r\n|\r|\n)".join(re.escape(line) for line in LINE_END.split(old)))


def _ambiguous_message(text: str, pattern: re.Pattern[str]) -> str:
    starts: list[int] = []
    while match := pattern.search(text, starts[-1] + 1 if starts else 0):
        starts.append(match.start())
    lines = ", ".join(str(text.count("\n", 0, start) + 1) for start in starts[:10]) + ", …" * (len(starts) > 10)
    return (
        f"old_string is there {len(starts)} times (lines {lines}) and must be unique: give more of what surrounds it, "
        "or set replace_all"
    )


def _missing_message(text: str, old: str) -> str:
    message = "old_string is not in the file; it must be there letter by letter, blanks and indentation included"
    if all(_LINE_NUMBER.match(line) for line in old.splitlines() if line.strip()):
        return f"{message}. It begins with line numbers, which Read adds and the file does not have"
    wanted = [line.strip() for line in old.splitlines() if line.strip()]
    lines = [line.strip() for line in text.splitlines()]
    numbered = [(number, line) for number, line in enumerate(lines, 1) if line]
    if wanted:
        for start, (number, line) in enumerate(numbered):
            if line == wanted[0] and [got for _, got in numbered[start : start + len(wanted)]] == wanted:
                return f"{message}. The lines from {number} on differ from it only in blanks"
    return message


CONTEXT_LINES = 3
"""Unchanged lines shown around a change."""

MAX_DIFF_LINES = 60

MAX_LINE_LENGTH = 200

_MAX_COMPARED_LINES = 1_000
"""Lines compared one by one; a larger change is shown as all old lines removed and all new lines added."""


def make_diff(old: str, new: str) -> str:
    """Return a unified diff without file names, cut after ``MAX_DIFF_LINES``."""
    before, after = old.splitlines(), new.splitlines()
    top = _common_prefix_length(before, after)
    bottom = _common_prefix_length(before[top:][::-1], after[top:][::-1])
    first = max(top - CONTEXT_LINES, 0)
    last = max(bottom - CONTEXT_LINES, 0)
    shown = list(_diff_hunks(before[first : len(before) - last], after[first : len(after) - last], first))
    if not shown and old != new:
        return "(only how lines end, or blanks at the end of the file)"
    more = len(shown) - MAX_DIFF_LINES
    return "\n".join([*shown[:MAX_DIFF_LINES], *([f"… {more} more lines of changes"] if more > 0 else [])])


def _diff_hunks(before: Sequence[str], after: Sequence[str], first: int) -> Iterator[str]:
    if len(before) + len(after) > _MAX_COMPARED_LINES:
        yield f"@@ -{first + 1},{len(before)} +{first + 1},{len(after)} @@"
        yield from (_format_line("-", line) for line in before[:MAX_DIFF_LINES])
        yield from (_format_line("+", line) for line in after)
        return
    for group in SequenceMatcher(None, before, after, autojunk=False).get_grouped_opcodes(CONTEXT_LINES):
        (_, a, _, c, _), (_, _, b, _, d) = group[0], group[-1]
        yield f"@@ -{first + a + 1},{b - a} +{first + c + 1},{d - c} @@"
        for kind, start, end, begin, stop in group:
            yield from (_format_line(" " if kind == "equal" else "-", line) for line in before[start:end])
            if kind != "equal":
                yield from (_format_line("+", line) for line in after[begin:stop])


def _common_prefix_length(one: Sequence[str], other: Sequence[str]) -> int:
    pairs = zip(one, other, strict=False)
    return next((count for count, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def _format_line(sign: str, line: str) -> str:
    return f"{sign}{line[:MAX_LINE_LENGTH]}…" if len(line) > MAX_LINE_LENGTH else f"{sign}{line}"


_THREAD_BYTES = 1 << 18
"""Size from which passages are searched in a thread instead of blocking the event loop."""

_edit_locks: "WeakValueDictionary[tuple[int, SessionId], asyncio.Lock]" = WeakValueDictionary()


def edit_lock(context: ToolContext) -> asyncio.Lock:
    """Return the lock of the calls of a session that change files: each sees the record of the previous call."""
    return _edit_locks.setdefault((id(context.files), context.session), asyncio.Lock())


class KnownFile(msgspec.Struct, frozen=True, kw_only=True):
    """A decoded text file with its digest."""

    info: FileInfo
    data: bytes
    digest: Digest
    text: DecodedText


async def open_text_file(context: ToolContext, path: str) -> KnownFile:
    """Read a text file, without checking whether the session has read it. Raises ``FileError``."""
    loaded = await file_content.load_named_file(context, path)
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
) -> tuple[FileInfo, Digest]:
    """Write a file atomically if its digest is still ``known``, and record it as read by the session."""
    digest = file_content.digest_of(data)
    if context.world.snapshots is not None:
        copied = await context.world.snapshots.back_up(path, becomes=digest, session=context.session)
        await context.state.set_now(CHANGED_FILE_KEY, copied)
    if new and context.world.shells is not None:
        context.world.shells.announce(os.path.join(context.files.root, path))  # noqa: PTH118  # a string
    info = await context.files.write(path, data, known=known, new=new)
    file_content.save_record(context, info, digest)
    return info, digest


async def replace_in_file(context: ToolContext, path: str, wanted: Sequence[Replacement]) -> ToolResult:
    """Replace passages of a file one after the other, all or none."""
    for number, replacement in enumerate(wanted, 1):
        with _number_errors(number, wanted):
            check_replacement(replacement)
    file = await open_text_file(context, path)
    try:
        file_content.check_unchanged(context, file.info, file.digest)
    except FileChanged as error:
        return await _already_done_result(context, file, wanted, error)
    large = len(file.data) > _THREAD_BYTES
    text, counts = (
        await asyncio.to_thread(_apply_replacements, file, wanted) if large else _apply_replacements(file, wanted)
    )
    info, digest = await write_file(context, path, encode_like(file.text, text), known=file.digest)
    diff = await asyncio.to_thread(make_diff, file.text.text, text)
    total, every = sum(counts), any(one.replace_all for one in wanted)
    value = {
        "path": info.path,
        "matches": total,
        "replaced": total,
        "replace_all": every,
        "edits": counts,
        "before": file.digest,
        "after": digest,
        "diff": diff,
    }
    summary = f"{total} {'replacement' if total == 1 else 'replacements'} in {info.path}"
    return text_result(context, f"{summary}\n{diff}", value)


def _apply_replacements(file: KnownFile, wanted: Sequence[Replacement]) -> tuple[str, list[int]]:
    """Return the text after all replacements, and the number of occurrences of each."""
    text, counts = file.text.text, list[int]()
    for number, replacement in enumerate(wanted, 1):
        with _number_errors(number, wanted):
            text, count = replace_text(text, file.text.eol, replacement)
        counts.append(count)
    return text, counts


async def _already_done_result(
    context: ToolContext, file: KnownFile, wanted: Sequence[Replacement], error: FileChanged
) -> ToolResult:
    """Return success for a repeated call whose change is certainly applied; else raise the error."""
    known = file_content.find_record(context, file.info.path) if context.attempt > 1 else None
    if known is None or not await asyncio.to_thread(was_applied, file.text, wanted, known.digest):
        raise changed_error(context, error)
    file_content.save_record(context, file.info, file.digest)
    value = {"path": file.info.path, "replaced": 0, "before": known.digest, "after": file.digest, "already": True}
    return text_result(context, f"{file.info.path} already has this change: it was made before vaka was stopped", value)


def changed_error(context: ToolContext, error: FileChanged) -> FileChanged:
    """Return the error of a call that finds the file changed; a repeated call may have changed it itself."""
    note = ". The change of this very call may be in it, from before vaka was stopped"
    return FileChanged(f"{error}{note}") if context.attempt > 1 else error


@contextmanager
def _number_errors(number: int, wanted: Sequence[Replacement]) -> Generator[None]:
    """Add the number of the failed replacement to an error when there are several."""
    try:
        yield
    except InvalidInput as error:
        if len(wanted) == 1:
            raise
        raise InvalidInput(f"edit {number} of {len(wanted)}: {error}; nothing was changed") from error


@builtin_tool(
    "Write",
    effect="idempotent",
    traits=ToolTraits(writes=True, paths=("file_path", "path"), content="content", rule_arguments=("content",)),
)
async def write(
    context: ToolContext,
    file_path: str,
    content: str,
) -> ToolResult:
    """Make a file, or replace a file that was read."""
    async with edit_lock(context):
        return await _write_content(context, file_path, content)


async def _write_content(context: ToolContext, file_path: str, content: str) -> ToolResult:
    try:
        there = await file_content.load_file(context.files, file_path)
    except FileMissing:
        written = await write_file(context, file_path, content.encode("utf-8", "replace"), known=None, new=True)
        return _written_result(context, *written, "created", "")
    old = decode_text(there.data) if there.whole else None
    data = _encode_like(old, content)
    if there.whole and there.data == data:
        file_content.save_record(context, there.info, there.digest)
        value = {"path": there.info.path, "bytes": len(data), "created": False, "already": True}
        return text_result(context, f"{there.info.path} already has exactly this content ({len(data)} bytes)", value)
    try:
        file_content.check_unchanged(context, there.info, there.digest)
    except FileChanged as error:
        if is_binary(there.data) and not media_type_of(there.data):
            message = f"{there.info.path!r} is binary: Read does not show it, so it is not replaced; remove it first"
            raise FileError(message) from error
        raise changed_error(context, error) from error
    written = await write_file(context, file_path, data, known=there.digest)
    diff = await asyncio.to_thread(make_diff, old.text, content) if old else ""
    return _written_result(context, *written, "replaced", diff)


def _encode_like(old: DecodedText | None, content: str) -> bytes:
    """Encode new content like the old one: same byte order mark, encoding and line ends."""
    if old is None:
        return content.encode("utf-8", "replace")
    if old.eol != "\n" and "\r" not in content:
        content = LINE_END.sub(old.eol, content)
    try:
        return encode_like(old, content.removeprefix("\ufeff") if old.mark else content)
    except FileError:
        return content.encode("utf-8", "replace")  # the old encoding lacks a character, and all content is new anyway


def _written_result(context: ToolContext, info: FileInfo, digest: Digest, action: str, diff: str) -> ToolResult:
    created = action == "created"
    value = {"path": info.path, "bytes": info.size, "created": created, "after": digest, "diff": diff}
    return text_result(context, f"wrote {info.size} bytes to {info.path} ({action})\n{diff}".rstrip("\n"), value)


@builtin_tool(
    "Edit",
    effect="idempotent",
    traits=ToolTraits(
        writes=True,
        paths=("file_path", "path"),
        replacement=("old_string", "new_string"),
        rule_arguments=("old_string", "new_string", "replace_all"),
    ),
)
async def edit(
    context: ToolContext,
    file_path: str,
    old_string: Annotated[str, "The exact passage to replace."],
    new_string: str,
    replace_all: Annotated[bool, "Replace all occurrences."] = False,
) -> ToolResult:
    """Exchange a passage of a file."""
    async with edit_lock(context):
        wanted = Replacement(old_string=old_string, new_string=new_string, replace_all=replace_all)
        return await replace_in_file(context, file_path, [wanted])


@builtin_tool(
    "MultiEdit",
    effect="idempotent",
    traits=ToolTraits(
        writes=True,
        paths=("file_path", "path"),
        replacement=("old_string", "new_string"),
        replacements="edits",
    ),
)
async def multi_edit(
    context: ToolContext,
    file_path: str,
    edits: Annotated[list[Replacement], msgspec.Meta(min_length=1, max_length=1000)],
) -> ToolResult:
    """Exchange several passages of a file, all or none."""
    async with edit_lock(context):
        return await replace_in_file(context, file_path, edits)
