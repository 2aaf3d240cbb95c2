"""Repairs of what servers send although the protocol does not allow it: one bad part never costs the rest."""

from collections.abc import Mapping
from typing import Any, cast

import msgspec
from mcp.shared.dispatcher import CallOptions
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher

KNOWN_BLOCKS = frozenset(("text", "image", "audio", "resource", "resource_link"))


def repair_tools(result: dict[str, Any]) -> dict[str, str]:
    """Repair a list of tools in place. Return why some of them, by name, cannot be offered."""
    faults: dict[str, str] = {}
    kept: list[dict[str, Any]] = []
    for item in _as_list(result.get("tools")):
        tool = cast("dict[str, Any]", item) if isinstance(item, dict) else {}
        name = tool.get("name")
        if not isinstance(name, str):
            faults["?"] = "it has no name"
            continue
        schema = tool.get("inputSchema")
        if schema is not None and not (isinstance(schema, dict) and _describes_object(cast("dict[str, Any]", schema))):
            faults[name] = "its schema does not describe an object"
            schema = None
        tool["inputSchema"] = {"type": "object", **(cast("dict[str, Any]", schema) or {"properties": {}})}
        for key, kind in (("description", str), ("title", str), ("annotations", dict), ("outputSchema", dict)):
            if not isinstance(tool.get(key), kind):
                tool.pop(key, None)
        kept.append(tool)
    result["tools"] = kept
    return faults


def _describes_object(schema: dict[str, Any]) -> bool:
    return str(schema.get("type", "object")) == "object"


def _as_list(value: Any) -> list[Any]:
    items: list[Any] = [*value] if isinstance(value, list) else [] if value is None else [value]
    return items


def repair_result(result: dict[str, Any]) -> None:
    """Repair the content of a result in place: text instead of blocks, and blocks of unknown kinds."""
    blocks = _as_list(result.get("content"))
    result["content"] = [item if _is_known(item) else {"type": "text", "text": _as_text(item)} for item in blocks]


def _is_known(item: Any) -> bool:
    return isinstance(item, dict) and cast("dict[str, Any]", item).get("type") in KNOWN_BLOCKS


def _as_text(item: Any) -> str:
    return item if isinstance(item, str) else msgspec.json.encode(item).decode()


def find_answered_request(line: bytes) -> int | str | None:
    """Return the id of the request that an invalid message was to answer, ``None`` for anything else."""
    try:
        message: Any = msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError):
        return None
    if not isinstance(message, dict) or not {"result", "error"} & message.keys():
        return None
    id = cast("dict[str, Any]", message).get("id")
    return id if isinstance(id, int | str) else None


class RepairingDispatcher(JSONRPCDispatcher[Any]):
    """Repairs answers before the library checks them."""

    def __init__(self, read: Any, write: Any) -> None:
        super().__init__(read, write)
        self.faults: dict[str, str] = {}
        """Why tools, by name, cannot be offered."""

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None, **more: Any
    ) -> dict[str, Any]:
        result = await super().send_raw_request(method, params, opts, **more)
        if method == "tools/list":
            self.faults |= repair_tools(result)
        elif method == "tools/call" and result.get("resultType") != "input_required":
            repair_result(result)
        return result
