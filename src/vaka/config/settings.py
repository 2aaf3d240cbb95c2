"""Settings merged from defaults, user file, project file, environment and flags; user paths; trusted folders."""

import contextlib
import hashlib
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias
from urllib.parse import quote, unquote, urlsplit

import msgspec

from vaka.config.model_tables import TABLE_CHECKS, redact_entry, untrusted_reason
from vaka.config.setting_keys import SETTING_KEYS, SettingKey, check_value, find_key, parse_value
from vaka.config.toml_files import find_project_file, read_settings_file, replace_file
from vaka.core.types.errors import ConfigError, InvalidInput

APP_NAME = "vaka"


def user_config_file(environ: Mapping[str, str], home: Path) -> Path:
    """Return the user's ``config.toml``."""
    return _platform_folder(environ, home, "XDG_CONFIG_HOME", ".config", "APPDATA") / "config.toml"


def data_folder(environ: Mapping[str, str], home: Path) -> Path:
    """Return the folder for what vaka keeps."""
    return _platform_folder(environ, home, "XDG_DATA_HOME", ".local/share", "LOCALAPPDATA")


def default_store_url(environ: Mapping[str, str], home: Path) -> str:
    """Return the store used when nobody names one: a SQLite file in the user's data folder."""
    return sqlite_url(data_folder(environ, home) / "vaka.db")


def sqlite_url(path: Path) -> str:
    """Return the URL of a SQLite file."""
    return f"sqlite:///{quote(path.as_posix())}"


def _platform_folder(environ: Mapping[str, str], home: Path, variable: str, unix: str, windows: str) -> Path:
    """Return a folder of ours; an XDG variable counts everywhere, as long as it is absolute."""
    said = environ.get(variable, "")
    if Path(said).is_absolute():
        return Path(said) / APP_NAME
    if sys.platform == "win32":
        return Path(environ.get(windows) or home / "AppData" / "Local") / APP_NAME
    if sys.platform == "darwin":
        return home / "Library" / "Application Support" / APP_NAME
    return home / unix / APP_NAME


_TRUST_FOLDER = "trust"


class TrustDecision(msgspec.Struct, frozen=True):
    """What a person said of a folder."""

    folder: str
    trusted: bool


class TrustStore:
    """What a person has said, in the folder of their configuration."""

    def __init__(self, config: Path) -> None:
        self._folder = config / _TRUST_FOLDER

    def lookup(self, root: Path) -> bool | None:
        """Return whether a folder is trusted, ``None`` when nobody was asked. What cannot be read is no yes."""
        answer = _read_decision(self._file_of(root))
        return answer.trusted if answer is not None and answer.folder == str(root) else None

    def record(self, root: Path, trusted: bool) -> None:
        """Keep an answer. Raises ``ConfigError``."""
        path = self._file_of(root)
        try:
            replace_file(path, msgspec.json.encode(TrustDecision(str(root), trusted)))
        except OSError as error:
            raise ConfigError(f"{path}: cannot be written: {error.strerror or error}") from error

    def forget(self, root: Path) -> bool:
        """Forget an answer, to be asked again; return whether there was one. Raises ``ConfigError``."""
        path = self._file_of(root)
        try:
            path.unlink()
        except FileNotFoundError:
            return False
        except OSError as error:
            raise ConfigError(f"{path}: cannot be removed: {error.strerror or error}") from error
        return True

    def list_decisions(self) -> Iterable[TrustDecision]:
        """Return every answer, by folder."""
        files: list[Path] = []
        with contextlib.suppress(OSError):
            files = sorted(self._folder.glob("*.json"))
        return sorted((answer for file in files if (answer := _read_decision(file))), key=lambda answer: answer.folder)

    def _file_of(self, root: Path) -> Path:
        return self._folder / f"{hashlib.sha256(str(root).encode('utf-8', 'surrogateescape')).hexdigest()[:32]}.json"


def trust_root_of(cwd: Path) -> Path:
    """Return the folder that is meant when somebody in ``cwd`` is asked: the repository's, or this one."""
    here = cwd.resolve()
    return next((folder for folder in (here, *here.parents) if (folder / ".git").exists()), here)


def _read_decision(path: Path) -> TrustDecision | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=TrustDecision)
    except (OSError, msgspec.MsgspecError):
        return None


