"""What git shall not see: files that are not there and only hold a place, so that no command can make them.

A protected path that does not exist is an empty file or folder while a sandboxed command runs. ``git add -A`` would put
it into a commit. So git is told to ignore it, besides what the user has told it to ignore everywhere; a file that is
there is seen as ever.
"""

import os
import re
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path

VARIABLE = "VAKA_ABSENT"
"""How the command's shell is told; it tells git, and forgets it."""
PRELUDE = (
    f'if [[ -n "${VARIABLE}" ]]; then set -- "$1" "${{TMPDIR:-/tmp}}/.vaka-absent" "$(( ${{GIT_CONFIG_COUNT:-0}} ))"; '
    f'if builtin printf "%s" "${VARIABLE}" >"$2"; then export "GIT_CONFIG_KEY_$3=core.excludesFile" '
    '"GIT_CONFIG_VALUE_$3=$2" "GIT_CONFIG_COUNT=$(( $3 + 1 ))"; fi; set -- "$1"; '
    f"unset {VARIABLE}; fi 2>/dev/null; "
)
_MOST = 32 * 1024
"""Bytes of the user's own rules."""
_NAMED = re.compile(r'^[ \t]*excludesfile[ \t]*=[ \t]*"?([^"\n#;]+?)"?[ \t]*$', re.IGNORECASE | re.MULTILINE)
_HOLDERS = ("", "{}\n")
_MAGIC = re.compile(r"([*?\[\]\\!# ])")


def absent(roots: Sequence[str], protected: Iterable[str], home: Path | None = None) -> dict[str, str]:
    """Return the variables that tell a command's git what of the protected paths is not there."""
    rules = sorted({rule for root in roots for rule in _rules(root, protected)})
    if not rules:
        return {}
    return {VARIABLE: "".join([_own(home or Path.home()), *(f"{rule}\n" for rule in rules)])}


def _rules(root: str, protected: Iterable[str]) -> Iterable[str]:
    """Yield a rule for each path in a folder that is not there, as the repository that has the folder reads it."""
    inside = [path for path in protected if path.startswith(f"{root}/") and not path.startswith(f"{root}/.git/")]
    missing = [path for path in inside if "\n" not in path and _is_missing(Path(path))]
    top = _repository(root) if missing else ""
    if not top:
        return
    for path in missing:
        yield "/" + _MAGIC.sub(r"\\\1", os.path.relpath(path, top))


def _is_missing(path: Path) -> bool:
    """Return whether there is nothing, or what another command's sandbox has put there to hold the place."""
    try:
        info = path.lstat()
    except OSError:
        return True
    return stat.S_ISREG(info.st_mode) and info.st_size <= len(_HOLDERS[1]) and _read(path) in _HOLDERS


def _repository(folder: str) -> str:
    while not os.path.lexists(f"{folder}/.git"):
        above = os.path.dirname(folder)  # noqa: PTH120  # text, not a file
        if above == folder:
            return ""
        folder = above
    return folder


def _own(home: Path) -> str:
    """Return what the user has told git to ignore everywhere, which the rules above would otherwise replace."""
    settings = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config") / "git"
    named = [found for file in (home / ".gitconfig", settings / "config") for found in _NAMED.findall(_read(file))]
    ignored = Path(named[0].replace("~", str(home), 1) if named[0].startswith("~/") else named[0]) if named else None
    text = _read(ignored or settings / "ignore")
    return text if not text or text.endswith("\n") else f"{text}\n"


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(_MOST + 1)
    except (OSError, ValueError):
        return ""
    return data.decode("utf-8", "surrogateescape").replace("\0", "") if len(data) <= _MOST else ""
