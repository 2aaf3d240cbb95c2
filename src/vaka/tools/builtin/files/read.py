"""Read: lines of a file with their numbers, images and documents, notebooks cell by cell, stored outputs by name."""

import base64
from collections.abc import Sequence
from contextlib import aclosing
from typing import Annotated, Any

from msgspec import Meta

from vaka.core.ports.tool import ToolContext
from vaka.core.types.errors import FileError, FileMissing, NotFound
from vaka.core.types.message import Document, Image, Part, Text, ToolResult, replace_surrogates
from vaka.core.types.traits import ToolTraits
from vaka.text.decoding import is_binary, split_lines
from vaka.tools.builtin.builtin_tool import OUTPUT_PREFIX, builtin_tool, output_digest_of, text_result
from vaka.tools.builtin.files import file_content
from vaka.tools.builtin.files.file_content import max_bytes_of, media_type_of
from vaka.tools.builtin.files.notebook import NotANotebook, render_notebook

DEFAULT_LIMIT = 2_000
MAX_LINE_LENGTH = 2_000
"""Characters shown of one line."""
MAX_CHARACTERS = 100_000
"""Characters shown at once; ``offset`` continues with a later line."""


@builtin_tool(
    "Read",
    effect="read",
    traits=ToolTraits(reads=True, paths=("file_path", "path"), rule_arguments=("offset", "limit", "pages")),
)
async def read(
    context: ToolContext,
    file_path: Annotated[str, "Absolute, or relative to the working folder."],
    offset: Annotated[int, "First line.", Meta(ge=1)] = 1,
    limit: Annotated[int, "Number of lines.", Meta(ge=1)] = DEFAULT_LIMIT,
) -> ToolResult:
    """Return a file."""
    if file_path.startswith(OUTPUT_PREFIX):
        return await read_stored_text(context, file_path, LinePage(offset, limit))
    loaded = await file_content.load_named_file(context, file_path)
    kind = media_type_of(loaded.data)
    if kind:
        return await _read_media(context, file_path, kind)
    if loaded.info.path.endswith(".ipynb") and loaded.whole:
        result = _read_notebook(context, loaded, offset, limit)
        if result is not None:
            return result
    page = LinePage(offset, limit)
    if loaded.whole:
        page.add_lines(await file_content.decode_lines(file_path, loaded.data))
    elif is_binary(loaded.data):
        raise file_content.binary_file_error(file_path)
    else:
        await _stream_page(context, file_path, page)
    file_content.save_record(context, loaded.info, loaded.digest)
    return page.to_result(context, loaded.info.path)


class LinePage:
    """The lines shown of a text."""

    def __init__(self, offset: int, limit: int, characters: int = MAX_CHARACTERS) -> None:
        self.offset = offset
        self.limit = limit
        self._most = characters
        self.total_lines: int | None = None
        """The number of lines, if the whole text was read."""
        self.has_more = False
        self.cut_lines = 0
        self._lines: list[str] = []
        self._size = 0

    def add_line(self, number: int, line: str, *, partial: bool = False) -> bool:
        """Add a line, or the beginning of one; return false when the page is full."""
        if len(self._lines) >= self.limit or self._size > self._most:
            self.has_more = True
            return False
        if len(line) > MAX_LINE_LENGTH:
            self.cut_lines += 1
            more = f"{'over ' if partial else ''}{len(line) - MAX_LINE_LENGTH}"
            line = f"{line[:MAX_LINE_LENGTH]}… [{more} more characters in this line]"
        self._lines.append(f"{number:6d}\t{line}")
        self._size += len(line) + 8
        return True

    def add_lines(self, lines_of_text: Sequence[str]) -> None:
        """Add the lines from ``offset`` on out of all lines of a text."""
        self.total_lines = len(lines_of_text)
        for number in range(self.offset, self.total_lines + 1):
            if not self.add_line(number, lines_of_text[number - 1]):
                return

    def to_result(self, context: ToolContext, path: str) -> ToolResult:
        """Return the page as text for the model and as data."""
        value: dict[str, Any] = {
            "path": path,
            "offset": self.offset,
            "limit": self.limit,
            "total_lines": self.total_lines,
            "returned_lines": len(self._lines),
            "line_truncations": self.cut_lines,
            "truncated": self.has_more,
        }
        if not self._lines:
            value["range_out_of_file"] = True
        return text_result(context, "\n".join([*self._lines, *self._range_notes(path)]), value)

    def _range_notes(self, path: str) -> list[str]:
        if not self._lines:
            if self.total_lines == 0:
                return [f"[{path} is empty]"]
            there = "fewer" if self.total_lines is None else str(self.total_lines)
            return [f"[line {self.offset} is past the end: {path} has {there} lines]"]
        if not self.has_more:
            return []
        last = self.offset + len(self._lines) - 1
        whole = f" of {self.total_lines}" if self.total_lines is not None else ""
        return [f"[lines {self.offset} to {last}{whole}; go on with offset={last + 1}]"]


