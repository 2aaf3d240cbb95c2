"""Markdown files with a head of YAML, as skills, commands, agents and rules have; sloppy heads are read too."""

import os
import re
import stat
from pathlib import Path
from typing import Any, cast

import msgspec

MAX_FILE_BYTES = 1024 * 1024
HEAD_BYTES = 16 * 1024
"""Bytes that are read for the head of a file; one with a longer head is read whole."""

_FENCE = re.compile(r"^---[ \t]*$", re.MULTILINE)
_KEY_LINE = re.compile(r"^([A-Za-z][\w-]*):[ \t]*(.*)$")
_PLAIN_VALUE = re.compile(r"[\w./$~(+=<>–—“”'’][^\n]*")
_SPECIAL = re.compile(r": |:$| #|^['\"]|^(?:true|false|null|yes|no|on|off|~|[-+]?[.\d][\d_.eExXoO:-]*)$", re.IGNORECASE)


class MarkdownFile(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of the head, the text below it, and what is wrong with the head."""

    fields: dict[str, Any]
    body: str = ""
    problems: tuple[str, ...] = ()
    has_head: bool = False

    def text(self, name: str) -> str:
        """Return a field as text, ``""`` when it is missing."""
        value = self.fields.get(name)
        return value.strip() if isinstance(value, str) else "" if value is None else _as_text(value)

    def names(self, name: str) -> tuple[str, ...] | None:
        """Return a field that is a list, or a text with commas, as a tuple; ``None`` when it is missing."""
        value = self.fields.get(name)
        if value is None:
            return None
        text = _as_text(value).strip()
        text = text[1:-1] if text.startswith("[") and text.endswith("]") else text
        items = cast("list[object]", value) if isinstance(value, list) else _split_names(text)
        return tuple(dict.fromkeys(text for item in items if (text := _as_text(item).strip().strip("\"'"))))

    def flag(self, name: str) -> bool:
        """Return whether a field is true."""
        value = self.fields.get(name)
        return value is True or (isinstance(value, str) and value.strip().lower() in ("true", "yes", "on"))


def read_markdown(path: Path) -> MarkdownFile:
    """Return a file whole. Raises ``OSError`` for one that cannot be read."""
    return parse_markdown(read_text(path, MAX_FILE_BYTES))


def read_head(path: Path) -> MarkdownFile:
    """Return the head of a file without its body; the body is read only when the head is long. Raises ``OSError``."""
    text = read_text(path, HEAD_BYTES, cut=True)
    parsed = parse_markdown(text)
    if text.lstrip("\ufeff").startswith("---") and not parsed.has_head and len(text) >= HEAD_BYTES // 4:
        parsed = read_markdown(path)
    return msgspec.structs.replace(parsed, body="" if parsed.has_head else parsed.body[:HEAD_BYTES])


def read_text(path: Path, limit: int, *, cut: bool = False) -> str:
    """Return the text of a regular file; bytes that are not UTF-8 are replaced. Raises ``OSError``."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError("it is not a regular file")
        data = file.read(limit + 1)
    if len(data) > limit and not cut:
        raise OSError(f"it has more than {limit} bytes")
    return data[:limit].decode("utf-8-sig", "ignore" if cut else "replace").replace("\r\n", "\n").replace("\r", "\n")


def parse_markdown(text: str) -> MarkdownFile:
    """Return the head and the body of a text; a text without a head is all body."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    begin = _FENCE.match(text)
    end = _FENCE.search(text, begin.end()) if begin is not None else None
    if begin is None:
        return MarkdownFile(fields={}, body=text)
    if end is None:
        return MarkdownFile(fields={}, body=text, problems=("the head has no closing ---",))
    head, body = text[begin.end() + 1 : end.start()], text[end.end() + 1 :]
    fields, problem = _parse_head(head)
    return MarkdownFile(fields=fields, body=body, problems=(problem,) if problem else (), has_head=True)


def _parse_head(head: str) -> tuple[dict[str, Any], str]:
    """Return the fields of a head, and the problem of one that is not YAML."""
    simple = _parse_simple(head)
    if simple is not None:
        return simple, ""
    import yaml  # noqa: PLC0415  # takes 25 ms, and most heads are simple

    make_loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        value: object = make_loader(head).get_single_data()
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f" in line {mark.line + 2}" if mark is not None else ""
        return _parse_lines(head), f"the head is not YAML{where}; it was read line by line"
    if value is None:
        return {}, ""
    if not isinstance(value, dict):
        return {}, "the head is not a list of fields"
    return {str(key): item for key, item in cast("dict[object, Any]", value).items()}, ""


def _parse_simple(head: str) -> dict[str, Any] | None:
    """Return the fields of a head of plain ``name: text`` lines, ``None`` for anything that needs YAML."""
    fields: dict[str, Any] = {}
    for line in head.splitlines():
        if not line.strip():
            continue
        match = _KEY_LINE.match(line)
        if match is None or match[1] in fields:
            return None
        value = match[2].strip()
        if not _PLAIN_VALUE.fullmatch(value) or _SPECIAL.search(value):
            return None
        fields[match[1]] = value
    return fields


def _parse_lines(head: str) -> dict[str, Any]:
    """Return the fields of a head that is not YAML: lines that begin no field belong to the one before."""
    fields: dict[str, Any] = {}
    name = ""
    for line in head.splitlines():
        match = _KEY_LINE.match(line)
        if match is not None:
            name = match[1]
            fields[name] = _unquote(match[2].strip())
        elif name and line.strip():
            fields[name] = f"{fields[name]}\n{line.strip()}".strip()
    return fields


def _unquote(text: str) -> str:
    """Return the value of a line without its quotes; ``|`` and ``>`` stand for the lines that follow."""
    if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'":
        return text[1:-1]
    return "" if text in (">", "|", ">-", "|-") else text


def _split_names(text: str) -> list[str]:
    """Split a text at commas outside of brackets: ``Bash(git add:*, git push:*), Read``, ``*.{ts,tsx}, *.sql``."""
    parts, depth, current = list[str](), 0, ""
    for character in text:
        depth += (character in "({") - (character in ")}")
        if character in ",\n" and depth <= 0:
            parts.append(current)
            current = ""
        else:
            current += character
    return [*parts, current]


def _as_text(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return ", ".join(_as_text(item) for item in cast("list[object]", value))
    return str(value).lower() if isinstance(value, bool) else str(value)
