"""Export a thread as JSON lines, and import it again."""

from bisect import bisect_right
from collections.abc import AsyncGenerator, AsyncIterable, Iterable
from contextlib import aclosing
from typing import Any, TypeAlias

import msgspec

from vaka.core.loop.blobs import restore_content
from vaka.core.ports.store import Store
from vaka.core.types.control import InputAdded, SessionReverted
from vaka.core.types.errors import InvalidInput
from vaka.core.types.event import Event
from vaka.core.types.hidden_messages import HIDDEN_KEY
from vaka.core.types.ids import CallId, SessionId
from vaka.core.types.message import CallRef, Content, ToolCall
from vaka.core.types.message_documents import CallDocument, MessageContext, is_message
from vaka.core.types.progress import TURN_ENDS
from vaka.threads.thread import MessageRole, NewMessage, Thread

IMPORT_BATCH = 200
"""Messages that an import adds in one transaction, and then to the end of their turn."""

ThreadLines: TypeAlias = "Iterable[bytes | str] | AsyncIterable[bytes | str]"


class ExportedThread(msgspec.Struct, frozen=True, kw_only=True, tag="thread", omit_defaults=True):
    """The first line of an exported thread."""

    id: str
    title: str = ""
    agent_id: str = ""
    resource_id: str = ""
    metadata: dict[str, Any] = {}
    state: str = "active"
    created_at: str = ""
    updated_at: str = ""


class ExportedMessage(msgspec.Struct, frozen=True, kw_only=True, tag="message", omit_defaults=True):
    """Each further line: one message, with the content of its blobs."""

    role: MessageRole
    content: Content | str = ()
    """An export has parts; a text alone can be imported too."""
    id: str = ""
    """Its id; for a result, the id of the call."""
    tool_calls: tuple[CallDocument, ...] = ()
    failed: bool = False
    metadata: dict[str, Any] = {}
    ts: str = ""
    turn: str = ""


ExportedLine: TypeAlias = ExportedThread | ExportedMessage
_decoder: msgspec.json.Decoder[ExportedLine] = msgspec.json.Decoder(ExportedLine)


class _LiveRanges:
    """The parts of a log that no rewind has removed."""

    def __init__(self, reverts: list[tuple[int, SessionReverted]], head: int) -> None:
        ranges: list[tuple[int, int]] = []
        self._inputs: list[tuple[int, int]] = []
        """Ranges of which only the inputs are kept: a turn has rewound itself."""
        last = head
        for seq, revert in reversed(reverts):
            if seq > last:
                continue
            ranges.append((seq, last))
            if revert.onward is not None:
                self._inputs.append((revert.to + 1, seq - 1))
            last = revert.to
        ranges.append((1, last))
        self._ranges = ranges[::-1]

    def has(self, event: Event) -> bool:
        at = bisect_right(self._ranges, (event.seq, float("inf"))) - 1
        if at >= 0 and event.seq <= self._ranges[at][1]:
            return True
        return isinstance(event.data, InputAdded) and any(a <= event.seq <= b for a, b in self._inputs)


async def export_lines(store: Store, thread: Thread) -> AsyncGenerator[bytes]:
    """Yield the lines of a thread: itself, then the messages of its conversation as it is now. Reads the log twice."""
    session = SessionId(thread.id)
    reverts: list[tuple[int, SessionReverted]] = []
    head = 0
    async with aclosing(store.events.read(session)) as events:
        async for event in events:
            head = event.seq
            if isinstance(event.data, SessionReverted):
                reverts.append((head, event.data))
    live = _LiveRanges(reverts, head)
    metadata = {key: value for key, value in thread.metadata.items() if key != HIDDEN_KEY}
    yield _encode_line(
        ExportedThread(
            id=thread.id,
            title=thread.title,
            agent_id=thread.agent_id,
            resource_id=thread.resource_id,
            metadata=metadata,
            state=thread.state,
            created_at=thread.created_at,
            updated_at=thread.updated_at,
        )
    )
    part: list[Event] = []
    async with aclosing(store.events.read(session, upto=head)) as events:
        async for event in events:
            if not event.path and live.has(event):
                part.append(event)
                if isinstance(event.data, TURN_ENDS):
                    for line in await _message_lines(store, part):
                        yield line
                    part = []
    for line in await _message_lines(store, part):
        yield line


async def _message_lines(store: Store, events: list[Event]) -> list[bytes]:
    """Return the lines of the messages of a turn."""
    context, lines = MessageContext(events), list[bytes]()
    for event in events:
        message = context.describe(event) if is_message(event) else None
        if message is None:
            continue
        content = await restore_content(store.blobs, message.content)
        shown = tuple(part for part in content if not isinstance(part, CallRef))
        lines.append(
            _encode_line(
                ExportedMessage(
                    role=message.role,
                    content=shown,
                    id=message.id,
                    tool_calls=tuple(message.tool_calls or ()),
                    failed=bool(message.failed),
                    metadata=message.metadata or {},
                    ts=message.ts,
                    turn=message.turn,
                )
            )
        )
    return lines


def _encode_line(line: ExportedLine) -> bytes:
    return msgspec.json.encode(line) + b"\n"


class ThreadReader:
    """Reads the lines of an exported thread: the thread, then its messages in batches that end with a turn."""

    def __init__(self, lines: ThreadLines) -> None:
        self._lines = _iterate(lines)
        self._number = 0

    async def read_thread(self) -> ExportedThread:
        """Return the first line. Raises ``InvalidInput`` if it is not a thread."""
        async for line in self._lines:
            parsed = self._parse(line)
            if isinstance(parsed, ExportedThread):
                return parsed
            break
        raise InvalidInput('the first line must be the thread: {"type":"thread","id":…}, as an export has it')

    async def read_batches(self) -> AsyncGenerator[list[NewMessage]]:
        """Yield the messages. Raises ``InvalidInput`` with the number of a line that cannot be used."""
        batch: list[NewMessage] = []
        async for line in self._lines:
            parsed = self._parse(line)
            if isinstance(parsed, ExportedThread):
                raise InvalidInput(f"line {self._number} is a second thread; import each thread from a file of its own")
            if parsed.role == "user" and len(batch) >= IMPORT_BATCH:
                yield batch
                batch = []
            batch.append(self._to_message(parsed))
        if batch:
            yield batch

    def _parse(self, line: bytes | str) -> ExportedLine:
        self._number += 1
        try:
            return _decoder.decode(line)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            hint = (
                "messages before it may have been imported, and importing the mended file again adds none twice"
                if self._number > 1
                else "`vaka sessions export ID --format messages` writes such lines"
            )
            raise InvalidInput(f"line {self._number} is not a line of exported messages: {error}; {hint}") from error

    def _to_message(self, line: ExportedMessage) -> NewMessage:
        calls = tuple(ToolCall(id=CallId(c.id), name=c.name, arguments=c.arguments) for c in line.tool_calls)
        if line.role == "tool":
            return NewMessage(role="tool", content=line.content, tool_call_id=line.id, failed=line.failed, ts=line.ts)
        return NewMessage(
            role=line.role,
            content=line.content,
            id=line.id or f"line-{self._number}",
            tool_calls=calls,
            metadata=line.metadata,
            ts=line.ts,
        )


async def _iterate(lines: ThreadLines) -> AsyncGenerator[bytes | str]:
    """Yield lines that are not blank."""
    if isinstance(lines, AsyncIterable):
        async for line in lines:
            if line.strip():
                yield line
        return
    for line in lines:
        if line.strip():
            yield line
