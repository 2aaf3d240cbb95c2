"""The files that commands change: recorded before and after each command, and read again for a restore."""

import asyncio
import base64
import hashlib
import os
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from vaka.core.ports.values import BlobStore
from vaka.core.types.errors import InvalidInput, NotFound
from vaka.core.types.ids import JSON, CallId, Digest, SessionId
from vaka.files.paths import decode_name
from vaka.files.private_index import (
    PrivateIndex,
    RecordLimits,
    RepositoryState,
    TreeChange,
    TreeRecord,
    UnrecordableFolderError,
)
from vaka.files.repositories import find_repository
from vaka.files.snapshots import NO_FILE, FileChange, FileMode, link_digest, path_fields

MAX_NAMED_PATHS = 100
"""Paths that one record names because their content is not stored."""
_MAX_NESTED = 16
_CLOCK_TICK_NS = 20_000_000
"""The time of a file may be this much earlier than the clock."""
_PRUNE_AFTER = "30.days.ago"
_PRUNE_SECONDS = 24 * 60 * 60
_RETRY_FACTOR = 20
_LINK_MODE = b"120000"
_EXECUTABLE_MODE = b"100755"

CommandState = Literal["begun", "ended", "goes on"]


class FolderTree(msgspec.Struct, frozen=True, kw_only=True):
    """The files of a folder before a command."""

    folder: str
    tree: str
    head: str = ""


class CommandRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The record of a command, as it is stored in the log."""

    call: CallId
    state: CommandState
    root: str = ""
    """The working folder, which paths are relative to."""
    trees: tuple[FolderTree, ...] = ()
    packs: tuple[Digest, ...] = ()
    """Blobs with the changed files: what they contained before, and digests of what they contain now."""
    folders: tuple[str, ...] = ()
    """Folders that the command created, relative to the root or absolute."""
    lost: tuple[str, ...] = ()
    """Files that the command changed and that are not in the packs, such as ignored ones."""
    lost_count: int = 0
    """Their number, which may be larger."""
    reasons: tuple[str, ...] = ()
    """Why folders are not recorded."""
    killed: bool = False
    """Whether vaka was killed while the command ran; then a rewind has written this record."""


class _PackedFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A changed file in a pack; the contents follow each other in the order of the files."""

    path: str = ""
    raw: str = ""
    was: str
    mode: FileMode = ""
    becomes: str
    new_mode: FileMode = ""
    size: int = 0


class _Pack(msgspec.Struct, frozen=True):
    root: str
    files: list[_PackedFile]


class ReadChanges(NamedTuple):
    """The changes of a command, with the former contents by their digests."""

    changes: list[FileChange]
    contents: dict[str, bytes]


class _Snapshot(NamedTuple):
    source: PrivateIndex
    record: TreeRecord
    repository: RepositoryState
    top: str
    """The folder of the repository."""


class _Comparison(NamedTuple):
    """The effect of a command on one folder."""

    changes: list[TreeChange]
    lost: list[bytes]
    folders: list[bytes]


class _Effect(NamedTuple):
    """The effect of a command on all folders; paths are relative to the working folder or absolute."""

    packs: list[bytes]
    trees: tuple[FolderTree, ...]
    lost: list[bytes]
    folders: list[bytes]
    reasons: list[str]
    """Why folders are not compared."""


