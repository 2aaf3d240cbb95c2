"""What other processes do in the tests: ``python -m tests.stores.sqlite.child COMMAND PATH …``.

They say what they did on standard output, a line each, and are told to go on by lines on standard input.
"""

import asyncio
import os
import resource
import sys
from collections.abc import Awaitable, Callable
from contextlib import aclosing

from vaka.core.types.errors import Busy, ConflictError, StoreError
from vaka.core.types.event import Event
from vaka.core.types.ids import SessionId
from vaka.core.types.progress import MessageSnapshot
from vaka.stores.sqlite import SqliteStore
from vaka.testing import failpoints
from vaka.testing.stores.followers import GrowingBlock
from vaka.testing.stores.sealed_events import (
    EventSealer,
    begin_session,
    input_added,
    offer_event,
    read_log,
)

S = SessionId("s")


def say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


async def hear() -> str:
    line: str = await asyncio.to_thread(sys.stdin.readline)
    return line.strip()


async def hold(store: SqliteStore, *_: str) -> None:
    """Write a session, then one more event for each line; never let go."""
    log, term = await begin_session(store, "s")
    say("held")
    while word := await hear():
        say(await log.append_to(store, term, input_added(word, f"k{log.head}")))


async def write(store: SqliteStore, count: str) -> None:
    """Write ``count`` batches and acknowledge each."""
    failpoints.enable()
    log = EventSealer("s")
    term = await store.events.claim(S)
    for number in range(int(count)):
        say(
            await log.append_to(
                store, term, input_added(f"{number}", f"{number}a"), input_added(f"{number}", f"{number}b")
            )
        )


async def contend(store: SqliteStore, count: str) -> None:
    """Claim, write and let go until ``count`` writes went through."""
    say("ready")
    await hear()
    wins = 0
    while wins < int(count):
        try:
            term = await store.events.claim(S)
        except Busy:
            await asyncio.sleep(0)
            continue
        log = EventSealer("s")
        async for event in store.events.read(S):
            log.add_sealed(event)
        try:
            await log.append_to(
                store, term, input_added(f"{os.getpid()} {wins}", f"{os.getpid()}-{wins}"), release=True
            )
            wins += 1
        except ConflictError:
            await store.events.release(S, term)
    say("done")


async def begin(store: SqliteStore, name: str) -> None:
    """Be the first to write a session, or say why not."""
    say("ready")
    await hear()
    try:
        log = EventSealer("s")
        say("wrote", await log.append_to(store, await store.events.claim(S), input_added(name)))
        await hear()
    except (Busy, ConflictError) as error:
        say("lost", type(error).__name__)


async def share(store: SqliteStore, *_: str) -> None:
    """Write a session and show a block that grows by each line."""
    await begin_session(store, "s")
    block = GrowingBlock()
    store.live.share(S, lambda: [block.snapshot()])
    say("ready")
    while word := await hear():
        block.text += word
        store.live.touch(S)
        say("touched")


async def watch(store: SqliteStore, *_: str) -> None:
    """Say each snapshot that comes."""
    say("ready")
    async with aclosing(store.live.watch(S)) as events:
        async for event in events:
            assert isinstance(event.data, MessageSnapshot)
            say(event.data.text)


async def offer(store: SqliteStore, key: str) -> None:
    """Offer an input."""
    say(await offer_event(store, input_added("psst", key)))


async def limited(store: SqliteStore, size: str) -> None:
    """Write with no room for files larger than ``size``; say how it went, and what is there."""
    log, term = await begin_session(store, "s")
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(size), resource.RLIM_INFINITY))
    small: list[Event] = log.events[:]
    try:
        await log.append_to(store, term, input_added("x" * 2_000_000, "big"))
    except StoreError as error:
        say("refused", type(error).__name__, "nothing was written" in str(error))
    say("kept", await read_log(store, "s") == [event.stored for event in small])
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    on = EventSealer("s")
    on.add_sealed(small[0])
    say("again", await on.append_to(store, term, input_added("small", "k2")))


async def locked_out(store: SqliteStore, *_: str) -> None:
    """Use the store as a user who may not write there."""
    if os.geteuid() == 0:
        os.setuid(65534)
    for what in (store.events.claim(S), read_log(store, "s"), store.values.put("a", 1)):
        try:
            await what
        except StoreError as error:
            say(type(error).__name__, "Permission denied" in str(error))


COMMANDS: dict[str, Callable[..., Awaitable[None]]] = {
    command.__name__: command for command in (hold, write, contend, begin, share, watch, offer, limited, locked_out)
}


async def main(command: str, path: str, *arguments: str) -> None:
    store = SqliteStore(path, durability="process")
    try:
        await COMMANDS[command](store, *arguments)
    finally:
        await store.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
