"""Parse the arguments a model wrote: strict JSON, unambiguous repairs, validation against the tool's schema.

Text that is not plain JSON is repaired only where a single meaning is possible and the text is complete; ``repaired``
describes the repairs.
Everything else is an ``InvalidArguments`` whose text is sent to the model.

Limits, so that every value survives the log and other readers unchanged: nesting up to ``MAX_DEPTH``, integers from
-2**63 to 2**64 - 1, other numbers finite and written with at most ``MAX_DIGITS`` characters, text without lone
surrogates.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

from vaka.core.types.errors import InvalidInput
from vaka.core.types.tool import InvalidArguments, ParsedArguments
from vaka.tools.schema.json_types import is_array, is_object
from vaka.tools.validate import Validator, shorten, suggest_name

MAX_DEPTH = 64

MAX_DIGITS = 400

_MIN_INT, _MAX_INT = -(2**63), 2**64 - 1

_WHITESPACE = " \t\r\n"

_TRIMMED_CHARACTERS = _WHITESPACE + "\ufeff\u00a0\u200b\u2028\u2029\u3000"

# An unterminated string matches up to the end of the text: otherwise each quote in it would be tried as a start.
_STRING = r'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)'

_STRING_OR_COMMA = re.compile(rf"{_STRING}|,[ \t\r\n]*+(?=[}}\]])", re.DOTALL)

_STRING_OR_BRACKET = re.compile(rf"{_STRING}|[\[\]{{}}]", re.DOTALL)

_ESCAPE_OR_CONTROL = re.compile(r"\\.|[\t\r\n]", re.DOTALL)

_ESCAPES = {"\t": "\\t", "\r": "\\r", "\n": "\\n"}

_EXPECTED = "send exactly one JSON object"


class _RejectedJson(ValueError):
    """JSON that no repair can make acceptable."""


def parse_json(raw: str) -> tuple[Any, str] | InvalidArguments:
    """Return the value of a text and the repairs that were made, or what is wrong with the text."""
    try:
        return _unwrap_object(_parse_strict(raw), "")
    except _RejectedJson as error:
        return InvalidArguments(str(error))
    except ValueError:
        text, repaired = _apply_repairs(raw)
    try:
        return _unwrap_object(_parse_strict(text), repaired)
    except _RejectedJson as error:
        return InvalidArguments(str(error))
    except json.JSONDecodeError as error:
        return InvalidArguments(f"the arguments are not valid JSON: {_explain_error(text, error)}")


def check_json_data(value: Any) -> InvalidArguments | None:
    """Return what is wrong with data that was passed instead of text: it must be JSON that all readers read alike."""
    try:
        _check_value(value)
    except _RejectedJson as error:
        return InvalidArguments(str(error))
    return None


def _parse_strict(text: str) -> Any:
    """Return the value of valid JSON; raise ``ValueError`` for bad syntax, ``_RejectedJson`` for forbidden values."""
    _check_depth(text)
    value = _decode_object(text) or _DECODER.decode(text)
    if not text.isascii() or "\\u" in text:
        _check_value(value)
    return value


def _decode_object(text: str) -> dict[str, Any] | None:
    """Return the object of a text without spaces around it, as most are; ``None`` for any other text."""
    if not (text.startswith("{") and text.endswith("}")):
        return None
    value, end = _DECODER.raw_decode(text)
    return value if end == len(text) else None


def _check_depth(text: str) -> None:
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return
    depth = 0
    for found in _STRING_OR_BRACKET.finditer(text):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(found[0], 0)
        if depth > MAX_DEPTH:
            raise _RejectedJson(f"the arguments are nested deeper than {MAX_DEPTH} levels; {_EXPECTED} that is flatter")


def _reject_duplicate_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        raise _RejectedJson(f"the key {twice!r} appears twice in one object; send each key once")
    return found


def _parse_int(digits: str) -> int:
    if len(digits) > 20 or not _MIN_INT <= (number := int(digits)) <= _MAX_INT:
        raise _RejectedJson(
            f"the number {shorten(digits, 40)} does not fit in 64 bits; send it as text if the tool takes text"
        )
    return number


def _parse_float(digits: str) -> float:
    number = float(digits)
    if len(digits) > MAX_DIGITS or not math.isfinite(number):
        raise _RejectedJson(f"the number {shorten(digits, 40)} is too large or too long; send a shorter one")
    return number


def _reject_constant(name: str) -> Any:
    raise _RejectedJson(f"{name} is not a JSON number; send a number, text or null")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_reject_duplicate_keys,
    parse_int=_parse_int,
    parse_float=_parse_float,
    parse_constant=_reject_constant,
)


def _check_value(value: Any, depth: int = 0) -> None:
    if depth > MAX_DEPTH:
        raise _RejectedJson(f"the arguments are nested deeper than {MAX_DEPTH} levels; {_EXPECTED} that is flatter")
    if isinstance(value, str):
        _check_text(value)
    elif isinstance(value, bool) or value is None:
        return
    elif isinstance(value, int):
        if not _MIN_INT <= value <= _MAX_INT:
            raise _RejectedJson("a number does not fit in 64 bits; send it as text if the tool takes text")
    elif isinstance(value, float):
        if not math.isfinite(value):
            _reject_constant(str(value))
    else:
        _check_container(value, depth)


def _check_container(value: Any, depth: int) -> None:
    if is_object(value):
        for key, item in value.items():
            _check_text(key)
            _check_value(item, depth + 1)
    elif is_array(value):
        for item in value:
            _check_value(item, depth + 1)
    else:
        raise _RejectedJson(
            f"{type(value).__name__} is not JSON data; use objects, arrays, text, numbers, booleans or null"
        )


def _check_text(text: object) -> None:
    if not isinstance(text, str):
        raise _RejectedJson(f"the key {text!r} is not text; keys of JSON objects are")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise _RejectedJson("a text holds half of a surrogate pair; send whole characters") from None


def _apply_repairs(raw: str) -> tuple[str, str]:
    """Return the text after every unambiguous repair, and a description of the repairs."""
    text, repaired = raw, list[str]()
    for repair, description in _REPAIRS.items():
        result = repair(text)
        if result.strip(_WHITESPACE) != text.strip(_WHITESPACE):
            text = result
            repaired.append(description)
    return text, "; ".join(repaired)


def _trim(text: str) -> str:
    return text.strip(_TRIMMED_CHARACTERS)


def _unfence(text: str) -> str:
    head, _, rest = text.partition("\n")
    if head.strip(_WHITESPACE).lower() not in {"```", "```json"} or not rest.rstrip(_WHITESPACE).endswith("```"):
        return text
    return rest.rstrip(_WHITESPACE).removesuffix("```").strip(_WHITESPACE)


def _escape_controls(text: str) -> str:
    return _STRING_OR_COMMA.sub(lambda found: _escape_string(found[0]) if found[0].startswith('"') else found[0], text)


def _escape_string(token: str) -> str:
    """Escape line breaks and tabs; a line break or tab after a backslash is ambiguous and stays."""
    return _ESCAPE_OR_CONTROL.sub(lambda found: _ESCAPES.get(found[0], found[0]), token)


def _drop_trailing_commas(text: str) -> str:
    return _STRING_OR_COMMA.sub(lambda found: found[0] if _keeps_match(found) else "", text)


def _keeps_match(found: re.Match[str]) -> bool:
    """Return whether a match is a string, or a comma without a value before it."""
    if found[0].startswith('"'):
        return True
    before = found.string[max(0, found.start() - 100) : found.start()].rstrip(_WHITESPACE)
    return not before or before[-1] in "[{,:"


_REPAIRS: dict[Callable[[str], str], str] = {
    _trim: "characters around the JSON removed",
    _unfence: "code fence removed",
    _escape_controls: "line breaks or tabs in text escaped",
    _drop_trailing_commas: "trailing comma removed",
}


def _unwrap_object(value: Any, repaired: str) -> tuple[Any, str]:
    """Return the object inside a string that holds the JSON of an object."""
    if not isinstance(value, str) or not value.lstrip(_WHITESPACE).startswith("{"):
        return value, repaired
    try:
        inner = _parse_strict(value)
    except json.JSONDecodeError:
        return value, repaired
    description = "object taken out of a text"
    return inner, f"{repaired}; {description}" if repaired else description


def _explain_error(text: str, error: json.JSONDecodeError) -> str:
    rest = text[error.pos :].lstrip(_WHITESPACE)
    if not text.strip(_TRIMMED_CHARACTERS):
        return "they are empty; send one JSON object, {} when there is nothing to say"
    if error.msg == "Extra data":
        what = "there is more than one value" if rest[:1] in {"{", "[", ","} else "there is text after the JSON"
        return f"{what}; {_EXPECTED} and nothing else"
    if not rest or error.msg.startswith("Unterminated"):
        return "they are cut short; send the whole object again, in smaller parts if it is long"
    for starts, hint in _SYNTAX_HINTS.items():
        if rest.startswith(starts):
            return f"{hint}; {_EXPECTED}"
    if error.pos == 0:
        return f"there is text before the JSON; {_EXPECTED} and nothing else"
    return f"{error.msg} at character {error.pos}; {_EXPECTED}"


_SYNTAX_HINTS: dict[tuple[str, ...], str] = {
    ("'",): "text is in single quotes, JSON wants double quotes",
    ("/", "#"): "there is a comment, JSON has none",
    ("True", "False", "None"): "write true, false and null",
}


class ArgumentReader:
    """Reads arguments for one schema. ``known_names`` restricts the names where the schema itself does not."""

    def __init__(self, schema: dict[str, Any], known_names: frozenset[str] | None = None) -> None:
        self._schema = schema
        self._known_names = known_names
        self._validator = Validator(schema)

    def read(self, raw: "str | dict[str, Any]") -> ParsedArguments | InvalidArguments:
        """Return the parsed arguments, or what is wrong with them; never raise."""
        text = raw if isinstance(raw, str) else None
        if text is not None and not text.strip() and not self._schema.get("required"):
            return ParsedArguments({}, "empty text read as {}")
        found = parse_json(text) if text is not None else check_json_data(raw) or (raw, "")
        if isinstance(found, InvalidArguments):
            return found
        value, repaired = found
        if not is_object(value):
            kind = _JSON_KINDS.get(type(value), "a number")
            return InvalidArguments(f"the arguments must be one JSON object, got {kind}")
        return self._validate_value(value, repaired, nulls=text is None or "null" in text or bool(repaired))

    def _validate_value(
        self, value: dict[str, Any], repaired: str, *, nulls: bool
    ) -> ParsedArguments | InvalidArguments:
        try:
            self._validator.compile()
        except InvalidInput as error:
            return InvalidArguments(f"this tool cannot be called: {error}")
        if nulls:
            value = without_nulls(value, self._schema, self._schema)
        known = self._known_names if self._known_names is not None else value.keys()
        faults: list[str] = []
        if not known >= value.keys():
            faults += [f"arguments: unknown {name!r}{suggest_name(name, known)}" for name in value if name not in known]
        faults += self._validator.find_faults(value)
        return InvalidArguments("\n".join(faults)) if faults else ParsedArguments(value, repaired)


_JSON_KINDS: dict[Any, str] = {list: "an array", str: "text", bool: "a boolean", type(None): "null"}


def without_nulls(value: Any, schema: Any, root: dict[str, Any]) -> Any:
    """Return a value without the nulls that mean "absent", as models write them under a strict schema.

    A null is removed only where the member is optional and its schema does not admit null.
    """
    if not is_object(schema):
        return value
    schema = _resolve_ref(schema, root)
    if options := schema.get("anyOf") or schema.get("oneOf"):
        return without_nulls(value, _matching_option(value, options, root), root)
    if is_array(value):
        return _items_without_nulls(value, schema, root)
    return _members_without_nulls(value, schema, root) if is_object(value) else value


def _members_without_nulls(value: dict[str, Any], schema: dict[str, Any], root: dict[str, Any]) -> dict[str, Any]:
    properties, required = schema.get("properties", {}), schema.get("required", ())
    rest = schema.get("additionalProperties")
    return {
        key: without_nulls(item, properties.get(key, rest), root)
        for key, item in value.items()
        if item is not None or key not in properties or key in required or admits_null(properties[key], root)
    }


def _items_without_nulls(value: list[Any], schema: dict[str, Any], root: dict[str, Any]) -> list[Any]:
    first = schema.get("prefixItems", [])
    rest = [schema.get("items")] * (len(value) - len(first))
    return [without_nulls(item, part, root) for item, part in zip(value, [*first, *rest], strict=False)]


def _resolve_ref(schema: dict[str, Any], root: dict[str, Any]) -> dict[str, Any]:
    for _ in range(32):  # references to references, but no endless cycle
        ref = schema.get("$ref")
        if not isinstance(ref, str) or not ref.startswith("#/$defs/"):
            return schema
        schema = root.get("$defs", {}).get(ref.removeprefix("#/$defs/"), {})
    return {}


def _matching_option(value: Any, options: list[Any], root: dict[str, Any]) -> dict[str, Any] | None:
    """Return the only option of a union that fits a value by its type and its keys, or None."""
    matches = [option for option in (_resolve_ref(one, root) for one in options) if _may_match(value, option, root)]
    return matches[0] if len(matches) == 1 else None


def _may_match(value: Any, option: dict[str, Any], root: dict[str, Any]) -> bool:
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
    return all(_has_expected_tag(value, name, _resolve_ref(part, root)) for name, part in parts)


def _has_expected_tag(value: dict[str, Any], name: str, part: dict[str, Any]) -> bool:
    """Return whether a value has the tag that an option requires, if it requires one."""
    if name not in value:
        return True
    if "const" in part:
        return bool(value[name] == part["const"])
    return len(part.get("enum", ())) != 1 or value[name] in part["enum"]


def admits_null(schema: Any, root: dict[str, Any]) -> bool:
    if not is_object(schema):
        return schema is True
    schema = _resolve_ref(schema, root)
    options = schema.get("anyOf") or schema.get("oneOf")
    if options:
        return any(admits_null(option, root) for option in options)
    if "const" in schema or "enum" in schema:
        return None in schema.get("enum", [schema.get("const")])
    kinds = schema.get("type")
    return kinds is None or kinds == "null" or (isinstance(kinds, list) and "null" in kinds)
