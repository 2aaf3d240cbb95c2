"""Agents as tools of an MCP server, called by the SDK's own client in both eras of the protocol."""

import asyncio
import base64
import copy
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import mcp_types as types
import msgspec
import pytest
from mcp import Client
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError

import vaka
from tests.runtime.runtime_fixtures import agent, merge_options, runtime
from vaka.core.ports.model import Prompt
from vaka.core.ports.store import SessionQuery
from vaka.core.types.errors import InvalidInput, ModelError
from vaka.core.types.message import Audio, Document, Image, Text, UserMessage
from vaka.mcp.elicitation import DecisionForms
from vaka.mcp.served_agents import MAX_PROMPT_CHARS, ServedAgent, ServedToolCall, ServedTurns
from vaka.mcp.server import MAX_LINE_BYTES, ServedTool, ToolServer, http_app, serve_lines
from vaka.mcp.serving import ServableAgent
from vaka.mcp.transcripts import MAX_TRANSCRIPT_CHARS, TranscriptResources, render_messages
from vaka.models.given_calls import GivenCalls
from vaka.runtime.agent_builder import AgentBuilder
from vaka.runtime.runtime import Runtime
from vaka.stores.memory import MemoryStore
from vaka.testing.models import FunctionModel, ScriptedModel, call, say

ERAS = ("legacy", "auto")
each_era = pytest.mark.parametrize("era", ERAS)


@vaka.tool
def pay(amount: int) -> str:
    """Pay an amount."""
    return f"paid {amount}"


@vaka.tool(effect="read")
async def colour(context: vaka.ToolContext) -> str:
    """Ask for a colour."""
    return f"painted {await context.ask('Which colour?', options=['red', 'blue'])}"


def servable(rt: Runtime, served: vaka.Agent) -> ServableAgent:
    return ServableAgent(name=served.name, description=served.description, open=partial(rt.open, served))


@asynccontextmanager
async def serving(
    *agents: vaka.Agent,
    expose: tuple[str, ...] = (),
    store: MemoryStore | None = None,
    elicits: bool = True,
    **options: Any,
) -> AsyncIterator[tuple[Runtime, Server[Any]]]:
    """Serve agents, and some tools of the first one, from a runtime that suspends turns for a person."""
    async with runtime(store, **merge_options({"permissions": vaka.Permissions(ask="suspend")}, options)) as rt:
        turns = ServedTurns(rt, lambda row: f"decide {row.id}", lambda code, message: message)
        tools: list[ServedTool] = [ServedAgent(turns, servable(rt, each)) for each in agents]
        if expose:
            specs = AgentBuilder().build_recipe(agents[0]).tools
            caller = copy.copy(agents[0])
            caller.model, caller.output = GivenCalls(), None
            tools += [ServedToolCall(turns, servable(rt, caller), specs[name].spec) for name in expose]
        elicitation = DecisionForms(describe=repr, hint=lambda row: f"decide {row.id}", enabled=elicits)
        served = ToolServer(tools, rt, TranscriptResources(rt.store, rt.options.workspace.folder), elicitation)
        yield rt, served.build("vaka", "1")
        await turns.close()


@asynccontextmanager
async def connected(
    *agents: vaka.Agent, era: str = "legacy", person: Any = None, **options: Any
) -> AsyncIterator[tuple[Runtime, Client]]:
    """Serve agents to one client, with the person at it."""
    async with (
        serving(*agents, **options) as (rt, server),
        Client(server, mode=era, elicitation_callback=person) as client,
    ):
        yield rt, client


