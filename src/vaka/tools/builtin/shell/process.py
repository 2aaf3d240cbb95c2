"""One bash process: its output in order, its exit code, and the directory it ended in."""

import asyncio
import codecs
import re
from collections.abc import Callable
from contextlib import aclosing
from typing import Literal, TypeAlias

from vaka.core.ports.sandbox import Process
from vaka.core.types.errors import InvalidInput
from vaka.core.types.ids import SessionId
from vaka.tools.builtin.shell.output import Spool

ShellStatus: TypeAlias = Literal["running", "completed", "failed", "killed"]
OutputListener: TypeAlias = Callable[[str], None]

MAX_COMMAND_BYTES = 100_000
"""Bytes of a command; the kernel takes no argument that is much longer."""
CLOSE_SECONDS = 0.3
"""Seconds after which output that has not ended is held open by what was left behind."""
LINGER_SECONDS = 1.0
"""Seconds that what a command left behind has to close its output."""
GRACE_SECONDS = 2.0
_MAX_REPORT_BYTES = 64 * 1024
# Both streams go through one pipe, so that they stay in order. The other pipe is left for the folder bash ends in; what
# the command starts does not inherit it, or a server started with & would hold it open. It is told when the command has
# come to its end, and when bash has: a command that says "exit" has but the second, one with a trap but the first.
_REPORT_SCRIPT = (
    '{ { builtin printf "\\0cwd\\0"; builtin pwd -P; builtin printf "\\0\\0jobs\\0"; '
    'builtin jobs -pr; builtin printf "\\0"; } >&9; } 2>/dev/null'
)
_WRAPPER_SCRIPT = (
    f"trap '{_REPORT_SCRIPT}' EXIT; exec 9>&2 2>&1; "
    f'{{ eval "shift; $1"; }} 9>&-; {{ builtin set +x -- "$?"; {_REPORT_SCRIPT}; }} 2>/dev/null; builtin exit "$1"'
)
_REPORT_PATTERN = re.compile(rb"\0cwd\0([^\0]*?)\n?\0\0jobs\0([\s\d]*)\0")


def argv_of(command: str) -> tuple[str, ...]:
    """Return what is run for a command. Raises ``InvalidInput`` for one that cannot be."""
    if not command.strip():
        raise InvalidInput("the command is empty")
    if "\0" in command:
        raise InvalidInput("a command cannot have a NUL character in it")
    size = len(command.encode("utf-8", "surrogatepass"))
    if size > MAX_COMMAND_BYTES:
        raise InvalidInput(
            f"the command has {size} bytes, at most {MAX_COMMAND_BYTES} can be run; Write it to a file, run that"
        )
    return ("bash", "-c", _WRAPPER_SCRIPT, "bash", command)


class ShellProcess:
    """A command that runs or has ended."""

    def __init__(self, id: str, session: SessionId, command: str, cwd: str, process: Process, spool: Spool) -> None:
        self.id, self.session, self.command, self.cwd = id, session, command, cwd
        self.spool = spool
        self.listener: OutputListener | None = None
        """Told what is printed, as long as somebody looks."""
        self.in_foreground = True
        """Whether a call waits for it: then it ends with the command, else with all that the command started."""
        self.status: ShellStatus = "running"
        self.exit_code: int | None = None
        """The exit code, minus the signal that ended it."""
        self.final_directory = ""
        """Where bash was in the end, if it said so."""
        self.killed_leftovers = False
        """Whether something that the command had left running was ended."""
        self.output_error = ""
        """What was wrong with its output, if anything was."""
        self._process = process
        self._report = bytearray()
        self._has_jobs = False
        """Whether bash ended with something in the background."""
        self._killed = False
        self._stopping: asyncio.Task[None] | None = None
        self.task = asyncio.create_task(self._run())

    @property
    def running(self) -> bool:
        """Whether it runs."""
        return self.status == "running"

    async def wait_for_end(self, seconds: float) -> bool:
        """Wait for its end, so long; tell whether it has come. Whoever is cancelled here ends the command."""
        try:
            done, _ = await asyncio.wait([self.task], timeout=seconds)
        except asyncio.CancelledError:
            await self.stop()
            raise
        return bool(done)

    async def stop(self, grace: float = GRACE_SECONDS) -> None:
        """End it and everything it started; a second call waits for the first."""
        if self._stopping is None:
            self._killed = self.running
            self._stopping = asyncio.create_task(self._stop_process(grace))
        await asyncio.shield(self._stopping)

    async def _stop_process(self, grace: float) -> None:
        await self._process.stop(grace)
        await asyncio.wait([self.task])

    async def _run(self) -> None:
        reading = asyncio.create_task(self._read_output())
        await asyncio.sleep(0)  # whoever waits before somebody reads is taken for somebody who will not read
        self.exit_code = await self._process.wait()
        try:
            await self._drain_output(reading)
        finally:
            self.status = "killed" if self._killed else "completed" if self.exit_code == 0 else "failed"

    async def _drain_output(self, reading: "asyncio.Task[None]") -> None:
        """Wait for the rest of the output; what a call waits for does not go on for what it left behind."""
        if self.in_foreground and not self._killed:
            await asyncio.wait([reading], timeout=CLOSE_SECONDS)
            self.killed_leftovers = reading.done() and self._has_jobs  # it prints elsewhere, and ends with this
            await asyncio.wait([reading], timeout=LINGER_SECONDS)
            if not reading.done():
                self.killed_leftovers = True
                await self._process.stop(GRACE_SECONDS)
        await asyncio.wait([reading])
        await self._process.stop(0)  # nobody is left who could print: now it is gone for good
        error = reading.exception()
        if error is not None:
            self.output_error = str(error)

    async def _read_output(self) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        async with aclosing(self._process.output()) as pieces:
            async for stream, data in pieces:
                if stream == "stderr":
                    self._report = (self._report + data)[-_MAX_REPORT_BYTES:]
                else:
                    await self._append_output(decoder.decode(data))
        await self._append_output(decoder.decode(b"", final=True))
        found = None
        for found in _REPORT_PATTERN.finditer(self._report):
            self.final_directory, self._has_jobs = found[1].decode("utf-8", "surrogateescape"), bool(found[2].strip())
        # What else came this way is from the sandbox itself: it says why it ended a command, or could not start it.
        await self._append_output(_REPORT_PATTERN.sub(b"", self._report).decode("utf-8", "replace"))

    async def _append_output(self, text: str) -> None:
        if text:
            await self.spool.append(text)
            if self.listener is not None:
                self.listener(text)