async def _stream_page(context: ToolContext, path: str, page: LinePage) -> None:
    """Fill a page from a file too large to be read whole."""
    lines = file_content.stream_lines(context.files, path, start=page.offset, count=page.limit + 1)
    async with aclosing(lines):
        async for number, line in lines:
            partial = len(line.encode()) > file_content.MAX_LINE_BYTES - 4  # the cut may have split a character
            if not page.add_line(number, line, partial=partial):
                return


async def _read_media(context: ToolContext, path: str, kind: str) -> ToolResult:
    most = max_bytes_of(kind)
    file = await context.files.read(path, size=most + 1)
    info = file.info
    if info.size > most or len(file.data) > most:
        raise FileError(f"{path!r} has {info.size} bytes; {kind} is shown up to {most} bytes: make a smaller one")
    file_content.save_record(context, info, file_content.digest_of(file.data))
    data = base64.b64encode(file.data).decode()
    part: Part = Image(media_type=kind, data=data)
    if kind == "application/pdf":
        part = Document(media_type=kind, data=data, name=replace_surrogates(info.path.rpartition("/")[2]))
    text = Text(text=replace_surrogates(f"[{info.path}: {kind}, {info.size} bytes]"))
    value = {"path": info.path, "media_type": kind, "size": info.size}
    return ToolResult(call=context.call, content=(text, part), value=value)


def _read_notebook(context: ToolContext, loaded: file_content.LoadedFile, offset: int, limit: int) -> ToolResult | None:
    try:
        page = render_notebook(loaded.data, offset=offset, limit=limit)
    except NotANotebook:
        return None  # then it is shown as text
    file_content.save_record(context, loaded.info, loaded.digest)
    value = {
        "path": loaded.info.path,
        "cells": page.cells,
        "offset": offset,
        "returned_cells": max(page.last - offset + 1, 0),
        "truncated": page.last < page.cells,
    }
    return ToolResult(call=context.call, content=tuple(page.parts), value=value)


async def read_stored_text(context: ToolContext, name: str, page: LinePage) -> ToolResult:
    """Return a page of the text with the name ``output:<digest>``. Raises ``FileError`` for other names."""
    digest = output_digest_of(name)
    if digest is None:
        raise FileError(f"{name!r} is not an output; expected {OUTPUT_PREFIX} and 64 digits from 0 to f")
    try:
        text = await context.load_text(digest)
    except NotFound as error:
        raise FileMissing(f"{OUTPUT_PREFIX}{digest} is not stored (any more)") from error
    page.add_lines(fold_long_lines(split_lines(text)))
    return page.to_result(context, name)


def fold_long_lines(lines: Sequence[str]) -> list[str]:
    """Return lines with long ones split into lines that are shown whole: no other tool shows the rest of them."""
    return [line[at : at + MAX_LINE_LENGTH] for line in lines for at in range(0, max(len(line), 1), MAX_LINE_LENGTH)]
