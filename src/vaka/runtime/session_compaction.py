"""Compact the context of a session between its turns, because a caller asks for it. Imported on first use."""

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from vaka.core.loop.context import Turn
from vaka.core.loop.stop import StopSignal
from vaka.core.ports.agent import AgentKind
from vaka.core.session.log import SessionLog
from vaka.core.session.snapshot import OpenedSession, reopen
from vaka.core.types.context import ContextCompacted
from vaka.core.types.errors import Busy, InvalidInput, NotFound, TooNew, VakaError
from vaka.core.types.event import VERSION, Event
from vaka.core.types.ids import EventScope, SessionId
from vaka.core.types.message import replace_surrogates
from vaka.middleware.compaction import context_tokens

if TYPE_CHECKING:
    from vaka.runtime.drivers import SessionDrivers
    from vaka.runtime.session import Session

MAX_INSTRUCTIONS = 20_000
"""Characters of the instructions for a summary."""


class CompactionResult(msgspec.Struct, frozen=True, kw_only=True):
    """The effect of a compaction on the context of a session."""

    before: int
    """The tokens of the context before, as estimated."""
    after: int
    """The tokens after it; as many as before when there was nothing to leave out."""
    event: Event | None = None
    """The ``context.compacted``, if there is one."""
    skipped: str = ""
    """Why there is none: a middleware or a hook has skipped it, or no model wrote a summary."""

    @property
    def summary(self) -> str:
        """The summary that the model sees from now on."""
        return self.event.data.summary if self.event and isinstance(self.event.data, ContextCompacted) else ""


async def compact_session(
    session: "Session[Any]", drivers: "SessionDrivers", instructions: str, *, interrupt: bool
) -> CompactionResult:
    """Compact a session as its writer; see ``Session.compact``."""
    id, text = session.id, replace_surrogates(instructions).strip()
    if len(text) > MAX_INSTRUCTIONS:
        raise InvalidInput(f"the instructions have {len(text)} characters; at most {MAX_INSTRUCTIONS} are allowed")
    if isinstance(session.agent, AgentKind):
        raise InvalidInput(f"agent {session.agent.name!r} runs a script, whose conversation cannot be compacted")
    if await drivers.store.sessions.find(id) is None:
        raise NotFound(f"there is no session {id!r}")
    if interrupt:
        await drivers.interrupt_and_wait(id, "compacted")
    async with drivers.edit_lock(id):
        await _wait_for_release(drivers, id)
        await drivers.require_idle(id)
        term = await drivers.store.events.claim(id)
        log = SessionLog(drivers.store, id, drivers.hub.attach_writer(id), drivers.env.clock, drivers.secrets)
        try:
            opened = await reopen(drivers.store, id)
            _require_between_turns(id, opened)
            log.begin_writing(term, opened)
            log.listeners += drivers.observers
            return await _compact(session, drivers, log, text)
        finally:
            if not log.released or not log.head:
                with suppress(VakaError):
                    await drivers.store.events.release(id, term)
            drivers.hub.detach_writer(id)


async def _wait_for_release(drivers: "SessionDrivers", session: SessionId) -> None:
    """Wait for a driver that has no turn to run any more and is about to release the session."""
    driver = drivers.active.get(session)
    if driver is None or not await driver.wait_started() or driver.waiting_for_claim:
        return
    if driver.next_turn == ("", "") and not driver.turn_opening and not driver.new_inputs:
        await driver.wait()
        await asyncio.sleep(0)


def _require_between_turns(session: SessionId, opened: OpenedSession) -> None:
    if opened.too_new:
        raise TooNew(f"session {session!r} holds events of version {opened.too_new}, this vaka knows {VERSION}")
    if opened.state.turn is not None:
        raise Busy(f"session {session!r} has an unfinished turn; resume it or interrupt it first")


async def _compact(
    session: "Session[Any]", drivers: "SessionDrivers", log: SessionLog, instructions: str
) -> CompactionResult:
    recipe = drivers.builder.recipe_for_input(session.agent, None)
    turn = Turn(log, recipe, drivers.env, EventScope(), StopSignal())
    turn.deps, turn.metadata = session.deps, session.metadata
    before = context_tokens(turn)
    charged = turn.budget.open()
    try:
        compactor = drivers.builder.make_compactor(session.agent, recipe.model)
        bodies = await compactor.compact(turn, "manual", instructions)
    finally:
        turn.budget.close(charged)
    events = await log.append(turn.scope, *bodies, release=True)
    event = next((event for event in events if isinstance(event.data, ContextCompacted)), None)
    if event is None or not isinstance(event.data, ContextCompacted):
        return CompactionResult(before=before, after=before, skipped=compactor.skipped)
    return CompactionResult(before=event.data.before, after=event.data.after, event=event)
