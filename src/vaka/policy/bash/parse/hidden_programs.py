"""Programs that run what rules cannot see: code for interpreters, and options that decide what runs."""

import re
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from vaka.policy.bash.parse.inline_scripts import SHELLS, ScriptText, text_of_file
from vaka.policy.bash.parse.syntax import PLACEHOLDER, Word, WordExpansion, Words, literal_word
from vaka.policy.bash.parse.variables import is_unsafe_variable
from vaka.policy.bash.parse.wrappers import REMOTE_RUNNERS, WRAPPERS, base_name, find_assigned_names
from vaka.policy.bash.programs import name_set, read_set, read_table
from vaka.policy.bash.script_checks import may_awk_run, may_sed_run, sed_input_files

_VERSION = re.compile(r"(?<=[a-z])-?\d+(?:\.\d+)*$")


class Interpreter(msgspec.Struct, frozen=True):
    """Where a program takes its code from, and which words in it may run other programs."""

    code: str = "(?!)"
    """The options before code, as a regular expression."""
    files: str = "(?!)"
    """The options before a file with code."""
    valued: str = ""
    """Other options whose value is the next word."""
    runs: str = ""
    """A regular expression for code that may run programs, or code that is made while it runs."""
    reads: str = "(?!)"
    """A regular expression for code that reads a file whose name is not a constant."""
    all_arguments: bool = False
    """Whether every argument may be code."""
    first_argument: bool = False
    """Whether the first operand is code, if no option is."""
    reads_input: bool = True
    """Whether it reads code from its input, if there is no operand."""
    dynamic: bool = False
    """Whether parts of the code are often variables: only what is known of it counts."""
    interactive: str = "(?!)"
    """The options with which it reads code from its input also after other code, as a regular expression."""


_INTERPRETERS = {name: msgspec.convert(entry, Interpreter) for name, entry in read_table("interpreters").items()}

_PROCESS_WORDS: str = read_table("process_words")["any"]

_MAX_TEXT = 10_000
"""Characters that patterns are searched in, which takes quadratic time; a longer command is always asked about."""

_HIDDEN_RUNS: Mapping[str, list[str]] = read_table("hidden_runs")


def find_hidden_program(words: Words) -> str:
    """Return why the arguments of a command may run a program that rules cannot see, ``""`` when they do not."""
    if not words:
        return ""
    for variable in find_assigned_names(words):
        if is_unsafe_variable(variable):
            return f"it sets {variable}, which decides what runs"
    name = _program_of(words)
    interpreter = _INTERPRETERS.get(name)
    if interpreter is not None:
        for word in _CodeArguments(interpreter, words[1:]).codes:
            if reason := _describe_code(name, interpreter, word):
                return reason
    patterns = _HIDDEN_RUNS.get(name, ())
    arguments = "\n".join(word.render(_argument_text) for word in words[1:]) if patterns else ""
    for pattern in patterns if len(arguments) <= _MAX_TEXT else ():
        if found := re.search(pattern, arguments, re.MULTILINE):
            return f"{name} {' '.join(found[0].split())} may run programs" if found[0] else f"{name} runs programs"
    return ""


def find_unseen_code(words: Words, stdin: ScriptText | None) -> str:
    """Return why the code that an interpreter reads from its input may run programs, ``""`` when it does not."""
    name = _program_of(words)
    interpreter = _INTERPRETERS.get(name)
    if interpreter is None:
        return ""
    arguments = _CodeArguments(interpreter, words[1:])
    for text in _iter_read_codes(interpreter, arguments, stdin):
        if text.is_file and name in _STATEMENT_PROGRAMS:
            continue
        if text.unknown or not text.certain:
            return f"the code that {name} reads is not known beforehand"
        if _may_run(name, interpreter, text.text):
            return f"the code that {name} reads may run programs"
    reads_dash = any(word.value == "-" for word in arguments.files)
    if (arguments.interactive or reads_dash) and stdin is None:
        return f"the code that {name} reads from a terminal is not known beforehand"
    return ""


def find_read_codes(words: Words, stdin: ScriptText | None) -> list[str]:
    """Return the known code that an interpreter reads from its input."""
    interpreter = _INTERPRETERS.get(_program_of(words))
    if interpreter is None:
        return []
    return [text.text for text in _iter_read_codes(interpreter, _CodeArguments(interpreter, words[1:]), stdin)]


def _iter_read_codes(
    interpreter: Interpreter, arguments: "_CodeArguments", stdin: ScriptText | None
) -> Iterator[ScriptText]:
    """Yield the code that an interpreter reads from its input."""
    yield from (text for word in arguments.files if (text := text_of_file(word, stdin)) is not None)
    reads = (interpreter.reads_input and arguments.may_read_input) or arguments.interactive
    if reads and stdin is not None:
        yield stdin


def reads_unknown_file(words: Words, bodies: Iterable[str] = ()) -> bool:
    """Return whether code in the arguments or here-documents of an interpreter reads a file by a computed name."""
    name = _program_of(words)
    interpreter = _INTERPRETERS.get(name)
    if interpreter is None:
        return False
    codes = _CodeArguments(interpreter, words[1:]).codes
    if name in {"sed", "gsed"}:  # a name that depends on an expansion
        return any(
            sed_input_files(word.render(lambda _: "1")) != sed_input_files(word.render(lambda _: "2")) for word in codes
        )
    texts = (*(word.placeholder_text for word in codes), *bodies)
    return any(len(text) > _MAX_TEXT or re.search(interpreter.reads, text) is not None for text in texts)


_TABLES = ("harmless", "checked", "reading", "recursive", "command_options", "script_options")

