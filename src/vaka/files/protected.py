"""Protected files: refused by path, and by identity when a hard link leads to them."""

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence

from vaka.core.types.errors import FileError, FileRefused
from vaka.files.paths import encode_name, fold_name, join_names, normalize_listed_name, parts_of, quote_path
from vaka.files.safe_open import LIST_FLAGS, LOOK_FLAGS, Opener, RootFolder

ANYWHERE = "**/"
_MAX_EXAMINED_FILES = 200_000
"""The limit for a search for hard links to protected files."""

FileIdentity = tuple[int, int]


class ProtectedFiles:
    """Paths that cannot be written to or deleted, each with everything below it.

    A path is relative to the root; ``**/.git`` is a ``.git`` in any folder. ``extra_rule`` may protect more.
    Names that some file system treats as a protected one (``.GIT``) are protected as well, and so are hard links to
    protected files.
    """

    def __init__(self, paths: Iterable[str] = (), extra_rule: Callable[[str], bool] | None = None) -> None:
        self.paths = (paths,) if isinstance(paths, str) else tuple(paths)
        self.extra_rule = extra_rule
        self._anchored: list[tuple[str, ...]] = []
        self._anywhere: list[tuple[str, ...]] = []
        for path in self.paths:
            names = parts_of(path.removeprefix(ANYWHERE))
            if not names:
                raise FileRefused(f"protected path {path!r} is the root; expected a path below it")
            (self._anywhere if path.startswith(ANYWHERE) else self._anchored).append(names)
        self._rules = [
            *((tuple(map(fold_name, names)), join_names(names), False) for names in self._anchored),
            *((tuple(map(fold_name, names)), ANYWHERE + join_names(names), True) for names in self._anywhere),
        ]

    def __bool__(self) -> bool:
        return bool(self._rules or self.extra_rule)

    def rule_for(self, parts: Sequence[str]) -> str:
        """Return the rule that protects a path, ``""`` if none does."""
        names = tuple(map(fold_name, parts))
        for rule, text, anywhere in self._rules:
            starts = range(len(names) - len(rule) + 1) if anywhere else range(1)
            if any(names[start : start + len(rule)] == rule for start in starts):
                return text
        return "the rules" if self.extra_rule and self.extra_rule(join_names(parts)) else ""

    def check(self, parts: Sequence[str]) -> None:
        """Raise ``FileRefused`` for a path that is protected."""
        if rule := self.rule_for(parts):
            raise FileRefused(f"{quote_path(join_names(parts))} is protected by {rule!r} and cannot be changed")

    def make_guard(self, root: RootFolder, opener: Opener) -> "IdentityGuard":
        """Return a guard that recognizes the protected files that exist now by their identity."""
        return IdentityGuard(self, root, opener)

    def search_roots(self) -> list[tuple[str, ...]]:
        """Return the folders that contain all protected files: the root, unless all rules are anchored."""
        return [()] if self._anywhere or self.extra_rule else list(self._anchored)

    def anchored_paths(self) -> list[tuple[str, ...]]:
        return list(self._anchored)


class IdentityGuard:
    """Recognizes protected files and folders by device and inode, under any name."""

    def __init__(self, protected: ProtectedFiles, root: RootFolder, opener: Opener) -> None:
        self._protected, self._root, self._opener = protected, root, opener
        self._protected_identities = dict(self._find_anchored_identities())

    def check(self, status: os.stat_result, path: str) -> None:
        """Raise ``FileRefused`` for a protected file or folder, or a hard link to one."""
        identity = (status.st_dev, status.st_ino)
        protected = self._protected_identities.get(identity)
        if protected is None and stat.S_ISREG(status.st_mode) and status.st_nlink > 1:
            protected = next((name for other, name in self._find_hard_linked_files() if other == identity), None)
        if protected is not None:
            raise FileRefused(
                f"{quote_path(path)} is the same file as {quote_path(protected)}, which is protected from changes"
            )

    def _find_anchored_identities(self) -> Iterator[tuple[FileIdentity, str]]:
        for parts in self._protected.anchored_paths():
            try:
                opened = self._opener.open(self._root, [encode_name(part) for part in parts], LOOK_FLAGS, links=True)
            except (OSError, FileError):
                continue  # missing or out of reach: its path alone protects it
            os.close(opened.fd)
            yield (opened.stat.st_dev, opened.stat.st_ino), join_names(parts)

    def _find_hard_linked_files(self) -> Iterator[tuple[FileIdentity, str]]:
        """Yield every protected file that has more than one name."""
        examined = 0
        pending = self._protected.search_roots()
        while pending:
            folder = pending.pop()
            for name, status in self._list_folder(folder):
                examined += 1
                if examined > _MAX_EXAMINED_FILES:
                    raise FileRefused(
                        f"it may be a hard link to one of more than {_MAX_EXAMINED_FILES} protected files"
                    )
                if stat.S_ISDIR(status.st_mode):
                    pending.append((*folder, name))
                elif status.st_nlink > 1 and self._protected.rule_for((*folder, name)):
                    yield (status.st_dev, status.st_ino), join_names((*folder, name))

    def _list_folder(self, folder: tuple[str, ...]) -> Iterator[tuple[str, os.stat_result]]:
        try:
            opened = self._opener.open(self._root, [encode_name(part) for part in folder], LIST_FLAGS, links=False)
        except (OSError, FileError):
            return  # not a folder, or not readable
        try:
            with os.scandir(opened.fd) as entries:
                for entry in entries:
                    yield normalize_listed_name(entry.name), entry.stat(follow_symlinks=False)
        except OSError:
            return  # removed while it was listed
        finally:
            os.close(opened.fd)
