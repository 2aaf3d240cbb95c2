"""The conversation of a session as messages, read from its log; and a search in it."""

from collections.abc import Callable
from contextlib import aclosing
from typing import Literal, TypeAlias, cast

import msgspec
from msgspec import UNSET
from starlette.requests import Request
from starlette.responses import Response

from vaka.core.loop.blobs import restore_content
from vaka.core.ports.messages import MessageFilter, MessageQuery, MessageRow
from vaka.core.ports.store import SessionInfo, Store
from vaka.core.types.event import Event
from vaka.core.types.hidden_messages import hidden_messages_of, is_hidden
from vaka.core.types.ids import AgentPath
from vaka.core.types.message_documents import MessageContext, MessageDocument, MessageRole, is_message, message_text
from vaka.runtime.runtime import Runtime
from vaka.runtime.session_edits import read_kept_backwards
from vaka.server.kit.bodies import json_response
from vaka.server.kit.operation import Operation, read_query
from vaka.server.kit.pages import LogCursor, Page, PageLimit, page_limit, page_position, parse_metadata
from vaka.server.kit.problems import Problem
from vaka.server.kit.service import AgentService
from vaka.server.kit.sessions import find_session
from vaka.text.words import fold_text

Selects: TypeAlias = Callable[[Event], bool]

MAX_SEARCHED = 10_000
"""Events that one search reads at most; its cursor goes on after them."""


