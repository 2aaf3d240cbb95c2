"""The files of a text memory: a folder of Markdown files in a tree of files."""

import hashlib
import unicodedata
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from datetime import UTC, datetime
from urllib.parse import unquote

import msgspec

from vaka.core.ports.files import FileInfo, Files
from vaka.core.ports.tool import ToolContext
from vaka.core.types.errors import FileChanged, FileError, FileMissing, FileRefused, InvalidInput
from vaka.core.types.ids import Digest
from vaka.matching.globs import NameMatcher, compile_name, matches_names, parse_bracket
from vaka.text.words import fold_text

ROOT = "/memories"
MAX_FILE_BYTES = 256 * 1024
MAX_FILES = 1_000
MAX_DEPTH = 16
MAX_NAME_BYTES = 255
MAX_LINE = 500
"""Characters of one line that a search shows."""
_DECODINGS = 4
"""How often a name is percent-decoded to find a hidden separator."""

Names = tuple[str, ...]
FindLines = Callable[[Files, str, str, int], Awaitable["Sequence[tuple[str, int, str]]"]]
"""Returns path, number and text of the lines of a folder that match a regular expression, up to a limit."""


class MemoryMatch(msgspec.Struct, frozen=True, kw_only=True):
    """A line that a search found."""

    path: str
    line_number: int
    line: str


class MemoryMatches(msgspec.Struct, frozen=True, kw_only=True):
    """The hits of a search; ``truncated`` if there are more."""

    matches: tuple[MemoryMatch, ...] = ()
    truncated: bool = False


class WriteJournal:
    """Remembers in the log what a call is about to write, so that a second run of the call does not write it twice."""

    def __init__(self, context: ToolContext) -> None:
        self._state, self._key = context.state, f"$memory/{context.call}"
        self.repeated = context.attempt > 1
        """Whether an earlier run of the call was cut off."""

    def has_written(self, digest: Digest) -> bool:
        return bool(self._state.get(self._key) == digest)

    async def begin(self, digest: Digest) -> None:
        await self._state.set_now(self._key, digest)

    def end(self) -> None:
        """Forget the digest together with the result of the call."""
        if self._state.get(self._key) is not None:
            self._state.set(self._key, None)


