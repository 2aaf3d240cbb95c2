"""Glob: find files by name."""

import heapq
from collections.abc import Callable
from contextlib import aclosing
from typing import Annotated, Any

from vaka.core.ports.files import FileInfo, Files
from vaka.core.ports.tool import ToolContext
from vaka.core.types.errors import FileError, FileMissing
from vaka.core.types.message import Text, ToolResult, replace_surrogates
from vaka.tools.builtin.builtin_tool import builtin_tool
from vaka.tools.builtin.search.walk import join_path, relative_path, visibility_check, walk
from vaka.tools.builtin.search.wildcard import Wildcard

MAX_FILES = 100
"""Files that are told."""


@builtin_tool("Glob", effect="read")
async def glob(
    context: ToolContext,
    pattern: Annotated[str, "The pattern, such as **/*.py or src/**/*.{ts,tsx}."],
    path: Annotated[str, "The folder to search in; the working folder if left out."] = "",
) -> ToolResult:
    """Find files by their names."""
    text, value = await find_files(context.files, pattern, path, may_read=context.world.may_read)
    return ToolResult(call=context.call, content=(Text(text=replace_surrogates(text)),), value=value)


async def find_files(
    files: Files, pattern: str, path: str = "", *, may_read: Callable[[str], bool] | None = None
) -> tuple[str, dict[str, Any]]:
    """Return what is told of the files that match, in words and as data."""
    wanted, top = _split_pattern(pattern)
    search = _GlobSearch(files, wanted, visibility_check(files, may_read))
    start = join_path(path, join_path(top, wanted.base_folder) if wanted.base_folder else top)
    note = await search.run(start, wanted.base_folder)
    found = search.newest_files()
    value = {
        "pattern": pattern, "path": path, "files": [info.path for info in found], "count": len(found),
        "total": search.total, "truncated": search.total > len(found),
    }  # fmt: skip
    said = [info.path for info in found] or [_no_match_message(pattern, path, wanted)]
    if search.total > len(found):
        said.append(f"[the {len(found)} newest of {search.total} files; use a narrower pattern or path for the others]")
    if note:
        said.append(f"[{note}]")
    return "\n".join(said), value


class _GlobSearch:
    """The newest files that match."""

    def __init__(self, files: Files, wanted: Wildcard, is_visible: Callable[[str], bool]) -> None:
        self._files, self._wanted, self._is_visible = files, wanted, is_visible
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
        deepest = self._wanted.max_depth
        async with aclosing(walk(self._files, start, details=True)) as entries:
            try:
                async for entry in entries:
                    tail = relative_path(info.path, entry.path)
                    whole = f"{folder}/{tail}" if folder else tail
                    if deepest is not None and whole.count("/") >= deepest:
                        break
                    if entry.kind == "file" and self._wanted.match(whole) and self._is_visible(entry.path):
                        self._add_file(entry)
            except FileError as error:
                if not self.total and not self._found:
                    raise
                return str(error)
        return ""

    def newest_files(self) -> list[FileInfo]:
        """Return the files that changed last, the last one first."""
        return [info for _, _, info in heapq.nsmallest(MAX_FILES, self._found)]

    def _add_file(self, info: FileInfo) -> None:
        self.total += 1
        self._found.append((-info.modified, info.path, info))
        if len(self._found) > MAX_FILES * 20:
            self._found = heapq.nsmallest(MAX_FILES, self._found)


def _split_pattern(pattern: str) -> tuple[Wildcard, str]:
    """Return a pattern without what it begins with when it is absolute, and that."""
    for top in ("~/", "/"):
        if pattern.startswith(top) and len(pattern) > len(top):
            return Wildcard(pattern[len(top) :]), top.rstrip("/") or "/"
    return Wildcard(pattern), ""


def _no_match_message(pattern: str, path: str, wanted: Wildcard) -> str:
    hint = f"; **/{pattern} looks in all folders below" if wanted.max_depth == 1 and "/" not in pattern else ""
    return f"no files match {pattern!r}{f' in {path}' if path else ''}{hint}"
