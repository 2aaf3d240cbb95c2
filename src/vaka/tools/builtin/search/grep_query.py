"""The arguments of Grep, parsed: the query, the filter for file names, the pattern for ripgrep and for Python's engine.

Patterns are written as for ripgrep, and both engines match the same. Features that only Python has (look-around, back
references) rule ripgrep out; syntax that differs is translated for each; what models often forget to escape (``{`` in
code) is escaped.
"""

import re
import unicodedata
from functools import lru_cache
from typing import Any, Literal, TypeAlias

import msgspec

from vaka.core.types.errors import InvalidInput
from vaka.tools.builtin.search.glob import Wildcard, expand_braces

MAX_PATTERN_LENGTH = 10_000
_METACHARACTERS = frozenset(r".^$*+?()[]{}|\-&~#")
_POSIX = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "ascii": r"\x00-\x7f",
    "blank": r"\t ",
    "cntrl": r"\x00-\x1f\x7f",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": r"!-/:-@\[-`{-~",
    "space": r"\t-\r ",
    "upper": "A-Z",
    "word": "0-9A-Za-z_",
    "xdigit": "0-9A-Fa-f",
}
_REPEAT = re.compile(r"\{\d+(?:,\d*)?\}")
_HEX = re.compile(r"x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|[xuU]\{([0-9A-Fa-f]{1,8})\}")
_PROPERTY = re.compile(r"[pP](?:\{([A-Za-z_]+)\}|([A-Z]))")
_GROUP = re.compile(r"\(\?(?:P?<([A-Za-z_]\w*)>|(P=\w+\))|(<[=!]|[=!>])|#[^)]*\)|([a-zA-Z]*(?:-[a-zA-Z]+)?)([:)]))")
_SIMPLE_ESCAPES = "dDwWsSbBtnrfva"
_WORD_MARK = "\ufdd0"
_NOT_WORD_MARK = "\ufdd1"
_WORD_IN_SET_MARK = "\ufdd2"
"""Placeholders for word characters, for the rest, and for the first inside a set: Unicode noncharacters."""
_SPACE = r"\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
_ENGINE_DIFFERENCES = {
    ("w", False): _WORD_MARK,
    ("W", False): _NOT_WORD_MARK,
    ("w", True): _WORD_IN_SET_MARK,
    ("s", False): f"[{_SPACE}]",
    ("S", False): f"[^{_SPACE}]",
    ("s", True): _SPACE,
}
"""Python's translation of escapes that the engines read differently, by (letter, inside a set)."""


class TranslatedPattern(msgspec.Struct, frozen=True, kw_only=True):
    """A pattern in the dialect of each engine."""

    marked: str
    """For Python, with placeholders for word characters, whose ranges take a while to compute."""
    rust: str | None
    """For ripgrep; ``None`` when only Python's engine can match it."""
    lines: bool
    """Whether a line end is written in it."""
    literal: str = ""
    """The pattern itself when it is plain text."""

    @property
    def python(self) -> str:
        r"""The pattern for Python, with Python's own ``\w``."""
        return self._replace_marks(r"\w", r"\W", r"\w")

    def exact_python(self) -> str:
        r"""Return the pattern for Python with ripgrep's ``\w``. Slow the first time."""
        if self._replace_marks("", "", "") == self.marked:
            return self.marked
        letters = _category_ranges("word")
        return self._replace_marks(f"[{letters}]", f"[^{letters}]", letters)

    def _replace_marks(self, word: str, other: str, in_set: str) -> str:
        return self.marked.replace(_WORD_MARK, word).replace(_NOT_WORD_MARK, other).replace(_WORD_IN_SET_MARK, in_set)


def translate_pattern(pattern: str) -> TranslatedPattern:
    """Translate a pattern for both engines. Raises ``InvalidInput`` for an invalid pattern."""
    if not pattern or len(pattern) > MAX_PATTERN_LENGTH:
        raise InvalidInput(f"a pattern has 1 to {MAX_PATTERN_LENGTH} characters, this one has {len(pattern)}")
    if any(mark in pattern for mark in (_WORD_MARK, _NOT_WORD_MARK, _WORD_IN_SET_MARK)):
        raise InvalidInput("the pattern contains a Unicode noncharacter (U+FDD0 to U+FDD2)")
    translator = _PatternTranslator(pattern)
    translator.translate()
    translated = TranslatedPattern(
        marked="".join(translator.python),
        rust="".join(translator.rust) if translator.is_linear else None,
        lines=translator.matches_newline,
        literal=pattern if not _METACHARACTERS & set(pattern) and "\n" not in pattern else "",
    )
    try:
        compiled = re.compile(translated.python)
    except (re.error, OverflowError, RecursionError) as error:
        raise InvalidInput(f"{pattern!r} is not a regular expression: {error}") from error
    # Some versions of ripgrep never end when a pattern can match nothing at the end of a line.
    may_be_empty = any(not match[0] for text in ("", "a", "-", " ") for match in compiled.finditer(text))
    return (
        msgspec.structs.replace(translated, rust=None) if translator.matches_line_end and may_be_empty else translated
    )


class _PatternTranslator:
    """Reads a pattern from left to right and writes it for both engines."""

    def __init__(self, pattern: str) -> None:
        self._text, self._at = pattern, 0
        self.python: list[str] = []
        self.rust: list[str] = []
        self.is_linear = True
        self.matches_newline = False
        self.matches_line_end = False
        """Whether the pattern matches at the end of a line."""
        self._repeated = False
        self._open_groups: list[list[str]] = [[]]
        """For each open group the flag groups that end with it."""

    def translate(self) -> None:
        while self._at < len(self._text):
            self._read_next()
        self._write(")" * len(self._open_groups[0]), "")

    def _read_next(self) -> None:
        letter = self._text[self._at]
        repeated, self._repeated = self._repeated, False
        if letter == "\\":
            self._read_escape()
        elif letter == "[":
            self._read_set()
        elif letter == "(":
            self._read_group()
        elif letter == "{":
            self._read_brace()
        elif letter in "*+?":
            self._read_quantifier(letter, again=repeated)
        else:
            self._at += 1
            self._read_plain(letter)

    def _read_plain(self, letter: str) -> None:
        flags = self._open_groups[-1]
        if letter == ")":
            self._write(")" * (len(flags) + 1), ")")
            if len(self._open_groups) > 1:
                self._open_groups.pop()
        elif letter == "|":
            self._write(")" * len(flags) + "|" + "".join(flags), "|")
        elif letter == "$":
            self.matches_line_end = True
            self._write(r"(?:\r?$)", "$")
        else:
            self._note_line_end(ord(letter))
            self._write(letter, letter)

    def _note_line_end(self, code: int) -> None:
        """Note a character that may end a line; only ripgrep treats a carriage return as part of the line end."""
        self.matches_newline |= code == ord("\n")
        self.is_linear &= code != ord("\r")

    def _write(self, python: str, rust: str) -> None:
        self.python.append(python)
        self.rust.append(rust)

    def _read_quantifier(self, letter: str, *, again: bool) -> None:
        self._at += 1
        self._write(letter, letter)
        self._repeated = not again
        if again and letter == "+":
            self.is_linear = False  # possessive in Python, but repeated twice in ripgrep

    def _read_brace(self) -> None:
        repeat = _REPEAT.match(self._text, self._at)
        if repeat:
            self._write(repeat[0], repeat[0])
            self._at, self._repeated = repeat.end(), True
        else:
            self._write(r"\{", r"\{")
            self._at += 1

    def _read_group(self) -> None:
        group = _GROUP.match(self._text, self._at)
        if group is None:
            self._at += 1
            self._open_groups.append([])
            self._write("(", "(")
            return
        self._at = group.end()
        name, back, look, flags, end = group.groups()
        if name:
            self._open_groups.append([])
            self._write(f"(?P<{name}>", f"(?P<{name}>")
        elif back or look:
            self.is_linear = False
            self._write(group[0], "")
            if look:
                self._open_groups.append([])
        elif end:
            self._write_flags(flags, end)

    def _write_flags(self, flags: str, end: str) -> None:
        """Write flags. They hold to the end of the enclosing group, for which Python needs a group of its own."""
        on, _, off = flags.partition("-")
        if set(on + off) - set("ims"):
            raise InvalidInput(f"(?{flags}) is not known; flags are i, m and s")
        if end == ":":
            self._open_groups.append([])
            self._write(f"(?{flags}:", f"(?{flags}:")
        else:
            self._open_groups[-1].append(f"(?{flags}:")
            self._write(f"(?{flags}:", f"(?{flags})")

    def _read_escape(self) -> None:
        self._at += 1
        if self._at == len(self._text):
            raise InvalidInput("the pattern ends with a backslash that escapes nothing")
        self._write(*self._translate_escape(inside=False))

    def _translate_escape(self, *, inside: bool) -> tuple[str, str]:
        """Read an escape from behind its backslash."""
        letter = self._text[self._at]
        if match := _HEX.match(self._text, self._at):
            self._at = match.end()
            code = int(next(digits for digits in match.groups() if digits), 16)
            self._note_line_end(code)
            return _translate_code_point(code)
        if match := _PROPERTY.match(self._text, self._at):
            self._at = match.end()
            return _translate_property(match, inside=inside)
        self._at += 1
        if letter in _SIMPLE_ESCAPES:
            self._note_line_end({"n": 10, "r": 13}.get(letter, 0))
            if inside and letter in "bB":
                raise InvalidInput(f"\\{letter} means nothing inside a set")
            return _ENGINE_DIFFERENCES.get((letter, inside), f"\\{letter}"), f"\\{letter}"
        if letter in "<>" and not inside:
            return r"\b", r"\b"
        if letter in "zZ" and not inside:
            self.matches_line_end = True
            return r"(?:\r?$)", "$"
        if letter == "A" and not inside:
            return "^", "^"  # the same within a single line
        if letter.isdigit() and not inside:
            self.is_linear = False
            return f"\\{letter}", ""
        if letter.isalnum():
            raise InvalidInput(f"\\{letter} is not known in a pattern")
        return re.escape(letter), f"\\{letter}" if letter in _METACHARACTERS else letter

    def _read_set(self) -> None:
        """Read ``[…]``; a bracket or a doubled character inside it is literal."""
        start, before = self._at, (self.matches_newline, self.is_linear)
        self._at += 1
        negated = self._text[self._at : self._at + 1] == "^"
        self._at += negated
        python, rust = ["[^" if negated else "["], ["[^" if negated else "["]
        first = True
        while first or self._text[self._at : self._at + 1] != "]":
            if self._at >= len(self._text):
                begun = self._text[start : start + 10]
                raise InvalidInput(f"the set that begins with {begun!r} does not end; escape the bracket")
            one, other = self._read_set_member()
            python.append(one)
            rust.append(other)
            first = False
        self._at += 1
        if negated:
            self.matches_newline, self.is_linear = before  # excluded characters are not matched
        self._write("".join([*python, "]"]), "".join([*rust, "]"]))

    def _read_set_member(self) -> tuple[str, str]:
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
            return self._translate_escape(inside=True)
        self._note_line_end(ord(letter))
        if letter in "[]&~":
            return f"\\{letter}", f"\\{letter}"
        if letter == "-" and text[at - 1] == "-":
            return r"\-", r"\-"
        return ("\\|", "|") if letter == "|" else (letter, letter)


def _translate_code_point(code: int) -> tuple[str, str]:
    if code > 0x10FFFF:
        raise InvalidInput(f"there is no character {code:#x}")
    return f"\\U{code:08x}", f"\\x{{{code:x}}}"


def _translate_property(found: re.Match[str], *, inside: bool) -> tuple[str, str]:
    r"""Translate ``\p{…}`` with a general category; scripts are known to ripgrep only and are rejected."""
    negated = found[0][0] == "P"
    ranges = _category_ranges(found[1] or found[2])
    if inside and negated:
        raise InvalidInput(f"\\{found[0]} cannot be used inside a set; put what it excludes after [^")
    python = ranges if inside else f"[{'^' if negated else ''}{ranges}]"
    return python, f"\\{found[0]}"


@lru_cache(maxsize=64)
def _category_ranges(kind: str) -> str:
    """Return the characters of a general category as ranges for a set."""
    wanted, also = _LONG_CATEGORY_NAMES.get(kind.casefold(), (kind,)), _EXTRA_CODE_POINTS.get(kind, frozenset())
    ranges: list[str] = []
    start = -1
    for code in range(0x110001):
        inside = code in also or (code < 0x110000 and unicodedata.category(chr(code)).startswith(wanted))
        if inside and start < 0:
            start = code
        elif not inside and start >= 0:
            ranges.append(f"\\U{start:08x}-\\U{code - 1:08x}")
            start = -1
    if not ranges:
        raise InvalidInput(f"\\p{{{kind}}} is not known; there are the general categories, such as L, Lu, N, P")
    return "".join(ranges)


_LONG_CATEGORY_NAMES: dict[str, tuple[str, ...]] = {
    "letter": ("L",),
    "lowercase_letter": ("Ll",),
    "uppercase_letter": ("Lu",),
    "number": ("N",),
    "decimal_number": ("Nd",),
    "punctuation": ("P",),
    "symbol": ("S",),
    "mark": ("M",),
    "separator": ("Z",),
    "other": ("C",),
    "word": ("L", "M", "Nd", "Nl", "Pc"),
}
_EXTRA_CODE_POINTS: dict[str, frozenset[int]] = {
    "word": frozenset(
        [
            0x200C,
            0x200D,
            *range(0x24B6, 0x24EA),
            *range(0x1F130, 0x1F14A),
            *range(0x1F150, 0x1F16A),
            *range(0x1F170, 0x1F18A),
        ]
    ),
}
"""Joiners, and enclosed letters, which are symbols but also alphabetic."""


OutputMode: TypeAlias = Literal["files_with_matches", "content", "count"]
LineRange: TypeAlias = tuple[int, int]
"""The first and the last line of a match."""

MAX_RESULTS = 100
"""Results in one answer."""
MAX_CONTEXT_LINES = 5
FILE_TYPES: dict[str, tuple[str, ...]] = {
    "c": ("c",),
    "cpp": ("cpp",),
    "cs": ("cs",),
    "go": ("go",),
    "h": ("h",),
    "hpp": ("hpp",),
    "java": ("java",),
    "js": ("js", "mjs", "cjs"),
    "jsx": ("jsx",),
    "kt": ("kt", "kts"),
    "php": ("php",),
    "py": ("py",),
    "rb": ("rb",),
    "rust": ("rs",),
    "sh": ("sh",),
    "swift": ("swift",),
    "ts": ("ts",),
    "tsx": ("tsx",),
}
"""File endings by type; any other type name is an ending itself."""
_NAME_GLOB = re.compile(r"[\w.*?{},-]+\Z", re.ASCII)

PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "pattern": {"type": "string"},
        "path": {"type": "string", "description": "File or folder; default: the working folder."},
        "output_mode": {
            "type": "string",
            "enum": ["content", "files_with_matches", "count"],
            "default": "files_with_matches",
        },
        "glob": {"type": "string", "description": "Such as *.js, src/**/*.tsx or !*.min.js."},
        "type": {"type": "string", "description": "A file type such as py, js or rust."},
        "-A": {"type": "integer", "minimum": 0, "description": "Lines after a match, up to 5."},
        "-B": {"type": "integer", "minimum": 0, "description": "Lines before a match, up to 5."},
        "-C": {"type": "integer", "minimum": 0, "description": "Lines before and after."},
        "context_lines": {"type": "integer", "minimum": 0},
        "-n": {"type": "boolean", "default": True, "description": "Line numbers."},
        "-i": {"type": "boolean", "default": False, "description": "Ignore case."},
        "head_limit": {"type": "integer", "minimum": 0, "description": f"Results, up to {MAX_RESULTS}."},
        "offset": {"type": "integer", "minimum": 0, "default": 0, "description": "Results to skip."},
        "multiline": {"type": "boolean", "default": False, "description": "Match across lines."},
    },
    "required": ["pattern"],
    "additionalProperties": False,
}


class GrepQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The parsed arguments of Grep."""

    pattern: TranslatedPattern
    ignore_case: bool = False
    multiline: bool = False
    mode: OutputMode = "files_with_matches"
    glob: str = ""
    endings: tuple[str, ...] = ()
    before: int = 0
    after: int = 0
    numbers: bool = True
    limit: int = MAX_RESULTS
    offset: int = 0

    @property
    def needed_results(self) -> int:
        """The number of results that must be found."""
        return self.offset + self.limit

    @property
    def filters_by_name(self) -> bool:
        """Whether ``name_patterns_of`` fully decides which files are searched."""
        return not (self.glob or self.endings) or (bool(name_patterns_of(self)) and not (self.glob and self.endings))


def parse_query(pattern: TranslatedPattern, given: dict[str, Any]) -> GrepQuery:
    """Parse the arguments. Raises ``InvalidInput`` for a pattern with line ends without ``multiline``."""
    multiline = given.get("multiline", False)
    if pattern.lines and not multiline:
        raise InvalidInput("the pattern has an end of line in it, which never matches in a single line; set multiline")
    around = given.get("-C", given.get("context_lines"))
    before, after = (around, around) if around is not None else (given.get("-B", 0), given.get("-A", 0))
    kind: str = given.get("type", "")
    return GrepQuery(
        pattern=pattern,
        ignore_case=given.get("-i", False),
        multiline=multiline,
        mode=given.get("output_mode", "files_with_matches"),
        glob=given.get("glob", ""),
        endings=FILE_TYPES.get(kind, (kind.removeprefix("*").removeprefix("."),)) if kind else (),
        before=min(before, MAX_CONTEXT_LINES),
        after=min(after, MAX_CONTEXT_LINES),
        numbers=given.get("-n", True),
        limit=min(given.get("head_limit") or MAX_RESULTS, MAX_RESULTS),
        offset=given.get("offset", 0),
    )


class FileFilter:
    """Selects files by ending and by name or path."""

    def __init__(self, query: GrepQuery) -> None:
        self._endings = tuple(f".{ending}" for ending in query.endings)
        self._negated = query.glob.startswith("!")
        glob = query.glob.removeprefix("!")
        self._named = bool(glob) and "/" not in glob
        self._glob = Wildcard(glob.removeprefix("/")) if glob.removeprefix("/") else None

    def accepts(self, path: str, relative: str) -> bool:
        """Return whether a file is searched; ``relative`` is its path from the start of the search."""
        if self._endings and not path.endswith(self._endings):
            return False
        if self._glob is None:
            return True
        candidates = (path.rpartition("/")[2],) if self._named else (relative, path)
        return any(map(self._glob.match, candidates)) != self._negated


def name_patterns_of(query: GrepQuery) -> list[str]:
    """Return name patterns one of which every searched file matches, so that ripgrep can filter; none when unsure."""
    if query.endings:
        return [f"*.{ending}" for ending in query.endings if _NAME_GLOB.match(ending)]
    if query.glob and _NAME_GLOB.match(query.glob):
        return [one for one in expand_braces(query.glob) if one and "{" not in one]
    return []
