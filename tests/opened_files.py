"""Which files a piece of code opens."""

import sys
from collections.abc import Generator
from contextlib import contextmanager

_recorders: list[tuple[str, list[str]]] = []


def _note_opened(event: str, args: tuple[object, ...]) -> None:
    if _recorders and event == "open":
        for ending, opened in _recorders:
            opened += [str(args[0])] if str(args[0]).endswith(ending) else []


sys.addaudithook(_note_opened)


@contextmanager
def opened_files(ending: str) -> Generator[list[str]]:
    """Yield the list of the files with that ending that are opened meanwhile."""
    recorder = (ending, list[str]())
    _recorders.append(recorder)
    try:
        yield recorder[1]
    finally:
        _recorders.remove(recorder)
