"""Every setting: name, type, default and allowed values; how its text is parsed, and the TOML files that set it.

A setting is a marked field of one of the ``SETTING_GROUPS``.
"""

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import UnionType
from typing import Any, Literal, NamedTuple, TypeAlias, Union, cast, get_args, get_origin

import msgspec

from vaka.config.documents import (
    line_of,
    parse_toml,
    read_errors,
    replace_file,
    set_toml_key,
    split_dotted_key,
    suggest,
)
from vaka.config.model_tables import TABLE_CHECKS
from vaka.config.options import CommandLine, Commands, Models, NetworkAccess, Permissions, Scripts, Storage, Workspace
from vaka.core.ports.sandbox import ResourceLimits
from vaka.core.types.errors import ConfigError, InvalidInput
from vaka.core.types.keywords import Flag, Key
from vaka.core.types.limits import Limits

SettingKind: TypeAlias = Literal["text", "list", "whole", "count", "number", "seconds", "table"]

_UNIT_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


_SWITCH = ("on", "off")
"""The values of a setting whose field is a ``bool``."""


class SettingKey(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    kind: SettingKind = "text"
    default: Any = None
    choices: tuple[str, ...] = ()
    widens: bool = False
    """Whether it permits more, stores less, or opens sessions in which another user has approved calls."""
    per_run: bool = False
    """Whether only ``--trust`` lets the files of a project set it, and no stored decision."""
    path: Literal["", "file", "folder"] = ""
    unit: int = 1
    flag: Flag | None = None
    field: str = ""
    """The field of its option group."""
    is_whole: bool = False
    """Whether the field is a whole number, also if the setting need not be."""
    least: int = 1
    """The least whole number."""
    most: int | None = None
    """The greatest whole number; ``None`` for any."""
    struct: type[msgspec.Struct] | None = None
    """The type of the field if a table has its fields."""

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return f"VAKA_{self.name.upper()}"

    @property
    def flag_name(self) -> str:
        """The flag that sets it, as it is typed."""
        return self.flag.name if self.flag is not None else f"--{self.name.replace('_', '-')}"

    @property
    def is_switch(self) -> bool:
        """Whether it is on or off."""
        return self.choices == _SWITCH

    @property
    def stored_flag(self) -> str:
        """The name of its flag in logs."""
        return (self.flag.stored if self.flag is not None else "") or self.name


def settings_of(group: type[msgspec.Struct]) -> Iterator[SettingKey]:
    """Yield the settings that the marks of an option group make, in the order of its fields."""
    defaults = dict(zip(group.__struct_fields__, group.__struct_defaults__, strict=True))
    for field, annotation in group.__annotations__.items():
        marks: tuple[object, ...] = getattr(annotation, "__metadata__", ())
        flag = next((mark for mark in marks if isinstance(mark, Flag)), None)
        key = next((mark for mark in marks if isinstance(mark, Key)), None)
        if flag is not None or key is not None:
            made = _make_key(field, annotation.__origin__, defaults[field], flag, key or Key())
            bounds = next((mark for mark in marks if isinstance(mark, msgspec.Meta)), None)
            yield _add_bounds(made, bounds) if bounds is not None else made


def field_value(key: SettingKey, value: Any) -> Any:
    """Return the value of a setting as the value of its field."""
    if key.is_switch:
        return value == "on"
    if key.kind == "text":
        return value or None
    if key.struct is not None:
        return key.struct(**value)
    if key.kind == "seconds" and key.is_whole:
        return math.ceil(value) if value else None  # 0 seconds are no limit
    if key.is_whole and value is not None:
        return value * key.unit
    return value


def _make_key(field: str, annotation: Any, default: Any, flag: Flag | None, key: Key) -> SettingKey:
    """Return the setting of a field: what its marks leave out follows from its type and default."""
    kind, choices = key.kind or _kind_of(annotation), key.choices or _choices_of(annotation)
    struct = type(default) if isinstance(default, msgspec.Struct) else None
    default = getattr(default, "factory", lambda: default)()
    if key.default is not msgspec.UNSET:
        default = key.default
    elif choices == _SWITCH:
        default = "on" if default else "off"
    elif kind == "text":
        default = default or ""
    elif key.unit != 1 and default is not None:
        default //= key.unit
    return SettingKey(
        name=key.name or (flag.name.lstrip("-").replace("-", "_") if flag is not None else field),
        kind=kind,
        default=default,
        choices=choices,
        widens=key.widens,
        per_run=key.per_run,
        path=key.path,
        unit=key.unit,
        flag=flag,
        field=field,
        is_whole=int in _members_of(annotation),
        struct=struct,
    )


def _add_bounds(key: SettingKey, bounds: msgspec.Meta) -> SettingKey:
    least = key.least if bounds.ge is None else int(bounds.ge)
    return msgspec.structs.replace(key, least=least, most=None if bounds.le is None else int(bounds.le))


def _members_of(annotation: Any) -> tuple[Any, ...]:
    """Return the members of a union without ``None``, or the type itself."""
    is_union = get_origin(annotation) in (Union, UnionType)
    return tuple(one for one in get_args(annotation) if one is not type(None)) if is_union else (annotation,)


def _choices_of(annotation: Any) -> tuple[str, ...]:
    members = _members_of(annotation)
    literal = next((one for one in members if get_origin(one) is Literal), None)
    return get_args(literal) if literal is not None else _SWITCH if members == (bool,) else ()


def _kind_of(annotation: Any) -> SettingKind:
    """Return how a text becomes a value of this type. Raises ``TypeError`` for a type that only ``Key`` can explain."""
    for one in _members_of(annotation):
        known = _KINDS_BY_TYPE.get(get_origin(one) or one)
        if known is not None:
            return known
    raise TypeError(f"an option of type {annotation} needs Key(kind=…)")


_KINDS_BY_TYPE: Mapping[Any, SettingKind] = {
    str: "text",
    bool: "text",
    Literal: "text",
    int: "whole",
    float: "number",
    tuple: "list",
    Sequence: "list",
    Mapping: "table",
}


SETTING_GROUPS: tuple[type[msgspec.Struct], ...] = (
    CommandLine,
    Storage,
    Permissions,
    Workspace,
    Commands,
    ResourceLimits,
    NetworkAccess,
    Scripts,
    Limits,
    Models,
)
"""The structs whose marked fields are settings, in the order in which settings are listed."""

GROUP_KEYS: Mapping[type[msgspec.Struct], tuple[SettingKey, ...]] = {
    group: tuple(settings_of(group)) for group in SETTING_GROUPS
}
"""The settings of each group, in the order of its fields."""

SETTING_KEYS: dict[str, SettingKey] = {key.name: key for keys in GROUP_KEYS.values() for key in keys}
"""Every setting by its name."""


def find_key(name: str) -> SettingKey:
    """Return the setting of that name. Raises ``InvalidInput`` with the nearest name."""
    if name not in SETTING_KEYS:
        raise InvalidInput(f"there is no setting {name!r}; {suggest(name, SETTING_KEYS)}")
    return SETTING_KEYS[name]


def parse_key_path(text: str) -> tuple[SettingKey, tuple[str, ...]]:
    """Return the setting and the path a text names, such as ``max_steps`` or ``prices."gpt-4.1".input``."""
    if text in SETTING_KEYS:
        return SETTING_KEYS[text], (text,)
    path = split_dotted_key(text)
    if not path:
        raise InvalidInput(f"there is no setting {text!r}; {suggest(text, SETTING_KEYS)}")
    key = find_key(path[0])
    if len(path) > 1 and key.kind != "table":
        raise InvalidInput(f"{key.name} is not a table, so it has no part {text!r}")
    return key, path


def check_value(key: SettingKey, value: object) -> Any:
    """Return a value in the type of the setting. Raises ``ValueError`` with what was expected."""
    if key.kind == "table":
        return _find_table_check(key.name)(value)
    if key.kind != "text":
        return _KIND_CHECKS[key.kind](value)
    if not isinstance(value, str) or (key.choices and value not in key.choices):
        expected = f"one of {', '.join(key.choices)}" if key.choices else "a text"
        raise ValueError(f"expected {expected}, not {value!r}")
    return value


def _find_table_check(name: str) -> Callable[[object], Mapping[str, Any]]:
    if name in TABLE_CHECKS:
        return TABLE_CHECKS[name]
    from vaka.config.server_tables import SERVER_TABLE_CHECKS  # noqa: PLC0415  # for the settings of a server only

    return SERVER_TABLE_CHECKS[name]


def parse_value(key: SettingKey, text: str) -> Any:
    """Return the value of a text from a variable or a command line. Raises ``ValueError``."""
    if key.kind == "list":
        return check_value(key, _parse_list(text))
    if key.kind == "table":
        return check_value(key, _parse_json(text, "a table as JSON"))
    if key.kind in ("whole", "count", "number"):
        try:
            return check_value(key, float(text) if key.kind == "number" else int(text))
        except ValueError as error:
            least = "of zero or more" if key.kind == "count" else "above zero"
            raise ValueError(f"expected a number {least}, not {text!r}") from error
    return check_value(key, text)


def parse_seconds(value: object) -> float:
    """Return a time span in seconds: a number, or a text such as ``90``, ``5m``, ``12h``, ``30d``."""
    if isinstance(value, str):
        match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhdw]?)", value.strip())
        if match is None:
            raise ValueError(f"expected a time span such as 90, 5m, 12h or 30d, not {value!r}")
        return float(match[1]) * _UNIT_SECONDS[match[2]]
    return float(_check_number(value))


