"""The files that define MCP servers, as data."""

from pathlib import Path
from typing import Any, cast

import msgspec

from vaka.config.documents import parse_tolerant_json, read_errors
from vaka.core.types.errors import ConfigError
from vaka.project.claude_settings import MAX_STATE_BYTES, read_settings_text


def read_server_file(path: Path) -> tuple[object, str]:
    """Return a file of servers as data, and what is wrong with its JSON. Raises ``ConfigError``."""
    with read_errors(path):
        text = read_settings_text(path)
    return parse_tolerant_json(text if text.strip() else "{}", str(path))


def read_claude_state(path: Path) -> dict[str, Any]:
    """Return ``~/.claude.json``, ``{}`` when it does not exist. Raises ``ConfigError``."""
    with read_errors(path):
        try:
            text = read_settings_text(path, MAX_STATE_BYTES)
        except FileNotFoundError:
            return {}
    try:
        state: object = msgspec.json.decode(text or "{}")
    except msgspec.DecodeError as error:
        raise ConfigError(f"{path}: not JSON: {error}") from None
    if not isinstance(state, dict):
        raise ConfigError(f"{path}: expected an object")
    return cast("dict[str, Any]", state)
