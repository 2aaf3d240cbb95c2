"""Delete messages from the conversation of a thread: it is rewound to before them, and the others follow again.

The log keeps every event. Lists and searches leave out the part that was rewound, whose place is in the metadata.
"""

from collections.abc import Collection, Iterable, Sequence
from contextlib import aclosing
from datetime import datetime
from typing import NamedTuple

import msgspec

from vaka.core.ports.messages import (
    MessageFilter,
    MessagePage,
    MessageQuery,
    MessageSearch,
    MessageStats,
    SearchHit,
    SearchPage,
    parse_list_cursor,
)
from vaka.core.ports.store import BACKGROUND_TAG, Store
from vaka.core.session.branches import TimedEntry, rewind_entries
from vaka.core.session.snapshot import OpenedSession, reopen
from vaka.core.types.control import SessionUpdated, StateChanged
from vaka.core.types.errors import Busy, InvalidInput
from vaka.core.types.event import Body, Event
from vaka.core.types.hidden_messages import HIDDEN_KEY, HiddenMessages, is_hidden
from vaka.core.types.ids import CallId, EventScope, MessageId, SessionId
from vaka.core.types.imported_turns import ImportedTurns, LogEntry
from vaka.core.types.message import (
    AssistantMessage,
    CallRef,
    Message,
    Text,
    ToolCall,
    ToolMessage,
    ToolResult,
    UserMessage,
)
from vaka.core.types.message_documents import MessageContext, MessageDocument, is_message, message_id
from vaka.core.types.progress import TURN_ENDS
from vaka.core.types.state import SessionState
from vaka.threads.host import ThreadHost
from vaka.threads.thread import Thread, thread_of

MAX_FOLLOWING = 10_000
"""Messages that may follow the first deleted one: they are written again."""
MAX_HIDDEN_PARTS = 20
"""Parts of the log that are hidden; with more, the later half becomes one part."""
_COUNT_PAGE = 1000
_SEARCH_PAGE, _SEARCH_ROUNDS = 200, 20
"""What a search reads further, and how often, for a page that messages left out have made shorter."""
_DELETED_RESULT = (Text(text="This result was deleted."),)


class Deletion(NamedTuple):
    """The ids of the messages that are deleted, and the entries that do so."""

    found: frozenset[str]
    rewind: list[LogEntry]
    following: list[LogEntry]
    state: SessionState
    """The state between the two."""


class _Tail(NamedTuple):
    """The end of a live branch: its events after ``to``, and the ids to delete that are among them."""

    to: int
    events: list[Event]
    found: frozenset[str]


