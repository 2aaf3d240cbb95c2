"""Grep: search the content of files with ripgrep, or with Python's engine where ripgrep cannot."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Any, Literal

import msgspec

from vaka.core.ports.files import BatchStat, FileBytes, FileInfo, Files, PartlyLocalFiles
from vaka.core.ports.tool import ToolContext
from vaka.core.types.errors import FileError, InvalidInput
from vaka.core.types.message import ToolResult
from vaka.core.types.traits import ToolTraits
from vaka.system.event_loops import write_to_stream
from vaka.text.decoding import is_binary
from vaka.tools.builtin import regex_worker
from vaka.tools.builtin.builtin_tool import builtin_tool, cut_text, text_result
from vaka.tools.builtin.files import file_content
from vaka.tools.builtin.files.file_content import visibility_check
from vaka.tools.builtin.search import grep_query, ripgrep
from vaka.tools.builtin.search.glob import relative_path, walk
from vaka.tools.builtin.search.grep_query import GrepQuery, LineRange
from vaka.tools.builtin.shell.output import SlowPattern, start_regex_worker

_CHUNK_BYTES = 1 << 20
_BATCH_FILES = 32
"""Files read concurrently."""
_MAX_ANSWER_BYTES = 16 << 20
"""The largest answer of the worker."""


class _Answer(msgspec.Struct, frozen=True):
    count: int
    hits: list[LineRange]


_decode_answer = msgspec.json.Decoder(_Answer).decode


class PythonGrepWorker:
    """The worker process; it is killed when the search ends, also by cancellation."""

    def __init__(self, query: GrepQuery, match_seconds: float) -> None:
        self._query, self._match_seconds = query, match_seconds
        self._sent_paths: asyncio.Queue[str | None] = asyncio.Queue()
        self.current_path = ""
        """The file being searched."""

    async def search(
        self, files: Files, paths: AsyncGenerator[str], found: Callable[[str, int, list[LineRange]], None]
    ) -> None:
        """Search files as ``paths`` yields them, and call ``found`` for each file with a match."""
        async with start_regex_worker(
            "search", lambda stdin: self._feed(stdin, files, paths), limit=_MAX_ANSWER_BYTES
        ) as worker:
            while (path := await self._sent_paths.get()) is not None:
                self.current_path = path
                if not (line := await worker.read_answer(self._match_seconds)):
                    raise FileError(f"the search ended with {await worker.process.wait()} while it looked at {path!r}")
                answer = _decode_answer(line)
                if answer.count:
                    found(path, answer.count, answer.hits)
            await worker.feeding

    async def _feed(self, stdin: asyncio.StreamWriter, files: Files, paths: AsyncGenerator[str]) -> None:
        query = self._query
        exact = await asyncio.to_thread(query.pattern.exact_python)
        order = {
            "python": exact,
            "literal": query.pattern.literal,
            "ignore_case": query.ignore_case,
            "multiline": query.multiline,
            "need": query.needed_results + 1,
            "seconds": self._match_seconds,
        }
        try:
            write_to_stream(stdin, msgspec.json.encode(order) + b"\n")
            async with aclosing(_batch_paths(paths)) as batches:
                async for batch in batches:
                    pieces = await asyncio.gather(*[_read_first(files, path) for path in batch])
                    for path, first in zip(batch, pieces, strict=True):
                        if first is not None:
                            await self._send_file(stdin, files, path, first)
        finally:
            self._sent_paths.put_nowait(None)

    async def _send_file(self, stdin: asyncio.StreamWriter, files: Files, path: str, first: FileBytes) -> None:
        """Send a file in chunks; stop where it becomes unreadable."""
        if self._query.multiline and first.info.size > regex_worker.MAX_BYTES:
            return
        self._sent_paths.put_nowait(path)
        data, at = first.data, 0
        while True:
            at += len(data)
            more = len(data) == _CHUNK_BYTES and at < first.info.size
            write_to_stream(stdin, msgspec.json.encode({"size": len(data), "more": more}) + b"\n" + data)
            await stdin.drain()
            if not more:
                return
            try:
                data = (await files.read(path, start=at, size=_CHUNK_BYTES)).data
            except FileError:
                data = b""


async def _read_first(files: Files, path: str) -> FileBytes | None:
    try:
        return await files.read(path, size=_CHUNK_BYTES)
    except FileError:
        return None  # it has disappeared or is not readable: it is not searched


async def _batch_paths(paths: AsyncGenerator[str]) -> AsyncGenerator[list[str]]:
    batch: list[str] = []
    async with aclosing(paths):
        async for path in paths:
            batch.append(path)
            if len(batch) == _BATCH_FILES:
                yield batch
                batch = []
    if batch:
        yield batch


TIMEOUT_SECONDS = 45.0
"""The time limit of a search; the tool itself may take a little longer."""
_RENDER_SECONDS = 2.0
"""The time limit for showing what a search found before it was stopped."""
MAX_LINE_LENGTH = 500
"""Characters shown of one line."""
GrepEngine = Literal["auto", "ripgrep", "python"]


@builtin_tool(
    "Grep",
    effect="read",
    timeout=TIMEOUT_SECONDS + 15,
    parameters=grep_query.PARAMETERS,
    traits=ToolTraits(
        reads=True,
        folders=("path",),
        rule_arguments=(
            "pattern",
            "output_mode",
            "glob",
            "type",
            "multiline",
            "head_limit",
            "offset",
            "context_lines",
        ),
    ),
)
async def grep(context: ToolContext, **given: Any) -> ToolResult:
    """Search what is in files."""
    result = await run_grep(context.files, given, may_read=context.world.may_read)
    return text_result(context, result.text, result.value)


class GrepResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a search as text and as data."""

    text: str
    value: dict[str, Any]


