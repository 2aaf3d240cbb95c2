"""What lies beneath a folder, for whoever searches."""

from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from vaka.core.ports.files import FileInfo, Files, Walks

_VERSIONS = ".git"


async def walk(files: Files, start: str, *, details: bool = False) -> AsyncGenerator[FileInfo]:
    """Yield everything beneath a folder from the top, hidden names too, without what git keeps or ignores.

    Links are told and not followed. Raises ``FileError`` at the end when some folders could not be looked into.
    """
    if isinstance(files, Walks):
        async with aclosing(files.walk(start, hidden=True, details=details)) as found:
            async for info in found:
                yield info
        return
    waiting = deque([start])
    while waiting:
        for info in await files.entries(waiting.popleft()):
            if info.path.rpartition("/")[2] == _VERSIONS:
                continue
            if info.kind == "folder":
                waiting.append(info.path)
            yield info


def shows(files: Files, may_read: "Callable[[str], bool] | None") -> "Callable[[str], bool]":
    """Return what tells whether a file may be told of, by its path in the tree: those that rules deny are not there."""
    if may_read is None:
        return lambda path: True
    top = files.root.rstrip("/") + "/"
    return lambda path: may_read(path if path.startswith("/") else top + path)


def joined(folder: str, path: str) -> str:
    """Return a path as it is seen from where the folder is."""
    if not folder or path.startswith(("/", "~")):
        return path
    return f"{folder.rstrip('/')}/{path}" if path else folder


def beneath(folder: str, path: str) -> str:
    """Return a path from a folder on that it lies in."""
    return path[len(folder) :].lstrip("/") if folder else path
