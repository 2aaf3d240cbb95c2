"""The operands of a command that name files which it changes, and the changes that its words do not name."""

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Literal, NamedTuple

import msgspec

from vaka.policy.bash.parse.hidden_programs import find_codes, is_interpreter, takes_commands
from vaka.policy.bash.parse.syntax import PLACEHOLDER, Word, Words, literal_word
from vaka.policy.bash.parse.wrappers import base_name
from vaka.policy.bash.programs import read_set, read_table
from vaka.policy.bash.script_checks import may_awk_write_computed_name, sed_output_files


class WrittenOperands(msgspec.Struct, frozen=True):
    """The operands that a program changes."""

    which: Literal["all", "first", "last", "rest", "none"] = "all"
    """``rest``: all but the first."""
    every: str = "(?!)"
    """Options with which it changes all of them, as a regular expression."""
    only_with: str = ""
    """Options without which it changes none."""
    idle: str = "(?!)"
    """Options with which it changes none."""
    options: str = "(?!)"
    """Options whose value is a file that it changes."""
    valued: str = "(?!)"
    """Options whose value, the next word, is no file."""
    leading_texts: int = 0
    """Operands before the files that are no files, unless an option of ``texts`` has them."""
    texts: str = ""
    places: bool = False
    """Whether it puts files into the last operand, or into the value of ``-t``."""

    def find(self, words: Words) -> list[int]:
        """Return the positions of the words that name files which it changes; the program itself is not among them."""
        values = [word.placeholder_text for word in words]
        if not self._is_used(values):
            return []
        operands, given = self.split(values)
        if not any(re.match(rf"(?:{self.texts})", value) for value in values) if self.texts else True:
            operands = operands[self.leading_texts :]
        which = "all" if any(re.fullmatch(self.every, value) for value in values) else self.which
        if self.places and which == "last" and any(_TARGET_OPTION.match(value) for value in values):
            which = "none"
        chosen = {"all": operands, "first": operands[:1], "last": operands[-1:], "rest": operands[1:], "none": []}
        return [*given, *chosen[which]]

    def _is_used(self, values: list[str]) -> bool:
        options = values[1:]
        if any(re.fullmatch(self.idle, value) for value in options):
            return False
        return not self.only_with or any(re.match(rf"(?:{self.only_with})", value) for value in options)

    def split(self, values: list[str]) -> tuple[list[int], list[int]]:
        """Return the positions of the operands, and the positions of option values that name changed files."""
        operands, given = list[int](), list[int]()
        for index, (before, value) in enumerate(pairwise(values), 1):
            if re.fullmatch(self.options, before) or (self.places and _takes_target(before)):
                given.append(index)
            elif value.startswith("-") and value != "-":
                continue
            elif re.fullmatch(self.valued, before) is None:
                operands.append(index)
        return operands, given


_TARGET_OPTION = re.compile(r"-[a-zA-Z]*?t(.*)|--t[a-z-]*(?:=(.*))?", re.DOTALL)
"""The folder that files are put into, for ``cp`` and its like."""

_WRITING: Mapping[str, WrittenOperands] = {
    name: msgspec.convert(entry, WrittenOperands) for name, entry in read_table("writing").items()
}

_OTHER_WRITING = read_set("writing_programs")

_NEVER_WRITING = read_set("never_writing_programs")

_MAY_WRITE_UNSEEN = frozenset({"perl", "ruby", "awk", "gawk", "mawk", "nawk"})
"""Programs whose code may change the files of their operands."""


def find_access(words: Words) -> list[bool | None]:
    """Return for each word whether the program changes the file that it names; ``None``: it only reads it.

    ``False`` means that this is not known. An option counts as changed: its value may be attached.
    """
    name = base_name(words[0].placeholder_text) if words else ""
    known = _WRITING.get(name)
    if name in _NEVER_WRITING:
        return [None] * len(words)
    if known is None:
        return [name in _OTHER_WRITING] * len(words)
    changed = set(known.find(words))
    other = False if name in _MAY_WRITE_UNSEEN and not changed else None
    attached = name != "dd" and known.which != "all"
    return [
        True if index in changed or _names_output(name, word) or (attached and _is_option(word)) else other
        for index, word in enumerate(words)
    ]