class CommandRecorder:
    """Records folders of this machine; implements ``CommandBackups``."""

    def __init__(
        self,
        folders: Sequence[str],
        storage: str | os.PathLike[str],
        blobs: BlobStore,
        *,
        is_read_only: Callable[[str], bool] = lambda _: False,
        ignore_files: Callable[[], Sequence[str]] = tuple,
        skipped: Sequence[str] = (),
        limits: RecordLimits = RecordLimits(),
    ) -> None:
        """The first of ``folders`` is the working folder. ``storage`` is a folder for the records of all folders.

        ``is_read_only``: whether a command certainly changes no file. ``ignore_files`` returns the files with the
        ignore rules of the user. ``skipped`` are files that are not recorded, such as the store's.
        """
        self._folders = [os.path.realpath(one) for one in folders]
        self._storage = Path(storage)
        self._blobs = blobs
        self.is_read_only = is_read_only
        self._ignore_files = ignore_files
        self._skipped = skipped
        self._limits = limits
        self._indexes: dict[str, PrivateIndex] = {}
        self._open: dict[CallId, dict[str, _Snapshot]] = {}
        self._refused: dict[str, tuple[float, str]] = {}
        """When to try a folder again, and why it was not recorded."""

    async def begin_command(self, call: CallId, command: str) -> JSON:
        """Record the files before a command and return the record; ``None`` if the command changes no file."""
        if self.is_read_only(command):
            return None
        snapshots, reasons = await asyncio.to_thread(self._record_folders)
        self._open[call] = {one.source.folder: one for one in snapshots}
        trees = tuple(FolderTree(folder=s.source.folder, tree=s.record.tree, head=s.repository.head) for s in snapshots)
        record = CommandRecord(call=call, state="begun", root=_text(self._folders[0]), trees=trees, reasons=reasons)
        return msgspec.to_builtins(record)

    async def end_command(self, begun: JSON, session: SessionId, *, goes_on: bool = False) -> JSON:
        """Return the record of a command after its end, or when it goes on in the background."""
        record = parse_record(begun)
        before = self._open.pop(record.call, {})
        state: CommandState = "goes on" if goes_on else "ended"
        try:
            found = await asyncio.to_thread(self._compare_folders, before, begins_now=goes_on)
        except (UnrecordableFolderError, OSError) as error:
            return msgspec.to_builtins(
                msgspec.structs.replace(record, state=state, reasons=(*record.reasons, str(error)))
            )
        packs = tuple([await self._blobs.put(pack, session=session) for pack in found.packs])
        lost = sorted({_text(path) for path in found.lost})
        return msgspec.to_builtins(
            msgspec.structs.replace(
                record,
                state=state,
                trees=found.trees if goes_on else (),
                packs=packs,
                folders=tuple(sorted(_text(path) for path in found.folders)[:MAX_NAMED_PATHS]),
                lost=tuple(lost[:MAX_NAMED_PATHS]),
                lost_count=len(lost),
                reasons=(*record.reasons, *found.reasons),
            )
        )

    async def end_killed_command(self, record: CommandRecord, session: SessionId) -> JSON:
        """Return the record of a command that ran when vaka was killed: what has changed since its begin.

        Raises ``NotFound`` if the record of the files has been removed.
        """
        stored = await asyncio.to_thread(self._pack_trees, record, None)
        packs = tuple([await self._blobs.put(pack, session=session) for pack in stored])
        return msgspec.to_builtins(msgspec.structs.replace(record, state="ended", trees=(), packs=packs, killed=True))

    async def read_packs(self, record: CommandRecord) -> ReadChanges:
        """Return the changes of a command that has ended. Raises ``NotFound`` if a blob has been removed."""
        found = ReadChanges([], {})
        for digest in record.packs:
            _read_pack(await self._blobs.get(digest), found)
        return found

    async def compare_trees(self, record: CommandRecord, later: CommandRecord | None = None) -> ReadChanges:
        """Return the changes between the begin of a command and the begin of a later command, or now.

        Raises ``NotFound`` if the record of the files has been removed.
        """
        return await asyncio.to_thread(self._read_trees, record, later)

    # ------------------------------------------------------------------------------------------------ recording

    def _record_folders(self) -> tuple[list[_Snapshot], tuple[str, ...]]:
        snapshots: list[_Snapshot] = []
        reasons: list[str] = []
        waiting, seen = list(self._folders), set(self._folders)
        while waiting and len(snapshots) < len(self._folders) + _MAX_NESTED:
            folder = waiting.pop(0)
            try:
                snapshot = self._record_folder(folder)
            except UnrecordableFolderError as error:
                reasons.append(f"{_text(folder)}: {error}")
                continue
            snapshots.append(snapshot)
            inner = [os.path.join(snapshot.source.top, decode_name(path[:-1])) for path in snapshot.record.nested]  # noqa: PTH118
            waiting += sorted(set(inner) - seen)
            seen.update(inner)
        reasons += [f"{_text(folder)}: it is one of more than {_MAX_NESTED} inner repositories" for folder in waiting]
        return snapshots, tuple(reasons)

    def _record_folder(self, folder: str) -> _Snapshot:
        again, reason = self._refused.get(folder, (0.0, ""))
        began = time.monotonic()
        if _text(folder) != folder:
            raise UnrecordableFolderError("its name is not valid UTF-8")
        if began < again:
            raise UnrecordableFolderError(reason)
        index = self._index_of(folder)
        try:
            record = index.record()
        except UnrecordableFolderError as error:
            self._refused[folder] = began + _RETRY_FACTOR * (time.monotonic() - began), str(error)
            raise
        self._prune_at_times(index)
        return _Snapshot(index, record, index.read_repository(), index.top)

    def _record_again(self, folder: str, was: _Snapshot) -> _Snapshot:
        """Record a folder after a command, in the same index also if the folder has another repository now."""
        index = self._index_of(folder)
        if index is was.source:
            return self._record_folder(folder)
        return _Snapshot(was.source, was.source.record(), index.read_repository(), index.top)

    def _index_of(self, folder: str) -> PrivateIndex:
        index = self._indexes.get(folder)
        repository = find_repository(folder)
        if index is None or index.repository != repository:
            top = repository.top if repository else folder
            name = hashlib.sha256(os.fsencode(f"{folder}\0{top}")).hexdigest()[:32]
            index = PrivateIndex(
                folder,
                self._storage / name,
                global_ignores=self._ignore_files(),
                skipped=self._skipped,
                limits=self._limits,
            )
            self._indexes[folder] = index
        return index

    def _prune_at_times(self, index: PrivateIndex) -> None:
        marker = index.storage / "pruned"
        try:
            if marker.stat().st_mtime > time.time() - _PRUNE_SECONDS:
                return
            index.prune(_PRUNE_AFTER)
        except FileNotFoundError:
            pass  # a new record has nothing to remove
        marker.touch()

    def _compare_folders(self, before: dict[str, _Snapshot], *, begins_now: bool) -> _Effect:
        """Return what has changed in the folders since they were recorded."""
        packer = _Packer(self._folders[0], self._limits)
        trees: list[FolderTree] = []
        lost: list[bytes] = []
        folders: list[bytes] = []
        reasons: list[str] = []
        for folder, was in before.items():
            if not os.path.isdir(folder):  # noqa: PTH112
                lost.append(packer.path_of(folder, b""))
                continue
            try:
                now = self._record_again(folder, was)
                found = _compare_records(was, now)
            except UnrecordableFolderError as error:
                reasons.append(f"{_text(folder)}: {error}")
                continue
            top = was.source.top
            lost += [packer.path_of(top, path) for path in found.lost]
            lost += packer.add(was.source, top, found.changes)
            folders += [packer.path_of(top, path.rstrip(b"/")) for path in found.folders]
            if begins_now:
                trees.append(FolderTree(folder=folder, tree=now.record.tree, head=now.repository.head))
        return _Effect(packer.finish(), tuple(trees), lost, folders, reasons)

    def _pack_trees(self, record: CommandRecord, later: CommandRecord | None) -> list[bytes]:
        if not self._folders:
            raise NotFound("what the files contained before the command is unknown: commands are not recorded here")
        packer = _Packer(self._folders[0], self._limits)
        then = {one.folder: one.tree for one in later.trees} if later is not None else {}
        try:
            for one in record.trees:
                index = self._index_of(one.folder)
                tree = then.get(one.folder) or self._record_folder(one.folder).record.tree
                packer.add(index, index.top, index.compare(one.tree, tree))
        except (UnrecordableFolderError, OSError) as error:
            raise NotFound(f"what the files contained before the command is not stored any more: {error}") from error
        return packer.finish()

    def _read_trees(self, record: CommandRecord, later: CommandRecord | None) -> ReadChanges:
        found = ReadChanges([], {})
        for pack in self._pack_trees(record, later):
            _read_pack(pack, found)
        return found


