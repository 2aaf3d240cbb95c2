"""The rules of a UI message stream: the fields of each chunk, and the order in which the AI SDK accepts them."""

from collections.abc import Iterable
from typing import Any

_ANY = object()
FIELDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "start": ({"messageId": str}, {}),
    "start-step": ({}, {}),
    "finish-step": ({}, {}),
    "reset-step": ({}, {}),
    "finish": ({"finishReason": str, "messageMetadata": dict}, {}),
    "abort": ({}, {"reason": str}),
    "error": ({"errorText": str}, {}),
    "text-start": ({"id": str}, {}),
    "text-delta": ({"id": str, "delta": str}, {}),
    "text-end": ({"id": str}, {}),
    "reasoning-start": ({"id": str}, {}),
    "reasoning-delta": ({"id": str, "delta": str}, {}),
    "reasoning-end": ({"id": str}, {}),
    "tool-input-available": ({"toolCallId": str, "toolName": str, "input": _ANY}, {"dynamic": bool}),
    "tool-approval-request": ({"approvalId": str, "toolCallId": str}, {"reason": str}),
    "tool-approval-response": ({"approvalId": str, "approved": bool}, {"reason": str}),
    "tool-output-available": ({"toolCallId": str, "output": _ANY}, {}),
    "tool-output-error": ({"toolCallId": str, "errorText": str}, {}),
    "tool-output-denied": ({"toolCallId": str}, {}),
    "data-": ({"data": dict}, {"id": str, "transient": bool}),
}
"""The required and the optional fields of each type of chunk that vaka sends, a part of those of the protocol."""

FINISH_REASONS = ("stop", "length", "content-filter", "tool-calls", "error", "interrupted", "other")


def check_fields(chunk: dict[str, Any]) -> None:
    type = "data-" if chunk["type"].startswith("data-") else chunk["type"]
    required, optional = FIELDS[type]
    fields = {name: value for name, value in chunk.items() if name != "type"}
    assert required.keys() <= fields.keys() <= required.keys() | optional.keys(), chunk
    for name, value in fields.items():
        expected = (required | optional)[name]
        assert expected is _ANY or isinstance(value, expected), chunk
    assert chunk.get("finishReason", "stop") in FINISH_REASONS


class UiMessageCheck:
    """Builds the parts of a message as the AI SDK does, and fails where it fails."""

    def __init__(self, known_calls: Iterable[str] = ()) -> None:
        self.is_open = self.in_step = False
        self.parts: list[dict[str, Any]] = []
        self._open: dict[str, dict[str, Any]] = {}
        self._approvals: set[str] = set()
        self.calls: dict[str, str] = dict.fromkeys(known_calls, "known")
        """The state of each call."""

    def check(self, chunks: Iterable[dict[str, Any]]) -> None:
        for chunk in chunks:
            check_fields(chunk)
            type = chunk["type"]
            assert self.is_open == (type != "start"), chunk
            if type.startswith(("text-", "reasoning-")):
                self._check_block(chunk, *type.split("-"))
            elif type.startswith("tool-"):
                self._check_tool(chunk, type)
            else:
                self._check_course(type)

    def _check_course(self, type: str) -> None:
        assert not self._open or type.startswith(("data-", "error")), type
        if type == "start":
            self.is_open = True
        elif type == "start-step":
            assert not self.in_step
            self.in_step = True
            self.parts.append({"type": "step-start"})
        elif type == "finish-step":
            assert self.in_step
            self.in_step = False
        elif type == "reset-step":
            assert self.in_step
            while self.parts[-1]["type"] != "step-start":
                self.calls.pop(self.parts.pop().get("id", ""), None)
        elif type in ("finish", "abort"):
            assert not self.in_step
            self.is_open = False

    def _check_block(self, chunk: dict[str, Any], kind: str, action: str) -> None:
        assert self.in_step
        if action == "start":
            assert chunk["id"] not in self._open
            self._open[chunk["id"]] = part = {"type": kind, "text": ""}
            self.parts.append(part)
        elif action == "delta":
            self._open[chunk["id"]]["text"] += chunk["delta"]
        else:
            del self._open[chunk["id"]]

    def _check_tool(self, chunk: dict[str, Any], type: str) -> None:
        if type == "tool-approval-response":
            assert chunk["approvalId"] in self._approvals
            return
        call = chunk["toolCallId"]
        if type == "tool-input-available":
            assert call not in self.calls
            self.parts.append({"type": "tool", "name": chunk["toolName"], "input": chunk["input"], "id": call})
        else:
            assert call in self.calls, chunk
        if type == "tool-approval-request":
            self._approvals.add(chunk["approvalId"])
        self.calls[call] = type

    @property
    def text(self) -> str:
        return "".join(part["text"] for part in self.parts if part["type"] == "text")
