"""Copies of files that a session is about to change, to restore them when the session is rewound."""

import base64
import binascii
import hashlib
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from vaka.core.ports.files import Files
from vaka.core.ports.values import BlobStore
from vaka.core.types.errors import FileChanged, FileError, FileMissing, InvalidInput
from vaka.core.types.ids import JSON, Digest
from vaka.files.paths import child_path, decode_name, encode_name, quote_path

MAX_COPIED_BYTES = 32 * 1024**2
"""The largest file that is copied."""
NO_FILE = Digest("gone")
"""The digest of a file that does not exist."""
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
    becomes: str = ""
    """The digest of the content that the session writes; empty if unknown."""


class RestoreStep(NamedTuple):
    """One file to restore: digests of its current and its former content, ``NO_FILE`` for no file."""

    path: str
    now: str
    was: str


class RestorePlan(msgspec.Struct, frozen=True, kw_only=True):
    """What a restore would do."""

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
        self._files, self._blobs, self._max_bytes = files, blobs, max_bytes

    async def back_up(self, path: str, *, becomes: Digest | None = None, session: str = "") -> JSON:
        """Copy the current content of a file and return the token that restores it.

        ``becomes``: the digest of the content about to be written, ``NO_FILE`` for a file about to be deleted. Without
        it, and without ``after``, a restore cannot distinguish the session's own change from changes by others.
        ``session``: the session whose log will have the token; the copy stays as long as it exists.
        """
        path = await self._canonical_path(path)
        return _encode_token(path, self._files.root, await self._store_content(path, session), becomes or "")

    async def after(self, token: JSON) -> JSON:
        """Return the token with the current content as the session's own change."""
        path, decoded = _decode_token(token)
        return _encode_token(path, decoded.root, decoded.was, await self._current_digest(path))

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

    async def plan_restore(self, tokens: Iterable[JSON]) -> RestorePlan:
        """Return what ``restore`` would do with these changes, without doing it.

        Raises ``InvalidInput`` for changes in another root folder.
        """
        first: dict[str, str] = {}
        known: dict[str, set[str]] = {}
        for path, token in map(_decode_token, tokens):
            self._check_root(path, token)
            first.setdefault(path, token.was)
            known.setdefault(path, set()).update((token.was, token.becomes))
        steps, changed, lost = list[RestoreStep](), list[str](), list[str]()
        for path, was in first.items():
            now = await self._current_digest(path)
            if now == was:
                continue
            if was == _TOO_LARGE:
                lost.append(path)
                continue
            if now not in known[path]:
                changed.append(path)
            steps.append(RestoreStep(path, now, was))
        return RestorePlan(steps=tuple(steps), changed=tuple(changed), lost=tuple(lost))

    async def load_copies(self, steps: Iterable[RestoreStep]) -> dict[str, bytes]:
        """Return the contents to restore, by path. Raises ``NotFound`` if a copy has been removed."""
        return {step.path: await self._blobs.get(Digest(step.was)) for step in steps if step.was != NO_FILE}

    async def apply_steps(self, steps: Iterable[RestoreStep], copies: Mapping[str, bytes]) -> list[str]:
        """Restore file by file and return the paths; ``FileChanged`` if one has changed since the plan was made."""
        restored: list[str] = []
        for step in steps:
            if step.was == NO_FILE:
                await self._delete_unchanged(step)
            elif step.now == NO_FILE:
                await self._files.write(step.path, copies[step.path], new=True)
            else:
                await self._files.write(step.path, copies[step.path], known=Digest(step.now))
            restored.append(step.path)
        return restored

    def _check_root(self, path: str, token: _SnapshotToken) -> None:
        if token.root != self._files.root and not path.startswith("/"):
            root = self._files.root
            raise InvalidInput(
                f"{quote_path(path)} was changed in {token.root!r}, not in {root!r}; work in that folder"
            )

    async def _delete_unchanged(self, step: RestoreStep) -> None:
        if await self._current_digest(step.path) != step.now:
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


def path_of(token: JSON) -> str:
    """Return the path of the file of a token. Raises ``InvalidInput`` for an invalid token."""
    return _decode_token(token)[0]


def overwrite_error(paths: Iterable[str]) -> FileChanged:
    names = ", ".join(map(quote_path, paths))
    return FileChanged(f"changed since the session wrote to it, so it is not overwritten: {names}")


def _encode_token(path: str, root: str, was: str, becomes: str) -> JSON:
    data = encode_name(path)
    try:
        token = _SnapshotToken(path=data.decode(), root=root, was=was, becomes=becomes)
    except UnicodeDecodeError:
        token = _SnapshotToken(raw=base64.b64encode(data).decode(), root=root, was=was, becomes=becomes)
    return msgspec.to_builtins(token)


def _decode_token(token: JSON) -> tuple[str, _SnapshotToken]:
    try:
        decoded = msgspec.convert(token, _SnapshotToken)
        return (decode_name(base64.b64decode(decoded.raw, validate=True)) if decoded.raw else decoded.path), decoded
    except (msgspec.ValidationError, binascii.Error) as error:
        raise InvalidInput(f"not a valid snapshot token: {error}") from error