_PLAIN_PROGRAMS = read_set("plain_programs").union(
    _INTERPRETERS,
    WRAPPERS,
    REMOTE_RUNNERS,
    SHELLS,
    ("git", "find", "fd"),
    *(read_table(name) for name in _TABLES),
    *(read_set(name) for name in ("writing_programs", "reading_programs", "file_listers")),
)
"""Programs that run no argument, or of which it is known which."""

_TARGET_PROGRAMS, _STATEMENT_PROGRAMS = read_set("target_programs"), read_set("statement_programs")

_MAX_ARGUMENTS = 32


def find_possible_commands(words: Words) -> Iterator[Words]:
    """Yield the commands that the arguments of a program may be, if it is not known what it does with them."""
    name = words[0].value if words else None
    if name is None or name in _PLAIN_PROGRAMS or _VERSION.sub("", name) in _PLAIN_PROGRAMS:
        return
    if " " in name:  # a script, for a wrapper that starts a shell
        yield _split_text(name)
    for index, word in enumerate(words[1 : _MAX_ARGUMENTS + 1] if "/" not in name else (), 1):
        text = word.guess or ""
        if text and not text.startswith("-") and name not in _TARGET_PROGRAMS:
            yield words[index:]
        yield from (_split_text(part) for part in (text if " " in text else "", text.partition("=")[2]) if part)


def _split_text(text: str) -> Words:
    return tuple(map(literal_word, text.lstrip("!|").split()[:_MAX_ARGUMENTS]))


def is_interpreter(words: Words) -> bool:
    return _program_of(words) in _INTERPRETERS


def takes_commands(words: Words) -> bool:
    """Return whether a program has commands of its own in its arguments or input, with names of files in them."""
    interpreter = _INTERPRETERS.get(_program_of(words))
    return interpreter is not None and interpreter.all_arguments


def find_codes(words: Words) -> list[Word]:
    """Return the arguments of an interpreter that are code."""
    interpreter = _INTERPRETERS.get(_program_of(words))
    return _CodeArguments(interpreter, words[1:]).codes if interpreter is not None else []


def find_code_operands(words: Words) -> list[Word]:
    """Return what an interpreter passes to code in its arguments or its input, which may use them as files."""
    interpreter = _INTERPRETERS.get(_program_of(words))
    if interpreter is None or interpreter.all_arguments or interpreter.first_argument:
        return []
    arguments = _CodeArguments(interpreter, words[1:])
    return arguments.operands if arguments.codes or arguments.reads_operand_dash else []


def find_code_files(words: Words) -> list[Word]:
    """Return the files with code that an interpreter is given."""
    interpreter = _INTERPRETERS.get(_program_of(words))
    return _CodeArguments(interpreter, words[1:]).files if interpreter is not None else []


def may_code_run(program: str, text: str) -> bool:
    """Return whether code for an interpreter may run programs; for an unknown interpreter it may."""
    name = program if program in _INTERPRETERS else _VERSION.sub("", program)
    interpreter = _INTERPRETERS.get(name)
    return interpreter is None or _may_run(name, interpreter, text)


def _program_of(words: Words) -> str:
    name = base_name(words[0].placeholder_text) if words else ""
    return name if name in _INTERPRETERS or name in _HIDDEN_RUNS else _VERSION.sub("", name)


def _argument_text(expansion: WordExpansion) -> str:
    if expansion.kind == "process":
        return "/dev/fd/63"
    return expansion.guess or PLACEHOLDER


def _describe_code(name: str, interpreter: Interpreter, word: Word) -> str:
    known = (word.guess is not None or word.numeric_template is not None) and "input" not in word.expansion_kinds
    if not known and not (interpreter.dynamic and any(isinstance(piece, str) for piece in word.pieces)):
        return f"the code of {name} is not known beforehand"
    text = word.render(lambda expansion: expansion.guess or "1")
    return f"the code of {name} may run programs" if _may_run(name, interpreter, text) else ""


def _may_run(name: str, interpreter: Interpreter, text: str) -> bool:
    if len(text) > _MAX_TEXT:
        return True
    if name in {"sed", "gsed"}:
        return may_sed_run(text)
    if name.endswith("awk"):
        return may_awk_run(text)
    pattern = interpreter.runs or _PROCESS_WORDS
    return re.search(pattern.replace("{any}", _PROCESS_WORDS), text, re.MULTILINE) is not None


class _CodeArguments:
    """The code and the files with code among the arguments of an interpreter."""

    def __init__(self, interpreter: Interpreter, words: Words) -> None:
        self.codes: list[Word] = []
        self.files: list[Word] = []
        option, operands = False, list[Word]()
        valued = name_set(interpreter.valued)
        taken = -1
        for index, word in enumerate(words):
            text = word.placeholder_text
            if index == taken:
                continue
            for pattern, found in ((interpreter.code, self.codes), (interpreter.files, self.files)):
                if re.fullmatch(pattern, text):
                    option, taken = True, index + 1
                    found += words[taken : taken + 1]
                    break
                if text.startswith("-") and (match := re.match(pattern, text)) and text[match.end() :]:
                    option, attached = True, text[match.end() :].removeprefix("=")
                    found.append(Word(attached if word.value is not None else None, text, word.pieces))
                    break
            else:
                if text in valued:
                    taken = index + 1
                elif not text.startswith("-") or text == "-":
                    operands.append(word)
        end = next((index for index, word in enumerate(words) if word in (*operands, *self.files)), len(words))
        self.interactive = any(re.match(interpreter.interactive, word.placeholder_text) for word in words[:end])
        self.operands = operands
        self.reads_operand_dash = not option and operands[:1] == [literal_word("-")]
        self.may_read_input = not option and (interpreter.all_arguments or not operands)
        if interpreter.all_arguments:
            self.codes += [word for word in words if word not in self.codes]
        elif not option and operands:
            (self.codes if interpreter.first_argument else self.files).append(operands[0])
