"""Background commands: they outlive the turn, not the session; their output is read piece by piece."""

import asyncio
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.runtime.runtime_fixtures import agent, read_log, results_by_call, wait_until
from tests.tools.builtin.harness import child_processes, value_of
from tests.tools.builtin.shell_harness import ShellHarness
from vaka.core.ports.sandbox import Command, Process
from vaka.core.types.ids import SessionId
from vaka.core.types.message import ToolResult
from vaka.sandbox.unconfined import Unconfined
from vaka.testing.models import ScriptedModel, call, say
from vaka.tools.builtin.shell.background import bash_output, bash_status, kill_task
from vaka.tools.builtin.shell.output import Spool, SpoolStore, filter_lines
from vaka.tools.builtin.shell.supervisor import ShellSupervisor


@pytest.fixture
def bench(tmp_path: Path) -> ShellHarness:
    os.mkfifo(tmp_path / "go")
    return ShellHarness(tmp_path)


async def go(bench: ShellHarness) -> None:
    """Release the next command that waits at the pipe."""
    await asyncio.to_thread((bench.root / "go").write_text, "\n")


def is_running(pid: str) -> bool:
    try:
        return " Z " not in Path(f"/proc/{pid.strip()}/stat").read_text()
    except OSError:
        return False


async def start_task(bench: ShellHarness, command: str, **more: Any) -> str:
    started = await bench.bash(command, run_in_background=True, **more)
    return str(value_of(started)["task_id"])


async def wait_for_task(bench: ShellHarness, id: str) -> None:
    await bench.call("lull", id=id)


async def read_output(bench: ShellHarness, id: str, **more: Any) -> ToolResult:
    return await bench.call("BashOutput", task_id=id, **more)


@pytest.mark.every_loop
async def test_a_background_command_continues_after_the_turn_and_its_output_is_read_once(bench: ShellHarness) -> None:
    started = await bench.bash("echo one; read -r < go; echo two; exit 7", run_in_background=True)
    assert started.text == (
        "bash_1 runs in the background. BashOutput reads what it prints, KillTask ends it (task_id: bash_1)."
    )
    running = await bench.call("BashStatus", task_id="bash_1")
    assert value_of(running)["status"] == "running"
    await go(bench)
    await wait_for_task(bench, "bash_1")
    status = await bench.call("BashStatus", bash_id="bash_1")
    assert (status.text, value_of(status)) == (
        "bash_1 has ended with exit code 7; 8 bytes of its output were not read yet",
        {"task_id": "bash_1", "status": "failed", "exit_code": 7, "unread_bytes": 8},
    )
    first = await read_output(bench, "bash_1")
    assert first.text == "[bash_1 has ended with exit code 7]\none\ntwo"
    assert value_of(first) == {"task_id": "bash_1", "status": "failed", "output": "one\ntwo", "exit_code": 7}
    assert (await read_output(bench, "bash_1")).text == "[bash_1 has ended with exit code 7]\n(no new output)"
    await bench.shells.end_all()


async def test_background_commands_are_numbered_by_session(bench: ShellHarness) -> None:
    assert await start_task(bench, "read -r < go") == "bash_1"
    assert await start_task(bench, "true") == "bash_2"
    assert await start_task(bench, "true", task_id="server-1") == "server-1"
    assert value_of(await bench.call("Bash", **{"command": "true", "async": True}))["task_id"] == "bash_3"
    again = await bench.bash("true", run_in_background=True, task_id="bash_1")
    assert again.text == "InvalidInput: there is a task 'bash_1' already"
    assert "up to 64 letters" in (await bench.bash("true", run_in_background=True, task_id="../x")).text
    unknown = await read_output(bench, "bash_9")
    assert unknown.text == "NotFound: there is no task 'bash_9'; there are bash_1, bash_2, server-1, bash_3"
    model = ScriptedModel(call("BashOutput", task_id="bash_1"), say("done"))
    async with bench.runtime() as rt:
        await (await rt.open(agent(model, *bench.tools), id="other")).run("Go.")
    assert "nothing was started" in results_by_call(await read_log(bench.store, "other"))["call_1"].text
    await bench.shells.end_all()


