"""Which files the texts of a project may come from, and the search for them.

Links and imports must not carry other files into a prompt.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec

from vaka.matching.sensitive_paths import holds_secrets

MAX_DEPTH = 16
"""How deep folders of commands, agents and skills are searched."""
DOCUMENT_NAMES = ("README", "CHANGELOG", "CONTRIBUTING", "LICENSE", "CLAUDE", "AGENTS", "INDEX", "ATTRIBUTION")
"""Names of files in a folder of agents that are not agents, if they have no head."""
TEXT_SUFFIXES = (".md", ".mdc", ".markdown", ".txt")
"""The names of files outside of the folders that a link may lead to."""


class FileScope(msgspec.Struct, frozen=True, kw_only=True):
    """The folders whose files may be read.

    A link may lead to a text elsewhere if the project is trusted, and never to a file that is known to hold secrets.
    """

    folders: tuple[str, ...]
    """Real paths."""
    user: str = ""
    """The real path of the user's folder: of its files only texts may be read, since its settings may have secrets."""
    trusted: bool = True

    @classmethod
    def of(cls, folders: Iterable[Path], *, user: Path | None = None, trusted: bool = True) -> "FileScope":
        """Return the scope of folders, with the user's folder."""
        own = "" if user is None else os.path.realpath(user)
        roots = [os.path.realpath(folder) for folder in folders]
        return cls(folders=tuple(dict.fromkeys([*roots, *([own] if own else [])])), user=own, trusted=trusted)

    def find_problem(self, path: Path, *, folder: bool = False) -> str:
        """Return why a file or folder must not be read, ``""`` if it may be read."""
        real = os.path.realpath(path)
        if holds_secrets(real):
            return f"leads to {real}, which may hold secrets, so it is not read"
        is_text = folder or real.lower().endswith(TEXT_SUFFIXES)
        if self.contains(path) and (is_text or not _is_below(real, self.user)):
            return ""
        if not is_text:
            return f"leads out of the project, to {real}, which is not a text, so it is not read"
        if not self.trusted:
            return f"leads out of the project, to {real}, so it is not read before you run `vaka trust`"
        return ""

    def contains(self, path: Path) -> bool:
        """Return whether a file or folder is really in one of the folders."""
        real = os.path.realpath(path)
        return any(_is_below(real, root) for root in self.folders)


def _is_below(real: str, root: str) -> bool:
    return bool(root) and (real == root or real.startswith(root.rstrip(os.sep) + os.sep))


class ComponentWalk:
    """Walks through folders of components; links must stay in the scope and must not lead back."""

    def __init__(self, scope: FileScope | None, problems: list[str]) -> None:
        self._scope, self._problems = scope, problems

    def unique(self, folders: Iterable[Path], find: Callable[[Path], Iterator[Path]]) -> Iterator[tuple[Path, Path]]:
        """Yield each file once, with the folder in which it was searched."""
        seen: set[str] = set()
        for folder in folders:
            for path in find(folder) if self._may_follow(folder) else ():
                if (normal := os.path.normpath(path)) not in seen:
                    seen.add(normal)
                    yield folder, path

    def find_skills(self, folder: Path, depth: int = 0) -> Iterator[Path]:
        """Yield the ``SKILL.md`` of a folder, else the ``SKILL.md`` of its subfolders and the texts beside them."""
        own = folder / "SKILL.md"
        if own.is_file():
            yield from [own] if not own.is_symlink() or self._may_follow(own) else []
            return
        entries = _scan_folder(folder)
        other = next((entry for entry in entries if entry.name.lower() == "skill.md" and entry.is_file()), None)
        if other is not None and depth > 0:
            yield from [folder / other.name] if self._may_follow(folder / other.name) else []
            return
        for entry in entries:
            path = folder / entry.name
            if entry.is_symlink() and not path.exists():
                self._problems.append(f"{path}: cannot be read: the link leads nowhere")
            elif entry.name != "node_modules" and self._may_enter(entry, path, depth):
                yield from self.find_skills(path, depth + 1)
            elif depth == 0 and path.suffix.lower() == ".md" and path.stem.upper() not in DOCUMENT_NAMES:
                yield from [path] if entry.is_file() and self._may_follow(path) else []

    def find_markdown(self, folder: Path, depth: int = 0) -> Iterator[Path]:
        """Yield the Markdown files of a folder and its folders, in order."""
        if depth == 0 and folder.suffix.lower() == ".md" and folder.is_file():
            yield folder
        for entry in _scan_folder(folder):
            is_markdown = entry.name.lower().endswith(".md") and not entry.name.startswith(".")
            if is_markdown and not entry.is_dir():
                path = folder / entry.name
                yield from [path] if not entry.is_symlink() or self._may_follow(path) else []
            elif entry.is_dir() and self._may_enter(entry, folder / entry.name, depth):
                yield from self.find_markdown(folder / entry.name, depth + 1)

    def _may_enter(self, entry: "os.DirEntry[str]", path: Path, depth: int) -> bool:
        if depth >= MAX_DEPTH or not entry.is_dir():
            return False
        if not entry.is_symlink():
            return True
        return not path.parent.resolve().is_relative_to(path.resolve()) and self._may_follow(path)

    def _may_follow(self, path: Path) -> bool:
        """Return whether a link may be followed; what is no link may be."""
        if self._scope is None or not path.is_symlink():
            return True
        problem = self._scope.find_problem(path, folder=path.is_dir())
        if problem:
            self._problems.append(f"{path}: {problem}")
        return not problem


def _scan_folder(folder: Path) -> "list[os.DirEntry[str]]":
    """Return what is in a folder, in order; nothing for what is not a folder."""
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return []
