"""The values that sessions share, in a log of their own."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from vaka.core.loop.call_context import SessionValues
from vaka.core.ports.env import Clock
from vaka.core.ports.store import Store
from vaka.core.session.fanout import Fanout
from vaka.core.session.log import SessionLog
from vaka.core.session.redaction import Secrets
from vaka.core.session.snapshot import reopen
from vaka.core.types.control import SessionOpened
from vaka.core.types.errors import Busy
from vaka.core.types.ids import NO_SCOPE, SessionId, Term

CLAIM_RETRY_SECONDS = 0.02


class SharedValues:
    """Values that sessions share, in the log ``session`` of a store; implements ``SharedState``."""

    def __init__(self, store: Store, session: SessionId, clock: Clock, secrets: Secrets) -> None:
        self._store = store
        self._session = session
        self._clock = clock
        self._secrets = secrets
        self._lock = asyncio.Lock()

    @asynccontextmanager
    async def change(self) -> AsyncGenerator[SessionValues]:
        """Claim the log, yield its values, and write what was set."""
        log = SessionLog(self._store, self._session, Fanout(self._session), self._clock, self._secrets)
        async with self._lock:
            term = await self._claim()
            try:
                log.begin_writing(term, await reopen(self._store, self._session))
                opening = () if log.head else (SessionOpened(),)
                log.defer(NO_SCOPE, *opening)
                yield SessionValues(log, NO_SCOPE)
                if len(log.deferred) > len(opening):
                    await log.append(NO_SCOPE)
            finally:
                await self._store.events.release(self._session, term)

    async def _claim(self) -> Term:
        """Wait until no other process has the claim; the time limit of the tool call ends the wait."""
        while True:
            try:
                return await self._store.events.claim(self._session)
            except Busy:
                await self._clock.sleep(CLAIM_RETRY_SECONDS)
