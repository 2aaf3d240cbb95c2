"""Arguments of commands: JSON, and names that do not exist."""

from collections.abc import Iterable
from typing import Any, cast

from vaka.cli.kit.errors import UsageError
from vaka.config.documents import parse_json, suggest
from vaka.core.types.errors import ConfigError


def parse_json_object(text: str, expected: str) -> dict[str, Any]:
    """Return an argument that is a JSON object. Raises ``UsageError``, which says what was ``expected``."""
    try:
        value = parse_json(text, "JSON")
    except ConfigError as error:
        raise UsageError(str(error)) from None
    if not isinstance(value, dict):
        raise UsageError(f"JSON: expected {expected}")
    return cast("dict[str, Any]", value)


def hint_of_names(name: str, known: Iterable[str]) -> str:
    """Return the end of a message about a name that does not exist: a near name or all names; ``""`` without any."""
    names = dict.fromkeys(known)
    return f"; {suggest(name, names)}" if names else ""
