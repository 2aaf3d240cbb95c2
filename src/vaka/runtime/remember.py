"""Keeping what a person allowed for good: rules put into the settings of a project or a user."""

import json
import os
import re
import sys
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from vaka.config.edit import replace_file
from vaka.config.permissions import FOLDER, project_folder, read_document
from vaka.core.types.errors import ConfigError, InvalidInput

if sys.platform != "win32":
    import fcntl

LOCAL = "settings.local.json"
"""What one person wants in a project; others do not get it with the project."""
USER = "settings.json"


def settings_file(scope: str, cwd: str, home: Path) -> tuple[Path, Path]:
    """Return the file that keeps what is allowed for a scope, and the folder in which ``/x`` begins there.

    Raises ``InvalidInput`` where there is no such place.
    """
    if scope == "user":
        return home / FOLDER / USER, home / FOLDER
    here = Path(cwd)
    if not cwd or not here.is_dir():
        raise InvalidInput(f"the session's folder {cwd!r} is not here, so nothing can be kept for its project")
    root = project_folder(here, home) or _root(here)
    if root == home:
        raise InvalidInput(f"{str(root)!r} is a home and no project; what is to hold there is kept for the user")
    folder = root / FOLDER
    if not _inside(folder / LOCAL, root):
        raise InvalidInput(f"{folder / LOCAL} leads out of the project, so nothing is kept there")
    return folder / LOCAL, root


def remember(path: Path, rules: Iterable[str]) -> list[str]:
    """Put rules into ``permissions.allow`` of a settings file and return those that were not there.

    The rest of it stays as it is; a file that is made is for its owner alone. Raises ``ConfigError`` and changes
    nothing when that cannot be done.
    """
    wanted = tuple(dict.fromkeys(rules))
    return _change(path, lambda known: [*known, *(rule for rule in wanted if rule not in known)])


def forget(path: Path, rules: Iterable[str]) -> None:
    """Take rules out of ``permissions.allow`` again. Raises ``ConfigError``."""
    gone = set(rules)
    _change(path, lambda known: [rule for rule in known if rule not in gone])


def _change(path: Path, change: Callable[[list[str]], list[str]]) -> list[str]:
    """Change the list of what is allowed; return what was added to it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        real = Path(os.path.realpath(path))
        with _alone(real.parent):
            document = read_document(real) or {}
            known = _allowed(document, real)
            changed = change(known)
            if changed != known:
                _put(document, changed)
                if real.exists() and not os.access(real, os.W_OK):
                    raise PermissionError(None, "it is read-only")
                replace_file(real, _text(document, real))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror or error}") from error
    return [rule for rule in changed if rule not in known]


def _allowed(document: dict[str, Any], path: Path) -> list[str]:
    said: object = document.get("permissions")
    part: object = {} if said is None else said
    if not isinstance(part, dict):
        raise ConfigError(f"{path}: permissions: expected an object, so no rule can be kept there")
    allow: object = cast("dict[str, Any]", part).get("allow")
    allow = [] if allow is None else allow
    if not isinstance(allow, list) or not all(isinstance(rule, str) for rule in cast("list[object]", allow)):
        raise ConfigError(f"{path}: permissions.allow: expected a list of texts, so no rule can be kept there")
    return [*cast("list[str]", allow)]


def _put(document: dict[str, Any], allow: list[str]) -> None:
    if document.get("permissions") is None:
        document["permissions"] = {}
    document["permissions"]["allow"] = allow


def _text(document: dict[str, Any], path: Path) -> bytes:
    try:
        before = path.read_bytes().decode("utf-8-sig") if path.exists() else ""
        indent = re.search(r"^([ \t]+)\"", before, re.MULTILINE)
        text = json.dumps(document, indent=indent[1] if indent else 2, ensure_ascii=False, allow_nan=False)
        return f"{text}\n".replace("\n", "\r\n" if "\r\n" in before else "\n").encode()
    except ValueError as error:
        raise ConfigError(f"{path}: holds what cannot be written again: {error}") from error


@contextmanager
def _alone(folder: Path) -> Generator[None]:
    """Let no other process change settings in a folder meanwhile: of two that add a rule, none is lost."""
    if sys.platform == "win32":
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _root(cwd: Path) -> Path:
    """Return where a project begins that has no settings yet: at the root of the repository, or else here."""
    return next((folder for folder in (cwd, *cwd.parents) if (folder / ".git").exists()), cwd)


def _inside(path: Path, folder: Path) -> bool:
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))
