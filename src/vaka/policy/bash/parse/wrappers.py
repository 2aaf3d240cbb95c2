"""Commands that run another command (sudo, env, xargs, find -exec), and the splitting of env -S."""

import re
from collections import deque
from collections.abc import Iterator, Mapping
from itertools import islice, pairwise
from typing import TypeAlias

import msgspec

from vaka.policy.bash.parse.syntax import INPUT_WORD, PLACEHOLDER, Piece, Word, WordExpansion, Words, literal_word
from vaka.policy.bash.parse.tar_options import TAR_PROGRAMS, spell_tar_options
from vaka.policy.bash.parse.words import ParseMismatch
from vaka.policy.bash.programs import name_set, read_table

_ENV_TOKEN = re.compile(
    r"(?P<blank>[ \t\n\v\f\r]+|\\_)|'(?P<single>(?:[^'\\]|\\.)*)'|\"(?P<double>(?:[^\"\\]|\\.)*)\""
    r"|\\(?P<escape>.)|(?P<comment>#)|(?P<plain>[^ \t\n\v\f\r'\"\\#]+|.)|(?P<end>$)",
    re.DOTALL,
)

_ENV_VARIABLE = re.compile(rf"\$\{{(\w+)\}}|{re.escape(PLACEHOLDER)}")

