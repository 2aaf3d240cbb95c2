"""Calls of client tools: calls that wait for the client, and the results it gives."""

from collections.abc import Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING

import msgspec

from vaka.core.loop.blobs import BlobContext, offload_result
from vaka.core.ports.store import Store
from vaka.core.session.snapshot import reopen
from vaka.core.types.control import QuestionAnswered, QuestionAsked
from vaka.core.types.errors import InvalidInput, NotFound
from vaka.core.types.event import Event
from vaka.core.types.ids import JSON, CallId, SessionId
from vaka.core.types.message import Part, ToolCall, ToolResult
from vaka.core.types.tool_result import as_result

if TYPE_CHECKING:
    from vaka.runtime.drivers import SessionDrivers

ClientResult = ToolResult | Part | Sequence[Part] | JSON
MAX_RESULT_BYTES = 1 << 20
"""The size limit of a result, in bytes of JSON without its large parts, which are stored as blobs."""


async def read_client_calls(store: Store, session: SessionId) -> tuple[ToolCall, ...]:
    """Return the calls of a session that wait for the client, with their arguments, oldest first."""
    state = (await reopen(store, session)).state
    waiting = [
        state.open.get(decision.call)
        for decision in state.decisions.values()
        if decision.call and decision.waiting and decision.question is not None and decision.question.kind == "result"
    ]
    return tuple(open_call.call for open_call in waiting if open_call is not None)


async def answer_call(
    drivers: "SessionDrivers", session: SessionId, call: str, result: ClientResult, *, failed: bool, by: str
) -> Event:
    """Offer the result of a call to its session and return the event of the first one, which counts.

    The same result again returns the first event. Raises ``NotFound`` for an unknown session or call, and
    ``InvalidInput`` for a result that cannot be stored, and for a call that has another one or no longer waits.
    """
    owner = BlobContext(drivers.store, drivers.secrets, session)
    answer = await _encode_result(owner, CallId(call), result, failed=failed)
    asked = await _find_waiting(drivers.store, session, call)
    if asked is not None and asked.expires and drivers.timestamp() >= asked.expires:
        raise InvalidInput(f"call {call} expired at {asked.expires}; its result comes too late")
    if asked is not None:
        body = QuestionAnswered(question=asked.question, answer=answer, by=by)
        event = await drivers.offer(session, body, asked.question)
    else:
        event = await _find_answer(drivers.store, session, call)
    first = event.data
    redacted = drivers.secrets.redact_data(answer)
    if not isinstance(first, QuestionAnswered) or msgspec.json.encode(first.answer) != msgspec.json.encode(redacted):
        raise InvalidInput(f"call {call} has another result already, and the first one counts")
    return event


async def _encode_result(owner: BlobContext, call: CallId, result: ClientResult, *, failed: bool) -> JSON:
    """Return a result as the JSON of a ``ToolResult``, with its large parts stored as blobs."""
    try:
        found = as_result(call, result)
        if failed and not found.failed:
            found = msgspec.structs.replace(found, failed=True, reason="error")
        encoded = msgspec.json.encode(await offload_result(owner, found))
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        raise InvalidInput(f"the result of call {call} cannot be written as JSON: {error}") from error
    if len(encoded) > MAX_RESULT_BYTES:
        raise InvalidInput(f"a result may have at most {MAX_RESULT_BYTES} bytes as JSON; this one has {len(encoded)}")
    return msgspec.json.decode(encoded)


async def _find_waiting(store: Store, session: SessionId, call: str) -> QuestionAsked | None:
    for pending in await store.sessions.decisions(session):
        body = pending.event.data
        if isinstance(body, QuestionAsked) and body.kind == "result" and body.call == call:
            return body
    return None


async def _find_answer(store: Store, session: SessionId, call: str) -> Event:
    """Return the event that answered a call which no longer waits. Raises ``InvalidInput`` if there is none."""
    asked: QuestionAsked | None = None
    async with aclosing(store.events.read(session)) as events:
        async for event in events:
            body = event.data
            if isinstance(body, QuestionAsked) and body.kind == "result" and body.call == call:
                asked = body
            elif asked is not None and isinstance(body, QuestionAnswered) and body.question == asked.question:
                if body.answer is None:
                    raise InvalidInput(f"call {call} got no result in time; it has failed, and the turn went on")
                return event
    if asked is not None:
        raise InvalidInput(f"call {call} no longer waits: its turn was stopped, or the session was rewound or forked")
    if await store.sessions.find(session) is None:
        raise NotFound(f"there is no session {session!r}")
    waiting = ", ".join(call.id for call in await read_client_calls(store, session)) or "none"
    raise NotFound(f"session {session!r} has no call {call!r} of a client tool; calls that wait: {waiting}")
