"""Commands that stop the machine, change its disks, kernel, network, users or clock, or give the rights to do so."""

import re
from collections.abc import Iterator
from itertools import islice

import msgspec

from vaka.policy.bash.parse.hidden_programs import find_codes, is_interpreter, may_code_run
from vaka.policy.bash.parse.syntax import SimpleCommand, Words, literal_word
from vaka.policy.bash.parse.wrappers import REMOTE_RUNNERS, base_name
from vaka.policy.bash.programs import read_table
from vaka.policy.bash.rules import strip_trusted_folder


class _MachineProgram(msgspec.Struct, frozen=True):
    """The uses of a program that need a question."""

    shows: str = "(?!)"
    """A regular expression for all arguments, one on each line, with which the program only shows something."""
    changes: str = ""
    """A regular expression for arguments; without a match the program changes nothing."""
    elevates: bool = False
    """Whether it gives a command the rights of another user."""


_PROGRAMS = {name: msgspec.convert(entry, _MachineProgram) for name, entry in read_table("machine").items()}

_HELP = re.compile(r"--help|--version")


def find_machine_programs(simple: SimpleCommand) -> Iterator[str]:
    """Yield the programs of a command, also programs that it runs in turn, that may harm the machine.

    Other rights on another machine are not rights on this one.
    """
    remote = base_name(simple.words[0].placeholder_text) in REMOTE_RUNNERS if simple.words else False
    for words in map(strip_trusted_folder, simple.forms):
        name = (words[0].guess or "").lower() if words else ""  # some file systems ignore case
        program = _PROGRAMS.get(name)
        if program is not None and not (remote and program.elevates) and not only_shows(name, words[1:]):
            yield name


def find_machine_programs_in_code(simple: SimpleCommand) -> Iterator[str]:
    """Yield the programs that may harm the machine among the strings in code that may run programs."""
    for words in simple.forms:
        program = base_name(words[0].placeholder_text) if words else ""
        codes = (*(word.placeholder_text for word in find_codes(words)), *simple.codes) if is_interpreter(words) else ()
        for code in codes:
            if may_code_run(program, code):
                yield from _find_in_strings(code)


def _find_in_strings(code: str) -> Iterator[str]:
    """Yield the programs of commands such as ``"sudo ls"`` and ``["sudo", "ls"]``."""
    strings = [found[2].split() for found in islice(_CODE_STRING.finditer(code), _MAX_CODE_STRINGS)]
    for index, words in enumerate(strings):
        name = base_name(words[0]).lower() if words else ""
        if name in _PROGRAMS:
            following = [word for text in strings[index + 1 :] for word in text] if len(words) == 1 else words[1:]
            if not only_shows(name, tuple(map(literal_word, following))):
                yield name


_CODE_STRING = re.compile(r"""(["'`])([^"'`\n]{0,256})\1""")

_MAX_CODE_STRINGS = 64


def only_shows(name: str, arguments: Words) -> bool:
    """Return whether a program changes nothing of the machine with these arguments."""
    program = _PROGRAMS.get(name, _MachineProgram())
    texts = [word.placeholder_text for word in arguments]
    joined = "\n".join(texts)
    if len(texts) == 1 and _HELP.fullmatch(joined):
        return True
    if program.changes:
        return re.search(program.changes, joined, re.MULTILINE) is None
    return re.fullmatch(program.shows, joined) is not None


def describe_machine_program(name: str) -> str:
    """Return why a program of the table is asked about."""
    does = "gives the rights of another user" if _PROGRAMS[name].elevates else "may harm the machine"
    return f"{name} {does}; a rule must name it"
