"""Counts the functions of vaka that are called before the loop of a turn begins.

The numbers depend neither on the machine nor on its load. A function counts once however often it is called;
comprehensions and generator expressions count as Python 3.11 runs them, as functions. What a module calls while it is
imported does not count. ``python -m bench.function_counter ARGUMENTS`` runs ``vaka`` with a JSON list of arguments and
prints what it has counted as the last line of stderr.
"""

import json
import os
import sys
import threading
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

PACKAGE = f"{os.sep}vaka{os.sep}"
LOOP = ("core/loop/turn.py", "run_turn")
"""The file and the name of the function with which the loop of a turn begins."""
SETTINGS_FILES = ("settings.json", "settings.local.json", "managed-settings.json", "config.toml", "vaka.toml")


class FunctionCounter:
    """Counts the functions of vaka that are called until the loop of a turn begins, and after that nothing."""

    def __init__(self) -> None:
        self.calls: Counter[CodeType] = Counter()
        self.opened_loops = 0
        self.reached_loop = False
        self._importing = 0

    def start(self) -> None:
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)

    def stop(self) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def _profile(self, frame: FrameType, event: str, argument: object) -> None:
        if event != "call" or self.reached_loop:
            return
        code = frame.f_code
        if code.co_qualname == "new_event_loop" and code.co_filename.endswith("asyncio/events.py"):
            self.opened_loops += 1
        if PACKAGE not in code.co_filename or code.co_name == "<module>":
            return
        if (code.co_filename.rpartition(PACKAGE)[2], code.co_name) == LOOP:
            self.reached_loop = True
        elif not _is_importing(frame):
            self.calls[code] += 1

    def count_calls(self, name: str) -> int:
        """Return how often functions with a qualified name were called."""
        return sum(count for code, count in self.calls.items() if code.co_qualname == name)

    def list_functions(self) -> list[str]:
        """Return the file and the qualified name of each function, in the order of their first calls."""
        return [f"{code.co_filename.rpartition(PACKAGE)[2]} {code.co_qualname}" for code in self.calls]


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_name == "<module>" and PACKAGE in frame.f_code.co_filename:
            return True
        frame = frame.f_back
    return False


def _count_this_process(arguments: list[str]) -> None:
    opened: Counter[str] = Counter()

    def note_open(event: str, details: tuple[Any, ...]) -> None:
        if event != "open" or counter.reached_loop:
            return
        if isinstance(details[0], str | Path) and str(details[0]).endswith(SETTINGS_FILES):
            opened[str(details[0])] += 1

    counter = FunctionCounter()
    sys.addaudithook(note_open)
    counter.start()
    try:
        from vaka.cli.main import main  # its import is part of what is counted

        main(arguments)
    except SystemExit:  # the loop was not reached if it failed
        pass
    finally:
        counter.stop()
    assert counter.reached_loop
    counts = {
        "functions": counter.list_functions(),
        "stores": counter.count_calls("open_store"),
        "loops": counter.opened_loops,
        "collectors": counter.count_calls("TurnCollector.__init__"),
        "settings_reads": max(opened.values(), default=0),
    }
    print("", json.dumps(counts), sep="\n", file=sys.stderr, flush=True)


if __name__ == "__main__":
    _count_this_process(json.loads(sys.argv[1]))
