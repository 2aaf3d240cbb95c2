"""With ``sandboxed=["mcp"]`` stdio servers run in the sandbox of commands."""

import shutil
import socket
from pathlib import Path
from typing import Any

import pytest

import vaka
from tests.runtime.runtime_fixtures import agent, check_log, merge_options, read_log, results_by_call, runtime
from vaka.config.options import Commands, Workspace
from vaka.errors import SandboxError
from vaka.runtime.options import Project
from vaka.stores.memory import MemoryStore
from vaka.testing.models import ScriptedModel, call, calls, say
from vaka.testing.sandboxes import PYTHON

SERVER = Path(__file__).with_name("plain_server.py")


async def call_server(folder: Path, *tool_calls: dict[str, Any], **options: Any) -> list[Any]:
    """Return the results of calls of a server that runs in the sandbox of a workspace."""
    shutil.copy(SERVER, folder)
    server = {"command": PYTHON, "args": ["plain_server.py", "reach"], "env": {"OWN_TOKEN": "own"}}
    store, model = MemoryStore(), ScriptedModel(calls(*tool_calls), say("Done."))
    own = {
        "project": Project(mcp={"p": server}),
        "permissions": vaka.Permissions(allow=["mcp__p"]),
        "workspace": Workspace(cwd=str(folder)),
        "commands": Commands(sandboxed=["mcp"]),
    }
    async with runtime(store, **merge_options(own, options)) as rt:
        session = await rt.open(agent(model), id="s")
        await session.run("Go.")
    log = await read_log(store, "s")
    check_log(log)
    return list(results_by_call(log).values())


async def test_a_server_in_the_sandbox_answers_and_cannot_write_outside_or_use_the_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has the variables of its definition; the hosts of commands are its hosts."""
    monkeypatch.setenv("CANARY_TOKEN", "canary")
    workspace, outside = tmp_path / "workspace", tmp_path / "outside"
    workspace.mkdir()
    outside.mkdir()
    (outside / "file").write_text("as it was")
    files = {"in": str(workspace / "new"), "out": str(outside / "file"), "home": str(Path.home() / "vaka-test-new")}
    with socket.create_server(("127.0.0.1", 0)) as listener:
        reach = call("mcp__p__reach", paths=list(files.values()), port=listener.getsockname()[1])
        long = call("mcp__p__echo", text="x" * 150_000)
        env, echo, reached = await call_server(workspace, call("mcp__p__env"), long, reach)
        (open_network,) = await call_server(workspace, reach, commands=Commands(hosts=["*"]))
    assert env.value["OWN_TOKEN"] == "own"
    assert "CANARY_TOKEN" not in env.value
    assert (echo.failed, echo.content[0].size) == (False, 150_000)
    assert reached.value == {files["in"]: True, files["out"]: False, files["home"]: False, "port": False}
    assert open_network.value["port"] is True
    assert (outside / "file").read_text() == "as it was"
    assert not Path(files["home"]).exists()


async def test_servers_that_must_run_in_a_sandbox_refuse_a_runtime_without_one(tmp_path: Path) -> None:
    server = {"p": {"command": PYTHON, "args": ["server.py"]}}
    with pytest.raises(SandboxError, match="mcp must run in a sandbox"):
        vaka.Runtime(
            store="memory:",
            project=Project(mcp=server),
            commands=Commands(sandboxed=["mcp"], sandbox="off"),
            workspace=Workspace(cwd=str(tmp_path)),
        )
