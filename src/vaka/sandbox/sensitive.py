"""What commands must not read: variables with secrets, paths of keys; and the paths that they must not change."""

import contextlib
import functools
import os
import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase, translate
from pathlib import Path

from vaka.sandbox.warden.protected_paths import is_placeholder

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_SECRET_WORDS = (
    "API_?KEY", "APIKEY", "ACCESS_?KEY", "SECRET", "TOKEN", "PASSWORD", "PASSWD", "PASSPHRASE", "PRIVATE_?KEY",
    "CREDENTIAL", "SIGNING_?KEY", "ENCRYPTION_?KEY", "MASTER_?KEY", "AUTH_?KEY", "LICENSE_?KEY", "COOKIE",
    "SESSION_?KEY", "BEARER", "WEBHOOK_URL", "CONNECTION_?STRING",
)  # fmt: skip
_SECRET_NAME = re.compile("|".join(_SECRET_WORDS), re.IGNORECASE)
_SECRET_NAME_ENDING = re.compile(r"(?:^|_)(?:KEY|PASS|PWD|AUTH|PAT|DSN|CREDS)$", re.IGNORECASE)
"""Words that mean a secret only at the end of a name."""
_NEVER_SECRET = frozenset(("PWD", "OLDPWD"))
_CLOUD_VARIABLES = (
    "AWS_*", "AZURE_*", "ARM_*", "GOOGLE_*", "GCLOUD_*", "GCP_*", "CLOUDSDK_*", "DIGITALOCEAN_*", "HCLOUD_*",
    "OCI_*", "ALIBABA_CLOUD_*", "TENCENTCLOUD_*", "IBMCLOUD_*", "KUBECONFIG", "KUBE_*", "VAULT_*", "CONSUL_HTTP_*",
    "NOMAD_*", "TF_VAR_*", "TF_TOKEN_*", "OPENAI_*", "ANTHROPIC_*", "GEMINI_*", "VAKA_*", "PG*", "MYSQL_*",
    "REDIS_URL", "MONGO*_UR[IL]",
)  # fmt: skip
_SOCKET_AND_CODE_VARIABLES = (
    "SSH_AUTH_SOCK", "SSH_AGENT_PID", "GPG_AGENT_INFO", "DBUS_*_BUS_ADDRESS", "XDG_RUNTIME_DIR", "DISPLAY",
    "XAUTHORITY", "WAYLAND_DISPLAY", "DOCKER_HOST", "DOCKER_CONFIG", "CONTAINER_HOST", "PODMAN_*", "TMUX",
    "TMUX_PANE", "STY", "VSCODE_*", "NOTIFY_SOCKET", "LISTEN_FDS", "LISTEN_PID", "INVOCATION_ID", "JOURNAL_STREAM",
    "SUDO_*", "BASH_ENV", "ENV", "BASH_FUNC_*", "PROMPT_COMMAND", "LD_PRELOAD", "LD_AUDIT", "GIT_ASKPASS",
    "SSH_ASKPASS",
)  # fmt: skip
"""Sockets of other programs, and code that would run before the command."""
_SECRET_VALUE = re.compile(
    r"(?:^|[^A-Za-z0-9])(?:sk-[A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|xox[abeprs]-"
    r"[\w-]{10,}|A[KS]IA[0-9A-Z]{16}|AIza[\w-]{30,}|eyJ[\w-]{10,}\.eyJ[\w-]{10,}\.|-----BEGIN [A-Z ]*PRIVATE KEY)"
)
_URL_WITH_PASSWORD = re.compile(r"[a-z][a-z0-9+.-]*://[^/\s:@]*:[^/\s@]+@", re.IGNORECASE)
_DROPPED_VARIABLES = re.compile(
    "|".join(translate(pattern) for pattern in (*_CLOUD_VARIABLES, *_SOCKET_AND_CODE_VARIABLES))
)


@functools.lru_cache(maxsize=4096)  # the same variables are checked for every command
def is_secret(name: str, value: str) -> bool:
    """Return whether a variable looks like a secret, a socket or injected code, by its name or its value."""
    upper = name.upper()
    if upper in _NEVER_SECRET:
        return False
    if _SECRET_NAME.search(upper) or _SECRET_NAME_ENDING.search(upper):
        return True
    return bool(_DROPPED_VARIABLES.match(upper) or _SECRET_VALUE.search(value) or _URL_WITH_PASSWORD.search(value))


def scrub_environment(environ: Mapping[str, str], allow: Iterable[str] = ()) -> dict[str, str]:
    """Return the variables that a command may have; ``allow`` adds names or patterns with ``*``."""
    allowed = tuple(allow)
    return {
        name: value
        for name, value in environ.items()
        if name
        and "=" not in name
        and (any(fnmatchcase(name, pattern) for pattern in allowed) or not is_secret(name, value))
    }


def build_command_environment(
    environ: Mapping[str, str], overrides: Mapping[str, str], allow: Iterable[str] = (), *, proxy: str = ""
) -> dict[str, str]:
    """Return the variables of a command: defaults, the scrubbed ``environ``, the proxy and then ``overrides``."""
    defaults = {"PATH": DEFAULT_PATH, "HOME": "/", "LANG": "C.UTF-8", "TERM": "dumb"}
    variables = {**defaults, **scrub_environment(environ, allow)}
    if proxy:
        variables |= dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), proxy)
        variables |= dict.fromkeys(("NO_PROXY", "no_proxy"), "localhost,127.0.0.1,::1")
    return {**variables, **overrides}


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
