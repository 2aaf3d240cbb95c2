"""Walk a folder, hide files that the policy denies, join paths, and suggest a file for a misspelled path."""

import difflib
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from vaka.core.ports.files import FileInfo, Files, WalkableFiles
from vaka.core.ports.tool import ToolContext
from vaka.core.types.errors import FileError
from vaka.core.types.message import replace_surrogates

_GIT_FOLDER = ".git"


async def walk(files: Files, start: str, *, details: bool = False) -> AsyncGenerator[FileInfo]:
    """Yield all entries of a folder from the top, also hidden ones, without ``.git`` and ignored files.

    Links are yielded and not followed. Raises ``FileError`` at the end when some folders could not be read.
    """
    if isinstance(files, WalkableFiles):
        async with aclosing(files.walk(start, hidden=True, details=details)) as found:
            async for info in found:
                yield info
        return
    waiting = deque([start])
    while waiting:
        for info in await files.entries(waiting.popleft()):
            if info.path.rpartition("/")[2] == _GIT_FOLDER:
                continue
            if info.kind == "folder":
                waiting.append(info.path)
            yield info


def visibility_check(files: Files, may_read: "Callable[[str], bool] | None") -> "Callable[[str], bool]":
    """Return a predicate for paths of the tree: whether the policy lets a file be shown."""
    if may_read is None:
        return lambda path: True
    top = files.root.rstrip("/") + "/"
    return lambda path: may_read(path if path.startswith("/") else top + path)


def join_path(folder: str, path: str) -> str:
    """Join a folder and a path; an absolute path stays as it is."""
    if not folder or path.startswith(("/", "~")):
        return path
    return f"{folder.rstrip('/')}/{path}" if path else folder


def relative_path(folder: str, path: str) -> str:
    """Return a path relative to a folder that contains it."""
    return path[len(folder) :].lstrip("/") if folder else path


async def suggest_file(context: ToolContext, path: str) -> str:
    """Return ``; did you mean …?`` with a file of the same folder whose name is close, else ``""``."""
    files = context.files
    is_visible = visibility_check(files, context.world.may_read)
    folder, _, name = path.rstrip("/").rpartition("/")
    try:
        entries = await files.entries(folder or ("/" if path.startswith("/") else ""))
    except FileError:
        return ""
    paths = [entry.path for entry in entries if entry.kind == "file" and is_visible(entry.path)]
    names = {path.rpartition("/")[2]: path for path in paths}
    folded = {known.casefold(): known for known in names}
    close = [folded[name.casefold()]] if name.casefold() in folded else difflib.get_close_matches(name, names, 1, 0.7)
    return replace_surrogates(f"; did you mean {names[close[0]]!r}?") if close else ""
