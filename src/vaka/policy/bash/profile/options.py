"""Options and operands of a program, told from data, and what of them lies outside reading."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import msgspec

from vaka.policy.bash.text import names
from vaka.policy.bash.words import Word


class Refused(Exception):
    """This use of a program is not plain reading; says why."""


class Parsed(msgspec.Struct):
    """A command line taken apart."""

    options: list[tuple[str, Word | None]]
    operands: list[Word]
    loose: bool = False
    """True when words may become more or fewer operands than are written."""

    def has(self, *names: str) -> bool:
        """Return whether one of the options is there."""
        return any(name in names for name, _ in self.options)

    def values(self, *names: str) -> list[Word]:
        """Return the values given to some options."""
        return [value for name, value in self.options if name in names and value is not None]


Check: TypeAlias = Callable[["Parsed"], None]
"""Raises ``Refused``."""


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """How to read a program's words."""

    flags: str = ""
    valued: str = ""
    """Short options whose value is the rest of the word or the next one."""
    attached: str = ""
    """Short options whose value, if any, is the rest of the word."""
    long: frozenset[str] = frozenset()
    long_valued: frozenset[str] = frozenset()
    refused: frozenset[str] = frozenset()
    """Options that do more than read, with their dashes."""
    lenient: bool = False
    """Whether an option that is not listed is harmless."""
    numbers: bool = False
    """Whether ``-5`` is an option."""
    ordered: bool = False
    """Whether the first operand ends the options."""
    most: int | None = None
    """How many operands are only read."""
    texts: int = 0
    """How many operands come first that name no file."""
    scripts: frozenset[str] = frozenset()
    """Options that stand for the first operand that names no file."""
    files: frozenset[str] = frozenset()
    """Options whose value is a file that is read."""
    paths: bool = True
    """Whether operands name files at all."""
    arity: Mapping[str, int] = {}
    """Long options that take several words; the last of them may be one of ``files``."""
    check: Check | None = None

    @property
    def careful(self) -> bool:
        """Whether a word that turns out to be an option could do harm."""
        return bool(self.refused) or self.most is not None or not self.lenient

    def read(self, words: Sequence[Word]) -> list[Word]:
        """Return the words that name files which are read. Raises ``Refused``."""
        parsed = self.parse(words)
        if self.most is not None and (parsed.loose or len(parsed.operands) > self.most):
            raise Refused("a further operand would be written to")
        if self.check is not None:
            self.check(parsed)
        named = parsed.values(*self.files)
        if self.paths:
            named += parsed.operands[0 if parsed.has(*self.scripts) else self.texts :]
        return named

    def parse(self, words: Sequence[Word]) -> Parsed:
        """Take a command line apart. Raises ``Refused`` at an option outside the grant."""
        return _Parser(self, words).parsed()


