"""One turn at each protocol of the server, with plain HTTP, a WebSocket or a pipe: what a client of it sees."""

import json
import subprocess
import uuid
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from websockets.sync.client import connect

from tests.journeys.answers import PATIENCE
from tests.journeys.served_project import ServedProject
from tests.journeys.web import ServerSentEvent

Door: TypeAlias = Callable[[ServedProject, str, str], str]
"""Asks an agent something; returns the text of the answer as the client sees it."""


def new_id(prefix: str) -> str:
    return f"{prefix}-{uuid.uuid4().hex[:12]}"


def ask_rest(served: ServedProject, agent: str, text: str) -> str:
    turn = served.start_turn(new_id("rest"), text, agent)
    assert turn["status"] == "completed", turn
    return str(turn["text"])


def ask_sse(served: ServedProject, agent: str, text: str) -> str:
    path = f"/api/v1/sessions/{new_id('sse')}/turns"
    with served.server.stream("POST", path, {"input": text, "agent": agent, "stream": True}) as stream:
        frames = list(stream)
    pieces = [frame.body["data"]["text"] for frame in frames if frame.kind == "text.delta"]
    (completed,) = [frame.body["data"] for frame in frames if frame.kind == "turn.completed"]
    assert (frames[-1].kind, completed["text"]) == ("stream.end", "".join(pieces))
    return "".join(pieces)


def ask_websocket(served: ServedProject, agent: str, text: str) -> str:
    session, pieces = new_id("ws"), list[str]()
    url = served.server.url.replace("http", "ws", 1)
    headers = {"Authorization": f"Bearer {served.key}"}
    with connect(f"{url}/api/v1/ws", subprotocols=["agent.v1+json"], additional_headers=headers) as socket:  # type: ignore[list-item]  # a Subprotocol is a str
        start = {"session": session, "agent": agent, "input": text, "key": "question"}
        socket.send(json.dumps({"id": 1, "method": "turn.start", "params": start}))
        socket.send(json.dumps({"id": 2, "method": "subscribe", "params": {"session": session}}))
        while True:
            frame = json.loads(socket.recv(PATIENCE))
            assert "error" not in frame, frame
            event = frame.get("event", {})
            if event.get("type") == "text.delta":
                pieces.append(event["data"]["text"])
            if event.get("type") == "turn.completed":
                assert event["data"]["text"].endswith("".join(pieces))
                return str(event["data"]["text"])


def ask_openai_chat(served: ServedProject, agent: str, text: str) -> str:
    body = {"model": agent, "messages": [{"role": "user", "content": text}], "stream": True}
    with served.server.stream("POST", "/v1/chat/completions", body) as frames:
        data = [frame.data for frame in frames]
    assert data.pop() == "[DONE]"
    choices = [choice for chunk in data for choice in json.loads(chunk)["choices"]]
    assert choices[-1]["finish_reason"] == "stop"
    return "".join(choice["delta"].get("content") or "" for choice in choices)


def ask_openai_responses(served: ServedProject, agent: str, text: str) -> str:
    with served.server.stream("POST", "/v1/responses", {"model": agent, "input": text, "stream": True}) as frames:
        events = [frame.body for frame in frames]
    assert events[-1]["type"] == "response.completed"
    pieces = [event["delta"] for event in events if event["type"] == "response.output_text.delta"]
    (message,) = [item for item in events[-1]["response"]["output"] if item["type"] == "message"]
    assert "".join(pieces) == "".join(part["text"] for part in message["content"])
    return "".join(pieces)


def ask_anthropic(served: ServedProject, agent: str, text: str) -> str:
    body = {"model": agent, "max_tokens": 1000, "messages": [{"role": "user", "content": text}], "stream": True}
    headers = {"x_api_key": served.key, "anthropic_version": "2023-06-01"}
    with served.server.with_key("").stream("POST", "/v1/messages", body, **headers) as frames:
        events = [frame.body for frame in frames]
    assert events[-1] == {"type": "message_stop"}
    deltas = [event["delta"] for event in events if event["type"] == "content_block_delta"]
    return "".join(delta["text"] for delta in deltas if delta["type"] == "text_delta")


def ask_agui(served: ServedProject, agent: str, text: str) -> str:
    body: dict[str, Any] = {
        "threadId": new_id("agui"),
        "runId": new_id("run"),
        "state": {},
        "messages": [{"id": new_id("m"), "role": "user", "content": text}],
        "tools": [],
        "context": [],
        "forwardedProps": {},
    }
    with served.server.stream("POST", f"/agui/{agent}", body) as frames:
        events = [frame.body for frame in frames]
    assert (events[0]["type"], events[-1]["type"]) == ("RUN_STARTED", "RUN_FINISHED")
    return "".join(event["delta"] for event in events if event["type"] == "TEXT_MESSAGE_CONTENT")