async def test_commands_started_concurrently_have_different_ids(bench: ShellHarness) -> None:
    started = await bench.run_calls(
        *[("Bash", {"command": f"echo {n}", "run_in_background": True}) for n in range(5)], at_once=True
    )
    names = sorted(str(value_of(one)["task_id"]) for one in started)
    assert names == [f"bash_{n}" for n in range(1, 6)]
    for name in names:
        await wait_for_task(bench, name)
    printed = {value_of(await read_output(bench, name))["output"] for name in names}
    assert printed == {"0", "1", "2", "3", "4"}
    await bench.shells.end_all()


async def test_a_command_is_killed_with_its_child_processes(bench: ShellHarness) -> None:
    id = await start_task(bench, "trap '' TERM; sleep 1000 & echo $! > pid; echo up; read -r < go; wait")
    await go(bench)
    killed = await bench.call("KillTask", task_id=id)
    assert killed.text.startswith("bash_1 was killed with exit code -")
    assert value_of(killed)["status"] == "killed"
    assert not is_running((bench.root / "pid").read_text())
    assert (await bench.call("KillTask", task_id=id)).text.endswith("; there was nothing to end")
    assert (await read_output(bench, id)).text.endswith("]\nup")
    assert (await bench.call("KillTask", task_id="nothing")).failed
    await bench.shells.end_all()


async def test_closing_a_session_kills_only_its_own_commands(bench: ShellHarness) -> None:
    await start_task(bench, "echo $$ > one; read -r < go; sleep 1000")
    await go(bench)
    shell = bench.shells.find(SessionId("s"), "bash_1")
    assert shell is not None
    await bench.shells.close(SessionId("other"))
    assert shell.running
    await bench.shells.close(SessionId("s"))
    assert shell.status == "killed"
    assert not is_running((bench.root / "one").read_text())
    assert bench.shells.list_shells(SessionId("s")) == []
    assert (await read_output(bench, "bash_1")).text.startswith("bash_1 was killed, it ended with exit code -")
    assert not (await bench.bash("true")).failed
    await bench.shells.end_all()
    assert (await bench.bash("true")).text == "Closed: the runtime is closed; nothing more can be started"
    assert (await bench.bash("true", run_in_background=True)).failed


async def test_closing_a_session_or_a_runtime_kills_background_commands(bench: ShellHarness) -> None:
    def left(number: int) -> ScriptedModel:
        command = f"echo $$ > pid{number}; echo up > go; sleep 1000"
        return ScriptedModel(call("Bash", command=command, run_in_background=True), say("done"))

    shells = ShellSupervisor()
    async with bench.runtime() as rt:
        rt.env.world = msgspec.structs.replace(rt.env.world, shells=shells)
        for number, id in enumerate(("one", "two")):
            await (await rt.open(agent(left(number), *bench.tools), id=id)).run("Go.")
            await asyncio.to_thread((bench.root / "go").read_text)
        await (await rt.open(agent(left(0), *bench.tools), id="one")).close()
        assert [is_running((bench.root / f"pid{number}").read_text()) for number in (0, 1)] == [False, True]
    assert not is_running((bench.root / "pid1").read_text())


@pytest.mark.parametrize("session", [None, SessionId("s")], ids=["runtime", "session"])
@pytest.mark.parametrize("background", [True, False], ids=["background", "waited for"])
async def test_a_command_started_during_close_is_killed(
    tmp_path: Path, session: SessionId | None, background: bool
) -> None:
    shells, started = ShellSupervisor(), list[Process]()

    class Closing(Unconfined):
        async def start(self, command: Command) -> Process:
            started.append(await super().start(command))
            await shells.close(session)
            return started[0]

    bench = ShellHarness(tmp_path, sandbox=Closing())
    model = ScriptedModel(call("Bash", command="read -r", run_in_background=background), say("done"))
    async with bench.runtime() as rt:
        rt.env.world = msgspec.structs.replace(rt.env.world, shells=shells)
        await (await rt.open(agent(model, *bench.tools), id="s")).run("Go.")
    result = results_by_call(await read_log(bench.store, "s"))["call_1"]
    assert result.failed
    assert background is False or result.text.startswith("Closed: ")
    assert not is_running(str(started[0].pid))