def _is_option(word: Word) -> bool:
    return word.prefix.startswith("-") and len(word.prefix) > 1


def _names_output(name: str, word: Word) -> bool:
    return name == "dd" and (word.prefix.startswith("of=") or (word.value is None and not word.prefix))


def find_written_words(words: Words) -> list[Word]:
    """Return the words, or the parts of them, that name files which a command changes."""
    name = base_name(words[0].guess or "") if words else ""
    if name == "dd":
        return [_without_prefix(word, 3) for word in words[1:] if word.prefix.startswith("of=")]
    if name == "git":
        return [*_find_git_outputs(words)]
    known = _WRITING.get(name)
    if known is None:
        return [*words[1:]] if name in _OTHER_WRITING else []
    return [words[index] for index in known.find(words)]


def find_output(words: Words) -> str:
    """Return the first file that a command writes without naming it, ``""`` if there is none."""
    name = base_name(words[0].guess or "") if words else ""
    output = _FIRST_PARTS.get(name, "")
    return output if output and not _WRITING[name].find(words) else ""


_FIRST_PARTS = {"split": "xaa", "csplit": "xx00"}


_GIT_OUTPUT = re.compile(r"--output(?:-directory)?=")


def _find_git_outputs(words: Words) -> Iterator[Word]:
    """Yield what the options ``--output`` and ``-o`` of git name."""
    options = {"--output", "--output-directory"}
    options |= {"-o"} if any(word.value in {"archive", "format-patch"} for word in words) else set()
    for word, after in pairwise((*words, literal_word(""))):
        attached = _GIT_OUTPUT.match(word.prefix)
        if attached is not None:
            yield _without_prefix(word, attached.end())
        elif word.value in options:
            yield after


def _without_prefix(word: Word, length: int) -> Word:
    if word.value is not None:
        return literal_word(word.value[length:])
    first, *rest = word.pieces
    start = (first[length:],) if isinstance(first, str) and len(first) > length else ()
    return Word(None, word.source[length:], (*start, *rest))


class Placement(NamedTuple):
    """Files that a command puts into a folder under their own names."""

    source: Word
    folder: Word
    whole: bool
    """Whether the folder itself may become the file: ``cp a b``."""
    is_unwritten: bool = False
    """Whether the folder follows from an expansion."""


def find_placements(words: Words) -> Iterator[Placement]:
    """Yield what ``cp``, ``mv`` and their like put into which folder."""
    name = base_name(words[0].guess or "") if words else ""
    known = _WRITING.get(name)
    if known is None or not known.places:
        return
    values = [word.placeholder_text for word in words]
    operands, given = known.split(values)
    attached = [word for word, value in zip(words, values, strict=True) if _has_attached_target(value)]
    sources, target = [words[index] for index in operands], words[given[0]] if given else None
    if target is None and attached:
        found = _TARGET_OPTION.fullmatch(attached[0].placeholder_text)
        target = _without_prefix(attached[0], found.start(found.lastindex or 0)) if found is not None else None
    elif target is None and len(sources) > 1:
        *sources, target = sources
    elif target is None and name in {"ln", "gln"}:
        target = literal_word(".")
    for source in sources if target is not None else ():
        yield Placement(source, target, whole=not given and not attached)  # type: ignore[arg-type]  # checked above


def _takes_target(value: str) -> bool:
    """Return whether the next word is the folder that files are put into."""
    return _TARGET_OPTION.fullmatch(value) is not None and not _has_attached_target(value)


def _has_attached_target(value: str) -> bool:
    found = _TARGET_OPTION.fullmatch(value)
    return found is not None and bool(found[1] or found[2])


