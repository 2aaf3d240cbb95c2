"""The contract suite of sandboxes: subclass ``SandboxContract`` and give it a fixture ``sandbox``.

::

    class TestMine(SandboxContract):
        @pytest.fixture
        def sandbox(self) -> Sandbox: ...

``vaka.testing.confinement`` has the contract of sandboxes that enforce restrictions.
"""
# ruff: noqa: S101, ASYNC110, ASYNC240  # a contract suite is made of asserts; commands are observed through files

import asyncio
import contextlib
import fcntl
import os
import resource
import shlex
import signal
import tempfile
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from pathlib import Path

import msgspec
import pytest

from vaka.core.ports.sandbox import Command, Process, ResourceLimits, Sandbox
from vaka.core.types.errors import SandboxError
from vaka.core.types.progress import OutputStream

PYTHON = "/usr/bin/python3"
"""A Python that every user of this machine can run."""
_MIB = 1024 * 1024
_DETACHED_PROCESS = "setsid -f bash -c 'exec 9>lock; flock 9; trap \"\" TERM HUP INT; touch ready; exec sleep 600' {}"
"""A process that leaves its group and session, ignores SIGTERM, and holds a lock while it lives."""
_UNTIL_READY = "until [ -e ready ]; do sleep 0.01; done"


class CompletedCommand(msgspec.Struct, frozen=True):
    code: int
    stdout: str
    stderr: str


class OutputLines:
    """Reads the lines of each stream of a command."""

    def __init__(self, output: AsyncGenerator[tuple[OutputStream, bytes]]) -> None:
        self._output = output
        self._buffers: dict[OutputStream, bytes] = {"stdout": b"", "stderr": b""}

    async def next(self, stream: OutputStream) -> str:
        while b"\n" not in self._buffers[stream]:
            arrived, data = await anext(self._output)
            self._buffers[arrived] += data
        line, _, self._buffers[stream] = self._buffers[stream].partition(b"\n")
        return line.decode()


async def run_to_end(process: Process) -> CompletedCommand:
    """Read all output of a command and wait for its end."""
    parts: dict[str, list[bytes]] = {"stdout": [], "stderr": []}
    async with aclosing(process.output()) as output:
        async for stream, data in output:
            parts[stream].append(data)
    code = await process.wait()
    await process.stop()
    texts = {stream: b"".join(pieces).decode(errors="replace") for stream, pieces in parts.items()}
    return CompletedCommand(code, texts["stdout"], texts["stderr"])


def shell_command(script: str, workspace: Path, **fields: object) -> Command:
    """Return a command that runs a script in a writable workspace."""
    command = Command(argv=("bash", "-c", script), cwd=str(workspace), writable=(str(workspace),))
    return msgspec.structs.replace(command, **fields)


def wait_for_lock(lock: Path) -> None:
    """Wait until a lock is free: the process that held it has ended."""
    with lock.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)


