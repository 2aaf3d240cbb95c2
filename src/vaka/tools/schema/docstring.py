"""Parse docstrings in Google, NumPy or Sphinx style."""

import inspect
import re
from collections.abc import Iterator
from typing import NamedTuple

_SECTION = re.compile(r"(?:Args|Arguments|Parameters|Params|Attributes|Keyword Arg(?:ument)?s|Other Parameters):\s*$")
_UNDERLINED = re.compile(r"(?:Parameters|Other Parameters|Attributes)\s*$")
_RULE = re.compile(r"-{3,}\s*$")
_GOOGLE_ENTRY = re.compile(r"\*{0,2}(?P<names>\w+)\s*(?:\([^)]*\))?\s*:\s?(?P<text>.*)$")
_NUMPY_ENTRY = re.compile(r"(?P<names>\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?$")
_FIELD = re.compile(
    r":(?:param|parameter|arg|argument|key|keyword|ivar|cvar|var|attribute)\s+(?P<sign>[^:]+):\s?(?P<text>.*)$"
)
_TYPE_FIELD = re.compile(r":(?:type|vartype)\s+[^:]+:")


class ParsedDocstring(NamedTuple):
    """The text of a docstring without its parameters, and the text about each parameter."""

    text: str
    parameters: dict[str, str]


def parse(docstring: str | None) -> ParsedDocstring:
    """Split a docstring into the text about each parameter and the rest."""
    lines = inspect.cleandoc(docstring or "").splitlines()
    rest: list[str] = []
    parameters: dict[str, str] = {}
    at = 0
    while at < len(lines):
        at = _read_section(lines, at, rest, parameters)
    return ParsedDocstring(re.sub(r"\n{3,}", "\n\n", "\n".join(rest)).strip(), parameters)


def _read_section(lines: list[str], start: int, text_lines: list[str], parameters: dict[str, str]) -> int:
    """Read the section or line at ``start`` and return the index of the next one."""
    line = lines[start]
    if _SECTION.match(line):
        block = list(_indented_block(lines, start + 1))
        if block and block[0].strip():
            parameters.update(_section_entries(_unindent(block), _GOOGLE_ENTRY))
            return start + 1 + len(block)
    if _UNDERLINED.match(line) and start + 1 < len(lines) and _RULE.match(lines[start + 1]):
        block = list(_numpy_block(lines, start + 2))
        parameters.update(_section_entries(block, _NUMPY_ENTRY))
        return start + 2 + len(block)
    if (field := _FIELD.match(line)) or _TYPE_FIELD.match(line):
        block = list(_indented_block(lines, start + 1))
        if field:
            parameters[field["sign"].split()[-1].lstrip("*")] = _join_lines([field["text"], *block])
        return start + 1 + len(block)
    text_lines.append(line)
    return start + 1


def _indented_block(lines: list[str], start: int) -> Iterator[str]:
    """Yield the indented lines from ``start`` on, with the blank lines between them."""
    end = start
    for number in range(start, len(lines)):
        if lines[number][:1].isspace():
            end = number + 1
        elif lines[number]:
            break
    yield from lines[start:end]


def _numpy_block(lines: list[str], start: int) -> Iterator[str]:
    """Yield the lines up to the next underlined heading."""
    for number in range(start, len(lines)):
        if number + 1 < len(lines) and lines[number] and _RULE.match(lines[number + 1]):
            return
        yield lines[number]


def _unindent(block: list[str]) -> list[str]:
    depth = len(block[0]) - len(block[0].lstrip())
    return [line[depth:] if not line[:depth].strip() else line.lstrip() for line in block]


def _section_entries(block: list[str], pattern: re.Pattern[str]) -> Iterator[tuple[str, str]]:
    """Yield each parameter of a section with its text."""
    names: list[str] = []
    words: list[str] = []
    for line in [*block, None]:
        if line is not None and (not line or line[0].isspace()):
            words.append(line)
            continue
        text = _join_lines(words)
        yield from ((name, text) for name in names)
        entry = pattern.match(line) if line is not None else None
        names = [name.strip().lstrip("*") for name in entry["names"].split(",")] if entry else []
        words = [entry.groupdict().get("text") or ""] if entry else []


def _join_lines(lines: list[str]) -> str:
    return " ".join(line.strip() for line in lines if line.strip())
