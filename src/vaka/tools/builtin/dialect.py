"""One way to read regular expressions, whichever engine then works with them.

Patterns are written as for ripgrep. What only Python's engine knows (look-around, references back) is given to it;
what the two write differently is written for each; what models often forget to escape (``{`` in code) is escaped.
"""

import re
import unicodedata
from functools import lru_cache

import msgspec

from vaka.core.types.errors import InvalidInput

LONGEST = 10_000
_META = frozenset(r".^$*+?()[]{}|\-&~#")
_POSIX = {
    "alnum": "0-9A-Za-z", "alpha": "A-Za-z", "ascii": r"\x00-\x7f", "blank": r"\t ", "cntrl": r"\x00-\x1f\x7f",
    "digit": "0-9", "graph": "!-~", "lower": "a-z", "print": " -~", "punct": r"!-/:-@\[-`{-~", "space": r"\t-\r ",
    "upper": "A-Z", "word": "0-9A-Za-z_", "xdigit": "0-9A-Fa-f",
}  # fmt: skip
_REPEAT = re.compile(r"\{\d+(?:,\d*)?\}")
_HEX = re.compile(r"x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|[xuU]\{([0-9A-Fa-f]{1,8})\}")
_PROPERTY = re.compile(r"[pP](?:\{([A-Za-z_]+)\}|([A-Z]))")
_GROUP = re.compile(r"\(\?(?:P?<([A-Za-z_]\w*)>|(P=\w+\))|(<[=!]|[=!>])|#[^)]*\)|([a-zA-Z]*(?:-[a-zA-Z]+)?)([:)]))")
_SIMPLE = "dDwWsSbBtnrfva"
_WORD, _NO_WORD, _IN_WORD = "\ufdd0", "\ufdd1", "\ufdd2"
"""Stand for what words are made of, for the rest, and for the first inside a set. They are characters nobody has."""
_SPACE = r"\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
_KINDS = {
    ("w", False): _WORD, ("W", False): _NO_WORD, ("w", True): _IN_WORD, ("s", False): f"[{_SPACE}]",
    ("S", False): f"[^{_SPACE}]", ("s", True): _SPACE,
}  # fmt: skip
"""What the engines understand differently, outside of a set and inside."""


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """A pattern in the words of each engine."""

    marked: str
    """For Python, but for the letters that words are made of: what those are takes a while to find out."""
    rust: str | None
    """``None`` when only Python's engine can do it."""
    lines: bool
    """Whether it can match an end of line that is written in it."""
    literal: str = ""
    """The text it stands for, when it is nothing else."""

    @property
    def python(self) -> str:
        """The pattern for Python, with its own idea of a letter."""
        return self.marked.replace(_WORD, r"\w").replace(_NO_WORD, r"\W").replace(_IN_WORD, r"\w")

    def exact(self) -> str:
        """Return the pattern for Python, with the other engine's idea of a letter. Slow the first time."""
        text = self.marked
        if _WORD not in text and _NO_WORD not in text and _IN_WORD not in text:
            return text
        letters = _ranges("word")
        return text.replace(_WORD, f"[{letters}]").replace(_NO_WORD, f"[^{letters}]").replace(_IN_WORD, letters)


def read(pattern: str) -> Dialect:
    """Return a pattern as the engines want it. Raises ``InvalidInput`` for one that is none."""
    if not pattern or len(pattern) > LONGEST:
        raise InvalidInput(f"a pattern has 1 to {LONGEST} characters, this one has {len(pattern)}")
    if any(mark in pattern for mark in (_WORD, _NO_WORD, _IN_WORD)):
        raise InvalidInput("the pattern has a character in it that stands for nothing")
    reader = _Reader(pattern)
    reader.run()
    found = Dialect(
        marked="".join(reader.python),
        rust="".join(reader.rust) if reader.linear else None,
        lines=reader.lines,
        literal=pattern if not _META & set(pattern) and "\n" not in pattern else "",
    )
    try:
        compiled = re.compile(found.python)
    except (re.error, OverflowError, RecursionError) as error:
        raise InvalidInput(f"{pattern!r} is no regular expression: {error}") from error
    # Some versions of ripgrep do not come to an end with what may be nothing at the end of a line.
    return msgspec.structs.replace(found, rust=None) if reader.ends and _may_be_nothing(compiled) else found


def _may_be_nothing(pattern: "re.Pattern[str]") -> bool:
    return any(not match[0] for text in ("", "a", "-", " ") for match in pattern.finditer(text))


