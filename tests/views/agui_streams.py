"""The rules of AG-UI about the order of events, and the messages that a client makes of a stream."""

from collections.abc import Iterable
from typing import Any

from ag_ui.core import Event
from pydantic import TypeAdapter

EVENT: TypeAdapter[Any] = TypeAdapter(Event)

_PAIRS = {
    "TEXT_MESSAGE_START": ("text", "messageId"),
    "TEXT_MESSAGE_END": ("text", "messageId"),
    "TEXT_MESSAGE_CONTENT": ("text", "messageId"),
    "REASONING_START": ("span", "messageId"),
    "REASONING_END": ("span", "messageId"),
    "REASONING_MESSAGE_START": ("reasoning", "messageId"),
    "REASONING_MESSAGE_CONTENT": ("reasoning", "messageId"),
    "REASONING_MESSAGE_END": ("reasoning", "messageId"),
    "TOOL_CALL_START": ("call", "toolCallId"),
    "TOOL_CALL_ARGS": ("call", "toolCallId"),
    "TOOL_CALL_END": ("call", "toolCallId"),
    "STEP_STARTED": ("step", "stepName"),
    "STEP_FINISHED": ("step", "stepName"),
    "SUBAGENT_STARTED": ("agent", "subagentRunId"),
    "SUBAGENT_FINISHED": ("agent", "subagentRunId"),
    "SUBAGENT_ERROR": ("agent", "subagentRunId"),
}


class AguiStreamCheck:
    """Fails at the first event that is not valid or not allowed at its place."""

    def __init__(self) -> None:
        self.is_open = False
        self._open: set[tuple[Any, ...]] = set()
        self._agents: set[str] = set()

    def check(self, events: Iterable[dict[str, Any]]) -> None:
        for event in events:
            parsed = EVENT.validate_python(event)
            assert not parsed.model_extra, f"{parsed.model_extra} is not part of AG-UI"
            self._check(event, event["type"])

    def _check(self, event: dict[str, Any], type: str) -> None:
        assert self.is_open == (type != "RUN_STARTED"), type
        if type == "RUN_STARTED":
            self.is_open = True
            self._open.clear()
            self._agents.clear()
        elif type in ("RUN_FINISHED", "RUN_ERROR"):
            assert not self._open
            self.is_open = False
        elif type in _PAIRS:
            self._check_pair(event, type)

    def _check_pair(self, event: dict[str, Any], type: str) -> None:
        kind, field = _PAIRS[type]
        owner = "" if kind == "agent" else event.get("subagentRunId", "")
        key = (kind, event[field], owner)
        if kind == "agent" and type == "SUBAGENT_STARTED":
            assert event[field] not in self._agents
            assert event.get("parentSubagentRunId", "") in {"", *self._agents}
            self._agents.add(event[field])
        assert owner in {"", *self._agents}
        if type.endswith(("_START", "_STARTED")):
            assert key not in self._open, event
            self._open.add(key)
        else:
            assert key in self._open, event
            if not type.endswith(("_CONTENT", "_ARGS")):
                self._open.remove(key)


def texts_of(events: Iterable[dict[str, Any]]) -> dict[str, str]:
    """Return the text of each message, reasoning and call by its id, as a client puts it together."""
    texts: dict[str, str] = {}
    for event in events:
        if "delta" in event and isinstance(event["delta"], str):
            id = event.get("messageId") or event["toolCallId"]
            texts[id] = texts.get(id, "") + event["delta"]
    return texts