class SandboxContract:
    """The contract of every sandbox, also of a sandbox that enforces nothing."""

    ends_detached_processes = True
    """Whether it ends processes that left their process group."""
    enforces_bounds = True
    """Whether it enforces ``ResourceLimits``."""

    workspace_parent: str | None = None
    """The folder of workspaces; the system's folder of temporary files by default."""

    @pytest.fixture
    def workspace(self) -> Iterator[Path]:
        """A folder that a command may write to, beside others that it may not."""
        with tempfile.TemporaryDirectory(prefix="vaka-test-", dir=self.workspace_parent) as folder:
            workspace = Path(folder).resolve() / "workspace"
            workspace.mkdir()
            yield workspace

    async def run(self, sandbox: Sandbox, script: str, workspace: Path, **fields: object) -> CompletedCommand:
        return await run_to_end(await sandbox.start(shell_command(script, workspace, **fields)))

    async def test_output_and_exit_code_are_returned(self, sandbox: Sandbox, workspace: Path) -> None:
        ended = await self.run(sandbox, "echo one; echo two >&2; pwd; echo $WORD; exit 7", workspace, env={"WORD": "w"})
        assert ended == CompletedCommand(7, f"one\n{workspace}\nw\n", "two\n")

    async def test_arguments_are_not_interpreted_by_a_shell(self, sandbox: Sandbox, workspace: Path) -> None:
        words = ("", "a b", "$HOME", "`id`", "*", "'", '"', "\\", "\n", "-n", "; exit 9", "é\udc80")
        process = await sandbox.start(
            Command(argv=("printf", "<%s>", *words), cwd=str(workspace), writable=(str(workspace),))
        )
        parts: list[bytes] = [data async for _, data in process.output()]
        assert await process.wait() == 0
        assert b"".join(parts) == b"".join(b"<" + os.fsencode(word) + b">" for word in words)
        await process.stop()

    async def test_a_shell_builtin_name_is_looked_up_as_a_program(self, sandbox: Sandbox, workspace: Path) -> None:
        process = await sandbox.start(Command(argv=("false",), cwd=str(workspace)))
        assert (await run_to_end(process)).code == 1
        with pytest.raises(SandboxError):
            await sandbox.start(Command(argv=("exit", "3"), cwd=str(workspace)))

    async def test_stdin_arrives_whole(self, sandbox: Sandbox, workspace: Path) -> None:
        data = bytes(range(256)) * 8192
        ended = await self.run(sandbox, "cksum; cat > copy < /dev/stdin", workspace, stdin=data)
        assert ended.stdout.split()[1] == str(len(data))
        assert (await self.run(sandbox, "cat; echo end", workspace)).stdout == "end\n"

    async def test_output_arrives_while_the_command_runs(self, sandbox: Sandbox, workspace: Path) -> None:
        script = "echo question; until [ -e answer ]; do sleep 0.01; done; echo heard"
        process = await sandbox.start(shell_command(script, workspace))
        async with aclosing(process.output()) as output:
            assert await anext(output) == ("stdout", b"question\n")
            (workspace / "answer").touch()
            assert await anext(output) == ("stdout", b"heard\n")
        assert await process.wait() == 0
        await process.stop()

    async def test_a_fatal_signal_is_returned_as_its_negative_number(self, sandbox: Sandbox, workspace: Path) -> None:
        assert (await self.run(sandbox, "kill -KILL $$", workspace)).code == -signal.SIGKILL
        assert (await self.run(sandbox, "kill -TERM $$", workspace)).code == -signal.SIGTERM

    async def test_output_is_read_once(self, sandbox: Sandbox, workspace: Path) -> None:
        process = await sandbox.start(shell_command("echo one; sleep 600", workspace))
        async with aclosing(process.output()) as output:
            await anext(output)
            with pytest.raises(SandboxError, match="once"):
                await anext(process.output())
        await process.stop(0)

    async def test_wait_does_not_block_on_unread_output(self, sandbox: Sandbox, workspace: Path) -> None:
        process = await sandbox.start(shell_command("head -c 5000000 /dev/zero; exit 4", workspace))
        assert await process.wait() == 4
        await process.stop()

    async def test_much_output_takes_little_memory(self, sandbox: Sandbox, workspace: Path) -> None:
        process = await sandbox.start(shell_command(f"head -c {192 * _MIB} /dev/zero", workspace))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        total = largest = 0
        async with aclosing(process.output()) as output:
            async for _, data in output:
                total += len(data)
                largest = max(largest, len(data))
        assert (total, await process.wait()) == (192 * _MIB, 0)
        assert largest <= 256 * 1024
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before <= 64 * 1024
        await process.stop()

    async def test_output_of_background_processes_is_read_to_the_end(self, sandbox: Sandbox, workspace: Path) -> None:
        script = "(until [ -e go ]; do sleep 0.01; done; echo late) & touch go; echo now"
        assert sorted((await self.run(sandbox, script, workspace)).stdout.split()) == ["late", "now"]

    async def test_a_command_may_close_its_output_and_continue(self, sandbox: Sandbox, workspace: Path) -> None:
        script = "echo last; exec >&- 2>&-; until [ -e go ]; do sleep 0.01; done; exit 6"
        process = await sandbox.start(shell_command(script, workspace))
        async with aclosing(process.output()) as output:
            assert await anext(output) == ("stdout", b"last\n")
            (workspace / "go").touch()
            assert [data async for data in output] == []
        assert await process.wait() == 6
        await process.stop()

    async def test_stop_sends_sigterm_first(self, sandbox: Sandbox, workspace: Path) -> None:
        """Output that the command prints in its handler is still read."""
        script = "trap 'echo bye; exit 5' TERM; echo up; while :; do sleep 0.05; done"
        process = await sandbox.start(shell_command(script, workspace))
        async with aclosing(process.output()) as output:
            assert await anext(output) == ("stdout", b"up\n")
            await process.stop(60)
            rest = [data async for stream, data in output if stream == "stdout"]
        assert (rest, await process.wait()) == ([b"bye\n"], 5)

    async def test_stop_kills_a_command_that_ignores_sigterm(self, sandbox: Sandbox, workspace: Path) -> None:
        """Concurrent and later calls of ``stop`` do nothing."""
        script = "trap '' TERM INT HUP; exec 9>lock; flock 9; touch ready; while :; do sleep 600; done"
        process = await sandbox.start(shell_command(script, workspace))
        await wait_for_file(workspace / "ready")
        await asyncio.gather(process.stop(0.1), process.stop(0.1))
        await process.stop()
        assert await process.wait() == -signal.SIGKILL
        wait_for_lock(workspace / "lock")

    async def test_detached_processes_are_ended(self, sandbox: Sandbox, workspace: Path) -> None:
        """While their command runs and after it has ended."""
        if not self.ends_detached_processes:
            pytest.skip("this sandbox ends only its process group, as documented")
        process = await sandbox.start(
            shell_command(f"{_DETACHED_PROCESS.format('')}; {_UNTIL_READY}; echo up; sleep 600", workspace)
        )
        async with aclosing(process.output()) as output:
            assert await anext(output) == ("stdout", b"up\n")
        await process.stop(0)
        wait_for_lock(workspace / "lock")
        (workspace / "ready").unlink()
        quiet = _DETACHED_PROCESS.format(">/dev/null 2>&1 </dev/null")
        await self.run(sandbox, f"{quiet}; {_UNTIL_READY}", workspace)
        wait_for_lock(workspace / "lock")

    async def test_commands_run_concurrently(self, sandbox: Sandbox, workspace: Path) -> None:
        runs = [self.run(sandbox, f"echo {number}; exit {number}", workspace) for number in range(12)]
        assert await asyncio.gather(*runs) == [CompletedCommand(number, f"{number}\n", "") for number in range(12)]

    async def test_secrets_in_the_environment_are_not_passed_on(
        self, sandbox: Sandbox, workspace: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in ("SOME_API_KEY", "GITHUB_TOKEN", "DB_PASSWORD", "AWS_ACCESS_KEY_ID", "MY_SECRET", "COMPANY_CRED"):
            monkeypatch.setenv(name, f"canary-{name}")
        monkeypatch.setenv("DATABASE_URL", "postgres://me:canary-url@host/db")  # not a secret
        monkeypatch.setenv("NODE_ENV", "test")
        ended = await self.run(sandbox, "env", workspace, env={"GIVEN_TOKEN": "asked for"})  # nosec B105  # made up
        assert "canary" not in ended.stdout
        lines = ended.stdout.splitlines()
        assert {"NODE_ENV=test", "GIVEN_TOKEN=asked for"} <= set(lines)
        assert {"PATH", "HOME", "LANG"} <= {line.partition("=")[0] for line in lines}

    @pytest.mark.parametrize(
        "wrong",
        [
            {"argv": ()},
            {"argv": ("",)},
            {"argv": ("no-such-program-here",)},
            {"argv": ("./missing",)},
            {"argv": ("bash", "-c", "a\0b")},
            {"argv": ("bash", "-c", "a\ud800b")},
            {"cwd": "/no/such/folder"},
        ],
    )
    async def test_a_command_that_cannot_start_is_a_sandbox_error(
        self, sandbox: Sandbox, workspace: Path, wrong: dict[str, object]
    ) -> None:
        with pytest.raises(SandboxError):
            await sandbox.start(shell_command("true", workspace, **wrong))

    async def test_a_cancelled_start_leaves_no_process(self, sandbox: Sandbox, workspace: Path) -> None:
        (workspace / "lock").touch()  # a command that starts late must not create it while the folder is removed
        for turns in range(12):
            task = asyncio.create_task(sandbox.start(shell_command("exec 9<lock; flock 9; exec sleep 600", workspace)))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await (await task).stop(0)
        if self.ends_detached_processes:
            wait_for_lock(workspace / "lock")

    # ------------------------------------------------------------------------------------------------------ live stdin

    async def test_an_open_stdin_is_answered_line_by_line_until_its_end(
        self, sandbox: Sandbox, workspace: Path
    ) -> None:
        """The command has its three streams and no other descriptor, and ignores the signals of any other command."""
        script = (
            "ls /proc/$$/fd; grep SigIgn /proc/self/status; "
            'while read -r line; do echo "<$line>"; echo "[$line]" >&2; done; echo end; exit 3'
        )
        other = await self.run(sandbox, "grep SigIgn /proc/self/status", workspace)
        process = await sandbox.start(shell_command(script, workspace, stdin="pipe"))
        async with aclosing(process.output()) as output:
            lines = OutputLines(output)
            assert [await lines.next("stdout") for _ in range(4)] == ["0", "1", "2", other.stdout.rstrip()]
            for word in ("one", "two"):
                await process.write_stdin(f"{word}\n".encode())
                assert (await lines.next("stdout"), await lines.next("stderr")) == (f"<{word}>", f"[{word}]")
            process.close_stdin()
            process.close_stdin()
            with pytest.raises(SandboxError, match="closed"):
                await process.write_stdin(b"late")
            assert await lines.next("stdout") == "end"
        assert await process.wait() == 3
        await process.stop()
        assert not Path(f"/proc/{process.pid}").exists()  # also not as a zombie

    async def test_ten_megabytes_pass_through_stdin_and_back(self, sandbox: Sandbox, workspace: Path) -> None:
        """Of two concurrent writers each one's data stays together."""
        parts = [bytes([letter]) * (5 * _MIB) for letter in b"ab"]
        process = await sandbox.start(shell_command("cat", workspace, stdin="pipe"))

        async def write() -> None:
            await asyncio.gather(*map(process.write_stdin, parts))
            process.close_stdin()

        writing = asyncio.create_task(write())
        received = [data async for _, data in process.output()]
        await writing
        assert b"".join(received) == b"".join(parts)
        assert await process.wait() == 0
        await process.stop()

    async def test_a_writer_gets_an_error_when_the_command_has_closed_stdin(
        self, sandbox: Sandbox, workspace: Path
    ) -> None:
        """The command goes on. A command that was started without an open stdin refuses every write."""
        process = await sandbox.start(shell_command("exec <&-; echo closed; exec sleep 600", workspace, stdin="pipe"))
        async with aclosing(process.output()) as output:
            assert await anext(output) == ("stdout", b"closed\n")
            for _ in range(2):
                with pytest.raises(SandboxError, match="closed"):
                    await process.write_stdin(bytes(_MIB))
        await process.stop(60)
        assert await process.wait() == -signal.SIGTERM
        without = await sandbox.start(shell_command("exec sleep 600", workspace))
        with pytest.raises(SandboxError, match="stdin='pipe'"):
            await without.write_stdin(b"x")
        without.close_stdin()
        await without.stop(60)
        assert await without.wait() == -signal.SIGTERM

    async def test_a_command_can_be_stopped_while_it_starts(self, sandbox: Sandbox, workspace: Path) -> None:
        """SIGTERM reaches it also when its processes do not exist yet."""

        async def start_and_stop() -> int:
            process = await sandbox.start(shell_command("exec sleep 600", workspace))
            await process.stop(60)
            return await process.wait()

        assert await asyncio.gather(*(start_and_stop() for _ in range(12))) == [-signal.SIGTERM] * 12

    async def test_a_writer_waits_while_the_command_does_not_read(self, sandbox: Sandbox, workspace: Path) -> None:
        """Data that is not read takes no memory, a cancelled writer leaves the pipe usable, and all processes end."""
        script = "(exec 9>lock; flock 9; touch ready; exec sleep 600 >/dev/null) & cat; wait"
        process = await sandbox.start(shell_command(script, workspace, stdin="pipe"))
        await wait_for_file(workspace / "ready")
        data = bytes(32 * _MIB)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for _ in range(3):
            writing = asyncio.create_task(process.write_stdin(data))
            await _pass_turns(20)
            writing.cancel()
            await asyncio.wait([writing])
            assert writing.cancelled()
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before <= 16 * 1024
        async with aclosing(process.output()) as output:
            writing, received = asyncio.create_task(process.write_stdin(b"done\n")), b""
            while not received.endswith(b"done\n"):
                received = (received + (await anext(output))[1])[-5:]
            await writing
        writing = asyncio.create_task(process.write_stdin(data))
        await _pass_turns(20)
        await process.stop(0)
        with pytest.raises(SandboxError, match="closed"):
            await writing
        assert await process.wait() < 0
        wait_for_lock(workspace / "lock")

    # --------------------------------------------------------------------------------------------------------- bounds

    async def test_file_size_is_bounded(self, sandbox: Sandbox, workspace: Path) -> None:
        self._skip_without_bounds()
        script = f"exec {PYTHON} -c \"open('big', 'wb').write(bytes(3 << 20))\""
        ended = await self.run(sandbox, script, workspace, bounds=ResourceLimits(file_bytes=_MIB))
        assert ended.code != 0
        assert (workspace / "big").stat().st_size <= _MIB

    async def test_memory_is_bounded(self, sandbox: Sandbox, workspace: Path) -> None:
        self._skip_without_bounds()
        script = f"exec {PYTHON} -c \"bytearray(400 << 20); print('had it')\""
        ended = await self.run(sandbox, script, workspace, bounds=ResourceLimits(memory_bytes=128 * _MIB))
        assert (ended.code != 0, ended.stdout) == (True, "")

    async def test_memory_of_all_processes_together_is_bounded(self, sandbox: Sandbox, workspace: Path) -> None:
        """Each has less than the bound; shared memory is not counted as private."""
        self._skip_without_bounds()
        hold = "import mmap, sys; m = mmap.mmap(-1, 60 << 20); m.write(bytes(60 << 20)); sys.stdin.read()"
        script = f"sleep 600 | for n in 1 2 3 4 5 6; do {PYTHON} -c '{hold}' & done; wait"
        ended = await self.run(sandbox, script, workspace, bounds=ResourceLimits(memory_bytes=160 * _MIB))
        assert ended.code != 0
        assert "memory" in ended.stderr

    async def test_processor_time_is_bounded(self, sandbox: Sandbox, workspace: Path) -> None:
        """For one endless process, and for many short ones."""
        self._skip_without_bounds()
        forever = await self.run(sandbox, "while :; do :; done", workspace, bounds=ResourceLimits(cpu_seconds=1))
        assert forever.code in {-signal.SIGKILL, -signal.SIGXCPU}
        work = f"{PYTHON} -c 'for _ in range(3_000_000): pass'"
        many = await self.run(sandbox, f"while :; do {work}; done", workspace, bounds=ResourceLimits(cpu_seconds=1))
        assert (many.code, "processor time" in many.stderr) == (-signal.SIGKILL, True)

    async def test_open_files_are_bounded(self, sandbox: Sandbox, workspace: Path) -> None:
        self._skip_without_bounds()
        script = f"{PYTHON} -c \"k = [open('/dev/null') for _ in range(200)]\""
        assert (await self.run(sandbox, script, workspace, bounds=ResourceLimits(open_files=64))).code == 1

    async def test_processes_are_bounded(self, sandbox: Sandbox, workspace: Path) -> None:
        """A fork bomb gets some of the processes it wants, and then no more."""
        self._skip_without_bounds()
        bomb = (
            "import os, sys\nmade = 0\nfor _ in range(150):\n try:\n  pid = os.fork()\n except OSError:\n  break\n"
            " if pid == 0:\n  os.read(0, 1); os._exit(0)\n made += 1\nprint(made, flush=True)"
        )
        script = f"sleep 600 | {PYTHON} -c {shlex.quote(bomb)}"
        process = await sandbox.start(shell_command(script, workspace, bounds=ResourceLimits(processes=40)))
        made = b""
        async with aclosing(process.output()) as output:
            async for stream, data in output:
                made += data if stream == "stdout" else b""
                if b"\n" in made:
                    break
        # Where only the supervisor counts processes, it ends the whole command at its next poll.
        assert (made and int(made) < 60) or await process.wait() == -signal.SIGKILL
        await process.stop(0)

    def _skip_without_bounds(self) -> None:
        if not self.enforces_bounds:
            pytest.skip("this sandbox enforces no resource limits, as documented")


async def _pass_turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def wait_for_file(path: Path) -> None:
    while not path.exists():
        await asyncio.sleep(0)
