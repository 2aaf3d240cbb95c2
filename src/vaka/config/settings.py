"""Settings merged from defaults, user file, project file, environment and flags; user paths; trusted folders."""

import contextlib
import hashlib
import os
import sys
from collections.abc import Callable, Generator, Iterable, Mapping
from contextvars import ContextVar
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeAlias
from urllib.parse import quote, unquote, urlsplit

import msgspec

from vaka.config.documents import JsonPath, json_line_of, replace_file
from vaka.config.model_tables import hide_password, redact_entry, untrusted_reason
from vaka.config.setting_keys import (
    GROUP_KEYS,
    SETTING_KEYS,
    FileSetting,
    SettingKey,
    check_value,
    field_value,
    find_key,
    find_project_file,
    parse_value,
    read_settings_file,
)
from vaka.core.types.errors import ConfigError, InvalidInput
from vaka.core.types.tool import MODES_BY_STRICTNESS, SANDBOX_ONLY_RULE, Layer

APP_NAME = "vaka"
CLAUDE_FOLDER = ".claude"
USER_SETTINGS = "settings.json"
LOCAL_SETTINGS = "settings.local.json"
"""One user's settings in a project; not shared with the project."""
MANAGED = "managed"
"""The layer of the administrator, which is stronger than all others."""
RULE_SETTINGS = {"allow": "allow", "confirm": "ask", "deny": "deny"}
"""The settings of vaka that are lists of rules, with the fields of a layer."""
_LAYER_SETTINGS = {**RULE_SETTINGS, "add_dir": "directories"}
PEPPER_VARIABLE = "VAKA_SERVER_PEPPER"
"""The variable with the pepper of the server's API keys."""
API_KEY_VARIABLE = "VAKA_API_KEY"
"""The variable with the key for the server of ``--server``."""


_KEYS_BY_VARIABLE = {key.variable: key for key in SETTING_KEYS.values()}
"""The settings by the environment variables that set them."""


def user_config_file(environ: Mapping[str, str], home: Path) -> Path:
    return _platform_folder(environ, home, "XDG_CONFIG_HOME", ".config", "APPDATA") / "config.toml"


def keys_folder(environ: Mapping[str, str], home: Path) -> Path:
    """Return the folder with the keys of providers that ``vaka login`` stores."""
    return user_config_file(environ, home).parent / "stored_keys"


def data_folder(environ: Mapping[str, str], home: Path) -> Path:
    return _platform_folder(environ, home, "XDG_DATA_HOME", ".local/share", "LOCALAPPDATA")


def default_store_url(environ: Mapping[str, str], home: Path) -> str:
    return sqlite_url(data_folder(environ, home) / "vaka.db")


def sqlite_url(path: Path) -> str:
    return f"sqlite:///{quote(path.as_posix())}"


def _platform_folder(environ: Mapping[str, str], home: Path, variable: str, unix: str, windows: str) -> Path:
    """Return a folder of vaka; an absolute XDG variable wins on every system."""
    if Path(environ.get(variable, "")).is_absolute():
        return Path(environ[variable]) / APP_NAME
    if sys.platform == "win32":
        return Path(environ.get(windows) or home / "AppData" / "Local") / APP_NAME
    if sys.platform == "darwin":
        return home / "Library" / "Application Support" / APP_NAME
    return home / unix / APP_NAME


class TrustDecision(msgspec.Struct, frozen=True):
    folder: str
    trusted: bool


class TrustStore:
    """The user's decisions to trust folders, one file each beside their ``config.toml``."""

    def __init__(self, config: Path) -> None:
        self._folder = config / "trust"

    def lookup(self, root: Path) -> bool | None:
        """Return the decision on a folder, ``None`` when there is none or it cannot be read."""
        decision = _read_decision(self.file_of(root))
        return decision.trusted if decision is not None and decision.folder == str(root) else None

    def record(self, root: Path, trusted: bool) -> None:
        """Store a decision. Raises ``ConfigError``."""
        path = self.file_of(root)
        try:
            replace_file(path, msgspec.json.encode(TrustDecision(str(root), trusted)))
        except OSError as error:
            raise ConfigError(f"{path}: cannot be written: {error.strerror or error}") from error

    def forget(self, root: Path) -> bool:
        """Delete a decision, so that the user is asked again; return whether there was one. Raises ``ConfigError``."""
        path = self.file_of(root)
        try:
            path.unlink()
        except FileNotFoundError:
            return False
        except OSError as error:
            raise ConfigError(f"{path}: cannot be removed: {error.strerror or error}") from error
        return True

    def list_decisions(self) -> Iterable[TrustDecision]:
        """Return every decision, sorted by folder."""
        files: list[Path] = []
        with contextlib.suppress(OSError):
            files = [*self._folder.glob("*.json")]
        decisions = [decision for file in files if (decision := _read_decision(file))]
        return sorted(decisions, key=lambda decision: decision.folder)

    def file_of(self, root: Path) -> Path:
        """Return the file with the decision on a folder."""
        return self._folder / f"{hashlib.sha256(str(root).encode('utf-8', 'surrogateescape')).hexdigest()[:32]}.json"


