"""Paths in commands: what is read, what is written, and where a script has gone meanwhile."""

import os
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import TypeAlias

from vaka.core.types.tool import Verdict
from vaka.policy.bash.text import names
from vaka.policy.bash.words import Hole, Redirection, Simple, Word, Words
from vaka.policy.bash.wrappers import base
from vaka.policy.keys import lie_at, may_lie_at

Look: TypeAlias = Callable[[str], Verdict]
"""What reading or writing a path would be told: absolute, below ``~``, or relative to where the script began."""

_FREE_OUTPUT = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr"})
_NETWORK = re.compile(r"/dev/(?:tcp|udp)/")
_DESCRIPTOR = re.compile(r"\d*-?")

WRITERS = names(
    """
    tee cp mv rm rmdir ln mkdir touch truncate dd install shred unlink chmod chown chgrp sed perl ed ex vi vim
    nano emacs patch rsync scp tar unzip zip gzip gunzip bzip2 xz zstd curl wget split csplit sponge mktemp mkfifo
    mknod setfacl xattr sort uniq git chattr rename mmv cpio ar objcopy strip awk gawk ffmpeg convert openssl gpg
    trash
    """
)
"""Programs that write to files they are given."""

READERS = names(
    """
    cat less more bat batcat head tail od hexdump strings view nl tac rev source . md5sum sha1sum sha256sum sha512sum
    cksum b2sum base32 cmp diff sdiff zcat zless bzcat xzcat zgrep grep egrep fgrep rg pbcopy xclip printenv iconv
    column comm paste join fold fmt pr sum csvtool yq jq xmllint ack ag
    """
)
"""Programs that read files they are given."""

_NEVER_WRITE = names(
    """
    cat bat batcat head tail od hexdump strings nl tac rev source . md5sum sha1sum sha256sum sha512sum cksum b2sum cmp
    zcat bzcat xzcat grep egrep fgrep
    """
)
"""Those of them that no option makes write."""

_LIKELY = (
    ".env", ".env.local", ".env.development", ".env.production", ".env.test", "secrets.json", "secrets.yaml",
    "secrets.yml", "secret.key", "credentials.json", "credentials", "config.json", "settings.json", "key.pem",
    "cert.pem", "private.key", "server.key", "id_rsa", "id_ed25519", "x",
)  # fmt: skip
"""Names that a pattern is tried on, to find out whether it may lead to a file that is forbidden."""


class Folders:
    """Where a script may be by now: everywhere it may have gone with ``cd``, since any step may have failed."""

    MOST = 16

    def __init__(self) -> None:
        self.known: tuple[str, ...] | None = ("",)

    def go(self, word: Word | None) -> None:
        """Take note of a ``cd``."""
        path = word.path if word is not None else None
        if path is None or path.startswith("-") or self.known is None or len(self.known) >= self.MOST:
            self.known = None
            return
        self.known = tuple(dict.fromkeys([*self.known, *(join(folder, path) for folder in self.known)]))

    def paths(self, path: str) -> tuple[str, ...] | None:
        """Return what a path may name, ``None`` when that is not known."""
        if path.startswith(("/", "~")):
            return (path,)
        return tuple(join(folder, path) for folder in self.known) if self.known is not None else None


def join(folder: str, path: str) -> str:
    """Return what a path names when the script has gone to a folder."""
    return path if path.startswith(("/", "~")) or not folder else posixpath.normpath(posixpath.join(folder, path))


def secret(words: Iterable[Word]) -> str:
    """Return the first of some words that names a place where keys lie, as far as it is known."""
    for word in words:
        text = word.path or "".join(piece if isinstance(piece, str) else piece.name for piece in word.pieces)
        text = text.replace("HOME", "~", 1) if text.startswith("HOME") else text
        text = posixpath.normpath(text) if text else ""
        if lie_at(text) or (any(hole.kind == "glob" for hole in word.holes) and may_lie_at(text)):
            return word.source or text
    return ""


