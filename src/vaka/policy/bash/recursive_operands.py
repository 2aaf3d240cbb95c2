"""Folders that a command reads or changes with everything in them."""

import re
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from typing import NamedTuple, TypeAlias

import msgspec

from vaka.policy.bash.parse.syntax import Word, Words, literal_word
from vaka.policy.bash.parse.wrappers import FIND_EXEC_ACTIONS, base_name
from vaka.policy.bash.programs import name_set, read_table

PathFilter: TypeAlias = Callable[[str], bool]
"""Whether a command uses the file at this path, relative to the folder."""


class RecursiveOperand(NamedTuple):
    """A folder of which a command uses every file that ``selects`` accepts."""

    folder: Word
    writes: bool
    selects: PathFilter


class RecursiveProgram(msgspec.Struct, frozen=True):
    """When a program uses whole folders, and which of its words are folders."""

    flags: str = ""
    """Short options for whole folders; without flags and ``long`` it always uses them."""
    long: str = ""
    """Long options for whole folders."""
    leading_texts: int = 0
    """Operands before the folders that are not files, unless an option of ``texts`` has them."""
    texts: str = ""
    destination: bool = False
    """Whether the last operand is where it writes to."""
    current: bool = False
    """Whether it uses the current folder if no operand names one."""
    writes: bool = False
    skips_hidden: str = ""
    """Options that include hidden files, if it skips them by default."""


_PROGRAMS = {name: msgspec.convert(entry, RecursiveProgram) for name, entry in read_table("recursive").items()}


def find_recursive_operands(words: Words) -> Iterator[RecursiveOperand]:
    """Yield the folders that a command uses with everything in them."""
    name = base_name(words[0].guess or "") if words else ""
    if name in {"find", "gfind", "bfs"}:
        yield from _find_operands_of_find(words[1:])
        return
    program = _PROGRAMS.get(name)
    if program is None or not _is_recursive(program, words[1:]) or (name.endswith("tar") and not _creates(words[1:])):
        return
    values = [word.placeholder_text for word in words[1:]]
    operands = [word for word in words[1:] if not word.prefix.startswith("-")]
    given = any(re.match(rf"(?:{program.texts})", value) for value in values) if program.texts else False
    operands = operands[0 if given else program.leading_texts :]
    if program.destination and not any(re.match("-t|--target-directory", value) for value in values):
        operands = operands[:-1]
    selects = _make_filter(program, values)
    for word in operands or ([literal_word(".")] if program.current else []):
        yield RecursiveOperand(word, program.writes, selects)


def _is_recursive(program: RecursiveProgram, words: Words) -> bool:
    if not program.flags and not program.long:
        return True
    for value in (word.placeholder_text for word in words):
        if value.startswith("--"):
            name = value[2:].partition("=")[0]
            if len(name) > 2 and any(option.startswith(name) for option in name_set(program.long)):
                return True
        elif value.startswith("-") and not set(program.flags).isdisjoint(value[1:]):
            return True
    return False


def _creates(words: Words) -> bool:
    """Return whether ``tar`` reads files, rather than extracting or listing an archive."""
    values = [word.placeholder_text for word in words]
    if any(value in {"--create", "--append", "--update"} for value in values):
        return True
    letters = "".join(value for index, value in enumerate(values) if index == 0 or re.match(r"-\w", value))
    return not set("cru").isdisjoint(letters)


def _make_filter(program: RecursiveProgram, values: list[str]) -> PathFilter:
    included = _values_of(values, "--include") + [
        text for text in _values_of(values, "-g", "--glob") if text[:1] != "!"
    ]
    excluded = _values_of(values, "--exclude", "--exclude-dir")
    excluded += [text[1:] for text in _values_of(values, "-g", "--glob") if text.startswith("!")]
    typed = bool(program.skips_hidden) and any(re.match(r"-t|--type", value) for value in values)
    hidden = not program.skips_hidden or any(re.fullmatch(program.skips_hidden, value) for value in values)

    def selects(path: str) -> bool:
        parts = path.split("/")
        if typed or (not hidden and any(part.startswith(".") for part in parts)):
            return False
        if any(fnmatchcase(part, text.strip("/*") or text) for text in excluded for part in parts):
            return False
        return not included or any(fnmatchcase(parts[-1], text.rpartition("/")[2]) for text in included)

    return selects


def _values_of(values: list[str], *options: str) -> list[str]:
    found: list[str] = []
    for index, value in enumerate(values):
        for option in options:
            if value == option and index + 1 < len(values):
                found.append(values[index + 1])
            elif value.startswith(f"{option}=") or (len(option) == 2 and value.startswith(option) and value != option):
                found.append(value[len(option) :].removeprefix("="))
    return found


def _find_operands_of_find(words: Words) -> Iterator[RecursiveOperand]:
    """Yield where ``find -exec`` starts; its tests for names select files."""
    values = [word.placeholder_text for word in words]
    actions = [index for index, value in enumerate(values) if value in FIND_EXEC_ACTIONS]
    if not actions or not any("{}" in value for value in values[actions[0] :]):
        return
    names = _values_of(values[: actions[0]], "-name", "-iname", "-path", "-wholename")
    start = next((index for index, value in enumerate(values) if value.startswith(("-", "(", "!"))), len(values))
    if any(value in {"!", "-not", "-o", "-or"} for value in values):
        names = []

    def selects(path: str) -> bool:
        return not names or any(
            fnmatchcase(path.rpartition("/")[2].lower(), text.rpartition("/")[2].lower()) for text in names
        )

    for word in words[:start] or (literal_word("."),):
        yield RecursiveOperand(word, writes=False, selects=selects)
