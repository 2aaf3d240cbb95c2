"""The files that a word may name when its value is not known beforehand: patterns, variables, output of commands."""

import os
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import translate
from functools import partial
from glob import iglob
from itertools import islice, product
from typing import NamedTuple, TypeAlias

from vaka.policy.bash.file_operands import PathFilter, RecursiveOperand, accept_all, any_file
from vaka.policy.bash.parse.hidden_programs import find_code_operands, reads_unknown_file
from vaka.policy.bash.parse.syntax import PLACEHOLDER, ShellScript, Word, WordExpansion, Words, literal_word
from vaka.policy.bash.parse.variables import names_set_by_read
from vaka.policy.bash.parse.wrappers import base_name
from vaka.policy.bash.programs import read_set
from vaka.policy.bash.recursive_operands import (
    find_file_operands,
    find_found_files,
    find_recursive_operands,
    list_visible_files,
    reads_file_list,
    removes_archived_files,
)
from vaka.policy.bash.written_operands import (
    ChangedFolder,
    Placement,
    changes_unknown_file,
    find_changed_folder,
    find_changed_folders,
    find_output,
    find_placements,
    find_sed_outputs,
    find_written_words,
)
from vaka.policy.decision import FolderUse, NameMatcher, Scope
from vaka.policy.git_index import find_repository

_MAX_ALTERNATIVES = 64
_MAX_DEPTH = 4


class _Glob(NamedTuple):
    pattern: str


_Piece: TypeAlias = str | _Glob | None
"""A known text, a pattern for names, or ``None`` for any text."""

_Value: TypeAlias = tuple[_Piece, ...]

_NAMED = re.compile(r"([A-Za-z_]\w*)(?:\[[^\]]*\])?(?::?-([^ ]*))?")

_FOLDER_NAMES = {"HOME": "~", "~": "~", "PWD": ".", "~+": ".", "OLDPWD": "", "~-": ""}  # nosec B105  # folders
"""Names of folders, with the folder; ``""`` is the folder before a ``cd``, for example where the script starts."""

_FIELD_SIGNS = re.compile(r"[\s,:;|/]+")
"""Where bash may split a value if a script sets ``IFS``."""

_CHANGE_OF_FOLDER = re.compile(r"\b(?:cd|pushd|popd|chdir)\b")

_POSITIONAL = re.compile(r"[0-9@*]+")

_FINDERS = frozenset({"find", "gfind", "bfs", "fd", "fdfind"})
"""Programs that run a command with what they find: the folders are judged as operands."""

_INPUT_READERS = frozenset({"xargs", "gxargs", "parallel"})
"""Programs that run a command with the lines of their input."""

_REMOVING_ARCHIVERS = frozenset({"zip", "tar", "gtar", "bsdtar"})
"""Programs that remove, with an option, what they put into an archive."""

_FILTERS, _LISTERS = read_set("line_filters"), read_set("file_listers")


