"""Run a script without a session: what it keeps lasts as long as the run, and nobody will bring it back."""

import asyncio
import sys
import uuid
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from vaka.core.loop.nest import Request
from vaka.core.types.content import Part, Text
from vaka.core.types.errors import ScriptError
from vaka.core.types.ids import JSON
from vaka.luau import prelude
from vaka.luau.bytecode import native
from vaka.luau.compat import surface_functions
from vaka.luau.host.chunks import heard, said
from vaka.luau.host.notes import Notes
from vaka.luau.host.parts import Parts
from vaka.luau.lent import Lent
from vaka.luau.limits import ScriptLimits
from vaka.luau.packages.required import packages_near
from vaka.luau.pool import Pool, Printed, Seat, native_limits
from vaka.luau.profile import Profile, Watched, Weighed
from vaka.luau.program import OWN_LIBRARY, Program
from vaka.luau.scheduler import Unrecorded, drive
from vaka.luau.script import Script
from vaka.luau.vm import Print, Running
from vaka.luau.worker import Workers

Asks = Callable[[JSON], Awaitable[JSON]]
"""What a tool said last goes in, what its caller says to that comes back."""
Hears = Callable[[], Awaitable[str | None]]
"""What an agent is told next, ``None`` when nothing more comes."""
Says = Callable[["Part | None"], None]
"""Takes a part of what an agent says, ``None`` where a message ends."""

_OWN = tuple(folder.name for folder in OWN_LIBRARY.iterdir())
"""Modules that come with vaka; none of them looks at the state of an agent."""


async def load(
    path: Path, *, libs: Sequence[Path] = (), limits: ScriptLimits | None = None, trusted: bool = True
) -> Program:
    """Read a script with all it can require, installed packages included, and all three surfaces in its place.

    Raises ``NotFound``, or ``ScriptError`` with ``file:line: what is wrong`` if it does not compile.
    """
    like = Program(
        "", preludes=(prelude.prelude(),), main=prelude.main(), limits=limits or ScriptLimits(), trusted=trusted
    )
    folder = (await asyncio.to_thread(path.resolve)).parent
    return await Program.load(path, libs=libs, packages=packages_near(folder), like=like)


class _Live(Printed):
    """What a script prints, shown as it is printed: one that prints much, or for long, is not cut short."""

    def __init__(self, show: Print | None) -> None:
        super().__init__()
        self._show = show
        self.stop: Callable[[], object] = lambda: None

    def add(self, line: str | bytes) -> None:
        """Show a line; a script whose lines go nowhere any more is stopped, since it may catch what ``show`` raises."""
        try:
            if self._show is not None:
                self._show(line.decode("utf-8", "replace") if isinstance(line, bytes) else line)
        except BaseException:
            self.stop()
            raise


class _Threads(Pool):
    """VMs whose scripts run in threads from their first step on: whoever waits for one can stop it at any time."""

    show: Print | None = None

    def is_slow(self, program: Program) -> bool:
        """Say yes."""
        return True

    def took(self, program: Program, seconds: float) -> None:
        """Do not care."""

    def _make(self, limits: ScriptLimits, kind: tuple[int | None, int]) -> Seat:
        printed = _Live(self.show)
        state = native().State(limits=native_limits(limits), key=self.bytecode.key, print=printed.add)
        printed.stop = state.cancel
        return Seat(state, kind, state.memory_used, printed)