class ListMessages(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which messages to list. The order ``desc`` lists the newest first, without messages that a rewind removed."""

    limit: PageLimit = 50
    cursor: LogCursor = ""
    order: Literal["asc", "desc"] = "asc"
    path: str = ""
    """The agent, as names separated by ``/``; default: the root."""
    role: Literal["", "user", "assistant", "tool"] = ""
    """With this and the following ones messages are chosen from the index, without their calls."""
    since: str = ""
    """The earliest time, inclusive."""
    until: str = ""
    """The latest time, inclusive."""
    keyword: str = ""
    """A text that is part of the message; of several, separated by commas, one of them. Case does not matter."""
    metadata: str = ""
    """Keys and values that their metadata have, as a JSON object."""
    include_content: bool = True
    resource_id: str = ""
    """The owner that the session must have; otherwise the answer is 404."""

    @property
    def is_filtered(self) -> bool:
        chosen = (self.role, self.since, self.until, self.keyword, self.metadata)
        return any(chosen) or not self.include_content


class SearchMessages(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A text that messages have; case does not matter. The newest message comes first."""

    q: str
    limit: PageLimit = 20
    cursor: LogCursor = ""
    path: str = ""
    resource_id: str = ""
    """The owner that the session must have; otherwise the answer is 404."""


async def read_messages(service: AgentService, request: Request) -> Response:
    """Reads the events of the page, from the start of the log or from its end."""
    runtime, info = await find_session(service, request)
    query = read_query(request, ListMessages)
    limit, path = page_limit(query.limit), _parse_path(query.path)
    if query.is_filtered:
        return await _read_filtered(runtime, info, query)
    at, hidden = page_position(info, query.cursor), hidden_messages_of(info.metadata)

    def selects(event: Event) -> bool:
        return event.path == path and is_message(event) and not is_hidden(hidden, event.seq)

    if query.order == "asc":
        events, rest = await _read_forwards(runtime.store, info, at, limit, selects)
    else:
        events, rest = await _read_backwards(runtime.store, info, at, limit, selects)
    return await _respond(runtime.store, info, events, rest, selects, newest_first=query.order == "desc")


async def _read_filtered(runtime: Runtime, info: SessionInfo, query: ListMessages) -> Response:
    """Read a page of the index."""
    words = tuple(word for word in query.keyword.split(",") if word.strip())
    chosen = MessageFilter(
        role=query.role,
        since=query.since,
        until=query.until,
        keywords=words,
        metadata=parse_metadata(query.metadata),
        path=_parse_path(query.path),
    )
    page = await runtime.threads.get_messages(
        info.id,
        MessageQuery(
            filter=chosen,
            limit=query.limit,
            cursor=query.cursor,
            reverse=query.order == "desc",
            include_content=query.include_content,
        ),
    )
    data = [await row_document(runtime.store, row) for row in page.messages]
    return json_response(Page(data=data, next_cursor=page.next or None, has_more=page.has_more))


async def row_document(store: Store, row: MessageRow) -> MessageDocument:
    """Return the message of a row of the index, with the content of its blobs."""
    return MessageDocument(
        id=row.id,
        role=cast("MessageRole", row.role),
        turn=row.turn,
        content=await restore_content(store.blobs, row.content),
        cursor=row.cursor,
        ts=row.ts,
        path=row.path,
        failed=row.failed if row.role == "tool" else UNSET,
        metadata=row.metadata or UNSET,
    )


def _parse_path(text: str) -> AgentPath:
    return tuple(name for name in text.split("/") if name)


async def _read_forwards(
    store: Store, info: SessionInfo, after: int, limit: int, selects: Selects
) -> tuple[list[Event], int]:
    """Return the events that have the next messages, and the last of them if there are more; otherwise 0."""
    found = 0
    last = 0
    kept = list[Event]()
    async with aclosing(store.events.read(info.id, after=after)) as events:
        async for event in events:
            if selects(event):
                if found == limit:
                    return kept, last
                found, last = found + 1, event.seq
            kept.append(event)
    return kept, 0


async def _read_backwards(
    store: Store, info: SessionInfo, before: int, limit: int, selects: Selects, most: int = 0
) -> tuple[list[Event], int]:
    """Return the events that have the messages before a position, and the first of them if there are more.

    With ``most``, at most so many events are read.
    """
    upto = before - 1 if before else info.head
    found = 0
    first = 0
    kept = list[Event]()
    lowest = max(upto - most, 0) if most else 0
    async with aclosing(read_kept_backwards(store, info.id, upto, lowest)) as events:
        async for event in events:
            if selects(event):
                if found == limit:
                    return kept[::-1], first
                found, first = found + 1, event.seq
            kept.append(event)
    return kept[::-1], lowest + 1 if lowest else 0


async def _respond(
    store: Store, info: SessionInfo, events: list[Event], rest: int, selects: Selects, *, newest_first: bool
) -> Response:
    context, data = MessageContext(events), list[MessageDocument]()
    for event in events:
        if selects(event) and (message := context.describe(event)) is not None:
            content = await restore_content(store.blobs, message.content)
            data.append(msgspec.structs.replace(message, content=content))
    if newest_first:
        data.reverse()
    cursor = f"{info.epoch}.{rest}" if rest else None
    return json_response(Page(data=data, next_cursor=cursor, has_more=bool(rest)))


async def search_messages(service: AgentService, request: Request) -> Response:
    """Reads the log from its end until the page is full, at most ``MAX_SEARCHED`` events."""
    runtime, info = await find_session(service, request)
    query = read_query(request, SearchMessages)
    wanted = fold_text(query.q) or query.q  # a lone accent folds to nothing
    path = _parse_path(query.path)
    hidden = hidden_messages_of(info.metadata)
    if not wanted.strip():
        raise Problem(422, "invalid_query", "q is empty; give a text to search for", errors=[{"field": "q"}])

    def selects(event: Event) -> bool:
        if event.path != path or not is_message(event) or is_hidden(hidden, event.seq):
            return False
        return wanted in fold_text(message_text(event))

    at = page_position(info, query.cursor)
    events, rest = await _read_backwards(runtime.store, info, at, page_limit(query.limit), selects, MAX_SEARCHED)
    return await _respond(runtime.store, info, events, rest, selects, newest_first=True)


OPERATIONS = (
    Operation(
        method="GET",
        path="/sessions/{session}/messages",
        scope="runs:read",
        handler=read_messages,
        summary="List the messages of a session",
        query=ListMessages,
        result=Page[MessageDocument],
    ),
    Operation(
        method="GET",
        path="/sessions/{session}/messages/search",
        scope="runs:read",
        handler=search_messages,
        summary="Search the messages of a session",
        query=SearchMessages,
        result=Page[MessageDocument],
    ),
)
