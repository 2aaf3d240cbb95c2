"""Parse options and operands of a program by its profile, and refuse uses that do more than read."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from vaka.policy.bash.parse.syntax import Word
from vaka.policy.bash.programs import name_set, read_table


class NotReadOnly(Exception):
    """This use of a program does more than read; the message is the reason."""


class ParsedOptions(msgspec.Struct):
    """The options and operands of a command line."""

    options: list[tuple[str, Word | None]]
    operands: list[Word]
    may_split: bool = False
    """Whether expansions may change the number of operands."""

    def has(self, *names: str) -> bool:
        return any(name in names for name, _ in self.options)

    def values(self, *names: str) -> list[Word]:
        return [value for name, value in self.options if name in names and value is not None]


OptionCheck: TypeAlias = Callable[["ParsedOptions"], None]
"""Raises ``NotReadOnly``."""


class ProgramProfile(msgspec.Struct, frozen=True, kw_only=True):
    """The options and operands with which a program only reads."""

    flags: str = ""
    valued: str = ""
    """Short options whose value is the rest of the word, or the next word."""
    attached: str = ""
    """Short options whose optional value is the rest of the word."""
    long: frozenset[str] = frozenset()
    long_valued: frozenset[str] = frozenset()
    refused: frozenset[str] = frozenset()
    """Options that do more than read, with dashes."""
    lenient: bool = False
    """Whether unlisted options are harmless."""
    numbers: bool = False
    """Whether ``-5`` is an option."""
    stop_at_operand: bool = False
    """Whether the first operand ends the options."""
    max_operands: int | None = None
    """The number of operands that are only read; further ones are written."""
    leading_texts: int = 0
    """The number of leading operands that are not files."""
    scripts: frozenset[str] = frozenset()
    """Options that replace the leading operand."""
    files: frozenset[str] = frozenset()
    """Options whose value is a file to read."""
    paths: bool = True
    """Whether operands name files."""
    arity: Mapping[str, int] = {}
    """Long options that take several words; the last of them is the value."""
    check: OptionCheck | None = None

    @property
    def strict(self) -> bool:
        """Whether an unknown word that becomes an option could do harm."""
        return bool(self.refused) or self.max_operands is not None or not self.lenient

    def inspect(self, words: Sequence[Word]) -> list[Word]:
        """Return the words that name files to read. Raises ``NotReadOnly``."""
        parsed = _OptionParser(self, words).parse()
        if self.max_operands is not None and (parsed.may_split or len(parsed.operands) > self.max_operands):
            raise NotReadOnly("a further operand would be written to")
        if self.check is not None:
            self.check(parsed)
        files = parsed.values(*self.files)
        if self.paths:
            files += parsed.operands[0 if parsed.has(*self.scripts) else self.leading_texts :]
        return files


class _OptionParser:
    def __init__(self, program: ProgramProfile, words: Sequence[Word]) -> None:
        self.program = program
        self.words = words
        self.position = 0
        self.parsed = ParsedOptions([], [])
        self.value_may_follow = False
        """True after an unlisted option: the next word may be its value, even ``--``."""

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
        return self.parsed

    def _add_option(self, name: str, value: Word | None) -> None:
        self.parsed.options.append((name, value))

    def _add_operand(self, word: Word) -> None:
        self.value_may_follow = False
        self.parsed.operands.append(word)
        self.parsed.may_split = self.parsed.may_split or word.may_split

    def _may_be_option(self, word: Word) -> bool:
        if word.value is not None:
            return word.value.startswith("-") and word.value != "-"
        return word.prefix.startswith("-") or (word.prefix == "" and _may_begin_with_dash(word))

    def _parse_option(self, word: Word) -> None:
        text = word.prefix
        if word.value is None and not text:
            if self.program.strict:
                raise NotReadOnly(f"{word.source} may become an option")
            self._add_operand(word)
        elif text.startswith("--"):
            self._parse_long(word, text)
        else:
            self._parse_short(word, text)

    def _parse_long(self, word: Word, text: str) -> None:
        name, equals, value = text.partition("=")
        if word.value is None and not equals:
            if self.program.strict:
                raise NotReadOnly(f"{word.source} may become another option")
            return
        known = self._resolve_name(name)
        if known is None:
            self.value_may_follow = not equals
            self._require_single_word(word)
            self._add_option(name, Word(value, value) if equals and word.value is not None else None)
        elif equals:
            self._require_single_word(word)
            self._add_option(known, Word(value if word.value is not None else None, value, word.pieces))
        elif known in self.program.arity:
            taken = [self._take_next() for _ in range(self.program.arity[known])]
            self._add_option(known, taken[-1])
        elif known[2:] in self.program.long_valued:
            self._add_option(known, self._take_next())
        else:
            self._add_option(known, None)

    def _resolve_name(self, name: str) -> str | None:
        """Return the full name of an option; ``None`` when it is unknown but harmless."""
        program = self.program
        if name in program.refused:
            raise NotReadOnly(f"{name} does more than read")
        if name[2:] in program.long or name[2:] in program.long_valued or name in program.arity:
            return name
        for other in sorted(program.refused):
            if other.startswith(name):
                raise NotReadOnly(f"{name} may stand for {other}, which does more than read")
        known = (*sorted(program.long), *sorted(program.long_valued))
        matching = [other for other in known if other.startswith(name[2:])]
        if not matching and not program.lenient:
            raise NotReadOnly(f"{name} is not known to only read")
        return "--" + matching[0] if matching else None

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
            self._add_option("-" + letter, None)
        if word.value is None and program.strict:
            raise NotReadOnly(f"{word.source} may become another option")

    def _parse_value(self, name: str, word: Word, rest: str) -> None:
        if rest or word.value is None or name[1] in self.program.attached:
            self._require_single_word(word)
            known = rest if word.value is not None else None
            value = Word(known, rest, word.pieces) if rest or word.value is None else None
        else:
            value = self._take_next()
        self._add_option(name, value)

    def _take_next(self) -> Word | None:
        if self.position >= len(self.words):
            return None
        word = self.words[self.position]
        self.position += 1
        may_refuse = self.program.lenient and self.program.refused
        if may_refuse and word.prefix.startswith("-") and word.value not in {"-", "--"}:
            self._parse_option(word)  # a value for some versions of the program, an option for others
            return None
        self._require_single_word(word)
        return word

    def _require_single_word(self, word: Word) -> None:
        """Raise ``NotReadOnly`` for a value that may become several words, and so options."""
        if word.may_split and self.program.strict:
            raise NotReadOnly(f"{word.source} may become several words")
        self.parsed.may_split = self.parsed.may_split or word.may_split


def _may_begin_with_dash(word: Word) -> bool:
    """Return whether a word that starts with an expansion may become an option; ``-5`` is harmless."""
    first = word.expansions[0]
    return first.kind not in {"tilde", "process"} and not first.numeric


_SET_FIELDS = frozenset({"long", "long_valued", "refused", "scripts", "files"})


def read_profiles(section: str, checks: Mapping[str, OptionCheck] = {}) -> dict[str, ProgramProfile]:
    """Return the profiles of a section of the tables by program."""
    profiles: dict[str, ProgramProfile] = {}
    harmless = section == "harmless"
    for name, entry in read_table(section).items():
        fields: dict[str, Any] = {"lenient": harmless, "numbers": harmless, **entry, "check": checks.get(name)}
        fields |= {field: name_set(entry[field]) for field in _SET_FIELDS & entry.keys()}
        profiles[name] = ProgramProfile(**fields)
    return profiles
