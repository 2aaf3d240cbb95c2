"""Existing protected paths that a command could not change, as the errors in its output name them."""

import re
from collections.abc import Iterable

from vaka.core.types.message import Part, Text
from vaka.matching.sensitive_paths import protected_part_of

MAX_NAMED = 5
_MAX_CHARACTERS = 16 * 1024
"""At the end of the output."""

_REFUSED_CHANGE = re.compile(
    r"^.*\b(?:read-only file system|resource busy|erofs|ebusy)\b.*$", re.IGNORECASE | re.MULTILINE
)
"""The kernel's errors about a mount, in the words of programs."""
_WORD = re.compile(r"[^\s'\"`:,;()‘’]+")


def describe_kept(output: Iterable[Part]) -> list[str]:
    """Return a note that tells the model why protected paths did not change, and what it can do about it."""
    text = "".join(part.text for part in output if isinstance(part, Text))[-_MAX_CHARACTERS:]
    words = [word for line in _REFUSED_CHANGE.findall(text) for word in _WORD.findall(line)]
    found = list(dict.fromkeys(word for word in words if protected_part_of(word.split("/"))))
    if not found:
        return []
    names = ", ".join(found[:MAX_NAMED]) + (" and others" if len(found) > MAX_NAMED else "")
    note = (
        f"the sandbox lets commands change no existing file that decides what other programs run or what is allowed "
        f"({names}); other effects of the command stay. Change such files with Edit or Write, or call Bash again with "
        f"dangerouslyDisableSandbox; a person is asked for both"
    )
    return [note]
