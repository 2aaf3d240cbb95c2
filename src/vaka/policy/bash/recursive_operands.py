"""The files and folders that the operands of a command name, as far as it prints, copies or changes them."""

import re
from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import msgspec

from vaka.policy.bash.file_operands import RecursiveOperand, accept_all
from vaka.policy.bash.git_files import find_git_operands
from vaka.policy.bash.parse.hidden_programs import find_code_operands
from vaka.policy.bash.parse.inline_scripts import SHELLS
from vaka.policy.bash.parse.syntax import Word, Words, literal_word
from vaka.policy.bash.parse.wrappers import FD_EXEC_OPTIONS, FIND_EXEC_ACTIONS, base_name, find_wrapped_commands
from vaka.policy.bash.path_filters import make_path_filter, values_of
from vaka.policy.bash.programs import name_set, read_set, read_table
from vaka.policy.bash.written_operands import find_access, find_placements
from vaka.policy.decision import FolderUse


class FileOperands(msgspec.Struct, frozen=True):
    """When a program uses the files, or whole folders, that its operands name, and which operands these are."""

    flags: str = ""
    """Short options with which it does; without flags and ``long`` it always does."""
    long: str = ""
    """Long options with which it does."""
    also_with: str = "(?!)"
    """A regular expression for other options with which it does, each argument on a line."""
    not_with: str = "(?!)"
    """Options with which it does not, as a regular expression."""
    valued: str = "(?!)"
    """Options whose value, the next word, is not a file to use, as a regular expression."""
    leading_texts: int = 0
    """Operands before the files that are not files, unless an option of ``texts`` has them."""
    texts: str = ""
    destination: bool = False
    """Whether the last operand is where it writes to."""
    current: bool = False
    """Whether it uses the current folder if no operand names one."""
    writes: bool = False

    def find(self, words: Words) -> list[Word]:
        """Return the operands that name files."""
        values = [word.placeholder_text for word in words]
        taken = {index + 1 for index, value in enumerate(values) if re.fullmatch(self.valued, value)}
        operands = [
            word
            for index, word in enumerate(words)
            if index not in taken and (word.value == "-" or not word.prefix.startswith("-"))
        ]
        given = any(re.match(rf"(?:{self.texts})", value) for value in values) if self.texts else False
        operands = operands[0 if given else self.leading_texts :]
        if self.destination and not any(re.match("-t|--target-directory", value) for value in values):
            operands = operands[:-1]
        return operands

    def is_used(self, words: Words) -> bool:
        """Return whether the options are such that operands name files."""
        values = [word.placeholder_text for word in words]
        if any(re.match(self.not_with, value) for value in values):
            return False
        if (not self.flags and not self.long) or re.search(self.also_with, "\n".join(values), re.MULTILINE):
            return True
        for value in values:
            if value.startswith("--"):
                name = value[2:].partition("=")[0]
                if len(name) > 2 and any(option.startswith(name) for option in name_set(self.long)):
                    return True
            elif value.startswith("-") and not set(self.flags).isdisjoint(value[1:]):
                return True
        return False


_RECURSIVE = {name: msgspec.convert(entry, FileOperands) for name, entry in read_table("recursive").items()}

_READING = {name: msgspec.convert(entry, FileOperands) for name, entry in read_table("reading").items()}


_LISTS: Mapping[str, str] = read_table("lists")


def reads_file_list(words: Words) -> bool:
    """Return whether a program reads the names of its files from its input."""
    options = _LISTS.get(base_name(words[0].guess or "") if words else "", "(?!)")
    return any(re.match(options, word.placeholder_text) for word in words[1:])


def removes_archived_files(words: Words) -> bool:
    """Return whether an archiver removes the files that it has put into the archive."""
    return any(re.match(r"--remove-files|--move|-(?!-)\w*m", word.placeholder_text) for word in words[1:])


def find_file_operands(words: Words) -> list[Word]:
    """Return the operands, and values of options, that name files which a command prints or copies."""
    name = base_name(words[0].guess or "") if words else ""
    options = _FILE_OPTIONS.get(name, "(?!)")
    values = [after for word, after in pairwise(words) if re.fullmatch(options, word.placeholder_text)]
    begun = [word for word in words[1:] if word.value is None and re.fullmatch(options, word.prefix)]
    values += [Word(None, word.source, word.pieces[1:]) for word in begun if word.prefix]
    program = _READING.get(name) if name not in SHELLS else _SHELL_SCRIPT
    return [*values, *(program.find(words[1:]) if program is not None and program.is_used(words[1:]) else ())]


