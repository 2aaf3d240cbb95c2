"""The paths that a command may use, and the guard: dangers that no rule may allow silently."""

import os
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import pairwise, takewhile
from typing import TypeAlias

from vaka.core.types.tool import Verdict
from vaka.matching.sensitive_paths import holds_secrets, may_match_secrets
from vaka.policy.bash.machine import only_shows
from vaka.policy.bash.parse.hidden_programs import find_codes, is_interpreter, takes_commands
from vaka.policy.bash.parse.syntax import Redirection, SimpleCommand, Word, WordExpansion, Words, literal_word
from vaka.policy.bash.parse.wrappers import FD_EXEC_OPTIONS, FIND_EXEC_ACTIONS, base_name, split_fd_options
from vaka.policy.bash.programs import read_set, read_table
from vaka.policy.bash.script_checks import sed_input_files
from vaka.policy.bash.written_operands import find_access, find_written_words
from vaka.policy.decision import DecisionKind, Finding

PathCheck: TypeAlias = Callable[[str], Verdict]
"""The verdict on reading or writing a path: absolute, below ``~``, or relative to the start of the script."""

_STANDARD_STREAMS = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr"})

_NETWORK = re.compile(r"/dev/(?:tcp|udp)/")

_DESCRIPTOR = re.compile(r"\d*-?")

_WRITING_PROGRAMS, _READING_PROGRAMS = read_set("writing_programs"), read_set("reading_programs")
"""Programs that write to, or read, their operands."""

_READING_GIT_COMMANDS = frozenset(
    {"add", "commit", "diff", "log", "show", "blame", "status", "ls-files", "grep", "push"}
)
"""Subcommands of git that leave their operands as they are."""

_PROBE_NAMES = (
    ".env",
    ".env.local",
    ".env.development",
    ".env.production",
    ".env.test",
    "secrets.json",
    "secrets.yaml",
    "secrets.yml",
    "secret.key",
    "credentials.json",
    "credentials",
    "config.json",
    "settings.json",
    "key.pem",
    "cert.pem",
    "private.key",
    "server.key",
    "id_rsa",
    "id_ed25519",
    "x",
)
"""Names that a pattern is tried with, to see whether it may match a forbidden file."""


class FolderTracker:
    """The possible working folders of a script: after each ``cd`` also the previous ones, since it may fail."""

    MAX_FOLDERS = 16

    def __init__(self) -> None:
        self.possible: tuple[str, ...] | None = ("",)

    def change_folder(self, paths: Sequence[str] | None, *, certain: bool = False) -> None:
        """Note a ``cd`` to one of some paths; ``certain``: the commands after it run only if it succeeds."""
        if not paths or any(path.startswith("-") for path in paths) or self.possible is None:
            self.possible = None
            return
        changed = [join_path(folder, path) for folder in self.possible for path in paths]
        if len(self.possible) >= self.MAX_FOLDERS or len(changed) > self.MAX_FOLDERS:
            self.possible = None
            return
        left = certain and not any(folder.startswith("/proc/") for folder in changed)
        self.possible = tuple(dict.fromkeys(changed if left else [*self.possible, *changed]))

    def resolve(self, path: str) -> tuple[str, ...] | None:
        """Return the paths that a path may name, ``None`` when they are unknown."""
        if path.startswith(("/", "~")):
            paths: tuple[str, ...] = (path,)
        elif self.possible is None:
            return None
        else:
            paths = tuple(_join_below(folder, path) for folder in self.possible)
        return tuple(name for one in paths for name in _names_through_processes(one, self.possible))


def _names_through_processes(path: str, folders: tuple[str, ...] | None) -> Iterator[str]:
    """Yield a path, and the paths that it names through the folder or root of a process."""
    yield path
    plain = re.sub(r"/(?:\.?/)+", "/", path)  # ".." after a folder that is a link
    found = _PROCESS_FOLDER.match(plain) or _PROCESS_FOLDER.match(_normalize_path(path)) if plain[:1] == "/" else None
    if found is None:
        return
    rest = found[2].lstrip("/")
    if found[1] == "root":
        yield from _names_through_processes(f"/{rest}", folders)
    else:
        yield from (join_path(folder, rest or ".") for folder in folders or ("",))


