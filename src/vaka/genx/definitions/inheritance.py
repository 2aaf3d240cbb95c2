"""``extends``: an agent, tool or generator inherits the fields of another definition that it lacks itself."""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, cast

import msgspec

from vaka.config.documents import JsonPath
from vaka.core.types.errors import ConfigError
from vaka.core.types.keywords import find_near_names
from vaka.genx.definitions.fields import check_document
from vaka.genx.definitions.references import PREFIXES, DefinitionKind, split_reference
from vaka.genx.definitions.scripts import SCRIPT_KEYS

EXTENDS = "extends"
EXTENDED_KINDS: tuple[DefinitionKind, ...] = ("agent", "tool", "generator")
MAX_BASES = 32
"""How many definitions extend each other in a row."""

_SLOTS: Mapping[str, DefinitionKind] = {"agent": "agent", "default": "agent", "generator": "generator", "tool": "tool"}
_LISTS: Mapping[str, DefinitionKind | None] = {"tools": "tool", "route": None, "steps": None}
"""Lists of definitions, and of tables that have one."""
_OWN_KEYS = ("name", "$schema", "quit", EXTENDS)
"""The fields that a definition does not inherit."""

PlaceOf: TypeAlias = Callable[[JsonPath], str]
"""Return ``file:line`` of the value at a path."""
DefinitionKey: TypeAlias = tuple[DefinitionKind, str]


class WrittenDefinition(msgspec.Struct, frozen=True):
    """A definition as it was written, or with what it extends."""

    value: object
    place_of: PlaceOf


class ExtendError(ConfigError):
    """A definition that cannot be extended; ``path`` is the place of ``extends``."""

    def __init__(self, message: str, path: JsonPath) -> None:
        super().__init__(message)
        self.path = path


def base_name(value: object, kind: DefinitionKind) -> DefinitionKey | None:
    """Return what the value of ``extends`` names, such as ``agent:base``; ``None`` if it is not the name of a kind."""
    if isinstance(value, dict):
        table = cast("dict[str, object]", value)
        value = table["$ref"] if [*table] == ["$ref"] else None
    if not isinstance(value, str) or not value.strip():
        return None
    prefix, name = split_reference(value)
    if prefix and PREFIXES[prefix] not in EXTENDED_KINDS:
        return None
    return cast("DefinitionKind", PREFIXES[prefix]) if prefix else kind, name