async def test_after_a_restart_the_outcome_of_a_running_command_is_unknown(bench: ShellHarness) -> None:
    lost = await start_task(bench, "read -r < go")
    ended_id = await start_task(bench, "exit 3")
    await wait_for_task(bench, ended_id)
    await bench.call("BashStatus", task_id=ended_id)
    await bench.restart()
    message = "bash_1 was running when vaka stopped; its outcome is unknown, and it does not run any more"
    for tool in ("BashOutput", "BashStatus", "KillTask"):
        removed = await bench.call(tool, task_id=lost)
        assert (removed.text, value_of(removed)["status"]) == (message, "unknown")
    assert (
        await read_output(bench, ended_id)
    ).text == "bash_2 ended with exit code 3; its output is not at hand any more"
    assert await start_task(bench, "true") == "bash_3"
    await bench.shells.end_all()


async def test_running_and_remembered_commands_are_limited(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "go")
    bench = ShellHarness(tmp_path, running=2, ended=2)
    for n in range(1, 5):
        await wait_for_task(bench, await start_task(bench, f"echo {n}"))
    assert [shell.id for shell in bench.shells.list_shells(SessionId("s"))] == ["bash_2", "bash_3", "bash_4"]
    assert (
        await read_output(bench, "bash_1")
    ).text == "bash_1 ended with exit code 0; its output is not at hand any more"
    await start_task(bench, "read -r < go")
    await start_task(bench, "read -r < go")
    full = await bench.bash("true", run_in_background=True)
    assert full.text == "InvalidInput: 2 commands run in the background already; end one with KillTask first"
    await bench.shells.end_all()


async def test_a_filter_shows_matching_lines_and_consumes_the_others(bench: ShellHarness) -> None:
    id = await start_task(bench, "seq 1 30; printf 'no end: 3'; read -r < go; echo ' more'; echo end")
    shell = bench.shells.find(SessionId("s"), id)
    assert shell is not None
    await wait_until(lambda: shell.spool.size == 90)
    first = await read_output(bench, id, filter="3")
    assert value_of(first)["output"].split() == ["3", "13", "23", "30"]
    await go(bench)
    await wait_for_task(bench, id)
    assert value_of(await read_output(bench, id, filter=r"end$|\bmore"))["output"] == "no end: 3 more\nend"
    assert value_of(await read_output(bench, id))["output"] == ""
    await bench.shells.end_all()


def output_lines(result: ToolResult) -> list[str]:
    """Return the lines of output in a result."""
    return [line for line in result.text.split("\n")[1:] if not line.startswith(("[", "("))]


async def test_long_output_is_read_in_pieces_without_loss(bench: ShellHarness) -> None:
    id = await start_task(bench, "seq 100001 120000")
    await wait_for_task(bench, id)
    pieces: list[str] = []
    while "call again" in (piece := await read_output(bench, id)).text:
        pieces += output_lines(piece)
    pieces += output_lines(piece)
    assert pieces == [str(n) for n in range(100_001, 120_001)]
    await bench.shells.end_all()


async def test_a_line_is_read_whole_so_that_a_secret_is_redacted(bench: ShellHarness) -> None:
    bench.secrets = ("hunter2-hunter2",)
    long = "head -c 29985 /dev/zero | tr '\\0' x; echo; echo key=hunter2-hunter2"
    id = await start_task(bench, f"{long}; echo line; printf key=hunter2-; read -r < go; echo hunter2; printf q")
    shell = bench.shells.find(SessionId("s"), id)
    assert shell is not None
    await wait_until(lambda: shell.spool.size == 29_986 + 20 + 5 + 12)
    results = [(await read_output(bench, id)).text for _ in range(2)]
    assert results[1] == f"[{id} is running]\nkey=[redacted]\nline"
    await go(bench)
    await wait_for_task(bench, id)
    results.append((await read_output(bench, id)).text)
    assert results[2] == f"[{id} has ended with exit code 0]\nkey=[redacted]\nq"
    assert "hunter" not in "".join(results)
    await bench.shells.end_all()


