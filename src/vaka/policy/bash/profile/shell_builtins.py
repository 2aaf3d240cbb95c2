"""Shell builtins: cd, set, read, wait and declarations."""

import re
from collections.abc import Callable

from vaka.policy.bash.parse.syntax import SimpleCommand, Word, Words
from vaka.policy.bash.parse.variables import is_safe_variable, is_unsafe_variable
from vaka.policy.bash.profile.options import NotReadOnly

HARMLESS_BUILTINS = frozenset({"break", "continue", "return", "exit", "shift", "[["})
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SET_FLAGS = re.compile(r"[-+](?:[aefuxvnCE]|o)+")
_SET_OPTIONS = frozenset(
    {"pipefail", "errexit", "nounset", "xtrace", "noclobber", "noglob", "posix", "verbose", "errtrace"}
)


def inspect_set(words: Words) -> list[Word]:
    """``set -euo pipefail`` and the like; alone it prints every variable."""
    if not words:
        raise NotReadOnly("set alone prints every variable, and the keys among them")
    for word in words:
        if word.value is None or not (_SET_FLAGS.fullmatch(word.value) or word.value in _SET_OPTIONS):
            raise NotReadOnly(f"set {word.source} is not known to be harmless")
    return []


def inspect_read(words: Words) -> list[Word]:
    """``read`` fills variables."""
    valued = False
    for word in words:
        value = word.value
        if valued and value is not None:
            valued = False
        elif value is None or (not value.startswith("-") and (not _NAME.fullmatch(value) or is_unsafe_variable(value))):
            raise NotReadOnly(f"read sets {word.source}")
        elif value.startswith("-"):
            if "a" in value or "u" in value:
                raise NotReadOnly(f"read {value} is not known to be harmless")
            valued = value[-1] in "dinNpt"
    return []


def inspect_wait(words: Words) -> list[Word]:
    """``wait``, ``wait 42``, ``wait $!``: only with ``-p`` it fills a variable."""
    for word in words:
        last = bool(word.expansions) and all(hole.name == "!" for hole in word.expansions)
        if not last and (word.value is None or not re.fullmatch(r"-[nf]+|%?\w+|%[%+-]", word.value)):
            raise NotReadOnly(f"wait {word.source} may fill a variable")
    return []


def inspect_declaration(simple: SimpleCommand) -> list[Word]:
    """``local x=1``, ``export NODE_ENV=test``: variables that decide nothing."""
    name, exported = simple.name, simple.name == "export"
    assigned = {one.name for one in simple.assignments}
    for word in simple.words[1:]:
        value = word.value if word.value is not None else word.source
        if value.startswith(("-", "+")):
            if not re.fullmatch(r"-[aAilruxp]+", value) or name == "unset":
                raise NotReadOnly(f"{name} {value} is not known to be harmless")
            exported = exported or "x" in value
            if "p" in value or "i" in value:
                raise NotReadOnly(f"{name} {value} is not known to be harmless")
        elif (found := _NAME.match(value)) is None or (found[0] != value and found[0] not in assigned):
            raise NotReadOnly(f"{name} {word.source} is not known to be harmless")
        elif is_unsafe_variable(found[0]) or (exported and not is_safe_variable(found[0])):
            raise NotReadOnly(f"{name} {found[0]} reaches what runs later")
    if len(simple.words) == 1:
        raise NotReadOnly(f"{name} alone prints variables, and the keys among them")
    return []


DECLARATION_BUILTINS = frozenset({"export", "declare", "typeset", "local", "readonly", "unset"})


def resolve_cd(words: Words, is_inside: Callable[[str], bool] | None) -> str:
    """Return where ``cd`` leads, when that is inside the workspace. Raises ``Refused``."""
    operands = [word for word in words if word.value not in {"-P", "-L", "--"}]
    if len(operands) != 1:
        raise NotReadOnly("cd to nowhere in particular leads home")
    path = operands[0].path
    if path is None or path.startswith("-"):
        raise NotReadOnly(f"where cd {operands[0].source} leads is not known")
    if not (is_inside(path) if is_inside is not None else is_below(path)):
        raise NotReadOnly(f"cd {operands[0].source} leads out of the workspace")
    return path


def is_below(path: str) -> bool:
    """Return whether a path surely stays below where it begins."""
    if path.startswith(("/", "~")) or not path:
        return False
    depth = 0
    for part in path.split("/"):
        depth += -1 if part == ".." else 0 if part in {"", "."} else 1
        if depth < 0:
            return False
    return True
