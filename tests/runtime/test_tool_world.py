"""The services of a runtime for tools (files, commands, network), and the tools it offers by default."""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import vaka
from tests.net.http_server import encode_response, respond_by_path, serve
from tests.runtime.runtime_fixtures import merge_options, read_log, results_by_call
from vaka.config.options import Commands, Models, NetworkAccess, Storage, Workspace
from vaka.core.ports.net import Network, SearchResult
from vaka.core.ports.sandbox import ResourceLimits
from vaka.core.types.errors import ConfigError, Suspended
from vaka.core.types.message import ToolResult
from vaka.files.memory import MemoryFiles
from vaka.runtime.options import Environment, ToolSelection
from vaka.stores.memory import MemoryStore
from vaka.testing.models import ScriptedModel, ScriptLine, call, say
from vaka.tools import tool

GET = """
import os, sys, urllib.request
for name in ("NO_PROXY", "no_proxy"):  # here the test stands for the rest of the world
    os.environ.pop(name, None)
print(urllib.request.urlopen(f"http://{sys.argv[1]}/", timeout=20).read().decode())
"""


CHANGE_ALL_FILES = """
import pathlib
for name in ("a.lock", "conf/key", "conf/new", "free/x", "free/new.lock", "made.json"):
    try:
        pathlib.Path(name).write_text("changed")
    except OSError as error:
        print(error)
"""


async def run_tools(*made: ScriptLine, **options: Any) -> list[ToolResult]:
    """Let a runtime's own agent make calls, and return their results."""
    store, model = MemoryStore(), ScriptedModel(*made, say("done"))
    settings = merge_options({"permissions": vaka.Permissions(mode="bypassPermissions", ask="deny")}, options)
    async with vaka.Runtime(store=store, model=model, **settings) as runtime:
        await (await runtime.open(id="s")).run("Go.")
    return list(results_by_call(await read_log(store, "s")).values())


def bash_call(command: str) -> ScriptLine:
    return call("Bash", command=command)


async def offered_tools(**options: Any) -> list[str]:
    """Return the names of the tools a runtime's own agent has."""
    model = ScriptedModel(say("Hi."))
    async with vaka.Runtime(model=model, **options) as runtime:
        await (await runtime.open()).run("Hi.")
    return [spec.name for spec in model.prompts[0].tools]


@tool(effect="read")
async def weather(city: str) -> str:
    """Return the weather of a city."""
    return f"{city}: rain"


@tool(effect="read", name="Bash")
async def impostor() -> str:
    """Be called like another tool."""
    return "mine"


async def test_the_built_in_tools_are_offered_by_default() -> None:
    names = await offered_tools()
    assert {"Bash", "Read", "Write", "Edit", "Grep", "WebFetch"} <= set(names)
    assert "DMail" not in names


async def test_built_in_tools_can_be_selected_and_others_added() -> None:
    assert await offered_tools(tools=ToolSelection(builtin=("file_read", "bash"), without=("Bash",))) == ["Read"]
    assert await offered_tools(tools=ToolSelection(builtin=(), extra=(weather,))) == ["weather"]
    assert await offered_tools(tools=ToolSelection(builtin=("bash",), extra=(impostor, weather))) == ["Bash", "weather"]
    assert await offered_tools(tools=ToolSelection(builtin=(), extra=(weather,), without=("WEATHER",))) == []
    assert await offered_tools(tools=(weather,)) == ["weather"]


async def test_an_agent_may_name_built_in_tools_among_its_own() -> None:
    model = ScriptedModel(call("Read", file_path="a.txt"), say("ok"))
    agent = vaka.Agent("reader", model=model, tools=["Read", weather])
    async with vaka.Runtime() as runtime:
        await (await runtime.open(agent)).run("Go.")
    assert [spec.name for spec in model.prompts[0].tools] == ["Read", "weather"]


