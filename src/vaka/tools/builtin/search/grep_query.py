"""The arguments of Grep, parsed: the query and the filter for file names."""

import re
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import msgspec

from vaka.core.types.errors import InvalidInput
from vaka.tools.builtin.search.glob import Wildcard, expand_braces
from vaka.tools.builtin.search.regex_dialect import TranslatedPattern

OutputMode: TypeAlias = Literal["files_with_matches", "content", "count"]
LineRange: TypeAlias = tuple[int, int]
"""The first and the last line of a match."""
FoundCallback: TypeAlias = Callable[[str, int, list[LineRange]], None]
"""Takes a file, the number of its matches, and the lines of the first ones."""

MAX_RESULTS = 100
"""Results in one answer."""
MAX_CONTEXT_LINES = 5
FILE_TYPES: dict[str, tuple[str, ...]] = {
    "c": ("c",), "cpp": ("cpp",), "cs": ("cs",), "go": ("go",), "h": ("h",), "hpp": ("hpp",), "java": ("java",),
    "js": ("js", "mjs", "cjs"), "jsx": ("jsx",), "kt": ("kt", "kts"), "php": ("php",), "py": ("py",), "rb": ("rb",),
    "rust": ("rs",), "sh": ("sh",), "swift": ("swift",), "ts": ("ts",), "tsx": ("tsx",),
}  # fmt: skip
"""File endings by type; any other type name is an ending itself."""
_NAME_GLOB = re.compile(r"[\w.*?{},-]+\Z", re.ASCII)

PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "pattern": {"type": "string", "description": "The regular expression to search for, as for ripgrep."},
        "path": {"type": "string", "description": "File or folder to search; the working folder if left out."},
        "output_mode": {
            "type": "string", "enum": ["content", "files_with_matches", "count"], "default": "files_with_matches",
            "description": "Matching lines, paths of files with matches, or how many matches each file has.",
        },
        "glob": {"type": "string", "description": "Only files whose name or path fits, such as *.js or src/**/*.tsx."},
        "type": {"type": "string", "description": f"Only files of a type: {', '.join(FILE_TYPES)}, or any ending."},
        "-A": {"type": "integer", "minimum": 0, "description": "Lines to show after each match (content), up to 5."},
        "-B": {"type": "integer", "minimum": 0, "description": "Lines to show before each match (content), up to 5."},
        "-C": {"type": "integer", "minimum": 0, "description": "Lines to show on both sides; wins over -A and -B."},
        "context_lines": {"type": "integer", "minimum": 0, "description": "The same as -C."},
        "-n": {"type": "boolean", "default": True, "description": "Show line numbers (content)."},
        "-i": {"type": "boolean", "default": False, "description": "Upper and lower case alike."},
        "head_limit": {"type": "integer", "minimum": 0, "description": f"Results to return, up to {MAX_RESULTS}."},
        "offset": {"type": "integer", "minimum": 0, "default": 0, "description": "Results to skip before that."},
        "multiline": {
            "type": "boolean", "default": False,
            "description": "Let the pattern span lines, and . match the end of one.",
        },
    },
    "required": ["pattern"],
    "additionalProperties": False,
}  # fmt: skip


class GrepQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The parsed arguments of Grep."""

    pattern: TranslatedPattern
    ignore_case: bool = False
    multiline: bool = False
    mode: OutputMode = "files_with_matches"
    glob: str = ""
    endings: tuple[str, ...] = ()
    before: int = 0
    after: int = 0
    numbers: bool = True
    limit: int = MAX_RESULTS
    offset: int = 0

    @property
    def needed_results(self) -> int:
        """The number of results that must be found."""
        return self.offset + self.limit

    @property
    def filters_by_name(self) -> bool:
        """Whether ``name_patterns_of`` fully decides which files are searched."""
        return not (self.glob or self.endings) or (bool(name_patterns_of(self)) and not (self.glob and self.endings))


def parse_query(pattern: TranslatedPattern, given: dict[str, Any]) -> GrepQuery:
    """Parse the arguments. Raises ``InvalidInput`` for a pattern with line ends without ``multiline``."""
    multiline = given.get("multiline", False)
    if pattern.lines and not multiline:
        raise InvalidInput("the pattern has an end of line in it, which never matches in a single line; set multiline")
    around = given.get("-C", given.get("context_lines"))
    before, after = (around, around) if around is not None else (given.get("-B", 0), given.get("-A", 0))
    kind: str = given.get("type", "")
    return GrepQuery(
        pattern=pattern, ignore_case=given.get("-i", False), multiline=multiline,
        mode=given.get("output_mode", "files_with_matches"), glob=given.get("glob", ""),
        endings=FILE_TYPES.get(kind, (kind.removeprefix("*").removeprefix("."),)) if kind else (),
        before=min(before, MAX_CONTEXT_LINES), after=min(after, MAX_CONTEXT_LINES), numbers=given.get("-n", True),
        limit=min(given.get("head_limit") or MAX_RESULTS, MAX_RESULTS), offset=given.get("offset", 0),
    )  # fmt: skip


class FileFilter:
    """Selects files by ending and by name or path."""

    def __init__(self, query: GrepQuery) -> None:
        self._endings = tuple(f".{ending}" for ending in query.endings)
        self._negated = query.glob.startswith("!")
        glob = query.glob.removeprefix("!")
        self._named = bool(glob) and "/" not in glob
        self._glob = Wildcard(glob.removeprefix("/")) if glob.removeprefix("/") else None

    def accepts(self, path: str, relative: str) -> bool:
        """Return whether a file is searched; ``relative`` is its path from the start of the search."""
        if self._endings and not path.endswith(self._endings):
            return False
        if self._glob is None:
            return True
        candidates = (path.rpartition("/")[2],) if self._named else (relative, path)
        return any(map(self._glob.match, candidates)) != self._negated


def name_patterns_of(query: GrepQuery) -> list[str]:
    """Return name patterns one of which every searched file matches, so that ripgrep can filter; none when unsure."""
    if query.endings:
        return [f"*.{ending}" for ending in query.endings if _NAME_GLOB.match(ending)]
    if query.glob and _NAME_GLOB.match(query.glob):
        return [one for one in expand_braces(query.glob) if one and "{" not in one]
    return []
