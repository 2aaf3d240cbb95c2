"""Files that a command may leave in a git repository that it makes: settings and hooks that run no program."""

import os
import re
import stat

SAMPLE_SUFFIX = ".sample"
"""Git does not run hooks whose names end so; its own templates have them."""

_MAX_BYTES = 256 * 1024

_HARMLESS_KEYS = {
    "core": {
        "repositoryformatversion",
        "filemode",
        "bare",
        "logallrefupdates",
        "ignorecase",
        "precomposeunicode",
        "symlinks",
        "autocrlf",
        "eol",
        "safecrlf",
        "quotepath",
    },
    "extensions": {"objectformat", "refstorage", "partialclone"},
    "user": {"name", "email"},
    "init": {"defaultbranch"},
    "remote": {"url", "pushurl", "fetch", "promisor", "partialclonefilter", "tagopt", "prune"},
    "branch": {"remote", "merge", "rebase", "description", "vscode-merge-base"},
    "submodule": {"url", "active"},
    "pull": {"rebase", "ff"},
    "push": {"default", "autosetupremote", "followtags"},
    "fetch": {"prune"},
    "merge": {"conflictstyle"},
}
"""Settings that name no program, file or folder that git takes settings from."""

_SECTION = re.compile(r'\[\s*([A-Za-z0-9-]+)(?:\s+"(?:[^"\\\n]|\\.)*")?\s*\]')

_KEY = re.compile(r"([A-Za-z][A-Za-z0-9-]*)\s*(=?)")


def is_harmless_config(folder: int, name: str) -> bool:
    """Return whether a file of an open folder is a git config that runs no program."""
    try:
        opened = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except OSError:
        return False
    with open(opened, "rb") as file:  # noqa: PTH123  # a descriptor
        if not stat.S_ISREG(os.fstat(opened).st_mode):
            return False
        data = file.read(_MAX_BYTES + 1)
    return len(data) <= _MAX_BYTES and has_only_harmless_settings(data.decode("utf-8", "replace"))


def has_only_harmless_settings(text: str) -> bool:
    """Return whether each setting is known to run no program; an unfinished last line may have a name only."""
    keys: set[str] = set()
    *lines, last = text.split("\n")
    for line in [*lines, last]:
        rest = line.strip()
        while section := _SECTION.match(rest):
            keys = _HARMLESS_KEYS.get(section[1].lower(), set())
            rest = rest[section.end() :].lstrip()
        if not rest or rest.startswith(("#", ";")):
            continue
        key = _KEY.match(rest)
        if line is last and (key is None or not key[2]):
            continue  # it is being written; without a value it has no effect
        if key is None or key[1].lower() not in keys or rest.endswith("\\"):
            return False
    return True
