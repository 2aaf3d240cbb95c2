"""Permissions in ``.claude`` settings: read each layer, and add or remove allow rules in a file."""

import json
import os
import re
import stat
import sys
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import msgspec

from vaka.config.setting_keys import suggest
from vaka.config.settings import ConfigContext, Settings
from vaka.config.toml_files import replace_file
from vaka.core.types.errors import ConfigError, InvalidInput

CLAUDE_FOLDER = ".claude"

MAX_SETTINGS_BYTES = 4 * 1024 * 1024
"""Bytes of a settings file; more is nobody's settings."""

_LIST_KEYS = ("allow", "ask", "deny", "additionalDirectories")

_KNOWN_KEYS = (*_LIST_KEYS, "defaultMode", "disableBypassPermissionsMode", "disableAutoMode", "dialect")

_PROJECT_FILES = {"settings.json": "project", "settings.local.json": "local"}
"""Files of a project, the weaker first, and what their layer is called."""

_VAKA_LISTS = {"allow": "allow", "confirm": "ask", "deny": "deny", "add_dir": "directories"}
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


class LoadedPermissions(msgspec.Struct, frozen=True, kw_only=True):
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
    context: ConfigContext, *, settings: Path | None = None, flags: Settings | None = None, trust: bool = False,
    managed: Sequence[Path] | None = None,
) -> LoadedPermissions:  # fmt: skip
    """Return what every layer says to somebody at ``place``.

    ``settings`` is a file they name, ``flags`` are vaka's own settings with what was typed. Raises ``ConfigError``.
    """
    found: list[PermissionLayer] = []
    notes: list[str] = []

    def add_layer(path: Path, name: str, folder: Path | None, **more: Any) -> None:
        document = read_document(path)
        if document is not None:
            layer = parse_permission_layer(document, name, origin=str(path), notes=notes)
            found.append(msgspec.structs.replace(layer, folder=str(folder or ""), **more))

    add_layer(context.home / CLAUDE_FOLDER / "settings.json", "user", context.home / CLAUDE_FOLDER)
    for path in project_settings_files(context):
        add_layer(path, _PROJECT_FILES[path.name], path.parents[1], project=True, trusted=trust)
    if settings is not None:
        path = context.cwd / settings.expanduser()
        if not path.exists():
            raise ConfigError(f"{path}: there is no such file")
        add_layer(path, "settings", _base_folder_of(path, context))
    found += layers_from_settings(flags) if flags is not None else ()
    for folder in managed_folders() if managed is None else managed:
        for path in (folder / "managed-settings.json", *_drop_in_files(folder / "managed-settings.d")):
            add_layer(path, "managed", None)
    return LoadedPermissions(layers=tuple(found), notes=tuple(notes))


def project_settings_files(context: ConfigContext) -> list[Path]:
    """Return the ``.claude`` settings that the folder somebody stands in brings along."""
    root = find_project_folder(context.cwd, context.home)
    return (
        [path for file in _PROJECT_FILES if (path := root / CLAUDE_FOLDER / file).exists()] if root is not None else []
    )


def parse_permission_layer(
    document: Mapping[str, Any], name: str, *, origin: str = "", notes: list[str] | None = None
) -> PermissionLayer:
    """Return what a settings document says about permissions. Raises ``ConfigError`` naming ``origin``."""
    where = origin or name
    part: object = document.get("permissions")
    if part is not None and not isinstance(part, dict):
        raise ConfigError(f"{where}: permissions: expected an object, not {_type_name(part)}")
    table = cast("dict[str, Any]", part or {})
    for key in table:
        if key not in _KNOWN_KEYS and notes is not None:
            notes.append(f"{where}: permissions.{key} is not known; {suggest(key, _KNOWN_KEYS)}")
    lists = {key: _check_texts(where, f"permissions.{key}", table.get(key)) for key in _LIST_KEYS}
    denied = _check_texts(where, "disallowedTools", document.get("disallowedTools"))
    if document.get("allowedTools") and notes is not None:
        notes.append(f"{where}: allowedTools does not count; write permissions.allow")
    mode: object = table.get("defaultMode") or ""
    if not isinstance(mode, str):
        raise ConfigError(f"{where}: permissions.defaultMode: expected a text, not {_type_name(mode)}")
    return PermissionLayer(
        name=name, origin=origin, allow=lists["allow"], ask=lists["ask"], deny=(*lists["deny"], *denied), mode=mode,
        directories=lists["additionalDirectories"], no_bypass=_disables_bypass(where, table),
        exclusive=name == "managed" and document.get("allowManagedPermissionRulesOnly") is True,
    )  # fmt: skip


