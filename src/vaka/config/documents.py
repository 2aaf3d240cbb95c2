"""Configuration documents: read errors, JSON without duplicate names, dotted TOML keys, hints for unknown names."""

import json
import tomllib
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Any, cast

from vaka.core.types.errors import ConfigError


@contextmanager
def read_errors(path: Path) -> Generator[None]:
    """Raise ``ConfigError`` that names ``path`` for a file that cannot be read or is not UTF-8."""
    try:
        yield
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8: {error.reason} at byte {error.start}") from None


def parse_json(text: str, origin: str) -> object:
    """Return a JSON document as data.

    Raises ``ConfigError`` for anything else, also for a duplicate name: the second would hide the value of the first.
    """

    def unique_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in pairs]
        for index, name in enumerate(names):
            if name in names[:index]:
                raise ConfigError(f"{origin}: {name!r} appears twice")
        return dict(pairs)

    def reject_constant(name: str) -> float:
        raise ConfigError(f"{origin}: not JSON: {name} is not a number")

    try:
        document: object = json.loads(text, object_pairs_hook=unique_pairs, parse_constant=reject_constant)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{origin}:{error.lineno}: not JSON: {error.msg} (column {error.colno})") from None
    except (RecursionError, ValueError):
        raise ConfigError(f"{origin}: not JSON: nested too deep, or a number has too many digits") from None
    return document


def split_dotted_key(text: str) -> tuple[str, ...]:
    """Return the parts of a dotted TOML key such as ``prices."gpt-4.1".input``, ``()`` for anything else."""
    try:
        inner: Any = tomllib.loads(f"{text.strip()} = 0") if text.strip() else {}
    except tomllib.TOMLDecodeError:
        return ()
    path: list[str] = []
    while isinstance(inner, dict) and inner:
        part, inner = next(iter(cast("dict[str, Any]", inner).items()))
        path.append(part)
    return tuple(path)


def suggest(name: str, known: Iterable[str]) -> str:
    """Return the hint for a name that does not exist."""
    names = list(known)
    near = get_close_matches(name, names, n=1)
    return f"did you mean {near[0]!r}?" if near else f"there are {', '.join(names)}"