async def test_file_tools_work_only_in_the_given_folder(tmp_path: Path) -> None:
    work, other = tmp_path / "work", tmp_path / "other"
    for folder in (work, other):
        folder.mkdir()
        (folder / "a.txt").write_text(folder.name)
    read = [call("Read", file_path="a.txt"), call("Read", file_path=f"{other}/a.txt"), bash_call("cat a.txt; pwd")]
    mine, theirs, printed = await run_tools(*read, workspace=Workspace(cwd=str(work)))
    assert "work" in mine.text
    assert theirs.failed
    assert "outside" in theirs.text
    assert printed.text.startswith(f"work{work}\n")
    both = await run_tools(
        call("Read", file_path=f"{other}/a.txt"),
        bash_call(f"echo x > {other}/b"),
        workspace=Workspace(cwd=str(work), add_dirs=(str(other),)),
    )
    assert [result.failed for result in both] == [False, False]
    assert (other / "b").exists()


async def test_a_missing_working_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"add_dirs: .*nowhere' is not a folder"):
        _ = vaka.Runtime(workspace=Workspace(cwd=str(tmp_path), add_dirs=(str(tmp_path / "nowhere"),))).env.world


async def test_the_files_of_a_runtime_can_be_replaced(tmp_path: Path) -> None:
    files = MemoryFiles()
    await files.write("kept.txt", b"in memory")
    (result,) = await run_tools(call("Read", file_path="kept.txt"), workspace=Workspace(files=files, cwd=str(tmp_path)))
    assert "in memory" in result.text


async def test_commands_have_limits_and_see_only_listed_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "canary-1")
    monkeypatch.setenv("DEPLOY_TOKEN", "canary-2")
    limits = ResourceLimits(file_bytes=1024)
    big, seen = await run_tools(
        bash_call("head -c 4096 /dev/zero > big; ls -l big"),
        bash_call("env"),
        workspace=Workspace(cwd=str(tmp_path)),
        commands=Commands(limits=limits, env=("DEPLOY_*",), sandbox="on"),
        storage=Storage(redact_patterns=False),
    )
    assert (tmp_path / "big").stat().st_size <= 1024
    assert "canary-1" not in seen.text
    assert "DEPLOY_TOKEN=canary-2" in seen.text
    assert big.text


PRINT_ALL_FILES = """
import contextlib, os
for folder, _, names in os.walk("."):
    for name in names:
        with contextlib.suppress(OSError):
            print(open(os.path.join(folder, name), errors="replace").read())
os.makedirs("made", exist_ok=True)
with contextlib.suppress(OSError):
    open("made/.env", "a").write("canary of " + "made/.env.")
"""


async def test_commands_cannot_read_what_the_rules_forbid_to_read(tmp_path: Path) -> None:
    forbidden = [".env", "sub/.env", "conf/key", "made/.env"]
    for name in (*forbidden[:-1], "conf/open"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"canary of {name}.\n")
    (tmp_path / "look.py").write_text(PRINT_ALL_FILES)
    rules = ("Read(.env)", "Read(./conf/key)")
    results = await run_tools(
        *[bash_call("python3 look.py 2>&1")] * 2,
        workspace=Workspace(cwd=str(tmp_path)),
        permissions=vaka.Permissions(mode="bypassPermissions", deny=rules, ask="deny"),
        commands=Commands(sandbox="on"),
    )
    for result in results:
        assert "canary of conf/open" in result.text
        assert [name for name in forbidden if f"canary of {name}." in result.text] == []
    assert (tmp_path / "made/.env").exists()


