"""What a runtime gives to the middleware of a feature."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from vaka.core.ports.agent import ToolArgumentParser
from vaka.core.ports.sandbox import Process
from vaka.core.ports.values import KeyValueStore


class KeyStore(Protocol):
    """Secrets of the user by name, in the system keyring or in files that only their owner can read."""

    @property
    def folder(self) -> Path:
        """The folder of the files."""
        ...

    def get(self, name: str, /) -> str | None:
        """Return a secret. Raises ``ConfigError`` and ``AuthenticationFailed`` when it cannot be read."""
        ...

    def __contains__(self, name: object, /) -> bool: ...

    def add(self, name: str, key: str, /) -> str:
        """Store a secret. Raises ``ConfigError``."""
        ...

    def remove(self, name: str, /) -> bool:
        """Remove a secret; return whether there was one. Raises ``ConfigError``."""
        ...

    def place_of(self, name: str, /) -> str:
        """Return where a secret is, as a text for people."""
        ...


class MiddlewareServices(Protocol):
    """What the middleware of a feature needs of its runtime."""

    @property
    def values(self) -> KeyValueStore:
        """The values of the store."""
        ...

    @property
    def folder(self) -> str:
        """The folder in which programs start."""
        ...

    @property
    def program_environment(self) -> dict[str, str]:
        """The variables for programs outside of the sandbox, without secrets."""
        ...

    def uses_sandbox(self, programs: str, /) -> bool:
        """Return whether a kind of programs, such as ``mcp``, runs in the sandbox of commands."""
        ...

    async def start_in_sandbox(self, argv: tuple[str, ...], cwd: str, /, *, env: Mapping[str, str]) -> Process:
        """Start a program with a pipe as its stdin in the sandbox of commands. Raises ``SandboxError``."""
        ...

    def open_keys(self, folder: str, command: str, /) -> KeyStore:
        """Return the secrets that ``command`` has stored, in a folder beside the keys of model providers."""
        ...

    def add_secret(self, value: str, /) -> None:
        """Remove a text from logs from now on."""
        ...

    def is_secret(self, name: str, value: str, /) -> bool:
        """Return whether a variable looks like a secret, by its name or its value."""
        ...

    def argument_parser(self, schema: dict[str, Any], /) -> ToolArgumentParser:
        """Return a parser of tool arguments for a JSON Schema."""
        ...

    def check_schema(self, schema: dict[str, Any], /) -> None:
        """Raise ``InvalidInput`` for a JSON Schema that is not valid."""
        ...
