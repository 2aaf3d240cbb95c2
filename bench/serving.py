"""A server with a thousand live streams: time to the first text, lost events, memory; and the cost of an SSE event.

The server is in this process, with the event loop and the protocols of ``vaka serve``; the clients are in another one.
"""

import asyncio
import json
import resource
import sys
import time
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import uvloop

import vaka
from bench import stores
from bench.agents import AddingModel, TalkingModel, make_agent
from bench.measure import percentile, subprocess_environment
from bench.row import Row
from vaka.core.ports.model import Chunk, Prompt, TextChunk
from vaka.server.app import open_service
from vaka.server.listen import StoppableServer, open_socket
from vaka.server.settings import ServerSettings

T = TypeVar("T")

WORDS = 50
PAUSE = 0.2
"""Seconds between two pieces of an answer: all streams are open at the same time."""
RAMP_SECONDS = 5.0
LIMIT_MB = 250.0
LIMIT_MS = 200.0
LIMIT_EVENT = 25.0
KINDS = {"sse": "SSE", "ws": "WebSocket"}
SETTINGS = ServerSettings(
    requests_per_minute=0, concurrent_turns=0, streams_per_credential=0, features=frozenset({"websocket"})
)


class PacedModel(AddingModel):
    """Calls a tool, then answers piece by piece; the first piece comes at once."""

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Chunk]:
        """Answer ``prompt``."""
        first = True
        async for chunk in super().stream(prompt):
            if isinstance(chunk, TextChunk):
                await asyncio.sleep(0 if first else PAUSE)
                first = False
            yield chunk


@asynccontextmanager
async def serve(agent: vaka.Agent, store: str) -> AsyncGenerator[tuple[int, vaka.Runtime]]:
    """Serve an agent at a free port, without credentials."""
    listener = open_socket("127.0.0.1", 0)
    async with vaka.Runtime(store=store) as runtime:
        service = await open_service(runtime, [agent], SETTINGS, insecure=True)
        server = StoppableServer(service)
        serving = asyncio.create_task(server.serve([listener]))
        while not server.started:  # noqa: ASYNC110  # the server has no event for it
            await asyncio.sleep(0.01)
        try:
            yield listener.getsockname()[1], runtime
        finally:
            server.should_exit = True
            await serving
            listener.close()


async def run_clients(kind: str, port: int, count: int, ramp: float, prefix: str) -> dict[str, Any]:
    """Run streams in another process and return what it measured."""
    command = [
        sys.executable,
        "-m",
        "bench.serving_clients",
        kind,
        str(port),
        str(count),
        str(ramp),
        str(WORDS),
        prefix,
    ]
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, env=subprocess_environment()
    )
    output, _ = await process.communicate()
    if process.returncode:
        raise RuntimeError(f"the clients ended with {process.returncode}")
    found: dict[str, Any] = json.loads(output)
    return found


async def _measure(kind: str, quick: bool) -> list[Row]:
    count, rows = 200 if quick else 1000, list[Row]()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    with stores.temporary_folder() as home:
        async with serve(make_agent(PacedModel(words=WORDS)), stores.store_url_of(stores.POWER, home)) as (port, _):
            for ramp in (RAMP_SECONDS, 0.0):
                how = f"over {ramp:.0f} s" if ramp else "at once"
                cpu = time.process_time()
                found = await run_clients(kind, port, count, ramp, f"ramp{ramp:.0f}")
                used, name = time.process_time() - cpu, f"{count} {KINDS[kind]} streams {how}"
                rows += _rows(name, found, count, LIMIT_MS if ramp else None)
                rows.append(
                    stores.POWER.row(f"{name}: CPU of the server", used, "s", note=f"in {found['seconds']:.1f} s")
                )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    rows.append(
        stores.POWER.row(
            f"{count} {KINDS[kind]} streams: RSS peak",
            peak,
            "MB",
            target=LIMIT_MB,
            raw=before,
            note="whole process; raw: before the server",
        )
    )
    return rows


def _rows(name: str, found: dict[str, Any], count: int, target: float | None) -> list[Row]:
    waits = sorted(found["waits"]) or [0.0]
    row = stores.POWER.row
    return [
        row(
            f"{name}: no event lost",
            found["complete"],
            target=float(count),
            better="equal",
            note="seqs contiguous, one end, text whole",
        ),
        row(f"{name}: first text p50", percentile(waits, 0.5), "ms"),
        row(
            f"{name}: first text p95",
            percentile(waits, 0.95),
            "ms",
            target=target,
            note="from the last byte of the request; a tool call comes first",
        ),
        row(f"{name}: first text p99", percentile(waits, 0.99), "ms"),
    ]


def measure_sse_streams(quick: bool) -> list[Row]:
    return _run(_measure("sse", quick))


def measure_socket_streams(quick: bool) -> list[Row]:
    return _run(_measure("ws", quick))


def measure_event_cost(quick: bool) -> list[Row]:
    """Measure the CPU of one delta more with a follower over HTTP than without one."""
    words, repeats = (5000, 3) if quick else (20_000, 5)
    rows: list[Row] = []
    for burst in (1, 20):
        pairs = [_run(_cost_of_deltas(words, burst)) for _ in range(repeats)]
        costs = sorted(followed - alone for followed, alone in pairs)
        row = Row(
            name=f"SSE event to one client, {'one' if burst == 1 else burst} a tick",
            value=costs[len(costs) // 2],
            unit="µs CPU",
            store="memory",
            low=costs[0],
            high=costs[-1],
            target=LIMIT_EVENT,
            raw=sorted(alone for _, alone in pairs)[repeats // 2],
            note="of the server, beyond that of a turn without a client, which is raw",
        )
        rows.append(row)
    return rows


async def _cost_of_deltas(words: int, burst: int) -> tuple[float, float]:
    """Return the microseconds of CPU for a delta with a client and without one."""
    agent = make_agent(TalkingModel(words=words, burst=burst))
    async with serve(agent, "memory:") as (port, runtime):
        costs: list[float] = []
        for id, followed in (("followed", True), ("alone", False)):
            session = await runtime.open(agent, id=id)
            await session.update(title="measured")
            reader = await _start_reader(port, id) if followed else None
            begun = time.process_time()
            await session.run("hi")
            if reader is not None:
                await reader.wait()
            costs.append((time.process_time() - begun) / words * 1e6)
    return costs[0], costs[1]


async def _start_reader(port: int, session: str) -> asyncio.subprocess.Process:
    """Start a process that reads the events of a session to the end of its turn; return when it is connected."""
    program = (
        "import socket, sys\n"
        "port, session = int(sys.argv[1]), sys.argv[2]\n"
        "connection = socket.create_connection(('127.0.0.1', port))\n"
        "path = f'/api/v1/sessions/{session}/events'\n"
        "head = f'GET {path} HTTP/1.1\\r\\nHost: 127.0.0.1\\r\\nAccept: text/event-stream\\r\\n\\r\\n'\n"
        "connection.sendall(head.encode())\n"
        "tail = b''\n"
        "while b'event: turn.completed' not in tail:\n"
        "    data = connection.recv(262144)\n"
        "    if b': open' in data:\n"
        "        print('open', flush=True)\n"
        "    tail = tail[-64:] + data\n"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, str(port), session, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    await process.stdout.readline()
    return process


def _run(work: Coroutine[Any, Any, T]) -> T:
    """Run with the event loop of ``vaka serve``."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)