def repository_root_of(folder: Path) -> Path:
    """Return the root of the repository that holds a folder; outside of a repository, the folder itself."""
    for parent in (folder, *folder.parents):
        if (parent / ".git").exists():
            return parent
    return folder


def trust_root_of(cwd: Path) -> Path:
    """Return the folder that a decision made in ``cwd`` is about."""
    return repository_root_of(cwd.resolve())


def _read_decision(path: Path) -> TrustDecision | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=TrustDecision)
    except (OSError, msgspec.MsgspecError):
        return None


SettingLayer: TypeAlias = Literal[
    "default", "user", "project", "local", "settings", "override", "environment", "flag", "managed"
]


class SettingValue(msgspec.Struct, frozen=True):
    """The value of a setting and its origin: ``default``, ``FILE:LINE``, a variable or a flag."""

    value: Any
    origin: str = "default"
    layer: SettingLayer = "default"
    parts: Mapping[str, str] = {}
    """Of a table: the origin of each of its parts."""


_folder: ContextVar[Path | None] = ContextVar("folder", default=None)


def settings_folder() -> Path:
    """Return the folder whose settings are read: the folder of ``use_settings_folder``, else the current folder."""
    return _folder.get() or Path.cwd()


@contextlib.contextmanager
def use_settings_folder(folder: Path) -> Generator[None]:
    """Read the settings of a folder that is not the current one: one process may work in several."""
    token = _folder.set(folder)
    try:
        yield
    finally:
        _folder.reset(token)


