"""What ``vaka run`` and a request for a turn pass before the loop of the turn begins."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bench import agent_run, startup, stores
from bench.agents import make_agent
from bench.function_counter import FunctionCounter
from bench.measure import subprocess_environment
from bench.serving import serve

ROOT = Path(__file__).resolve().parents[1]
SESSION_ARGUMENTS = ("run", "Say hello.", "--model", "scripted:hello.jsonl", "--session", "greeting")
REQUEST = json.dumps({"input": "hi", "agent": "adder", "stream": True}).encode()


class RunCounts(NamedTuple):
    """What one ``vaka run`` does before the loop of its turn."""

    functions: Sequence[str]
    """The functions that are called."""
    stores: int
    loops: int
    collectors: int
    settings_reads: int
    """How often the settings file is opened that is opened most often."""


def count_run(arguments: Sequence[str] = startup.RUN_ARGUMENTS) -> RunCounts:
    """Count what ``vaka run`` does in an empty folder that is its home too."""
    with stores.temporary_folder() as folder:
        return count_run_in(folder, arguments, home=folder)


def count_run_in(folder: Path, arguments: Sequence[str], *, home: Path) -> RunCounts:
    """Count what ``vaka run`` does in a folder."""
    (folder / "hello.jsonl").write_text('{"text": "Hello.", "repeat": true}\n')
    environment = subprocess_environment()
    environment = {name: text for name, text in environment.items() if not name.startswith(("VAKA_", "XDG_"))}
    environment |= {"HOME": str(home), "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}"}
    command = [sys.executable, "-m", "bench.function_counter", json.dumps([*arguments])]
    done = subprocess.run(
        command, check=True, cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True
    )
    return RunCounts(**json.loads(done.stderr.splitlines()[-1]))


class RequestCounts(NamedTuple):
    """What one request does that creates a session and streams its first turn."""

    functions: Sequence[str]
    """The functions that are called before the loop of the turn."""
    look_ups: int
    transactions: float


async def _count_request(folder: Path) -> RequestCounts:
    url = f"sqlite:///{folder / 'counted.db'}"
    wal = folder / "counted.db-wal"
    async with serve(make_agent(), url) as (port, _):
        for number in range(2):  # what is loaded and opened once
            await _request_turn(port, f"warm-{number}")
        counter, before = FunctionCounter(), agent_run.count_wal_commits(wal)
        counter.start()
        try:
            await _request_turn(port, "counted")
        finally:
            counter.stop()
        after = agent_run.count_wal_commits(wal)
    assert counter.reached_loop
    look_ups = counter.count_calls("SqliteSessions.find")
    return RequestCounts(counter.list_functions(), look_ups, after.commits - before.commits)


async def _request_turn(port: int, session: str) -> None:
    """Send a request and read its stream to the end."""
    head = f"POST /api/v1/sessions/{session}/turns HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(REQUEST)}\r\n\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(head.encode() + REQUEST)
    await reader.readuntil(b"event: stream.end")
    await reader.readuntil(b"0\r\n\r\n")
    writer.close()
    await writer.wait_closed()
    await asyncio.sleep(0.1)  # the server sees that the connection has ended


def count_request() -> RequestCounts:
    """Count what a request does that creates a session and streams its first turn."""
    with stores.temporary_folder() as folder:
        return asyncio.run(_count_request(folder))
