"""The flags of commands that use a server, and the key for it."""

import os
from collections.abc import Collection

import click
from click.core import ParameterSource

from vaka.cli.kit.errors import UsageError
from vaka.cli.kit.options import expand_path
from vaka.config.settings import API_KEY_VARIABLE
from vaka.core.types.errors import ConfigError

RUN_FLAGS = frozenset(
    {
        "server_url",
        "api_key_file",
        "words",
        "output",
        "input",
        "agent",
        "model",
        "option",
        "attach",
        "session",
        "resume",
        "ask",
        "file",
        "quiet",
        "verbose",
    }
)
"""The flags of ``vaka run`` that have a meaning for turns of a server."""
CHAT_FLAGS = frozenset(
    {
        "server_url",
        "api_key_file",
        "words",
        "agent",
        "model",
        "session",
        "theme",
        "plain",
        "while_busy",
        "verbose",
    }
)
"""The flags of ``vaka chat``."""


def check_remote_flags(names: Collection[str]) -> None:
    """Raise ``UsageError`` for a flag on the command line that only a turn in this process would obey."""
    context = click.get_current_context()
    for parameter in context.command.params:
        name = parameter.name or ""
        if name not in names and context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            flag = parameter.opts[0]
            raise UsageError(f"{flag} does not go with --server: the server runs the turn; leave one of them out")


def read_key(file: str | None) -> str:
    """Return the key for the server, of a file or of the environment. Raises ``ConfigError``."""
    if file is None:
        return os.environ.get(API_KEY_VARIABLE, "").strip()
    try:
        key = expand_path(file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--api-key-file {file}: {error}") from error
    if not key or any(not char.isprintable() or char.isspace() for char in key):
        raise ConfigError(f"--api-key-file {file}: expected one line with a key")
    return key
