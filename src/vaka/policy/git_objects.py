"""Read commits and trees of a git repository, without running git: settings of a folder could make git run programs."""

import mmap
import os
import re
import struct
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from vaka.policy.git_index import find_git_folder

_MAX_OBJECT_BYTES = 16 << 20
_MAX_LOG_BYTES = 1 << 20
_MAX_DELTAS = 64
_HEX_NAME = re.compile(r"[0-9a-f]{4,40}")
_TYPES = {1: "commit", 2: "tree", 3: "blob", 4: "tag"}


class UnreadableObject(Exception):
    """An object that is missing, too large, or of a format that is not known."""


class TreeEntry(NamedTuple):
    name: str
    id: str
    is_folder: bool


class GitObjects:
    """The objects of one repository."""

    def __init__(self, root: str) -> None:
        self._git = find_git_folder(root)
        self._common = _common_folder_of(self._git)
        self._stores = [f"{self._common}/objects", *_alternates_of(f"{self._common}/objects")]
        self._packs = [_Pack(path[:-4]) for store in self._stores for path in _list_packs(store)]

    def close(self) -> None:
        for pack in self._packs:
            pack.close()

    def read(self, object_id: str) -> tuple[str, bytes]:
        """Return the type and content of an object. Raises ``UnreadableObject``."""
        try:
            return self._read(object_id, 0)
        except (OSError, ValueError, IndexError, struct.error, zlib.error) as error:
            raise UnreadableObject(object_id) from error

    def _read(self, object_id: str, depth: int) -> tuple[str, bytes]:
        for store in self._stores:
            path = f"{store}/{object_id[:2]}/{object_id[2:]}"
            if os.path.lexists(path):
                return _parse_loose(Path(path).read_bytes())
        for pack in self._packs:
            offset = pack.find(bytes.fromhex(object_id))
            if offset is not None:
                return self._read_packed(pack, offset, depth)
        raise UnreadableObject(object_id)

    def _read_packed(self, pack: "_Pack", offset: int, depth: int) -> tuple[str, bytes]:
        if depth > _MAX_DELTAS:
            raise UnreadableObject("too many deltas")
        kind, size, start = pack.read_header(offset)
        if kind in _TYPES:
            return _TYPES[kind], pack.inflate(start, size)
        if kind == 6:
            distance, start = pack.read_distance(start)
            name, base = self._read_packed(pack, offset - distance, depth + 1)
        else:
            name, base = self._read(pack.data[start : start + 20].hex(), depth + 1)
            start += 20
        return name, _apply_delta(base, pack.inflate(start, size))

    # ---------------------------------------------------------------------------------------- names

    def resolve(self, name: str) -> str | None:
        """Return the commit that a name such as ``HEAD~2``, ``main`` or ``ab12cd`` means; ``None`` if it is unknown."""
        found = re.fullmatch(r"([\w./-]+)((?:~\d*|\^\d?)*)", name)
        if found is None:
            return None
        commit = self._resolve_name(found[1])
        for sign, digits in re.findall(r"([~^])(\d*)", found[2]):
            for step in range(int(digits or 1) if sign == "~" else 1):
                parents = self.parents_of(commit) if commit is not None else []
                number = int(digits or 1) - 1 if sign == "^" else 0
                commit = parents[number] if 0 <= number < len(parents) else None
                if step > _MAX_DELTAS:
                    return None
        return self.peel(commit) if commit is not None else None

    def _resolve_name(self, name: str) -> str | None:
        for prefix in ("", "refs/", "refs/tags/", "refs/heads/", "refs/remotes/"):
            if (found := self._read_reference(f"{prefix}{name}", 0)) is not None:
                return found
        return self._complete(name) if _HEX_NAME.fullmatch(name) else None

    def _read_reference(self, name: str, depth: int) -> str | None:
        if ".." in name or depth > 5:
            return None
        for folder in dict.fromkeys((self._git, self._common)):
            with suppress(OSError, UnicodeDecodeError):
                text = Path(f"{folder}/{name}").read_text("ascii").strip()
                if text.startswith("ref:"):
                    return self._read_reference(text[4:].strip(), depth + 1)
                return text if re.fullmatch(r"[0-9a-f]{40}", text) else None
        return dict(self._packed_references()).get(name)

    def _packed_references(self) -> Iterator[tuple[str, str]]:
        with suppress(OSError), open(f"{self._common}/packed-refs", encoding="utf-8", errors="replace") as lines:  # noqa: PTH123  # a string
            for line in lines:
                object_id, _, name = line.strip().partition(" ")
                if len(object_id) == 40:
                    yield name, object_id

    def _complete(self, prefix: str) -> str | None:
        """Return the only object with this prefix."""
        if len(prefix) == 40:
            return prefix
        found = {one for pack in self._packs for one in pack.find_prefix(prefix)}
        start, rest = prefix[:2], prefix[2:]
        for store in self._stores:
            with suppress(OSError):
                names = os.listdir(f"{store}/{start}")  # noqa: PTH208  # a string
                found |= {f"{start}{name}" for name in names if name.startswith(rest)}
        return found.pop() if len(found) == 1 else None

    def list_tips(self) -> set[str]:
        """Return the commits that references and their logs name."""
        tips = {object_id for _, object_id in self._packed_references()}
        for folder in dict.fromkeys((self._git, self._common)):
            for name in ("HEAD", "ORIG_HEAD", "MERGE_HEAD", "FETCH_HEAD"):
                tips |= {found for found in [self._read_reference(name, 0)] if found is not None}
            files = (
                path for part in ("refs", "logs") for path in Path(f"{folder}/{part}").rglob("*") if path.is_file()
            )
            for path in files:
                with suppress(OSError), path.open("rb") as file:
                    tips.update(map(bytes.decode, re.findall(rb"\b[0-9a-f]{40}\b", file.read(_MAX_LOG_BYTES))))
        return tips - {"0" * 40}

    # ---------------------------------------------------------------------------------------- content

    def peel(self, object_id: str) -> str | None:
        """Return the commit that an object is, or that a tag names; ``None`` for another one."""
        for _ in range(_MAX_DELTAS):
            kind, data = self.read(object_id)
            if kind != "tag":
                return object_id if kind == "commit" else None
            object_id = data[7:47].decode("ascii")
        return None

    def parents_of(self, commit: str) -> list[str]:
        return [line[7:47].decode("ascii") for line in self._header_of(commit) if line.startswith(b"parent ")]

    def tree_of(self, commit: str) -> str:
        return self._header_of(commit)[0][5:45].decode("ascii")

    def _header_of(self, commit: str) -> list[bytes]:
        return self.read(commit)[1].partition(b"\n\n")[0].split(b"\n")

    def list_tree(self, tree: str) -> Iterator[TreeEntry]:
        """Yield the entries of a tree. Raises ``UnreadableObject``."""
        data, offset = self.read(tree)[1], 0
        while offset < len(data):
            blank, end = data.index(b" ", offset), data.index(b"\0", offset)
            name, mode = os.fsdecode(data[blank + 1 : end]), data[offset:blank]
            yield TreeEntry(name, data[end + 1 : end + 21].hex(), mode == b"40000")
            offset = end + 21


