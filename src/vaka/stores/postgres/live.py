"""Open blocks shared with followers in other handles, through one row for each block."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence

from vaka.core.types.errors import Unavailable, VakaError
from vaka.core.types.event import Event, decode
from vaka.core.types.ids import SessionId
from vaka.core.types.progress import MessageSnapshot
from vaka.stores.postgres.database import PostgresDatabase
from vaka.stores.postgres.encoding import PostgresKey, digest_text, postgres_key, transpose_rows
from vaka.stores.postgres.leases import Heartbeat
from vaka.stores.postgres.notify import CHANNEL, FOLLOWER_TTL, NotifyProtocol

WRITE_INTERVAL = 0.1
"""Seconds between two writes of the open blocks."""

BlockGetter = Callable[[], Sequence[Event]]

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

    def __init__(self, database: PostgresDatabase, protocol: NotifyProtocol) -> None:
        self._database, self._protocol = database, protocol
        self._shared: dict[str, _SharedBlocks] = {}
        self._due: dict[str, _SharedBlocks] = {}
        self._task: asyncio.Task[None] | None = None
        protocol.on_watched = self.touch

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
        if shared is not None and self._protocol.remote.is_watched(key):
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
            await asyncio.sleep(WRITE_INTERVAL)

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
            [self._protocol.live_message(shared.place.key) for shared in due],
        )
        for shared, blocks in rows:
            shared.has_rows = bool(blocks)


class PostgresLive:
    """The live channel of one namespace."""

    def __init__(
        self,
        namespace: bytes,
        database: PostgresDatabase,
        protocol: NotifyProtocol,
        block_writer: BlockWriter,
        heartbeat: Heartbeat,
    ) -> None:
        self._namespace, self._database, self._protocol = namespace, database, protocol
        self._block_writer, self._heartbeat = block_writer, heartbeat
        self._keys: dict[SessionId, str] = {}

    def share(self, session: SessionId, blocks: BlockGetter | None) -> None:
        where = postgres_key(self._namespace, session)
        self._block_writer.share(where, blocks)
        if blocks is None:
            self._keys.pop(session, None)
        else:
            self._keys[session] = where.key
            self._heartbeat.wake()

    def touch(self, session: SessionId) -> None:
        key = self._keys.get(session)
        if key is not None:
            self._block_writer.touch(key)

    async def watch(self, session: SessionId) -> AsyncGenerator[Event]:
        where, local = postgres_key(self._namespace, session), self._protocol.local
        changed = local.add_watcher(where)
        blocks: dict[bytes, bytes] = {}
        self._heartbeat.wake()
        try:
            while not local.closed:
                changed.clear()
                before, blocks = blocks, await self._read_blocks(where)
                for block, body in blocks.items():
                    if before.get(block) != body:
                        yield decode(body)
                await changed.wait()
        finally:
            local.remove_watcher(where, changed)

    async def _read_blocks(self, where: PostgresKey) -> dict[bytes, bytes]:
        try:
            rows = await self._database.fetch(_SELECT_BLOCKS, *where[:2])
        except Unavailable:
            return {}
        return dict(map(tuple, rows))