SettingLayer: TypeAlias = Literal["default", "user", "project", "environment", "flag"]

_WIDENING_KEYS = frozenset(
    {
        "add_dir", "allow", "allow_host", "command_cpu", "command_env", "command_file_size", "command_host",
        "command_memory", "command_processes", "durability", "model_files", "script_env", "snapshots", "store",
    }
)  # fmt: skip
"""Settings that let more happen, keep less, or bring sessions in which somebody else has allowed things."""

_TRUSTED_PER_RUN = frozenset({"model_files"})
"""Those that can say where keys are sent, as tables of models can: no yes of the past counts for them."""

_LOOSE_MODES = ("acceptEdits", "bypassPermissions")

_MODES_BY_STRICTNESS = ("bypassPermissions", "acceptEdits", "default", "plan", "dontAsk")


class SettingValue(msgspec.Struct, frozen=True):
    """What a setting is, and who says so: ``default``, ``FILE:LINE``, a variable or a flag."""

    value: Any
    origin: str = "default"
    layer: SettingLayer = "default"
    parts: Mapping[str, str] = {}
    """Of a table: who says each of its parts."""


class ConfigContext(msgspec.Struct, frozen=True, kw_only=True):
    """Where somebody stands: their folder, home and environment."""

    cwd: Path
    home: Path
    environ: Mapping[str, str]

    @property
    def user_file(self) -> Path:
        """The user's own file, whether it exists or not."""
        return user_config_file(self.environ, self.home)

    @property
    def trust(self) -> TrustStore:
        """What this person has said of folders."""
        return TrustStore(self.user_file.parent)

    @property
    def project_file(self) -> Path | None:
        """The project's file, if there is one."""
        return find_project_file(self.cwd)


class Settings:
    """The settings in force."""

    def __init__(self, values: Mapping[str, SettingValue]) -> None:
        self.values = dict(values)
        self.notes: list[str] = []
        """What was said and does not count."""
        self.trusted = False
        """Whether the folder is trusted."""
        self.claude_file = ""
        """A file of ``.claude`` settings that was named besides those that are found."""

    def __getitem__(self, name: str) -> Any:
        return self.values[name].value

    def add(self, key: SettingKey, value: SettingValue) -> None:
        """Let a later layer speak: lists grow, tables part by part, everything else is replaced."""
        old = self.values[key.name]
        if key.kind == "list" and old.layer != "default":
            value = SettingValue((*old.value, *value.value), f"{old.origin}, {value.origin}", value.layer)
        elif key.kind == "table":
            parts = {**old.parts, **(value.parts or dict.fromkeys(value.value, value.origin))}
            origin = ", ".join(dict.fromkeys(parts.values())) or "default"
            value = SettingValue({**old.value, **value.value}, origin, value.layer, parts)
        self.values[key.name] = value


def load_settings(context: ConfigContext, flags: Mapping[str, Any] | None = None, *, trust: bool = False) -> Settings:
    """Return the settings for somebody at ``place``; ``flags`` that are ``None`` or empty were not given.

    A folder is trusted when ``trust`` says so, or when the person has said so before.
    """
    settings = Settings({key.name: SettingValue(key.default) for key in SETTING_KEYS.values()})
    settings.values["store"] = SettingValue(default_store_url(context.environ, context.home))
    root = trust_root_of(context.cwd)
    remembered = context.trust.lookup(root) is True
    settings.trusted = trust or remembered
    if context.user_file.is_file():
        _apply_file(settings, context.user_file, "user")
    project = context.project_file
    if project is not None:
        inside = project.resolve().is_relative_to(root)  # a file further up is not what somebody was asked about
        _apply_file(settings, project, "project", trust=trust or (remembered and inside), trusted_now=trust)
    _apply_environment(settings, context.environ)
    for name, value in (flags or {}).items():
        if value is not None and value != ():
            _apply_flag(settings, find_key(name), value)
    return settings


def redact_setting(name: str, value: Any) -> Any:
    """Return a setting as it may be shown: keys and the password of a store are not."""
    if name in TABLE_CHECKS:
        return {part: redact_entry(entry) for part, entry in value.items()}
    if name != "store":
        return [*value] if isinstance(value, tuple) else value
    return hide_password(str(value))


def hide_password(url: str) -> str:
    """Return a URL as it may be shown."""
    password = urlsplit(url).password
    return url.replace(f":{password}@", ":***@", 1) if password else url


