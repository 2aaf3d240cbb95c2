"""Configuration documents: read JSON and TOML, find lines, set one key of a document, replace a file, suggest names."""

import contextlib
import copy
import json
import os
import re
import tomllib
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias, cast

import msgspec

from vaka.core.types.errors import ConfigError
from vaka.core.types.keywords import find_near_names


@contextlib.contextmanager
def read_errors(path: Path) -> Generator[None]:
    """Raise ``ConfigError`` that names ``path`` for a file that cannot be read or is not UTF-8."""
    try:
        yield
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8: {error.reason} at byte {error.start}") from None


def parse_json(text: str, origin: str) -> object:
    """Return a JSON document as data.

    Raises ``ConfigError`` for anything else, also for a duplicate name: the second would hide the value of the first.
    """

    def unique_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len({name for name, _ in pairs}) != len(pairs):
            raise _DuplicateName
        return dict(pairs)

    def reject_constant(name: str) -> float:
        raise ConfigError(f"{origin}: not JSON: {name} is not a number")

    try:
        document: object = json.loads(text, object_pairs_hook=unique_pairs, parse_constant=reject_constant)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{origin}:{error.lineno}: not JSON: {error.msg} (column {error.colno})") from None
    except _DuplicateName:
        name, line = _find_duplicate(text)
        raise ConfigError(f"{origin}:{line}: {name!r} appears twice") from None
    except (RecursionError, ValueError):
        raise ConfigError(f"{origin}: not JSON: nested too deep, or a number has too many digits") from None
    return document


def is_inline_json(text: str) -> bool:
    """Return whether the value of an option is JSON itself, and not the name of a file."""
    return text.lstrip().startswith(("{", "["))


def parse_tolerant_json(text: str, origin: str) -> tuple[object, str]:
    """Return a JSON document as data, and what is wrong with it: comments, trailing commas, duplicate names.

    Of two values with one name the last counts. Raises ``ConfigError`` for what is not JSON without these either.
    """
    try:
        return parse_json(text, origin), ""
    except ConfigError as error:
        try:
            return json.loads(blank_comments(text)), f"{error}; it is read anyway"
        except (ValueError, RecursionError):
            raise error from None


class _DuplicateName(Exception):
    """An object has a name twice."""


JsonPath: TypeAlias = "tuple[str | int, ...]"
"""The names and indexes that lead to a value of a JSON document."""

MAX_JSON_LINE = 100
"""Characters of a JSON value that is written on one line."""
_JSON_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*(?:"|$)|[{}\[\],]|[^\s{}\[\],:"]+', re.DOTALL)
_JSON_COMMENT = re.compile(r'("(?:[^"\\]|\\.)*(?:"|$))|//[^\n]*|/\*.*?(?:\*/|$)', re.DOTALL)
_FINAL_COMMA = re.compile(r'("(?:[^"\\]|\\.)*(?:"|$))|(?<=[^\s{\[,])\s*,(?=\s*[}\]])', re.DOTALL)


def iter_json_lines(text: str) -> Iterator[tuple[JsonPath, int]]:
    """Yield the path of each member and list item of a valid JSON text, with its line."""
    path: list[str | int] = []
    line = 1
    counted = 0
    before_name = False
    for token in _JSON_TOKEN.finditer(text):
        line += text.count("\n", counted, token.start())
        word, counted = token[0], token.start()
        if word == ",":
            before_name = isinstance(path[-1], str)
            path[-1] = path[-1] + 1 if isinstance(path[-1], int) else path[-1]
        elif word in ("}", "]"):
            path.pop()
            before_name = False
        elif before_name:
            path[-1], before_name = str(json.loads(word)), False
            yield tuple(path), line
        else:
            if path and isinstance(path[-1], int):
                yield tuple(path), line
            if word in ("{", "["):
                before_name = word == "{"
                path.append("" if before_name else 0)


def json_line_of(text: str, path: JsonPath) -> int:
    """Return the line of the value at ``path``, else of the nearest enclosing value, else 1."""
    lines = dict(iter_json_lines(text)) if path else {}
    return next((lines[path[:size]] for size in range(len(path), 0, -1) if path[:size] in lines), 1)


