"""The read-only profile: which uses of which programs change nothing, run nothing and tell no secrets."""

from collections.abc import Callable, Mapping

from vaka.policy.bash.profile import git, search, shell, system, texts
from vaka.policy.bash.profile.options import Program, Refused
from vaka.policy.bash.words import Simple, Word, Words

__all__ = ["PROGRAMS", "Refused", "known", "reads"]

PROGRAMS: Mapping[str, Program] = {**texts.PROGRAMS, **system.PROGRAMS, **search.PROGRAMS}
"""Programs told by their options alone."""

_OTHERS: Mapping[str, Callable[[Words], list[Word]]] = {
    "xxd": system.read_xxd,
    "test": system.read_test,
    "[": system.read_test,
    "command": system.read_command,
    "exec": system.read_exec,
    "find": search.read_find,
    "git": git.read_git,
    "set": shell.read_set,
    "read": shell.read_read,
    "wait": shell.read_wait,
}


def known(name: str | None) -> bool:
    """Return whether a program is in the profile at all."""
    return name in PROGRAMS or name in _OTHERS or name in shell.FREE or name in shell.DECLARATIONS


def reads(simple: Simple, words: Words) -> list[Word] | None:
    """Return the words that name files which a command only reads; ``None`` when the profile does not speak of it.

    Raises ``Refused`` when this use of the program does more than read.
    """
    name = words[0].value if words else None
    if name is None or words[0].braced:
        return None
    if (program := PROGRAMS.get(name)) is not None:
        return program.read(words[1:])
    if (other := _OTHERS.get(name)) is not None:
        return other(words[1:])
    if name in shell.DECLARATIONS:
        return shell.read_declaration(simple)
    return [] if name in shell.FREE else None
