"""What must stay as it is, whatever name it is reached by."""

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence

from vaka.core.types.errors import FileError, FileRefused
from vaka.files.names import folded, join, listed_name, parts_of, raw, shown
from vaka.files.ways import LIST, LOOK, Root, Way

ANYWHERE = "**/"
_MOST = 200_000
"""Files looked at to learn whether one of them is the same as another."""

Identity = tuple[int, int]


class Protected:
    """Paths nobody may write to or delete: each with all that is below it.

    A path counts from the root; ``**/.git`` is a ``.git`` in any folder. ``also`` may protect more, by its path. A name
    that a careless file system takes for a protected one (``.GIT``) is protected too, and so is a hard link to a
    protected file.
    """

    def __init__(self, paths: Iterable[str] = (), also: Callable[[str], bool] | None = None) -> None:
        self.paths = (paths,) if isinstance(paths, str) else tuple(paths)
        self.also = also
        self._anchored: list[tuple[str, ...]] = []
        self._anywhere: list[tuple[str, ...]] = []
        for path in self.paths:
            names = parts_of(path.removeprefix(ANYWHERE))
            if not names:
                raise FileRefused(f"protected path {path!r} names nothing")
            (self._anywhere if path.startswith(ANYWHERE) else self._anchored).append(names)
        self._rules = [
            *((tuple(map(folded, names)), join(names), False) for names in self._anchored),
            *((tuple(map(folded, names)), ANYWHERE + join(names), True) for names in self._anywhere),
        ]

    def __bool__(self) -> bool:
        return bool(self._rules or self.also)

    def rule(self, parts: Sequence[str]) -> str:
        """Return what protects a path, ``""`` when nothing does."""
        names = tuple(map(folded, parts))
        for rule, text, anywhere in self._rules:
            starts = range(len(names) - len(rule) + 1) if anywhere else range(1)
            if any(names[start : start + len(rule)] == rule for start in starts):
                return text
        return "the rules" if self.also and self.also(join(parts)) else ""

    def check(self, parts: Sequence[str]) -> None:
        """Raise ``FileRefused`` for a path that is protected."""
        if rule := self.rule(parts):
            raise FileRefused(f"{shown(join(parts))} is protected by {rule!r} and stays as it is")

    def guard(self, root: Root, way: Way) -> "Guard":
        """Return what tells protected files of a disk by what they are, as of now."""
        return Guard(self, root, way)

    def starts(self) -> list[tuple[str, ...]]:
        """Return the folders that hold everything protected: the whole tree, unless all paths count from the root."""
        return [()] if self._anywhere or self.also else list(self._anchored)

    def anchored(self) -> list[tuple[str, ...]]:
        """Return the protected paths that count from the root."""
        return list(self._anchored)


class Guard:
    """Knows protected files and folders by their identity, so that no other name leads to them."""

    def __init__(self, protected: Protected, root: Root, way: Way) -> None:
        self._protected, self._root, self._way = protected, root, way
        self._known = dict(self._identities())

    def check(self, looked: os.stat_result, path: str) -> None:
        """Raise ``FileRefused`` when this is a protected file or folder, also as a hard link to one."""
        identity = (looked.st_dev, looked.st_ino)
        own = self._known.get(identity)
        if own is None and stat.S_ISREG(looked.st_mode) and looked.st_nlink > 1:
            own = next((name for other, name in self._files() if other == identity), None)
        if own is not None:
            raise FileRefused(f"{shown(path)} is the same file as {shown(own)}, which is protected and stays as it is")

    def _identities(self) -> Iterator[tuple[Identity, str]]:
        for parts in self._protected.anchored():
            try:
                found = self._way.open(self._root, [raw(part) for part in parts], LOOK, links=True)
            except (OSError, FileError):
                continue  # it is not there, or not ours: its path alone protects it
            os.close(found.fd)
            yield (found.stat.st_dev, found.stat.st_ino), join(parts)

    def _files(self) -> Iterator[tuple[Identity, str]]:
        """Yield every protected file that has more than one name."""
        seen = 0
        waiting = self._protected.starts()
        while waiting:
            folder = waiting.pop()
            for name, looked in self._entries(folder):
                seen += 1
                if seen > _MOST:
                    raise FileRefused(
                        f"more than {_MOST} files are protected; whether this is one of them is not known"
                    )
                if stat.S_ISDIR(looked.st_mode):
                    waiting.append((*folder, name))
                elif looked.st_nlink > 1 and self._protected.rule((*folder, name)):
                    yield (looked.st_dev, looked.st_ino), join((*folder, name))

    def _entries(self, folder: tuple[str, ...]) -> Iterator[tuple[str, os.stat_result]]:
        try:
            opened = self._way.open(self._root, [raw(part) for part in folder], LIST, links=False)
        except (OSError, FileError):
            return  # a file, or nothing that could be listed
        try:
            with os.scandir(opened.fd) as found:
                for entry in found:
                    yield listed_name(entry.name), entry.stat(follow_symlinks=False)
        except OSError:
            return  # it went away while it was read
        finally:
            os.close(opened.fd)
