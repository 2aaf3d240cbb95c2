"""Shell variables: which of them decide what runs, and which hold external text that arithmetic would evaluate."""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import msgspec

from vaka.policy.bash.parse.syntax import ShellScript, SimpleCommand, Word, WordExpansion, Words, literal_word
from vaka.policy.bash.programs import read_set

DECLARATION_BUILTINS = frozenset({"export", "declare", "typeset", "local", "readonly", "unset"})

_SAFE_NAMES, _UNSAFE_NAMES = read_set("safe_variables"), re.compile("|".join(read_set("unsafe_variables")))


def is_safe_variable(name: str) -> bool:
    """Return whether setting this variable for a command is harmless."""
    return name in _SAFE_NAMES or name.startswith("LC_")


def is_unsafe_variable(name: str) -> bool:
    """Return whether this variable decides what runs, or how."""
    return name not in _SAFE_NAMES and _UNSAFE_NAMES.fullmatch(name) is not None


_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_DATE_FORMAT = re.compile(r"\+(?:%[sYmdHMSNjuwyCe-]|[-\d])*")

_STAT_FORMAT = re.compile(r"(?:-L )?(?:-c ?|--format[= ]|--printf[= ])%[sYXZiah](?: (?!-)|$)")

_WC_OPTIONS = re.compile(r"(?:(?:-[clmwL]+|--(?:bytes|chars|lines|words|max-line-length))\n)*")

_GREP_COUNT_OPTIONS = re.compile(
    r"(?=(?:.*\n)*(?:-\w*c|--count))(?:(?:-[ciwxvyEFGPash]+|--(?:count|ignore-case|invert-match))\n)*"
)

_NUMBER = re.compile(r"-?\d+")

_ARITHMETIC_OPERATORS = frozenset("+-*/%")

_POSITIONAL_PARAMETER = re.compile(r"\$[0-9@*]")

_READ_VALUED = frozenset("dinNpt")

_MAX_APPENDED = 16
"""Values of a variable to which a text is added."""

_PLAIN_TEXT = re.compile(r"-?\d+|[\w./]*")
"""A text that can never be an option, a pattern or a command."""


