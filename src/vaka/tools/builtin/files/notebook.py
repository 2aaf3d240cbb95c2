"""Jupyter notebooks: render cells for Read, and NotebookEdit."""

import asyncio
import base64
import hashlib
import json
import re
from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from vaka.core.ports.tool import ToolContext
from vaka.core.types.errors import FileChanged, FileError, InvalidInput
from vaka.core.types.message import Image, Part, Text, ToolResult, replace_surrogates
from vaka.core.types.traits import ToolTraits
from vaka.tools.builtin.builtin_tool import builtin_tool, cut_text, text_result
from vaka.tools.builtin.files import edit, file_content
from vaka.tools.builtin.files.file_content import MAX_IMAGE_BYTES, media_type_of
from vaka.tools.schema.json_types import is_array, is_object

MAX_OUTPUT_CHARACTERS = 10_000
"""Characters shown of one output."""

MAX_CHARACTERS = 100_000
"""Characters shown at once; ``offset`` continues with a later cell."""

_IMAGE_CHARACTERS_PER_UNIT = 100
"""Characters of a base64 picture that count as one shown character."""

_IMAGE_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")

_ANSI_ESCAPE = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


class NotANotebook(ValueError):
    """Content that is not a notebook; the message gives the reason."""


def parse_notebook(data: bytes) -> dict[str, Any]:
    """Return a notebook as data. Raises ``NotANotebook``."""
    try:
        notebook = msgspec.json.decode(data.removeprefix(b"\xef\xbb\xbf"))
    except (msgspec.DecodeError, RecursionError) as error:
        raise NotANotebook(f"it is not JSON: {error}") from error
    if not is_object(notebook) or not is_array(notebook.get("cells")):
        raise NotANotebook("it has no list of cells; notebooks of format 4 or newer have one")
    for number, cell in enumerate(notebook["cells"], 1):
        if not is_object(cell):
            raise NotANotebook(f"its cell {number} is not an object")
    return notebook


def cell_id_of(cell: dict[str, Any], index: int) -> str:
    """Return the id of a cell, or ``cell-N`` with its index for a cell without one."""
    own = cell.get("id")
    return own if isinstance(own, str) and own else f"cell-{index}"


def text_of(value: Any) -> str:
    """Return a text that a notebook stores whole or as a list of lines."""
    if is_array(value):
        return "".join(item for item in value if isinstance(item, str))
    return value if isinstance(value, str) else ""


class NotebookPage(msgspec.Struct, frozen=True):
    """The rendered cells of a notebook."""

    parts: list[Part]
    cells: int
    """The number of cells in the notebook."""
    last: int
    """The number of the last cell shown."""


def render_notebook(data: bytes, *, offset: int = 1, limit: int | None = None) -> NotebookPage:
    """Render cells from number ``offset`` on, up to ``MAX_CHARACTERS``. Raises ``NotANotebook``."""
    cells: list[dict[str, Any]] = parse_notebook(data)["cells"]
    end = len(cells) if limit is None else min(offset - 1 + limit, len(cells))
    parts: list[Part] = []
    words: list[str] = []
    room, number = MAX_CHARACTERS, offset - 1
    for number in range(offset, end + 1):
        for shown in _render_cell(cells[number - 1], number):
            room -= len(shown) if isinstance(shown, str) else len(shown.data) // _IMAGE_CHARACTERS_PER_UNIT
            if isinstance(shown, str):
                words.append(shown)
            else:
                parts += [_text_part(words), shown]
                words = []
        if room <= 0:
            break
    if number < len(cells) and offset <= len(cells):
        words.append(f"[cells {offset} to {number} of {len(cells)}; go on with offset={number + 1}]")
    elif not parts and not words:
        words.append(
            f"[cell {offset} is past the end: there are {len(cells)}]" if cells else "[the notebook has no cells]"
        )
    return NotebookPage([*parts, *([_text_part(words)] if words else [])], len(cells), min(number, len(cells)))


def _render_cell(cell: dict[str, Any], number: int) -> Iterator[str | Image]:
    yield f"[cell {number}: {cell.get('cell_type', 'raw')}, id {cell_id_of(cell, number - 1)}]"
    yield cut_text(text_of(cell.get("source")), MAX_CHARACTERS, " in this cell")
    outputs: Any = cell.get("outputs")
    for output in filter(is_object, outputs if is_array(outputs) else ()):
        yield from _render_output(output)


