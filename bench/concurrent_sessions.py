"""A thousand sessions at once in one process, each with a tool call, fifty deltas and a follower of its own."""

import asyncio
import resource
import time
from collections.abc import Callable
from contextlib import aclosing

import vaka
from bench import stores
from bench.agents import AddingModel, make_agent
from bench.row import Row
from vaka.config.options import Storage
from vaka.core.types.event import Event
from vaka.core.types.progress import MessageSnapshot, TextDelta, TurnCompleted

DELTAS = 50
EVENTS = 15
"""The minimum of one run; a log may have more, such as reports of a blocked event loop."""
LIMIT_MB = 250.0


class FollowedSession:
    """The events of one follower, assembled as a client does."""

    def __init__(self) -> None:
        self.seqs: list[int] = []
        self.texts: dict[tuple[str, int], str] = {}
        self.deltas = 0
        self.ended = False

    def add_event(self, event: Event) -> None:
        body = event.data
        if event.seq:
            self.seqs.append(event.seq)
            self.ended = isinstance(body, TurnCompleted)
        elif isinstance(body, TextDelta):
            key, self.deltas = (body.message_id, body.block), self.deltas + 1
            text = self.texts.get(key, "")
            if len(text) == body.offset:
                self.texts[key] = text + body.text
        elif isinstance(body, MessageSnapshot) and body.of == "text.delta":
            self.texts[body.message_id, body.block] = body.text

    @property
    def complete(self) -> bool:
        """Whether every durable event was received once, and the deltas add up to the text of the model."""
        all_of_them = len(self.seqs) >= EVENTS and self.seqs == list(range(1, len(self.seqs) + 1))
        return all_of_them and self.ended and list(self.texts.values()) == ["done" * DELTAS]


async def follow(runtime: vaka.Runtime, session: str, ready: Callable[[], None]) -> FollowedSession:
    """Follow one session from its first event to the end of its turn."""
    seen = FollowedSession()
    async with aclosing(runtime.follow(session)) as events:
        asyncio.get_running_loop().call_soon(ready)
        async for event in events:
            seen.add_event(event)
            if seen.ended:
                break
    return seen


async def run_sessions(kind: stores.StoreKind, url: str, count: int) -> tuple[float, int, int]:
    """Return the seconds of all, the number of right answers and of followers with every event."""
    made = make_agent(AddingModel(words=DELTAS, burst=1))
    async with vaka.Runtime(store=url, storage=Storage(durability=kind.durability)) as runtime:
        sessions = [await runtime.open(made, id=f"ses_{number:05d}") for number in range(count)]
        waiting = asyncio.Semaphore(0)
        followers = [asyncio.create_task(follow(runtime, session.id, waiting.release)) for session in sessions]
        for _ in sessions:
            await waiting.acquire()
        begun = time.perf_counter()
        answers = await asyncio.gather(*[session.run("hi") for session in sessions])
        seen = await asyncio.gather(*followers)
        taken = time.perf_counter() - begun
    right = sum(answer.text == "done" * DELTAS for answer in answers)
    return taken, right, sum(one.complete for one in seen)


def _rows(kind: stores.StoreKind, quick: bool) -> list[Row]:
    count = 200 if quick else 1000
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    with stores.temporary_folder() as home:
        taken, right, whole = asyncio.run(run_sessions(kind, stores.store_url_of(kind, home), count))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    name = f"{count} sessions at once"
    return [
        kind.row(f"{name}: complete", right, target=float(count), better="equal"),
        kind.row(
            f"{name}: followers with every event",
            whole,
            target=float(count),
            better="equal",
            note="contiguous seqs, text equal to the model's",
        ),
        kind.row(
            f"{name}: RSS peak",
            peak,
            "MB",
            target=LIMIT_MB,
            raw=before,
            note="whole process; raw: before the first session",
        ),
        kind.row(f"{name}: wall", taken, "s", note=f"{DELTAS} deltas and a follower each"),
    ]


def measure_in_memory(quick: bool) -> list[Row]:
    return _rows(stores.MEMORY, quick)


def measure_in_sqlite(quick: bool) -> list[Row]:
    return _rows(stores.POWER, quick)
