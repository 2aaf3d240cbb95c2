"""The lines of a command's output in which a pattern is, found in a process that can be stopped."""

import asyncio
import contextlib
import json
import sys

import msgspec

from vaka.core.types.errors import InvalidInput
from vaka.tools.builtin import sifting
from vaka.tools.builtin.spool import Spool

SECONDS = 30.0
LONGEST = 1_000
"""Characters of a pattern."""
_PIECE = 1024**2
_PROGRAM = (sys.executable, "-I", "-S", sifting.__file__)


class Sifted(msgspec.Struct, frozen=True):
    """What was found."""

    lines: tuple[str, ...] = ()
    used: int = 0
    """Bytes that were looked at."""
    problem: str = ""


async def sifted(spool: Spool, start: int, pattern: str, *, most: int, final: bool, seconds: float = SECONDS) -> Sifted:
    """Return lines from ``start`` on. Raises ``InvalidInput`` for a pattern that is wrong or takes too long."""
    if len(pattern) > LONGEST:
        raise InvalidInput(f"the filter has {len(pattern)} characters; at most {LONGEST} are taken")
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *_PROGRAM, stdin=pipe, stdout=pipe, env={}, limit=64 * most + _PIECE, start_new_session=True
    )
    order = json.dumps({"pattern": pattern, "most": most, "final": final}).encode() + b"\n"
    feeding = asyncio.create_task(_feed(process, order, spool, start))
    try:
        async with asyncio.timeout(seconds):
            said = await _answer(process)
    except TimeoutError:
        raise InvalidInput(
            f"the filter {pattern!r} took longer than {seconds:g} s and was stopped; nothing was read. Use a simpler "
            "pattern: nested repetitions can take for ever"
        ) from None
    finally:
        feeding.cancel()
        await asyncio.wait([feeding])
        await ended(process)
    found = msgspec.json.decode(said, type=Sifted)
    if found.problem:
        raise InvalidInput(f"the filter {pattern!r} is no regular expression: {found.problem}")
    return found


async def ended(process: asyncio.subprocess.Process) -> None:
    """End a process of ours and let go of everything that leads to it.

    Its exit can be known before the end of its pipes is: whoever left then would leave them open.
    """
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    if process.stdin is not None:
        process.stdin.close()
    while process.stdout is not None and await process.stdout.read(_PIECE):
        pass
    await process.wait()


async def _answer(process: asyncio.subprocess.Process) -> bytes:
    assert process.stdout is not None  # noqa: S101  # it is a pipe
    return await process.stdout.readline() or b'{"problem": "the search for it failed"}'


async def _feed(process: asyncio.subprocess.Process, order: bytes, spool: Spool, at: int) -> None:
    assert process.stdin is not None  # noqa: S101  # it is a pipe
    end = spool.size
    with contextlib.suppress(ConnectionError):  # it has found enough
        process.stdin.write(order)
        while at < end and (piece := await spool.read(at, min(_PIECE, end - at))):
            at += len(piece)
            process.stdin.write(piece)
            await process.stdin.drain()
        process.stdin.close()
        await process.stdin.wait_closed()
