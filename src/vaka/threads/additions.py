"""Add the messages of a client to a thread, each once."""

from collections.abc import Callable, Sequence
from contextlib import aclosing

from vaka.core.ports.messages import MessageRow
from vaka.core.ports.store import Store
from vaka.core.types.ids import CallId, SessionId
from vaka.core.types.imported_turns import ImportedTurns
from vaka.core.types.progress import StepCompleted, ToolCalled
from vaka.threads.stats import seconds_of
from vaka.threads.thread import AddedMessage, NewMessage, to_message


class MessageAdditions:
    """Adds messages whose ids are new to the turns of a thread. The results of a known answer are known too."""

    def __init__(self, store: Store, session: SessionId, turns: ImportedTurns, new_id: Callable[[str], str]) -> None:
        self._store = store
        self._session = session
        self._turns = turns
        self._new_id = new_id
        self._answers: dict[str, list[CallId]] = {}
        """The messages of this call by their ids, and the stored ids of their calls."""

    async def add(self, messages: Sequence[NewMessage]) -> list[AddedMessage]:
        """Add messages and return their ids; the id of a result is the stored id of its call."""
        added: list[AddedMessage] = []
        calls: dict[str, CallId] = {}
        is_known = False
        for message in messages:
            time = seconds_of(message.ts)
            if message.role == "tool":
                if not is_known:
                    self._turns.add_message(to_message(message), time=time)
                call = message.tool_call_id
                added.append(AddedMessage(id=calls.get(call, call), added=not is_known))
                continue
            id = message.id or self._new_id("inp" if message.role == "user" else "msg")
            stored = await self._find_calls(id, message) if message.id else None
            is_known = stored is not None
            if stored is None:
                self._turns.add_message(to_message(message), id=id, time=time, metadata=message.metadata)
                stored = [self._turns.open_calls[call.id] for call in message.tool_calls]
            self._answers[id] = stored
            calls = {call.id: own for call, own in zip(message.tool_calls, stored, strict=False)}
            added.append(AddedMessage(id=id, added=not is_known))
        return added

    async def _find_calls(self, id: str, message: NewMessage) -> list[CallId] | None:
        """Return the stored ids of the calls of a message; ``None`` for an unknown message."""
        if id in self._answers:
            return self._answers[id]
        row = await self._store.messages.find(self._session, id)
        if row is None:
            return None
        return await self._read_calls(row) if message.tool_calls else []

    async def _read_calls(self, answer: MessageRow) -> list[CallId]:
        """Return the ids of the calls of an answer, in their order: they follow it in its step."""
        calls: list[CallId] = []
        async with aclosing(self._store.events.read(self._session, after=answer.seq)) as events:
            async for event in events:
                if event.path != answer.path:
                    continue
                if isinstance(event.data, ToolCalled) and event.data.message_id == answer.id:
                    calls.append(event.data.call.id)
                elif isinstance(event.data, StepCompleted) or event.turn not in ("", answer.turn):
                    break
        return calls
