"""What the tests of the engine share: a ledger that can be read, and scripts made of generators."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from typing import Any

from vaka.core.loop.nest import START, Request, Told
from vaka.core.types.errors import ScriptError
from vaka.core.types.ids import JSON, Digest
from vaka.core.types.message import ToolResult
from vaka.luau.program import Program
from vaka.luau.scheduler import Unrecorded, drive
from vaka.luau.script import Call, Done, Functions, HostFunction, Ledger, Step, Waiting
from vaka.luau.vm import Vms

ASK = """
local env, primitives = ...
env.ask = primitives.request
env.spawn = primitives.spawn
env.park = primitives.park
env.wake = primitives.wake
"""


class Book:
    """A ledger in memory. Given what an earlier one was told, it tells it again; each answer takes a millisecond."""

    def __init__(self, start: Told | None = None, told: Sequence[Told] = ()) -> None:
        self.began = start
        self.before = list(told)
        self.told = list(told)
        self.commits = 0
        self.kept = len(self.told)

    def start(self, detail: JSON) -> Told:
        if self.began is None:
            self.began = Told(Request(0, START, Digest("")), detail, "", 1_000)
        return self.began

    async def replay(self) -> AsyncGenerator[Told]:
        for told in self.before:
            yield told

    async def tell(self, request: Request, value: JSON, error: str = "", result: ToolResult | None = None) -> Told:
        told = Told(request, value, error, 1_000 + len(self.told) + 1, result)
        self.told.append(told)
        return told

    async def commit(self) -> None:
        self.commits += 1
        self.kept = len(self.told)

    def up_to(self, count: int) -> "Book":
        """The book as a crash after so many answers left it."""
        return Book(self.began, self.told[:count])


Body = Callable[..., Generator[tuple[str, Any], Any, Any]]


class Played:
    """A script that is a generator: it yields a name and an argument, and is sent the answer."""

    def __init__(self, body: Body) -> None:
        self.body = body
        self.number = 0
        self.closed = False

    async def start(self, arguments: Sequence[JSON], *, seed: int, at: int) -> Step:
        self.play = self.body(*arguments)
        return self._step(lambda: next(self.play))

    async def answer(self, call: int, values: Sequence[JSON], *, at: int) -> Step:
        assert call == self.number
        return self._step(lambda: self.play.send(values[0] if values else None))

    async def fail(self, call: int, error: JSON, *, at: int) -> Step:
        assert call == self.number
        return self._step(lambda: self.play.throw(ScriptError(str(error))))

    async def close(self) -> None:
        self.closed = True

    def _step(self, go: Callable[[], tuple[str, Any]]) -> Step:
        try:
            name, argument = go()
        except StopIteration as stop:
            return Done([stop.value])
        self.number += 1
        return Waiting([Call(self.number, name, [argument])])


async def run(source: str, functions: Functions, *arguments: Any, ledger: Ledger | None = None, **options: Any) -> Any:
    vms = Vms()
    try:
        program = Program(source, "test.luau", preludes=(ASK,))
        return list(await drive(vms.open(program), functions, ledger or Unrecorded(), arguments, **options))
    finally:
        await vms.close()


async def double(number: int) -> int:
    await asyncio.sleep(0)
    return number * 2


async def pause() -> None:
    await asyncio.sleep(0)


DOUBLE = {"double": HostFunction(double)}
