"""Paths that were removed because a command must not create them: collected from all commands, for the model."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from weakref import WeakKeyDictionary

import msgspec

from vaka.core.ports.sandbox import Process, RemovedPath
from vaka.core.types.progress import OutputStream

MAX_DESCRIBED = 10
"""Paths that one result names."""


class CheckedProcess:
    """A process after whose end the workspace is checked once; implements ``Process``."""

    def __init__(
        self, process: Process, check: Callable[[], Sequence[RemovedPath]] | None, find_rule: Callable[[str], str]
    ) -> None:
        self._process = process
        self._check = check
        self._find_rule = find_rule
        self._found: Sequence[RemovedPath] = ()
        self._checking: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def removed(self) -> Sequence[RemovedPath]:
        """The paths that the sandbox has removed, then the paths that the check has removed."""
        named = (msgspec.structs.replace(entry, rule=self._find_rule(entry.path)) for entry in self._process.removed)
        return (*named, *self._found)

    def announce(self, path: str) -> None:
        """Leave what appears at a path that is protected."""
        self._process.announce(path)

    def output(self) -> AsyncGenerator[tuple[OutputStream, bytes]]:
        """Yield output as it is written."""
        return self._process.output()

    async def write_stdin(self, data: bytes) -> None:
        """Write to stdin."""
        await self._process.write_stdin(data)

    def close_stdin(self) -> None:
        """Close stdin."""
        self._process.close_stdin()

    async def wait(self) -> int:
        """Return the exit code."""
        return await self._process.wait()

    async def stop(self, grace: float = 2.0) -> None:
        """Stop the process, then check the workspace."""
        await self._process.stop(grace)
        if self._check is not None:
            if self._checking is None:
                self._checking = asyncio.create_task(self._run_check(self._check))
            await asyncio.shield(self._checking)

    async def _run_check(self, check: Callable[[], Sequence[RemovedPath]]) -> None:
        self._found = await asyncio.to_thread(check)


class RemovedPaths:
    """The paths that were removed while commands ran; each path is returned once."""

    def __init__(self) -> None:
        self._reported: WeakKeyDictionary[CheckedProcess, int] = WeakKeyDictionary()

    def follow(self, process: CheckedProcess) -> None:
        """Include a process for as long as it is known."""
        self._reported[process] = 0

    def announce(self, path: str) -> None:
        """Tell all processes that the caller is about to create a path."""
        for process in list(self._reported):
            process.announce(path)

    def take(self) -> list[RemovedPath]:
        """Return what was removed since the last call, whichever command created it."""
        found: list[RemovedPath] = []
        for process, reported in list(self._reported.items()):
            removed = process.removed
            found += removed[reported:]
            self._reported[process] = len(removed)
        return found


def describe_removed(removed: Iterable[RemovedPath]) -> list[str]:
    """Return a note for each path, and one on how such files can be created."""
    entries = list(removed)
    notes = [_describe(entry) for entry in entries[:MAX_DESCRIBED]]
    if len(entries) > MAX_DESCRIBED:
        notes.append(f"the same happened to {len(entries) - MAX_DESCRIBED} more paths")
    if any(not entry.rule for entry in entries):
        notes.append(
            "commands cannot create files that decide what other programs run or what is allowed; create them with "
            "Write, for which a person is asked"
        )
    return notes


def _describe(entry: RemovedPath) -> str:
    why = f"the rule {entry.rule} denies it" if entry.rule else "it is protected"
    if entry.problem:
        return f"{entry.path} appeared while the command ran; {why}, but {entry.problem}"
    kept = f"moved to {entry.kept}" if entry.kept else "deleted"
    return f"{entry.path} appeared while the command ran and was {kept}: {why}"
