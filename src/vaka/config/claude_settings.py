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

from vaka.config.documents import parse_json, read_errors, replace_file, suggest
from vaka.config.settings import ConfigContext, Settings, repository_root_of
from vaka.core.types.errors import ConfigError, InvalidInput
from vaka.core.types.tool import Layer

if sys.platform != "win32":
    import fcntl

CLAUDE_FOLDER = ".claude"

LOCAL_SETTINGS = "settings.local.json"
"""One user's settings in a project; not shared with the project."""
USER_SETTINGS = "settings.json"
MANAGED = "managed"
"""The layer of the administrator, which is stronger than all others."""
MODEL_TIERS = {"haiku": "low", "sonnet": "mid", "opus": "high"}
"""Names of models in ``.claude`` files, and the tiers of models that they stand for."""
_STEERING_VARIABLE = re.compile(
    r"^(?:VAKA_|LD_|DYLD_|PYTHON|NODE_|SSL_|GIT_|BASH_|PATH$|HOME$|SHELL$|ENV$|IFS$)|_(?:URL|HOST|ENDPOINT|KEY|TOKEN|CERT"
    r"|CA_BUNDLE)$|PROXY|XDG_",
    re.IGNORECASE,
)
MAX_SETTINGS_BYTES = 4 * 1024 * 1024
CLAUDE_STATE = ".claude.json"
"""The file in the home folder with the user's MCP servers, and those that the user added for single projects."""
MAX_STATE_BYTES = 64 * 1024 * 1024
PROJECT_SERVERS = ".mcp.json"
"""The file with the MCP servers of a project."""

_LIST_KEYS = ("allow", "ask", "deny", "additionalDirectories")

_KNOWN_KEYS = (*_LIST_KEYS, "defaultMode", "disableBypassPermissionsMode", "disableAutoMode", "dialect")

_PROJECT_FILES = {"settings.json": "project", LOCAL_SETTINGS: "local"}
"""Settings files of a project, the weaker first, with the names of their layers."""

_VAKA_LISTS = {"allow": "allow", "confirm": "ask", "deny": "deny", "add_dir": "directories"}
"""The settings of vaka that are lists of rules or folders, with the fields of a layer."""


class LoadedPermissions(msgspec.Struct, frozen=True, kw_only=True):
    """All layers, the weakest first, and notes on what was ignored."""

    layers: tuple[Layer, ...]
    notes: tuple[str, ...] = ()


class SettingsFile(msgspec.Struct, frozen=True, kw_only=True):
    """A settings file and the layer it belongs to."""

    layer: str
    """``user``, ``project``, ``local``, ``settings`` or ``managed``."""
    path: Path
    document: dict[str, Any]
    folder: str = ""
    """The folder that ``/x`` is relative to in its rules."""
    project: bool = False
    trusted: bool = True


def managed_folders() -> tuple[Path, ...]:
    """Return the folders with the administrator's settings, the strongest last. No variable changes them."""
    if sys.platform == "darwin":
        return (Path("/Library/Application Support/ClaudeCode"), Path("/Library/Application Support/vaka"))
    if sys.platform == "win32":
        return (Path(r"C:\Program Files\ClaudeCode"), Path(r"C:\Program Files\vaka"))
    return (Path("/etc/claude-code"), Path("/etc/vaka"))


def load_permissions(
    context: ConfigContext, *, settings: Path | None = None, flags: Settings | None = None, trust: bool = False,
    managed: Sequence[Path] | None = None,
) -> LoadedPermissions:  # fmt: skip
    """Return the permission layers that apply in ``context``.

    ``settings`` is a further file; ``flags`` are vaka's own settings, flags included. Raises ``ConfigError``.
    """
    layers: list[Layer] = []
    stronger: list[Layer] = []
    notes: list[str] = []
    for file in load_settings_files(context, settings=settings, trust=trust, managed=managed):
        layer = parse_permission_layer(file.document, file.layer, origin=str(file.path), notes=notes)
        layer = msgspec.structs.replace(layer, folder=file.folder, project=file.project, trusted=file.trusted)
        (stronger if file.layer == MANAGED else layers).append(layer)
    own = layers_from_settings(flags) if flags is not None else ()
    return LoadedPermissions(layers=(*layers, *own, *stronger), notes=tuple(notes))


def load_settings_files(
    context: ConfigContext, *, settings: Path | None = None, trust: bool = False, managed: Sequence[Path] | None = None
) -> list[SettingsFile]:
    """Return the ``.claude`` settings files that apply in ``context``, the weakest first. Raises ``ConfigError``."""
    files: list[SettingsFile] = []

    def add_file(path: Path, layer: str, folder: Path | None, **more: Any) -> None:
        document = read_document(path)
        if document is not None:
            files.append(SettingsFile(layer=layer, path=path, document=document, folder=str(folder or ""), **more))

    add_file(context.home / CLAUDE_FOLDER / USER_SETTINGS, "user", context.home / CLAUDE_FOLDER)
    for path in project_settings_files(context):
        add_file(path, _PROJECT_FILES[path.name], path.parents[1], project=True, trusted=trust)
    if settings is not None:
        path = context.cwd / settings.expanduser()
        if not path.exists():
            raise ConfigError(f"{path}: there is no such file")
        add_file(path, "settings", _base_folder_of(path, context))
    for folder in managed_folders() if managed is None else managed:
        for path in (folder / "managed-settings.json", *_drop_in_files(folder / "managed-settings.d")):
            add_file(path, MANAGED, None)
    return files


