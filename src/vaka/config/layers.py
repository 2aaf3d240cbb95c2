"""Settings from every layer: defaults, the user's file, the project's, the environment, flags. The later wins."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias
from urllib.parse import unquote, urlsplit

import msgspec

from vaka.config import paths
from vaka.config.files import project_file, read_file
from vaka.config.keys import KEYS, Key, check, find, read
from vaka.config.model_tables import CHECKS, shown_entry, untrusted
from vaka.config.trust import Trust, trusted_root
from vaka.core.types.errors import ConfigError, InvalidInput

Layer: TypeAlias = Literal["default", "user", "project", "environment", "flag"]

_WIDENING = frozenset(
    {
        "add_dir", "allow", "allow_host", "command_cpu", "command_env", "command_file_size", "command_host",
        "command_memory", "command_processes", "durability", "model_files", "script_env", "snapshots", "store",
    }
)  # fmt: skip
"""Settings that let more happen, keep less, or bring sessions in which somebody else has allowed things."""
_EACH_TIME = frozenset({"model_files"})
"""Those that can say where keys are sent, as tables of models can: no yes of the past counts for them."""
_LOOSE = ("acceptEdits", "bypassPermissions")
_CAREFUL = ("bypassPermissions", "acceptEdits", "default", "plan", "dontAsk")


class Value(msgspec.Struct, frozen=True):
    """What a setting is, and who says so: ``default``, ``FILE:LINE``, a variable or a flag."""

    value: Any
    origin: str = "default"
    layer: Layer = "default"
    parts: Mapping[str, str] = {}
    """Of a table: who says each of its parts."""


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where somebody stands: their folder, home and environment."""

    cwd: Path
    home: Path
    environ: Mapping[str, str]

    @property
    def user_file(self) -> Path:
        """The user's own file, whether it exists or not."""
        return paths.config_file(self.environ, self.home)

    @property
    def trust(self) -> Trust:
        """What this person has said of folders."""
        return Trust(self.user_file.parent)

    @property
    def project_file(self) -> Path | None:
        """The project's file, if there is one."""
        return project_file(self.cwd)


class Settings:
    """The settings in force."""

    def __init__(self, values: Mapping[str, Value]) -> None:
        self.values = dict(values)
        self.notes: list[str] = []
        """What was said and does not count."""
        self.trust = False
        """Whether the folder is trusted."""
        self.file = ""
        """A file of ``.claude`` settings that was named besides those that are found."""

    def __getitem__(self, name: str) -> Any:
        return self.values[name].value

    def add(self, key: Key, value: Value) -> None:
        """Let a later layer speak: lists grow, tables part by part, everything else is replaced."""
        old = self.values[key.name]
        if key.kind == "list" and old.layer != "default":
            value = Value((*old.value, *value.value), f"{old.origin}, {value.origin}", value.layer)
        elif key.kind == "table":
            parts = {**old.parts, **(value.parts or dict.fromkeys(value.value, value.origin))}
            origin = ", ".join(dict.fromkeys(parts.values())) or "default"
            value = Value({**old.value, **value.value}, origin, value.layer, parts)
        self.values[key.name] = value


def load(place: Place, flags: Mapping[str, Any] | None = None, *, trust: bool = False) -> Settings:
    """Return the settings for somebody at ``place``; ``flags`` that are ``None`` or empty were not given.

    A folder is trusted when ``trust`` says so, or when the person has said so before.
    """
    settings = Settings({key.name: Value(key.default) for key in KEYS.values()})
    settings.values["store"] = Value(paths.default_store(place.environ, place.home))
    root = trusted_root(place.cwd)
    remembered = place.trust.of(root) is True
    settings.trust = trust or remembered
    if place.user_file.is_file():
        _file(settings, place.user_file, "user")
    project = place.project_file
    if project is not None:
        inside = project.resolve().is_relative_to(root)  # a file further up is not what somebody was asked about
        _file(settings, project, "project", trust=trust or (remembered and inside), typed=trust)
    _environment(settings, place.environ)
    for name, value in (flags or {}).items():
        if value is not None and value != ():
            _flag(settings, find(name), value)
    return settings


