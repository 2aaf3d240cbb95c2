"""The sandbox port: commands in processes of their own, and their confinement."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Annotated, Literal, Protocol

import msgspec

from vaka.core.types.keywords import Key
from vaka.core.types.progress import OutputStream


class ResourceLimits(msgspec.Struct, frozen=True, kw_only=True, repr_omit_defaults=True):
    """The resources a command may use; ``None`` for no limit."""

    cpu_seconds: Annotated[int | None, Key("command_cpu", kind="seconds", widens=True)] = None
    """Seconds of processor time."""
    memory_bytes: Annotated[int | None, Key("command_memory", widens=True, unit=1024**2)] = 4 * 1024**3
    """Memory of the command and its descendants together."""
    processes: Annotated[int | None, Key("command_processes", widens=True)] = 512
    """Processes at the same time."""
    file_bytes: Annotated[int | None, Key("command_file_size", widens=True, unit=1024**2)] = 4 * 1024**3
    """The size of one file."""
    open_files: int | None = 4096
    """Open files of one process."""


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """A command, and the files and network it may use."""

    argv: tuple[str, ...]
    cwd: str
    env: Mapping[str, str] = {}
    """Added to the environment of every command: a path, a home and a locale, without keys."""
    stdin: bytes | Literal["pipe"] = b""
    """The bytes for its stdin; ``pipe`` keeps stdin open for ``Process.write_stdin``."""
    writable: tuple[str, ...] = ()
    """Folders it may write to, besides a temporary one of its own."""
    protected: tuple[str, ...] = ()
    """Files and folders inside them that it must not change. What appears at a missing one is removed."""
    hidden: tuple[str, ...] = ()
    """Files and folders it must not read."""
    masked: tuple[str, ...] = ()
    """Folders that it sees empty, except for the writable folders inside them, whatever is created there meanwhile."""
    network: bool = False
    proxy: str = ""
    """The only address it may connect to when ``network`` is false."""
    bounds: ResourceLimits = ResourceLimits()


class RemovedPath(msgspec.Struct, frozen=True):
    """A protected path that did not exist when a command started, and appeared while it ran."""

    path: str
    kept: str = ""
    """Where its content is now, ``""`` if it was not kept."""
    problem: str = ""
    """Why it could not be removed, ``""`` if it was."""
    rule: str = ""
    """The rule that denies it, ``""`` for a protected path."""


class Process(Protocol):
    """A running command and its descendants."""

    @property
    def pid(self) -> int: ...

    @property
    def removed(self) -> Sequence[RemovedPath]:
        """The paths that were removed from the writable folders until now, since they appeared at a protected path."""
        ...

    def announce(self, path: str) -> None:
        """Leave what appears at a protected path from now on: the caller is about to create it."""
        ...

    def output(self) -> AsyncGenerator[tuple[OutputStream, bytes]]:
        """Yield output as it is written, until all its processes have closed both streams; only once."""
        ...

    async def write_stdin(self, data: bytes) -> None:
        """Write to the stdin of a command that was started with ``stdin="pipe"``.

        Returns when the operating system's buffer has taken all of it, so a command that does not read makes the caller
        wait. Concurrent calls do not mix their data. After a cancelled call a part may have been written. Raises
        ``SandboxError`` when the command has closed its stdin or ended, or after ``close_stdin``.
        """
        ...

    def close_stdin(self) -> None:
        """Close its stdin: the command reads the end of the file. Safe to call twice."""
        ...

    async def wait(self) -> int:
        """Return its exit code, or minus the number of the signal that ended it."""
        ...

    async def stop(self, grace: float = 2.0) -> None:
        """Terminate all its processes, and kill them after ``grace`` seconds. Safe to call twice."""
        ...


class Sandbox(Protocol):
    """Starts confined commands."""

    @property
    def name(self) -> str:
        """``bubblewrap``, ``landlock`` or ``none``."""
        ...

    @property
    def enforces(self) -> frozenset[str]:
        """The limits the operating system enforces, of ``write read network processes memory syscalls``."""
        ...

    async def start(self, command: Command) -> Process:
        """Start a command. Raises ``SandboxError`` when it cannot be confined as requested."""
        ...
