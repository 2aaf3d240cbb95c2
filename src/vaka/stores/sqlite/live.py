"""Open blocks, for followers in other handles and processes."""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from functools import partial

from vaka.core.types.event import Event
from vaka.core.types.ids import SessionId
from vaka.stores.mailbox import Mailbox
from vaka.stores.sqlite import rows
from vaka.stores.sqlite.part import Part


class Live(Part):
    """Share, touch, watch."""

    def share(self, session: SessionId, blocks: Callable[[], Sequence[Event]] | None) -> None:
        """Say where the snapshots can be had."""
        self._hub.peers.share(self._key(session), blocks)

    def touch(self, session: SessionId) -> None:
        """An open block has grown."""
        self._hub.peers.touch(self._key(session))

    async def watch(self, session: SessionId) -> AsyncGenerator[Event]:
        """Yield the snapshots a writer in another handle shares."""
        database, key, box = self._database, self._key(session), Mailbox()
        boxes = self._hub.boxes.setdefault(key, [])
        boxes.append(box)
        try:
            self._hub.follow(key, await database.ask(partial(rows.load, key=key)), again=True)
            async with aclosing(box.take()) as events:
                async for event in events:
                    yield event
        finally:
            boxes.remove(box)
            if not boxes and self._hub.boxes.get(key) is boxes:
                del self._hub.boxes[key]