def _join_below(folder: str, path: str) -> str:
    """Return a path in a folder; ``..`` is kept, since a folder may be a link."""
    return f"{folder}/{path}" if folder and ".." in path.split("/") else join_path(folder, path)


def join_path(folder: str, path: str) -> str:
    """Return a path relative to a folder."""
    return path if path.startswith(("/", "~")) or not folder else posixpath.normpath(posixpath.join(folder, path))


def find_secret_path(words: Iterable[Word]) -> str:
    """Return the source of the first word that names, or may match, a file with secrets."""
    for word in words:
        text = word.path or word.render(lambda expansion: expansion.name)
        text = text.replace("HOME", "~", 1) if text.startswith("HOME") else text
        text = posixpath.normpath(text) if text else ""
        if holds_secrets(text) or ("glob" in word.expansion_kinds and may_match_secrets(text)):
            return word.source or text
    return ""


def is_network(redirection: Redirection) -> bool:
    return _NETWORK.match(redirection.target.prefix) is not None


def touches_no_file(redirection: Redirection) -> bool:
    """Return whether a redirection uses no file: a descriptor, a standard stream, a here-document."""
    operator, target = redirection.operator, redirection.target
    if redirection.body is not None or operator in {">&-", "<&-"}:
        return True
    if operator in {">&", "<&"} and target.value is not None and _DESCRIPTOR.fullmatch(target.value):
        return target.value != ""
    if len(target.pieces) == 1 and target.expansion_kinds == {"process"}:
        return True  # its commands are judged on their own
    return target.value in _STANDARD_STREAMS or (not redirection.writes and target.value == "/dev/stdin")


def input_files_of(simple: SimpleCommand) -> list[Word]:
    return [item.target for item in simple.redirections if not touches_no_file(item) and not item.writes]


def list_possible_paths(words: Iterable[Word], *, probe: bool = True) -> list[str]:
    """Return the paths that some words may be, without duplicates."""
    paths = (text for word in words for text in ((word.path,) if word.path else iter_likely_paths(word, probe=probe)))
    return list(dict.fromkeys(paths))


def fill_with_values(word: Word, values: Sequence[str]) -> Iterator[str]:
    """Yield the texts that a word may become when its variables and commands have these values."""
    unknown = [part for part in word.expansions if part.kind in {"parameter", "command"} and not part.numeric]
    if all(expansion.name == "HOME" for expansion in unknown):
        return
    if word.may_split:
        values = [*values, *(part for value in values if len(parts := value.split()) > 1 for part in parts)]
    yield from values
    if len(word.expansions) == 1 and len(word.pieces) > 1:
        yield from (f"{word.prefix}{value}{word.suffix}" for value in values)


