"""Shared by the engine tests: a journal in memory, scripts made of generators, and a runner."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from typing import Any

from vaka.core.loop.script_journal import SCRIPT_START, ScriptAnswer, ScriptRequest
from vaka.core.types.errors import ScriptError
from vaka.core.types.ids import JSON, Digest
from vaka.core.types.message import ToolResult
from vaka.luau.program import Program
from vaka.luau.protocol import Finished, HostCall, HostFunction, HostFunctions, ReplayJournal, Step, Waiting
from vaka.luau.scheduler import NullJournal, drive
from vaka.luau.vm import VmRunner

ASK_PRELUDE = """
local env, primitives = ...
env.ask = primitives.request
env.spawn = primitives.spawn
env.park = primitives.park
env.wake = primitives.wake
"""


class MemoryJournal:
    """A journal in memory that replays the given answers; each new answer takes a millisecond."""

    def __init__(self, start: ScriptAnswer | None = None, answers: Sequence[ScriptAnswer] = ()) -> None:
        self.first = start
        self.recorded_answers = list(answers)
        self.replaying = bool(answers)
        self.answers = list(answers)
        self.commits = 0
        self.committed_count = len(self.answers)

    def record_start(self, detail: JSON) -> ScriptAnswer:
        if self.first is None:
            self.first = ScriptAnswer(ScriptRequest(0, SCRIPT_START, Digest("")), detail, "", 1_000)
        return self.first

    async def replay(self) -> AsyncGenerator[ScriptAnswer]:
        for answer in self.recorded_answers:
            yield answer

    async def record_answer(
        self, request: ScriptRequest, value: JSON, error: str = "", result: ToolResult | None = None
    ) -> ScriptAnswer:
        answer = ScriptAnswer(request, value, error, 1_000 + len(self.answers) + 1, result)
        self.answers.append(answer)
        return answer

    async def commit(self) -> None:
        self.commits += 1
        self.committed_count = len(self.answers)

    def first_answers(self, count: int) -> "MemoryJournal":
        """Return the journal as it would be after a crash that left ``count`` answers."""
        return MemoryJournal(self.first, self.answers[:count])


ScriptGenerator = Callable[..., Generator[tuple[str, Any], Any, Any]]


class GeneratorScript:
    """A script that is a generator: it yields a name and an argument, and is sent the answer."""

    def __init__(self, body: ScriptGenerator) -> None:
        self.body = body
        self.number = 0
        self.closed = False

    async def start(self, arguments: Sequence[JSON], *, seed: int, at: int) -> Step:
        self.generator = self.body(*arguments)
        return self._step(lambda: next(self.generator))

    async def answer(self, call: int, values: Sequence[JSON], *, at: int) -> Step:
        assert call == self.number
        return self._step(lambda: self.generator.send(values[0] if values else None))

    async def fail(self, call: int, error: JSON, *, at: int) -> Step:
        assert call == self.number
        return self._step(lambda: self.generator.throw(ScriptError(str(error))))

    async def close(self) -> None:
        self.closed = True

    def _step(self, resume: Callable[[], tuple[str, Any]]) -> Step:
        try:
            name, argument = resume()
        except StopIteration as stop:
            return Finished([stop.value])
        self.number += 1
        return Waiting([HostCall(self.number, name, [argument])])


async def run_source(
    source: str, functions: HostFunctions, *arguments: Any, journal: ReplayJournal | None = None, **options: Any
) -> Any:
    vms = VmRunner()
    try:
        program = Program(source, "test.luau", preludes=(ASK_PRELUDE,))
        return list(await drive(vms.open(program), functions, journal or NullJournal(), arguments, **options))
    finally:
        await vms.close()


async def double(number: int) -> int:
    await asyncio.sleep(0)
    return number * 2


async def yield_once() -> None:
    await asyncio.sleep(0)


DOUBLE_FUNCTIONS = {"double": HostFunction(double)}
