"""The programs that a git repository itself names: in its settings and as hooks. git runs them, also to read."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from vaka.policy.git_index import UnreadableIndex, find_submodules

_MAX_SETTINGS_BYTES = 1 << 20
_MAX_REPOSITORIES = 256
"""Submodules that are looked at; git looks at each when it reads the state of the repository around it."""

_HEADER = re.compile(r'\s*\[\s*([A-Za-z0-9.-]+)(?:\s+"((?:\\.|[^"\\])*)")?\s*\]')

_SETTING = re.compile(r"\s*([A-Za-z][A-Za-z0-9-]*)\s*(?:=\s*(.*?)\s*)?")

_TRUTH = re.compile(r"|true|false|yes|no|on|off|\d+", re.IGNORECASE)

_UNCERTAIN = re.compile(r'["\\#;]')
"""Characters in a value that git may remove."""

_READING = re.compile(
    r"core\.fsmonitor|diff\.external|diff\..+\.(?:textconv|command)|filter\..+\.(?:clean|smudge|process)"
    r"|include\.path|includeif\..+|log\.showsignature|extensions\.partialclone|remote\..+\.promisor"
    r"|merge\..+\.driver|core\.alternaterefscommand",  # git log --remerge-diff, git log --alternate-refs
    re.DOTALL,
)
"""Settings that can make git run a program while it only reads."""

_WRITING = re.compile(
    r"core\.(?:askpass|editor|gitproxy|pager|sshcommand)|pager\..+|sequence\.editor|interactive\.difffilter|imap\.tunnel"
    r"|credential\..*helper|remote\..+\.(?:uploadpack|receivepack|vcs)|alias\..+|submodule\..+\.update"
    r"|(?:browser|difftool|guitool|man|mergetool|web|help|instaweb|sendemail|hook)\..+|protocol\..*allow"
    r"|lfs\.(?:customtransfer|extension)\..+|lfs\.standalonetransferagent"
    r"|.+\.(?:cmd|command|program|defaultkeycommand)|.+hook",
    re.DOTALL,
)
"""Settings that name a program which git runs for other commands."""

_PLAIN_ALIAS = re.compile(
    r"(?:add|blame|branch|checkout|cherry-pick|commit|describe|diff|fetch|log|merge|pull|push|rebase|reflog|reset|restore"
    r"|rev-parse|shortlog|show|stash|status|switch|tag)(?!.*\s-(?:x|-(?:exec|upl|rec|ext|textc|outp)))(?:\s.*)?",
    re.DOTALL,
)
"""Aliases of commands without an option that names a program or a file."""

_FORMATS = re.compile(r"format\.pretty|pretty\..+|(?:branch|tag)\.sort", re.DOTALL)
"""Settings with a format of commits."""

_SIGNATURE = re.compile(r"%[-+ ]?G|signature", re.IGNORECASE)
"""Placeholders for which git runs the program that checks signatures."""

_LFS = re.compile(r"git-lfs (?:clean -- %f|smudge (?:--skip )?-- %f|filter-process(?: --skip)?)")
"""The values of ``git lfs install --local``: the program is found in PATH, not in the repository."""

_READING_HOOKS = ("post-index-change",)


class _UnclearSettings(Exception):
    """Settings that cannot be read with certainty."""


def find_git_programs(folder: str, *, reads: bool) -> str:
    """Return what a git command in a folder may run because the repository says so, ``""`` for nothing.

    ``reads``: whether the command only reads. git reads the state of submodules as well.
    """
    top = _find_top(folder)
    if top is None:
        return ""
    pending, count = [top], 0
    while pending:
        top = pending.pop()
        count += 1
        try:
            if count > _MAX_REPOSITORIES:
                raise _UnclearSettings("there are too many submodules to look at")
            found = _find_in_repository(top, reads=reads, nested=count > 1)
            pending += (f"{top}/{path}" for path in find_submodules(top) if os.path.lexists(f"{top}/{path}/.git"))
        except (_UnclearSettings, UnreadableIndex) as error:
            found = f"the settings of {top} ({error})"
        if found:
            return found
    return ""


def _find_top(folder: str) -> str | None:
    for path in (Path(folder), *Path(folder).parents):
        if os.path.lexists(path / ".git") or _is_git_folder(path):
            return str(path)
    return None


def _is_git_folder(path: Path) -> bool:
    return (path / "HEAD").is_file() and (path / "objects").is_dir() and (path / "refs").is_dir()


def _find_in_repository(top: str, *, reads: bool, nested: bool) -> str:
    git = _git_folder_of(Path(top))
    if git is None:
        return f"the repository that its folder {top} itself is"
    common = git / (_read_line(git / "commondir") or ".")
    settings = [*_iter_settings(common / "config"), *_iter_settings(git / "config.worktree")]
    hooks = common / "hooks"
    for key, value in settings:
        if key == "core.hookspath":
            if _UNCERTAIN.search(value):
                return f"{key} of {top}"
            hooks = Path(top, os.path.expanduser(value))  # noqa: PTH111  # "~" of any user
        elif key == "core.worktree" and not nested:
            return f"{key} of {top}, which names another folder"
        elif _names_program(key, value, reads=reads):
            return f"{key} of {top}"
    hook = next(_iter_hooks(hooks, reads=reads), "")
    return f"the hook {hook} of {top}" if hook else ""


def _git_folder_of(top: Path) -> Path | None:
    """Return the git folder of a work tree, ``None`` if the folder itself is one."""
    git = top / ".git"
    if not os.path.lexists(git):
        return None
    named = _read_line(git).removeprefix("gitdir:").strip() if git.is_file() else ""
    return top / named if named else git


def _names_program(key: str, value: str, *, reads: bool) -> bool:
    if (key == "core.fsmonitor" or key.startswith("pager.")) and _TRUTH.fullmatch(value):
        return False  # the daemon of git itself, or whether the pager runs
    if key.startswith("filter.lfs.") and _LFS.fullmatch(value):
        return False
    if key == "log.showsignature" or key.endswith(".promisor"):
        return value.lower() not in {"false", "no", "off", "0"}
    if key.startswith("submodule.") and "!" not in value:
        return False
    if key.startswith("alias.") and _PLAIN_ALIAS.fullmatch(value.replace('"', "")):
        return False
    if _FORMATS.fullmatch(key):
        return _SIGNATURE.search(re.sub(r'["\\]', "", value)) is not None
    return bool(_READING.fullmatch(key) or (not reads and _WRITING.fullmatch(key)))


def _iter_hooks(folder: Path, *, reads: bool) -> Iterator[str]:
    """Yield the hooks that git would run: it runs executable files with these names."""
    try:
        paths = sorted(folder.iterdir())
    except OSError:
        return
    for path in paths:
        wanted = path.name in _READING_HOOKS if reads else not path.name.endswith(".sample")
        if wanted and path.is_file() and os.access(path, os.X_OK):
            yield path.name


def _iter_settings(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the settings of a file, with lower-case names. Raises ``_UnclearSettings``."""
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_SETTINGS_BYTES + 1)
    except FileNotFoundError:
        return
    except OSError as error:
        raise _UnclearSettings(error.strerror or "it cannot be read") from None
    if len(data) > _MAX_SETTINGS_BYTES:
        raise _UnclearSettings("too large to look at")
    section = ""
    for line in data.decode("utf-8", "surrogateescape").removeprefix("\ufeff").split("\n"):
        rest = line.rstrip("\r")
        while found := _HEADER.match(rest):
            section = found[1].lower() + (f".{found[2].lower()}" if found[2] is not None else "")
            rest = rest[found.end() :]
        if not rest.strip() or rest.lstrip().startswith(("#", ";")):
            continue
        setting = _SETTING.fullmatch(rest)
        if setting is None or rest.endswith("\\"):
            raise _UnclearSettings(f"the line {rest.strip()!r} is not understood")
        yield f"{section}.{setting[1].lower()}", (setting[2] or "").strip('"')


def _read_line(path: Path) -> str:
    try:
        with path.open(encoding="utf-8", errors="surrogateescape") as file:
            return file.readline(_MAX_SETTINGS_BYTES).strip()
    except OSError:
        return ""
