"""What a script handed over, if it is what it must be; else a ``ScriptError`` that says what was expected."""

from typing import Any, TypeGuard

from vaka.core.types.errors import ScriptError
from vaka.core.types.ids import JSON


def is_table(value: JSON) -> TypeGuard[dict[Any, Any]]:
    """Whether a value is a table with names, or an empty one."""
    return isinstance(value, dict)


def is_list(value: JSON) -> TypeGuard[list[Any]]:
    """Whether a value is a list."""
    return isinstance(value, list)


def type_name(value: JSON) -> str:
    """Say in the words of a script what a value is."""
    if value is None:
        return "nil"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, bytes):
        return "a string that is no text"
    return "a string" if isinstance(value, str) else "a table"


def as_string(value: JSON, label: str) -> str:
    """Return a text."""
    if not isinstance(value, str):
        raise ScriptError(f"{label} must be a string, not {type_name(value)}")
    return value


def as_table(value: JSON, label: str) -> dict[str, Any]:
    """Return a table with names, as one of its own; an empty one may look like a list, and nothing is an empty one."""
    if value is None or value == []:
        return {}
    if not is_table(value) or not all(isinstance(key, str) for key in value):
        raise ScriptError(
            f"{label} must be a table with names, not {'a list' if isinstance(value, list) else type_name(value)}"
        )
    return dict(value)


def as_list(value: JSON, label: str) -> list[Any]:
    """Return a list; an empty one may look like a table with names, and nothing is an empty one."""
    if value is None or value == {}:
        return []
    if not is_list(value):
        raise ScriptError(f"{label} must be a list, not {type_name(value)}")
    return value


def as_count(value: JSON, label: str) -> int:
    """Return a whole number that is not negative."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ScriptError(f"{label} must be a whole number, not {value!r}")
    return value
