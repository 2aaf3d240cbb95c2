"""What packages, their files and their modules may be called."""

import re
import unicodedata
from dataclasses import dataclass

from vaka.luau.packages.errors import PackageError, shown
from vaka.luau.packages.ranges import Range

_WORD = r"[a-z0-9][a-z0-9_-]{0,63}"
_NAME = re.compile(rf"(?:@{_WORD}/)?{_WORD}")
_UNSAFE = re.compile(r'[\\:*?"<>|]')  # each means something on one system or another
_LONGEST_PATH, _LONGEST_STEP, _DEEPEST = 512, 200, 32
_DEVICES = {"con", "prn", "aux", "nul", *(f"{port}{number}" for port in ("com", "lpt") for number in range(10))}


def check_name(text: str) -> str:
    """Return the name of a package, ``pkg`` or ``@scope/pkg``. Raises ``PackageError``."""
    if _NAME.fullmatch(text) is None or _DEVICES & set(text.removeprefix("@").split("/")):
        raise PackageError(
            f"{shown(text)} cannot name a package; "
            "expected 'pkg' or '@scope/pkg' in lower-case letters, digits, '-' and '_'"
        )
    return text


def check_path(text: str) -> str:
    """Return a path that stays inside its folder and means one file on every system. Raises ``PackageError``."""
    wrong = _wrong_with(text)
    if wrong:
        raise PackageError(f"path {shown(text)} {wrong}; expected a relative path such as 'sub/module.luau'")
    return text


def folded(path: str) -> str:
    """Return what is equal for paths that some file system takes for one."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", path).casefold())


def _wrong_with(path: str) -> str:
    steps = path.split("/")
    if not path or path.startswith("/"):
        return "is empty" if not path else "is absolute"
    if (
        len(path) > _LONGEST_PATH
        or len(steps) > _DEEPEST
        or any(len(step.encode("utf-8", "replace")) > _LONGEST_STEP for step in steps)
    ):
        return "is too long"
    if ".." in path:
        return "leads out of its folder"
    if not path.isprintable() or _UNSAFE.search(path):
        return "has a character that is not safe in a file's name"
    if any(not step or step == "." or step.endswith((".", " ")) or step.startswith(" ") for step in steps):
        return "has an empty step, or one with a dot or space at its end"
    if any(step.partition(".")[0].lower() in _DEVICES for step in steps):
        return "is the name of a device on some systems"
    return ""


@dataclass(frozen=True, slots=True)
class Reference:
    """What ``require`` is given: a package, the range asked for if any, and a module of it (``""``: its entry)."""

    name: str
    range: Range | None = None
    module: str = ""

    @classmethod
    def parse(cls, text: str) -> "Reference":
        """Read ``[@scope/]pkg[@range][/sub/module]``. Raises ``PackageError``."""
        steps = text.split("/")
        head = 2 if text.startswith("@") else 1
        name, mark, asked = "/".join(steps[:head])[1:].partition("@")
        if mark and not asked.strip():
            raise PackageError(f"{shown(text)} has an '@' with no range after it; expected '@scope/pkg@^1.0.0'")
        module = "/".join(steps[head:])
        if len(steps) > head:
            check_path(module)
        return cls(check_name(text[:1] + name), Range(asked) if mark else None, module)

    def __str__(self) -> str:
        asked = f"@{self.range}" if self.range is not None else ""
        return f"{self.name}{asked}" + (f"/{self.module}" if self.module else "")
