"""``DecisionFeed``: reports when the open decisions of a tenant change, in whichever process they do."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress

from vaka.core.ports.store import PendingDecision
from vaka.core.types.errors import VakaError
from vaka.runtime.runtime import Runtime

POLL_SECONDS = 0.5
"""Seconds between two searches while the feed of a tenant has readers."""


class _Watch:
    """The open decisions of one tenant, searched for while there are readers."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime, self.readers = runtime, 0
        self.rows: Sequence[PendingDecision] = ()
        self.version = 0
        self.changed, self.poked = asyncio.Event(), asyncio.Event()
        self.error: VakaError | None = None
        self.task = asyncio.create_task(self._search())

    async def _search(self) -> None:
        try:
            while True:
                rows = await self.runtime.decisions()
                if not self.version or [row.id for row in rows] != [row.id for row in self.rows]:
                    self.rows, self.version = rows, self.version + 1
                    self._wake()
                self.poked.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(POLL_SECONDS):
                        await self.poked.wait()
        except VakaError as error:
            self.error = error
            self._wake()

    def _wake(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()


class DecisionFeed:
    """The feeds of a server: one search per tenant, however many readers there are, and none without readers."""

    def __init__(self) -> None:
        self._watches: dict[str, _Watch] = {}

    async def follow(self, runtime: Runtime) -> AsyncGenerator[Sequence[PendingDecision]]:
        """Yield the open decisions of a tenant now, and again when they have changed. Raises errors of the store."""
        namespace = runtime.store.namespace
        watch = self._watches.get(namespace)
        if watch is None or watch.error is not None:
            watch = self._watches[namespace] = _Watch(runtime)
        watch.readers += 1
        version = 0
        try:
            while True:
                changed = watch.changed
                if watch.error is not None:
                    raise watch.error
                if watch.version != version:
                    version = watch.version
                    yield watch.rows
                else:
                    await changed.wait()
        finally:
            watch.readers -= 1
            if not watch.readers:
                watch.task.cancel()
                if self._watches.get(namespace) is watch:
                    del self._watches[namespace]

    def poke(self, runtime: Runtime) -> None:
        """Search now: a decision was made through this process."""
        watch = self._watches.get(runtime.store.namespace)
        if watch is not None:
            watch.poked.set()
