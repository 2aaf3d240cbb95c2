"""Reading one configuration file; what is wrong is told with file and line."""

import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

from vaka.config.keys import KEYS, Key, check, suggest
from vaka.core.types.errors import ConfigError

PYPROJECT = "pyproject.toml"
PROJECT = "vaka.toml"


class Found(NamedTuple):
    """A setting of a file, with ``file:line``; of a table also where each of its parts stands."""

    value: Any
    place: str
    parts: Mapping[str, str] = {}


def read_file(path: Path) -> dict[str, Found]:
    """Return the settings of a file. Raises ``ConfigError``."""
    return read_text(path, _text(path))


def read_text(path: Path, text: str) -> dict[str, Found]:
    """Return the settings that ``text`` would be as a file at ``path``. Raises ``ConfigError``."""
    table: Mapping[str, Any] = _parsed(path, text)
    above: tuple[str, ...] = ()
    if path.name == PYPROJECT:
        table, above = _ours(table), ("tool", "vaka")
    found: dict[str, Found] = {}
    for name, value in table.items():
        place = f"{path}:{line_at(text, (*above, name))}"
        key = KEYS.get(name)
        if key is None:
            raise ConfigError(f"{place}: unknown key {name!r}; {suggest(name, KEYS)}")
        try:
            checked = check(key, value)
        except ValueError as error:
            place = f"{path}:{line_at(text, (*above, name, *getattr(error, 'at', ())))}"
            raise ConfigError(f"{place}: {name}{'.' if getattr(error, 'at', ()) else ': '}{error}") from error
        parts = {part: f"{path}:{line_at(text, (*above, name, part))}" for part in checked} if _is_table(key) else {}
        found[name] = Found(checked, place, parts)
    if path.name in (PROJECT, PYPROJECT):
        _no_keys(found)
    return found


def _is_table(key: Key) -> bool:
    return key.kind == "table"


def _no_keys(found: Mapping[str, Found]) -> None:
    """A project's file is shared: a key in it is one that is lost."""
    models = found.get("models")
    for name, entry in models.value.items() if models else ():
        if entry.key:
            raise ConfigError(
                f"{models.parts[name] if models else ''}: models.{name}.key: a key must not stand in a project's file; "
                f"name the variable that holds it with key_env, or put the model into your own config.toml"
            )


def project_file(start: Path) -> Path | None:
    """Return the nearest ``vaka.toml`` or ``pyproject.toml`` with a ``[tool.vaka]``, up to the repository's root."""
    for folder in (start, *start.parents):
        if (folder / PROJECT).is_file():
            return folder / PROJECT
        other = folder / PYPROJECT
        if other.is_file() and _names_us(other):
            return other
        if (folder / ".git").exists():
            return None
    return None


def line_at(text: str, path: tuple[str, ...]) -> int:
    """Return the line where what ``path`` leads to stands, or what it is part of; 1 when neither can be found."""
    best, found = 0, 1
    for number, statement in statements(text):
        shared = 0
        while shared < min(len(path), len(statement)) and path[shared] == statement[shared]:
            shared += 1
        if shared > best and (shared == len(statement) or shared == len(path)):
            best, found = shared, number
    return found


def statements(text: str) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yield each line that opens a table or sets a key, with the whole name of that."""
    header: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), start=1):
        opened = _HEADER.match(line)
        name = opened[1] if opened else line.partition("=")[0] if "=" in line else ""
        path = _dotted(name)
        if not path:
            continue
        header = path if opened else header
        yield number, path if opened else (*header, *path)


_HEADER = re.compile(r"[ \t]*\[\[?([^\[\]]+)\]")


def _dotted(name: str) -> tuple[str, ...]:
    """Return a dotted TOML name in its parts, nothing when it is none."""
    try:
        inner: Any = tomllib.loads(f"{name.strip()} = 0") if name.strip() else {}
    except tomllib.TOMLDecodeError:
        return ()
    path: list[str] = []
    while isinstance(inner, dict) and inner:
        part, inner = next(iter(cast("dict[str, Any]", inner).items()))
        path.append(part)
    return tuple(path)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8: {error.reason} at byte {error.start}") from error


def _parsed(path: Path, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        where = re.search(r"\(at line (\d+)", str(error))
        line = where[1] if where else text.count("\n") + 1
        raise ConfigError(f"{path}:{line}: not TOML: {error}") from error


def _ours(document: Mapping[str, Any]) -> Mapping[str, Any]:
    tool: object = document.get("tool")
    ours: object = cast("Mapping[str, Any]", tool).get("vaka") if isinstance(tool, dict) else None
    return cast("Mapping[str, Any]", ours) if isinstance(ours, dict) else {}


def _names_us(path: Path) -> bool:
    """Whether a pyproject speaks of vaka; one that cannot be read is not ours to complain about, unless it does."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError):
        return False
    return "[tool.vaka]" in text or "[tool.vaka." in text
