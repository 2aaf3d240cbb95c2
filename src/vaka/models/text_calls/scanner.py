"""Find tool calls that a model wrote as text, and read their JSON leniently."""

import json
import re
from collections.abc import Generator, Iterable, Sequence
from functools import lru_cache
from typing import TypeAlias

import msgspec

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
    """The text is not a call."""


class LenientJson:
    """One object or array, built from tokens until ``is_complete``; an invalid token raises ``NotACall``.

    Tokens are not normalized: the text of a valid value is the text that was read.
    """

    def __init__(self) -> None:
        self.is_complete = False
        self.end = 0
        """Its end in the scanned text; set by the scanner."""
        self._tokens: list[str] = []
        self._repairs: dict[str, None] = {}
        self._closers: list[str] = []
        self._expected_token = _VALUE
        self._comma_index = self._value_start = 0
        self._key = ""
        self._members: list[tuple[str, int, int]] = []

    def add_blanks(self, text: str) -> None:
        self._tokens.append(text)

    def add_mark(self, char: str) -> None:
        """Add a bracket, a brace, a comma or a colon."""
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
        """Add a number, true, false or null."""
        if self._expected_token not in (_VALUE, _FIRST_ITEM, _ITEM):
            raise NotACall
        if text in _PYTHON_LITERALS:
            self._repairs["Python words"] = None
        elif text not in _JSON_LITERALS and not _NUMBER.fullmatch(text):
            raise NotACall
        self._tokens.append(_PYTHON_LITERALS.get(text, text))
        self._expected_token = _NEXT

    def add_string(self, body: str, quote: str) -> None:
        """Add a string, of which ``body`` is between its quotes."""
        text, repairs = requote(body, quote)
        self._repairs.update(dict.fromkeys(repairs))
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
        """The repairs, if any."""
        return "; ".join(self._repairs)

    def member_json(self, name: str) -> str:
        """Return the member of that name as JSON. Raises ``NotACall`` unless there is exactly one."""
        members = [self._tokens[start:end] for key, start, end in self._members if _parse_json(key) == name]
        if len(members) != 1:
            raise NotACall
        return "".join(members[0]).strip()

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
    """Return the JSON string for the text between two quotes, and the repairs."""
    repairs: dict[str, None] = {"single quotes": None} if quote == "'" else {}

    def escape(match: re.Match[str]) -> str:
        char = match[0]
        if char == "\\'":
            repairs["single quotes"] = None
            return "'"
        if char == '"':
            return '\\"'
        if char < " ":
            repairs["line breaks in text"] = None
            return json.dumps(char)[1:-1]
        return char

    return f'"{_ESCAPE.sub(escape, body)}"', list(repairs)


TAGGED = 0
FENCED = 1
SENTENCE = 2
FUNCTION = 3
"""The forms of a call, in the order of precedence."""

OPENING_TAG, CLOSING_TAG = "<tool_call>", "</tool_call>"
"""The tags around the JSON of a call, as many small models were trained to write it."""

MAX_NAME = 128
"""Characters of a quoted name, at most."""

_Position: TypeAlias = Generator[None, None, int]

_SPACES = frozenset(" \t")

_BLANKS = frozenset(" \t\r\n\f\v")

_TICKS = frozenset("`")

_KEY_CHARS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")

_WORD_CHARS = _KEY_CHARS | frozenset(".")  # a name after a dot is an attribute

_LITERAL_CHARS = _WORD_CHARS | frozenset("+")

_NOT_BARE_CHARS = frozenset('()[]{}"`=\r\n')

_INTEGER = re.compile(r"[+-]?(?:0|[1-9][0-9]{0,17})")

_FLOAT = re.compile(
    r"[+-]?(?=.*[.eE])(?:(?:0|[1-9][0-9]{0,40})(?:\.[0-9]{0,40})?|\.[0-9]{1,40})(?:[eE][+-]?[0-9]{1,2})?"
)

_USING = "using"


class FoundCall(msgspec.Struct, frozen=True):
    """A call, and its position in the text."""

    start: int
    end: int
    form: int
    name: str
    arguments: str
    """JSON text."""
    repaired: str = ""


@lru_cache(maxsize=8)  # the answers of an agent are scanned for the same names
def _index_prefixes(names: frozenset[str]) -> tuple[frozenset[str], int]:
    """Return the prefixes of names, and the length of the longest."""
    words = (*names, _USING)
    return frozenset(word[:size] for word in words for size in range(1, len(word) + 1)), max(map(len, words))


