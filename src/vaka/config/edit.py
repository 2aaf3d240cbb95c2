"""Changing one setting in a file and leaving every other byte of it alone."""

import contextlib
import copy
import os
import re
import tempfile
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import msgspec

from vaka.config.files import PYPROJECT, line_at, read_file, read_text, statements
from vaka.config.keys import Key
from vaka.core.types.errors import ConfigError


def write_setting(path: Path, key: Key, value: Any, at: tuple[str, ...] = ()) -> None:
    """Set a key in a file, made when it is not there; ``at`` leads to a part of a table.

    Raises ``ConfigError`` and changes nothing when that fails or would leave something that makes no sense.
    """
    if path.name == PYPROJECT:
        raise ConfigError(f"{path}: settings in pyproject.toml are yours to edit; use vaka.toml to let vaka write them")
    text = ""
    if path.exists():
        read_file(path)
        text = path.read_bytes().decode("utf-8-sig")
    try:
        changed = changed_text(text, at or key.name, value)
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from error
    read_text(path, changed)
    try:
        replace_file(path, changed.encode())
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror or error}") from error


def changed_text(text: str, name: "str | tuple[str, ...]", value: Any) -> str:
    """Return a TOML document with one key set: in its place, or after the last line. Raises ``ValueError``."""
    path = (name,) if isinstance(name, str) else name
    wanted = _wanted(tomllib.loads(text), path, value)
    ways: tuple[Callable[[str, tuple[str, ...], Any], str], ...]
    if isinstance(value, dict) and len(path) < 3:
        ways = (_as_a_table, _in_its_table)
    else:
        ways = (_in_its_table,) if len(path) > 1 else (_at_the_top,)
    for way in ways:
        changed = way(text, path, value)
        try:
            if tomllib.loads(changed) == wanted:
                return changed
        except tomllib.TOMLDecodeError:
            continue
    raise ValueError(f"{'.'.join(path)} stands there in a way that only you can change; edit the file yourself")


def _wanted(document: dict[str, Any], path: tuple[str, ...], value: Any) -> dict[str, Any]:
    """Return what the document is to mean."""
    changed: dict[str, Any] = copy.deepcopy(document)
    inner = changed
    for part in path[:-1]:
        inner = inner.setdefault(part, {})
    inner[path[-1]] = value
    return changed


def _at_the_top(text: str, path: tuple[str, ...], value: Any) -> str:
    """Set a key before any table."""
    name = path[0]
    written = f"{name} = {_toml(value)}\n"
    lines = text.splitlines(keepends=True)
    document = tomllib.loads(text)
    if name not in document:
        if any(isinstance(value, dict) for value in document.values()):
            return written + text  # after a table's header it would be that table's
        gap = "" if not lines or lines[-1].endswith("\n") else "\n"
        return f"{text}{gap}{written}"
    start = line_at(text, path) - 1
    return "".join([*lines[:start], written, *lines[_end(lines, start) :]])


def _in_its_table(text: str, path: tuple[str, ...], value: Any) -> str:
    """Set a key where the table that holds it has a header, or open that table at the end."""
    written = f"{_name(path[-1])} = {_toml(value)}\n"
    lines = text.splitlines(keepends=True)
    places = {found: number - 1 for number, found in statements(text)}
    if path in places and not lines[places[path]].lstrip().startswith("["):
        start = places[path]
        return "".join([*lines[:start], written, *lines[_end(lines, start) :]])
    header = places.get(path[:-1])
    if header is None:
        gap = "" if not text or text.endswith("\n") else "\n"
        return f"{text}{gap}{chr(10) if text else ''}[{'.'.join(map(_name, path[:-1]))}]\n{written}"
    after = header + 1
    while after < len(lines) and lines[after].strip() and not lines[after].lstrip().startswith("["):
        after += 1
    before = [*lines[: after - 1], lines[after - 1].rstrip("\n") + "\n"]
    return "".join([*before, written, *lines[after:]])


def _as_a_table(text: str, path: tuple[str, ...], value: Any) -> str:
    """Write a whole table in the place of the one that is there, or at the end."""
    fields = cast("dict[str, Any]", value)
    body = [f"[{'.'.join(map(_name, path))}]\n", *(f"{_name(key)} = {_toml(item)}\n" for key, item in fields.items())]
    lines = text.splitlines(keepends=True)
    places = {found: number - 1 for number, found in statements(text)}
    start = places.get(path)
    if start is None:
        gap = "" if not text or text.endswith("\n") else "\n"
        return f"{text}{gap}{chr(10) if text else ''}{''.join(body)}"
    end = start + 1
    while end < len(lines) and not lines[end].lstrip().startswith("["):
        end += 1
    return "".join([*lines[:start], *body, *lines[end:]])


def _end(lines: list[str], start: int) -> int:
    """Return the line after a statement that begins at ``start``."""
    end = start + 1
    while end < len(lines) and not _whole("".join(lines[start:end])):
        end += 1
    return end


def _whole(text: str) -> bool:
    try:
        return bool(tomllib.loads(text))
    except tomllib.TOMLDecodeError:
        return False


def _toml(value: Any) -> str:
    """Write a value: the JSON of texts and numbers is TOML too."""
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return f"{{ {', '.join(f'{_name(key)} = {_toml(item)}' for key, item in fields.items())} }}" if fields else "{}"
    if isinstance(value, list | tuple):
        return f"[{','.join(map(_toml, cast('list[Any]', value)))}]"
    return msgspec.json.encode(value).decode().replace("\x7f", "\\u007f")


def _name(text: str) -> str:
    return text if re.fullmatch(r"[A-Za-z0-9_-]+", text) else _toml(text)


def replace_file(path: Path, data: bytes) -> None:
    """Put new bytes in a file's place, whole or not at all."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            os.chmod(name, path.stat().st_mode & 0o777)  # noqa: PTH101  # the name is mkstemp's
        os.replace(name, path)  # noqa: PTH105  # the name is mkstemp's
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)  # noqa: PTH108  # the name is mkstemp's
        raise
