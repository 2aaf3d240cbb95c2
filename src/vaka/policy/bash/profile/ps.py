"""ps: everything but the environment of processes, and the keys in it."""

import re

from vaka.policy.bash.profile.options import Parsed, Program, Refused
from vaka.policy.bash.text import names
from vaka.policy.bash.words import Word

_DASHED = frozenset("AadefFjlMPyZcHLmnTVwCGgpqstUuoOkN")
"""Letters behind a dash; where one is not among them ``ps`` reads all words again as those without a dash."""
_LOOKED_UP = ("-u", "-U", "-g", "-G", "-t", "-p", "-q", "-s")
_OWN = frozenset({"USER", "LOGNAME", "UID", "EUID", "$", "PPID", "!"})
_VALUED = frozenset("okOpqtUN")
_REASON = "ps may show the environment of processes, and the keys in it"


def _check(parsed: Parsed) -> None:
    formats = parsed.values("-o", "-O", "--format", "-k", "--sort")
    looked_up = [word.value or _unknown(word) for word in parsed.values(*_LOOKED_UP)]
    letters = {name[1] for name, _ in parsed.options if not name.startswith("--")}
    again = not letters <= _DASHED or any(not re.fullmatch(r"[\d, ]+", value) for value in looked_up)
    if ("e" in letters and again) or any(re.fullmatch(r"[a-zA-Z]*e[a-zA-Z]*", value) for value in looked_up):
        raise Refused(_REASON)
    if any("env" in (word.value or "env").lower() for word in formats):
        raise Refused(_REASON)
    _check_undashed(parsed)


def _unknown(word: Word) -> str:
    """``-u $USER`` and ``-p $(pidof x)`` are what they say, anything else may be letters that say more."""
    sure = all(hole.name in _OWN or (hole.kind == "command" and hole.guess is None) for hole in word.holes)
    return "?" if sure else "e"


def _check_undashed(parsed: Parsed) -> None:
    """``ps aux``, ``ps axo user,pid``: letters, and behind some of them a value."""
    takes = False
    for word in parsed.operands:
        value = word.value
        if value is None or "env" in value.lower():
            raise Refused(_REASON)
        if takes or value[:1].isdigit():
            takes = False
            continue
        at = next((at for at, letter in enumerate(value) if letter in _VALUED), len(value))
        takes = at == len(value) - 1
        if "e" in value[:at]:
            raise Refused(_REASON)


PS = Program(
    lenient=True, valued="opqstuCGgUNOk", refused=names("-E --environment"), paths=False, check=_check,
    long_valued=names("format sort user User group Group pid ppid quick-pid sid tty"),
)  # fmt: skip
