"""Options and operands of a program, told from data, and what of them lies outside reading."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import msgspec

from vaka.policy.bash.parse.preflight import name_set
from vaka.policy.bash.parse.syntax import Word


class NotReadOnly(Exception):
    """This use of a program is not plain reading; says why."""


class ParsedOptions(msgspec.Struct):
    """A command line taken apart."""

    options: list[tuple[str, Word | None]]
    operands: list[Word]
    may_split: bool = False
    """True when words may become more or fewer operands than are written."""

    def has(self, *names: str) -> bool:
        """Return whether one of the options is there."""
        return any(name in names for name, _ in self.options)

    def values(self, *names: str) -> list[Word]:
        """Return the values given to some options."""
        return [value for name, value in self.options if name in names and value is not None]


OptionCheck: TypeAlias = Callable[["ParsedOptions"], None]
"""Raises ``Refused``."""


class ProgramProfile(msgspec.Struct, frozen=True, kw_only=True):
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
    stop_at_operand: bool = False
    """Whether the first operand ends the options."""
    max_operands: int | None = None
    """How many operands are only read."""
    leading_texts: int = 0
    """How many operands come first that name no file."""
    scripts: frozenset[str] = frozenset()
    """Options that stand for the first operand that names no file."""
    files: frozenset[str] = frozenset()
    """Options whose value is a file that is read."""
    paths: bool = True
    """Whether operands name files at all."""
    arity: Mapping[str, int] = {}
    """Long options that take several words; the last of them may be one of ``files``."""
    check: OptionCheck | None = None

    @property
    def strict(self) -> bool:
        """Whether a word that turns out to be an option could do harm."""
        return bool(self.refused) or self.max_operands is not None or not self.lenient

    def inspect(self, words: Sequence[Word]) -> list[Word]:
        """Return the words that name files which are read. Raises ``Refused``."""
        parsed = self.parse(words)
        if self.max_operands is not None and (parsed.may_split or len(parsed.operands) > self.max_operands):
            raise NotReadOnly("a further operand would be written to")
        if self.check is not None:
            self.check(parsed)
        named = parsed.values(*self.files)
        if self.paths:
            named += parsed.operands[0 if parsed.has(*self.scripts) else self.leading_texts :]
        return named

    def parse(self, words: Sequence[Word]) -> ParsedOptions:
        """Take a command line apart. Raises ``Refused`` at an option outside the grant."""
        return _OptionParser(self, words).parse()


class _OptionParser:
    def __init__(self, program: ProgramProfile, words: Sequence[Word]) -> None:
        self.program = program
        self.words = words
        self.position = 0
        self.parsed_options = ParsedOptions([], [])
        self.value_may_follow = False
        """True behind an option that is not listed: the next word may be its value, even when it is ``--``."""

    def parse(self) -> ParsedOptions:
        ended = False
        while self.position < len(self.words):
            word = self.words[self.position]
            self.position += 1
            if ended or not self._may_be_option(word):
                self._add_operand(word)
                ended = ended or self.program.stop_at_operand
            elif word.value == "--":
                ended = not (self.value_may_follow and self.program.refused)
                self.value_may_follow = False
            else:
                self.value_may_follow = False
                self._parse_option(word)
        return self.parsed_options

    def _add_operand(self, word: Word) -> None:
        self.value_may_follow = False
        self.parsed_options.operands.append(word)
        self.parsed_options.may_split = self.parsed_options.may_split or word.may_split

    def _may_be_option(self, word: Word) -> bool:
        if word.value is not None:
            return word.value.startswith("-") and word.value != "-"
        prefix = word.prefix
        return prefix.startswith("-") or (prefix == "" and _may_begin_with_dash(word))

    def _parse_option(self, word: Word) -> None:
        text = word.prefix
        if word.value is None and not text:
            if self.program.strict:
                raise NotReadOnly(f"{word.source} may turn out to be an option")
            self._add_operand(word)
        elif text.startswith("--"):
            self._parse_long(word, text)
        else:
            self._parse_short(word, text)

    def _parse_long(self, word: Word, text: str) -> None:
        name, equals, value = text.partition("=")
        if word.value is None and not equals:
            if self.program.strict:
                raise NotReadOnly(f"{word.source} may turn out to be another option")
            return
        known = self._resolve_name(name)
        if known is None:
            self.value_may_follow = not equals
            self._require_single_word(word)
            self.parsed_options.options.append(
                (name, Word(value, value) if equals and word.value is not None else None)
            )
        elif equals:
            self._require_single_word(word)
            self.parsed_options.options.append(
                (known, Word(value if word.value is not None else None, value, word.pieces))
            )
        elif known in self.program.arity:
            taken = [self._take_next() for _ in range(self.program.arity[known])]
            self.parsed_options.options.append((known, taken[-1]))
        elif known[2:] in self.program.long_valued:
            self.parsed_options.options.append((known, self._take_next()))
        else:
            self.parsed_options.options.append((known, None))

    def _resolve_name(self, name: str) -> str | None:
        """Return the option that a name, perhaps shortened, stands for."""
        program = self.program
        if name in program.refused:
            raise NotReadOnly(f"{name} does more than read")
        if name[2:] in program.long or name[2:] in program.long_valued or name in program.arity:
            return name
        for other in program.refused:
            if other.startswith(name):
                raise NotReadOnly(f"{name} may stand for {other}, which does more than read")
        fitting = [other for other in (*program.long, *program.long_valued) if other.startswith(name[2:])]
        if not fitting and not program.lenient:
            raise NotReadOnly(f"{name} is not known to only read")
        return "--" + fitting[0] if fitting else None

    def _parse_short(self, word: Word, text: str) -> None:
        program = self.program
        if program.numbers and text[1:2].isdigit():
            return
        for index, letter in enumerate(text[1:], 1):
            if "-" + letter in program.refused:
                raise NotReadOnly(f"-{letter} does more than read")
            rest = text[index + 1 :]
            if letter in program.valued or letter in program.attached:
                self._parse_value("-" + letter, word, rest)
                return
            if letter not in program.flags and not program.lenient:
                raise NotReadOnly(f"-{letter} is not known to only read")
            self.value_may_follow = letter not in program.flags
            self.parsed_options.options.append(("-" + letter, None))
        if word.value is None and program.strict:
            raise NotReadOnly(f"{word.source} may turn out to be another option")

    def _parse_value(self, name: str, word: Word, rest: str) -> None:
        if rest or word.value is None or name[1] in self.program.attached:
            self._require_single_word(word)
            value = (
                Word(rest if word.value is not None else None, rest, word.pieces)
                if rest or word.value is None
                else None
            )
        else:
            value = self._take_next()
        self.parsed_options.options.append((name, value))

    def _take_next(self) -> Word | None:
        if self.position >= len(self.words):
            return None
        word = self.words[self.position]
        self.position += 1
        if (
            self.program.lenient
            and self.program.refused
            and word.prefix.startswith("-")
            and word.value not in {"-", "--"}
        ):
            self._parse_option(word)  # some of these programs take it for a value, others for an option
            return None
        self._require_single_word(word)
        return word

    def _require_single_word(self, word: Word) -> None:
        """A value that may become several words may bring options with it."""
        if word.may_split and self.program.strict:
            raise NotReadOnly(f"{word.source} may become several words")
        self.parsed_options.may_split = self.parsed_options.may_split or word.may_split


def _may_begin_with_dash(word: Word) -> bool:
    """Whether a word that begins with something unknown may become an option; ``-5`` is none that does anything."""
    first = word.expansions[0]
    return first.kind not in {"tilde", "process"} and not first.numeric


def harmless_program(
    *, paths: bool = True, leading_texts: int = 0, valued: str = "", files: str = "", scripts: str = ""
) -> ProgramProfile:
    """Return a program none of whose options does anything but read."""
    long = frozenset(name[2:] for name in name_set(files + " " + scripts) if name.startswith("--"))
    return ProgramProfile(
        long_valued=long,
        lenient=True,
        paths=paths,
        leading_texts=leading_texts,
        valued=valued,
        files=name_set(files),
        scripts=name_set(scripts),
        numbers=True,
    )
