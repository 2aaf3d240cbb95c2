"""A session belongs to the folder in which its tools work."""

import os
import socket
from pathlib import Path
from typing import Any, Literal

import pytest

import vaka
from tests.runtime.runtime_fixtures import merge_options, read_log
from vaka.agentsdk import PermissionRequest
from vaka.config.options import Commands, Workspace
from vaka.core.session.hash_chain import seal_chain
from vaka.core.types.control import RunSettings, SessionOpened, SessionUpdated, SessionWorkspace
from vaka.core.types.errors import InvalidInput, Suspended
from vaka.core.types.ids import EventScope, SessionId
from vaka.core.types.progress import ToolFailed, ToolStarted, TurnCompleted
from vaka.files.memory import MemoryFiles
from vaka.genx.kinds.composite import CompositeTool, ToolStep
from vaka.runtime.runtime import Runtime
from vaka.runtime.session_edits import write_event
from vaka.stores.memory import MemoryStore
from vaka.testing.models import ScriptedModel, call, say
from vaka.tools.builtin import builtin_tools


@vaka.tool
def note(text: str) -> None:
    """Write a text down."""


CLEAN = call("Bash", command="rm -rf build && pwd > cleaned")


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


def make_folders(tmp_path: Path) -> tuple[Path, Path]:
    folders = tmp_path / "a", tmp_path / "b"
    for folder in folders:
        (folder / "build").mkdir(parents=True)
    return folders


def open_runtime(store: MemoryStore, folder: Path, model: ScriptedModel, **options: Any) -> Runtime:
    defaults = {
        "workspace": Workspace(cwd=str(folder)),
        "commands": Commands(sandbox="off"),
        "permissions": vaka.Permissions(ask="suspend"),
    }
    return Runtime(store=store, model=model, **merge_options(defaults, options))


def workspace_of(folder: Path) -> SessionWorkspace:
    found = folder.stat()
    host = socket.gethostname()
    return SessionWorkspace(root=str(folder), device=found.st_dev, inode=found.st_ino, host=host)


async def suspend(runtime: Runtime) -> str:
    """Run until a command waits for an approval; return its id."""
    session = await runtime.open(id="s")
    with pytest.raises(Suspended) as suspended:
        await session.run("Clean.")
    return suspended.value.decisions[0]


async def test_an_approved_call_does_not_run_in_the_folder_of_another_runtime(
    tmp_path: Path, store: MemoryStore
) -> None:
    a, b = make_folders(tmp_path)
    model = ScriptedModel(CLEAN, say("Clean."))
    async with open_runtime(store, a, model) as runtime:
        approval = await suspend(runtime)
    async with open_runtime(store, b, model) as runtime:
        await runtime.resolve(approval, "approve")
        session = await runtime.open(id="s")
        for turn in (session.resume(), session.stream("Go on.")):
            with pytest.raises(InvalidInput, match=f"belongs to the folder '{a}'"):
                await turn.wait()
    assert (b / "build").exists()
    async with open_runtime(store, a, model) as runtime:
        await (await runtime.open(id="s")).resume().wait()
    assert (a / "cleaned").read_text().strip() == str(a)
    assert (b / "build").exists()


async def test_the_first_event_has_the_folder_of_a_session_whose_agent_works_in_one(
    tmp_path: Path, store: MemoryStore
) -> None:
    child = vaka.Agent("child", model=ScriptedModel(agents={"child": [say("Done.")]}), tools=["Read"])
    steps = CompositeTool("steps", steps=[ToolStep("read", "Read")])
    nested = vaka.Agent("nested")
    for level in range(64):  # each agent twice in the one above: 2**64 ways to the innermost
        nested = vaka.Agent(f"nested-{level}", tools=[nested, nested.as_tool(name="again")])
    agents = {
        "none": vaka.Agent("none", tools=["WebSearch", "TodoWrite", note]),
        "read": vaka.Agent("read", tools=["Read"]),
        "child": vaka.Agent("parent", tools=[child]),
        "object": vaka.Agent("object", tools=builtin_tools(["Bash"])),
        "steps": vaka.Agent("steps", tools=[steps]),
        "nested": nested,
    }
    async with Runtime(store=store, model=ScriptedModel(say("Hi."))) as runtime:
        for id, agent in agents.items():
            await (await runtime.open(agent, id=id)).run("Hi.")
        assert {id: await runtime.workspace(id) for id in agents} == {
            "none": None,
            "read": workspace_of(Path.cwd()),
            "child": workspace_of(Path.cwd()),
            "object": workspace_of(Path.cwd()),
            "steps": workspace_of(Path.cwd()),
            "nested": None,
        }
    async with open_runtime(
        store, tmp_path, ScriptedModel(say("Hi.")), workspace=Workspace(add_dirs=[str(tmp_path)])
    ) as runtime:
        await (await runtime.open(id="added")).run("Hi.")
    opened = (await read_log(store, "added"))[0].data
    assert isinstance(opened, SessionOpened)
    assert opened.workspace is not None
    assert (opened.workspace.root, opened.workspace.directories) == (str(tmp_path), (str(tmp_path),))


