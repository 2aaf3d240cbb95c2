"""Texts for the system prompt that people keep in files: memory files with imports, rules, output styles."""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import product
from pathlib import Path

import msgspec

from vaka.matching.globs import NameMatcher, compile_name, matches_names, parse_bracket
from vaka.project.file_scope import TEXT_SUFFIXES, FileScope
from vaka.project.frontmatter import MAX_FILE_BYTES, parse_markdown, read_text

MAX_TOTAL_BYTES = 4 * 1024 * 1024
"""Bytes of all memory files together."""
MAX_HOPS = 4
"""How deep imports may be nested."""
MAX_BRACES = 64
"""The most patterns that one pattern with braces stands for."""
MEMORY_NAMES = ("CLAUDE.md", ".claude/CLAUDE.md", "CLAUDE.local.md")
MAX_SEARCHED_FOLDERS = 500
SKIPPED_FOLDERS = ("node_modules", "target", "build", "dist", "venv", "__pycache__")
FALLBACK_NAME = "AGENTS.md"
"""Read in a folder that has no ``CLAUDE.md``."""

_FENCE = re.compile(r"[ \t]*(`{3,}|~{3,})([^\n]*)")
_CODE_SPAN = re.compile(r"(`[^`\n]+`)")
_IMPORT = re.compile(r"(?<!\S)@((?:\\ |[^\s\\])+)(?=\s|$)")
_PUNCTUATION = ".,;:!?)]"


class MemoryText(msgspec.Struct, frozen=True, kw_only=True):
    """A file of memory, a rule, or an output style."""

    path: Path
    text: str
    patterns: tuple[str, ...] = ()
    """A rule with patterns applies only to work on a file that matches one of them."""
    name: str = ""
    folder: str = ""
    """The folder that the patterns are relative to."""

    def applies_to(self, path: str) -> bool:
        """Return whether a path, relative to the folder or absolute, matches one of the patterns."""
        relative = os.path.relpath(path, self.folder) if self.folder and path.startswith("/") else path
        if relative.startswith(".." + os.sep):
            return False
        return any(_compile_pattern(pattern)(relative) for pattern in self.patterns)


