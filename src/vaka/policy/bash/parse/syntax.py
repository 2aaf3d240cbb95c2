"""The parts of a command line as data: words, redirections, simple commands, scripts."""

from collections.abc import Callable, Mapping
from typing import Literal, TypeAlias

import msgspec

ExpansionKind: TypeAlias = Literal["parameter", "command", "process", "arithmetic", "glob", "tilde", "brace", "input"]
"""What bash substitutes when the command runs; ``input`` comes from ``xargs`` or ``find -exec``."""


class WordExpansion(msgspec.Struct, frozen=True):
    """A part of a word that is unknown until bash expands it."""

    kind: ExpansionKind
    name: str = ""
    """The variable or the tilde as written, or the pattern as ``fnmatch`` reads it."""
    may_split: bool = False
    """Whether it may become several words, or none."""
    guess: str | None = None
    """The expected value, such as the output of an ``echo`` of known words; not certain."""
    plain_value: bool = False
    """Whether it is a number, one plain word, or empty."""
    producers: "tuple[Words, ...]" = ()
    """The commands of the pipeline whose output it is, if it is only one."""

    @property
    def numeric(self) -> bool:
        """Whether it is always a number."""
        return self.kind == "arithmetic" or (self.kind == "parameter" and is_numeric_parameter(self.name))


def is_numeric_parameter(parameter: str) -> bool:
    """Return whether a parameter is always a number: ``$?``, ``$#``, ``${#x}``."""
    counted = parameter.removesuffix("[@]").removesuffix("[*]")
    return parameter in _NUMERIC_PARAMETERS or (parameter.startswith("#") and counted[1:].isidentifier())


_NUMERIC_PARAMETERS = frozenset({"?", "$", "#", "PPID", "UID", "EUID"})


Piece: TypeAlias = str | WordExpansion


class Word(msgspec.Struct, frozen=True):
    """One word after quote removal."""

    value: str | None
    """The word, ``None`` when it is unknown until bash expands it."""
    source: str = ""
    pieces: tuple[Piece, ...] = ()
    """The known and unknown parts in order, when ``value`` is ``None``."""
    unquoted: bool = True
    """Whether it was written without quotes and backslashes: only then can it be a keyword."""
    from_braces: bool = False
    """Whether it is the result of a brace expansion."""

    @property
    def prefix(self) -> str:
        """Its known beginning."""
        first = self.pieces[0] if self.value is None and self.pieces else self.value
        return first if isinstance(first, str) else ""

    @property
    def suffix(self) -> str:
        """Its known end."""
        last = self.pieces[-1] if self.value is None and self.pieces else self.value
        return last if isinstance(last, str) else ""

    @property
    def expansions(self) -> tuple[WordExpansion, ...]:
        return tuple(piece for piece in self.pieces if isinstance(piece, WordExpansion))

    @property
    def expansion_kinds(self) -> set[ExpansionKind]:
        return {expansion.kind for expansion in self.expansions}

    @property
    def may_split(self) -> bool:
        return any(expansion.may_split for expansion in self.expansions)

    def render(self, text_of: Callable[[WordExpansion], str]) -> str:
        """Return its value with a text for each expansion."""
        if self.value is not None:
            return self.value
        return "".join([piece if isinstance(piece, str) else text_of(piece) for piece in self.pieces])

    @property
    def guess(self) -> str | None:
        """Its value, or its expected value."""
        known = self.value is not None or all(expansion.guess is not None for expansion in self.expansions)
        return self.render(lambda expansion: expansion.guess or "") if known else None

    @property
    def numeric_template(self) -> str | None:
        """Its value, with ``1`` for each numeric expansion; ``None`` when it has other expansions."""
        known = self.value is not None or (self.pieces and all(expansion.numeric for expansion in self.expansions))
        return self.render(lambda _: "1") if known else None

    @property
    def placeholder_text(self) -> str:
        """Its value with a placeholder for each unknown part: enough for rules that restrict."""
        return self.render(lambda expansion: expansion.guess or PLACEHOLDER)

    @property
    def pattern(self) -> str:
        """Its value as a pattern for names: a pattern stays as it is, and ``*`` stands for other unknown parts."""
        return self.render(lambda expansion: expansion.name if expansion.kind == "glob" else expansion.guess or "*")

    @property
    def path(self) -> str | None:
        """The path it names, with ``~`` for the home folder; ``None`` when it is unknown."""
        if self.value is not None:
            return self.value
        first, *rest = self.pieces or ("",)
        if not isinstance(first, WordExpansion) or first.name not in _HOME_NAMES:
            return None
        tail = "".join(piece if isinstance(piece, str) else "\0" for piece in rest)
        return "~" + tail if "\0" not in tail and (not tail or tail.startswith("/")) else None