def blank_comments(text: str) -> str:
    """Return a JSON text with spaces in place of comments and of commas after a last item; lines keep their number."""
    for pattern in (_JSON_COMMENT, _FINAL_COMMA):
        text = pattern.sub(_blank_match, text)
    return text


def set_json_value(text: str, path: tuple[str, ...], value: Any) -> str:
    """Return a JSON text with one value set, and the rest as it is, comments included. Raises ``ValueError``.

    A missing member is added at the end of its object, or of the nearest existing object.
    """
    spans = dict(_iter_json_spans(blank_comments(text)))
    size = next(size for size in range(len(path), -1, -1) if path[:size] in spans)
    start, end = spans[path[:size]]
    line = text[text.rfind("\n", 0, start) + 1 : start]
    indent = line[: len(line) - len(line.lstrip())]
    unit = next((found[1] for found in re.finditer(r"^([ \t]+)\"", text, re.MULTILINE)), "  ")
    if size == len(path):
        new = _render_json(value, text[start:end], indent, unit)
    else:
        for name in reversed(path[size + 1 :]):
            value = {name: value}
        new = _add_member(text[start:end], path[size], value, indent, unit)
    return text[:start] + new.replace("\n", "\r\n" if "\r\n" in text else "\n") + text[end:]


def _add_member(table: str, name: str, value: Any, indent: str, unit: str) -> str:
    """Return the text of an object with one more member."""
    plain = blank_comments(table)
    if not plain.startswith("{"):
        raise ValueError("it is not in an object")
    inner = plain[1:-1].rstrip()
    wide = "\n" in plain or not inner.strip()
    member = f"{json.dumps(name, ensure_ascii=False)}: {_render_json(value, plain, indent + unit, unit)}"
    if not inner.strip():
        return f"{{\n{indent}{unit}{member}\n{indent}}}"
    place = 1 + len(inner)
    return f"{table[:place]},{f'{chr(10)}{indent}{unit}' if wide else ' '}{member}{table[place:]}".replace("\r\n", "\n")


def _render_json(value: Any, before: str, indent: str, unit: str) -> str:
    """Return a value as JSON, on several lines if the text before it has several, or it is long."""
    short = json.dumps(value, ensure_ascii=False, allow_nan=False)
    if "\n" not in before and len(short) <= MAX_JSON_LINE:
        return short
    long = json.dumps(value, indent=unit, ensure_ascii=False, allow_nan=False)
    return long.replace("\n", f"\n{indent}")


def _iter_json_spans(text: str) -> Iterator[tuple[JsonPath, tuple[int, int]]]:
    """Yield the path of each value of a valid JSON text, with its start and end."""
    path: list[str | int] = []
    starts: list[int] = []
    before_name = False
    for token in _JSON_TOKEN.finditer(text):
        word = token[0]
        if word == ",":
            before_name = isinstance(path[-1], str)
            path[-1] = path[-1] + 1 if isinstance(path[-1], int) else path[-1]
        elif word in ("}", "]"):
            path.pop()
            before_name = False
            yield tuple(path), (starts.pop(), token.end())
        elif before_name:
            path[-1], before_name = str(json.loads(word)), False
        elif word in ("{", "["):
            starts.append(token.start())
            before_name = word == "{"
            path.append("" if before_name else 0)
        else:
            yield tuple(path), token.span()


def _blank_match(match: "re.Match[str]") -> str:
    """Return spaces for a match; a string, and a comment that does not end, stay as they are."""
    stays = match[1] or (match[0].startswith("/*") and not match[0].endswith("*/"))
    return match[0] if stays else re.sub(r"[^\n]", " ", match[0])


def _find_duplicate(text: str) -> tuple[str, int]:
    seen: set[JsonPath] = set()
    for path, line in iter_json_lines(text):
        if path in seen and isinstance(path[-1], str):
            return path[-1], line
        seen.add(path)
    return "", 1


