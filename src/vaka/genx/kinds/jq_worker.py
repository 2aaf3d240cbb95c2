"""Run jq programs: a program of its own, so that a jq program which does not end can be killed.

``jq_worker.py FOLDER MEMORY`` imports ``jq`` from FOLDER, limits itself to MEMORY bytes, and then answers requests from
standard input: a line ``{program, seconds, size}`` and ``size`` bytes of JSON, the input of the program. The answer is
a line ``{result}`` with the first result as JSON text, ``{}`` when there is none, or ``{error}``. A worker ends when a
program runs for longer than ``seconds``, and when it gets no request for ``IDLE_SECONDS``.
"""

import json
import resource
import signal
import sys
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from typing import Any, BinaryIO

IDLE_SECONDS = 60
MAX_PROGRAMS = 64
"""Compiled programs that a worker holds; compiling takes about 1 ms."""


def answer_requests(jq: Any, source: BinaryIO, sink: BinaryIO, set_alarm: Callable[[int], object]) -> None:
    """Answer requests until the end of ``source``; ``set_alarm`` ends the process after that many seconds, 0: never."""
    programs: OrderedDict[str, Any] = OrderedDict()
    while True:
        set_alarm(IDLE_SECONDS)
        header = source.readline()
        if not header:
            set_alarm(0)
            return
        request = json.loads(header)
        text = source.read(request["size"]).decode()
        set_alarm(request["seconds"])  # the process that would kill this one may have been killed itself
        sink.write(json.dumps(_first_result(jq, programs, request["program"], text)).encode() + b"\n")
        sink.flush()


def _first_result(jq: Any, programs: "OrderedDict[str, Any]", source: str, text: str) -> dict[str, str]:
    try:
        if source not in programs:
            programs[source] = jq.compile(source)
        programs.move_to_end(source)
        if len(programs) > MAX_PROGRAMS:
            programs.popitem(last=False)
        for result in programs[source].input_text(text):
            return {"result": result}
    except ValueError as error:
        return {"error": str(error)}
    return {}


def main() -> None:
    """Run the worker."""
    folder, memory = sys.argv[1], int(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(ValueError, OSError):  # macOS has no such limit; there only the time is limited
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    sys.path.insert(0, folder)
    import jq  # noqa: PLC0415  # its folder is an argument

    # The default action of the signal ends the process, also inside libjq.
    answer_requests(jq, sys.stdin.buffer, sys.stdout.buffer, signal.alarm)


if __name__ == "__main__":
    main()
