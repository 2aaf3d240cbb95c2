"""Grep without ripgrep: the same answers, from Python's own engine in a process that can be stopped."""

import asyncio
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

import msgspec

from vaka.core.ports.files import FileBytes, Files
from vaka.core.types.errors import FileError
from vaka.tools.builtin import matching
from vaka.tools.builtin.query import Found, Hit, Query
from vaka.tools.builtin.sieve import ended
from vaka.tools.builtin.trees import beneath, walk

_PIECE = 1 << 20
_AT_ONCE = 32
"""Files read side by side."""
_PROGRAM = (sys.executable, "-I", "-S", matching.__file__)
_LINE = 16 << 20
"""Bytes of one answer at most."""


class _Answer(msgspec.Struct, frozen=True):
    count: int
    hits: list[Hit]


_answer = msgspec.json.Decoder(_Answer).decode


class Worker:
    """The process that matches. Whoever leaves it ends it."""

    def __init__(self, query: Query) -> None:
        self._query = query
        self._process: asyncio.subprocess.Process | None = None
        self._sent: asyncio.Queue[str | None] = asyncio.Queue()
        self.at = ""
        """The file that is being searched."""

    async def search(self, files: Files, paths: AsyncGenerator[str], found: Found) -> None:
        """Search files as they come and tell of each one in which the pattern is."""
        pipe = asyncio.subprocess.PIPE
        self._process = await asyncio.create_subprocess_exec(
            *_PROGRAM, stdin=pipe, stdout=pipe, env={}, limit=_LINE, start_new_session=True
        )
        feeding = asyncio.create_task(self._feed(files, paths))
        try:
            while (path := await self._sent.get()) is not None:
                self.at = path
                answer = _answer(await self._answer())
                if answer.count:
                    found(path, answer.count, answer.hits)
            await feeding
        finally:
            feeding.cancel()
            await asyncio.wait([feeding])
            await self._end()

    async def _feed(self, files: Files, paths: AsyncGenerator[str]) -> None:
        query = self._query
        exact = await asyncio.to_thread(query.pattern.exact)
        order = {
            "python": exact, "literal": query.pattern.literal, "ignore_case": query.ignore_case,
            "multiline": query.multiline, "need": query.need,
        }  # fmt: skip
        try:
            await self._write(msgspec.json.encode(order) + b"\n")
            async with aclosing(_batches(paths)) as batches:
                async for batch in batches:
                    begun = await asyncio.gather(*[_first(files, path) for path in batch])
                    for path, first in zip(batch, begun, strict=True):
                        if first is not None:
                            await self._send(files, path, first)
        finally:
            self._sent.put_nowait(None)

    async def _send(self, files: Files, path: str, first: FileBytes) -> None:
        """Hand a file over, piece by piece; one that cannot be read any further ends there."""
        if self._query.multiline and first.info.size > matching.LONGEST:
            return
        self._sent.put_nowait(path)
        data, at = first.data, 0
        while True:
            at += len(data)
            more = len(data) == _PIECE and at < first.info.size
            await self._write(msgspec.json.encode({"size": len(data), "more": more}) + b"\n" + data)
            if not more:
                return
            try:
                data = (await files.read(path, start=at, size=_PIECE)).data
            except FileError:
                data = b""

    async def _write(self, data: bytes) -> None:
        assert self._process is not None  # noqa: S101  # started before anything is sent
        assert self._process.stdin is not None  # noqa: S101  # it is a pipe
        self._process.stdin.write(data)
        await self._process.stdin.drain()

    async def _answer(self) -> bytes:
        assert self._process is not None  # noqa: S101  # started before anything is asked
        assert self._process.stdout is not None  # noqa: S101  # it is a pipe
        line = await self._process.stdout.readline()
        if not line:
            raise FileError(f"the search ended with {await self._process.wait()} while it looked at {self.at!r}")
        return line

    async def _end(self) -> None:
        assert self._process is not None  # noqa: S101  # started before it ends
        await ended(self._process)


async def _first(files: Files, path: str) -> FileBytes | None:
    try:
        return await files.read(path, size=_PIECE)
    except FileError:
        return None  # it went away, or may not be read: then it is not searched


async def _batches(paths: AsyncGenerator[str]) -> AsyncGenerator[list[str]]:
    batch: list[str] = []
    async with aclosing(paths) as found:
        async for path in found:
            batch.append(path)
            if len(batch) == _AT_ONCE:
                yield batch
                batch = []
    if batch:
        yield batch


async def paths_in(
    files: Files, start: str, accepts: Callable[[str, str], bool], problem: Callable[[str], None]
) -> AsyncGenerator[str]:
    """Yield the files beneath a folder that are to be searched; ``problem`` is told what could not be looked at."""
    async with aclosing(walk(files, start)) as entries:
        try:
            async for entry in entries:
                if entry.kind == "file" and accepts(entry.path, beneath(start, entry.path)):
                    yield entry.path
        except FileError as error:
            problem(str(error))