_SHELL_SCRIPT = FileOperands(not_with=r"-\w*c")
"""A shell prints the lines of its script with ``-v``, and lines that it does not understand."""

_FILE_OPTIONS: Mapping[str, str] = read_table("file_options")
"""The text before the name of a file that a program reads: an option, or the beginning of a word."""


def find_recursive_operands(words: Words, exists: Callable[[str], bool]) -> Iterator[RecursiveOperand]:
    """Yield the folders that a command uses with everything in them; ``exists``: whether a word names a file."""
    name = base_name(words[0].guess or "") if words else ""
    yield from (RecursiveOperand(word, FolderUse(accept_all)) for word in _find_archived_words(words))
    if name in {"find", "gfind", "bfs"}:
        if _runs_reader(words, FIND_EXEC_ACTIONS) and any("{}" in word.placeholder_text for word in words):
            yield from find_found_files(words[1:])
        if (change := _find_change(words, FIND_EXEC_ACTIONS)) is not None:
            yield from (_as_change(found, change) for found in find_found_files(words[1:]))
        return
    if name in {"fd", "fdfind"}:
        if _runs_reader(words, FD_EXEC_OPTIONS):
            yield list_visible_files(words)
        if (change := _find_change(words, FD_EXEC_OPTIONS)) is not None:
            yield _as_change(list_visible_files(words), change)
        return
    if name == "git":
        yield from find_git_operands(words[1:], exists)
        return
    program = _RECURSIVE.get(name)
    if program is None or not program.is_used(words[1:]) or (name.endswith("tar") and not _creates(words[1:])):
        return
    use = FolderUse(make_path_filter(name, [word.pattern for word in words[1:]]), program.writes)
    for word in program.find(words[1:]) or ([literal_word(".")] if program.current else []):
        yield RecursiveOperand(word, use)


_ARCHIVE_MODULE = re.compile(r"(?:.*/)?python[0-9.]*(?:\n-\w+)*?\n-m\n?(?:zipfile|tarfile)\n(?:-c|--create)\n")


def _find_archived_words(words: Words) -> Words:
    """Return what ``python3 -m zipfile -c`` and its like put into an archive."""
    values = [word.placeholder_text for word in words]
    found = _ARCHIVE_MODULE.match("\n".join(values))
    return words[found[0].count("\n") + 1 :] if found is not None else ()


def _creates(words: Words) -> bool:
    """Return whether ``tar`` reads files, rather than extracting or listing an archive."""
    values = [word.placeholder_text for word in words]
    if any(value in {"--create", "--append", "--update"} for value in values):
        return True
    letters = "".join(value for index, value in enumerate(values) if index == 0 or re.match(r"-\w", value))
    return not set("cru").isdisjoint(letters)


_NOT_READING = read_set("file_listers") | name_set("chmod chown chgrp touch rm echo printf mkdir rmdir unlink")


def _runs_reader(words: Words, options: frozenset[str]) -> bool:
    """Return whether ``find`` or ``fd`` runs a program that may read what it finds."""
    values = [word.placeholder_text for word in words]
    programs = (base_name(after) for value, after in pairwise(values) if value in options)
    return any(program not in _NOT_READING for program in programs)


_METADATA_PROGRAMS = name_set("chmod chown chgrp setfacl touch chattr")
"""Programs that change a file without its content: a rule about reading does not restrict them in ``find``."""


class _Change(NamedTuple):
    program: str
    only_changes: bool


def _find_change(words: Words, options: frozenset[str]) -> _Change | None:
    """Return how ``find`` or ``fd`` changes what it finds, ``None`` if it does not."""
    values = [word.placeholder_text for word in words]
    removal = next((value for value in values if value in {"-delete", "-rm"}), "")
    if removal:
        return _Change(removal, only_changes=False)
    for index, value in enumerate(values):
        if value not in options or index + 1 == len(words):
            continue
        end = next((at for at in range(index + 1, len(words)) if values[at] in {";", "+"}), len(words))
        command = words[index + 1 : end]
        if options is FD_EXEC_OPTIONS and not any("{" in word.placeholder_text for word in command):
            command = (*command, literal_word("{}"))
        for form in (command, *find_wrapped_commands(command)):
            if (change := _find_change_by(form)) is not None:
                return change
    return None


