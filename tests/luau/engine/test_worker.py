"""Scripts in worker processes: a worker that dies does not affect its parent and is replaced."""

import asyncio
import os
import resource
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.luau.engine.script_fixtures import ASK_PRELUDE, MemoryJournal
from vaka.core.types.errors import Closed, InvalidInput, ScriptError, ScriptLimit
from vaka.luau import wire, worker_main
from vaka.luau.pool import VmPool
from vaka.luau.program import Program, ScriptLimits
from vaka.luau.protocol import Finished, HostFunction, Waiting
from vaka.luau.require import Library, Module
from vaka.luau.scheduler import NullJournal, drive
from vaka.luau.worker import RemoteScript, WorkerPool, WorkerProcess

pytestmark = pytest.mark.every_loop

WAIT = Program("return ask('x', ...)", "wait.luau", preludes=(ASK_PRELUDE,))


@pytest.fixture
async def workers() -> AsyncGenerator[WorkerPool]:
    pool = WorkerPool(1)
    yield pool
    await pool.close()


async def echo(*values: Any) -> Any:
    return list(values)


FUNCTIONS = {"x": HostFunction(echo)}


async def test_a_script_in_a_worker_behaves_like_a_local_one(workers: WorkerPool) -> None:
    library = Library({"m": Module("m", "return {n = ask('x', 'module')}")}, ("libs",))
    source = """
        print("hello", ...)
        return require("m").n, ask("x", "\\xff", {["$bytes"] = 1}, 0/0 ~= 0/0, {[5] = 6}), math.random()
    """
    program = Program(source, "a.luau", library, (ASK_PRELUDE,))
    lines: list[str] = []
    book = MemoryJournal()
    book.record_start({"seed": 9})
    first = list(await drive(workers.open(program, lines.append), FUNCTIONS, book, [b"\xfe"]))
    assert first[:2] == [["module"], [b"\xff", {"$bytes": 1}, True, {5: 6}]]
    assert lines == ["hello\t�"]
    again = await drive(workers.open(program), FUNCTIONS, book.first_answers(2), [b"\xfe"])
    assert list(again) == first


async def test_a_script_error_has_its_traceback(workers: WorkerPool) -> None:
    program = Program("local function f() error('broken') end\nf()", "bad.luau")
    with pytest.raises(ScriptError, match=r"^bad\.luau:1: broken$") as caught:
        await drive(workers.open(program), {}, NullJournal())
    assert "bad.luau:1" in caught.value.traceback


async def test_a_syntax_error_names_its_line(workers: WorkerPool) -> None:
    with pytest.raises(ScriptError, match=r"^bad\.luau:1: "):
        await drive(workers.open(Program("return (", "bad.luau")), {}, NullJournal())


async def test_scripts_of_a_killed_worker_fail_and_the_worker_is_replaced(workers: WorkerPool) -> None:
    scripts = [workers.open(WAIT) for _ in range(3)]
    for script in scripts:
        assert isinstance(await script.start([1], seed=1, at=0), Waiting)
    (pid,) = workers.pids
    os.kill(pid, signal.SIGKILL)
    for script in scripts:
        with pytest.raises(ScriptError, match=rf"the worker {pid} was killed \(signal 9, SIGKILL\)"):
            await script.answer(1, [], at=0)
        await script.close()
    assert await drive(workers.open(WAIT), FUNCTIONS, NullJournal(), [2]) == [[2]]
    assert workers.pids != [pid]


async def test_a_script_whose_worker_is_killed_while_it_runs_fails(workers: WorkerPool) -> None:
    await drive(workers.open(WAIT), FUNCTIONS, NullJournal(), [1])
    (pid,) = workers.pids
    running = asyncio.create_task(drive(workers.open(Program("while true do end")), {}, NullJournal()))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(ScriptError, match="was killed"):
        await running
    assert await drive(workers.open(WAIT), FUNCTIONS, NullJournal(), [2]) == [[2]]


