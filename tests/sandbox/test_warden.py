"""No process of a command outlives its owner, however the owner, the warden or a supervisor ends."""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import pytest

from tests.sandbox.unprivileged import find_shared_python, python_path, run_as_user
from vaka.core.ports.sandbox import Command, Process, ResourceLimits, Sandbox
from vaka.core.types.errors import SandboxError
from vaka.sandbox.linux import Bubblewrap, Landlock
from vaka.sandbox.unconfined import Unconfined
from vaka.sandbox.warden import processes
from vaka.sandbox.warden_client import WARDEN
from vaka.testing.sandboxes import run_to_end, shell_command, wait_for_lock

HOLD_LOCK_SCRIPT = "trap '' TERM HUP INT; exec 9>lock; flock 9; setsid -f sleep 600; touch ready; sleep 600"
"""Holds a lock, as does a child that left its session; both ignore requests to end."""
CLASS_NAMES = {"bubblewrap": "Bubblewrap", "landlock": "Landlock", "none": "Unconfined"}
MODULES = {"bubblewrap": "linux", "landlock": "linux", "none": "unconfined"}
SANDBOXES = {"bubblewrap": Bubblewrap, "landlock": Landlock, "none": Unconfined}


def start_owner(kind: str, workspace: Path, then: str) -> "subprocess.Popen[str]":
    """Start a program that starts a command, prints the process id of its warden and executes ``then``."""
    program = f"""
        import asyncio, os
        from pathlib import Path
        from vaka.core.ports.sandbox import Command
        from vaka.sandbox.{MODULES[kind]} import {CLASS_NAMES[kind]}
        from vaka.sandbox.warden_client import WARDEN

        async def main():
            argv = ("bash", "-c", {HOLD_LOCK_SCRIPT!r})
            here = {str(workspace)!r}
            process = await {CLASS_NAMES[kind]}().start(Command(argv=argv, cwd=here, writable=(here,)))
            while not Path(here, "ready").exists():
                await asyncio.sleep(0.01)
            print(WARDEN.pid, flush=True)
            {then}

        asyncio.run(main())
    """
    return subprocess.Popen([sys.executable, "-c", textwrap.dedent(program)], stdout=subprocess.PIPE, text=True)


def read_first_line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.mark.parametrize("kind", list(CLASS_NAMES))
def test_a_command_ends_when_its_owner_is_killed(kind: str, tmp_path: Path) -> None:
    with start_owner(kind, tmp_path, "await asyncio.sleep(600)") as process:
        read_first_line(process)
        process.send_signal(signal.SIGKILL)
    wait_for_lock(tmp_path / "lock")


@pytest.mark.parametrize("kind", list(CLASS_NAMES))
def test_a_command_ends_when_its_owner_ends(kind: str, tmp_path: Path) -> None:
    with start_owner(kind, tmp_path, "return") as process:
        read_first_line(process)
    wait_for_lock(tmp_path / "lock")


@pytest.mark.parametrize("kind", list(CLASS_NAMES))
def test_a_command_ends_although_a_fork_of_its_owner_lives(kind: str, tmp_path: Path) -> None:
    then = "(pid := os.fork()) and print(pid, flush=True) or os.close(1) or __import__('time').sleep(600)"
    with start_owner(kind, tmp_path, then) as process:
        read_first_line(process)
        forked = int(read_first_line(process))
        process.send_signal(signal.SIGKILL)
        wait_for_lock(tmp_path / "lock")
        os.kill(forked, signal.SIGKILL)


@pytest.mark.parametrize("kind", list(CLASS_NAMES))
async def test_a_killed_warden_ends_its_commands_and_is_replaced(kind: str, tmp_path: Path) -> None:
    sandbox: Sandbox = SANDBOXES[kind]()
    process = await sandbox.start(shell_command(HOLD_LOCK_SCRIPT, tmp_path))
    await wait_until_ready(tmp_path)
    assert WARDEN.pid is not None
    os.kill(WARDEN.pid, signal.SIGKILL)
    assert await process.wait() == -signal.SIGKILL
    wait_for_lock(tmp_path / "lock")
    assert (await run_to_end(await sandbox.start(shell_command("echo again", tmp_path)))).stdout == "again\n"
    await process.stop()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can switch users")