class PossibleFiles:
    """Finds the files that the commands of one script may use."""

    def __init__(self, script: ShellScript) -> None:
        self._script = script
        self._known_values: dict[str, list[_Value]] = {}
        self._dotglob = "dotglob" in script.text
        self._flags = re.IGNORECASE if "nocaseglob" in script.text else re.NOFLAG

    def find(
        self, index: int, files: Sequence[Word] | None, folders: Sequence[str] | None
    ) -> Iterator[RecursiveOperand]:
        """Yield the files that a command may print, copy or change.

        ``files`` are the words that it reads, if known; ``folders`` those in which it may run, relative to the first.
        """
        simple = self._script.commands[index]
        bodies = [*(item.body for item in simple.redirections if item.body is not None), *simple.codes]
        exists = self._exists if folders == ("",) else _is_unknown_name
        for number, words in enumerate(simple.forms):
            yield from find_recursive_operands(words, exists)
            yield from self._find_in_form(words, bodies, index, files if number == 0 else None)
            yield from self._find_changes(words, bodies, index)
            if folders is None:
                yield from _find_known_names(words, files if number == 0 else None)
        for redirection in simple.redirections:
            if redirection.operator == "<" or redirection.writes:
                yield from self._files_of(redirection.target, index, writes=redirection.writes)

    def _exists(self, path: str) -> bool:
        folder = self._script.start_folder
        return bool(folder) and os.path.lexists(os.path.join(folder, path))  # noqa: PTH118  # text of a command

    def _find_in_form(
        self, words: Words, bodies: list[str], index: int, files: Sequence[Word] | None
    ) -> Iterator[RecursiveOperand]:
        name = base_name(words[0].guess or "") if words else ""
        if name not in _LISTERS:
            named = files if files is not None else [*find_file_operands(words), *find_code_operands(words)]
            for word in named:
                yield from self._files_of(word, index)
        if reads_file_list(words):
            listed = self._files_of_input(index)
            yield from listed if listed is not None else [any_file(f"the list of files of {name}")]
            if removes_archived_files(words):
                removed = listed if listed is not None else [any_file(f"the list of files of {name}")]
                yield from (one._replace(use=one.use._replace(writes=True)) for one in removed)
        if reads_unknown_file(words, bodies) or (name == "curl" and any(map(_may_name_files, words))):
            yield any_file(f"the code of {name}" if name != "curl" else "a pattern of curl")
        for operand in find_recursive_operands(words, _is_unknown_name):
            if operand.folder.path is None:
                for one in self._files_of(operand.folder, index, recursive=True):
                    yield _narrow(one, operand.use)
                    if one.use.scope == "path":  # it may be a folder
                        yield _narrow(one._replace(use=one.use._replace(scope="folder")), operand.use)

    # ---------------------------------------------------------------------------------------- changes

    def _find_changes(self, words: Words, bodies: list[str], index: int) -> Iterator[RecursiveOperand]:
        name = base_name(words[0].guess or "") if words else ""
        for word in (*find_written_words(words), *find_code_operands(words)):
            yield from self._files_of(word, index, writes=True)
            if name in _REMOVING_ARCHIVERS and word.path is not None and not word.path.strip("./"):
                yield RecursiveOperand(word, FolderUse(accept_all, writes=True, word=f"{name} {word.source}"))
        for output in filter(None, (find_output(words), *find_sed_outputs(words, bodies))):
            use = FolderUse(accept_all, writes=True, certain=True, scope="path", word=output)
            yield RecursiveOperand(literal_word(output), use)
        for placement in find_placements(words):
            yield from self._find_placed(placement, index, contents=name not in {"ln", "gln"})
        if reads_unknown_file(words, bodies) or changes_unknown_file(words, bodies):
            yield any_file(f"the code of {name}", writes=True)
        for folder in find_changed_folders(words, bodies):
            use = FolderUse(accept_all, writes=True, only_changes=True, word=f"the code of {name}")
            yield RecursiveOperand(literal_word(folder), use)
        changed = find_changed_folder(words)
        if changed is not None:
            yield from self._find_members(changed, name)

    def _find_members(self, changed: ChangedFolder, name: str) -> Iterator[RecursiveOperand]:
        folder = changed.folder.path if changed.folder.path is not None else os.sep
        word = f"{name} {changed.folder.source}"
        use = FolderUse(accept_all, writes=True, only_changes=True, scope="below", word=word)
        known = [word.value for word in changed.members if word.value and not set("*?[") & {*word.value}]
        if not known or len(known) < len(changed.members):
            yield RecursiveOperand(literal_word(folder), use)
            return
        for member in known:
            scope: Scope = "path" if "." in member.rpartition("/")[2] else "below"
            yield RecursiveOperand(literal_word(f"{folder}/{member}"), use._replace(scope=scope, word=member))

    def _find_placed(self, placement: Placement, index: int, *, contents: bool) -> Iterator[RecursiveOperand]:
        """Yield the names that files get in the folder that they are put into."""
        source, folder = placement.source, placement.folder
        name = posixpath.basename((source.path or "").rstrip("/"))
        named = name not in {"", ".", ".."}
        if folder.path is None:
            yield from self._find_placed_in(placement, name if named else "", index, contents=contents)
            return
        if source.path is None:
            for found in self._files_of(source, index, recursive=contents):
                yield _place(found, folder)
            if placement.is_unwritten:
                use = FolderUse(accept_all, writes=True, certain=True, scope="path", word=folder.source)
                yield RecursiveOperand(literal_word(f"{folder.path.rstrip('/')}/*"), use)
        elif named:
            joined = f"{folder.path.rstrip('/') or '/'}/{name}"
            is_folder = _is_in_folder if placement.whole and "mkdir" not in self._script.text else accept_all
            use = FolderUse(is_folder, writes=True, certain=True, scope="path", word=f"{source.source} {folder.source}")
            yield RecursiveOperand(literal_word(joined), use)
            if contents:
                yield from self._find_contents(source, literal_word(joined))
        if contents and (placement.whole or not named):
            yield from self._find_contents(source, folder)

    def _find_placed_in(
        self, placement: Placement, name: str, index: int, *, contents: bool
    ) -> Iterator[RecursiveOperand]:
        """Yield the names that files get in a folder that an expansion names."""
        folder = placement.folder
        if name:
            yield from self._files_of(_join_name(folder, name), index, writes=True)
        known = self._folders_of(folder)
        for one in known or ():
            found = placement._replace(folder=one, is_unwritten=True)
            yield from self._find_placed(found, index, contents=contents)
        if known is None or self._may_be_any_folder(folder, index):
            yield any_file(folder.source, writes=True)

    def find_entered_folders(self, word: Word, folders: Sequence[str] | None) -> list[str] | None:
        """Return the folders that ``cd`` with this operand may enter, ``None`` if they are not known."""
        if "cdable_vars" in self._script.text or "CDPATH" in self._script.text:
            return None
        if word.path is not None or word.guess is not None:
            return [word.path if word.path is not None else word.guess or ""]
        values = self._values_of(word, 0)
        if folders != ("",) or not word.pieces or any(None in value for value in values):
            return None
        found = self._folders_of(word, moved=False)
        return [one.value or "" for one in found] if found else None

    def find_written_matches(self, index: int, folders: Sequence[str] | None) -> Iterator[str]:
        """Yield the existing paths that patterns match in words which name what a command changes."""
        simple, moved = self._script.commands[index], folders != ("",)
        words = [word for form in simple.forms for word in find_written_words(form)]
        words += [item.target for item in simple.redirections if item.writes]
        for word in filter(_has_pattern, words):
            yield from (one.value or "" for one in self._folders_of(word, moved=moved) or ())
        for source, folder, *_ in (one for form in simple.forms for one in find_placements(form)):
            name = posixpath.basename(source.path or "")
            known = self._folders_of(folder, moved=moved) if name and _has_pattern(folder) else None
            yield from (f"{one.value}/{name}" for one in known or ())

    def _folders_of(self, word: Word, *, moved: bool = True) -> list[Word] | None:
        """Return the folders that a word may name, for a pattern those that exist; ``None`` if these are not known."""
        found: list[str] = []
        for value in dict.fromkeys(self._values_of(word, 0)):
            if all(map(_is_text, value)):
                found.append("".join(map(str, value)))
            elif None not in value:
                start = self._script.start_folder
                if not start or (moved and _CHANGE_OF_FOLDER.search(self._script.text)):
                    return None
                pattern = "".join(
                    piece.pattern if isinstance(piece, _Glob) else _escape(piece or "") for piece in value
                )
                names = iglob(pattern, root_dir=start)  # noqa: PTH207  # a text of a command
                found += islice(names, _MAX_ALTERNATIVES + 1)
        return [literal_word(name) for name in found] if len(found) <= _MAX_ALTERNATIVES else None

    def _may_be_any_folder(self, folder: Word, index: int) -> bool:
        """Return whether a word, whose value is not known, may name any folder."""
        if len(folder.pieces) == 1 and isinstance(folder.pieces[0], WordExpansion):
            produced = self._produced_files(folder.pieces[0], index)
            if produced is not None:
                return bool(produced)
        ends = (value[-1] for value in self._values_of(folder, 0) if None in value)
        return any(end is None or (isinstance(end, str) and not end.strip("/")) for end in ends)

    def _find_contents(self, source: Word, folder: Word) -> Iterator[RecursiveOperand]:
        if source.path is not None:
            use = FolderUse(accept_all, writes=True, word=f"{source.source} {folder.source}")
            yield RecursiveOperand(source, use, folder)

    # ---------------------------------------------------------------------------------------- words

    def _files_of(
        self, word: Word, index: int, *, recursive: bool = False, writes: bool = False
    ) -> Iterator[RecursiveOperand]:
        if word.path is not None or not word.pieces:
            return
        for operand in self._list_files_of(word, index, recursive=recursive):
            if writes:
                unknown = operand.use.scope == "anywhere"
                operand = operand._replace(use=operand.use._replace(writes=True, only_changes=unknown))
            yield operand

    def _list_files_of(self, word: Word, index: int, *, recursive: bool) -> Iterator[RecursiveOperand]:
        first = word.pieces[0]
        produced = self._produced_files(first, index) if isinstance(first, WordExpansion) else None
        if produced is not None and len(word.pieces) == 1:
            yield from produced
            return
        inside = "".join(piece for piece in word.pieces[1:2] if isinstance(piece, str)).startswith("/")
        for operand in produced or () if inside else ():  # a name in a folder that a command lists
            yield operand._replace(use=operand.use._replace(scope="below", certain=False, parts=()))
        for value in dict.fromkeys(self._values_of(word, 0)):
            yield self._build_operand(value, word, recursive=recursive)

    def _build_operand(self, value: _Value, word: Word, *, recursive: bool) -> RecursiveOperand:
        if None in value:
            return _build_unknown(value[len(value) - value[::-1].index(None) :], word)
        first = next((position for position, piece in enumerate(value) if isinstance(piece, _Glob)), len(value))
        head, slash, rest = "".join(str(piece) for piece in value[:first]).rpartition("/")
        tail = (rest, *value[first:])
        pattern = "".join(piece.pattern if isinstance(piece, _Glob) else _escape(piece or "") for piece in tail)
        parts = [part for part in pattern.split("/") if part not in {"", "."}]
        if ".." in parts and len(parts) > 1:
            return _build_unknown(tuple(f"/{part}" for part in parts[len(parts) - parts[::-1].index("..") :]), word)
        names = tuple(map(self._compile_name, parts))
        scope: Scope = "folder" if names or recursive else "path"
        use = FolderUse(accept_all, certain=not recursive, scope=scope, parts=names, word=word.source)
        return RecursiveOperand(literal_word((head or slash) if slash else "."), use)

    def _compile_name(self, part: str) -> NameMatcher:
        if part == "**":
            return None
        if not set(part) & set("*?[") and not self._flags:
            return part
        pattern = re.compile(translate(part), self._flags)
        hidden = self._dotglob or part.startswith((".", "[.]"))
        return lambda name: pattern.match(name) is not None and (hidden or not name.startswith("."))

    # ---------------------------------------------------------------------------------------- values

    def _values_of(self, word: Word, depth: int) -> list[_Value]:
        """Return the values that a word may have."""
        if word.value is not None:
            return [(word.value,)]
        if depth > _MAX_DEPTH:
            return [(None,)]
        choices: list[list[_Value]] = [
            [(piece,)] if isinstance(piece, str) else self._values_of_expansion(piece, depth) for piece in word.pieces
        ]
        count = 1
        for choice in choices:
            count *= max(len(choice), 1)
        if count > _MAX_ALTERNATIVES:
            return [(None,)]
        return [tuple(piece for value in values for piece in value) for values in product(*choices)]

    def _values_of_expansion(self, expansion: WordExpansion, depth: int) -> list[_Value]:
        if expansion.guess is not None:
            return [(expansion.guess if expansion.kind != "input" else None,)]
        if expansion.kind == "glob":
            return [(_Glob(expansion.name),)]
        if expansion.numeric or expansion.plain_value:
            return [(_Glob("[0-9]*"),)]
        if expansion.name in _FOLDER_NAMES:
            folder = _FOLDER_NAMES[expansion.name]
            return [(folder,)] if folder else [(None,), (self._script.start_folder or None,)]
        if expansion.kind == "parameter":
            values = self._values_of_parameter(expansion.name, depth)
            return self._split_values(values) if expansion.may_split else values
        if expansion.kind == "command" and len(expansion.producers) == 1:
            return self._values_of_command(expansion.producers[0], depth)
        return [] if expansion.kind == "process" else [(None,)]

    def _split_values(self, values: list[_Value]) -> list[_Value]:
        """Return some values, and the words that bash makes of them where they are not in quotes."""
        signs = _FIELD_SIGNS if "IFS" in self._script.text else None
        found: list[_Value] = []
        for value in values:
            text = "".join(map(str, value)) if all(map(_is_text, value)) else ""
            parts = [part for part in (signs.split(text) if signs else text.split()) if part]
            found += [value, *((part,) for part in parts if len(parts) > 1)]
        return found

    def _values_of_command(self, words: Words, depth: int) -> list[_Value]:
        """Return the values that a program prints which changes the text of a path."""
        name = base_name(words[0].guess or "") if words else ""
        if name == "mktemp":
            return [("/tmp/mktemp.XXXXXXXXXX",)]  # noqa: S108  # nosec B108  # a new name
        if name == "git" and [word.value for word in words[1:]] == ["rev-parse", "--show-toplevel"]:
            return [(find_repository(self._script.start_folder) or None,)] if self._script.start_folder else [(None,)]
        change = _PATH_PROGRAMS.get(name)
        operands = [word for word in words[1:] if not word.prefix.startswith("-")]
        if change is None or len(operands) != 1:
            return [(None,)]
        values = self._values_of(operands[0], depth + 1)
        return [(change("".join(map(str, value))),) if all(map(_is_text, value)) else (None,) for value in values]

    def _values_of_parameter(self, name: str, depth: int) -> list[_Value]:
        if name not in self._known_values:
            self._known_values[name] = [(None,)]  # a variable may be part of its own value
            values = self._assigned_values_of(name, depth)
            self._known_values[name] = values if len(values) <= _MAX_ALTERNATIVES else [(None,)]
        return self._known_values[name]

    def _assigned_values_of(self, name: str, depth: int) -> list[_Value]:
        script = self._script
        found = _NAMED.fullmatch(name)
        words: Sequence[Word] = ()
        if found is not None and found[1] not in script.input_variables:
            words = script.variables.get(found[1], ())
        elif _POSITIONAL.fullmatch(name) and any(command.calls_function for command in script.commands):
            words = script.assigned_values
        default = [(found[2],)] if found is not None and found[2] else []
        if not words:
            return [*default, (None,)]
        return [*default, *(value for word in words for value in self._values_of(word, depth + 1))]

    # ---------------------------------------------------------------------------------------- output of commands

    def _produced_files(self, expansion: WordExpansion, index: int) -> list[RecursiveOperand] | None:
        """Return the files that an expansion names if it is a list of files, as of ``find``; else ``None``."""
        if expansion.kind == "input":
            programs = {base_name(words[0].guess or "") for words in self._script.commands[index].forms if words}
            finds = bool(programs & _FINDERS) and not programs & _INPUT_READERS
            return [] if finds else self._files_of_input(index)
        if expansion.name == PLACEHOLDER[1:]:
            return self._files_of_arguments(index)
        if expansion.kind == "command":
            return self._listed_files(expansion.producers)
        found = _NAMED.fullmatch(expansion.name) if expansion.kind == "parameter" else None
        if found is None or found[2]:
            return None
        if found[1] in self._script.input_variables:
            return self._files_of_variable(found[1])
        words = self._script.variables.get(found[1], ())
        if len(words) == 1 and len(words[0].pieces) == 1 and isinstance(words[0].pieces[0], WordExpansion):
            value = words[0].pieces[0]
            return self._listed_files(value.producers) if value.kind == "command" else None
        return None

    def _files_of_variable(self, name: str) -> list[RecursiveOperand] | None:
        """Return the files that the input lists from which a variable is read."""
        commands = enumerate(self._script.commands)
        found = [self._files_of_input(index) for index, command in commands if name in names_set_by_read(command)]
        known = [listed for listed in found if listed is not None]
        return [one for listed in known for one in listed] if known and len(known) == len(found) else None

    def _files_of_arguments(self, index: int) -> list[RecursiveOperand] | None:
        """Return the files that ``parallel`` or ``xargs`` adds to a script in its arguments."""
        while index and self._script.commands[index].origin:
            index -= 1
        words = self._script.commands[index].words
        start = next((number for number, word in enumerate(words) if word.value == ":::"), len(words))
        if start == len(words):
            return self._files_of_input(index)
        return [found for word in words[start + 1 :] for found in self._files_of(word, index)]

    def _files_of_input(self, index: int) -> list[RecursiveOperand] | None:
        """Return the files that the input of a command lists: the output of the part before it in a pipeline."""
        for parts in self._script.pipelines:
            for number, part in enumerate(parts):
                if index in part and number:
                    before = [self._script.commands[at] for piece in parts[:number] for at in piece]
                    whole = all(len(piece) == 1 for piece in parts[:number])
                    return self._listed_files(tuple(command.words for command in before)) if whole else None
        targets = [item.target for command in self._script.commands for item in command.redirections]
        producers = [one.producers for target in targets for one in target.expansions if one.kind == "process"]
        return self._listed_files(producers[0]) if len(producers) == 1 else None

    def _listed_files(self, producers: Sequence[Words]) -> list[RecursiveOperand] | None:
        """Return the files that a pipeline lists, ``None`` when they are unknown."""
        filters = list[PathFilter]()
        for words in reversed(producers):
            name = base_name(words[0].guess or "") if words else ""
            if name in _FILTERS or (name in {"grep", "egrep", "fgrep"} and not find_file_operands(words)):
                filters += _line_filters_of(name, words)
                continue
            listed = self._list_files(name, words)
            passing = FolderUse(partial(_passes, filters))
            return [_narrow(operand, passing) for operand in listed] if listed is not None else None
        return None

    def _list_files(self, name: str, words: Words) -> list[RecursiveOperand] | None:
        """Return the files that a command lists, ``None`` for a command that prints something else."""
        values = [word.placeholder_text for word in words[1:]]
        operands = [word for word in words[1:] if not word.prefix.startswith("-")]
        if name in {"find", "gfind", "bfs"}:
            return [*find_found_files(words[1:])]
        if name == "ls":
            hidden = any(re.match(r"-\w*[aA]|--a", value) for value in values)
            use = FolderUse(accept_all if hidden else _is_visible)
            named = [found for word in operands for found in self._files_of(word, 0)]
            return [*named, *(RecursiveOperand(word, use) for word in operands or [literal_word(".")] if word.path)]
        if name in {"fd", "fdfind"} or (name == "rg" and "--files" in values):
            return [list_visible_files(words)]
        if name == "git" and ("ls-files" in values or "--name-only" in values) and not {"-o", "--others"} & {*values}:
            return [RecursiveOperand(literal_word("."), FolderUse(accept_all, scope="tracked"))]
        listing = any(re.fullmatch(r"-\w*l\w*|--files-with(?:out)?-match(?:es)?", value) for value in values)
        if listing and name in {"grep", "egrep", "fgrep", "rg", "ag", "ack"}:
            return self._list_searched_files(words)
        if name == "mktemp":
            return []  # a new file
        return self._list_printed_names(words) if name in {"echo", "printf"} else None

    def _list_searched_files(self, words: Words) -> list[RecursiveOperand]:
        folders = [one for one in find_recursive_operands(words, _is_unknown_name) if one.folder.path is not None]
        if folders:
            return folders
        named = [_name_path(word.value) for word in find_file_operands(words) if word.value is not None]
        return [*named, *(found for word in find_file_operands(words) for found in self._files_of(word, 0))]

    def _list_printed_names(self, words: Words) -> list[RecursiveOperand] | None:
        """Return the files whose names ``echo``, or ``printf`` with a plain format, prints."""
        texts = [word for word in words[1:] if not re.fullmatch(r"-[neE]+|--", word.placeholder_text)]
        if base_name(words[0].guess or "") == "printf" and texts and "%" in texts[0].placeholder_text:
            if not _PLAIN_FORMAT.fullmatch(texts[0].placeholder_text):
                return None
            texts = texts[1:]
        known = [_LINE_END.sub(" ", word.value) for word in texts if word.value is not None]
        if any({*"\\%\"'"} & {*text} for text in known):  # xargs removes quotes
            return None
        names = [_name_path(name) for text in known for name in text.split()]
        return [*names, *(found for word in texts if word.value is None for found in self._files_of(word, 0))]


