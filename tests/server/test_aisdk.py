"""Chats of the AI SDK over HTTP: answers, approvals, tools of the client, streams that are resumed, answers anew."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

import vaka
from tests.server.conftest import PRINCIPALS, Serve
from tests.views.ui_streams import UiMessageCheck
from vaka.agents.react import Agent
from vaka.config.server_tables import FEATURE_NAMES
from vaka.core.ports.tool import ToolContext
from vaka.core.types.message import UserMessage, text_of
from vaka.server.settings import ServerSettings
from vaka.testing import ScriptedModel, call, say
from vaka.tools.client_tool import ClientTool

Scripted = Callable[..., Agent]


@vaka.tool
def deploy(place: str) -> str:
    """Deploy it."""
    return f"deployed to {place}"


def user(text: str, id: str = "m-1") -> dict[str, Any]:
    return {"id": id, "role": "user", "parts": [{"type": "text", "text": text}]}


def assistant(*parts: dict[str, Any], id: str = "a-1") -> dict[str, Any]:
    return {"id": id, "role": "assistant", "parts": list(parts)}


def chat(*messages: dict[str, Any], id: str = "c-1", **fields: Any) -> dict[str, Any]:
    return {"id": id, "messages": list(messages), "trigger": "submit-message", **fields}


def chunks_of(answer: httpx2.Response, known_calls: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    """Return the chunks of a response, which must be a valid stream with its end."""
    assert answer.status_code == 200, answer.text
    assert answer.headers["x-vercel-ai-ui-message-stream"] == "v1"
    assert answer.headers["content-type"].startswith("text/event-stream")
    *lines, end = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: ")]
    assert end == "[DONE]"
    chunks = [json.loads(line) for line in lines]
    UiMessageCheck(known_calls).check(chunks)
    return chunks


async def send(client: httpx2.AsyncClient, body: Any, known_calls: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    return chunks_of(await client.post("/ai-sdk/assistant", json=body), known_calls)


def text_in(chunks: list[dict[str, Any]]) -> str:
    return "".join(chunk["delta"] for chunk in chunks if chunk["type"] == "text-delta")


def find(chunks: list[dict[str, Any]], type: str) -> dict[str, Any]:
    [found] = [chunk for chunk in chunks if chunk["type"] == type]
    return found


async def test_a_chat_streams_its_answers_and_repeats_them(serve: Serve, scripted: Scripted) -> None:
    async with serve([scripted(say("Hello."), say("Again."))]) as served, served.client() as client:
        first = await send(client, chat(user("Hi.")))
        assert text_in(first) == "Hello."
        assert first[-1]["finishReason"] == "stop"
        assert await send(client, chat(user("Hi."))) == first
        history = [user("Hi."), assistant({"type": "text", "text": "Hello."}, id=first[0]["messageId"])]
        assert text_in(await send(client, chat(*history, user("More?", "m-2")))) == "Again."
        assert (await served.service.find_session(PRINCIPALS["alice"], "c-1")).owner == "alice"
        assert (await client.get("/ai-sdk/assistant/c-1/stream")).status_code == 204
        assert (await client.get("/ai-sdk/assistant/unknown/stream")).status_code == 204
        assert (await client.delete("/ai-sdk/assistant/c-1/stream")).status_code == 204


async def test_an_approval_is_decided_in_the_next_request(serve: Serve, scripted: Scripted) -> None:
    agent = scripted(call("deploy", place="here"), say("Done."), tools=[deploy])
    async with serve([agent], permissions=vaka.Permissions(confirm=["deploy"])) as served, served.client() as client:
        first = await send(client, chat(user("Go.")))
        asked = find(first, "tool-approval-request")
        assert find(first, "tool-input-available")["dynamic"]
        assert first[-1]["finishReason"] == "tool-calls"
        replayed = chunks_of(await client.get("/ai-sdk/assistant/c-1/stream"))
        assert replayed == first
        call_id = asked["toolCallId"]
        part = {
            "type": "dynamic-tool",
            "toolCallId": call_id,
            "toolName": "deploy",
            "state": "approval-responded",
            "input": {"place": "here"},
            "approval": {"id": asked["approvalId"], "approved": True},
        }
        body = chat(user("Go."), assistant(part, id=first[0]["messageId"]), messageId=first[0]["messageId"])
        rest = await send(client, body, (call_id,))
        assert rest[0] == first[0]
        assert find(rest, "tool-output-available")["output"] == "deployed to here"
        assert text_in(rest) == "Done."
        assert await send(client, body, (call_id,)) == rest
        assert (await client.get("/ai-sdk/assistant/c-1/stream")).status_code == 204


@pytest.mark.parametrize("reason", [None, "too early"])
async def test_a_rejected_call_is_answered_by_the_model(serve: Serve, scripted: Scripted, reason: str | None) -> None:
    agent = scripted(call("deploy", place="here"), say("As you like."), tools=[deploy])
    async with serve([agent], permissions=vaka.Permissions(confirm=["deploy"])) as served, served.client() as client:
        asked = find(await send(client, chat(user("Go."))), "tool-approval-request")
        approval = {"id": asked["approvalId"], "approved": False} | ({"reason": reason} if reason else {})
        part = {
            "type": "dynamic-tool",
            "toolCallId": asked["toolCallId"],
            "toolName": "deploy",
            "input": {},
            "state": "approval-responded",
            "approval": approval,
        }
        rest = await send(client, chat(user("Go."), assistant(part)), (asked["toolCallId"],))
        assert find(rest, "tool-output-denied")
        assert text_in(rest) == "As you like."


async def test_a_call_of_a_child_agent_is_approved_in_the_chat(serve: Serve, scripted: Scripted) -> None:
    own = {"agent": "operator"}
    child = scripted(
        {**call("deploy", place="here"), **own}, {**say("Deployed."), **own}, name="operator", tools=[deploy]
    )
    agent = scripted(call("operator", prompt="Deploy it."), say("All done."), tools=[child])
    async with serve([agent], permissions=vaka.Permissions(confirm=["deploy"])) as served, served.client() as client:
        first = await send(client, chat(user("Go.")))
        asked = find(first, "tool-approval-request")
        calls = [chunk["toolCallId"] for chunk in first if chunk["type"] == "tool-input-available"]
        outer, inner = calls
        assert inner == asked["toolCallId"]
        approval = {"id": asked["approvalId"], "approved": True}
        parts = [
            {"type": "dynamic-tool", "toolCallId": outer, "toolName": "operator", "state": "input-available"},
            {
                "type": "dynamic-tool",
                "toolCallId": inner,
                "toolName": "deploy",
                "state": "approval-responded",
                "approval": approval,
            },
        ]
        rest = await send(client, chat(user("Go."), assistant(*parts)), (outer, inner))
        outputs = {chunk["toolCallId"] for chunk in rest if chunk["type"] == "tool-output-available"}
        assert outputs == {outer, inner}
        assert text_in(rest) == "All done."


async def test_a_new_message_replaces_a_call_that_waits(serve: Serve, scripted: Scripted) -> None:
    agent = scripted(call("deploy", place="here"), say("Something else."), tools=[deploy])
    async with serve([agent], permissions=vaka.Permissions(confirm=["deploy"])) as served, served.client() as client:
        first = await send(client, chat(user("Go.")))
        waiting = {"type": "dynamic-tool", "toolCallId": "x", "toolName": "deploy", "state": "approval-requested"}
        body = chat(user("Go."), assistant(waiting, id=first[0]["messageId"]), user("No, talk.", "m-2"))
        assert text_in(await send(client, body)) == "Something else."
        assert not await served.service.runtime.decisions()


@pytest.mark.parametrize("given", ["agent", "request"])
async def test_the_client_runs_its_own_tools(serve: Serve, scripted: Scripted, given: str) -> None:
    own = [ClientTool("pick_color", "Ask for a color.")] if given == "agent" else []
    fields: dict[str, Any] = (
        {} if own else {"tools": {"pick_color": {"description": "Ask for a color."}}, "system": "Be kind."}
    )
    agent = scripted(call("pick_color"), say("Blue it is."), tools=[*own, deploy])
    async with serve([agent]) as served, served.client() as client:
        first = await send(client, chat(user("Paint."), **fields))
        asked = find(first, "tool-input-available")
        assert "dynamic" not in asked
        part = {"type": "tool-pick_color", "toolCallId": asked["toolCallId"], "input": {}}
        done = {**part, "state": "output-available", "output": {"color": "blue"}}
        rest = await send(client, chat(user("Paint."), assistant(done), **fields), (asked["toolCallId"],))
        assert text_in(rest) == "Blue it is."


async def test_a_call_that_waits_is_shown_and_answered_after_a_restart(
    serve: Serve, scripted: Scripted, tmp_path: Path
) -> None:
    agent, store = scripted(call("pick_color"), say("Blue it is.")), f"sqlite:///{tmp_path}/vaka.db"
    fields: dict[str, Any] = {"tools": {"pick_color": {"description": "Ask for a color."}}}
    async with serve([agent], store=store) as served, served.client() as client:
        asked = find(await send(client, chat(user("Paint."), **fields)), "tool-input-available")["toolCallId"]
    async with serve([agent], store=store) as served, served.client() as client:
        again = chunks_of(await client.get("/ai-sdk/assistant/c-1/stream"))
        assert find(again, "tool-input-available")["toolCallId"] == asked
        part = {"type": "tool-pick_color", "toolCallId": asked, "input": {}, "state": "output-available"}
        body = chat(user("Paint."), assistant({**part, "output": "blue"}), **fields)
        assert text_in(await send(client, body, (asked,))) == "Blue it is."


async def test_a_question_is_answered_in_the_body(serve: Serve, scripted: Scripted) -> None:
    @vaka.tool(effect="resume")
    async def choose(context: ToolContext) -> str:
        """Ask which one."""
        return f"chosen: {await context.ask('Which one?', options=['a', 'b'])}"

    async with serve([scripted(call("choose"), say("Good."), tools=[choose])]) as served, served.client() as client:
        first = await send(client, chat(user("Go.")))
        question, asked = find(first, "data-question"), find(first, "tool-input-available")
        part = {"type": "dynamic-tool", "toolCallId": asked["toolCallId"], "state": "input-available"}
        body = chat(user("Go."), assistant(part), answers={question["id"]: "b"})
        rest = await send(client, body, (asked["toolCallId"],))
        assert find(rest, "tool-output-available")["output"] == "chosen: b"
        assert text_in(rest) == "Good."


async def test_a_turn_goes_on_without_its_client_and_is_resumed(serve: Serve, scripted: Scripted) -> None:
    started, go_on = asyncio.Event(), asyncio.Event()

    @vaka.tool
    async def wait() -> str:
        """Wait."""
        started.set()
        await go_on.wait()
        return "waited"

    async with serve([scripted(call("wait"), say("Finished."), tools=[wait])]) as served, served.client() as client:
        async with client.stream("POST", "/ai-sdk/assistant", json=chat(user("Go."))):
            await started.wait()
        async with client.stream("GET", "/ai-sdk/assistant/c-1/stream") as answer:
            go_on.set()
            await answer.aread()
        chunks = chunks_of(answer)
        assert chunks[0]["type"] == "start"
        assert find(chunks, "tool-output-available")["output"] == "waited"
        assert text_in(chunks) == "Finished."


@pytest.mark.parametrize("how", ["disconnect", "delete"])
async def test_a_turn_is_stopped_on_demand(serve: Serve, scripted: Scripted, how: str) -> None:
    started = asyncio.Event()

    @vaka.tool
    async def wait() -> str:
        """Wait."""
        started.set()
        await asyncio.Event().wait()
        return ""

    policy = {"onDisconnect": "cancel"} if how == "disconnect" else {}
    async with serve([scripted(call("wait"), say("Never."), tools=[wait])]) as served, served.client() as client:
        async with client.stream("POST", "/ai-sdk/assistant", json=chat(user("Go."), **policy)) as answer:
            await started.wait()
            if how == "delete":
                assert (await client.delete("/ai-sdk/assistant/c-1/stream")).status_code == 204
                await answer.aread()
                assert chunks_of(answer)[-1] == {"type": "abort", "reason": "stopped by the user"}
        async for event in served.service.runtime.follow("c-1"):
            if event.type == "turn.interrupted":
                break


async def test_an_answer_is_written_anew_and_a_message_is_edited(serve: Serve) -> None:
    model = ScriptedModel(say("One."), say("Two."))
    async with serve([vaka.Agent("assistant", model=model)]) as served, served.client() as client:
        first = await send(client, chat(user("Hi.")))
        again = chat(user("Hi."), trigger="regenerate-message", messageId=first[0]["messageId"])
        second = await send(client, again)
        assert text_in(second) == "One."  # a rewind gives the line back
        assert second[0]["messageId"] != first[0]["messageId"]
        assert await send(client, again) == second
        third = await send(client, chat(user("Hi."), trigger="regenerate-message"))
        assert third[0]["messageId"] != second[0]["messageId"]
        history = [user("Hi."), assistant({"type": "text", "text": "One."}, id=third[0]["messageId"])]
        assert text_in(await send(client, chat(*history, user("And?", "m-2")))) == "Two."
        edited = await send(client, chat(user("Hello?"), messageId="m-1"))
        assert text_in(edited) == "One."
        session = await served.service.open_session(PRINCIPALS["alice"], "c-1")
        messages = [each for each in await session.messages() if isinstance(each, UserMessage)]
        assert [text_of(each.content) for each in messages] == ["Hello?"]
        wrong = chat(user("Hello?"), trigger="regenerate-message", messageId="nothing")
        assert (await client.post("/ai-sdk/assistant", json=wrong)).status_code == 404
        fresh = await send(client, chat(user("New.", "m-9"), id="c-2", trigger="regenerate-message"))
        assert text_in(fresh) == "One."


async def test_a_message_that_was_queued_is_answered_anew(serve: Serve) -> None:
    model = ScriptedModel(say("One."), say("Two."))
    async with serve([vaka.Agent("assistant", model=model)]) as served, served.client() as client:
        session = await served.service.create_session(PRINCIPALS["alice"], agent="assistant", id="c-1")
        stream = session.stream("Hi.", key="m-1")
        await anext(stream)
        await session.send("And?", key="m-2")
        async for _ in stream:
            continue
        chunks = await send(client, chat(user("And?", "m-2")))
        body = chat(user("And?", "m-2"), trigger="regenerate-message", messageId=chunks[0]["messageId"])
        assert text_in(await send(client, body)) == "Two."


REFUSED: list[tuple[Any, int, str, str]] = [
    (b"{", 400, "invalid_input", "AI SDK"),
    (chat(), 404, "not_found", "c-1"),
    (chat(user("Hi.", "")), 400, "invalid_input", "empty id"),
    (chat({"id": "m", "role": "user", "parts": []}), 400, "invalid_input", "neither text nor files"),
    (chat(user("Hi."), id=""), 400, "invalid_input", "session id"),
    (chat(user("Hi."), onDisconnect="no"), 400, "invalid_input", "onDisconnect"),
    (chat(user("Hi."), trigger="what"), 400, "invalid_input", "trigger"),
    (chat(user("Hi."), answers={"qst_1": "x"}), 404, "not_found", "qst_1"),
    (chat(user("Hi."), tools={"deploy": {}}), 400, "invalid_tool", "deploy"),
]


async def test_a_request_that_is_not_possible_says_why(serve: Serve, scripted: Scripted) -> None:
    async with serve([scripted(say("Hello."), tools=[deploy])]) as served, served.client() as client:
        for body, status, code, part in REFUSED:
            content = body if isinstance(body, bytes) else json.dumps(body).encode()
            answer = await client.post("/ai-sdk/assistant", content=content)
            assert (answer.status_code, answer.json()["code"]) == (status, code), body
            assert part in answer.json()["detail"]
        assert text_in(await send(client, chat(user("Hi.")))) == "Hello."
        anew = chat(assistant({"type": "text", "text": "x"}), trigger="regenerate-message")
        assert (await client.post("/ai-sdk/assistant", json=anew)).json()["code"] == "nothing_new"


async def test_chats_of_others_and_missing_scopes(serve: Serve, scripted: Scripted) -> None:
    agent = scripted(call("deploy", place="here"), say("Done."), tools=[deploy])
    async with serve([agent], permissions=vaka.Permissions(confirm=["deploy"])) as served:
        async with served.client() as client:
            await send(client, chat(user("Go.")))
            assert (await client.post("/ai-sdk/none", json=chat(user("Hi.")))).status_code == 404
            assert (await client.get("/ai-sdk/none/c-1/stream")).status_code == 404
        for token in ("carol", "bob"):
            async with served.client(token) as client:
                assert (await client.get("/ai-sdk/assistant/c-1/stream")).status_code == 204
                assert (await client.delete("/ai-sdk/assistant/c-1/stream")).status_code == 204
        async with served.client("carol") as client:
            assert (await client.post("/ai-sdk/assistant", json=chat(user("Hi.", "m-2")))).status_code == 404
        async with served.client("reader") as client:
            assert (await client.post("/ai-sdk/assistant", json=chat(user("Hi.")))).status_code == 403
            assert (await client.delete("/ai-sdk/assistant/c-1/stream")).status_code == 403
        [row] = await served.service.runtime.decisions()
        assert row.session == "c-1"


async def test_a_turn_that_cannot_begin_is_an_error_chunk(serve: Serve) -> None:
    agent = vaka.Agent("assistant", model="scripted:/does/not/exist.jsonl")
    async with serve([agent]) as served, served.client() as client:
        answer = await client.post("/ai-sdk/assistant", json=chat(user("Hi.")))
        assert '"type":"error"' in answer.text
        assert answer.text.endswith("data: [DONE]\n\n")


async def test_without_the_feature_there_is_no_route(serve: Serve, scripted: Scripted) -> None:
    settings = ServerSettings(features=frozenset(FEATURE_NAMES) - {"ai_sdk"})
    async with serve([scripted(say("Hello."))], settings=settings) as served, served.client() as client:
        assert (await client.post("/ai-sdk/assistant", json=chat(user("Hi.")))).status_code == 404
