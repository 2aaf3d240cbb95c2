"""``vaka mcp-server`` as a process: only the protocol on stdout, recovery after SIGKILL, an orderly end."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import IO, Any

import anyio
import mcp_types as types
from mcp import Client
from mcp.shared.message import SessionMessage

from tests.cli.shell import TIMEOUT, Shell, call_line, measure_once, say_line

COMMAND = ("mcp-server", "--agent", "agent.py", "--model", "scripted:script.jsonl", "--allow", "gate")


class RawClient:
    """Writes messages to a server and reads its lines, so that the test knows its process."""

    def __init__(self, shell: Shell) -> None:
        command, pipe = [sys.executable, "-m", "vaka", *COMMAND], subprocess.PIPE
        env = measure_once(shell.env, COMMAND)
        self.process = subprocess.Popen(command, cwd=shell.folder, env=env, stdin=pipe, stdout=pipe, stderr=pipe)
        self.stdin: IO[bytes] = self.process.stdin  # type: ignore[assignment]  # a pipe
        self.stdout: IO[bytes] = self.process.stdout  # type: ignore[assignment]  # a pipe
        self.stderr: IO[bytes] = self.process.stderr  # type: ignore[assignment]  # a pipe

    def write(self, line: bytes) -> None:
        self.stdin.write(line + b"\n")
        self.stdin.flush()

    def send(self, method: str, id: int | None = None, **params: Any) -> None:
        message = {"jsonrpc": "2.0", "method": method, "params": params} | ({} if id is None else {"id": id})
        self.write(json.dumps(message).encode())

    def initialize(self) -> None:
        client = {"name": "test", "version": "1"}
        self.send("initialize", 1, protocolVersion="2025-11-25", capabilities={}, clientInfo=client)
        assert self.read()["result"]["serverInfo"]["name"] == "vaka"
        self.send("notifications/initialized")

    def read(self) -> Any:
        return json.loads(self.stdout.readline())

    def close(self) -> tuple[int, str]:
        """Close stdin; return the exit code and stderr."""
        self.stdin.close()
        self.process.wait(TIMEOUT)
        with self.stdout, self.stderr:
            assert self.stdout.read() == b""
            return self.process.returncode, self.stderr.read().decode()


@asynccontextmanager
async def streams_of(raw: RawClient) -> AsyncIterator[tuple[Any, Any]]:
    """Yield the streams on which the SDK's client speaks with a process; at the end its stdin is closed."""
    to_client, from_server = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    to_server, from_client = anyio.create_memory_object_stream[SessionMessage](0)

    async def read() -> None:
        async with to_client:
            while line := await asyncio.to_thread(raw.stdout.readline):
                await to_client.send(SessionMessage(types.jsonrpc_message_adapter.validate_json(line)))

    async def write() -> None:
        async with from_client:
            async for message in from_client:
                raw.write(message.message.model_dump_json(by_alias=True, exclude_unset=True).encode())

    async with anyio.create_task_group() as group, from_server, to_server:
        group.start_soon(read)
        group.start_soon(write)
        yield from_server, to_server
        raw.stdin.close()
        await asyncio.to_thread(raw.process.wait, TIMEOUT)
        group.cancel_scope.cancel()


async def test_a_call_that_was_killed_goes_on_in_the_next_server(shell: Shell) -> None:
    shell.write_script(call_line("gate", path="pipe"), say_line("Through."), say_line("And more."))
    shell.write_file("noise.py", "print('printed by a module')\n")
    shell.write_file("agent.py", "import noise\n" + (shell.folder / "agent.py").read_text())
    os.mkfifo(shell.folder / "pipe")
    raw = RawClient(shell)
    raw.initialize()
    for hostile in (b"no JSON", b"[]", b'{"jsonrpc": "2.0"}', b'"' + b"x" * 11_000_000 + b'"', b"\xff\xfe"):
        raw.write(hostile)
    arguments = {"prompt": "Go."}
    raw.send("tools/call", 2, name="ask_payer", arguments=arguments, _meta={"progressToken": "p"})
    lines: list[str] = []
    while not lines or not lines[-1].startswith("→ gate"):
        message = raw.read()
        if message.get("method") == "notifications/progress":
            lines.append(message["params"]["message"])
    raw.process.kill()
    _, err = raw.close()
    assert "printed by a module" in err
    session = lines[0].removeprefix("session ")

    second = RawClient(shell)
    async with Client(streams_of(second)) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["ask_payer"]
        writer = subprocess.Popen(["sh", "-c", "echo open > pipe"], cwd=shell.folder)
        result = await client.call_tool("ask_payer", {"prompt": "What now?", "session_id": session})
        assert writer.wait(TIMEOUT) == 0
        (transcript,) = (await client.read_resource(f"session://{session}/transcript")).contents
    assert result.structured_content is not None
    assert result.structured_content["answer"] == "And more."
    assert isinstance(transcript, types.TextResourceContents)
    assert "Through." in transcript.text
    assert second.close()[0] == 0


def test_a_server_ends_on_sigterm_and_says_what_is_wrong_with_its_flags(shell: Shell) -> None:
    shell.write_script(say_line("Hello."))
    raw = RawClient(shell)
    raw.initialize()
    raw.process.send_signal(signal.SIGTERM)
    assert raw.process.wait(TIMEOUT) == 143
    raw.close()
    wrong = shell.vaka(*COMMAND, "--expose", "paid")
    assert (wrong.code, wrong.out) == (2, "")
    assert "agent 'payer' has no such tool; there are add, pay" in wrong.err
