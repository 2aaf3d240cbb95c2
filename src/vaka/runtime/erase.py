"""Erase what is stored of an owner, or of one session."""

from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from vaka.core.ports.erasure import EraseResult
from vaka.core.ports.store import SessionInfo, SessionQuery, Store
from vaka.core.ports.values import KeyValueStore
from vaka.core.types.errors import InvalidInput, NotFound
from vaka.core.types.ids import SessionId, parse_session_id
from vaka.files.kv import KeyValueFiles
from vaka.hooks.transcript import Transcripts
from vaka.runtime.feature_records import list_copies, load_feature_records
from vaka.runtime.remembered_rules import erase_rules
from vaka.runtime.session_edits import EditCaches

_PAGE_SIZE = 200
_MAX_ROUNDS = 5
"""How often the sessions of an owner are looked for, as some may begin while others are erased."""


class ErasureReport(msgspec.Struct, frozen=True, kw_only=True):
    """The data that an erasure has removed, or with ``dry_run`` would remove."""

    owner: str = ""
    sessions: tuple[SessionId, ...] = ()
    events: int = 0
    """The number of events whose data were erased; with ``dry_run`` the number of all events."""
    blobs: int = 0
    bytes: int = 0
    memories: dict[str, int] = {}
    """The number of records of each kind: ``rules``, and with ``vaka.memory`` ``text``, ``working``, ``semantic``."""
    failed: dict[SessionId, str] = {}
    """The sessions that could not be erased, and why: erase again when the cause is gone."""
    busy: tuple[SessionId, ...] = ()
    """The sessions of ``failed`` with a running turn, which must end first."""
    overwritten: bool = True
    """False if the files of the database may still have copies of erased bytes in places that it no longer uses."""
    dry_run: bool = False


async def _erase_records(store: Store, owner: str, *, dry_run: bool = False) -> dict[str, int]:
    """Erase what features and rules store of an owner, or only count it; return the number of records by kind."""
    counts: dict[str, int] = {}
    for records in load_feature_records():
        counts |= await records.erase_owner(store, owner, _open_files, dry_run=dry_run)
    return {**counts, "rules": await erase_rules(store.values, owner, dry_run=dry_run)}


def _open_files(values: KeyValueStore, prefix: str) -> KeyValueFiles:
    return KeyValueFiles(values, prefix=prefix)


class Erasure:
    """Erases sessions and memories of a store, and what a process and a folder of transcripts keep of them."""

    def __init__(
        self, store: Store, caches: EditCaches, transcript_folder: str = "", transcripts: Transcripts | None = None
    ) -> None:
        self._store, self._caches = store, caches
        self._transcripts = transcripts or (Transcripts(transcript_folder, "") if transcript_folder else None)

    async def erase(self, session: str, owner: str, *, by: str, dry_run: bool) -> ErasureReport:
        """Erase a session or everything of an owner. Raises ``InvalidInput`` and, for a session, ``NotFound``."""
        if bool(session) == bool(owner):
            raise InvalidInput("name either a session or an owner to erase")
        if owner:
            return await (self._preview_owner(owner) if dry_run else self._erase_owner(owner, by))
        info = await self._store.sessions.find(parse_session_id(session))
        if info is None:
            raise NotFound(f"there is no session {session!r}")
        found = [one for one in (info, *await list_copies(self._store, info.id)) if not one.erased]
        memories: dict[str, int] = {}
        for records in load_feature_records():
            memories |= await records.erase_session(self._store, info, dry_run=dry_run)
        if dry_run:
            return replace(_preview(found), memories=memories)
        return _add_result(ErasureReport(), await self._erase_sessions(found, by), memories)

    async def _erase_owner(self, owner: str, by: str) -> ErasureReport:
        """Erase everything of an owner. Each step can be repeated: a second call completes an interrupted call."""
        report = ErasureReport(owner=owner)
        for number in range(_MAX_ROUNDS):
            memories = await _erase_records(self._store, owner)
            found = [info for info in await _list_sessions(self._store, owner) if info.id not in report.failed]
            if number and not found and not any(memories.values()):
                break
            report = _add_result(report, await self._erase_sessions(found, by), memories)
        return report

    async def _preview_owner(self, owner: str) -> ErasureReport:
        memories = await _erase_records(self._store, owner, dry_run=True)
        return replace(_preview(await _list_sessions(self._store, owner)), owner=owner, memories=memories)

    async def _erase_sessions(self, found: Sequence[SessionInfo], by: str) -> EraseResult:
        for info in found:  # first: the owner of an erased session is not known any more
            for cache in self._caches:
                cache.take(info.id)
            if self._transcripts is not None:
                self._transcripts.delete(info.id)
        return await self._store.erase([info.id for info in found], by=by)


def _preview(found: Sequence[SessionInfo]) -> ErasureReport:
    events = sum(info.head for info in found)
    return ErasureReport(sessions=tuple(info.id for info in found), events=events, dry_run=True)


def _add_result(report: ErasureReport, result: EraseResult, memories: Mapping[str, int]) -> ErasureReport:
    return ErasureReport(
        owner=report.owner,
        sessions=(*report.sessions, *result.sessions),
        events=report.events + result.events,
        blobs=report.blobs + result.blobs,
        bytes=report.bytes + result.bytes,
        memories={name: report.memories.get(name, 0) + count for name, count in memories.items()},
        failed={**report.failed, **result.failed},
        busy=(*report.busy, *result.busy),
        overwritten=result.overwritten,
    )


async def _list_sessions(store: Store, owner: str) -> list[SessionInfo]:
    found: list[SessionInfo] = []
    after = ""
    while True:
        page = await store.sessions.list(SessionQuery(owner=owner, limit=_PAGE_SIZE, after=after))
        found += page.sessions
        after = page.next
        if not after:
            return found
