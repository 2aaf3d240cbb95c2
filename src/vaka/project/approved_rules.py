"""Rules that a person has approved for a project: in its local settings, which git ignores, and trusted at once.

The user's folder has a copy of them: of the allow rules in a folder that is not trusted, only those count that are in
both places.
"""

import contextlib
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

from vaka.config.settings import CLAUDE_FOLDER, LOCAL_SETTINGS, ConfigContext, repository_root_of
from vaka.core.types.errors import ConfigError
from vaka.project.claude_settings import approved_rules_file, approved_rules_in
from vaka.project.claude_writer import add_allow_rules, edit_document, remove_allow_rules

if sys.platform != "win32":
    import fcntl

MAX_RULES = 1000
"""The number of approved rules of one project."""

EXCLUDED = f"**/{CLAUDE_FOLDER}/{LOCAL_SETTINGS}"
"""The line of ``.git/info/exclude``: it holds for the settings of every folder of the repository."""

_MAX_GIT_FILE_BYTES = 4096
_MAX_EXCLUDE_BYTES = 1024 * 1024


class ApprovedRules:
    """Rules that were stored for a project; ``remove`` takes back what was not there before."""

    def __init__(self, path: Path, added: list[str], copy: Path, copied: list[str]) -> None:
        self._path = path
        self._added = added
        self._copy = copy
        self._copied = copied

    def remove(self) -> None:
        """Remove the rules again. Raises ``ConfigError``."""
        if self._added:
            remove_allow_rules(self._path, self._added)
        _remove_copies(self._copy, self._copied)


def store_approved_rules(path: Path, rules: Iterable[str], context: ConfigContext) -> ApprovedRules:
    """Add rules to the local settings of a project, which then count although its folder is not trusted.

    Raises ``ConfigError`` and stores nothing on failure.
    """
    rules, copy = tuple(rules), approved_rules_file(context, path)
    # First the copy: a process that reads the changed settings finds it.
    copied = _add_copies(copy, path, rules)
    try:
        added = add_allow_rules(path, rules)
    except ConfigError:
        _remove_copies(copy, copied)
        raise
    with contextlib.suppress(OSError):
        exclude_from_git(path.parent.parent)
    return ApprovedRules(path, added, copy, copied)


def _add_copies(copy: Path, path: Path, rules: tuple[str, ...]) -> list[str]:
    added: list[str] = []

    def edit(document: dict[str, Any]) -> None:
        known = approved_rules_in(document, path)
        added.extend(rule for rule in rules if rule not in known)
        if len(known) + len(added) > MAX_RULES:
            raise ConfigError(f"{copy}: has {MAX_RULES} rules; remove some of them first")
        document.update(file=os.path.realpath(path), rules=[*known, *added])

    edit_document(copy, edit)
    return added


def _remove_copies(copy: Path, rules: list[str]) -> None:
    def edit(document: dict[str, Any]) -> None:
        document["rules"] = [rule for rule in cast("list[str]", document["rules"]) if rule not in rules]

    if rules:
        edit_document(copy, edit)


def exclude_from_git(folder: Path) -> None:
    """Let git ignore the local settings below the repository of a folder, by its ``info/exclude``.

    Without a repository, and where the line is there already, nothing is written. Raises ``OSError``.
    """
    git = _common_git_folder(repository_root_of(folder) / ".git")
    if git is None or (git / "info").is_symlink():
        return
    (git / "info").mkdir(exist_ok=True)
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    with os.fdopen(os.open(git / "info/exclude", flags, 0o644), "r+b") as file:
        if sys.platform != "win32":
            fcntl.flock(file.fileno(), fcntl.LOCK_EX)
        text = file.read(_MAX_EXCLUDE_BYTES)
        if EXCLUDED.encode() not in (line.strip() for line in text.splitlines()):
            file.write((b"" if not text or text.endswith(b"\n") else b"\n") + f"{EXCLUDED}\n".encode())


def _common_git_folder(marker: Path) -> Path | None:
    """Return the git folder that all work trees of a repository share, ``None`` if there is none."""
    git = marker
    if marker.is_file():  # of a work tree or a submodule
        name = _first_line(marker).partition("gitdir:")[2].strip()
        git = marker.parent / name if name else marker
    common = git / "commondir"
    git = git / _first_line(common) if common.is_file() else git
    parts = (git / "HEAD").is_file(), (git / "objects").is_dir(), (git / "refs").is_dir()
    return git if all(parts) else None


def _first_line(path: Path) -> str:
    with path.open("rb") as file:
        return os.fsdecode(file.read(_MAX_GIT_FILE_BYTES)).partition("\n")[0].strip()