def use_in_unknown_folder(path: str, use: FolderUse) -> FolderUse:
    """Return the use of a path below a folder that is not known."""
    if path.startswith(("/", "~")) or use.scope in {"anywhere", "object", "objects", "below"}:
        return use
    inside = f"/{posixpath.normpath(path)}/" if path.strip("./") else "/"
    only_changes = use.writes
    selects: PathFilter = lambda name: inside in f"/{name}/"  # noqa: E731
    return use._replace(selects=selects, scope="anywhere", parts=(), certain=False, only_changes=only_changes)


def _find_known_names(words: Words, files: Sequence[Word] | None) -> Iterator[RecursiveOperand]:
    """Yield the files that words name, for a command in a folder that is not known."""
    read = [(word, False) for word in (files if files is not None else find_file_operands(words))]
    for word, writes in (*read, *((word, True) for word in find_written_words(words))):
        if word.path is not None:
            yield RecursiveOperand(word, FolderUse(accept_all, writes=writes, scope="path", word=word.source))


def _may_name_files(word: Word) -> bool:
    """Return whether a word is the URL of local files with a pattern, which curl expands."""
    text = word.placeholder_text
    return text.lower().startswith("file:") and "[" in text


def _is_unknown_name(_path: str) -> bool:
    return False


_LINE_END = re.compile(r"\\n|\\0(?![0-7])")
"""The end of a name in the output of ``printf``."""

