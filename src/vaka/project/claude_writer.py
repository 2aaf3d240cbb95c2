"""Changes of ``.claude`` settings files: allow rules and single values, under a lock, replaced atomically."""

import codecs
import copy
import json
import os
import sys
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from vaka.config.documents import blank_comments, replace_file, set_json_value
from vaka.core.types.errors import ConfigError
from vaka.project.claude_settings import MAX_SETTINGS_BYTES, parse_document, read_document, read_settings

if sys.platform != "win32":
    import fcntl


def add_allow_rules(path: Path, rules: Iterable[str]) -> list[str]:
    """Add rules to ``permissions.allow`` of a settings file and return the rules that it did not have.

    The rest of the file stays as it is; a new file is readable by its owner only. Raises ``ConfigError`` and changes
    nothing on failure.
    """
    wanted = tuple(dict.fromkeys(rules))
    return _edit_allow_rules(path, lambda known: [*known, *(rule for rule in wanted if rule not in known)])


def remove_allow_rules(path: Path, rules: Iterable[str]) -> None:
    """Remove rules from ``permissions.allow``. Raises ``ConfigError``."""
    gone = set(rules)
    _edit_allow_rules(path, lambda known: [rule for rule in known if rule not in gone])


def _edit_allow_rules(path: Path, change: Callable[[list[str]], list[str]]) -> list[str]:
    """Change the list of allow rules; return the rules that were added."""
    added: list[str] = []

    def edit(document: dict[str, Any]) -> None:
        known = _allow_rules_of(document, path)
        changed = change(known)
        if changed != known:
            document["permissions"] = {**(document.get("permissions") or {}), "allow": changed}
        added.extend(rule for rule in changed if rule not in known)

    edit_document(path, edit)
    return added


def write_claude_value(path: Path, at: tuple[str, ...], value: Any) -> None:
    """Set the value at a path of a settings file, which is created if it does not exist; ``None`` removes it.

    The rest of the file stays as it is. Raises ``ConfigError`` and changes nothing on failure.
    """

    def edit(document: dict[str, Any]) -> None:
        table = document
        for name in at[:-1]:
            if table.get(name) is None:
                table[name] = {}
            elif not isinstance(table[name], dict):
                raise ConfigError(f"{path}: {name}: expected an object, so {'.'.join(at)} cannot be set there")
            table = table[name]
        if value is None:
            table.pop(at[-1], None)
        else:
            table[at[-1]] = value

    edit_document(path, edit)


def edit_document(path: Path, edit: Callable[[dict[str, Any]], None], limit: int = MAX_SETTINGS_BYTES) -> None:
    """Change a JSON file under a lock, and replace it atomically if its content has changed.

    The rest of the file stays as it is; a new file is readable by its owner only. Raises ``ConfigError`` and changes
    nothing on failure.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        real = Path(os.path.realpath(path))
        with _lock_folder(real.parent):
            document = read_editable(real, limit)
            before = copy.deepcopy(document)
            edit(document)
            if document == before:
                return
            if real.exists() and not os.access(real, os.W_OK):
                raise PermissionError(None, "it is read-only")
            replace_file(real, _encode_document(before, document, real))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror or error}") from error


def read_editable(path: Path, limit: int = MAX_SETTINGS_BYTES) -> dict[str, Any]:
    """Return a JSON file, which may have comments, as data; ``{}`` when it does not exist. Raises ``ConfigError``."""
    try:
        return read_document(path, limit) or {}
    except ConfigError:
        return read_settings(path).document  # raises the error itself if the file has more than comments


def _allow_rules_of(document: dict[str, Any], path: Path) -> list[str]:
    table: object = document.get("permissions")
    if table is not None and not isinstance(table, dict):
        raise ConfigError(f"{path}: permissions: expected an object, so no rule can be stored there")
    allow: object = cast("dict[str, Any]", table or {}).get("allow")
    if allow is None:
        return []
    if not isinstance(allow, list) or not all(isinstance(rule, str) for rule in cast("list[object]", allow)):
        raise ConfigError(f"{path}: permissions.allow: expected a list of texts, so no rule can be stored there")
    return [*cast("list[str]", allow)]


def _encode_document(before: dict[str, Any], document: dict[str, Any], path: Path) -> bytes:
    """Return the new content of a file: its text with only what differs from ``before`` changed."""
    data = path.read_bytes() if path.exists() else b""
    mark = codecs.BOM_UTF8 if data.startswith(codecs.BOM_UTF8) else b""
    text = data.decode("utf-8-sig")
    try:
        whole = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)
        if not text.strip():
            return mark + f"{whole}\n".encode()
        edited = text
        for at, value in _changes_of(before, document, ()):
            edited = set_json_value(edited, at, value)
        if parse_document(blank_comments(edited), str(path)) != document or _count_comments(edited) < _count_comments(
            text
        ):
            raise ConfigError(f"{path}: the change would remove comments; edit the file yourself")
        return mark + edited.encode()
    except ValueError as error:
        raise ConfigError(f"{path}: has a value that cannot be written as JSON: {error}") from error


def _changes_of(
    before: dict[str, Any], after: dict[str, Any], at: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the values that differ, as deep as possible; an object that has lost a member is replaced."""
    if before.keys() - after.keys():
        yield at, after
        return
    for name, value in after.items():
        old = before.get(name)
        if isinstance(old, dict) and isinstance(value, dict):
            yield from _changes_of(cast("dict[str, Any]", old), cast("dict[str, Any]", value), (*at, name))
        elif name not in before or old != value:
            yield (*at, name), value


def _count_comments(text: str) -> int:
    """Return how many characters of a JSON text are in comments."""
    return sum(old != new for old, new in zip(text, blank_comments(text), strict=True))


@contextmanager
def _lock_folder(folder: Path) -> Generator[None]:
    """Hold an exclusive lock on a folder: of two processes that add a rule, neither overwrites the other."""
    if sys.platform == "win32":
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
