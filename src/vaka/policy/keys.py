"""Places where keys lie: what only reads is asked about there."""

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase

_PLACES = re.compile(
    r"(?:^|/)(?:\.ssh|\.gnupg|\.aws|\.azure|\.kube|\.docker|\.netrc|\.pgpass|\.git-credentials|\.npmrc|\.pypirc"
    r"|\.config/(?:gcloud|gh|op)|\.[a-z]*_history|\.vault-token|id_(?:rsa|dsa|ecdsa|ed25519)|keyrings)(?:/|$)"
    r"|^/etc/(?:g?shadow|sudoers|ssl/private|ssh/ssh_host)|^/proc/.*(?:environ|mem|cmdline|maps)$|^/(?:var/)?run/secrets"
    r"|^/dev/(?!null$|zero$|urandom$|random$|stdin$|stdout$|stderr$|fd/|tty$)"
)
_FILES = ("/etc/shadow", "/etc/gshadow", "/etc/sudoers", "/proc/1/environ", "/proc/self/environ", "/run/secrets")
_NAMES = (
    ".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".netrc", ".pgpass", ".git-credentials", ".npmrc",
    ".pypirc", ".vault-token", ".bash_history",
)  # fmt: skip


def lie_at(path: str) -> bool:
    """Return whether keys lie at a path, which is normal and may begin with ``~``."""
    return _PLACES.search(path) is not None


def may_lie_at(pattern: str) -> bool:
    """Return whether a pattern that leads out of its folder may become a place where keys lie."""
    if not pattern.startswith(("/", "~", "..")):
        return False
    parts = pattern.split("/")
    dotted = [part for part in parts if part.startswith(".") and part.strip(".*?")]
    if any(fnmatchcase(name, part) for part in dotted for name in _NAMES):
        return True
    return any(_begins(file.split("/"), parts) for file in _FILES)


def _begins(file: Sequence[str], parts: Sequence[str]) -> bool:
    return len(parts) >= len(file) and all(map(fnmatchcase, file, parts))