_PLAIN_FORMAT = re.compile(r"(?:%s(?:\\n|\\0|[ \n])*)+")


def _name_path(path: str) -> RecursiveOperand:
    return RecursiveOperand(literal_word(path), FolderUse(accept_all, scope="path", word=path))


def _is_in_folder(path: str) -> bool:
    return os.path.isdir(os.path.dirname(path))  # noqa: PTH112, PTH120  # a string


def _has_pattern(word: Word) -> bool:
    return "glob" in word.expansion_kinds


def _is_text(piece: _Piece) -> bool:
    return isinstance(piece, str)


_PATH_PROGRAMS: Mapping[str, Callable[[str], str]] = {
    "dirname": lambda path: posixpath.dirname(path.rstrip("/")) or ".",
    "basename": lambda path: posixpath.basename(path.rstrip("/")),
    "realpath": str,
    "readlink": str,
}
"""Programs that print a path, or a part of it."""


def _build_unknown(tail: _Value, word: Word) -> RecursiveOperand:
    """Return the operand for a name of which only the end is known."""
    pattern = "".join(piece.pattern if isinstance(piece, _Glob) else _escape(piece or "") for piece in tail)
    ends = re.compile(translate("*" + pattern))
    selects: PathFilter = lambda path: ends.match(path) is not None  # noqa: E731
    use = FolderUse(selects, scope="anywhere", word=word.source)
    return RecursiveOperand(literal_word("."), use)