class _Reader:
    """Reads a pattern from left to right and writes it down twice."""

    def __init__(self, pattern: str) -> None:
        self._text, self._at = pattern, 0
        self.python: list[str] = []
        self.rust: list[str] = []
        self.linear = True
        self.lines = False
        self.ends = False
        """Whether it asks for the end of a line."""
        self._repeated = False
        self._open: list[list[str]] = [[]]
        """For each group that is open, the flags that hold to its end."""

    def run(self) -> None:
        """Read it all."""
        while self._at < len(self._text):
            self._next()
        self._put(")" * len(self._open[0]), "")

    def _next(self) -> None:
        letter = self._text[self._at]
        repeated, self._repeated = self._repeated, False
        if letter == "\\":
            self._escape()
        elif letter == "[":
            self._set()
        elif letter == "(":
            self._group()
        elif letter == "{":
            self._brace()
        elif letter in "*+?":
            self._star(letter, again=repeated)
        else:
            self._at += 1
            self._plain(letter)

    def _plain(self, letter: str) -> None:
        flags = self._open[-1]
        if letter == ")":
            self._put(")" * (len(flags) + 1), ")")
            if len(self._open) > 1:
                self._open.pop()
        elif letter == "|":
            self._put(")" * len(flags) + "|" + "".join(flags), "|")
        elif letter == "$":
            self.ends = True
            self._put(r"(?:\r?$)", "$")
        else:
            self._end(ord(letter))
            self._put(letter, letter)

    def _end(self, code: int) -> None:
        """Note a letter that may end a line: a return is part of that for ripgrep, and for Python a letter."""
        self.lines |= code == ord("\n")
        self.linear &= code != ord("\r")

    def _put(self, python: str, rust: str) -> None:
        self.python.append(python)
        self.rust.append(rust)

    def _star(self, letter: str, *, again: bool) -> None:
        self._at += 1
        self._put(letter, letter)
        self._repeated = not again
        if again and letter == "+":
            self.linear = False  # possessive for Python, repeated twice for the other

    def _brace(self) -> None:
        found = _REPEAT.match(self._text, self._at)
        if found:
            self._put(found[0], found[0])
            self._at, self._repeated = found.end(), True
        else:
            self._put(r"\{", r"\{")
            self._at += 1

    def _group(self) -> None:
        found = _GROUP.match(self._text, self._at)
        if found is None:
            self._at += 1
            self._open.append([])
            self._put("(", "(")
            return
        self._at = found.end()
        name, back, look, flags, end = found.groups()
        if name:
            self._open.append([])
            self._put(f"(?P<{name}>", f"(?P<{name}>")
        elif back or look:
            self.linear = False
            self._put(found[0], "")
            if look:
                self._open.append([])
        elif end:
            self._flags(flags, end)

    def _flags(self, flags: str, end: str) -> None:
        """Flags hold to the end of the group they are in: Python wants a group of their own for that."""
        on, _, off = flags.partition("-")
        if set(on + off) - set("ims"):
            raise InvalidInput(f"(?{flags}) is not known; flags are i, m and s")
        if end == ":":
            self._open.append([])
            self._put(found := f"(?{flags}:", found)
        else:
            self._open[-1].append(f"(?{flags}:")
            self._put(f"(?{flags}:", f"(?{flags})")

    def _escape(self) -> None:
        self._at += 1
        if self._at == len(self._text):
            raise InvalidInput("the pattern ends with a backslash that escapes nothing")
        python, rust = self._escaped(inside=False)
        self._put(python, rust)

    def _escaped(self, *, inside: bool) -> tuple[str, str]:
        """Read what follows a backslash."""
        letter = self._text[self._at]
        if found := _HEX.match(self._text, self._at):
            self._at = found.end()
            code = int(next(digits for digits in found.groups() if digits), 16)
            self._end(code)
            return _letter(code)
        if found := _PROPERTY.match(self._text, self._at):
            self._at = found.end()
            return _property(found, inside=inside)
        self._at += 1
        if letter in _SIMPLE:
            self._end({"n": 10, "r": 13}.get(letter, 0))
            if inside and letter in "bB":
                raise InvalidInput(f"\\{letter} means nothing inside a set")
            return _KINDS.get((letter, inside), f"\\{letter}"), f"\\{letter}"
        if letter in "<>" and not inside:
            return r"\b", r"\b"
        if letter in "zZ" and not inside:
            self.ends = True
            return r"(?:\r?$)", "$"
        if letter == "A" and not inside:
            return "^", "^"  # in a single line these are the same, and there they are used
        if letter.isdigit() and not inside:
            self.linear = False
            return f"\\{letter}", ""
        if letter.isalnum():
            raise InvalidInput(f"\\{letter} is not known in a pattern")
        return re.escape(letter), f"\\{letter}" if letter in _META else letter

    def _set(self) -> None:
        """Read ``[…]``; a bracket or a doubled sign inside it stands for itself."""
        start, before = self._at, (self.lines, self.linear)
        self._at += 1
        negated = self._text[self._at : self._at + 1] == "^"
        self._at += negated
        python, rust = ["[^" if negated else "["], ["[^" if negated else "["]
        first = True
        while first or self._text[self._at : self._at + 1] != "]":
            if self._at >= len(self._text):
                begun = self._text[start : start + 10]
                raise InvalidInput(f"the set that begins with {begun!r} does not end; escape the bracket")
            one, other = self._member()
            python.append(one)
            rust.append(other)
            first = False
        self._at += 1
        if negated:
            self.lines, self.linear = before  # what it excludes is not looked for
        self._put("".join([*python, "]"]), "".join([*rust, "]"]))

    def _member(self) -> tuple[str, str]:
        text, at = self._text, self._at
        if text.startswith("[:", at) and (end := text.find(":]", at)) > 0 and text[at + 2 : end].strip("^") in _POSIX:
            name = text[at + 2 : end]
            self._at = end + 2
            if name.startswith("^"):
                raise InvalidInput(f"[:{name}:] is not known; use [^[:{name[1:]}:]]")
            return _POSIX[name], _POSIX[name]
        self._at += 1
        letter = text[at]
        if letter == "\\":
            if self._at == len(text):
                raise InvalidInput("the pattern ends inside a set")
            return self._escaped(inside=True)
        self._end(ord(letter))
        if letter in "[]&~":
            return f"\\{letter}", f"\\{letter}"
        if letter == "-" and text[at - 1] == "-":
            return r"\-", r"\-"
        return ("\\|", "|") if letter == "|" else (letter, letter)