class ConfigContext(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """The working folder, home and environment that settings are read for.

    Its places are searched for and its files are read once: a context is made for one reading of the settings.
    """

    cwd: Path
    home: Path
    environ: Mapping[str, str]

    @cached_property
    def user_file(self) -> Path:
        return user_config_file(self.environ, self.home)

    @cached_property
    def trust(self) -> TrustStore:
        return TrustStore(self.user_file.parent)

    @cached_property
    def project_file(self) -> Path | None:
        return find_project_file(self.cwd)

    @cached_property
    def user_settings(self) -> Mapping[str, FileSetting] | None:
        """The settings of ``user_file``, ``None`` if there is no such file. Raises ``ConfigError``."""
        return read_settings_file(self.user_file) if self.user_file.is_file() else None

    @cached_property
    def project_settings(self) -> Mapping[str, FileSetting] | None:
        """The settings of ``project_file``, ``None`` if there is no such file. Raises ``ConfigError``."""
        return read_settings_file(self.project_file) if self.project_file is not None else None

    @cached_property
    def repository(self) -> Path:
        """The root of the repository that holds the working folder; outside of a repository, the working folder."""
        return repository_root_of(self.cwd)

    @cached_property
    def project_folder(self) -> Path | None:
        """The nearest folder with a ``.claude``, up to the root of the repository.

        Outside of a repository only the working folder itself is searched: other users may have written to the folders
        above.
        """
        for folder in self.folders:
            if folder != self.home and (folder / CLAUDE_FOLDER).is_dir():
                return folder
        return None

    @cached_property
    def folders(self) -> tuple[Path, ...]:
        """The working folder and its parents, up to the root of the repository."""
        above = (self.cwd, *self.cwd.parents)
        return above[: above.index(self.repository) + 1]

    @cached_property
    def claude_folders(self) -> tuple[Path, ...]:
        """The ``.claude`` folders of the user and of the project that exist."""
        own = self.home / CLAUDE_FOLDER
        project = () if self.project_folder is None else (self.project_folder / CLAUDE_FOLDER,)
        return (own, *project) if own.is_dir() else project


class LoadedPermissions(msgspec.Struct, frozen=True, kw_only=True):
    """All layers, the weakest first, and notes on what was ignored."""

    layers: tuple[Layer, ...]
    notes: tuple[str, ...] = ()


class SettingsFile(msgspec.Struct, frozen=True, kw_only=True):
    """A settings file and the layer it belongs to."""

    layer: str
    """``user``, ``project``, ``local``, ``settings``, ``override`` or ``managed``."""
    path: Path
    document: dict[str, Any]
    text: str = ""
    """Its JSON without comments, for the lines of its values."""
    has_comments: bool = False
    """Whether it has comments or commas after a last item, which JSON does not have."""
    folder: str = ""
    """The folder that ``/x`` is relative to in its rules."""
    project: bool = False
    trusted: bool = True
    approved: frozenset[str] = frozenset()
    """Allow rules that a person has approved for the project: they count although its folder is not trusted."""

    def locate(self, path: JsonPath) -> str:
        """Return ``file:line`` of a value; of settings without a text, their origin."""
        return f"{self.path}:{json_line_of(self.text, path)}" if self.text else str(self.path)


class Settings:
    def __init__(self, context: ConfigContext, values: Mapping[str, SettingValue]) -> None:
        self.context = context
        self.values = dict(values)
        self.claude_files: list[SettingsFile] | None = None
        """The ``.claude`` settings files in force, once they were read."""
        self.notes: list[str] = []
        """Settings that were ignored, each with the reason."""
        self.trusted = False
        self.claude_file = ""
        """A further file of ``.claude`` settings, named by --settings, or JSON."""
        self.flags: dict[str, Any] = {}
        """The flags of the command, to read the settings again."""
        self.reload: Callable[[], None] = lambda: None
        """Reads them again with changed flags, for the runtime that was made from them."""
        self.mcp_configs: tuple[str, ...] = ()
        """Further files with MCP servers, or their texts, named by --mcp-config."""
        self.strict_mcp = False
        """Whether no other files define MCP servers."""
        self.server_documents: dict[Path, object] = {}
        """The files with MCP servers as they were read last."""
        self.server_notes: list[str] = []
        """Files with MCP servers that cannot be read, and servers that are not started."""
        self.wants_servers = False
        """Whether the MCP servers of files are used for any agent, not only for the coding agent."""
        self.plugin_dirs: tuple[Path, ...] = ()
        """Folders of plugins, named by --plugin-dir."""

    def __getitem__(self, name: str) -> Any:
        return self.values[name].value

    def fields_of(self, group: type[msgspec.Struct]) -> dict[str, Any]:
        """Return the fields of an option group that settings have."""
        return {key.field: field_value(key, self[key.name]) for key in GROUP_KEYS[group]}

    def add(self, key: SettingKey, value: SettingValue) -> None:
        """Apply a value of a later layer: lists are appended, tables merged part by part, other values replaced."""
        old = self.values[key.name]
        if key.kind == "list" and old.layer != "default":
            value = SettingValue((*old.value, *value.value), f"{old.origin}, {value.origin}", value.layer)
        elif key.kind == "table":
            parts = {**old.parts, **(value.parts or dict.fromkeys(value.value, value.origin))}
            origin = ", ".join(dict.fromkeys(parts.values())) or "default"
            value = SettingValue({**old.value, **value.value}, origin, value.layer, parts)
        self.values[key.name] = value


def load_settings(context: ConfigContext, flags: Mapping[str, Any] | None = None, *, trust: bool = False) -> Settings:
    """Return the settings for ``context``; ``flags`` that are ``None`` or empty were not given.

    The folder is trusted if ``trust`` is set or a stored decision says so. Raises ``ConfigError`` and ``InvalidInput``.
    """
    settings = Settings(context, {key.name: SettingValue(key.default) for key in SETTING_KEYS.values()})
    settings.values["store"] = SettingValue(default_store_url(context.environ, context.home))
    root = trust_root_of(context.cwd)
    remembered = context.trust.lookup(root) is True
    settings.trusted = trust or remembered
    if context.user_settings is not None:
        _apply_file(settings, context.user_file, context.user_settings, "user")
    project = context.project_file
    if project is not None and context.project_settings is not None:
        inside = project.resolve().is_relative_to(root)  # the stored decision does not cover a file further up
        trusts = trust or (remembered and inside)
        _apply_file(settings, project, context.project_settings, "project", trust=trusts, trusted_now=trust)
    _apply_environment(settings, context.environ)
    for name, value in (flags or {}).items():
        if value is not None and value != ():
            _apply_flag(settings, find_key(name), value)
    return settings


def layers_from_settings(settings: Settings) -> Iterable[Layer]:
    """Yield vaka's own permission settings as layers: of files, then variables, then flags."""
    values = {field: settings.values[name] for name, field in _LAYER_SETTINGS.items()}
    for field, value in (values | {"mode": settings.values["permission_mode"]}).items():
        if value.layer != "default" and value.value:
            fields: dict[str, Any] = {field: value.value if field == "mode" else tuple(value.value)}
            project = value.layer == "project"
            trusted = settings.trusted or not project
            yield Layer(name=value.layer, origin=value.origin, project=project, trusted=trusted, **fields)
    if (sandbox := settings.values["sandbox"]).value == "on":
        yield Layer(name=sandbox.layer, origin=sandbox.origin, deny=(SANDBOX_ONLY_RULE,))


def redact_setting(name: str, value: Any) -> Any:
    """Return a setting with keys and the password of the store replaced by ``***``."""
    if find_key(name).kind == "table":
        return {part: redact_entry(entry) for part, entry in value.items()}
    if name != "store":
        return [*value] if isinstance(value, tuple) else value
    return hide_password(str(value))


def unknown_variables(environ: Mapping[str, str]) -> Iterable[str]:
    """Return the ``VAKA_*`` variables that no setting has."""
    known = {API_KEY_VARIABLE, PEPPER_VARIABLE, *_KEYS_BY_VARIABLE}
    return sorted(name for name in environ if name.startswith("VAKA_") and name not in known)


def _apply_file(
    settings: Settings,
    path: Path,
    values: Mapping[str, FileSetting],
    layer: SettingLayer,
    *,
    trust: bool = True,
    trusted_now: bool = True,
) -> None:
    """Apply a file; ``trusted_now`` means that it is trusted for this run by --trust, not by a stored decision."""
    for name, (value, origin, parts) in values.items():
        if layer == "project":
            trusts = trusted_now if SETTING_KEYS[name].per_run else trust
            if why := _refusal_reason(settings, name, value, trusts):
                settings.notes.append(f"{origin}: {name} does not count: {why}")
                continue
            if not trusted_now and parts:
                value = _keep_harmless_parts(settings, name, value, parts)
        origins = {part: parts[part] for part in parts if part in value}
        settings.add(SETTING_KEYS[name], SettingValue(_resolve_relative(path, name, value), origin, layer, origins))
    if layer == "user":
        _warn_if_key_readable(settings, path)


def _keep_harmless_parts(
    settings: Settings, name: str, table: Mapping[str, Any], parts: Mapping[str, str]
) -> dict[str, Any]:
    """Return the parts of a table that an untrusted folder may set; note the others."""
    harmless: dict[str, Any] = {}
    for part, entry in table.items():
        if why := untrusted_reason(part, entry, settings[name]):
            settings.notes.append(f"{parts[part]}: {name}.{part} does not count: {why}; --trust counts it")
        else:
            harmless[part] = entry
    return harmless


def _warn_if_key_readable(settings: Settings, path: Path) -> None:
    if os.name == "posix" and any(entry.key for entry in settings["models"].values()) and path.stat().st_mode & 0o077:
        settings.notes.append(f"{path}: has a key and other users can read it; run chmod 600 on it")


def _refusal_reason(settings: Settings, name: str, value: Any, trust: bool) -> str:
    """Return why a folder's own file may not set this, ``""`` when it may: an untrusted folder can only tighten."""
    if name == "permission_mode" and value == "bypassPermissions":
        return "only the user may set it so; use --permission-mode or the user's config.toml"
    if name == "sandbox" and value != "on":
        return "only the user may set it so; use --sandbox or the user's config.toml"
    if trust:
        return ""
    strictness = MODES_BY_STRICTNESS.index
    is_mode = name == "permission_mode"
    if SETTING_KEYS[name].widens or (is_mode and strictness(value) < strictness("default")):
        return "this folder is not trusted; --trust counts it"
    if is_mode and strictness(value) < strictness(settings[name]):
        return "this folder is not trusted and the user's own file is stricter; --trust counts it"
    return ""


def _resolve_relative(path: Path, name: str, value: Any) -> Any:
    """Return a value with its relative paths resolved against the folder of the file."""
    key = SETTING_KEYS[name]
    if key.path and key.kind == "list":
        return tuple(str(path.parent / Path(file).expanduser()) for file in value)
    if key.path and value:
        return str(path.parent / Path(value).expanduser())
    return absolute_store_url(path.parent, str(value)) if name == "store" else value


def absolute_store_url(folder: Path, url: str) -> str:
    """Return the URL of a store with its relative path resolved against a folder."""
    parts = urlsplit(url)
    if parts.scheme != "sqlite" or parts.netloc or len(parts.path) < 2:
        return url
    return sqlite_url(folder / unquote(parts.path[1:]))


def _apply_environment(settings: Settings, environ: Mapping[str, str]) -> None:
    for variable, key in _KEYS_BY_VARIABLE.items():
        text = environ.get(variable, "")
        if not text:
            continue
        try:
            settings.add(key, SettingValue(parse_value(key, text), variable, "environment"))
        except ValueError as error:
            raise ConfigError(f"{variable}: {error}") from error


def _apply_flag(settings: Settings, key: SettingKey, value: Any) -> None:
    try:
        settings.add(key, SettingValue(check_value(key, value), key.flag_name, "flag"))
    except ValueError as error:
        raise InvalidInput(f"{key.flag_name}: {error}") from error