async def test_a_worker_that_does_not_answer_is_killed() -> None:
    workers = WorkerPool(1, grace=0.2)
    try:
        await drive(workers.open(WAIT), FUNCTIONS, NullJournal(), [1])
        (pid,) = workers.pids
        os.kill(pid, signal.SIGSTOP)
        program = Program("return 1", limits=ScriptLimits(seconds=0.1))
        with pytest.raises(ScriptLimit, match=r"the script did not stop within 0\.3"):
            await drive(workers.open(program), {}, NullJournal())
        assert await drive(workers.open(WAIT), FUNCTIONS, NullJournal(), [2]) == [[2]]
        assert workers.pids != [pid]
    finally:
        await workers.close()


async def test_scripts_are_spread_over_the_workers() -> None:
    workers = WorkerPool(2)
    try:
        scripts = [workers.open(WAIT) for _ in range(4)]
        for script in scripts:
            await script.start([], seed=1, at=0)
        assert len(workers.pids) == 2
        os.kill(workers.pids[0], signal.SIGKILL)
        ended = 0
        for script in scripts:
            try:
                assert await script.answer(1, ["fine"], at=0) == Finished(["fine"])
            except ScriptError:
                ended += 1
        assert ended == 2
    finally:
        await workers.close()


async def test_a_hundred_scripts_wait_in_one_worker(workers: WorkerPool) -> None:
    runs = (drive(workers.open(WAIT), FUNCTIONS, NullJournal(), [number]) for number in range(100))
    assert await asyncio.gather(*runs) == [[[number]] for number in range(100)]
    assert len(workers.pids) == 1


async def test_one_worker_runs_many_programs(workers: WorkerPool) -> None:
    for number in range(300):
        assert await drive(workers.open(Program(f"return {number}")), {}, NullJournal()) == [number]
    assert await drive(workers.open(Program("return 0")), {}, NullJournal()) == [0]


async def test_closing_kills_the_workers_and_their_scripts() -> None:
    workers = WorkerPool(1)
    script = workers.open(WAIT)
    await script.start([], seed=1, at=0)
    (pid,) = workers.pids
    await workers.close()
    await workers.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    with pytest.raises(ScriptError, match="the workers are closed"):
        await script.answer(1, [], at=0)
    with pytest.raises(Closed, match="the workers are closed"):
        await drive(workers.open(WAIT), {}, NullJournal())