class TextMemoryFiles:
    """The files of one memory. Paths may be relative to it, or begin with ``/memories``.

    ``FileRefused``: the path leaves the memory. ``FileMissing``: there is no such file. ``redact`` removes secrets from
    each text before it is stored, ``find_lines`` searches with a regular expression.
    """

    def __init__(
        self,
        files: Files,
        folder: str,
        *,
        redact: Callable[[str], str],
        now: Callable[[], float],
        find_lines: FindLines,
        max_file_bytes: int = MAX_FILE_BYTES,
    ) -> None:
        self._files = files
        self._folder = folder
        self._redact = redact
        self._now = now
        self._find_lines, self._max_file_bytes = find_lines, max_file_bytes

    async def list_files(self, namespace: str = "", *, glob: str = "") -> list[FileInfo]:
        """Return the files, sorted by path, or only files in the folder ``namespace`` whose path matches ``glob``."""
        matches = _compile_glob(glob)
        async with aclosing(self._walk(names_of(namespace))) as found:
            listed = [info async for names, info in found if info.kind == "file" and matches(names)]
        return sorted(listed, key=lambda info: info.path)

    async def read_file(self, name: str) -> str:
        data = await self.load(names_of(name))
        if data is None:
            raise FileMissing(f"{name!r}: the memory has no such file")
        return decode(name, data)

    async def append_note(
        self, file: str, content: str, *, title: str = "", journal: WriteJournal | None = None
    ) -> FileInfo:
        """Add a note to the end of a file under the heading ``title``, by default the time."""
        note = self._format_note(content, title)

        def add(text: str | None) -> str:
            return f"{text.rstrip()}\n\n{note}" if text and text.strip() else note

        return await self.change(names_of(file), add, journal)

    async def overwrite_with_note(
        self, file: str, content: str, *, title: str = "", journal: WriteJournal | None = None
    ) -> FileInfo:
        """Replace a file by one note."""
        note = self._format_note(content, title)
        return await self.change(names_of(file), lambda _: note, journal)

    async def search(
        self, query: str, *, regex: bool = False, namespace: str = "", glob: str = "", max_results: int = 20
    ) -> MemoryMatches:
        """Return lines that contain a text, compared as ``fold_text`` does it, or match a regular expression."""
        if not query.strip() or max_results < 1:
            raise InvalidInput("a search of the memory needs a query that is not empty, and max_results of at least 1")
        found = self._search_regex if regex else self._search_text
        matches = await found(query, namespace, glob, max_results + 1)
        return MemoryMatches(matches=tuple(matches[:max_results]), truncated=len(matches) > max_results)

    async def change(
        self, names: Names, make: Callable[[str | None], str], journal: WriteJournal | None = None
    ) -> FileInfo:
        """Replace the text of a file by what ``make`` returns for it; again when another writer was faster.

        ``make`` gets ``None`` when there is no file. With ``journal`` a text that an earlier run has written stays.
        """
        path = self._writable_path(names)
        try:
            while True:
                data = await self.load(names)
                if journal is not None and data is not None and journal.has_written(_digest_of(data)):
                    return msgspec.structs.replace(await self._files.stat(path), path=show_path(names))
                new = self._encode(names, make(None if data is None else decode(show_path(names), data)))
                if data is None:
                    await self._check_count()
                if journal is not None:
                    await journal.begin(_digest_of(new))
                try:
                    known = None if data is None else _digest_of(data)
                    info = await self._files.write(path, new, known=known, new=data is None)
                except FileChanged:
                    continue
                return msgspec.structs.replace(info, path=show_path(names))
        finally:
            if journal is not None:
                journal.end()

    async def load(self, names: Names) -> bytes | None:
        """Return the bytes of a file, ``None`` when there is none. Raises ``FileError`` for a folder."""
        if not names:
            raise FileError(f"{ROOT} is a folder, not a file")
        try:
            return (await self._files.read(self._path_of(names), size=MAX_READ_BYTES)).data
        except FileMissing:
            return None

    async def kind_of(self, names: Names) -> str:
        """Return ``file`` or ``folder``, ``""`` when there is nothing; the memory itself is always a folder."""
        if not names:
            return "folder"
        try:
            return (await self._files.stat(self._path_of(names))).kind
        except FileMissing:
            return ""

    async def list_below(self, names: Names) -> list[tuple[Names, FileInfo]]:
        """Return everything below a folder with its names from the memory on, parents first."""
        async with aclosing(self._walk(names)) as found:
            return [entry async for entry in found]

    async def delete(self, names: Names) -> int:
        """Delete a file, or a folder with all it has; return the number of files. The memory itself stays."""
        if await self.kind_of(names) in ("folder", ""):
            count = await delete_below(self._files, self._path_of(names))
            return count + (bool(names) and await _delete_one(self._files, self._path_of(names)) and not count)
        return int(await _delete_one(self._files, self._path_of(names)))

    async def rename(self, old: Names, new: Names, *, repeated: bool = False) -> None:
        """Move a file or a folder. With ``repeated``, an earlier run may have moved some files, or all."""
        kind = await self.kind_of(old)
        if repeated and not kind:
            return
        if kind != "folder":
            await self._move_file(old, new, repeated=repeated)
            return
        below = await self.list_below(old)
        for names in [names for names, info in below if info.kind != "folder"]:
            await self._move_file(names, (*new, *names[len(old) :]), repeated=repeated)
        for names in [*reversed([names for names, info in below if info.kind == "folder"]), old]:
            with suppress(FileError):  # another writer has made a file in it
                await _delete_one(self._files, self._path_of(names))

    async def _move_file(self, old: Names, new: Names, *, repeated: bool) -> None:
        """Copy a file until the copy is what the file has, as another writer may change it, and delete it."""
        copied = await self.load(new) if repeated else None
        if copied != await self.load(old):
            copied = None
        while (data := await self.load(old)) is not None and data != copied:
            known = None if copied is None else _digest_of(copied)
            await self._files.write(self._writable_path(new), data, known=known, new=copied is None)
            copied = data
        await _delete_one(self._files, self._path_of(old))

    def _format_note(self, content: str, title: str) -> str:
        if not content.strip():
            raise InvalidInput("a note needs a content that is not empty")
        title = " ".join(title.split()) or f"{datetime.fromtimestamp(self._now(), UTC):%Y-%m-%d %H:%M:%S} UTC"
        return f"## {title}\n\n{content.strip()}\n"

    def _encode(self, names: Names, text: str) -> bytes:
        data = self._redact(text).encode("utf-8", "replace")
        if len(data) > self._max_file_bytes:
            raise FileError(
                f"{show_path(names)} would have {len(data)} bytes, more than the {self._max_file_bytes} that a file of "
                "the memory may have; write less, or to another file"
            )
        return data

    async def _check_count(self) -> None:
        if len(await self.list_files()) >= MAX_FILES:
            raise FileError(f"the memory has {MAX_FILES} files, the most it can have; delete some")

    async def _search_text(self, query: str, namespace: str, glob: str, limit: int) -> list[MemoryMatch]:
        wanted, found = fold_text(query) or query, list[MemoryMatch]()  # a lone accent folds to nothing
        for info in await self.list_files(namespace, glob=glob):
            data = await self.load(names_of(info.path))
            lines = (data or b"").decode("utf-8", "replace").split("\n")  # as the other commands count them
            found += [_match(info.path, at, line) for at, line in enumerate(lines, 1) if wanted in fold_text(line)]
            if len(found) >= limit:
                break
        return found[:limit]

    async def _search_regex(self, query: str, namespace: str, glob: str, limit: int) -> list[MemoryMatch]:
        if not await self.list_files(namespace):
            return []
        matches, found = _compile_glob(glob), list[MemoryMatch]()
        # The glob is applied here, so that it means the same in both searches.
        most = MAX_FILES * limit if glob else limit
        for path, number, line in await self._find_lines(self._files, self._path_of(names_of(namespace)), query, most):
            names = self._names_in_memory(path)
            if matches(names):
                found.append(_match(show_path(names), number, line))
        return found[:limit]

    async def _walk(self, start: Names) -> AsyncGenerator[tuple[Names, FileInfo]]:
        """Yield everything below a folder, parents first; links are listed and not followed."""
        async with aclosing(walk_below(self._files, self._path_of(start))) as found:
            async for info in found:
                names = self._names_in_memory(info.path)
                yield names, msgspec.structs.replace(info, path=show_path(names))

    def _writable_path(self, names: Names) -> str:
        if self._redact(show_path(names)) != show_path(names):
            raise FileRefused("the name of a file of the memory contains a secret; choose another one")
        return self._path_of(names)

    def _path_of(self, names: Names) -> str:
        return "/".join((self._folder, *names))

    def _names_in_memory(self, path: str) -> Names:
        return tuple(path.removeprefix(self._folder).strip("/").split("/"))


