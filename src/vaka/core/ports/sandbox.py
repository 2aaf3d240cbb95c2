"""The socket for commands: what runs outside this process, and what the operating system lets it do."""

from collections.abc import AsyncGenerator, Mapping
from typing import Literal, Protocol, TypeAlias

import msgspec

OutputStream: TypeAlias = Literal["stdout", "stderr"]


class ResourceLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What a command may use; ``None`` for no bound."""

    cpu_seconds: int | None = None
    memory_bytes: int | None = 4 * 1024**3
    processes: int | None = 512
    file_bytes: int | None = 4 * 1024**3
    open_files: int | None = 4096


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """What to run, and what it may touch."""

    argv: tuple[str, ...]
    cwd: str
    env: Mapping[str, str] = {}
    """Added to what the sandbox gives every command: a path, a home, a language; no keys."""
    stdin: bytes = b""
    writable: tuple[str, ...] = ()
    """Folders it may write to, besides a temporary one of its own."""
    protected: tuple[str, ...] = ()
    """Files and folders inside them that stay as they are, also when they do not exist yet."""
    hidden: tuple[str, ...] = ()
    """Files and folders it must not even read."""
    network: bool = False
    proxy: str = ""
    """The only address it may reach, when it has no network otherwise."""
    bounds: ResourceLimits = ResourceLimits()


class Process(Protocol):
    """A command that runs, with everything it starts."""

    @property
    def pid(self) -> int:
        """Its process id on this machine."""
        ...

    def output(self) -> AsyncGenerator[tuple[OutputStream, bytes]]:
        """Yield what it prints as it prints it, until it and everything it started has closed its ends; once."""
        ...

    async def wait(self) -> int:
        """Return its exit code; minus the signal that ended it."""
        ...

    async def stop(self, grace: float = 2.0) -> None:
        """End it and everything it started: asked first, killed after ``grace`` seconds. Safe to call twice."""
        ...


class Sandbox(Protocol):
    """Starts commands. What it promises it enforces; what it cannot enforce it says."""

    @property
    def name(self) -> str:
        """What it is called: ``bubblewrap``, ``landlock`` or ``none``."""
        ...

    @property
    def enforces(self) -> frozenset[str]:
        """What the operating system sees to: ``write read network processes memory syscalls``, or some of them."""
        ...

    async def start(self, command: Command) -> Process:
        """Start a command. Raises ``SandboxError`` when it cannot be confined as asked."""
        ...