def _common_folder_of(git: str) -> str:
    with suppress(OSError):
        return os.path.normpath(os.path.join(git, Path(f"{git}/commondir").read_text("utf-8").strip()))  # noqa: PTH118
    return git


def _alternates_of(store: str) -> list[str]:
    with suppress(OSError):
        lines = Path(f"{store}/info/alternates").read_text("utf-8").splitlines()
        return [os.path.join(store, line) for line in lines if line]  # noqa: PTH118  # text, not a file
    return []


def _list_packs(store: str) -> list[str]:
    with suppress(OSError):
        return [f"{store}/pack/{name}" for name in os.listdir(f"{store}/pack") if name.endswith(".idx")]  # noqa: PTH208
    return []


def _parse_loose(data: bytes) -> tuple[str, bytes]:
    inflated = _inflate(data, _MAX_OBJECT_BYTES)
    header, _, content = inflated.partition(b"\0")
    return header.split(b" ")[0].decode("ascii"), content


def _inflate(data: bytes | memoryview, limit: int) -> bytes:
    stream = zlib.decompressobj()
    found = stream.decompress(data, limit + 1)
    if len(found) > limit:
        raise UnreadableObject("it is too large")
    return found


class _Pack:
    """One pack, with its index of version 2."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._index: mmap.mmap | bytes = b""
        self.data: mmap.mmap | bytes = b""
        self._count = 0

    def _open(self) -> None:
        if self._index:
            return
        self._index, self.data = _map_file(f"{self._path}.idx"), _map_file(f"{self._path}.pack")
        if self._index[:8] != b"\xfftOc\0\0\0\2":
            raise UnreadableObject("the index of a pack is of another version")
        self._count = struct.unpack_from(">L", self._index, 8 + 255 * 4)[0]

    def close(self) -> None:
        for one in (self._index, self.data):
            if isinstance(one, mmap.mmap):
                one.close()
        self._index = self.data = b""

    def _range_of(self, first: int) -> tuple[int, int]:
        self._open()
        low = struct.unpack_from(">L", self._index, 8 + (first - 1) * 4)[0] if first else 0
        return low, struct.unpack_from(">L", self._index, 8 + first * 4)[0]

    def _name_at(self, position: int) -> bytes:
        start = 8 + 1024 + position * 20
        return self._index[start : start + 20]

    def _position_of(self, name: bytes) -> int:
        """Return the first position whose name is not before ``name``."""
        low, high = self._range_of(name[0])
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if self._name_at(middle) < name else (low, middle)
        return low

    def find(self, name: bytes) -> int | None:
        """Return the offset of an object, ``None`` if it is not in this pack."""
        position = self._position_of(name)
        if position >= self._count or self._name_at(position) != name:
            return None
        table = 8 + 1024 + self._count * 24
        offset: int = struct.unpack_from(">L", self._index, table + position * 4)[0]
        if offset & 0x80000000:
            offset = struct.unpack_from(">Q", self._index, table + self._count * 4 + (offset & 0x7FFFFFFF) * 8)[0]
        return offset

    def find_prefix(self, prefix: str) -> Iterator[str]:
        position = self._position_of(bytes.fromhex(prefix.ljust(40, "0")))
        while position < self._count and (name := self._name_at(position).hex()).startswith(prefix):
            yield name
            position += 1

    def read_header(self, offset: int) -> tuple[int, int, int]:
        """Return the type of an entry, the size of its content, and where that starts."""
        byte = self.data[offset]
        kind = byte >> 4 & 7
        size = byte & 15
        shift = 4
        while byte & 128:
            offset += 1
            byte = self.data[offset]
            size |= (byte & 127) << shift
            shift += 7
        return kind, size, offset + 1

    def read_distance(self, offset: int) -> tuple[int, int]:
        """Return how far back the base of a delta is, and where the delta starts."""
        byte = self.data[offset]
        value = byte & 127
        while byte & 128:
            offset += 1
            byte = self.data[offset]
            value = (value + 1 << 7) | (byte & 127)
        return value, offset + 1

    def inflate(self, start: int, size: int) -> bytes:
        if size > _MAX_OBJECT_BYTES:
            raise UnreadableObject("it is too large")
        stream = zlib.decompressobj()
        parts = list[bytes]()
        left = size
        while left > 0 and not stream.eof:
            piece = stream.decompress(self.data[start : start + 4096], left)
            start, left = start + 4096, left - len(piece)
            parts.append(piece)
        return b"".join(parts)


def _map_file(path: str) -> mmap.mmap:
    with open(path, "rb") as file:  # noqa: PTH123  # a string
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _apply_delta(base: bytes, delta: bytes) -> bytes:
    """Return the object that a delta makes of its base."""
    offset = _skip_number(delta, _skip_number(delta, 0))
    parts = list[bytes]()
    while offset < len(delta):
        code = delta[offset]
        offset += 1
        if not code & 128:  # insert
            parts.append(delta[offset : offset + code])
            offset += code
            continue
        start = size = 0
        for bit in range(7):
            if code >> bit & 1:
                value = delta[offset] << 8 * (bit if bit < 4 else bit - 4)
                offset += 1
                start, size = (start | value, size) if bit < 4 else (start, size | value)
        parts.append(base[start : start + (size or 0x10000)])
    return b"".join(parts)


def _skip_number(data: bytes, offset: int) -> int:
    while data[offset] & 128:
        offset += 1
    return offset + 1