def _check_number(value: object, *, whole: bool = False) -> int | float:
    right = isinstance(value, int) if whole else isinstance(value, int | float)
    if not right or isinstance(value, bool):
        raise ValueError(f"expected a {'whole ' if whole else ''}number above zero, not {value!r}")
    number = cast("float", value)
    if not (math.isfinite(number) and number > 0):
        raise ValueError(f"expected a number above zero, not {value!r}")
    return number


def _check_count(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"expected a whole number of zero or more, not {value!r}")
    return value


def _check_texts(value: object) -> tuple[str, ...]:
    words = cast("list[object]", value)
    if not isinstance(value, list | tuple) or not all(isinstance(word, str) and word for word in words):
        raise ValueError(f"expected a list of texts, not {value!r}")
    return tuple(cast("list[str]", value))


def _parse_list(text: str) -> object:
    """Read a JSON list, or words with commas between them."""
    if text.lstrip().startswith("["):
        return _parse_json(text, "a list of texts")
    return [word.strip() for word in text.split(",") if word.strip()]


def _parse_json(text: str, expected: str) -> object:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ValueError(f"expected {expected}, not {text!r}") from error


_KIND_CHECKS: dict[str, Callable[[object], Any]] = {
    "list": _check_texts,
    "seconds": parse_seconds,
    "count": _check_count,
    "number": _check_number,
    "whole": lambda value: _check_number(value, whole=True),
}