class TaintTracker:
    """Tracks which variables hold external text, and which are evaluated as arithmetic."""

    def __init__(self) -> None:
        self.tainted: set[str] = set()
        self.copies: dict[str, set[str]] = {}
        self.evaluated: set[str] = set()
        self.assigned_names: set[str] = set()
        self.assigned_values: list[Word] = []
        self.values_by_name: dict[str, list[Word]] = {}
        self.input_variables: set[str] = set()
        self.suspicious: set[str] = set()
        """Variables whose value may be an option, a pattern or a command."""
        self.direct_evaluation = False
        """Whether external text is evaluated without a variable."""

    def note_assignment(self, name: str, words: Iterable[Word]) -> None:
        words = list(words)
        self.assigned_names.add(name)
        self.assigned_values += words
        self.values_by_name.setdefault(name, []).extend(words)
        pieces = [piece for word in words for piece in (word.pieces or (word.value or "",))]
        for text in (piece for piece in pieces if isinstance(piece, str)):
            if not _PLAIN_TEXT.fullmatch(text):
                self.suspicious.add(name)
            if "$" in text or "`" in text:
                self.tainted.add(name)
        for expansion in (expansion for word in words for expansion in word.expansions):
            if expansion.kind == "parameter":
                self.copies.setdefault(name, set()).update(_VARIABLE_NAME.findall(expansion.name))
            if _is_external(expansion):
                self.tainted.add(name)

    def note_append(self, name: str, word: Word) -> None:
        """Note that a text is added to the end of a variable."""
        before = [one.value for one in self.values_by_name.get(name, ())]
        self.note_assignment(name, [word])
        if word.prefix[:1].isspace():
            return  # bash splits the value there
        known = [value for value in before if value is not None]
        if word.value is not None and len(known) == len(before) <= _MAX_APPENDED:
            self.note_assignment(name, [literal_word(value + word.value) for value in known])
        else:
            self.input_variables.add(name)

    def note_read(self, simple: SimpleCommand) -> None:
        """Note the variables that ``read`` and ``mapfile`` set."""
        names = names_set_by_read(simple)
        is_one = len(names) == 1 or simple.name in {"mapfile", "readarray"}
        given = [item.target for item in simple.redirections if item.operator == "<<<"] if is_one else []
        texts = [text for target in given for text in (target, *_read_parts(simple, target))]
        self.assigned_values += texts
        self.tainted.update(names)
        for name in names:
            self.values_by_name.setdefault(name, []).extend(texts)
        self.input_variables.update(names if not texts else ())

    def merge(self, script: ShellScript) -> None:
        """Add the variables of a script inside this one."""
        self.assigned_values += script.assigned_values
        for name, words in script.variables.items():
            self.values_by_name.setdefault(name, []).extend(words)
        self.input_variables |= script.input_variables

    def note_evaluation(self, text: str, expansions: Iterable[WordExpansion] = ()) -> None:
        """Note that bash evaluates a text with some expansions."""
        self.evaluated.update(_VARIABLE_NAME.findall(text))
        self.direct_evaluation = self.direct_evaluation or _POSITIONAL_PARAMETER.search(text) is not None
        for expansion in expansions:
            if expansion.kind == "parameter" and not expansion.numeric:
                self.evaluated.update(_VARIABLE_NAME.findall(expansion.name))
            self.direct_evaluation = self.direct_evaluation or _is_external(expansion)

    @property
    def may_run_tainted(self) -> bool:
        """Whether external text may be evaluated, and so run."""
        return self.direct_evaluation or not self._sources_of(self.evaluated).isdisjoint(self.tainted)

    def is_plain(self, name: str) -> bool:
        """Return whether every assignment gives a variable one plain word or a number."""
        reached = self._sources_of([name])
        return reached <= self.assigned_names and reached.isdisjoint(self.tainted | self.suspicious)

    def _sources_of(self, names: Iterable[str]) -> set[str]:
        """Return some variables, and the variables that their values come from."""
        reached, waiting = set[str](), list(names)
        while waiting:
            name = waiting.pop()
            if name not in reached:
                reached.add(name)
                waiting += self.copies.get(name, ())
        return reached


def _read_parts(simple: SimpleCommand, target: Word) -> Iterator[Word]:
    """Yield the parts of a text that ``read`` and ``mapfile`` may put into a variable or an array."""
    text = target.guess
    if text is None:
        return
    signs, length = {*" \t\n,:;|"}, len(text)
    for option, after in pairwise((*simple.words[1:], literal_word(""))):
        if found := _PART_OPTION.fullmatch(option.placeholder_text):
            value = found[2] or after.placeholder_text
            length = min(length, int(value)) if found[1] in {"n", "N"} and value.isdecimal() else length
            signs |= {*value} if found[1] == "d" else set()
    if length < len(text):
        yield literal_word(text[:length])
    parts = re.split(rf"[{re.escape(''.join(signs))}]+", text)
    yield from map(literal_word, filter(None, parts if len(parts) > 1 else ()))


_PART_OPTION = re.compile(r"-[a-zA-Z]*?([dnN])(.*)", re.DOTALL)


def names_set_by_read(simple: SimpleCommand) -> list[str]:
    """Return the variables that ``read`` and ``mapfile`` set."""
    values = [word.placeholder_text for word in simple.words[1:]]
    if simple.name in {"mapfile", "readarray"}:
        return ["MAPFILE", *(value for value in values if not value.startswith("-"))]
    valued, names = False, list[str]()
    for value in values if simple.name == "read" else ():
        if not valued and not value.startswith("-"):
            names.append(value)
        valued = not valued and value.startswith("-") and value[-1] in _READ_VALUED
    return names or (["REPLY"] if simple.name == "read" else [])


