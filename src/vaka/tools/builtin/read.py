"""Read a file: its lines with their numbers, pictures and documents as they are, notebooks cell by cell."""

import base64
from collections.abc import Sequence
from contextlib import aclosing
from typing import Annotated, Any

from msgspec import Meta

from vaka.core.ports.tool import ToolContext
from vaka.core.types.content import Document, Image, Part, Text, clean
from vaka.core.types.errors import FileError, FileMissing, NotFound
from vaka.core.types.ids import Digest
from vaka.core.types.message import ToolResult
from vaka.tools.builtin import lines, seen
from vaka.tools.builtin.declare import declare
from vaka.tools.builtin.lookalike import near_files
from vaka.tools.builtin.media import kind_of, largest
from vaka.tools.builtin.notebook import NotANotebook, shown_of
from vaka.tools.builtin.outputs import PREFIX, digest_in
from vaka.tools.builtin.text import lines_of

LIMIT = 2_000
LONGEST = 2_000
"""Characters of a line that are shown."""
MOST = 100_000
"""Characters shown at once; what is left is asked for with ``offset``."""


@declare("Read", effect="read")
async def read(
    context: ToolContext,
    file_path: Annotated[str, "The file: absolute, or from the working folder; or the name of an output (output:…)."],
    offset: Annotated[int, "Number of the first line to return.", Meta(ge=1)] = 1,
    limit: Annotated[int, "How many lines to return.", Meta(ge=1)] = LIMIT,
) -> ToolResult:
    """Return a file."""
    if file_path.startswith(PREFIX):
        return await _output(context, file_path, offset, limit)
    try:
        loaded = await lines.load(context.files, file_path)
    except FileMissing as error:
        raise FileMissing(f"{error}{await near_files(context, file_path)}") from error
    kind = kind_of(loaded.data)
    if kind:
        return await _media(context, file_path, kind)
    if loaded.info.path.endswith(".ipynb") and loaded.whole:
        shown = _notebook(context, loaded, offset, limit)
        if shown is not None:
            return shown
    page = Page(offset, limit)
    if loaded.whole:
        page.take_all(await lines.text_lines(file_path, loaded.data))
    elif lines.is_binary(loaded.data):
        raise lines.not_text(file_path)
    else:
        await _fill(context, file_path, page)
    seen.note(context, loaded.info, loaded.digest)
    return page.result(context, loaded.info.path)


class Page:
    """The lines that are shown of a text."""

    def __init__(self, offset: int, limit: int) -> None:
        self.offset, self.limit = offset, limit
        self.total: int | None = None
        """How many lines there are, when all were looked at."""
        self.more = False
        self.cut = 0
        self._lines: list[str] = []
        self._size = 0

    def take(self, number: int, line: str, *, begun: bool = False) -> bool:
        """Take the next line, or how one begins; false when there is no room for it."""
        if len(self._lines) >= self.limit or self._size > MOST:
            self.more = True
            return False
        if len(line) > LONGEST:
            self.cut += 1
            more = f"{'over ' if begun else ''}{len(line) - LONGEST}"
            line = f"{line[:LONGEST]}… [{more} more characters in this line]"
        self._lines.append(f"{number:6d}\t{line}")
        self._size += len(line) + 8
        return True

    def take_all(self, given: Sequence[str]) -> None:
        """Take what is wanted of all lines of a text."""
        self.total = len(given)
        for number in range(self.offset, self.total + 1):
            if not self.take(number, given[number - 1]):
                return

    def result(self, context: ToolContext, path: str) -> ToolResult:
        """Return what the model is told, and the same as data."""
        value: dict[str, Any] = {
            "path": path, "offset": self.offset, "limit": self.limit, "total_lines": self.total,
            "returned_lines": len(self._lines), "line_truncations": self.cut, "truncated": self.more,
        }  # fmt: skip
        if not self._lines:
            value["range_out_of_file"] = True
        text = "\n".join([*self._lines, *self._said(path)])
        return ToolResult(call=context.call, content=(Text(text=clean(text)),), value=value)

    def _said(self, path: str) -> list[str]:
        if not self._lines:
            if self.total == 0:
                return [f"[{path} is empty]"]
            there = "fewer" if self.total is None else str(self.total)
            return [f"[line {self.offset} is past the end: {path} has {there} lines]"]
        if not self.more:
            return []
        last = self.offset + len(self._lines) - 1
        whole = f" of {self.total}" if self.total is not None else ""
        return [f"[lines {self.offset} to {last}{whole}; go on with offset={last + 1}]"]


async def _fill(context: ToolContext, path: str, page: Page) -> None:
    """Fill a page from a file too large to be read whole."""
    found = lines.stream(context.files, path, start=page.offset, count=page.limit + 1)
    async with aclosing(found) as numbered:
        async for number, line in numbered:
            if not page.take(number, line, begun=len(line.encode()) > lines.KEPT - 4):  # it may end in half a character
                return


async def _media(context: ToolContext, path: str, kind: str) -> ToolResult:
    most = largest(kind)
    found = await context.files.read(path, size=most + 1)
    if found.info.size > most or len(found.data) > most:
        raise FileError(f"{path!r} has {found.info.size} bytes; {kind} is shown up to {most} bytes: make a smaller one")
    seen.note(context, found.info, seen.digest_of(found.data))
    data = base64.b64encode(found.data).decode()
    name = found.info.path.rpartition("/")[2]
    part: Part = Image(media_type=kind, data=data)
    if kind == "application/pdf":
        part = Document(media_type=kind, data=data, name=clean(name))
    said = Text(text=clean(f"[{found.info.path}: {kind}, {found.info.size} bytes]"))
    value = {"path": found.info.path, "media_type": kind, "size": found.info.size}
    return ToolResult(call=context.call, content=(said, part), value=value)


def _notebook(context: ToolContext, loaded: lines.Loaded, offset: int, limit: int) -> ToolResult | None:
    try:
        shown = shown_of(loaded.data, offset=offset, limit=limit)
    except NotANotebook:
        return None  # it has the name of one: its text is what there is to see
    seen.note(context, loaded.info, loaded.digest)
    value = {
        "path": loaded.info.path, "cells": shown.cells, "offset": offset,
        "returned_cells": max(shown.last - offset + 1, 0), "truncated": shown.last < shown.cells,
    }  # fmt: skip
    return ToolResult(call=context.call, content=tuple(shown.parts), value=value)


async def _output(context: ToolContext, name: str, offset: int, limit: int) -> ToolResult:
    digest = digest_in(name)
    if digest is None:
        raise FileError(f"{name!r} is no output; expected {PREFIX} and 64 digits from 0 to f")
    page = Page(offset, limit)
    page.take_all(folded(lines_of(await _kept(context, digest))))
    return page.result(context, name)


def folded(given: Sequence[str]) -> list[str]:
    """Return lines with the long ones in pieces that are shown whole: there is no other way to what is in them."""
    if not any(len(line) > LONGEST for line in given):
        return list(given)
    return [line[at : at + LONGEST] for line in given for at in range(0, max(len(line), 1), LONGEST)]


async def _kept(context: ToolContext, digest: Digest) -> str:
    try:
        return await context.put_back(digest)
    except NotFound as error:
        raise FileMissing(f"{PREFIX}{digest} is not kept (any more)") from error
