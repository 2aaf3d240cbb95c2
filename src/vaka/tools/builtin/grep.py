"""Grep: search what is in files."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing
from typing import Any, Literal

import msgspec

from vaka.core.ports.files import FileInfo, Files, Looks, Parted
from vaka.core.ports.tool import ToolContext
from vaka.core.types.content import Text, clean
from vaka.core.types.errors import FileError, InvalidInput
from vaka.core.types.message import ToolResult
from vaka.tools.builtin import dialect, lines, ripgrep
from vaka.tools.builtin.declare import declare
from vaka.tools.builtin.plain import Worker, paths_in
from vaka.tools.builtin.query import PARAMETERS, Filter, Hit, Query, query_of
from vaka.tools.builtin.trees import beneath, shows

SECONDS = 45.0
"""How long a search may take; the tool itself may take a little longer."""
LONGEST = 500
"""Characters of a line that are shown."""
Engine = Literal["auto", "ripgrep", "python"]


@declare("Grep", effect="read", timeout=SECONDS + 15, parameters=PARAMETERS)
async def grep(context: ToolContext, **given: Any) -> ToolResult:
    """Search what is in files."""
    told = await search(context.files, given, may_read=context.world.may_read)
    return ToolResult(call=context.call, content=(Text(text=clean(told.text)),), value=told.value)


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What a search came to, in words and as data."""

    text: str
    value: dict[str, Any]


async def search(
    files: Files, given: dict[str, Any], *, engine: Engine = "auto", seconds: float = SECONDS,
    may_read: Callable[[str], bool] | None = None,
) -> Told:  # fmt: skip
    """Search files for what the arguments say, with the engine that can do it, and no longer than so many seconds."""
    pattern: str = given["pattern"]
    read = await asyncio.to_thread(dialect.read, pattern) if "\\p" in pattern.lower() else dialect.read(pattern)
    hunt = Hunt(files, query_of(read, given), await files.stat(given.get("path", "")), engine)
    hunt.shows = shows(files, may_read)
    try:
        async with asyncio.timeout(seconds):
            await hunt.run()
            told = await hunt.told()
    except TimeoutError:
        raise FileError(hunt.late(seconds)) from None
    flags = {name: given[name] for name in ("glob", "type", "-i", "multiline") if name in given}
    value = {"pattern": pattern, "compiled_pattern": read.python, "path": given.get("path", ""), **told.value}
    return Told(text=told.text, value={**value, "flags": flags})


