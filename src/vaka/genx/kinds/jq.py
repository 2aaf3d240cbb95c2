"""jq programs with the real libjq: compiled in this process, run in a worker process with limits.

A program has no access to files, modules or environment variables: ``$ENV`` and ``env`` are empty, ``import`` and
``include`` do not compile. libjq cannot be interrupted and holds the interpreter lock while it runs, so every program
runs in a worker process, which is killed when a program takes longer than it may.
"""

import atexit
import functools
import json
import math
import os
import re
import select
import subprocess
import sys
import threading
import time
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

from vaka.core.types.errors import ConfigError, InvalidInput, ScriptError
from vaka.core.types.ids import JSON
from vaka.tools.function import run_in_thread
from vaka.tools.schema.json_types import is_array, is_object

INSTALL_JQ = "pip install 'vaka[definitions]'"

MAX_SECONDS = 10.0
"""Seconds that one run of a program may take."""
MAX_MEMORY = 512 * 1024**2
"""Bytes of memory of a worker process."""
MAX_RESULT_BYTES = 16 * 1024**2
MAX_EXPRESSION_CHARS = 16_384
MAX_IDLE_WORKERS = 2

_EXACT_INTEGERS = 2**53
_PRELUDE = (
    'def env: {}; def modulemeta: error("modules are not available"); '
    'def tostring: if type == "string" then . elif type == "number" and . < 9007199254740992 '
    "and . > -9007199254740992 then . + 0 | tojson else tojson end; {} as $ENV |\n"
)
_PLAIN_PATH = re.compile(r"\.|(?:\.[A-Za-z_]\w*(?:\[\d*\])*)+")
_ERROR_PLACE = re.compile(r" at <top-level>, line \d+, column \d+:\n.*", re.DOTALL)


class JqProgram:
    """A jq program that may run for ``seconds``.

    Raises ``InvalidInput`` if it does not compile, ``ConfigError`` if jq is not installed.
    """

    def __init__(self, expression: str, *, seconds: float = MAX_SECONDS) -> None:
        self.expression, self._seconds = expression, seconds
        self._source = _compile(expression)

    async def first(self, value: JSON) -> JSON:
        """Return the first result. Raises ``ScriptError`` when the program fails, has no result or reaches a limit."""
        try:
            return await run_in_thread(lambda: self._run(value), "jq")
        except RecursionError:
            raise ScriptError(f"jq expression {_quote(self.expression)}: data is nested too deeply") from None

    def _run(self, value: JSON) -> JSON:
        data = json.dumps(whole_numbers(value), allow_nan=False).encode()
        answer = _WORKERS.ask(self._source, data, self._seconds)
        if "error" in answer:
            raise ScriptError(f"jq expression {_quote(self.expression)} failed: {answer['error']}")
        if "result" not in answer:
            raise ScriptError("jq expression returned no result")
        return whole_numbers(json.loads(answer["result"]))

    def __repr__(self) -> str:
        return f"JqProgram({self.expression!r})"


@functools.lru_cache(maxsize=1024)
def _compile(expression: str) -> str:
    """Return the source that workers run for an expression."""
    if not expression.strip():
        raise InvalidInput('invalid jq expression "": it is empty; write . for the whole input')
    if "\0" in expression:
        raise InvalidInput(f"invalid jq expression {_quote(expression)}: it has a NUL character")
    if len(expression) > MAX_EXPRESSION_CHARS:
        raise InvalidInput(
            f"invalid jq expression {_quote(expression)}: it has {len(expression)} characters; "
            f"expected at most {MAX_EXPRESSION_CHARS}"
        )
    jq, source = _jq(), f"{_PRELUDE}{expression}\n| tojson"
    if _PLAIN_PATH.fullmatch(expression):
        return source  # certainly valid: compiling takes more than 1 ms
    try:
        jq.compile(source)
    except ValueError as error:
        reason = _ERROR_PLACE.sub("", str(error)).removeprefix("jq: error: ").strip()
        raise InvalidInput(f"invalid jq expression {_quote(expression)}: {reason}") from error
    return source


def _jq() -> Any:
    try:
        return import_module("jq")
    except ImportError as error:
        raise ConfigError(f"jq expressions need the package jq, which is not installed: {INSTALL_JQ}") from error


def _quote(expression: str) -> str:
    return f'"{expression if len(expression) <= 200 else f"{expression[:200]}…"}"'


