"""The state that the namespaces of one store handle share, and the open blocks that handles share with each other."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from typing import Generic, TypeVar
from uuid import UUID

from vaka.core.types.decode import decode
from vaka.core.types.errors import Closed, Unavailable, VakaError
from vaka.core.types.event import Event
from vaka.core.types.ids import SessionId
from vaka.core.types.progress import MessageSnapshot
from vaka.stores.common import ShieldedTasks
from vaka.stores.followers import SNAPSHOT_INTERVAL, BlockGetter
from vaka.stores.postgres.database import PostgresDatabase, PostgresRecord
from vaka.stores.postgres.encoding import PostgresKey, digest_text, postgres_key, transpose_rows
from vaka.stores.postgres.heartbeat import CHANNEL, FOLLOWER_TTL, Followers, Heartbeat
from vaka.stores.postgres.leases import Lease, LeaseRenewal
from vaka.stores.postgres.writer import GroupWriter, PendingWrite

Q = TypeVar("Q")
A = TypeVar("A")

_SELECT_BLOCKS = (
    "select block, body from vaka.live_blocks where namespace = $1 and session = $2 and valid_until > now()"
)
_WRITE_BLOCKS = (
    "with open as (select * from unnest($3::bytea[], $4::bytea[], $5::bytea[], $6::bytea[]) "
    "as o (namespace, session, block, body)), "
    "put as (insert into vaka.live_blocks (namespace, session, block, body, valid_until) "
    "select namespace, session, block, body, now() + make_interval(secs => $7) from open "
    "on conflict (namespace, session, block) do update set body = excluded.body, valid_until = excluded.valid_until), "
    "gone as (delete from vaka.live_blocks l using unnest($1::bytea[], $2::bytea[]) as s (namespace, session) "
    "where l.namespace = s.namespace and l.session = s.session and not exists (select from open o "
    "where o.namespace = l.namespace and o.session = l.session and o.block = l.block)) "
    "select pg_notify($8, word) from unnest($9::text[]) as word"
)


class _SharedBlocks:
    """The open blocks of a session that this handle writes."""

    def __init__(self, place: PostgresKey, blocks: BlockGetter) -> None:
        self.place, self.blocks = place, blocks
        self.has_rows = False
        """Whether the table may have rows of it."""

    def encode_rows(self) -> list[tuple[bytes, bytes, bytes, bytes]]:
        return [
            (
                self.place.namespace,
                self.place.session,
                digest_text(repr((event.path, event.data.message_id, event.data.block, event.data.of))),
                event.to_json(),
            )
            for event in self.blocks()
            if isinstance(event.data, MessageSnapshot)
        ]


def _no_blocks() -> Sequence[Event]:
    return ()


class BlockWriter:
    """Writes rows of open blocks while followers in other handles watch the session."""

    def __init__(self, database: PostgresDatabase, followers: Followers) -> None:
        self._database, self._followers = database, followers
        self._shared: dict[str, _SharedBlocks] = {}
        self._due: dict[str, _SharedBlocks] = {}
        self._task: asyncio.Task[None] | None = None
        followers.on_watched = self.touch

    def __bool__(self) -> bool:
        return bool(self._shared)

    def share(self, place: PostgresKey, blocks: BlockGetter | None) -> None:
        """Set the source of a session's open blocks; ``None`` to stop sharing."""
        before = self._shared.pop(place.key, None)
        if before is not None:
            before.blocks = _no_blocks  # it may be scheduled for writing
        if blocks is not None:
            shared = self._shared[place.key] = _SharedBlocks(place, blocks)
            shared.has_rows = before is not None and before.has_rows
            self.touch(place.key)
        elif before is not None and before.has_rows:
            self._schedule(before)

    def touch(self, key: str) -> None:
        """Schedule a write of a session's rows, if a follower watches it."""
        shared = self._shared.get(key)
        if shared is not None and self._followers.is_watched(key):
            self._schedule(shared)

    def on_commit(self, key: str) -> None:
        """After an append, remove the rows of blocks that it closed."""
        shared = self._shared.get(key)
        if shared is not None and shared.has_rows:
            self._schedule(shared)

    async def close(self) -> None:
        """Remove all rows that were written."""
        for key in list(self._shared):
            self.share(self._shared[key].place, None)
        if self._task is not None:
            await asyncio.wait([self._task], timeout=1.0)
            self._task.cancel()
            await asyncio.wait([self._task])

    def _schedule(self, shared: _SharedBlocks) -> None:
        self._due[shared.place.key] = shared
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while self._due:
            due, self._due = self._due, {}
            try:
                await self._write(list(due.values()))
            except VakaError:  # the server is unreachable: the next touch writes the blocks
                pass
            await asyncio.sleep(SNAPSHOT_INTERVAL)

    async def _write(self, due: list[_SharedBlocks]) -> None:
        rows = [(shared, shared.encode_rows()) for shared in due]
        for shared, blocks in rows:
            shared.has_rows = shared.has_rows or bool(blocks)
        columns = transpose_rows([row for _, blocks in rows for row in blocks], 4)
        await self._database.fetch(
            _WRITE_BLOCKS,
            [shared.place.namespace for shared in due],
            [shared.place.session for shared in due],
            *columns,
            FOLLOWER_TTL,
            CHANNEL,
            [self._followers.live_message(shared.place.key) for shared in due],
        )
        for shared, blocks in rows:
            shared.has_rows = bool(blocks)


