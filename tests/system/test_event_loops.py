"""Programs and streams behave the same on asyncio's own event loop and on uvloop."""

import asyncio
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from vaka.core.ports.sandbox import Command
from vaka.errors import McpError, SandboxError
from vaka.hooks.command import run_command
from vaka.mcp.definition import McpServer
from vaka.mcp.stdio import ServerLog, process_starter
from vaka.sandbox.unconfined import Unconfined
from vaka.system.event_loops import start_program, write_to_stream

pytestmark = pytest.mark.every_loop


async def write_without_end(write: Callable[[bytes], Awaitable[None]]) -> None:
    """Write again and again: the loop may notice the end of a pipe after the end of its process."""
    while True:
        await write(b"{}\n")
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("words", "env"),
    [
        (["/bin/echo", "safe\0unsafe"], {}),
        (["/bin/echo"], {"KEY": "safe\0unsafe"}),
        (["/bin/echo"], {"KEY=value": "x"}),
        (["/bin/echo"], {"": "x"}),
    ],
)
async def test_words_that_would_reach_the_program_changed_are_refused(words: list[str], env: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"null byte|illegal environment variable name"):
        await start_program(words, env=env, stdout=DEVNULL)


@pytest.mark.parametrize("missing", ["program", "folder"])
async def test_an_error_names_the_missing_file(missing: str, tmp_path: Path) -> None:
    path = str(tmp_path / "missing")
    words, cwd = ([path], str(tmp_path)) if missing == "program" else (["/bin/echo"], path)
    with pytest.raises(FileNotFoundError) as caught:
        await start_program(words, env={}, cwd=cwd)
    assert caught.value.filename == path


async def test_a_stream_whose_reader_has_ended_raises_a_connection_error() -> None:
    process = await start_program(["/bin/cat"], env={}, stdin=PIPE, stdout=PIPE)
    assert process.stdin is not None
    process.kill()
    await process.communicate()
    with pytest.raises(ConnectionResetError):
        write_to_stream(process.stdin, b"x")


async def test_a_portable_command_with_a_null_byte_or_without_its_folder_is_refused(tmp_path: Path) -> None:
    sandbox, missing = Unconfined(portable=True), str(tmp_path / "missing")
    with pytest.raises(SandboxError, match="null byte"):
        await sandbox.start(Command(argv=("/bin/echo", "safe\0unsafe"), cwd=str(tmp_path)))
    with pytest.raises(SandboxError, match=missing):
        await sandbox.start(Command(argv=("/bin/echo",), cwd=missing))


async def test_the_input_of_a_portable_command_that_has_ended_is_closed(tmp_path: Path) -> None:
    process = await Unconfined(portable=True).start(Command(argv=("/bin/true",), cwd=str(tmp_path), stdin="pipe"))
    await process.wait()
    with pytest.raises(SandboxError, match="the stdin of the command is closed"):
        await write_without_end(process.write_stdin)


async def test_a_hook_with_a_null_byte_does_not_run() -> None:
    result = await run_command(
        "exit 0 \0 || exit 1", b"", cwd="", env=dict(os.environ), seconds=30, on_line=lambda _: None
    )
    assert (result.status, result.stderr) == (127, "cannot be started: embedded null byte")


async def test_an_mcp_server_that_has_ended_refuses_input_with_an_os_error() -> None:
    server = McpServer(name="p", command=sys.executable, args=("-S", "-c", ""))
    async with process_starter(dict(os.environ))(server, ServerLog()) as streams:
        assert await streams.read() == b""
        with pytest.raises(ConnectionError):
            await write_without_end(streams.write)


async def test_a_missing_folder_of_an_mcp_server_is_named(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing")
    server = McpServer(name="p", command=sys.executable, cwd=missing)
    with pytest.raises(McpError, match=f"there is no '{missing}'"):
        async with process_starter(dict(os.environ))(server, ServerLog()):
            pass