def iter_operand_paths(
    simple: SimpleCommand, values: Sequence[str] = (), *, probe: bool = True
) -> Iterator[tuple[str, bool | None]]:
    """Yield every path that a command may name, and whether the program writes to it; ``None``: it never does.

    For rules that restrict: values of options are included (``--file=x``, ``-fx``, ``if=x``, ``@x``).
    """
    for words in simple.forms:
        name = base_name(words[0].placeholder_text) if words else ""
        access = find_access(words)
        if name == "git" and _is_reading_git(words):
            outputs = find_written_words(words)
            access = [True if word in outputs or word.prefix.startswith("--outp") else None for word in words]
        folders = _folders_of(words)
        for text in _names_in_code(simple, words):
            yield text, False
        for index, ((before, word), writes) in enumerate(zip(pairwise(words), access[1:], strict=True), 1):
            if before.value in _LEFT_OUT_OPTIONS or (before.value in _PATH_TESTS and words[index - 2].value in _NOT):
                continue
            for text in (path for base in _path_candidates(word) for path in (base, *_join_each(folders, base))):
                if name in _WRITING_PROGRAMS or name in _READING_PROGRAMS:
                    children = children_pattern_of(text) or (("./*",) if writes and not text.strip("./") else ())
                    yield from ((path, writes) for path in (text, *children))
                elif "/" in text or "." in text:  # not every operand is a path, as in "npm run build"
                    yield text, False
            yield from ((path, False) for path in _names_in_output_folder(before, word))
            likely = [*iter_likely_paths(word, probe=probe)]
            likely += _find_children(likely) if writes and name in _WRITING_PROGRAMS else ()
            for text in (
                *likely,
                *(part for path in likely for part in _parts_of(path)),
                *(part for path in fill_with_values(word, values) for part in (path, *_parts_of(path))),
            ):
                yield text, writes


_OUTPUT_FOLDER = re.compile(
    r"--(?:[\w-]+-)?(?:prefix|target|dest|destination|basetemp|out|outdir|output"
    r"|(?:out|output|dist|cache|prof|diagnostic|report|log|tmp|temp|wheel|build|install|target)-?dir(?:ectory)?)(?:=|$)",
    re.IGNORECASE,
)
"""An option that names a folder which a program writes to."""


def _names_in_output_folder(before: Word, word: Word) -> Iterator[str]:
    """Yield the pattern of the files in a folder that an option such as ``--outdir=x`` names."""
    if _OUTPUT_FOLDER.match(word.prefix):
        yield from (child for path in _path_candidates(word) for child in children_pattern_of(path))
    elif (found := _OUTPUT_FOLDER.match(before.prefix)) is not None and not found[0].endswith("="):
        yield from children_pattern_of(word.path or "")


def _find_children(paths: list[str]) -> list[str]:
    """Return the patterns of the files in some paths, or in parts of them, in case these are folders."""
    parts = (part for path in paths for part in (path, *_parts_of(path)))
    return [child for part in parts for child in children_pattern_of(part)]


def _is_reading_git(words: Words) -> bool:
    """Return whether a command of git leaves its operands as they are, but for the value of ``--output``."""
    first = [word.value for word in words[1:3]]
    return not {"worktree", "submodule", "bundle"} & {*first} and any(value in _READING_GIT_COMMANDS for value in first)


_CODE_STRING = re.compile(r"""(?=(["'`])([^"'`\n]{1,256})\1)""")
"""A string in code, and also what is between two strings: which quote begins one is not known."""

_CODE_BREAK = re.compile(r"[\s|]+")


def _names_in_code(simple: SimpleCommand, words: Words) -> Iterator[str]:
    """Yield the strings in the code of an interpreter, such as ``python3 -c "open('x')"``: they may be paths."""
    if not is_interpreter(words):
        return
    bodies = [item.body for item in simple.redirections if item.body is not None]
    for code in (*(word.placeholder_text for word in words[1:]), *bodies, *simple.codes):
        yield from (found[2] for found in _CODE_STRING.finditer(code))
        yield from _CODE_BREAK.split(code) if takes_commands(words) else ()
    if "sed" in base_name(words[0].placeholder_text):
        for code in (*(word.placeholder_text for word in find_codes(words)), *bodies, *simple.codes):
            yield from sed_input_files(code)


_MAX_FOLDERS = 64
"""Folders that options may name; each is tried with each operand."""

_FOLDER_OPTION = re.compile(r"(?:-[a-zA-Z0]*?C|-D)=?(.*)|--(?:ch(?:d|di|dir)?|di(?:r\w*)?|cwd)(?:=(.*))?", re.DOTALL)
"""The option that names a folder to work in, in a cluster or abbreviated too."""


