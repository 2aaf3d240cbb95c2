"""Tool calls that a person types at the prompt: ``!command`` for the shell, ``#note`` for the memory file."""

from pathlib import Path
from typing import Any, TypeAlias

from vaka.core.types.errors import InvalidInput
from vaka.text.decoding import LINE_END, decode_text

COMMAND_TOOL = "Bash"
"""The tool that runs typed commands."""
MEMORY_FILES = ("AGENTS.md", "CLAUDE.md")
"""The files of a project that agents read at the start of a session."""
MAX_MEMORY_BYTES = 1_000_000

TypedCall: TypeAlias = dict[str, Any]
"""A call as the option ``calls`` of a turn has it."""


def command_calls(text: str) -> list[TypedCall]:
    """Return the call of ``!command``. Raises ``InvalidInput`` without a command."""
    command = text.removeprefix("!").strip()
    if not command:
        raise InvalidInput("type the command after the exclamation mark, such as !git status")
    return [{"name": COMMAND_TOOL, "arguments": {"command": command}}]


def memory_files(folder: Path) -> list[str]:
    """Return the memory files of a folder, each once: one may be a link to the other."""
    found: dict[Path, str] = {}
    for name in MEMORY_FILES:
        if (folder / name).is_file():
            found.setdefault((folder / name).resolve(), name)
    return list(found.values())


def note_calls(text: str, file: Path) -> list[TypedCall]:
    """Return the calls that add ``#note`` to a memory file. Raises ``InvalidInput``.

    The file is read and edited, not replaced: a change of another program in the meantime fails the edit.
    """
    first, *more = text.removeprefix("#").strip().split("\n")
    if not first:
        raise InvalidInput("type the note after the number sign, such as #use tabs for indentation")
    note = "\n".join([f"- {first}", *(f"  {line}".rstrip() for line in more)]) + "\n"
    before = _read_memory(file)
    name = str(file)
    if before is None:
        return [{"name": "Write", "arguments": {"file_path": name, "content": note}}]
    read: TypedCall = {"name": "Read", "arguments": {"file_path": name}}
    if not before.strip():
        return [read, {"name": "Write", "arguments": {"file_path": name, "content": note}}]
    end = _unique_end(before)
    line_end = "" if end.endswith("\n") else "\n"
    edit = {"file_path": name, "old_string": end, "new_string": f"{end}{line_end}{note}"}
    return [read, {"name": "Edit", "arguments": edit}]


def _read_memory(file: Path) -> str | None:
    """Return the text of a file with line feeds, ``None`` when there is none."""
    try:
        data = file.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InvalidInput(f"{file} cannot be read: {error.strerror or error}") from error
    decoded = decode_text(data) if len(data) <= MAX_MEMORY_BYTES else None
    if decoded is None:
        raise InvalidInput(f"{file} is not a text file of at most {MAX_MEMORY_BYTES:,} bytes; no note was added")
    return LINE_END.sub("\n", decoded.text)


def _unique_end(text: str) -> str:
    """Return the shortest run of last lines that occurs only at the end of a text."""
    start = len(text)
    while start > 0:
        start = text.rfind("\n", 0, start - 1) + 1
        if text[start:].strip() and text.find(text[start:]) == start:
            break
    return text[start:]
