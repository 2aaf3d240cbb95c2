"""``$include``: a table ``{$include: FILE}`` of a definition stands for the document or the text in that file."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import msgspec

from vaka.config.documents import JsonPath, read_errors
from vaka.core.types.errors import ConfigError
from vaka.genx.definitions.codecs import FORMATS, MAX_FILE_BYTES, LocatedDocument, read_document
from vaka.genx.definitions.fields import MAX_NESTING, MAX_VALUES, join_words

INCLUDE = "$include"
TEXT_SUFFIXES = (".md", ".txt")
"""The ends of names of files whose whole text is the value."""
MAX_INCLUDES = 100
"""The files that one definition includes, directly or not."""
MAX_INCLUDED_BYTES = 4 * MAX_FILE_BYTES
"""The size that these files have together."""


class IncludeScope(msgspec.Struct, frozen=True, kw_only=True):
    """The files that may be included."""

    root: Path
    """The folder that has the definitions: no file outside of it is included."""
    folders: tuple[str, ...] = ()
    """The folders of it in which included files must be; empty for any."""


class ComposedDocument:
    """A document with what it includes; it knows the file and line of each value."""

    def __init__(self, path: Path, document: LocatedDocument) -> None:
        self.value: object = document.value
        self.files: list[Path] = []
        """The included files, also unreadable files."""
        self._parts: dict[JsonPath, tuple[str, Path, LocatedDocument, JsonPath]] = {(): ("", path, document, ())}
        """By their places: what comes from a file, with where it was included, and its place in the file."""

    def place_of(self, path: JsonPath) -> str:
        """Return ``file:line`` of a value, after the ``file:line`` of the ``$include`` it comes from."""
        size = next(size for size in range(len(path), -1, -1) if path[:size] in self._parts)
        before, file, document, inner = self._parts[path[:size]]
        return f"{before}{file}:{document.line_of((*inner, *path[size:]))}"

    def line_of(self, path: JsonPath) -> int:
        """Return the line of a value in the file of the document itself."""
        for size in range(len(path), -1, -1):
            part = self._parts.get(path[:size])
            if part is not None and not part[0]:
                return part[2].line_of((*part[3], *path[size:]))
        return 1

    def add_part(self, at: JsonPath, before: str, file: Path, document: LocatedDocument, inner: JsonPath) -> None:
        self._parts[at] = (before, file, document, inner)

    def spread_part(self, at: JsonPath, count: int) -> None:
        """Say that the items of the list at ``at`` are now in the list around it, from there on."""
        *around, first = at
        size = len(at)
        before, file, document, inner = self._parts[at]
        moved = {path: self._parts.pop(path) for path in [*self._parts] if path[:size] == at}
        for index in range(count):
            self._parts[(*around, cast("int", first) + index)] = (before, file, document, (*inner, index))
        for path, part in moved.items():
            if path != at:
                self._parts[(*around, cast("int", first) + cast("int", path[size]), *path[size + 1 :])] = part


def read_composed(path: Path, scope: IncludeScope) -> ComposedDocument:
    """Return the document of a file with what it includes. Raises ``ConfigError`` with file and line."""
    document = read_document(path)
    composed = ComposedDocument(path, document)
    if not _has_include(document.value):
        return composed
    composer = _Composer(composed, scope)
    try:
        composed.value = composer.compose(document.value, _Place(path, document, (), "", (path.resolve(),)), ())
    except ConfigError as error:
        raise IncludeError(str(error), composed.files) from None
    return composed


class IncludeError(ConfigError):
    """A file that cannot be included; ``files`` are the files that were looked at."""

    def __init__(self, message: str, files: list[Path]) -> None:
        super().__init__(message)
        self.files = files


def _has_include(document: object) -> bool:
    values = [document]
    seen = set[int]()  # an alias of YAML is the same table or list in many places, together more than can be walked
    while values:
        value = values.pop()
        if id(value) in seen:
            continue
        if isinstance(value, dict | list):
            seen.add(id(cast("object", value)))
        if isinstance(value, dict):
            table = cast("dict[str, object]", value)
            if INCLUDE in table:
                return True
            values += table.values()
        elif isinstance(value, list):
            values += cast("list[object]", value)
    return False


class _Place(msgspec.Struct, frozen=True):
    """Where a value was written."""

    file: Path
    document: LocatedDocument
    path: JsonPath
    before: str
    """The places of the ``$include`` tables that led to the file, each with a colon and a space."""
    open_files: tuple[Path, ...]
    """The files that include each other down to this one."""

    def inside(self, key: str | int) -> "_Place":
        return msgspec.structs.replace(self, path=(*self.path, key))

    def __str__(self) -> str:
        return f"{self.before}{self.file}:{self.document.line_of(self.path)}"


class _Composer:
    """Replaces the tables with ``$include`` of one document."""

    def __init__(self, composed: ComposedDocument, scope: IncludeScope) -> None:
        self.composed, self.scope = composed, scope
        self.values = self.bytes = 0

    def compose(self, value: object, place: _Place, at: JsonPath) -> object:
        """Return a value with everything that it includes; ``at`` is its place in the result."""
        self.values += 1
        if self.values > MAX_VALUES or len(at) > MAX_NESTING:
            limits = f"{MAX_VALUES} values or {MAX_NESTING} levels"
            raise ConfigError(f"{place}: the document has more than {limits} with what it includes")
        if isinstance(value, list):
            return list(self.iter_items(cast("list[object]", value), place, at))
        if not isinstance(value, dict):
            return value
        table = cast("dict[str, object]", value)
        if INCLUDE not in table:
            return {key: self.compose(inner, place.inside(key), (*at, key)) for key, inner in table.items()}
        return self.include(table, place, at)

    def iter_items(self, items: list[object], place: _Place, at: JsonPath) -> Iterator[object]:
        """Yield the items of a list; an item that includes a list stands for the items of that list."""
        count = 0
        for index, item in enumerate(items):
            given: Any = item
            inner = place.inside(index)
            is_include = isinstance(item, dict) and INCLUDE in given
            if count != index:
                self.add_part((*at, count), inner)
            found = self.compose(given, inner, (*at, count))
            if is_include and isinstance(found, list):
                included = cast("list[object]", found)
                self.composed.spread_part((*at, count), len(included))
                count += len(included)
                yield from included
            else:
                count += 1
                yield found

    def include(self, table: dict[str, object], place: _Place, at: JsonPath) -> object:
        """Return what a file has; fields beside ``$include`` are added to its table, and win."""
        name, target = table[INCLUDE], place.inside(INCLUDE)
        if not isinstance(name, str):
            raise ConfigError(f"{target}: $include: expected the name of a file")
        found = self.read(name, target)
        added = {key: inner for key, inner in table.items() if key != INCLUDE}
        inside = _Place(found[0], found[1], (), f"{target}: ", (*place.open_files, found[0].resolve()))
        self.add_part(at, inside)
        value = self.compose(found[1].value, inside, at)
        if not added:
            return value
        if not isinstance(value, dict):
            kind = "a list" if isinstance(value, list) else "a text or a number"
            raise ConfigError(f"{target}: $include: {name!r} has {kind}, to which no fields can be added")
        for key in added:
            self.add_part((*at, key), place.inside(key))
        own = {key: self.compose(inner, place.inside(key), (*at, key)) for key, inner in added.items()}
        return {**cast("dict[str, object]", value), **own}

    def read(self, name: str, target: _Place) -> tuple[Path, LocatedDocument]:
        """Return the file with a name and its document."""
        path = self.find(name, target)
        if (real := path.resolve()) in target.open_files:
            chain = [*target.open_files[target.open_files.index(real) :], real]
            raise ConfigError(f"{target}: the files include each other: {' → '.join(one.name for one in chain)}")
        if len(target.open_files) > MAX_NESTING:
            raise ConfigError(f"{target}: files include each other more than {MAX_NESTING} deep")
        try:
            with read_errors(path):
                self.bytes += path.stat().st_size
                if self.bytes > MAX_INCLUDED_BYTES or len(self.composed.files) > MAX_INCLUDES:
                    limit = f"{MAX_INCLUDES} files or {MAX_INCLUDED_BYTES} bytes"
                    raise ConfigError(f"a definition includes more than {limit}")
                if path.suffix.lower() not in TEXT_SUFFIXES:
                    return path, read_document(path)
                with path.open("rb") as file:
                    text = file.read(MAX_FILE_BYTES + 1)
                if len(text) > MAX_FILE_BYTES:
                    raise ConfigError(f"{path}: larger than {MAX_FILE_BYTES} bytes")
                return path, LocatedDocument(text.decode("utf-8-sig"), lambda path: 1)
        except ConfigError as error:
            raise ConfigError(f"{target}: $include: {error}") from None

    def find(self, name: str, target: _Place) -> Path:
        """Return the file with a name, which is relative to the file that includes it."""
        known = (*FORMATS, *TEXT_SUFFIXES)
        path = target.file.parent / name
        if path.suffix.lower() not in known:
            raise ConfigError(f"{target}: $include: {name!r} does not end in {join_words(known)}")
        self.composed.files.append(path)
        root = self.scope.root.resolve()
        try:
            real, is_file = path.resolve(), path.is_file()
        except (OSError, ValueError, RuntimeError):  # a NUL character, a name that is too long, a loop of links
            real, is_file = path, False
        if Path(name).is_absolute() or not real.is_relative_to(root):
            raise ConfigError(f"{target}: $include: {name!r} is not inside of {self.scope.root}")
        folders = self.scope.folders
        if folders and not any(real.is_relative_to(root / folder) for folder in folders):
            allowed = f"of a folder of definitions such as {folders[0]}/"
            raise ConfigError(f"{target}: $include: {name!r} is not inside {allowed}; `vaka trust` allows it")
        if not is_file:
            raise ConfigError(f"{target}: $include: {name!r} not found in {target.file.parent}")
        return path

    def add_part(self, at: JsonPath, place: _Place) -> None:
        self.composed.add_part(at, place.before, place.file, place.document, place.path)
