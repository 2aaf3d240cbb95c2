"""What every sandbox promises, as tests: subclass ``SandboxContract`` and give it a fixture ``sandbox``.

::

    class TestMine(SandboxContract):
        @pytest.fixture
        def sandbox(self) -> Sandbox: ...

``vaka.testing.confinement`` has the contract for those that enforce something.
"""
# ruff: noqa: S101, ASYNC110, ASYNC240  # asserts are what a contract is made of, and files how commands are heard

import asyncio
import contextlib
import fcntl
import os
import resource
import shlex
import signal
import tempfile
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path

import msgspec
import pytest

from vaka.core.ports.sandbox import Command, Process, ResourceLimits, Sandbox
from vaka.core.types.errors import SandboxError

PYTHON = "/usr/bin/python3"
"""One that every user of this machine can run."""
_MIB = 1024 * 1024
_DETACHED_PROCESS = "setsid -f bash -c 'exec 9>lock; flock 9; trap \"\" TERM HUP INT; touch ready; exec sleep 600' {}"
"""A process that leaves its group and its session, ignores requests to end, and holds a lock while it lives."""
_UNTIL_READY = "until [ -e ready ]; do sleep 0.01; done"


class CompletedCommand(msgspec.Struct, frozen=True):
    """A command that has ended."""

    code: int
    stdout: str
    stderr: str


async def run_to_end(process: Process) -> CompletedCommand:
    """Read everything a command prints, and wait for its end."""
    parts: dict[str, list[bytes]] = {"stdout": [], "stderr": []}
    async with aclosing(process.output()) as output:
        async for stream, data in output:
            parts[stream].append(data)
    code = await process.wait()
    await process.stop()
    texts = {stream: b"".join(pieces).decode(errors="replace") for stream, pieces in parts.items()}
    return CompletedCommand(code, texts["stdout"], texts["stderr"])


def shell_command(script: str, workspace: Path, **fields: object) -> Command:
    """Return a command that runs a script in a workspace it may write to."""
    made = Command(argv=("bash", "-c", script), cwd=str(workspace), writable=(str(workspace),))
    return msgspec.structs.replace(made, **fields)


def wait_for_lock(lock: Path) -> None:
    """Wait until nobody holds a lock; whoever held it is gone then."""
    with lock.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)