async def run_grep(
    files: Files,
    given: dict[str, Any],
    *,
    engine: GrepEngine = "auto",
    seconds: float = TIMEOUT_SECONDS,
    may_read: Callable[[str], bool] | None = None,
    match_seconds: float = regex_worker.MATCH_SECONDS,
) -> GrepResult:
    """Search files for at most ``seconds``; a search that takes longer returns its matches so far, with a note.

    So does a search whose pattern takes more than ``match_seconds`` of processor time for a piece of a file.
    Raises ``InvalidInput`` for a bad pattern, and ``FileError`` if there was no time to begin.
    """
    search: GrepSearch | None = None
    try:
        async with asyncio.timeout(seconds):
            search = await _prepare_search(files, given, engine)
            search.is_visible, search.match_seconds = visibility_check(files, may_read), match_seconds
            await search.find_files()
            result = await search.make_result()
    except TimeoutError as error:
        if search is None:
            raise FileError(f"there was no time to search: {given['pattern']!r} took {seconds:g} s to read") from None
        result = await search.make_partial_result(error.seconds if isinstance(error, SlowPattern) else seconds)
    flags = {name: given[name] for name in ("glob", "type", "-i", "multiline") if name in given}
    value = {"pattern": given["pattern"], "compiled_pattern": search.compiled_pattern, "path": given.get("path", "")}
    return GrepResult(text=result.text, value={**value, **result.value, "flags": flags})


async def _prepare_search(files: Files, given: dict[str, Any], engine: GrepEngine) -> "GrepSearch":
    pattern: str = given["pattern"]
    slow = "\\p" in pattern.lower()  # it goes through all of Unicode
    translate = grep_query.translate_pattern
    translated = await asyncio.to_thread(translate, pattern) if slow else translate(pattern)
    query = grep_query.parse_query(translated, given)
    return GrepSearch(files, query, await files.stat(given.get("path", "")), engine)


