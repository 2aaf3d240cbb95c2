"""The Glob tool, the wildcard patterns it compiles, and the walk through folders."""

import heapq
import re
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from functools import lru_cache
from itertools import takewhile
from typing import Annotated, Any

from vaka.core.ports.files import FileInfo, Files, WalkableFiles
from vaka.core.ports.tool import ToolContext
from vaka.core.types.errors import FileError, FileMissing, InvalidInput
from vaka.core.types.message import ToolResult
from vaka.core.types.traits import ToolTraits
from vaka.matching.globs import NameMatcher, compile_name, is_literal, matches_names
from vaka.tools.builtin.builtin_tool import builtin_tool, text_result
from vaka.tools.builtin.files.file_content import visibility_check

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


def join_path(folder: str, path: str) -> str:
    """Join a folder and a path; an absolute path stays as it is."""
    if not folder or path.startswith(("/", "~")):
        return path
    return f"{folder.rstrip('/')}/{path}" if path else folder


def relative_path(folder: str, path: str) -> str:
    """Return a path relative to a folder that contains it."""
    return path[len(folder) :].lstrip("/") if folder else path


MAX_EXPANSIONS = 1_000
"""Patterns that braces may expand to."""

MAX_PATTERN_LENGTH = 1_000

_BRACE_OR_ESCAPE = re.compile(r"\\.|[{},]", re.DOTALL)


class Wildcard:
    """A pattern for relative paths, with ``**`` and braces. Raises ``InvalidInput``."""

    def __init__(self, pattern: str) -> None:
        if not pattern or len(pattern) > MAX_PATTERN_LENGTH:
            raise InvalidInput(f"a pattern has 1 to {MAX_PATTERN_LENGTH} characters, this one has {len(pattern)}")
        self.text = pattern
        paths = [[name for name in one.split("/") if name not in {"", "."}] for one in expand_braces(pattern)]
        self.base_folder = _common_prefix_of([list(takewhile(is_literal, names[:-1])) for names in paths])
        """The folders that every matching path begins with."""
        self._alternatives = [[None if name == "**" else _compile_name(name) for name in names] for names in paths]

    @property
    def max_depth(self) -> int | None:
        """The largest number of names in a matching path; ``None`` for any number."""
        if any(None in names for names in self._alternatives):
            return None
        return max(map(len, self._alternatives))

    def match(self, path: str) -> bool:
        names = path.split("/")
        return any(matches_names(patterns, names) for patterns in self._alternatives)


@lru_cache(maxsize=1024)
def _compile_name(pattern: str) -> NameMatcher:
    return compile_name(pattern, _parse_set, lenient=True)


def expand_braces(pattern: str) -> list[str]:
    """Return the patterns that braces expand to. Raises ``InvalidInput`` when they are too many."""
    done: list[str] = []
    waiting = [pattern]
    while waiting:
        text = waiting.pop()
        braces = _find_braces(text)
        if braces is None:
            done.append(text)
        else:
            start, end, options = braces
            waiting += [text[:start] + option + text[end:] for option in reversed(options)]
        if len(done) + len(waiting) > MAX_EXPANSIONS:
            raise InvalidInput(f"the braces in {pattern!r} expand to more than {MAX_EXPANSIONS} patterns")
    return done


def _find_braces(text: str) -> tuple[int, int, list[str]] | None:
    """Return the first braces with a comma in them: their start, their end and their options."""
    positions = [found.start() for found in _BRACE_OR_ESCAPE.finditer(text) if found[0] in "{},"]
    for index, start in enumerate(positions):
        options = list[str]()
        depth = 0
        begun = start + 1
        for at in positions[index:] if text[start] == "{" else ():
            letter = text[at]
            depth += (letter == "{") - (letter == "}")
            if depth == 0 or (depth == 1 and letter == ","):
                options.append(text[begun:at])
                begun = at + 1
            if depth == 0:
                break
        if depth == 0 and len(options) > 1:
            return start, begun, options
    return None


