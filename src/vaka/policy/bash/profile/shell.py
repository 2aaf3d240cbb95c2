"""What the shell does for itself: it moves, counts, waits and ends."""

import re
from collections.abc import Callable

from vaka.policy.bash.profile.options import Refused
from vaka.policy.bash.variables import safe, unsafe
from vaka.policy.bash.words import Simple, Word, Words

FREE = frozenset({"break", "continue", "return", "exit", "shift", "[["})
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SETS = re.compile(r"[-+](?:[aefuxvnCE]|o)+")
_SETTINGS = frozenset(
    {"pipefail", "errexit", "nounset", "xtrace", "noclobber", "noglob", "posix", "verbose", "errtrace"}
)


def read_set(words: Words) -> list[Word]:
    """``set -euo pipefail`` and the like; alone it prints every variable."""
    if not words:
        raise Refused("set alone prints every variable, and the keys among them")
    for word in words:
        if word.value is None or not (_SETS.fullmatch(word.value) or word.value in _SETTINGS):
            raise Refused(f"set {word.source} is not known to be harmless")
    return []


def read_read(words: Words) -> list[Word]:
    """``read`` fills variables."""
    valued = False
    for word in words:
        value = word.value
        if valued and value is not None:
            valued = False
        elif value is None or (not value.startswith("-") and (not _NAME.fullmatch(value) or unsafe(value))):
            raise Refused(f"read sets {word.source}")
        elif value.startswith("-"):
            if "a" in value or "u" in value:
                raise Refused(f"read {value} is not known to be harmless")
            valued = value[-1] in "dinNpt"
    return []


def read_wait(words: Words) -> list[Word]:
    """``wait``, ``wait 42``, ``wait $!``: only with ``-p`` it fills a variable."""
    for word in words:
        last = bool(word.holes) and all(hole.name == "!" for hole in word.holes)
        if not last and (word.value is None or not re.fullmatch(r"-[nf]+|%?\w+|%[%+-]", word.value)):
            raise Refused(f"wait {word.source} may fill a variable")
    return []


def read_declaration(simple: Simple) -> list[Word]:
    """``local x=1``, ``export NODE_ENV=test``: variables that decide nothing."""
    name, exported = simple.name, simple.name == "export"
    assigned = {one.name for one in simple.assignments}
    for word in simple.words[1:]:
        value = word.value if word.value is not None else word.source
        if value.startswith(("-", "+")):
            if not re.fullmatch(r"-[aAilruxp]+", value) or name == "unset":
                raise Refused(f"{name} {value} is not known to be harmless")
            exported = exported or "x" in value
            if "p" in value or "i" in value:
                raise Refused(f"{name} {value} is not known to be harmless")
        elif (found := _NAME.match(value)) is None or (found[0] != value and found[0] not in assigned):
            raise Refused(f"{name} {word.source} is not known to be harmless")
        elif unsafe(found[0]) or (exported and not safe(found[0])):
            raise Refused(f"{name} {found[0]} reaches what runs later")
    if len(simple.words) == 1:
        raise Refused(f"{name} alone prints variables, and the keys among them")
    return []


DECLARATIONS = frozenset({"export", "declare", "typeset", "local", "readonly", "unset"})


def folder(words: Words, inside: Callable[[str], bool] | None) -> str:
    """Return where ``cd`` leads, when that is inside the workspace. Raises ``Refused``."""
    operands = [word for word in words if word.value not in {"-P", "-L", "--"}]
    if len(operands) != 1:
        raise Refused("cd to nowhere in particular leads home")
    path = operands[0].path
    if path is None or path.startswith("-"):
        raise Refused(f"where cd {operands[0].source} leads is not known")
    if not (inside(path) if inside is not None else below(path)):
        raise Refused(f"cd {operands[0].source} leads out of the workspace")
    return path


def below(path: str) -> bool:
    """Return whether a path surely stays below where it begins."""
    if path.startswith(("/", "~")) or not path:
        return False
    depth = 0
    for part in path.split("/"):
        depth += -1 if part == ".." else 0 if part in {"", "."} else 1
        if depth < 0:
            return False
    return True