_HOME_NAMES = {"~", "HOME"}

PLACEHOLDER = "$__"
"""Stands for an unknown part in a text that is parsed as a script."""


def literal_word(value: str) -> Word:
    return Word(value, value)


INPUT_WORD = Word(None, "…", (WordExpansion("input", may_split=True),))
"""Any number of words from the input of ``xargs``."""


class Assignment(msgspec.Struct, frozen=True):
    """An assignment to a variable, before a command or on its own."""

    name: str
    value: Word


class Redirection(msgspec.Struct, frozen=True):
    """A redirection of a command's input or output."""

    operator: str
    target: Word
    body: str | None = None
    """The text of a here-document or here-string; ``target`` has a value when the text is fully known."""
    descriptor: str = ""
    """The number before the operator, if any."""

    @property
    def writes(self) -> bool:
        return ">" in self.operator


Words: TypeAlias = tuple[Word, ...]


class SimpleCommand(msgspec.Struct, frozen=True):
    """A simple command, with everything that is known about it."""

    words: Words
    assignments: tuple[Assignment, ...] = ()
    redirections: tuple[Redirection, ...] = ()
    source: str = ""
    wrapped_commands: tuple[Words, ...] = ()
    """The commands that this one runs (``sudo x``, ``xargs x`` …), for each interpretation of its options."""
    unwrapped_words: Words = ()
    """The command without transparent wrappers (``timeout 5 x`` …)."""
    origin: str = ""
    """The command whose argument contains it, if any: ``eval``, ``sh -c`` …"""
    doubt: str = ""
    """Why it must always be asked about, if so."""
    hidden_input: str = ""
    """Why its input may be a script that is not known beforehand, if so."""
    hidden_program: str = ""
    """Why its arguments may run a program that rules cannot see, if so."""
    codes: tuple[str, ...] = ()
    """The code that its interpreters read: from their input, or from files that the same script writes."""
    calls_function: bool = False
    """Whether it calls a function that the script defines before."""

    @property
    def name(self) -> str | None:
        """The first word, ``None`` when it is unknown, ``""`` when there is none."""
        return self.words[0].value if self.words else ""

    @property
    def forms(self) -> "tuple[Words, ...]":
        """Its words, and the words of each command that it runs."""
        return (self.words, *self.wrapped_commands)


class ShellScript(msgspec.Struct, frozen=True):
    """Every simple command of a text, in order."""

    text: str
    commands: tuple[SimpleCommand, ...]
    doubts: tuple[str, ...] = ()
    """Why the whole script must always be asked about."""
    fork_bomb: bool = False
    """Whether a function starts itself in a pipe or in the background."""
    start_folder: str = ""
    """The folder it starts in, if known: to resolve paths that lead up."""
    assigned_values: Words = ()
    """Values of variables, arguments of functions, and output of command substitutions."""
    pipelines: "tuple[tuple[range, ...], ...]" = ()
    """The commands of each part of each pipeline, by index."""
    variables: Mapping[str, Words] = {}
    """The values that the script gives each variable."""
    input_variables: frozenset[str] = frozenset()
    """Variables that the script reads from an input."""
    stops_at_failure: bool = False
    """Whether it is one list of commands joined by ``&&``: after a ``cd`` that fails, nothing runs."""


class UnreadableScript(msgspec.Struct, frozen=True):
    """A text that cannot be parsed with certainty. It is always asked about."""

    text: str
    reason: str
    commands: tuple[SimpleCommand, ...] = ()
    """Commands that may be in it, so that rules can still deny them."""
