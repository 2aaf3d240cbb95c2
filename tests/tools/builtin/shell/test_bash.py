"""Bash in the foreground: output, exit code, working folder, and no process left running."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.runtime_fixtures import agent, collect, read_log, results_by_call, runtime
from tests.tools.builtin.harness import value_of
from tests.tools.builtin.shell_harness import ShellHarness
from vaka.config.options import Permissions
from vaka.core.ports.sandbox import Command, Process
from vaka.core.ports.tool import World
from vaka.core.types.control import InterruptRequested
from vaka.core.types.errors import InvalidInput, SandboxError, StoreError
from vaka.core.types.ids import SessionId
from vaka.core.types.message import Stored, ToolResult
from vaka.core.types.progress import ToolOutputDelta
from vaka.sandbox.select import select_sandbox
from vaka.sandbox.unconfined import Unconfined
from vaka.testing.models import ScriptedModel, call, say
from vaka.tools.builtin import builtin_tools
from vaka.tools.builtin.shell.bash import bash as tool
from vaka.tools.builtin.shell.output import Spool, SpoolStore
from vaka.tools.builtin.shell.supervisor import CommandOptions, CommandScope, ShellSupervisor


@pytest.fixture
def bench(tmp_path: Path) -> ShellHarness:
    return ShellHarness(tmp_path)


def value_of_result(result: ToolResult) -> Any:
    return result.value


async def test_output_and_exit_code_are_both_returned(bench: ShellHarness) -> None:
    result = await bench.bash("echo one; echo two")
    assert (result.text, result.failed) == ("one\ntwo\n[exit code 0]", False)
    data = value_of(result)
    assert {**data, "duration_ms": 0} == {
        "exit_code": 0,
        "workdir": str(bench.root),
        "output": [],
        "duration_ms": 0,
        "timeout_ms": 120_000,
    }
    failed = await bench.bash("echo why it failed; exit 3")
    assert (failed.text, failed.failed, value_of_result(failed)["exit_code"]) == (
        "why it failed\n[exit code 3]",
        True,
        3,
    )
    assert (await bench.bash("true")).text == "[exit code 0]"
    assert (await bench.bash("nosuchprogram")).text == (
        "bash: line 1: nosuchprogram: command not found\n[exit code 127]"
    )
    assert (await bench.bash("kill -9 $$")).text.endswith("[exit code -9]")


async def test_the_two_streams_stay_in_order(bench: ShellHarness) -> None:
    result = await bench.bash("for n in 1 2 3 4 5; do echo out $n; echo err $n >&2; done")
    assert result.text == "\n".join(f"{way} {n}" for n in range(1, 6) for way in ("out", "err")) + "\n[exit code 0]"


async def test_any_command_text_runs_as_in_bash(bench: ShellHarness) -> None:
    assert (await bench.bash("cat <<'E'\n$HOME \"x\" 'y' \\\\\nE\n# the end")).text == (
        "$HOME \"x\" 'y' \\\\\n[exit code 0]"
    )
    assert (await bench.bash('echo "$# $@ $1"')).text == "0  \n[exit code 0]"
    broken = await bench.bash('echo fine\necho "open')
    assert broken.failed
    assert broken.text.startswith("fine\nbash: eval: line 2: unexpected EOF")
    assert (await bench.bash("set -e; false; echo no")).text == "[exit code 1]"
    assert (await bench.bash("head -c 3 | wc -c")).text == "0\n[exit code 0]"
    unicode = "echo 'größe 漢字 🙂'"
    assert (await bench.bash(unicode)).text == "größe 漢字 🙂\n[exit code 0]"


async def test_bytes_that_are_not_utf8_are_replaced(bench: ShellHarness) -> None:
    assert (await bench.bash(r"printf 'a\xff\xfeb\xe2\x82'; printf '\xac c'")).text == "a��b€ c\n[exit code 0]"


@pytest.mark.parametrize("command", ["", "  \n", "echo \0", "x" * 100_001], ids=["none", "blank", "nul", "huge"])
async def test_a_command_that_cannot_run_is_a_clear_error(bench: ShellHarness, command: str) -> None:
    result = await bench.bash(command)
    assert result.failed
    assert "command" in result.text


async def test_arguments_of_other_runtimes_are_accepted_and_unknown_ones_are_errors(bench: ShellHarness) -> None:
    (bench.root / "sub").mkdir()
    assert (await bench.bash("pwd", workdir="sub")).text == f"{bench.root}/sub\n[exit code 0]"
    assert (await bench.bash("pwd")).text == f"{bench.root}\n[exit code 0]"
    assert (await bench.bash("pwd", workdir="/")).text == "InvalidInput: workdir '/' is not a folder of the workspace"
    assert "not a folder" in (await bench.bash("pwd", workdir="nowhere")).text
    assert "Bash takes command, timeout" in (await bench.bash("pwd", shell="zsh")).text
    assert "set run_in_background" in (await bench.bash("pwd", task_id="x")).text
    assert value_of(await bench.bash("pwd", timeout="5000"))["timeout_ms"] == 5000
    assert value_of(await bench.bash("pwd", timeout=10**9))["timeout_ms"] == 600_000
    assert (await bench.bash("pwd", timeout=-1)).reason == "invalid_arguments"


# --------------------------------------------------------------------------------------------------- the working folder


async def test_the_working_folder_carries_over_calls_and_restarts(bench: ShellHarness) -> None:
    (bench.root / "a b" / "c").mkdir(parents=True)
    moved = await bench.bash("cd 'a b/c'; exit 2")
    assert moved.text == f"[the working folder is now {bench.root}/a b/c]\n[exit code 2]"
    assert (await bench.bash("pwd")).text == f"{bench.root}/a b/c\n[exit code 0]"
    await bench.restart()
    assert (await bench.bash("cd ..; pwd")).text.startswith(f"{bench.root}/a b\n")
    assert (await bench.bash("cd ..")).text == f"[the working folder is now {bench.root}]\n[exit code 0]"
    assert (await bench.bash("pwd")).text == f"{bench.root}\n[exit code 0]"


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("trap 'echo bye' EXIT; cd sub", 0),
        ("cd sub; exit 4", 4),
        ("set -e; cd sub; false", 1),
        ("set -x; cd sub", 0),
        ("pwd() { echo other; }; exit() { echo no; }; cd sub; (builtin exit 3)", 3),
        ("set -- 7 8; cd sub; false", 1),
        ("exec 9>&-; cd sub", 0),
        ("set -u; cd sub; echo $nothing", 127),
        ("trap '' EXIT; cd sub", 0),
        ("IFS=1; cd sub; false", 1),
    ],
)
async def test_the_working_folder_carries_over_however_a_command_ends(
    bench: ShellHarness, command: str, code: int
) -> None:
    (bench.root / "sub").mkdir()
    result = await bench.bash(command)
    assert result.text.endswith(f"[the working folder is now {bench.root}/sub]\n[exit code {code}]")
    assert "builtin" not in result.text
    assert (await bench.bash("pwd")).text == f"{bench.root}/sub\n[exit code 0]"


async def test_the_working_folder_never_leaves_the_workspace(bench: ShellHarness) -> None:
    (bench.root / "sub").mkdir()
    (bench.root / "out").symlink_to("/usr")
    for way in ("cd /usr", "cd ../out"):
        await bench.bash("cd sub")
        left = await bench.bash(f"{way}; echo there")
        assert left.text == (
            f"there\n[/usr is outside of the workspace: the working folder is {bench.root} again]\n[exit code 0]"
        )
        assert (await bench.bash("pwd")).text == f"{bench.root}\n[exit code 0]"


async def test_a_child_agent_has_a_working_folder_of_its_own(bench: ShellHarness) -> None:
    for name in ("mine", "theirs"):
        (bench.root / name).mkdir()
    inner = [call("Bash", command="pwd; cd theirs"), call("Bash", command="pwd"), say("done")]
    child = agent(ScriptedModel(agents={"helper": inner}), *bench.tools, name="helper")
    outer = [call("Bash", command="cd mine"), call("helper", prompt="Go."), call("Bash", command="pwd"), say("done")]
    async with bench.runtime() as rt:
        await (await rt.open(agent(ScriptedModel(*outer), *bench.tools, child), id="s")).run("Go.")
    lines = [result.text.split("\n")[0] for result in results_by_call(await read_log(bench.store, "s")).values()]
    places = [line.removeprefix(str(bench.root)) for line in lines if line.startswith("/")]
    assert sorted(places) == ["", "/mine", "/theirs"]


async def test_a_folder_whose_name_is_not_utf8_does_not_become_the_working_folder(bench: ShellHarness) -> None:
    left = await bench.bash("mkdir $'\\xff'; cd $'\\xff'")
    note = f"{bench.root}/\ufffd has a name that is not valid UTF-8: the working folder is {bench.root} again"
    assert left.text == f"[{note}]\n[exit code 0]"
    assert (await bench.bash("pwd")).text == f"{bench.root}\n[exit code 0]"


async def test_a_folder_of_another_root_is_in_the_workspace(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    bench = ShellHarness(tmp_path / "one", tmp_path / "two")
    await bench.bash(f"cd {tmp_path}/two")
    assert (await bench.bash("pwd")).text == f"{tmp_path}/two\n[exit code 0]"
    assert (await bench.bash(f"cd {tmp_path}; true")).text.startswith(f"[{tmp_path} is outside of the workspace")


async def test_a_removed_working_folder_is_an_error(bench: ShellHarness) -> None:
    (bench.root / "sub").mkdir()
    await bench.bash("cd sub")
    (bench.root / "sub").rmdir()
    message = f"the working folder {bench.root}/sub is not there any more, so nothing was run"
    assert message in (await bench.bash("touch here")).text
    assert not (bench.root / "here").exists(), "the rules looked at it from another folder"
    assert (await bench.bash("pwd")).text == f"{bench.root}\n[exit code 0]"


# --------------------------------------------------------------------------------------------------------- long output


async def test_long_output_is_shown_in_part_and_can_be_read_whole(bench: ShellHarness) -> None:
    result = await bench.bash("seq 1 20000")
    name = value_of(result)["output"][0]
    assert result.text.startswith("1\n2\n3\n")
    assert result.text.endswith("\n20000\n\n[exit code 0]")
    assert f"the whole is {name}" in result.text
    assert len(result.text) < 15_000
    read = await bench.call("Read", file_path=name, offset=12_345, limit=1)
    assert read.text.startswith(" 12345\t12345\n")
    assert any(isinstance(part, Stored) for part in result.content)


@pytest.mark.parametrize("more", [40_000, 9_000_000])
async def test_a_secret_is_redacted_where_long_output_is_cut(bench: ShellHarness, more: int) -> None:
    bench.secrets = ("hunter2-hunter2",)
    result = await bench.bash(
        "head -c 3994 /dev/zero | tr '\\0' x; printf hunter2-hunter2; "
        f"head -c {more} /dev/zero | tr '\\0' y; printf hunter2-hunter2; head -c 7994 /dev/zero | tr '\\0' z"
    )
    assert "hunter" not in result.text
    assert "-hun" not in result.text
    assert result.text.startswith("xxx")
    assert len(result.text) < 15_000


async def test_long_output_of_one_line_can_be_read_whole(bench: ShellHarness) -> None:
    result = await bench.bash("seq -s , 1 20000; echo; echo end")
    name = value_of(result)["output"][0]
    pieces: list[str] = []
    for offset in range(1, 60, 10):
        read = await bench.call("Read", file_path=name, offset=offset, limit=10)
        pieces += [line.partition("\t")[2] for line in read.text.split("\n") if not line.startswith("[")]
    assert pieces[-1] == "end"
    assert "".join(pieces[:-1]) == ",".join(str(n) for n in range(1, 20_001))
    assert max(map(len, pieces)) == 2_000


async def test_output_of_thirty_thousand_characters_is_shown_whole(bench: ShellHarness) -> None:
    result = await bench.bash("head -c 30000 /dev/zero | tr '\\0' x")
    assert result.text == "x" * 30_000 + "\n[exit code 0]"


async def test_very_long_output_is_stored_by_its_ends_and_readable_while_vaka_runs(bench: ShellHarness) -> None:
    result = await bench.bash("seq 1 2000000; exit 1")
    first, last = value_of_result(result)["output"]
    assert result.failed
    assert result.text.startswith("1\n2\n")
    assert result.text.endswith("[exit code 1]")
    assert "14.2 MiB were printed. The first 4.0 MiB are" in result.text
    assert (await bench.call("Read", file_path=first, limit=1)).text.startswith("     1\t1\n")
    tail = await bench.call("Read", file_path=last, limit=100_000)
    assert not tail.failed
    match = await bench.call("BashOutput", task_id=value_of_result(result)["task_id"], filter="^123456[0-9]$")
    assert value_of(match)["output"].split() == [str(n) for n in range(1_234_560, 1_234_570)]


async def test_output_beyond_the_quota_is_noted(tmp_path: Path) -> None:
    bench = ShellHarness(tmp_path, quota=1024**2)
    result = await bench.bash("seq 1 1000000")
    assert not result.failed
    assert result.text.startswith("1\n2\n")
    assert "1000000\n" in result.text
    assert "were not kept but for what is here: the quota is used up" in result.text
    await bench.restart()
    assert (await bench.bash("echo again")).text == "again\n[exit code 0]"


class FullBlobs:
    """A store of blobs with space for small ones only."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def put(self, data: bytes, *, session: str = "") -> Any:
        if len(data) > 50_000:
            raise StoreError("the disk is full; nothing was written")
        return await self._inner.put(data, session=session)


