"""Markdown files with a head of YAML, as skills, commands, agents and rules have; sloppy heads are read too."""

import os
import re
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from textwrap import dedent
from typing import Any, cast

import msgspec

MAX_FILE_BYTES = 1024 * 1024
HEAD_BYTES = 16 * 1024
"""Bytes that are read for the head of a file; a file with a longer head is read whole."""
FIRST_BYTES = 2 * 1024
"""Bytes that are read first; most heads end in them."""
SETTLED_NANOSECONDS = 2_000_000_000
"""How long ago a file must have changed for its times to tell that it did not change again."""
MAX_CACHED_HEADS = 2048
MAX_YAML = 64 * 1024
"""Characters of a head that is parsed as YAML; a longer one is read line by line."""
MAX_NESTING = 100
"""How deep the lists and tables of a head are nested."""

_FENCE = re.compile(r"^---[ \t]*$", re.MULTILINE)
_BEFORE_HEAD = re.compile(r"(?:\s|<!--.*?-->|```\w*[ \t]*\n(?=---))*", re.DOTALL)
_USUAL_NAME = re.compile(r"[a-z-]+")
_TABLE_FIELD = re.compile(r"^(?:hooks|mcpServers):[ \t]*\n(?:(?:[ \t][^\n]*|[ \t]*)(?:\n|\Z))+", re.MULTILINE)
_KEY_LINE = re.compile(r"^([A-Za-z][\w-]*):(?:[ \t]+(.*)|[ \t]*)$")
_LOOSE_LINE = re.compile(r"^([A-Za-z][\w-]*)[ \t]*:[ \t]*(.*)$")
_MAIN_FIELD = re.compile(r"^(?:name|description)[ \t]*:", re.MULTILINE)
_PLAIN_VALUE = re.compile(r"[\w./$~(+=<>–—“”'’][^\n]*")
_SPECIAL = re.compile(r": |:$| #|^['\"]|^(?:true|false|null|yes|no|on|off|~|[-+]?[.\d][\d_.eExXoO:-]*)$", re.IGNORECASE)
_ANCHOR = re.compile(r"(?:^|[\s,\[{])&\w")
_KNOWN_FIELDS = frozenset(("name", "description", "tools", "allowed-tools", "model", "color", "paths", "hooks"))
_SPEAKERS = frozenset(("user", "assistant", "system", "human", "context", "commentary", "example", "examples", "note"))
"""Words before a colon that begin a line of an example in a description, and not a field."""


