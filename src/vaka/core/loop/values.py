"""The values that tools keep in the log of a session, or in a log that several sessions share."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import msgspec

from vaka.core.ports.env import Clock
from vaka.core.ports.store import Store
from vaka.core.session.context_window import ContextWindow
from vaka.core.session.fanout import Fanout
from vaka.core.session.log import Log
from vaka.core.session.redaction import Secrets
from vaka.core.session.snapshot import reopen
from vaka.core.types.control import SessionOpened, StateChanged
from vaka.core.types.errors import Busy, InvalidInput
from vaka.core.types.ids import JSON, NO_SCOPE, AgentPath, EventScope, SessionId, Term
from vaka.core.types.state import agent_key

MAX_STATE_BYTES = 256 * 1024
"""The largest size of one value of the session state, as JSON."""

CLAIM_RETRY_SECONDS = 0.02


class SessionValues:
    """Reads and writes the values of a session under one scope of its log; implements ``StateValues``."""

    def __init__(self, log: Log, scope: EventScope) -> None:
        self._log, self._scope = log, scope

    def get(self, key: str) -> JSON:
        """Return a value, deferred changes included."""
        return self._log.get_value(key)

    def set(self, key: str, value: JSON) -> None:
        """Defer a value to the next write, at the latest that of the call's result."""
        self._log.defer(self._scope, _state_changed_event(key, value))

    async def set_now(self, key: str, value: JSON) -> None:
        """Write a value at once."""
        await self._log.append(self._scope, _state_changed_event(key, value))


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
        log = Log(self._store, self._session, Fanout(self._session), self._clock, self._secrets)
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


def conversation_key(window: ContextWindow, path: AgentPath, name: str) -> str:
    """Return the key of the value ``name`` of the conversation of the agent at ``path``.

    A child that continues the conversation of another has the same key. ``name`` begins with ``$``, so that scripts
    cannot set it.
    """
    return f"$agent/{agent_key(window.conversation_start(path))}/:{name}" if path else name


def _state_changed_event(key: str, value: JSON) -> StateChanged:
    size = len(msgspec.json.encode(value))
    if size > MAX_STATE_BYTES:
        raise InvalidInput(f"a value the session keeps has at most {MAX_STATE_BYTES} bytes, {key!r} has {size}")
    return StateChanged(key=key, value=value)