# ------------------------------------------------------------------------------------------- files


PYPROJECT = "pyproject.toml"

PROJECT_FILE = "vaka.toml"


class FileSetting(NamedTuple):
    """A setting of a file, with ``file:line``; of a table also the location of each of its parts."""

    value: Any
    location: str
    parts: Mapping[str, str] = {}


def read_settings_file(path: Path) -> dict[str, FileSetting]:
    """Return the settings of a file. Raises ``ConfigError``."""
    return parse_settings_text(path, _read_text(path))


def check_settings_file(path: Path) -> tuple[dict[str, FileSetting], list[str]]:
    """Return the settings of a file that are right, and every problem. Raises ``ConfigError`` if it is no TOML."""
    return check_settings_text(path, _read_text(path))


def _read_text(path: Path) -> str:
    with read_errors(path):
        return path.read_text(encoding="utf-8-sig")


def parse_settings_text(path: Path, text: str) -> dict[str, FileSetting]:
    """Return the settings in ``text``, the content of ``path``. Raises ``ConfigError`` that lists every problem."""
    settings, problems = check_settings_text(path, text)
    if problems:
        raise ConfigError("\n".join(problems))
    return settings


def check_settings_text(path: Path, text: str) -> tuple[dict[str, FileSetting], list[str]]:
    """Return the settings in ``text`` that are right, and every problem. Raises ``ConfigError`` if it is no TOML."""
    table: Mapping[str, Any] = parse_toml(path, text)
    above: tuple[str, ...] = ()
    if path.name == PYPROJECT:
        table, above = _vaka_table(table), ("tool", "vaka")
    settings: dict[str, FileSetting] = {}
    problems: list[str] = []
    for name, value in table.items():
        location = f"{path}:{line_of(text, (*above, name))}"
        key = SETTING_KEYS.get(name)
        if key is None:
            problems.append(f"{location}: unknown key {name!r}; {suggest(name, SETTING_KEYS)}")
            continue
        errors, checked = _check_parts(key, value)
        for error in errors:
            inner: tuple[str, ...] = getattr(error, "at", ())
            line = line_of(text, (*above, name, *(getattr(error, "part", ()) or inner)))
            problems.append(f"{path}:{line}: {name}{'.' if inner else ': '}{error}")
        if checked is not None:
            named = checked if key.kind == "table" else ()
            parts = {part: f"{path}:{line_of(text, (*above, name, part))}" for part in named}
            settings[name] = FileSetting(checked, location, parts)
    if path.name in (PROJECT_FILE, PYPROJECT) and "models" in settings:
        problems += _find_api_keys(settings["models"])
    return settings, problems


