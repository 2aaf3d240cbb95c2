"""``vaka chat`` in a pseudo-terminal: its start, the echo of keys while an answer streams, and a long session."""

import asyncio
import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import Self

from bench import stores
from bench.measure import percentile, raised_priority, subprocess_environment
from bench.row import Row
from bench.session_reopen import SESSION, write_long_session
from vaka.runtime.open_store import open_store

DELTAS_PER_SECOND = 200
MESSAGES = 10_000
SIGN = "❯".encode()
"""The sign before the input."""
_WORDS = (
    "the answer streams in words, some *emphasised*, some `quoted`, and they are wrapped at the edge of the screen "
)
_CODE = "def speed(knots: int) -> str:\n    return f'{knots} knots'\n"
_ANSWER = f"## A heading\n\n{_WORDS * 5}\n\n- one point\n- another point\n\n```py\n{_CODE * 10}```\n\n"

_AGENT = """
import asyncio
import time

import vaka
from vaka.core.ports.model import StopChunk, TextChunk, UsageChunk
from vaka.core.types.message import Usage

class PacedModel:
    name = "paced"

    async def stream(self, prompt):
        begun = time.perf_counter()
        for number in range({count}):
            await asyncio.sleep(max(begun + number / {rate} - time.perf_counter(), 0))
            yield TextChunk({text!r}[number * 4 % {length} :][:4])
        yield TextChunk("\\n\\nThe end.")
        yield UsageChunk(Usage(input=10, output={count}))
        yield StopChunk()

agent = vaka.Agent("paced", model=PacedModel())
"""


class ChatProcess:
    """A chat at a terminal of 100 columns; ``output`` is all that it has written."""

    def __init__(self, folder: Path, *words: str, command: str = "chat") -> None:
        env = subprocess_environment() | {"XDG_DATA_HOME": str(folder / "data"), "HOME": str(folder)}
        env |= {"LANG": "C.UTF-8", "TERM": "xterm-256color"}
        vaka = str(Path(sys.executable).with_name("vaka"))
        self.output = b""
        self.master, slave = pty.openpty()
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
        self.begun = time.perf_counter()
        self._process = subprocess.Popen(
            [vaka, command, "--trust", *words],
            cwd=folder,
            env=env,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
        )
        os.close(slave)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self.master)

    def read_until(self, text: bytes, after: int = 0) -> float:
        """Read until a text was written; return the time."""
        while text not in self.output[after:]:
            if not self.read(30):
                raise TimeoutError(f"no {text!r} in {self.output[-200:]!r}")
        return time.perf_counter()

    def read(self, seconds: float) -> bool:
        """Wait for output and read it; return whether there was any."""
        if not select.select([self.master], [], [], seconds)[0]:
            return False
        self.output += os.read(self.master, 1 << 16)
        return True

    def write(self, text: str) -> None:
        os.write(self.master, text.encode())

    def cpu_seconds(self) -> float:
        """Return the CPU time of the process so far."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def time_first_prompt(folder: Path) -> float:
    """Return the milliseconds from the start of the process to its prompt."""
    with ChatProcess(folder, "--model", f"scripted:{folder / 'script.jsonl'}") as chat:
        return (chat.read_until(SIGN) - chat.begun) * 1e3


def time_long_session(folder: Path, last: str) -> float:
    """Return the milliseconds from the start of the process to the last message and the prompt."""
    store = f"sqlite:///{folder / 'long.db'}"
    words = ("--model", f"scripted:{folder / 'script.jsonl'}", "--session", SESSION, "--store", store)
    with ChatProcess(folder, *words) as chat:
        chat.read_until(last.encode())
        return (chat.read_until(SIGN, chat.output.index(last.encode())) - chat.begun) * 1e3


def stream_answer(folder: Path, seconds: int) -> tuple[list[float], float, float]:
    """Type while an answer streams, then only look; return the seconds to each echo, and shares of a core.

    The first share is that of the chat while nothing is typed, the second that of ``vaka run`` into a pipe.
    """
    count = DELTAS_PER_SECOND * seconds * 2
    text = _ANSWER * 4  # its length is a multiple of the length of a delta
    agent = _AGENT.format(count=count, rate=DELTAS_PER_SECOND, text=text, length=len(text))
    (folder / "paced.py").write_text(agent)
    echoes: list[float] = []
    with ChatProcess(folder, "--agent", "paced.py") as chat:
        chat.read_until(SIGN)
        chat.write("Go.\r")
        chat.read_until(b"heading")
        for number in range(seconds * 10):
            key = chr(0x4E00 + number)  # each is a character that was not written before
            sent, length = time.perf_counter(), len(chat.output)
            chat.write(key)
            echoes.append(chat.read_until(key.encode(), length) - sent)
            if number % 20 == 19:
                chat.write("\x15")
            while (left := sent + 0.08 - time.perf_counter()) > 0:
                chat.read(left)
        begun, cpu = time.perf_counter(), chat.cpu_seconds()
        while (left := begun + seconds * 0.7 - time.perf_counter()) > 0:
            chat.read(left)
        share = (chat.cpu_seconds() - cpu) / (time.perf_counter() - begun)
    with ChatProcess(folder, "Go.", "--agent", "paced.py", "-q", command="run") as run:
        time.sleep(2)
        begun, cpu = time.perf_counter(), run.cpu_seconds()
        time.sleep(seconds * 0.7)
        return echoes, share, (run.cpu_seconds() - cpu) / (time.perf_counter() - begun)


def measure_chat(quick: bool) -> list[Row]:
    """Measure the start, a long session and the echo of keys."""
    times = 3 if quick else 9
    with stores.temporary_folder() as folder, raised_priority() as priority:
        (folder / "script.jsonl").write_text('{"text": "Hello."}\n')
        starts = [time_first_prompt(folder) for _ in range(times + 1)][1:]
        opened = asyncio.run(_write_long_session(folder))
        longs = [time_long_session(folder, opened) for _ in range(times + 1)][1:]
        echoes, share, turn = stream_answer(folder, 4 if quick else 10)
    note = f"exec to the prompt, best of {times}, {priority}"
    streaming = f"{DELTAS_PER_SECOND} deltas a second, {len(echoes)} keys"
    return [
        Row(name="start: vaka chat, first prompt", value=min(starts), unit="ms", target=350.0, note=note),
        Row(name="start: vaka chat, session of 10,000 messages", value=min(longs), unit="ms", target=400.0, note=note),
        Row(name="chat: key to echo, p50", value=percentile(echoes, 0.5) * 1e3, unit="ms", note=streaming),
        Row(name="chat: key to echo, p95", value=percentile(echoes, 0.95) * 1e3, unit="ms", target=16.0),
        Row(
            name="chat: share of a core",
            value=share * 100,
            unit="%",
            target=15.0,
            raw=turn * 100,
            ratio=share / turn,
            note=f"{DELTAS_PER_SECOND} deltas a second, the whole process; raw: the turn without a terminal",
        ),
    ]


async def _write_long_session(folder: Path) -> str:
    """Write a session of 10,000 messages; return the end of its last one."""
    store = open_store(f"sqlite:///{folder / 'long.db'}", durability="process")
    try:
        await write_long_session(store, MESSAGES // 2 * 6, tail=990)
    finally:
        await store.close()
    return f"is {MESSAGES // 2 - 1}."  # compactions take the place of some events
