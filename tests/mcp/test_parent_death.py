"""A stdio server ends with the process that started it, however that process ends."""

import os
import select
import subprocess
import sys

import pytest

PROGRAM = """
import asyncio, os, sys, uvloop
from vaka.mcp.definition import McpServer
from vaka.mcp.stdio import ServerLog, process_starter

SERVER = "import os, signal; print(os.getpid(), flush=True); signal.pause()"

async def main():
    server = McpServer(name="s", command=sys.executable, args=("-c", SERVER))
    async with process_starter(dict(os.environ))(server, ServerLog()) as streams:
        line = b""
        while not line.endswith(b"\\n"):  # a server without buffers writes the end of the line by itself
            line += await streams.read()
        print(line.decode(), end="", flush=True)
        await asyncio.Event().wait()

factory = uvloop.new_event_loop if sys.argv[1] == "uvloop" else None
with asyncio.Runner(loop_factory=factory) as runner:
    runner.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no signal for the death of a parent")
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_server_that_ignores_the_end_of_its_input_dies_when_its_parent_is_killed(loop: str) -> None:
    with subprocess.Popen([sys.executable, "-c", PROGRAM, loop], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        try:
            server = os.pidfd_open(int(parent.stdout.readline()))
            try:
                assert select.select([server], [], [], 0)[0] == []
                parent.kill()
                parent.wait()
                assert select.select([server], [], [], 60)[0] == [server]
            finally:
                os.close(server)
        finally:
            parent.kill()