async def test_a_moved_session_asks_again_and_loses_its_grants_also_after_a_rewind(
    tmp_path: Path, store: MemoryStore
) -> None:
    a, b = make_folders(tmp_path)
    model = ScriptedModel(CLEAN, say("Clean."), CLEAN, say("Again."))
    async with open_runtime(store, a, model) as runtime:
        await runtime.resolve(await suspend(runtime), "approve", scope="session")
        session = await runtime.open(id="s")
        assert (await session.resume().wait()).text == "Clean."
        checkpoint = await session.checkpoint("clean")
    async with open_runtime(store, b, model) as runtime:
        await runtime.move("s")
        await runtime.rewind("s", checkpoint)
        assert await runtime.workspace("s") == workspace_of(b)
        await suspend(runtime)
        with pytest.raises(InvalidInput, match="there is no folder"):
            await runtime.move("s", str(tmp_path / "missing"))
    assert (b / "build").exists()
    found = await store.sessions.find(SessionId("s"))
    assert found is not None
    assert found.folder == str(b)


async def test_an_approval_without_a_bound_session_holds_only_in_its_folder(tmp_path: Path, store: MemoryStore) -> None:
    """Logs of older versions do not record the folder of the session, but their approvals do."""
    a, b = make_folders(tmp_path)
    model = ScriptedModel(CLEAN, say("Clean."))
    async with open_runtime(store, a, model) as runtime:
        approval = await suspend(runtime)
    old = MemoryStore()
    await copy_without_workspace(store, old)
    async with open_runtime(old, b, model) as runtime:
        await runtime.resolve(approval, "approve")
        with pytest.raises(Suspended):
            await (await runtime.open(id="s")).resume().wait()
    assert (b / "build").exists()


async def test_an_approval_of_an_older_version_holds_in_the_folder_where_it_was_requested(
    tmp_path: Path, store: MemoryStore
) -> None:
    a, _ = make_folders(tmp_path)
    model = ScriptedModel(CLEAN, say("Clean."))
    async with open_runtime(store, a, model) as runtime:
        approval = await suspend(runtime)
    old = MemoryStore()
    await copy_without_workspace(store, old)
    async with open_runtime(old, a, model) as runtime:
        await runtime.resolve(approval, "approve")
        assert (await (await runtime.open(id="s")).resume().wait()).text == "Clean."
        assert await runtime.workspace("s") == workspace_of(a)
    assert (a / "cleaned").exists()


async def test_no_command_and_no_turn_runs_in_a_folder_that_has_replaced_that_of_the_runtime(
    tmp_path: Path, store: MemoryStore
) -> None:
    a, _ = make_folders(tmp_path)
    model = ScriptedModel(CLEAN, say("It failed."))

    async def approve_in_another_folder(_: PermissionRequest) -> Literal["allow", "deny", "ask"]:
        a.rename(tmp_path / "old")
        (a / "build").mkdir(parents=True)
        return "allow"

    async with Runtime(
        store=store,
        workspace=Workspace(cwd=str(a)),
        model=model,
        commands=Commands(sandbox="off"),
        permissions=vaka.Permissions(handler=approve_in_another_folder),
    ) as runtime:
        session = await runtime.open(id="s")
        assert (await session.run("Clean.")).text == "It failed."
        for turn in (session.stream("Again."), (await runtime.open(id="new")).stream("Hello.")):
            with pytest.raises(InvalidInput, match="was moved, replaced or removed while this process works in it"):
                await turn.wait()
    [result] = [event.data.result for event in await read_log(store, "s") if isinstance(event.data, ToolFailed)]
    assert "nothing was run" in result.text
    assert [(folder / "build").exists() for folder in (a, tmp_path / "old")] == [True, True]


async def test_files_are_not_restored_in_another_folder(tmp_path: Path, store: MemoryStore) -> None:
    a, b = make_folders(tmp_path)
    for folder in (a, b):
        (folder / "note").write_text("before")
    write = call("Write", file_path="note", content="after")
    model = ScriptedModel(call("Read", file_path="note"), write, say("Written."))
    async with open_runtime(store, a, model, permissions=vaka.Permissions(mode="acceptEdits")) as runtime:
        await (await runtime.open(id="s")).run("Write.")
    assert (a / "note").read_text() == "after"
    (b / "note").write_text("after")
    async with open_runtime(store, b, model) as runtime:
        for work in (runtime.preview_rewind("s", "2"), runtime.rewind("s", "2", files=True)):
            with pytest.raises(InvalidInput, match="belongs to the folder"):
                await work
    assert (b / "note").read_text() == "after"
    async with open_runtime(store, a, model) as runtime:
        await runtime.rewind("s", "2", files=True)
    assert ((a / "note").read_text(), (b / "note").read_text()) == ("before", "after")


