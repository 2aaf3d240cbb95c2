"""Paths of commands that no rule may allow silently: the root, the home directory, devices and files of the system."""

import os
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Literal, NamedTuple, TypeAlias

from vaka.core.types.tool import Verdict
from vaka.policy.bash.parse.preflight import name_set
from vaka.policy.bash.parse.syntax import Redirection, SimpleCommand, Word, WordExpansion, Words
from vaka.policy.bash.parse.wrappers import base_name
from vaka.policy.paths import holds_secrets, may_match_secrets

PathCheck: TypeAlias = Callable[[str], Verdict]
"""What reading or writing a path would be told: absolute, below ``~``, or relative to where the script began."""

_STANDARD_STREAMS = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr"})

_NETWORK = re.compile(r"/dev/(?:tcp|udp)/")

_DESCRIPTOR = re.compile(r"\d*-?")

WRITING_PROGRAMS = name_set(
    """
    tee cp mv rm rmdir ln mkdir touch truncate dd install shred unlink chmod chown chgrp sed perl ed ex vi vim
    nano emacs patch rsync scp tar unzip zip gzip gunzip bzip2 xz zstd curl wget split csplit sponge mktemp mkfifo
    mknod setfacl xattr sort uniq git chattr rename mmv cpio ar objcopy strip awk gawk ffmpeg convert openssl gpg
    trash
    """
)
"""Programs that write to files they are given."""

READING_PROGRAMS = name_set(
    """
    cat less more bat batcat head tail od hexdump strings view nl tac rev source . md5sum sha1sum sha256sum sha512sum
    cksum b2sum base32 cmp diff sdiff zcat zless bzcat xzcat zgrep grep egrep fgrep rg pbcopy xclip printenv iconv
    column comm paste join fold fmt pr sum csvtool yq jq xmllint ack ag
    """
)
"""Programs that read files they are given."""

_NEVER_WRITE = name_set(
    """
    cat bat batcat head tail od hexdump strings nl tac rev source . md5sum sha1sum sha256sum sha512sum cksum b2sum cmp
    zcat bzcat xzcat grep egrep fgrep
    """
)
"""Those of them that no option makes write."""

_PROBE_NAMES = (
    ".env", ".env.local", ".env.development", ".env.production", ".env.test", "secrets.json", "secrets.yaml",
    "secrets.yml", "secret.key", "credentials.json", "credentials", "config.json", "settings.json", "key.pem",
    "cert.pem", "private.key", "server.key", "id_rsa", "id_ed25519", "x",
)  # fmt: skip
"""Names that a pattern is tried on, to find out whether it may lead to a file that is forbidden."""


class FolderTracker:
    """Where a script may be by now: everywhere it may have gone with ``cd``, since any step may have failed."""

    MAX_FOLDERS = 16

    def __init__(self) -> None:
        self.possible: tuple[str, ...] | None = ("",)

    def change_folder(self, word: Word | None) -> None:
        """Take note of a ``cd``."""
        path = word.path if word is not None else None
        if path is None or path.startswith("-") or self.possible is None or len(self.possible) >= self.MAX_FOLDERS:
            self.possible = None
            return
        self.possible = tuple(dict.fromkeys([*self.possible, *(join_path(folder, path) for folder in self.possible)]))

    def resolve(self, path: str) -> tuple[str, ...] | None:
        """Return what a path may name, ``None`` when that is not known."""
        if path.startswith(("/", "~")):
            return (path,)
        return tuple(join_path(folder, path) for folder in self.possible) if self.possible is not None else None


def join_path(folder: str, path: str) -> str:
    """Return what a path names when the script has gone to a folder."""
    return path if path.startswith(("/", "~")) or not folder else posixpath.normpath(posixpath.join(folder, path))


def find_secret_path(words: Iterable[Word]) -> str:
    """Return the first of some words that names a place where keys lie, as far as it is known."""
    for word in words:
        text = word.path or "".join(piece if isinstance(piece, str) else piece.name for piece in word.pieces)
        text = text.replace("HOME", "~", 1) if text.startswith("HOME") else text
        text = posixpath.normpath(text) if text else ""
        if holds_secrets(text) or (any(hole.kind == "glob" for hole in word.expansions) and may_match_secrets(text)):
            return word.source or text
    return ""