_RELEASE_LEASE = (
    "update vaka.sessions set owner = null, lease_until = null where namespace = $1 and id = $2 and owner = $3"
)


_CLAIM = "select c.status, (c.session).*, true as live from vaka.claim($1, $2, $3, $4) as c"
_READ_HEADS = (
    "select coalesce(s.head, 0) from unnest($1::bytea[], $2::bytea[]) with ordinality as w (namespace, id, number) "
    "left join vaka.sessions s on s.namespace = w.namespace and s.id = w.id order by w.number"
)


class QuestionBatcher(Generic[Q, A]):
    """Sends the questions of one tick of the event loop together, in one round trip."""

    def __init__(
        self,
        send: Callable[[list[Q]], Awaitable[Sequence[A]]],
        start_task: Callable[[Coroutine[object, object, None]], object],
    ) -> None:
        self._send, self._start_task = send, start_task
        self._queue: list[tuple[Q, asyncio.Future[A]]] = []

    def submit(self, question: Q) -> "asyncio.Future[A]":
        """Return a future of the answer, or of the error of the round trip."""
        answer: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        self._queue.append((question, answer))
        if len(self._queue) == 1:
            self._start_task(self._send_queued())
        return answer

    async def _send_queued(self) -> None:
        batch, self._queue = self._queue, []
        error: VakaError = Unavailable("the question was cancelled; its outcome is unknown")
        answers: Sequence[A] = ()
        try:
            answers = await self._send([question for question, _ in batch])
        except VakaError as failure:
            error = failure
        finally:
            for number, (_, answer) in enumerate(batch):
                if answer.done():
                    continue
                if number < len(answers):
                    answer.set_result(answers[number])
                else:
                    answer.set_exception(error)


