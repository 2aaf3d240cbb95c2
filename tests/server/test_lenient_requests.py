"""Requests that the original servers accept, at each door, with a model behind HTTP: what the provider receives."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest

import vaka
from tests.server.conftest import Served, serve_agents
from vaka.config.server_tables import FEATURE_NAMES
from vaka.models import Account, OpenAIChat
from vaka.server.settings import ServerSettings
from vaka.testing import call, say
from vaka.testing.fake_provider import FakeProvider

Json = dict[str, Any]
LONG_ID = "toolu_" + "x" * 80
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}}
CHAT_TOOL = {"type": "function", "function": {"name": "weather", "parameters": PARAMETERS}}
ANTHROPIC_TOOL = {"name": "weather", "input_schema": PARAMETERS}
RESPONSES_TOOL = {"type": "function", "name": "weather", "parameters": PARAMETERS}


@asynccontextmanager
async def serve_model(*answers: Any) -> AsyncGenerator[tuple[Served, FakeProvider, httpx2.AsyncClient]]:
    """Serve an agent whose model is an HTTP server, with a client."""
    async with FakeProvider(*answers) as provider:
        model = OpenAIChat("any", Account(base_url=provider.url + "/v1", key="k"))
        settings = ServerSettings(features=frozenset(FEATURE_NAMES))
        try:
            async with (
                serve_agents([vaka.Agent("assistant", model=model)], settings=settings) as served,
                served.client() as client,
            ):
                yield served, provider, client
        finally:
            await model.close()


async def list_sessions(client: httpx2.AsyncClient) -> list[Json]:
    return list((await client.get("/api/v1/sessions")).json()["data"])


def chat_call(id: str = "call_1", arguments: Any = '{"city": "Hilo"}') -> Json:
    return {"id": id, "type": "function", "function": {"name": "weather", "arguments": arguments}}


def outline(request: Any) -> list[str]:
    """Return the messages that a provider has received, without the system prompt."""
    lines: list[str] = []
    for message in request.body["messages"]:
        content = message.get("content")
        text = content if isinstance(content, str) else "".join(part.get("text", "") for part in content or ())
        calls = "".join(f" [{made['function']['name']}]" for made in message.get("tool_calls") or ())
        if message["role"] not in ("system", "developer"):
            lines.append(f"{message['role']}: {text}{calls}".strip())
    return lines


CHAT_CASES: dict[str, tuple[list[Json], list[str]]] = {
    "content is null beside calls": (
        [
            {"role": "user", "content": "Weather?"},
            {"role": "assistant", "content": None, "tool_calls": [chat_call()]},
            {"role": "tool", "tool_call_id": "call_1", "content": "sunny"},
        ],
        ["user: Weather?", "assistant:  [weather]", "tool: sunny"],
    ),
    "content is missing beside calls": (
        [
            {"role": "user", "content": "Weather?"},
            {"role": "assistant", "tool_calls": [chat_call()]},
            {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "sunny"}]},
        ],
        ["user: Weather?", "assistant:  [weather]", "tool: sunny"],
    ),
    "content is an empty list": (
        [
            {"role": "user", "content": "Weather?"},
            {"role": "assistant", "content": [], "tool_calls": [chat_call()]},
            {"role": "tool", "tool_call_id": "call_1", "content": ""},
            {"role": "user", "content": "And?"},
        ],
        ["user: Weather?", "assistant:  [weather]", "tool: (no output)", "user: And?"],
    ),
    "tool_calls is null": (
        [
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": "Hello.", "tool_calls": None, "refusal": None, "audio": None},
            {"role": "user", "content": "And?"},
        ],
        ["user: Hi", "assistant: Hello.", "user: And?"],
    ),
    "arguments are an object": (
        [
            {"role": "user", "content": "Weather?"},
            {"role": "assistant", "tool_calls": [chat_call(arguments={"city": "Hilo"})]},
            {"role": "tool", "tool_call_id": "call_1", "content": "sunny"},
        ],
        ["user: Weather?", "assistant:  [weather]", "tool: sunny"],
    ),
    "calls of another provider": (
        [
            {"role": "user", "content": "Weather?"},
            {"role": "assistant", "content": "I look.", "tool_calls": [chat_call(LONG_ID)]},
            {"role": "tool", "tool_call_id": LONG_ID, "content": "sunny"},
            {"role": "assistant", "content": "Sunny."},
            {"role": "user", "content": "Sure?"},
        ],
        ["user: Weather?", "assistant: I look. [weather]", "tool: sunny", "assistant: Sunny.", "user: Sure?"],
    ),
    "a trimmed history that begins with an answer": (
        [
            {"role": "assistant", "content": "Sunny."},
            {"role": "user", "content": "Sure?"},
        ],
        ["assistant: Sunny.", "user: Sure?"],
    ),
    "a trimmed history that begins with a call": (
        [
            {"role": "assistant", "content": None, "tool_calls": [chat_call("call_7")]},
            {"role": "tool", "tool_call_id": "call_7", "content": "sunny"},
        ],
        ["assistant:  [weather]", "tool: sunny"],
    ),
    "a result that was sent twice": (
        [
            {"role": "user", "content": "Weather?"},
            {"role": "assistant", "tool_calls": [chat_call()]},
            {"role": "tool", "tool_call_id": "call_1", "content": "sunny"},
            {"role": "tool", "tool_call_id": "call_1", "content": "sunny"},
            {"role": "assistant", "content": "Sunny."},
            {"role": "user", "content": "Sure?"},
        ],
        ["user: Weather?", "assistant:  [weather]", "tool: sunny", "assistant: Sunny.", "user: Sure?"],
    ),
    "results and a message together": (
        [
            {"role": "user", "content": "Weather?"},
            {"role": "assistant", "tool_calls": [chat_call("a"), chat_call("b")]},
            {"role": "tool", "tool_call_id": "b", "content": "rain"},
            {"role": "tool", "tool_call_id": "a", "content": "sunny"},
            {"role": "user", "content": "And now?"},
        ],
        ["user: Weather?", "assistant:  [weather] [weather]", "tool: rain", "tool: sunny", "user: And now?"],
    ),
    "functions in the form without ids": (
        [
            {"role": "user", "content": "Weather?"},
            {"role": "assistant", "content": None, "function_call": {"name": "weather", "arguments": "{}"}},
            {"role": "function", "name": "weather", "content": "sunny"},
        ],
        ["user: Weather?", "assistant:  [weather]", "tool: sunny"],
    ),
}


@pytest.mark.parametrize("name", CHAT_CASES)
@pytest.mark.parametrize("stream", [False, True])
async def test_chat_completions_accepts_what_the_original_accepts(name: str, stream: bool) -> None:
    messages, expected = CHAT_CASES[name]
    async with serve_model(say("Fine.")) as (_, provider, client):
        body = {"model": "assistant", "messages": messages, "tools": [CHAT_TOOL], "stream": stream, "unknown_field": 1}
        body["temperature"] = 0.5
        answer = await client.post("/v1/chat/completions", json=body)
        assert answer.status_code == 200, answer.text
        assert "Fine." in answer.text
        assert sorted(outline(provider.requests[-1])) == sorted(expected)
        ids = [
            made["id"] for message in provider.requests[-1].body["messages"] for made in message.get("tool_calls", ())
        ]
        assert all(len(id) <= 64 for id in ids)
        assert provider.requests[-1].body["temperature"] == 0.5


def use(id: str = "toolu_1", **fields: Any) -> Json:
    return {"type": "tool_use", "id": id, "name": "weather", **fields}


def result(id: str = "toolu_1", **fields: Any) -> Json:
    return {"type": "tool_result", "tool_use_id": id, **fields}


ANTHROPIC_CASES: dict[str, tuple[list[Json], list[str]]] = {
    "a call without an input and a result without a content": (
        [
            {"role": "user", "content": "Weather?"},
            {"role": "assistant", "content": [use()]},
            {"role": "user", "content": [result()]},
        ],
        ["user: Weather?", "assistant:  [weather]", "tool: (no output)"],
    ),
    "content is null": (
        [
            {"role": "user", "content": "Weather?"},
            {"role": "assistant", "content": None},
            {"role": "user", "content": "Well?"},
        ],
        ["user: Weather?", "user: Well?"],
    ),
    "calls of another provider": (
        [
            {"role": "user", "content": "Weather?"},
            {"role": "assistant", "content": [{"type": "text", "text": "I look."}, use("call_1", input={})]},
            {"role": "user", "content": [result("call_1", content="sunny"), {"type": "text", "text": "Sure?"}]},
        ],
        ["user: Weather?", "assistant: I look. [weather]", "tool: sunny", "user: Sure?"],
    ),
    "what tools of the provider did": (
        [
            {"role": "user", "content": "Weather?"},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "Hm.", "signature": "abc"},
                    {"type": "redacted_thinking", "data": "xyz"},
                    {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}},
                    {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
                    {"type": "text", "text": "Sunny.", "citations": None},
                ],
            },
            {"role": "user", "content": "Sure?"},
        ],
        ["user: Weather?", "assistant: Sunny.", "user: Sure?"],
    ),
    "a trimmed history that begins with a call": (
        [
            {"role": "assistant", "content": [use(LONG_ID, input={"city": "Hilo"})]},
            {"role": "user", "content": [result(LONG_ID, content="sunny", is_error=None)]},
        ],
        ["assistant:  [weather]", "tool: sunny"],
    ),
    "search results, documents of texts and messages of the system": (
        [
            {"role": "system", "content": "Be brief."},
            {
                "role": "user",
                "content": [
                    {"type": "search_result", "title": "T", "source": "S", "content": [{"type": "text", "text": "F"}]},
                    {"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": "D"}]}},
                    {"type": "text", "text": "Why?", "cache_control": {"type": "ephemeral"}},
                ],
            },
        ],
        ["user: T (S)\nFDWhy?"],
    ),
}


@pytest.mark.parametrize("name", ANTHROPIC_CASES)
@pytest.mark.parametrize("stream", [False, True])
async def test_messages_accepts_what_the_original_accepts(name: str, stream: bool) -> None:
    messages, expected = ANTHROPIC_CASES[name]
    async with serve_model(say("Fine.")) as (_, provider, client):
        body = {"model": "assistant", "messages": messages, "tools": [ANTHROPIC_TOOL], "stream": stream}
        body |= {"service_tier": "auto", "container": None, "betas": ["x"], "context_management": {"edits": []}}
        answer = await client.post("/v1/messages", json=body)
        assert answer.status_code == 200, answer.text
        assert "Fine." in answer.text
        assert [line.strip() for line in outline(provider.requests[-1])] == expected


RESPONSES_CASES: dict[str, tuple[Any, list[str]]] = {
    "items of another provider": (
        [
            {"type": "message", "role": "user", "content": "Weather?"},
            {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "abc"},
            {"type": "web_search_call", "id": "ws_1", "status": "completed"},
            {"type": "function_call", "id": "fc_1", "call_id": LONG_ID, "name": "weather", "arguments": None},
            {"type": "function_call_output", "call_id": LONG_ID, "output": "sunny"},
        ],
        ["user: Weather?", "assistant:  [weather]", "tool: sunny"],
    ),
    "content is null": (
        [
            {"role": "user", "content": "Weather?"},
            {"role": "assistant", "content": None, "type": None},
            {"role": "user", "content": "Well?"},
        ],
        ["user: Weather?", "user: Well?"],
    ),
    "a trimmed history that begins with a call": (
        [
            {"type": "function_call", "call_id": "call_9", "name": "weather", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "call_9", "output": [{"type": "input_text", "text": "sunny"}]},
        ],
        ["assistant:  [weather]", "tool: sunny"],
    ),
    "custom tools": (
        [
            {"role": "user", "content": "Weather?"},
            {"type": "custom_tool_call", "call_id": "c", "name": "weather", "input": "Hilo"},
            {"type": "custom_tool_call_output", "call_id": "c", "output": "sunny"},
        ],
        ["user: Weather?", "assistant:  [weather]", "tool: sunny"],
    ),
}


@pytest.mark.parametrize("name", RESPONSES_CASES)
@pytest.mark.parametrize("stream", [False, True])
async def test_responses_accepts_what_the_original_accepts(name: str, stream: bool) -> None:
    items, expected = RESPONSES_CASES[name]
    async with serve_model(say("Fine.")) as (_, provider, client):
        body = {"model": "assistant", "input": items, "tools": [RESPONSES_TOOL], "stream": stream, "truncation": "auto"}
        answer = await client.post("/v1/responses", json=body)
        assert answer.status_code == 200, answer.text
        assert "Fine." in answer.text
        assert [line.strip() for line in outline(provider.requests[-1])] == expected


async def test_results_that_are_sent_again_get_the_same_answer() -> None:
    async with serve_model(call("weather", city="Hilo"), say("Sunny."), say("Never.")) as (_, provider, client):
        tools = {"tools": [CHAT_TOOL]}
        messages: list[Json] = [{"role": "user", "content": "Weather?"}]
        body = {"model": "assistant", "messages": messages, **tools}
        asked = (await client.post("/v1/chat/completions", json=body)).json()["choices"][0]["message"]
        [made] = asked["tool_calls"]
        messages += [asked, {"role": "tool", "tool_call_id": made["id"], "content": "sun"}]
        for stream in (False, True, False):
            answer = await client.post("/v1/chat/completions", json={**body, "stream": stream})
            assert answer.status_code == 200, answer.text
            assert "Sunny." in answer.text
        assert len(provider.requests) == 2
        messages += [{"role": "assistant", "content": "Sunny."}, {"role": "user", "content": "And?"}]
        assert "Never." in (await client.post("/v1/chat/completions", json=body)).text
        assert len(await list_sessions(client)) == 1


async def test_results_of_a_trimmed_conversation_begin_a_session_with_what_was_sent() -> None:
    async with serve_model(call("weather", city="Hilo"), say("Sunny.")) as (_, provider, client):
        body: Json = {"model": "assistant", "tools": [CHAT_TOOL]}
        first = [{"role": "user", "content": "Secret."}, {"role": "assistant", "content": "Ok."}]
        first += [{"role": "user", "content": "Weather?"}]
        asked = (await client.post("/v1/chat/completions", json={**body, "messages": first})).json()
        message = asked["choices"][0]["message"]
        result = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "sun"}
        trimmed = [first[-1], message, result]
        answer = (await client.post("/v1/chat/completions", json={**body, "messages": trimmed})).json()
        assert answer["choices"][0]["message"]["content"] == "Sunny."
        assert outline(provider.requests[-1]) == ["user: Weather?", "assistant:  [weather]", "tool: sun"]
        orphan = await client.post("/v1/chat/completions", json={**body, "messages": [result]})
        assert orphan.status_code == 400
        assert "waits for" in orphan.json()["error"]["message"]


async def test_another_call_in_a_session_from_a_trimmed_conversation_goes_on_there() -> None:
    answers = (call("weather", city="Kona"), say("Both sunny."))
    async with serve_model(*answers) as (_, provider, client):
        messages: list[Json] = [
            {"role": "assistant", "content": None, "tool_calls": [chat_call("toolu_1")]},
            {"role": "tool", "tool_call_id": "toolu_1", "content": "sun"},
        ]
        body: Json = {"model": "assistant", "tools": [CHAT_TOOL], "messages": messages}
        asked = (await client.post("/v1/chat/completions", json=body)).json()["choices"][0]["message"]
        messages += [asked, {"role": "tool", "tool_call_id": asked["tool_calls"][0]["id"], "content": "sun, too"}]
        answer = (await client.post("/v1/chat/completions", json=body)).json()
        assert answer["choices"][0]["message"]["content"] == "Both sunny."
        assert outline(provider.requests[-1])[-1] == "tool: sun, too"
        assert len(await list_sessions(client)) == 1


async def test_an_item_is_found_by_its_id_and_only_by_its_owner() -> None:
    async with serve_model(call("weather", city="Hilo"), say("Sunny.")) as (served, provider, client):
        body: Json = {"model": "assistant", "tools": [RESPONSES_TOOL]}
        user = {"role": "user", "content": "Weather?"}
        first = (await client.post("/v1/responses", json={**body, "input": [user]})).json()
        [item] = first["output"]
        output = {"type": "function_call_output", "call_id": item["call_id"], "output": "sun"}
        for reference in ({"type": "item_reference", "id": item["id"]}, {"id": item["id"]}):
            items = [user, reference, output]
            for token in ("bob", "dave"):
                async with served.client(token) as other:
                    refused = await other.post("/v1/responses", json={**body, "input": items})
                assert refused.status_code == 400
                assert "send the item itself" in refused.json()["error"]["message"]
            answer = (await client.post("/v1/responses", json={**body, "input": items})).json()
            assert answer["output"][0]["content"][0]["text"] == "Sunny."
        assert len(provider.requests) == 2
        missing = {**body, "input": [{"type": "item_reference", "id": "msg_unknown"}, user]}
        assert (await client.post("/v1/responses", json=missing)).status_code == 400


async def test_optional_fields_of_a_chat_of_the_ai_sdk_and_of_ag_ui_may_be_missing_or_null() -> None:
    async with serve_model(say("Fine.")) as (_, _, client):
        part = {"type": "text", "text": "Hi", "state": None, "providerMetadata": None}
        message = {"id": "m-1", "role": "user", "parts": [part], "metadata": None}
        chat = {"id": "c-1", "messages": [message], "messageId": None, "trigger": None, "tools": None, "system": None}
        answer = await client.post("/ai-sdk/assistant", json=chat)
        assert "Fine." in answer.text, answer.text
        run = {
            "threadId": "t-1",
            "runId": "r-1",
            "messages": [{"id": "m-1", "role": "user", "content": "Hi", "name": None, "toolCallId": None}],
            "tools": [{"name": "pick", "description": None, "parameters": None}],
            "context": None,
            "state": None,
            "forwardedProps": None,
            "resume": None,
        }
        answer = await client.post("/agui/assistant", json=run)
        assert "Fine." in answer.text, answer.text


async def test_a_thread_is_continued_once_and_only_by_its_owner() -> None:
    async with serve_model(call("weather", city="Hilo"), say("Sunny."), say("Bye.")) as (served, provider, client):
        body: Json = {"model": "assistant", "max_tokens": 99}
        create = {"messages": [{"role": "user", "content": "Weather?"}], "thread": {"type": "create"}}
        create |= {"tools": [ANTHROPIC_TOOL], "system": "Be brief."}
        first = (await client.post("/v1/messages", json={**body, **create})).json()
        thread = {"type": "continue", "previous_message_id": first["id"]}
        messages = [{"role": "user", "content": [result(first["content"][0]["id"], content="sun")]}]
        following = {**body, "messages": messages, "thread": thread}
        for token, code in (("bob", 404), ("dave", 404)):
            async with served.client(token) as other:
                refused = await other.post("/v1/messages", json=following)
            assert (refused.status_code, refused.json()["error"]["details"]) == (
                code,
                {"error_code": "thread_not_found"},
            )
        second = (await client.post("/v1/messages", json=following)).json()
        assert second["content"][0]["text"] == "Sunny."
        assert "Be brief." in json.dumps(provider.requests[-1].body)
        assert provider.requests[-1].body["tools"][0]["function"]["name"] == "weather"
        again = await client.post("/v1/messages", json=following)
        assert (again.status_code, again.json()["error"]["details"]["error_code"]) == (409, "thread_already_continued")
        thread["previous_message_id"] = second["id"]
        bye = {**body, "messages": [{"role": "user", "content": "Bye"}], "thread": thread, "stream": True}
        assert "Bye." in (await client.post("/v1/messages", json=bye)).text
        assert outline(provider.requests[-1])[-2:] == ["assistant: Sunny.", "user: Bye"]
        wrong = {**body, "messages": messages, "thread": {"type": "continue"}}
        assert (await client.post("/v1/messages", json=wrong)).status_code == 400