def _check_parts(key: SettingKey, value: object) -> tuple[list[ValueError], Any]:
    """Return every error of a value, and what is right in it; ``None`` if nothing is.

    A wrong part of a table is left out and the rest is checked again. What is then wrong with the same entry counts
    only if it is another key that is wrong by itself: other errors may come from what was left out.
    """
    errors: list[ValueError] = []
    left_out: set[str] = set()
    if key.kind == "list" and isinstance(value, list):
        return _check_items(key, cast("list[object]", value))
    while True:
        try:
            return errors, check_value(key, value)
        except ValueError as error:
            at: tuple[str, ...] = getattr(error, "at", ())
            part: tuple[str, ...] = getattr(error, "part", ())
            wrong = part or at[:1]
            if part or not left_out or (wrong and wrong[0] not in left_out):
                errors.append(error)
            if not wrong or not isinstance(value, dict) or wrong[0] not in value:
                return errors, None
            value = _leave_out(cast("dict[str, Any]", value), wrong)
            left_out.add(wrong[0])


def _check_items(key: SettingKey, items: list[object]) -> tuple[list[ValueError], Any]:
    """Return an error for each wrong item of a list, and the right ones."""
    wrong = [item for item in items if not (isinstance(item, str) and item)]
    errors = [ValueError(f"expected a list of texts, not {item!r}") for item in wrong]
    return errors, check_value(key, [item for item in items if item not in wrong])


def _leave_out(table: Mapping[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    """Return a table without the part at a path, or without the nearest part above it that is one."""
    name, inner = path[0], table[path[0]]
    if len(path) > 1 and isinstance(inner, dict) and path[1] in inner:
        return {**table, name: _leave_out(cast("dict[str, Any]", inner), path[1:])}
    return {other: part for other, part in table.items() if other != name}


def _find_api_keys(models: FileSetting) -> Iterator[str]:
    """Yield a problem for each key in a project's file: it is shared with everyone who has the project."""
    for name, entry in models.value.items():
        if entry.key:
            yield (
                f"{models.parts[name]}: models.{name}.key: a key must not be in a project's file; "
                f"name the variable that holds it with key_env, or put the model into your own config.toml"
            )


def find_project_file(start: Path) -> Path | None:
    """Return the nearest ``vaka.toml`` or ``pyproject.toml`` with a ``[tool.vaka]``, up to the repository's root."""
    for folder in (start, *start.parents):
        if (folder / PROJECT_FILE).is_file():
            return folder / PROJECT_FILE
        other = folder / PYPROJECT
        if other.is_file() and _has_vaka_table(other):
            return other
        if (folder / ".git").exists():
            return None
    return None


def _vaka_table(document: Mapping[str, Any]) -> Mapping[str, Any]:
    tool: object = document.get("tool")
    ours: object = cast("Mapping[str, Any]", tool).get("vaka") if isinstance(tool, dict) else None
    return cast("Mapping[str, Any]", ours) if isinstance(ours, dict) else {}


def _has_vaka_table(path: Path) -> bool:
    """Return whether a pyproject.toml configures vaka; ``False`` if it cannot be read."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError):
        return False
    return "[tool.vaka]" in text or "[tool.vaka." in text


def write_setting(path: Path, key: SettingKey, value: Any, at: tuple[str, ...] = ()) -> None:
    """Set a key in a file, which is created when it does not exist; ``at`` is the path to a part of a table.

    Raises ``ConfigError`` and changes nothing when that fails or the result would not be valid.
    """
    if path.name == PYPROJECT:
        raise ConfigError(f"{path}: vaka does not edit pyproject.toml; edit it yourself, or use vaka.toml")
    text = mark = ""
    if path.exists():
        read_settings_file(path)
        text = path.read_bytes().decode("utf-8")
        mark = "\ufeff" if text.startswith("\ufeff") else ""
    lines = text.removeprefix(mark).replace("\r\n", "\n")
    try:
        changed = set_toml_key(lines, at or key.name, value)
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from error
    parse_settings_text(path, changed)
    try:
        replace_file(path, (mark + changed.replace("\n", "\r\n" if "\r\n" in text else "\n")).encode())
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror or error}") from error