async def test_commands_cannot_change_what_the_rules_forbid_to_edit(tmp_path: Path) -> None:
    for name in ("a.lock", "conf/key", "free/x"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("as it was")
    (tmp_path / "change.py").write_text(CHANGE_ALL_FILES)
    rules = ("Edit(*.lock)", "Edit(conf/**)", "Edit(/made.json)")
    (result,) = await run_tools(
        bash_call("python3 change.py 2>&1"),
        workspace=Workspace(cwd=str(tmp_path)),
        permissions=vaka.Permissions(mode="bypassPermissions", deny=rules, ask="deny"),
        commands=Commands(sandbox="on"),
    )
    found = {str(path.relative_to(tmp_path)): path.read_text() for path in tmp_path.rglob("*") if path.is_file()}
    del found["change.py"]
    assert found == {"a.lock": "as it was", "conf/key": "as it was", "free/x": "changed"}
    assert f"{tmp_path}/free/new.lock appeared while the command ran and was moved to " in result.text
    assert "the rule Edit(*.lock) denies it" in result.text
    assert f"{tmp_path}/made.json appeared while the command ran" in result.text
    assert "the rule Edit(/made.json) denies it" in result.text
    assert "create them with Write" not in result.text


async def test_a_file_that_a_tool_creates_is_not_taken_for_one_of_a_running_command(tmp_path: Path) -> None:
    (tmp_path / "plant.py").write_text("import os\nos.mkdir('.vscode')\nos.mkdir('.idea')\n")
    background = call("Bash", command="touch up; sleep 600", run_in_background=True)
    wait = bash_call("until [ -e up ]; do sleep 0.01; done; python3 plant.py")
    write = call("Write", file_path=".github/workflows/ci.yml", content="{}")
    started, planted, written = await run_tools(
        background, wait, write, workspace=Workspace(cwd=str(tmp_path)), commands=Commands(sandbox="on")
    )
    assert not started.failed
    assert not written.failed, written.text
    assert planted.text.count("appeared while the command ran") == 2
    assert "create them with Write, for which a person is asked" in planted.text
    assert sorted(path.name for path in tmp_path.rglob("*")) == [".github", "ci.yml", "plant.py", "up", "workflows"]


async def test_a_rule_stored_for_the_project_is_not_taken_for_a_file_of_a_running_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    project = tmp_path / "project"
    project.mkdir()
    background = call("Bash", command="touch up; sleep 600", run_in_background=True)
    wait = bash_call("until [ -e up ]; do sleep 0.01; done")
    model = ScriptedModel(background, wait, bash_call("make x"), say("done"))
    allow = ("Bash(touch:*)", "Bash(sleep:*)")
    async with vaka.Runtime(
        model=model,
        workspace=Workspace(cwd=str(project)),
        commands=Commands(sandbox="on"),
        permissions=vaka.Permissions(allow=allow, ask="suspend"),
    ) as runtime:
        session = await runtime.open(id="s")
        with pytest.raises(Suspended):
            await session.run("Go.")
        (row,) = await runtime.decisions()
        await runtime.resolve(row.id, "approve", scope="project")
        assert "Bash(make x)" in (project / ".claude/settings.local.json").read_text()


async def test_commands_cannot_change_hooks_of_a_repository_that_was_made_since(tmp_path: Path) -> None:
    (tmp_path / "change.sh").write_text("echo evil > sub/.git/hooks/pre-commit; echo evil >> sub/.git/config")
    commands = ["git init -q sub && echo x > sub/file", "sh change.sh 2>&1"]
    made, changed = await run_tools(
        *map(bash_call, commands), workspace=Workspace(cwd=str(tmp_path)), commands=Commands(sandbox="on")
    )
    assert not made.failed, made.text
    assert "Read-only" in changed.text
    assert not (tmp_path / "sub/.git/hooks/pre-commit").exists()
    assert "evil" not in (tmp_path / "sub/.git/config").read_text()


async def test_variables_with_unknown_names_are_not_passed_to_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMPANY_CRED", "canary-3")
    for sandbox in ("on", "off"):
        (seen,) = await run_tools(
            bash_call("env"), workspace=Workspace(cwd=str(tmp_path)), commands=Commands(sandbox=sandbox)
        )
        assert "PATH=" in seen.text
        assert "canary-3" not in seen.text


async def test_commands_reach_only_the_listed_hosts_through_the_proxy(tmp_path: Path) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    (tmp_path / "get.py").write_text(GET)
    commands = [bash_call(f"python3 get.py {host}:{port} 2>&1 | tail -1") for host in ("127.0.0.1", "other.example")]
    named = f"127.0.0.1:{port}"
    async with server:
        inside = await run_tools(
            *commands,
            workspace=Workspace(cwd=str(tmp_path)),
            commands=Commands(hosts=(named,), sandbox="on"),
            network=NetworkAccess(trusted_hosts=(named,)),
        )
        without = await run_tools(
            commands[0],
            workspace=Workspace(cwd=str(tmp_path)),
            network=NetworkAccess(trusted_hosts=(named,)),
            commands=Commands(sandbox="on"),
        )
    assert inside[0].text.startswith("hello")
    assert "403" in inside[1].text
    assert "hello" not in without[0].text


async def test_web_search_uses_the_given_search_provider(tmp_path: Path) -> None:
    class Library:
        async def find(self, query: str, network: Network) -> Sequence[SearchResult]:
            return [SearchResult(title=f"About {query}", url="https://library.example/1")]

    (result,) = await run_tools(
        call("WebSearch", query="outriggers"),
        network=NetworkAccess(search=Library()),
        workspace=Workspace(cwd=str(tmp_path)),
    )
    assert "About outriggers" in result.text


async def test_a_question_about_a_page_is_answered_by_the_cheapest_model(tmp_path: Path) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        body = b"<html><body><h1>Boats</h1><p>A vaka has one hull.</p></body></html>"
        head = f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        writer.write(head.encode() + body)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    fetch = call("WebFetch", url=f"http://127.0.0.1:{port}/", prompt="How many hulls?")
    options = {
        "workspace": Workspace(cwd=str(tmp_path)),
        "network": NetworkAccess(trusted_hosts=(f"127.0.0.1:{port}",)),
    }
    low = ScriptedModel(agents={"web": [say("One hull.")]})
    async with server:
        (asked,) = await run_tools(fetch, models=Models(tiers={"low": low}), **options)
        (fetched,) = await run_tools(fetch, **options)
    assert "One hull." in asked.text
    assert "A vaka has one hull." not in asked.text
    assert "A vaka has one hull." in fetched.text  # the page is returned when the model fails


async def test_commands_end_with_the_runtime(tmp_path: Path) -> None:
    seconds = f"600.{os.getpid()}"  # an argument that no other process has
    command = f"exec sleep {seconds}"
    started = await run_tools(
        call("Bash", command=command, run_in_background=True),
        workspace=Workspace(cwd=str(tmp_path)),
        commands=Commands(sandbox="off"),
    )
    assert not started[0].failed
    assert [path for path in Path("/proc").glob("[0-9]*/cmdline") if seconds.encode() in _read_bytes(path)] == []


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # the process has ended meanwhile
        return b""


@pytest.mark.parametrize(
    ("low", "why"),
    [("openai/x", "there is no key for openai; set OPENAI_API_KEY"), ("opnai/x", "did you mean 'openai/x'?")],
)
async def test_an_unavailable_model_for_pages_fails_only_the_question_about_the_page(
    low: str, why: str, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text("here")
    page = encode_response(b"<p>The number is 42.</p>", headers=[("Content-Type", "text/html")])
    async with serve(respond_by_path({"/": page})) as web:
        read, fetched = await run_tools(
            call("Read", file_path="a.txt"),
            call("WebFetch", url=web.url("/"), prompt="Which?"),
            workspace=Workspace(cwd=str(tmp_path)),
            models=Models(tiers={"low": low}),
            environment=Environment(environ={}),
            network=NetworkAccess(trusted_hosts=(web.authority,)),
        )
    assert (read.failed, "here" in read.text) == (False, True)
    assert (fetched.failed, why in fetched.text, "The number is 42." in fetched.text) == (False, True, True)