_ENV_ESCAPES = {"f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "_": " "}


def split_env_string(text: str) -> list[Word]:
    """Return the words that ``env -S`` makes of a text; the value of a variable is unknown."""
    words: list[Word] = []
    pieces: list[Piece] | None = None
    for token in _ENV_TOKEN.finditer(text):
        kind, part = token.lastgroup, token[0]
        stops = kind in ("blank", "end") or (kind == "comment" and pieces is None) or (kind, part) == ("escape", "\\c")
        if not stops:
            pieces = [] if pieces is None else pieces
            pieces.extend(_token_pieces(kind or "", token[kind or 0]))
            continue
        if pieces is not None:
            words.append(_build_word(pieces))
            pieces = None
        if kind != "blank":
            break
    return words


def _token_pieces(kind: str, text: str) -> Iterator[Piece]:
    if kind == "escape":
        yield _ENV_ESCAPES.get(text, text)
    elif kind == "single":
        yield re.sub(r"\\(['\\])", r"\1", text)
    elif kind == "double":
        for index, part in enumerate(re.split(r"\\(.)", text, flags=re.DOTALL)):
            yield from [_ENV_ESCAPES.get(part, part)] if index % 2 else _expand_variables(part)
    else:
        yield from _expand_variables(text)


def _expand_variables(text: str) -> Iterator[Piece]:
    index = 0
    for found in _ENV_VARIABLE.finditer(text):
        yield text[index : found.start()]
        yield WordExpansion("parameter", found[1] or "")
        index = found.end()
    yield text[index:]


def _build_word(pieces: list[Piece]) -> Word:
    source = "".join(piece if isinstance(piece, str) else f"${{{piece.name}}}" for piece in pieces)
    known = all(isinstance(piece, str) for piece in pieces)
    return literal_word(source) if known else Word(None, source, tuple(piece for piece in pieces if piece))


class Wrapper(msgspec.Struct, frozen=True):
    """How to find the wrapped command: the options, and the words before it."""

    flags: str = ""
    """Short options without a value."""
    valued: str = ""
    """Short options with a value."""
    long_valued: str = ""
    """Long options whose value is the next word, separated by blanks."""
    before: int = 0
    """The number of words between the options and the command."""
    assigns: bool = False
    """Whether ``NAME=value`` may precede the command."""
    queries: str = ""
    """Options that print something instead of running the command."""
    numbers: bool = False
    """Whether ``-5`` is an option."""
    subcommand: tuple[str, ...] = ()
    """The subcommands that wrap a command; by default it always does."""
    appends: bool = False
    """Whether it appends words to the command."""
    splits: bool = False
    """Whether the value of ``-S`` is split into words."""
    optional: bool = False
    """Whether the words before the command may be missing."""


WRAPPERS = {name: msgspec.convert(entry, Wrapper) for name, entry in read_table("wrappers").items()}
"""Wrappers that deny and ask rules see through."""

_TRANSPARENT_WRAPPERS: Mapping[str, Mapping[str, int]] = read_table("transparent")
"""Wrappers that allow rules see through, with the number of words of each option."""

EXACT_ONLY_WRAPPERS = frozenset({"watch", "setsid", "ionice", "flock"})
"""Wrappers that an allow rule with a wildcard does not match."""

REMOTE_RUNNERS = frozenset({"ssh", "docker", "docker-compose", "podman", "nerdctl", "kubectl", "oc"})
"""Programs that run a command on another machine or in a container: only deny and ask rules see it."""

_SANDBOX_RUNNERS = frozenset({"bwrap", "firejail"})

_DYNAMIC_LINKER = re.compile(r"(?:ld|ld-linux|ld-musl|ld64)(?:-[\w-]+)?\.so(?:\.\d+)*")

_COPYING_PROGRAMS = frozenset({"cp", "ln", "mv", "install", "rsync", "gcp", "gln"})

_PROGRAM = re.compile(r"/s?bin/[^/]+$")

FIND_EXEC_ACTIONS = frozenset({"-exec", "-execdir", "-ok", "-okdir"})

FD_EXEC_OPTIONS = frozenset({"-x", "--exec", "-X", "--exec-batch"})

_FD_ATTACHED = re.compile(
    rf"(--exec(?:-batch)?)=(.*)|-[^-{read_table('checked')['fd']['valued']}xX]*([xX])=?(.*)", re.DOTALL
)

_FOUND_PATH = WordExpansion("input", guess="{}")

_MAX_COMMANDS = 64


def base_name(value: str) -> str:
    return value.rsplit("/", 1)[-1]


def find_wrapped_commands(words: Words) -> tuple[Words, ...]:
    """Return every command that this one may run, for each interpretation of its options.

    Raises ``ParseMismatch`` when there are too many.
    """
    if not words:
        return ()
    commands: list[Words] = []
    by_length: dict[int, list[Words]] = {}  # comparing long commands is slow, and few have the same length
    pending = [words]
    while pending:
        for command in _directly_wrapped(pending.pop()):
            if command and command not in by_length.setdefault(len(command), []):
                by_length[len(command)].append(command)
                commands.append(command)
                pending.append(command)
                if len(commands) > _MAX_COMMANDS:
                    raise ParseMismatch("it runs commands that run commands, too many times")
    return tuple(commands)


def _directly_wrapped(words: Words) -> Iterator[Words]:
    name = base_name(words[0].guess or "") if words else ""
    if name in {"find", "gfind", "bfs"}:
        yield from _exec_commands(words, FIND_EXEC_ACTIONS)
    elif name in {"fd", "fdfind"}:
        yield from _exec_commands(split_fd_options(words), FD_EXEC_OPTIONS)
    elif (wrapper := WRAPPERS.get(name)) is not None:
        yield from _WrapperOptions(words, wrapper).iter_commands()
    elif name == "git" and len(words) > 1:
        yield from _git_commands(words)
    elif name in _SANDBOX_RUNNERS or _DYNAMIC_LINKER.fullmatch(name):
        yield from _commands_from(words, 1)
    elif name == "capsh":
        yield from (
            (literal_word("bash"), *words[i + 1 :]) for i, word in enumerate(words) if word.value in {"--", "+"}
        )
    elif name in _COPYING_PROGRAMS:  # the copy or link runs under another name
        yield from ((literal_word(base_name(word.guess or "")),) for word in words if _PROGRAM.search(word.guess or ""))
    else:
        yield from _other_commands(name, words)


def _other_commands(name: str, words: Words) -> Iterator[Words]:
    if name in TAR_PROGRAMS:
        plain = spell_tar_options(words)
        yield from [plain] if plain != words else []
    elif name == "hash":
        yield from (words[index + 1 :] for index, word in enumerate(words) if word.value == "-p")
    elif name in REMOTE_RUNNERS and name != "ssh":
        yield from _container_commands(words)


def find_assigned_names(words: Words) -> list[str]:
    """Return the variables that ``env`` and ``sudo`` set for the command."""
    wrapper = WRAPPERS.get(base_name(words[0].guess or "")) if words else None
    if wrapper is None or not wrapper.assigns:
        return []
    options = _WrapperOptions(words, wrapper)
    deque(options.iter_commands(), maxlen=0)
    return options.assigned_names


def _git_commands(words: Words) -> Iterator[Words]:
    for index, word in enumerate(words):
        if "grep" in {one.value for one in words[:index]} and (found := _GREP_PAGER.fullmatch(word.placeholder_text)):
            yield (*map(literal_word, found[1].split()), INPUT_WORD)
        if word.value in {"bisect", "rebase", "submodule"}:
            for later in range(index + 1, len(words)):
                if words[later].value in {"run", "foreach", "--exec", "-x"}:
                    yield words[later + 1 :]


_GREP_PAGER = re.compile(r"(?:-O|--op[a-z-]*=)(.+)", re.DOTALL)
"""The program that ``git grep`` runs with the files that it finds."""


def _container_commands(words: Words) -> Iterator[Words]:
    """Yield what ``docker run`` and ``docker exec`` run: the words after the name of an image or a container."""
    start = next((index for index, word in enumerate(words) if word.value in {"run", "exec", "debug"}), len(words))
    yield from _commands_from(words, start + 2)


def _commands_from(words: Words, start: int) -> Iterator[Words]:
    """Yield the words from each position on: which options take a value is not known."""
    starts = (index for index in range(start, len(words)) if re.fullmatch(r"[\w./+]+", words[index].value or ""))
    yield from (words[index:] for index in islice(starts, _MAX_COMMANDS // 2))


def _exec_commands(words: Words, actions: frozenset[str]) -> Iterator[Words]:
    index = 1
    while index < len(words):
        value = words[index].value or ""
        if value in actions or value.partition("=")[0] in actions:
            end = index + 1
            while end < len(words) and words[end].value not in {";", "+"}:
                end += 1
            yield tuple(map(_insert_found_path, words[index + 1 : end]))
            index = end
        index += 1


def split_fd_options(words: Words) -> Words:
    """Return a command of ``fd`` whose option to run a program is a word of its own: ``-Hxrm`` becomes ``-x rm``."""
    for index, word in enumerate(words):
        value = word.guess or ""
        if value in FD_EXEC_OPTIONS:
            return words
        if found := _FD_ATTACHED.fullmatch(value):
            option, attached = found[1] or f"-{found[3]}", found[2] or found[4]
            command = (literal_word(attached),) if attached else ()
            return (*words[:index], literal_word(option), *command, *words[index + 1 :])
    return words


def _insert_found_path(word: Word) -> Word:
    """Return a word in which ``find`` replaces ``{}`` by the path it found."""
    if word.value is None or "{" not in word.value or "}" not in word.value:
        return word
    before, _, after = word.value.partition("{}")
    return Word(None, word.source, tuple(piece for piece in (before, _FOUND_PATH, after) if piece))


_Position: TypeAlias = tuple[int, int]
"""The index of a word, and the number of words to skip before the command."""


def _find_replaced_text(words: Words) -> str:
    """Return the text that ``xargs -I`` replaces by its input, a NUL without this option."""
    for word, after in pairwise((*words[1:], INPUT_WORD)):
        if found := _REPLACE_OPTION.fullmatch(word.value or ""):
            return found[2] or (after.value or "{}" if found[1] in {"-I", "-J"} else "{}")
    return "\0"


_REPLACE_OPTION = re.compile(r"(-[IJi]|--replace(?:-str)?)=?(.*)", re.DOTALL)


class _WrapperOptions:
    """Walks over a wrapper's options; both interpretations of an unknown option are tried."""

    def __init__(self, words: Words, wrapper: Wrapper) -> None:
        self.words = words
        self.wrapper = wrapper
        self.assigned_names: list[str] = []
        """The variables that it sets for the command, after ``iter_commands``."""
        self._replaced = _find_replaced_text(words) if wrapper.appends else "\0"
        self._split_at = 0
        """Where the words of ``env -S`` begin."""

    def iter_commands(self) -> Iterator[Words]:
        wrapper, start = self.wrapper, 1
        if wrapper.subcommand:
            while start < len(self.words) and self.words[start].value not in wrapper.subcommand:
                start += 1
            start += 1
        pending, visited = [(start, wrapper.before)], set[_Position]()
        if wrapper.optional:
            pending.append((start, 0))
        while pending:
            position = pending.pop()
            if position in visited or position[0] >= len(self.words):
                continue
            visited.add(position)
            following, is_command = self._next_positions(*position)
            pending += following
            if is_command:
                rest = tuple(map(self._insert_input, self.words[position[0] :]))
                yield (*rest, INPUT_WORD) if wrapper.appends else rest
        if self._split_at:
            yield (self.words[0], *self.words[self._split_at :])

    def _insert_input(self, word: Word) -> Word:
        """Return a word in which ``xargs -I`` replaces a text by its input."""
        if self._replaced not in (word.value or ""):
            return word
        before, _, after = (word.value or "").partition(self._replaced)
        return Word(None, word.source, tuple(piece for piece in (before, _FOUND_PATH, after) if piece))

    def _next_positions(self, index: int, before: int) -> tuple[list[_Position], bool]:
        """Return the positions that may follow a word, and whether the word may be the command."""
        value = self.words[index].guess
        if value is None:
            if self.wrapper.assigns and "=" in (prefix := self.words[index].prefix):
                self.assigned_names.append(prefix.partition("=")[0])
            return [(index + 1, before), (index + 1, max(before - 1, 0))], before == 0
        if value == "--":
            return [(index + 1 + before, 0)], False
        if value.startswith("-") and value != "-":
            return self._positions_after_option(value, index, before), False
        name, equals, _ = value.partition("=")
        if self.wrapper.assigns and equals and name:  # env accepts any name
            self.assigned_names.append(name)
            return [(index + 1, before)], False
        if value == "-" and self.wrapper.splits:
            return [(index + 1, before)], False
        return ([(index + 1, before - 1)], False) if before else ([], True)

    def _positions_after_option(self, value: str, index: int, before: int) -> list[_Position]:
        flag, valued = (index + 1, before), (index + 2, before)  # after an option without, and with, a value
        wrapper = self.wrapper
        if wrapper.queries and any(letter in value for letter in wrapper.queries) and not value.startswith("--"):
            return []
        if wrapper.splits and (split := self._split_string_argument(value, index)) is not None:
            self.words = (*self.words[: index + 1], *split_env_string(split[0]), *self.words[split[1] :])
            self._split_at = index + 1
            return [flag]
        if value.startswith("--"):
            name, equals, _ = value[2:].partition("=")
            return [flag] if equals else [valued] if name in name_set(wrapper.long_valued) else [flag, valued]
        if wrapper.numbers and value[1:].lstrip("-").isdigit():
            return [flag]
        for position, letter in enumerate(value[1:], 2):
            if letter in wrapper.valued:
                return [valued] if position == len(value) else [flag]
            if letter not in wrapper.flags:
                return [flag, valued]
        return [flag]

    def _split_string_argument(self, value: str, index: int) -> tuple[str, int] | None:
        """Return the text that ``env -S`` splits, and the index of the words after it."""
        name, equals, text = value.partition("=")
        if len(name) > 2 and "--split-string".startswith(name):  # any unambiguous abbreviation
            if equals:
                return text, index + 1
        else:
            letters, found, rest = value[1:].partition("S")
            if not found or letters.strip("i0v"):
                return None
            if rest:
                return rest, index + 1
        return (self.words[index + 1].placeholder_text, index + 2) if index + 1 < len(self.words) else None


def strip_wrappers(words: Words) -> Words:
    """Return a command without transparent wrappers; unchanged when that is not certain."""
    while words and words[0].value is not None and _trusted_base_name(words[0].value) in _TRANSPARENT_WRAPPERS:
        rest = _strip_wrapper(words, _trusted_base_name(words[0].value))
        if not rest:
            return words
        words = rest
    return words


def _trusted_base_name(value: str) -> str:
    return base_name(value) if value.startswith(("/usr/bin/", "/bin/")) else value


_ATTACHED_VALUES = ("--kill-after=", "--signal=", "--adjustment=", "--input=", "--output=", "--error=")


def _strip_wrapper(words: Words, name: str) -> Words:
    options, index = _TRANSPARENT_WRAPPERS[name], 1
    while index < len(words):
        value = words[index].value
        if value is None or words[index].from_braces:
            return ()
        if not value.startswith("-") or value == "-":
            break
        if value == "--":
            index += 1
            break
        size = _option_width(name, value, options)
        if not size or any(word.value is None or word.from_braces for word in words[index : index + size]):
            return ()
        index += size
    if name == "timeout":
        if index >= len(words) or words[index].value is None:
            return ()
        index += 1
    return words[index:]


def _option_width(name: str, value: str, options: Mapping[str, int]) -> int:
    """Return the number of words of an option, 0 when it is unknown."""
    if value in options:
        return options[value]
    if value.startswith("--"):
        known = value.startswith(_ATTACHED_VALUES) and (value.partition("=")[0] in options or name == "stdbuf")
        return 1 if known else 0
    if name == "nice" and value[1:].lstrip("-").isdigit():
        return 1
    return 1 if options.get(value[:2]) == 2 and name in {"nice", "stdbuf", "timeout"} else 0