def parse_record(value: JSON) -> CommandRecord:
    """Return the record of a command. Raises ``InvalidInput`` for another value."""
    try:
        return msgspec.convert(value, CommandRecord)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"not the record of a command: {error}") from error


def _compare_records(was: _Snapshot, now: _Snapshot) -> _Comparison:
    """Return what a command has changed; files of which the former content is not known are lost."""
    kept: list[TreeChange] = []
    lost = [
        path
        for path in {*was.record.unrecorded, *now.record.unrecorded}
        if was.record.unrecorded.get(path) != now.record.unrecorded.get(path)
    ]
    changes = was.source.compare(was.record.tree, now.record.tree)
    shows_more = any(_may_show_files(was.source, change) for change in changes)
    gone = {(_name_of(change), change.oid) for change in changes if not change.new_mode}
    for change in changes:
        is_known = change.path not in was.record.unrecorded and change.path not in now.record.unrecorded
        is_new = bool(change.mode) or not (shows_more or _is_older(change.path, was))
        if is_known and (
            is_new or ((_name_of(change), change.new_oid) in gone and _is_in_new_folder(change.path, was))
        ):
            kept.append(change)
        else:
            lost.append(change.path)
    lost += sorted(was.record.nested ^ now.record.nested)
    lost += _removed_folders(was, now, kept, lost)
    if was.repository[:2] != now.repository[:2]:
        lost.append(_git_folder_in(now))
    elif was.repository != now.repository:
        lost.append(_git_folder_in(now) + b"/index")
    return _Comparison(kept, lost, _created_folders(was, now, kept))