async def walk_below(files: Files, folder: str) -> AsyncGenerator[FileInfo]:
    """Yield everything below a folder, parents first; links are listed and not followed."""
    pending = [folder]
    while pending:
        try:
            entries = await files.entries(pending.pop())
        except FileMissing:
            continue
        for info in entries:
            yield info
            if info.kind == "folder":
                pending.append(info.path)


async def delete_below(files: Files, folder: str) -> int:
    """Delete everything below a folder; return the number of files.

    What cannot be deleted, such as a named pipe, does not keep the rest; its error is raised in the end.
    """
    async with aclosing(walk_below(files, folder)) as found:
        below = [info async for info in found]
    errors: list[FileError] = []
    for info in reversed(below):
        try:
            await _delete_one(files, info.path)
        except FileError as error:
            errors.append(error)
    if errors:
        raise errors[0]
    return sum(info.kind != "folder" for info in below)


async def _delete_one(files: Files, path: str) -> bool:
    try:
        await files.delete(path)
    except FileMissing:
        return False  # the folders of some trees go with their last file
    return True


MAX_READ_BYTES = 16 * 1024**2
"""The most bytes that are read of a file, which another program may have written."""


def names_of(name: str) -> Names:
    """Return the names from the memory to a file. Raises ``FileRefused`` for a path that leaves the memory."""
    inside = name == ROOT or name.startswith(f"{ROOT}/")
    return check_names(name, name[len(ROOT) :] if inside else name)


def check_names(path: str, rest: str) -> Names:
    """Return the names of a path below the memory. Raises ``FileRefused``, also for ``..`` in another spelling."""
    names = tuple(name for name in rest.split("/") if name not in ("", "."))
    for name in names:
        if any(_is_refused(spelling) for spelling in _spellings(name)):
            raise FileRefused(
                f"{path[:200]!r} is not allowed: a path of the memory has no '..', backslash or control character"
            )
        if len(name.encode("utf-8", "surrogatepass")) > MAX_NAME_BYTES:
            raise FileRefused(f"{path[:100]!r}… has a name of more than {MAX_NAME_BYTES} bytes")
    if len(names) > MAX_DEPTH:
        raise FileRefused(f"{path[:100]!r}… is more than {MAX_DEPTH} folders deep")
    return names


def _spellings(name: str) -> set[str]:
    """Return a name with its percent-encoding decoded, and with characters that look like others replaced."""
    found = {name}
    for _ in range(_DECODINGS):
        name = unquote(name, errors="surrogateescape")
        found.add(name)
    return found | {unicodedata.normalize("NFKC", spelling) for spelling in found}


def _is_refused(name: str) -> bool:
    if name.strip() in (".", "..") or any(letter in "/\\" for letter in name):
        return True
    return any(unicodedata.category(letter) in ("Cc", "Cs") for letter in name)


def show_path(names: Names) -> str:
    """Return the path of a file as the model writes it."""
    return "/".join((ROOT, *names))


def decode(path: str, data: bytes) -> str:
    """Return the text of a file. Raises ``FileError`` if it is not UTF-8: a change would damage it."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise FileError(f"{path} is not a text in UTF-8") from error


def _digest_of(data: bytes) -> Digest:
    return Digest(hashlib.sha256(data).hexdigest())


def _match(path: str, number: int, line: str) -> MemoryMatch:
    return MemoryMatch(path=path, line_number=number, line=line.strip()[:MAX_LINE])


def _compile_glob(glob: str) -> Callable[[Names], bool]:
    """Return a function that matches paths: a pattern without a slash matches the name alone."""
    if not glob:
        return lambda names: True
    segments: list[NameMatcher | None] = [
        None if part == "**" else compile_name(part, parse_bracket, lenient=True)
        for part in glob.removeprefix(ROOT).strip("/").split("/")
    ]
    if len(segments) == 1 and "/" not in glob:
        return lambda names: matches_names(segments, names[-1:])
    return lambda names: matches_names(segments, names)
