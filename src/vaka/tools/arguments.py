"""Reading the arguments a model wrote: one reading only.

What is not plain JSON is mended only where a single meaning is possible and the message is whole; ``repaired`` says so.
Everything else is a ``Problem`` that tells the model what to send.

Limits, so that every value survives the log and other readers unchanged: nesting up to ``MAX_DEPTH``, whole numbers
from -2**63 to 2**64 - 1, other numbers finite and written with at most ``MAX_DIGITS`` characters, text without lone
surrogates.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

from vaka.core.types.tool import Problem
from vaka.tools.values import is_array, is_object

MAX_DEPTH = 64
MAX_DIGITS = 400
_LEAST, _MOST = -(2**63), 2**64 - 1
_BLANKS = " \t\r\n"
_EDGES = _BLANKS + "\ufeff\u00a0\u200b\u2028\u2029\u3000"
# An unfinished string is one too, up to the end: otherwise each of its quotes would be tried as a beginning.
_STRING = r'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)'
_STRING_OR_COMMA = re.compile(rf"{_STRING}|,[ \t\r\n]*+(?=[}}\]])", re.DOTALL)
_STRING_OR_BRACKET = re.compile(rf"{_STRING}|[\[\]{{}}]", re.DOTALL)
_ESCAPE_OR_CONTROL = re.compile(r"\\.|[\t\r\n]", re.DOTALL)
_ESCAPES = {"\t": "\\t", "\r": "\\r", "\n": "\\n"}
_SEND = "send exactly one JSON object"


class _Refused(ValueError):
    """A reason that no repair can mend."""


def parse_json(raw: str) -> tuple[Any, str] | Problem:
    """Return the one value a text stands for and what was mended, or what is wrong."""
    try:
        return _unwrapped(_strict(raw), "")
    except _Refused as error:
        return Problem(str(error))
    except ValueError:
        text, repaired = _mended(raw)
    try:
        return _unwrapped(_strict(text), repaired)
    except _Refused as error:
        return Problem(str(error))
    except json.JSONDecodeError as error:
        return Problem(f"the arguments are not valid JSON: {_explain(text, error)}")


def check_plain(value: Any) -> Problem | None:
    """Return what is wrong with data that was given instead of text: it must be JSON that every reader reads alike."""
    try:
        _check(value)
    except _Refused as error:
        return Problem(str(error))
    return None


def _strict(text: str) -> Any:
    """Return the value of valid JSON; raise ``ValueError`` for bad syntax and ``_Refused`` for what may not be."""
    _check_depth(text)
    value = _DECODER.decode(text)
    if not text.isascii() or "\\u" in text:
        _check(value)
    return value


def _check_depth(text: str) -> None:
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return
    depth = 0
    for found in _STRING_OR_BRACKET.finditer(text):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(found[0], 0)
        if depth > MAX_DEPTH:
            raise _Refused(f"the arguments are nested deeper than {MAX_DEPTH} levels; {_SEND} that is flatter")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        raise _Refused(f"the key {twice!r} appears twice in one object; send each key once")
    return found


def _whole(digits: str) -> int:
    if len(digits) > 20 or not _LEAST <= (number := int(digits)) <= _MOST:
        raise _Refused(f"the number {_short(digits)} does not fit in 64 bits; send it as text if the tool takes text")
    return number


def _real(digits: str) -> float:
    number = float(digits)
    if len(digits) > MAX_DIGITS or not math.isfinite(number):
        raise _Refused(f"the number {_short(digits)} is too large or too long; send a shorter one")
    return number


def _constant(name: str) -> Any:
    raise _Refused(f"{name} is not a JSON number; send a number, text or null")


_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_int=_whole, parse_float=_real, parse_constant=_constant)


def _short(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:40]}…"


def _check(value: Any, depth: int = 0) -> None:
    if depth > MAX_DEPTH:
        raise _Refused(f"the arguments are nested deeper than {MAX_DEPTH} levels; {_SEND} that is flatter")
    if isinstance(value, str):
        _check_text(value)
    elif isinstance(value, bool) or value is None:
        return
    elif isinstance(value, int):
        if not _LEAST <= value <= _MOST:
            raise _Refused("a number does not fit in 64 bits; send it as text if the tool takes text")
    elif isinstance(value, float):
        if not math.isfinite(value):
            _constant(str(value))
    else:
        _check_inside(value, depth)


def _check_inside(value: Any, depth: int) -> None:
    if is_object(value):
        for key, item in value.items():
            _check_key(key)
            _check(item, depth + 1)
    elif is_array(value):
        for item in value:
            _check(item, depth + 1)
    else:
        raise _Refused(f"{type(value).__name__} is not JSON data; use objects, arrays, text, numbers, booleans or null")


def _check_key(key: object) -> None:
    if not isinstance(key, str):
        raise _Refused(f"the key {key!r} is not text; keys of JSON objects are")
    _check_text(key)


def _check_text(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise _Refused("a text holds half of a surrogate pair; send whole characters") from None


def _mended(raw: str) -> tuple[str, str]:
    """Return the text with everything mended that has one meaning, and what that was."""
    text, repaired = raw, list[str]()
    for repair, said in _REPAIRS.items():
        mended = repair(text)
        if mended.strip(_BLANKS) != text.strip(_BLANKS):
            text = mended
            repaired.append(said)
    return text, "; ".join(repaired)


def _trim(text: str) -> str:
    return text.strip(_EDGES)


def _unfence(text: str) -> str:
    head, _, rest = text.partition("\n")
    if head.strip(_BLANKS).lower() not in {"```", "```json"} or not rest.rstrip(_BLANKS).endswith("```"):
        return text
    return rest.rstrip(_BLANKS).removesuffix("```").strip(_BLANKS)


def _escape_controls(text: str) -> str:
    return _STRING_OR_COMMA.sub(lambda found: _escaped(found[0]) if found[0].startswith('"') else found[0], text)


def _escaped(token: str) -> str:
    """Line breaks and tabs as escapes; one behind a backslash could mean two things and stays."""
    return _ESCAPE_OR_CONTROL.sub(lambda found: _ESCAPES.get(found[0], found[0]), token)


def _trailing_commas(text: str) -> str:
    return _STRING_OR_COMMA.sub(lambda found: found[0] if _keeps(found) else "", text)


def _keeps(found: re.Match[str]) -> bool:
    """Tell whether a match is text, or a comma that follows nothing."""
    if found[0].startswith('"'):
        return True
    before = found.string[max(0, found.start() - 100) : found.start()].rstrip(_BLANKS)
    return not before or before[-1] in "[{,:"


_REPAIRS: dict[Callable[[str], str], str] = {
    _trim: "characters around the JSON removed",
    _unfence: "code fence removed",
    _escape_controls: "line breaks or tabs in text escaped",
    _trailing_commas: "trailing comma removed",
}


def _unwrapped(value: Any, repaired: str) -> tuple[Any, str]:
    """An object that was written as JSON and then once more as text is that object."""
    if not isinstance(value, str) or not value.lstrip(_BLANKS).startswith("{"):
        return value, repaired
    try:
        inner = _strict(value)
    except json.JSONDecodeError:
        return value, repaired
    said = "object taken out of a text"
    return inner, f"{repaired}; {said}" if repaired else said


def _explain(text: str, error: json.JSONDecodeError) -> str:
    rest = text[error.pos :].lstrip(_BLANKS)
    if not text.strip(_EDGES):
        return "they are empty; send one JSON object, {} when there is nothing to say"
    if error.msg == "Extra data":
        what = "there is more than one value" if rest[:1] in {"{", "[", ","} else "there is text after the JSON"
        return f"{what}; {_SEND} and nothing else"
    if not rest or error.msg.startswith("Unterminated"):
        return "they are cut short; send the whole object again, in smaller parts if it is long"
    for starts, said in _HINTS.items():
        if rest.startswith(starts):
            return f"{said}; {_SEND}"
    if error.pos == 0:
        return f"there is text before the JSON; {_SEND} and nothing else"
    return f"{error.msg} at character {error.pos}; {_SEND}"


_HINTS: dict[tuple[str, ...], str] = {
    ("'",): "text is in single quotes, JSON wants double quotes",
    ("/", "#"): "there is a comment, JSON has none",
    ("True", "False", "None"): "write true, false and null",
}
