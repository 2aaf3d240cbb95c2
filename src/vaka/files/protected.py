"""Protected files: refused by path, and by identity when a hard link leads to them."""

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence

from vaka.core.types.errors import FileError, FileRefused
from vaka.files.paths import encode_name, fold_name, join_names, normalize_listed_name, parts_of, quote_path
from vaka.files.safe_open import LIST_FLAGS, LOOK_FLAGS, Opener, RootFolder

ANYWHERE = "**/"
_MAX_EXAMINED_FILES = 200_000
"""Files looked at to learn whether one of them is the same as another."""

FileIdentity = tuple[int, int]


class ProtectedFiles:
    """Paths nobody may write to or delete: each with all that is below it.

    A path counts from the root; ``**/.git`` is a ``.git`` in any folder. ``also`` may protect more, by its path. A name
    that a careless file system takes for a protected one (``.GIT``) is protected too, and so is a hard link to a
    protected file.
    """

    def __init__(self, paths: Iterable[str] = (), extra_rule: Callable[[str], bool] | None = None) -> None:
        self.paths = (paths,) if isinstance(paths, str) else tuple(paths)
        self.extra_rule = extra_rule
        self._anchored: list[tuple[str, ...]] = []
        self._anywhere: list[tuple[str, ...]] = []
        for path in self.paths:
            names = parts_of(path.removeprefix(ANYWHERE))
            if not names:
                raise FileRefused(f"protected path {path!r} names nothing")
            (self._anywhere if path.startswith(ANYWHERE) else self._anchored).append(names)
        self._rules = [
            *((tuple(map(fold_name, names)), join_names(names), False) for names in self._anchored),
            *((tuple(map(fold_name, names)), ANYWHERE + join_names(names), True) for names in self._anywhere),
        ]

    def __bool__(self) -> bool:
        return bool(self._rules or self.extra_rule)

    def rule_for(self, parts: Sequence[str]) -> str:
        """Return what protects a path, ``""`` when nothing does."""
        names = tuple(map(fold_name, parts))
        for rule, text, anywhere in self._rules:
            starts = range(len(names) - len(rule) + 1) if anywhere else range(1)
            if any(names[start : start + len(rule)] == rule for start in starts):
                return text
        return "the rules" if self.extra_rule and self.extra_rule(join_names(parts)) else ""

    def check(self, parts: Sequence[str]) -> None:
        """Raise ``FileRefused`` for a path that is protected."""
        if rule := self.rule_for(parts):
            raise FileRefused(f"{quote_path(join_names(parts))} is protected by {rule!r} and stays as it is")

    def make_guard(self, root: RootFolder, opener: Opener) -> "IdentityGuard":
        """Return what tells protected files of a disk by what they are, as of now."""
        return IdentityGuard(self, root, opener)

    def search_roots(self) -> list[tuple[str, ...]]:
        """Return the folders that hold everything protected: the whole tree, unless all paths count from the root."""
        return [()] if self._anywhere or self.extra_rule else list(self._anchored)

    def anchored_paths(self) -> list[tuple[str, ...]]:
        """Return the protected paths that count from the root."""
        return list(self._anchored)


class IdentityGuard:
    """Knows protected files and folders by their identity, so that no other name leads to them."""

    def __init__(self, protected: ProtectedFiles, root: RootFolder, opener: Opener) -> None:
        self._protected, self._root, self._opener = protected, root, opener
        self._protected_identities = dict(self._find_anchored_identities())

    def check(self, status: os.stat_result, path: str) -> None:
        """Raise ``FileRefused`` when this is a protected file or folder, also as a hard link to one."""
        identity = (status.st_dev, status.st_ino)
        own = self._protected_identities.get(identity)
        if own is None and stat.S_ISREG(status.st_mode) and status.st_nlink > 1:
            own = next((name for other, name in self._find_hard_linked_files() if other == identity), None)
        if own is not None:
            raise FileRefused(
                f"{quote_path(path)} is the same file as {quote_path(own)}, which is protected and stays as it is"
            )

    def _find_anchored_identities(self) -> Iterator[tuple[FileIdentity, str]]:
        for parts in self._protected.anchored_paths():
            try:
                found = self._opener.open(self._root, [encode_name(part) for part in parts], LOOK_FLAGS, links=True)
            except (OSError, FileError):
                continue  # it is not there, or not ours: its path alone protects it
            os.close(found.fd)
            yield (found.stat.st_dev, found.stat.st_ino), join_names(parts)

    def _find_hard_linked_files(self) -> Iterator[tuple[FileIdentity, str]]:
        """Yield every protected file that has more than one name."""
        seen = 0
        waiting = self._protected.search_roots()
        while waiting:
            folder = waiting.pop()
            for name, looked in self._list_folder(folder):
                seen += 1
                if seen > _MAX_EXAMINED_FILES:
                    raise FileRefused(
                        f"more than {_MAX_EXAMINED_FILES} files are protected; whether this is one of them is not known"
                    )
                if stat.S_ISDIR(looked.st_mode):
                    waiting.append((*folder, name))
                elif looked.st_nlink > 1 and self._protected.rule_for((*folder, name)):
                    yield (looked.st_dev, looked.st_ino), join_names((*folder, name))

    def _list_folder(self, folder: tuple[str, ...]) -> Iterator[tuple[str, os.stat_result]]:
        try:
            opened = self._opener.open(self._root, [encode_name(part) for part in folder], LIST_FLAGS, links=False)
        except (OSError, FileError):
            return  # a file, or nothing that could be listed
        try:
            with os.scandir(opened.fd) as found:
                for entry in found:
                    yield normalize_listed_name(entry.name), entry.stat(follow_symlinks=False)
        except OSError:
            return  # it went away while it was read
        finally:
            os.close(opened.fd)
