"""A process with its own store that runs commands from standard input: ``{"do": "claim", "session": "s"}``."""

import asyncio
import sys
from contextlib import aclosing
from typing import Any

import msgspec

from vaka.core.types.errors import VakaError
from vaka.core.types.event import Event
from vaka.core.types.ids import MessageId, SessionId, Term
from vaka.core.types.progress import MessageSnapshot
from vaka.stores.postgres import PostgresStore
from vaka.testing.crashes import enable_failpoints
from vaka.testing.stores.sealed_events import EventSealer, input_added, unsealed_event


class ChildCommands:
    """The commands; each answers with its return value or the name of its error."""

    def __init__(self, store: PostgresStore) -> None:
        self.store = store
        self.logs: dict[str, tuple[EventSealer, Term]] = {}

    async def claim(self, session: str) -> int:
        term = await self.store.events.claim(SessionId(session))
        self.logs[session] = await EventSealer(session).catch_up(self.store), term
        return term

    async def append(self, session: str, key: str, release: bool = False) -> int:
        log, term = self.logs[session]
        return await log.append_to(self.store, term, input_added(key, key), release=release)

    async def held(self, session: str) -> bool:
        log, term = self.logs[session]
        return self.store.events.is_held(log.session, term)

    async def offer(self, session: str, key: str) -> int:
        return await self.store.events.offer(
            SessionId(session), unsealed_event(session, input_added(key, key)), key=key
        )

    async def wait(self, session: str, after: int) -> int:
        return await self.store.events.wait(SessionId(session), after=after)

    async def share(self, session: str, text: str) -> None:
        body = MessageSnapshot(message_id=MessageId("m"), block=0, of="text.delta", text=text)
        self.store.live.share(SessionId(session), lambda: [unsealed_event(session, body)])

    async def watch(self, session: str, text: str) -> str:
        async with aclosing(self.store.live.watch(SessionId(session))) as events:
            async for event in events:
                if _text_of(event) == text:
                    return text
        return ""


def _text_of(event: Event) -> str:
    assert isinstance(event.data, MessageSnapshot)
    return event.data.text


async def main(dsn: str, lease: str) -> None:
    enable_failpoints()
    store = PostgresStore(dsn, lease=float(lease))
    commands = ChildCommands(store)
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    while line := await lines.readline():
        command: dict[str, Any] = msgspec.json.decode(line)
        try:
            answer = await getattr(commands, command.pop("do"))(**command)
        except VakaError as error:
            answer = type(error).__name__
        sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\n")
        sys.stdout.buffer.flush()
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
