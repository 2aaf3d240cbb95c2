"""Where file tools and commands of tenants work: in a folder of their own, or not at all."""

import tempfile
from collections.abc import Callable, Generator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.server.conftest import Serve
from vaka.agents.react import Agent
from vaka.config.options import Commands, Permissions, Workspace
from vaka.core.types.errors import ConfigError
from vaka.server.settings import ServerSettings
from vaka.server.workspaces import TenantWorkspaces, WorkspaceSettings, folder_name_of
from vaka.testing import call, say

API = "/api/v1"
Scripted = Callable[..., Agent]
TOOLS = ["Read", "Write", "Glob", "Grep", "Bash"]


@pytest.fixture
def base() -> Generator[Path]:
    """A folder that commands see: unlike ``/tmp``, it is not replaced by an empty one for each of them."""
    with tempfile.TemporaryDirectory(prefix=".vaka-test-", dir=Path.home()) as folder:
        yield Path(folder).resolve()


async def run_turn(client: httpx2.AsyncClient, session: str = "s") -> list[tuple[str, bool, str]]:
    """Return the name, the failure and the text of each tool result of a turn."""
    body = {"input": "Go.", "agent": "assistant"}
    turn = (await client.post(f"{API}/sessions/{session}/turns", json=body, timeout=120)).json()
    assert turn["status"] == "completed", turn
    events = (await client.get(f"{API}/sessions/{session}/events?limit=200")).json()["data"]
    results: list[dict[str, Any]] = [event["data"]["result"] for event in events if "result" in event["data"]]
    return [(each["call"], bool(each.get("failed")), str(each["content"])) for each in results]


async def test_tools_of_a_tenant_work_in_its_own_folder_and_reach_no_other(
    serve: Serve, scripted: Scripted, base: Path
) -> None:
    server, root = base / "server", base / "workspaces"
    for folder in (server, root / "acme"):
        folder.mkdir(parents=True)
    (root / "acme/secret.txt").write_text("canary of acme")
    (server / "vaka.toml").write_text("# canary of the server")
    paths = ("../acme/secret.txt", f"{root}/acme/secret.txt", f"{server}/vaka.toml", f"{server}/vaka.db")
    attacks = [call("Read", file_path=path) for path in paths]
    attacks += [call("Grep", pattern="canary", path=str(base)), call("Glob", pattern=f"{base}/**/*.txt")]
    attacks += [call("Write", file_path=f"{root}/acme/new.txt", content="x")]
    shell = f"cat {' '.join(paths)} ../*/*; ls {root} {server}; find {base} -type f 2>/dev/null; echo done > made"
    agent = scripted(
        call("Write", file_path="own.txt", content="mine"),
        *attacks,
        call("Bash", command=shell),
        call("Read", file_path="made"),
        say("Done."),
        tools=TOOLS,
    )
    settings = ServerSettings(workspaces=WorkspaceSettings(root=str(root)))
    options: dict[str, Any] = {
        "workspace": Workspace(cwd=str(server)),
        "store": f"sqlite:///{server}/vaka.db",
        "permissions": Permissions(mode="bypassPermissions"),
    }
    async with serve([agent], settings=settings, **options) as served, served.client("bob") as bob:
        results = await run_turn(bob)
    assert (root / "other/own.txt").read_text() == "mine"
    assert (root / "other/made").read_text() == "done\n"
    assert "done" in results[-1][2]
    assert "canary" not in str(results)
    assert "SQLite format" not in str(results)
    assert sorted(path.name for path in (root / "acme").iterdir()) == ["secret.txt"]
    assert sorted(path.name for path in root.iterdir()) == ["acme", "other"]
    assert (root / "other").stat().st_mode & 0o777 == 0o700


async def test_tools_of_tenants_are_off_without_a_folder_and_work_for_the_default_tenant(
    serve: Serve, scripted: Scripted, tmp_path: Path
) -> None:
    (tmp_path / "secret.txt").write_text("canary")
    calls = [call("Read", file_path="secret.txt"), call("Bash", command="cat secret.txt")]
    answers = [*calls, say("Done."), *calls, say("Done.")]
    options: dict[str, Any] = {
        "workspace": Workspace(cwd=str(tmp_path)),
        "permissions": Permissions(mode="bypassPermissions", allow=["Bash", "Read"]),
    }
    async with serve([scripted(*answers, tools=TOOLS)], **options) as served, AsyncExitStack() as stack:
        bob, alice = [await stack.enter_async_context(served.client(name)) for name in ("bob", "alice")]
        refused = await run_turn(bob)
        assert [failed for _, failed, _ in refused] == [True, True]
        assert "canary" not in str(refused)
        assert ["canary" in text for _, _, text in await run_turn(alice)] == [True, True]


