"""Filter the lines of a command's output by a regular expression, in a worker process that can be killed."""

import asyncio
import contextlib
import json
import sys

import msgspec

from vaka.core.types.errors import InvalidInput
from vaka.tools.builtin.shell import filter_worker
from vaka.tools.builtin.shell.output import Spool

TIMEOUT_SECONDS = 30.0
MAX_PATTERN_LENGTH = 1_000
"""Characters of a pattern."""
_CHUNK_BYTES = 1024**2
_PROGRAM = (sys.executable, "-I", "-S", filter_worker.__file__)


class FilterResult(msgspec.Struct, frozen=True):
    """What was found."""

    lines: tuple[str, ...] = ()
    used: int = 0
    """Bytes that were looked at."""
    problem: str = ""


async def filter_lines(
    spool: Spool, start: int, pattern: str, *, max_characters: int, final: bool, seconds: float = TIMEOUT_SECONDS
) -> FilterResult:
    """Return lines from ``start`` on. Raises ``InvalidInput`` for a pattern that is wrong or takes too long."""
    if len(pattern) > MAX_PATTERN_LENGTH:
        raise InvalidInput(f"the filter has {len(pattern)} characters; at most {MAX_PATTERN_LENGTH} are taken")
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *_PROGRAM, stdin=pipe, stdout=pipe, env={}, limit=64 * max_characters + _CHUNK_BYTES, start_new_session=True
    )
    order = json.dumps({"pattern": pattern, "most": max_characters, "final": final}).encode() + b"\n"
    feeding = asyncio.create_task(_feed_worker(process, order, spool, start))
    try:
        async with asyncio.timeout(seconds):
            said = await _read_answer(process)
    except TimeoutError:
        raise InvalidInput(
            f"the filter {pattern!r} took longer than {seconds:g} s and was stopped; nothing was read. Use a simpler "
            "pattern: nested repetitions can take for ever"
        ) from None
    finally:
        feeding.cancel()
        await asyncio.wait([feeding])
        await kill_process(process)
    found = msgspec.json.decode(said, type=FilterResult)
    if found.problem:
        raise InvalidInput(f"the filter {pattern!r} is no regular expression: {found.problem}")
    return found


async def kill_process(process: asyncio.subprocess.Process) -> None:
    """End a process of ours and let go of everything that leads to it.

    Its exit can be known before the end of its pipes is: whoever left then would leave them open.
    """
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    if process.stdin is not None:
        process.stdin.close()
    while process.stdout is not None and await process.stdout.read(_CHUNK_BYTES):
        pass
    await process.wait()


async def _read_answer(process: asyncio.subprocess.Process) -> bytes:
    assert process.stdout is not None  # noqa: S101  # it is a pipe
    return await process.stdout.readline() or b'{"problem": "the search for it failed"}'


async def _feed_worker(process: asyncio.subprocess.Process, order: bytes, spool: Spool, start: int) -> None:
    assert process.stdin is not None  # noqa: S101  # it is a pipe
    end = spool.size
    with contextlib.suppress(ConnectionError):  # it has found enough
        process.stdin.write(order)
        while start < end and (piece := await spool.read(start, min(_CHUNK_BYTES, end - start))):
            start += len(piece)
            process.stdin.write(piece)
            await process.stdin.drain()
        process.stdin.close()
        await process.stdin.wait_closed()
