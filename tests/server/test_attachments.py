"""Files that a model does not take: each door answers 400 with the reason, in its own form."""

import base64
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

import vaka
from tests.server.acp_client import GivenWorkspaces, RpcError, connect
from tests.server.conftest import serve_agents
from vaka.config.server_tables import FEATURE_NAMES
from vaka.models import Account, OpenAIChat
from vaka.models.openai_chat.vendors import COMPATIBLE
from vaka.server.settings import ServerSettings
from vaka.testing import say
from vaka.testing.fake_provider import FakeProvider

Json = dict[str, Any]
DATA = base64.b64encode(b"PK\x03\x04" + bytes(40)).decode()
ZIP = f"data:application/zip;base64,{DATA}"
REFUSED = "cannot take this document: it does not accept application/zip"


def chat(**fields: Any) -> Json:
    return {"model": "assistant", "messages": [{"role": "user", "content": [fields]}]}


def anthropic(**fields: Any) -> Json:
    return {**chat(**fields), "max_tokens": 9}


def response(**fields: Any) -> Json:
    return {"model": "assistant", "input": [{"role": "user", "content": [fields]}]}


def ui_chat(**fields: Any) -> Json:
    return {"id": "c-1", "messages": [{"id": "m-1", "role": "user", "parts": [fields]}]}


def agui(**fields: Any) -> Json:
    return {"threadId": "t-1", "runId": "r-1", "messages": [{"id": "m-1", "role": "user", "content": [fields]}]}


BASE64 = {"type": "base64", "media_type": "application/zip", "data": DATA}
AGUI_DATA = {"type": "data", "value": DATA, "mimeType": "application/zip"}
CHAT = "/v1/chat/completions"
MESSAGES = "/v1/messages"
RESPONSES = "/v1/responses"
CASES: dict[str, tuple[str, Json, str]] = {
    "chat: a file": (CHAT, chat(type="file", file={"filename": "a.zip", "file_data": ZIP}), REFUSED),
    "chat: a file by its id": (CHAT, chat(type="file", file={"file_id": "f-1"}), "file_data"),
    "chat: another type": (CHAT, chat(type="video", video="x"), "cannot be read"),
    "messages: a document": (MESSAGES, anthropic(type="document", source=BASE64), REFUSED),
    "messages: a document by its id": (
        MESSAGES,
        anthropic(type="document", source={"type": "file", "file_id": "f-1"}),
        "cannot be read",
    ),
    "messages: another type": (MESSAGES, anthropic(type="container_upload"), "cannot be read"),
    "responses: a file": (RESPONSES, response(type="input_file", filename="a.zip", file_data=ZIP), REFUSED),
    "responses: a file by its id": (RESPONSES, response(type="input_file", file_id="f-1"), "file_data"),
    "responses: another type": (RESPONSES, response(type="input_video"), "cannot be read"),
    "ai sdk: a file": ("/ai-sdk/assistant", ui_chat(type="file", mediaType="application/zip", url=ZIP), REFUSED),
    "ai sdk: a file without a type": ("/ai-sdk/assistant", ui_chat(type="file", url=ZIP), "needs a 'mediaType'"),
    "ai sdk: another type": ("/ai-sdk/assistant", ui_chat(type="video"), "are not supported"),
    "ag-ui: a document": ("/agui/assistant", agui(type="document", source=AGUI_DATA), REFUSED),
    "ag-ui: a file by its id": (
        "/agui/assistant",
        agui(type="document", source={"type": "file", "value": "f-1"}),
        "needs a 'source'",
    ),
    "ag-ui: a video": (
        "/agui/assistant",
        agui(type="video", source={"type": "url", "value": "https://example.com/a.mp4"}),
        "is not supported",
    ),
}


@asynccontextmanager
async def serve_model() -> AsyncGenerator[tuple[httpx2.AsyncClient, FakeProvider, OpenAIChat]]:
    async with FakeProvider(say("Fine.")) as provider:
        model = OpenAIChat("any", Account(base_url=provider.url + "/v1"), profile=COMPATIBLE)
        settings = ServerSettings(features=frozenset(FEATURE_NAMES))
        try:
            agent = vaka.Agent("assistant", model=model)
            async with serve_agents([agent], settings=settings) as served, served.client() as client:
                yield client, provider, model
        finally:
            await model.close()


@pytest.mark.parametrize("name", CASES)
async def test_a_file_that_cannot_be_used_is_a_bad_request_with_the_reason(name: str) -> None:
    path, body, reason = CASES[name]
    async with serve_model() as (client, provider, _):
        for stream in (False, True) if path.startswith("/v1") else (True,):
            answer = await client.post(path, json={**body, "stream": stream})
            assert answer.status_code == 400, answer.text
            assert "json" in answer.headers["content-type"]
            document = answer.json()
            assert reason in (document["error"]["message"] if "error" in document else document["detail"])
        assert not provider.requests


async def test_a_file_is_refused_with_the_reason_in_tasks_turns_and_editors(tmp_path: Path) -> None:
    async with serve_model() as (client, provider, model):
        part = {"raw": DATA, "mediaType": "application/zip"}
        message = {"messageId": "m-1", "role": "ROLE_USER", "parts": [part]}
        request = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
        task = (await client.post("/a2a/assistant", json=request, headers={"A2A-Version": "1.0"})).json()["result"]
        assert REFUSED in str(task["task"]["status"])
        document = {"type": "document", "media_type": "application/zip", "data": DATA}
        turn = {"agent": "assistant", "input": [document]}
        error = (await client.post("/api/v1/sessions/s/turns", json=turn)).json()["error"]
        assert (error["code"], error["status"]) == ("bad_request", 400)
        assert REFUSED in error["message"]
        async with connect(GivenWorkspaces(vaka.Agent("assistant", model=model)), tmp_path) as editor:
            session = await editor.open()
            resource = {"uri": "file:///a.zip", "mimeType": "application/zip", "blob": DATA}
            prompt = [{"type": "resource", "resource": resource}]
            with pytest.raises(RpcError, match="application/zip") as refused:
                await editor.request("session/prompt", sessionId=session, prompt=prompt)
            assert refused.value.code == -32602
        assert not provider.requests
