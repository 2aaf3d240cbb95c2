"""Names of packages, of their files and of their modules."""

import re
import unicodedata
from dataclasses import dataclass

from vaka.luau.packages.errors import PackageError, quote_text
from vaka.luau.packages.versions import Range

_NAME_PART = r"[a-z0-9][a-z0-9_-]{0,63}"
_NAME = re.compile(rf"(?:@{_NAME_PART}/)?{_NAME_PART}")
_UNSAFE_CHARACTERS = re.compile(r'[\\:*?"<>|]')  # each is special on some operating system
_MAX_PATH_CHARS, _MAX_STEP_BYTES, _MAX_PATH_STEPS = 512, 200, 32
_DEVICE_NAMES = {"con", "prn", "aux", "nul", *(f"{port}{number}" for port in ("com", "lpt") for number in range(10))}


def check_package_name(text: str) -> str:
    """Return the name of a package, ``pkg`` or ``@scope/pkg``. Raises ``PackageError``."""
    if _NAME.fullmatch(text) is None or _DEVICE_NAMES & set(text.removeprefix("@").split("/")):
        raise PackageError(
            f"{quote_text(text)} is not a package name; "
            "expected 'pkg' or '@scope/pkg' in lower-case letters, digits, '-' and '_'"
        )
    return text


def check_path(text: str) -> str:
    """Return a path that stays inside its folder and is valid on every operating system. Raises ``PackageError``."""
    problem = _find_path_problem(text)
    if problem:
        raise PackageError(f"path {quote_text(text)} {problem}; expected a relative path such as 'sub/module.luau'")
    return text


def normalize_path(path: str) -> str:
    """Return a key that is equal for paths that some file system treats as the same file."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", path).casefold())


def _find_path_problem(path: str) -> str:
    steps = path.split("/")
    if not path or path.startswith("/"):
        return "is empty" if not path else "is absolute"
    longest = max(len(step.encode("utf-8", "replace")) for step in steps)
    if len(path) > _MAX_PATH_CHARS or len(steps) > _MAX_PATH_STEPS or longest > _MAX_STEP_BYTES:
        return "is too long"
    if ".." in path:
        return "leads out of its folder"
    if not path.isprintable() or _UNSAFE_CHARACTERS.search(path):
        return "has a character that is not portable in file names"
    if any(not step or step == "." or step.endswith((".", " ")) or step.startswith(" ") for step in steps):
        return "has an empty step, or one with a dot or space at its end"
    if any(step.partition(".")[0].lower() in _DEVICE_NAMES for step in steps):
        return "is the name of a device on some systems"
    return ""


@dataclass(frozen=True, slots=True)
class PackageReference:
    """The argument of ``require``: a package, an optional range, and a module of it (``""``: its entry)."""

    name: str
    range: Range | None = None
    module: str = ""

    @classmethod
    def parse(cls, text: str) -> "PackageReference":
        """Read ``[@scope/]pkg[@range][/sub/module]``. Raises ``PackageError``."""
        steps = text.split("/")
        head = 2 if text.startswith("@") else 1
        name, mark, range_text = "/".join(steps[:head])[1:].partition("@")
        if mark and not range_text.strip():
            raise PackageError(f"{quote_text(text)} has an '@' with no range after it; expected '@scope/pkg@^1.0.0'")
        module = "/".join(steps[head:])
        if len(steps) > head:
            check_path(module)
        return cls(check_package_name(text[:1] + name), Range(range_text) if mark else None, module)

    def __str__(self) -> str:
        range_text = f"@{self.range}" if self.range is not None else ""
        return f"{self.name}{range_text}" + (f"/{self.module}" if self.module else "")
