"""Changing one setting in a file and leaving every other byte of it alone."""

import contextlib
import os
import tempfile
import tomllib
from pathlib import Path
from typing import Any

import msgspec

from vaka.config.files import PYPROJECT, line_of, read_file
from vaka.config.keys import Key
from vaka.core.types.errors import ConfigError


def write_setting(path: Path, key: Key, value: Any) -> None:
    """Set a key in a file, made when it is not there. Raises ``ConfigError`` and changes nothing when that fails."""
    if path.name == PYPROJECT:
        raise ConfigError(f"{path}: settings in pyproject.toml are yours to edit; use vaka.toml to let vaka write them")
    text = ""
    if path.exists():
        read_file(path)
        text = path.read_bytes().decode("utf-8-sig")
    changed = changed_text(text, key.name, value)
    tomllib.loads(changed)
    try:
        _replace(path, changed.encode())
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror or error}") from error


def changed_text(text: str, name: str, value: Any) -> str:
    """Return a TOML document with one key set: in its place, or after the last line."""
    written = f"{name} = {_toml(value)}\n"
    lines = text.splitlines(keepends=True)
    document = tomllib.loads(text)
    if name not in document:
        if any(isinstance(value, dict) for value in document.values()):
            return written + text  # after a table's header it would be that table's
        gap = "" if not lines or lines[-1].endswith("\n") else "\n"
        return f"{text}{gap}{written}"
    start = line_of(text, name) - 1
    end = start + 1
    while end < len(lines) and not _whole("".join(lines[start:end])):
        end += 1
    return "".join([*lines[:start], written, *lines[end:]])


def _whole(text: str) -> bool:
    try:
        return bool(tomllib.loads(text))
    except tomllib.TOMLDecodeError:
        return False


def _toml(value: Any) -> str:
    """Write a text, a number or a list of texts: their JSON is TOML too."""
    return msgspec.json.encode(value).decode().replace("\x7f", "\\u007f")


def _replace(path: Path, data: bytes) -> None:
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
