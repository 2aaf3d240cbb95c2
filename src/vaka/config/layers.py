"""Settings from every layer: defaults, the user's file, the project's, the environment, flags. The later wins."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias
from urllib.parse import unquote, urlsplit

import msgspec

from vaka.config import paths
from vaka.config.files import project_file, read_file
from vaka.config.keys import KEYS, Key, check, find, read
from vaka.core.types.errors import ConfigError, InvalidInput

Layer: TypeAlias = Literal["default", "user", "project", "environment", "flag"]

_WIDENING = frozenset({"allow", "allow_host", "script_env"})
"""Lists that let more happen."""
_LOOSE = ("acceptEdits", "bypassPermissions")


class Value(msgspec.Struct, frozen=True):
    """What a setting is, and who says so: ``default``, ``FILE:LINE``, a variable or a flag."""

    value: Any
    origin: str = "default"
    layer: Layer = "default"


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
    def project_file(self) -> Path | None:
        """The project's file, if there is one."""
        return project_file(self.cwd)


class Settings:
    """The settings in force."""

    def __init__(self, values: Mapping[str, Value]) -> None:
        self.values = dict(values)
        self.notes: list[str] = []
        """What was said and does not count."""

    def __getitem__(self, name: str) -> Any:
        return self.values[name].value

    def add(self, key: Key, value: Value) -> None:
        """Let a later layer speak: lists grow, everything else is replaced."""
        old = self.values[key.name]
        if key.kind == "list" and old.layer != "default":
            value = Value((*old.value, *value.value), f"{old.origin}, {value.origin}", value.layer)
        self.values[key.name] = value


def load(place: Place, flags: Mapping[str, Any] | None = None, *, trust: bool = False) -> Settings:
    """Return the settings for somebody at ``place``; ``flags`` that are ``None`` or empty were not given."""
    settings = Settings({key.name: Value(key.default) for key in KEYS.values()})
    settings.values["store"] = Value(paths.default_store(place.environ, place.home))
    if place.user_file.is_file():
        _file(settings, place.user_file, "user")
    project = place.project_file
    if project is not None:
        _file(settings, project, "project", trust=trust)
    _environment(settings, place.environ)
    for name, value in (flags or {}).items():
        if value is not None and value != ():
            _flag(settings, find(name), value)
    return settings


def redacted(name: str, value: Any) -> Any:
    """Return a setting as it may be shown: a store's password is not."""
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


def _file(settings: Settings, path: Path, layer: Layer, *, trust: bool = True) -> None:
    for name, (value, origin) in read_file(path).items():
        if layer == "project" and (why := _too_loose(name, value, trust)):
            settings.notes.append(f"{origin}: {name} does not count: {why}")
            continue
        value = _beside(path, value) if name == "store" else value
        settings.add(KEYS[name], Value(value, origin, layer))


def _too_loose(name: str, value: Any, trust: bool) -> str:
    """Return why a folder may not say this of itself, ``""`` when it may: until it is trusted it can only tighten."""
    if name == "permission_mode" and value == "bypassPermissions":
        return "only the user may set it so; use --permission-mode or the user's config.toml"
    if not trust and (name in _WIDENING or (name == "permission_mode" and value in _LOOSE)):
        return "this folder is not trusted; --trust counts it"
    return ""


def _beside(path: Path, store: str) -> str:
    """A relative SQLite path in a file is meant from that file's folder."""
    parts = urlsplit(store)
    if parts.scheme != "sqlite" or parts.netloc or len(parts.path) < 2:
        return store
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
