"""JSON Schemas as Gemini reads them: references in their place, since it takes none with anything beside them. Pure."""

from typing import Any, TypeGuard

NODES = 5000
"""Schemas one schema may become; beyond that it is sent as it is."""

_ONE = frozenset({
    "items", "additionalProperties", "additionalItems", "contains", "not", "propertyNames", "if", "then", "else",
})  # fmt: skip
_MANY = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
_NAMED = frozenset({"properties", "patternProperties", "dependentSchemas"})
_DROPPED = frozenset({"$schema", "$defs", "definitions"})


class _Large(Exception):
    """The schema would become too large; never leaves this file."""


def resolved(schema: dict[str, Any]) -> dict[str, Any]:
    """Return ``schema`` with every local reference in its place.

    A schema that contains itself keeps those references, alone where they stand. What only says ``const`` says it as
    an ``enum`` of one, which Gemini knows.
    """
    work = _Work(schema)
    try:
        made = work.convert(schema, ())
        kept: dict[str, Any] = {}
        while work.circular.keys() - kept.keys():
            for name in sorted(work.circular.keys() - kept.keys()):
                path = work.circular[name]
                kept[name] = work.convert(work.find(path), (path,))
    except (_Large, RecursionError):
        return {name: value for name, value in schema.items() if name != "$schema"}
    return {**made, "$defs": kept} if kept else made


class _Work:
    def __init__(self, root: dict[str, Any]) -> None:
        self.root = root
        self.nodes = 0
        self.circular: dict[str, str] = {}
        """Definitions that have to stay, by the name they get."""

    def convert(self, schema: Any, inside: tuple[str, ...]) -> Any:
        """Return a schema without references; ``inside`` are those that led here."""
        if not _is_object(schema):
            return {} if schema is True else schema
        self.nodes += 1
        if self.nodes > NODES:
            raise _Large
        path = schema.get("$ref")
        if isinstance(path, str):
            target = self.find(path)
            if path in inside:
                return {"$ref": f"#/$defs/{self._name(path)}"}
            if _is_object(target):
                beside = {name: value for name, value in schema.items() if name != "$ref"}
                return self.convert({**target, **beside}, (*inside, path))
        made = {name: self._value(name, value, inside) for name, value in schema.items() if name not in _DROPPED}
        if "const" in made and "enum" not in made:
            made["enum"] = [made.pop("const")]
        return made

    def find(self, path: str) -> Any:
        """Return what a reference into this document leads to, ``None`` for another."""
        if path == "#":
            return self.root
        if not path.startswith("#/"):
            return None
        found: Any = self.root
        for step in path[2:].split("/"):
            step = step.replace("~1", "/").replace("~0", "~")
            found = found.get(step) if _is_object(found) else None
        return found

    def _value(self, name: str, value: Any, inside: tuple[str, ...]) -> Any:
        if name in _ONE and name != "additionalProperties":
            return self.convert(value, inside)
        if name == "additionalProperties":
            return self.convert(value, inside) if _is_object(value) else value
        if name in _MANY and _is_list(value):
            return [self.convert(part, inside) for part in value]
        if name in _NAMED and _is_object(value):
            return {key: self.convert(part, inside) for key, part in value.items()}
        return value

    def _name(self, path: str) -> str:
        """Return the name of a definition: the last word of its path, and a number when another has that."""
        word = path.rpartition("/")[2].lstrip("#") or "root"
        name, count = word, 1
        while self.circular.get(name, path) != path:
            count += 1
            name = f"{word}{count}"
        self.circular[name] = path
        return name


def _is_object(value: Any) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)


def _is_list(value: Any) -> TypeGuard[list[Any]]:
    return isinstance(value, list)