async def test_output_that_cannot_be_stored_does_not_hide_that_the_command_has_run(bench: ShellHarness) -> None:
    bench.store.blobs = FullBlobs(bench.store.blobs)
    result = await bench.bash("seq 1 20000")
    assert not result.failed
    assert result.text.startswith("1\n2\n")
    assert "by the command, which has run. The output could not be stored: the disk is full" in result.text
    assert "\n20000\n" in result.text
    assert result.text.endswith("[exit code 0]")


async def test_a_flood_of_output_does_not_grow_memory(bench: ShellHarness) -> None:
    await bench.bash("true")
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    before = _memory_of("VmRSS")
    result = await bench.bash("head -c 300000000 /dev/zero | tr '\\0' 'x' | fold -w 100")
    assert value_of(result)["exit_code"] == 0
    assert "MiB were printed" in result.text
    assert _memory_of("VmHWM") - before < 64 * 1024**2


def _memory_of(name: str) -> int:
    """Return a memory figure of this process in bytes."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) * 1024


async def test_output_is_emitted_while_the_command_runs(bench: ShellHarness) -> None:
    model = ScriptedModel(call("Bash", command="echo first; read -r < go; echo second"), say("done"))
    os.mkfifo(bench.root / "go")
    pieces: list[str] = []
    async with bench.runtime() as rt:
        session = await rt.open(agent(model, *bench.tools), id="s")
        async for event in session.stream("Go."):
            if isinstance(event.data, ToolOutputDelta):
                if not pieces:
                    await asyncio.to_thread((bench.root / "go").write_text, "\n")
                pieces.append(event.data.text)
    assert "".join(pieces) == "first\nsecond\n"
    assert pieces[0] == "first\n"


# ----------------------------------------------------------------------------------------------------- time and endings


async def test_a_timeout_kills_a_command_with_its_child_processes(bench: ShellHarness) -> None:
    result = await bench.bash("echo begun; sleep 1000 & echo $! > pid; trap '' TERM; sleep 1000", timeout=1500)
    assert (result.failed, result.reason) == (True, "timeout")
    assert result.text.startswith("begun\n[it took longer than 1500 ms and was ended with everything it had started]\n")
    assert "[exit code -" in result.text
    assert not _is_running((bench.root / "pid").read_text())


def _is_running(pid: str) -> bool:
    try:
        return " Z " not in Path(f"/proc/{pid.strip()}/stat").read_text()
    except OSError:
        return False


async def test_processes_left_running_are_killed_with_a_note(bench: ShellHarness) -> None:
    result = await bench.bash("sleep 1000 & echo $! > pid; echo away")
    assert result.text == (
        "away\n[what it had left running was ended; use run_in_background for what shall go on]\n[exit code 0]"
    )
    assert not _is_running((bench.root / "pid").read_text())
    silent = await bench.bash("nohup sleep 1000 >/dev/null 2>&1 & echo $! > pid; echo away")
    assert silent.text == result.text
    assert not _is_running((bench.root / "pid").read_text())
    waited = await bench.bash("sleep 0.01 >/dev/null & wait; echo there")
    assert waited.text == "there\n[exit code 0]"


async def test_a_command_may_go_on_in_the_background_after_its_timeout(tmp_path: Path) -> None:
    bench = ShellHarness(tmp_path, late_goes_on=True)
    os.mkfifo(tmp_path / "go")
    late = await bench.bash("echo begun; read -r < go; echo ended; exit 4", timeout=800)
    assert late.text.startswith("begun\n[it takes longer than 800 ms and goes on in the background as bash_1]")
    assert value_of(late)["task_id"] == "bash_1"
    await asyncio.to_thread((tmp_path / "go").write_text, "\n")
    _, out = await bench.run_calls(("lull", {"id": "bash_1"}), ("BashOutput", {"task_id": "bash_1"}))
    assert out.text == "[bash_1 has ended with exit code 4]\nended"


async def test_a_timeout_kills_a_command_when_too_many_run_in_the_background(tmp_path: Path) -> None:
    bench = ShellHarness(tmp_path, late_goes_on=True, running=0)
    late = await bench.bash("echo begun; sleep 1000", timeout=800)
    assert late.text.startswith("begun\n[it took longer than 800 ms and was ended")
    assert "14.2 MiB were printed" in (await bench.bash("seq 1 2000000")).text


async def test_an_interrupted_turn_kills_its_command(bench: ShellHarness) -> None:
    model = ScriptedModel(call("Bash", command="echo $$ > pid; echo up; sleep 1000"), say("done"))
    async with bench.runtime() as rt:
        session = await rt.open(agent(model, *bench.tools), id="s")
        async for event in session.stream("Go."):
            if isinstance(event.data, ToolOutputDelta):
                await rt._drivers.interrupt(SessionId("s"), InterruptRequested(key="k"))
    result = results_by_call(await read_log(bench.store, "s"))["call_1"]
    assert result.reason == "interrupted"
    assert result.text.startswith("up\n[exit code -15]\n[stopped before it was done")
    assert result.text.endswith("its outcome is unknown, verify before repeating it]")
    assert not _is_running((bench.root / "pid").read_text())


async def test_a_crash_leaves_the_outcome_to_a_person(bench: ShellHarness) -> None:
    await bench.bash("echo x >> effects")
    lost = await bench.rerun_after_crash(1)
    assert lost.reason == "outcome_unknown"
    assert (bench.root / "effects").read_text() == "x\n"


# ------------------------------------------------------------------------------------------------------- what is needed


class FailingSandbox:
    """A sandbox that fails to start commands."""

    name = "refusing"
    enforces: frozenset[str] = frozenset()

    async def start(self, command: Command) -> Process:
        raise SandboxError(f"cannot confine {command.argv[0]}")


async def test_a_command_that_cannot_be_confined_does_not_run(tmp_path: Path) -> None:
    bench = ShellHarness(tmp_path, sandbox=FailingSandbox())
    assert (await bench.bash("echo hi")).text == "SandboxError: cannot confine bash"
    assert (await bench.bash("echo hi", run_in_background=True)).failed


async def test_a_runtime_without_a_sandbox_is_a_clear_error(tmp_path: Path) -> None:
    model = ScriptedModel(call("Bash", command="true"), call("Bash", command="false"), say("done"))
    async with runtime(permissions=Permissions(mode="bypassPermissions")) as rt:
        rt.env.world = World()
        await collect((await rt.open(agent(model, *builtin_tools(["Bash"])), id="s")).stream("Go."))
        assert "this runtime runs no commands" in results_by_call(await read_log(rt.store, "s"))["call_1"].text  # type: ignore[arg-type]  # a memory


@pytest.mark.parametrize("sandbox", [Unconfined(portable=True), select_sandbox("auto")], ids=["portable", "best"])
async def test_commands_are_the_same_in_every_sandbox(
    tmp_path: Path, sandbox: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-none")
    bench = ShellHarness(tmp_path, sandbox=sandbox)
    (tmp_path / "sub").mkdir()
    assert (await bench.bash("cd sub; echo out; echo err >&2; echo hi > made; exit 3")).text == (
        f"out\nerr\n[the working folder is now {tmp_path}/sub]\n[exit code 3]"
    )
    assert (tmp_path / "sub" / "made").read_text() == "hi\n"
    assert (await bench.bash('pwd; echo "<$OPENAI_API_KEY>"')).text == f"{tmp_path}/sub\n<>\n[exit code 0]"
    over = await bench.bash("echo a; sleep 1000", timeout=1000)
    # The amount of output before the kill depends on the machine.
    assert over.text.removeprefix("a\n").startswith("[it took longer")


async def test_paths_inside_a_hidden_folder_are_hidden(tmp_path: Path) -> None:
    (tmp_path / "kept" / "log").mkdir(parents=True)
    (tmp_path / "kept" / "log" / "secret").write_text("x")
    bench = ShellHarness(tmp_path, sandbox=select_sandbox("auto"))
    bench.shells.scope = CommandScope(hidden=(str(tmp_path / "kept"), str(tmp_path / "kept" / "log")))
    assert (await bench.bash("ls -A kept; cat kept/log/secret 2>&- || echo none")).text == "none\n[exit code 0]"


async def test_the_sandbox_receives_the_scope_of_commands(tmp_path: Path) -> None:
    commands: list[Command] = []

    class Noting(Unconfined):
        async def start(self, command: Command) -> Process:
            commands.append(command)
            return await super().start(command)

    bench = ShellHarness(tmp_path, sandbox=Noting())
    await bench.bash("true")
    assert commands[0].writable == (str(tmp_path),)
    assert (commands[0].cwd, commands[0].network, commands[0].argv[-1]) == (str(tmp_path), False, "true")


def test_bash_has_the_effect_once() -> None:
    assert (tool.spec.effect, tool.spec.timeout, tool.spec.layer) == ("once", None, "builtin")
    assert CommandOptions().longest == 600_000
    with pytest.raises(InvalidInput, match="quota"):
        ShellSupervisor(options=CommandOptions(quota=-1))


# ------------------------------------------------------------------------------------------------------------ the spool


async def test_a_spool_reads_any_range_across_memory_and_file(tmp_path: Path) -> None:
    store = SpoolStore(tmp_path, quota=10_000_000)
    spool = Spool(store)
    whole = ""
    for n in range(3000):
        text = f"line {n} ünïcode {'x' * (n % 400)}\n"
        whole += text
        await spool.append(text)
    data = whole.encode()
    assert (spool.size, spool.characters) == (len(data), len(whole))
    assert len(data) > 512 * 1024
    for start, size in ((0, 10), (0, len(data)), (len(data) - 5, 100), (262_000, 300_000), (len(data), 1), (17, 0)):
        assert await spool.read(start, size) == data[start : start + size]
    assert list(tmp_path.iterdir()) == []
    await spool.close()
    await spool.close()
    assert await spool.read(0, 10) == b""
    assert store.reserve(10_000_000)


async def test_a_failing_disk_loses_only_the_output_it_counts(tmp_path: Path) -> None:
    spool = Spool(SpoolStore(tmp_path / "nowhere"))
    for _ in range(600):
        await spool.append("x" * 1000)
    assert spool.error == "it cannot be written: No such file or directory"
    assert (spool.size, spool.lost_bytes) == (0, 600_000)
    assert len(spool.lost_tail()) >= 64 * 1024