def unknown_variables(environ: Mapping[str, str]) -> Iterable[str]:
    """Return the variables that begin like ours and mean nothing."""
    known = {key.variable for key in SETTING_KEYS.values()}
    return sorted(name for name in environ if name.startswith("VAKA_") and name not in known)


def _apply_file(
    settings: Settings, path: Path, layer: SettingLayer, *, trust: bool = True, trusted_now: bool = True
) -> None:
    """Let a file speak; ``typed``: it is trusted for this run, by a person who may look at it now."""
    for name, (value, origin, parts) in read_settings_file(path).items():
        trusts = trusted_now if name in _TRUSTED_PER_RUN else trust
        if layer == "project" and (
            why := _widening_reason(name, value, trusts) or _loosening_reason(settings, name, value, trusts)
        ):
            settings.notes.append(f"{origin}: {name} does not count: {why}")
            continue
        if layer == "project" and not trusted_now and parts:
            value = _keep_harmless_parts(settings, name, value, parts)
        settings.add(
            SETTING_KEYS[name],
            SettingValue(
                _resolve_relative(path, name, value),
                origin,
                layer,
                {part: parts[part] for part in parts if part in value},
            ),
        )
    if layer == "user":
        _warn_if_key_readable(settings, path)


def _keep_harmless_parts(
    settings: Settings, name: str, table: Mapping[str, Any], parts: Mapping[str, str]
) -> dict[str, Any]:
    """Return the parts of a table that an untrusted folder may say; the others are noted."""
    kept: dict[str, Any] = {}
    for part, entry in table.items():
        if why := untrusted_reason(part, entry, settings[name]):
            settings.notes.append(f"{parts[part]}: {name}.{part} does not count: {why}; --trust counts it")
        else:
            kept[part] = entry
    return kept


def _warn_if_key_readable(settings: Settings, path: Path) -> None:
    """Note a key that others on this machine can read."""
    if os.name == "posix" and any(entry.key for entry in settings["models"].values()) and path.stat().st_mode & 0o077:
        settings.notes.append(f"{path}: holds a key and can be read by others; chmod 600 it")


def _widening_reason(name: str, value: Any, trust: bool) -> str:
    """Return why a folder may not say this of itself, ``""`` when it may: until it is trusted it can only tighten."""
    if name == "permission_mode" and value == "bypassPermissions":
        return "only the user may set it so; use --permission-mode or the user's config.toml"
    if name == "sandbox" and value != "on":
        return "only the user may set it so; use --sandbox or the user's config.toml"
    if not trust and (name in _WIDENING_KEYS or (name == "permission_mode" and value in _LOOSE_MODES)):
        return "this folder is not trusted; --trust counts it"
    return ""


def _loosening_reason(settings: Settings, name: str, value: Any, trust: bool) -> str:
    """Return why a folder may not say this where the user is more careful already."""
    if (
        trust
        or name != "permission_mode"
        or _MODES_BY_STRICTNESS.index(value) >= _MODES_BY_STRICTNESS.index(settings[name])
    ):
        return ""
    return "this folder is not trusted and the user's own file is stricter; --trust counts it"


def _resolve_relative(path: Path, name: str, value: Any) -> Any:
    """A relative path in a file is meant from that file's folder."""
    if name in ("add_dir", "model_files"):
        return tuple(str(path.parent / Path(file).expanduser()) for file in value)
    if name != "store":
        return value
    parts = urlsplit(str(value))
    if parts.scheme != "sqlite" or parts.netloc or len(parts.path) < 2:
        return value
    return sqlite_url(path.parent / unquote(parts.path[1:]))


def _apply_environment(settings: Settings, environ: Mapping[str, str]) -> None:
    for key in SETTING_KEYS.values():
        text = environ.get(key.variable, "")
        if not text:
            continue
        try:
            settings.add(key, SettingValue(parse_value(key, text), key.variable, "environment"))
        except ValueError as error:
            raise ConfigError(f"{key.variable}: {error}") from error


def _apply_flag(settings: Settings, key: SettingKey, value: Any) -> None:
    flag = f"--{key.name.replace('_', '-')}"
    try:
        settings.add(key, SettingValue(check_value(key, value), flag, "flag"))
    except ValueError as error:
        raise InvalidInput(f"{flag}: {error}") from error