class MemoryReader:
    """Reads memory files. Each file is read once, and a problem costs only the file or import that has it.

    ``scope`` says which files links may lead to and which files may be imported. Files of ``own`` folders, which the
    user or the administrator has written, may import texts from everywhere.
    """

    def __init__(
        self,
        *,
        excludes: Sequence[str] = (),
        scope: FileScope | None = None,
        own: Iterable[Path] = (),
        known: Iterable[Path] = (),
    ) -> None:
        self._excludes = [_compile_pattern(pattern) for pattern in excludes]
        self._scope = scope
        self._own = FileScope.of(own)
        self._seen: set[Path] = {path.resolve() for path in known}
        self._size = 0
        self.problems: list[str] = []

    def load_folder(self, folder: Path) -> list[MemoryText]:
        """Return the memory files of one folder; ``AGENTS.md`` if it has no ``CLAUDE.md``."""
        found = [self.load(folder / name) for name in MEMORY_NAMES]
        if found[0] is None and found[1] is None:
            found.insert(0, self.load(folder / FALLBACK_NAME))
        return [text for text in found if text is not None]

    def load(self, path: Path) -> MemoryText | None:
        """Return one file with its imports, ``None`` when it does not exist, is excluded or was read before."""
        if not _is_file(path) or any(matches(str(path)) for matches in self._excludes):
            return None
        is_link = path.is_symlink() or path.parent.is_symlink()
        problem = self._scope.find_problem(path) if is_link and self._scope and not self._is_own(path) else ""
        if problem:
            self.problems.append(f"{path}: {problem}")
            return None
        text = self._read(path, 0)
        return MemoryText(path=path, text=text) if text else None

    def _is_own(self, path: Path) -> bool:
        """Return whether the user has written a file; where a link leads to does not count."""
        return self._own.contains(path.parent)

    def _read(self, path: Path, hops: int) -> str:
        real = path.resolve()
        if real in self._seen:
            return ""
        self._seen.add(real)
        try:
            text = read_text(path, MAX_FILE_BYTES)
        except OSError as error:
            self.problems.append(f"{path}: cannot be read: {error.strerror or error}")
            return ""
        self._size += len(text)
        if "\0" in text or self._size > MAX_TOTAL_BYTES:
            reason = "it is not a text" if "\0" in text else f"the memory files have more than {MAX_TOTAL_BYTES} bytes"
            self.problems.append(f"{path}: was left out: {reason}")
            return ""
        return self._import_files(text, path, hops).strip()

    def _import_files(self, whole: str, origin: Path, hops: int) -> str:
        """Replace ``@path`` outside of code by the text of the file."""
        lines, fence = list[str](), ""
        for line in _strip_comments(whole).splitlines(keepends=True):
            mark = _FENCE.match(line)
            if not fence and mark is None:
                parts = _CODE_SPAN.split(line)
                parts[::2] = [_IMPORT.sub(partial(self._import, whole, origin, hops), part) for part in parts[::2]]
                line = "".join(parts)
            elif mark is not None:
                ends = mark[1].startswith(fence) and not mark[2].strip()
                fence = mark[1] if not fence else "" if ends else fence
            lines.append(line)
        return "".join(lines)

    def _import(self, whole: str, origin: Path, hops: int, match: "re.Match[str]") -> str:
        reference = match[1].rstrip(_PUNCTUATION)
        name = reference.replace("\\ ", " ")
        path = Path(os.path.normpath(origin.parent / os.path.expanduser(name)))  # noqa: PTH111  # Path's raises
        problem = ""
        if not _is_file(path):
            problem = "there is no such file" if _looks_like_path(name) else ""
        elif hops >= MAX_HOPS:
            problem = f"imports are nested deeper than {MAX_HOPS}"
        else:
            problem = self._find_import_problem(path, origin)
            if not problem:
                return self._read(path, hops + 1) + match[1][len(reference) :]
        if problem:
            line = whole.count("\n", 0, max(whole.find(f"@{reference}"), 0)) + 1
            self.problems.append(f"{origin}:{line}: @{name}: {problem}")
        return match[0]

    def _find_import_problem(self, path: Path, origin: Path) -> str:
        """Return why a file must not be imported: outside of the project only texts of the user's folder may be."""
        if self._scope is None:
            return ""
        is_text = os.path.realpath(path).lower().endswith(TEXT_SUFFIXES)
        problem = self._scope.find_problem(path)
        if self._is_own(origin):
            return problem if not is_text else ""
        if not self._scope.contains(path):
            return "is outside of the project, so it is not imported"
        return "is not a text, so it is not imported" if self._own.contains(path) and not is_text else problem


def _looks_like_path(name: str) -> bool:
    """Return whether ``@name`` is meant as a file, and not as a package (``@scope/name``) or a person."""
    return name.startswith(("./", "../", "~/", "/")) or name.lower().endswith(TEXT_SUFFIXES)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a name that is too long
        return False


def _strip_comments(text: str) -> str:
    """Remove HTML comments that begin a line."""
    kept, position = list[str](), 0
    while (begin := text.find("<!--", position)) >= 0 and (end := text.find("-->", begin)) >= 0:
        whole = begin == 0 or text[begin - 1] == "\n"
        kept.append(text[position : begin if whole else end + 3])
        position = end + 3
    return "".join([*kept, text[position:]])


def memory_folders(cwd: Path) -> list[Path]:
    """Return the folders with memory files, from the root to ``cwd``, without folders that other users can write."""
    return [folder for folder in (*reversed(cwd.parents), cwd) if folder == cwd or _is_own(folder)]


def has_nested_memory(cwd: Path) -> bool:
    """Return whether a folder below ``cwd`` has memory files; only the first folders are searched."""
    for count, (folder, folders, files) in enumerate(os.walk(cwd)):
        names = (*MEMORY_NAMES, FALLBACK_NAME)
        in_folder = ".claude" in folders and Path(folder, MEMORY_NAMES[1]).is_file()
        if Path(folder) != cwd and (in_folder or any(name in files for name in names)):
            return True
        if count >= MAX_SEARCHED_FOLDERS:
            return True  # it may have some
        folders[:] = [name for name in folders if not name.startswith(".") and name not in SKIPPED_FOLDERS]
    return False