def _join_name(folder: Word, name: str) -> Word:
    return Word(None, f"{folder.source}/{name}", (*folder.pieces, f"/{name}"))


def _place(operand: RecursiveOperand, folder: Word) -> RecursiveOperand:
    """Return an operand for the files under their names in another folder."""
    if operand.use.scope == "anywhere":
        selects: PathFilter = lambda path: "/" not in path  # noqa: E731
        direct = FolderUse(selects, writes=True, only_changes=True, word=operand.use.word)
        return RecursiveOperand(folder, direct)
    return RecursiveOperand(operand.folder, operand.use._replace(writes=True, certain=False), folder)


def _is_visible(path: str) -> bool:
    return not path.startswith(".")


def _escape(text: str) -> str:
    return re.sub(r"([*?\[])", r"[\1]", text)


def _narrow(operand: RecursiveOperand, use: FolderUse) -> RecursiveOperand:
    """Return an operand for the files that both uses select."""

    def selects(path: str) -> bool:
        return operand.use.selects(path) and use.selects(path)

    writes = operand.use.writes or use.writes
    only_changes = operand.use.only_changes or use.only_changes or (writes and operand.use.scope == "anywhere")
    narrowed = operand.use._replace(selects=selects, writes=writes, only_changes=only_changes, certain=False)
    return operand._replace(use=narrowed)


