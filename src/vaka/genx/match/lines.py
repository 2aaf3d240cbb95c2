"""The lines that a model answers, ``rule: name=value, …``: read as they stream, and written."""

import json
import math
import re
import unicodedata
from collections.abc import Iterator, Mapping

import msgspec

from vaka.genx.match.rules import MatchRule, RuleVar, Scalar

_TRUE = {"1", "t", "true", "yes", "on"}
_FALSE = {"0", "f", "false", "no", "off"}
_INT = re.compile(r"[+-]?[0-9]+")
_FLOAT = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_INT64 = 2**63
_MAX_DIGITS = 400
"""Python refuses to convert very long numbers, and none of them is an int64 or a finite float with another value."""
_QUOTED = re.compile(r'\s*"((?:[^"\\]|\\.)*)"\s*(?=,|$)')
_ESCAPE = re.compile(r"\\(.)")
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}
_NEEDS_QUOTES = re.compile(r'[,"\\\n\r\t]|^\s|\s$|^\[.*\]$|^$')


class MatchResult(msgspec.Struct, frozen=True):
    """One line of an answer: the rule it names, or ``""`` for text that names none.

    ``args`` has every variable of the rule, ``None`` if it has no value; ``raw_text`` is the line, or the part
    of the user's text that the offline matcher matched with ``confidence``.
    """

    rule: str
    args: dict[str, Scalar | None] = {}
    raw_text: str = ""
    confidence: float = 1.0

    @property
    def given(self) -> dict[str, Scalar]:
        """The arguments with a value."""
        return {name: value for name, value in self.args.items() if value is not None}


class LineParser:
    """Turns pieces of an answer into results, each as soon as its line is complete."""

    def __init__(self, rules: Mapping[str, MatchRule]) -> None:
        self._rules = rules
        self._pieces: list[str] = []

    def feed(self, text: str) -> list[MatchResult]:
        """Return the results of the lines that ``text`` completes."""
        first, *rest = text.split("\n")
        self._pieces.append(first)
        if not rest:
            return []
        lines = ["".join(self._pieces), *rest[:-1]]
        self._pieces = [rest[-1]]
        return [result for line in lines for result in self._results_of(line)]

    def finish(self) -> list[MatchResult]:
        """Return the result of the text after the last newline; the parser is then as new."""
        line, self._pieces = "".join(self._pieces), []
        return list(self._results_of(line))

    def _results_of(self, line: str) -> Iterator[MatchResult]:
        if stripped := line.strip():
            yield parse_line(stripped, self._rules)


def parse_line(line: str, rules: Mapping[str, MatchRule]) -> MatchResult:
    """Return what a line says; any text is accepted."""
    for candidate in (line, line.removeprefix("- ")):
        for colon in (":", "："):
            head, _, rest = candidate.partition(colon)
            rule = rules.get(head.strip())
            if rule is not None and rule.name:
                return MatchResult(rule.name, _parse_args(rest, rule.vars), line)
    return MatchResult("", {}, line)


def format_line(rule: str, args: Mapping[str, Scalar | None]) -> str:
    """Return the line of a rule; ``parse_line`` reads it back. Values are quoted where they need it."""
    shown = ", ".join(f"{name}={_format_value(value)}" for name, value in args.items() if value is not None)
    return f"{rule}: {shown}" if shown else rule


def convert_value(text: str, kind: str) -> Scalar:
    """Return ``text`` as a value of a type of variables, or as it is when it is not one."""
    plain = unicodedata.normalize("NFKC", text).strip()
    if kind == "int" and len(plain) < _MAX_DIGITS and _INT.fullmatch(plain):
        number = int(plain)
        return number if -_INT64 <= number < _INT64 else text
    if kind == "float" and len(plain) < _MAX_DIGITS and _FLOAT.fullmatch(plain):
        value = float(plain)
        return value if math.isfinite(value) else text
    if kind == "bool":
        folded = plain.casefold()
        return folded in _TRUE if folded in _TRUE or folded in _FALSE else text
    return text


def _parse_args(text: str, variables: Mapping[str, RuleVar]) -> dict[str, Scalar | None]:
    args: dict[str, Scalar | None] = dict.fromkeys(variables)
    for name, value in split_args(text):
        var = variables.get(name)
        if var is not None and value != f"[{var.label or name}]":  # the model left the placeholder as it is
            args[name] = convert_value(value, var.type)
    return args


def split_args(text: str) -> Iterator[tuple[str, str]]:
    """Yield the names and values of ``name=value, …``; a comma separates, but not within quotes."""
    at = 0
    while at < len(text):
        comma = text.find(",", at)
        end = len(text) if comma < 0 else comma
        equals = text.find("=", at, end)
        if equals < 0:
            at = end + 1
            continue
        quoted = _QUOTED.match(text, equals + 1)
        if quoted is None:
            value = text[equals + 1 : end].strip()
        else:
            value, end = _ESCAPE.sub(lambda found: _ESCAPES.get(found[1], found[1]), quoted[1]), quoted.end()
        yield text[at:equals].strip(), value
        at = end + 1


def _format_value(value: Scalar) -> str:
    if not isinstance(value, str):
        return json.dumps(value)
    if not _NEEDS_QUOTES.search(value):
        return value
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + escaped.replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t") + '"'