async def compose_deletion(
    host: ThreadHost,
    thread: Thread,
    now: OpenedSession,
    ids: Collection[str],
    turns: ImportedTurns,
    since: int | None = None,
) -> Deletion | None:
    """Return what deletes messages of a thread as it is now, ``None`` when it has none of them.

    ``turns`` makes the turns of the messages that follow. With ``since``, the messages are all of the last turn, and
    session values become those at this event, which is before the turn. Raises ``Busy`` for a thread with unfinished
    work, and ``InvalidInput`` when too many messages follow.
    """
    store = host.store
    session, state = SessionId(thread.id), now.state
    if state.turn is not None or state.inputs:
        raise Busy(f"session {thread.id!r} has an unfinished turn or a queued input; finish or interrupt it first")
    known = [row for row in [await store.messages.find(session, id) for id in ids] if row is not None]
    if not known:
        return None
    hidden = thread.hidden
    below = hidden[len(hidden) // 2].first if len(hidden) >= MAX_HIDDEN_PARTS else state.seq + 1
    lowest, wanted = min(row.seq for row in known), frozenset(row.id for row in known)
    if since is not None and below > state.seq:
        tail = _Tail(since, [], wanted)
    else:
        tail = await _read_tail(host, session, state.seq, wanted, lowest, below)
    if not tail.found:
        return None
    prefix = (await reopen(store, session, upto=tail.to)).state
    kept = state if since is None else (await reopen(store, session, upto=since)).state
    for document, message in _following_messages(tail):
        time = datetime.fromisoformat(document.ts).timestamp()
        turns.add_message(message, id=document.id, time=time, metadata=document.metadata or None)
    turns.end_turn()
    update = await _hide(host, thread, tail.to, state.seq + 1)
    rewind = [*rewind_entries(prefix, state, "messages were deleted"), (EventScope(), update), *_values(prefix, kept)]
    prefix.calls = state.calls
    return Deletion(tail.found, [(0.0, scope, body) for scope, body in rewind], turns.entries, prefix)


async def deletion_entries(host: ThreadHost, session: SessionId, deletion: Deletion) -> list[TimedEntry]:
    """Return the entries of a deletion as they are appended to the log, large texts stored as blobs."""
    rewind: list[TimedEntry] = [("", scope, body) for _, scope, body in deletion.rewind]
    return [*rewind, *await host.store_entries(session, deletion.state, deletion.following)]


async def _read_tail(
    host: ThreadHost, session: SessionId, head: int, ids: frozenset[str], lowest: int, below: int
) -> _Tail:
    """Read the log backwards to the end of the turn before the first message to delete, or to the start.

    None of the messages is before the event ``lowest``. The part begins before the event ``below``.
    """
    events: list[Event] = []
    found: set[str] = set()
    count = 0
    async with aclosing(host.read_kept_backwards(session, head)) as read:
        async for event in read:
            if event.path:
                continue
            is_complete = event.seq < below and (len(found) == len(ids) or event.seq < lowest)
            if is_complete and isinstance(event.data, TURN_ENDS):
                return _Tail(event.seq, events[::-1], frozenset(found))
            if event.seq == 1:
                break
            events.append(event)
            count += is_message(event)
            found |= ids & {message_id(event)}
            if count > MAX_FOLLOWING:
                raise InvalidInput(
                    f"more than {MAX_FOLLOWING} messages follow the first one to delete; delete the thread, or import "
                    f"its export without the messages as another thread"
                )
    return _Tail(1, events[::-1], frozenset(found))


def _following_messages(tail: _Tail) -> Iterable[tuple[MessageDocument, Message]]:
    """Yield the messages that are not deleted, each answer with the results of its calls."""
    context = MessageContext(tail.events)
    described = [context.describe(event) for event in tail.events if is_message(event)]
    results = {each.id: each for each in described if each is not None and each.role == "tool"}
    for each in described:
        if each is None or each.id in tail.found or each.role == "tool" or not each.turn:
            continue
        if each.role == "user":
            yield each, UserMessage(content=each.content)
            continue
        calls = tuple(
            ToolCall(id=CallId(call.id), name=call.name, arguments=call.arguments) for call in each.tool_calls or ()
        )
        content = tuple(part for part in each.content if not isinstance(part, CallRef))
        yield each, AssistantMessage(id=MessageId(each.id), content=content, calls=calls)
        answered = [results[call.id] for call in calls if call.id in results]
        if answered:
            yield answered[-1], ToolMessage(results=tuple(_result_of(result, tail.found) for result in answered))


def _result_of(document: MessageDocument, deleted: frozenset[str]) -> ToolResult:
    content = _DELETED_RESULT if document.id in deleted else document.content
    return ToolResult(call=CallId(document.id), content=content, failed=bool(document.failed))


def _values(prefix: SessionState, now: SessionState) -> list[tuple[EventScope, Body]]:
    """Return the entries that set the session values again that a rewind takes back."""
    changed = {key: value for key, value in now.values.items() if prefix.values.get(key) != value}
    removed = dict.fromkeys(key for key in prefix.values if key not in now.values)
    return [(EventScope(), StateChanged(key=key, value=value)) for key, value in {**changed, **removed}.items()]


async def _hide(host: ThreadHost, thread: Thread, to: int, last: int) -> SessionUpdated:
    """Return the change of the metadata that hides the messages after an event."""
    counts = {"user": 0, "assistant": 0, "tool": 0}
    query = MessageQuery(filter=MessageFilter(path=None), limit=_COUNT_PAGE, reverse=True, include_content=False)
    more = True
    previous = 0
    first = to + 1
    while more:
        page = await host.store.messages.list(SessionId(thread.id), query)
        for row in page.messages:
            counts[row.role] += row.seq > to
        previous = next((row.seq for row in page.messages if row.seq <= to), 0)
        more = page.has_more and not previous
        query = msgspec.structs.replace(query, cursor=page.next)
    before = [part for part in thread.hidden if part.last <= to]
    if before and previous <= before[-1].last:  # no message is between the two parts
        joined = before.pop()
        first, counts = joined.first, {role: count + getattr(joined, role) for role, count in counts.items()}
    hidden = [*before, HiddenMessages(first=first, last=last, **counts)]
    changes = {HIDDEN_KEY: msgspec.to_builtins(hidden)}
    session = SessionId(thread.id)
    host.check_metadata(session, await host.store.sessions.find(session), changes)
    return SessionUpdated(metadata=changes)


async def search_visible(store: Store, search: MessageSearch) -> SearchPage:
    """Return a page of the messages that a search finds and that are not hidden.

    Background sessions have copies of what was said; a search finds those only if it names the session. After very many
    messages that are left out, the page has fewer than its limit, and ``next``.
    """
    page = await store.messages.search(search)
    visible = await _drop_hidden(store, search, page.hits)
    hits = list(visible)
    for _ in range(_SEARCH_ROUNDS):
        missing = search.limit - len(hits)
        if not page.next or not missing:
            break
        more = msgspec.structs.replace(search, after=page.next, limit=_SEARCH_PAGE)
        page = await store.messages.search(more)
        visible = await _drop_hidden(store, search, page.hits)
        if len(visible) > missing:
            visible = visible[:missing]
            limit = page.hits.index(visible[-1]) + 1
            page = await store.messages.search(msgspec.structs.replace(more, limit=limit))  # for its cursor
        hits += visible
    return msgspec.structs.replace(page, hits=tuple(hits))


async def _drop_hidden(store: Store, search: MessageSearch, hits: Sequence[SearchHit]) -> Sequence[SearchHit]:
    found = [await store.sessions.find(session) for session in {hit.message.session for hit in hits}]
    infos = [info for info in found if info is not None]
    copies = {info.id for info in infos if BACKGROUND_TAG in info.tags and info.id != search.session}
    hidden = {info.id: thread_of(info).hidden for info in infos}
    shown = [hit for hit in hits if hit.message.session not in copies]
    return [hit for hit in shown if not is_hidden(hidden.get(hit.message.session, ()), hit.message.seq)]


async def list_visible(store: Store, thread: Thread, query: MessageQuery) -> MessagePage:
    """Return a page of the messages that are not hidden."""
    session, hidden = SessionId(thread.id), thread.hidden
    page = await store.messages.list(session, query)
    if not hidden:
        return page
    position = parse_list_cursor(query)
    backward = position is not None and position.backward
    shown = [row for row in page.messages if not is_hidden(hidden, row.seq)]
    first, last = page.prev, page.next
    while len(shown) < query.limit and (cursor := first if backward else last):
        wanted = msgspec.structs.replace(query, limit=query.limit - len(shown), cursor=cursor)
        page = await store.messages.list(session, wanted)
        rows = [row for row in page.messages if not is_hidden(hidden, row.seq)]
        shown = [*rows, *shown] if backward else [*shown, *rows]
        first, last = (page.prev, last) if backward else (first, page.next)
    rest = first if backward else last
    if rest and not await _has_visible(store, session, msgspec.structs.replace(query, cursor=rest), hidden):
        first, last = ("", last) if backward else (first, "")
    return MessagePage(messages=tuple(shown), next=last, prev=first)


async def _has_visible(store: Store, session: SessionId, query: MessageQuery, hidden: Sequence[HiddenMessages]) -> bool:
    """Return whether a message that is not hidden follows the cursor of a query, in the direction of the cursor."""
    position = parse_list_cursor(query)
    backward = position is not None and position.backward
    query = msgspec.structs.replace(query, limit=_COUNT_PAGE, include_content=False)
    while True:
        page = await store.messages.list(session, query)
        if not all(is_hidden(hidden, row.seq) for row in page.messages):
            return True
        cursor = page.prev if backward else page.next
        if not cursor:
            return False
        query = msgspec.structs.replace(query, cursor=cursor)


def count_visible(stats: MessageStats, hidden: Sequence[HiddenMessages]) -> MessageStats:
    """Return the counts of a thread without its hidden messages; their bytes are still stored, and count."""
    user, assistant, tool = (sum(getattr(part, role) for part in hidden) for role in ("user", "assistant", "tool"))
    return msgspec.structs.replace(
        stats,
        message_count=stats.message_count - user - assistant - tool,
        user_message_count=stats.user_message_count - user,
        assistant_message_count=stats.assistant_message_count - assistant,
        tool_message_count=stats.tool_message_count - tool,
    )
