"""The Agent Client Protocol, served to a client in the same process: every line goes through the server's framing."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

import vaka
from tests.server.acp_client import AcpClient, GivenWorkspaces, RpcError, connect
from vaka.config.options import Models
from vaka.core.ports.store import SessionQuery
from vaka.core.types.control import ApprovalResolved
from vaka.core.types.ids import SessionId
from vaka.core.types.message import UserMessage, text_of
from vaka.server.acp.server import AcpServer
from vaka.stores.memory import MemoryStore
from vaka.testing import FunctionModel, ScriptedModel, call, fail, say
from vaka.tools import ClientTool, ToolTraits


@vaka.tool
def pay(amount: int) -> str:
    """Pay an amount."""
    return f"paid {amount}"


@vaka.tool(effect="read")
async def hang() -> str:
    """Wait for ever."""
    await asyncio.Event().wait()
    return ""


@vaka.tool(effect="read")
async def colour(context: vaka.ToolContext[Any]) -> str:
    """Ask for a colour."""
    return f"colour {await context.ask('Which colour?', options=['red', 'blue'])}"


@vaka.tool(effect="read")
async def name(context: vaka.ToolContext[Any]) -> str:
    """Ask for a name."""
    return f"name {await context.ask('Which name?')}"


ENDED = ("completed", "failed")


def agent_of(*script: Any) -> vaka.Agent[Any]:
    return vaka.Agent("payer", model=ScriptedModel(*script), tools=[pay, hang, colour, name])


async def obey(prompt: Any) -> Any:
    """Answer "Hang." and "Pay." with these calls, everything else with a text."""
    last = prompt.messages[-1]
    asked = text_of(last.content).strip() if isinstance(last, UserMessage) else ""
    return {"Hang.": call("hang"), "Pay.": call("pay", amount=1)}.get(asked, say(f"Done: {asked}"))


def obedient_agent() -> vaka.Agent[Any]:
    return vaka.Agent("payer", model=FunctionModel(obey), tools=[pay, hang])


def selected(option: str) -> dict[str, Any]:
    return {"outcome": {"outcome": "selected", "optionId": option}}


async def test_a_prompt_streams_its_turn_and_ends_with_a_stop_reason(tmp_path: Path) -> None:
    workspaces = GivenWorkspaces(agent_of(say("Hello, world."), say("Again.")))
    async with connect(workspaces, tmp_path) as client:
        session = await client.open()
        result = await client.prompt(session, "Hi.")
        assert result["stopReason"] == "end_turn"
        assert result["usage"]["totalTokens"] > 0
        texts = [line for line in client.outline(session) if line.startswith("agent_message_chunk")]
        assert "".join(line.removeprefix("agent_message_chunk ") for line in texts).replace(" ", "") == "Hello,world."
        assert (await client.prompt(session, "And?"))["stopReason"] == "end_turn"


async def test_what_the_server_says_about_itself(tmp_path: Path) -> None:
    async with connect(GivenWorkspaces(agent_of()), tmp_path) as client:
        result = await client.request("initialize", protocolVersion=7)
        assert result["protocolVersion"] == 1
        assert result["agentInfo"] == {"name": "vaka", "title": "vaka", "version": vaka.__version__}
        capabilities = result["agentCapabilities"]
        assert capabilities["loadSession"] is True
        assert set(capabilities["sessionCapabilities"]) == {
            "list",
            "delete",
            "additionalDirectories",
            "fork",
            "resume",
            "close",
        }
        assert result["authMethods"] == []
        with pytest.raises(RpcError, match="`vaka login PROVIDER` stores the key"):
            await client.request("authenticate", methodId="x")


async def test_the_client_approves_once_for_the_session_or_rejects(tmp_path: Path) -> None:
    script = [call("pay", amount=1), call("pay", amount=2), say("Paid."), call("pay", amount=3), say("Not paid.")]
    workspaces = GivenWorkspaces(agent_of(*script), permissions=vaka.Permissions(confirm=["pay"]))
    async with connect(workspaces, tmp_path) as client:
        session = await client.open()
        turn = client.prompt(session, "Pay 1.")
        asked = await client.asked.get()
        assert asked["method"] == "session/request_permission"
        params = asked["params"]
        assert (params["sessionId"], params["toolCall"]["rawInput"]) == (session, {"amount": 1})
        kinds = {option["optionId"]: option["kind"] for option in params["options"]}
        assert kinds["approve"] == "allow_once"
        assert kinds["reject"] == "reject_once"
        client.respond(asked, selected("reject"))
        assert (await turn)["stopReason"] == "cancelled"  # a rejection without a reason stops the turn
        assert "tool_call_update failed" in client.outline(session)

        client.answer = lambda params: selected("approve")
        client.updates.clear()
        await client.prompt(session, "Pay 2.")
        assert "tool_call_update completed" in client.outline(session)

        client.answer = lambda params: selected("unknown")
        client.updates.clear()
        await client.prompt(session, "Pay 3.")
        assert "tool_call_update failed" in client.outline(session)
        stored = [event.data async for event in workspaces.store.events.read(SessionId(session))]
    resolved = [body for body in stored if isinstance(body, ApprovalResolved)]
    assert [(body.decision, body.by) for body in resolved] == [
        (kind, "test") for kind in ("reject", "approve", "reject")
    ]
    assert "'unknown' is not an option" in resolved[-1].message


@vaka.tool(traits=ToolTraits(writes=True, paths=("name",), content="text"))
def save_note(name: str, text: str) -> str:
    """Save a note."""
    return "saved"


async def test_the_client_reads_the_file_and_the_change_of_a_tool_that_declares_them(tmp_path: Path) -> None:
    model = ScriptedModel(call("save_note", name="a.md", text="Hi."), say("Saved."))
    workspaces = GivenWorkspaces(
        vaka.Agent("writer", model=model, tools=[save_note]), permissions=vaka.Permissions(confirm=["save_note"])
    )
    async with connect(workspaces, tmp_path) as client:
        session = await client.open()
        turn = client.prompt(session, "Save it.")
        asked = await client.asked.get()
        client.respond(asked, selected("approve"))
        await turn
        shown = next(one for one in client.updates if one["update"]["sessionUpdate"] == "tool_call")["update"]
    path = str(tmp_path / "a.md")
    for described in (asked["params"]["toolCall"], shown):
        assert (described["title"], described["kind"]) == ("save_note a.md", "edit")
        assert described["locations"] == [{"path": path}]
        assert described["content"][-1] == {"type": "diff", "path": path, "oldText": None, "newText": "Hi."}


async def test_a_rule_for_the_session_is_asked_for_once(tmp_path: Path) -> None:
    script = [call("pay", amount=1), say("Paid."), call("pay", amount=1), say("Paid again.")]
    async with connect(
        GivenWorkspaces(agent_of(*script), permissions=vaka.Permissions(confirm=["pay"])), tmp_path
    ) as client:
        session = await client.open()
        turn = client.prompt(session, "Pay.")
        asked = await client.asked.get()
        (always,) = (option for option in asked["params"]["options"] if option["optionId"] == "approve_session")
        assert always["kind"] == "allow_always"
        assert "pay" in always["name"]
        client.respond(asked, selected("approve_session"))
        assert (await turn)["stopReason"] == "end_turn"
        assert (await client.prompt(session, "Pay."))["stopReason"] == "end_turn"
        assert client.asked.empty()


async def test_questions_are_options_or_forms_and_else_have_no_answer(tmp_path: Path) -> None:
    script = [call("colour"), call("name"), say("Done.")]
    async with connect(GivenWorkspaces(agent_of(*script)), tmp_path) as client:
        session = await client.open()
        turn = client.prompt(session, "Paint.")
        asked = await client.asked.get()
        assert [option["name"] for option in asked["params"]["options"]] == ["red", "blue"]
        client.respond(asked, selected("2"))
        assert (await turn)["stopReason"] == "end_turn"
        results = [params["update"] for params in client.updates if params["update"].get("status") == "completed"]
        assert [result["content"][0]["content"]["text"] for result in results] == ["colour blue", "name None"]
    async with connect(GivenWorkspaces(agent_of(*script)), tmp_path, elicitation={"form": {}}) as client:
        session = await client.open()
        client.answer = lambda params: {"action": "accept", "content": {"answer": "red"}}
        assert (await client.prompt(session, "Paint."))["stopReason"] == "end_turn"
        results = [params["update"] for params in client.updates if params["update"].get("status") == "completed"]
        assert [result["content"][0]["content"]["text"] for result in results] == ["colour red", "name red"]


async def test_a_cancelled_turn_ends_with_its_stop_reason_also_while_a_permission_is_open(tmp_path: Path) -> None:
    script = [call("hang"), say("New."), call("pay", amount=1), say("Newer."), call("pay", amount=2), say("Newest.")]
    async with connect(
        GivenWorkspaces(agent_of(*script), permissions=vaka.Permissions(confirm=["pay"])), tmp_path
    ) as client:
        session = await client.open()
        turn, next_turn = client.prompt(session, "Hang."), client.prompt(session, "Never read.")
        await client.until("tool_call_update", session)
        client.notify("session/cancel", sessionId=session)
        assert await turn == {"stopReason": "cancelled", "usage": (await turn)["usage"]}
        assert await next_turn == {"stopReason": "cancelled"}
        assert (await client.prompt(session, "Go on."))["stopReason"] == "end_turn"

        turn = client.prompt(session, "Pay.")
        asked = await client.asked.get()
        client.notify("session/cancel", sessionId=session)
        client.respond(asked, {"outcome": {"outcome": "cancelled"}})
        assert (await turn)["stopReason"] == "cancelled"
        assert (await client.prompt(session, "Go on."))["stopReason"] == "end_turn"

        turn = client.prompt(session, "Pay.")
        client.respond(await client.asked.get(), {"outcome": {"outcome": "cancelled"}})
        assert (await turn)["stopReason"] == "cancelled"
        turn = client.prompt(session, "Last.")
        client.notify("session/cancel", sessionId=session)
        assert (await turn)["stopReason"] == "cancelled"


async def test_several_sessions_run_at_the_same_time_in_their_own_folders(tmp_path: Path) -> None:
    workspaces = GivenWorkspaces(obedient_agent(), permissions=vaka.Permissions(confirm=["pay"]))
    (tmp_path / "other").mkdir()
    async with connect(workspaces, tmp_path) as client:
        first = await client.open()
        second = await client.open(cwd=f"{tmp_path}/other", additionalDirectories=[str(tmp_path)])
        turns = [client.prompt(first, "Pay."), client.prompt(second, "Pay.")]
        asked = [await client.asked.get(), await client.asked.get()]
        assert {request["params"]["sessionId"] for request in asked} == {first, second}
        for request in asked:
            client.respond(request, selected("approve"))
        assert [(await turn)["stopReason"] for turn in turns] == ["end_turn", "end_turn"]
        rows = (await client.request("session/list"))["sessions"]
        assert {row["sessionId"]: row["cwd"] for row in rows} == {first: str(tmp_path), second: f"{tmp_path}/other"}
        below = (await client.request("session/list", cwd=str(tmp_path)))["sessions"]
        assert [row["sessionId"] for row in below] == [first]
    assert [place.directories for place in workspaces.opened] == [(), (str(tmp_path),)]


async def test_a_stored_session_is_replayed_resumed_forked_and_deleted(tmp_path: Path) -> None:
    store = MemoryStore()
    script = [call("pay", amount=1), say("Paid."), say("More."), say("Other.")]
    workspaces = GivenWorkspaces(agent_of(*script), store, permissions=vaka.Permissions(allow=["pay"]))
    async with connect(workspaces, tmp_path) as client:
        session = await client.open()
        await client.prompt(session, "Pay 1.")
        seen = client.outline(session)
    async with connect(workspaces, tmp_path) as client:
        with pytest.raises(RpcError, match="is not open; open it with session/load"):
            await client.prompt(session, "More?")
        result = await client.request("session/load", sessionId=session, cwd=client.folder, mcpServers=[])
        assert result["modes"]["currentModeId"] == "default"
        replayed = [line for line in client.outline(session) if line.startswith("tool_call")]
        assert replayed == [line for line in seen if line.startswith("tool_call")]
        assert "user_message_chunk Pay 1." in client.outline(session)
        client.updates.clear()
        await client.request("session/resume", sessionId=session, cwd=client.folder)
        assert set(client.outline(session)) <= {"available_commands_update"}
        assert (await client.prompt(session, "More?"))["stopReason"] == "end_turn"
        forked = (await client.request("session/fork", sessionId=session, cwd=client.folder))["sessionId"]
        assert forked != session
        assert (await client.prompt(forked, "Otherwise?"))["stopReason"] == "end_turn"
        await client.request("session/close", sessionId=session)
        await client.request("session/delete", sessionId=session)
        await client.request("session/delete", sessionId=session)
        rows = (await client.request("session/list"))["sessions"]
        assert [row["sessionId"] for row in rows] == [forked]
        for method in ("session/load", "session/fork"):
            with pytest.raises(RpcError, match="there is no session") as missing:
                await client.request(method, sessionId=session, cwd=client.folder)
            assert missing.value.code == -32002


async def test_a_session_is_opened_only_in_its_folder_and_by_its_agent(tmp_path: Path) -> None:
    store = MemoryStore()
    (tmp_path / "other").mkdir()
    async with connect(GivenWorkspaces(agent_of(say("Hello.")), store), tmp_path) as client:
        session = await client.open()
        await client.prompt(session, "Hi.")
        with pytest.raises(RpcError, match="belongs to the folder"):
            await client.request("session/load", sessionId=session, cwd=f"{tmp_path}/other", mcpServers=[])
    async with connect(GivenWorkspaces(vaka.Agent("other", model=ScriptedModel()), store), tmp_path) as client:
        with pytest.raises(RpcError, match="belongs to agent 'payer', not to 'other'"):
            await client.request("session/resume", sessionId=session, cwd=client.folder)


async def test_modes_models_and_commands_are_offered_and_chosen(tmp_path: Path) -> None:
    other = ScriptedModel(say("From the other."))
    workspaces = GivenWorkspaces(agent_of(say("Never."), say("From its own.")), models=Models(tiers={"low": other}))
    workspaces.models, workspaces.commands = ("own", "low"), {"review": "Reviews a change."}
    async with connect(workspaces, tmp_path) as client:
        result = await client.request("session/new", cwd=client.folder, mcpServers=[])
        session = result["sessionId"]
        assert [option["id"] for option in result["configOptions"]] == ["mode", "model"]
        commands = await client.until("available_commands_update")
        assert {"name": "review", "description": "Reviews a change."} in commands["availableCommands"]
        assert await client.request("session/set_mode", sessionId=session, modeId="plan") == {}
        assert (await client.until("config_option_update"))["configOptions"][0]["currentValue"] == "plan"
        chosen = await client.request("session/set_config_option", sessionId=session, configId="mode", value="default")
        assert chosen["configOptions"][0]["currentValue"] == "default"
        assert (await client.until("current_mode_update"))["currentModeId"] == "default"
        chosen = await client.request("session/set_config_option", sessionId=session, configId="model", value="low")
        assert chosen["configOptions"][1]["currentValue"] == "low"
        await client.prompt(session, "Hi.")
        assert "agent_message_chunk other." in client.outline(session)
        await client.request("session/set_config_option", sessionId=session, configId="model", value="own")
        await client.prompt(session, "Hi.")
        assert "agent_message_chunk own." in client.outline(session)
        for config, value, problem in (
            ("mode", "fast", "there is no mode 'fast'"),
            ("mode", "bypassPermissions", "the settings do not allow the mode"),
            ("model", "huge", "the option 'model' has no value 'huge'; there are own, low"),
            ("speed", "1", "there is no option 'speed'; there are mode, model"),
        ):
            with pytest.raises(RpcError, match=problem):
                await client.request("session/set_config_option", sessionId=session, configId=config, value=value)


async def test_the_client_leaves_a_running_turn_interrupted_and_a_waiting_one_open(tmp_path: Path) -> None:
    store = MemoryStore()
    workspaces = GivenWorkspaces(obedient_agent(), store, permissions=vaka.Permissions(confirm=["pay"]))
    async with connect(workspaces, tmp_path) as client:
        hanging, waiting = await client.open(), await client.open()
        turns = [client.prompt(hanging, "Hang.")]
        await client.until("tool_call_update", hanging)
        turns.append(client.prompt(waiting, "Pay."))
        await client.asked.get()
    assert not any(turn.done() for turn in turns)
    rows = {info.id: info.status for info in (await store.sessions.list(SessionQuery())).sessions}
    assert rows == {hanging: "idle", waiting: "waiting"}
    async with connect(workspaces, tmp_path) as client:
        await client.request("session/load", sessionId=waiting, cwd=client.folder, mcpServers=[])
        client.answer = lambda params: selected("approve")
        assert (await client.prompt(waiting, "And more?"))["stopReason"] == "end_turn"
        assert "tool_call_update completed" in client.outline(waiting)
        assert client.outline(waiting)[-1] == "agent_message_chunk more?"


async def test_a_client_that_does_not_read_any_more_ends_the_server(tmp_path: Path) -> None:
    client = AcpClient(tmp_path)
    server = AcpServer(GivenWorkspaces(agent_of()), client.read, client.write)
    client.is_gone = True
    client.send({"id": 1, "method": "initialize", "params": {"protocolVersion": 1}})
    await asyncio.wait_for(server.serve(), 30)


async def test_lines_that_are_no_messages_get_an_error_and_lose_nothing(tmp_path: Path) -> None:
    async with connect(GivenWorkspaces(agent_of(say("Still here."))), tmp_path) as client:
        session = await client.open()
        for line, code in (
            (b"no JSON", -32700),
            (b'{"a": "\xff\xfe"}', -32700),
            (b"[" * 100_000, -32700),
            (b"[]", -32600),
            (b"7", -32600),
            (b'{"jsonrpc": "2.0"}', -32600),
            (b'{"id": null, "method": "initialize"}', -32600),
            (b'"' + b"x" * (33 * 1024 * 1024) + b'"', -32700),
        ):
            client.send_line(line)
            assert (await client.errors.get())["code"] == code, line[:50]
        client.send_line(b"")
        client.send({"id": 77, "result": {}})  # of no request
        client.send({"id": 77, "error": {"code": 1, "message": "no"}})
        client.notify("some/notification")
        client.notify("session/cancel", sessionId="unknown")
        requests: list[tuple[str, dict[str, Any], int]] = [
            ("some/method", {}, -32601),
            ("session/prompt", {}, -32602),
            ("session/new", {"cwd": "relative"}, -32602),
            ("session/new", {"cwd": f"{tmp_path}/none"}, -32602),
            ("session/list", {"cursor": 7}, -32602),
            ("session/prompt", {"sessionId": session, "prompt": []}, -32602),
            ("session/new", {"cwd": client.folder, "additionalDirectories": 7}, -32602),
        ]
        for method, params, code in requests:
            with pytest.raises(RpcError) as refused:
                await client.request(method, **params)
            assert refused.value.code == code, method
        client.send({"id": 1, "method": "session/list", "params": []})
        future = client.results[1] = asyncio.get_running_loop().create_future()
        with pytest.raises(RpcError, match="params must be an object"):
            await future
        assert (await client.prompt(session, "Hi."))["stopReason"] == "end_turn"


async def test_servers_of_the_client_reach_the_runtime_or_are_refused(tmp_path: Path) -> None:
    workspaces = GivenWorkspaces(agent_of())
    stdio = {"name": "files", "command": "serve", "args": ["-x"], "env": [{"name": "A", "value": "1"}]}
    http = {"type": "http", "name": "web", "url": "https://host/mcp", "headers": [{"name": "X", "value": "2"}]}
    async with connect(workspaces, tmp_path) as client:
        await client.open(mcpServers=[stdio, http])
        assert workspaces.opened[-1].servers == {
            "files": {"command": "serve", "args": ["-x"], "env": {"A": "1"}},
            "web": {"type": "http", "url": "https://host/mcp", "headers": {"X": "2"}},
        }
        for servers, problem in (
            ([{"type": "acp", "name": "a", "id": "1"}], "the type 'acp' cannot be used; use stdio, http or sse"),
            ([stdio, stdio], "two servers named 'files'"),
            (7, "must be a list"),
            ([{"name": "x"}], "'command' must be"),
            ([stdio | {"env": 7}], "list of objects with name and value"),
        ):
            with pytest.raises(RpcError, match=problem):
                await client.open(mcpServers=servers)


async def test_runtimes_of_idle_sessions_are_closed_and_made_again(tmp_path: Path) -> None:
    workspaces = GivenWorkspaces(obedient_agent())
    async with connect(workspaces, tmp_path, max_runtimes=2) as client:
        sessions = [await client.open() for _ in range(3)]
        assert len(workspaces.opened) == 3
        await client.request("session/set_mode", sessionId=sessions[0], modeId="plan")
        assert len(workspaces.opened) == 4
        assert (await client.prompt(sessions[0], "Hi."))["stopReason"] == "end_turn"
        turns = [client.prompt(session, "Hang.") for session in sessions[1:]]
        for session in sessions[1:]:
            await client.until("tool_call_update", session)
        with pytest.raises(RpcError, match="2 sessions run turns at the same time"):
            await client.prompt(sessions[0], "Hi.")
        for session in sessions[1:]:
            client.notify("session/cancel", sessionId=session)
        assert [(await turn)["stopReason"] for turn in turns] == ["cancelled", "cancelled"]


async def test_a_failed_turn_is_an_error_of_the_prompt(tmp_path: Path) -> None:
    async with connect(GivenWorkspaces(agent_of(fail(400, "bad key")), models=Models(retries=0)), tmp_path) as client:
        session = await client.open()
        with pytest.raises(RpcError, match="bad key") as failed:
            await client.prompt(session, "Hi.")
        assert failed.value.code == -32603
    workspaces = GivenWorkspaces(
        agent_of(call("pay", amount=1)), permissions=vaka.Permissions(ask="suspend", confirm=["pay"])
    )
    async with connect(workspaces, tmp_path) as client:
        session = await client.open()
        client.answer = lambda params: {"outcome": {"outcome": "never"}}
        with pytest.raises(RpcError, match="the turn waits for a person: vaka approvals resolve apr_"):
            await client.prompt(session, "Pay.")


async def test_a_client_that_answers_with_an_error_refuses_the_call_and_the_turn_goes_on(tmp_path: Path) -> None:
    script = [call("pay", amount=1), call("colour"), say("Done.")]
    async with connect(
        GivenWorkspaces(agent_of(*script), permissions=vaka.Permissions(confirm=["pay"])), tmp_path
    ) as client:
        session = await client.open()
        turn = client.prompt(session, "Pay.")
        asked = await client.asked.get()
        client.send({"id": asked["id"], "error": {"code": -32601, "message": "no dialogs here"}})
        asked = await client.asked.get()
        client.send({"id": asked["id"], "error": "broken"})
        assert (await turn)["stopReason"] == "end_turn"
        results = [params["update"] for params in client.updates if params["update"].get("status") in ENDED]
        texts = [result["content"][0]["content"]["text"] for result in results]
        assert "no dialogs here" in texts[0]
        assert texts[1] == "colour None"


async def test_a_tool_of_the_client_fails_since_an_editor_has_none(tmp_path: Path) -> None:
    tool = ClientTool("pick", "Pick a file.", {"type": "object", "properties": {}})
    model = ScriptedModel(call("pick"), say("Done."))
    agent = vaka.Agent("picker", model=model, tools=[tool])
    async with connect(GivenWorkspaces(agent), tmp_path, elicitation={"form": {}}) as client:
        session = await client.open()
        assert (await client.prompt(session, "Pick."))["stopReason"] == "end_turn"
        assert "tool_call_update failed" in client.outline(session)


async def test_a_session_is_opened_anew_with_other_folders_unless_it_runs(tmp_path: Path) -> None:
    workspaces = GivenWorkspaces(obedient_agent())
    async with connect(workspaces, tmp_path) as client:
        session = await client.open()
        await client.prompt(session, "Hi.")
        more = {"sessionId": session, "cwd": client.folder, "additionalDirectories": [client.folder]}
        await client.request("session/resume", **more)
        assert [place.directories for place in workspaces.opened] == [(), (client.folder,)]
        turn = client.prompt(session, "Hang.")
        await client.until("tool_call_update", session)
        with pytest.raises(RpcError, match=r"runs a turn in .*; cancel it first"):
            await client.request("session/resume", sessionId=session, cwd=client.folder)
        await client.request("session/delete", sessionId=session)
        assert (await turn)["stopReason"] == "cancelled"
        assert (await client.request("session/list"))["sessions"] == []


async def test_an_unexpected_error_is_answered_and_the_server_goes_on(tmp_path: Path) -> None:
    workspaces = GivenWorkspaces(agent_of(say("Still here.")))
    async with connect(workspaces, tmp_path) as client:
        session = await client.open()
        workspaces.models = None  # type: ignore[assignment]  # a defect of the program
        with pytest.raises(RpcError, match="TypeError") as failed:
            await client.open()
        assert failed.value.code == -32603
        assert (await client.prompt(session, "Hi."))["stopReason"] == "end_turn"


async def test_a_server_that_is_cancelled_interrupts_its_turns(tmp_path: Path) -> None:
    client, store = AcpClient(tmp_path), MemoryStore()
    workspaces = GivenWorkspaces(obedient_agent(), store)
    server = asyncio.create_task(AcpServer(workspaces, client.read, client.write).serve())
    session = await client.open()
    turn = client.prompt(session, "Hang.")
    await client.until("tool_call_update", session)
    server.cancel()
    with pytest.raises(asyncio.CancelledError):
        await server
    assert not turn.done()
    (info,) = (await store.sessions.list(SessionQuery())).sessions
    assert info.status == "idle"