def _folders_of(words: Words) -> list[str]:
    """Return the folders that options such as ``env -C x`` and ``tar -C x`` work in."""
    folders: list[str] = []
    for word, after in zip(words[1:], (*words[2:], None), strict=False):
        if found := _FOLDER_OPTION.fullmatch(word.path or ""):
            folders.append(found[1] or found[2] or (after.path or "" if after is not None else ""))
    return list(dict.fromkeys(filter(None, folders)))[:_MAX_FOLDERS]


def _join_each(folders: list[str], path: str) -> list[str]:
    return [join_path(folder, path) for folder in folders]


def children_pattern_of(path: str) -> tuple[str, ...]:
    """Return the pattern of the files in a path, in case it is a folder."""
    return (path.rstrip("/") + "/*",) if path.strip("./") else ()


def iter_likely_paths(word: Word, *, probe: bool = True) -> Iterator[str]:
    """Yield paths that a pattern, or a partly known word, may become; with ``probe`` also frequent names."""
    if word.value is not None or not word.pieces or word.path is not None:
        return
    if word.guess is not None:
        yield word.guess
    path = word.render(_expansion_text)
    yield path
    head, slash, last = path.rpartition("/")
    if probe and any(sign in last for sign in "*?["):
        dotted = last.startswith(".")
        for name in _PROBE_NAMES:
            if name.startswith(".") == dotted and fnmatchcase(name, last):
                yield head + slash + name


def _expansion_text(expansion: WordExpansion) -> str:
    name = expansion.name
    if name == "PWD":
        return "."
    if expansion.kind == "tilde":
        return {"~+": ".", "~-": "x"}.get(name) or os.path.expanduser(name)  # noqa: PTH111  # of any user
    return "~" if name == "HOME" else name if expansion.kind == "glob" else "x"


def _path_candidates(word: Word) -> Iterator[str]:
    path = word.path
    if path is not None and path.startswith("file://"):
        path = path.removeprefix("file://").removeprefix("localhost")
    if path is None or path in {"", "-", "--"} or "://" in path or _LEFT_OUT.match(path):
        return
    if path.startswith("-"):
        attached = [path[2:]] if not path.startswith("--") and len(path) > 2 else []
        for text in (*attached, *path.partition("=")[2:], *_parts_of(path.partition("=")[2])):
            yield from filter(None, dict.fromkeys((text, text.rpartition("@")[2], text.rpartition("<")[2])))
        return
    yield path
    if "<" in path:
        yield path.rpartition("<")[2]
    if "=" in path:
        yield path.partition("=")[2]
    if "@" in path and (rest := path.rpartition("@")[2]):
        yield rest
    yield from _parts_of(path)


def _parts_of(text: str) -> list[str]:
    """Return the parts of a word that may be paths, such as ``type=bind,src=./x`` and ``HEAD:x``."""
    return [part for part in re.split(r"[=:,{}]", text) if part and part != text] if " " not in text else []


_LEFT_OUT = re.compile(r"--(?:exclude|exclude-dir|ignore|ignore-dir|include)=")
"""Options that name what is left out, or a pattern: not a file that is used."""

_LEFT_OUT_OPTIONS = frozenset({"--exclude", "--exclude-dir", "--ignore", "--ignore-dir", "--include", "--iglob"})


_PATH_TESTS, _NOT = frozenset({"-path", "-ipath", "-wholename", "-name", "-iname"}), frozenset({"-not", "!"})
"""Tests of ``find``; after a negation they name what is left out."""


def find_folder_change(words: Words) -> Words:
    """Return the words, from its name on, of a command that changes the folder of later commands; else none."""
    while words and words[0].value in {"builtin", "command", "time"}:
        words = words[1:]
        while words and words[0].value in {"-p", "--"}:
            words = words[1:]
    return words if words and words[0].value in {"cd", "pushd", "popd"} else ()


CD_OPTION = re.compile(r"-[PLe@]+|--")


_PROCESS_FOLDER = re.compile(r"/proc/[^/]+(?:/task/[^/]+)?/(cwd|root)(/.*|$)")