def _common_prefix_of(paths: Sequence[list[str]]) -> str:
    pairs = zip(min(paths), max(paths), strict=False)
    return "/".join(name for name, _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _parse_set(pattern: str, at: int) -> tuple[str, int] | None:
    """Read ``[…]`` from behind its bracket; ``None`` when it does not end."""
    negated = pattern[at : at + 1] in {"!", "^"}
    at += negated
    end = pattern.find("]", at + 1)
    if end < 0:
        return None
    inside = re.sub(r"([\[\\&~|^])", r"\\\1", pattern[at:end])
    try:
        re.compile(f"[{inside}]")
    except re.error:
        raise InvalidInput(f"{pattern!r}: {pattern[at - 1 : end + 1]!r} is not a set of characters") from None
    return f"[{'^' if negated else ''}{inside}]", end + 1


MAX_FILES = 100
"""Files in one result."""


@builtin_tool(
    "Glob",
    effect="read",
    traits=ToolTraits(reads=True, folders=("path",), pattern="pattern", rule_arguments=("pattern",)),
)
async def glob(
    context: ToolContext,
    pattern: str,
    path: Annotated[str, "The folder; default: the working folder."] = "",
) -> ToolResult:
    """Find files by their names."""
    return text_result(context, *await find_files(context.files, pattern, path, may_read=context.world.may_read))


async def find_files(
    files: Files, pattern: str, path: str = "", *, may_read: Callable[[str], bool] | None = None
) -> tuple[str, dict[str, Any]]:
    """Return the matching files as text and as data."""
    wanted, top = _split_pattern(pattern)
    start = join_path(path, join_path(top, wanted.base_folder) if wanted.base_folder else top)
    is_visible = visibility_check(files, may_read)
    newest: list[tuple[int, str]] = []
    total, note = 0, ""
    async with aclosing(_matching_files(files, wanted, start)) as matches:
        try:
            async for info in matches:
                if is_visible(info.path):
                    total += 1
                    newest.append((-info.modified, info.path))
                    newest = newest if len(newest) <= MAX_FILES * 20 else heapq.nsmallest(MAX_FILES, newest)
        except FileError as error:
            if not total:
                raise
            note = str(error)
    paths = [path for _, path in heapq.nsmallest(MAX_FILES, newest)]
    value = {
        "pattern": pattern,
        "path": path,
        "files": paths,
        "count": len(paths),
        "total": total,
        "truncated": total > len(paths),
    }
    lines = paths or [_no_match_message(pattern, path, wanted)]
    if total > len(paths):
        lines = [*lines, f"[the {len(paths)} newest of {total} files; use a narrower pattern or path for the others]"]
    return "\n".join([*lines, f"[{note}]"] if note else lines), value


async def _matching_files(files: Files, wanted: Wildcard, start: str) -> AsyncGenerator[FileInfo]:
    """Yield the matching files; a ``FileError`` at the end is about folders that could not be read."""
    folder, deepest = wanted.base_folder, wanted.max_depth
    try:
        info = await files.stat(start)
    except FileMissing:
        if folder:
            return  # the pattern begins with a missing folder: nothing matches
        raise
    if folder and info.kind != "folder":
        return
    async with aclosing(walk(files, start, details=True)) as entries:
        async for entry in entries:
            tail = relative_path(info.path, entry.path)
            path = f"{folder}/{tail}" if folder else tail
            if deepest is not None and path.count("/") >= deepest:
                return
            if entry.kind == "file" and wanted.match(path):
                yield entry


def _split_pattern(pattern: str) -> tuple[Wildcard, str]:
    """Split ``/`` or ``~/`` off an absolute pattern; return the rest and the folder."""
    for top in ("~/", "/"):
        if pattern.startswith(top) and len(pattern) > len(top):
            return Wildcard(pattern[len(top) :]), top.rstrip("/") or "/"
    return Wildcard(pattern), ""


def _no_match_message(pattern: str, path: str, wanted: Wildcard) -> str:
    hint = f"; **/{pattern} looks in all folders below" if wanted.max_depth == 1 and "/" not in pattern else ""
    return f"no files match {pattern!r}{f' in {path}' if path else ''}{hint}"