def _text_part(words: list[str]) -> Text:
    return Text(text=replace_surrogates("\n".join(words)))


def _render_output(output: dict[str, Any]) -> Iterator[str | Image]:
    kind: Any = output.get("output_type")
    if kind == "stream":
        yield _format_output(text_of(output.get("text")))
    elif kind == "error":
        trace = "\n".join(line for line in output.get("traceback", ()) if isinstance(line, str))
        yield _format_output(trace or f"{output.get('ename', '')}: {output.get('evalue', '')}")
    else:
        data: Any = output.get("data")
        yield from _render_data(data) if is_object(data) else ()


def _render_data(data: dict[str, Any]) -> Iterator[str | Image]:
    """Yield the richest representation of a value that a model can see."""
    for kind in _IMAGE_TYPES:
        picture = "".join(text_of(data.get(kind)).split())
        if picture and len(picture) <= MAX_IMAGE_BYTES // 3 * 4 and _is_image(picture):
            yield Image(media_type=kind, data=picture)
            return
    words = text_of(data.get("text/plain")) or text_of(data.get("text/markdown")) or text_of(data.get("text/html"))
    if words:
        yield _format_output(words)


def _is_image(encoded: str) -> bool:
    try:
        return media_type_of(base64.b64decode(encoded, validate=True)) in _IMAGE_TYPES
    except ValueError:
        return False


def _format_output(text: str) -> str:
    text = _ANSI_ESCAPE.sub("", text).rstrip("\n")
    return f"[output]\n{cut_text(text, MAX_OUTPUT_CHARACTERS, ' in this output')}"


EditMode = Literal["replace", "insert", "delete"]

CellKind = Literal["code", "markdown"]

_INDENT_PATTERN = re.compile(r'\n([ \t]+)"')


@builtin_tool(
    "NotebookEdit",
    effect="idempotent",
    traits=ToolTraits(
        writes=True,
        paths=("notebook_path", "file_path", "path"),
        rule_arguments=("edit_mode", "cell_type"),
    ),
)
async def notebook_edit(
    context: ToolContext,
    notebook_path: str,
    new_source: str = "",
    cell_id: str | None = None,
    cell_type: CellKind | None = None,
    edit_mode: EditMode = "replace",
) -> ToolResult:
    """Replace, insert or delete one cell of a notebook."""
    async with edit.edit_lock(context):
        file = await edit.open_text_file(context, notebook_path)
        return await _edit_notebook(context, notebook_path, file, new_source, cell_id, cell_type, edit_mode)


async def _edit_notebook(
    context: ToolContext,
    notebook_path: str,
    file: edit.KnownFile,
    new_source: str,
    cell_id: str | None,
    cell_type: CellKind | None,
    edit_mode: EditMode,
) -> ToolResult:
    notebook = _read_notebook(notebook_path, file)
    cells: list[dict[str, Any]] = notebook["cells"]
    try:
        file_content.check_unchanged(context, file.info, file.digest)
    except FileChanged as error:
        if context.attempt > 1 and _is_applied(context, cells, new_source, cell_id, edit_mode):
            file_content.save_record(context, file.info, file.digest)
            value = {"path": file.info.path, "edit_mode": edit_mode, "already": True}
            text = f"{file.info.path} already has this change: it was made before vaka was stopped"
            return text_result(context, text, value)
        raise edit.changed_error(context, error) from error
    if edit_mode == "insert":
        before, changed = "", _insert_cell(context, notebook, cell_id, cell_type, new_source)
    else:
        index = _find_cell(cells, cell_id)
        before, changed = text_of(cells[index].get("source")), cell_id_of(cells[index], index)
        if edit_mode == "delete":
            del cells[index]
        else:
            _replace_cell(cells[index], new_source, cell_type)
    return await _save_notebook(context, notebook_path, file, notebook, (edit_mode, changed, before, new_source))