def _find_change_by(command: Words) -> _Change | None:
    """Return how a command changes the file that ``{}`` stands for, ``None`` if it does not."""
    name = base_name(command[0].placeholder_text)
    access = find_access(command)
    if any(one and "{" in word.placeholder_text for word, one in zip(command[1:], access[1:], strict=True)):
        return _Change(name, only_changes=name in _METADATA_PROGRAMS)
    placed = (one.source for one in find_placements(command))
    if any("{" in word.placeholder_text for word in (*placed, *find_code_operands(command))):
        return _Change(name, only_changes=True)
    return None


def _as_change(operand: RecursiveOperand, change: _Change) -> RecursiveOperand:
    return operand._replace(use=operand.use._replace(writes=True, only_changes=change.only_changes))


def list_visible_files(words: Words) -> RecursiveOperand:
    """Return the files that ``fd`` and ``rg --files`` list: without an option none that is hidden."""
    values = [word.placeholder_text for word in words[1:]]
    if base_name(words[0].placeholder_text) == "rg":
        return RecursiveOperand(literal_word("."), FolderUse(make_path_filter("rg", values)))
    hidden = any(re.fullmatch(r"-\w*[Hu.]\w*|--hidden|--unrestricted", value) for value in values)
    endings = tuple(f".{text.lstrip('.')}" for text in values_of(values, "-e", "--extension"))

    def selects(path: str) -> bool:
        shown = hidden or not any(part.startswith(".") for part in path.split("/"))
        return shown and (not endings or path.endswith(endings))

    return RecursiveOperand(literal_word("."), FolderUse(selects))


_NAME_TESTS = ("-name", "-iname", "-path", "-wholename")


_USING_ACTIONS = FIND_EXEC_ACTIONS | {"-delete", "-rm"}


def _remove_commands(values: list[str]) -> list[str]:
    """Return the words of ``find`` without the words of the commands that it runs."""
    kept, inside = list[str](), False
    for value in values:
        if not inside:
            kept.append(value)
        inside = value not in {";", "+"} if inside else value in FIND_EXEC_ACTIONS
    return kept


def _remove_negations(values: list[str]) -> tuple[list[str], list[str]]:
    """Return the words of ``find`` without tests such as ``-not -path x``, and the paths that these leave out.

    ``!`` is kept before anything else than one test.
    """
    kept, left_out = list[str](), list[str]()
    index = 0
    while index < len(values):
        negated = values[index] in {"!", "-not"}
        test, value = [*values[index + 1 : index + 3], "", ""][:2]
        if negated and test in _FIND_VALUED:
            left_out += [value] if test in {"-path", "-wholename"} and "[" not in value else []
            index += 3
        elif negated and test in _FIND_FLAG_TESTS:
            index += 2
        else:
            kept.append("!" if negated else values[index])
            index += 1
    return kept, left_out


_FIND_VALUED = read_set("find_valued")

_FIND_FLAG_TESTS = name_set("-empty -executable -readable -writable -nogroup -nouser")


def _split_alternatives(values: list[str]) -> list[list[str]]:
    """Return the tests before the first action of each alternative: later tests restrict only later actions."""
    alternatives: list[list[str]] = [[]]
    acted = False
    for value in values:
        if value in {"-o", "-or", ","}:
            alternatives.append([])
            acted = False
        elif not (acted := acted or value in _USING_ACTIONS):
            alternatives[-1].append(value)
    return alternatives


def find_found_files(words: Words) -> Iterator[RecursiveOperand]:
    """Yield where ``find`` starts; its tests for names select files, and folders with everything in them."""
    values = [word.pattern for word in words]
    start = next((index for index, value in enumerate(values) if value.startswith(("-", "(", "!"))), len(values))
    tests, left_out = _remove_negations(_remove_commands(values[start:]))
    alternatives = _split_alternatives(tests)
    names = [name for tests in alternatives for name in values_of(tests, *_NAME_TESTS)]
    if "!" in tests or not all(values_of(tests, *_NAME_TESTS) for tests in alternatives):
        names = []
    if len(alternatives) > 1 or values_of(tests, "-type") != ["f"]:
        left_out = []  # a folder may be used with everything in it

    def selects(folder: str, path: str) -> bool:
        parts = path.lower().split("/")
        if any(fnmatchcase(f"{folder}/{path}", text) for text in left_out):
            return False
        return not names or any(fnmatchcase(part, text.rpartition("/")[2].lower()) for text in names for part in parts)

    for word in words[:start] or (literal_word("."),):
        yield RecursiveOperand(word, FolderUse(partial(selects, word.pattern.rstrip("/"))))
