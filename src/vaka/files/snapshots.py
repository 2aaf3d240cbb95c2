"""Copies of files that a session is about to change, to restore them when the session is rewound."""

import base64
import binascii
import hashlib
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from functools import cached_property, partial
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from vaka.core.ports.files import FileInfo, Files, LinkFiles
from vaka.core.ports.tool import LINK_PREFIX, CommandBackups
from vaka.core.ports.values import BlobStore
from vaka.core.types.errors import FileChanged, FileError, FileMissing, InvalidInput
from vaka.core.types.ids import JSON, CallId, Digest, SessionId
from vaka.files.paths import child_path, decode_name, encode_name, quote_path

MAX_COPIED_BYTES = 32 * 1024**2
"""The largest file that is copied."""
NO_FILE = Digest("gone")
"""The digest of a file that does not exist."""
FileMode: TypeAlias = Literal["", "plain", "executable"]
"""Whether a regular file can be run; empty if unknown, and for links."""
_TOO_LARGE = "too large"
_CHUNK_BYTES = 4 * 1024**2


class _SnapshotToken(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The record of one change, as it is stored in the log."""

    path: str = ""
    root: str = ""
    """The folder that the path is relative to, for files of this machine."""
    raw: str = ""
    """The path as base64, if it is not UTF-8."""
    was: str
    """The digest of the content before the change, or why there is none."""
    mode: FileMode = ""
    becomes: str = ""
    """The digest of the content that the session writes; empty if unknown."""
    new_mode: FileMode = ""


class FileChange(msgspec.Struct, frozen=True, kw_only=True):
    """A change of one file: digests before and after it, ``NO_FILE`` for no file."""

    path: str
    root: str
    was: str
    mode: FileMode = ""
    becomes: str = ""
    new_mode: FileMode = ""

    @property
    def sets_mode(self) -> bool:
        return bool(self.mode) and bool(self.new_mode) and self.mode != self.new_mode


class FileState(NamedTuple):
    """The digest of a file, of its target for a link, ``NO_FILE`` for no file; and whether it can be run."""

    digest: str
    mode: FileMode = ""


class RestoreStep(NamedTuple):
    """One file to restore: digests of its current and its former content, ``NO_FILE`` for no file."""

    path: str
    now: str
    was: str
    mode: FileMode = ""
    """The mode to set; empty to leave it."""
    now_mode: FileMode = ""


class RestorePlan(msgspec.Struct, frozen=True, kw_only=True):
    """The effects of a restore."""

    steps: tuple[RestoreStep, ...] = ()
    changed: tuple[str, ...] = ()
    """Files among them that were changed by others since the session wrote them."""
    lost: tuple[str, ...] = ()
    """Files that differ and of which there is no copy; they are not restored."""


class FileSnapshots:
    """Copies by content: the same bytes are stored once, however many files and changes have them.

    A token is plain JSON for the log: it is stored with the change and used when the session is rewound to before it.
    """

    def __init__(self, files: Files, blobs: BlobStore, *, max_bytes: int = MAX_COPIED_BYTES) -> None:
        self._files = files
        self._blobs = blobs
        self._max_bytes = max_bytes

    async def back_up(self, path: str, *, becomes: Digest | None = None, session: str = "") -> JSON:
        """Copy the current content of a file and return the token that restores it.

        ``becomes``: the digest of the content about to be written, ``NO_FILE`` for a file about to be deleted. Without
        it, and without ``after``, a restore cannot distinguish the session's own change from changes by others.
        ``session``: the session whose log will have the token; the copy stays as long as it exists.
        """
        path = self._resolve_links(await self._canonical_path(path))
        was = await self._store_content(path, session)
        return _encode_token(FileChange(path=path, root=self._files.root, was=was, becomes=becomes or ""))

    async def after(self, token: JSON) -> JSON:
        """Return the token with the current content as the session's own change."""
        change = decode_token(token)
        return _encode_token(msgspec.structs.replace(change, becomes=await self._current_digest(change.path)))

    async def restore(self, tokens: Iterable[JSON], *, force: bool = False) -> list[str]:
        """Restore files to their content before the first of these changes, oldest first; return their paths.

        All files are restored or none: ``FileChanged`` if one was changed by others, unless ``force``; ``FileError`` if
        no copy was made; ``NotFound`` if the copy has been removed.
        """
        plan = await self.plan_restore(tokens)
        if plan.lost:
            names = ", ".join(map(quote_path, plan.lost))
            raise FileError(f"{names} was too large to be copied, so it cannot be restored")
        if plan.changed and not force:
            raise overwrite_error(plan.changed)
        return await self.apply_steps(plan.steps, await self.load_copies(plan.steps))

    async def plan_restore(self, tokens: "Iterable[JSON | FileChange]") -> RestorePlan:
        """Return what ``restore`` would do with these changes, without doing it.

        Raises ``InvalidInput`` for changes in another root folder.
        """
        histories: dict[str, _FileHistory] = {}
        for token in tokens:
            change = token if isinstance(token, FileChange) else decode_token(token)
            self._check_root(change)
            histories.setdefault(change.path, _FileHistory(change)).add(change)
        steps = list[RestoreStep]()
        changed = list[str]()
        lost = list[str]()
        for path, history in histories.items():
            now, was = await self.state_of(path), history.first
            sets_mode = bool(was.mode) and (now.digest == NO_FILE or (history.sets_mode and now.mode != was.mode))
            if now.digest == was.was and not (sets_mode and was.was != NO_FILE):
                continue
            if was.was == _TOO_LARGE:
                lost.append(path)
                continue
            if history.is_broken or now.digest not in history.known:
                changed.append(path)
            steps.append(RestoreStep(path, now.digest, was.was, was.mode if sets_mode else "", now.mode))
        return RestorePlan(steps=tuple(steps), changed=tuple(changed), lost=tuple(lost))

    async def load_copies(
        self, steps: Iterable[RestoreStep], contents: Mapping[str, bytes] | None = None
    ) -> dict[str, bytes]:
        """Return the contents to restore, by path. Raises ``NotFound`` if a copy has been removed.

        ``contents`` has those that are known, by digest.
        """
        found: dict[str, bytes] = {}
        for step in steps:
            if step.was not in (NO_FILE, step.now):
                known = (contents or {}).get(step.was)
                digest = Digest(step.was.removeprefix(LINK_PREFIX))
                found[step.path] = await self._blobs.get(digest) if known is None else known
        return found

    async def back_up_step(self, step: RestoreStep, session: str) -> JSON:
        """Copy the current content of a file that is about to be restored; return the token that undoes this."""
        if step.now.startswith(LINK_PREFIX):
            info = await self._lookup(step.path)
            await self._blobs.put(encode_name(info.target if info else ""), session=session)
            was = step.now
        elif step.now == NO_FILE:
            was = NO_FILE
        else:
            was = await self._store_content(step.path, session)
        return _encode_token(
            FileChange(
                path=step.path, root=self._files.root, was=was, mode=step.now_mode, becomes=step.was, new_mode=step.mode
            )
        )

    async def apply_steps(self, steps: Iterable[RestoreStep], copies: Mapping[str, bytes]) -> list[str]:
        """Restore file by file and return the paths; ``FileChanged`` if one has changed since the plan was made.

        Files are deleted first, since one may be where a folder of another is to be. Those that cannot be restored are
        named in the error after the last file.
        """
        steps, errors = list(steps), list[FileError]()
        for step in sorted(steps, key=lambda step: step.was != NO_FILE):
            try:
                await self._with_rights(step.path, partial(self._apply_step, step, copies))
            except FileChanged:
                raise
            except FileError as error:
                errors.append(error)
        if errors:
            raise FileError("; ".join(map(str, errors)))
        return [step.path for step in steps]

    async def read_content(self, step: RestoreStep) -> bytes | None:
        """Return the current content of a file, the target of a link, ``None`` for no file."""
        info = await self._lookup(step.path) if step.now != NO_FILE else None
        if info is None:
            return None
        return encode_name(info.target) if info.kind == "link" else (await self._files.read(step.path)).data

    async def remove_empty_folders(self, folders: Iterable[str]) -> None:
        """Remove folders and subfolders without files; others stay."""
        for folder in sorted(folders, reverse=True):
            with suppress(FileError):
                await self._with_rights(folder, partial(self._remove_empty_folder, folder))

    async def state_of(self, path: str) -> FileState:
        """Return the state of a file; a folder is no file."""
        if isinstance(self._files, LinkFiles):
            info = await self._files.lookup(path)
            if info is None or info.kind not in ("file", "link"):
                return FileState(NO_FILE)
            if info.kind == "link":
                return FileState(link_digest(encode_name(info.target)))
            return FileState(await self._current_digest(path), "executable" if info.mode & 0o100 else "plain")
        return FileState(await self._current_digest(path))

    async def _remove_empty_folder(self, folder: str) -> None:
        info = await self._lookup(folder)
        if info is None or info.kind != "folder":
            return
        for entry in await self._files.entries(folder):
            if entry.kind == "folder":
                await self._remove_empty_folder(entry.path)
        await self._files.delete(folder)

    async def _with_rights(self, path: str, work: Callable[[], Awaitable[None]]) -> None:
        """Do something with a path; if it fails, do it again with the rights to change the path."""
        try:
            await work()
        except FileChanged:
            raise
        except FileError as error:
            if not (_is_denied(error) and isinstance(self._files, LinkFiles)):
                raise
            with suppress(FileError):
                await self._files.allow_changes(path)
            await work()

    async def _apply_step(self, step: RestoreStep, copies: Mapping[str, bytes]) -> None:
        if step.was == NO_FILE:
            await self._delete_unchanged(step)
        else:
            await self._restore_content(step, copies)

    async def _restore_content(self, step: RestoreStep, copies: Mapping[str, bytes]) -> None:
        if step.now == NO_FILE:
            await self._remove_empty_folder(step.path)
        if step.was.startswith(LINK_PREFIX) or step.now.startswith(LINK_PREFIX):
            await self._replace_link(step, copies[step.path])
        elif step.now == NO_FILE:
            await self._files.write(step.path, copies[step.path], new=True)
        elif step.now != step.was:
            await self._files.write(step.path, copies[step.path], known=Digest(step.now))
        if step.mode and isinstance(self._files, LinkFiles):
            await self._files.set_executable(step.path, step.mode == "executable")

    async def _replace_link(self, step: RestoreStep, content: bytes) -> None:
        if step.now != NO_FILE:
            await self._delete_unchanged(step)
        if not step.was.startswith(LINK_PREFIX):
            await self._files.write(step.path, content, new=True)
        elif isinstance(self._files, LinkFiles):
            await self._files.write_link(step.path, decode_name(content))

    async def _lookup(self, path: str) -> FileInfo | None:
        if isinstance(self._files, LinkFiles):
            return await self._files.lookup(path)
        try:
            return await self._files.stat(path)
        except FileMissing:
            return None

    def _check_root(self, change: FileChange) -> None:
        root = self._files.root
        if change.root != root and not change.path.startswith("/"):
            raise InvalidInput(
                f"{quote_path(change.path)} was changed in {change.root!r}, not in {root!r}; work in that folder"
            )

    async def _delete_unchanged(self, step: RestoreStep) -> None:
        if (await self.state_of(step.path)).digest != step.now:
            raise FileChanged(f"{quote_path(step.path)} has changed since the restore was planned")
        await self._files.delete(step.path)

    async def _canonical_path(self, path: str) -> str:
        """Return the canonical spelling of a path, also of a file that does not exist yet."""
        try:
            return (await self._files.stat(path)).path
        except FileMissing:
            folder, _, name = path.rstrip("/").rpartition("/")
            if name in {"", ".", ".."}:
                raise
            return child_path(await self._canonical_path(folder or ("/" if path.startswith("/") else "")), name)

    def _resolve_links(self, path: str) -> str:
        """Return the path of the file behind links: its content is what a tool sees and changes under any name."""
        if not isinstance(self._files, LinkFiles):
            return path
        root = self._files.root
        real = os.path.realpath(os.path.join(root, os.fsdecode(encode_name(path))))  # noqa: PTH118  # a string
        return decode_name(os.fsencode(real)).removeprefix(f"{root.rstrip('/')}/")

    async def _store_content(self, path: str, session: str) -> str:
        try:
            found = await self._files.read(path, size=self._max_bytes + 1)
        except FileMissing:
            return NO_FILE
        if len(found.data) > self._max_bytes:
            return _TOO_LARGE
        return await self._blobs.put(found.data, session=session)

    async def _current_digest(self, path: str) -> str:
        digest, at = hashlib.sha256(), 0
        try:
            while data := (await self._files.read(path, start=at, size=_CHUNK_BYTES)).data:
                digest.update(data)
                at += len(data)
        except FileMissing:
            return NO_FILE
        return digest.hexdigest()


class CommandSnapshots(FileSnapshots):
    """Copies of the files that tools change, and records of what commands change; implements ``CommandBackups``."""

    def __init__(self, files: Files, blobs: BlobStore, make_recorder: Callable[[], CommandBackups]) -> None:
        """``make_recorder`` is called before the first command."""
        super().__init__(files, blobs)
        self._make_recorder = make_recorder

    @cached_property
    def recorder(self) -> CommandBackups:
        return self._make_recorder()

    async def begin_command(self, call: CallId, command: str) -> JSON:
        """Record the files before a command and return the record; ``None`` if the command changes no file."""
        return await self.recorder.begin_command(call, command)

    async def end_command(self, begun: JSON, session: SessionId, *, goes_on: bool = False) -> JSON:
        """Return the record of a command after its end, or when it goes on in the background."""
        return await self.recorder.end_command(begun, session, goes_on=goes_on)


class _FileHistory:
    """The changes of one file, oldest first."""

    def __init__(self, first: FileChange) -> None:
        self.first = first
        self.known: set[str] = set()
        """The contents that the session has seen or written."""
        self.is_broken = False
        """Whether another program changed the file between two changes of the session."""
        self.sets_mode = False

    def add(self, change: FileChange) -> None:
        is_continued = not self.known or "" in self.known or not self.known.isdisjoint((change.was, change.becomes))
        self.is_broken = self.is_broken or not is_continued
        self.known |= {change.was, change.becomes}
        self.sets_mode = self.sets_mode or change.sets_mode


def _is_denied(error: BaseException | None) -> bool:
    """Return whether the cause of an error is a missing permission."""
    while error is not None and not isinstance(error, PermissionError):
        error = error.__cause__
    return error is not None


def overwrite_error(paths: Iterable[str]) -> FileChanged:
    names = ", ".join(map(quote_path, paths))
    return FileChanged(f"changed since the session wrote to it, so it is not overwritten: {names}")


def link_digest(target: bytes) -> str:
    """Return the digest that stands for a link with a target."""
    return LINK_PREFIX + hashlib.sha256(target).hexdigest()


def path_fields(path: bytes) -> tuple[str, str]:
    """Return a path as a text, or else as base64."""
    try:
        return path.decode(), ""
    except UnicodeDecodeError:
        return "", base64.b64encode(path).decode()


def decode_token(token: JSON) -> FileChange:
    """Return the change that a token records. Raises ``InvalidInput`` for an invalid token."""
    try:
        decoded = msgspec.convert(token, _SnapshotToken)
        path = decode_name(base64.b64decode(decoded.raw, validate=True)) if decoded.raw else decoded.path
    except (msgspec.ValidationError, binascii.Error) as error:
        raise InvalidInput(f"not a valid snapshot token: {error}") from error
    return FileChange(
        path=path,
        root=decoded.root,
        was=decoded.was,
        mode=decoded.mode,
        becomes=decoded.becomes,
        new_mode=decoded.new_mode,
    )


def _encode_token(change: FileChange) -> JSON:
    path, raw = path_fields(encode_name(change.path))
    token = _SnapshotToken(
        path=path,
        root=change.root,
        raw=raw,
        was=change.was,
        mode=change.mode,
        becomes=change.becomes,
        new_mode=change.new_mode,
    )
    return msgspec.to_builtins(token)
