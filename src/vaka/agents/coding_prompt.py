"""The system prompt of the coding agent: a fixed text, the environment of the session, and instructions.

The order keeps the beginning of the prompt the same for as long as possible, since providers cache it. The environment
is described once per session and stored in its log, so that it does not change between turns.
"""

import platform
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from vaka.core.loop.context import Turn
from vaka.core.types.control import StateChanged

ENVIRONMENT_KEY = "environment"
"""The session value that describes the environment."""
MAX_HEAD_BYTES = 4096
"""The largest file that can name a branch."""


def base_prompt() -> str:
    """Return the fixed part of the prompt."""
    return Path(__file__).with_name("coding_prompt.md").read_text("utf-8").strip()


def coding_instructions(
    folder: Path, *, base: "str | Callable[[], str] | None" = None, instructions: str = ""
) -> Callable[[Turn], str]:
    """Return instructions for an agent that works in a folder.

    Args:
        folder: The folder that the environment describes.
        base: Replaces the fixed part; a function returns it for each turn.
        instructions: Text after the environment.
    """
    fixed = base_prompt() if base is None else base

    def make_instructions(turn: Turn) -> str:
        environment = turn.get_state(ENVIRONMENT_KEY)
        if not isinstance(environment, str):
            environment = describe_environment(folder, datetime.fromtimestamp(turn.env.clock.time(), UTC))
            turn.log.defer(turn.scope, StateChanged(key=ENVIRONMENT_KEY, value=environment))
        text = fixed.strip() if isinstance(fixed, str) else fixed().strip()
        return "\n\n".join(part for part in (text, environment, instructions.strip()) if part)

    return make_instructions


def is_coding_agent(instructions: object) -> bool:
    """Return whether instructions were made by ``coding_instructions``."""
    return getattr(instructions, "__module__", "") == __name__


def describe_environment(folder: Path, now: datetime) -> str:
    """Return the folder, its branch, the system and the date."""
    branch = _branch_of(folder)
    git = f"yes, branch {branch}" if branch else "no"
    lines = [
        f"Working folder: {folder}",
        f"Git repository: {git}",
        f"System: {platform.system()} {platform.release()} ({platform.machine()})",
        f"Date: {now:%Y-%m-%d}",
    ]
    return "\n".join(["Environment, when this session began", *(f"- {line}" for line in lines)])


def _branch_of(folder: Path) -> str:
    """Return the branch that is checked out, ``""`` outside a repository.

    It reads the files of git itself: running git would run what the configuration of an untrusted repository names.
    """
    for place in (folder, *folder.parents):
        marker = place / ".git"
        try:
            if marker.is_file():  # a worktree or a submodule
                marker = place / marker.read_text("utf-8").removeprefix("gitdir:").strip()
            file = marker / "HEAD"
            head = file.read_text("utf-8").strip() if file.is_file() and file.stat().st_size < MAX_HEAD_BYTES else ""
        except (OSError, UnicodeDecodeError):
            continue
        if not head:
            continue
        name = head.removeprefix("ref: refs/heads/")
        shown = name if name != head else f"{head[:12]} (detached)"
        return shown[:200] if shown.isprintable() else "unknown"
    return ""