class CallScanner:
    """Scans a text in pieces for calls; the text before ``text_end`` belongs to none."""

    def __init__(self, names: Iterable[str], *, only_tagged: bool = False) -> None:
        """``only_tagged``: find calls in tags, and no other form."""
        self.found_calls: list[FoundCall] = []
        self.text_end = 0
        self._names = frozenset(filter(None, names))
        self._prefixes, self._longest_prefix = _index_prefixes(self._names)
        words = {word[0] for word in self._names} | {_USING[0], _USING[0].upper()}
        self._first_letters: set[str] = set() if only_tagged else words
        self._only_tagged, self._is_fenced = only_tagged, False
        self._chars: list[str] = []  # a list, since it grows in place
        self._ended = False
        self._steps = self._scan()

    def feed(self, text: str) -> None:
        self._chars.extend(text)
        next(self._steps)

    def end(self) -> None:
        self._ended = True
        next(self._steps, None)

    def text(self, start: int, end: int | None = None) -> str:
        return "".join(self._chars[start:end])

    def calls(self) -> list[FoundCall]:
        """Return the calls of the first form that the text has."""
        first = min((call.form for call in self.found_calls), default=FENCED)
        return [call for call in self.found_calls if call.form == first]

    def _scan(self) -> Generator[None]:
        chars, at = self._chars, 0
        while True:
            while at < len(chars):
                char = chars[at]
                if char == "`":
                    at = yield from self._scan_fence(at)
                elif char == "<":
                    at = yield from self._scan_tagged(at)
                elif char in self._first_letters and (not at or chars[at - 1] not in _WORD_CHARS):
                    at = yield from self._scan_word(at)
                else:
                    at += 1
                    if char not in _BLANKS:  # blanks before a call are not text
                        at = self._mark_text(self._word_end(at) if char in _WORD_CHARS else at)
            if self._ended:
                return
            yield

    def _word_end(self, at: int) -> int:
        """Return the end of the word around ``at``, as far as it has arrived."""
        chars = self._chars
        while at < len(chars) and chars[at] in _WORD_CHARS:
            at += 1
        return at

    def _mark_text(self, end: int) -> int:
        """Mark everything before ``end`` as text, unless a call was found before."""
        if not self.found_calls:
            self.text_end = end
        return end

    def _scan_word(self, start: int) -> _Position:
        chars, at = self._chars, start
        while True:
            at = self._word_end(at)
            if at < len(chars) or self._ended:
                break
            if not self._may_begin(start, at):
                self._mark_text(at)
            yield
        word = self.text(start, at) if at - start <= self._longest_prefix else ""
        following = chars[at] if at < len(chars) else ""
        if following == "(" and word in self._names:
            return (yield from self._scan_function(start, at, word))
        if following in _BLANKS and word.lower() == _USING:
            return (yield from self._scan_sentence(start, at))
        return self._mark_text(at)

    def _may_begin(self, start: int, end: int) -> bool:
        """Return whether an unfinished word may become a word that begins a call."""
        if end - start > self._longest_prefix:
            return False
        word = self.text(start, end)
        return word in self._prefixes or _USING.startswith(word.lower())

    def _scan_fence(self, start: int) -> _Position:
        """Scan a run of backticks and a JSON block after it; return the position to continue at."""
        rest = yield from self._skip(start, _TICKS)
        ticks = rest - start
        try:
            if ticks < 3 or self._only_tagged:
                raise NotACall
            rest = yield from self._expect_word(rest, "json", _SPACES)
            block = yield from self._scan_json(rest)
            rest = block.end
            at = yield from self._skip(rest, _BLANKS)
            end = yield from self._skip(at, _TICKS)
            if end - at < 3 and at < len(self._chars):
                raise NotACall
            rest = end
            name, arguments = _read_call(block, "tool", ("parameters",))
            self.found_calls.append(FoundCall(start, end, FENCED, name, arguments, block.repair_notes))
        except NotACall:
            self._is_fenced ^= ticks >= 3
        return self._mark_text(rest)

    def _scan_tagged(self, start: int) -> _Position:
        """Scan a call in tags.

        Tags within a line, within code, or around the name of an unknown tool are a quotation.
        """
        try:
            if self._is_fenced or not self._begins_line(start):
                raise NotACall
            at = yield from self._expect_word(start, OPENING_TAG, frozenset())
            block = yield from self._scan_json(at)
            name, arguments = _read_call(block, "name", ("arguments", "parameters"))
            if name not in self._names:
                raise NotACall
            end = yield from self._skip(block.end, _BLANKS)
            if (yield from self._char_at(end)):  # some models end the answer without the closing tag
                end = yield from self._expect_word(end, CLOSING_TAG, frozenset())
        except NotACall:
            return self._mark_text(start + 1)
        self.found_calls.append(FoundCall(start, end, TAGGED, name, arguments, block.repair_notes))
        return end

    def _begins_line(self, at: int) -> bool:
        """Return whether only blanks, or the end of a call, are before ``at`` in its line."""
        while at and self._chars[at - 1] in _SPACES:
            at -= 1
        return not at or self._chars[at - 1] == "\n" or (bool(self.found_calls) and self.found_calls[-1].end == at)

    def _scan_sentence(self, start: int, at: int) -> _Position:
        try:
            for word in ("the", "tool"):
                at = yield from self._expect_word(at, word)
            name_start, at = yield from self._scan_quoted_name(at)
            name = self.text(name_start, at - 1)
            for word in ("with", "parameters", ":"):
                at = yield from self._expect_word(at, word)
            value = yield from self._scan_json(at)
        except NotACall:
            return self._mark_text(start + len(_USING))
        self.found_calls.append(FoundCall(start, value.end, SENTENCE, name, value.text, value.repair_notes))
        return value.end

    def _scan_quoted_name(self, at: int) -> Generator[None, None, tuple[int, int]]:
        """Scan a quoted name on one line, of at most ``MAX_NAME`` characters."""
        start = (yield from self._skip(at, _BLANKS)) + 1
        quote = yield from self._char_at(start - 1)
        if quote not in {*QUOTES, "`"}:
            raise NotACall
        for end in range(start, start + MAX_NAME + 1):
            char = yield from self._char_at(end)
            if char == quote and end > start:
                return start, end + 1
            if char in {"", "\n", quote}:
                break
        raise NotACall

    def _scan_function(self, start: int, opening: int, name: str) -> _Position:
        repaired = ""
        try:
            at = yield from self._skip(opening + 1, _BLANKS)
            char = yield from self._char_at(at)
            if char == "{":
                value = yield from self._scan_json(at)
                end = yield from self._expect_word(value.end, ")")
                arguments, repaired = value.text, value.repair_notes
            elif char == ")":
                end, arguments = at + 1, "{}"
            else:
                end, arguments, repaired = yield from self._scan_pairs(at)
        except NotACall:
            return self._mark_text(opening + 1)
        self.found_calls.append(FoundCall(start, end, FUNCTION, name, arguments, repaired))
        return end

    def _scan_pairs(self, at: int) -> Generator[None, None, tuple[int, str, str]]:
        """Scan ``key=value`` pairs up to the closing parenthesis; return the end, the JSON object and the repairs."""
        members: list[str] = []
        repaired: dict[str, None] = {}
        following = ","
        while following != ")":
            start = yield from self._skip(at, _BLANKS)
            if members and (yield from self._char_at(start)) == ")":
                repaired["trailing comma"] = None
                at = start + 1
                break
            end = yield from self._skip(start, _KEY_CHARS)
            if end == start:
                raise NotACall
            at = yield from self._expect_word(end, "=")
            value, at = yield from self._scan_value(at, repaired)
            members.append(f"{json.dumps(self.text(start, end))}: {value}")
            at = yield from self._skip(at, _BLANKS)
            following = yield from self._char_at(at)
            if following not in {",", ")"}:
                raise NotACall
            at += 1
        return at, f"{{{', '.join(members)}}}", "; ".join(repaired)

    def _scan_value(self, at: int, repaired: dict[str, None]) -> Generator[None, None, tuple[str, int]]:
        """Scan one value of the function form: quoted, JSON, or bare up to the next comma."""
        at = yield from self._skip(at, _BLANKS)
        char = yield from self._char_at(at)
        if char in QUOTES:
            end = yield from self._scan_string(at)
            return requote(self.text(at + 1, end - 1), char)[0], end
        if char in {"{", "["}:
            value = yield from self._scan_json(at, "{[")
            if value.repair_notes:
                repaired[value.repair_notes] = None
            return value.text, value.end
        end = yield from self._scan_bare_value(at)
        return _coerce_value(self.text(at, end).strip()), end

    def _scan_bare_value(self, at: int) -> _Position:
        while True:
            char = yield from self._char_at(at)
            if char in {",", ")"}:
                return at
            if not char or char in _NOT_BARE_CHARS:
                raise NotACall
            if char == "'":  # an apostrophe is allowed inside a word
                following = yield from self._char_at(at + 1)
                if not (self._chars[at - 1].isalnum() and following.isalnum()):
                    raise NotACall
            at += 1

    def _scan_json(self, at: int, opening: str = "{") -> Generator[None, None, LenientJson]:
        """Scan a value that begins with one of ``opening``, after optional blanks."""
        value = LenientJson()
        at = yield from self._skip(at, _BLANKS)
        if (yield from self._char_at(at)) not in set(opening):
            raise NotACall
        while not value.is_complete:
            char = yield from self._char_at(at)
            if char in QUOTES:
                end = yield from self._scan_string(at)
                value.add_string(self.text(at + 1, end - 1), char)
            elif char in _LITERAL_CHARS:
                end = yield from self._skip(at, _LITERAL_CHARS)
                value.add_word(self.text(at, end))
            elif char in _BLANKS:
                end = yield from self._skip(at, _BLANKS)
                value.add_blanks(self.text(at, end))
            else:
                value.add_mark(char)
                end = at + 1
            at = end
        value.end = at
        return value

    def _scan_string(self, at: int) -> _Position:
        """Return the end of the quoted text at ``at``, after its closing quote."""
        chars, quote = self._chars, self._chars[at]
        at += 1
        while True:
            while at < len(chars):
                char = chars[at]
                if char == quote:
                    return at + 1
                at += 2 if char == "\\" else 1
            if self._ended:
                raise NotACall
            yield

    def _expect_word(self, at: int, word: str, blanks: frozenset[str] = _BLANKS) -> _Position:
        """Return the end of ``word``, which must follow in any case after optional blanks."""
        at = yield from self._skip(at, blanks)
        for letter in word:
            if (yield from self._char_at(at)).lower() != letter:
                raise NotACall
            at += 1
        return at

    def _skip(self, at: int, chars: frozenset[str]) -> _Position:
        """Return the end of the run of ``chars`` at ``at``."""
        text = self._chars
        while True:
            while at < len(text) and text[at] in chars:
                at += 1
            if at < len(text) or self._ended:
                return at
            yield

    def _char_at(self, at: int) -> Generator[None, None, str]:
        """Return the character at ``at`` once it has arrived, ``""`` if the text ends before it."""
        while at >= len(self._chars):
            if self._ended:
                return ""
            yield
        return self._chars[at]


