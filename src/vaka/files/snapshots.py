"""Copies of files a session is about to change, so that going back in it can bring them back."""

import base64
import binascii
import hashlib
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from vaka.core.ports.files import Files
from vaka.core.ports.store import BlobStore
from vaka.core.types.errors import FileChanged, FileError, FileMissing, InvalidInput
from vaka.core.types.ids import JSON, Digest
from vaka.files.paths import child_path, decode_name, encode_name, quote_path

MAX_COPIED_BYTES = 32 * 1024**2
"""Bytes of a file that is copied."""
NO_FILE = Digest("gone")
"""Stands for the content of a file that is not there."""
_TOO_LARGE = "too large"
_CHUNK_BYTES = 4 * 1024**2


class _SnapshotToken(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What a log keeps of one change."""

    path: str = ""
    root: str = ""
    """The folder the path begins in, as files of this machine have one."""
    raw: str = ""
    """The path as base64, where it is no UTF-8."""
    was: str
    """The digest of what was there, or why there is none."""
    becomes: str = ""
    """The digest of what the session puts there; empty when it did not say."""


class RestoreStep(NamedTuple):
    """What to put in the place of what: digests, or ``GONE`` for no file."""

    path: str
    now: str
    was: str


class RestorePlan(msgspec.Struct, frozen=True, kw_only=True):
    """What going back would do."""

    steps: tuple[RestoreStep, ...] = ()
    changed: tuple[str, ...] = ()
    """Those of them that are not what the session left: somebody else has changed them."""
    lost: tuple[str, ...] = ()
    """Files that differ and of which no copy was kept: they stay as they are."""


class FileSnapshots:
    """Copies by their content: the same bytes are kept once, however many files and changes they stood in.

    A token is plain JSON, made for a log: written with the change, it is there when the session goes back beyond it.
    """

    def __init__(self, files: Files, blobs: BlobStore, *, max_bytes: int = MAX_COPIED_BYTES) -> None:
        self._files, self._blobs, self._max_bytes = files, blobs, max_bytes

    async def back_up(self, path: str, *, becomes: Digest | None = None) -> JSON:
        """Keep what a file holds now and return the token that brings it back.

        ``becomes``: the digest of what is about to be written, ``GONE`` for a file that is about to be deleted. Without
        it, and without ``after``, a restore cannot tell the session's own change from somebody else's.
        """
        path = await self._canonical_path(path)
        return _encode_token(path, self._files.root, await self._store_content(path), becomes or "")

    async def after(self, token: JSON) -> JSON:
        """Return the token with what the file holds now, as the session's own change."""
        path, known = _decode_token(token)
        return _encode_token(path, known.root, known.was, await self._current_digest(path))

    async def restore(self, tokens: Iterable[JSON], *, force: bool = False) -> list[str]:
        """Bring files back to what they were before the first of these changes, oldest first; return their paths.

        Nothing is touched unless all can be done: ``FileChanged`` when a file is not what the session left, unless
        ``force``; ``FileError`` when no copy was kept; ``NotFound`` when it is kept no more.
        """
        plan = await self.plan_restore(tokens)
        if plan.lost:
            raise FileError(
                f"{', '.join(map(quote_path, plan.lost))} was too large to be kept, so it cannot be brought back"
            )
        if plan.changed and not force:
            raise overwrite_error(plan.changed)
        return await self.apply_steps(plan.steps, await self.load_copies(plan.steps))

    async def plan_restore(self, tokens: Iterable[JSON]) -> RestorePlan:
        """Return what ``restore`` would do with these changes, and what is in its way; nothing is touched.

        Raises ``InvalidInput`` for the changes of another folder.
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
        """Return what goes into the files, by path. Raises ``NotFound`` when a copy is kept no more."""
        return {step.path: await self._blobs.get(Digest(step.was)) for step in steps if step.was != NO_FILE}

    async def apply_steps(self, steps: Iterable[RestoreStep], copies: Mapping[str, bytes]) -> list[str]:
        """Do it, file by file; ``FileChanged`` when one is not what it was when it was looked at. Return the paths."""
        done: list[str] = []
        for step in steps:
            if step.was == NO_FILE:
                await self._delete_unchanged(step)
            elif step.now == NO_FILE:
                await self._files.write(step.path, copies[step.path], new=True)
            else:
                await self._files.write(step.path, copies[step.path], known=Digest(step.now))
            done.append(step.path)
        return done

    def _check_root(self, path: str, token: _SnapshotToken) -> None:
        if token.root != self._files.root and not path.startswith("/"):
            here = self._files.root
            raise InvalidInput(
                f"{quote_path(path)} was changed in {token.root!r} and not in {here!r}; work in that folder"
            )

    async def _delete_unchanged(self, step: RestoreStep) -> None:
        if await self._current_digest(step.path) != step.now:
            raise FileChanged(f"{quote_path(step.path)} has changed since it was looked at")
        await self._files.delete(step.path)

    async def _canonical_path(self, path: str) -> str:
        """Return the one way to write a path, also of a file that is not there yet."""
        try:
            return (await self._files.stat(path)).path
        except FileMissing:
            folder, _, name = path.rstrip("/").rpartition("/")
            if name in {"", ".", ".."}:
                raise
            return child_path(await self._canonical_path(folder or ("/" if path.startswith("/") else "")), name)

    async def _store_content(self, path: str) -> str:
        try:
            found = await self._files.read(path, size=self._max_bytes + 1)
        except FileMissing:
            return NO_FILE
        if len(found.data) > self._max_bytes:
            return _TOO_LARGE
        return await self._blobs.put(found.data)

    async def _current_digest(self, path: str) -> str:
        """Return the digest of what a file holds now."""
        seen, at = hashlib.sha256(), 0
        try:
            while data := (await self._files.read(path, start=at, size=_CHUNK_BYTES)).data:
                seen.update(data)
                at += len(data)
        except FileMissing:
            return NO_FILE
        return seen.hexdigest()


def path_of(token: JSON) -> str:
    """Return the file a token is of. Raises ``InvalidInput`` for what is no token."""
    return _decode_token(token)[0]


def overwrite_error(paths: Iterable[str]) -> FileChanged:
    """Return what to raise when somebody else's changes would be lost."""
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
        known = msgspec.convert(token, _SnapshotToken)
        return (decode_name(base64.b64decode(known.raw, validate=True)) if known.raw else known.path), known
    except (msgspec.ValidationError, binascii.Error) as error:
        raise InvalidInput(f"this is no token of a snapshot: {error}") from error
