"""One command that bash runs: its output in order, its exit code, and the folder it ended in."""

import asyncio
import codecs
import re
from collections.abc import Callable
from contextlib import aclosing
from typing import Literal, TypeAlias

from vaka.core.ports.sandbox import Process
from vaka.core.types.errors import InvalidInput
from vaka.core.types.ids import SessionId
from vaka.tools.builtin.spool import Spool

Status: TypeAlias = Literal["running", "completed", "failed", "killed"]
Listener: TypeAlias = Callable[[str], None]

LONGEST = 100_000
"""Bytes of a command; the kernel takes no argument that is much longer."""
AT_ONCE = 0.3
"""Seconds after which output that has not ended is held open by what was left behind."""
LINGER = 1.0
"""Seconds that what a command left behind has to close its output."""
GRACE = 2.0
_CHANNEL = 64 * 1024
# Both streams go through one pipe, so that they stay in order. The other pipe is left for the folder bash ends in; what
# the command starts does not inherit it, or a server started with & would hold it open. It is told when the command has
# come to its end, and when bash has: a command that says "exit" has but the second, one with a trap but the first.
_REPORT = (
    '{ { builtin printf "\\0cwd\\0"; builtin pwd -P; builtin printf "\\0\\0jobs\\0"; '
    'builtin jobs -pr; builtin printf "\\0"; } >&9; } 2>/dev/null'
)
_WRAPPER = (
    f"trap '{_REPORT}' EXIT; exec 9>&2 2>&1; "
    f'{{ eval "shift; $1"; }} 9>&-; {{ builtin set +x -- "$?"; {_REPORT}; }} 2>/dev/null; builtin exit "$1"'
)
_FOLDER = re.compile(rb"\0cwd\0([^\0]*?)\n?\0\0jobs\0([\s\d]*)\0")


def argv_of(command: str) -> tuple[str, ...]:
    """Return what is run for a command. Raises ``InvalidInput`` for one that cannot be."""
    if not command.strip():
        raise InvalidInput("the command is empty")
    if "\0" in command:
        raise InvalidInput("a command cannot have a NUL character in it")
    size = len(command.encode("utf-8", "surrogatepass"))
    if size > LONGEST:
        raise InvalidInput(f"the command has {size} bytes, at most {LONGEST} can be run; Write it to a file, run that")
    return ("bash", "-c", _WRAPPER, "bash", command)


class Shell:
    """A command that runs or has ended."""

    def __init__(self, id: str, session: SessionId, command: str, cwd: str, process: Process, spool: Spool) -> None:
        self.id, self.session, self.command, self.cwd = id, session, command, cwd
        self.spool = spool
        self.listener: Listener | None = None
        """Told what is printed, as long as somebody looks."""
        self.waited_for = True
        """Whether a call waits for it: then it ends with the command, else with all that the command started."""
        self.status: Status = "running"
        self.code: int | None = None
        """The exit code, minus the signal that ended it."""
        self.folder = ""
        """Where bash was in the end, if it said so."""
        self.ended_rest = False
        """Whether something that the command had left running was ended."""
        self.trouble = ""
        """What was wrong with its output, if anything was."""
        self._process = process
        self._channel = bytearray()
        self._jobs = False
        """Whether bash ended with something in the background."""
        self._killed = False
        self._stopping: asyncio.Task[None] | None = None
        self.task = asyncio.create_task(self._run())

    @property
    def running(self) -> bool:
        """Whether it runs."""
        return self.status == "running"

    async def within(self, seconds: float) -> bool:
        """Wait for its end, so long; tell whether it has come. Whoever is cancelled here ends the command."""
        try:
            done, _ = await asyncio.wait([self.task], timeout=seconds)
        except asyncio.CancelledError:
            await self.stop()
            raise
        return bool(done)

    async def stop(self, grace: float = GRACE) -> None:
        """End it and everything it started; a second call waits for the first."""
        if self._stopping is None:
            self._killed = self.running
            self._stopping = asyncio.create_task(self._stop(grace))
        await asyncio.shield(self._stopping)

    async def _stop(self, grace: float) -> None:
        await self._process.stop(grace)
        await asyncio.wait([self.task])

    async def _run(self) -> None:
        reading = asyncio.create_task(self._read())
        await asyncio.sleep(0)  # whoever waits before somebody reads is taken for somebody who will not read
        self.code = await self._process.wait()
        try:
            await self._finish(reading)
        finally:
            self.status = "killed" if self._killed else "completed" if self.code == 0 else "failed"

    async def _finish(self, reading: "asyncio.Task[None]") -> None:
        """Wait for the rest of the output; what a call waits for does not go on for what it left behind."""
        if self.waited_for and not self._killed:
            await asyncio.wait([reading], timeout=AT_ONCE)
            self.ended_rest = reading.done() and self._jobs  # it prints elsewhere, and ends with this
            await asyncio.wait([reading], timeout=LINGER)
            if not reading.done():
                self.ended_rest = True
                await self._process.stop(GRACE)
        await asyncio.wait([reading])
        await self._process.stop(0)  # nobody is left who could print: now it is gone for good
        error = reading.exception()
        if error is not None:
            self.trouble = str(error)

    async def _read(self) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        async with aclosing(self._process.output()) as pieces:
            async for stream, data in pieces:
                if stream == "stderr":
                    self._channel = (self._channel + data)[-_CHANNEL:]
                else:
                    await self._take(decoder.decode(data))
        await self._take(decoder.decode(b"", final=True))
        found = None
        for found in _FOLDER.finditer(self._channel):
            self.folder, self._jobs = found[1].decode("utf-8", "surrogateescape"), bool(found[2].strip())
        # What else came this way is from the sandbox itself: it says why it ended a command, or could not start it.
        await self._take(_FOLDER.sub(b"", self._channel).decode("utf-8", "replace"))

    async def _take(self, text: str) -> None:
        if text:
            await self.spool.add(text)
            if self.listener is not None:
                self.listener(text)
