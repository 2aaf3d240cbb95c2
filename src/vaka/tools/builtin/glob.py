"""Glob: find files by their names."""

import heapq
from collections.abc import Callable
from contextlib import aclosing
from typing import Annotated, Any

from vaka.core.ports.files import FileInfo, Files
from vaka.core.ports.tool import ToolContext
from vaka.core.types.content import Text, clean
from vaka.core.types.errors import FileError, FileMissing
from vaka.core.types.message import ToolResult
from vaka.tools.builtin.declare import declare
from vaka.tools.builtin.trees import beneath, joined, shows, walk
from vaka.tools.builtin.wildcard import Wildcard

MOST = 100
"""Files that are told."""


@declare("Glob", effect="read")
async def glob(
    context: ToolContext,
    pattern: Annotated[str, "The pattern, such as **/*.py or src/**/*.{ts,tsx}."],
    path: Annotated[str, "The folder to search in; the working folder if left out."] = "",
) -> ToolResult:
    """Find files by their names."""
    text, value = await find(context.files, pattern, path, may_read=context.world.may_read)
    return ToolResult(call=context.call, content=(Text(text=clean(text)),), value=value)


async def find(
    files: Files, pattern: str, path: str = "", *, may_read: Callable[[str], bool] | None = None
) -> tuple[str, dict[str, Any]]:
    """Return what is told of the files that match, in words and as data."""
    wanted, top = _read(pattern)
    search = _Search(files, wanted, shows(files, may_read))
    start = joined(path, joined(top, wanted.folder) if wanted.folder else top)
    note = await search.run(start, wanted.folder)
    found = search.newest()
    value = {
        "pattern": pattern, "path": path, "files": [info.path for info in found], "count": len(found),
        "total": search.total, "truncated": search.total > len(found),
    }  # fmt: skip
    said = [info.path for info in found] or [_nothing(pattern, path, wanted)]
    if search.total > len(found):
        said.append(f"[the {len(found)} newest of {search.total} files; use a narrower pattern or path for the others]")
    if note:
        said.append(f"[{note}]")
    return "\n".join(said), value


class _Search:
    """The newest files that match."""

    def __init__(self, files: Files, wanted: Wildcard, shows: Callable[[str], bool]) -> None:
        self._files, self._wanted, self._shows = files, wanted, shows
        self._found: list[tuple[int, str, FileInfo]] = []
        self.total = 0

    async def run(self, start: str, folder: str) -> str:
        """Look at everything beneath a folder; return what went wrong on the way, if anything."""
        try:
            info = await self._files.stat(start)
        except FileMissing:
            if folder:
                return ""  # the pattern begins with a folder that is not there: nothing matches
            raise
        if folder and info.kind != "folder":
            return ""
        deepest = self._wanted.depth
        async with aclosing(walk(self._files, start, details=True)) as entries:
            try:
                async for entry in entries:
                    tail = beneath(info.path, entry.path)
                    whole = f"{folder}/{tail}" if folder else tail
                    if deepest is not None and whole.count("/") >= deepest:
                        break
                    if entry.kind == "file" and self._wanted.match(whole) and self._shows(entry.path):
                        self._take(entry)
            except FileError as error:
                if not self.total and not self._found:
                    raise
                return str(error)
        return ""

    def newest(self) -> list[FileInfo]:
        """Return the files that changed last, the last one first."""
        return [info for _, _, info in heapq.nsmallest(MOST, self._found)]

    def _take(self, info: FileInfo) -> None:
        self.total += 1
        self._found.append((-info.modified, info.path, info))
        if len(self._found) > MOST * 20:
            self._found = heapq.nsmallest(MOST, self._found)


def _read(pattern: str) -> tuple[Wildcard, str]:
    """Return a pattern without what it begins with when it is absolute, and that."""
    for top in ("~/", "/"):
        if pattern.startswith(top) and len(pattern) > len(top):
            return Wildcard(pattern[len(top) :]), top.rstrip("/") or "/"
    return Wildcard(pattern), ""


def _nothing(pattern: str, path: str, wanted: Wildcard) -> str:
    hint = f"; **/{pattern} looks in all folders below" if wanted.depth == 1 and "/" not in pattern else ""
    return f"no files match {pattern!r}{f' in {path}' if path else ''}{hint}"