def find_evaluated_words(words: Words) -> tuple[Words, Words]:
    """Return the words of a builtin that name variables which it sets or looks up, and the arithmetic words."""
    name, rest = (words[0].value, words[1:]) if words else ("", ())
    if name == "let":
        return (), rest
    if name in {"test", "["}:
        return tuple(after for word, after in pairwise(rest) if word.value in {"-v", "-R"}), ()
    if name == "getopts":
        return rest[1:2], ()
    valued = _NAMING_OPTIONS.get(name or "")
    if valued is not None:
        attached = (
            literal_word(word.prefix[2:]) for word in rest if word.prefix.startswith(valued) and word.prefix[2:]
        )
        following = (after for word, after in pairwise(rest) if word.value == valued or word.value is None)
        return (*attached, *following), ()
    if name in _NAMING_BUILTINS:
        return tuple(word for word in rest if not word.prefix.startswith("-")), ()
    return (), ()


_NAMING_OPTIONS = {"printf": "-v", "wait": "-p"}

_NAMING_BUILTINS = DECLARATION_BUILTINS | {"read", "mapfile", "readarray"}


def mark_plain_variables(simple: SimpleCommand, taint: TaintTracker) -> SimpleCommand:
    """Return a ``test`` command with its plain variables marked."""
    if simple.name not in {"[", "test"} or not any(word.expansions for word in simple.words):
        return simple
    words = tuple(_mark_word(word, taint) for word in simple.words)
    unwrapped = words if simple.unwrapped_words == simple.words else simple.unwrapped_words
    return msgspec.structs.replace(simple, words=words, unwrapped_words=unwrapped)


def _mark_word(word: Word, taint: TaintTracker) -> Word:
    pieces = tuple(
        msgspec.structs.replace(piece, plain_value=True)
        if isinstance(piece, WordExpansion) and piece.kind == "parameter" and taint.is_plain(piece.name)
        else piece
        for piece in word.pieces
    )
    return msgspec.structs.replace(word, pieces=pieces)


def _is_external(expansion: WordExpansion) -> bool:
    """Return whether it is external text: file names, input, output of a command, an argument such as ``$1``."""
    if expansion.kind == "parameter":
        return not expansion.numeric and _VARIABLE_NAME.match(expansion.name.lstrip("!#")) is None
    if expansion.kind == "command":
        return expansion.guess is None and not expansion.plain_value
    return expansion.kind in {"glob", "process", "input"}


def prints_number(commands: Sequence[SimpleCommand]) -> bool:
    """Return whether the output of a pipeline is always one number."""
    while commands and commands[-1].name == "tr" and any(word.value == "-d" for word in commands[-1].words):
        commands = commands[:-1]
    if not commands:
        return False
    words = commands[-1].words[1:]
    values = [word.value or "?" for word in words]
    options = "".join(f"{value}\n" for value in values if value.startswith("-"))
    operands = [value for value in values if not value.startswith("-")]
    match commands[-1].name:
        case "wc":
            return not operands and _WC_OPTIONS.fullmatch(options) is not None
        case "grep" | "egrep" | "fgrep":  # with several files it also prints names
            one_file = len(operands) <= 2 and not any(word.may_split for word in words)
            return one_file and _GREP_COUNT_OPTIONS.fullmatch(options) is not None
        case "date":
            return len(operands) >= 1 and _DATE_FORMAT.fullmatch(operands[-1]) is not None
        case "stat":
            return _STAT_FORMAT.match(" ".join(values)) is not None
        case "git":
            return values[:1] == ["rev-list"] and "--count" in values
        case "seq":  # options precede the numbers
            return bool(values) and _NUMBER.fullmatch(values[0]) is not None
        case name:
            return name in {"nproc", "bc"} or (name == "expr" and not _ARITHMETIC_OPERATORS.isdisjoint(values))
