"""Calls of one step that use the same files run in order; all others run concurrently."""

import asyncio
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal, TypeAlias

import pytest

import vaka
from tests.runtime.runtime_fixtures import (
    agent,
    check_log,
    count_commits,
    event_types,
    last_body,
    log_writer,
    read_log,
    results_by_call,
    runtime,
    wait_until,
    write,
)
from vaka.config.options import Commands, Workspace
from vaka.core.ports.store import PendingDecision
from vaka.core.types.control import ApprovalRequested
from vaka.core.types.event import Event
from vaka.core.types.message import ToolCall, ToolMessage, ToolResult
from vaka.core.types.progress import ToolCompleted, ToolFailed, ToolStarted
from vaka.runtime.options import Environment
from vaka.runtime.runtime import Runtime
from vaka.stores.memory import MemoryStore
from vaka.testing.clock import FakeClock
from vaka.testing.models import ScriptedModel, call, calls, say
from vaka.tools import ToolTraits

Decision: TypeAlias = tuple[int, Literal["approve", "reject"], dict[str, Any]]
"""The number of a call, the decision of a person on it, and its details."""

STEP = tuple(f"call_{number}" for number in range(2, 12))
"""The ids of the calls of the step; the first call of the turn has read the file, so that it may be edited."""

TOOLS = ("Read", "Write", "Edit", "Glob", "Grep", "Bash")


