"""The values of a session: state of the application, and values that vaka keeps for itself."""

_OWN_PREFIX = "$"
_OWN_KEYS = frozenset(
    {
        "commands.allowed",
        "environment",
        "facts.input",
        "facts.pending",
        "files.changed",
        "hooks.active",
        "mail.sent",
        "memory.given",
        "memory.owner",
        "shell.cwd",
        "shell.tasks",
        "thread.hidden",
    }
)
"""Keys of vaka's own values. They name folders, files and commands of the server."""
_SEEN_FILES = "files.seen."


def is_application_value(key: str) -> bool:
    """Return whether a client sees the session value of this key; for a child agent, a path follows the key."""
    if key.startswith((_OWN_PREFIX, _SEEN_FILES)):
        return False
    return key.partition("/")[0] not in _OWN_KEYS