@pytest.mark.parametrize("kind", ["bubblewrap", "landlock"])
async def test_a_command_of_another_user_ends_when_the_warden_is_killed(kind: str) -> None:
    with tempfile.TemporaryDirectory(prefix="vaka-test-") as folder:
        os.chown(folder, 65534, 65534)
        process = await SANDBOXES[kind]().start(shell_command(HOLD_LOCK_SCRIPT, Path(folder)))
        await wait_until_ready(Path(folder))
        assert WARDEN.pid is not None
        os.kill(WARDEN.pid, signal.SIGKILL)
        assert await process.wait() == -signal.SIGKILL
        await asyncio.to_thread(wait_for_lock, Path(folder) / "lock")
        await process.stop()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can switch users")
@pytest.mark.parametrize("kind", ["bubblewrap", "landlock"])
async def test_a_command_of_another_user_can_open_its_streams_by_name(kind: str) -> None:
    script = "id -u; cat < /dev/stdin > /dev/stdout; echo error > /dev/stderr"
    counts: list[int] = []
    with tempfile.TemporaryDirectory(prefix="vaka-test-") as folder:
        os.chown(folder, 65534, 65534)
        for _ in range(2):
            process = await SANDBOXES[kind]().start(shell_command(script, Path(folder), stdin="pipe"))
            await process.write_stdin(b"word")
            process.close_stdin()
            ended = await run_to_end(process)
            assert (ended.stdout, ended.stderr) == ("65534\nword", "error\n")
            counts.append(len(list(Path("/proc/self/fd").iterdir())))
    assert counts[0] == counts[1]


@pytest.mark.parametrize("kind", list(CLASS_NAMES))
async def test_a_killed_supervisor_ends_its_command(kind: str, tmp_path: Path) -> None:
    sandbox: Sandbox = SANDBOXES[kind]()
    process = await sandbox.start(shell_command(HOLD_LOCK_SCRIPT, tmp_path))
    await wait_until_ready(tmp_path)
    os.kill(processes.parent_of(process.pid), signal.SIGKILL)
    assert await process.wait() == -signal.SIGKILL
    await asyncio.to_thread(wait_for_lock, tmp_path / "lock")
    assert (await run_to_end(await sandbox.start(shell_command("echo again", tmp_path)))).stdout == "again\n"
    await process.stop()


def test_a_program_that_exits_at_once_leaves_no_warden_behind() -> None:
    program = (
        "import asyncio, os, sys\nfrom vaka.core.ports.sandbox import Command\n"
        "from vaka.sandbox.unconfined import Unconfined\n"
        "from vaka.sandbox.warden_client import WARDEN\nasync def main():\n"
        " await Unconfined().start(Command(argv=('sleep', '600'), cwd='/'))\n print(WARDEN.pid, flush=True)\n"
        " if len(sys.argv) > 1: os.kill(os.getpid(), 9)\nasyncio.run(main())"
    )
    for number in range(8):
        # All processes inherit the other end of this pipe: it reads as ended when the last of them has exited.
        alive, held = os.pipe()
        words = ["now"] if number % 2 else []
        with subprocess.Popen([sys.executable, "-c", program, *words], stdout=subprocess.PIPE, stderr=held) as process:
            os.close(held)
            process.wait()
        with os.fdopen(alive, "rb") as pipe:
            pipe.read()


@pytest.mark.parametrize("end", ["os.kill(os.getpid(), 9)", "os.kill(WARDEN.pid, 9); os.kill(os.getpid(), 9)", "pass"])
def test_idle_supervisors_end_with_their_owner(end: str) -> None:
    program = f"""
        import asyncio, os
        from vaka.core.ports.sandbox import Command
        from vaka.sandbox.unconfined import Unconfined
        from vaka.sandbox.warden_client import WARDEN

        async def one():
            process = await Unconfined().start(Command(argv=("true",), cwd="/"))
            await process.wait()
            await process.stop()

        async def main():
            for _ in range(2):
                await asyncio.gather(*[one() for _ in range(5)])
            {end}

        asyncio.run(main())
    """
    alive, held = os.pipe()  # it reads as ended when the last process has exited
    words = [sys.executable, "-c", textwrap.dedent(program)]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=held) as process:
        os.close(held)
        process.wait()
    with os.fdopen(alive, "rb") as pipe:
        assert pipe.read() == b""