def _git_folder_in(snapshot: _Snapshot) -> bytes:
    place = os.path.relpath(snapshot.top, snapshot.source.top)
    return b".git" if place == "." else os.fsencode(place) + b"/.git"


def _may_show_files(source: PrivateIndex, change: TreeChange) -> bool:
    """Return whether files that git ignored may come into view by the change of a file with ignore rules."""
    if not change.mode or not change.path.endswith(b".gitignore"):
        return False
    old, new = source.read_objects([change.oid, change.new_oid]) if change.new_mode else (None, None)
    if old is None or new is None:
        return True
    rest = iter(new.splitlines())
    added: list[bytes] = []
    for line in old.splitlines():
        for other in rest:
            if other == line:
                break
            added.append(other)
        else:
            return True  # a rule was removed, or has another place
    return any(line.startswith(b"!") for line in (*added, *rest))


def _is_older(path: bytes, was: _Snapshot) -> bool:
    """Return whether a file that appears in a record existed before: git ignored it until now, or its folder moved."""
    try:
        changed = os.lstat(os.path.join(os.fsencode(was.source.top), path)).st_ctime_ns  # noqa: PTH118
    except OSError:
        return False
    return changed < was.record.time_ns - _CLOCK_TICK_NS


def _is_in_new_folder(path: bytes, was: _Snapshot) -> bool:
    """Return whether one of the folders of a file was made, renamed or changed since the record."""
    return any(not _is_older(folder, was) for folder in _parents_of(path))


def _name_of(change: TreeChange) -> bytes:
    return change.path.rpartition(b"/")[2]


def _created_folders(was: _Snapshot, now: _Snapshot, changes: Iterable[TreeChange]) -> list[bytes]:
    added = {folder for change in changes if not change.mode for folder in _parents_of(change.path)}
    empty = {path.rstrip(b"/") for path in now.record.folders - was.record.folders}
    known = {path.rstrip(b"/") for path in was.record.folders}
    candidates = {path for path in added | empty if path not in known and not known & set(_parents_of(path))}
    return sorted(candidates - was.source.folders_in(was.record.tree, candidates))


def _removed_folders(was: _Snapshot, now: _Snapshot, kept: Iterable[TreeChange], lost: Iterable[bytes]) -> list[bytes]:
    """Return the removed folders without files; the folders of a restorable file come back with it."""
    gone = was.record.folders - now.record.folders - set(lost)
    restored = {folder for change in kept if change.mode for folder in _parents_of(change.path)}
    return sorted(path for path in gone if path.rstrip(b"/") not in restored and not _exists(was.source.top, path))


