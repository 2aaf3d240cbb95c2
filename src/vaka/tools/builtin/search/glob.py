"""The Glob tool, and the wildcard patterns it compiles."""

import heapq
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing
from functools import lru_cache
from typing import Annotated, Any

from vaka.core.ports.files import FileInfo, Files
from vaka.core.ports.tool import ToolContext
from vaka.core.types.errors import FileError, FileMissing, InvalidInput
from vaka.core.types.message import Text, ToolResult, replace_surrogates
from vaka.tools.builtin.builtin_tool import builtin_tool
from vaka.tools.builtin.search.walk import join_path, relative_path, visibility_check, walk

MAX_EXPANSIONS = 1_000
"""Patterns that braces may stand for."""

MAX_PATTERN_LENGTH = 1_000

_WILDCARD_CHARACTER = re.compile(r"[*?\[\\]")


class NamePattern:
    """A pattern for one name. What lies between its stars fits at the first place or at none: no going back."""

    def __init__(self, pattern: str) -> None:
        self._literal = pattern if _is_literal(pattern) else ""
        self._suffix = pattern[1:] if pattern[0] == "*" and _is_literal(pattern[1:]) else ""
        pieces = _split_stars(pattern)
        self._star_count = len(pieces) - 1
        self._pieces = [re.compile(piece, re.DOTALL) for piece in pieces]
        self._last = re.compile(f"(?:{pieces[-1]})\\Z", re.DOTALL)

    def match(self, name: str) -> bool:
        """Tell whether a name matches."""
        if self._literal:
            return name == self._literal
        if self._suffix:
            return name.endswith(self._suffix)
        if not self._star_count:
            return self._pieces[0].fullmatch(name) is not None
        found = self._pieces[0].match(name)
        for piece in self._pieces[1:-1]:
            found = piece.search(name, found.end()) if found else None
        return found is not None and self._last.search(name, found.end()) is not None


class Wildcard:
    """A pattern for paths from some folder on."""

    def __init__(self, pattern: str) -> None:
        if not pattern or len(pattern) > MAX_PATTERN_LENGTH:
            raise InvalidInput(f"a pattern has 1 to {MAX_PATTERN_LENGTH} characters, this one has {len(pattern)}")
        self.text = pattern
        written = [[name for name in one.split("/") if name not in {"", "."}] for one in expand_braces(pattern)]
        self.base_folder = _common_prefix_of([_literal_prefix_of(names) for names in written])
        """The folders that every path it matches begins with."""
        self._alternatives = [[None if name == "**" else _name_pattern(name) for name in names] for names in written]

    @property
    def max_depth(self) -> int | None:
        """How many names a path it matches has at most; ``None`` for any number."""
        if any(None in way for way in self._alternatives):
            return None
        return max(len(way) for way in self._alternatives)

    def match(self, path: str) -> bool:
        """Tell whether a path matches."""
        names = path.split("/")
        return any(_match_names(way, names) for way in self._alternatives)


@lru_cache(maxsize=1024)
def _name_pattern(pattern: str) -> NamePattern:
    return NamePattern(pattern)


def expand_braces(pattern: str) -> list[str]:
    """Return the patterns that one with braces stands for. Raises ``InvalidInput`` when they are too many."""
    done: list[str] = []
    waiting = [pattern]
    while waiting:
        text = waiting.pop()
        found = _find_braces(text)
        if found is None:
            done.append(text)
        else:
            start, end, options = found
            waiting += [text[:start] + option + text[end:] for option in reversed(options)]
        if len(done) + len(waiting) > MAX_EXPANSIONS:
            raise InvalidInput(f"the braces in {pattern!r} stand for more than {MAX_EXPANSIONS} patterns")
    return done


def _find_braces(text: str) -> tuple[int, int, list[str]] | None:
    """Return the first braces with a comma in them: where they begin and end, and what they offer."""
    start = _find_next(text, 0, "{")
    while start is not None:
        options, depth, begun = list[str](), 0, start + 1
        for at in _brace_positions(text, start):
            letter = text[at]
            depth += (letter == "{") - (letter == "}")
            if depth == 0 or (depth == 1 and letter == ","):
                options.append(text[begun:at])
                begun = at + 1
            if depth == 0:
                if len(options) > 1:
                    return start, at + 1, options
                break
        start = _find_next(text, start + 1, "{")
    return None


def _brace_positions(text: str, at: int) -> Iterator[int]:
    """Yield where braces and commas are that no backslash stands before."""
    while at < len(text):
        if text[at] == "\\":
            at += 2
            continue
        if text[at] in "{},":
            yield at
        at += 1


def _find_next(text: str, at: int, wanted: str) -> int | None:
    return next((found for found in _brace_positions(text, at) if text[found] == wanted), None)


def _is_literal(pattern: str) -> bool:
    return not _WILDCARD_CHARACTER.search(pattern)


def _literal_prefix_of(names: Sequence[str]) -> list[str]:
    """Return the names at the beginning without wildcards, but for the last name."""
    plain: list[str] = []
    for name in names[:-1]:
        if not _is_literal(name):
            break
        plain.append(name)
    return plain


def _common_prefix_of(ways: Sequence[list[str]]) -> str:
    first = min(ways)
    last = max(ways)
    count = 0
    while count < len(first) and count < len(last) and first[count] == last[count]:
        count += 1
    return "/".join(first[:count])


def _match_names(patterns: Sequence[NamePattern | None], names: Sequence[str]) -> bool:
    """Match names one by one; ``**`` takes any number of them, and what follows it fits at the first place or none."""
    at, position, back, resume = 0, 0, -1, 0
    while position < len(names):
        part = patterns[at] if at < len(patterns) else None
        if part is None and at < len(patterns):
            back, resume, at = at, position, at + 1
        elif part is not None and part.match(names[position]):
            at, position = at + 1, position + 1
        elif back >= 0:
            resume += 1
            at, position = back + 1, resume
        else:
            return False
    return all(part is None for part in patterns[at:])


def _split_stars(pattern: str) -> list[str]:
    """Return regular expressions for what lies between the stars."""
    pieces, at = [""], 0
    while at < len(pattern):
        letter = pattern[at]
        at += 1
        if letter == "*":
            pieces.append("")
        elif letter == "?":
            pieces[-1] += "."
        elif letter == "[" and (found := _read_set(pattern, at)):
            text, at = found
            pieces[-1] += text
        else:
            if letter == "\\" and at < len(pattern):
                letter, at = pattern[at], at + 1
            pieces[-1] += re.escape(letter)
    return pieces


def _read_set(pattern: str, at: int) -> tuple[str, int] | None:
    """Read ``[…]`` behind its bracket; ``None`` when it does not end."""
    negated = pattern[at : at + 1] in {"!", "^"}
    at += negated
    end = pattern.find("]", at + 1)
    if end < 0:
        return None
    inside = re.sub(r"([\[\\&~|^])", r"\\\1", pattern[at:end])
    try:
        re.compile(f"[{inside}]")
    except re.error:
        raise InvalidInput(f"{pattern!r}: {pattern[at - 1 : end + 1]!r} is no set of letters") from None
    return f"[{'^' if negated else ''}{inside}]", end + 1


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