class GrepSearch:
    """One search: first the files with matches, then the matching lines of the shown files."""

    def __init__(self, files: Files, query: GrepQuery, start: FileInfo, engine: GrepEngine = "auto") -> None:
        self._files = files
        self._query = query
        self._start = start
        self.compiled_pattern = query.pattern.python
        self._filter = grep_query.FileFilter(query)
        self.is_visible: Callable[[str], bool] = lambda path: True
        """Returns whether the policy lets a file be shown."""
        self._match_counts: dict[str, int] = {}
        """The number of matches in each file."""
        self._known_hits: dict[str, list[LineRange]] = {}
        """The lines of matches that are known already."""
        self._problem = ""
        self._worker: PythonGrepWorker | None = None
        self.match_seconds = regex_worker.MATCH_SECONDS
        self._ripgrep = self._select_ripgrep(engine)

    def _select_ripgrep(self, engine: GrepEngine) -> ripgrep.Ripgrep | None:
        if engine == "python" or self._query.pattern.rust is None or not self._files.root:
            return None
        if isinstance(self._files, PartlyLocalFiles) and not self._files.is_local(self._start.path):
            return None  # some files are not in a folder that ripgrep can read
        program = ripgrep.find_ripgrep(self._files.root)
        if program is None and engine == "ripgrep":
            raise InvalidInput("ripgrep is not installed")
        return ripgrep.Ripgrep(program, self._files, self._query) if program else None

    async def find_files(self) -> None:
        """Find the files with matches."""
        folder, start = self._start.kind == "folder", self._start.path
        if not folder and not self.is_visible(start):
            return
        if not folder and is_binary((await file_content.load_file(self._files, start)).data):
            return
        if self._ripgrep is None:
            self._worker = PythonGrepWorker(self._query, self.match_seconds)
            await self._worker.search(self._files, self._searchable_paths(start), self._record_file)
            return
        # If there are few matches, ripgrep returns their lines at once, so that it runs only once.
        counts = await self._ripgrep.find_matches(start, self._start.kind) if self._query.mode == "content" else None
        if counts is None:
            counts = await self._ripgrep.count_matches(start)
        self._match_counts = self._select_counts(counts)

    def _select_counts(self, counts: ripgrep.MatchCounts) -> ripgrep.MatchCounts:
        start = self._start.path
        named = self._start.kind != "folder" or self._query.filters_by_name  # then ripgrep has filtered by name
        return {
            path: count
            for path, count in counts.items()
            if (self.is_visible(path) if named else self._accepts(path, relative_path(start, path)))
        }

    async def _searchable_paths(self, start: str) -> AsyncGenerator[str]:
        """Yield the files to search."""
        if self._start.kind != "folder":
            yield start
            return
        async with aclosing(walk(self._files, start)) as entries:
            try:
                async for entry in entries:
                    if entry.kind == "file" and self._accepts(entry.path, relative_path(start, entry.path)):
                        yield entry.path
            except FileError as error:  # some folders could not be read
                self._problem = str(error)

    async def make_result(self) -> GrepResult:
        """Return the files or lines that were asked for."""
        mode, query = self._query.mode, self._query
        text, value, more = await (self._render_content() if mode == "content" else self._render_files())
        totals = {"total_files": len(self._match_counts), "total_matches": sum(self._match_counts.values())}
        lines = [text or "no matches"]
        if more:
            lines.append(f"[{query.limit} results from number {query.offset + 1} on, there are more; use offset]")
        elif query.offset and not text:
            lines = [f"no matches from number {query.offset + 1} on; there are fewer"]
        if self._problem:
            lines.append(f"[{self._problem}]")
        return GrepResult(text="\n".join(lines), value={"output_mode": mode, **value, **totals, "truncated": more})

    async def make_partial_result(self, seconds: float) -> GrepResult:
        """Return what was found before the search was stopped, with a note."""
        note = self._timeout_note(seconds)
        if self._ripgrep is not None and not self._match_counts:
            self._match_counts = self._select_counts(self._ripgrep.partial_matches())
        try:
            async with asyncio.timeout(_RENDER_SECONDS):
                found = await self.make_result()
        except TimeoutError:
            self._match_counts = {}
            found = await self.make_result()
        value = {**found.value, "truncated": True, "timed_out": True}
        return GrepResult(text=f"{found.text}\n[{note}]", value=value)

    def _timeout_note(self, seconds: float) -> str:
        where = f" at {self._worker.current_path!r}" if self._worker is not None and self._worker.current_path else ""
        return (
            f"the search was stopped{where} after {seconds:g} s, and files are missing: narrow it with path, glob or "
            "type, or use a simpler pattern (nested repetitions can take for ever)"
        )

    def _record_file(self, path: str, count: int, hits: list[LineRange]) -> None:
        self._match_counts[path], self._known_hits[path] = count, hits

    def _accepts(self, path: str, tail: str) -> bool:
        return self._filter.accepts(path, tail) and self.is_visible(path)

    async def _render_files(self) -> tuple[str, dict[str, Any], bool]:
        """Render files; each is checked again through the session's own files."""
        query = self._query
        window = sorted(self._match_counts)[query.offset : query.needed_results]
        for path, info in zip(window, await self._stat_files(window), strict=True):
            if info is None or info.kind != "file":
                del self._match_counts[path]
        shown = [path for path in window if path in self._match_counts]
        more = len(self._match_counts) > query.needed_results
        if query.mode == "files_with_matches":
            return "\n".join(shown), {"files": shown}, more
        counts = {path: self._match_counts[path] for path in shown}
        return "\n".join(f"{path}: {count}" for path, count in counts.items()), {"counts": counts}, more

    async def _stat_files(self, paths: list[str]) -> Sequence[FileInfo | None]:
        if isinstance(self._files, BatchStat):
            return await self._files.stat_many(paths)
        return await asyncio.gather(*map(self._stat_or_none, paths))

    async def _stat_or_none(self, path: str) -> FileInfo | None:
        try:
            return await self._files.stat(path)
        except FileError:
            return None

    async def _render_content(self) -> tuple[str, dict[str, Any], bool]:
        """Render the requested lines, read through the session's own files."""
        query = self._query
        found: list[tuple[str, LineRange]] = []
        pending = sorted(self._match_counts)
        while pending and len(found) <= query.needed_results:
            batch, pending = self._split_batch(pending, query.needed_results + 1 - len(found))
            hits = self._known_hits
            if self._ripgrep is not None:
                hits = await self._ripgrep.locate(batch, query.needed_results + 1)
            found += [(path, hit) for path in batch for hit in hits.get(path, ())]
        wanted: dict[str, list[LineRange]] = {}
        for path, hit in found[query.offset : query.needed_results]:
            wanted.setdefault(path, []).append(hit)
        matches = [match for path, hits in wanted.items() for match in await self._read_matches(path, hits)]
        text = "\n".join(_format_match(match, numbers=query.numbers) for match in matches)
        return text, {"matches": matches}, len(found) > query.needed_results

    def _split_batch(self, paths: list[str], wanted: int) -> tuple[list[str], list[str]]:
        """Split off as many files as seem to hold the wanted number of matches."""
        count = 0
        for at, path in enumerate(paths):
            count += self._match_counts[path]
            if count >= wanted:
                return paths[: at + 1], paths[at + 1 :]
        return paths, []

    async def _read_matches(self, path: str, hits: list[LineRange]) -> list[dict[str, Any]]:
        """Return the lines of matches; a file that has disappeared has none."""
        query = self._query
        first, last = max(hits[0][0] - query.before, 1), hits[-1][1] + query.after
        try:
            numbered = await _numbered_lines(self._files, path, first, last)
        except FileError:
            del self._match_counts[path]
            return []
        return [
            {
                "file": path,
                "line": start,
                "match": "\n".join(_select_lines(numbered, range(start, end + 1))),
                "before": _select_lines(numbered, range(max(start - query.before, 1), start)),
                "after": _select_lines(numbered, range(end + 1, end + 1 + query.after)),
            }
            for start, end in hits
            if start in numbered
        ]


async def _numbered_lines(files: Files, path: str, first: int, last: int) -> dict[int, str]:
    loaded = await file_content.load_file(files, path)
    if loaded.whole:
        lines = await file_content.decode_lines(path, loaded.data)
        return dict(enumerate(lines[first - 1 : last], first))
    async with aclosing(file_content.stream_lines(files, path, start=first, count=last - first + 1)) as rest:
        return {number: line async for number, line in rest}


def _select_lines(numbered: dict[int, str], wanted: range) -> list[str]:
    return [cut_text(numbered[number], MAX_LINE_LENGTH) for number in wanted if number in numbered]


def _format_match(match: dict[str, Any], *, numbers: bool) -> str:
    before, after = match["before"], match["after"]
    lines = [f"  -{len(before) - at}: {line}" for at, line in enumerate(before)]
    for number, line in enumerate(match["match"].split("\n"), match["line"]):
        lines.append(f"{match['file']}:{number}: {line}" if numbers else f"{match['file']}: {line}")
    return "\n".join([*lines, *(f"  +{at}: {line}" for at, line in enumerate(after, 1))])
