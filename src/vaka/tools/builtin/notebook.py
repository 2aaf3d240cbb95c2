"""Jupyter notebooks: what a reader sees of one, and its cells as data."""

import base64
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from vaka.core.types.content import Image, Part, Text, clean
from vaka.tools.builtin.media import LARGEST_PICTURE, kind_of
from vaka.tools.values import is_array, is_object

MOST = 10_000
"""Characters shown of one output."""
AT_ONCE = 100_000
"""Characters shown at once; what is left is asked for with the number of a cell."""
_PICTURE = 100
"""Characters of a picture that count as one: it is not read letter by letter."""
_IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")
_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


class NotANotebook(ValueError):
    """These bytes are no notebook; the message says why."""


def notebook_of(data: bytes) -> dict[str, Any]:
    """Return a notebook as data. Raises ``NotANotebook``."""
    try:
        found = msgspec.json.decode(data.removeprefix(b"\xef\xbb\xbf"))
    except (msgspec.DecodeError, RecursionError) as error:
        raise NotANotebook(f"it is not JSON: {error}") from error
    if not is_object(found) or not is_array(found.get("cells")):
        raise NotANotebook("it has no list of cells; notebooks of format 4 or newer have one")
    for number, cell in enumerate(found["cells"], 1):
        if not is_object(cell):
            raise NotANotebook(f"its cell {number} is not an object")
    return found


def id_of(cell: dict[str, Any], index: int) -> str:
    """Return the id of a cell; one without is known by its place, from 0 on."""
    own = cell.get("id")
    return own if isinstance(own, str) and own else f"cell-{index}"


def text_in(value: Any) -> str:
    """Return a text that a notebook may keep line by line."""
    if is_array(value):
        return "".join(item for item in value if isinstance(item, str))
    return value if isinstance(value, str) else ""


class Shown(msgspec.Struct, frozen=True):
    """What a reader sees of a notebook, or of some of its cells."""

    parts: list[Part]
    cells: int
    """How many the notebook has."""
    last: int
    """The number of the last one that is shown."""


def shown_of(data: bytes, *, offset: int = 1, limit: int | None = None) -> Shown:
    """Return cells from number ``offset`` on, as many as can be shown at once. Raises ``NotANotebook``."""
    cells: list[dict[str, Any]] = notebook_of(data)["cells"]
    end = len(cells) if limit is None else min(offset - 1 + limit, len(cells))
    parts: list[Part] = []
    words: list[str] = []
    room, number = AT_ONCE, offset - 1
    for number in range(offset, end + 1):
        for shown in _cell(cells[number - 1], number):
            room -= len(shown) if isinstance(shown, str) else len(shown.data) // _PICTURE
            if isinstance(shown, str):
                words.append(shown)
            else:
                parts += [_said(words), shown]
                words = []
        if room <= 0:
            break
    if number < len(cells) and offset <= len(cells):
        words.append(f"[cells {offset} to {number} of {len(cells)}; go on with offset={number + 1}]")
    elif not parts and not words:
        words.append(
            f"[cell {offset} is past the end: there are {len(cells)}]" if cells else "[the notebook has no cells]"
        )
    return Shown([*parts, *([_said(words)] if words else [])], len(cells), min(number, len(cells)))


def _cell(cell: dict[str, Any], number: int) -> Iterator[str | Image]:
    yield f"[cell {number}: {cell.get('cell_type', 'raw')}, id {id_of(cell, number - 1)}]"
    source = text_in(cell.get("source"))
    more = len(source) - AT_ONCE
    yield f"{source[:AT_ONCE]}… [{more} more characters in this cell]" if more > 0 else source
    yield from _outputs(cell)


def _said(words: list[str]) -> Text:
    return Text(text=clean("\n".join(words)))


def _outputs(cell: dict[str, Any]) -> Iterator[str | Image]:
    outputs: Any = cell.get("outputs")
    if not is_array(outputs):
        return
    for output in outputs:
        if is_object(output):
            yield from _output(output)


def _output(output: dict[str, Any]) -> Iterator[str | Image]:
    kind: Any = output.get("output_type")
    if kind == "stream":
        yield _cut(text_in(output.get("text")))
    elif kind == "error":
        trace = "\n".join(line for line in output.get("traceback", ()) if isinstance(line, str))
        yield _cut(trace or f"{output.get('ename', '')}: {output.get('evalue', '')}")
    else:
        data: Any = output.get("data")
        yield from _shown(data) if is_object(data) else ()


def _shown(data: dict[str, Any]) -> Iterator[str | Image]:
    """The richest form of a value that a model can see."""
    for kind in _IMAGES:
        picture = "".join(text_in(data.get(kind)).split())
        if picture and len(picture) <= LARGEST_PICTURE // 3 * 4 and _is_picture(picture):
            yield Image(media_type=kind, data=picture)
            return
    words = text_in(data.get("text/plain")) or text_in(data.get("text/markdown")) or text_in(data.get("text/html"))
    if words:
        yield _cut(words)


def _is_picture(encoded: str) -> bool:
    try:
        return kind_of(base64.b64decode(encoded, validate=True)) in _IMAGES
    except ValueError:
        return False


def _cut(text: str) -> str:
    text = _COLOUR.sub("", text).rstrip("\n")
    more = f"… [{len(text) - MOST} more characters in this output]" if len(text) > MOST else ""
    return f"[output]\n{text[:MOST]}{more}"