def layers_from_settings(settings: Settings) -> Iterable[PermissionLayer]:
    """Yield what vaka's own settings say: files, then variables, then flags."""
    said = {kind: settings.values[name] for name, kind in _VAKA_LISTS.items()} | {
        "mode": settings.values["permission_mode"]
    }
    for field, value in said.items():
        if value.layer != "default" and value.value:
            fields: dict[str, Any] = {field: value.value if field == "mode" else tuple(value.value)}
            guest = value.layer == "project"
            yield PermissionLayer(
                name=value.layer, origin=value.origin, project=guest, trusted=settings.trusted or not guest, **fields
            )


def find_project_folder(cwd: Path, home: Path) -> Path | None:
    """Return the folder whose ``.claude`` counts: the nearest one up to the root of the repository.

    Outside of a repository only the folder itself counts: what others may have put further up is theirs.
    """
    candidates = [cwd]
    for folder in (cwd, *cwd.parents):
        if (folder / ".git").exists():
            candidates = [cwd, *cwd.parents][: len(cwd.parts) - len(folder.parts) + 1]
            break
    return next((folder for folder in candidates if (folder / CLAUDE_FOLDER).is_dir() and folder != home), None)


def read_document(path: Path) -> dict[str, Any] | None:
    """Return a settings file as data, ``None`` when there is none. Raises ``ConfigError`` for one that is no JSON."""
    try:
        text = _read_settings_text(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8: {error.reason} at byte {error.start}") from error
    return parse_document(text, str(path))


def parse_document(text: str, origin: str) -> dict[str, Any]:
    """Return settings as data. Raises ``ConfigError``: a name that stands twice would hide what the first one says."""

    def unique_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) < len(pairs):
            twice = next(name for at, (name, _) in enumerate(pairs) if name in {other for other, _ in pairs[:at]})
            raise ConfigError(f"{origin}: {twice!r} stands there twice")
        return made

    def reject_constant(name: str) -> float:
        raise ConfigError(f"{origin}: not JSON: {name} is no number")

    try:
        document: object = json.loads(
            text if text.strip() else "{}", object_pairs_hook=unique_pairs, parse_constant=reject_constant
        )
    except json.JSONDecodeError as error:
        raise ConfigError(f"{origin}:{error.lineno}: not JSON: {error.msg} (column {error.colno})") from None
    except (RecursionError, ValueError):
        raise ConfigError(f"{origin}: not JSON: nested too deep, or a number has too many digits") from None
    if not isinstance(document, dict):
        raise ConfigError(f"{origin}: expected an object, not {_type_name(document)}")
    return cast("dict[str, Any]", document)


