"""Paths in commands: what is read, what is written, and which folder a script is in."""

import os
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import TypeAlias

from vaka.core.types.tool import Verdict
from vaka.policy.bash.parse.preflight import name_set
from vaka.policy.bash.parse.syntax import Redirection, SimpleCommand, Word, WordExpansion, Words
from vaka.policy.bash.parse.wrappers import base_name
from vaka.policy.sensitive_paths import holds_secrets, may_match_secrets

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
