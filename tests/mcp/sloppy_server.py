"""A stdio MCP server that breaks the protocol in each of its answers."""

import json
import sys
from typing import Any

SCHEMA: dict[str, Any] = {"type": "object", "properties": {}}
TOOLS: list[Any] = [
    {"name": "no_schema"},
    {"name": "no_type", "inputSchema": {"properties": {"x": {"type": "string"}}}, "description": 5, "annotations": []},
    {"name": "list_schema", "inputSchema": {"type": "array"}},
    {"name": "wrong_schema", "inputSchema": {"type": "object", "properties": {"x": {"minimum": "much"}}}},
    {"name": "no_content", "inputSchema": SCHEMA},
    {"name": "text_content", "inputSchema": SCHEMA},
    {"name": "new_content", "inputSchema": SCHEMA},
    {"name": "null_result", "inputSchema": SCHEMA},
    {"name": "odd_error", "inputSchema": SCHEMA},
    {"name": "own_error", "inputSchema": SCHEMA},
    {"name": "twice", "inputSchema": SCHEMA},
    {"name": "twice", "inputSchema": SCHEMA, "description": "another"},
    {"no": "name"},
    "text",
]
ANSWERS: dict[str, Any] = {
    "no_content": {"result": {"structuredContent": {"x": 1}}},
    "text_content": {"result": {"content": "words"}},
    "new_content": {"result": {"content": [{"type": "new", "x": 1}, "words"]}},
    "null_result": {"result": None},
    "odd_error": {"error": {"code": "x", "message": 5}},
    "own_error": {"error": {"code": -32000, "message": "my own"}},
}
FINE = {"result": {"content": [{"type": "text", "text": "fine"}]}}


def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    if method == "initialize":
        version, software = params["protocolVersion"], {"name": "sloppy", "version": "1"}
        able: dict[str, Any] = {"tools": {}, "resources": {}}
        return {"result": {"protocolVersion": version, "capabilities": able, "serverInfo": software}}
    if method == "tools/list":
        return {"result": {"tools": TOOLS, "nextCursor": "the same"}}
    if method == "resources/list":
        return {"result": {"resources": [{"uri": "file:///a", "name": "a"}], "nextCursor": "the same"}}
    if method == "resources/templates/list":
        name, following = ("second", {}) if "cursor" in params else ("first", {"nextCursor": "2"})
        return {"result": {"resourceTemplates": [{"uriTemplate": "x://{a}", "name": name}], **following}}
    if method == "tools/call":
        found: dict[str, Any] = ANSWERS.get(params["name"], FINE)
        return found
    return {"error": {"code": -32601, "message": "no"}}


def main() -> None:
    for line in sys.stdin:
        request = json.loads(line)
        if "id" in request:
            sys.stdout.write('[1, 2\n{"jsonrpc": "2.0", "id": 9999, "result": {}}\n')
            reply = answer(request["method"], request.get("params") or {})
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": request["id"], **reply}) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