def _letter(code: int) -> tuple[str, str]:
    if code > 0x10FFFF:
        raise InvalidInput(f"there is no character {code:#x}")
    return f"\\U{code:08x}", f"\\x{{{code:x}}}"


def _property(found: re.Match[str], *, inside: bool) -> tuple[str, str]:
    """A kind of letter by its short name; scripts are known to ripgrep alone."""
    negated = found[0][0] == "P"
    ranges = _ranges(found[1] or found[2])
    if inside and negated:
        raise InvalidInput(f"\\{found[0]} cannot be used inside a set; put what it excludes after [^")
    python = ranges if inside else f"[{'^' if negated else ''}{ranges}]"
    return python, f"\\{found[0]}"


@lru_cache(maxsize=64)
def _ranges(kind: str) -> str:
    """Return the letters of a general category as what stands in a set."""
    wanted, also = _LONG.get(kind.casefold(), (kind,)), _ALSO.get(kind, frozenset())
    found: list[str] = []
    start = -1
    for code in range(0x110001):
        inside = code in also or (code < 0x110000 and unicodedata.category(chr(code)).startswith(wanted))
        if inside and start < 0:
            start = code
        elif not inside and start >= 0:
            found.append(f"\\U{start:08x}-\\U{code - 1:08x}")
            start = -1
    if not found:
        raise InvalidInput(f"\\p{{{kind}}} is not known; there are the general categories, such as L, Lu, N, P")
    return "".join(found)


_LONG: dict[str, tuple[str, ...]] = {
    "letter": ("L",), "lowercase_letter": ("Ll",), "uppercase_letter": ("Lu",), "number": ("N",),
    "decimal_number": ("Nd",), "punctuation": ("P",), "symbol": ("S",), "mark": ("M",), "separator": ("Z",),
    "other": ("C",), "word": ("L", "M", "Nd", "Nl", "Pc"),
}  # fmt: skip
_ALSO: dict[str, frozenset[int]] = {
    "word": frozenset(
        [0x200C, 0x200D, *range(0x24B6, 0x24EA), *range(0x1F130, 0x1F14A), *range(0x1F150, 0x1F16A),
         *range(0x1F170, 0x1F18A)]
    ),
}  # fmt: skip
"""Joiners and letters in circles and squares, which are symbols and letters at the same time."""
