"""Read a TOML settings file with line numbers, and set one key in it without changing other bytes."""

import contextlib
import copy
import os
import re
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

import msgspec

from vaka.config.documents import read_errors, split_dotted_key, suggest
from vaka.config.setting_keys import SETTING_KEYS, SettingKey, check_value
from vaka.core.types.errors import ConfigError

PYPROJECT = "pyproject.toml"

PROJECT_FILE = "vaka.toml"


class FileSetting(NamedTuple):
    """A setting of a file, with ``file:line``; of a table also the location of each of its parts."""

    value: Any
    location: str
    parts: Mapping[str, str] = {}


def read_settings_file(path: Path) -> dict[str, FileSetting]:
    """Return the settings of a file. Raises ``ConfigError``."""
    with read_errors(path):
        text = path.read_text(encoding="utf-8-sig")
    return parse_settings_text(path, text)


def parse_settings_text(path: Path, text: str) -> dict[str, FileSetting]:
    """Return the settings in ``text``, the content of ``path``. Raises ``ConfigError``."""
    table: Mapping[str, Any] = _parse_toml(path, text)
    above: tuple[str, ...] = ()
    if path.name == PYPROJECT:
        table, above = _vaka_table(table), ("tool", "vaka")
    settings: dict[str, FileSetting] = {}
    for name, value in table.items():
        location = f"{path}:{line_of(text, (*above, name))}"
        key = SETTING_KEYS.get(name)
        if key is None:
            raise ConfigError(f"{location}: unknown key {name!r}; {suggest(name, SETTING_KEYS)}")
        try:
            checked = check_value(key, value)
        except ValueError as error:
            at: tuple[str, ...] = getattr(error, "at", ())
            location = f"{path}:{line_of(text, (*above, name, *at))}"
            raise ConfigError(f"{location}: {name}{'.' if at else ': '}{error}") from error
        named = checked if key.kind == "table" else ()
        parts = {part: f"{path}:{line_of(text, (*above, name, part))}" for part in named}
        settings[name] = FileSetting(checked, location, parts)
    if path.name in (PROJECT_FILE, PYPROJECT) and "models" in settings:
        _reject_api_keys(settings["models"])
    return settings


def _reject_api_keys(models: FileSetting) -> None:
    """Refuse keys in a project's file: it is shared with everyone who has the project."""
    for name, entry in models.value.items():
        if entry.key:
            raise ConfigError(
                f"{models.parts[name]}: models.{name}.key: a key must not be in a project's file; "
                f"name the variable that holds it with key_env, or put the model into your own config.toml"
            )


def find_project_file(start: Path) -> Path | None:
    """Return the nearest ``vaka.toml`` or ``pyproject.toml`` with a ``[tool.vaka]``, up to the repository's root."""
    for folder in (start, *start.parents):
        if (folder / PROJECT_FILE).is_file():
            return folder / PROJECT_FILE
        other = folder / PYPROJECT
        if other.is_file() and _has_vaka_table(other):
            return other
        if (folder / ".git").exists():
            return None
    return None


def line_of(text: str, path: tuple[str, ...]) -> int:
    """Return the line of the key or table at ``path``, else of the nearest table that holds it, else 1."""
    best, line = 0, 1
    for number, statement in iter_statements(text):
        shared = 0
        while shared < min(len(path), len(statement)) and path[shared] == statement[shared]:
            shared += 1
        if shared > best and (shared == len(statement) or shared == len(path)):
            best, line = shared, number
    return line


def iter_statements(text: str) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yield the number of each line that opens a table or sets a key, with the full path of the table or key."""
    header: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), start=1):
        opened = _TABLE_HEADER.match(line)
        name = opened[1] if opened else line.partition("=")[0] if "=" in line else ""
        path = split_dotted_key(name)
        if not path:
            continue
        header = path if opened else header
        yield number, path if opened else (*header, *path)


_TABLE_HEADER = re.compile(r"[ \t]*\[\[?([^\[\]]+)\]")


def _parse_toml(path: Path, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        where = re.search(r"\(at line (\d+)", str(error))
        line = where[1] if where else text.count("\n") + 1
        raise ConfigError(f"{path}:{line}: not TOML: {error}") from error


def _vaka_table(document: Mapping[str, Any]) -> Mapping[str, Any]:
    tool: object = document.get("tool")
    ours: object = cast("Mapping[str, Any]", tool).get("vaka") if isinstance(tool, dict) else None
    return cast("Mapping[str, Any]", ours) if isinstance(ours, dict) else {}


def _has_vaka_table(path: Path) -> bool:
    """Whether a pyproject.toml configures vaka; one that cannot be read does not."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError):
        return False
    return "[tool.vaka]" in text or "[tool.vaka." in text


def write_setting(path: Path, key: SettingKey, value: Any, at: tuple[str, ...] = ()) -> None:
    """Set a key in a file, which is created when it does not exist; ``at`` is the path to a part of a table.

    Raises ``ConfigError`` and changes nothing when that fails or the result would not be valid.
    """
    if path.name == PYPROJECT:
        raise ConfigError(f"{path}: vaka does not edit pyproject.toml; edit it yourself, or use vaka.toml")
    text = ""
    if path.exists():
        read_settings_file(path)
        text = path.read_bytes().decode("utf-8-sig")
    try:
        changed = set_toml_key(text, at or key.name, value)
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from error
    parse_settings_text(path, changed)
    try:
        replace_file(path, changed.encode())
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror or error}") from error