class FileRun:
    """A runtime with the built-in tools in a folder, and its store."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.folder, self.store = folder, MemoryStore()
        self.options: dict[str, Any] = {
            "permissions": vaka.Permissions(mode="bypassPermissions"),
            "commands": Commands(sandbox="off"),
            **options,
        }

    def runtime(self) -> Runtime:
        return runtime(self.store, workspace=Workspace(cwd=str(self.folder)), **self.options)

    async def run(self, *step: dict[str, Any], **more: Any) -> list[Event]:
        """Run a turn that reads ``r.txt`` and then makes these calls in one step, and return its log."""
        async with self.runtime() as rt:
            await (await rt.open(file_agent(step_model(*step), **more), id="s")).run("Go.")
        return await self.read_log()

    async def read_log(self) -> list[Event]:
        log = await read_log(self.store, "s")
        check_log(log)
        return log


@pytest.fixture
def files(tmp_path: Path) -> FileRun:
    write(tmp_path / "r.txt", "old\n")
    return FileRun(tmp_path)


def step_model(*step: dict[str, Any]) -> ScriptedModel:
    return ScriptedModel(read(), calls(*step), say("done"))


def file_agent(model: Any, **more: Any) -> vaka.Agent:
    return agent(model, *more.pop("tools", TOOLS), **more)


def edit(path: str = "r.txt", old: str = "old", new: str = "new") -> dict[str, Any]:
    return call("Edit", file_path=path, old_string=old, new_string=new)


def read(path: str = "r.txt") -> dict[str, Any]:
    return call("Read", file_path=path)


def bash(command: str, **more: Any) -> dict[str, Any]:
    return call("Bash", command=command, **more)


def list_runs(log: Sequence[Event]) -> list[str]:
    """Return when the calls of the step began and ended, in the order of the log: ``+1`` and ``-1`` for the first."""
    moments: list[tuple[str, str]] = []
    for event in log:
        if isinstance(event.data, ToolStarted):
            moments.append(("+", event.data.call.id))
        elif isinstance(event.data, ToolCompleted | ToolFailed):
            moments.append(("-", event.data.result.call))
    return [f"{sign}{STEP.index(call) + 1}" for sign, call in moments if call in STEP]


def results_of(log: Sequence[Event]) -> list[ToolResult]:
    """Return the results of the calls of the step, in the order of the calls."""
    found = results_by_call(log)
    return [found[call] for call in STEP if call in found]


def reasons_of(log: Sequence[Event]) -> list[str]:
    return [result.reason or "ok" for result in results_of(log)]


async def test_a_read_after_an_edit_in_one_step_returns_the_new_text(files: FileRun) -> None:
    log = await files.run(edit(), read())
    assert "new" in results_of(log)[1].text
    assert list_runs(log) == ["+1", "-1", "+2", "-2"]


async def test_a_read_after_a_command_in_one_step_returns_what_the_command_has_written(files: FileRun) -> None:
    log = await files.run(bash("sleep 0.3; echo late > f"), read("f"))
    assert "late" in results_of(log)[1].text


async def test_commands_of_one_step_run_in_order_and_begin_in_the_folder_of_the_last_one(files: FileRun) -> None:
    log = await files.run(bash("mkdir sub; cd sub"), bash("sleep 0.1; echo a > f"), bash("echo b >> f"))
    assert (files.folder / "sub" / "f").read_text() == "a\nb\n"
    assert list_runs(log) == ["+1", "-1", "+2", "-2", "+3", "-3"]


async def test_calls_that_use_different_files_run_at_once(files: FileRun) -> None:
    log = await files.run(edit(), call("Write", file_path="other.txt", content="x"), read("r2.txt"))
    assert list_runs(log)[:3] == ["+1", "+2", "+3"]


async def test_reads_of_one_file_run_at_once(files: FileRun) -> None:
    log = await files.run(read(), read(), call("Grep", pattern="old"), call("Glob", pattern="*"))
    assert list_runs(log)[:4] == ["+1", "+2", "+3", "+4"]


async def test_an_edit_waits_for_the_reads_before_it(files: FileRun) -> None:
    log = await files.run(read(), read(), edit(), edit(old="new", new="newest"))
    assert list_runs(log)[-4:] == ["+3", "-3", "+4", "-4"]
    assert all("old" in result.text for result in results_of(log)[:2])
    assert (files.folder / "r.txt").read_text() == "newest\n"


@pytest.mark.parametrize("path", ["./r.txt", "sub/../r.txt", "{cwd}/r.txt", "link.txt", "linked/r.txt", ".//r.txt"])
async def test_a_file_has_several_spellings(files: FileRun, path: str) -> None:
    write(files.folder / "sub" / "x", "x")
    (files.folder / "link.txt").symlink_to("r.txt")
    (files.folder / "linked").symlink_to(files.folder)
    log = await files.run(edit(), read(path.format(cwd=files.folder)))
    assert "new" in results_of(log)[1].text


@pytest.mark.parametrize(
    "search",
    [
        call("Grep", pattern="fresh", path="src", output_mode="content"),
        call("Grep", pattern="fresh", output_mode="content"),
        call("Glob", pattern="src/**/*.py"),
        call("Glob", pattern="*/a.py"),
        call("Glob", pattern="**/*.py", path="src"),
    ],
)
async def test_a_search_waits_for_a_write_below_its_folder(files: FileRun, search: dict[str, Any]) -> None:
    write(files.folder / "src" / "b.py", "")
    log = await files.run(call("Write", file_path="src/a.py", content="fresh = 1\n"), search)
    assert "a.py" in results_of(log)[1].text


async def test_a_search_elsewhere_does_not_wait(files: FileRun) -> None:
    write(files.folder / "src" / "b.py", "x = 1\n")
    log = await files.run(edit(), call("Grep", pattern="x", path="src"))
    assert list_runs(log)[:2] == ["+1", "+2"]


async def test_tools_of_the_program_and_child_agents_run_beside_a_command(files: FileRun) -> None:
    met = asyncio.Barrier(2)

    @vaka.tool(effect="read")
    async def Edit(file_path: str) -> str:
        """Do something that has nothing to do with files, under the name of a built-in tool."""
        await met.wait()
        return "met"

    helper = vaka.Agent("helper", model=ScriptedModel(agents={"helper": [say("helped")]}))
    step = [bash("sleep 0.1"), *[call("Edit", file_path="r.txt")] * 2, call("helper", prompt="Help.")]
    log = await files.run(*step, tools=["Bash", "Read", Edit, helper])
    assert [result.text for result in results_of(log)[1:]] == ["met", "met", "helped"]
    assert list_runs(log)[:4] == ["+1", "+2", "+3", "+4"]


async def test_a_tool_of_the_program_that_declares_its_file_waits_for_calls_that_use_it(files: FileRun) -> None:
    @vaka.tool(traits=ToolTraits(reads=True, writes=True, paths=("name",)))
    def sign(name: str) -> str:
        """Sign a file."""
        path = files.folder / name
        path.write_text(f"{path.read_text()}signed")
        return "signed"

    step = (edit(), call("sign", name="r.txt"), read(), call("sign", name="r.txt"))
    log = await files.run(*step, tools=(*TOOLS, sign))
    assert list_runs(log) == ["+1", "-1", "+2", "-2", "+3", "-3", "+4", "-4"]
    assert (files.folder / "r.txt").read_text() == "new\nsignedsigned"


async def test_a_later_call_runs_also_after_the_earlier_one_has_failed(files: FileRun) -> None:
    log = await files.run(edit(old="missing"), bash("exit 3"), read())
    assert reasons_of(log) == ["error", "error", "ok"]


async def test_a_later_call_runs_after_the_timeout_of_the_earlier_one(files: FileRun) -> None:
    log = await files.run(bash("echo first > r.txt; sleep 60", timeout=300), read())
    assert reasons_of(log) == ["timeout", "ok"]
    assert "first" in results_of(log)[1].text


@pytest.mark.parametrize("most", [1, 2, 3])
async def test_held_calls_take_no_slot_of_the_calls_that_may_run_at_once(files: FileRun, most: int) -> None:
    step = [bash("echo 1 >> f"), read("f"), bash("echo 2 >> f"), bash("echo 3 >> f"), read("f"), edit()]
    log = await files.run(*step, limits=vaka.Limits(max_tool_concurrency=most))
    assert set(reasons_of(log)) == {"ok"}
    assert (files.folder / "f").read_text() == "1\n2\n3\n"


async def test_the_deadline_of_a_held_call_counts_from_its_release(files: FileRun) -> None:
    clock = FakeClock()

    async def let_time_pass(turn: vaka.Turn, call: ToolCall, result: ToolResult) -> ToolResult:
        if call.name == "Edit":
            clock.advance(3600)
        return result

    files.options["environment"] = Environment(clock=clock)
    middleware = [vaka.Middleware.from_functions("slow", after_tool=let_time_pass)]
    log = await files.run(edit(), read(), middleware=middleware)
    _, first, second = [event.data for event in log if isinstance(event.data, ToolStarted)]
    assert first.deadline[:16] < second.deadline[:16]
    assert (first.deadline[11:16], second.deadline[11:16]) == ("22:14", "23:14")


async def test_the_model_reads_the_results_in_the_order_of_its_calls(files: FileRun) -> None:
    model = step_model(bash("sleep 0.1"), read(), call("look"), edit())

    @vaka.tool(effect="read")
    async def look() -> str:
        """Look."""
        return "seen"

    async with files.runtime() as rt:
        await (await rt.open(file_agent(model, tools=["Read", "Edit", "Bash", look]), id="s")).run("Go.")
    shown = [[r.call for r in m.results] for m in model.prompts[-1].messages if isinstance(m, ToolMessage)]
    assert shown == [["call_1"], [*STEP[:4]]]
    assert list_runs(await files.read_log())[:3] == ["+1", "+3", "-3"]


class TestDecisions:
    """Approvals are asked for at once; a held call is judged again when it is released."""

    @pytest.fixture
    def files(self, files: FileRun) -> FileRun:
        files.options["permissions"] = vaka.Permissions()
        return files

    async def decide(self, files: FileRun, step: Sequence[dict[str, Any]], *decisions: Decision) -> list[Event]:
        """Run a turn with these calls; ``decisions`` are made one after the other once all their calls are asked about.

        Between two decisions all calls that may run have run.
        """
        async with files.runtime() as rt:
            session = await rt.open(file_agent(step_model(*step)), id="s")
            running = asyncio.ensure_future(session.run("Go."))
            ids = await wait_for_requests(rt, len(decisions))
            for number, decision, details in decisions:
                await settle()
                await rt.resolve(ids[STEP[number - 1]], decision, **details)
            await running
        return await files.read_log()

    async def test_a_call_waits_for_the_decision_on_an_earlier_one(self, files: FileRun) -> None:
        log = await self.decide(files, [edit(), read()], (1, "approve", {}))
        assert "new" in results_of(log)[1].text
        assert list_runs(log) == ["+1", "-1", "+2", "-2"]

    async def test_a_call_runs_after_the_rejection_of_an_earlier_one(self, files: FileRun) -> None:
        log = await self.decide(files, [edit(), read()], (1, "reject", {"message": "Not now."}))
        assert reasons_of(log) == ["denied", "ok"]
        assert list_runs(log) == ["-1", "+2", "-2"]

    async def test_a_held_call_that_was_approved_first_still_waits(self, files: FileRun) -> None:
        step = [edit(), edit(old="new", new="newest")]
        log = await self.decide(files, step, (2, "approve", {}), (1, "approve", {}))
        assert list_runs(log) == ["+1", "-1", "+2", "-2"]
        assert (files.folder / "r.txt").read_text() == "newest\n"

    async def test_arguments_that_a_person_edited_decide_what_a_call_waits_for(self, files: FileRun) -> None:
        moved = {"file_path": "r.txt", "old_string": "new", "new_string": "newest"}
        step = [edit(), edit("other.txt")]
        log = await self.decide(files, step, (2, "approve", {"edit": moved}), (1, "approve", {}))
        assert list_runs(log) == ["+1", "-1", "+2", "-2"]
        assert (files.folder / "r.txt").read_text() == "newest\n"

    async def test_a_held_call_is_refused_if_the_earlier_one_has_changed_what_its_path_leads_to(
        self, files: FileRun, tmp_path: Path
    ) -> None:
        write(tmp_path / "secret" / "r.txt", "secret\n")
        rules = vaka.Permissions(mode="bypassPermissions", deny=["Read(./secret/**)"])
        files.options["permissions"] = rules
        write(tmp_path / "link.sh", "ln -s secret/r.txt link\n")
        log = await files.run(bash("sh link.sh"), read("link"))
        assert reasons_of(log) == ["ok", "denied"]
        assert list_runs(log) == ["+1", "-1", "-2"]

    async def test_a_held_command_is_asked_about_again_in_another_folder(self, files: FileRun) -> None:
        write(files.folder / "sub" / "x", "")
        async with files.runtime() as rt:
            step = [bash("cd sub"), bash("touch made")]
            session = await rt.open(file_agent(step_model(*step)), id="s")
            running = asyncio.ensure_future(session.run("Go."))
            for _ in step:
                for id in (await wait_for_requests(rt, 1)).values():
                    await rt.resolve(id, "approve")
            await running
        assert (files.folder / "sub" / "made").exists()
        assert event_types(await files.read_log()).count("approval.requested") == 2

    async def test_a_suspended_turn_leaves_the_held_call_open_and_not_started(self, files: FileRun) -> None:
        files.options["permissions"] = vaka.Permissions(ask="suspend")
        model = step_model(edit(), read())
        async with files.runtime() as rt:
            session = await rt.open(file_agent(model), id="s")
            with pytest.raises(vaka.Suspended):
                await session.run("Go.")
            assert list_runs(await read_log(files.store, "s")) == []  # of the step
            [row] = await rt.decisions()
            await rt.resolve(row.id, "approve")
            assert last_body([event async for event in session.resume()]).text == "done"
        log = await files.read_log()
        assert "new" in results_of(log)[1].text
        assert list_runs(log) == ["+1", "-1", "+2", "-2"]


class TestStops:
    """A stop seals the held calls: they have not begun, so nothing about them is unknown."""

    @pytest.mark.parametrize("how", ["interrupted", "cancelled"])
    async def test_a_stopped_turn_seals_held_calls(self, files: FileRun, how: str) -> None:
        async with files.runtime() as rt:
            model = step_model(bash("touch begun; sleep 60"), edit())
            session = await rt.open(file_agent(model), id="s")
            running = asyncio.ensure_future(session.run("Go."))
            await wait_until((files.folder / "begun").exists)
            if how == "interrupted":
                await session.interrupt()
            else:
                running.cancel()
            await asyncio.wait([running])
            with pytest.raises((vaka.VakaError, asyncio.CancelledError)):
                running.result()
        log = await files.read_log()
        assert reasons_of(log) == [how, how]
        assert results_of(log)[1].text.startswith("Stopped: ")
        assert "unknown" not in results_of(log)[1].text
        assert "+2" not in list_runs(log)

    async def test_the_time_limit_of_the_turn_seals_held_calls(self, files: FileRun) -> None:
        log: list[Event] = []
        for seconds in (1, 5, 25):  # until the limit falls into the first call, also on a busy machine
            files.store = MemoryStore()
            log = await files.run(bash("sleep 60"), read(), limits=vaka.Limits(timeout=seconds))
            if list_runs(log):
                break
        assert last_body(log).limit == "time"
        assert reasons_of(log)[1] == "cancelled"
        assert list_runs(log)[0] == "+1"
        assert "+2" not in list_runs(log)


class TestResume:
    """A turn goes on from each event of its log: the calls that it had not released run in the same order."""

    async def test_a_turn_goes_on_after_every_commit(self, files: FileRun) -> None:
        step = [edit(), read(), edit(old="new", new="newest"), read()]
        files.options["middleware"] = [vaka.Middleware.from_functions("seen", after_tool=keep_result)]
        commits = count_commits(files.store).commits
        whole = await files.run(*step)
        ends = [end for end in accumulate(map(len, commits)) if whole[end - 1].seq > last_call_of(whole)][:-1]
        for end in ends:
            write(files.folder / "r.txt", text_after(whole[:end]))
            again = FileRun(files.folder, **files.options)
            await log_writer(again.store, "s", whole[:end])()
            async with again.runtime() as rt:
                session = await rt.open(file_agent(step_model(*step)), id="s")
                assert last_body([event async for event in session.resume()]).text == "done"
            texts = [result.text for result in results_of(await again.read_log())]
            assert ("new" in texts[1], "newest" in texts[1], "newest" in texts[3]) == (True, False, True), end
        assert len(ends) >= 8


def last_call_of(log: Sequence[Event]) -> int:
    """Return the seq of the last call of the step."""
    return max(event.seq for event in log if event.type == "tool.called")


async def keep_result(turn: vaka.Turn, call: ToolCall, result: ToolResult) -> ToolResult:
    return result


def text_after(log: Sequence[Event]) -> str:
    """Return the text of the file as a log says it is: each edit writes its backup, changes the file, and says so."""
    written = sum(1 for event in log if event.seq > last_call_of(log) and event.type == "state.changed")
    return ("old\n", "new\n", "newest\n")[written // 2]


async def wait_for_requests(rt: Runtime, number: int) -> dict[str, str]:
    """Wait until a number of approvals is requested, and return their ids by their calls."""
    rows: Sequence[PendingDecision] = ()
    async with asyncio.timeout(60):
        while len(rows) < number:
            await asyncio.sleep(0)
            rows = await rt.decisions()
    return {row.event.data.call.id: row.id for row in rows if isinstance(row.event.data, ApprovalRequested)}


async def settle() -> None:
    """Let every call that may run begin: with a ``MemoryStore`` that takes some rounds of the event loop."""
    for _ in range(100):
        await asyncio.sleep(0)