def whole_numbers(value: JSON) -> JSON:
    """Return data with every float that is a whole number as an integer, as JSON numbers are in jq: 42.0 is 42."""
    if isinstance(value, float):
        whole = math.isfinite(value) and value.is_integer() and abs(value) < _EXACT_INTEGERS
        return int(value) if whole else value
    if is_object(value):
        return {key: whole_numbers(item) for key, item in value.items()}
    return [whole_numbers(item) for item in value] if is_array(value) else value


def format_output(value: Any) -> str:
    """Return a result as text: text unchanged, bytes decoded, other data as compact JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return msgspec.json.encode(whole_numbers(value)).decode()


class _WorkerLost(Exception):
    """The worker process has ended."""


class _Worker:
    """A worker process."""

    def __init__(self) -> None:
        folder = str(Path(_jq().__file__).parent)
        command = [sys.executable, "-I", "-S", str(Path(__file__).with_name("jq_worker.py")), folder, str(MAX_MEMORY)]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(  # our own program, with no text of users
            command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, env={}, cwd="/", start_new_session=True
        )

    def ask(self, source: str, data: bytes, seconds: float) -> dict[str, str]:
        """Return the answer to a request. Raises ``_WorkerLost``, and ``ScriptError`` when a limit is reached."""
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            raise _WorkerLost
        deadline = time.monotonic() + seconds
        try:
            request = {"program": source, "seconds": math.ceil(seconds) + 1, "size": len(data)}
            stdin.write(json.dumps(request).encode() + b"\n" + data)
            stdin.flush()
        except OSError as error:
            raise _WorkerLost from error
        answer = bytearray()
        poll = select.poll()  # select() fails for descriptors above 1023, which a server has
        poll.register(stdout, select.POLLIN)
        while not answer.endswith(b"\n"):
            if not poll.poll(max(deadline - time.monotonic(), 0) * 1000):
                raise ScriptError(f"the jq expression was stopped: it took longer than {seconds:g} s")
            chunk = os.read(stdout.fileno(), 1 << 20)
            if not chunk:
                raise _WorkerLost
            answer += chunk
            if len(answer) > MAX_RESULT_BYTES:
                raise ScriptError(f"the result of the jq expression has more than {MAX_RESULT_BYTES} bytes")
        return msgspec.json.decode(answer, type=dict[str, str])

    def detach(self) -> None:
        """Close this process's ends of the pipes and leave the worker alone."""
        self._process.returncode = 0  # it is not a child of this process
        self._close_pipes()

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._close_pipes()
        self._process.wait()

    def _close_pipes(self) -> None:
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with suppress(OSError):  # what is buffered for a dead process cannot be written
                    stream.close()


class _WorkerPool:
    """The idle workers of this process; they start on first use and end by themselves when they stay idle."""

    def __init__(self) -> None:
        self._idle: list[_Worker] = []
        self._lock = threading.Lock()

    def ask(self, source: str, data: bytes, seconds: float) -> dict[str, str]:
        """Run a program in a worker that no other thread uses."""
        with self._lock:
            worker = self._idle.pop() if self._idle else None
        if worker is not None:
            with suppress(_WorkerLost):  # it may have ended while it was idle
                return self._ask(worker, source, data, seconds)
        _watch_process()
        try:
            return self._ask(_Worker(), source, data, seconds)
        except _WorkerLost:
            raise ScriptError(
                f"the jq expression was stopped: it needed more than {MAX_MEMORY >> 20} MiB of memory, or crashed"
            ) from None

    def _ask(self, worker: _Worker, source: str, data: bytes, seconds: float) -> dict[str, str]:
        try:
            answer = worker.ask(source, data, seconds)
        except BaseException:
            worker.close()
            raise
        with self._lock:
            if len(self._idle) < MAX_IDLE_WORKERS:
                self._idle.append(worker)
                return answer
        worker.close()
        return answer

    def forget(self) -> None:
        """Leave the workers to the process that this one was forked from."""
        self._lock = threading.Lock()  # another thread may have held it
        for worker in self._idle:
            worker.detach()
        self._idle = []

    def close(self) -> None:
        """End the idle workers."""
        with self._lock:
            workers, self._idle = self._idle, []
        for worker in workers:
            worker.close()


_WORKERS = _WorkerPool()


@functools.cache
def _watch_process() -> None:
    """End the workers with this process, and keep them from its forks."""
    atexit.register(_WORKERS.close)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_WORKERS.forget)
