"""Quotes: what is left of a word when they are gone, and where it ends.

Texts are bytes written as Latin-1 here, so that offsets are those of the tree.
"""

import re
from typing import NamedTuple

from vaka.policy.bash.words import Hole, is_number


class Mismatch(Exception):
    """The tree says one thing and bash would read another."""


class Segment(NamedTuple):
    """Some text of a word, and whether it was quoted."""

    text: str
    quoted: bool


PLAIN = re.compile(r"[A-Za-z0-9_./:=@%+,^\-]+(?=[ \t\n;&|)]|$)")
BREAKS = frozenset(" \t\n;&|()<>")
PARAMETER = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*|[0-9@*#?$!\-])")
_LITERAL = re.compile(r"[^ \t\n;&|()<>\\'\"$`]+")
_STRING = re.compile(r'[^"\\$`]+')
_ANSI = re.compile(
    r"\\(?:([abeEfnrtv\\'\"?])|([0-7]{1,3})|x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{1,4})|U([0-9a-fA-F]{1,8})|c(.))",
    re.DOTALL,
)
_NAMED = {
    "a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
    "\\": "\\", "'": "'", '"': '"', "?": "?",
}  # fmt: skip


def _ansi_one(found: re.Match[str]) -> str:
    named, octal, two, four, eight, control = found.groups()
    if named:
        return _NAMED[named]
    if octal or two:
        return chr(int(octal, 8) & 0xFF if octal else int(two, 16))
    if control is not None:
        return chr(ord(control.upper()) ^ 0x40 if control != "?" else 0x7F)
    number = int(four or eight, 16)
    if number > 0x10FFFF or 0xD800 <= number <= 0xDFFF:
        raise Mismatch(f"{found[0]!r} is no character")
    return chr(number).encode("utf-8").decode("latin-1")


def ansi(text: str) -> str:
    """Return what stands between ``$'`` and ``'``, decoded; bash cuts it at a NUL."""
    if "\\x{" in text:  # bash has a form of its own for this, and not every version the same
        raise Mismatch("\\x{ in a word is not understood")
    return _ANSI.sub(_ansi_one, text).split("\0", 1)[0]


def ansi_end(text: str, at: int) -> int:
    """Return where the text of ``$'…'`` that begins at ``at`` ends."""
    while at < len(text):
        if text[at] == "\\":
            at += 2
        elif text[at] == "'":
            return at
        else:
            at += 1
    raise Mismatch("a quote is not closed")


def decoded(text: str) -> str:
    """Return Latin-1 as the text it stands for."""
    return text if text.isascii() else text.encode("latin-1").decode("utf-8", "surrogateescape")


class Expansion(NamedTuple):
    """Something of a word that the tree knows the extent of."""

    end: int
    hole: Hole


class Scanner:
    """Reads one word from its first character on, taking expansions from the tree."""

    def __init__(self, text: str, expansions: dict[int, Expansion]) -> None:
        self.text = text
        self.expansions = expansions
        self.used = 0
        self.parts: list[Segment | Hole] = []
        self.bare = True

    def word(self, at: int, *, stop: int, some: bool = False) -> int:
        """Read a word and return where it ends; not all expansions need be in it when it is one of ``some``."""
        text = self.text
        while at < stop:
            character = text[at]
            if character in BREAKS and not (character in "<>" and at in self.expansions):
                break
            if found := _LITERAL.match(text, at, stop):
                self._add(found[0], quoted=False)
                at = found.end()
            else:
                at = self._special(character, at)
        if at > stop:
            raise Mismatch("a word goes on behind the command it belongs to")
        if not some and self.used != len(self.expansions):
            raise Mismatch("an expansion stands where bash sees none")
        return at

    def _add(self, text: str, *, quoted: bool) -> None:
        self.parts.append(Segment(decoded(text), quoted))

    def _special(self, character: str, at: int) -> int:
        if character == "\\":
            self.bare = False
            if at + 1 >= len(self.text):
                raise Mismatch("a backslash at the end escapes nothing")
            escaped = self.text[at + 1]
            if escaped >= "\x80":  # the first byte of something that needs no backslash
                return at + 1
            self._add(escaped, quoted=True)
            return at + 2
        if character == "'":
            self.bare = False
            end = self.text.find("'", at + 1)
            if end < 0:
                raise Mismatch("a quote is not closed")
            self._add(self.text[at + 1 : end], quoted=True)
            return end + 1
        if character == '"':
            return self.string(at + 1)
        return self._dollar(at)

    def _dollar(self, at: int) -> int:
        text = self.text
        if text.startswith("$'", at):
            self.bare = False
            end = ansi_end(text, at + 2)
            self._add(ansi(text[at + 2 : end]), quoted=True)
            return end + 1
        if text.startswith('$"', at):
            return self.string(at + 2)
        return self.expansion(at, quoted=False)

    def expansion(self, at: int, *, quoted: bool) -> int:
        """Read what begins with a dollar, a backquote or a process substitution."""
        self.bare = False
        known = self.expansions.get(at)
        if known is not None:
            self.used += 1
            hole = known.hole
            splits = (not quoted or "@" in hole.name) and hole.kind != "process" and not hole.number
            self.parts.append(Hole(hole.kind, hole.name, splits, hole.guess, hole.counts))
            return known.end
        if found := PARAMETER.match(self.text, at):
            splits = (not quoted or found[1] == "@") and not is_number(found[1])
            self.parts.append(Hole("parameter", found[1], splits))
            return found.end()
        if self.text[at] != "$" or self.text.startswith(("$(", "${", "$["), at):
            raise Mismatch("an expansion stands where the tree has none")
        self._add("$", quoted=True)
        return at + 1

    def string(self, at: int) -> int:
        """Read a string in double quotes from behind its first quote on."""
        text = self.text
        self.bare = False
        self._add("", quoted=True)
        while at < len(text):
            character = text[at]
            if character == '"':
                return at + 1
            if found := _STRING.match(text, at):
                self._add(found[0], quoted=True)
                at = found.end()
            elif character == "\\":
                escaped = text[at + 1 : at + 2]
                self._add(escaped if escaped in '$`"\\' else "\\" + escaped if escaped < "\x80" else "\\", quoted=True)
                at += 2 if escaped < "\x80" else 1
            else:
                at = self.expansion(at, quoted=True)
        raise Mismatch("a string is not closed")