def parse_toml(path: Path, text: str) -> dict[str, Any]:
    """Return a TOML document as data. Raises ``ConfigError`` with the line."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        where = re.search(r"\(at line (\d+)", str(error))
        line = where[1] if where else text.count("\n") + 1
        raise ConfigError(f"{path}:{line}: not TOML: {error}") from error


def split_dotted_key(text: str) -> tuple[str, ...]:
    """Return the parts of a dotted TOML key such as ``prices."gpt-4.1".input``, ``()`` for anything else."""
    try:
        inner: Any = tomllib.loads(f"{text.strip()} = 0") if text.strip() else {}
    except tomllib.TOMLDecodeError:
        return ()
    path: list[str] = []
    while isinstance(inner, dict) and inner:
        part, inner = next(iter(cast("dict[str, Any]", inner).items()))
        path.append(part)
    return tuple(path)


def suggest(name: str, known: Iterable[str]) -> str:
    """Return the hint for a name that does not exist."""
    names = list(known)
    near = find_near_names(name, names, n=1)
    return f"did you mean {near[0]!r}?" if near else f"there are {', '.join(names)}"


def line_of(text: str, path: tuple[str, ...]) -> int:
    """Return the line of the key or table at ``path``, else of the nearest table that holds it, else 1."""
    best, line = 0, 1
    for number, statement in iter_statements(text):
        shared = 0
        while shared < min(len(path), len(statement)) and path[shared] == statement[shared]:
            shared += 1
        if shared > best and (shared == len(statement) or shared == len(path)):
            best, line = shared, number
    return line


def iter_statements(text: str) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yield the number of each line that opens a table or sets a key, with the full path of the table or key."""
    header: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), start=1):
        opened = _TABLE_HEADER.match(line)
        name = opened[1] if opened else line.partition("=")[0] if "=" in line else ""
        path = split_dotted_key(name)
        if not path:
            continue
        header = path if opened else header
        yield number, path if opened else (*header, *path)


_TABLE_HEADER = re.compile(r"[ \t]*\[\[?([^\[\]]+)\]")


def set_toml_key(text: str, name: "str | tuple[str, ...]", value: Any) -> str:
    """Return a TOML document with one key set: in its place, or after the last line. Raises ``ValueError``."""
    path = (name,) if isinstance(name, str) else name
    wanted = _expected_document(tomllib.loads(text), path, value)
    edits: tuple[Callable[[str, tuple[str, ...], Any], str], ...]
    if isinstance(value, dict) and len(path) < 3:
        edits = (_set_table, _set_in_table)
    else:
        edits = (_set_in_table,) if len(path) > 1 else (_set_top_level,)
    for edit in edits:
        changed = edit(text, path, value)
        try:
            if tomllib.loads(changed) == wanted:
                return changed
        except tomllib.TOMLDecodeError:
            continue
    raise ValueError(f"{'.'.join(path)} is written in a form that vaka cannot change; edit the file yourself")


def _expected_document(document: dict[str, Any], path: tuple[str, ...], value: Any) -> dict[str, Any]:
    """Return the document as data with the value at ``path``."""
    changed: dict[str, Any] = copy.deepcopy(document)
    inner = changed
    for part in path[:-1]:
        inner = inner.setdefault(part, {})
    inner[path[-1]] = value
    return changed


def _set_top_level(text: str, path: tuple[str, ...], value: Any) -> str:
    name = path[0]
    written = f"{name} = {_toml_value(value)}\n"
    lines = text.splitlines(keepends=True)
    document = tomllib.loads(text)
    if name not in document:
        if any(isinstance(value, dict) for value in document.values()):
            return written + text  # below a table's header the key would belong to that table
        gap = "" if not lines or lines[-1].endswith("\n") else "\n"
        return f"{text}{gap}{written}"
    return _replace_statement(lines, line_of(text, path) - 1, written)


