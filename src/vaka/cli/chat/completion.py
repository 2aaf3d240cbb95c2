"""Completion in the input: slash commands at its beginning, files after ``@``."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from vaka.cli.kit.render import as_printable

MAX_CHOICES = 50

_FILE_WORD = re.compile(r"(?:^|\s)@([^\s@]*)$")


def fuzzy_rank(word: str, name: str) -> tuple[int, int, str] | None:
    """Return a sort key of ``name`` if it contains the letters of ``word`` in order, else ``None``; smaller is better.

    A prefix is best, then a substring, then letters with the fewest others between them.
    """
    wanted, text = word.lower(), name.lower()
    if wanted in text:
        return (0 if text.startswith(wanted) else 1, text.find(wanted), name)
    position, first = -1, -1
    for letter in wanted:
        position = text.find(letter, position + 1)
        if position < 0:
            return None
        first = position if first < 0 else first
    return (2, position - first, name)


def fuzzy_sort(word: str, names: Iterable[str]) -> list[str]:
    """Return the names that match, best first."""
    ranked = [(rank, name) for name in names if (rank := fuzzy_rank(word, name)) is not None]
    return [name for _, name in sorted(ranked)[:MAX_CHOICES]]


class ChatCompleter(Completer):
    """Completes slash commands and file names."""

    def __init__(self, commands: Mapping[str, str], files: Callable[[], Sequence[str]]) -> None:
        self._commands, self._files = commands, files

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        before = document.text_before_cursor
        if before.startswith("/") and " " not in before and "\n" not in before:
            for name in fuzzy_sort(before[1:], self._commands):
                yield Completion(f"/{name}", start_position=-len(before), display_meta=self._commands[name])
        elif match := _FILE_WORD.search(before):
            for file in fuzzy_sort(match[1], self._files()):
                yield Completion(file, start_position=-len(match[1]), display=as_printable(file, lines=False))


def attached_files(text: str, folder: Path) -> list[Path]:
    """Return the files that a prompt names with ``@``, in order and once; other words with ``@`` are plain text."""
    names = [name.rstrip(".,;:!?)") for name in re.findall(r"(?:^|\s)@(\S+)", text)]
    paths = [folder / name for name in dict.fromkeys(names) if name]
    return [path for path in paths if path.is_file()]
