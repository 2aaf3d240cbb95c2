"""The child processes of the tests: ``python -m tests.stores.sqlite.child COMMAND PATH …``.

They report each step by a line on standard output, and continue at each line on standard input.
"""

import asyncio
import os
import resource
import sys
from collections.abc import Awaitable, Callable
from contextlib import aclosing

import uvloop

from vaka.core.types.errors import Busy, ConflictError, StoreError
from vaka.core.types.event import Event
from vaka.core.types.ids import SessionId
from vaka.core.types.progress import MessageSnapshot
from vaka.stores.sqlite import SqliteStore
from vaka.testing.crashes import enable_failpoints
from vaka.testing.stores.followers import GrowingBlock
from vaka.testing.stores.sealed_events import (
    EventSealer,
    begin_session,
    input_added,
    offer_event,
    read_log,
)

S = SessionId("s")


def print_line(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


async def read_line() -> str:
    line: str = await asyncio.to_thread(sys.stdin.readline)
    return line.strip()


async def hold(store: SqliteStore, *_: str) -> None:
    """Write a session, then one more event for each line; never release the claim."""
    log, term = await begin_session(store, "s")
    print_line("held")
    while word := await read_line():
        print_line(await log.append_to(store, term, input_added(word, f"k{log.head}")))


async def write(store: SqliteStore, count: str) -> None:
    """Write ``count`` batches and acknowledge each."""
    enable_failpoints()
    log = EventSealer("s")
    term = await store.events.claim(S)
    for number in range(int(count)):
        print_line(
            await log.append_to(
                store, term, input_added(f"{number}", f"{number}a"), input_added(f"{number}", f"{number}b")
            )
        )


async def contend(store: SqliteStore, count: str) -> None:
    """Claim, write and release until ``count`` writes have succeeded."""
    print_line("ready")
    await read_line()
    wins = 0
    while wins < int(count):
        try:
            term = await store.events.claim(S)
        except Busy:
            await asyncio.sleep(0)
            continue
        log = await EventSealer("s").catch_up(store)
        try:
            await log.append_to(
                store, term, input_added(f"{os.getpid()} {wins}", f"{os.getpid()}-{wins}"), release=True
            )
            wins += 1
        except ConflictError:
            await store.events.release(S, term)
    print_line("done")


async def begin(store: SqliteStore, name: str) -> None:
    """Try to be the first writer of a session."""
    print_line("ready")
    await read_line()
    try:
        log = EventSealer("s")
        print_line("wrote", await log.append_to(store, await store.events.claim(S), input_added(name)))
        await read_line()
    except (Busy, ConflictError) as error:
        print_line("lost", type(error).__name__)


async def share(store: SqliteStore, *_: str) -> None:
    """Write a session and share a block that grows by each line."""
    await begin_session(store, "s")
    block = GrowingBlock()
    store.live.share(S, lambda: [block.snapshot()])
    print_line("ready")
    while word := await read_line():
        block.text += word
        store.live.touch(S)
        print_line("touched")


async def watch(store: SqliteStore, *_: str) -> None:
    """Print each received snapshot."""
    print_line("ready")
    async with aclosing(store.live.watch(S)) as events:
        async for event in events:
            assert isinstance(event.data, MessageSnapshot)
            print_line(event.data.text)


async def offer(store: SqliteStore, key: str) -> None:
    """Offer an input."""
    print_line(await offer_event(store, input_added("psst", key)))


async def limited(store: SqliteStore, size: str) -> None:
    """Write with no room for files larger than ``size``; say how it went, and what is there."""
    log, term = await begin_session(store, "s")
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(size), resource.RLIM_INFINITY))
    small: list[Event] = log.events[:]
    try:
        await log.append_to(store, term, input_added("x" * 2_000_000, "big"))
    except StoreError as error:
        print_line("refused", type(error).__name__, "nothing was written" in str(error))
    print_line("kept", await read_log(store, "s") == [event.stored for event in small])
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    on = EventSealer("s", small[0])
    print_line("again", await on.append_to(store, term, input_added("small", "k2")))


async def locked_out(store: SqliteStore, *_: str) -> None:
    """Use the store as a user who may not write there."""
    if os.geteuid() == 0:
        os.setuid(65534)
    for what in (store.events.claim(S), read_log(store, "s"), store.values.put("a", 1)):
        try:
            await what
        except StoreError as error:
            print_line(type(error).__name__, "Permission denied" in str(error))


async def index(store: SqliteStore, count: str) -> None:
    """Write ``count`` messages, then index their words again and again."""
    log, term = await begin_session(store, "s")
    await log.append_to(store, term, *[input_added(f"canoe {n}", f"k{n}") for n in range(int(count))])
    print_line("written")
    while True:
        await store.hub.index_until(0)
        print_line("indexed")
        await store.reindex()


COMMANDS: dict[str, Callable[..., Awaitable[None]]] = {
    command.__name__: command
    for command in (hold, write, contend, begin, share, watch, offer, limited, locked_out, index)
}


async def main(command: str, path: str, *arguments: str) -> None:
    store = SqliteStore(path, durability="process")
    try:
        await COMMANDS[command](store, *arguments)
    finally:
        await store.close()


if __name__ == "__main__":
    loop_factory = uvloop.new_event_loop if os.environ.get("VAKA_TEST_LOOP") == "uvloop" else None
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(main(*sys.argv[1:]))
