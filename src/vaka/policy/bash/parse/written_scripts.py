"""Scripts that a command line writes to a file and then runs."""

import posixpath
from collections.abc import Callable, Iterable, Iterator

import msgspec

from vaka.policy.bash.parse.hidden_programs import find_code_files, is_interpreter, may_code_run
from vaka.policy.bash.parse.inline_scripts import SHELLS, UNKNOWN_TEXT, ScriptText, input_text_of, predict_output
from vaka.policy.bash.parse.syntax import ShellScript, SimpleCommand, Word, Words, literal_word
from vaka.policy.bash.parse.words import ParseMismatch
from vaka.policy.bash.parse.wrappers import base_name

_ALL_OPERANDS = frozenset({"tee", "mkfifo", "curl", "wget", "sponge", "openssl", "gpg", "dd", "xxd"})
"""Programs that may write to any of their operands, or to a value of an option."""
_LAST_OPERAND = frozenset({"cp", "mv", "ln", "install"})


def add_written_scripts(script: ShellScript, read_script: Callable[[str], ShellScript]) -> ShellScript:
    """Return a script with the commands of the files that it writes and runs; unknown ones are marked as hidden."""
    written = _collect_written_files(script.commands)
    if not written:
        return script
    commands, inner = list[SimpleCommand](), list[SimpleCommand]()
    for simple in script.commands:
        for name, text in ((name, written[name]) for name in _run_files_of(simple) if name in written):
            found = _read_written(simple, text, read_script)
            if found is not None and _interpreter_of(simple.forms, text.text):
                simple = msgspec.structs.replace(simple, codes=(*simple.codes, text.text))
            if found is None:
                reason = f"it runs {name}, which is written by the same command line"
                simple = msgspec.structs.replace(simple, hidden_input=simple.hidden_input or reason)
            else:
                inner += (msgspec.structs.replace(one, origin=one.origin or name) for one in found)
        commands.append(simple)
    return msgspec.structs.replace(script, commands=(*commands, *inner))


def _collect_written_files(commands: Iterable[SimpleCommand]) -> dict[str, ScriptText]:
    """Return the text of each file that is written, by its last name: a folder may be written in several ways."""
    written: dict[str, ScriptText] = {}
    for simple in commands:
        for path, text in _written_files_of(simple):
            name = base_name(posixpath.normpath(path))
            before = written.get(name, ScriptText("", certain=True))
            known = text.certain and before.certain
            written[name] = ScriptText(before.text + text.text, certain=True) if known else UNKNOWN_TEXT
    return written


def _written_files_of(simple: SimpleCommand) -> Iterator[tuple[str, ScriptText]]:
    read = tuple(item for item in simple.redirections if not item.writes)
    for item in simple.redirections:
        if item.writes and item.target.path is not None and not item.target.path.isdigit():
            yield item.target.path, predict_output(msgspec.structs.replace(simple, redirections=read)) or UNKNOWN_TEXT
    for words in simple.forms:
        name = base_name(words[0].placeholder_text) if words else ""
        operands = [word for word in words[1:] if not word.prefix.startswith("-") or "=" in word.prefix]
        text = input_text_of(simple.redirections, None) if name == "tee" else None
        if name in _ALL_OPERANDS or name in _LAST_OPERAND:
            for word in operands if name in _ALL_OPERANDS else operands[-1:]:
                yield word.placeholder_text.rpartition("=")[2], text or UNKNOWN_TEXT


def _run_files_of(simple: SimpleCommand) -> list[str]:
    """Return the last names of the files that a command may run."""
    files: list[Word] = []
    for words in simple.forms:
        name = base_name(words[0].placeholder_text) if words else ""
        files += [word for word in words[:1] if "/" in word.placeholder_text]
        if name in SHELLS or name in {"source", "."}:
            files += [word for word in words[1:] if not word.prefix.startswith("-")]
        files += find_code_files(words)
        files += _makefiles_of(words) if name in _MAKE else []
        if name in SHELLS or is_interpreter(words):
            files += [item.target for item in simple.redirections if item.operator == "<"]
    return list(dict.fromkeys(base_name(posixpath.normpath(word.placeholder_text)) for word in files))


_MAKE = frozenset({"make", "gmake", "bmake", "remake"})

_MAKEFILES = ("Makefile", "makefile", "GNUmakefile")


def _makefiles_of(words: Words) -> list[Word]:
    """Return the files that ``make`` may read its rules from: any word may be the value of ``-f``."""
    return [*words[1:], *map(literal_word, _MAKEFILES)]


def _read_written(
    simple: SimpleCommand, text: ScriptText, read_script: Callable[[str], ShellScript]
) -> tuple[SimpleCommand, ...] | None:
    """Return the commands of a script, none for code that runs no programs; ``None`` when that is not known."""
    if not text.certain:
        return None
    interpreter = _interpreter_of(simple.forms, text.text)
    if any(words and base_name(words[0].placeholder_text) in _MAKE for words in simple.forms):
        return None
    if interpreter:
        return None if may_code_run(interpreter, text.text) else ()
    try:
        script = read_script(text.text)
    except (ParseMismatch, LookupError, ValueError):
        return None
    return script.commands if not script.doubts and not script.fork_bomb else None


def _interpreter_of(forms: tuple[Words, ...], text: str) -> str:
    """Return the interpreter that runs a text, ``""`` for a shell."""
    for words in forms:
        if words and find_code_files(words):
            return base_name(words[0].placeholder_text)
    line = text.partition("\n")[0]
    program = base_name(line.split()[-1]) if line.startswith("#!") and line.split() else ""
    return program if program not in SHELLS else ""