_UNKNOWN_FOLDER = re.compile(
    r"/proc/[^/]+(?:/task/[^/]+)?/(?:fd|map_files)/.|/dev/fd/.|/proc/(?!self/|thread-self/)[^/]+(?:/task/[^/]+)?/cwd(?:/|$)"
)
"""A folder that a descriptor or another process names."""


GUARD_LAYER = "guard"


_SYSTEM_PATH = re.compile(
    r"/|/(?:bin|boot|dev|etc|home|lib|lib32|lib64|libx32|media|mnt|opt|proc|root|run|sbin|snap|srv|sys|usr|var"
    r"|Applications|Library|System|Users|Volumes|private|cores|nix|usr/(?:bin|lib|lib64|libexec|local|sbin|share|include)"
    r"|var/(?:lib|log|spool|cache|db)|etc/[a-z]+\.d|private/(?:etc|var)|System/Library)"
    r"|/(?:home|Users)/[^/]+"
)

_DISK_DEVICE = re.compile(
    r"/dev/(?:sd|hd|vd|xvd|nvme|mmcblk|disk|rdisk|md|dm-|mapper/|loop|sr|nbd|zd|ram|block/|mem|kmem|port|nvram|mtd)"
)

_HARMLESS_DEVICES = frozenset(
    {"/dev/null", "/dev/zero", "/dev/full", "/dev/stdout", "/dev/stderr", "/dev/stdin", "/dev/tty"}
)

_FORMAT_PROGRAMS = re.compile(
    r"mkfs(?:\..+)?|mke2fs|mkswap|mkdosfs|newfs.*|wipefs|blkdiscard|sgdisk|sfdisk|fdisk|cfdisk|parted"
)

_MATCH_ALL = re.compile(r"(?:/?(?:\*+|\.\*|\{\*,\.\*\}|\.\[!\.\]\*))+")


def _danger(decision: DecisionKind, reason: str) -> Finding:
    return Finding(decision, "", GUARD_LAYER, reason)


def find_danger(simple: SimpleCommand, folders: tuple[str, ...] | None) -> Finding | None:
    """Return the worst danger of a command; ``folders`` are its possible folders, relative to the script's start."""
    question: Finding | None = None
    for words in simple.forms:
        for finding in _check_command(words, folders):
            if finding.decision == "deny":
                return finding
            question = question or finding
    for redirection in simple.redirections:
        target = redirection.target.value
        if redirection.writes and target is not None:
            for finding in _check_device(target, "it"):
                if finding.decision == "deny":
                    return finding
                question = question or finding
    return question


def _normalize_path(path: str) -> str:
    return posixpath.normpath(path).replace("//", "/", 1)


def _check_command(words: Words, folders: tuple[str, ...] | None) -> Iterator[Finding]:
    name = base_name(words[0].guess or "") if words else ""
    rest = words[1:]
    if name in {"rm", "unlink", "shred", "srm", "trash"}:
        yield from _check_removal(name, rest, folders)
    elif name in {"chmod", "chown", "chgrp", "setfacl"}:
        if _is_recursive(rest):
            yield from _check_targets(_operands_of(rest)[1:], folders, f"{name} on everything in")
    elif name in {"find", "gfind", "bfs"}:
        yield from _check_find(rest, folders)
    elif name == "mv":
        yield from _check_disks(_operands_of(rest)[-1:], name)
        moved = _check_targets(_operands_of(rest)[:-1], folders, "it moves away")
        yield from (finding for finding in moved if finding.decision == "deny")
    elif name in {"fd", "fdfind"}:
        yield from _check_fd(rest, folders)
    elif name == "rsync" and any(word.prefix.startswith("--del") for word in rest):
        removed = _check_targets(_operands_of(rest)[-1:], folders, "it removes what is not in its source from")
        yield from (finding for finding in removed if finding.decision == "deny")
    else:
        yield from _check_overwrite(name, rest)


