"""The environment variables of a command: those of this program without secrets and sockets."""

import functools
import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase, translate

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
