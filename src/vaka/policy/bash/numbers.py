"""Numbers that are worked out: bash runs the commands in a subscript, so a text from elsewhere must not become one."""

import re
from collections.abc import Iterable, Sequence

import msgspec

from vaka.policy.bash.words import Hole, Simple, Word

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_DATE = re.compile(r"\+(?:%[sYmdHMSNjuwyCe-]|[-\d])*")
_SIZE = re.compile(r"(?:-L )?(?:-c ?|--format[= ]|--printf[= ])%[sYXZiah](?: (?!-)|$)")
_WC = re.compile(r"(?:(?:-[clmwL]+|--(?:bytes|chars|lines|words|max-line-length))\n)*")
_GREP = re.compile(r"(?=(?:.*\n)*(?:-\w*c|--count))(?:(?:-[ciwxvyEFGPash]+|--(?:count|ignore-case|invert-match))\n)*")
_NUMBER = re.compile(r"-?\d+")
_SIGNS = frozenset("+-*/%")
_ARGUMENT = re.compile(r"\$[0-9@*]")
_READ_VALUED = frozenset("dinNpt")
_PLAIN = re.compile(r"-?\d+|[\w./]*")
"""A text that is no option, pattern or command, whatever is done with it."""


class Numbers:
    """Which variables hold a text that was read from somewhere, and which are worked out as numbers."""

    def __init__(self) -> None:
        self.foreign: set[str] = set()
        self.copies: dict[str, set[str]] = {}
        self.worked: set[str] = set()
        self.assigned: set[str] = set()
        self.values: list[Word] = []
        """What they are set to."""
        self.odd: set[str] = set()
        """Variables that are set to a text which may mean something."""
        self.direct = False
        """True when a text from elsewhere is worked out without a variable between."""

    def given(self, name: str, words: Iterable[Word]) -> None:
        """Take note of what a variable is set to."""
        words = list(words)
        self.assigned.add(name)
        self.values += words
        for text in (
            piece for word in words for piece in (word.pieces or (word.value or "",)) if isinstance(piece, str)
        ):
            if not _PLAIN.fullmatch(text):
                self.odd.add(name)
            if "$" in text or "`" in text:
                self.foreign.add(name)
        for hole in (hole for word in words for hole in word.holes):
            if hole.kind == "parameter":
                self.copies.setdefault(name, set()).update(_NAME.findall(hole.name))
            if _comes_from_elsewhere(hole) or _is_argument(hole):
                self.foreign.add(name)

    def read(self, simple: Simple) -> None:
        """Take note of the variables that a command fills with what it reads."""
        if simple.name in {"read", "mapfile", "readarray"}:
            self.values += (one.target for one in simple.redirections if one.operator == "<<<")
        if simple.name == "read":
            valued, names = False, list[str]()
            for value in (word.sketch for word in simple.words[1:]):
                if not valued and not value.startswith("-"):
                    names.append(value)
                valued = not valued and value.startswith("-") and value[-1] in _READ_VALUED
            self.foreign.update(names or ["REPLY"])
        elif simple.name in {"mapfile", "readarray"}:
            self.foreign.update(word.sketch for word in simple.words[1:] if not word.sketch.startswith("-"))
            self.foreign.add("MAPFILE")

    def work(self, text: str, holes: Iterable[Hole] = ()) -> None:
        """Take note of something that is worked out: a text, and what bash puts into it."""
        self.worked.update(_NAME.findall(text))
        self.direct = self.direct or _ARGUMENT.search(text) is not None
        for hole in holes:
            if hole.kind == "parameter" and not hole.number:
                self.worked.update(_NAME.findall(hole.name))
            self.direct = self.direct or _comes_from_elsewhere(hole) or _is_argument(hole)

    @property
    def runs(self) -> bool:
        """Whether a text from elsewhere may be worked out, and so run."""
        return self.direct or not self._reached(self.worked).isdisjoint(self.foreign)

    def tame(self, name: str) -> bool:
        """Return whether a variable holds one plain word or number, wherever it is set."""
        reached = self._reached([name])
        return reached <= self.assigned and reached.isdisjoint(self.foreign | self.odd)

    def _reached(self, names: Iterable[str]) -> set[str]:
        """Return the variables that some were made of, and themselves."""
        reached, waiting = set[str](), list(names)
        while waiting:
            name = waiting.pop()
            if name not in reached:
                reached.add(name)
                waiting += self.copies.get(name, ())
        return reached


def settled(simple: Simple, numbers: Numbers) -> Simple:
    """Return a test in which it is known of each variable whether it holds a plain word."""
    if simple.name not in {"[", "test"} or not any(word.holes for word in simple.words):
        return simple
    words = tuple(_settled(word, numbers) for word in simple.words)
    return msgspec.structs.replace(simple, words=words, plain=words if simple.plain == simple.words else simple.plain)


def _settled(word: Word, numbers: Numbers) -> Word:
    pieces = tuple(
        msgspec.structs.replace(piece, counts=True)
        if isinstance(piece, Hole) and piece.kind == "parameter" and numbers.tame(piece.name)
        else piece
        for piece in word.pieces
    )
    return msgspec.structs.replace(word, pieces=pieces)


def _is_argument(hole: Hole) -> bool:
    """Return whether it is what a function is called with: ``$1``, ``$@``."""
    return hole.kind == "parameter" and not hole.number and _NAME.match(hole.name.lstrip("!#")) is None


def _comes_from_elsewhere(hole: Hole) -> bool:
    return hole.kind in {"glob", "process", "input"} or (
        hole.kind == "command" and hole.guess is None and not hole.counts
    )


def counts(made: Sequence[Simple]) -> bool:
    """Return whether some commands, of which the last prints, print a number and nothing else."""
    while made and made[-1].name == "tr" and any(word.value == "-d" for word in made[-1].words):
        made = made[:-1]
    if not made:
        return False
    words = made[-1].words[1:]
    values = [word.value or "?" for word in words]
    options = "".join(f"{value}\n" for value in values if value.startswith("-"))
    operands = [value for value in values if not value.startswith("-")]
    match made[-1].name:
        case "wc":
            return not operands and _WC.fullmatch(options) is not None
        case "grep" | "egrep" | "fgrep":  # of several files it also prints the names
            one = len(operands) <= 2 and not any(word.splits for word in words)
            return one and _GREP.fullmatch(options) is not None
        case "date":
            return len(operands) >= 1 and _DATE.fullmatch(operands[-1]) is not None
        case "stat":
            return _SIZE.match(" ".join(values)) is not None
        case "git":
            return values[:1] == ["rev-list"] and "--count" in values
        case "seq":  # options stand before numbers only
            return bool(values) and _NUMBER.fullmatch(values[0]) is not None
        case name:
            return name in {"nproc", "bc"} or (name == "expr" and not _SIGNS.isdisjoint(values))