# ------------------------------------------------------------------------------------------- unknown names


class UnknownChanges(msgspec.Struct, frozen=True):
    """When a program changes files that its words do not name."""

    only_with: str = ""
    """Options without which it changes none, as a regular expression."""
    idle: str = "(?!)"
    """Options with which it changes none."""
    valued: str = "(?!)"
    """Options whose value, the next word, is no file that it changes."""
    folder: str = "(?!)"
    """The option before the folder that it works in."""
    archives: int = 0
    """Operands that name its input."""


_UNKNOWN_CHANGES = {name: msgspec.convert(one, UnknownChanges) for name, one in read_table("unknown_changes").items()}


class ChangedFolder(NamedTuple):
    """A folder in which a command changes files that its words do not name; with ``members``, only these."""

    folder: Word
    members: tuple[Word, ...] = ()


def find_changed_folder(words: Words) -> ChangedFolder | None:
    """Return the folder that a command changes by what its input says, ``None`` if there is none."""
    name = base_name(words[0].guess or "") if words else ""
    if re.fullmatch(r"python[0-9.]*", name) and _ARCHIVE_MODULE.search(" ".join(w.placeholder_text for w in words)):
        return ChangedFolder(literal_word("."))
    known = _UNKNOWN_CHANGES.get(name)
    if known is None or not _is_changing(known, [word.placeholder_text for word in words[1:]], tar="tar" in name):
        return None
    folders, operands = list[Word](), list[Word]()
    for before, word in pairwise(words):
        text = before.placeholder_text
        if re.fullmatch(known.folder, text):
            folders.append(word)
        elif found := re.match(rf"(?:{known.folder})=?(.+)", word.placeholder_text, re.DOTALL):
            folders.append(literal_word(found[found.lastindex or 0]))
        elif not word.prefix.startswith("-") and re.fullmatch(known.valued, text) is None:
            operands.append(word)
    if "tar" in name and operands and operands[0] is words[1]:
        operands = operands[1:]  # letters without a dash
    if name == "patch" or len(folders) > 1:
        return ChangedFolder(literal_word("."))
    members = tuple(operands[known.archives :]) if known.archives or "tar" in name else ()
    return ChangedFolder(folders[0] if folders else literal_word("."), members)


_ARCHIVE_MODULE = re.compile(r"\s-m\s*(?:zipfile|tarfile)\s+(?:-e|--extract)\b")


def _is_changing(known: UnknownChanges, values: list[str], *, tar: bool) -> bool:
    if tar:  # only the first word has letters without a dash
        values = [value for index, value in enumerate(values) if index == 0 or value.startswith("-")]
    if any(re.fullmatch(known.idle, value) for value in values):
        return False
    return not known.only_with or any(re.fullmatch(known.only_with, value) for value in values)


# ------------------------------------------------------------------------------------------- code of interpreters

_CONSTANT = r"""\s*(?:[rbuRBU]{0,2}(?:"[^"$]*"|'[^'$]*')|`[^`$]*`)\s*[,)]"""