class Home:
    """Where a script runs that runs alone: trusted in a VM of this process, otherwise in a worker. It measures.

    All scripts of a home print to the same place.
    """

    def __init__(self, profile: Profile) -> None:
        self._profile, self._pool = profile, _Threads(most=1)
        self._workers: Workers | None = None

    def open(self, program: Program, printed: Print | None = None) -> Script:
        """Return a script that can be started once; what it prints goes to ``printed`` at once, in any thread."""
        if program.trusted:
            self._pool.show = printed
            script: Script = Running(Weighed(self._pool, program, self._profile), None)
        else:
            self._workers = self._workers or Workers(1)
            script = self._workers.open(program, printed)
        return Watched(script, self._profile)

    async def close(self) -> None:
        """Let go of everything."""
        self._pool.close()
        if self._workers is not None:
            await self._workers.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Alone:
    """A program, what it is lent, and where its lines go. State, history and memory last as long as ``lent.values``."""

    program: Program
    lent: Lent
    name: str = "script"
    model: str = ""
    printed: Print | None = None
    log: Callable[[str, str], None] | None = None
    """Takes a level (``debug``, ``info``, ``warning``, ``error``) and a line."""
    id: str = field(default_factory=lambda: str(uuid.uuid4()))

    async def plain(self, *arguments: JSON) -> Sequence[JSON]:
        """Run the script with ``...`` as given, and return what it returned."""
        return await self._drive("plain", Parts(), arguments)

    async def tool(self, arguments: JSON, more: Asks) -> JSON:
        """Call the script as a tool and return its result; ``more`` is asked when it wants to hear more."""
        last: list[JSON] = []

        async def output(value: JSON, error: str | None) -> None:
            last[:] = [value if error is None else error]

        async def ask(request: Request) -> JSON:
            return await more(last.pop() if last else None)

        values = await self._drive("tool", Parts(input=ask, output=output), [arguments])
        value, error, source = [*values, None, None, None][:3]
        if source == "nothing":
            raise ScriptError("tool did not call output")
        if error is not None:
            raise ScriptError(str(error))
        return value

    async def agent(self, hear: Hears, say: Says) -> None:
        """Let the script work as an agent until it has ended, or has heard that nothing more comes."""
        notes = self._notes()
        voice = _Voice(say, notes)

        async def recv(request: Request) -> JSON:
            await voice.close()
            words = await hear()
            if words is None:
                return None
            await notes.history.append({"role": "user", "content": words})
            return heard((Text(text=words),))

        begin, again = True, True
        while again:
            parts = Parts(recv=recv, emit=voice.emit)
            values = await self._drive("agent", parts, [None], begin=begin)
            await voice.close()
            begin, again = False, values[:1] == ["input"]

    async def _drive(self, mode: str, own: Parts, arguments: Sequence[JSON], *, begin: bool = True) -> Sequence[JSON]:
        async with AsyncExitStack() as closing:
            parts = self._parts(own, closing)
            script = self.lent.home.open(self.program, self.printed)
            given = self._given(mode, begin)
            return await drive(script, surface_functions(parts), Unrecorded(), [given, *arguments], most=sys.maxsize)

    def _parts(self, own: Parts, closing: AsyncExitStack) -> Parts:
        lent, notes = self.lent, self._notes()
        return replace(
            own, network=lent.network, models=lent.models, fits=lent.fits, state=notes.state, history=notes.history,
            summary=notes.summary, values=lent.values, cache=lent.cache, env=lent.env, log=self.log, closing=closing,
        )  # fmt: skip

    def _notes(self) -> Notes:
        return Notes(self.lent.values, f"agent/{self.name}/")

    def _given(self, mode: str, begin: bool) -> dict[str, JSON]:
        modules = self.program.library.modules.values()
        sources = [self.program.source, *(module.source for module in modules if not module.name.startswith(_OWN))]
        return {
            "mode": mode, "begin": begin, "name": self.name, "model": self.model, "state_id": self.name,
            "state": True if prelude.uses_state(sources) else None, "request_id": self.id, "user_id": "",
            "trace_id": self.id,
        }  # fmt: skip


class _Voice:
    """What an agent says, and what of it becomes history."""

    def __init__(self, say: Says, notes: Notes) -> None:
        self._say, self._notes = say, notes
        self._words: list[str] = []
        self._speaking = False

    async def emit(self, chunk: JSON) -> None:
        """Say something more; with its end a message is over."""
        more = said(chunk)
        for part in more.content:
            self._speaking = True
            if isinstance(part, Text):
                self._words.append(part.text)
            self._say(part)
        if more.eof:
            await self.close()

    async def close(self) -> None:
        """Let the message end here, if there is one."""
        if not self._speaking:
            return
        self._speaking = False
        words, self._words = "".join(self._words), []
        await self._notes.history.append({"role": "assistant", "content": words})
        self._say(None)