async def test_commands_of_a_tenant_are_refused_without_a_sandbox(
    serve: Serve, scripted: Scripted, tmp_path: Path
) -> None:
    (tmp_path / "secret.txt").write_text("canary")
    steal, write = call("Bash", command=f"cat {tmp_path}/secret.txt"), call("Write", file_path="own.txt", content="x")
    settings = ServerSettings(workspaces=WorkspaceSettings(root=str(tmp_path / "workspaces")))
    options: dict[str, Any] = {
        "workspace": Workspace(cwd=str(tmp_path)),
        "permissions": Permissions(mode="bypassPermissions"),
        "commands": Commands(sandbox="off"),
    }
    agent = scripted(steal, write, say("Done."), tools=TOOLS)
    async with serve([agent], settings=settings, **options) as served, served.client("bob") as bob:
        [refused, written] = await run_turn(bob)
    assert (refused[1], "canary" in refused[2], written[1]) == (True, False, False)
    assert (tmp_path / "workspaces/other/own.txt").read_text() == "x"


async def test_a_tenant_without_a_folder_cannot_execute_a_file_tool(
    serve: Serve, scripted: Scripted, tmp_path: Path
) -> None:
    (tmp_path / "secret.txt").write_text("canary")
    async with (
        serve([scripted(say("Hi."), tools=TOOLS)], workspace=Workspace(cwd=str(tmp_path))) as served,
        served.client("bob") as bob,
    ):
        for name, arguments in (("Read", {"file_path": "secret.txt"}), ("Bash", {"command": "cat secret.txt"})):
            answer = await bob.post(f"{API}/tools/{name}/execute", json={"arguments": arguments})
            assert "canary" not in answer.text
            assert '"failed"' in answer.text or answer.status_code >= 400


def test_each_tenant_has_a_folder_name_of_its_own() -> None:
    names = ("acme", "Acme", "ACME", "auth0|1", "auth0:1", "a.b", "a.", "..", "../x", "x" * 128, "con.", "_acme")
    folders = [folder_name_of(name) for name in names]
    assert len({folder.lower() for folder in folders}) == len(names)
    assert all("/" not in folder and not folder.startswith(".") and len(folder) < 64 for folder in folders)
    assert folder_name_of("acme") == "acme"


def test_folders_that_cannot_be_kept_apart_are_refused(tmp_path: Path) -> None:
    for name in ("one/inner", "server", "files"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "one")
    server = str(tmp_path / "server")

    def refusal(**settings: Any) -> str:
        with pytest.raises(ConfigError) as refused:
            TenantWorkspaces(WorkspaceSettings(**settings), server).find("b")
        return str(refused.value)

    one, inner = str(tmp_path / "one"), str(tmp_path / "one/inner")
    assert "contains" in refusal(tenants={"a": one, "b": inner})
    assert "contains" in refusal(tenants={"a": one, "b": one})
    assert "the folder of the server" in refusal(tenants={"a": str(tmp_path)})
    assert "is not a folder; create it" in refusal(tenants={"a": str(tmp_path / "none")})
    assert "a folder of the system" in refusal(root="/usr")
    (tmp_path / "files/one").mkdir()
    assert "a tenant named 'one' would work in" in refusal(
        root=str(tmp_path / "files"), tenants={"a": str(tmp_path / "files/one")}
    )
    own = WorkspaceSettings(root=str(tmp_path / "files"), tenants={"one": str(tmp_path / "files/one")})
    assert TenantWorkspaces(own, server).find("one").folder == str(tmp_path / "files/one")
    (tmp_path / "files/b").symlink_to(tmp_path / "one")
    assert "is a link and not a folder" in refusal(root=str(tmp_path / "files"))
    named = TenantWorkspaces(WorkspaceSettings(tenants={"a": one}), server)
    assert (named.find("a").folder, named.find("b").folder) == (one, "")
    assert server in named.find("a").masked
