"""Read JSON as models write it, token by token: repair trailing commas, single quotes and Python literals, reject the rest. Pure."""

import json
import re

MAX_DEPTH = 200
"""Levels an object may have."""
QUOTES = ("'", '"')

_VALUE, _FIRST_ITEM, _ITEM, _FIRST_KEY, _KEY, _COLON, _NEXT = range(7)
_CLOSERS = {"{": "}", "[": "]"}
_ESCAPE = re.compile(r"\\.|[\"\x00-\x1f]", re.DOTALL)
_NUMBER = re.compile(r"-?[0-9.][0-9A-Za-z.+-]*")
_JSON_LITERALS = frozenset({"true", "false", "null", "NaN", "Infinity", "-Infinity"})
_PYTHON_LITERALS = {"True": "true", "False": "false", "None": "null"}


class NotACall(Exception):
    """What was written cannot belong to a call."""


class LenientJson:
    """One object or array. Give it the tokens in order until it is ``whole``; ``NoCall`` is raised at the first misfit.

    What is given as text is kept as it is, so that the text of a value without faults is the text that was read.
    """

    def __init__(self) -> None:
        self.is_complete = False
        self.end = 0
        """Where it ends in the text it was read from; set by whoever reads."""
        self._tokens: list[str] = []
        self._repairs: dict[str, None] = {}
        self._closers: list[str] = []
        self._expected_token = _VALUE
        self._comma_index = self._value_start = 0
        self._key = ""
        self._members: list[tuple[str, int, int]] = []

    def add_blanks(self, text: str) -> None:
        """Take blanks between two tokens."""
        self._tokens.append(text)

    def add_mark(self, char: str) -> None:
        """Take a bracket, a brace, a comma or a colon."""
        if char in _CLOSERS and self._expected_token in (_VALUE, _FIRST_ITEM, _ITEM) and len(self._closers) < MAX_DEPTH:
            self._closers.append(_CLOSERS[char])
            self._expected_token = _FIRST_KEY if char == "{" else _FIRST_ITEM
        elif char == ":" and self._expected_token == _COLON:
            self._expected_token = _VALUE
            self._value_start = len(self._tokens) + 1 if len(self._closers) == 1 else self._value_start
        elif char == "," and self._expected_token == _NEXT:
            self._end_member()
            self._comma_index = len(self._tokens)
            self._expected_token = _KEY if self._closers[-1] == "}" else _ITEM
        elif self._closers and char == self._closers[-1] and self._expected_token not in (_VALUE, _COLON):
            self._close_container()
        else:
            raise NotACall
        self._tokens.append(char)

    def add_word(self, text: str) -> None:
        """Take a number, true, false or null."""
        if self._expected_token not in (_VALUE, _FIRST_ITEM, _ITEM):
            raise NotACall
        if text in _PYTHON_LITERALS:
            self._repairs["Python words"] = None
        elif text not in _JSON_LITERALS and not _NUMBER.fullmatch(text):
            raise NotACall
        self._tokens.append(_PYTHON_LITERALS.get(text, text))
        self._expected_token = _NEXT

    def add_string(self, body: str, quote: str) -> None:
        """Take a text, given by what is between its quotes."""
        text, mended = requote(body, quote)
        self._repairs.update(dict.fromkeys(mended))
        if self._expected_token in (_FIRST_KEY, _KEY):
            self._key = text if len(self._closers) == 1 else self._key
            self._expected_token = _COLON
        elif self._expected_token in (_VALUE, _FIRST_ITEM, _ITEM):
            self._expected_token = _NEXT
        else:
            raise NotACall
        self._tokens.append(text)

    @property
    def text(self) -> str:
        """The value as JSON."""
        return "".join(self._tokens)

    @property
    def repair_notes(self) -> str:
        """What was mended, if anything."""
        return "; ".join(self._repairs)

    def member_json(self, name: str) -> str:
        """Return the one member of that name as JSON. Raises ``NoCall`` when there is none or several."""
        found = [self._tokens[start:end] for key, start, end in self._members if _is_key(key, name)]
        if len(found) != 1:
            raise NotACall
        return "".join(found[0]).strip()

    def _close_container(self) -> None:
        if self._expected_token in (_KEY, _ITEM):
            self._tokens[self._comma_index] = ""
            self._repairs["trailing comma"] = None
        else:
            self._end_member()
        self._closers.pop()
        self._expected_token, self.is_complete = _NEXT, not self._closers

    def _end_member(self) -> None:
        if self._closers == ["}"] and self._expected_token == _NEXT:
            self._members.append((self._key, self._value_start, len(self._tokens)))


def requote(body: str, quote: str) -> tuple[str, list[str]]:
    """Return a text as a JSON string, given what is between its quotes, and what was mended."""
    mended: dict[str, None] = {"single quotes": None} if quote == "'" else {}

    def escape(found: re.Match[str]) -> str:
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

    return f'"{_ESCAPE.sub(escape, body)}"', list(mended)


def _is_key(key: str, name: str) -> bool:
    try:
        return bool(json.loads(key) == name)
    except ValueError:
        return False
