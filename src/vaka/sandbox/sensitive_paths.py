"""Default paths that commands must not read (keys) or must not change (git configuration, editor settings)."""

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
"""In a workspace: what other programs of its owner would run, or take orders from."""
_BARE_REPOSITORY_MARKERS = ("refs", "objects", "HEAD")
"""What git takes a folder for a repository by, if there is no other in it: and a command can spoil ``.git``. So one of
them stays missing. ``HEAD`` is last, since git does not know what is meant by its name while something is called so."""
_COMMON_DIRECTORY_FILE = "commondir"
"""Where git looks for the others."""
_PROTECTED_IN_BARE_REPOSITORY = ("config", "config.worktree", "commondir", "hooks", "info/attributes")
PLACEHOLDER_FOLDERS = (
    ".git", ".claude", ".vaka", ".vscode", ".idea", ".husky", ".devcontainer", "hooks", "info", "agents",
    "commands", ".gitmodules", "vaka.toml", ".mcp.json", ".envrc",
)  # fmt: skip
"""Those of such names that are held as folders while they are missing. The last ones would be files: but an empty
folder is nothing to git, and an empty file would be committed by the next ``git add``."""


def secret_paths(homes: Iterable[Path] | None = None) -> tuple[str, ...]:
    """Return where people and systems keep keys; ``homes`` are all there are, if none are given."""
    folders = tuple(homes) if homes is not None else _list_homes()
    hosts = tuple(str(path) for path in Path("/etc/ssh").glob("ssh_host_*_key")) if Path("/etc/ssh").is_dir() else ()
    return (*(str(home / name) for home in folders for name in _SECRETS_IN_HOMES), *_SYSTEM_SECRETS, *hosts)


def protected_paths(workspace: str) -> tuple[str, ...]:
    """Return what of a workspace should stay as it is, also that it is no repository of another kind than it was."""
    folder = workspace.rstrip("/")
    missing = next((name for name in _BARE_REPOSITORY_MARKERS if _is_missing(f"{folder}/{name}")), "")
    # Sockets hold them: git does not add those, and takes none for what it looks for; a folder is a package for Python.
    more = (f"{_COMMON_DIRECTORY_FILE}//", f"{missing}//") if missing else _PROTECTED_IN_BARE_REPOSITORY
    return tuple(f"{folder}/{name}" for name in (*PROTECTED_NAMES, *more))


def _is_missing(path: str) -> bool:
    """Whether nothing is there, but perhaps what held the place for a command and was left behind."""
    try:
        return is_placeholder(os.lstat(path))
    except OSError:
        return True


def _list_homes() -> tuple[Path, ...]:
    found = {Path.home(), Path("/root")}
    try:
        found.update(path for path in Path("/home").iterdir() if path.is_dir())
    except OSError:
        return tuple(sorted(found))
    return tuple(sorted(found))