async def test_a_worker_has_no_environment_files_or_processes_of_its_parent(
    workers: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VAKA_SECRET", "hidden")
    await drive(workers.open(WAIT), FUNCTIONS, NullJournal(), [1])
    (pid,) = workers.pids
    process = Path(f"/proc/{pid}")
    assert "VAKA_SECRET" not in (process / "environ").read_text()
    limits = {name: resource.prlimit(pid, getattr(resource, name)) for name in ("RLIMIT_CORE", "RLIMIT_FSIZE")}
    assert limits == {"RLIMIT_CORE": (0, 0), "RLIMIT_FSIZE": (0, 0)}
    assert resource.prlimit(pid, resource.RLIMIT_NPROC) == (0, 0)
    assert resource.prlimit(pid, resource.RLIMIT_NOFILE) == (16, 16)
    assert resource.prlimit(pid, resource.RLIMIT_AS)[0] < (3 << 30)
    assert os.getpgid(pid) == pid
    open_files = {str(link.readlink()) for link in (process / "fd").iterdir()}
    assert all(name.startswith(("pipe:", "/dev/null", "socket:")) for name in open_files), open_files


PARENT = """
import asyncio, os
from vaka.luau.program import Program
from vaka.luau.worker import WorkerPool

async def main():
    workers = WorkerPool(1)
    await workers.open(Program("return 1")).start([], seed=1, at=0)
    print(workers.pids[0], flush=True)
    os.kill(os.getpid(), 9)

asyncio.run(main())
"""


def test_a_worker_ends_when_its_parent_is_killed() -> None:
    parent = subprocess.run([sys.executable, "-c", PARENT], capture_output=True, check=False)
    assert parent.returncode == -9
    pid = int(parent.stdout)
    while Path(f"/proc/{pid}").exists() and "Z" not in Path(f"/proc/{pid}/stat").read_text().split()[2]:
        os.sched_yield()


async def test_a_script_in_a_worker_needs_limits() -> None:
    for limits in (ScriptLimits(seconds=None), ScriptLimits(memory=None)):
        with pytest.raises(InvalidInput, match="needs a limit of memory and of seconds"):
            WorkerPool().open(Program("return 1", limits=limits))
    with pytest.raises(InvalidInput, match="at least one worker, not 0"):
        WorkerPool(0)


async def test_a_script_in_a_worker_starts_once(workers: WorkerPool) -> None:
    script = workers.open(WAIT)
    with pytest.raises(InvalidInput, match="is not running"):
        await script.answer(1, [], at=0)
    await script.start([], seed=1, at=0)
    with pytest.raises(InvalidInput, match="was started already"):
        await script.start([], seed=1, at=0)
    await script.close()
    await script.close()


# ---------------------------------------------------------------------------------------------------- protocol

CHILD = """
import os, sys, time
sys.path[:0] = {path!r}
from vaka.luau import wire
os.write(1, wire.encode_frame(wire.WorkerReady("x")))
os.read(0, 1 << 20)
os.write(1, {data!r})
os.read(0, 1)
"""


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\xff\xff\xff\xff", "a frame of 4294967295 bytes is more than"),
        (b"\0\0\0\x04nope", "a frame is invalid"),
        (b'\0\0\0\x0e["ended",1,2,3]', "a frame is invalid"),
        (wire.encode_frame(wire.ScriptEnded(99, [], [])), "an unexpected report on script 99"),
        (b"\0\0\x10\0" + b"[" * 4096, "a frame is invalid"),
    ],
)
async def test_a_worker_that_sends_an_invalid_frame_is_killed(data: bytes, why: str) -> None:
    loop = asyncio.get_running_loop()
    code = CHILD.format(path=sys.path, data=data)
    _, worker = await loop.subprocess_exec(lambda: WorkerProcess(60.0), sys.executable, "-c", code)
    await worker.ready
    number = worker.new_script_number()
    with pytest.raises(ScriptError, match=f"sent an invalid report: {why}"):
        await worker.request_step(wire.StartScript(number, worker.program_number(WAIT), [], 1, 0), 60.0)
    await worker.close()


@pytest.mark.parametrize(
    "value", [{"$bytes": 5}, {"$bytes": "?"}, {"$map": [[{"a": 1}, 2]]}, {"$map": 1}, {"$table": 3}, {"$number": "x"}]
)
async def test_a_worker_that_sends_an_invalid_value_is_killed(value: Any) -> None:
    loop = asyncio.get_running_loop()
    code = CHILD.format(path=sys.path, data=wire.encode_frame(wire.ScriptEnded(1, [value], [])))
    _, worker = await loop.subprocess_exec(lambda: WorkerProcess(60.0), sys.executable, "-c", code)
    await worker.ready

    class OneWorkerPool(WorkerPool):
        async def find_worker(self) -> WorkerProcess:
            return worker

    script = RemoteScript(OneWorkerPool(), WAIT, 60.0, None)
    with pytest.raises(ScriptError, match="sent an invalid report"):
        await script.start([], seed=1, at=0)
    await script.close()
    await worker.close()


async def test_the_error_of_a_worker_that_exits_has_its_last_stderr_line() -> None:
    loop = asyncio.get_running_loop()
    _, worker = await loop.subprocess_exec(
        lambda: WorkerProcess(60.0), sys.executable, "-c", "import sys; sys.exit('no such thing')"
    )
    with pytest.raises(ScriptError, match=r"ended by itself \(exit 1\): no such thing"):
        await worker.ready
    await worker.close()


