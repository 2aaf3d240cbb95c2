"""Bodies with wrong values at any place: each request of a chat protocol gets an answer that is not a failure."""

import json
import random
from collections.abc import Callable
from typing import Any

import pytest

from tests.server.conftest import Serve
from vaka.agents.react import Agent

Scripted = Callable[..., Agent]

USER = {"id": "m", "role": "user", "content": [{"type": "text", "text": "x"}]}
IMAGE = {"type": "image", "source": {"type": "data", "value": "AAAA", "mimeType": "image/png"}}
APPROVAL = {"id": "apr_1", "approved": True}
CALL = {"type": "dynamic-tool", "toolCallId": "c", "state": "approval-responded", "approval": APPROVAL}
FILE = {"type": "file", "mediaType": "image/png", "url": "data:image/png;base64,AAAA"}
BODIES: dict[str, dict[str, Any]] = {
    "/agui/assistant": {
        "threadId": "t",
        "runId": "r",
        "state": {"a": 1},
        "forwardedProps": {"onDisconnect": "cancel"},
        "messages": [
            USER,
            {"id": "a", "role": "assistant", "toolCalls": []},
            {"id": "x", "role": "tool", "toolCallId": "c", "content": "y", "error": "e"},
            {"id": "n", "role": "user", "content": [{"type": "text", "text": "x"}, IMAGE]},
        ],
        "tools": [{"name": "pick", "description": "d", "parameters": {"type": "object", "properties": {}}}],
        "context": [{"description": "a", "value": "b"}],
    },
    "/ai-sdk/assistant": {
        "id": "c",
        "trigger": "submit-message",
        "system": "s",
        "onDisconnect": "continue",
        "messages": [
            {"id": "m", "role": "user", "parts": [{"type": "text", "text": "x"}, FILE]},
            {"id": "a", "role": "assistant", "parts": [CALL]},
            {"id": "n", "role": "user", "parts": [{"type": "text", "text": "x"}]},
        ],
        "tools": {"pick": {"description": "", "parameters": {}}},
    },
    "/a2a/assistant": {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "SendMessage",
        "params": {
            "message": {
                "messageId": "m",
                "role": "ROLE_USER",
                "contextId": "c",
                "parts": [{"text": "x"}, {"data": {"id": "q"}}, {"raw": "AAAA", "mediaType": "image/png"}],
            },
            "configuration": {"historyLength": 1, "returnImmediately": False},
            "id": "c.t",
            "pageSize": 3,
            "pageToken": "abc",
        },
    },
}
VALUES: list[Any] = [
    None,
    True,
    0,
    -1,
    1e308,
    2**63,
    "",
    "x",
    "\u0000",
    "\ud800",
    "a" * 300,
    [],
    {},
    [[]],
    {"a": {}},
    ["x"],
    "apr_1",
    "regenerate-message",
    "SendStreamingMessage",
    "GetTask",
    "ListTasks",
    "CancelTask",
    "SubscribeToTask",
    "~YQ.t",
    "../..",
    "<script>",
]


def mutate(value: Any, chance: random.Random) -> Any:
    """Return a copy with some values replaced and some left out."""
    if chance.random() < 0.04:
        return chance.choice(VALUES)
    if isinstance(value, dict):
        return {key: mutate(each, chance) for key, each in value.items() if chance.random() > 0.02}
    if isinstance(value, list):
        return [mutate(each, chance) for each in value if chance.random() > 0.02]
    return value


@pytest.mark.parametrize("count", [12, pytest.param(2_000, marks=pytest.mark.exhaustive)])
async def test_wrong_values_are_errors_of_the_client(serve: Serve, scripted: Scripted, count: int) -> None:
    agent, chance = scripted({"text": "ok", "repeat": True}), random.Random(count)
    async with serve([agent]) as served, served.client() as client:
        client.headers["A2A-Version"] = "1.0"
        for path, body in BODIES.items():
            assert (await client.post(path, json=body)).status_code == 200
            for _ in range(count):
                sent = json.dumps(mutate(body, chance))
                answer = await client.post(path, content=sent)
                assert answer.status_code < 500, sent
                assert '"code":-32603' not in answer.text, sent