def _check_overwrite(name: str, words: Words) -> Iterator[Finding]:
    operands = _operands_of(words)
    if name == "dd":
        targets = [word for word in words if word.placeholder_text.startswith("of=")]
        yield from _check_disks(targets, name)
        if any(word.prefix == "of=" and word.value is None for word in targets):
            yield _danger("ask", "dd writes to something that is not known beforehand")
    elif _FORMAT_PROGRAMS.fullmatch(name):
        yield from () if only_shows(name, words) else _check_disks(operands, name)
        if name.startswith("mkfs"):
            yield _danger("ask", f"{name} makes a new file system")
    elif name in {"tee", "truncate", "sponge"}:
        yield from _check_disks(operands, name)
    elif name in {"cp", "install", "ln"}:
        yield from _check_disks(operands[-1:], name)


def _operands_of(words: Iterable[Word]) -> list[Word]:
    operands: list[Word] = []
    ended = False
    for word in words:
        if word.value == "--" and not ended:
            ended = True
        elif ended or not word.prefix.startswith("-"):
            operands.append(word)
    return operands


def _is_recursive(words: Words) -> bool:
    options = takewhile(lambda value: value != "--", (word.prefix for word in words))
    return any(
        re.match(r"-[A-Za-z]*[rR]", value) or (len(value) > 2 and "--recursive".startswith(value)) for value in options
    )


def _check_removal(name: str, words: Words, folders: tuple[str, ...] | None) -> Iterator[Finding]:
    if any(word.value is not None and word.value.startswith("--no-pres") for word in words):
        yield _danger("deny", f"{name} without its own safeguard for /")
    if name == "shred":
        yield from _check_disks(_operands_of(words), name)
    if _is_recursive(words) or name == "trash":
        yield from _check_targets(_operands_of(words), folders, "it removes everything in")


def _check_targets(words: Iterable[Word], folders: tuple[str, ...] | None, what: str) -> Iterator[Finding]:
    for word in words:
        expansions = [one for one in word.expansions if one.kind not in {"glob", "tilde"} and one.name != "HOME"]
        unknown = expansions[0] if expansions else None
        if unknown is not None and unknown.kind == "input" and unknown.guess is not None:
            continue  # find only returns paths below its start
        if unknown is not None or (word.value is None and not word.pieces):
            yield _danger("ask", f"{what} something that is not known beforehand: {word.source}")
            continue
        if folders is None and next(_possible_paths(word, None)) in {"", ".", "./"}:
            yield _danger("ask", f"{what} a folder that is not known beforehand")
        for path in _possible_paths(word, folders):
            if _UNKNOWN_FOLDER.match(path):
                yield _danger("ask", f"{what} a folder that is not known beforehand: {word.source}")
            if re.fullmatch(r"(?:\.\./?)+", path):
                yield _danger("ask", f"{what} {word.source}, in which this folder lies")
            wildcard = re.search(r"[*?\[]", path) if path.startswith("/") else None
            folder = path[: wildcard.start()].rpartition("/")[0] or "/" if wildcard else ""
            if _is_system_path(path) or folder == "/":
                yield _danger("deny", f"{what} {word.source}")
            elif _is_system_path(folder):
                yield _danger("ask", f"{what} {word.source}")


def _possible_paths(word: Word, folders: tuple[str, ...] | None) -> Iterator[str]:
    """Yield the paths that a word may name, without a final pattern that matches everything."""
    text = word.render(lambda expansion: "~" if expansion.name == "HOME" else expansion.name)
    for name in _names_through_processes(text, folders):
        yield _strip_match_all(name)
    if not text.startswith(("/", "~")):
        yield from (_strip_match_all(posixpath.join(folder, text)) for folder in folders or () if folder)


def _strip_match_all(text: str) -> str:
    while True:
        head, slash, last = text.rstrip("/").rpartition("/")
        if not _MATCH_ALL.fullmatch(last):
            return text
        text = head + slash if slash else ""


