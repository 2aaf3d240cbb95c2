"""Typed reads of a definition's document; problems are collected with their place in it, not raised one by one."""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast, get_args

import msgspec

from vaka.config.documents import JsonPath
from vaka.core.types.errors import ConfigError
from vaka.core.types.keywords import find_near_names

MAX_NESTING = 64
"""How deep the lists and tables of a document are nested."""
MAX_VALUES = 50_000
"""Values of one document, with each alias of YAML expanded."""

_TYPE_NAMES: dict[type, str] = {
    str: "a text",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    list: "a list",
    dict: "a table",
    type(None): "nothing",
}
_PARSE_WORDS = re.compile(r"parse \w+ agent: ")
_SURROGATE = re.compile("[\ud800-\udfff]")
L = TypeVar("L", bound=str)


class DefinitionChecks(msgspec.Struct, frozen=True, kw_only=True):
    """Checks of what other parts understand; they return what is wrong."""

    jq: Callable[[str], str] | None = None
    """Return ``invalid jq expression …``, or ``""``."""
    luau: Callable[[str, str], str] | None = None
    """Return what is wrong with the text of a script, or ``""``; the second argument is the name of its file."""
    rule: Callable[[dict[str, Any]], Iterable[tuple[JsonPath, str, bool]]] | None = None
    """Yield what is wrong with the document of a rule: the path in it, the message, and whether it is only a note."""


class ParseSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How documents are read."""

    strict: bool = False
    """Whether an unknown key is an error; otherwise it is only noted."""
    checks: DefinitionChecks = DefinitionChecks()
    trusted: bool = True
    """Whether every file of the folder may be included; otherwise only files in the folders of definitions."""
    script_folders: tuple[Path, ...] = ()
    """Where files of scripts are looked for, in this order; they must be inside of the last one."""


class ParseFindings:
    """The problems and notes of one document, each with its path."""

    def __init__(self, settings: ParseSettings) -> None:
        self.settings = settings
        self.problems: list[tuple[JsonPath, str]] = []
        self.notes: list[tuple[JsonPath, str]] = []


class DefinitionFields:
    """The fields of one table of a document. ``null`` is the same as a missing field."""

    __slots__ = ("body", "findings", "path", "prefix", "read_keys", "values")

    def __init__(self, values: Mapping[str, Any], path: JsonPath, prefix: str, findings: ParseFindings) -> None:
        self.values = values
        self.path = path
        self.prefix = prefix
        """The beginning of messages, such as ``parse react agent: ``."""
        self.findings = findings
        self.read_keys: dict[str, None] = {}
        self.body: dict[str, str] = {}
        """Keys that were written in a nested table, each with the key of that table."""

    @property
    def settings(self) -> ParseSettings:
        """How the document is read."""
        return self.findings.settings

    def with_prefix(self, prefix: str) -> "DefinitionFields":
        """Return the same fields with more before each message."""
        same = DefinitionFields(self.values, self.path, self.prefix + prefix, self.findings)
        same.read_keys, same.body = self.read_keys, self.body
        return same

    def merge_body(self, key: str) -> "DefinitionFields":
        """Return the fields with the fields of a nested table; the outer field has precedence over a nested field."""
        body = self.table(key)
        if body is None:
            return self
        outer = {name: value for name, value in self.values.items() if name != key and value is not None}
        merged = DefinitionFields({**body, **outer}, self.path, self.prefix, self.findings)
        merged.read_keys, merged.body = self.read_keys, {name: key for name in body if name not in outer}
        return merged

    def path_of(self, *keys: str | int) -> JsonPath:
        """Return the path of a value in the document."""
        table = self.body.get(str(keys[0])) if keys else None
        return (*self.path, *((table,) if table else ()), *keys)

    def fail(self, message: str, *keys: str | int) -> None:
        """Record a problem at ``keys``, or at the nearest place above it that exists."""
        self.findings.problems.append((self.path_of(*keys), self.prefix + message))

    def note(self, message: str, *keys: str | int) -> None:
        """Record something that is read but deprecated or without effect."""
        self.findings.notes.append((self.path_of(*keys), _PARSE_WORDS.sub("", self.prefix) + message))

    def get(self, key: str) -> Any:
        """Return the value of a key, ``None`` when it is missing."""
        self.read_keys[key] = None
        return self.values.get(key)

    def fail_type(self, expected: str, value: object, *keys: str | int) -> None:
        """Record a value of the wrong type; the value itself may be a secret and is not quoted."""
        names = ".".join(map(str, keys))
        self.fail(f"{names}: expected {expected}, got {_TYPE_NAMES.get(type(value), 'something else')}", *keys)

    def text(self, key: str) -> str:
        """Return a text, ``""`` when it is missing."""
        value = self.get(key)
        if isinstance(value, str | None):
            return value or ""
        self.fail_type("a text", value, key)
        return ""

    def required_text(self, key: str, message: str) -> str:
        """Return a text; record ``message`` when it is missing or blank."""
        count = len(self.findings.problems)
        text = self.text(key)
        if not text.strip() and len(self.findings.problems) == count:
            self.fail(message, key)
        return text

    def choice(self, key: str, values: object, what: str, default: L) -> L:
        """Return one of the values of a ``Literal``, ``default`` when it is missing or empty."""
        text = self.text(key)
        known = get_args(values)
        if text and text not in known:
            self.fail(f"invalid {what} {text!r}; expected {join_words(known)}", key)
            return default
        return cast("L", text) if text else default

    def flag(self, key: str) -> bool:
        """Return a truth value, ``False`` when it is missing."""
        value = self.get(key)
        if value is not None and not isinstance(value, bool):
            self.fail_type("true or false", value, key)
        return value is True

    def number(self, key: str) -> float | None:
        """Return a number, ``None`` when it is missing."""
        value = self.get(key)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            self.fail_type("a number", value, key)
            return None
        return cast("float | None", value)

    def integer(self, key: str, *, least: int | None = None) -> int | None:
        """Return a whole number, ``None`` when it is missing; ``3.0`` is one."""
        value = self.number(key)
        if value is None:
            return None
        if value != int(value):
            self.fail_type("a whole number", value, key)
            return None
        if least is not None and value < least:
            self.fail(f"{key}: expected a whole number of at least {least}, got {int(value)}", key)
            return None
        return int(value)

    def items(self, key: str) -> list[Any]:
        """Return a list, empty when it is missing."""
        value = self.get(key)
        if value is not None and not isinstance(value, list):
            self.fail_type("a list", value, key)
            return []
        return cast("list[Any]", value) or []

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a list of texts, empty when it is missing."""
        found: list[str] = []
        for index, value in enumerate(self.items(key)):
            if isinstance(value, str):
                found.append(value)
            else:
                self.fail_type("a text", value, key, index)
        return tuple(found)

    def table(self, key: str) -> dict[str, Any] | None:
        """Return a table as it is, ``None`` when it is missing."""
        value = self.get(key)
        if value is not None and not isinstance(value, dict):
            self.fail_type("a table", value, key)
            return None
        return cast("dict[str, Any] | None", value)

    def text_table(self, key: str) -> dict[str, str]:
        """Return a table of texts, empty when it is missing; numbers and truth values are taken as they are written."""
        found: dict[str, str] = {}
        for name, value in (self.table(key) or {}).items():
            if isinstance(value, bool | int | float):
                found[name] = msgspec.json.encode(value).decode()
            elif isinstance(value, str):
                found[name] = value
            else:
                self.fail_type("a text", value, key, name)
        return found

    def fields_at(self, value: Mapping[str, Any], *keys: str | int, prefix: str = "") -> "DefinitionFields":
        """Return the fields of the table at ``keys``."""
        return DefinitionFields(value, self.path_of(*keys), self.prefix + prefix, self.findings)

    def report_unknown_keys(self, allowed: Iterable[str] = ()) -> None:
        """Record each key that was not read and is not ``allowed``: an error in strict mode, else a note."""
        known = {*self.read_keys, *allowed}
        for key in self.values:
            if key in known:
                continue
            near = find_near_names(key, known, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            if self.settings.strict:
                self.fail(f"{key!r} is not a known key{hint}", key)
            else:
                self.note(f"{key!r} is not a known key and has no effect{hint}", key)


def join_words(words: Sequence[str]) -> str:
    """Return ``a, b or c``."""
    *first, last = words
    return f"{', '.join(first)} or {last}" if first else last


def with_article(noun: str) -> str:
    """Return a noun with ``a`` or ``an``."""
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def check_document(document: object) -> None:
    """Raise ``ConfigError`` for a value that JSON cannot express, is nested too deep or is too large."""
    values: list[tuple[object, int]] = [(document, 0)]
    count = 0
    while values:
        value, depth = values.pop()
        count += 1
        if depth > MAX_NESTING:
            raise ConfigError(f"the document is nested deeper than {MAX_NESTING} levels")
        if count > MAX_VALUES:
            raise ConfigError(f"the document has more than {MAX_VALUES} values")
        values += ((inner, depth + 1) for inner in _iter_values(value))


def _iter_values(value: object) -> Iterator[object]:
    if isinstance(value, dict):
        table = cast("dict[object, object]", value)
        for key in table:
            _check_text(key)
        yield from table.values()
    elif isinstance(value, list):
        yield from cast("list[object]", value)
    elif isinstance(value, float) and not math.isfinite(value):
        raise ConfigError("the document has a number that is not finite")
    elif isinstance(value, str):
        _check_text(value)
    elif isinstance(value, int):
        if not -(2**63) <= value < 2**64:
            raise ConfigError("the document has a whole number that does not fit into 64 bits")
    elif not isinstance(value, float | None):
        raise ConfigError(f"the document has a value that JSON does not have: a {type(value).__name__}")


def _check_text(value: object) -> None:
    if not isinstance(value, str):
        raise ConfigError("the document has a key that is not a text")
    if not value.isascii() and _SURROGATE.search(value):
        raise ConfigError("the document has a text with half of a surrogate pair, which UTF-8 cannot express")
