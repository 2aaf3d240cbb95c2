"""The parts of a command line as data: words, redirections, simple commands, scripts, and bash's reserved words."""

from typing import Literal, TypeAlias

import msgspec

from vaka.policy.bash.parse.preflight import name_set

ExpansionKind: TypeAlias = Literal["parameter", "command", "process", "arithmetic", "glob", "tilde", "brace", "input"]
"""What is filled in when the command runs; ``input`` is what ``xargs`` or ``find -exec`` puts there."""


class WordExpansion(msgspec.Struct, frozen=True):
    """A part of a word that only bash will know."""

    kind: ExpansionKind
    name: str = ""
    """The variable, the pattern or the tilde as written."""
    may_split: bool = False
    """True when it may become several words, or none."""
    guess: str | None = None
    """What it becomes if nothing surprising happens: the output of an ``echo`` of known words."""
    plain_value: bool = False
    """True when it is a number or one plain word, or nothing: what a command prints, or a variable was set to."""

    @property
    def numeric(self) -> bool:
        """Whether it becomes a number, whatever happens."""
        return self.kind == "arithmetic" or (self.kind == "parameter" and is_numeric_parameter(self.name))


def is_numeric_parameter(parameter: str) -> bool:
    """Return whether a parameter, as it is written, can be nothing but a number: ``$?``, ``$#``, ``${#x}``."""
    counted = parameter.removesuffix("[@]").removesuffix("[*]")
    return parameter in _NUMERIC_PARAMETERS or (parameter.startswith("#") and counted[1:].isidentifier())


_NUMERIC_PARAMETERS = frozenset({"?", "$", "#", "PPID", "UID", "EUID"})


Piece: TypeAlias = str | WordExpansion


class Word(msgspec.Struct, frozen=True):
    """One word as bash sees it after quotes are removed."""

    value: str | None
    """The word, ``None`` when only bash will know it."""
    source: str = ""
    pieces: tuple[Piece, ...] = ()
    """What is known of it, in order, when ``value`` is ``None``."""
    unquoted: bool = True
    """True when it was written without any quote or backslash: only then can it be a keyword."""
    from_braces: bool = False
    """True when it came out of a brace expansion."""

    @property
    def prefix(self) -> str:
        """How it surely begins."""
        if self.value is not None:
            return self.value
        first = self.pieces[0] if self.pieces else ""
        return first if isinstance(first, str) else ""

    @property
    def suffix(self) -> str:
        """How it surely ends."""
        if self.value is not None:
            return self.value
        last = self.pieces[-1] if self.pieces else ""
        return last if isinstance(last, str) else ""

    @property
    def expansions(self) -> tuple[WordExpansion, ...]:
        """Its parts that only bash will know."""
        return tuple(piece for piece in self.pieces if isinstance(piece, WordExpansion))

    @property
    def may_split(self) -> bool:
        """Whether it may become several words, or none."""
        return any(hole.may_split for hole in self.expansions)

    @property
    def guess(self) -> str | None:
        """Its value, or what that is if nothing surprising happens."""
        if self.value is not None:
            return self.value
        parts = [piece if isinstance(piece, str) else piece.guess for piece in self.pieces]
        known = [part for part in parts if part is not None]
        return "".join(known) if len(known) == len(parts) else None

    @property
    def numeric_template(self) -> str | None:
        """Its value, where a number may stand for what only bash will know; ``None`` when that is no number."""
        if self.value is not None:
            return self.value
        return "".join(piece if isinstance(piece, str) else "1" for piece in self.pieces) if self._all_numeric else None

    @property
    def _all_numeric(self) -> bool:
        return bool(self.pieces) and all(hole.numeric for hole in self.expansions)

    @property
    def placeholder_text(self) -> str:
        """Its value with a variable wherever that is not known: good for telling what it may do, not what it does."""
        if self.value is not None:
            return self.value
        return "".join(piece if isinstance(piece, str) else piece.guess or PLACEHOLDER for piece in self.pieces)

    @property
    def path(self) -> str | None:
        """The path it names, with ``~`` for the home folder; ``None`` when that is not known."""
        if self.value is not None:
            return self.value
        first, *rest = self.pieces or ("",)
        if (
            not isinstance(first, WordExpansion)
            or first.name not in _HOME_NAMES
            or not all(isinstance(piece, str) for piece in rest)
        ):
            return None
        tail = "".join(str(piece) for piece in rest)
        return "~" + tail if not tail or tail.startswith("/") else None


_HOME_NAMES = {"~", "HOME"}

PLACEHOLDER = "$__"
"""Stands for what is not known in a text that is read as a script."""


def literal_word(value: str) -> Word:
    """Return a word that says exactly this."""
    return Word(value, value)


INPUT_WORD = Word(None, "…", (WordExpansion("input", may_split=True),))
"""Words that come from somewhere else, any number of them."""


class Assignment(msgspec.Struct, frozen=True):
    """A variable that gets a value, before a command or on its own."""

    name: str
    value: Word


class Redirection(msgspec.Struct, frozen=True):
    """Where a command's input comes from or its output goes to."""

    operator: str
    target: Word
    body: str | None = None
    """The text of a here-document or here-string; ``target`` has a value when all of it is known."""


Words: TypeAlias = tuple[Word, ...]


class SimpleCommand(msgspec.Struct, frozen=True):
    """A simple command: what bash runs at once, with everything that is known of it."""

    words: Words
    assignments: tuple[Assignment, ...] = ()
    redirections: tuple[Redirection, ...] = ()
    source: str = ""
    wrapped_commands: tuple[Words, ...] = ()
    """The commands that this one runs in turn (``sudo x``, ``xargs x`` …), in every reading."""
    unwrapped_words: Words = ()
    """The command without the wrappers that change nothing about it (``timeout 5 x`` …)."""
    origin: str = ""
    """Where it was found when not in the text itself: ``eval``, ``sh -c`` …"""
    doubt: str = ""
    """Why it must never run without a question; nothing when there is no such reason."""
    calls_function: bool = False
    """True when it calls a function whose body was read before."""

    @property
    def name(self) -> str | None:
        """The command word, ``None`` when it is not known, ``""`` when there is none."""
        return self.words[0].value if self.words else ""


class ShellScript(msgspec.Struct, frozen=True):
    """Every simple command of a text, in the order they are written."""

    text: str
    commands: tuple[SimpleCommand, ...]
    doubts: tuple[str, ...] = ()
    """Why the whole must never run without a question."""
    fork_bomb: bool = False
    """True when a function starts itself again and again."""
    start_folder: str = ""
    """The folder it begins in, when that is known: for what leads up from there."""
    assigned_values: Words = ()
    """What variables are set to, functions called with, and commands in words print."""


class UnreadableScript(msgspec.Struct, frozen=True):
    """A text that has no single sure reading. It never runs without a question."""

    text: str
    reason: str
    commands: tuple[SimpleCommand, ...] = ()
    """What commands may be in it, so that rules that forbid can still be held against them."""


RESERVED_WORDS = name_set("if then else elif fi for while until do done case esac in function select { } ! [[ ]]")

SYNTAX_TOKENS = name_set("; & { } ( ) if then elif else fi while until do done case in esac for select") | name_set(
    "&& || | |& ! function $( <( >( `"
)

CASE_TERMINATORS = name_set(";; ;& ;;&")

BLOCK_NODES = name_set(
    "program subshell compound_statement if_statement elif_clause else_clause while_statement do_group"
)


def reads_file_as_input(simple: SimpleCommand) -> bool:
    """Whether a command reads a file as its input."""
    return any(one.operator.startswith("<") for one in simple.redirections)
