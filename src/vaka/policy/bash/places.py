"""Paths in commands: what is read, what is written, and where a script has gone meanwhile."""

import posixpath
import re
from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

from vaka.core.types.tool import Verdict
from vaka.policy.bash.text import names
from vaka.policy.bash.words import Redirection, Simple, Word, Words
from vaka.policy.bash.wrappers import base

Look: TypeAlias = Callable[[str], Verdict]
"""What reading or writing a path would be told: absolute, below ``~``, or relative to where the script began."""

_SECRETS = re.compile(
    r"(?:^|/)(?:\.ssh|\.gnupg|\.aws|\.azure|\.kube|\.docker|\.netrc|\.pgpass|\.git-credentials|\.npmrc|\.pypirc"
    r"|\.config/(?:gcloud|gh|op)|\.[a-z]*_history|\.vault-token|id_(?:rsa|dsa|ecdsa|ed25519)|keyrings)(?:/|$)"
    r"|^/etc/(?:g?shadow|sudoers|ssl/private|ssh/ssh_host)|^/proc/.*(?:environ|mem|cmdline|maps)$|^/(?:var/)?run/secrets"
    r"|^/dev/(?!null$|zero$|urandom$|random$|stdin$|stdout$|stderr$|fd/|tty$)"
)
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


class Folders:
    """Where a script may be by now: everywhere it may have gone with ``cd``, since any step may have failed."""

    MOST = 16

    def __init__(self) -> None:
        self.known: tuple[str, ...] | None = ("",)

    def go(self, word: Word | None) -> None:
        """Take note of a ``cd``."""
        path = word.path if word is not None else None
        if path is None or self.known is None or len(self.known) >= self.MOST:
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
        if _SECRETS.search(posixpath.normpath(text) if text else ""):
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
    return target.value in _FREE_OUTPUT or (">" not in operator and target.value == "/dev/stdin")


def writes(redirection: Redirection) -> bool:
    """Return whether a redirection writes."""
    return ">" in redirection.operator


def read_from(simple: Simple) -> list[Word]:
    """Return the files that a command gets as its input."""
    return [one.target for one in simple.redirections if not is_free(one) and not writes(one)]


def operands(simple: Simple) -> Iterator[tuple[str, bool]]:
    """Yield every path that a command may name, and whether the program is known to write to such.

    For rules that forbid: options are looked into (``--file=x``, ``-fx``, ``if=x``, ``@x``).
    """
    for words in (simple.words, *simple.wrapped):
        if words:
            name = base(words[0].sketch)
            for word in words[1:]:
                for text in _candidates(word):
                    yield text, name in WRITERS


def _candidates(word: Word) -> Iterator[str]:
    path = word.path
    if path is None or path in {"", "-", "--"} or "://" in path:
        return
    if path.startswith("-"):
        if not path.startswith("--") and len(path) > 2:
            yield path[2:]
        if "=" in path:
            yield path.partition("=")[2]
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
