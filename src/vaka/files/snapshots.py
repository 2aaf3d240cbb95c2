"""Copies of files a session is about to change, so that going back in it can bring them back."""

import base64
import binascii
import hashlib
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from vaka.core.ports.files import Files
from vaka.core.ports.store import Blobs
from vaka.core.types.errors import FileChanged, FileError, FileMissing, InvalidInput
from vaka.core.types.ids import JSON, Digest
from vaka.files.names import below, raw, read_name, shown

LARGEST = 32 * 1024**2
"""Bytes of a file that is copied."""
GONE = Digest("gone")
"""Stands for the content of a file that is not there."""
_TOO_LARGE = "too large"
_PIECE = 4 * 1024**2


class _Token(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What a log keeps of one change."""

    path: str = ""
    raw: str = ""
    """The path as base64, where it is no UTF-8."""
    was: str
    """The digest of what was there, or why there is none."""
    becomes: str = ""
    """The digest of what the session puts there; empty when it did not say."""


class _Step(NamedTuple):
    """What to put in the place of what."""

    path: str
    now: str
    was: str


class Snapshots:
    """Copies by their content: the same bytes are kept once, however many files and changes they stood in.

    A token is plain JSON, made for a log: written with the change, it is there when the session goes back beyond it.
    """

    def __init__(self, files: Files, blobs: Blobs, *, largest: int = LARGEST) -> None:
        self._files, self._blobs, self._largest = files, blobs, largest

    async def before(self, path: str, *, becomes: Digest | None = None) -> JSON:
        """Keep what a file holds now and return the token that brings it back.

        ``becomes``: the digest of what is about to be written, ``GONE`` for a file that is about to be deleted. Without
        it, and without ``after``, a restore cannot tell the session's own change from somebody else's.
        """
        path = await self._canonical(path)
        return _written(path, await self._keep(path), becomes or "")

    async def after(self, token: JSON) -> JSON:
        """Return the token with what the file holds now, as the session's own change."""
        path, known = _read(token)
        return _written(path, known.was, await self._state(path))

    async def restore(self, tokens: Iterable[JSON], *, force: bool = False) -> list[str]:
        """Bring files back to what they were before the first of these changes, oldest first; return their paths.

        Nothing is touched unless all can be done: ``FileChanged`` when a file is not what the session left, unless
        ``force``; ``FileError`` when no copy was kept; ``NotFound`` when it is kept no more.
        """
        steps = await self._steps(tokens, force=force)
        copies = {step.path: await self._blobs.get(Digest(step.was)) for step in steps if step.was != GONE}
        for step in steps:
            if step.was == GONE:
                await self._remove(step)
            elif step.now == GONE:
                await self._files.write(step.path, copies[step.path], new=True)
            else:
                await self._files.write(step.path, copies[step.path], known=Digest(step.now))
        return [step.path for step in steps]

    async def _steps(self, tokens: Iterable[JSON], *, force: bool) -> list[_Step]:
        first: dict[str, str] = {}
        last: dict[str, str] = {}
        for path, token in map(_read, tokens):
            first.setdefault(path, token.was)
            last[path] = token.becomes
        steps: list[_Step] = []
        changed: list[str] = []
        for path, was in first.items():
            now = await self._state(path)
            if now == was:
                continue
            if was == _TOO_LARGE:
                raise FileError(f"{shown(path)} was too large to be kept, so it cannot be brought back")
            if now != last[path]:
                changed.append(path)
            steps.append(_Step(path, now, was))
        if changed and not force:
            names = ", ".join(map(shown, changed))
            raise FileChanged(f"changed since the session wrote to it, so it is not overwritten: {names}")
        return steps

    async def _remove(self, step: _Step) -> None:
        if await self._state(step.path) != step.now:
            raise FileChanged(f"{shown(step.path)} has changed since it was looked at")
        await self._files.delete(step.path)

    async def _canonical(self, path: str) -> str:
        """Return the one way to write a path, also of a file that is not there yet."""
        try:
            return (await self._files.stat(path)).path
        except FileMissing:
            folder, _, name = path.rstrip("/").rpartition("/")
            if name in {"", ".", ".."}:
                raise
            return below(await self._canonical(folder or ("/" if path.startswith("/") else "")), name)

    async def _keep(self, path: str) -> str:
        try:
            found = await self._files.read(path, size=self._largest + 1)
        except FileMissing:
            return GONE
        if len(found.data) > self._largest:
            return _TOO_LARGE
        return await self._blobs.put(found.data)

    async def _state(self, path: str) -> str:
        """Return the digest of what a file holds now."""
        seen, at = hashlib.sha256(), 0
        try:
            while data := (await self._files.read(path, start=at, size=_PIECE)).data:
                seen.update(data)
                at += len(data)
        except FileMissing:
            return GONE
        return seen.hexdigest()


def _written(path: str, was: str, becomes: str) -> JSON:
    data = raw(path)
    try:
        token = _Token(path=data.decode(), was=was, becomes=becomes)
    except UnicodeDecodeError:
        token = _Token(raw=base64.b64encode(data).decode(), was=was, becomes=becomes)
    return msgspec.to_builtins(token)


def _read(token: JSON) -> tuple[str, _Token]:
    try:
        known = msgspec.convert(token, _Token)
        return (read_name(base64.b64decode(known.raw, validate=True)) if known.raw else known.path), known
    except (msgspec.ValidationError, binascii.Error) as error:
        raise InvalidInput(f"this is no token of a snapshot: {error}") from error
