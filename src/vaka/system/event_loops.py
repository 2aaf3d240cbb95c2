"""Start programs and write to streams with the same results on asyncio's own event loop and on uvloop."""

import asyncio
import os
from asyncio.subprocess import Process
from collections.abc import Mapping, Sequence
from typing import Any


async def start_program(
    words: Sequence[str], *, env: Mapping[str, str], cwd: str | None = None, **options: Any
) -> Process:
    """Call ``asyncio.create_subprocess_exec`` with checked words. Raises ``ValueError``, and ``OSError`` with a path.

    uvloop cuts a word at a NUL character and accepts an equals sign in the name of a variable, so the program would
    get other arguments than the approved arguments. Its errors do not name the missing file or folder.
    """
    if any("\0" in word for word in (*words, cwd or "", *env, *env.values())):
        raise ValueError("embedded null byte")
    if any(not name or "=" in name for name in env):
        raise ValueError("illegal environment variable name")
    try:
        return await asyncio.create_subprocess_exec(*words, env=dict(env), cwd=cwd, **options)
    except OSError as error:
        if error.filename is None:
            error.filename = words[0] if cwd is None or _is_usable_folder(cwd) else cwd
        raise


def _is_usable_folder(path: str) -> bool:
    return os.path.isdir(path) and os.access(path, os.X_OK)  # noqa: PTH112  # the error keeps the path as it was given


def write_to_stream(writer: asyncio.StreamWriter, data: bytes) -> None:
    """Write to a stream. Raises ``ConnectionResetError`` when it is closed.

    ``StreamWriter.write`` drops the data then on asyncio's own loop, and raises ``RuntimeError`` on uvloop.
    """
    if writer.is_closing():
        raise ConnectionResetError("the stream is closed")
    writer.write(data)
