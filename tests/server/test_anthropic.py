"""The Messages API over a real socket: tools, decisions, errors and the list of models."""

import json
from collections.abc import Callable
from typing import Any

import httpx2

import vaka
from tests.server.conftest import Serve
from vaka.agents.react import Agent
from vaka.server.settings import ServerSettings
from vaka.testing import call, fail, say

Scripted = Callable[..., Agent]


@vaka.tool
def deploy() -> str:
    """Deploy it."""
    return "deployed"


PICK = {"name": "pick", "description": "Pick.", "input_schema": {"type": "object", "properties": {}}}


class Talk:
    """A client that sends the whole conversation each time."""

    def __init__(self, client: httpx2.AsyncClient, **options: Any) -> None:
        self.client, self.options = client, {"model": "assistant", "max_tokens": 1000, **options}
        self.messages: list[dict[str, Any]] = []
        self.session = ""

    async def ask(self, content: Any) -> dict[str, Any]:
        new = {"role": "user", "content": content}
        answer = await self.client.post("/v1/messages", json={**self.options, "messages": [*self.messages, new]})
        message: dict[str, Any] = answer.json()
        if answer.status_code == 200:
            self.messages += [new, {"role": "assistant", "content": message["content"]}]
            self.session = answer.headers["x-vaka-session"]
        return {"status": answer.status_code, **message}


async def test_a_conversation_goes_on_with_tools_of_the_client_and_approvals(serve: Serve, scripted: Scripted) -> None:
    agent = scripted(say("Hello."), call("pick"), call("deploy"), say("Done."), tools=[deploy])
    async with serve([agent], permissions=vaka.Permissions(confirm=["deploy"])) as served, served.client("") as client:
        client.headers["x-api-key"] = "alice"
        talk = Talk(client, tools=[PICK], system="Be brief.")
        first = await talk.ask("Hi")
        assert (first["content"], first["stop_reason"]) == ([{"type": "text", "text": "Hello."}], "end_turn")
        session = talk.session
        second = await talk.ask("Deploy what you pick")
        [use] = second["content"]
        assert (use["type"], use["name"], use["input"], second["stop_reason"]) == ("tool_use", "pick", {}, "tool_use")
        result = {"type": "tool_result", "tool_use_id": use["id"], "content": "red"}
        third = await talk.ask([result, {"type": "text", "text": "Quick!"}])
        assert "Reply 'approve" in third["content"][-1]["text"]
        unclear = await talk.ask("Hm")
        assert (unclear["status"], unclear["error"]["type"]) == (400, "invalid_request_error")
        last = await talk.ask("approve")
        assert last["content"] == [{"type": "text", "text": "Done."}]
        assert talk.session == session


async def test_a_stream_has_named_events_and_a_ping(serve: Serve, scripted: Scripted) -> None:
    async with serve([scripted(say("Hello.", reasoning="hm"))]) as served, served.client() as client:
        body = {"model": "assistant", "max_tokens": 10, "stream": True, "messages": [{"role": "user", "content": "Hi"}]}
        answer = await client.post("/v1/messages", json={**body, "thinking": {"type": "enabled", "budget_tokens": 1}})
        frames = [frame.split("\n", 1) for frame in answer.text.split("\n\n") if frame]
        names = [name.removeprefix("event: ") for name, _ in frames]
        assert names[:2] == ["message_start", "ping"]
        assert names[-2:] == ["message_delta", "message_stop"]
        events = [json.loads(data.removeprefix("data: ")) for _, data in frames]
        assert [event["type"] for event in events] == names
        blocks = [event["content_block"]["type"] for event in events if event["type"] == "content_block_start"]
        assert blocks == ["thinking", "text"]


async def test_errors_have_the_form_of_anthropic(serve: Serve, scripted: Scripted) -> None:
    hi = [{"role": "user", "content": "Hi"}]
    async with serve([scripted(fail(400, "no such thing"))]) as served, served.client() as client:
        for body, status, kind in [
            ({"model": "unknown", "messages": hi}, 404, "not_found_error"),
            ({"model": "assistant", "messages": []}, 400, "invalid_request_error"),
            ({"model": "assistant", "messages": hi, "tools": [{"name": 5}]}, 400, "invalid_request_error"),
        ]:
            answer = await client.post("/v1/messages", json=body)
            assert (answer.status_code, answer.json()["error"]["type"]) == (status, kind)
            assert answer.json()["type"] == "error"
            assert answer.json()["request_id"] == answer.headers["x-request-id"]
        async with served.client("wrong") as stranger:
            answer = await stranger.post("/v1/messages", json={})
            assert (answer.status_code, answer.json()["error"]["type"]) == (401, "authentication_error")
        failed = await client.post("/v1/messages", json={"model": "assistant", "messages": hi})
        assert (failed.status_code, failed.json()["error"]["type"]) == (400, "invalid_request_error")
        assert failed.headers["x-should-retry"] == "false"
        streamed = await client.post("/v1/messages", json={"model": "assistant", "messages": hi, "stream": True})
        assert (streamed.status_code, streamed.json()["error"]["type"]) == (400, "invalid_request_error")


async def test_tokens_are_estimated_and_models_listed(serve: Serve, scripted: Scripted) -> None:
    settings = ServerSettings(features=frozenset({"anthropic_compat"}))
    async with serve([scripted(say("Hi."))], settings=settings) as served, served.client() as client:
        body: dict[str, Any] = {"model": "assistant", "messages": [{"role": "user", "content": "word " * 100}]}
        short = (await client.post("/v1/messages/count_tokens", json=body)).json()["input_tokens"]
        body |= {"tools": [PICK], "system": "Be brief."}
        assert (await client.post("/v1/messages/count_tokens", json=body)).json()["input_tokens"] > short > 50
        body["model"] = "unknown"
        assert (await client.post("/v1/messages/count_tokens", json=body)).status_code == 404
        listed = (await client.get("/v1/models", headers={"anthropic-version": "2023-06-01"})).json()
        assert [model["id"] for model in listed["data"]] == ["assistant"]
        assert (await client.get("/v1/chat/completions")).status_code == 404
