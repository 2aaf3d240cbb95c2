"""The ``permissions`` part of the ``.claude`` settings: who says what, file by file; other parts are not looked at."""

import json
import os
import stat
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec

from vaka.config.keys import suggest
from vaka.config.layers import Place, Settings
from vaka.core.types.errors import ConfigError

FOLDER = ".claude"
LARGEST = 4 * 1024 * 1024
"""Bytes of a settings file; more is nobody's settings."""

_LISTS = ("allow", "ask", "deny", "additionalDirectories")
_KNOWN = (*_LISTS, "defaultMode", "disableBypassPermissionsMode", "disableAutoMode", "dialect")
_PROJECT = {"settings.json": "project", "settings.local.json": "local"}
"""Files of a project, the weaker first, and what their layer is called."""
_OURS = {"allow": "allow", "confirm": "ask", "deny": "deny", "add_dir": "directories"}
"""Settings of vaka's own that are lists of rules, or of folders they hold in."""


class PermissionLayer(msgspec.Struct, frozen=True, kw_only=True):
    """What one file, or one group of flags, says about permissions; the fields are those of a layer of the policy."""

    name: str
    origin: str = ""
    folder: str = ""
    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    mode: str = ""
    directories: tuple[str, ...] = ()
    no_bypass: bool = False
    exclusive: bool = False
    project: bool = False
    trusted: bool = True


class Permissions(msgspec.Struct, frozen=True, kw_only=True):
    """What all layers say, the weakest first, and notes on what was not understood."""

    layers: tuple[PermissionLayer, ...]
    notes: tuple[str, ...] = ()


def managed_folders() -> tuple[Path, ...]:
    """Return where the settings of whoever manages this machine are, the strongest last. No variable moves them."""
    if sys.platform == "darwin":
        return (Path("/Library/Application Support/ClaudeCode"), Path("/Library/Application Support/vaka"))
    if sys.platform == "win32":
        return (Path(r"C:\Program Files\ClaudeCode"), Path(r"C:\Program Files\vaka"))
    return (Path("/etc/claude-code"), Path("/etc/vaka"))


def load_permissions(
    place: Place, *, settings: Path | None = None, flags: Settings | None = None, trust: bool = False,
    managed: Sequence[Path] | None = None,
) -> Permissions:  # fmt: skip
    """Return what every layer says to somebody at ``place``.

    ``settings`` is a file they name, ``flags`` are vaka's own settings with what was typed. Raises ``ConfigError``.
    """
    found: list[PermissionLayer] = []
    notes: list[str] = []

    def add(path: Path, name: str, folder: Path | None, **more: Any) -> None:
        document = read_document(path)
        if document is not None:
            layer = permission_layer(document, name, origin=str(path), notes=notes)
            found.append(msgspec.structs.replace(layer, folder=str(folder or ""), **more))

    add(place.home / FOLDER / "settings.json", "user", place.home / FOLDER)
    for path in settings_files(place):
        add(path, _PROJECT[path.name], path.parents[1], project=True, trusted=trust)
    if settings is not None:
        path = place.cwd / settings.expanduser()
        if not path.exists():
            raise ConfigError(f"{path}: there is no such file")
        add(path, "settings", _folder_of(path, place))
    found += own_layers(flags) if flags is not None else ()
    for folder in managed_folders() if managed is None else managed:
        for path in (folder / "managed-settings.json", *_dropped_in(folder / "managed-settings.d")):
            add(path, "managed", None)
    return Permissions(layers=tuple(found), notes=tuple(notes))


def settings_files(place: Place) -> list[Path]:
    """Return the ``.claude`` settings that the folder somebody stands in brings along."""
    root = project_folder(place.cwd, place.home)
    return [path for file in _PROJECT if (path := root / FOLDER / file).exists()] if root is not None else []


def permission_layer(
    document: Mapping[str, Any], name: str, *, origin: str = "", notes: list[str] | None = None
) -> PermissionLayer:
    """Return what a settings document says about permissions. Raises ``ConfigError`` naming ``origin``."""
    where = origin or name
    part: object = document.get("permissions")
    if part is not None and not isinstance(part, dict):
        raise ConfigError(f"{where}: permissions: expected an object, not {_kind(part)}")
    table = cast("dict[str, Any]", part or {})
    for key in table:
        if key not in _KNOWN and notes is not None:
            notes.append(f"{where}: permissions.{key} is not known; {suggest(key, _KNOWN)}")
    lists = {key: _texts(where, f"permissions.{key}", table.get(key)) for key in _LISTS}
    denied = _texts(where, "disallowedTools", document.get("disallowedTools"))
    if document.get("allowedTools") and notes is not None:
        notes.append(f"{where}: allowedTools does not count; write permissions.allow")
    mode: object = table.get("defaultMode") or ""
    if not isinstance(mode, str):
        raise ConfigError(f"{where}: permissions.defaultMode: expected a text, not {_kind(mode)}")
    return PermissionLayer(
        name=name, origin=origin, allow=lists["allow"], ask=lists["ask"], deny=(*lists["deny"], *denied), mode=mode,
        directories=lists["additionalDirectories"], no_bypass=_disables(where, table),
        exclusive=name == "managed" and document.get("allowManagedPermissionRulesOnly") is True,
    )  # fmt: skip


