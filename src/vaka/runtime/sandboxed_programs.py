"""Programs besides commands that run in the sandbox of commands when a setting says so, such as hooks."""

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from contextlib import aclosing
from typing import Literal, cast

from vaka.core.ports.sandbox import Process
from vaka.core.ports.tool import World
from vaka.core.types.errors import SandboxError
from vaka.core.types.progress import OutputStream
from vaka.hooks.command import DRAIN_SECONDS, MAX_OUTPUT_BYTES, CommandResult, RunCommand
from vaka.tools.builtin.shell.supervisor import ShellSupervisor


async def start_in_sandbox(
    world: World,
    argv: tuple[str, ...],
    cwd: str,
    *,
    env: Mapping[str, str],
    writable: tuple[str, ...] = (),
    stdin: bytes | Literal["pipe"] = b"",
) -> Process:
    """Start a program with the files and the network of commands. Raises ``SandboxError``."""
    shells = cast("ShellSupervisor", world.shells)
    return await shells.start_process(world, argv, cwd, env=env, writable=writable, stdin=stdin)


def sandboxed_hooks(find_world: Callable[[], World], folder: str) -> RunCommand:
    """Return a function that runs hook commands in the sandbox; they may write to ``folder``, where transcripts are."""

    async def run(
        command: str,
        payload: bytes,
        *,
        cwd: str,
        env: Mapping[str, str],
        seconds: float,
        on_line: Callable[[bytes], None],
    ) -> CommandResult:
        begun = time.monotonic()
        added = {name: value for name, value in env.items() if os.environ.get(name) != value}
        try:
            process = await start_in_sandbox(
                find_world(), ("/bin/sh", "-c", command), cwd, env=added, writable=(folder,), stdin=payload
            )
        except SandboxError as error:
            return CommandResult(status=127, stderr=f"cannot be started: {error}")
        output: dict[OutputStream, bytearray] = {"stdout": bytearray(), "stderr": bytearray()}
        reading = asyncio.create_task(_read_output(process, output, on_line))
        timed_out = False
        try:
            await asyncio.sleep(0)  # the reader starts before wait(), which would buffer the output
            async with asyncio.timeout(seconds):
                await process.wait()
            await asyncio.wait([reading], timeout=DRAIN_SECONDS)
        except TimeoutError:
            timed_out = True
        finally:
            await process.stop(0)
            await asyncio.wait([reading])
        return CommandResult(
            status=await process.wait(),
            timed_out=timed_out,
            duration_ms=int((time.monotonic() - begun) * 1000),
            stdout=output["stdout"].decode("utf-8", "replace"),
            stderr=output["stderr"].decode("utf-8", "replace"),
        )

    return run


async def _read_output(
    process: Process, output: Mapping[OutputStream, bytearray], on_line: Callable[[bytes], None]
) -> None:
    """Keep the beginning of each stream, and drop the rest; ``on_line`` gets the first line of stdout."""
    has_line = False
    async with aclosing(process.output()) as pieces:
        async for stream, data in pieces:
            output[stream].extend(data[: max(MAX_OUTPUT_BYTES - len(output[stream]), 0)])
            if stream == "stdout" and not has_line and b"\n" in data:
                has_line = True
                on_line(bytes(output[stream].partition(b"\n")[0]))