_CHANGES_COMPUTED_NAME = re.compile(
    rf"""
    \bos\.(?:remove|unlink|rename\w*|replace|rmdir|removedirs|makedirs|mkdir|truncate|chmod|link|symlink)\s*\((?!{_CONSTANT})
    |\bshutil\.(?:rmtree|copy\w*|move)\s*\((?!{_CONSTANT})|\bunpack_archive\s*\(|\b(?:File|Rotating\w*)Handler\s*\((?!{_CONSTANT})
    |\bfrom\s+(?:os|shutil)\b[^;\n]*\b(?:remove|unlink|rename|replace|rmtree|copy\w*|move|rmdir)\s+as\b
    |\bbasicConfig\s*\([^)]*\bfilename\s*=(?!{_CONSTANT})
    |\b(?:mk[sd]temp|NamedTemporaryFile|TemporaryDirectory)\s*\([^)]*\bdir\s*=
    |\bextract(?:all)?\s*\(
    |(?<!["']\))\.(?:write_text|write_bytes|unlink|touch|rmdir|rename|symlink_to|hardlink_to)\s*\(
    |\b(?:(?:write|append)File\w*|(?:rm|unlink|rename|truncate|copyFile|cp|mkdir|symlink|link)Sync|createWriteStream)
        \s*\((?!{_CONSTANT})
    |\b(?:fs|promises)\.(?:rm|unlink|rename|truncate|cp|mkdir|symlink|link)\s*\((?!{_CONSTANT})
    |\b(?:File|FileUtils|IO)\.(?:delete|unlink|rename|write|mv|rm\w*|cp\w*|truncate|ln\w*)\b(?!\s*\(?{_CONSTANT})
    |\b(?:file_put_contents|os\.remove|os\.rename)\s*\((?!{_CONSTANT})
    |\b(?:unlink|rename)\b(?!\s*\(?\s*["'][^"'$]*["'])(?!Sync)
    """,
    re.VERBOSE,
)

_CHANGES_FOLDER = re.compile(
    r"rmtree|chdir|\brm(?:Sync)?\b|rm_r|rename|move|\bmv\b|glob|listdir|readdir|iterdir|walk|scandir|\bDir\b"
    r"|\bcopy(?:2|tree)?\b|\bcp(?:Sync|_r)?\b"
)

_CODE_STRING = re.compile(r"""(?=(["'`])([^"'`\n]{1,256})\1)""")
"""A string in code, and also what is between two strings: which quote begins one is not known."""

_MAX_CODE = 10_000
"""Characters of code that patterns are searched in; longer code counts as code that changes any file."""


_LOCAL_FOLDER = re.compile(r"(?:^|[\s:|+.])[lt]?cd!?\s+\S", re.MULTILINE)
"""A command of an editor that changes the folder of later names."""


def find_sed_outputs(words: Words, bodies: Iterable[str] = ()) -> list[str]:
    """Return the files that the scripts of ``sed`` write with the command or the flag ``w``."""
    if not words or base_name(words[0].placeholder_text) not in {"sed", "gsed"}:
        return []
    texts = (*(word.placeholder_text for word in find_codes(words)), *bodies)
    return [found for text in texts if len(text) <= _MAX_CODE for found in sed_output_files(text)]


def changes_unknown_file(words: Words, bodies: Iterable[str]) -> bool:
    """Return whether the code of an interpreter may change a file by a name that it computes."""
    name = base_name(words[0].placeholder_text) if words else ""
    if name in {"sed", "gsed"}:
        return any(PLACEHOLDER in output for output in find_sed_outputs(words, bodies))
    if not is_interpreter(words):
        return False
    texts = [*(word.placeholder_text for word in find_codes(words)), *bodies]
    if name.endswith("awk"):
        return any(len(text) > _MAX_CODE or may_awk_write_computed_name(text) for text in texts)
    if takes_commands(words):
        return any(_LOCAL_FOLDER.search(text) for text in texts)
    return any(len(text) > _MAX_CODE or _CHANGES_COMPUTED_NAME.search(text) is not None for text in texts)


def find_changed_folders(words: Words, bodies: Iterable[str]) -> Iterator[str]:
    """Yield the constants in the code of an interpreter that may name folders in which it changes files."""
    for text in _code_texts(words, bodies):
        if len(text) <= _MAX_CODE and _CHANGES_FOLDER.search(text):
            yield from dict.fromkeys(found[2] for found in _CODE_STRING.finditer(text))


def _code_texts(words: Words, bodies: Iterable[str]) -> list[str]:
    if not is_interpreter(words) or takes_commands(words) or base_name(words[0].placeholder_text) in {"sed", "gsed"}:
        return []
    return [*(word.placeholder_text for word in words[1:]), *bodies]
