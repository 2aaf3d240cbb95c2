"""Which files the texts of a project may come from: links and imports must not carry other files into a prompt."""

import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

from vaka.matching.sensitive_paths import holds_secrets

TEXT_SUFFIXES = (".md", ".mdc", ".markdown", ".txt")
"""The names of files outside of the folders that a link may lead to."""


class FileScope(msgspec.Struct, frozen=True, kw_only=True):
    """The folders whose files may be read.

    A link may lead to a text elsewhere if the project is trusted, and never to a file that is known to hold secrets.
    """

    folders: tuple[str, ...]
    """Real paths."""
    trusted: bool = True

    @classmethod
    def of(cls, folders: Iterable[Path], *, trusted: bool = True) -> "FileScope":
        """Return the scope of folders."""
        return cls(folders=tuple(dict.fromkeys(os.path.realpath(folder) for folder in folders)), trusted=trusted)

    def find_problem(self, path: Path, *, folder: bool = False) -> str:
        """Return why a file or folder must not be read, ``""`` for one that may be."""
        real = os.path.realpath(path)
        if holds_secrets(real):
            return f"leads to {real}, which may hold secrets, so it is not read"
        if self.contains(path):
            return ""
        if not folder and not real.lower().endswith(TEXT_SUFFIXES):
            return f"leads out of the project, to {real}, which is not a text, so it is not read"
        if not self.trusted:
            return f"leads out of the project, to {real}, so it is not read before you run `vaka trust`"
        return ""

    def contains(self, path: Path) -> bool:
        """Return whether a file or folder is really in one of the folders."""
        real = os.path.realpath(path)
        return any(real == root or real.startswith(root.rstrip(os.sep) + os.sep) for root in self.folders)
