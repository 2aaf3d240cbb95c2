"""Destructive commands that are asked about or denied in every mode, whatever the rules say."""

import posixpath
import re
from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

from vaka.policy.bash.parse.syntax import SimpleCommand, Word, WordExpansion, Words
from vaka.policy.bash.parse.wrappers import base_name

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
        "".join(piece if isinstance(piece, str) else _expansion_text(piece) for piece in word.pieces)
        or word.value
        or ""
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


def _expansion_text(hole: WordExpansion) -> str:
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