async def test_the_warden_outlives_the_thread_that_started_it(tmp_path: Path) -> None:
    WARDEN.close()
    command = Command(argv=("bash", "-c", "until [ -e go ]; do sleep 0.01; done; echo on"), cwd=str(tmp_path))
    process = await Unconfined().start(command)
    await asyncio.get_running_loop().shutdown_default_executor()
    (tmp_path / "go").touch()
    assert (await run_to_end(process)).stdout == "on\n"


async def test_few_idle_supervisors_are_kept(tmp_path: Path) -> None:
    runs = [Unconfined().start(shell_command("true", tmp_path)) for _ in range(5)]
    for process in await asyncio.gather(*runs):
        await run_to_end(process)
    assert WARDEN.pid is not None
    while len(processes.list_descendants(WARDEN.pid)) > 3:  # noqa: ASYNC110  # until only idle ones are left
        await asyncio.sleep(0)


@pytest.mark.parametrize("kind", list(CLASS_NAMES))
async def test_a_supervisor_is_reused_and_keeps_nothing_of_its_last_command(kind: str, tmp_path: Path) -> None:
    sandbox: Sandbox = SANDBOXES[kind]()
    held: dict[int, list[set[str]]] = {}  # open descriptors by supervisor
    for number in range(12):
        bounds = ResourceLimits(processes=8) if number % 2 else ResourceLimits(processes=None, memory_bytes=None)
        process = await sandbox.start(shell_command("sleep 600", tmp_path, bounds=bounds))
        supervisor = processes.parent_of(process.pid)
        held.setdefault(supervisor, []).append({path.name for path in Path(f"/proc/{supervisor}/fd").iterdir()})
        await process.stop(0)
    assert len(held) < 12
    assert all(names == jobs[0] for jobs in held.values() for names in jobs)
    many = "for n in $(seq 20); do sleep 600 >&- 2>&- & done; jobs -p | wc -l"
    assert (
        await run_to_end(await sandbox.start(shell_command("true", tmp_path, bounds=ResourceLimits(processes=8))))
    ).code == 0
    assert (
        await run_to_end(await sandbox.start(shell_command(many, tmp_path, bounds=ResourceLimits(processes=None))))
    ).stdout == "20\n"


async def test_output_that_is_not_read_during_wait_is_buffered_up_to_a_limit(tmp_path: Path) -> None:
    process = await Unconfined().start(shell_command("echo first; head -c 4000000 /dev/zero", tmp_path))
    assert await process.wait() == 0
    kept: list[bytes] = []
    with pytest.raises(SandboxError, match="dropped"):
        await collect_output(process, kept)
    assert b"".join(kept).startswith(b"first\n")
    await process.stop()


async def collect_output(process: Process, kept: list[bytes]) -> None:
    async for _, data in process.output():
        kept.append(data)


async def wait_until_ready(workspace: Path) -> None:
    while not (workspace / "ready").exists():  # noqa: ASYNC110  # a file is the only signal of a confined command
        await asyncio.sleep(0)


BLOCKED_SIGNALS_PROGRAM = """
import asyncio, signal
from vaka.core.ports.sandbox import Command
from vaka.sandbox.{module} import {name}

signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
signal.signal(signal.SIGCHLD, signal.SIG_IGN)

async def main():
    process = await {name}().start(Command(argv=("grep", "-h", "SigBlk", "/proc/self/status"), cwd="/"))
    print(*[data.decode() async for _, data in process.output()], await process.wait())
    await process.stop()

asyncio.run(main())
"""


@pytest.mark.parametrize("kind", list(CLASS_NAMES))
def test_signals_that_an_owner_blocks_or_ignores_do_not_affect_commands(kind: str) -> None:
    program = BLOCKED_SIGNALS_PROGRAM.format(module=MODULES[kind], name=CLASS_NAMES[kind])
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.stdout.split(), done.stderr) == (["SigBlk:", "0" * 16, "0"], "")