class MarkdownFile(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of the head, the text below it, and what is wrong with the head."""

    fields: dict[str, Any]
    similar: dict[str, Any] = {}
    """Fields whose names are written in another way, such as ``allowed_tools``, by their names in short."""
    body: str = ""
    problems: tuple[tuple[int, str], ...] = ()
    """The errors, each with the number of its line."""
    has_head: bool = False
    head: str = ""
    first_line: int = 2
    """The number of the first line of the head."""

    def find(self, *names: str) -> object:
        """Return the first field with one of the names; ``allowed-tools`` is also found as ``allowed_tools``."""
        for name in names:
            value = self.fields.get(name, self.similar.get(_squeeze(name)) if self.similar else None)
            if value is not None:
                return value
        return None

    def text(self, *names: str) -> str:
        """Return a field as text, ``""`` when it is missing."""
        value = self.find(*names)
        return value.strip() if isinstance(value, str) else "" if value is None else _as_text(value)

    def source(self, name: str) -> str:
        """Return the text of a field as it was written, if it is one line: ``[a] [b]`` is no list of YAML."""
        match = re.search(rf"^{re.escape(name)}:[ \t]*(.+)$", self.head, re.MULTILINE)
        return match[1].strip() if match and isinstance(self.fields.get(name), list) else self.text(name)

    def names(self, *names: str, spaces: bool = True) -> tuple[str, ...] | None:
        """Return a field that is a list, or a text with commas or spaces, as a tuple; ``None`` when it is missing."""
        value = self.find(*names)
        if value is None:
            return None
        if isinstance(value, dict):
            value = [name for name, used in cast("dict[object, object]", value).items() if used is not False]
        text = _as_text(value).strip()
        text = text[1:-1] if text.startswith("[") and text.endswith("]") else text
        separators = ", \t\n" if spaces else ",\n"
        items = cast("list[object]", value) if isinstance(value, list) else _split_names(text, separators)
        found = (_as_text(item).strip().removeprefix("- ").strip().strip("\"'") for item in items)
        return tuple(dict.fromkeys(text for text in found if text and text != "-"))

    def flag(self, name: str) -> bool | None:
        """Return whether a field is true or false, ``None`` when it is missing or neither."""
        text = self.text(name).lower()
        return True if text in ("true", "yes", "on", "1") else False if text in ("false", "no", "off", "0") else None

    def line_of(self, name: str) -> int:
        """Return the number of the line of a field, 1 when the head does not have it."""
        for number, line in enumerate(self.head.splitlines(), start=self.first_line):
            match = _KEY_LINE.match(line.strip())
            if match is not None and _squeeze(match[1]) == _squeeze(name):
                return number
        return 1


def read_markdown(path: Path) -> MarkdownFile:
    """Return a whole file. Raises ``OSError`` if it cannot be read."""
    return parse_markdown(read_text(path, MAX_FILE_BYTES))


def read_body(path: Path) -> str:
    """Return the text below the head. A file that has not changed since it was read is not read again.

    Raises ``OSError``.
    """
    signature = _signature_of(path)
    return read_markdown(path).body if signature is None else _read_settled_body(path, signature)


@lru_cache(maxsize=32)
def _read_settled_body(path: Path, signature: tuple[int, ...]) -> str:
    return read_markdown(path).body


def _signature_of(path: Path) -> tuple[int, ...] | None:
    """Return a value that changes with the file; ``None`` after a recent change, since another may go unnoticed."""
    info = path.stat()
    if time.time_ns() - info.st_mtime_ns < SETTLED_NANOSECONDS:
        return None
    return info.st_mtime_ns, info.st_size, info.st_ino, info.st_dev


def read_head(path: Path) -> MarkdownFile:
    """Return the head of a file with the beginning of its body; a file with a long head is read whole.

    A file that has not changed since it was read is not read again. Raises ``OSError``.
    """
    signature = _signature_of(path)
    return _read_head(path) if signature is None else _read_settled_head(path, signature)


@lru_cache(maxsize=MAX_CACHED_HEADS)
def _read_settled_head(path: Path, signature: tuple[int, ...]) -> MarkdownFile:
    return _read_head(path)


def _read_head(path: Path) -> MarkdownFile:
    text = read_text(path, FIRST_BYTES, cut=True)
    is_whole = len(text) < FIRST_BYTES // 4
    if not is_whole and (not text.startswith("---") or _FENCE.search(text, len("---")) is None):
        text = read_text(path, HEAD_BYTES, cut=True)
    if text.startswith("---") and len(text) >= HEAD_BYTES // 4 and _FENCE.search(text, len("---")) is None:
        text = read_text(path, MAX_FILE_BYTES)
    parsed = parse_markdown(text)
    return msgspec.structs.replace(parsed, body=parsed.body[:FIRST_BYTES])


def read_text(path: Path, limit: int, *, cut: bool = False) -> str:
    """Return the text of a regular file; bytes that are not UTF-8 are replaced. Raises ``OSError``."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError("it is not a regular file")
        data = file.read(limit + 1)
    if len(data) > limit and not cut:
        raise OSError(f"it has more than {limit} bytes")
    text = data[:limit].decode("utf-8-sig", "replace").replace("\r\n", "\n").replace("\r", "\n")
    return text.rstrip("\ufffd") if len(data) > limit else text


def parse_markdown(text: str) -> MarkdownFile:
    """Return the head and the body of a text; a text without a head is all body."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    before = _BEFORE_HEAD.match(text)
    start = before.end() if before is not None else 0
    begin = _FENCE.match(text, start)
    end = _FENCE.search(text, begin.end()) if begin is not None else None
    if begin is not None and end is None:
        end = _find_bare_end(text, begin.end() + 1)
    elif begin is None or (start > 0 and not _MAIN_FIELD.search(text, begin.end(), end.start() if end else len(text))):
        begin, end = None, _find_bare_end(text, 0)
    if end is None:
        problem = (1, "the head has no closing ---, so it is part of the text")
        return MarkdownFile(fields={}, body=text, problems=(problem,) if begin is not None and start == 0 else ())
    head_at = begin.end() + 1 if begin is not None else 0
    head, body = text[head_at : end.start()], text[end.end() :].removeprefix("\n")
    if begin is not None and "```" in text[:start]:
        body = re.sub(r"\A\s*```[ \t]*\n", "", body)
    first_line = text.count("\n", 0, head_at) + 1
    problems = list(_find_fence_problems(text, begin, end))
    fields = _parse_head(head, first_line, problems)
    return MarkdownFile(
        fields=fields,
        body=body,
        problems=tuple(problems),
        has_head=True,
        head=head,
        first_line=first_line,
        similar={_squeeze(name): value for name, value in fields.items() if not _USUAL_NAME.fullmatch(name)},
    )


def _find_fence_problems(text: str, begin: "re.Match[str] | None", end: "re.Match[str]") -> Iterator[tuple[int, str]]:
    if begin is None:
        yield 1, "the head has no opening ---; write it in the first line"
    elif begin.start() > 0:
        yield text.count("\n", 0, begin.start()) + 1, "there is text before the head; write --- in the first line"
    if not end[0].startswith("---"):
        yield text.count("\n", 0, end.start()) + 1, "the head has no closing ---; it ends at this empty line"


def _find_bare_end(text: str, start: int) -> "re.Match[str] | None":
    """Return the end of a head with only one of its ``---``: that line, or the empty line after lines of fields."""
    if not _KEY_LINE.match(text[start : start + 1000].partition("\n")[0]):
        return None
    end = re.compile(r"^---[ \t]*$|^[ \t]*$|\Z" if start else r"^---[ \t]*$", re.MULTILINE).search(text, start)
    lines = text[start : end.start() if end is not None else 0].splitlines()
    fields = [match[1] for line in lines if (match := _KEY_LINE.match(line))]
    is_head = len(fields) == len(lines) and bool({"name", "description"}.intersection(fields))
    return end if is_head else None


def _parse_head(head: str, first_line: int, problems: list[tuple[int, str]]) -> dict[str, Any]:
    """Return the fields of a head. If it is not YAML, read it line by line and report it."""
    if (wrong := head.find("\ufffd")) >= 0:
        problems.append((first_line + head.count("\n", 0, wrong), "the head has bytes that are not UTF-8"))
    simple = _parse_simple(head)
    if simple is not None:
        return simple
    import yaml  # noqa: PLC0415  # takes 25 ms, and most heads are simple

    make_loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        if len(head) > MAX_YAML or not _is_plain_yaml(head, make_loader):
            raise ValueError("it is too long, nested too deep, or has references")
        value: object = make_loader(head).get_single_data()
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        line = first_line + (mark.line if mark is not None else 0)
        problems.append((line, "the head is not YAML, so it is read line by line; put the text in quotes"))
        return {**_parse_lines(head), **_parse_tables(head, make_loader)}
    if value is not None and not isinstance(value, dict):
        problems.append((first_line, "the head is not a list of fields; write lines such as `description: …`"))
        return {}
    for line, name in _repeated_fields(head, first_line):
        problems.append((line, f"{name!r} appears twice; the last one counts"))
    return {str(key): item for key, item in cast("dict[object, Any]", value or {}).items()}


def _is_plain_yaml(head: str, make_loader: Any) -> bool:
    """Return whether a head can be loaded: nesting can overflow the stack, references can fill the memory."""
    if not _ANCHOR.search(head) and sum(map(head.count, ("[", "{", "- ", "? "))) <= MAX_NESTING:
        return True
    import yaml  # noqa: PLC0415

    depth = 0
    events: Iterator[object] = cast("Any", yaml).parse(head, Loader=make_loader)
    for event in events:
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_NESTING or isinstance(event, yaml.AliasEvent):
            return False
    return True


def _repeated_fields(head: str, first_line: int) -> Iterator[tuple[int, str]]:
    seen = set[str]()
    for number, line in enumerate(head.splitlines(), start=first_line):
        match = _KEY_LINE.match(line)
        if match is not None and match[1] in seen:
            yield number, match[1]
        elif match is not None:
            seen.add(match[1])


def _parse_simple(head: str) -> dict[str, Any] | None:
    """Return the fields of a head of plain ``name: text`` lines, ``None`` for anything that needs YAML."""
    fields: dict[str, Any] = {}
    for line in head.splitlines():
        if not line.strip():
            continue
        match = _KEY_LINE.match(line)
        if match is None or match[1] in fields:
            return None
        value = (match[2] or "").strip()
        if not _PLAIN_VALUE.fullmatch(value) or _SPECIAL.search(value):
            return None
        fields[match[1]] = value
    return fields


def _parse_lines(head: str) -> dict[str, Any]:
    """Return the fields of a head that is not YAML: lines that begin no field belong to the previous field."""
    fields: dict[str, str] = {}
    name = ""
    for line in dedent(head).splitlines():
        match = _LOOSE_LINE.match(line)
        if match is not None and (match[1].lower() in _KNOWN_FIELDS or _begins_field(match[1], line)):
            name = match[1]
            fields[name] = match[2].strip()
        elif name and line.strip():
            fields[name] = f"{fields[name]}\n{line.strip()}".strip()
    return {name: _unquote(text) for name, text in fields.items()}


def _parse_tables(head: str, make_loader: Any) -> dict[str, Any]:
    """Return the fields of a head that is not YAML whose values are tables that are YAML by themselves."""
    import yaml  # noqa: PLC0415

    found: dict[str, Any] = {}
    for match in _TABLE_FIELD.finditer(dedent(head)):
        with suppress(yaml.YAMLError, ValueError, RecursionError):
            if len(match[0]) <= MAX_YAML and _is_plain_yaml(match[0], make_loader):
                value: object = make_loader(match[0]).get_single_data()
                found |= cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    return found


def _begins_field(name: str, line: str) -> bool:
    """Return whether a line begins a field with a name that is not known."""
    return name[0].islower() and name not in _SPEAKERS and _KEY_LINE.match(line) is not None


def _unquote(text: str) -> str:
    """Return a value without its quotes; ``|`` and ``>`` stand for the lines that follow."""
    first, _, rest = text.partition("\n")
    if first in (">", "|", ">-", "|-", ">+", "|+"):
        return rest
    if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'":
        return text[1:-1].replace('\\"', '"') if text[0] == '"' else text[1:-1].replace("''", "'")
    return text[1:] if text[:1] in ('"', "'") and text.count(text[0]) == 1 else text


def _split_names(text: str, separators: str) -> list[str]:
    """Split a text outside of brackets: ``Bash(git add:*, git push:*), Read``, ``*.{ts,tsx}, *.sql``."""
    if "(" not in text and "{" not in text:
        return re.split(f"[{separators}]", text)
    parts = list[str]()
    depth = 0
    start = 0
    for position, character in enumerate(text):
        depth += (character in "({") - (character in ")}")
        if character in separators and depth <= 0:
            parts.append(text[start:position])
            start = position + 1
    return [*parts, text[start:]]


@lru_cache(maxsize=256)
def _squeeze(name: str) -> str:
    """Return the name of a field without what people write in different ways."""
    return name.lower().replace("-", "").replace("_", "")


def _as_text(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return ", ".join(_as_text(item) for item in cast("list[object]", value))
    if isinstance(value, dict):
        return ", ".join(f"{key}: {_as_text(item)}" for key, item in cast("dict[object, object]", value).items())
    return str(value).lower() if isinstance(value, bool) else str(value)