def _read_call(block: LenientJson, name_field: str, fields: Sequence[str]) -> tuple[str, str]:
    """Return the name and arguments of the call in a block, from the first of ``fields`` that it has.

    Raises ``NotACall`` if it is none.
    """
    name = _parse_json(block.member_json(name_field))
    if not isinstance(name, str) or not name:
        raise NotACall
    parameters = _first_member(block, fields)
    if parameters.startswith("{"):
        return name, parameters
    if parameters == "null":
        return name, "{}"
    inner = _parse_json(parameters) if parameters.startswith('"') else None
    if isinstance(inner, str):
        if inner.lstrip().startswith("{"):  # JSON in a string; parsing the call reports errors in it
            return name, inner
        parameters = inner if _parse_json(inner) is not None else parameters
    return name, f'{{"value": {parameters}}}'


def _first_member(block: LenientJson, names: Sequence[str]) -> str:
    for name in names[:-1]:
        try:
            return block.member_json(name)
        except NotACall:
            continue
    return block.member_json(names[-1])


def _parse_json(text: str) -> object:
    """Return the value of JSON text, ``None`` if it is invalid."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _coerce_value(text: str) -> str:
    """Return a bare value as JSON: an integer, a number, true or false, else a string."""
    if _INTEGER.fullmatch(text):
        return str(int(text))
    if _FLOAT.fullmatch(text):
        return repr(float(text))
    return text.lower() if text.lower() in {"true", "false"} else json.dumps(text, ensure_ascii=False)
