"""AG-UI over HTTP: runs, interrupts, tools of the client, state, and requests that are not possible."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
from ag_ui.core import AgentCapabilities

import vaka
from tests.server.conftest import PRINCIPALS, Serve
from tests.views.agui_streams import AguiStreamCheck
from tests.views.recorded_runs import make_router
from vaka.agents.coding_prompt import coding_instructions
from vaka.agents.react import Agent
from vaka.config.server_tables import FEATURE_NAMES
from vaka.core.ports.tool import ToolContext
from vaka.core.types.message import UserMessage
from vaka.server.settings import ServerSettings
from vaka.testing import ScriptedModel, call, say

Scripted = Callable[..., Agent]


@vaka.tool
async def deploy(context: ToolContext, place: str) -> str:
    """Deploy it."""
    context.state.set("place", place)
    return f"deployed to {place}"


CALLING: dict[str, Any] = {"id": "a", "role": "assistant", "toolCalls": []}
"""The message of the assistant with the calls that a client has when a run ends with them."""


def run_input(*messages: dict[str, Any], thread: str = "t-1", run: str = "r-1", **fields: Any) -> dict[str, Any]:
    base: dict[str, Any] = {"tools": [], "context": [], "state": {}, "forwardedProps": {}}
    return {"threadId": thread, "runId": run, "messages": list(messages), **base, **fields}


def user(text: str, id: str = "m-1") -> dict[str, Any]:
    return {"id": id, "role": "user", "content": text}


def events_of(answer: httpx2.Response) -> list[dict[str, Any]]:
    """Return the events of a response, which must be a valid stream."""
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/event-stream")
    lines = [line for line in answer.text.splitlines() if line.startswith("data: ")]
    events = [json.loads(line.removeprefix("data: ")) for line in lines]
    AguiStreamCheck().check(events)
    return events


async def run(client: httpx2.AsyncClient, body: Any, agent: str = "assistant") -> list[dict[str, Any]]:
    return events_of(await client.post(f"/agui/{agent}", json=body))


def text_of(events: list[dict[str, Any]]) -> str:
    return "".join(event["delta"] for event in events if event["type"] == "TEXT_MESSAGE_CONTENT")


async def test_a_run_streams_the_answer_and_its_session_belongs_to_the_caller(serve: Serve, scripted: Scripted) -> None:
    async with serve([scripted(say("Hello."), say("Again."))]) as served, served.client() as client:
        events = await run(client, run_input(user("Hi.")))
        assert events[0] == {"type": "RUN_STARTED", "threadId": "t-1", "runId": "r-1", "protocolVersion": "1.0"}
        assert events[-1]["outcome"] == {"type": "success"}
        assert text_of(events) == "Hello."
        assert (await served.service.find_session(PRINCIPALS["alice"], "t-1")).owner == "alice"
        history = [user("Hi."), {"id": "a", "role": "assistant", "content": "Hello."}, user("More?", "m-2")]
        assert text_of(await run(client, run_input(*history, run="r-2"))) == "Again."
        messages = await (await served.service.open_session(PRINCIPALS["alice"], "t-1")).messages()
        assert len(messages) == 4


async def test_the_state_of_a_run_has_no_values_that_vaka_keeps_for_itself(
    serve: Serve, scripted: Scripted, tmp_path: Path
) -> None:
    agent = scripted(say("Hello."), say("Again."), instructions=coding_instructions(tmp_path))
    async with serve([agent]) as served, served.client() as client:
        events = await run(client, run_input(user("Hi.")))
        history = [user("Hi."), {"id": "a", "role": "assistant", "content": "Hello."}, user("More?", "m-2")]
        events += await run(client, run_input(*history, run="r-2"))
        session = await served.service.open_session(PRINCIPALS["alice"], "t-1")
        assert str(tmp_path) in str(await session.state_values())
        assert str(tmp_path) not in str(events)


async def test_a_repeated_run_is_answered_once_and_replayed(serve: Serve, scripted: Scripted) -> None:
    async with serve([scripted(say("Hello."))]) as served, served.client() as client:
        first = await run(client, run_input(user("Hi.")))
        assert await run(client, run_input(user("Hi."))) == first
        assert (await client.post("/agui/assistant", json=run_input(run="r-2"))).json()["code"] == "nothing_new"
        again = await run(client, run_input(user("Hi."), run="r-2"))
        assert text_of(again) == "Hello."
        assert again[0]["runId"] == "r-2"


async def test_messages_after_a_failed_run_are_one_input(serve: Serve, scripted: Scripted) -> None:
    agent = scripted({"error": {"status": 400, "message": "no"}}, say("Both."), say("All."))
    async with serve([agent]) as served, served.client() as client:
        failed = await run(client, run_input(user("One.")))
        assert failed[-1]["type"] == "RUN_ERROR"
        both = [user("One."), user("Two.", "m-2"), user("Three.", "m-3")]
        assert text_of(await run(client, run_input(*both, run="r-2"))) == "Both."
        session = await served.service.open_session(PRINCIPALS["alice"], "t-1")
        messages = await session.messages()
        texts = [[getattr(part, "text", "") for part in each.content] for each in messages if type(each) is UserMessage]
        assert texts == [["One."], ["Two.", "Three."]]


async def test_an_interrupt_is_resumed_with_edited_arguments(serve: Serve, scripted: Scripted) -> None:
    agent = scripted(call("deploy", place="staging"), say("Done."), tools=[deploy])
    async with serve([agent], permissions=vaka.Permissions(confirm=["deploy"])) as served, served.client() as client:
        events = await run(client, run_input(user("Go.")))
        [interrupt] = events[-1]["outcome"]["interrupts"]
        assert interrupt["metadata"]["toolName"] == "deploy"
        refused = await client.post("/agui/assistant", json=run_input(user("Well?", "m-2"), run="r-2"))
        assert refused.status_code == 409
        assert refused.headers["content-type"] == "application/json"
        assert refused.json()["code"] == "waiting"
        assert interrupt["id"] in refused.json()["detail"]
        answer = {"interruptId": interrupt["id"], "status": "resolved"}
        payload = {"approved": True, "editedArgs": {"place": "production"}}
        resumed = run_input(user("Go."), run="r-2", resume=[{**answer, "payload": payload}])
        resumed["messages"].append(CALLING)
        rest = await run(client, resumed)
        [result] = [event for event in rest if event["type"] == "TOOL_CALL_RESULT"]
        assert result["content"] == "deployed to production"
        assert {"type": "STATE_DELTA", "delta": [{"op": "add", "path": "/place", "value": "production"}]} in rest
        assert text_of(rest) == "Done."
        assert rest[0]["runId"] == "r-2"
        assert not [event for event in rest if event["type"] == "TOOL_CALL_START"]
        again = await run(client, resumed)
        assert again[1] == {"type": "STATE_SNAPSHOT", "snapshot": {"place": "production"}}
        assert again[2:] == rest[1:]
        whole = await run(client, run_input(user("Go."), run="r-3"))
        assert [event["type"] for event in whole if event["type"].startswith("RUN_")] == [
            "RUN_STARTED",
            "RUN_FINISHED",
            "RUN_STARTED",
            "RUN_FINISHED",
        ]
        snapshot = next(event for event in whole if event["type"] == "STATE_SNAPSHOT")
        assert snapshot["snapshot"] == {"place": "production"}


async def test_a_rejected_call_is_answered_by_the_model(serve: Serve, scripted: Scripted) -> None:
    agent = scripted(call("deploy", place="here"), say("As you like."), tools=[deploy])
    async with serve([agent], permissions=vaka.Permissions(confirm=["deploy"])) as served, served.client() as client:
        [interrupt] = (await run(client, run_input(user("Go."))))[-1]["outcome"]["interrupts"]
        resume = [{"interruptId": interrupt["id"], "status": "cancelled"}]
        rest = await run(client, run_input(user("Go."), CALLING, run="r-2", resume=resume))
        assert text_of(rest) == "As you like."


async def test_a_message_with_the_answer_joins_the_turn(serve: Serve, scripted: Scripted) -> None:
    agent = scripted(call("deploy", place="here"), say("Both done."), tools=[deploy])
    async with serve([agent], permissions=vaka.Permissions(confirm=["deploy"])) as served, served.client() as client:
        [interrupt] = (await run(client, run_input(user("Go."))))[-1]["outcome"]["interrupts"]
        resume = [{"interruptId": interrupt["id"], "status": "resolved", "payload": True}]
        body = run_input(user("Go."), CALLING, user("And say hello.", "m-2"), run="r-2", resume=resume)
        assert text_of(await run(client, body)) == "Both done."
        session = await served.service.open_session(PRINCIPALS["alice"], "t-1")
        assert [type(message).__name__ for message in await session.messages()] == [
            "UserMessage",
            "AssistantMessage",
            "ToolMessage",
            "UserMessage",
            "AssistantMessage",
        ]


async def test_the_client_runs_its_own_tools(serve: Serve, scripted: Scripted) -> None:
    agent = scripted(call("pick_color", title="Wall"), say("Blue it is."))
    schema = {"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]}
    tools = [{"name": "pick_color", "description": "Ask for a color.", "parameters": schema}]
    async with serve([agent]) as served, served.client() as client:
        events = await run(client, run_input(user("Paint."), tools=tools))
        [start] = [event for event in events if event["type"] == "TOOL_CALL_START"]
        assert events[-1]["outcome"] == {"type": "success", "pendingToolCallIds": [start["toolCallId"]]}
        result = {"id": "r", "role": "tool", "toolCallId": start["toolCallId"], "content": "blue"}
        rest = await run(client, run_input(user("Paint."), CALLING, result, run="r-2", tools=tools))
        assert text_of(rest) == "Blue it is."
        assert not [event for event in rest if event["type"] == "TOOL_CALL_RESULT"]


async def test_a_run_with_a_part_of_the_results_ends_with_the_calls_that_are_left(
    serve: Serve, scripted: Scripted
) -> None:
    calls = {"tool_calls": [{"name": "pick", "arguments": {}}, {"name": "pick", "arguments": {"more": 1}}]}
    tools = [{"name": "pick", "description": "Pick."}]
    async with serve([scripted(calls, say("Both."))]) as served, served.client() as client:
        events = await run(client, run_input(user("Go."), tools=tools))
        first, second = events[-1]["outcome"]["pendingToolCallIds"]
        result = {"id": "r", "role": "tool", "toolCallId": first, "content": "one"}
        events = await run(client, run_input(user("Go."), CALLING, result, run="r-2", tools=tools))
        assert [event["type"] for event in events] == ["RUN_STARTED", "RUN_FINISHED"]
        assert events[-1]["outcome"]["pendingToolCallIds"] == [second]
        failed = {"id": "r2", "role": "tool", "toolCallId": second, "content": "", "error": "no"}
        rest = await run(client, run_input(user("Go."), CALLING, result, failed, run="r-3", tools=tools))
        assert text_of(rest) == "Both."


async def test_what_a_run_waits_for_is_given_after_a_restart(serve: Serve, scripted: Scripted, tmp_path: Path) -> None:
    calls = {"tool_calls": [{"name": "deploy", "arguments": {"place": "here"}}, {"name": "pick", "arguments": {}}]}
    agent, store = scripted(calls, say("Both."), tools=[deploy]), f"sqlite:///{tmp_path}/vaka.db"
    tools = [{"name": "pick", "description": "Pick."}]
    async with (
        serve([agent], store=store, permissions=vaka.Permissions(confirm=["deploy"])) as served,
        served.client() as client,
    ):
        events = await run(client, run_input(user("Go."), tools=tools))
        [interrupt] = events[-1]["outcome"]["interrupts"]
        [picked] = [each["toolCallId"] for each in events if each.get("toolCallName") == "pick"]
    async with (
        serve([agent], store=store, permissions=vaka.Permissions(confirm=["deploy"])) as served,
        served.client() as client,
    ):
        resume = [{"interruptId": interrupt["id"], "status": "resolved", "payload": True}]
        events = await run(client, run_input(user("Go."), CALLING, run="r-2", tools=tools, resume=resume))
        assert events[-1]["outcome"] == {"type": "success", "pendingToolCallIds": [picked]}
    async with (
        serve([agent], store=store, permissions=vaka.Permissions(confirm=["deploy"])) as served,
        served.client() as client,
    ):
        waiting = await run(client, run_input(run="r-3"))
        assert waiting[-1]["outcome"] == {"type": "success", "pendingToolCallIds": [picked]}
        result = {"id": "r", "role": "tool", "toolCallId": picked, "content": "one"}
        rest = await run(client, run_input(user("Go."), CALLING, result, run="r-4", tools=tools))
        assert text_of(rest) == "Both."


async def test_a_call_of_a_child_agent_interrupts_the_run_and_goes_on(serve: Serve, scripted: Scripted) -> None:
    own = {"agent": "operator"}
    child = scripted(
        {**call("deploy", place="here"), **own}, {**say("Deployed."), **own}, name="operator", tools=[deploy]
    )
    agent = scripted(call("operator", prompt="Deploy it."), say("All done."), tools=[child])
    async with serve([agent], permissions=vaka.Permissions(confirm=["deploy"])) as served, served.client() as client:
        events = await run(client, run_input(user("Go.")))
        [interrupt] = events[-1]["outcome"]["interrupts"]
        [suspended] = [event for event in events if event["type"] == "SUBAGENT_FINISHED"]
        assert suspended["outcome"] == {"type": "suspended", "interruptIds": [interrupt["id"]]}
        resume = [{"interruptId": interrupt["id"], "status": "resolved", "payload": True}]
        rest = await run(client, run_input(user("Go."), CALLING, run="r-2", resume=resume))
        [started] = [event for event in rest if event["type"] == "SUBAGENT_STARTED"]
        assert started["name"] == "operator"
        assert text_of([event for event in rest if "subagentRunId" not in event]) == "All done."


async def test_the_agents_of_a_router_answer_as_it(serve: Serve) -> None:
    router = make_router()
    async with serve([router]) as served, served.client() as client:
        events = await run(client, run_input(user("Book a room and play music.")), agent=router.name)
        assert text_of(events) == "Booked.Playing."
        assert not [event for event in events if "subagentRunId" in event]


async def test_a_question_is_answered(serve: Serve, scripted: Scripted) -> None:
    @vaka.tool(effect="resume")
    async def choose(context: ToolContext) -> str:
        """Ask which one."""
        return f"chosen: {await context.ask('Which one?', options=['a', 'b'])}"

    agent = scripted(call("choose"), say("Good."), tools=[choose])
    async with serve([agent]) as served, served.client("carol") as client:
        [interrupt] = (await run(client, run_input(user("Go."))))[-1]["outcome"]["interrupts"]
        assert interrupt["reason"] == "input_required"
        resume = [{"interruptId": interrupt["id"], "status": "resolved", "payload": "b"}]
        rest = await run(client, run_input(run="r-2", resume=resume))
        [result] = [event for event in rest if event["type"] == "TOOL_CALL_RESULT"]
        assert result["content"] == "chosen: b"
        assert text_of(rest) == "Good."


async def test_context_and_state_reach_the_model(serve: Serve) -> None:
    model = ScriptedModel(say("Ok."))
    agent = vaka.Agent("assistant", model=model, instructions="Be brief.")
    async with serve([agent]) as served, served.client() as client:
        context = [{"description": "page", "value": "orders"}]
        system = {"id": "s", "role": "system", "content": "Answer in Greek."}
        body = run_input(system, user("Hi."), context=context, state={"cart": [1, 2]})
        events = await run(client, body)
        assert events[1] == {"type": "STATE_SNAPSHOT", "snapshot": {"cart": [1, 2]}}
        listed = await run(client, run_input(user("Hi."), state=[3]))
        assert listed[1] == {"type": "STATE_SNAPSHOT", "snapshot": [3]}
    [prompt] = model.prompts
    assert prompt.system.startswith("Be brief.")
    for part in ("Answer in Greek.", "- page: orders", '{"cart":[1,2]}'):
        assert part in prompt.system


async def test_a_run_stops_when_its_client_leaves(serve: Serve, scripted: Scripted) -> None:
    started = asyncio.Event()

    @vaka.tool
    async def wait() -> str:
        """Wait."""
        started.set()
        await asyncio.Event().wait()
        return ""

    async with serve([scripted(call("wait"), say("Never."), tools=[wait])]) as served, served.client() as client:
        async with client.stream("POST", "/agui/assistant", json=run_input(user("Go."))) as answer:
            assert answer.status_code == 200
            await started.wait()
        async with served.client().stream("GET", "/healthz"):
            pass
        async for event in served.service.runtime.follow("t-1"):
            if event.type == "turn.interrupted":
                break


async def test_a_queued_message_is_withdrawn_when_its_client_leaves(serve: Serve, scripted: Scripted) -> None:
    started, go_on = asyncio.Event(), asyncio.Event()

    @vaka.tool
    async def wait() -> str:
        """Wait."""
        started.set()
        await go_on.wait()
        return "waited"

    async with serve([scripted(call("wait"), say("First."), tools=[wait])]) as served, served.client() as client:
        first = asyncio.create_task(run(client, run_input(user("Go."))))
        await started.wait()
        async with client.stream("POST", "/agui/assistant", json=run_input(user("Next.", "m-2"), run="r-2")) as answer:
            assert answer.status_code == 200
        async for event in served.service.runtime.follow("t-1"):
            if event.type == "input.withdrawn":
                break
        go_on.set()
        assert text_of(await first) == "First."


async def test_a_run_goes_on_without_its_client_if_that_was_asked_for(serve: Serve, scripted: Scripted) -> None:
    started, go_on = asyncio.Event(), asyncio.Event()

    @vaka.tool
    async def wait() -> str:
        """Wait."""
        started.set()
        await go_on.wait()
        return "waited"

    props = {"onDisconnect": "continue"}
    async with serve([scripted(call("wait"), say("Finished."), tools=[wait])]) as served, served.client() as client:
        async with client.stream("POST", "/agui/assistant", json=run_input(user("Go."), forwardedProps=props)):
            await started.wait()
        async with client.stream("POST", "/agui/assistant", json=run_input(run="r-2")) as answer:
            go_on.set()
            rest = b"".join([piece async for piece in answer.aiter_bytes()])
        assert b"Finished." in rest


REFUSED: list[tuple[Any, int, str, str]] = [
    (b"{", 400, "invalid_input", "RunAgentInput"),
    (b"[]", 400, "invalid_input", "RunAgentInput"),
    (run_input(), 404, "not_found", "t-1"),
    (run_input(user("Hi.", "")), 400, "invalid_input", "empty id"),
    (run_input(user("Hi."), thread=""), 400, "invalid_input", "session id"),
    (run_input(user("Hi."), run=""), 400, "invalid_input", "runId"),
    (run_input(user(" ")), 400, "invalid_input", "empty"),
    (run_input(user("Hi."), forwardedProps={"onDisconnect": "no"}), 400, "invalid_input", "onDisconnect"),
    (
        run_input(user("Hi."), resume=[{"interruptId": "apr_1", "status": "resolved", "payload": True}]),
        404,
        "not_found",
        "apr_1",
    ),
    (run_input(user("Hi."), tools=[{"name": "a b", "description": ""}]), 400, "invalid_tool", "name"),
    (run_input(user("Hi."), tools=[{"name": "deploy", "description": ""}]), 400, "invalid_tool", "deploy"),
    (
        run_input(user("Hi."), tools=[{"name": "x", "parameters": {"type": "object", "properties": 1}}]),
        400,
        "invalid_input",
        "JSON Schema",
    ),
]


async def test_a_request_that_is_not_possible_says_why(serve: Serve, scripted: Scripted) -> None:
    async with serve([scripted(say("Hello."), tools=[deploy])]) as served, served.client() as client:
        for body, status, code, part in REFUSED:
            content = body if isinstance(body, bytes) else json.dumps(body).encode()
            answer = await client.post("/agui/assistant", content=content)
            assert (answer.status_code, answer.json()["code"]) == (status, code), body
            assert part in answer.json()["detail"]
        assert text_of(await run(client, run_input(user("Hi."), run="r-9"))) == "Hello."


async def test_threads_of_others_agents_of_other_names_and_missing_scopes(serve: Serve, scripted: Scripted) -> None:
    agents = [scripted(say("Hello.")), scripted(say("Other."), name="other")]
    async with serve(agents) as served:
        async with served.client() as client:
            await run(client, run_input(user("Hi.")))
            assert (await client.post("/agui/none", json=run_input(user("Hi.")))).status_code == 404
            assert (await client.post("/agui/other", json=run_input(user("Hi.", "m-2")))).status_code == 409
            assert (await client.get("/agui/assistant")).status_code == 405
        async with served.client("carol") as client:
            assert (await client.post("/agui/assistant", json=run_input(user("Hi.", "m-2")))).status_code == 404
        async with served.client("reader") as client:
            assert (await client.post("/agui/assistant", json=run_input(user("Hi.")))).status_code == 403
        async with served.client("") as client:
            assert (await client.post("/agui/assistant", json=run_input(user("Hi.")))).status_code == 401
        async with served.client("bob") as client:
            assert text_of(await run(client, run_input(user("Hi.")))) == "Hello."


async def test_who_may_not_decide_leaves_the_interrupt_open(serve: Serve, scripted: Scripted) -> None:
    agent = scripted(call("deploy", place="here"), say("Done."), tools=[deploy])
    async with (
        serve([agent], permissions=vaka.Permissions(confirm=["deploy"])) as served,
        served.client("carol") as client,
    ):
        [interrupt] = (await run(client, run_input(user("Go."))))[-1]["outcome"]["interrupts"]
        resume = [{"interruptId": interrupt["id"], "status": "resolved", "payload": True}]
        answer = await client.post("/agui/assistant", json=run_input(run="r-2", resume=resume))
        assert answer.status_code == 403
        assert len(await served.service.runtime.decisions()) == 1


async def test_a_turn_that_cannot_begin_is_a_run_error(serve: Serve) -> None:
    agent = vaka.Agent("assistant", model="scripted:/does/not/exist.jsonl")
    async with serve([agent]) as served, served.client() as client:
        events = await run(client, run_input(user("Hi.")))
        assert events[-1]["type"] == "RUN_ERROR"


async def test_capabilities_are_valid(serve: Serve, scripted: Scripted) -> None:
    async with serve([scripted(say("Hello."))]) as served, served.client("reader") as client:
        answer = await client.get("/agui/assistant/capabilities")
        found = AgentCapabilities.model_validate(answer.json())
        assert found.identity is not None
        assert found.identity.name == "assistant"
        assert found.human_in_the_loop is not None
        assert found.human_in_the_loop.interrupts


async def test_without_the_feature_there_is_no_route(serve: Serve, scripted: Scripted) -> None:
    settings = ServerSettings(features=frozenset(FEATURE_NAMES) - {"agui"})
    async with serve([scripted(say("Hello."))], settings=settings) as served, served.client() as client:
        assert (await client.post("/agui/assistant", json=run_input(user("Hi.")))).status_code == 404
