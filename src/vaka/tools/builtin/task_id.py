"""The name of a command in the background, as the tools about such commands take it."""

from typing import Any

from vaka.core.types.errors import InvalidInput
from vaka.tools.builtin.shell import Shell

NAMES = ("task_id", "bash_id", "shell_id")


def parameters(**more: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a tool about one command; its name may also be given as others call it."""
    wanted = {"type": "string", "description": "What Bash returned when it started the command."}
    return {
        "type": "object",
        "properties": {"task_id": wanted, **more},
        "anyOf": [{"required": [name]} for name in NAMES],
    }


def id_in(tool: str, given: dict[str, Any], *more: str) -> str:
    """Return the name that was given. Raises ``InvalidInput`` when there is none, or something unknown beside it."""
    unknown = [name for name in given if name not in (*NAMES, *more)]
    if unknown:
        raise InvalidInput(f"{tool} takes {', '.join(('task_id', *more))}, not {', '.join(map(repr, unknown))}")
    names = [str(given[name]) for name in NAMES if given.get(name)]
    if not names:
        raise InvalidInput(f"{tool} needs a task_id")
    if len(set(names)) > 1:
        raise InvalidInput(f"{tool} is about one task, not {' and '.join(names)}")
    return names[0]


def described(shell: Shell) -> str:
    """Return how a command is, in words."""
    if shell.running:
        return f"{shell.id} is running"
    ended = "was killed" if shell.status == "killed" else "has ended"
    return f"{shell.id} {ended} with exit code {shell.code}"
