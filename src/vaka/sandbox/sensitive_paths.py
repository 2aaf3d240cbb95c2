"""Default paths that commands must not read (keys) or must not change (git configuration, editor settings)."""

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

from vaka.sandbox.warden.protected_paths import is_placeholder

_SECRETS_IN_HOMES = (
    ".ssh", ".aws", ".azure", ".gnupg", ".kube", ".oci", ".config/gcloud", ".config/gh", ".config/hub",
    ".config/op", ".config/doctl", ".config/hcloud", ".config/rclone", ".config/sops", ".config/age",
    ".config/vaka", ".docker/config.json", ".docker/run", ".netrc", "_netrc", ".pgpass", ".my.cnf", ".npmrc",
    ".yarnrc.yml", ".pypirc", ".git-credentials", ".config/git/credentials", ".cargo/credentials",
    ".cargo/credentials.toml", ".gem/credentials", ".m2/settings.xml", ".gradle/gradle.properties", ".terraform.d",
    ".vault-token", ".password-store", ".local/share/keyrings", ".local/share/vaka", ".claude/.credentials.json",
    ".claude.json", ".codex/auth.json", ".gemini", ".mozilla", ".config/google-chrome", ".config/chromium",
    ".bash_history", ".zsh_history", ".python_history", ".psql_history", ".mysql_history", ".node_repl_history",
)  # fmt: skip
_SYSTEM_SECRETS = (
    "/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-", "/etc/sudoers", "/etc/sudoers.d",
    "/etc/ssl/private", "/etc/krb5.keytab", "/etc/kubernetes", "/var/lib/docker", "/var/lib/kubelet",
    "/var/lib/postgresql", "/var/snap/lxd", "/var/spool/cron", "/var/backups", "/boot",
)  # fmt: skip
PROTECTED_NAMES = (
    ".git/config", ".git/config.worktree", ".git/commondir", ".git/hooks", ".git/info/attributes", ".gitmodules",
    ".claude", ".vaka", ".vscode", ".idea", ".husky", ".devcontainer", "vaka.toml", ".mcp.json", ".envrc",
)  # fmt: skip
"""Paths in a workspace that other programs of its owner execute or take configuration from."""
_BARE_REPOSITORY_MARKERS = ("refs", "objects", "HEAD")
"""Git takes a folder that has all of these for a bare repository, if its ``.git`` is damaged; so one of them is kept
missing. ``HEAD`` is last: while a file has that name, git finds the revision ``HEAD`` ambiguous."""
_COMMON_DIRECTORY_FILE = "commondir"
"""Names the folder in which git looks for the others."""
_PROTECTED_IN_BARE_REPOSITORY = ("config", "config.worktree", "commondir", "hooks", "info/attributes")
PLACEHOLDER_FOLDERS = (
    ".git", ".claude", ".vaka", ".vscode", ".idea", ".husky", ".devcontainer", "hooks", "info", "agents",
    "commands", ".gitmodules", "vaka.toml", ".mcp.json", ".envrc",
)  # fmt: skip
"""Protected names whose placeholder is a folder while they are missing. The last ones are files otherwise, but git
ignores an empty folder, while the next ``git add`` would add an empty file."""


def secret_paths(homes: Iterable[Path] | None = None) -> tuple[str, ...]:
    """Return the usual paths of keys and credentials; ``homes`` are by default all home folders of this machine."""
    folders = tuple(homes) if homes is not None else _list_homes()
    host_keys = tuple(str(path) for path in Path("/etc/ssh").glob("ssh_host_*_key"))
    return (*(str(home / name) for home in folders for name in _SECRETS_IN_HOMES), *_SYSTEM_SECRETS, *host_keys)


def protected_paths(workspace: str) -> tuple[str, ...]:
    """Return the paths of a workspace that commands must not change, nor make so that it becomes a bare repository."""
    folder = workspace.rstrip("/")
    missing = next((name for name in _BARE_REPOSITORY_MARKERS if _is_missing(f"{folder}/{name}")), "")
    # A trailing "//" asks for a socket as placeholder: git neither adds nor reads it, and Python would import a folder.
    more = (f"{_COMMON_DIRECTORY_FILE}//", f"{missing}//") if missing else _PROTECTED_IN_BARE_REPOSITORY
    return tuple(f"{folder}/{name}" for name in (*PROTECTED_NAMES, *more))


def _is_missing(path: str) -> bool:
    """Return whether a path is missing, or a placeholder that was left behind."""
    try:
        return is_placeholder(os.lstat(path))
    except OSError:
        return True


def _list_homes() -> tuple[Path, ...]:
    homes = {Path.home(), Path("/root")}
    with contextlib.suppress(OSError):
        homes.update(path for path in Path("/home").iterdir() if path.is_dir())
    return tuple(sorted(homes))
