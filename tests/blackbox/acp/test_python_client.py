"""``vaka acp`` and the protocol's own Python client, which starts it as an editor does."""

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cli.shell import TIMEOUT, Shell, call_line, measure_once, say_line

acp = pytest.importorskip("acp")
COMMAND = ("acp", "--agent", "agent.py", "--model", "scripted:script.jsonl")
SERVER = Path(__file__).parents[2] / "mcp" / "plain_server.py"


class Editor:
    """Keeps the updates, and answers every request for permission with ``choice``."""

    def __init__(self) -> None:
        self.updates: list[Any] = []
        self.choice = "approve"
        self.asked: asyncio.Queue[Any] = asyncio.Queue()
        self.running = asyncio.Event()

    async def session_update(self, session_id: str, update: Any, **more: Any) -> None:
        self.updates.append(update)
        if getattr(update, "status", "") == "in_progress":
            self.running.set()

    async def request_permission(self, session_id: str, tool_call: Any, options: Any, **more: Any) -> Any:
        self.asked.put_nowait((tool_call, [option.option_id for option in options]))
        outcome = acp.schema.AllowedOutcome(outcome="selected", option_id=self.choice)
        return acp.RequestPermissionResponse(outcome=outcome)

    async def create_elicitation(self, message: str, mode: Any, **more: Any) -> Any:
        self.asked.put_nowait((message, mode))
        return acp.schema.AcceptElicitationResponse(action="accept", content={"answer": "blue"})

    def texts(self, kind: str = "agent_message_chunk") -> str:
        return "".join(update.content.text for update in self.updates if update.session_update == kind)


@asynccontextmanager
async def start_agent(
    shell: Shell, *words: str, command: tuple[str, ...] = COMMAND
) -> AsyncGenerator[tuple[Editor, Any]]:
    editor, command = Editor(), (*command, *words)
    env = measure_once(shell.env, command)
    async with acp.spawn_agent_process(
        editor,
        sys.executable,
        "-m",
        "vaka",
        *command,
        env=env,
        cwd=shell.folder,
        transport_kwargs={"stderr": None},
        use_unstable_protocol=True,
    ) as (agent, process):
        yield editor, agent
    assert await asyncio.wait_for(process.wait(), TIMEOUT) == 0


def text(prompt: str) -> list[Any]:
    return [acp.text_block(prompt)]


