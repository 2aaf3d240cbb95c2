"""The read-only profile: which uses of which programs change nothing, run nothing and tell no secrets."""

from collections.abc import Callable, Mapping

from vaka.policy.bash.parse.syntax import SimpleCommand, Word, Words
from vaka.policy.bash.profile import git, system, text_tools
from vaka.policy.bash.profile.options import NotReadOnly, ProgramProfile

__all__ = ["PROGRAMS", "NotReadOnly", "find_read_files", "is_in_profile"]

PROGRAMS: Mapping[str, ProgramProfile] = {
    **text_tools.TEXT_PROGRAMS,
    **system.SYSTEM_PROGRAMS,
    **text_tools.SEARCH_PROGRAMS,
}
"""Programs told by their options alone."""

_SPECIAL_PROGRAMS: Mapping[str, Callable[[Words], list[Word]]] = {
    "xxd": system.inspect_xxd,
    "test": system.inspect_test,
    "[": system.inspect_test,
    "command": system.inspect_command,
    "exec": system.inspect_exec,
    "find": text_tools.inspect_find,
    "git": git.inspect_git,
    "set": system.inspect_set,
    "read": system.inspect_read,
    "wait": system.inspect_wait,
}


def is_in_profile(name: str | None) -> bool:
    """Return whether a program is in the profile at all."""
    return (
        name in PROGRAMS
        or name in _SPECIAL_PROGRAMS
        or name in system.HARMLESS_BUILTINS
        or name in system.DECLARATION_BUILTINS
    )


def find_read_files(simple: SimpleCommand, words: Words) -> list[Word] | None:
    """Return the words that name files which a command only reads; ``None`` when the profile does not speak of it.

    Raises ``Refused`` when this use of the program does more than read.
    """
    name = words[0].value if words else None
    if name is None or words[0].from_braces:
        return None
    if (program := PROGRAMS.get(name)) is not None:
        return program.inspect(words[1:])
    if (other := _SPECIAL_PROGRAMS.get(name)) is not None:
        return other(words[1:])
    if name in system.DECLARATION_BUILTINS:
        return system.inspect_declaration(simple)
    return [] if name in system.HARMLESS_BUILTINS else None