def ask_ai_sdk(served: ServedProject, agent: str, text: str) -> str:
    message = {"id": new_id("m"), "role": "user", "parts": [{"type": "text", "text": text}]}
    body = {"id": new_id("chat"), "messages": [message], "trigger": "submit-message"}
    with served.server.stream("POST", f"/ai-sdk/{agent}", body) as frames:
        data = [frame.data for frame in frames]
    assert data.pop() == "[DONE]"
    chunks = [json.loads(chunk) for chunk in data]
    assert chunks[-1]["type"] == "finish"
    return "".join(chunk["delta"] for chunk in chunks if chunk["type"] == "text-delta")


def ask_a2a(served: ServedProject, agent: str, text: str) -> str:
    message = {"messageId": new_id("m"), "role": "ROLE_USER", "parts": [{"text": text}]}
    body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
    reply = served.server.post(f"/a2a/{agent}", body, a2a_version="1.0")
    task = reply["result"]["task"]
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    return "".join(part["text"] for artifact in task["artifacts"] for part in artifact["parts"])


def ask_mcp(served: ServedProject, agent: str, text: str) -> str:
    client = {"name": "journey", "version": "1"}
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client}
    accept = {"accept": "application/json, text/event-stream"}

    def send(id: int, method: str, params: Any, **headers: str) -> tuple[Any, str]:
        body = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
        reply = served.server.request("POST", "/mcp", body, **accept, **headers)
        assert reply.status == 200, reply.text
        lines = reply.text.splitlines()
        data = [line.removeprefix("data: ") for line in lines if line.startswith("data: {")] or [reply.text]
        return json.loads(data[-1])["result"], reply.headers.get("mcp-session-id", "")

    _, session = send(1, "initialize", hello)
    later = {"mcp_protocol_version": "2025-06-18", **({"mcp_session_id": session} if session else {})}
    ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    assert served.server.request("POST", "/mcp", ready, **accept, **later).status == 202
    asked = {"name": f"ask_{agent}", "arguments": {"prompt": text}}
    result, _ = send(2, "tools/call", asked, **later)
    assert not result.get("isError"), result
    return str(result["structuredContent"]["answer"])


def ask_acp(served: ServedProject, agent: str, text: str) -> str:
    command = [served.home.vaka, "acp", "--agent", agent, "--tools", "tide.luau", "--untrusted", *served.store]
    folder = served.project.folder
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, cwd=folder, env=served.home.environment, stdin=pipe, stdout=pipe, stderr=pipe, text=True
    ) as editor:
        assert editor.stdin is not None
        assert editor.stdout is not None

        def send(id: int, method: str, params: Any) -> tuple[Any, list[Any]]:
            assert editor.stdin is not None
            assert editor.stdout is not None
            editor.stdin.write(json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params}) + "\n")
            editor.stdin.flush()
            updates: list[Any] = []
            for line in editor.stdout:
                message = json.loads(line)
                if message.get("id") == id:
                    assert "result" in message, message
                    return message["result"], updates
                updates.append(message["params"])
            raise AssertionError(f"no answer to {method}")

        send(1, "initialize", {"protocolVersion": 1, "clientCapabilities": {}})
        session, _ = send(2, "session/new", {"cwd": str(folder), "mcpServers": []})
        prompt = [{"type": "text", "text": text}]
        ended, updates = send(3, "session/prompt", {"sessionId": session["sessionId"], "prompt": prompt})
        assert ended["stopReason"] == "end_turn"
        editor.stdin.close()
        assert editor.wait(PATIENCE) == 0
    chunks = [each["update"] for each in updates if each["update"]["sessionUpdate"] == "agent_message_chunk"]
    return "".join(chunk["content"]["text"] for chunk in chunks)


DOORS: dict[str, Door] = {
    "rest": ask_rest,
    "sse": ask_sse,
    "websocket": ask_websocket,
    "openai-chat": ask_openai_chat,
    "openai-responses": ask_openai_responses,
    "anthropic": ask_anthropic,
    "ag-ui": ask_agui,
    "ai-sdk": ask_ai_sdk,
    "a2a": ask_a2a,
    "mcp": ask_mcp,
    "acp": ask_acp,
}

ADDRESSES = {
    "rest": "/api/v1",
    "sse": "/api/v1",
    "websocket": "/api/v1",
    "openai-chat": "/v1/chat/completions",
    "openai-responses": "/v1/responses",
    "anthropic": "/v1/messages",
    "ag-ui": "/agui/{agent}",
    "ai-sdk": "/ai-sdk/{agent}",
    "mcp": "/mcp",
    "a2a": "/a2a/{agent}",
}
"""The addresses of the protocols, as the server guide names them; an editor reaches ACP through a pipe."""


def live_texts_of(frames: Iterator[ServerSentEvent]) -> Iterator[str]:
    """Yield the text of an answer, as far as a follower knows it, each time that it grows."""
    text = ""
    for frame in frames:
        data: Any = frame.body["data"] if frame.data.startswith("{") else {}
        if frame.kind == "message.snapshot" and data["of"] == "text.delta":
            text = data["text"]
        elif frame.kind == "text.delta" and data["offset"] == len(text):
            text += data["text"]
        elif frame.kind == "message.completed":
            text = "".join(part["text"] for part in data["content"] if part["type"] == "text")
        else:
            continue
        yield text
