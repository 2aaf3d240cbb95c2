"""The process of the local model: started once, shared, restarted after a crash, and always ended."""

import asyncio
import json
import os
import select
import signal
import subprocess
import sys
import textwrap
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.models.local.local_fixtures import OWN_SETTINGS, has_exited, pid_of, prompt_of
from vaka.core.ports.model import Chunk
from vaka.core.types.errors import ModelRefused, ModelUnavailable, StreamCut
from vaka.models.local import LocalSettings
from vaka.models.local.model import LocalModel
from vaka.models.local.process import PROCESSES
from vaka.models.local.server import read_launch_spec
from vaka.testing.models import collect_stream


def wait_for_exit(pid: int) -> bool:
    """Wait until a process has exited; it need not be a child."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([handle], [], [], 60)[0])
    finally:
        os.close(handle)


def run_program(text: str) -> "subprocess.Popen[str]":
    """Start a Python program that asks the local model."""
    head = """
        import asyncio, os, sys
        from vaka.models.local.model import LocalModel
        from vaka.testing.models import collect_stream
        from tests.models.local.local_fixtures import OWN_SETTINGS, pid_of, prompt_of
    """
    code = textwrap.dedent(head) + textwrap.dedent(text)
    root = Path(__file__).parents[3]
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", code], cwd=root, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


async def test_models_with_equal_settings_share_a_process_until_the_last_is_closed() -> None:
    one, other = LocalModel(settings=OWN_SETTINGS), LocalModel(settings=OWN_SETTINGS, wire="messages")
    await asyncio.gather(collect_stream(one, prompt_of(max_tokens=2)), collect_stream(other, prompt_of(max_tokens=2)))
    shared = pid_of(one)
    assert pid_of(other) == shared
    await one.close()
    assert not has_exited(shared)
    assert (await collect_stream(other, prompt_of(max_tokens=2))).stops == ["length"]
    await other.close()
    assert has_exited(shared)
    await other.close()


async def test_other_settings_start_another_process() -> None:
    one, other = (
        LocalModel(settings=OWN_SETTINGS),
        LocalModel(settings=msgspec.structs.replace(OWN_SETTINGS, max_tokens=3)),
    )
    said = await collect_stream(other, prompt_of("Tell me a long story."))
    await collect_stream(one, prompt_of(max_tokens=2))
    assert (said.stops, said.usage.output) == (["length"], 3)
    assert pid_of(one) != pid_of(other)
    await one.close()
    await other.close()


async def test_a_closed_model_starts_again_at_the_next_call() -> None:
    local = LocalModel(settings=OWN_SETTINGS)
    for _ in range(2):
        assert (await collect_stream(local, prompt_of(max_tokens=2))).stops == ["length"]
        await local.close()


async def test_loading_reports_progress_and_does_not_block_the_loop() -> None:
    progress_lines: list[str] = []
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    local = LocalModel(settings=OWN_SETTINGS, progress=progress_lines.append)
    counting = asyncio.create_task(count())
    async with aclosing(local.stream(prompt_of(max_tokens=2))) as chunks:
        await anext(chunks)
    counting.cancel()
    assert progress_lines[0] == "loading SmolLM2-135M …"
    assert progress_lines[-1].startswith("SmolLM2-135M is ready (")
    assert all(words.startswith("loading SmolLM2-135M … ") for words in progress_lines[1:-1])
    assert turns > 100
    before = list(progress_lines)
    await collect_stream(local, prompt_of(max_tokens=2))
    assert progress_lines == before
    await local.close()


async def test_cancelling_a_call_while_the_model_loads_does_not_affect_others() -> None:
    local, other = LocalModel(settings=OWN_SETTINGS), LocalModel(settings=OWN_SETTINGS)
    impatient = asyncio.create_task(collect_stream(local, prompt_of()))
    patient = asyncio.create_task(collect_stream(other, prompt_of(max_tokens=2)))
    for _ in range(20):
        await asyncio.sleep(0)
    impatient.cancel()
    await asyncio.wait([impatient])
    assert impatient.cancelled()
    assert (await patient).stops == ["length"]
    await local.close()
    await other.close()


async def test_closing_during_loading_leaves_no_process() -> None:
    local = LocalModel(settings=OWN_SETTINGS)
    asking = asyncio.create_task(collect_stream(local, prompt_of()))
    await asyncio.sleep(0)
    (process,) = [process for process, holders in PROCESSES._processes.values() if local in holders]
    await local.close()
    with pytest.raises(ModelUnavailable, match=r"the process of the local model was killed \(signal"):
        await asking
    assert process.pid is not None
    assert has_exited(process.pid)


async def _rest(chunks: AsyncGenerator[Chunk]) -> list[Chunk]:
    return [chunk async for chunk in chunks]


async def test_a_crash_during_an_answer_is_a_cut_stream_and_the_next_call_starts_a_process() -> None:
    local = LocalModel(settings=OWN_SETTINGS)
    chunks = local.stream(prompt_of("Tell me a long story."))
    await anext(chunks)
    dead = pid_of(local)
    os.kill(dead, signal.SIGKILL)
    with pytest.raises(StreamCut) as caught:
        await _rest(chunks)
    assert str(caught.value) == (
        "the process of the local model was killed (signal 9, SIGKILL); the next call starts it again"
    )
    assert (await collect_stream(local, prompt_of(max_tokens=2))).stops == ["length"]
    assert pid_of(local) != dead
    await local.close()


async def test_a_crash_between_two_calls_does_not_fail_the_next_call() -> None:
    local = LocalModel(settings=OWN_SETTINGS)
    await collect_stream(local, prompt_of(max_tokens=2))
    opened = local._connection
    assert opened is not None
    os.kill(pid_of(local), signal.SIGKILL)
    await asyncio.to_thread(opened.process.exit_reason.result)
    assert (await collect_stream(local, prompt_of(max_tokens=2))).stops == ["length"]
    await local.close()


async def test_a_process_that_does_not_stop_on_request_is_killed() -> None:
    local = LocalModel(settings=OWN_SETTINGS)
    await collect_stream(local, prompt_of(max_tokens=2))
    stopped = pid_of(local)
    os.kill(stopped, signal.SIGSTOP)  # a stopped process gets SIGTERM only when it goes on
    os.waitid(os.P_PID, stopped, os.WSTOPPED | os.WNOWAIT)
    await local.close()
    assert has_exited(stopped)


async def test_a_process_that_cannot_be_started_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    local = LocalModel(settings=OWN_SETTINGS)
    with pytest.raises(ModelUnavailable, match="local model could not be started: No such file or directory"):
        await collect_stream(local, prompt_of())
    await local.close()


@pytest.mark.parametrize("content", [b"", b"nonsense" * 100, None])
async def test_invalid_weights_are_reported_with_the_loaders_message(content: bytes | None, tmp_path: Path) -> None:
    weights = tmp_path / "broken.gguf"
    if content is not None:
        weights.write_bytes(content)
    local = LocalModel(settings=LocalSettings(weights=str(weights)))
    with pytest.raises(ModelRefused, match=r"the local model cannot be started: .*: gguf_init"):
        await collect_stream(local, prompt_of())
    await local.close()


def test_the_server_dies_with_a_parent_that_is_killed() -> None:
    parent = run_program("""
        async def main():
            local = LocalModel(settings=OWN_SETTINGS)
            await collect_stream(local, prompt_of(max_tokens=2))
            print(pid_of(local), flush=True)
            await asyncio.Event().wait()
        asyncio.run(main())
    """)
    with parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        parent.kill()
        assert wait_for_exit(child)


def test_a_program_that_exits_without_closing_leaves_no_process_and_prints_nothing() -> None:
    with run_program("""
        local = LocalModel(settings=OWN_SETTINGS)
        asyncio.run(collect_stream(local, prompt_of(max_tokens=2)))
        print(pid_of(local))
    """) as parent:
        said, errors = parent.communicate()
    assert (parent.returncode, errors) == (0, "")
    assert wait_for_exit(int(said))


def test_a_forked_process_starts_its_own_server() -> None:
    with run_program("""
        local = LocalModel(settings=OWN_SETTINGS)
        asyncio.run(collect_stream(local, prompt_of(max_tokens=2)))
        before = pid_of(local)
        child = os.fork()
        asyncio.run(collect_stream(local, prompt_of(max_tokens=2)))
        if not child:
            own = pid_of(local) != before
            asyncio.run(local.close())
            os._exit(0 if own else 1)
        assert os.waitpid(child, 0)[1] == 0
        asyncio.run(collect_stream(local, prompt_of(max_tokens=2)))
        assert pid_of(local) == before
        asyncio.run(local.close())
    """) as parent:
        _, errors = parent.communicate()
    assert (parent.returncode, errors) == (0, "")


def start(**other: Any) -> "subprocess.Popen[bytes]":
    """Start the server process with a launch spec."""
    order = {
        "owner": os.getpid(),
        "weights": LocalModel()._launch_spec.weights,
        "host": "127.0.0.1",
        "port": 0,
        "key": "k",
        "settings": msgspec.to_builtins(OWN_SETTINGS),
    }
    command = [sys.executable, "-m", "vaka.models.local.server"]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert child.stdin is not None
    child.stdin.write(json.dumps(order | other).encode() + b"\n")
    child.stdin.flush()
    return child


def test_the_server_exits_when_its_stdin_ends() -> None:
    with start() as child:
        assert child.stdout is not None
        report = json.loads(child.stdout.readline())
        assert report["url"].startswith("http://127.0.0.1:")
        assert child.poll() is None
        _, errors = child.communicate()
    assert (child.returncode, errors) == (0, b"")


def test_the_server_does_not_start_for_an_owner_that_has_exited() -> None:
    with start(owner=1) as child:
        said, errors = child.communicate()
    assert (child.returncode, said, errors) == (0, b"", b"")


@pytest.mark.parametrize("line", [b"", b"{", b"{}\n", b"x" * 70_000])
def test_an_invalid_launch_spec_is_refused(line: bytes) -> None:
    source, target = os.pipe()
    os.set_blocking(target, False)
    with suppress(BlockingIOError):
        os.write(target, line)
    os.close(target)
    with pytest.raises(ValueError, match=r"expected one line with a launch spec|missing required field"):
        read_launch_spec(source)
    os.close(source)