def _set_in_table(text: str, path: tuple[str, ...], value: Any) -> str:
    """Set a key below the header of its table, or append that table."""
    written = f"{_toml_key(path[-1])} = {_toml_value(value)}\n"
    lines = text.splitlines(keepends=True)
    places = {statement: number - 1 for number, statement in iter_statements(text)}
    if path in places and not lines[places[path]].lstrip().startswith("["):
        return _replace_statement(lines, places[path], written)
    header = places.get(path[:-1])
    if header is None:
        return _append_table(text, _toml_header(path[:-1]) + written)
    after = header + 1
    while after < len(lines) and lines[after].strip() and not lines[after].lstrip().startswith("["):
        after += 1
    before = [*lines[: after - 1], lines[after - 1].rstrip("\n") + "\n"]
    return "".join([*before, written, *lines[after:]])


def _set_table(text: str, path: tuple[str, ...], value: Any) -> str:
    """Replace a whole table, or append it."""
    fields = cast("dict[str, Any]", value)
    body = _toml_header(path) + "".join(f"{_toml_key(key)} = {_toml_value(item)}\n" for key, item in fields.items())
    lines = text.splitlines(keepends=True)
    start = {statement: number - 1 for number, statement in iter_statements(text)}.get(path)
    if start is None:
        return _append_table(text, body)
    end = start + 1
    while end < len(lines) and not lines[end].lstrip().startswith("["):
        end += 1
    return "".join([*lines[:start], body, *lines[end:]])


def _append_table(text: str, table: str) -> str:
    gap = "" if not text else "\n" if text.endswith("\n") else "\n\n"
    return f"{text}{gap}{table}"


def _replace_statement(lines: list[str], start: int, written: str) -> str:
    """Return the text with another statement in place of that at ``start``; a comment at its end stays."""
    end = _statement_end(lines, start)
    statement = "".join(lines[start:end]).rstrip("\n")
    signs = [match.start() for match in re.finditer(r"[ \t]*#", statement)]
    comment = next((statement[sign:] for sign in signs if _is_complete(statement[:sign])), "")
    indent = statement[: len(statement) - len(statement.lstrip())]
    return "".join([*lines[:start], indent, written.rstrip("\n"), comment, "\n", *lines[end:]])


def _statement_end(lines: list[str], start: int) -> int:
    """Return the index of the line after the statement that begins at ``start``."""
    end = start + 1
    while end < len(lines) and not _is_complete("".join(lines[start:end])):
        end += 1
    return end


def _is_complete(text: str) -> bool:
    try:
        return bool(tomllib.loads(text))
    except tomllib.TOMLDecodeError:
        return False


def _toml_value(value: Any) -> str:
    """Return a value as TOML: the JSON of texts and numbers is TOML as well."""
    if isinstance(value, dict):
        items = [f"{_toml_key(key)} = {_toml_value(item)}" for key, item in cast("dict[str, Any]", value).items()]
        return f"{{ {', '.join(items)} }}" if items else "{}"
    if isinstance(value, list | tuple):
        return f"[{','.join(map(_toml_value, cast('list[Any]', value)))}]"
    return msgspec.json.encode(value).decode().replace("\x7f", "\\u007f")


def _toml_header(path: tuple[str, ...]) -> str:
    return f"[{'.'.join(map(_toml_key, path))}]\n"


def _toml_key(text: str) -> str:
    return text if re.fullmatch(r"[A-Za-z0-9_-]+", text) else _toml_value(text)


def replace_file(path: Path, data: bytes, *, keep_mode: bool = True) -> None:
    """Replace a file atomically: after a crash it holds the old bytes or the new ones.

    A file that was not there before, or does not keep its mode, can be read by its owner only.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if keep_mode and path.exists():
            new.chmod(path.stat().st_mode & 0o777)
        new.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            new.unlink()
        raise


def value_at(document: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    """Return the value at a path, ``None`` when there is none."""
    value: Any = document
    for name in path:
        value = cast("dict[str, Any]", value).get(name) if isinstance(value, dict) else None
    return value


def type_name(value: object) -> str:
    names = {"dict": "an object", "list": "a list", "NoneType": "null"}
    return names.get(type(value).__name__, repr(value)[:80])