def project_settings_files(context: ConfigContext) -> list[Path]:
    """Return the ``.claude`` settings files of the project that holds the working folder."""
    root = find_project_folder(context.cwd, context.home)
    if root is None:
        return []
    return [path for file in _PROJECT_FILES if (path := root / CLAUDE_FOLDER / file).exists()]


def parse_permission_layer(
    document: Mapping[str, Any], name: str, *, origin: str = "", notes: list[str] | None = None
) -> Layer:
    """Return the permissions of a settings document. Raises ``ConfigError`` that names ``origin``."""
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
    return Layer(
        name=name, origin=origin, allow=lists["allow"], ask=lists["ask"], deny=(*lists["deny"], *denied), mode=mode,
        directories=lists["additionalDirectories"], no_bypass=_disables_bypass(where, table),
        exclusive=name == MANAGED and document.get("allowManagedPermissionRulesOnly") is True,
    )  # fmt: skip


def layers_from_settings(settings: Settings) -> Iterable[Layer]:
    """Yield vaka's own permission settings as layers: those of files, then variables, then flags."""
    values = {field: settings.values[name] for name, field in _VAKA_LISTS.items()}
    for field, value in (values | {"mode": settings.values["permission_mode"]}).items():
        if value.layer != "default" and value.value:
            fields: dict[str, Any] = {field: value.value if field == "mode" else tuple(value.value)}
            project = value.layer == "project"
            trusted = settings.trusted or not project
            yield Layer(name=value.layer, origin=value.origin, project=project, trusted=trusted, **fields)


def find_project_folder(cwd: Path, home: Path) -> Path | None:
    """Return the nearest folder with a ``.claude``, up to the root of the repository.

    Outside of a repository only ``cwd`` itself is searched: other users may have written to the folders above.
    """
    root = repository_root_of(cwd)
    candidates = [folder for folder in (cwd, *cwd.parents) if folder.is_relative_to(root)]
    return next((folder for folder in candidates if (folder / CLAUDE_FOLDER).is_dir() and folder != home), None)


def settings_env(files: Iterable[SettingsFile]) -> dict[str, str]:
    """Return the environment variables that trusted files set; stronger files win.

    A project cannot set those that decide where keys are sent, or what a program loads.
    """
    env: dict[str, str] = {}
    for file in files:
        table: object = file.document.get("env") if file.trusted else None
        for name, value in cast("dict[str, Any]", table).items() if isinstance(table, dict) else ():
            if value is not None and not (file.project and _STEERING_VARIABLE.search(str(name))):
                env[str(name)] = str(value)
    return env


def sandboxed_programs(files: Iterable[SettingsFile]) -> tuple[str, ...]:
    """Return what ``sandbox.mcp`` and ``sandbox.hooks`` put into the sandbox; a project can only switch them on."""
    chosen: dict[str, bool] = {}
    for file in files:
        table: object = file.document.get("sandbox")
        for name in ("mcp", "hooks"):
            value: object = cast("dict[str, Any]", table).get(name) if isinstance(table, dict) else None
            if value is True or (value is False and not file.project):
                chosen[name] = value
    return tuple(name for name, inside in chosen.items() if inside)


def settings_model(files: Iterable[SettingsFile]) -> tuple[str, str]:
    """Return the model that the strongest file names, as a name of vaka, and the file; ``""`` for none.

    ``haiku``, ``sonnet`` and ``opus`` are tiers; a name of Claude is one of Anthropic.
    """
    for file in reversed([*files]):
        name: object = file.document.get("model")
        if isinstance(name, str) and name.strip() and name.strip() != "default":
            text = name.strip()
            tier = MODEL_TIERS.get(text.lower())
            return tier or (f"anthropic/{text}" if text.startswith("claude-") else text), str(file.path)
    return "", ""


def may_have_content(context: ConfigContext) -> bool:
    """Return whether there may be memory files, skills or the like for agents: a look at few names."""
    root = find_project_folder(context.cwd, context.home)
    if root is not None or (context.home / CLAUDE_FOLDER).is_dir():
        return True
    folders = (context.cwd, *context.cwd.parents)
    return any((folder / name).exists() for folder in folders for name in ("CLAUDE.md", "CLAUDE.local.md", "AGENTS.md"))


def project_server_files(context: ConfigContext) -> list[Path]:
    """Return the ``.mcp.json`` files between the root of the repository and the working folder, the weakest first."""
    root = repository_root_of(context.cwd)
    folders = [folder for folder in (context.cwd, *context.cwd.parents) if folder.is_relative_to(root)]
    return [path for folder in reversed(folders) if (path := folder / PROJECT_SERVERS).exists()]