class _Parser:
    def __init__(self, program: Program, words: Sequence[Word]) -> None:
        self.program = program
        self.words = words
        self.at = 0
        self.found = Parsed([], [])
        self.unsure = False
        """True behind an option that is not listed: the next word may be its value, even when it is ``--``."""

    def parsed(self) -> Parsed:
        ended = False
        while self.at < len(self.words):
            word = self.words[self.at]
            self.at += 1
            if ended or not self._may_be_option(word):
                self._operand(word)
                ended = ended or self.program.ordered
            elif word.value == "--":
                ended = not (self.unsure and self.program.refused)
                self.unsure = False
            else:
                self.unsure = False
                self._option(word)
        return self.found

    def _operand(self, word: Word) -> None:
        self.unsure = False
        self.found.operands.append(word)
        self.found.loose = self.found.loose or word.splits

    def _may_be_option(self, word: Word) -> bool:
        if word.value is not None:
            return word.value.startswith("-") and word.value != "-"
        prefix = word.prefix
        return prefix.startswith("-") or (prefix == "" and _may_begin_with_dash(word))

    def _option(self, word: Word) -> None:
        text = word.prefix
        if word.value is None and not text:
            if self.program.careful:
                raise Refused(f"{word.source} may turn out to be an option")
            self._operand(word)
        elif text.startswith("--"):
            self._long(word, text)
        else:
            self._short(word, text)

    def _long(self, word: Word, text: str) -> None:
        name, equals, value = text.partition("=")
        if word.value is None and not equals:
            if self.program.careful:
                raise Refused(f"{word.source} may turn out to be another option")
            return
        known = self._resolved(name)
        if known is None:
            self.unsure = not equals
            self._bounded(word)
            self.found.options.append((name, Word(value, value) if equals and word.value is not None else None))
        elif equals:
            self._bounded(word)
            self.found.options.append((known, Word(value if word.value is not None else None, value, word.pieces)))
        elif known in self.program.arity:
            taken = [self._next() for _ in range(self.program.arity[known])]
            self.found.options.append((known, taken[-1]))
        elif known[2:] in self.program.long_valued:
            self.found.options.append((known, self._next()))
        else:
            self.found.options.append((known, None))

    def _resolved(self, name: str) -> str | None:
        """Return the option that a name, perhaps shortened, stands for."""
        program = self.program
        if name in program.refused:
            raise Refused(f"{name} does more than read")
        if name[2:] in program.long or name[2:] in program.long_valued or name in program.arity:
            return name
        for other in program.refused:
            if other.startswith(name):
                raise Refused(f"{name} may stand for {other}, which does more than read")
        fitting = [other for other in (*program.long, *program.long_valued) if other.startswith(name[2:])]
        if not fitting and not program.lenient:
            raise Refused(f"{name} is not known to only read")
        return "--" + fitting[0] if fitting else None

    def _short(self, word: Word, text: str) -> None:
        program = self.program
        if program.numbers and text[1:2].isdigit():
            return
        for index, letter in enumerate(text[1:], 1):
            if "-" + letter in program.refused:
                raise Refused(f"-{letter} does more than read")
            rest = text[index + 1 :]
            if letter in program.valued or letter in program.attached:
                self._value("-" + letter, word, rest)
                return
            if letter not in program.flags and not program.lenient:
                raise Refused(f"-{letter} is not known to only read")
            self.unsure = letter not in program.flags
            self.found.options.append(("-" + letter, None))
        if word.value is None and program.careful:
            raise Refused(f"{word.source} may turn out to be another option")

    def _value(self, name: str, word: Word, rest: str) -> None:
        if rest or word.value is None or name[1] in self.program.attached:
            self._bounded(word)
            value = (
                Word(rest if word.value is not None else None, rest, word.pieces)
                if rest or word.value is None
                else None
            )
        else:
            value = self._next()
        self.found.options.append((name, value))

    def _next(self) -> Word | None:
        if self.at >= len(self.words):
            return None
        word = self.words[self.at]
        self.at += 1
        if (
            self.program.lenient
            and self.program.refused
            and word.prefix.startswith("-")
            and word.value not in {"-", "--"}
        ):
            self._option(word)  # some of these programs take it for a value, others for an option
            return None
        self._bounded(word)
        return word

    def _bounded(self, word: Word) -> None:
        """A value that may become several words may bring options with it."""
        if word.splits and self.program.careful:
            raise Refused(f"{word.source} may become several words")
        self.found.loose = self.found.loose or word.splits


def _may_begin_with_dash(word: Word) -> bool:
    """Whether a word that begins with something unknown may become an option; ``-5`` is none that does anything."""
    first = word.holes[0]
    return first.kind not in {"tilde", "process"} and not first.number


def any_use(*, paths: bool = True, texts: int = 0, valued: str = "", files: str = "", scripts: str = "") -> Program:
    """Return a program none of whose options does anything but read."""
    long = frozenset(name[2:] for name in names(files + " " + scripts) if name.startswith("--"))
    return Program(
        long_valued=long,
        lenient=True,
        paths=paths,
        texts=texts,
        valued=valued,
        files=names(files),
        scripts=names(scripts),
        numbers=True,
    )