UNKILLABLE_PROGRAM = """
import asyncio
from vaka.core.ports.sandbox import Command
from vaka.sandbox.unconfined import Unconfined
from vaka.sandbox.warden_client import WARDEN

async def main():
    script = "setpriv --reuid=65534 --clear-groups bash -c 'echo $$; exec sleep 600' & wait"
    process = await Unconfined().start(Command(argv=("bash", "-c", script), cwd="/"))
    output = process.output()
    print((await anext(output))[1].decode(), flush=True)
    await process.stop(0)
    async for _, data in output:
        print(data.decode(), flush=True)
    other = await Unconfined().start(Command(argv=("true",), cwd="/"))
    print(await other.wait())
    await other.stop()
    WARDEN.close()

asyncio.run(main())
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can change users")
def test_a_process_that_may_not_be_killed_does_not_block_stop() -> None:
    words = ["setpriv", "--bounding-set=-kill", "--inh-caps=-kill", sys.executable, "-c", UNKILLABLE_PROGRAM]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        left = int(read_first_line(process))
        assert processes.parent_of(left) != 0
        out, _ = process.communicate()
    os.kill(left, signal.SIGKILL)
    assert (out.split(), process.returncode) == (["0"], 0)


PROCESS_LIMIT_PROGRAM = """
import asyncio, resource
from vaka.core.ports.sandbox import Command
from vaka.core.types.errors import SandboxError
from vaka.sandbox.unconfined import Unconfined
from vaka.sandbox.warden_client import WARDEN

async def one(*argv):
    return await Unconfined().start(Command(argv=argv, cwd="/"))

async def main():
    first = await one("cat", "/proc/self/stat", "-")
    most = resource.prlimit(WARDEN.pid, resource.RLIMIT_NPROC)
    resource.prlimit(WARDEN.pid, resource.RLIMIT_NPROC, (1, most[1]))
    kept = []
    try:
        while len(kept) < 10:
            kept.append(await one("sleep", "600"))
    except SandboxError:
        print("refused")
    resource.prlimit(WARDEN.pid, resource.RLIMIT_NPROC, most)
    again = await one("true")
    print(await again.wait(), await first.wait())
    for process in (first, again, *kept):
        await process.stop(0)

asyncio.run(main())
"""


def test_a_warden_that_cannot_fork_keeps_its_running_commands() -> None:
    python = find_shared_python()
    if not python:
        pytest.skip("no Python of this version can be run by a user who is not root: this one is in root's home")
    done = run_as_user([python, "-c", PROCESS_LIMIT_PROGRAM], {"PYTHONPATH": python_path()})
    assert (done.stdout.split(), done.stderr) == (["refused", "0", "0"], "")


STUCK_PROCESS_PROGRAM = """
import os, sys
from vaka.system import syscalls

syscalls.setns(os.open(f"/proc/{sys.argv[1]}/ns/pid", os.O_RDONLY), 0x20000000)
pid = os.fork()
if pid == 0:
    os.execv("/bin/sleep", ["sleep", "600"])
print(pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can enter the namespaces of others")
async def test_a_process_that_cannot_end_does_not_block_stop(tmp_path: Path) -> None:
    process = await Bubblewrap().start(shell_command("sleep 600", tmp_path))
    inner = processes.list_descendants(process.pid)[0]
    # A namespace ends when all its processes are reaped, and this one is not reaped.
    words = [sys.executable, "-c", STUCK_PROCESS_PROGRAM, str(inner)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as entered:
        assert int(read_first_line(entered)) > 0
        await process.stop(0)
        assert processes.parent_of(inner) != 0
        assert (await run_to_end(await Bubblewrap().start(shell_command("echo on", tmp_path)))).stdout == "on\n"
        entered.communicate()
    while processes.parent_of(inner) != 0:  # noqa: ASYNC110  # now it ends
        await asyncio.sleep(0)


async def test_a_start_cancelled_while_the_warden_starts_harms_no_other_command(tmp_path: Path) -> None:
    """The descriptors of a cancelled start are closed, and their numbers used again, while the warden starts."""
    for turns in range(1, 7):
        WARDEN.close()
        command = shell_command("exec sleep 600", tmp_path)
        tasks = [asyncio.create_task(Bubblewrap().start(command)) for _ in range(4)]
        for _ in range(turns):
            await asyncio.sleep(0)
        for task in tasks[:3]:
            task.cancel()
        for started in await asyncio.gather(*tasks[:3], return_exceptions=True):
            if not isinstance(started, BaseException):
                await started.stop(0)
        process, warden = await tasks[3], WARDEN.pid
        later = await run_to_end(await Bubblewrap().start(shell_command("echo here", tmp_path)))
        assert (later.stdout, WARDEN.pid) == ("here\n", warden)
        await process.stop(60)
        assert await process.wait() == -signal.SIGTERM