class Hunt:
    """One search: first which files, then of those that are told which lines."""

    def __init__(self, files: Files, query: Query, start: FileInfo, engine: Engine = "auto") -> None:
        self._files, self._query, self._start = files, query, start
        self._filter = Filter(query)
        self.shows: Callable[[str], bool] = lambda path: True
        """Whether a file may be told of."""
        self._found: dict[str, int] = {}
        """Files, and how often the pattern is in each."""
        self._places: dict[str, list[Hit]] = {}
        """Where it is, as far as that is known already."""
        self._problem = ""
        self._worker: Worker | None = None
        self._ripgrep = self._choose(engine)

    def _choose(self, engine: Engine) -> ripgrep.Ripgrep | None:
        if engine == "python" or self._query.pattern.rust is None or not self._files.root:
            return None
        if isinstance(self._files, Parted) and not self._files.whole(self._start.path):
            return None  # some of it is not in any folder that ripgrep could look into
        program = ripgrep.program(self._files.root)
        if program is None and engine == "ripgrep":
            raise InvalidInput("ripgrep is not installed")
        return ripgrep.Ripgrep(program, self._files, self._query) if program else None

    async def run(self) -> None:
        """Find the files."""
        folder, path = self._start.kind == "folder", self._start.path
        if not folder and not (self.shows(path) and await self._is_text(path)):
            return
        if self._ripgrep is not None:
            found = await self._search(path)
            wanted = self._accepted(found) if folder and not self._query.by_name else found
            self._found = {path: found[path] for path in wanted if self.shows(path)}
        elif folder:
            await self._work(paths_in(self._files, path, self._accepts, self._note))
        else:
            await self._work(_these([path]))

    async def _search(self, path: str) -> "ripgrep.Found":
        """Ask ripgrep; for lines at once if there are few, so that it is started once."""
        assert self._ripgrep is not None  # noqa: S101  # whoever asks it has looked
        found = await self._ripgrep.find(path, self._start.kind) if self._query.mode == "content" else None
        return found if found is not None else await self._ripgrep.count(path)

    async def told(self) -> Told:
        """Return what is told of them."""
        mode, query = self._query.mode, self._query
        if mode == "content":
            text, value, more = await self._content()
        else:
            text, value, more = await self._files_told()
        totals = {"total_files": len(self._found), "total_matches": sum(self._found.values())}
        said = [text or "no matches"]
        if more:
            said.append(f"[{query.limit} results from number {query.offset + 1} on, there are more; use offset]")
        elif query.offset and not text:
            said = [f"no matches from number {query.offset + 1} on; there are fewer"]
        if self._problem:
            said.append(f"[{self._problem}]")
        return Told(text="\n".join(said), value={"output_mode": mode, **value, **totals, "truncated": more})

    def late(self, seconds: float) -> str:
        """Return what to say when the time is over."""
        where = f" at {self._worker.at!r}" if self._worker is not None and self._worker.at else ""
        return (
            f"the search was stopped{where} after {seconds:g} s: narrow it with path, glob or type, or use a simpler "
            "pattern (nested repetitions can take for ever)"
        )

    def _take(self, path: str, count: int, hits: list[Hit]) -> None:
        self._found[path], self._places[path] = count, hits

    def _accepts(self, path: str, tail: str) -> bool:
        return self._filter.accepts(path, tail) and self.shows(path)

    def _accepted(self, paths: Iterable[str]) -> list[str]:
        return [path for path in paths if self._filter.accepts(path, beneath(self._start.path, path))]

    def _note(self, problem: str) -> None:
        self._problem = problem

    async def _work(self, paths: AsyncGenerator[str]) -> None:
        self._worker = Worker(self._query)
        await self._worker.search(self._files, paths, self._take)

    async def _is_text(self, path: str) -> bool:
        loaded = await lines.load(self._files, path)
        return not lines.is_binary(loaded.data)

    async def _files_told(self) -> tuple[str, dict[str, Any], bool]:
        """Tell of files, each looked at once more: it must be one of ours."""
        query = self._query
        window = sorted(self._found)[query.offset : query.need]
        for path, info in zip(window, await self._look(window), strict=True):
            if info is None or info.kind != "file":
                del self._found[path]
        shown = [path for path in window if path in self._found]
        more = len(self._found) > query.need
        if query.mode == "files_with_matches":
            return "\n".join(shown), {"files": shown}, more
        counts = {path: self._found[path] for path in shown}
        return "\n".join(f"{path}: {count}" for path, count in counts.items()), {"counts": counts}, more

    async def _look(self, paths: list[str]) -> Sequence[FileInfo | None]:
        if isinstance(self._files, Looks):
            return await self._files.look(paths)
        found = await asyncio.gather(*[self._files.stat(path) for path in paths], return_exceptions=True)
        return [_seen(one) for one in found]

    async def _content(self) -> tuple[str, dict[str, Any], bool]:
        """Tell of lines: those places that were asked for, read through our files."""
        query = self._query
        places: list[tuple[str, Hit]] = []
        waiting = sorted(self._found)
        while waiting and len(places) <= query.need:
            batch, waiting = self._enough(waiting, query.need + 1 - len(places))
            known = await self._locate(batch)
            places += [(path, hit) for path in batch for hit in known.get(path, ())]
        window = places[query.offset : query.need]
        wanted: dict[str, list[Hit]] = {}
        for path, hit in window:
            wanted.setdefault(path, []).append(hit)
        matches = [match for path, hits in wanted.items() for match in await self._read(path, hits)]
        text = "\n".join(_shown(match, numbers=query.numbers) for match in matches)
        return text, {"matches": matches}, len(places) > query.need

    def _enough(self, paths: list[str], wanted: int) -> tuple[list[str], list[str]]:
        """Split off as many files as seem to have as many places as are wanted."""
        count = 0
        for at, path in enumerate(paths):
            count += self._found[path]
            if count >= wanted:
                return paths[: at + 1], paths[at + 1 :]
        return paths, []

    async def _locate(self, paths: list[str]) -> dict[str, list[Hit]]:
        return self._places if self._ripgrep is None else await self._ripgrep.locate(paths, self._query.need + 1)

    async def _read(self, path: str, hits: list[Hit]) -> list[dict[str, Any]]:
        """Return the lines of some places; a file that is not there any more has none."""
        query = self._query
        first, last = max(hits[0][0] - query.before, 1), hits[-1][1] + query.after
        try:
            numbered = await _numbered(self._files, path, first, last)
        except FileError:
            del self._found[path]
            return []
        return [
            {
                "file": path, "line": start, "match": "\n".join(_some(numbered, range(start, end + 1))),
                "before": _some(numbered, range(max(start - query.before, 1), start)),
                "after": _some(numbered, range(end + 1, end + 1 + query.after)),
            }
            for start, end in hits
            if start in numbered
        ]  # fmt: skip


def _seen(found: FileInfo | BaseException) -> FileInfo | None:
    if isinstance(found, BaseException) and not isinstance(found, FileError):
        raise found
    return None if isinstance(found, BaseException) else found


async def _these(paths: Iterable[str]) -> AsyncGenerator[str]:
    for path in paths:
        yield path


async def _numbered(files: Files, path: str, first: int, last: int) -> dict[int, str]:
    """Return some lines of a file by their numbers."""
    loaded = await lines.load(files, path)
    if loaded.whole:
        found = await lines.text_lines(path, loaded.data)
        return dict(enumerate(found[first - 1 : last], first))
    async with aclosing(lines.stream(files, path, start=first, count=last - first + 1)) as rest:
        return {number: line async for number, line in rest}


def _some(numbered: dict[int, str], wanted: range) -> list[str]:
    return [_cut(numbered[number]) for number in wanted if number in numbered]


def _cut(line: str) -> str:
    return f"{line[:LONGEST]}… [{len(line) - LONGEST} more characters]" if len(line) > LONGEST else line


def _shown(match: dict[str, Any], *, numbers: bool) -> str:
    before, after = match["before"], match["after"]
    told = [f"  -{len(before) - at}: {line}" for at, line in enumerate(before)]
    for number, line in enumerate(match["match"].split("\n"), match["line"]):
        told.append(f"{match['file']}:{number}: {line}" if numbers else f"{match['file']}: {line}")
    return "\n".join([*told, *(f"  +{at}: {line}" for at, line in enumerate(after, 1))])
