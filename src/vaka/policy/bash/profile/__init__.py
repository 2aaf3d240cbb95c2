"""The read-only profile: uses of programs that change nothing, run nothing and print no secrets."""

from collections.abc import Callable, Mapping

from vaka.policy.bash.parse.syntax import SimpleCommand, Word, Words
from vaka.policy.bash.profile import git, system, text_tools
from vaka.policy.bash.profile.options import NotReadOnly, ProgramProfile

__all__ = ["PROGRAMS", "NotReadOnly", "find_read_files"]

PROGRAMS: Mapping[str, ProgramProfile] = text_tools.TEXT_PROGRAMS | system.SYSTEM_PROGRAMS

_INSPECTORS: Mapping[str, Callable[[Words], list[Word]]] = {
    "xxd": system.inspect_xxd, "test": system.inspect_test, "[": system.inspect_test, "set": system.inspect_set,
    "command": system.inspect_command, "exec": system.inspect_exec, "find": text_tools.inspect_find,
    "git": git.inspect_git, "read": system.inspect_read, "wait": system.inspect_wait,
}  # fmt: skip


def find_read_files(simple: SimpleCommand, words: Words) -> list[Word] | None:
    """Return the words that name files which a command reads; ``None`` when the command is not in the profile.

    Raises ``NotReadOnly`` when this use of the program does more than read.
    """
    name = words[0].value if words else None
    if name is None or words[0].from_braces:
        return None
    if (program := PROGRAMS.get(name)) is not None:
        return program.inspect(words[1:])
    if (inspect := _INSPECTORS.get(name)) is not None:
        return inspect(words[1:])
    if name in system.DECLARATION_BUILTINS:
        return system.inspect_declaration(simple)
    return [] if name in system.HARMLESS_BUILTINS else None