async def test_a_folder_whose_name_is_not_utf_8_is_not_recorded(tmp_path: Path, store: MemoryStore) -> None:
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    folder.mkdir()
    async with open_runtime(store, folder, ScriptedModel(say("Hi."))) as runtime:
        assert (await (await runtime.open(id="s")).run("Hi.")).text == "Hi."
        assert await runtime.workspace("s") is None


async def test_an_approval_of_a_command_in_a_runtime_with_its_own_files_does_not_hold_in_another_folder(
    tmp_path: Path, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = make_folders(tmp_path)
    model = ScriptedModel(CLEAN, say("Clean."))
    decisions: list[tuple[str, ...]] = []
    for folder in (a, a, b):
        monkeypatch.chdir(folder)
        options: dict[str, Any] = {
            "workspace": Workspace(files=MemoryFiles()),
            "commands": Commands(sandbox="off"),
            "permissions": vaka.Permissions(ask="suspend"),
        }
        async with Runtime(store=store, model=model, **options) as runtime:
            session = await runtime.open(id="s")
            with pytest.raises(Suspended) as suspended:
                await (session.resume() if decisions else session.stream("Clean.")).wait()
            assert await runtime.workspace("s") is None
        decisions.append(suspended.value.decisions)
    assert decisions[0] == decisions[1] != decisions[2]


async def test_a_folder_of_the_same_name_on_another_machine_is_accepted(tmp_path: Path, store: MemoryStore) -> None:
    model = ScriptedModel(say("Hi."), say("There."))
    async with open_runtime(store, tmp_path, model) as runtime:
        session = await runtime.open(id="s")
        await session.run("Hi.")
        elsewhere = SessionWorkspace(root=str(tmp_path), device=1, inode=1, host="another")
        await write_event(store, session.id, SessionUpdated(workspace=elsewhere), "2030-01-01T00:00:00.000Z")
    async with open_runtime(store, tmp_path, model) as runtime:
        assert (await (await runtime.open(id="s")).run("And now?")).text == "There."
        replaced = SessionWorkspace(root=str(tmp_path), device=1, inode=1, host=socket.gethostname())
        await write_event(store, session.id, SessionUpdated(workspace=replaced), "2030-01-01T00:00:00.000Z")
        with pytest.raises(InvalidInput, match="another folder has that name now"):
            await (await runtime.open(id="s")).run("And now?")


async def copy_without_workspace(source: MemoryStore, target: MemoryStore) -> None:
    """Copy the session ``s`` as a version without the record of folders has written it."""
    bodies = [event.data for event in await read_log(source, "s")]
    assert isinstance(bodies[0], SessionOpened)
    bodies[0] = SessionOpened(agent=bodies[0].agent)
    events = await read_log(source, "s")
    entries = [
        (EventScope(event.turn, event.step, event.path), body) for event, body in zip(events, bodies, strict=True)
    ]
    session = SessionId("s")
    term = await target.events.claim(session)
    sealed = seal_chain(session, None, entries, events[0].ts)
    await target.events.append(session, sealed, head=0, term=term, release=True)


async def test_a_stream_can_begin_with_the_unfinished_turn(tmp_path: Path, store: MemoryStore) -> None:
    model = ScriptedModel(CLEAN, say("Clean."), say("Hello."))
    async with open_runtime(store, tmp_path, model) as runtime:
        await runtime.resolve(await suspend(runtime), "approve")
        session = await runtime.open(id="s")
        async with session.stream("Hi.", earlier=True) as turn:
            events = [event async for event in turn]
    ends = [event.data.text for event in events if isinstance(event.data, TurnCompleted)]
    assert ends == ["Clean.", "Hello."]
    assert [event.data.call.name for event in events if isinstance(event.data, ToolStarted)] == ["Bash"]
    assert (turn.response.text, turn.response.tool_calls) == ("Hello.", ())


async def test_paths_of_the_last_run_move_with_the_session(tmp_path: Path, store: MemoryStore) -> None:
    a, b = make_folders(tmp_path)
    other = f"/mnt{a}/tools.py"
    run = RunSettings(
        agent=f"{a}/x.py:agent", model=f"scripted:{a}/s", tools=(other,), flags={"deny": [f"Read(/{a}/k)"]}
    )
    async with open_runtime(store, a, ScriptedModel(say("Hi."))) as runtime:
        await (await runtime.open(id="s", run_settings=run)).run("Hi.")
        event = await runtime.move("s", str(b))
    assert isinstance(event.data, SessionUpdated)
    assert event.data.run == RunSettings(
        agent=f"{b}/x.py:agent", model=f"scripted:{b}/s", tools=(other,), flags={"deny": [f"Read(/{b}/k)"]}
    )


PAY = call("pay", amount=5)


def make_payer(paid: list[int], *more: str) -> vaka.Agent:
    """Return an agent whose payments need an approval, and whose tools work in no folder unless ``more`` do."""

    @vaka.tool
    async def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return "paid"

    return vaka.Agent("payer", model=ScriptedModel(PAY, say("Paid.")), tools=[pay, *more])


async def suspend_payment(store: MemoryStore, agent: vaka.Agent) -> str:
    """Run in the folder of the process until the payment waits for an approval; return its id."""
    async with Runtime(store=store, permissions=vaka.Permissions(confirm=["pay"], ask="suspend")) as runtime:
        with pytest.raises(Suspended) as suspended:
            await (await runtime.open(agent, id="s")).run("Pay.")
    return suspended.value.decisions[0]


@pytest.mark.parametrize("named", [False, True], ids=["in-another-folder", "with-a-named-folder"])
async def test_an_approval_of_a_session_without_a_folder_holds_in_a_process_of_another_folder(
    tmp_path: Path, store: MemoryStore, monkeypatch: pytest.MonkeyPatch, *, named: bool
) -> None:
    a, b = make_folders(tmp_path)
    paid: list[int] = []
    monkeypatch.chdir(a)
    approval = await suspend_payment(store, make_payer(paid))
    monkeypatch.chdir(b)
    options = {"workspace": Workspace(cwd=str(b))} if named else {}
    async with Runtime(store=store, permissions=vaka.Permissions(confirm=["pay"], ask="suspend"), **options) as runtime:  # type: ignore[arg-type]  # options by name
        with pytest.raises(Suspended) as waiting:
            await (await runtime.open(make_payer(paid), id="s")).resume().wait()
        assert waiting.value.decisions == (approval,), "the request was repeated"
        await runtime.resolve(approval, "approve")
    async with Runtime(store=store, permissions=vaka.Permissions(confirm=["pay"], ask="deny"), **options) as runtime:  # type: ignore[arg-type]  # options by name
        assert (await (await runtime.open(make_payer(paid), id="s")).resume().wait()).text == "Paid."
        assert await runtime.workspace("s") is None
    assert paid == [5]


async def test_an_approval_of_a_bound_session_holds_under_each_name_of_its_folder(
    tmp_path: Path, store: MemoryStore
) -> None:
    a, _ = make_folders(tmp_path)
    link = tmp_path / "link"
    link.symlink_to(a)
    model = ScriptedModel(CLEAN, say("Clean."))
    async with open_runtime(store, link, model) as runtime:
        await runtime.resolve(await suspend(runtime), "approve")
    async with Runtime(
        store=store,
        workspace=Workspace(cwd=str(a)),
        model=model,
        commands=Commands(sandbox="off"),
        permissions=vaka.Permissions(ask="deny"),
    ) as runtime:
        assert (await (await runtime.open(id="s")).resume().wait()).text == "Clean."
    assert (a / "cleaned").read_text().strip() == str(a)


async def test_an_approval_that_is_given_after_a_session_was_moved_holds_in_no_folder(
    tmp_path: Path, store: MemoryStore
) -> None:
    a, b = make_folders(tmp_path)
    model = ScriptedModel(CLEAN, say("Clean."))
    async with open_runtime(store, a, model) as runtime:
        first = await suspend(runtime)
    async with open_runtime(store, b, model) as runtime:
        await runtime.move("s")
        await runtime.resolve(first, "approve", scope="session")
        with pytest.raises(Suspended) as suspended:
            await (await runtime.open(id="s")).resume().wait()
        assert suspended.value.decisions != (first,)
        assert (b / "build").exists()
        await runtime.resolve(suspended.value.decisions[0], "approve")
        assert (await (await runtime.open(id="s")).resume().wait()).text == "Clean."
    assert (b / "cleaned").read_text().strip() == str(b)


async def test_a_session_that_gets_a_folder_later_asks_again_for_what_was_approved_elsewhere(
    tmp_path: Path, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = make_folders(tmp_path)
    paid: list[int] = []
    monkeypatch.chdir(a)
    approval = await suspend_payment(store, make_payer(paid))
    async with Runtime(
        store=store, workspace=Workspace(cwd=str(b)), permissions=vaka.Permissions(confirm=["pay"], ask="suspend")
    ) as runtime:
        await runtime.resolve(approval, "approve")
        with pytest.raises(Suspended):
            await (await runtime.open(make_payer(paid, "Bash"), id="s")).resume().wait()
        assert await runtime.workspace("s") == workspace_of(b)
    assert paid == []
