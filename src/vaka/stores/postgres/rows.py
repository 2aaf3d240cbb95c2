"""Between rows of the tables and the words of the core."""

from collections.abc import Iterable, Sequence

import asyncpg

from vaka.core.ports.store import SessionInfo
from vaka.core.session.index import blobs_of
from vaka.core.types.control import key_of
from vaka.core.types.event import Event
from vaka.core.types.ids import SessionId
from vaka.stores.batch import decisions
from vaka.stores.postgres.text import raw, short, text

DIGEST = 64
"""Characters in the name of a blob; what is longer names none."""


def info_of(row: "asyncpg.Record") -> SessionInfo:
    """Return the session that a row describes; ``live`` is computed by whoever asks, on the server's clock."""
    return SessionInfo(
        id=SessionId(text(row["id"])), head=row["head"], hash=row["hash"], epoch=row["epoch"], term=row["term"],
        title=text(row["title"]), agent=text(row["agent"]), turn=text(row["turn"]), inputs=row["inputs"],
        pending=row["pending"], closed=row["closed"], created=text(row["created"]), updated=text(row["updated"]),
        origin=text(row["origin"]), live=row["live"],
    )  # fmt: skip


def folded(title: str) -> bytes:
    """Return a text as it is searched for: upper and lower case alike."""
    return raw(title.casefold())


def columns_of(info: SessionInfo) -> tuple[object, ...]:
    """Return what the log says of a session, in the order of ``vaka.append``."""
    return (
        info.head, info.hash, info.epoch, raw(info.title), folded(info.title), raw(info.agent), raw(info.turn),
        info.inputs, info.pending, info.closed, raw(info.created), raw(info.updated), raw(info.origin),
    )  # fmt: skip


class Extras:
    """The further rows that events bring: their keys, what they settle and ask, the blobs they name."""

    def __init__(self, session: SessionId, events: Sequence[Event]) -> None:
        opened, done, everything = decisions(session, events)
        self.keys = [(short(key), event.seq) for event in events if (key := key_of(event.data))]
        self.settled = [None] if everything else [short(decision) for decision in done]
        """``None`` settles all that were asked before."""
        self.asked = {short(pending.id): pending.seq for pending in opened}
        names = {digest for event in events for digest in blobs_of(event)}
        self.blobs = sorted(raw(digest) for digest in names if len(digest) <= DIGEST)


def columns(rows: Iterable[Sequence[object]], width: int) -> list[list[object]]:
    """Return the columns of some rows, also when there are none."""
    turned = [list(column) for column in zip(*rows, strict=True)]
    return turned or [[] for _ in range(width)]
