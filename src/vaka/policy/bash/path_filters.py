"""The files below a folder that options choose or leave out: ``grep --include``, ``rg -g``, ``tar --exclude``."""

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from itertools import product
from math import prod

from vaka.policy.bash.file_operands import PathFilter, accept_all
from vaka.policy.bash.programs import name_set, read_set, read_table

_GREPS = read_set("greps")

_SEARCHERS = name_set("rg ag ack ugrep")

_TYPES = read_table("rg_types")

_WITH_HIDDEN = re.compile(r"-\w*[u.]\w*|--hidden|--unrestricted|-a|--all-types")


def make_path_filter(program: str, values: Sequence[str]) -> PathFilter:
    """Return which files a program with these arguments uses: never less than it does."""
    if program in _GREPS:
        return _make_grep_filter(values)
    if program in _SEARCHERS:
        return _make_search_filter(values, is_rg=program == "rg")
    if any(re.match(r"--(?:include|filter|files-from)|-\w*f", value) for value in values) and program in {
        "rsync",
        "scp",
    }:
        return accept_all  # the first match decides
    excluded = values_of(values, "--exclude")
    return lambda path: not any(_leaves_out(text, path.split("/")) for text in excluded)


def values_of(values: Sequence[str], *options: str) -> list[str]:
    """Return the values of some options, in order."""
    return [value for _, value in _pairs_of(values, *options)]


def _pairs_of(values: Sequence[str], *options: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for index, value in enumerate(values):
        for option in options:
            if value == option and index + 1 < len(values):
                found.append((option, values[index + 1]))
            elif value.startswith(f"{option}=") or (len(option) == 2 and value.startswith(option) and value != option):
                found.append((option, value[len(option) :].removeprefix("=")))
    return found


def _make_grep_filter(values: Sequence[str]) -> PathFilter:
    """The last option that matches the name of a file decides; ``--exclude-dir`` is about folders alone."""
    globs = _pairs_of(values, "--include", "--exclude")
    folders = values_of(values, "--exclude-dir")
    default = not globs or globs[0][0] == "--exclude"

    def selects(path: str) -> bool:
        *above, name = path.split("/")
        if any(_leaves_out(text, above) for text in folders):
            return False
        chosen = default
        for option, text in globs:
            if option == "--include" and _may_match(text, name):
                chosen = True
            elif option == "--exclude" and fnmatchcase(name, text):
                chosen = False
        return chosen

    return selects


def _make_search_filter(values: Sequence[str], *, is_rg: bool) -> PathFilter:
    """The last glob that matches decides, also about hidden files."""
    globs = values_of(values, "-g", "--glob") if is_rg else []
    included = any(not text.startswith("!") for text in globs)
    hidden = any(_WITH_HIDDEN.fullmatch(value) for value in values)
    endings = _find_endings(values) if is_rg else None

    def selects(path: str) -> bool:
        parts = path.split("/")
        for text in reversed(globs):
            if not text.startswith("!") and _may_match(text.rpartition("/")[2], parts[-1]):
                return True
            if text.startswith("!") and _leaves_out(text[1:], parts):
                return False
        if included:
            return False
        if endings is not None:
            return path.endswith(endings)
        return hidden or not any(part.startswith(".") for part in parts)

    return selects


def _find_endings(values: Sequence[str]) -> tuple[str, ...] | None:
    """Return how the names of files end that the option ``-t`` of rg chooses, ``None`` if that is not known."""
    types = values_of(values, "-t", "--type")
    if not types or any(value.startswith(("--type-a", "--type-c")) for value in values):
        return None
    known = [_TYPES.get(name) for name in types]
    return (
        tuple(ending for each in known if each is not None for ending in each.split()) if None not in known else ("",)
    )


def _may_match(text: str, name: str) -> bool:
    """Return whether a pattern, which may have alternatives in braces, may match a name."""
    found = _BRACES.findall(text)
    if "{" in _BRACES.sub("", text) or prod(group.count(",") + 1 for group in found) > _MAX_ALTERNATIVES:
        return True
    choices = product(*(group.split(",") for group in found))
    return any(fnmatchcase(name, _fill(text, choice).replace("[^", "[!")) for choice in choices)


_BRACES = re.compile(r"\{([^{}]*)\}")

_MAX_ALTERNATIVES = 64


def _fill(text: str, choice: Sequence[str]) -> str:
    values = iter(choice)
    return _BRACES.sub(lambda _: next(values), text)


def _leaves_out(text: str, parts: Sequence[str]) -> bool:
    """Return whether a pattern certainly leaves out a path: by the name of the file or of a folder above it."""
    body = text.strip("/*") or text
    if "/" in body or "{" in body or "[" in body:
        return False
    anchored = "/" in text.rstrip("/") and not text.startswith("**/")
    return any(fnmatchcase(part, body) for part in (parts[:1] if anchored else parts))
