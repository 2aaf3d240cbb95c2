"""Reading one configuration file; what is wrong is told with file and line."""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from vaka.config.keys import KEYS, check, suggest
from vaka.core.types.errors import ConfigError

PYPROJECT = "pyproject.toml"
PROJECT = "vaka.toml"


def read_file(path: Path) -> dict[str, tuple[Any, str]]:
    """Return the settings of a file, each with ``file:line``. Raises ``ConfigError``."""
    text = _text(path)
    table: Mapping[str, Any] = _parsed(path, text)
    header = ""
    if path.name == PYPROJECT:
        table, header = _ours(table), "[tool.vaka]"
    found: dict[str, tuple[Any, str]] = {}
    for name, value in table.items():
        place = f"{path}:{line_of(text, name, header)}"
        key = KEYS.get(name)
        if key is None:
            raise ConfigError(f"{place}: unknown key {name!r}; {suggest(name, KEYS)}")
        try:
            found[name] = (check(key, value), place)
        except ValueError as error:
            raise ConfigError(f"{place}: {name}: {error}") from error
    return found


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


def line_of(text: str, key: str, header: str = "") -> int:
    """Return the line a key stands on, 1 when it cannot be found."""
    start = text.find(header) if header else 0
    found = re.compile(rf"^[ \t]*[\"']?{re.escape(key)}[\"']?[ \t]*[=.\]]|^\[{re.escape(key)}\]", re.MULTILINE).search(
        text, max(start, 0)
    )
    return text.count("\n", 0, found.start()) + 1 if found else 1


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
    return "[tool.vaka]" in text
