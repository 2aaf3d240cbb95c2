"""JSON as models write it into text, read token by token. Pure.

What has one meaning is mended, and what was mended is said: trailing commas, single quotes, Python's words for true,
false and null, line breaks inside of texts. Anything else that is no JSON is given up at once.
"""

import json
import re

DEPTH = 200
"""Levels an object may have."""
QUOTES = ("'", '"')

_VALUE, _FIRST_ITEM, _ITEM, _FIRST_KEY, _KEY, _COLON, _NEXT = range(7)
_CLOSERS = {"{": "}", "[": "]"}
_MARK = re.compile(r"\\.|[\"\x00-\x1f]", re.DOTALL)
_NUMBER = re.compile(r"-?[0-9.][0-9A-Za-z.+-]*")
_PLAIN = frozenset({"true", "false", "null", "NaN", "Infinity", "-Infinity"})
_PYTHON = {"True": "true", "False": "false", "None": "null"}


class NoCall(Exception):
    """What was written cannot belong to a call."""


class Lenient:
    """One object or array. Give it the tokens in order until it is ``whole``; ``NoCall`` is raised at the first misfit.

    What is given as text is kept as it is, so that the text of a value without faults is the text that was read.
    """

    def __init__(self) -> None:
        self.whole = False
        self.end = 0
        """Where it ends in the text it was read from; set by whoever reads."""
        self._out: list[str] = []
        self._mended: dict[str, None] = {}
        self._closers: list[str] = []
        self._expect = _VALUE
        self._comma = self._begun = 0
        self._key = ""
        self._members: list[tuple[str, int, int]] = []

    def blanks(self, text: str) -> None:
        """Take blanks between two tokens."""
        self._out.append(text)

    def mark(self, char: str) -> None:
        """Take a bracket, a brace, a comma or a colon."""
        if char in _CLOSERS and self._expect in (_VALUE, _FIRST_ITEM, _ITEM) and len(self._closers) < DEPTH:
            self._closers.append(_CLOSERS[char])
            self._expect = _FIRST_KEY if char == "{" else _FIRST_ITEM
        elif char == ":" and self._expect == _COLON:
            self._expect = _VALUE
            self._begun = len(self._out) + 1 if len(self._closers) == 1 else self._begun
        elif char == "," and self._expect == _NEXT:
            self._member()
            self._comma = len(self._out)
            self._expect = _KEY if self._closers[-1] == "}" else _ITEM
        elif self._closers and char == self._closers[-1] and self._expect not in (_VALUE, _COLON):
            self._close()
        else:
            raise NoCall
        self._out.append(char)

    def word(self, text: str) -> None:
        """Take a number, true, false or null."""
        if self._expect not in (_VALUE, _FIRST_ITEM, _ITEM):
            raise NoCall
        if text in _PYTHON:
            self._mended["Python words"] = None
        elif text not in _PLAIN and not _NUMBER.fullmatch(text):
            raise NoCall
        self._out.append(_PYTHON.get(text, text))
        self._expect = _NEXT

    def string(self, body: str, quote: str) -> None:
        """Take a text, given by what is between its quotes."""
        text, mended = requoted(body, quote)
        self._mended.update(dict.fromkeys(mended))
        if self._expect in (_FIRST_KEY, _KEY):
            self._key = text if len(self._closers) == 1 else self._key
            self._expect = _COLON
        elif self._expect in (_VALUE, _FIRST_ITEM, _ITEM):
            self._expect = _NEXT
        else:
            raise NoCall
        self._out.append(text)

    @property
    def text(self) -> str:
        """The value as JSON."""
        return "".join(self._out)

    @property
    def repaired(self) -> str:
        """What was mended, if anything."""
        return "; ".join(self._mended)

    def member(self, name: str) -> str:
        """Return the one member of that name as JSON. Raises ``NoCall`` when there is none or several."""
        found = [self._out[start:end] for key, start, end in self._members if _same(key, name)]
        if len(found) != 1:
            raise NoCall
        return "".join(found[0]).strip()

    def _close(self) -> None:
        if self._expect in (_KEY, _ITEM):
            self._out[self._comma] = ""
            self._mended["trailing comma"] = None
        else:
            self._member()
        self._closers.pop()
        self._expect, self.whole = _NEXT, not self._closers

    def _member(self) -> None:
        if self._closers == ["}"] and self._expect == _NEXT:
            self._members.append((self._key, self._begun, len(self._out)))


def requoted(body: str, quote: str) -> tuple[str, list[str]]:
    """Return a text as a JSON string, given what is between its quotes, and what was mended."""
    mended: dict[str, None] = {"single quotes": None} if quote == "'" else {}

    def mark(found: re.Match[str]) -> str:
        char = found[0]
        if char == "\\'":
            mended["single quotes"] = None
            return "'"
        if char == '"':
            return '\\"'
        if char < " ":
            mended["line breaks in text"] = None
            return json.dumps(char)[1:-1]
        return char

    return f'"{_MARK.sub(mark, body)}"', list(mended)


def _same(key: str, name: str) -> bool:
    try:
        return bool(json.loads(key) == name)
    except ValueError:
        return False
