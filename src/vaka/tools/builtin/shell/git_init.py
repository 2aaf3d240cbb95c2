"""Run ``git init`` outside of the sandbox where commands may not write the config and hooks of a repository.

git writes a repository's config when it creates one, and that file is write-protected before it exists: a command that could write it
would decide what other programs of the user run. So the repository is created here, always the same empty one without hooks, and the rest
of the command runs in the sandbox.
"""

import os
import re
import shlex
from collections.abc import Iterable

from vaka.core.ports.tool import ToolContext
from vaka.tools.builtin.shell.supervisor import ShellSupervisor, workspace_roots_of

_BRANCH_NAME = r"[A-Za-z0-9_][A-Za-z0-9_./-]{0,99}"
_INIT_COMMAND = re.compile(
    rf"\s*git[ \t]+init(?P<options>(?:[ \t]+(?:-q|--quiet|\.|-b[ \t]+{_BRANCH_NAME}|--initial-branch=(?:{_BRANCH_NAME})))*)"
    r"[ \t]*(?P<rest>(?:&&|;|\n)(?s:.*))?"
)
_REPOSITORY_COMMAND = re.compile(r"\bgit\b[^;&|\n]*\b(?:init|clone)\b")
_GIT_CONFIG = "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n\tlogallrefupdates = true\n"
_DEFAULT_BRANCH = "main"


def replace_git_init(context: ToolContext, shells: ShellSupervisor, command: str, folder: str) -> str:
    """Return the command to run: one that begins with ``git init`` finds the repository made, and goes on after that.

    Only where commands cannot make one themselves, in a folder of the workspace that has none.
    """
    found = _INIT_COMMAND.fullmatch(command)
    if found is None or not _is_git_protected(context, shells, folder):
        return command
    branch = re.search(rf"(?:-b[ \t]+|--initial-branch=)({_BRANCH_NAME})", found["options"])
    name = branch[1] if branch else _DEFAULT_BRANCH
    if not _is_branch_name(name) or not _make_repository(folder, name):
        return command
    quiet = re.search(r"-q|--quiet", found["options"])
    said = f"Initialized empty Git repository in {folder}/.git/ (branch {name})"
    first = "true" if quiet else f"printf '%s\\n' {shlex.quote(said)}"
    return first + (found["rest"] or "")


def git_init_advice(context: ToolContext, shells: ShellSupervisor, command: str, folder: str) -> Iterable[str]:
    """Yield what to say after a command that could not make a repository."""
    if _REPOSITORY_COMMAND.search(command) and _is_git_protected(context, shells, folder):
        yield (
            "commands cannot make .git here, since the settings and hooks of a repository are protected; a command "
            "that begins with plain `git init` (-q, -b NAME) makes an empty one, anything else only a person can do"
        )


def _is_git_protected(context: ToolContext, shells: ShellSupervisor, folder: str) -> bool:
    """Return whether a folder of the workspace has no repository and commands are kept from making one."""
    sandbox = context.world.sandbox
    if sandbox is None or "write" not in sandbox.enforces:
        return False
    here = os.path.realpath(folder)
    if here not in map(os.path.realpath, workspace_roots_of(context)):
        return False
    held = any(os.path.realpath(path).startswith(f"{here}/.git/") for path in shells.scope.protected)
    return held and not os.path.lexists(f"{here}/.git/HEAD")


def _is_branch_name(name: str) -> bool:
    """Return whether git takes this as the name of a branch; what is doubtful is left to git."""
    parts = name.split("/")
    return ".." not in name and all(
        part and not part.startswith((".", "-")) and not part.endswith((".lock", ".")) for part in parts
    )


def _make_repository(folder: str, branch: str) -> bool:
    """Make an empty repository, unless there is something already; links are not followed."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
    try:
        top = os.open(os.path.realpath(folder), flags)
    except OSError:
        return False
    try:
        return _fill_repository(top, branch)
    except OSError:
        return False  # then git says what is wrong
    finally:
        os.close(top)


def _fill_repository(top: int, branch: str) -> bool:
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
        _write_file(made, "config", _GIT_CONFIG)
        _write_file(made, "HEAD", f"ref: refs/heads/{branch}\n")
        return True
    finally:
        os.close(made)


def _write_file(folder: int, name: str, text: str) -> None:
    file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644, dir_fd=folder)
    try:
        os.write(file, text.encode())
    finally:
        os.close(file)
