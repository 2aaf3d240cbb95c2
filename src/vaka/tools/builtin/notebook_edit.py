"""NotebookEdit: replace, insert or delete one cell of a notebook."""

import asyncio
import hashlib
import json
import re
from typing import Annotated, Any, Literal, NamedTuple

from vaka.core.ports.tool import ToolContext
from vaka.core.types.errors import FileChanged, FileError, InvalidInput
from vaka.core.types.message import ToolResult
from vaka.tools.builtin import seen
from vaka.tools.builtin.change import Known, doubtful, in_turn, open_known, put, result
from vaka.tools.builtin.declare import declare
from vaka.tools.builtin.diff import diff
from vaka.tools.builtin.notebook import NotANotebook, id_of, notebook_of, text_in
from vaka.tools.values import is_object

Mode = Literal["replace", "insert", "delete"]
Kind = Literal["code", "markdown"]
_INDENT = re.compile(r'\n([ \t]+)"')


@declare("NotebookEdit", effect="idempotent")
async def notebook_edit(
    context: ToolContext,
    notebook_path: Annotated[str, "The notebook (.ipynb): absolute, or from the working folder."],
    new_source: Annotated[str, "The new source of the cell; ignored for delete."] = "",
    cell_id: Annotated[
        str | None, "The id of the cell as Read shows it; for insert the cell before the new one."
    ] = None,
    cell_type: Annotated[Kind | None, "What the cell is; needed for insert, else it stays what it is."] = None,
    edit_mode: Annotated[Mode, "What to do."] = "replace",
) -> ToolResult:
    """Replace, insert or delete one cell of a notebook."""
    async with in_turn(context):
        file = await open_known(context, notebook_path)
        return await _edit(context, notebook_path, file, Wish(new_source, cell_id, cell_type, edit_mode))


class Wish(NamedTuple):
    """What is asked for."""

    source: str
    cell: str | None
    kind: Kind | None
    mode: Mode


async def _edit(context: ToolContext, notebook_path: str, file: Known, wish: Wish) -> ToolResult:
    new_source, cell_id, cell_type, edit_mode = wish
    notebook = _read(notebook_path, file)
    cells: list[dict[str, Any]] = notebook["cells"]
    changed: str
    try:
        seen.check(context, file.info, file.digest)
    except FileChanged as error:
        if context.attempt > 1 and _is_done(context, cells, new_source, cell_id, edit_mode):
            seen.note(context, file.info, file.digest)
            value = {"path": file.info.path, "edit_mode": edit_mode, "already": True}
            said = f"{file.info.path} already has this change: it was made before vaka was stopped"
            return result(context, said, value)
        raise (doubtful(error) if context.attempt > 1 else error) from error
    if edit_mode == "insert":
        before, changed = "", _insert(context, notebook, cell_id, cell_type, new_source)
    else:
        index = _find(cells, cell_id)
        before, changed = text_in(cells[index].get("source")), id_of(cells[index], index)
        if edit_mode == "delete":
            del cells[index]
        else:
            _replace(cells[index], new_source, cell_type)
    return await _save(context, notebook_path, file, notebook, (edit_mode, changed, before, new_source))


async def _save(
    context: ToolContext, path: str, file: Known, notebook: dict[str, Any], told: tuple[Mode, str, str, str]
) -> ToolResult:
    mode, cell, before, after = told
    made = await put(context, path, file.text.encoded(_dumped(file, notebook)), known=file.digest)
    shown = await asyncio.to_thread(diff, before, "" if mode == "delete" else after)
    verb = {"replace": "replaced", "insert": "inserted", "delete": "deleted"}[mode]
    value = {
        "path": made.info.path, "edit_mode": mode, "cell_id": cell, "cells": len(notebook["cells"]),
        "before": file.digest, "after": made.digest, "diff": shown,
    }  # fmt: skip
    return result(context, f"{verb} cell {cell} of {made.info.path}\n{shown}".rstrip("\n"), value)


def _read(path: str, file: Known) -> dict[str, Any]:
    try:
        notebook_of(file.text.text.encode("utf-8", "replace"))
        found: dict[str, Any] = json.loads(file.text.text)
    except (NotANotebook, ValueError, RecursionError) as error:
        raise FileError(f"{path!r} is no notebook: {error}") from error
    return found


def _dumped(file: Known, notebook: dict[str, Any]) -> str:
    """Return a notebook laid out as its file was."""
    text = file.text.text
    found = _INDENT.search(text)
    dumped = json.dumps(notebook, ensure_ascii=False, indent=found[1] if found else None)
    dumped = dumped.replace("\n", file.text.eol) if file.text.eol != "\n" else dumped
    return dumped + (file.text.eol if text.endswith(("\n", "\r")) else "")


def _find(cells: list[dict[str, Any]], wanted: str | None) -> int:
    if wanted is None:
        raise InvalidInput("cell_id is missing: which cell? Read shows the ids")
    for index, cell in enumerate(cells):
        if wanted == id_of(cell, index):
            return index
    known = ", ".join(id_of(cell, index) for index, cell in enumerate(cells[:20]))
    more = ", …" if len(cells) > 20 else ""
    raise InvalidInput(f"there is no cell {wanted!r}; there are {known or 'none'}{more}")


def _source(cell: dict[str, Any], source: str) -> "str | list[str]":
    """Return a source in the way the notebook keeps it: whole, or line by line as most do."""
    return source if isinstance(cell.get("source"), str) else source.splitlines(keepends=True)


def _replace(cell: dict[str, Any], source: str, kind: Kind | None) -> None:
    cell["source"] = _source(cell, source)
    cell["cell_type"] = kind or cell.get("cell_type", "code")
    if cell["cell_type"] == "code":
        cell["outputs"], cell["execution_count"] = [], None  # they are of the source that was there
    else:
        cell.pop("outputs", None)
        cell.pop("execution_count", None)


def _insert(context: ToolContext, notebook: dict[str, Any], after: str | None, kind: Kind | None, source: str) -> str:
    if kind is None:
        raise InvalidInput("cell_type is missing: is the new cell code or markdown?")
    cells: list[dict[str, Any]] = notebook["cells"]
    index = 0 if after is None else _find(cells, after) + 1
    cell: dict[str, Any] = {"cell_type": kind, "metadata": {}}
    if _has_ids(notebook):
        cell["id"] = _new_id(context)
    cell["source"] = _source(cells[0] if cells else {}, source)
    cells.insert(index, cell)
    _replace(cell, source, kind)
    return id_of(cell, index)


def _has_ids(notebook: dict[str, Any]) -> bool:
    major, minor = notebook.get("nbformat"), notebook.get("nbformat_minor")
    return isinstance(major, int) and isinstance(minor, int) and (major, minor) >= (4, 5)


def _new_id(context: ToolContext) -> str:
    """Return the id of the cell this call inserts: the same when the call runs again."""
    return hashlib.sha256(context.key.encode()).hexdigest()[:8]


def _is_done(context: ToolContext, cells: list[dict[str, Any]], source: str, cell: str | None, mode: Mode) -> bool:
    """Tell whether what a call was to do is surely done: only what has an id of its own can show that."""
    wanted = _new_id(context) if mode == "insert" else cell
    found = [one for one in cells if is_object(one) and one.get("id") == wanted]
    return mode != "delete" and len(found) == 1 and text_in(found[0].get("source")) == source