class PostgresHub:
    """Connections, leases, followers and background tasks of one handle, for all its namespaces."""

    def __init__(self, database: PostgresDatabase, lease_seconds: float) -> None:
        self.database, self.lease_seconds = database, lease_seconds
        self.leases: dict[UUID, Lease] = {}
        self.followers = Followers()
        self.heartbeat = Heartbeat(database, self.followers, self._is_busy)
        self.renewal = LeaseRenewal(database, self.heartbeat, self.leases, lease_seconds)
        self.block_writer = BlockWriter(database, self.followers)
        self.tasks = ShieldedTasks()
        self.writer = GroupWriter(database, lease_seconds, self._on_commit)
        self.claims = QuestionBatcher(self._send_claims, self.tasks.start)
        self.heads = QuestionBatcher(self._read_heads, self.tasks.start)

    async def _send_claims(self, claims: list[tuple[PostgresKey, UUID]]) -> list[PostgresRecord]:
        """Claim in the order in which all transactions lock sessions; return the answers in the order given."""
        order = sorted(range(len(claims)), key=lambda number: claims[number][0])
        places, owners = zip(*[claims[number] for number in order], strict=True)
        names = [place.namespace for place in places], [place.session for place in places]
        rows = await self.database.fetch(_CLAIM, *names, owners, self.lease_seconds)
        answers = dict(zip(order, rows, strict=True))
        return [answers[number] for number in range(len(claims))]

    async def _read_heads(self, places: list[PostgresKey]) -> list[int]:
        names = [place.namespace for place in places], [place.session for place in places]
        return [head for (head,) in await self.database.fetch(_READ_HEADS, *names)]

    async def release(self, claim: Lease) -> None:
        if self.leases.pop(claim.owner, None) is not None and claim.tried:
            await self.delete_lease(claim.place, claim.owner)

    async def delete_lease(self, place: PostgresKey, owner: UUID) -> None:
        await self.database.fetch(_RELEASE_LEASE, place.namespace, place.session, owner)

    async def close(self) -> None:
        self.followers.close(Closed("this store was closed"))
        await self.writer.close()
        await self.tasks.wait()
        await self.block_writer.close()
        await self.renewal.close()
        await self.heartbeat.close()
        try:
            for claim in list(self.leases.values()):
                await self.release(claim)
        except VakaError:  # the server is unreachable: the leases expire there
            self.leases.clear()
        await self.database.close()

    def _is_busy(self) -> bool:
        return bool(self.followers or self.block_writer or self.leases)

    def _on_commit(self, write: PendingWrite) -> None:
        claim, place = write.claim, write.place
        if claim is not None and write.release:
            self.leases.pop(claim.owner, None)
        elif claim is not None:
            claim.renewed, claim.info = write.sent, write.info
        self.followers.set_head(place.key, write.info.head)
        self.block_writer.on_commit(place.key)


class PostgresPort:
    """Base of the ports of one namespace."""

    def __init__(self, namespace: bytes, hub: PostgresHub) -> None:
        self._namespace = namespace
        self._hub = hub
        self._database = hub.database

    async def _fetch(self, statement: str, *arguments: object) -> list[PostgresRecord]:
        """Return the rows of a statement that may safely run twice; its first argument is the namespace."""
        return await self._database.fetch(statement, self._namespace, *arguments)

    async def _fetch_row(self, statement: str, *arguments: object) -> "PostgresRecord | None":
        rows = await self._fetch(statement, *arguments)
        return rows[0] if rows else None


class PostgresLive(PostgresPort):
    """The live channel of one namespace."""

    def __init__(self, namespace: bytes, hub: PostgresHub) -> None:
        super().__init__(namespace, hub)
        self._keys: dict[SessionId, str] = {}

    def share(self, session: SessionId, blocks: BlockGetter | None) -> None:
        where = postgres_key(self._namespace, session)
        self._hub.block_writer.share(where, blocks)
        if blocks is None:
            self._keys.pop(session, None)
        else:
            self._keys[session] = where.key
            self._hub.heartbeat.wake()

    def touch(self, session: SessionId) -> None:
        key = self._keys.get(session)
        if key is not None:
            self._hub.block_writer.touch(key)

    async def watch(self, session: SessionId) -> AsyncGenerator[Event]:
        where, followers = postgres_key(self._namespace, session), self._hub.followers
        changed = followers.add_watcher(where)
        blocks: dict[bytes, bytes] = {}
        self._hub.heartbeat.wake()
        try:
            while not followers.closed:
                changed.clear()
                before, blocks = blocks, await self._read_blocks(where.session)
                for block, body in blocks.items():
                    if before.get(block) != body:
                        yield decode(body)
                await changed.wait()
        finally:
            followers.remove_watcher(where, changed)

    async def _read_blocks(self, session: bytes) -> dict[bytes, bytes]:
        try:
            return dict(map(tuple, await self._fetch(_SELECT_BLOCKS, session)))
        except Unavailable:
            return {}
