"""Where calls stand in a text, found while it arrives. Pure.

Three forms are known: a fenced JSON block with ``tool`` and ``parameters``, the sentence ``Using the tool 'NAME' with
parameters: {…}``, and ``NAME(…)`` for the names of tools. Each character is looked at a bounded number of times:
whatever may begin a call is given up at the first character that cannot belong to one, and outside of its quoted texts
no call can hold the beginning of another.
"""

import json
import re
from collections.abc import Generator, Iterable
from typing import TypeAlias

import msgspec

from vaka.models.text_json import QUOTES, Lenient, NoCall, requoted

FENCED, SENTENCE, FUNCTION = 0, 1, 2
"""The forms of a call; where a text has calls of several forms, those of the first count."""
NAME = 128
"""Characters a quoted name may have."""

_Position: TypeAlias = Generator[None, None, int]
_SPACES = frozenset(" \t")
_BLANKS = frozenset(" \t\r\n\f\v")
_TICKS = frozenset("`")
_KEY = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")
_WORD = _KEY | frozenset(".")  # what follows a dot belongs to something else
_LITERAL = _WORD | frozenset("+")
_NOT_BARE = frozenset('()[]{}"`=\r\n')
_WHOLE = re.compile(r"[+-]?(?:0|[1-9][0-9]{0,17})")
_REAL = re.compile(
    r"[+-]?(?=.*[.eE])(?:(?:0|[1-9][0-9]{0,40})(?:\.[0-9]{0,40})?|\.[0-9]{1,40})(?:[eE][+-]?[0-9]{1,2})?"
)
_USING = "using"


class Found(msgspec.Struct, frozen=True):
    """A call, and the characters it is written with."""

    start: int
    end: int
    form: int
    name: str
    arguments: str
    """JSON text."""
    repaired: str = ""