def _exists(top: str, path: bytes) -> bool:
    return os.path.lexists(os.path.join(os.fsencode(top), path.rstrip(b"/")))  # noqa: PTH118


def _parents_of(path: bytes) -> Iterator[bytes]:
    while b"/" in path:
        path = path.rpartition(b"/")[0]
        yield path


class _Packer:
    """Packs changed files with their former contents into compressed blobs."""

    def __init__(self, root: str, limits: RecordLimits) -> None:
        self._root, self._limits = os.fsencode(root), limits
        self._files: list[_PackedFile] = []
        self._contents: list[bytes] = []
        self._size = self._stored = 0
        self._packs: list[bytes] = []

    def path_of(self, top: str, path: bytes) -> bytes:
        """Return a path relative to the working folder if it is in it, else the absolute path."""
        whole = os.path.join(os.fsencode(top), path).rstrip(b"/")  # noqa: PTH118
        return whole.removeprefix(self._root + b"/")

    def add(self, index: PrivateIndex, top: str, changes: Sequence[TreeChange]) -> list[bytes]:
        """Add files; return the files whose former content is not stored any more, or would be too much."""
        lost: list[bytes] = []
        with (
            closing(index.read_objects(change.oid for change in changes if change.mode)) as olds,
            closing(index.read_objects(change.new_oid for change in changes if change.new_mode)) as news,
        ):
            for change in changes:
                old = next(olds) if change.mode else b""
                new = next(news) if change.new_mode else b""
                if old is None or new is None or self._stored + len(old) > self._limits.total_bytes:
                    lost.append(self.path_of(top, change.path))
                else:
                    self._add_file(self.path_of(top, change.path), change, old, new)
        return lost

    def _add_file(self, path: bytes, change: TreeChange, old: bytes, new: bytes) -> None:
        text, raw = path_fields(path)
        self._files.append(
            _PackedFile(
                path=text,
                raw=raw,
                size=len(old),
                was=_digest_of(change.mode, old),
                mode=_mode_of(change.mode),
                becomes=_digest_of(change.new_mode, new),
                new_mode=_mode_of(change.new_mode),
            )
        )
        self._contents.append(old)
        self._size += len(old)
        self._stored += len(old)
        if self._size > self._limits.pack_bytes:
            self._close_pack()

    def _close_pack(self) -> None:
        head = msgspec.json.encode(_Pack(_text(os.fsdecode(self._root)), self._files))
        self._packs.append(zlib.compress(b"\n".join([head, b"".join(self._contents)]), 1))
        self._files = []
        self._contents = []
        self._size = 0

    def finish(self) -> list[bytes]:
        if self._files:
            self._close_pack()
        return self._packs


def _read_pack(data: bytes, found: ReadChanges) -> None:
    head, _, contents = zlib.decompress(data).partition(b"\n")
    pack = msgspec.json.decode(head, type=_Pack)
    at = 0
    for file in pack.files:
        if file.was != NO_FILE:
            found.contents[file.was] = contents[at : at + file.size]
        at += file.size
        path = decode_name(base64.b64decode(file.raw)) if file.raw else file.path
        change = FileChange(path=path, root=pack.root, was=file.was, becomes=file.becomes)
        found.changes.append(msgspec.structs.replace(change, mode=file.mode, new_mode=file.new_mode))


def _digest_of(mode: bytes, data: bytes) -> str:
    if not mode:
        return NO_FILE
    return link_digest(data) if mode == _LINK_MODE else hashlib.sha256(data).hexdigest()


def _mode_of(mode: bytes) -> FileMode:
    if mode in (b"", _LINK_MODE):
        return ""
    return "executable" if mode == _EXECUTABLE_MODE else "plain"


def _text(path: str | bytes) -> str:
    """Return a path as a text for the log, in which other bytes than UTF-8 are escaped."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")