def own_layers(settings: Settings) -> Iterable[PermissionLayer]:
    """Yield what vaka's own settings say: files, then variables, then flags."""
    said = {kind: settings.values[name] for name, kind in _OURS.items()} | {"mode": settings.values["permission_mode"]}
    for field, value in said.items():
        if value.layer != "default" and value.value:
            fields: dict[str, Any] = {field: value.value if field == "mode" else tuple(value.value)}
            guest = value.layer == "project"
            yield PermissionLayer(
                name=value.layer, origin=value.origin, project=guest, trusted=settings.trust or not guest, **fields
            )


def project_folder(cwd: Path, home: Path) -> Path | None:
    """Return the folder whose ``.claude`` counts: the nearest one up to the root of the repository.

    Outside of a repository only the folder itself counts: what others may have put further up is theirs.
    """
    candidates = [cwd]
    for folder in (cwd, *cwd.parents):
        if (folder / ".git").exists():
            candidates = [cwd, *cwd.parents][: len(cwd.parts) - len(folder.parts) + 1]
            break
    return next((folder for folder in candidates if (folder / FOLDER).is_dir() and folder != home), None)


def read_document(path: Path) -> dict[str, Any] | None:
    """Return a settings file as data, ``None`` when there is none. Raises ``ConfigError`` for one that is no JSON."""
    try:
        text = _text(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8: {error.reason} at byte {error.start}") from error
    return parse_document(text, str(path))


def parse_document(text: str, origin: str) -> dict[str, Any]:
    """Return settings as data. Raises ``ConfigError``: a name that stands twice would hide what the first one says."""

    def table(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) < len(pairs):
            twice = next(name for at, (name, _) in enumerate(pairs) if name in {other for other, _ in pairs[:at]})
            raise ConfigError(f"{origin}: {twice!r} stands there twice")
        return made

    def number(name: str) -> float:
        raise ConfigError(f"{origin}: not JSON: {name} is no number")

    try:
        document: object = json.loads(text if text.strip() else "{}", object_pairs_hook=table, parse_constant=number)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{origin}:{error.lineno}: not JSON: {error.msg} (column {error.colno})") from None
    except (RecursionError, ValueError):
        raise ConfigError(f"{origin}: not JSON: nested too deep, or a number has too many digits") from None
    if not isinstance(document, dict):
        raise ConfigError(f"{origin}: expected an object, not {_kind(document)}")
    return cast("dict[str, Any]", document)


def _text(path: Path) -> str:
    """Read a regular file; what somebody put in its place to make readers wait is not opened for waiting."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    with os.fdopen(descriptor, "rb") as file:
        info = os.fstat(file.fileno())
        if not stat.S_ISREG(info.st_mode):
            raise OSError("it is not a regular file")
        data = file.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise OSError(f"it has more than {LARGEST} bytes")
    return data.decode("utf-8-sig")


def _folder_of(path: Path, place: Place) -> Path:
    """Return where ``/x`` begins in a file that somebody names: at its folder, or the one a ``.claude`` is in."""
    folder = Path(os.path.abspath(path)).parent  # noqa: PTH100  # without resolving links
    return folder.parent if folder.name == FOLDER and folder.parent != place.home else folder


def _dropped_in(folder: Path) -> list[Path]:
    try:
        return sorted(folder.glob("*.json"))
    except OSError as error:
        raise ConfigError(f"{folder}: cannot be read: {error.strerror or error}") from error


def _texts(where: str, key: str, value: Any) -> tuple[str, ...]:
    items = cast("list[object]", value) if isinstance(value, list) else [] if value is None else [value, None]
    wrong = [item for item in items if not isinstance(item, str)]
    if wrong:
        said = _kind(wrong[0] if isinstance(value, list) else value)
        raise ConfigError(f"{where}: {key}: expected a list of texts, not {said}")
    return tuple(dict.fromkeys(str(item) for item in items))


def _disables(where: str, table: Mapping[str, Any]) -> bool:
    value = table.get("disableBypassPermissionsMode")
    if value in (None, False, ""):
        return False
    if value in ("disable", True):
        return True
    raise ConfigError(f"{where}: permissions.disableBypassPermissionsMode: expected 'disable', not {value!r}")


def _kind(value: object) -> str:
    names = {"dict": "an object", "list": "a list", "NoneType": "null"}
    return names.get(type(value).__name__, repr(value)[:80])
