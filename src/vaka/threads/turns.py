"""Run a turn in a thread: with some of its messages as context, and kept in it or not."""

import asyncio
import copy
from collections.abc import Mapping, Sequence
from contextlib import aclosing, suppress
from typing import Any, TypedDict

import msgspec

from vaka.core.ports.store import BACKGROUND_TAG
from vaka.core.session.branches import TimedEntry, rewind_entries
from vaka.core.session.snapshot import OpenedSession, reopen
from vaka.core.types.control import InputAdded
from vaka.core.types.ending import Response, is_response
from vaka.core.types.errors import Busy, Cancelled, Interrupted, InvalidInput, NotFound, Suspended, TurnError, VakaError
from vaka.core.types.ids import SessionId
from vaka.core.types.imported_turns import ImportedTurns
from vaka.core.types.message import AssistantMessage, CallRef, Message
from vaka.core.types.message_documents import is_message, message_id
from vaka.core.types.progress import ToolStarted, TurnStarted
from vaka.threads.deletion import compose_deletion, deletion_entries
from vaka.threads.host import AgentHost, AgentT, ThreadHost, ThreadSession, TurnInput
from vaka.threads.processors import Composite, MessageLimit, ThreadOptions
from vaka.threads.thread import Thread, thread_of


def apply_options(agent: AgentT, options: ThreadOptions) -> AgentT:
    """Return the agent with what options add to it. Raises ``InvalidInput``."""
    changed = copy.copy(agent)
    changed.middleware = (*agent.middleware, *options.make_middleware())
    return changed


class TurnKeywords(TypedDict, total=False):
    """Parameters of ``Session.run`` for a turn in a thread."""

    key: str
    """Makes the call safe to repeat."""
    model: str
    """The model or tier that answers this turn only."""
    options: Mapping[str, Any] | None
    """Options of the model for this turn only."""


async def run_in_thread(
    host: ThreadHost, session: ThreadSession, agent: str, prompt: TurnInput, keywords: TurnKeywords
) -> Response:
    """Run a turn of the thread itself.

    A turn that fails before it has called a tool is rewound: the thread has both sides of an exchange or neither.
    """
    try:
        return await session.run(prompt, **keywords)
    except (Suspended, Interrupted, Cancelled):
        raise
    except TurnError as error:
        if is_response(error.result):
            with suppress(Busy):  # the next turn has begun
                await _take_back(host, session, agent, error.result.turn_id)
        raise


async def _take_back(host: ThreadHost, session: ThreadSession, agent: str, turn: str) -> None:
    """Rewind a thread to before its last turn, unless that has called a tool, and hide the messages of the turn."""

    async def compose(now: OpenedSession) -> list[TimedEntry]:
        events = await session.last_turn()
        first = events[0] if events else None
        if now.info is None or first is None or first.turn != turn or not isinstance(first.data, TurnStarted):
            return []
        if any(isinstance(event.data, ToolStarted) for event in events):
            return []
        since = first.seq - 1 - len(first.data.inputs)
        async with aclosing(host.store.events.read(session.id, after=since, upto=first.seq - 1)) as read:
            inputs = [event.data.key async for event in read if isinstance(event.data, InputAdded)]
        if since < 1 or tuple(inputs) != first.data.inputs:
            return []
        said = [*inputs, *(message_id(event) for event in events if is_message(event))]
        turns = ImportedTurns(agent, host.ids.new_id, now.state.calls)
        with suppress(InvalidInput):  # the metadata have no room for another hidden part
            deletion = await compose_deletion(host, thread_of(now.info), now, said, turns, since)
            return await deletion_entries(host, session.id, deletion) if deletion is not None else []
        prefix = (await reopen(host.store, session.id, upto=since)).state
        return [("", scope, body) for scope, body in rewind_entries(prefix, now.state, "the turn has failed")]

    await host.append_entries(session.id, compose)


async def run_beside_thread(
    host: AgentHost[AgentT],
    agent: AgentT,
    thread: Thread,
    options: ThreadOptions,
    prompt: TurnInput,
    keywords: TurnKeywords,
) -> Response:
    """Run a turn in a background session of the same owner, which begins with the context.

    It is deleted when the turn has ended; a turn that waits for a decision goes on there, in a thread of its own.
    """
    session = await host.open_session(agent, thread.id)
    messages = await session.messages() if options.load_context else ()
    chosen = Composite(*options.processors, MessageLimit(options.context_limit)).process(messages)
    turns = ImportedTurns(agent.name, host.ids.new_id)
    for message in chosen:
        turns.add_message(_without_references(message))
    turns.end_turn()
    beside = await host.open_session(agent)

    async def compose(now: OpenedSession) -> Sequence[TimedEntry]:
        return await host.store_entries(beside.id, now.state, turns.entries)

    try:
        await beside.update(owner=thread.resource_id or None, tags=[BACKGROUND_TAG])
        if turns.entries:
            await host.append_entries(beside.id, compose)
        response = await beside.run(prompt, **keywords)
    except Suspended:
        with suppress(VakaError):  # the error of the turn is raised
            await beside.update(tags=[])
        raise
    except BaseException:
        with suppress(VakaError):
            await _delete_beside(host, beside.id)
        raise
    await _delete_beside(host, beside.id)
    return response


async def _delete_beside(host: ThreadHost, session: SessionId) -> None:
    """Delete the session of a turn that has ended, also when the caller is cancelled meanwhile."""

    async def delete() -> None:
        await host.wait_idle(session)
        with suppress(NotFound):
            try:
                await host.delete_session(session)
            except Busy:  # facts are extracted from it at this moment
                await host.store.sessions.delete(session)

    deletion = asyncio.create_task(delete())
    try:
        await asyncio.shield(deletion)
    except asyncio.CancelledError:
        await deletion
        raise


def _without_references(message: Message) -> Message:
    """Return a message without the places of its calls, which get other ids."""
    if not isinstance(message, AssistantMessage):
        return message
    content = tuple(part for part in message.content if not isinstance(part, CallRef))
    return msgspec.structs.replace(message, content=content)
