"""Grep without ripgrep: the same results from Python's engine, in a worker process that can be killed."""

import asyncio
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

import msgspec

from vaka.core.ports.files import FileBytes, Files
from vaka.core.types.errors import FileError
from vaka.tools.builtin.search import python_worker
from vaka.tools.builtin.search.grep_query import FoundCallback, GrepQuery, LineRange
from vaka.tools.builtin.search.walk import relative_path, walk
from vaka.tools.builtin.shell.output import kill_process

_CHUNK_BYTES = 1 << 20
_BATCH_FILES = 32
"""Files read concurrently."""
_PROGRAM = (sys.executable, "-I", "-S", python_worker.__file__)
_MAX_ANSWER_BYTES = 16 << 20
"""The largest answer of the worker."""


class _Answer(msgspec.Struct, frozen=True):
    count: int
    hits: list[LineRange]


_decode_answer = msgspec.json.Decoder(_Answer).decode


class PythonGrepWorker:
    """The worker process; it is killed when the search ends, also by cancellation."""

    def __init__(self, query: GrepQuery) -> None:
        self._query = query
        self._sent_paths: asyncio.Queue[str | None] = asyncio.Queue()
        self.current_path = ""
        """The file being searched."""

    async def search(self, files: Files, paths: AsyncGenerator[str], found: FoundCallback) -> None:
        """Search files as ``paths`` yields them, and call ``found`` for each file with a match."""
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *_PROGRAM, stdin=pipe, stdout=pipe, env={}, limit=_MAX_ANSWER_BYTES, start_new_session=True
        )
        assert process.stdin is not None  # noqa: S101  # a pipe
        assert process.stdout is not None  # noqa: S101  # a pipe
        feeding = asyncio.create_task(self._feed(process.stdin, files, paths))
        try:
            while (path := await self._sent_paths.get()) is not None:
                self.current_path = path
                line = await process.stdout.readline()
                if not line:
                    raise FileError(f"the search ended with {await process.wait()} while it looked at {path!r}")
                answer = _decode_answer(line)
                if answer.count:
                    found(path, answer.count, answer.hits)
            await feeding
        finally:
            feeding.cancel()
            await asyncio.wait([feeding])
            await kill_process(process)

    async def _feed(self, stdin: asyncio.StreamWriter, files: Files, paths: AsyncGenerator[str]) -> None:
        query = self._query
        exact = await asyncio.to_thread(query.pattern.exact_python)
        order = {
            "python": exact, "literal": query.pattern.literal, "ignore_case": query.ignore_case,
            "multiline": query.multiline, "need": query.needed_results,
        }  # fmt: skip
        try:
            stdin.write(msgspec.json.encode(order) + b"\n")
            async with aclosing(_batch_paths(paths)) as batches:
                async for batch in batches:
                    pieces = await asyncio.gather(*[_read_first(files, path) for path in batch])
                    for path, first in zip(batch, pieces, strict=True):
                        if first is not None:
                            await self._send_file(stdin, files, path, first)
        finally:
            self._sent_paths.put_nowait(None)

    async def _send_file(self, stdin: asyncio.StreamWriter, files: Files, path: str, first: FileBytes) -> None:
        """Send a file in chunks; one that becomes unreadable ends there."""
        if self._query.multiline and first.info.size > python_worker.MAX_BYTES:
            return
        self._sent_paths.put_nowait(path)
        data, at = first.data, 0
        while True:
            at += len(data)
            more = len(data) == _CHUNK_BYTES and at < first.info.size
            stdin.write(msgspec.json.encode({"size": len(data), "more": more}) + b"\n" + data)
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


async def searchable_paths(
    files: Files, start: str, accepts: Callable[[str, str], bool], report_problem: Callable[[str], None]
) -> AsyncGenerator[str]:
    """Yield the files in a folder to search; ``report_problem`` gets the error about unreadable folders."""
    async with aclosing(walk(files, start)) as entries:
        try:
            async for entry in entries:
                if entry.kind == "file" and accepts(entry.path, relative_path(start, entry.path)):
                    yield entry.path
        except FileError as error:
            report_problem(str(error))
