"""What each door answers when the provider of the model refuses a request, over HTTP on both sides."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anthropic
import httpx2
import openai
import pytest
import websockets
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

import vaka
from tests.server.acp_client import GivenWorkspaces, RpcError, connect
from tests.server.conftest import Served, serve_agents
from vaka.config.server_tables import FEATURE_NAMES
from vaka.models import Account, Anthropic, OpenAIChat
from vaka.server.settings import ServerSettings
from vaka.testing import call, say
from vaka.testing.fake_provider import FakeProvider, Fault
from vaka.testing.models import fail

HI = [{"role": "user", "content": "Hi"}]
CHAT: dict[str, Any] = {"model": "assistant", "messages": HI}
ALL = ServerSettings(features=frozenset(FEATURE_NAMES))

STATUSES = [(400, 400), (401, 401), (403, 403), (404, 404), (413, 413), (422, 422), (429, 429), (500, 502), (529, 503)]
"""The status of the provider, and of every door."""


@asynccontextmanager
async def serve_provider(*answers: Any, fault: Any = None, **options: Any) -> AsyncGenerator[Served]:
    """Serve an agent whose model is an HTTP server."""
    async with FakeProvider(*answers, fault=fault) as provider:
        model = OpenAIChat("any", Account(base_url=provider.url + "/v1", key="sk-server-key-0123456789abcdef"))
        agent = vaka.Agent("assistant", model=model, **options)
        try:
            async with serve_agents([agent], settings=ALL) as served:
                yield served
        finally:
            await model.close()


def events_of(answer: httpx2.Response) -> list[dict[str, Any]]:
    lines = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: {")]
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize(("given", "expected"), STATUSES)
async def test_a_status_of_the_provider_is_the_status_at_each_door(given: int, expected: int) -> None:
    async with serve_provider(fail(given, "the provider says no")) as served, served.client() as client:
        for path, body in [
            ("/v1/chat/completions", CHAT),
            ("/v1/messages", {**CHAT, "max_tokens": 9}),
            ("/v1/responses", {"model": "assistant", "input": "Hi"}),
        ]:
            for stream in (False, True):
                answer = await client.post(path, json={**body, "stream": stream})
                assert answer.status_code == expected, (path, stream, answer.text)
                assert "the provider says no" in answer.json()["error"]["message"]
        turn = (await client.post("/api/v1/sessions/mine/turns", json={"agent": "assistant", "input": "Hi"})).json()
        assert (turn["status"], turn["error"]["status"]) == ("failed", expected)
        message = {"id": "m1", "role": "user", "content": "Hi"}
        run = await client.post("/agui/assistant", json={"threadId": "t-1", "runId": "r-1", "messages": [message]})
        parts = [{"type": "text", "text": "Hi"}]
        chat = {"id": "c-1", "messages": [{"id": "m", "role": "user", "parts": parts}]}
        chunks = await client.post("/ai-sdk/assistant", json=chat)
        if given in (400, 404, 413, 422):  # the request is wrong
            assert (run.status_code, chunks.status_code) == (expected, expected)
            assert "the provider says no" in run.json()["detail"]
            assert "the provider says no" in chunks.json()["detail"]
        else:
            last = events_of(run)[-1]
            assert (last["type"], last["metadata"]["status"]) == ("RUN_ERROR", expected)
            [error] = [chunk for chunk in events_of(chunks) if chunk["type"] == "error"]
            assert "the provider says no" in error["errorText"]
        sent = {"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": "Hi"}]}
        rpc = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": sent}}
        status = (await client.post("/a2a/assistant", json=rpc, headers={"A2A-Version": "1.0"})).json()["result"]
        assert status["task"]["status"]["state"] == "TASK_STATE_FAILED"
        assert f'"status":{expected}' in json.dumps(status, separators=(",", ":"))
        address = f"{served.url.replace('http', 'ws')}/v1/responses"
        headers = {"Authorization": "Bearer alice"}
        async with websockets.connect(address, additional_headers=headers, open_timeout=20) as socket:
            await socket.send(json.dumps({"type": "response.create", "model": "assistant", "input": "Hi"}))
            while (event := json.loads(await socket.recv()))["type"] != "response.failed":
                assert event["type"] in ("response.created", "response.in_progress")
            assert "the provider says no" in event["response"]["error"]["message"]


async def test_the_error_of_the_provider_reaches_the_clients_of_mcp_and_acp(tmp_path: Path) -> None:
    async with FakeProvider(fail(413, "too big a request")) as provider:
        model = OpenAIChat("any", Account(base_url=provider.url + "/v1"))
        agent = vaka.Agent("assistant", model=model)
        async with serve_agents([agent], settings=ALL) as served:
            headers = {"Authorization": "Bearer alice"}
            async with (
                httpx2.AsyncClient(headers=headers, timeout=20) as http,
                Client(streamable_http_client(f"{served.url}/mcp", http_client=http)) as client,
            ):
                result = await client.call_tool("ask_assistant", {"prompt": "Hi"})
                assert result.is_error
                assert "too big a request" in str(result.content)
        async with connect(GivenWorkspaces(agent), tmp_path) as editor:
            session = await editor.open()
            with pytest.raises(RpcError, match="too big a request") as refused:
                await editor.prompt(session, "Hi")
            assert (refused.value.code, refused.value.data) == (-32602, {"code": "bad_request", "status": 413})
        await model.close()


async def test_the_delay_that_the_provider_names_is_passed_on() -> None:
    async with serve_provider(fail(429, "slow down", retry_after=7.5)) as served, served.client() as client:
        for stream in (False, True):
            answer = await client.post("/v1/chat/completions", json={**CHAT, "stream": stream})
            assert (answer.headers["retry-after"], answer.headers["retry-after-ms"]) == ("8", "7500")
            assert "x-should-retry" not in answer.headers  # no tool has run
        async with openai.AsyncOpenAI(base_url=f"{served.url}/v1", api_key="alice", max_retries=0) as their:
            with pytest.raises(openai.RateLimitError) as limited:
                await their.responses.create(model="assistant", input="Hi")
            assert limited.value.response.headers["retry-after"] == "8"
        async with anthropic.AsyncAnthropic(base_url=served.url, api_key="alice", max_retries=0) as claude:
            with pytest.raises(anthropic.RateLimitError, match="slow down") as refused:
                await claude.messages.create(model="assistant", max_tokens=9, messages=HI)  # type: ignore[arg-type]  # a dict
            assert refused.value.response.headers["retry-after-ms"] == "7500"


async def test_the_key_that_the_provider_refuses_is_the_one_of_the_server() -> None:
    refusal = fail(401, "Incorrect API key provided: sk-server-key-0123456789abcdef")
    async with serve_provider(refusal) as served, served.client() as client:
        answer = await client.post("/v1/chat/completions", json=CHAT)
        error = answer.json()["error"]
        assert (answer.status_code, error["code"]) == (401, "authentication")
        assert "refused the key of this server, not yours" in error["message"]
        assert "0123456789abcdef" not in answer.text
        assert answer.headers["x-should-retry"] == "false"
        assert "www-authenticate" not in answer.headers
        own = await client.post("/v1/chat/completions", json=CHAT, headers={"Authorization": "Bearer wrong"})
        assert (own.status_code, own.json()["error"]["code"]) == (401, "unauthorized")


async def test_a_turn_whose_tools_have_run_is_not_repeated() -> None:
    @vaka.tool(effect="read")
    def look() -> str:
        """Look."""
        return "sunny"

    answers = (call("look"), fail(429, "slow down", retry_after=3))
    async with serve_provider(*answers, tools=[look]) as served, served.client() as client:
        answer = await client.post("/v1/chat/completions", json=CHAT)
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "3")
        assert answer.headers["x-should-retry"] == "false"


async def test_a_stream_that_is_cut_ends_with_the_error_of_the_protocol() -> None:
    """The status is sent by then, so the error is an event."""
    fault = Fault(cut=-120)
    async with serve_provider(say("A long answer. " * 40), fault=fault) as served, served.client() as client:
        chat = await client.post("/v1/chat/completions", json={**CHAT, "stream": True})
        assert chat.status_code == 200
        assert events_of(chat)[-1]["error"]["code"] == "stream_cut"
        assert "[DONE]" not in chat.text
        message = await client.post("/v1/messages", json={**CHAT, "stream": True})
        assert events_of(message)[-1]["error"]["type"] == "api_error"
        response = await client.post("/v1/responses", json={"model": "assistant", "input": "Hi", "stream": True})
        assert events_of(response)[-1]["type"] == "response.failed"
        whole = await client.post("/v1/chat/completions", json=CHAT)
        assert (whole.status_code, whole.json()["error"]["code"]) == (502, "stream_cut")


async def test_a_filtered_answer_is_no_error() -> None:
    async with FakeProvider(say("I cannot.", stop="refusal")) as provider:
        model = Anthropic("any", Account(base_url=provider.url, key="k"))
        agent = vaka.Agent("assistant", model=model)
        async with serve_agents([agent]) as served, served.client() as client:
            completion = (await client.post("/v1/chat/completions", json=CHAT)).json()
            assert completion["choices"][0]["finish_reason"] == "content_filter"
            message = (await client.post("/v1/messages", json=CHAT)).json()
            assert message["stop_reason"] == "refusal"
        await model.close()
