"""``git init`` in a workspace whose commands may not touch the settings and hooks of its repository.

git writes the settings of a repository when it makes one, and those are held fast from before they exist: whoever could
write them would decide what other programs of the owner run. So a repository is begun here, always the same empty one
without hooks, and the command goes on from there in the sandbox like any other.
"""

import os
import re
import shlex
from collections.abc import Iterable

from vaka.core.ports.tool import ToolContext
from vaka.tools.builtin.shells import Shells, roots

_BRANCH = r"[A-Za-z0-9_][A-Za-z0-9_./-]{0,99}"
_INIT = re.compile(
    rf"\s*git[ \t]+init(?P<options>(?:[ \t]+(?:-q|--quiet|\.|-b[ \t]+{_BRANCH}|--initial-branch=(?:{_BRANCH})))*)"
    r"[ \t]*(?P<rest>(?:&&|;|\n)(?s:.*))?"
)
_MEANT = re.compile(r"\bgit\b[^;&|\n]*\b(?:init|clone)\b")
_SETTINGS = "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n\tlogallrefupdates = true\n"
_MAIN = "main"


def begun(context: ToolContext, shells: Shells, command: str, folder: str) -> str:
    """Return the command to run: one that begins with ``git init`` finds the repository made, and goes on after that.

    Only where commands cannot make one themselves, in a folder of the workspace that has none.
    """
    found = _INIT.fullmatch(command)
    if found is None or not _held(context, shells, folder):
        return command
    branch = re.search(rf"(?:-b[ \t]+|--initial-branch=)({_BRANCH})", found["options"])
    name = branch[1] if branch else _MAIN
    if not _is_branch(name) or not _make(folder, name):
        return command
    quiet = re.search(r"-q|--quiet", found["options"])
    said = f"Initialized empty Git repository in {folder}/.git/ (branch {name})"
    first = "true" if quiet else f"printf '%s\\n' {shlex.quote(said)}"
    return first + (found["rest"] or "")


def advice(context: ToolContext, shells: Shells, command: str, folder: str) -> Iterable[str]:
    """Yield what to say after a command that could not make a repository."""
    if _MEANT.search(command) and _held(context, shells, folder):
        yield (
            "commands cannot make .git here, since the settings and hooks of a repository are protected; a command "
            "that begins with plain `git init` (-q, -b NAME) makes an empty one, anything else only a person can do"
        )


def _held(context: ToolContext, shells: Shells, folder: str) -> bool:
    """Return whether a folder of the workspace has no repository and commands are kept from making one."""
    sandbox = context.world.sandbox
    if sandbox is None or "write" not in sandbox.enforces:
        return False
    here = os.path.realpath(folder)
    if here not in map(os.path.realpath, roots(context)):
        return False
    held = any(os.path.realpath(path).startswith(f"{here}/.git/") for path in shells.fence.protected)
    return held and not os.path.lexists(f"{here}/.git/HEAD")


def _is_branch(name: str) -> bool:
    """Return whether git takes this as the name of a branch; what is doubtful is left to git."""
    parts = name.split("/")
    return ".." not in name and all(
        part and not part.startswith((".", "-")) and not part.endswith((".lock", ".")) for part in parts
    )


def _make(folder: str, branch: str) -> bool:
    """Make an empty repository, unless there is something already; links are not followed."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
    try:
        top = os.open(os.path.realpath(folder), flags)
    except OSError:
        return False
    try:
        return _fill(top, branch)
    except OSError:
        return False  # then git says what is wrong
    finally:
        os.close(top)


def _fill(top: int, branch: str) -> bool:
    try:
        os.mkdir(".git", dir_fd=top)
    except FileExistsError:
        pass  # empty, it only holds the place while another command runs
    made = os.open(".git", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=top)
    try:
        if os.listdir(made):  # noqa: PTH208  # by its descriptor
            return False
        for name in ("objects", "refs", "hooks", "info"):
            os.mkdir(name, dir_fd=made)
        _write(made, "config", _SETTINGS)
        _write(made, "HEAD", f"ref: refs/heads/{branch}\n")
        return True
    finally:
        os.close(made)


def _write(folder: int, name: str, text: str) -> None:
    file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644, dir_fd=folder)
    try:
        os.write(file, text.encode())
    finally:
        os.close(file)
