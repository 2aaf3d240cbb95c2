"""From what a model wrote to arguments that fit a schema."""

from collections.abc import Iterator
from typing import Any

from vaka.core.types.errors import InvalidInput
from vaka.core.types.tool import Arguments, Problem
from vaka.tools.arguments import check_plain, parse_json
from vaka.tools.validate import Validator, near
from vaka.tools.values import is_array, is_object


class Reader:
    """Reads arguments for one schema. ``known`` are the only names that may come, when the schema does not say."""

    def __init__(self, schema: dict[str, Any], known: frozenset[str] | None = None) -> None:
        self._schema = schema
        self._known = known
        self._validator = Validator(schema)

    def read(self, raw: "str | dict[str, Any]") -> Arguments | Problem:
        """Return the arguments ``raw`` stands for, or what is wrong with them; never raise."""
        text = raw if isinstance(raw, str) else None
        if text is not None and not text.strip() and not self._schema.get("required"):
            return Arguments({}, "empty text read as {}")
        found = parse_json(text) if text is not None else check_plain(raw) or (raw, "")
        if isinstance(found, Problem):
            return found
        value, repaired = found
        if not is_object(value):
            return Problem(f"the arguments must be one JSON object, got {_kind(value)}")
        return self._checked(value, repaired, nulls=text is None or "null" in text or bool(repaired))

    def _checked(self, value: dict[str, Any], repaired: str, *, nulls: bool) -> Arguments | Problem:
        try:
            self._validator.compile()
        except InvalidInput as error:
            return Problem(f"this tool cannot be called: {error}")
        if nulls:
            value = without_nulls(value, self._schema, self._schema)
        faults = [*self._unknown(value), *self._validator.faults(value)]
        return Problem("\n".join(faults)) if faults else Arguments(value, repaired)

    def _unknown(self, value: dict[str, Any]) -> Iterator[str]:
        if self._known is not None:
            for name in value:
                if name not in self._known:
                    yield f"arguments: unknown {name!r}{near(name, self._known)}"


def _kind(value: Any) -> str:
    kinds: dict[Any, str] = {list: "an array", str: "text", bool: "a boolean", type(None): "null"}
    return kinds.get(type(value), "a number")


def without_nulls(value: Any, schema: Any, root: dict[str, Any]) -> Any:
    """Return a value without the nulls that stand for "left out", as strict models write them.

    Only where a member is optional and its schema does not admit null: elsewhere null has a meaning of its own.
    """
    if not is_object(schema):
        return value
    schema = _resolved(schema, root)
    if options := schema.get("anyOf") or schema.get("oneOf"):
        return without_nulls(value, _option(value, options, root), root)
    if is_array(value):
        return _items(value, schema, root)
    return _members(value, schema, root) if is_object(value) else value


def _members(value: dict[str, Any], schema: dict[str, Any], root: dict[str, Any]) -> dict[str, Any]:
    properties, required = schema.get("properties", {}), schema.get("required", ())
    rest = schema.get("additionalProperties")
    return {
        key: without_nulls(item, properties.get(key, rest), root)
        for key, item in value.items()
        if item is not None or key not in properties or key in required or admits_null(properties[key], root)
    }


def _items(value: list[Any], schema: dict[str, Any], root: dict[str, Any]) -> list[Any]:
    first = schema.get("prefixItems", [])
    rest = [schema.get("items")] * (len(value) - len(first))
    return [without_nulls(item, part, root) for item, part in zip(value, [*first, *rest], strict=False)]


def _resolved(schema: dict[str, Any], root: dict[str, Any]) -> dict[str, Any]:
    for _ in range(32):  # references to references, never without end
        ref = schema.get("$ref")
        if not isinstance(ref, str) or not ref.startswith("#/$defs/"):
            return schema
        schema = root.get("$defs", {}).get(ref.removeprefix("#/$defs/"), {})
    return {}


def _option(value: Any, options: list[Any], root: dict[str, Any]) -> dict[str, Any] | None:
    """Return the only option of a union that a value can be meant for, by its type and its keys."""
    found = [option for option in (_resolved(option, root) for option in options) if _may_be(value, option, root)]
    return found[0] if len(found) == 1 else None


def _may_be(value: Any, option: dict[str, Any], root: dict[str, Any]) -> bool:
    if is_array(value):
        return option.get("type") == "array"
    if not is_object(value) or option.get("type") != "object":
        return False
    properties = option.get("properties", {})
    if any(name not in value for name in option.get("required", ())):
        return False
    if option.get("additionalProperties") is False and value.keys() - properties.keys():
        return False
    parts = [(name, part) for name, part in properties.items() if is_object(part)]
    return all(_tagged(value, name, _resolved(part, root)) for name, part in parts)


def _tagged(value: dict[str, Any], name: str, part: dict[str, Any]) -> bool:
    """Tell whether a value carries the tag that an option insists on, if it does."""
    if name not in value:
        return True
    if "const" in part:
        return bool(value[name] == part["const"])
    return len(part.get("enum", ())) != 1 or value[name] in part["enum"]


def admits_null(schema: Any, root: dict[str, Any]) -> bool:
    """Tell whether a schema admits null."""
    if not is_object(schema):
        return schema is True
    schema = _resolved(schema, root)
    options = schema.get("anyOf") or schema.get("oneOf")
    if options:
        return any(admits_null(option, root) for option in options)
    if "const" in schema or "enum" in schema:
        return None in schema.get("enum", [schema.get("const")])
    kinds = schema.get("type")
    return kinds is None or kinds == "null" or (isinstance(kinds, list) and "null" in kinds)