def _is_own(folder: Path) -> bool:
    try:
        info = folder.stat()
    except OSError:
        return False
    return info.st_uid in (0, os.geteuid()) and not info.st_mode & 0o002


def load_rules(
    folders: Iterable[Path], problems: list[str], scope: FileScope | None = None, project: Path | None = None
) -> list[MemoryText]:
    """Return the rules of folders, in the order of the folders and then of their numbers and names.

    Patterns are relative to ``project``, by default to the folder with the ``.claude`` folder of the rules.
    """
    rules: list[MemoryText] = []
    for folder in folders:
        base = str(project or folder.parents[1])
        found = sorted(_list_markdown(folder, set()), key=lambda path: _rule_order(path, folder))
        for path in found:
            text = _read_part(path, problems, scope)
            if text is None:
                continue
            parsed = parse_markdown(text)
            problems += [f"{path}:{line}: {problem}" for line, problem in parsed.problems]
            patterns = [text for text in parsed.names("paths", "globs", spaces=False) or () if _is_pattern(text)]
            if parsed.body.strip():
                text = parsed.body.strip()
                rules.append(MemoryText(path=path, text=text, patterns=tuple(patterns), folder=base))
    return rules


def _is_pattern(text: str) -> bool:
    return all(text.count(first) == text.count(last) for first, last in ("[]", "{}"))


def load_output_style(
    name: str, folders: Iterable[Path], problems: list[str], scope: FileScope | None = None
) -> MemoryText | None:
    """Return the output style with a name, of the first folder that has it; the name ``default`` stands for none."""
    known: list[str] = []
    for path in (path for folder in folders for path in _list_markdown(folder, set())):
        text = _read_part(path, problems, scope)
        parsed = parse_markdown(text or "")
        title = parsed.text("name") or path.stem
        if name.lower() in (title.lower(), path.stem.lower()):
            problems += [f"{path}:{line}: {problem}" for line, problem in parsed.problems]
            return MemoryText(path=path, text=parsed.body.strip(), name=title)
        known.append(title)
    if name.lower() not in ("", "default"):
        problems.append(f"there is no output style {name!r}; there are: {', '.join(known) or 'none'}")
    return None


def _read_part(path: Path, problems: list[str], scope: FileScope | None) -> str | None:
    problem = scope.find_problem(path) if scope is not None and os.path.realpath(path) != str(path) else ""
    if problem:
        problems.append(f"{path}: {problem}")
        return None
    try:
        return read_text(path, MAX_FILE_BYTES)
    except OSError as error:
        problems.append(f"{path}: cannot be read: {error.strerror or error}")
        return None


def _rule_order(path: Path, folder: Path) -> tuple[float, str]:
    number = re.match(r"(\d+)[-_.]", path.name)
    return float(number[1]) if number else float("inf"), str(path.relative_to(folder))


def _list_markdown(folder: Path, seen: set[Path]) -> Iterator[Path]:
    """Yield the Markdown files below a folder; a folder that links lead to twice is read once."""
    real = folder.resolve()
    if real in seen or not folder.is_dir():
        return
    seen.add(real)
    try:
        paths = sorted(folder.iterdir())
    except OSError:
        return
    for path in paths:
        if path.is_dir():
            yield from _list_markdown(path, seen)
        elif path.suffix.lower() == ".md":
            yield path


def _compile_pattern(pattern: str) -> Callable[[str], bool]:
    """Return a function that matches a path: ``*``, ``?``, ``[…]``, ``**`` and ``{a,b}``."""
    alternatives = [_compile_names(text) for text in _expand_braces(pattern.strip())]
    return lambda path: any(matches_names(names, path.strip("/").split("/")) for names in alternatives)


def _compile_names(pattern: str) -> list[NameMatcher | None]:
    parts = pattern.removeprefix("./").strip("/").split("/")
    if len(parts) == 1:
        parts.insert(0, "**")  # a bare name matches in every folder
    return [None if part == "**" else compile_name(part, parse_bracket, lenient=True) for part in parts]


def _expand_braces(pattern: str) -> list[str]:
    pieces = re.split(r"\{([^{}]*)\}", pattern)
    choices = [piece.split(",") if number % 2 else [piece] for number, piece in enumerate(pieces)]
    return ["".join(parts) for parts, _ in zip(product(*choices), range(MAX_BRACES), strict=False)]