async def test_a_filter_with_many_matches_continues_at_the_next_call(bench: ShellHarness) -> None:
    id = await start_task(bench, "seq 1 20000")
    await wait_for_task(bench, id)
    lines: list[str] = []
    while more := output_lines(await read_output(bench, id, filter="[02468]$")):
        lines += more
    assert lines == [str(n) for n in range(2, 20_001, 2)]
    await bench.shells.end_all()


@pytest.mark.every_loop
async def test_a_filter_cuts_long_lines_and_counts_the_bytes_consumed(bench: ShellHarness) -> None:
    id = await start_task(bench, """python3 -c "print('x' + 'ü' * 1500000)"; read -r < go; echo after; printf rest""")
    shell = bench.shells.find(SessionId("s"), id)
    assert shell is not None
    await wait_until(lambda: shell.spool.size == 3_000_002)
    await read_output(bench, id, filter="^x")
    text = bench.last_messages[-1].results[0].text
    assert text.startswith(f"[{id} is running]\nxüü")
    assert text.endswith("more characters in this line]")
    assert len(text) < 31_000
    await read_output(bench, id, filter="nothing of it")
    assert value_of(await bench.call("BashStatus", task_id=id))["unread_bytes"] == 0
    await go(bench)
    await wait_for_task(bench, id)
    assert value_of(await read_output(bench, id))["output"] == "after\nrest"
    await bench.shells.end_all()


async def test_an_invalid_filter_is_an_error_that_consumes_nothing(bench: ShellHarness) -> None:
    id = await start_task(bench, "echo here")
    await wait_for_task(bench, id)
    assert "is not a regular expression" in (await read_output(bench, id, filter="(")).text
    assert "at most 1000" in (await read_output(bench, id, filter="x" * 1001)).text
    assert (await read_output(bench, id, line=3)).text == "InvalidInput: BashOutput takes task_id, filter, not 'line'"
    assert "is about one task" in (await read_output(bench, id, bash_id="other")).text
    assert (await bench.call("BashOutput")).failed
    assert value_of(await read_output(bench, id))["output"] == "here"
    await bench.shells.end_all()


@pytest.mark.parametrize("limit", ["seconds", "match_seconds"])
async def test_a_filter_that_takes_too_long_is_killed(tmp_path: Path, limit: str) -> None:
    spool = Spool(SpoolStore(tmp_path))
    await spool.append("a" * 5000 + "b\n")
    limits: dict[str, Any] = {limit: 0.5}
    with pytest.raises(Exception, match=r"took longer than 0\.5 s and was stopped; nothing was read"):
        await filter_lines(spool, 0, r"(a|a)*$", max_characters=1000, final=True, **limits)
    assert not [line for line in child_processes() if "regex_worker" in line], "its process has ended, too"


async def test_output_beyond_the_quota_is_reported_with_its_end(tmp_path: Path) -> None:
    bench = ShellHarness(tmp_path, quota=400_000)
    id = await start_task(bench, "seq 1 200000")
    await wait_for_task(bench, id)
    while "call again" in (piece := await read_output(bench, id)).text:
        assert output_lines(piece)
    assert "bytes after this were not kept (the quota is used up); they end so:" in piece.text
    assert piece.text.endswith("\n200000\n")
    await bench.shells.end_all()


async def test_a_rewind_makes_output_unread_again(bench: ShellHarness) -> None:
    id = await start_task(bench, "echo again")
    await wait_for_task(bench, id)
    log = await read_log(bench.store, "s")
    assert value_of(await read_output(bench, id))["output"] == "again"
    async with bench.runtime() as rt:
        await rt.rewind("s", str(log[-1].id))
    bench.script = bench.script[:-2]
    assert value_of(await read_output(bench, id))["output"] == "again"
    await bench.shells.end_all()


def test_each_tool_has_its_effect() -> None:
    specs = [(tool.spec.effect, tool.spec.poll, tool.spec.layer) for tool in (bash_output, bash_status, kill_task)]
    assert specs == [("read", True, "builtin"), ("read", True, "builtin"), ("idempotent", False, "builtin")]