async def test_an_editor_prompts_approves_cancels_and_loads_a_session(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    shell.write_script(
        call_line("add", a=1, b=2),
        say_line("Three."),
        call_line("pay", amount=5),
        say_line("Paid."),
        call_line("hang"),
        say_line("Back again."),
    )
    shell.write_file("noise.py", "print('printed by a module')\n")
    shell.write_file("agent.py", "import noise\n" + (shell.folder / "agent.py").read_text())
    async with start_agent(shell) as (editor, agent):
        hello = await agent.initialize(protocol_version=acp.PROTOCOL_VERSION)
        assert (hello.protocol_version, hello.agent_info.name) == (1, "vaka")
        session = (await agent.new_session(cwd=str(tmp_path), mcp_servers=[])).session_id
        assert (await agent.prompt(session_id=session, prompt=text("Add."))).stop_reason == "end_turn"
        assert editor.texts() == "Three."
        assert [update.status for update in editor.updates if update.session_update == "tool_call_update"] == [
            "in_progress",
            "completed",
        ]
        assert (await agent.prompt(session_id=session, prompt=text("Pay."))).stop_reason == "end_turn"
        call, options = editor.asked.get_nowait()
        assert (call.raw_input, options) == ({"amount": 5}, ["approve", "approve_session", "reject"])
        assert (tmp_path / "ledger").read_text() == "5\n"
        editor.running.clear()
        turn = asyncio.ensure_future(agent.prompt(session_id=session, prompt=text("Hang.")))
        await editor.running.wait()
        await agent.cancel(session_id=session)
        assert (await turn).stop_reason == "cancelled"
    async with start_agent(shell) as (editor, agent):
        await agent.initialize(protocol_version=acp.PROTOCOL_VERSION)
        (row,) = (await agent.list_sessions(cwd=str(tmp_path))).sessions
        assert (row.session_id, row.cwd) == (session, str(tmp_path))
        await agent.load_session(cwd=str(tmp_path), session_id=session, mcp_servers=[])
        assert editor.texts("user_message_chunk") == "Add.Pay.Hang."
        assert editor.texts() == "Three.Paid."
        assert (await agent.prompt(session_id=session, prompt=text("Again."))).stop_reason == "end_turn"
        assert editor.texts() == "Three.Paid.Back again."


async def test_an_editor_compacts_a_conversation(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    summary = {"agent": "summary", "text": "<summary>Sums.</summary>"}
    shell.write_script(say_line("One. " * 400), say_line("Two. " * 400), summary)
    async with start_agent(shell) as (editor, agent):
        await agent.initialize(protocol_version=acp.PROTOCOL_VERSION)
        session = (await agent.new_session(cwd=str(tmp_path), mcp_servers=[])).session_id
        for prompt in ("First.", "Second."):
            await agent.prompt(session_id=session, prompt=text(prompt))
        [offered] = [update for update in editor.updates if update.session_update == "available_commands_update"]
        command = offered.available_commands[0]
        assert (command.name, command.input.root.hint) == ("compact", "what the summary is to keep")
        editor.updates.clear()
        done = await agent.prompt(session_id=session, prompt=text("/compact Keep the sums."))
        assert done.stop_reason == "end_turn"
        assert editor.texts().startswith("Older messages summarized (")
    exported = shell.vaka("sessions", "export", session, "--format", "jsonl").out
    assert '"instructions":"Keep the sums."' in exported


async def test_each_session_has_the_settings_and_servers_of_its_own_folder(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    shell.write_script(call_line("pay", amount=5), call_line("mcp__plain__echo", text="hello"), say_line("Done."))
    shell.write_file("strict/vaka.toml", 'deny = ["pay"]\n')
    shell.write_file("strict/.git/HEAD", "")
    shell.write_file("free/.git/HEAD", "")
    server = acp.schema.McpServerStdio(name="plain", command=sys.executable, args=[str(SERVER)], env=[])
    async with start_agent(shell, "--allow", "mcp__plain__echo", "--store", "sqlite:///own.db") as (editor, agent):
        await agent.initialize(protocol_version=acp.PROTOCOL_VERSION)
        strict = (await agent.new_session(cwd=f"{tmp_path}/strict", mcp_servers=[])).session_id
        free = (await agent.new_session(cwd=f"{tmp_path}/free", mcp_servers=[server])).session_id
        await agent.prompt(session_id=strict, prompt=text("Go."))
        assert editor.asked.empty()
        assert [update.status for update in editor.updates if update.session_update == "tool_call_update"] == [
            "failed"
        ] * 2
        editor.updates.clear()
        await agent.prompt(session_id=free, prompt=text("Go."))
        assert not editor.asked.empty()
        results = [update for update in editor.updates if getattr(update, "status", "") == "completed"]
        assert [result.content[0].content.text for result in results] == ["paid 5", "hello"]
        with pytest.raises(acp.RequestError, match="there is no folder"):
            await agent.new_session(cwd=f"{tmp_path}/none", mcp_servers=[])
        unusable = acp.schema.McpServerStdio(name="unset", command="${NO_SUCH}", args=[], env=[])
        with pytest.raises(acp.RequestError, match=r"mcpServers: unset: .*NO_SUCH"):
            await agent.new_session(cwd=f"{tmp_path}/free", mcp_servers=[unusable])
        assert {row.session_id for row in (await agent.list_sessions()).sessions} == {strict, free}
        chosen = await agent.set_session_mode(session_id=free, mode_id="plan")
        assert chosen is not None
    assert (tmp_path / "own.db").exists()


async def test_a_rule_is_stored_in_the_folder_of_the_session_and_a_question_is_a_form(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    shell.write_script(call_line("Write", file_path="a.txt", content="A"), call_line("colour"), say_line("Written."))
    shell.write_file("project/.git/HEAD", "")
    command = ("acp", "--tools", "agent.py", "--builtin-tools", "all", "--model", "scripted:script.jsonl")
    async with start_agent(shell, command=command) as (editor, agent):
        forms = acp.schema.ElicitationCapabilities(form=acp.schema.ElicitationFormCapabilities())
        await agent.initialize(protocol_version=1, client_capabilities=acp.schema.ClientCapabilities(elicitation=forms))
        session = (await agent.new_session(cwd=f"{tmp_path}/project", mcp_servers=[])).session_id
        editor.choice = "approve_project"
        assert (await agent.prompt(session_id=session, prompt=text("Write."))).stop_reason == "end_turn"
        call, options = editor.asked.get_nowait()
        assert options == ["approve", "approve_session", "approve_project", "approve_user", "reject"]
        assert call.locations[0].path == f"{tmp_path}/project/a.txt"
        message, form = editor.asked.get_nowait()
        assert (message, form.requested_schema.properties["choice"].enum) == ("Which colour?", ["red", "blue"])
        results = [update.content[-1] for update in editor.updates if getattr(update, "status", "") == "completed"]
        assert results[-1].content.text == "colour blue"
    assert (tmp_path / "project" / "a.txt").read_text() == "A"
    assert [path.relative_to(tmp_path) for path in tmp_path.rglob("settings*.json")] == [
        Path("project/.claude/settings.local.json")
    ]


def test_without_a_client_the_command_ends_or_says_what_it_needs(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    ended = shell.vaka("acp")
    assert (ended.code, ended.out, ended.err) == (0, "", "")
    closed = shell.bash("python -m vaka acp <&-")
    assert (closed.code, closed.out) == (2, "")
    assert "vaka acp reads messages from stdin, which is closed" in closed.err
    screen = shell.terminal("acp")
    screen.expect("an editor starts this command and writes to its stdin")
    screen.send_line("no JSON")
    screen.expect('"code":-32700')
    screen.send_line("\x04")
    assert screen.wait_exit() == 0