class Inheritance:
    """Adds to definitions what they extend."""

    def __init__(
        self, written: Mapping[DefinitionKey, WrittenDefinition], unreadable: Mapping[DefinitionKey, str]
    ) -> None:
        """``unreadable`` says what is wrong with definitions that could not be read."""
        self._written, self._unreadable = written, unreadable
        self._complete: dict[DefinitionKey, WrittenDefinition] = {}
        self._open: list[DefinitionKey] = []

    def complete(self, kind: DefinitionKind, definition: WrittenDefinition) -> WrittenDefinition:
        """Return a definition with the fields of the definitions that it extends. Raises ``ExtendError``."""
        try:
            check_document(definition.value)  # aliases of YAML can make it larger than can be walked
        except ConfigError as error:
            raise ExtendError(str(error), ()) from None
        inherited: dict[JsonPath, tuple[int, PlaceOf]] = {}
        value = self._add_bases(kind, definition.value, (), inherited)

        def place_of(path: JsonPath) -> str:
            for size in range(len(path), -1, -1):
                if (found := inherited.get(path[:size])) is not None:
                    depth, base_place_of = found
                    return f"{definition.place_of((*path[:depth], EXTENDS))}: {base_place_of(path[depth:])}"
            return definition.place_of(path)

        return WrittenDefinition(value, place_of if inherited else definition.place_of)

    def _add_bases(
        self, kind: DefinitionKind, value: object, path: JsonPath, inherited: dict[JsonPath, tuple[int, PlaceOf]]
    ) -> object:
        fields: Any = value
        if not isinstance(value, dict) or "$ref" in fields:
            return fields
        table = self._complete_parts(kind, fields, path, inherited)
        if EXTENDS not in table or kind not in EXTENDED_KINDS:
            return table
        base = self._find_base(kind, table[EXTENDS], (*path, EXTENDS))
        own = {key: inner for key, inner in table.items() if key != EXTENDS}
        taken = {key: inner for key, inner in cast("dict[str, Any]", base.value).items() if key not in _OWN_KEYS}
        if any(own.get(key) is not None for key in SCRIPT_KEYS):
            taken = {key: inner for key, inner in taken.items() if key not in SCRIPT_KEYS}
        return _merge(taken, own, path, lambda at: inherited.setdefault(at, (len(path), base.place_of)))

    def _complete_parts(
        self,
        kind: DefinitionKind,
        table: dict[str, Any],
        path: JsonPath,
        inherited: dict[JsonPath, tuple[int, PlaceOf]],
    ) -> dict[str, Any]:
        """Return a table with its inner definitions completed."""
        changed = dict(table)
        for key, part in table.items():
            at = (*path, key)
            if key in _LISTS and isinstance(part, list):
                inner_kind = _LISTS[key]
                changed[key] = [
                    self._add_bases(inner_kind, item, (*at, index), inherited)
                    if inner_kind
                    else self._complete_parts(kind, cast("dict[str, Any]", item), (*at, index), inherited)
                    if isinstance(item, dict)
                    else item
                    for index, item in enumerate(cast("list[object]", part))
                ]
            elif key in _SLOTS and isinstance(part, dict) and kind != "generator":
                changed[key] = self._add_bases(_SLOTS[key], cast("object", part), at, inherited)
            elif key == "composite" and isinstance(part, dict):
                changed[key] = self._complete_parts(kind, cast("dict[str, Any]", part), at, inherited)
        return changed

    def _find_base(self, kind: DefinitionKind, value: object, at: JsonPath) -> WrittenDefinition:
        key = base_name(value, kind)
        if key is None or key[0] != kind:
            raise ExtendError(f"extends: expected the name of another {kind}, such as {kind}:NAME", at)
        if key in self._open or len(self._open) >= MAX_BASES:
            chain = " → ".join(name for _, name in [*self._open, key])
            problem = "they extend each other" if key in self._open else f"more than {MAX_BASES} extend each other"
            raise ExtendError(f"extends: {problem}: {chain}", at)
        if key not in self._complete:
            written = self._written.get(key)
            if written is None and key in self._unreadable:
                raise ExtendError(f"extends: {kind} {key[1]!r} cannot be used: {self._unreadable[key]}", at)
            if written is None or not isinstance(written.value, dict):
                near = find_near_names(key[1], [name for known, name in self._written if known == kind], n=1)
                hint = f"; did you mean {near[0]!r}?" if near else ""
                raise ExtendError(f"extends: {kind} {key[1]!r} not found{hint}", at)
            self._open.append(key)
            try:
                self._complete[key] = self.complete(kind, written)
            except ExtendError as error:
                raise ExtendError(f"{written.place_of(error.path)}: {error}", at) from None
            finally:
                self._open.pop()
        return self._complete[key]


def _merge(
    base: Mapping[str, Any], own: Mapping[str, Any], path: JsonPath, note_inherited: Callable[[JsonPath], object]
) -> dict[str, Any]:
    """Return the fields of both; own ones win, and tables in both are merged, but not those with ``$ref``."""
    merged = dict(own)
    for key, inner in base.items():
        if key not in own:
            merged[key] = inner
            note_inherited((*path, key))
        elif _is_plain_table(inner) and _is_plain_table(own[key]):
            merged[key] = _merge(inner, own[key], (*path, key), note_inherited)
    return merged


def _is_plain_table(value: object) -> bool:
    return isinstance(value, dict) and "$ref" not in value
