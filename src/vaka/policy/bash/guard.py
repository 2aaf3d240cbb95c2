"""What nobody wants to have run by accident, whatever the rules and the mode say."""

import posixpath
import re
from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

from vaka.policy.bash.words import Hole, Simple, Word, Words
from vaka.policy.bash.wrappers import base

GUARD = "guard"
"""The layer of these verdicts."""


class Alarm(NamedTuple):
    """What the guard has to say about a command."""

    decision: Literal["ask", "deny"]
    reason: str


_SYSTEM = re.compile(
    r"/|/(?:bin|boot|dev|etc|home|lib|lib32|lib64|libx32|media|mnt|opt|proc|root|run|sbin|snap|srv|sys|usr|var"
    r"|Applications|Library|System|Users|Volumes|private|cores|nix|usr/(?:bin|lib|lib64|libexec|local|sbin|share|include)"
    r"|var/(?:lib|log|spool|cache|db)|etc/[a-z]+\.d|private/(?:etc|var)|System/Library)"
    r"|/(?:home|Users)/[^/]+"
)
_DISK = re.compile(
    r"/dev/(?:sd|hd|vd|xvd|nvme|mmcblk|disk|rdisk|md|dm-|mapper/|loop|sr|nbd|zd|ram|block/|mem|kmem|port|nvram|mtd)"
)
_NO_DISK = frozenset({"/dev/null", "/dev/zero", "/dev/full", "/dev/stdout", "/dev/stderr", "/dev/stdin", "/dev/tty"})
_FORMATS = re.compile(
    r"mkfs(?:\..+)?|mke2fs|mkswap|mkdosfs|newfs.*|wipefs|blkdiscard|sgdisk|sfdisk|fdisk|cfdisk|parted"
)
_GLOB_ALL = re.compile(r"(?:/?(?:\*+|\.\*|\{\*,\.\*\}|\.\[!\.\]\*))+")


def alarm(simple: Simple, folders: tuple[str, ...] | None) -> Alarm | None:
    """Return what is dangerous about a command; ``folders`` are where it may run, seen from where the script began."""
    found: Alarm | None = None
    for words in (simple.words, *simple.wrapped):
        for one in _alarms(words, folders):
            if one.decision == "deny":
                return one
            found = found or one
    for redirection in simple.redirections:
        target = redirection.target.value
        if ">" in redirection.operator and target is not None and _DISK.match(_normal(target)):
            return Alarm("deny", f"it writes over the disk {target}")
    return found


def _normal(path: str) -> str:
    return posixpath.normpath(path).replace("//", "/", 1)


def _alarms(words: Words, folders: tuple[str, ...] | None) -> Iterator[Alarm]:
    name = base(words[0].guess or "") if words else ""
    rest = words[1:]
    if name in {"rm", "unlink", "shred", "srm", "trash"}:
        yield from _removal(name, rest, folders)
    elif name in {"chmod", "chown", "chgrp", "setfacl"}:
        if _recursive(rest):
            yield from _targets(_operands(rest)[1:], folders, f"{name} on everything in")
    elif name in {"find", "gfind", "bfs"}:
        yield from _find(rest, folders)
    elif name == "mv":
        yield from _disks(_operands(rest)[-1:], name)
        yield from (one for one in _targets(_operands(rest)[:-1], folders, "it moves away") if one.decision == "deny")
    else:
        yield from _overwrites(name, rest)


def _overwrites(name: str, words: Words) -> Iterator[Alarm]:
    operands = _operands(words)
    if name == "dd":
        yield from _disks((word for word in words if word.sketch.startswith("of=")), name)
    elif _FORMATS.fullmatch(name):
        yield from _disks(operands, name)
        if name.startswith("mkfs"):
            yield Alarm("ask", f"{name} makes a new file system")
    elif name in {"tee", "truncate", "sponge"}:
        yield from _disks(operands, name)
    elif name in {"cp", "install", "ln"}:
        yield from _disks(operands[-1:], name)


def _operands(words: Iterable[Word]) -> list[Word]:
    """Words that are no options; all of them behind ``--``."""
    found: list[Word] = []
    ended = False
    for word in words:
        if word.value == "--" and not ended:
            ended = True
        elif ended or not word.prefix.startswith("-"):
            found.append(word)
    return found