class Person:
    """Answers forms, and notes what was asked."""

    def __init__(self, *answers: types.ElicitResult) -> None:
        self.asked: list[types.ElicitRequestParams] = []
        self._answers = iter(answers)

    async def __call__(self, context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        self.asked.append(params)
        return next(self._answers)


def accept(**fields: Any) -> types.ElicitResult:
    return types.ElicitResult(action="accept", content=fields)


def text_of_result(result: types.CallToolResult) -> str:
    first = result.content[0]
    assert isinstance(first, types.TextContent)
    return first.text


async def ask(client: Client, prompt: Any, tool: str = "ask_assistant", **more: Any) -> types.CallToolResult:
    return await client.call_tool(tool, {"prompt": prompt, **more})


def data_of(result: types.CallToolResult) -> dict[str, Any]:
    assert isinstance(result.structured_content, dict)
    return result.structured_content


@each_era
async def test_a_conversation_goes_on_with_its_session_id_and_its_transcript_is_a_resource(era: str) -> None:
    lines: list[str | None] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        assert progress == len(lines) + 1
        lines.append(message)

    model = ScriptedModel(call("pay", amount=4), say("Two\nlines."), say("Again."))
    async with connected(
        agent(model, pay, description="Pays."), permissions=vaka.Permissions(allow=["pay"]), era=era
    ) as (_, client):
        (tool,) = (await client.list_tools()).tools
        assert (tool.name, tool.description) == ("ask_assistant", "Pays.")
        assert tool.input_schema["required"] == ["prompt"]
        first = await client.call_tool("ask_assistant", {"prompt": "Pay."}, progress_callback=note)
        session = data_of(first)["session_id"]
        assert text_of_result(first) == data_of(first)["answer"] == "Two\nlines."
        assert data_of(first)["stop"] == "end"
        assert data_of(first)["turn"].startswith("trn_")
        assert lines == [f"session {session}", '→ pay {"amount":4}', "← pay: paid 4", "Two"]
        second = await ask(client, "Go on.", session_id=session)
        assert (data_of(second)["answer"], data_of(second)["session_id"]) == ("Again.", session)
        listed = (await client.list_resources()).resources
        assert [resource.uri for resource in listed] == [f"session://{session}/transcript"]
        templates = (await client.list_resource_templates()).resource_templates
        assert [template.uri_template for template in templates] == ["session://{id}/transcript"]
        (read,) = (await client.read_resource(listed[0].uri)).contents
        assert isinstance(read, types.TextResourceContents)
        assert read.text == (
            '## User\n\nPay.\n\n→ pay {"amount":4}\n\n← paid 4\n\n## Agent\n\nTwo\nlines.\n\n'
            "## User\n\nGo on.\n\n## Agent\n\nAgain."
        )


@each_era
async def test_an_approval_is_a_form_that_decides_it(era: str) -> None:
    model = ScriptedModel(
        call("pay", amount=1), say("Done."), call("pay", amount=2), say("Understood."), call("pay", amount=3)
    )
    person = Person(
        accept(decision="approve"), accept(decision="reject", reason="too much"), types.ElicitResult(action="decline")
    )
    async with connected(agent(model, pay), permissions=vaka.Permissions(confirm=["pay"]), era=era, person=person) as (
        _,
        client,
    ):
        session = data_of(approved := await ask(client, "One."))["session_id"]
        rejected = await ask(client, "Two.", session_id=session)
        declined = await ask(client, "Three.", session_id=session)
        transcript = (await client.read_resource(f"session://{session}/transcript")).contents[0]
    assert [data_of(result)["answer"] for result in (approved, rejected)] == ["Done.", "Understood."]
    assert (declined.is_error, data_of(declined)["stop"]) == (True, "interrupted")
    assert isinstance(transcript, types.TextResourceContents)
    assert "← paid 1" in transcript.text
    assert "too much" in transcript.text
    assert "paid 2" not in transcript.text
    first = person.asked[0]
    assert isinstance(first, types.ElicitRequestFormParams)
    assert "'amount': 1" in first.message
    assert len(person.asked) == 3


@each_era
async def test_a_question_of_a_tool_is_a_form_with_its_options(era: str) -> None:
    model = ScriptedModel(call("colour"), say("Nice."), call("colour"), say("Own words."))
    person = Person(accept(choice="blue"), accept(), accept(answer="sea green"))
    async with connected(
        agent(model, colour), permissions=vaka.Permissions(allow=["colour"]), era=era, person=person
    ) as (_, client):
        session = data_of(await ask(client, "Paint."))["session_id"]
        await ask(client, "Again.", session_id=session)  # an empty form decides nothing and is shown again
        transcript = (await client.read_resource(f"session://{session}/transcript")).contents[0]
    assert isinstance(transcript, types.TextResourceContents)
    assert "painted blue" in transcript.text
    assert "painted sea green" in transcript.text
    asked = person.asked[0]
    assert isinstance(asked, types.ElicitRequestFormParams)
    assert asked.requested_schema["properties"]["choice"]["enum"] == ["red", "blue"]
    assert len(person.asked) == 3


@each_era
async def test_without_forms_the_result_names_the_decision_and_the_call_goes_on_after_it(era: str) -> None:
    model = ScriptedModel(call("pay", amount=1), say("Done."))
    async with serving(agent(model, pay), permissions=vaka.Permissions(confirm=["pay"]), expose=("pay",)) as (
        rt,
        server,
    ):
        async with Client(server, mode=era) as client:
            waiting = await ask(client, "Pay.")
            session = data_of(waiting)["session_id"]
            (row,) = await rt.decisions(session)
            assert (waiting.is_error, data_of(waiting)["stop"]) == (True, "waiting")
            assert f"decide {row.id}" in text_of_result(waiting)
            await rt.resolve(row.id, "approve")
            assert data_of(await ask(client, "", session_id=session))["answer"] == "Done."
            refused = await client.call_tool("pay", {"amount": 2})
            assert refused.is_error
            assert "was not made" in text_of_result(refused)
        async with Client(server, mode=era, elicitation_callback=Person(types.ElicitResult(action="cancel"))) as client:
            dismissed = await client.call_tool("pay", {"amount": 3})
            assert "was not made" in text_of_result(dismissed)


async def test_forms_can_be_switched_off() -> None:
    model, person = ScriptedModel(call("pay", amount=1), say("Done.")), Person()
    async with connected(
        agent(model, pay), permissions=vaka.Permissions(confirm=["pay"]), elicits=False, person=person
    ) as (_, client):
        assert data_of(await ask(client, "Pay."))["stop"] == "waiting"
    assert person.asked == []


async def test_a_call_too_long_for_a_form_is_not_approved_by_one() -> None:
    @vaka.tool
    def write(text: str) -> str:
        """Write a text."""
        return "written"

    model, person = ScriptedModel(call("write", text="x" * 30_000), say("Done.")), Person()
    async with connected(agent(model, write), permissions=vaka.Permissions(confirm=["write"]), person=person) as (
        _,
        client,
    ):
        assert data_of(await ask(client, "Write."))["stop"] == "waiting"
    assert person.asked == []


@each_era
async def test_a_cancelled_request_interrupts_its_turn(era: str) -> None:
    entered = asyncio.Event()

    @vaka.tool(effect="read")
    async def hang() -> str:
        """Wait for something that never comes."""
        entered.set()
        await asyncio.Event().wait()
        return ""

    model = ScriptedModel(call("hang"), say("Next."))
    async with connected(agent(model, hang), permissions=vaka.Permissions(allow=["hang"]), era=era) as (rt, client):
        request = asyncio.create_task(ask(client, "Hang."))
        await entered.wait()
        (info,) = (await rt.store.sessions.list(SessionQuery())).sessions
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request
        after = await ask(client, "And now?", session_id=info.id)
        transcript = [event.type async for event in rt.store.events.read(info.id)]
    assert data_of(after)["answer"] == "Next."
    assert transcript.count("turn.interrupted") == 1


async def test_a_request_that_is_cancelled_while_a_person_is_asked_ends_its_turn() -> None:
    asked = asyncio.Event()

    async def never(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    model, store = ScriptedModel(call("pay", amount=1)), MemoryStore()
    async with connected(
        agent(model, pay), permissions=vaka.Permissions(confirm=["pay"]), store=store, person=never
    ) as (_, client):
        request = asyncio.create_task(ask(client, "Pay."))
        await asked.wait()
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request
        await client.list_tools()  # the server has read the cancellation
    (info,) = (await store.sessions.list(SessionQuery())).sessions
    assert (info.status, info.pending) == ("idle", 0)


async def test_two_calls_of_one_session_run_one_after_the_other() -> None:
    running: list[str] = []

    @vaka.tool(effect="read")
    async def slow(name: str) -> str:
        """Do something."""
        running.append(f"{name} begins")
        await asyncio.sleep(0)
        running.append(f"{name} ends")
        return name

    model = ScriptedModel(say("Hello."), call("slow", name="a"), say("A."), call("slow", name="b"), say("B."))
    async with connected(agent(model, slow), permissions=vaka.Permissions(allow=["slow"])) as (_, client):
        session = data_of(await ask(client, "Hello."))["session_id"]
        both = await asyncio.gather(*(ask(client, name, session_id=session) for name in ("1", "2")))
    assert [data_of(result)["answer"] for result in both] == ["A.", "B."]
    assert running == ["a begins", "a ends", "b begins", "b ends"]


@each_era
async def test_bad_calls_get_an_error_that_says_what_is_wrong_and_the_server_goes_on(era: str) -> None:
    other = agent(ScriptedModel(say("Other.")), name="other agent")
    model = ScriptedModel(say("Fine."), say("Fine."))
    async with connected(agent(model), other, era=era) as (_, client):
        foreign = data_of(await ask(client, "Hello.", tool="ask_other_agent"))["session_id"]
        cases: list[tuple[dict[str, Any], str]] = [
            ({}, "missing required field `prompt`"),
            ({"prompt": 5}, "Expected `str`"),
            ({"prompt": "x", "more": 1}, "unknown field `more`"),
            ({"prompt": "  "}, "the prompt is empty"),
            ({"prompt": "x" * (MAX_PROMPT_CHARS + 1)}, "characters, more than"),
            ({"prompt": "x", "session_id": "absent"}, "there is no session 'absent'"),
            ({"prompt": "x", "session_id": " \n"}, "printable characters"),
            ({"prompt": "x", "session_id": 7}, "Expected `str | null`"),
            ({"prompt": "x", "session_id": foreign}, "belongs to agent 'other agent'"),
        ]
        for arguments, message in cases:
            result = await client.call_tool("ask_assistant", arguments)
            assert result.is_error, arguments
            assert message in text_of_result(result)
        with pytest.raises(MCPError, match="Unknown tool: nothing"):
            await client.call_tool("nothing", {})
        for uri in ("session://absent/transcript", "session://a%0Ab/transcript", "file:///etc/passwd"):
            with pytest.raises(MCPError, match="Resource not found") as error:
                await client.read_resource(uri)
            assert error.value.code == (-32002 if era == "legacy" else types.INVALID_PARAMS)
            assert error.value.data == {"uri": uri}
        with pytest.raises(MCPError):
            await client.list_resources(cursor="no such page")
        assert data_of(await ask(client, "Still there?"))["answer"] == "Fine."


async def test_a_turn_that_fails_is_an_error_result_with_its_session() -> None:
    async def refuse(prompt: Prompt) -> str:
        raise ModelError("no such model")

    async with connected(agent(FunctionModel(refuse))) as (_, client):
        failed = await ask(client, "Hello.")
    assert failed.is_error
    assert data_of(failed)["stop"] == "failed"
    assert "no such model" in data_of(failed)["error"]
    assert data_of(failed)["session_id"] in text_of_result(failed)


async def test_an_exposed_tool_returns_every_kind_of_content_under_the_rules() -> None:
    data = base64.b64encode(b"bytes").decode()

    @vaka.tool(effect="read")
    def everything() -> list[Any]:
        """Return all kinds."""
        return [
            Text(text="text"),
            Image(media_type="image/png", data=data),
            Audio(media_type="audio/wav", data=data),
            Document(media_type="text/plain", data=data, name="a.txt"),
            Document(media_type="application/pdf", data=data, name="test://b"),
        ]

    @vaka.tool(effect="read")
    def measure() -> dict[str, int]:
        """Return a value."""
        return {"length": 3}

    @vaka.tool(effect="read")
    def broken() -> str:
        """Fail."""
        raise ValueError("it is broken")

    tools = (everything, measure, broken, pay)
    served = agent(ScriptedModel(), *tools)
    names = tuple(each.name for each in tools)
    async with connected(
        served, expose=names, permissions=vaka.Permissions(allow=["everything", "measure", "broken"], deny=["pay"])
    ) as (_, client):
        assert {tool.name for tool in (await client.list_tools()).tools} == {"ask_assistant", *names}
        kinds = (await client.call_tool("everything", {})).content
        measured = await client.call_tool("measure", {})
        failures = [
            await client.call_tool(name, arguments)
            for name, arguments in (("broken", {}), ("pay", {"amount": 1}), ("measure", {"unit": "m"}))
        ]
    assert [block.type for block in kinds] == ["text", "image", "audio", "resource", "resource"]
    resources = [block.resource for block in kinds if isinstance(block, types.EmbeddedResource)]
    assert [(str(each.uri), getattr(each, "text", "")) for each in resources] == [
        ("document:///a.txt", "bytes"),
        ("test://b", ""),
    ]
    assert measured.structured_content == {"length": 3}
    assert json.loads(text_of_result(measured)) == {"length": 3}
    assert all(failure.is_error for failure in failures)
    assert "it is broken" in text_of_result(failures[0])
    assert "unit" in text_of_result(failures[2])


async def test_transcripts_are_listed_in_pages_and_bounded() -> None:
    async def long_answer(prompt: Prompt) -> str:
        return "z" * MAX_TRANSCRIPT_CHARS

    async with connected(agent(FunctionModel(long_answer))) as (rt, client):
        for number in range(60):
            await (await rt.open(agent(ScriptedModel(say("Yes."))), id=f"s{number}")).run("Go.")
        await (await rt.open(agent(FunctionModel(long_answer)), id="long")).run("More.")
        first = await client.list_resources()
        second = await client.list_resources(cursor=first.next_cursor)
        text = (await client.read_resource("session://long/transcript")).contents[0]
    assert (len(first.resources), len(second.resources), second.next_cursor) == (50, 11, None)
    assert isinstance(text, types.TextResourceContents)
    assert text.text.endswith(f"… ({MAX_TRANSCRIPT_CHARS} bytes)")
    messages = [UserMessage(content=(Text(text="x" * 100_000),)) for _ in range(6)]
    assert render_messages(messages).startswith("(3 earlier parts are left out)\n\n## User\n\nxxx")
    assert len(render_messages(messages)) < MAX_TRANSCRIPT_CHARS
    one = render_messages([UserMessage(content=(Text(text="x" * 500_000),))])
    assert one.endswith("x … (100009 more characters)")


async def test_two_agents_with_one_tool_name_are_refused() -> None:
    with pytest.raises(InvalidInput, match="two tools of the server are named 'ask_a_b'"):
        async with serving(agent(ScriptedModel(), name="a b"), agent(ScriptedModel(), name="a_b")):
            pass


async def test_a_request_state_of_another_server_is_refused() -> None:
    model = ScriptedModel(call("pay", amount=1), say("Done."))
    async with serving(agent(model, pay), permissions=vaka.Permissions(confirm=["pay"])) as (rt, server):
        async with Client(server, elicitation_callback=Person()) as client:
            with pytest.raises(MCPError, match="requestState"):
                await client.session.call_tool(
                    "ask_assistant",
                    {"prompt": "Pay."},
                    request_state=msgspec.json.encode({"key": "k"}).decode(),
                    allow_input_required=True,
                )
        assert not await rt.decisions()


async def test_a_server_on_lines_answers_what_it_can_read_and_ends_with_its_client() -> None:
    hello: dict[str, Any] = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    }
    requests: list[dict[str, Any]] = [
        {"id": 1, "method": "initialize", "params": hello},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "no/such/method", "params": {}},
        {"id": 3, "method": "tools/list", "params": {}},
    ]
    lines = [json.dumps({"jsonrpc": "2.0", **request}).encode() for request in requests]
    lines[1:1] = [b"no JSON", b"", b"[]"]

    async def exchange(server: Server[Any], write: Any) -> None:
        unread = [*lines, b"x" * 10]
        answered = asyncio.Event()

        async def read(limit: int) -> tuple[bytes, int] | None:
            if len(unread) > 1:
                return unread[0], len(unread.pop(0))
            if unread:
                return unread.pop(), MAX_LINE_BYTES + 1
            await answered.wait()
            return None

        async def note(line: bytes) -> None:
            await write(line)
            if b'"tools"' in line and b'"id":3' in line:
                answered.set()

        await serve_lines(server, read, note)

    written: list[Any] = []

    async def keep(line: bytes) -> None:
        written.append(json.loads(line))

    async def refuse(line: bytes) -> None:
        raise BrokenPipeError

    async with serving(agent(ScriptedModel())) as (_, server):
        await exchange(server, keep)
        await exchange(server, refuse)
    assert {message.get("id") for message in written} >= {1, 2, 3}
    by_id = {message["id"]: message for message in written if message.get("id")}
    assert by_id[2]["error"]["code"] == types.METHOD_NOT_FOUND
    assert [tool["name"] for tool in by_id[3]["result"]["tools"]] == ["ask_assistant"]


async def test_the_http_application_has_one_path() -> None:
    async with serving(agent(ScriptedModel(say("Hello.")))) as (_, server):
        assert [getattr(route, "path", "") for route in http_app(server).routes] == ["/mcp"]
