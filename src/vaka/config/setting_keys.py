"""Every setting: name, type, default and allowed values, and how its text is parsed."""

import json
import math
import re
import tomllib
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any, Literal, TypeAlias, cast

import msgspec

from vaka.config.model_tables import TABLE_CHECKS
from vaka.core.types.errors import InvalidInput

SettingKind: TypeAlias = Literal["text", "list", "whole", "count", "number", "seconds", "table"]

_UNIT_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


class SettingKey(msgspec.Struct, frozen=True, kw_only=True):
    """One setting."""

    name: str
    help: str
    kind: SettingKind = "text"
    default: Any = None
    choices: tuple[str, ...] = ()

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return f"VAKA_{self.name.upper()}"


_ALL_KEYS = (
    SettingKey(name="store", help="where sessions are kept: memory:, sqlite:///PATH or postgresql://…"),
    SettingKey(
        name="durability", help="what an acknowledged event survives", default="power", choices=("power", "process")
    ),
    SettingKey(name="model", help="the model of agents that name none", default=""),
    SettingKey(
        name="ask",
        help="what to do when a person must decide; by default as the terminal allows",
        default="",
        choices=("wait", "suspend", "deny"),
    ),
    SettingKey(
        name="permission_mode",
        help="what happens to calls no rule speaks of",
        default="default",
        choices=("default", "acceptEdits", "plan", "dontAsk", "bypassPermissions"),
    ),
    SettingKey(name="allow", help="tools that may run", kind="list", default=()),
    SettingKey(name="confirm", help="tools a person must approve", kind="list", default=()),
    SettingKey(name="deny", help="tools that must not run", kind="list", default=()),
    SettingKey(
        name="builtin_tools",
        kind="list",
        default=(),
        help="vaka's own tools that agents get: all, none, or names; all by default for agents that bring no tools",
    ),
    SettingKey(name="add_dir", help="folders that tools may touch besides the working folder", kind="list", default=()),
    SettingKey(
        name="snapshots",
        help="whether files are copied before tools change them, to go back with a session",
        default="on",
        choices=("on", "off"),
    ),
    SettingKey(name="sandbox", help="whether commands are confined", default="auto", choices=("auto", "on", "off")),
    SettingKey(name="command_host", help="hosts that commands may reach; * for all", kind="list", default=()),
    SettingKey(
        name="command_env",
        help="variables that commands may see though they look like secrets",
        kind="list",
        default=(),
    ),
    SettingKey(name="command_cpu", help="seconds of processor time a command may use", kind="seconds"),
    SettingKey(name="command_memory", help="MiB of memory a command may use", kind="whole", default=4096),
    SettingKey(name="command_processes", help="processes a command may have", kind="whole", default=512),
    SettingKey(name="command_file_size", help="MiB a file may have that a command writes", kind="whole", default=4096),
    SettingKey(
        name="allow_host",
        help="hosts that tools and scripts may reach though they are not public",
        kind="list",
        default=(),
    ),
    SettingKey(name="script_env", help="variables of the environment that scripts may see", kind="list", default=()),
    SettingKey(name="max_steps", help="model calls in one turn", kind="whole"),
    SettingKey(name="timeout", help="how long one turn may take, such as 90 or 5m", kind="seconds"),
    SettingKey(name="max_budget_usd", help="US dollars one turn may cost", kind="number"),
    SettingKey(name="max_tokens", help="tokens one turn may use", kind="whole"),
    SettingKey(name="output", help="what `vaka run` prints", default="text", choices=("text", "json", "stream-json")),
    SettingKey(name="retries", help="how often a model that cannot answer is asked again", kind="count"),
    SettingKey(
        name="model_files", help="files and folders that define models in the GenX format", kind="list", default=()
    ),
    SettingKey(name="models", help="models under names of your own", kind="table", default={}),
    SettingKey(name="tiers", help="which model is low, mid and high", kind="table", default={}),
    SettingKey(name="subagents", help="the tier of agents that others start, by name", kind="table", default={}),
    SettingKey(name="prices", help="US dollars for a million tokens, by model", kind="table", default={}),
)

SETTING_KEYS: dict[str, SettingKey] = {key.name: key for key in _ALL_KEYS}


def find_key(name: str) -> SettingKey:
    """Return the setting of that name, or raise ``InvalidInput`` and suggest the near one."""
    known = SETTING_KEYS.get(name)
    if known is None:
        raise InvalidInput(f"there is no setting {name!r}; {suggest(name, SETTING_KEYS)}")
    return known


def parse_key_path(text: str) -> tuple[SettingKey, tuple[str, ...]]:
    """Return the setting a text leads to and how, such as ``max_steps`` or ``prices."gpt-4.1".input``."""
    if text in SETTING_KEYS:
        return SETTING_KEYS[text], (text,)
    try:
        inner: Any = tomllib.loads(f"{text} = 0")
    except tomllib.TOMLDecodeError:
        raise InvalidInput(f"there is no setting {text!r}; {suggest(text, SETTING_KEYS)}") from None
    path: list[str] = []
    while isinstance(inner, dict):
        name, inner = next(iter(cast("dict[str, Any]", inner).items()), ("", None))
        path.append(name)
    key = find_key(path[0])
    if len(path) > 1 and key.kind != "table":
        raise InvalidInput(f"{key.name} is no table, so there is nothing called {text!r}")
    return key, tuple(path)


def suggest(name: str, known: Iterable[str]) -> str:
    """Return the hint for a name that does not exist."""
    names = list(known)
    near = get_close_matches(name, names, n=1)
    return f"did you mean {near[0]!r}?" if near else f"there are {', '.join(names)}"


def check_value(key: SettingKey, value: object) -> Any:
    """Return a value as the setting holds it. Raises ``ValueError`` saying what was expected."""
    if key.kind == "list":
        return _check_texts(value)
    if key.kind == "seconds":
        return parse_seconds(value)
    if key.kind == "table":
        return TABLE_CHECKS[key.name](value)
    if key.kind == "count":
        return _check_count(value)
    if key.kind in ("whole", "number"):
        return _check_number(value, whole=key.kind == "whole")
    if not isinstance(value, str) or (key.choices and value not in key.choices):
        raise ValueError(f"expected {_expected_choices(key.choices)}, not {value!r}")
    return value


def parse_value(key: SettingKey, text: str) -> Any:
    """Return the value that a text stands for, as it comes from a variable or a command line."""
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
        found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhdw]?)", value.strip())
        if found is None:
            raise ValueError(f"expected a time span such as 90, 5m, 12h or 30d, not {value!r}")
        return float(found[1]) * _UNIT_SECONDS[found[2]]
    return float(_check_number(value, whole=False))


def _check_number(value: object, *, whole: bool) -> int | float:
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


def _expected_choices(choices: tuple[str, ...]) -> str:
    return f"one of {', '.join(choices)}" if choices else "a text"