def _recursive(words: Words) -> bool:
    for word in words:
        value = word.prefix
        if value == "--":
            return False
        if re.match(r"-[A-Za-z]*[rR]", value) or re.match(
            r"--r(?:e(?:c(?:u(?:r(?:s(?:i(?:v(?:e)?)?)?)?)?)?)?)?$", value
        ):
            return True
    return False


def _removal(name: str, words: Words, folders: tuple[str, ...] | None) -> Iterator[Alarm]:
    if any(word.value is not None and word.value.startswith("--no-pres") for word in words):
        yield Alarm("deny", f"{name} without its own safeguard for /")
    if name == "shred":
        yield from _disks(_operands(words), name)
    if _recursive(words) or name == "trash":
        yield from _targets(_operands(words), folders, "it removes everything in")


def _targets(words: Iterable[Word], folders: tuple[str, ...] | None, what: str) -> Iterator[Alarm]:
    for word in words:
        unknown = next(
            (hole for hole in word.holes if hole.kind not in {"glob", "tilde"} and hole.name != "HOME"), None
        )
        if unknown is not None and unknown.kind == "input" and unknown.guess is not None:
            continue  # what find found lies under where it looked
        if unknown is not None or (word.value is None and not word.pieces):
            yield Alarm("ask", f"{what} something that is not known beforehand: {word.source}")
            continue
        if folders is None and next(_places(word, None)) in {"", ".", "./"}:
            yield Alarm("ask", f"{what} a folder that is not known beforehand")
        for path in _places(word, folders):
            if re.fullmatch(r"(?:\.\./?)+", path):
                yield Alarm("ask", f"{what} {word.source}, in which this folder lies")
            folder = path[: _first_glob(path)].rpartition("/")[0] or "/"
            if _system(path) or (_first_glob(path) < len(path) and path.startswith("/") and folder == "/"):
                yield Alarm("deny", f"{what} {word.source}")
            elif _first_glob(path) < len(path) and path.startswith("/") and _system(folder):
                yield Alarm("ask", f"{what} {word.source}")


def _places(word: Word, folders: tuple[str, ...] | None) -> Iterator[str]:
    """The paths a word may name, without a pattern for everything at the end."""
    text = "".join(piece if isinstance(piece, str) else _shown(piece) for piece in word.pieces) or word.value or ""
    stripped = _stripped(text)
    yield stripped
    if not text.startswith(("/", "~")):
        for folder in folders or ():
            if folder:
                yield _stripped(posixpath.join(folder, text))


def _first_glob(path: str) -> int:
    return min((at for at in map(path.find, "*?[") if at >= 0), default=len(path))


def _stripped(text: str) -> str:
    while True:
        head, slash, last = text.rstrip("/").rpartition("/")
        if not _GLOB_ALL.fullmatch(last):
            return text
        text = head + slash if slash else ""


def _shown(hole: Hole) -> str:
    return "~" if hole.name == "HOME" else hole.name


def _system(path: str) -> bool:
    if not path:
        return False
    if path.startswith("~"):
        rest = posixpath.normpath(path).partition("/")[2]
        return rest in {"", "."} or path in {"~", "~/"} or rest.startswith("..")
    return path.startswith("/") and _SYSTEM.fullmatch(_normal(path)) is not None


def _find(words: Words, folders: tuple[str, ...] | None) -> Iterator[Alarm]:
    values = [word.value for word in words]
    removes = "-delete" in values or any(
        value in {"-exec", "-execdir", "-ok", "-okdir"} and _removes(words[index + 1 :])
        for index, value in enumerate(values)
    )
    if not removes:
        return
    starts: list[Word] = []
    for word in words:
        if word.prefix.startswith(("-", "(", "!", ")")) and word.value not in {"-H", "-L", "-P", "--"}:
            break
        starts.append(word)
    yield from _targets(starts, folders, "find removes what it finds in")


def _removes(words: Words) -> bool:
    """Return whether what ``find`` runs removes something, itself or as a script."""
    end = next((index for index, word in enumerate(words) if word.value in {";", "+"}), len(words))
    return any(re.search(r"\b(?:rm|shred|unlink)\b", word.sketch) for word in words[:end])


def _disks(words: Iterable[Word], name: str) -> Iterator[Alarm]:
    for word in words:
        value = word.prefix.removeprefix("of=")
        path = _normal(value) if value else ""
        if _DISK.match(path) and path not in _NO_DISK:
            yield Alarm("deny", f"{name} would write over the disk {path}")