def _is_system_path(path: str) -> bool:
    if not path:
        return False
    if path.startswith("~"):
        rest = posixpath.normpath(path).partition("/")[2]
        return rest in {"", "."} or path in {"~", "~/"} or rest.startswith("..")
    return path.startswith("/") and _SYSTEM_PATH.fullmatch(_normalize_path(path)) is not None


def _check_find(words: Words, folders: tuple[str, ...] | None) -> Iterator[Finding]:
    values = [word.value for word in words]
    commands = [words[index + 1 :] for index, value in enumerate(values) if value in FIND_EXEC_ACTIONS]
    if "-delete" not in values and not any(map(_removes_files, commands)):
        return
    starts = takewhile(
        lambda word: not word.prefix.startswith(("-", "(", "!", ")")) or word.value in {"-H", "-L", "-P", "--"}, words
    )
    yield from _check_targets([*starts] or [literal_word(".")], folders, "find removes what it finds in")


def _check_fd(given: Words, folders: tuple[str, ...] | None) -> Iterator[Finding]:
    words = split_fd_options(given)
    end = next((index for index, word in enumerate(words) if word.value in FD_EXEC_OPTIONS), len(words))
    if not _removes_files(words[end + 1 :]):
        return
    if words is not given:  # "--exec=rm": the words after it may be operands
        words = (*words[:end], *words[end + 2 :])
        end = len(words)
    operands = list[Word]()
    starts = list[Word]()
    before = ""
    for word in words[:end]:
        if before in _FD_FOLDER_OPTIONS:
            starts.append(word)
        elif word.prefix.partition("=")[0] in _FD_FOLDER_OPTIONS and "=" in word.prefix:
            starts.append(literal_word(word.placeholder_text.partition("=")[2]))
        elif not word.prefix.startswith("-") and before not in _FD_VALUED_OPTIONS:
            operands.append(word)
        before = word.value or ""
    starts += operands[1:]
    yield from _check_targets(starts or [literal_word(".")], folders, "fd removes what it finds in")


_FD_FOLDER_OPTIONS = frozenset({"-C", "--base-directory", "--search-path"})

_FD_PROFILE = read_table("checked")["fd"]

_FD_VALUED_OPTIONS = {f"-{letter}" for letter in _FD_PROFILE["valued"]} | {
    f"--{name}" for name in _FD_PROFILE["long_valued"].split()
}


def _removes_files(words: Words) -> bool:
    """Return whether the command that ``find`` runs, or a script in it, removes files."""
    end = next((index for index, word in enumerate(words) if word.value in {";", "+"}), len(words))
    return any(re.search(r"\b(?:rm|shred|unlink)\b", word.placeholder_text) for word in words[:end])


def _check_disks(words: Iterable[Word], name: str) -> Iterator[Finding]:
    for word in words:
        if value := word.prefix.removeprefix("of="):
            yield from _check_device(value, name)


_KERNEL_SETTING = re.compile(r"/proc/(?:sys/|sysrq-trigger$)|/sys/.")

_PRIVATE_DEVICE = re.compile(r"/dev/(?:shm/|fd/|pts/|tcp/|udp/|ptmx$|u?random$)")


def _check_device(value: str, name: str) -> Iterator[Finding]:
    """Yield the finding on a file that is written to, if it is a disk, another device or a setting of the kernel."""
    for path in map(_normalize_path, _names_through_processes(value, None)):
        if path in _HARMLESS_DEVICES or _PRIVATE_DEVICE.match(path):
            continue
        if _DISK_DEVICE.match(path):
            yield _danger("deny", f"{name} would write over the disk {path}")
        elif _KERNEL_SETTING.match(path):
            yield _danger("ask", f"{name} would change the setting {path} of the kernel")
        elif path.startswith("/dev/"):
            yield _danger("ask", f"{name} would write to the device {path}")