def is_network(redirection: Redirection) -> bool:
    """Return whether a redirection opens a connection."""
    return _NETWORK.match(redirection.target.prefix) is not None


def touches_no_file(redirection: Redirection) -> bool:
    """Return whether a redirection touches no file: a descriptor, the terminal's streams, a text, or nothing."""
    operator, target = redirection.operator, redirection.target
    if redirection.body is not None or operator in {">&-", "<&-"}:
        return True
    if operator in {">&", "<&"} and target.value is not None and _DESCRIPTOR.fullmatch(target.value):
        return target.value != ""
    if len(target.pieces) == 1 and all(hole.kind == "process" for hole in target.expansions) and target.expansions:
        return True  # what stands in it is judged on its own
    return target.value in _STANDARD_STREAMS or (">" not in operator and target.value == "/dev/stdin")


def is_write(redirection: Redirection) -> bool:
    """Return whether a redirection writes."""
    return ">" in redirection.operator


def input_files_of(simple: SimpleCommand) -> list[Word]:
    """Return the files that a command gets as its input."""
    return [one.target for one in simple.redirections if not touches_no_file(one) and not is_write(one)]


_FILLABLE_KINDS = frozenset({"parameter", "command"})


def list_possible_paths(words: Iterable[Word]) -> list[str]:
    """Return the paths that some words may be, each once: what variables are set to."""
    return list(
        dict.fromkeys(text for word in words for text in ((word.path,) if word.path else iter_likely_paths(word)))
    )


def fill_with_values(word: Word, values: Sequence[str]) -> Iterator[str]:
    """Yield what a word may become with what is given for the variables and commands in it."""
    if not any(hole.kind in _FILLABLE_KINDS and hole.name != "HOME" and not hole.numeric for hole in word.expansions):
        return
    yield from values
    if len(word.expansions) == 1 and len(word.pieces) > 1:
        yield from (f"{word.prefix}{one}{word.suffix}" for one in values)


def iter_operand_paths(simple: SimpleCommand, values: Sequence[str] = ()) -> Iterator[tuple[str, bool | None]]:
    """Yield every path that a command may name, and whether the program is known to write to such; ``None``: it is not.

    For rules that forbid: options are looked into (``--file=x``, ``-fx``, ``if=x``, ``@x``).
    """
    for words in (simple.words, *simple.wrapped_commands):
        name = base_name(words[0].placeholder_text) if words else ""
        writes = True if name in WRITING_PROGRAMS else None if name in _NEVER_WRITE else False
        for word in words[1:]:
            for text in _path_candidates(word):
                if name in WRITING_PROGRAMS or name in READING_PROGRAMS:
                    yield from ((path, writes) for path in (text, *children_pattern_of(text)))
                elif "/" in text or "." in text:  # another program's word may be anything, as in "npm run build"
                    yield text, False
            for text in (*iter_likely_paths(word), *fill_with_values(word, values)):
                yield text, writes


def children_pattern_of(path: str) -> tuple[str, ...]:
    """Return a name for anything inside, should the path be a folder."""
    return (path.rstrip("/") + "/*",) if path.strip("./") else ()


def iter_likely_paths(word: Word) -> Iterator[str]:
    """Yield files that a word may become, when it is a pattern or is only known in part."""
    if word.value is not None or not word.pieces or word.path is not None:
        return
    if word.guess is not None:
        yield word.guess
    shown = "".join(piece if isinstance(piece, str) else _expansion_text(piece) for piece in word.pieces)
    yield shown
    head, slash, last = shown.rpartition("/")
    if any(sign in last for sign in "*?["):
        dotted = last.startswith(".")
        for name in _PROBE_NAMES:
            if name.startswith(".") == dotted and fnmatchcase(name, last):
                yield head + slash + name