def _passes(filters: Sequence[PathFilter], path: str) -> bool:
    return all(accepts(path) for accepts in filters)


_SAFE_PATTERN = re.compile(r"[\w./\\|()$^ -]*")
"""Patterns without repetition: they take linear time."""


def _line_filters_of(name: str, words: Words) -> list[PathFilter]:
    """Return what a ``grep`` in a pipeline lets pass, if its pattern is simple."""
    values = [word.value or "*" for word in words[1:]]
    letters = "".join(value for value in values if re.fullmatch(r"-[vEiP]+", value))
    texts = [value for value in values if not re.fullmatch(r"-[vEiP]+", value)]
    if name not in {"grep", "egrep"} or len(texts) != 1 or not _SAFE_PATTERN.fullmatch(texts[0]):
        return []
    text = texts[0] if name == "egrep" or {"E", "P"} & {*letters} else _EXTENDED_SIGN.sub(_swap_backslash, texts[0])
    try:
        pattern = re.compile(text, re.IGNORECASE if "i" in letters else 0)
    except re.error:
        return []
    hides = "v" in letters
    return [lambda path: any((pattern.search(name) is None) == hides for name in (path, f"./{path}"))]


_EXTENDED_SIGN = re.compile(r"(\\?)([|()])")


def _swap_backslash(found: re.Match[str]) -> str:
    """Signs that are special with a backslash in a basic pattern are special without it in an extended one."""
    return ("" if found[1] else "\\") + found[2]