def _read_settings_text(path: Path) -> str:
    """Read a regular file; what somebody put in its place to make readers wait is not opened for waiting."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    with os.fdopen(descriptor, "rb") as file:
        info = os.fstat(file.fileno())
        if not stat.S_ISREG(info.st_mode):
            raise OSError("it is not a regular file")
        data = file.read(MAX_SETTINGS_BYTES + 1)
    if len(data) > MAX_SETTINGS_BYTES:
        raise OSError(f"it has more than {MAX_SETTINGS_BYTES} bytes")
    return data.decode("utf-8-sig")


def _base_folder_of(path: Path, context: ConfigContext) -> Path:
    """Return where ``/x`` begins in a file that somebody names: at its folder, or the one a ``.claude`` is in."""
    folder = Path(os.path.abspath(path)).parent  # noqa: PTH100  # without resolving links
    return folder.parent if folder.name == CLAUDE_FOLDER and folder.parent != context.home else folder


def _drop_in_files(folder: Path) -> list[Path]:
    try:
        return sorted(folder.glob("*.json"))
    except OSError as error:
        raise ConfigError(f"{folder}: cannot be read: {error.strerror or error}") from error


def _check_texts(where: str, key: str, value: Any) -> tuple[str, ...]:
    items = cast("list[object]", value) if isinstance(value, list) else [] if value is None else [value, None]
    wrong = [item for item in items if not isinstance(item, str)]
    if wrong:
        said = _type_name(wrong[0] if isinstance(value, list) else value)
        raise ConfigError(f"{where}: {key}: expected a list of texts, not {said}")
    return tuple(dict.fromkeys(str(item) for item in items))


def _disables_bypass(where: str, table: Mapping[str, Any]) -> bool:
    value = table.get("disableBypassPermissionsMode")
    if value in (None, False, ""):
        return False
    if value in ("disable", True):
        return True
    raise ConfigError(f"{where}: permissions.disableBypassPermissionsMode: expected 'disable', not {value!r}")


def _type_name(value: object) -> str:
    names = {"dict": "an object", "list": "a list", "NoneType": "null"}
    return names.get(type(value).__name__, repr(value)[:80])


if sys.platform != "win32":
    import fcntl

LOCAL_SETTINGS = "settings.local.json"
"""What one person wants in a project; others do not get it with the project."""

USER_SETTINGS = "settings.json"


def settings_file_for_scope(scope: str, cwd: str, home: Path) -> tuple[Path, Path]:
    """Return the file that keeps what is allowed for a scope, and the folder in which ``/x`` begins there.

    Raises ``InvalidInput`` where there is no such place.
    """
    if scope == "user":
        return home / CLAUDE_FOLDER / USER_SETTINGS, home / CLAUDE_FOLDER
    here = Path(cwd)
    if not cwd or not here.is_dir():
        raise InvalidInput(f"the session's folder {cwd!r} is not here, so nothing can be kept for its project")
    root = find_project_folder(here, home) or _repository_root(here)
    if root == home:
        raise InvalidInput(f"{str(root)!r} is a home and no project; what is to hold there is kept for the user")
    folder = root / CLAUDE_FOLDER
    if not _is_inside(folder / LOCAL_SETTINGS, root):
        raise InvalidInput(f"{folder / LOCAL_SETTINGS} leads out of the project, so nothing is kept there")
    return folder / LOCAL_SETTINGS, root


def add_allow_rules(path: Path, rules: Iterable[str]) -> list[str]:
    """Put rules into ``permissions.allow`` of a settings file and return those that were not there.

    The rest of it stays as it is; a file that is made is for its owner alone. Raises ``ConfigError`` and changes
    nothing when that cannot be done.
    """
    wanted = tuple(dict.fromkeys(rules))
    return _edit_allow_rules(path, lambda known: [*known, *(rule for rule in wanted if rule not in known)])


def remove_allow_rules(path: Path, rules: Iterable[str]) -> None:
    """Take rules out of ``permissions.allow`` again. Raises ``ConfigError``."""
    gone = set(rules)
    _edit_allow_rules(path, lambda known: [rule for rule in known if rule not in gone])


def _edit_allow_rules(path: Path, change: Callable[[list[str]], list[str]]) -> list[str]:
    """Change the list of what is allowed; return what was added to it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        real = Path(os.path.realpath(path))
        with _lock_folder(real.parent):
            document = read_document(real) or {}
            known = _allow_rules_of(document, real)
            changed = change(known)
            if changed != known:
                _set_allow_rules(document, changed)
                if real.exists() and not os.access(real, os.W_OK):
                    raise PermissionError(None, "it is read-only")
                replace_file(real, _encode_document(document, real))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror or error}") from error
    return [rule for rule in changed if rule not in known]


def _allow_rules_of(document: dict[str, Any], path: Path) -> list[str]:
    said: object = document.get("permissions")
    part: object = {} if said is None else said
    if not isinstance(part, dict):
        raise ConfigError(f"{path}: permissions: expected an object, so no rule can be kept there")
    allow: object = cast("dict[str, Any]", part).get("allow")
    allow = [] if allow is None else allow
    if not isinstance(allow, list) or not all(isinstance(rule, str) for rule in cast("list[object]", allow)):
        raise ConfigError(f"{path}: permissions.allow: expected a list of texts, so no rule can be kept there")
    return [*cast("list[str]", allow)]


def _set_allow_rules(document: dict[str, Any], allow: list[str]) -> None:
    if document.get("permissions") is None:
        document["permissions"] = {}
    document["permissions"]["allow"] = allow


def _encode_document(document: dict[str, Any], path: Path) -> bytes:
    try:
        before = path.read_bytes().decode("utf-8-sig") if path.exists() else ""
        indent = re.search(r"^([ \t]+)\"", before, re.MULTILINE)
        text = json.dumps(document, indent=indent[1] if indent else 2, ensure_ascii=False, allow_nan=False)
        return f"{text}\n".replace("\n", "\r\n" if "\r\n" in before else "\n").encode()
    except ValueError as error:
        raise ConfigError(f"{path}: holds what cannot be written again: {error}") from error


@contextmanager
def _lock_folder(folder: Path) -> Generator[None]:
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


def _repository_root(cwd: Path) -> Path:
    """Return where a project begins that has no settings yet: at the root of the repository, or else here."""
    return next((folder for folder in (cwd, *cwd.parents) if (folder / ".git").exists()), cwd)


def _is_inside(path: Path, folder: Path) -> bool:
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))