def _expansion_text(hole: WordExpansion) -> str:
    if hole.kind == "tilde":
        return {"~+": ".", "~-": "x"}.get(hole.name) or os.path.expanduser(hole.name)  # noqa: PTH111  # of any user
    return "~" if hole.name == "HOME" else hole.name if hole.kind == "glob" else "x"


def _path_candidates(word: Word) -> Iterator[str]:
    path = word.path
    if path is None or path in {"", "-", "--"} or "://" in path:
        return
    if path.startswith("-"):
        given = [path[2:]] if not path.startswith("--") and len(path) > 2 else []
        for text in (*given, *path.partition("=")[2:]):
            yield from filter(None, dict.fromkeys((text, text.rpartition("@")[2])))
        return
    yield path
    if "=" in path:
        yield path.partition("=")[2]
    if "@" in path and (rest := path.rpartition("@")[2]):
        yield rest
    if ":" in path and not path.startswith(":") and (rest := path.partition(":")[2]) and not rest.startswith("//"):
        yield rest


def changes_folder(words: Words) -> bool:
    """Return whether a command changes the folder that later ones run in."""
    return bool(words) and words[0].value in {"cd", "pushd", "popd"}


GUARD_LAYER = "guard"
"""The layer of these verdicts."""


class GuardFinding(NamedTuple):
    """What the guard has to say about a command."""

    decision: Literal["ask", "deny"]
    reason: str


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


def find_danger(simple: SimpleCommand, folders: tuple[str, ...] | None) -> GuardFinding | None:
    """Return what is dangerous about a command; ``folders`` are where it may run, seen from where the script began."""
    found: GuardFinding | None = None
    for words in (simple.words, *simple.wrapped_commands):
        for one in _check_command(words, folders):
            if one.decision == "deny":
                return one
            found = found or one
    for redirection in simple.redirections:
        target = redirection.target.value
        if ">" in redirection.operator and target is not None and _DISK_DEVICE.match(_normalize_path(target)):
            return GuardFinding("deny", f"it writes over the disk {target}")
    return found


def _normalize_path(path: str) -> str:
    return posixpath.normpath(path).replace("//", "/", 1)


def _check_command(words: Words, folders: tuple[str, ...] | None) -> Iterator[GuardFinding]:
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
        yield from (
            one for one in _check_targets(_operands_of(rest)[:-1], folders, "it moves away") if one.decision == "deny"
        )
    else:
        yield from _check_overwrite(name, rest)


def _check_overwrite(name: str, words: Words) -> Iterator[GuardFinding]:
    operands = _operands_of(words)
    if name == "dd":
        yield from _check_disks((word for word in words if word.placeholder_text.startswith("of=")), name)
    elif _FORMAT_PROGRAMS.fullmatch(name):
        yield from _check_disks(operands, name)
        if name.startswith("mkfs"):
            yield GuardFinding("ask", f"{name} makes a new file system")
    elif name in {"tee", "truncate", "sponge"}:
        yield from _check_disks(operands, name)
    elif name in {"cp", "install", "ln"}:
        yield from _check_disks(operands[-1:], name)


def _operands_of(words: Iterable[Word]) -> list[Word]:
    """Words that are no options; all of them behind ``--``."""
    found: list[Word] = []
    ended = False
    for word in words:
        if word.value == "--" and not ended:
            ended = True
        elif ended or not word.prefix.startswith("-"):
            found.append(word)
    return found


def _is_recursive(words: Words) -> bool:
    for word in words:
        value = word.prefix
        if value == "--":
            return False
        if re.match(r"-[A-Za-z]*[rR]", value) or re.match(
            r"--r(?:e(?:c(?:u(?:r(?:s(?:i(?:v(?:e)?)?)?)?)?)?)?)?$", value
        ):
            return True
    return False


def _check_removal(name: str, words: Words, folders: tuple[str, ...] | None) -> Iterator[GuardFinding]:
    if any(word.value is not None and word.value.startswith("--no-pres") for word in words):
        yield GuardFinding("deny", f"{name} without its own safeguard for /")
    if name == "shred":
        yield from _check_disks(_operands_of(words), name)
    if _is_recursive(words) or name == "trash":
        yield from _check_targets(_operands_of(words), folders, "it removes everything in")