def is_network(redirection: Redirection) -> bool:
    """Return whether a redirection opens a connection."""
    return _NETWORK.match(redirection.target.prefix) is not None


def is_free(redirection: Redirection) -> bool:
    """Return whether a redirection touches no file: a descriptor, the terminal's streams, a text, or nothing."""
    operator, target = redirection.operator, redirection.target
    if redirection.body is not None or operator in {">&-", "<&-"}:
        return True
    if operator in {">&", "<&"} and target.value is not None and _DESCRIPTOR.fullmatch(target.value):
        return target.value != ""
    if len(target.pieces) == 1 and all(hole.kind == "process" for hole in target.holes) and target.holes:
        return True  # what stands in it is judged on its own
    return target.value in _FREE_OUTPUT or (">" not in operator and target.value == "/dev/stdin")


def writes(redirection: Redirection) -> bool:
    """Return whether a redirection writes."""
    return ">" in redirection.operator


def read_from(simple: Simple) -> list[Word]:
    """Return the files that a command gets as its input."""
    return [one.target for one in simple.redirections if not is_free(one) and not writes(one)]


_GIVEN = frozenset({"parameter", "command"})


def values(words: Iterable[Word]) -> list[str]:
    """Return the paths that some words may be, each once: what variables are set to."""
    return list(dict.fromkeys(text for word in words for text in ((word.path,) if word.path else likely(word))))


def filled(word: Word, given: Sequence[str]) -> Iterator[str]:
    """Yield what a word may become with what is given for the variables and commands in it."""
    if not any(hole.kind in _GIVEN and hole.name != "HOME" and not hole.number for hole in word.holes):
        return
    yield from given
    if len(word.holes) == 1 and len(word.pieces) > 1:
        yield from (f"{word.prefix}{one}{word.suffix}" for one in given)


def operands(simple: Simple, given: Sequence[str] = ()) -> Iterator[tuple[str, bool | None]]:
    """Yield every path that a command may name, and whether the program is known to write to such; ``None``: it is not.

    For rules that forbid: options are looked into (``--file=x``, ``-fx``, ``if=x``, ``@x``).
    """
    for words in (simple.words, *simple.wrapped):
        name = base(words[0].sketch) if words else ""
        writes = True if name in WRITERS else None if name in _NEVER_WRITE else False
        for word in words[1:]:
            for text in _candidates(word):
                if name in WRITERS or name in READERS:
                    yield from ((path, writes) for path in (text, *within(text)))
                elif "/" in text or "." in text:  # another program's word may be anything, as in "npm run build"
                    yield text, False
            for text in (*likely(word), *filled(word, given)):
                yield text, writes


def within(path: str) -> tuple[str, ...]:
    """Return a name for anything inside, should the path be a folder."""
    return (path.rstrip("/") + "/*",) if path.strip("./") else ()


def likely(word: Word) -> Iterator[str]:
    """Yield files that a word may become, when it is a pattern or is only known in part."""
    if word.value is not None or not word.pieces or word.path is not None:
        return
    if word.guess is not None:
        yield word.guess
    shown = "".join(piece if isinstance(piece, str) else _shown(piece) for piece in word.pieces)
    yield shown
    head, slash, last = shown.rpartition("/")
    if any(sign in last for sign in "*?["):
        dotted = last.startswith(".")
        for name in _LIKELY:
            if name.startswith(".") == dotted and fnmatchcase(name, last):
                yield head + slash + name


def _shown(hole: Hole) -> str:
    if hole.kind == "tilde":
        return {"~+": ".", "~-": "x"}.get(hole.name) or os.path.expanduser(hole.name)  # noqa: PTH111  # of any user
    return "~" if hole.name == "HOME" else hole.name if hole.kind == "glob" else "x"


def _candidates(word: Word) -> Iterator[str]:
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


def moves(words: Words) -> bool:
    """Return whether a command changes the folder that later ones run in."""
    return bool(words) and words[0].value in {"cd", "pushd", "popd"}
