"""The commands of the memory tool that Claude models are trained on: view, create, str_replace, insert, delete, rename.

The texts of results and errors equal the texts of Anthropic's tool ``memory_20250818``.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from vaka.core.ports.tool import ToolContext
from vaka.core.types.errors import FileError
from vaka.memory.memory_tool import object_schema
from vaka.memory.text_files import Names, TextMemoryFiles, WriteJournal, check_names, decode, show_path

NATIVE_TYPE = "memory_20250818"
MAX_LINES = 999_999
SNIPPET_LINES = 4
"""Lines shown before and after a change."""
_LISTED_DEPTH = 2
_ROOT_NAME = "memories"

DESCRIPTION = """\
Read and change the files of your memory, which stay for later conversations. All paths begin with /memories.
- view: list a folder, or show a file with line numbers; view_range [first, last] shows a part of it, -1 is the end.
- create: write a new file with file_text.
- str_replace: replace old_str, which must occur exactly once, by new_str.
- insert: insert insert_text after line insert_line; 0 is the beginning.
- delete: delete a file, or a folder with all it has.
- rename: move old_path to new_path, where nothing may be yet."""

_TEXT, _LINE = {"type": "string"}, {"type": "integer"}
PARAMETERS = object_schema(
    ("command",),
    command={"type": "string", "enum": ["view", "create", "str_replace", "insert", "delete", "rename"]},
    path={**_TEXT, "description": "For all commands but rename: the file or folder, such as /memories/notes.md."},
    view_range={"type": "array", "items": _LINE, "description": "For view: the first and the last line."},
    file_text={**_TEXT, "description": "For create: the text of the file."},
    old_str={**_TEXT, "description": "For str_replace: the text to replace."},
    new_str={**_TEXT, "description": "For str_replace: the text to put there; nothing by default."},
    insert_line={**_LINE, "description": "For insert: the line after which the text goes."},
    insert_text={**_TEXT, "description": "For insert: the text."},
    old_path={**_TEXT, "description": "For rename: what to move."},
    new_path={**_TEXT, "description": "For rename: where to."},
)
_REQUIRED = {
    "view": ("path",),
    "create": ("path", "file_text"),
    "str_replace": ("path", "old_str"),
    "insert": ("path", "insert_line", "insert_text"),
    "delete": ("path",),
    "rename": ("old_path", "new_path"),
}


class CommandError(Exception):
    """A command that failed; the model reads the text."""


class MemoryCommands:
    """The commands on one memory, for one call."""

    def __init__(self, memory: TextMemoryFiles, context: ToolContext) -> None:
        self._memory, self._journal = memory, WriteJournal(context)

    async def run(self, given: dict[str, Any]) -> str:
        """Run a command and return its text. Raises ``CommandError``, and ``FileError`` for a path that is refused."""
        command: str = given["command"]
        missing = [name for name in _REQUIRED[command] if given.get(name) is None]
        if missing:
            raise CommandError(f"Error: The command {command} needs {' and '.join(missing)}.")
        commands: dict[str, Callable[[dict[str, Any]], Awaitable[str]]] = {
            "view": self._view,
            "create": self._create,
            "str_replace": self._str_replace,
            "insert": self._insert,
            "delete": self._delete,
            "rename": self._rename,
        }
        return await commands[command](given)

    async def _view(self, given: dict[str, Any]) -> str:
        path: str = given["path"]
        names = parse_path(path)
        kind = await self._memory.kind_of(names)
        if kind == "folder":
            return await self._list(path, names)
        data = await self._memory.load(names) if kind else None
        if data is None:
            raise CommandError(f"The path {path} does not exist. Please provide a valid path.")
        lines = _split_lines(decode(path, data))
        if len(lines) > MAX_LINES:
            raise CommandError(f"File {path} exceeds maximum line limit of 999,999 lines.")
        first, last = _parse_range(given.get("view_range"), len(lines))
        return f"Here's the content of {path} with line numbers:\n{_number(lines, first, last)}"

    async def _list(self, path: str, names: Names) -> str:
        found = [entry for entry in await self._memory.list_below(names) if not _is_hidden(entry[0][len(names) :])]
        sizes: dict[Names, int] = {names: 0}
        for inner, info in found:
            for depth in range(len(names), len(inner) + 1):
                if depth <= len(names) + _LISTED_DEPTH:
                    sizes[inner[:depth]] = sizes.get(inner[:depth], 0) + info.size
        head = (
            f"Here're the files and directories up to 2 levels deep in {path}, excluding hidden items and node_modules:"
        )
        return "\n".join([head, *(f"{_format_size(sizes[one])}\t{show_path(one)}" for one in sorted(sizes))])

    async def _create(self, given: dict[str, Any]) -> str:
        path, text = given["path"], given["file_text"]

        def make(old: str | None) -> str:
            if old is not None:
                raise CommandError(f"Error: File {path} already exists")
            return str(text)

        names = parse_path(path)
        if await self._memory.kind_of(names) == "folder":
            raise CommandError(f"Error: File {path} already exists")
        await self._memory.change(names, make, self._journal)
        return f"File created successfully at: {path}"

    async def _str_replace(self, given: dict[str, Any]) -> str:
        path = given["path"]
        old = given["old_str"]
        new = given.get("new_str") or ""
        line = 1
        edited = ""

        def make(text: str | None) -> str:
            nonlocal line, edited
            if text is None:
                raise CommandError(f"Error: The path {path} does not exist. Please provide a valid path.")
            line = _find_line(path, text, old)
            edited = text.replace(old, new, 1)
            return edited

        names = await self._file_names(path, f"Error: The path {path} does not exist. Please provide a valid path.")
        await self._memory.change(names, make, self._journal)
        edited = edited or await self._memory.read_file(show_path(names))
        last = line + new.count("\n") + SNIPPET_LINES
        snippet = _number(_split_lines(edited), max(line - SNIPPET_LINES, 1), last)
        return f"The memory file has been edited.\n{snippet}"

    async def _insert(self, given: dict[str, Any]) -> str:
        path = given["path"]
        at = given["insert_line"]
        inserted = given["insert_text"]

        def make(text: str | None) -> str:
            if text is None:
                raise CommandError(f"Error: The path {path} does not exist")
            lines = _split_lines(text)
            if not 0 <= at <= len(lines):
                raise CommandError(
                    f"Error: Invalid `insert_line` parameter: {at}. It should be within the range of lines of "
                    f"the file: [0, {len(lines)}]"
                )
            end = "\n" if not text or text.endswith("\n") or (at == len(lines) and inserted.endswith("\n")) else ""
            return "\n".join([*lines[:at], *inserted.removesuffix("\n").split("\n"), *lines[at:]]) + end

        names = await self._file_names(path, f"Error: The path {path} does not exist")
        await self._memory.change(names, make, self._journal)
        return f"The file {path} has been edited."

    async def _delete(self, given: dict[str, Any]) -> str:
        path = given["path"]
        names = parse_path(path)
        if not names:
            raise CommandError(f"Error: {path} is the memory itself and cannot be deleted; delete what is in it")
        if not await self._memory.kind_of(names) and not self._journal.repeated:
            raise CommandError(f"Error: The path {path} does not exist")
        await self._memory.delete(names)
        return f"Successfully deleted {path}"

    async def _rename(self, given: dict[str, Any]) -> str:
        old_path, new_path = given["old_path"], given["new_path"]
        old, new = parse_path(old_path), parse_path(new_path)
        if not old or new[: len(old)] == old:
            raise CommandError(f"Error: {old_path} cannot be moved to {new_path}, which is in it")
        repeated, found = self._journal.repeated, await self._memory.kind_of(old)
        target = await self._memory.kind_of(new)
        if not found and not (repeated and target):
            raise CommandError(f"Error: The path {old_path} does not exist")
        if target and not repeated:
            raise CommandError(f"Error: The destination {new_path} already exists")
        await self._memory.rename(old, new, repeated=repeated)
        return f"Successfully renamed {old_path} to {new_path}"

    async def _file_names(self, path: str, error: str) -> Names:
        names = parse_path(path)
        if await self._memory.kind_of(names) == "folder":
            raise CommandError(error)
        return names


def parse_path(path: str) -> Names:
    """Return the names of a path that begins with ``/memories``. Raises ``CommandError`` or ``FileRefused``."""
    start, root, rest = (*path.split("/", 2), "", "")[:3]
    if start or root != _ROOT_NAME:
        raise CommandError(f"Error: The path {path} is not in the memory. Every path begins with /{_ROOT_NAME}.")
    return check_names(path, rest)


def _find_line(path: str, text: str, old: str) -> int:
    """Return the line of the only place with a text."""
    count = text.count(old) if old else 0
    if not count:
        raise CommandError(f"No replacement was performed, old_str `{old}` did not appear verbatim in {path}.")
    if count > 1:
        lines: list[int] = []
        at = text.find(old)
        while at >= 0:
            lines.append(text.count("\n", 0, at) + 1)
            at = text.find(old, at + len(old))
        where = ", ".join(map(str, dict.fromkeys(lines)))
        raise CommandError(
            f"No replacement was performed. Multiple occurrences of old_str `{old}` in lines: {where}. "
            "Please ensure it is unique"
        )
    return text.count("\n", 0, text.find(old)) + 1


def _split_lines(text: str) -> list[str]:
    """Return the lines of a text; a line end at its end begins no line."""
    return text.removesuffix("\n").split("\n") if text else []


def _number(lines: list[str], first: int, last: int) -> str:
    return "\n".join(f"{number:6}\t{line}" for number, line in enumerate(lines[first - 1 : last], first))


def _parse_range(given: list[int] | None, count: int) -> tuple[int, int]:
    if given is None:
        return 1, count
    if len(given) != 2 or given[0] < 1 or not (given[1] == -1 or given[1] >= given[0]):
        raise CommandError(
            f"Error: Invalid `view_range` parameter: {given}. It should be the first and the last line, such as "
            "[1, 20], or [20, -1] for the rest of the file"
        )
    return given[0], count if given[1] == -1 else given[1]


def _is_hidden(names: Names) -> bool:
    return any(name.startswith(".") or name == "node_modules" for name in names)


def _format_size(size: int) -> str:
    """Return a size such as ``5.5K``."""
    value, unit = float(size), "B"
    for unit in "BKMG":
        if value < 1024 or unit == "G":
            break
        value /= 1024
    return f"{value:.0f}{unit}" if value.is_integer() else f"{value:.1f}{unit}"


def as_failure(error: Exception) -> str:
    """Return the text of a failed command for the model."""
    return str(error) if isinstance(error, CommandError) else f"Error: {error}"


FAILURES = (CommandError, FileError)