def _check_targets(words: Iterable[Word], folders: tuple[str, ...] | None, what: str) -> Iterator[GuardFinding]:
    for word in words:
        unknown = next(
            (hole for hole in word.expansions if hole.kind not in {"glob", "tilde"} and hole.name != "HOME"), None
        )
        if unknown is not None and unknown.kind == "input" and unknown.guess is not None:
            continue  # what find found lies under where it looked
        if unknown is not None or (word.value is None and not word.pieces):
            yield GuardFinding("ask", f"{what} something that is not known beforehand: {word.source}")
            continue
        if folders is None and next(_possible_paths(word, None)) in {"", ".", "./"}:
            yield GuardFinding("ask", f"{what} a folder that is not known beforehand")
        for path in _possible_paths(word, folders):
            if re.fullmatch(r"(?:\.\./?)+", path):
                yield GuardFinding("ask", f"{what} {word.source}, in which this folder lies")
            folder = path[: _first_wildcard(path)].rpartition("/")[0] or "/"
            if _is_system_path(path) or (_first_wildcard(path) < len(path) and path.startswith("/") and folder == "/"):
                yield GuardFinding("deny", f"{what} {word.source}")
            elif _first_wildcard(path) < len(path) and path.startswith("/") and _is_system_path(folder):
                yield GuardFinding("ask", f"{what} {word.source}")


def _possible_paths(word: Word, folders: tuple[str, ...] | None) -> Iterator[str]:
    """The paths a word may name, without a pattern for everything at the end."""
    text = (
        "".join(piece if isinstance(piece, str) else _home_or_name(piece) for piece in word.pieces) or word.value or ""
    )
    stripped = _strip_match_all(text)
    yield stripped
    if not text.startswith(("/", "~")):
        for folder in folders or ():
            if folder:
                yield _strip_match_all(posixpath.join(folder, text))


def _first_wildcard(path: str) -> int:
    return min((at for at in map(path.find, "*?[") if at >= 0), default=len(path))


def _strip_match_all(text: str) -> str:
    while True:
        head, slash, last = text.rstrip("/").rpartition("/")
        if not _MATCH_ALL.fullmatch(last):
            return text
        text = head + slash if slash else ""


def _home_or_name(hole: WordExpansion) -> str:
    return "~" if hole.name == "HOME" else hole.name


def _is_system_path(path: str) -> bool:
    if not path:
        return False
    if path.startswith("~"):
        rest = posixpath.normpath(path).partition("/")[2]
        return rest in {"", "."} or path in {"~", "~/"} or rest.startswith("..")
    return path.startswith("/") and _SYSTEM_PATH.fullmatch(_normalize_path(path)) is not None


def _check_find(words: Words, folders: tuple[str, ...] | None) -> Iterator[GuardFinding]:
    values = [word.value for word in words]
    removes = "-delete" in values or any(
        value in {"-exec", "-execdir", "-ok", "-okdir"} and _removes_files(words[index + 1 :])
        for index, value in enumerate(values)
    )
    if not removes:
        return
    starts: list[Word] = []
    for word in words:
        if word.prefix.startswith(("-", "(", "!", ")")) and word.value not in {"-H", "-L", "-P", "--"}:
            break
        starts.append(word)
    yield from _check_targets(starts, folders, "find removes what it finds in")


def _removes_files(words: Words) -> bool:
    """Return whether what ``find`` runs removes something, itself or as a script."""
    end = next((index for index, word in enumerate(words) if word.value in {";", "+"}), len(words))
    return any(re.search(r"\b(?:rm|shred|unlink)\b", word.placeholder_text) for word in words[:end])


def _check_disks(words: Iterable[Word], name: str) -> Iterator[GuardFinding]:
    for word in words:
        value = word.prefix.removeprefix("of=")
        path = _normalize_path(value) if value else ""
        if _DISK_DEVICE.match(path) and path not in _HARMLESS_DEVICES:
            yield GuardFinding("deny", f"{name} would write over the disk {path}")