class SandboxContract:
    """What every sandbox promises, also one that enforces nothing."""

    ends_detached_processes = True
    """Whether it ends what left its process group."""
    enforces_bounds = True
    """Whether it keeps commands to their ``Bounds``."""

    workspace_parent: str | None = None
    """Where workspaces are made; where temporary files are, if it is not said."""

    @pytest.fixture
    def workspace(self) -> Iterator[Path]:
        """A folder that a command may write to, with neighbours it may not."""
        with tempfile.TemporaryDirectory(prefix="vaka-test-", dir=self.workspace_parent) as folder:
            made = Path(folder).resolve() / "workspace"
            made.mkdir()
            yield made

    async def run(self, sandbox: Sandbox, script: str, workspace: Path, **fields: object) -> CompletedCommand:
        """Run a script to its end."""
        return await run_to_end(await sandbox.start(shell_command(script, workspace, **fields)))

    async def test_what_it_prints_and_how_it_ends_is_told(self, sandbox: Sandbox, workspace: Path) -> None:
        """Both streams, the code, the folder, the variables."""
        ended = await self.run(sandbox, "echo one; echo two >&2; pwd; echo $WORD; exit 7", workspace, env={"WORD": "w"})
        assert ended == CompletedCommand(7, f"one\n{workspace}\nw\n", "two\n")

    async def test_words_are_not_read_by_a_shell(self, sandbox: Sandbox, workspace: Path) -> None:
        """They arrive as they are, whatever is in them."""
        words = ("", "a b", "$HOME", "`id`", "*", "'", '"', "\\", "\n", "-n", "; exit 9", "é\udc80")
        process = await sandbox.start(
            Command(argv=("printf", "<%s>", *words), cwd=str(workspace), writable=(str(workspace),))
        )
        parts: list[bytes] = [data async for _, data in process.output()]
        assert await process.wait() == 0
        assert b"".join(parts) == b"".join(b"<" + os.fsencode(word) + b">" for word in words)
        await process.stop()

    async def test_a_word_that_a_shell_knows_is_still_a_program(self, sandbox: Sandbox, workspace: Path) -> None:
        """There is a program ``false``; there is none called ``exit``."""
        process = await sandbox.start(Command(argv=("false",), cwd=str(workspace)))
        assert (await run_to_end(process)).code == 1
        with pytest.raises(SandboxError):
            await sandbox.start(Command(argv=("exit", "3"), cwd=str(workspace)))

    async def test_stdin_arrives_whole(self, sandbox: Sandbox, workspace: Path) -> None:
        """Also when it is large, and when there is none."""
        given = bytes(range(256)) * 8192
        ended = await self.run(sandbox, "cksum; cat > copy < /dev/stdin", workspace, stdin=given)
        assert ended.stdout.split()[1] == str(len(given))
        assert (await self.run(sandbox, "cat; echo end", workspace)).stdout == "end\n"

    async def test_output_arrives_while_the_command_runs(self, sandbox: Sandbox, workspace: Path) -> None:
        """It waits for an answer to what it printed."""
        script = "echo question; until [ -e answer ]; do sleep 0.01; done; echo heard"
        process = await sandbox.start(shell_command(script, workspace))
        async with aclosing(process.output()) as output:
            assert await anext(output) == ("stdout", b"question\n")
            (workspace / "answer").touch()
            assert await anext(output) == ("stdout", b"heard\n")
        assert await process.wait() == 0
        await process.stop()

    async def test_a_signal_that_ends_it_is_told_as_minus_its_number(self, sandbox: Sandbox, workspace: Path) -> None:
        """As the port says."""
        assert (await self.run(sandbox, "kill -KILL $$", workspace)).code == -signal.SIGKILL
        assert (await self.run(sandbox, "kill -TERM $$", workspace)).code == -signal.SIGTERM

    async def test_output_is_read_once(self, sandbox: Sandbox, workspace: Path) -> None:
        """Who asks while somebody reads is told so."""
        process = await sandbox.start(shell_command("echo one; sleep 600", workspace))
        async with aclosing(process.output()) as output:
            await anext(output)
            with pytest.raises(SandboxError, match="once"):
                await anext(process.output())
        await process.stop(0)

    async def test_who_only_waits_is_not_held_up_by_output(self, sandbox: Sandbox, workspace: Path) -> None:
        """More than any pipe holds."""
        process = await sandbox.start(shell_command("head -c 5000000 /dev/zero; exit 4", workspace))
        assert await process.wait() == 4
        await process.stop()

    async def test_much_output_takes_little_memory(self, sandbox: Sandbox, workspace: Path) -> None:
        """What nobody has asked for stays where it is."""
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

    async def test_what_it_leaves_behind_may_print_to_the_end(self, sandbox: Sandbox, workspace: Path) -> None:
        """Output is never lost."""
        script = "(until [ -e go ]; do sleep 0.01; done; echo late) & touch go; echo now"
        assert sorted((await self.run(sandbox, script, workspace)).stdout.split()) == ["late", "now"]

    async def test_it_may_close_its_output_and_go_on(self, sandbox: Sandbox, workspace: Path) -> None:
        """Its end is its end, not that of its output."""
        script = "echo last; exec >&- 2>&-; until [ -e go ]; do sleep 0.01; done; exit 6"
        process = await sandbox.start(shell_command(script, workspace))
        async with aclosing(process.output()) as output:
            assert await anext(output) == ("stdout", b"last\n")
            (workspace / "go").touch()
            assert [data async for data in output] == []
        assert await process.wait() == 6
        await process.stop()

    async def test_stop_asks_first(self, sandbox: Sandbox, workspace: Path) -> None:
        """And what the command says to that can still be read."""
        script = "trap 'echo bye; exit 5' TERM; echo up; while :; do sleep 0.05; done"
        process = await sandbox.start(shell_command(script, workspace))
        async with aclosing(process.output()) as output:
            assert await anext(output) == ("stdout", b"up\n")
            await process.stop(60)
            rest = [data async for stream, data in output if stream == "stdout"]
        assert (rest, await process.wait()) == ([b"bye\n"], 5)

    async def test_stop_ends_what_does_not_listen(self, sandbox: Sandbox, workspace: Path) -> None:
        """Twice is as good as once, and so is afterwards."""
        script = "trap '' TERM INT HUP; exec 9>lock; flock 9; touch ready; while :; do sleep 600; done"
        process = await sandbox.start(shell_command(script, workspace))
        await wait_for_file(workspace / "ready")
        await asyncio.gather(process.stop(0.1), process.stop(0.1))
        await process.stop()
        assert await process.wait() == -signal.SIGKILL
        wait_for_lock(workspace / "lock")

    async def test_nothing_runs_away(self, sandbox: Sandbox, workspace: Path) -> None:
        """A process that left its group and its session is found, while its command runs and after it has ended."""
        if not self.ends_detached_processes:
            pytest.skip("this sandbox finds only what stays in its process group, and says so")
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

    async def test_many_run_at_once(self, sandbox: Sandbox, workspace: Path) -> None:
        """Each with its own output and code."""
        runs = [self.run(sandbox, f"echo {number}; exit {number}", workspace) for number in range(12)]
        assert await asyncio.gather(*runs) == [CompletedCommand(number, f"{number}\n", "") for number in range(12)]

    async def test_it_gets_no_keys(self, sandbox: Sandbox, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """What looks like a secret stays here; the rest, and what was given, arrives."""
        for name in ("SOME_API_KEY", "GITHUB_TOKEN", "DB_PASSWORD", "AWS_ACCESS_KEY_ID", "MY_SECRET", "SSH_AUTH_SOCK"):
            monkeypatch.setenv(name, f"canary-{name}")
        monkeypatch.setenv("DATABASE_URL", "postgres://me:canary-url@host/db")  # not a secret
        monkeypatch.setenv("HARMLESS", "yes")
        ended = await self.run(sandbox, "env", workspace, env={"GIVEN_TOKEN": "asked for"})  # nosec B105  # made up
        assert "canary" not in ended.stdout
        lines = ended.stdout.splitlines()
        assert {"HARMLESS=yes", "GIVEN_TOKEN=asked for"} <= set(lines)
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
    async def test_what_cannot_be_started_is_an_error(
        self, sandbox: Sandbox, workspace: Path, wrong: dict[str, object]
    ) -> None:
        """Not an exit code that somebody might overlook."""
        with pytest.raises(SandboxError):
            await sandbox.start(shell_command("true", workspace, **wrong))

    async def test_a_start_that_is_cancelled_leaves_nothing(self, sandbox: Sandbox, workspace: Path) -> None:
        """Whenever that happens."""
        for turns in range(12):
            task = asyncio.create_task(sandbox.start(shell_command("exec 9>lock; flock 9; exec sleep 600", workspace)))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await (await task).stop(0)
        if self.ends_detached_processes:
            wait_for_lock(workspace / "lock")

    # --------------------------------------------------------------------------------------------------------- bounds

    async def test_a_file_grows_only_so_far(self, sandbox: Sandbox, workspace: Path) -> None:
        """And who writes it is ended."""
        self._skip_without_bounds()
        script = f"exec {PYTHON} -c \"open('big', 'wb').write(bytes(3 << 20))\""
        ended = await self.run(sandbox, script, workspace, bounds=ResourceLimits(file_bytes=_MIB))
        assert ended.code != 0
        assert (workspace / "big").stat().st_size <= _MIB

    async def test_memory_is_bounded(self, sandbox: Sandbox, workspace: Path) -> None:
        """For one process."""
        self._skip_without_bounds()
        script = f"exec {PYTHON} -c \"bytearray(400 << 20); print('had it')\""
        ended = await self.run(sandbox, script, workspace, bounds=ResourceLimits(memory_bytes=128 * _MIB))
        assert (ended.code != 0, ended.stdout) == (True, "")

    async def test_memory_is_bounded_for_all_of_them_together(self, sandbox: Sandbox, workspace: Path) -> None:
        """Each has less than the bound; what is shared between processes is not counted as private."""
        self._skip_without_bounds()
        hold = "import mmap, sys; m = mmap.mmap(-1, 60 << 20); m.write(bytes(60 << 20)); sys.stdin.read()"
        script = f"sleep 600 | for n in 1 2 3 4 5 6; do {PYTHON} -c '{hold}' & done; wait"
        ended = await self.run(sandbox, script, workspace, bounds=ResourceLimits(memory_bytes=160 * _MIB))
        assert ended.code != 0
        assert "memory" in ended.stderr

    async def test_processor_time_is_bounded(self, sandbox: Sandbox, workspace: Path) -> None:
        """For one that never ends, and for many that each take little."""
        self._skip_without_bounds()
        forever = await self.run(sandbox, "while :; do :; done", workspace, bounds=ResourceLimits(cpu_seconds=1))
        assert forever.code in {-signal.SIGKILL, -signal.SIGXCPU}
        work = f"{PYTHON} -c 'for _ in range(3_000_000): pass'"
        many = await self.run(sandbox, f"while :; do {work}; done", workspace, bounds=ResourceLimits(cpu_seconds=1))
        assert (many.code, "processor time" in many.stderr) == (-signal.SIGKILL, True)

    async def test_open_files_are_bounded(self, sandbox: Sandbox, workspace: Path) -> None:
        """As said."""
        self._skip_without_bounds()
        script = f"{PYTHON} -c \"k = [open('/dev/null') for _ in range(200)]\""
        assert (await self.run(sandbox, script, workspace, bounds=ResourceLimits(open_files=64))).code == 1

    async def test_processes_are_bounded(self, sandbox: Sandbox, workspace: Path) -> None:
        """A bomb goes out: it makes some of the processes it wants, and then no more."""
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
        # Where nobody but its keeper counts, the keeper ends the whole command when it next looks.
        assert (made and int(made) < 60) or await process.wait() == -signal.SIGKILL
        await process.stop(0)

    def _skip_without_bounds(self) -> None:
        if not self.enforces_bounds:
            pytest.skip("this way to start commands bounds nothing, and says so")


async def wait_for_file(path: Path) -> None:
    """Wait until a command has made a file."""
    while not path.exists():
        await asyncio.sleep(0)