async def _save_notebook(
    context: ToolContext,
    path: str,
    file: edit.KnownFile,
    notebook: dict[str, Any],
    change: tuple[EditMode, str, str, str],
) -> ToolResult:
    mode, cell, before, after = change
    data = file_content.encode_like(file.text, _dump_notebook(file, notebook))
    info, digest = await edit.write_file(context, path, data, known=file.digest)
    diff = await asyncio.to_thread(edit.make_diff, before, "" if mode == "delete" else after)
    verb = {"replace": "replaced", "insert": "inserted", "delete": "deleted"}[mode]
    value = {
        "path": info.path,
        "edit_mode": mode,
        "cell_id": cell,
        "cells": len(notebook["cells"]),
        "before": file.digest,
        "after": digest,
        "diff": diff,
    }
    return text_result(context, f"{verb} cell {cell} of {info.path}\n{diff}".rstrip("\n"), value)


def _read_notebook(path: str, file: edit.KnownFile) -> dict[str, Any]:
    try:
        parse_notebook(file.text.text.encode("utf-8", "replace"))
        notebook: dict[str, Any] = json.loads(file.text.text)
    except (NotANotebook, ValueError, RecursionError) as error:
        raise FileError(f"{path!r} is not a notebook: {error}") from error
    return notebook


def _dump_notebook(file: edit.KnownFile, notebook: dict[str, Any]) -> str:
    """Return the JSON of a notebook with the indentation and line ends of its file."""
    text = file.text.text
    indent = _INDENT_PATTERN.search(text)
    dumped = json.dumps(notebook, ensure_ascii=False, indent=indent[1] if indent else None)
    dumped = dumped.replace("\n", file.text.eol) if file.text.eol != "\n" else dumped
    return dumped + (file.text.eol if text.endswith(("\n", "\r")) else "")


def _find_cell(cells: list[dict[str, Any]], wanted: str | None) -> int:
    if wanted is None:
        raise InvalidInput("cell_id is missing: which cell? Read shows the ids")
    ids = [cell_id_of(cell, index) for index, cell in enumerate(cells)]
    if wanted in ids:
        return ids.index(wanted)
    more = ", …" if len(cells) > 20 else ""
    raise InvalidInput(f"there is no cell {wanted!r}; there are {', '.join(ids[:20]) or 'none'}{more}")


def _encode_source(cell: dict[str, Any], source: str) -> "str | list[str]":
    """Return a source as the notebook stores it: as text, or as a list of lines like most notebooks."""
    return source if isinstance(cell.get("source"), str) else source.splitlines(keepends=True)


def _replace_cell(cell: dict[str, Any], source: str, kind: CellKind | None) -> None:
    cell["source"] = _encode_source(cell, source)
    cell["cell_type"] = kind or cell.get("cell_type", "code")
    if cell["cell_type"] == "code":
        cell["outputs"], cell["execution_count"] = [], None  # they belong to the old source
    else:
        cell.pop("outputs", None)
        cell.pop("execution_count", None)


def _insert_cell(
    context: ToolContext, notebook: dict[str, Any], after: str | None, kind: CellKind | None, source: str
) -> str:
    if kind is None:
        raise InvalidInput("cell_type is missing: is the new cell code or markdown?")
    cells: list[dict[str, Any]] = notebook["cells"]
    index = 0 if after is None else _find_cell(cells, after) + 1
    cell: dict[str, Any] = {"cell_type": kind, "metadata": {}}
    major, minor = notebook.get("nbformat"), notebook.get("nbformat_minor")
    if isinstance(major, int) and isinstance(minor, int) and (major, minor) >= (4, 5):
        cell["id"] = _new_cell_id(context)
    cell["source"] = _encode_source(cells[0] if cells else {}, source)
    cells.insert(index, cell)
    _replace_cell(cell, source, kind)
    return cell_id_of(cell, index)


def _new_cell_id(context: ToolContext) -> str:
    """Return the id of the inserted cell: the same when the call runs again."""
    return hashlib.sha256(context.key.encode()).hexdigest()[:8]


def _is_applied(
    context: ToolContext, cells: list[dict[str, Any]], source: str, cell: str | None, mode: EditMode
) -> bool:
    """Return whether a call is certainly applied already; only a cell with an id of its own can show that."""
    wanted = _new_cell_id(context) if mode == "insert" else cell
    matches = [one for one in cells if is_object(one) and one.get("id") == wanted]
    return mode != "delete" and len(matches) == 1 and text_of(matches[0].get("source")) == source