class Scanner:
    """Takes a text in pieces; ``found`` has the calls so far, ``sure`` says up to where the text belongs to none."""

    def __init__(self, names: Iterable[str]) -> None:
        self.found: list[Found] = []
        self.sure = 0
        self._names = frozenset(filter(None, names))
        self._begin = {word[:size] for word in (*self._names, _USING) for size in range(1, len(word) + 1)}
        self._longest = max(map(len, self._begin))
        self._first = {word for word in self._begin if len(word) == 1} | {_USING[0].upper()}
        self._chars: list[str] = []  # a list grows without being copied
        self._ended = False
        self._run = self._scan()

    def feed(self, text: str) -> None:
        """Take more of the text."""
        self._chars.extend(text)
        next(self._run)

    def end(self) -> None:
        """There is no more text."""
        self._ended = True
        next(self._run, None)

    def text(self, start: int, end: int | None = None) -> str:
        """Return a part of the text."""
        return "".join(self._chars[start:end])

    def calls(self) -> list[Found]:
        """Return the calls that count: those of the first form there is."""
        first = min((found.form for found in self.found), default=FENCED)
        return [found for found in self.found if found.form == first]

    def _scan(self) -> Generator[None]:
        chars, at = self._chars, 0
        while True:
            while at < len(chars):
                char = chars[at]
                if char == "`":
                    at = yield from self._fence(at)
                elif char in self._first and (not at or chars[at - 1] not in _WORD):
                    at = yield from self._word(at)
                else:
                    at += 1
                    if char not in _BLANKS:  # blanks wait: they go with a call that follows
                        at = self._text(self._run_of(at) if char in _WORD else at)
            if self._ended:
                return
            yield

    def _run_of(self, at: int) -> int:
        """Return where the word ends, as far as it has come, in the middle of which ``at`` is."""
        chars = self._chars
        while at < len(chars) and chars[at] in _WORD:
            at += 1
        return at

    def _text(self, end: int) -> int:
        """What comes before ``end`` is text; behind the first call nothing is sure before the end."""
        if not self.found:
            self.sure = end
        return end

    def _word(self, start: int) -> _Position:
        chars, at = self._chars, start
        while True:
            while at < len(chars) and chars[at] in _WORD:
                at += 1
            if at < len(chars) or self._ended:
                break
            if not self._may_begin(start, at):
                self._text(at)
            yield
        word = self.text(start, at) if at - start <= self._longest else ""
        following = chars[at] if at < len(chars) else ""
        if following == "(" and word in self._names:
            return (yield from self._function(start, at, word))
        if following in _BLANKS and word.lower() == _USING:
            return (yield from self._sentence(start, at))
        return self._text(at)

    def _may_begin(self, start: int, end: int) -> bool:
        """Tell whether a word that has not ended may become one that begins a call."""
        if end - start > self._longest:
            return False
        word = self.text(start, end)
        return word in self._begin or _USING.startswith(word.lower())

    def _fence(self, start: int) -> _Position:
        """Read a run of backticks, and what follows if that is a block of JSON; return where to go on."""
        rest = yield from self._past(start, _TICKS)
        try:
            if rest - start < 3:
                raise NoCall
            rest = yield from self._expect(rest, "json", _SPACES)
            block = yield from self._json(rest)
            rest = block.end
            at = yield from self._past(rest, _BLANKS)
            end = yield from self._past(at, _TICKS)
            if end - at < 3 and at < len(self._chars):
                raise NoCall
            rest = end
            name, arguments = _fenced(block)
            self.found.append(Found(start, end, FENCED, name, arguments, block.repaired))
        except NoCall:
            pass
        return self._text(rest)

    def _sentence(self, start: int, at: int) -> _Position:
        try:
            for word in ("the", "tool"):
                at = yield from self._expect(at, word)
            begun, at = yield from self._quoted(at)
            name = self.text(begun, at - 1)
            for word in ("with", "parameters", ":"):
                at = yield from self._expect(at, word)
            value = yield from self._json(at)
        except NoCall:
            return self._text(start + len(_USING))
        self.found.append(Found(start, value.end, SENTENCE, name, value.text, value.repaired))
        return value.end

    def _quoted(self, at: int) -> Generator[None, None, tuple[int, int]]:
        """Read a name in quotes, on one line and not too long."""
        begun = (yield from self._past(at, _BLANKS)) + 1
        quote = yield from self._at(begun - 1)
        if quote not in {*QUOTES, "`"}:
            raise NoCall
        for end in range(begun, begun + NAME + 1):
            char = yield from self._at(end)
            if char == quote and end > begun:
                return begun, end + 1
            if char in {"", "\n", quote}:
                break
        raise NoCall

    def _function(self, start: int, opening: int, name: str) -> _Position:
        repaired = ""
        try:
            at = yield from self._past(opening + 1, _BLANKS)
            char = yield from self._at(at)
            if char == "{":
                value = yield from self._json(at)
                end = yield from self._expect(value.end, ")")
                arguments, repaired = value.text, value.repaired
            elif char == ")":
                end, arguments = at + 1, "{}"
            else:
                end, arguments, repaired = yield from self._pairs(at)
        except NoCall:
            return self._text(opening + 1)
        self.found.append(Found(start, end, FUNCTION, name, arguments, repaired))
        return end

    def _pairs(self, at: int) -> Generator[None, None, tuple[int, str, str]]:
        """Read ``key=value`` and so on up to the closing parenthesis, as a JSON object."""
        made: list[str] = []
        repaired: dict[str, None] = {}
        while True:
            begun = yield from self._past(at, _BLANKS)
            if made and (yield from self._at(begun)) == ")":
                repaired["trailing comma"] = None
                return begun + 1, f"{{{', '.join(made)}}}", "; ".join(repaired)
            end = yield from self._past(begun, _KEY)
            if end == begun:
                raise NoCall
            at = yield from self._expect(end, "=")
            value, at = yield from self._value(at, repaired)
            made.append(f"{json.dumps(self.text(begun, end))}: {value}")
            at = yield from self._past(at, _BLANKS)
            following = yield from self._at(at)
            if following not in {",", ")"}:
                raise NoCall
            at += 1
            if following == ")":
                return at, f"{{{', '.join(made)}}}", "; ".join(repaired)

    def _value(self, at: int, repaired: dict[str, None]) -> Generator[None, None, tuple[str, int]]:
        """Read one value of the function form: quoted, JSON, or bare up to the next comma."""
        at = yield from self._past(at, _BLANKS)
        char = yield from self._at(at)
        if char in QUOTES:
            end = yield from self._string(at)
            return requoted(self.text(at + 1, end - 1), char)[0], end
        if char in {"{", "["}:
            value = yield from self._json(at, "{[")
            if value.repaired:
                repaired[value.repaired] = None
            return value.text, value.end
        end = yield from self._bare(at)
        return _coerced(self.text(at, end).strip()), end

    def _bare(self, at: int) -> _Position:
        while True:
            char = yield from self._at(at)
            if char in {",", ")"}:
                return at
            if not char or char in _NOT_BARE:
                raise NoCall
            if char == "'":  # inside of a word it is an apostrophe
                following = yield from self._at(at + 1)
                if not (self._chars[at - 1].isalnum() and following.isalnum()):
                    raise NoCall
            at += 1

    def _json(self, at: int, opening: str = "{") -> Generator[None, None, Lenient]:
        """Read an object, or what else ``opening`` allows, that begins at ``at`` or behind blanks."""
        value = Lenient()
        at = yield from self._past(at, _BLANKS)
        if (yield from self._at(at)) not in set(opening):
            raise NoCall
        while not value.whole:
            char = yield from self._at(at)
            if char in QUOTES:
                end = yield from self._string(at)
                value.string(self.text(at + 1, end - 1), char)
            elif char in _LITERAL:
                end = yield from self._past(at, _LITERAL)
                value.word(self.text(at, end))
            elif char in _BLANKS:
                end = yield from self._past(at, _BLANKS)
                value.blanks(self.text(at, end))
            else:
                value.mark(char)
                end = at + 1
            at = end
        value.end = at
        return value

    def _string(self, at: int) -> _Position:
        """Return where the quoted text that begins at ``at`` ends, its quotes included."""
        chars, quote = self._chars, self._chars[at]
        at += 1
        while True:
            while at < len(chars):
                char = chars[at]
                if char == quote:
                    return at + 1
                at += 2 if char == "\\" else 1
            if self._ended:
                raise NoCall
            yield

    def _expect(self, at: int, word: str, blanks: frozenset[str] = _BLANKS) -> _Position:
        """Return where ``word`` ends, which must come next, in any case, behind blanks or none."""
        at = yield from self._past(at, blanks)
        for letter in word:
            if (yield from self._at(at)).lower() != letter:
                raise NoCall
            at += 1
        return at

    def _past(self, at: int, chars: frozenset[str]) -> _Position:
        """Return where the run of ``chars`` ends that may begin at ``at``."""
        mine = self._chars
        while True:
            while at < len(mine) and mine[at] in chars:
                at += 1
            if at < len(mine) or self._ended:
                return at
            yield

    def _at(self, at: int) -> Generator[None, None, str]:
        """Return the character at ``at`` when it has come, nothing when the text ends before it."""
        while at >= len(self._chars):
            if self._ended:
                return ""
            yield
        return self._chars[at]


def _fenced(block: Lenient) -> tuple[str, str]:
    """Return the call that a block stands for. Raises ``NoCall`` when it stands for none."""
    name, parameters = _plain(block.member("tool")), block.member("parameters")
    if not isinstance(name, str) or not name:
        raise NoCall
    if parameters.startswith("{"):
        return name, parameters
    if parameters == "null":
        return name, "{}"
    inner = _plain(parameters) if parameters.startswith('"') else None
    if isinstance(inner, str):
        if inner.lstrip().startswith("{"):  # JSON written as a text; whoever reads it says if it is broken
            return name, inner
        parameters = inner if _plain(inner) is not None else parameters
    return name, f'{{"value": {parameters}}}'


def _plain(text: str) -> object:
    """Return the value of JSON text, ``None`` when it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _coerced(text: str) -> str:
    """Return a bare value as JSON: a whole number, a number, true or false, else text."""
    if _WHOLE.fullmatch(text):
        return str(int(text))
    if _REAL.fullmatch(text):
        return repr(float(text))
    return text.lower() if text.lower() in {"true", "false"} else json.dumps(text, ensure_ascii=False)
