"""``Threads``: sessions as threads of messages with owner, metadata, state and version."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import Any, Generic, Unpack
from weakref import WeakValueDictionary

import msgspec

from vaka.core.ports.messages import MessagePage, MessageQuery, MessageSearch, SearchPage
from vaka.core.ports.store import BACKGROUND_TAG, THREAD_STATES, SessionInfo, SessionQuery, ThreadState
from vaka.core.session.branches import TimedEntry
from vaka.core.session.snapshot import OpenedSession
from vaka.core.types.ending import Response
from vaka.core.types.errors import AccessDenied, AlreadyExists, HeadMoved, InvalidInput, NotFound
from vaka.core.types.ids import SessionId, parse_session_id
from vaka.core.types.imported_turns import ImportedTurns
from vaka.threads.additions import MessageAdditions
from vaka.threads.deletion import compose_deletion, deletion_entries, list_visible, search_visible
from vaka.threads.files import ThreadLines, ThreadReader, export_lines
from vaka.threads.host import AgentHost, AgentT, ComposeEntries, TurnInput
from vaka.threads.processors import ThreadOptions
from vaka.threads.stats import ThreadStats, count_messages, read_stats, seconds_of
from vaka.threads.thread import (
    CONTEXT_KEY,
    POLICY_KEY,
    AddedMessage,
    DeletedMessages,
    NewMessage,
    Thread,
    ThreadContext,
    ThreadPage,
    ThreadPolicy,
    check_active,
    check_messages,
    check_state,
    check_transition,
    parse_messages,
    thread_of,
)
from vaka.threads.turns import TurnKeywords, apply_options, run_beside_thread, run_in_thread

SWEEP_PAGE = 200


class Threads(Generic[AgentT]):
    """The threads of a runtime's store. ``runtime.threads`` is one.

    Every session is a thread. Where a ``resource_id`` is given, ``AccessDenied`` is raised for a thread of another
    owner.
    """

    def __init__(self, host: AgentHost[AgentT]) -> None:
        self._host = host
        self._store = host.store
        self._turn_locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def create(
        self,
        *,
        id: str = "",
        title: str = "",
        agent_id: str = "",
        resource_id: str = "",
        metadata: Mapping[str, Any] | None = None,
        policy: ThreadPolicy | None = None,
    ) -> Thread:
        """Create a thread. Raises ``AlreadyExists`` for an id that is taken.

        Args:
            id: The id; default: a new one.
            title: The title; without one it is the beginning of the first message, at most 80 characters.
            agent_id: The name of the agent that answers in it.
            resource_id: The owner: a user, an organisation or a program.
            metadata: Plain data.
            policy: Limits of its time and messages; without them it stays active until its state is set.
        """
        session = parse_session_id(id or self._host.ids.new_id("thr"))
        described = {**(metadata or {}), **({POLICY_KEY: msgspec.to_builtins(policy)} if policy is not None else {})}
        try:
            await self._host.create_session(session, agent_id, title=title, owner=resource_id, metadata=described)
        except HeadMoved as error:
            raise AlreadyExists(f"the id {id!r} is taken; choose another one") from error
        return thread_of(await self._find(session))

    async def get(self, thread_id: str, *, resource_id: str | None = None) -> Thread:
        """Return a thread, with the state that its policy gives it now. Raises ``NotFound``."""
        return await self._with_due_state(await self._find_owned(thread_id, resource_id))

    async def list(
        self,
        *,
        resource_id: str = "",
        agent_id: str = "",
        state: str = "",
        metadata: Mapping[str, Any] | None = None,
        text: str = "",
        limit: int = 50,
        cursor: str = "",
    ) -> ThreadPage:
        """Return a page of threads, the last changed first. A page may have fewer than ``limit``.

        Raises ``InvalidInput`` for a state that does not exist.

        Args:
            resource_id: Only threads of this owner.
            agent_id: Only threads of this agent.
            state: Only threads in this state.
            metadata: Only threads whose metadata have these keys and values.
            text: Only threads with this text in the title.
            limit: The most threads of the page.
            cursor: The ``next_cursor`` of the page before.
        """
        if state:
            check_state(state)
        query = SessionQuery(
            owner=resource_id,
            agent=agent_id,
            state=state,
            metadata=dict(metadata or {}),
            text=text,
            limit=limit,
            after=cursor,
        )
        _check_texts(query)
        page = await self._store.sessions.list(query)
        threads = tuple(thread_of(info) for info in page.sessions if BACKGROUND_TAG not in info.tags)
        return ThreadPage(threads=threads, next_cursor=page.next)

    async def update(
        self,
        thread_id: str,
        *,
        title: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        version: int | None = None,
        resource_id: str | None = None,
        by: str = "",
    ) -> Thread:
        """Change title and metadata. The given keys of the metadata replace the stored ones; ``None`` removes a key.

        With ``version`` the change is made only if that is still the version of the thread; otherwise ``HeadMoved``.
        """
        session = (await self._find_owned(thread_id, resource_id)).id
        await self._host.update_session(SessionId(session), title=title, metadata=metadata, by=by, version=version)
        return thread_of(await self._find(session))

    async def set_context(
        self, thread_id: str, context: ThreadContext, *, version: int | None = None, resource_id: str | None = None
    ) -> Thread:
        """Store what the conversation is about; ``Thread.context`` returns it."""
        value = msgspec.to_builtins(context) or None
        return await self.update(thread_id, metadata={CONTEXT_KEY: value}, version=version, resource_id=resource_id)

    async def delete(self, thread_id: str, *, resource_id: str | None = None) -> None:
        """Delete a thread with its log. Raises ``Busy`` while a turn runs."""
        session = SessionId((await self._find_owned(thread_id, resource_id)).id)
        await self._host.delete_session(session)

    async def set_state(
        self,
        thread_id: str,
        state: ThreadState,
        *,
        version: int | None = None,
        resource_id: str | None = None,
        by: str = "",
    ) -> Thread:
        """Change the state. Raises ``InvalidInput`` for a transition that does not exist.

        An active thread may be paused, ended or terminated; a paused one may become active again, ended or terminated;
        an ended or terminated one may be archived.
        """
        session = (await self._find_owned(thread_id, resource_id)).id
        await self._write_state(session, state, version, by)
        return thread_of(await self._find(session))

    async def apply_policies(self) -> int:
        """Pause, end and archive the threads whose policy says so now; return how many states have changed."""
        changed = 0
        for state in ("active", "paused"):
            cursor: str | None = ""
            while cursor is not None:
                page = await self.list(state=state, limit=SWEEP_PAGE, cursor=cursor)
                for thread in page.threads:
                    changed += await self._apply_policy(thread)
                cursor = page.next_cursor or None
        return changed

    async def add_message(
        self, thread_id: str, message: "NewMessage | Mapping[str, Any]", *, resource_id: str | None = None
    ) -> AddedMessage:
        """Add one message; see ``append_many``."""
        return (await self.append_many(thread_id, [message], resource_id=resource_id))[0]

    async def append_many(
        self, thread_id: str, messages: "Sequence[NewMessage | Mapping[str, Any]]", *, resource_id: str | None = None
    ) -> tuple[AddedMessage, ...]:
        """Add messages in one transaction and return their ids. A message with an id that the thread has is not added.

        The calls of an answer and their results are added together; a result has the id of its call in the log.
        Raises ``Busy`` while a turn runs or is unfinished, and ``InvalidInput`` for messages that cannot be used and a
        thread that is not active; then nothing is added.
        """
        given = parse_messages(messages)
        check_messages(given)
        info = await self._find(thread_id)
        thread = self._check_owner(thread_of(info), resource_id)
        changed = await self._apply_policy(thread)
        added = await self._append(thread, given, None if changed else info, only_active=True) if given else ()
        await self._apply_policy(thread)
        return added

    async def get_messages(
        self,
        thread_id: str,
        query: MessageQuery | None = None,
        *,
        missing_ok: bool = False,
        resource_id: str | None = None,
    ) -> MessagePage:
        """Return a page of messages, by default the first 50. The filter is applied before order and limit.

        An unknown thread raises ``NotFound``; with ``missing_ok`` its page is empty.
        """
        if missing_ok and await self._store.sessions.find(parse_session_id(thread_id)) is None:
            return MessagePage()
        thread = await self._find_owned(thread_id, resource_id)
        _check_texts(query)
        return await list_visible(self._store, thread, query or MessageQuery())

    async def delete_messages(
        self, thread_id: str, ids: Sequence[str], *, resource_id: str | None = None
    ) -> DeletedMessages:
        """Delete messages: models, lists and searches do not see them any more.

        The conversation is rewound to before the first of them, and the other messages follow again, in one
        transaction; the log keeps every event until the thread is erased. The results of the calls of an answer are
        deleted with it; of the result of a call, only its content. Raises ``Busy`` while a turn runs.
        """
        thread = await self._find_owned(thread_id, resource_id)
        deleted: frozenset[str] = frozenset()

        async def compose(now: OpenedSession) -> Sequence[TimedEntry]:
            nonlocal deleted
            turns = ImportedTurns(thread.agent_id, self._host.ids.new_id, now.state.calls)
            current = thread_of(_require_info(thread.id, now.info))
            deletion = await compose_deletion(self._host, current, now, ids, turns)
            if deletion is None:
                return []
            deleted = deletion.found
            return await deletion_entries(self._host, SessionId(thread.id), deletion)

        await self._edit(thread, compose)
        missing = [id for id in ids if id not in deleted]
        error = f"there is no message {missing[0][:80]!r}" if missing else None
        return DeletedMessages(affected_count=len(deleted), success=not missing, error_message=error)

    async def search(self, query: "MessageSearch | str", *, resource_id: str | None = None) -> SearchPage:
        """Search the messages of all threads, of one owner's (``resource_id``), or of the threads that the query names.

        Background sessions, which ``FactExtraction`` makes for example, are searched only if the query names them.
        """
        search = MessageSearch(text=query) if isinstance(query, str) else query
        if resource_id is not None:
            if not resource_id:
                raise InvalidInput("the resource_id of a search is empty; name an owner, or leave it out")
            if search.owner not in ("", resource_id):
                raise AccessDenied(f"owner {resource_id!r} cannot search the threads of another owner")
            search = msgspec.structs.replace(search, owner=resource_id)
        _check_texts(search)
        return await search_visible(self._store, search)

    async def stats(self, thread_id: str, *, resource_id: str | None = None) -> ThreadStats:
        """Return how much was said in a thread. Raises ``NotFound``."""
        return await read_stats(self._store, await self._find_owned(thread_id, resource_id))

    async def generate_with_memory(
        self,
        agent: AgentT,
        thread_id: str,
        prompt: TurnInput,
        memory: "ThreadOptions | Mapping[str, Any] | None" = None,
        *,
        resource_id: str | None = None,
        **keywords: Unpack[TurnKeywords],
    ) -> Response:
        """Run a turn in a thread with its last messages as context, and return the response.

        Input, calls and answer become one turn of the thread; a turn that fails before it has called a tool leaves
        nothing in the conversation. Raises as ``Session.run`` does, and ``InvalidInput`` for a thread that is not
        active.

        Args:
            agent: The agent that answers.
            thread_id: The thread; it must exist.
            prompt: A text, or parts such as ``Image``.
            memory: What the model sees of the thread, and whether the turn becomes part of it.
            resource_id: The owner that the thread must have.
            keywords: ``key``, ``model`` and ``options`` as for ``Session.run``.
        """
        chosen = _parse_options(memory)
        changed, thread = apply_options(agent, chosen), await self._find_active(thread_id, resource_id)
        if not chosen.save_to_memory:
            return await run_beside_thread(self._host, changed, thread, chosen, prompt, keywords)
        session = await self._host.open_session(changed, thread.id)
        lock = self._turn_locks.setdefault(thread.id, asyncio.Lock())
        async with lock:  # a turn that joins a running one would be answered by the agent of that
            await self._host.wait_idle(session.id)
            response = await run_in_thread(self._host, session, changed.name, prompt, keywords)
        await self._apply_policy(await self._find_owned(thread.id, None))
        return response

    async def export(self, thread_id: str, *, resource_id: str | None = None) -> AsyncGenerator[bytes]:
        """Yield a thread as JSON lines: the thread, then each message of the conversation with its content."""
        thread = await self._find_owned(thread_id, resource_id)
        async with aclosing(export_lines(self._store, thread)) as lines:
            async for line in lines:
                yield line

    async def import_lines(self, lines: "ThreadLines", *, id: str = "", resource_id: str | None = None) -> Thread:
        """Create a thread from the lines of an export, and return it.

        Args:
            lines: The lines of the export.
            id: The id of the thread; default: the id in the export.
            resource_id: The owner; default: the owner in the export.

        Messages are added in batches. A thread that exists gets the messages that it does not have, so an import that
        was interrupted is repeated to finish it. Raises ``InvalidInput`` for a line that cannot be used, and
        ``AccessDenied`` for a thread of another owner.
        """
        reader = ThreadReader(lines)
        head = await reader.read_thread()
        name, owner = id or head.id, head.resource_id if resource_id is None else resource_id
        try:
            thread = await self.create(
                id=name, title=head.title, agent_id=head.agent_id, resource_id=owner, metadata=head.metadata
            )
        except AlreadyExists:
            thread = thread_of(await self._find(name))
            if thread.resource_id != owner:
                raise AccessDenied(
                    f"{name!r} exists and belongs to another owner; import under another id, or name that owner"
                ) from None
        async with aclosing(reader.read_batches()) as batches:
            async for batch in batches:
                check_messages(batch)
                await self._append(thread, batch)
        if head.state in THREAD_STATES and head.state != thread.state:
            await self._host.set_state(SessionId(thread.id), head.state, by="import")
        return thread_of(await self._find(thread.id))

    # ---------------------------------------------------------------------------------------------------------- threads

    async def _find(self, thread_id: str) -> SessionInfo:
        return _require_info(thread_id, await self._store.sessions.find(parse_session_id(thread_id)))

    async def _find_owned(self, thread_id: str, resource_id: str | None) -> Thread:
        return self._check_owner(thread_of(await self._find(thread_id)), resource_id)

    def _check_owner(self, thread: Thread, resource_id: str | None) -> Thread:
        if resource_id is not None and thread.resource_id != resource_id:
            raise AccessDenied(f"there is no thread {thread.id!r} of owner {resource_id!r}")
        return thread

    async def _find_active(self, thread_id: str, resource_id: str | None) -> Thread:
        """Return a thread that takes messages now. Raises ``InvalidInput``."""
        thread = await self._find_owned(thread_id, resource_id)
        await self._apply_policy(thread)
        check_active(await self.get(thread.id))
        return thread

    # ------------------------------------------------------------------------------------------------ states and limits

    async def _write_state(self, session: str, state: str, version: int | None = None, by: str = "") -> None:
        def check(info: SessionInfo | None) -> None:
            check_transition(session, _require_info(session, info).state, state)

        await self._host.set_state(SessionId(session), state, by=by, version=version, check=check)

    async def _due_states(self, thread: Thread) -> tuple[ThreadState, ...]:
        """Return the states that a thread goes through now, by its policy."""
        policy = thread.policy
        if policy is None or thread.state not in ("active", "paused"):
            return ()
        now = self._host.clock.time()
        messages = (await count_messages(self._store, thread)).message_count if policy.max_messages is not None else 0
        age, idle = now - seconds_of(thread.created_at), now - seconds_of(thread.updated_at)
        return policy.next_states(thread.state, age=age, idle=idle, messages=messages)

    async def _with_due_state(self, thread: Thread) -> Thread:
        states = await self._due_states(thread)
        return msgspec.structs.replace(thread, state=states[-1]) if states else thread

    async def _apply_policy(self, thread: Thread) -> int:
        """Write the states that the policy of a thread gives it now; return how many."""
        written = 0
        with suppress(InvalidInput, NotFound):  # another process has changed or deleted it meanwhile
            for state in await self._due_states(thread):
                await self._write_state(thread.id, state, by="policy")
                written += 1
        return written

    # --------------------------------------------------------------------------------------------------------- messages

    async def _append(
        self,
        thread: Thread,
        messages: Sequence[NewMessage],
        info: SessionInfo | None = None,
        *,
        only_active: bool = False,
    ) -> tuple[AddedMessage, ...]:
        added: list[AddedMessage] = []

        async def compose(now: OpenedSession) -> Sequence[TimedEntry]:
            if now.last is None:
                raise NotFound(f"there is no thread {thread.id!r} any more: it was deleted at this moment")
            current = thread_of(_require_info(thread.id, now.info))
            turns = ImportedTurns(thread.agent_id, self._host.ids.new_id, now.state.calls)
            additions = MessageAdditions(self._store, SessionId(thread.id), turns, self._host.ids.new_id)
            added[:] = await additions.add(messages)
            if only_active and any(one.added for one in added):
                check_active(await self._with_due_state(current))
            turns.end_turn()
            return await self._host.store_entries(SessionId(thread.id), now.state, turns.entries)

        await self._edit(thread, compose, info)
        return tuple(added)

    async def _edit(self, thread: Thread, compose: ComposeEntries, info: SessionInfo | None = None) -> None:
        await self._host.append_entries(SessionId(thread.id), compose, info)


def _require_info(thread: str, info: SessionInfo | None) -> SessionInfo:
    """Return the row of a thread. Raises ``NotFound``."""
    if info is None:
        raise NotFound(f"there is no thread {thread!r}")
    return info


def _parse_options(options: "ThreadOptions | Mapping[str, Any] | None") -> ThreadOptions:
    if isinstance(options, ThreadOptions):
        return options
    given = dict(options or {})
    unknown = next((name for name in given if name not in ThreadOptions.__struct_fields__), None)
    if unknown is not None:
        names = ", ".join(ThreadOptions.__struct_fields__)
        raise InvalidInput(f"there is no option {unknown!r}; the options are {names}")
    return ThreadOptions(**given)


def _check_texts(query: Any) -> None:
    """Raise ``InvalidInput`` for a query with a text that no store can have."""
    try:
        msgspec.json.encode(query)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidInput(f"the query cannot be written as JSON: {error}") from error