def set_toml_key(text: str, name: "str | tuple[str, ...]", value: Any) -> str:
    """Return a TOML document with one key set: in its place, or after the last line. Raises ``ValueError``."""
    path = (name,) if isinstance(name, str) else name
    wanted = _expected_document(tomllib.loads(text), path, value)
    edits: tuple[Callable[[str, tuple[str, ...], Any], str], ...]
    if isinstance(value, dict) and len(path) < 3:
        edits = (_set_table, _set_in_table)
    else:
        edits = (_set_in_table,) if len(path) > 1 else (_set_top_level,)
    for edit in edits:
        changed = edit(text, path, value)
        try:
            if tomllib.loads(changed) == wanted:
                return changed
        except tomllib.TOMLDecodeError:
            continue
    raise ValueError(f"{'.'.join(path)} is written in a form that vaka cannot change; edit the file yourself")


def _expected_document(document: dict[str, Any], path: tuple[str, ...], value: Any) -> dict[str, Any]:
    """Return the document as data with the value at ``path``."""
    changed: dict[str, Any] = copy.deepcopy(document)
    inner = changed
    for part in path[:-1]:
        inner = inner.setdefault(part, {})
    inner[path[-1]] = value
    return changed


def _set_top_level(text: str, path: tuple[str, ...], value: Any) -> str:
    name = path[0]
    written = f"{name} = {_toml_value(value)}\n"
    lines = text.splitlines(keepends=True)
    document = tomllib.loads(text)
    if name not in document:
        if any(isinstance(value, dict) for value in document.values()):
            return written + text  # below a table's header the key would belong to that table
        gap = "" if not lines or lines[-1].endswith("\n") else "\n"
        return f"{text}{gap}{written}"
    start = line_of(text, path) - 1
    return "".join([*lines[:start], written, *lines[_statement_end(lines, start) :]])


def _set_in_table(text: str, path: tuple[str, ...], value: Any) -> str:
    """Set a key below the header of its table, or append that table."""
    written = f"{_toml_key(path[-1])} = {_toml_value(value)}\n"
    lines = text.splitlines(keepends=True)
    places = {statement: number - 1 for number, statement in iter_statements(text)}
    if path in places and not lines[places[path]].lstrip().startswith("["):
        start = places[path]
        return "".join([*lines[:start], written, *lines[_statement_end(lines, start) :]])
    header = places.get(path[:-1])
    if header is None:
        gap = "" if not text or text.endswith("\n") else "\n"
        return f"{text}{gap}{chr(10) if text else ''}[{'.'.join(map(_toml_key, path[:-1]))}]\n{written}"
    after = header + 1
    while after < len(lines) and lines[after].strip() and not lines[after].lstrip().startswith("["):
        after += 1
    before = [*lines[: after - 1], lines[after - 1].rstrip("\n") + "\n"]
    return "".join([*before, written, *lines[after:]])


def _set_table(text: str, path: tuple[str, ...], value: Any) -> str:
    """Replace a whole table, or append it."""
    fields = cast("dict[str, Any]", value)
    body = [
        f"[{'.'.join(map(_toml_key, path))}]\n",
        *(f"{_toml_key(key)} = {_toml_value(item)}\n" for key, item in fields.items()),
    ]
    lines = text.splitlines(keepends=True)
    start = {statement: number - 1 for number, statement in iter_statements(text)}.get(path)
    if start is None:
        gap = "" if not text or text.endswith("\n") else "\n"
        return f"{text}{gap}{chr(10) if text else ''}{''.join(body)}"
    end = start + 1
    while end < len(lines) and not lines[end].lstrip().startswith("["):
        end += 1
    return "".join([*lines[:start], *body, *lines[end:]])


def _statement_end(lines: list[str], start: int) -> int:
    """Return the index of the line after the statement that begins at ``start``."""
    end = start + 1
    while end < len(lines) and not _is_complete("".join(lines[start:end])):
        end += 1
    return end


def _is_complete(text: str) -> bool:
    try:
        return bool(tomllib.loads(text))
    except tomllib.TOMLDecodeError:
        return False


def _toml_value(value: Any) -> str:
    """Return a value as TOML: the JSON of texts and numbers is TOML as well."""
    if isinstance(value, dict):
        items = [f"{_toml_key(key)} = {_toml_value(item)}" for key, item in cast("dict[str, Any]", value).items()]
        return f"{{ {', '.join(items)} }}" if items else "{}"
    if isinstance(value, list | tuple):
        return f"[{','.join(map(_toml_value, cast('list[Any]', value)))}]"
    return msgspec.json.encode(value).decode().replace("\x7f", "\\u007f")


def _toml_key(text: str) -> str:
    return text if re.fullmatch(r"[A-Za-z0-9_-]+", text) else _toml_value(text)


def replace_file(path: Path, data: bytes) -> None:
    """Replace a file atomically: after a crash it holds the old bytes or the new ones."""
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