def may_have_servers(context: ConfigContext, files: Iterable[SettingsFile]) -> bool:
    """Return whether there may be MCP servers: a look at few names."""
    if any("mcpServers" in file.document or "mcp" in file.document for file in files):
        return True
    root = find_project_folder(context.cwd, context.home)
    plugins = [folder / CLAUDE_FOLDER / "plugins" for folder in (context.home, root) if folder is not None]
    places = (context.home / CLAUDE_STATE, *plugins, *(folder / "managed-mcp.json" for folder in managed_folders()))
    return any(path.exists() for path in places) or bool(project_server_files(context))


def read_document(path: Path) -> dict[str, Any] | None:
    """Return a settings file as data, ``None`` when it does not exist. Raises ``ConfigError``."""
    with read_errors(path):
        try:
            text = read_settings_text(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
    return parse_document(text, str(path))


def parse_document(text: str, origin: str) -> dict[str, Any]:
    """Return the JSON object in ``text``, ``{}`` for an empty text. Raises ``ConfigError`` that names ``origin``."""
    document = parse_json(text if text.strip() else "{}", origin)
    if not isinstance(document, dict):
        raise ConfigError(f"{origin}: expected an object, not {_type_name(document)}")
    return cast("dict[str, Any]", document)


def read_settings_text(path: Path, limit: int = MAX_SETTINGS_BYTES) -> str:
    """Read a regular file; O_NONBLOCK keeps a FIFO in its place from blocking the reader."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    with os.fdopen(descriptor, "rb") as file:
        info = os.fstat(file.fileno())
        if not stat.S_ISREG(info.st_mode):
            raise OSError("it is not a regular file")
        data = file.read(limit + 1)
    if len(data) > limit:
        raise OSError(f"it has more than {limit} bytes")
    return data.decode("utf-8-sig")


def _base_folder_of(path: Path, context: ConfigContext) -> Path:
    """Return the folder that ``/x`` is relative to in a --settings file: its own, or the one that holds ``.claude``."""
    folder = Path(os.path.abspath(path)).parent  # noqa: PTH100  # without resolving links
    return folder.parent if folder.name == CLAUDE_FOLDER and folder.parent != context.home else folder


def _drop_in_files(folder: Path) -> list[Path]:
    with read_errors(folder):
        return sorted(folder.glob("*.json"))


def _check_texts(where: str, key: str, value: Any) -> tuple[str, ...]:
    items = cast("list[object]", value) if isinstance(value, list) else [] if value is None else [value, None]
    wrong = [item for item in items if not isinstance(item, str)]
    if wrong:
        name = _type_name(wrong[0] if isinstance(value, list) else value)
        raise ConfigError(f"{where}: {key}: expected a list of texts, not {name}")
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


def settings_file_for_scope(scope: str, cwd: str, home: Path) -> tuple[Path, Path]:
    """Return the settings file that stores the rules of a scope, and the folder that ``/x`` is relative to in it.

    Raises ``InvalidInput`` where the scope has no file.
    """
    if scope == "user":
        return home / CLAUDE_FOLDER / USER_SETTINGS, home / CLAUDE_FOLDER
    if not cwd or not Path(cwd).is_dir():
        raise InvalidInput(f"the session's folder {cwd!r} does not exist, so no rule can be stored for its project")
    root = find_project_folder(Path(cwd), home) or repository_root_of(Path(cwd))
    if root == home:
        raise InvalidInput(f"{str(root)!r} is your home directory, not a project; use scope 'user'")
    file = root / CLAUDE_FOLDER / LOCAL_SETTINGS
    if not Path(os.path.realpath(file)).is_relative_to(os.path.realpath(root)):
        raise InvalidInput(f"{file} leads out of the project, so no rule is stored there")
    return file, root


def add_allow_rules(path: Path, rules: Iterable[str]) -> list[str]:
    """Add rules to ``permissions.allow`` of a settings file and return those that were not there.

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
    """Change the list of allow rules under a lock; return the rules that were added."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        real = Path(os.path.realpath(path))
        with _lock_folder(real.parent):
            document = read_document(real) or {}
            known = _allow_rules_of(document, real)
            changed = change(known)
            if changed != known:
                document["permissions"] = {**(document.get("permissions") or {}), "allow": changed}
                if real.exists() and not os.access(real, os.W_OK):
                    raise PermissionError(None, "it is read-only")
                replace_file(real, _encode_document(document, real))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror or error}") from error
    return [rule for rule in changed if rule not in known]


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


def _encode_document(document: dict[str, Any], path: Path) -> bytes:
    try:
        before = path.read_bytes().decode("utf-8-sig") if path.exists() else ""
        indent = re.search(r"^([ \t]+)\"", before, re.MULTILINE)
        text = json.dumps(document, indent=indent[1] if indent else 2, ensure_ascii=False, allow_nan=False)
        return f"{text}\n".replace("\n", "\r\n" if "\r\n" in before else "\n").encode()
    except ValueError as error:
        raise ConfigError(f"{path}: has a value that cannot be written as JSON: {error}") from error


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
