"""The cost of a delta from the socket to a follower, for each wire API, compared with the vendors' own clients.

The server is another process, and every client runs in its own process, so that imports are not shared.
"""

import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from importlib import metadata

from bench.http_delta_clients import MODES, WIRES, open_adapter
from bench.measure import percentile, subprocess_environment
from bench.row import Row

TARGETS: dict[str, float | None] = {"b1": 25.0, "b1-fast": 25.0, "b20": 10.0}
MODE_DESCRIPTIONS = {"b1": "one a segment", "b1-fast": "one a segment, no pause", "b20": "20 a segment"}
PEERS = {
    "openai chat": ("openai", "chat", 5.0),
    "openai responses": ("openai", "responses", 5.0),
    "anthropic create": ("anthropic", "anthropic", 2.0),
    "anthropic stream": ("anthropic", "anthropic", None),
    "google-genai": ("google-genai", "gemini", 5.0),
}
"""The vendor's client, the wire API that it is compared with, and the target of the ratio."""
ADAPTERS = ("openai_chat", "openai_responses", "anthropic", "gemini")
MAX_LAG_MS = 20.0


@contextmanager
def run_server() -> Iterator[str]:
    command = [sys.executable, "-m", "bench.http_delta_server"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=subprocess_environment()) as server:
        assert server.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(server.stdout.readline())}"
        finally:
            server.kill()


def measure_client(name: str, url: str, words: int, repeats: int) -> dict[str, list[float]]:
    """Measure one client in another process."""
    command = [sys.executable, "-m", "bench.http_delta_clients", name, url, str(words), str(repeats)]
    done = subprocess.run(command, check=True, env=subprocess_environment(), capture_output=True, text=True)
    found: dict[str, list[float]] = json.loads(done.stdout)
    return found


def measure_deltas(quick: bool) -> list[Row]:
    """Measure all clients in turns, several times."""
    words, rounds = (2000, 1) if quick else (3000, 2)
    names = [*(f"{kind} {wire}" for wire in WIRES for kind in ("ours", "httpx2", "bare", "alone")), *PEERS, "nothing"]
    found: dict[str, dict[str, list[float]]] = {name: {mode: [] for mode in MODES} for name in names}
    with run_server() as url:
        for _ in range(rounds):
            for name in names:
                for mode, values in measure_client(name, url, words, 2).items():
                    found[name][mode] += values
    made: list[Row] = []
    for mode in MODES:
        floor = statistics.median(found["nothing"][mode])
        made += [_row_of_ours(wire, mode, found, floor) for wire in WIRES]
    made += [_row_of_peer(name, mode, found) for name in PEERS for mode in MODES]
    return made


def _row_of_ours(wire: str, mode: str, found: dict[str, dict[str, list[float]]], floor: float) -> Row:
    mine, bare = found[f"ours {wire}"][mode], found[f"bare {wire}"][mode]
    alone, httpx2 = (statistics.median(found[f"{kind} {wire}"][mode]) for kind in ("alone", "httpx2"))
    parts = f"to chunks only {alone:.1f}; receiving the bytes alone {floor:.1f}"
    return Row(
        name=f"delta over HTTP, {wire}, {MODE_DESCRIPTIONS[mode]}",
        value=statistics.median(mine),
        unit="µs CPU",
        low=min(mine),
        high=max(mine),
        target=TARGETS[mode],
        store="memory",
        raw=statistics.median(bare),
        ratio=statistics.median(mine) / statistics.median(bare),
        note=f"to a follower, over aiohttp; over httpx2 {httpx2:.1f}; {parts}; raw: httpx2 + msgspec",
    )


def _row_of_peer(name: str, mode: str, found: dict[str, dict[str, list[float]]]) -> Row:
    package, wire, target = PEERS[name]
    theirs, mine = statistics.median(found[name][mode]), statistics.median(found[f"ours {wire}"][mode])
    kind = name.removeprefix(package).strip()
    return Row(
        name=f"{package} {metadata.version(package)}{f', {kind}' if kind else ''}, {MODE_DESCRIPTIONS[mode]}",
        unit="× ours",
        value=theirs / mine,
        target=target,
        better="high",
        note=f"{theirs:.0f} µs CPU a delta; ours {mine:.1f}",
    )


async def _measure_lags(url: str, streams: int, words: int) -> list[float]:
    """Return the milliseconds between sending and receiving of each delta of all streams."""
    import vaka
    from vaka.core.types.progress import TextDelta

    lags: list[float] = []

    async def one(number: int) -> None:
        async with open_adapter(WIRES[number % len(WIRES)], f"{url}/tick-w{words}-p20") as model:
            session = await runtime.open(vaka.Agent("talker", model=model))
            async with aclosing(session.stream("hi")) as events:
                async for event in events:
                    if isinstance(event.data, TextDelta):
                        for at in range(0, len(event.data.text), 16):
                            sent = int(event.data.text[at : at + 16])
                            lags.append((time.monotonic_ns() - sent) / 1e6)

    async with vaka.Runtime() as runtime:
        await asyncio.gather(*(one(number) for number in range(streams)))
    assert len(lags) == streams * words
    return lags


def measure_concurrent_streams(quick: bool) -> list[Row]:
    """Measure a hundred concurrent streams, each with fifty deltas a second, in one process."""
    streams, words = 100, 50 if quick else 250
    with run_server() as url:
        begun = time.process_time()
        lags = asyncio.run(_measure_lags(url, streams, words))
        spent = time.process_time() - begun
    return [
        Row(
            name="100 streams at once, lag p95",
            value=percentile(lags, 0.95),
            unit="ms",
            target=MAX_LAG_MS,
            store="memory",
            note="from the server's send to the follower, 50 deltas a second each, all four wires",
        ),
        Row(name="100 streams at once, lag p50", value=percentile(lags, 0.5), unit="ms", store="memory"),
        Row(name="100 streams at once, lag worst", value=max(lags), unit="ms", store="memory"),
        Row(
            name="100 streams at once, CPU a delta",
            value=spent / len(lags) * 1e6,
            unit="µs CPU",
            store="memory",
            note="connecting and ending included",
        ),
    ]


def measure_imports(quick: bool) -> list[Row]:
    """Measure the CPU time of importing an adapter after asyncio, httpx2 and the core."""
    times = 3 if quick else 9
    base = "import asyncio, httpx2, msgspec, time, vaka.core.ports.model; begun = time.process_time(); "
    made: list[Row] = []
    for name in ADAPTERS:
        command = [sys.executable, "-c", f"{base} import vaka.models.{name}.model; print(time.process_time() - begun)"]
        taken = [
            float(
                subprocess.run(command, check=True, env=subprocess_environment(), capture_output=True, text=True).stdout
            )
            for _ in range(times + 1)  # the first may write .pyc files
        ]
        made.append(
            Row(
                name=f"import vaka.models.{name}.model",
                value=min(taken) * 1e3,
                unit="ms CPU",
                target=30.0,
                note=f"beyond asyncio, httpx2 and the core; best of {times}",
            )
        )
    return made
