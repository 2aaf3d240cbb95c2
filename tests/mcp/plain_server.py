"""A stdio MCP server without a library, which starts at once and misbehaves on request.

Arguments: ``hang`` answers nothing, ``die`` ends at once, ``noise`` prints what is not a message, ``grow`` announces
another tool after its first call, ``reach`` has a tool that writes to a file and connects to a port.
"""

import base64
import json
import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

FLAGS = set(sys.argv[1:])
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
PNG, WAV, PDF = (
    base64.b64encode(head + bytes(16)).decode() for head in (b"\x89PNG\r\n\x1a\n", b"RIFF\0\0\0\0WAVE", b"%PDF-1.4")
)
NOTHING: dict[str, Any] = {"type": "object", "properties": {}}


def tool(name: str, schema: dict[str, Any] = NOTHING, **more: Any) -> dict[str, Any]:
    return {"name": name, "description": os.environ.get("ABOUT") or f"The tool {name}.", "inputSchema": schema, **more}


TOOLS = [
    tool("echo", TEXT, annotations={"readOnlyHint": True}),
    tool("slow"),
    tool("pid"),
    tool("fail"),
    tool("env"),
    tool("progress"),
    tool("ask"),
    tool("stuck"),
    tool("zoo"),
    tool("confirm", annotations={"readOnlyHint": True}),
    *([tool("reach")] if "reach" in FLAGS else []),
    *([tool("sample")] if "sample" in FLAGS else []),
]


def send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def text(value: str, **more: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": value}], **more}


def receive() -> dict[str, Any]:
    line = sys.stdin.readline()
    if not line:
        sys.exit(0)
    message: dict[str, Any] = json.loads(line)
    return message


def zoo() -> dict[str, Any]:
    blocks = [
        {"type": "text", "text": "first"},
        {"type": "image", "data": PNG, "mimeType": "image/x-odd"},
        {"type": "audio", "data": WAV, "mimeType": "audio/wav"},
        {"type": "resource", "resource": {"uri": "note://1", "mimeType": "text/plain", "text": "a note"}},
        {"type": "resource", "resource": {"uri": "file:///a.pdf", "mimeType": "application/pdf", "blob": PDF}},
        {"type": "resource_link", "uri": "note://2", "name": "second", "description": "another"},
        {"type": "image", "data": "not base64!", "mimeType": "image/png"},
    ]
    return {"content": blocks, "structuredContent": {"count": 7}}


def echo(request: dict[str, Any]) -> dict[str, Any]:
    return text(request["params"]["arguments"]["text"])


def progress(request: dict[str, Any]) -> dict[str, Any]:
    token = request["params"]["_meta"]["progressToken"]
    for number in (1, 2):
        params = {"progressToken": token, "progress": number, "total": 2, "message": f"part {number}"}
        send({"method": "notifications/progress", "params": params})
    return text("done")


def ask(_: dict[str, Any]) -> dict[str, Any]:
    schema = {
        "type": "object",
        "required": ["city", "count"],
        "properties": {
            "city": {"type": "string", "enum": ["Hilo", "Kona"]},
            "count": {"type": "integer"},
            "size": {"type": "integer", "default": 7},
            "note": {"type": "string"},
        },
    }
    params = {"mode": "form", "message": "Where?", "requestedSchema": schema}
    send({"id": "q1", "method": "elicitation/create", "params": params})
    return text(json.dumps(receive()["result"]))


def confirm(_: dict[str, Any]) -> dict[str, Any]:
    """Ask a question without fields."""
    params = {"mode": "form", "message": "Sure?", "requestedSchema": NOTHING}
    send({"id": "q2", "method": "elicitation/create", "params": params})
    while (message := receive()).get("id") != "q2":
        if message["method"] == "notifications/cancelled":
            return text("cancelled")
    return text(message["result"]["action"])


def sample(request: dict[str, Any]) -> dict[str, Any]:
    """Ask the model of the client, once or several times."""
    message: dict[str, Any] = {}
    words = {"role": "user", "content": {"type": "text", "text": "Which island?"}}
    params = {"messages": [words], "systemPrompt": "Be brief.", "maxTokens": 50}
    for number in range(request["params"].get("arguments", {}).get("times", 1)):
        send({"id": f"m{number}", "method": "sampling/createMessage", "params": params})
        message = receive()
    return text(message["result"]["content"]["text"] if "result" in message else message["error"]["message"])


def slow(_: dict[str, Any]) -> dict[str, Any]:
    """Write the process id to a pipe, and never end."""
    Path(os.environ["STARTED"]).write_text(str(os.getpid()))
    signal.pause()
    return {}


def stuck(_: dict[str, Any]) -> dict[str, Any]:
    """Keep the method of the next message."""
    Path(os.environ["STARTED"]).write_text(receive()["method"])
    return text("?")


def reach(request: dict[str, Any]) -> dict[str, Any]:
    reached: dict[str, bool] = {}
    arguments: dict[str, Any] = request["params"]["arguments"]
    for path in arguments["paths"]:
        try:
            Path(path).write_text("x")
            reached[path] = True
        except OSError:
            reached[path] = False
    with socket.socket() as client:
        reached["port"] = client.connect_ex(("127.0.0.1", arguments["port"])) == 0
    return {"content": [], "structuredContent": reached}


CALLS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "echo": echo,
    "slow": slow,
    "progress": progress,
    "ask": ask,
    "stuck": stuck,
    "confirm": confirm,
    "sample": sample,
    "reach": reach,
    "zoo": lambda _: zoo(),
    "pid": lambda _: text(str(os.getpid())),
    "fail": lambda _: text("it went wrong", isError=True),
    "env": lambda _: {"content": [], "structuredContent": dict(os.environ)},
    "extra": lambda _: text("more"),
}


def answer(request: dict[str, Any]) -> None:
    method: str = request["method"]
    params: dict[str, Any] = request.get("params") or {}
    if method == "initialize":
        capabilities = {"tools": {"listChanged": True}, **({"prompts": {}} if "mute" in FLAGS else {})}
        result: dict[str, Any] = {
            "protocolVersion": params["protocolVersion"],
            "capabilities": capabilities,
            "serverInfo": {"name": "plain", "version": "1"},
        }
    elif method == "prompts/list":
        return
    elif method == "tools/list":
        result = {"tools": TOOLS}
    elif method == "tools/call":
        result = CALLS[params["name"]](request)
    else:
        send({"id": request["id"], "error": {"code": -32601, "message": f"no method {method}"}})
        return
    send({"id": request["id"], "result": result})
    if method == "tools/call" and "grow" in FLAGS:
        TOOLS[:] = [tool("extra"), *reversed([item for item in TOOLS if item["name"] not in ("extra", "zoo")])]
        send({"method": "notifications/tools/list_changed"})


def main() -> None:
    if "die" in FLAGS:
        sys.stderr.write(f"cannot start with key {os.environ.get('API_KEY')}\n")
        sys.exit(3)
    if "noise" in FLAGS:
        sys.stdout.write("Server is running!\n")
    while True:
        request = receive()
        if "hang" not in FLAGS and "id" in request and "method" in request:
            answer(request)


if __name__ == "__main__":
    main()