def redacted(name: str, value: Any) -> Any:
    """Return a setting as it may be shown: keys and the password of a store are not."""
    if name in CHECKS:
        return {part: shown_entry(entry) for part, entry in value.items()}
    if name != "store":
        return [*value] if isinstance(value, tuple) else value
    return without_password(str(value))


def without_password(url: str) -> str:
    """Return a URL as it may be shown."""
    password = urlsplit(url).password
    return url.replace(f":{password}@", ":***@", 1) if password else url


def unknown_variables(environ: Mapping[str, str]) -> Iterable[str]:
    """Return the variables that begin like ours and mean nothing."""
    known = {key.variable for key in KEYS.values()}
    return sorted(name for name in environ if name.startswith("VAKA_") and name not in known)


def _file(settings: Settings, path: Path, layer: Layer, *, trust: bool = True, typed: bool = True) -> None:
    """Let a file speak; ``typed``: it is trusted for this run, by a person who may look at it now."""
    for name, (value, origin, parts) in read_file(path).items():
        trusts = typed if name in _EACH_TIME else trust
        if layer == "project" and (why := _too_loose(name, value, trusts) or _loosens(settings, name, value, trusts)):
            settings.notes.append(f"{origin}: {name} does not count: {why}")
            continue
        if layer == "project" and not typed and parts:
            value = _harmless(settings, name, value, parts)
        settings.add(
            KEYS[name],
            Value(_meant(path, name, value), origin, layer, {part: parts[part] for part in parts if part in value}),
        )
    if layer == "user":
        _private(settings, path)


def _harmless(settings: Settings, name: str, table: Mapping[str, Any], parts: Mapping[str, str]) -> dict[str, Any]:
    """Return the parts of a table that an untrusted folder may say; the others are noted."""
    kept: dict[str, Any] = {}
    for part, entry in table.items():
        if why := untrusted(part, entry, settings[name]):
            settings.notes.append(f"{parts[part]}: {name}.{part} does not count: {why}; --trust counts it")
        else:
            kept[part] = entry
    return kept


def _private(settings: Settings, path: Path) -> None:
    """Note a key that others on this machine can read."""
    if os.name == "posix" and any(entry.key for entry in settings["models"].values()) and path.stat().st_mode & 0o077:
        settings.notes.append(f"{path}: holds a key and can be read by others; chmod 600 it")


def _too_loose(name: str, value: Any, trust: bool) -> str:
    """Return why a folder may not say this of itself, ``""`` when it may: until it is trusted it can only tighten."""
    if name == "permission_mode" and value == "bypassPermissions":
        return "only the user may set it so; use --permission-mode or the user's config.toml"
    if name == "sandbox" and value != "on":
        return "only the user may set it so; use --sandbox or the user's config.toml"
    if not trust and (name in _WIDENING or (name == "permission_mode" and value in _LOOSE)):
        return "this folder is not trusted; --trust counts it"
    return ""


def _loosens(settings: Settings, name: str, value: Any, trust: bool) -> str:
    """Return why a folder may not say this where the user is more careful already."""
    if trust or name != "permission_mode" or _CAREFUL.index(value) >= _CAREFUL.index(settings[name]):
        return ""
    return "this folder is not trusted and the user's own file is stricter; --trust counts it"


def _meant(path: Path, name: str, value: Any) -> Any:
    """A relative path in a file is meant from that file's folder."""
    if name in ("add_dir", "model_files"):
        return tuple(str(path.parent / Path(file).expanduser()) for file in value)
    if name != "store":
        return value
    parts = urlsplit(str(value))
    if parts.scheme != "sqlite" or parts.netloc or len(parts.path) < 2:
        return value
    return paths.sqlite_url(path.parent / unquote(parts.path[1:]))


def _environment(settings: Settings, environ: Mapping[str, str]) -> None:
    for key in KEYS.values():
        text = environ.get(key.variable, "")
        if not text:
            continue
        try:
            settings.add(key, Value(read(key, text), key.variable, "environment"))
        except ValueError as error:
            raise ConfigError(f"{key.variable}: {error}") from error


def _flag(settings: Settings, key: Key, value: Any) -> None:
    flag = f"--{key.name.replace('_', '-')}"
    try:
        settings.add(key, Value(check(key, value), flag, "flag"))
    except ValueError as error:
        raise InvalidInput(f"{flag}: {error}") from error