def test_commands_are_executed() -> None:
    pool = VmPool()
    worker = worker_main.CommandExecutor(pool)
    assert worker.execute(wire.LoadProgram(1, WAIT)) is None
    assert worker.execute(wire.StartScript(5, 1, [{"$bytes": "/w=="}], 1, 0)) == wire.ScriptWaiting(
        5, [(1, "x", [{"$bytes": "/w=="}])], [], []
    )
    assert worker.execute(wire.FailCall(5, 1, "no", 0)) == wire.ScriptFailed(
        5, "wait.luau:1: no", "[C] function request\nwait.luau:1", False, []
    )
    worker.execute(wire.StartScript(6, 1, [], 1, 0))
    assert worker.execute(wire.AnswerCall(6, 1, [1, 2], 0)) == wire.ScriptEnded(6, [1, 2], [])
    worker.execute(wire.StartScript(7, 1, [], 1, 0))
    assert worker.execute(wire.CloseScript(7)) is None
    assert worker.execute(wire.CloseScript(7)) is None
    assert worker.execute(wire.ForgetProgram(1)) is None
    with pytest.raises(KeyError):
        worker.execute(wire.StartScript(8, 1, [], 1, 0))
    pool.close()
    assert pool.vm_count == 0


def test_commands_are_read_from_a_pipe_until_its_end() -> None:
    source, commands = os.pipe()
    reports, target = os.pipe()
    sent = wire.encode_frame(wire.LoadProgram(1, Program("return 1"))) + wire.encode_frame(
        wire.StartScript(2, 1, [], 1, 0)
    )
    os.write(commands, sent)
    os.close(commands)
    worker_main.serve(worker_main.CommandExecutor(VmPool()), source, target)
    assert list(wire.report_reader().feed(os.read(reports, 1 << 16))) == [wire.ScriptEnded(2, [1], [])]
    for descriptor in (source, reports, target):
        os.close(descriptor)


def test_frames_are_decoded_from_pieces_of_any_size() -> None:
    reports: list[wire.WorkerReport] = [
        wire.ScriptEnded(1, ["a" * 300], []),
        wire.ScriptFailed(2, "m", "t", True, ["line"]),
        wire.WorkerReady("x"),
    ]
    data = b"".join(map(wire.encode_frame, reports))
    for size in (1, 2, 3, 7, 100, len(data)):
        reader = wire.report_reader()
        decoded = [report for at in range(0, len(data), size) for report in reader.feed(data[at : at + size])]
        assert decoded == reports


def test_a_program_survives_encoding() -> None:
    library = Library({"m": Module("m", "return 1", is_folder=True)}, ("libs",), {"x": "no"})
    program = Program("return 1", "a.luau", library, ("p",), "main", 1, ScriptLimits(seconds=1), trusted=True)
    again = msgspec.json.decode(msgspec.json.encode(program), type=Program)
    assert again == program
    assert again.digest == program.digest


async def test_a_worker_has_a_cpu_limit(workers: WorkerPool) -> None:
    await drive(workers.open(WAIT), FUNCTIONS, NullJournal(), [1])
    (pid,) = workers.pids
    assert 3 <= resource.prlimit(pid, resource.RLIMIT_CPU)[0] <= 20


async def test_the_cpu_limit_is_raised_before_each_step() -> None:
    allowed: list[float] = []
    worker = worker_main.CommandExecutor(VmPool(), allowed.append)
    worker.execute(wire.LoadProgram(1, WAIT))
    worker.execute(wire.StartScript(2, 1, [], 1, 0))
    worker.execute(wire.AnswerCall(2, 1, [], 0))
    assert allowed == [5.0, 5.0]


async def test_a_worker_without_enough_memory_fails_each_time() -> None:
    workers = WorkerPool(1, memory=4096)
    program = Program("local t = {} for i = 1, 1e6 do t[i] = {} end return 1")
    for _ in range(2):
        with pytest.raises(ScriptError, match=r"the worker \d+ (ended by itself|was killed)"):
            await drive(workers.open(program), {}, NullJournal())
        assert workers.pids == []
    await workers.close()
