"""The events of an agent as ``session/update`` notifications of the Agent Client Protocol."""

from collections.abc import Collection, Iterator, Mapping
from typing import TypeAlias

from vaka.core.types import control, progress
from vaka.core.types.event import Body, Event
from vaka.core.types.ids import JSON, CallId
from vaka.core.types.message import Content, Part, Reasoning, Text, ToolCall, ToolResult, Usage
from vaka.core.types.monitor import UsageRecorded
from vaka.core.types.traits import ToolTraits
from vaka.views.acp.content import JsonObject, content_block_of, text_content, without_empty
from vaka.views.acp.tool_calls import ToolKind, describe_call
from vaka.views.failures import failure_of
from vaka.views.media import is_list
from vaka.views.message_blocks import UnsentParts
from vaka.views.routed_agents import RoutedAgents

LIVE_OUTPUT_LENGTH = 4000
"""Characters of the output of a running tool in an update, the last ones: each update replaces the previous update."""

_INVALID_PARAMS, _INTERNAL_ERROR = -32602, -32603

_ToolEnd: TypeAlias = progress.ToolCompleted | progress.ToolFailed
_TurnEnd: TypeAlias = progress.TurnCompleted | progress.TurnFailed | progress.TurnCancelled | progress.TurnInterrupted
_ToolBody: TypeAlias = progress.ToolCalled | progress.ToolStarted | _ToolEnd | progress.SubagentStarted


class AcpEncoder:
    """Turns the events of the root agent of a session into the parameters of ``session/update`` notifications.

    Child agents are shown by their tool call; ``routers`` are the names of the agents that are routers: what the agents
    of their routes write and call is shown as theirs. Feed the events of one turn after another, live or from the log.
    With ``inputs`` the inputs are shown, too, which ``session/load`` needs; a client shows its own prompts itself.

    ``root`` is the folder that relative paths of tool calls start from; ``kinds`` and ``traits`` describe tools that
    are not built in. With ``context_size``, the context window of the model in tokens, the used part of it is shown
    after each step, with the cost of all events which the encoder was given.
    """

    def __init__(
        self,
        *,
        routers: Collection[str] = (),
        inputs: bool = False,
        root: str = "",
        kinds: Mapping[str, ToolKind] | None = None,
        traits: Mapping[str, ToolTraits] | None = None,
        context_size: int = 0,
    ) -> None:
        self._routed = RoutedAgents((), routers)
        self._show_inputs = inputs
        self._root = root
        self._kinds, self._traits = kinds, traits
        self._context_size = context_size
        self._unsent = UnsentParts()
        self._inputs: dict[str, Content] = {}
        self._calls: dict[CallId, JsonObject] = {}
        """The calls that have no result yet, as the client knows them."""
        self._outputs: dict[CallId, str] = {}
        self._received: dict[tuple[CallId, int], int] = {}
        """The number of characters of each output that have come."""
        self._ended: set[CallId] = set()
        """The calls of the turn that have their result: a repeated event adds nothing."""
        self._has_message = False
        self._stop = ""
        self._cost = 0.0
        self.outcome: JsonObject | None = None
        """The ``result`` or the ``error`` of ``session/prompt``; ``None`` while no turn has ended."""

    def encode(self, event: Event) -> list[JsonObject]:
        """Return the parameters of the notifications for an event, often none."""
        updates = [without_empty(update) for update in self._encode(event, event.data)]
        return [{"sessionId": event.session, "update": update} for update in updates]

    def _encode(self, event: Event, body: Body) -> Iterator[JsonObject]:
        if isinstance(body, UsageRecorded):
            self._cost += body.usage.cost
        if not self._routed.answers(event):
            return
        if isinstance(body, _ToolBody):
            yield from () if self._routed.is_router(event.path) else self._encode_tool(body)
            return
        match body:
            case progress.ToolOutputDelta() | progress.MessageSnapshot(of=progress.ToolOutputDelta.type):
                yield from self._encode_output(body)
            case progress.TextDelta() | progress.ReasoningDelta() | progress.MessageSnapshot():
                yield from self._encode_parts(self._unsent.add_delta(body), body.message_id)
            case progress.MessageCompleted():
                self._stop = body.stop
                yield from self._encode_parts(self._unsent.complete(body), body.message_id)
            case progress.MessageDiscarded(message_id=id) if self._unsent.discard(id):
                meta = {"vaka": {"discarded": body.reason or True}}  # a client cannot be asked to forget a text
                yield _chunk("agent_message_chunk", {"type": "text", "text": "\n\n"}, id) | {"_meta": meta}
            case UsageRecorded(call=None, usage=usage) if self._context_size:
                cost = {"amount": self._cost, "currency": "USD"} if self._cost else None
                yield {"sessionUpdate": "usage_update", "used": usage.total, "size": self._context_size, "cost": cost}
            case _:
                yield from self._encode_course(event, body)

    def _encode_course(self, event: Event, body: Body) -> Iterator[JsonObject]:
        match body:
            case control.InputAdded(key=key, content=content) if self._show_inputs:
                self._inputs[key] = content
            case control.InputWithdrawn(input=key):
                self._inputs.pop(key, None)
            case progress.TurnStarted(inputs=inputs):
                self._has_message = False
                self._stop = ""
                self.outcome = None
                self._ended.clear()
                yield from self._encode_inputs(inputs)
            case progress.TurnResumed():
                self.outcome = None
            case progress.StepStarted(inputs=inputs):
                yield from self._encode_inputs(inputs)
            case control.StateChanged(key=key, value=value) if key == _todo_key(event):
                if value is None or is_list(value):
                    yield {"sessionUpdate": "plan", "entries": list(_plan_entries(value or []))}
            case control.SessionOpened(title=str(title)) | control.SessionUpdated(title=str(title)) if title:
                yield {"sessionUpdate": "session_info_update", "title": title, "updatedAt": event.ts}
            case _ if isinstance(body, _TurnEnd):
                yield from self._end_turn(event, body)
            case _:
                pass

    def _encode_inputs(self, keys: tuple[str, ...]) -> Iterator[JsonObject]:
        for key in keys:
            for part in self._inputs.pop(key, ()):
                if block := content_block_of(part):
                    yield _chunk("user_message_chunk", block, key)

    def _end_turn(self, event: Event, body: _TurnEnd) -> Iterator[JsonObject]:
        if body.text and not self._has_message and isinstance(body, progress.TurnCompleted):
            yield from self._encode_parts([Text(text=body.text)], event.turn)  # the answer of a router, for example
        for call in self._calls:
            yield {"sessionUpdate": "tool_call_update", "toolCallId": call, "status": "failed"}
        self._ended.update(self._calls)
        self._calls.clear()
        self._outputs.clear()
        self._received.clear()
        self._unsent.clear()
        if isinstance(body, progress.TurnFailed) and not body.withdrawn:
            failure = failure_of(body)
            code = _INVALID_PARAMS if failure.code == "bad_request" else _INTERNAL_ERROR
            self.outcome = {"error": {"code": code, "message": failure.message, "data": failure.details}}
        else:
            self.outcome = {"result": {"stopReason": self._stop_reason(body), "usage": _usage_of(body.usage)}}

    def _stop_reason(self, body: _TurnEnd) -> str:
        match body:
            case progress.TurnCompleted(stop="limit", limit=limit):
                return "max_tokens" if "token" in limit else "max_turn_requests"
            case progress.TurnCompleted():
                return "max_tokens" if self._stop == "length" else "end_turn"
            case progress.TurnFailed():  # the inputs were withdrawn
                return "refusal"
            case _:
                return "cancelled"

    # ----------------------------------------------------------------------------------------------- messages and tools

    def _encode_parts(self, parts: list[Part], message: str) -> Iterator[JsonObject]:
        for part in parts:
            if isinstance(part, Reasoning):
                yield _chunk("agent_thought_chunk", {"type": "text", "text": part.text}, message)
            elif block := content_block_of(part):
                self._has_message = True
                yield _chunk("agent_message_chunk", block, message)

    def _encode_output(self, body: progress.ToolOutputDelta | progress.MessageSnapshot) -> Iterator[JsonObject]:
        call = CallId(body.message_id)
        if call in self._ended:
            return
        received = self._received.get((call, body.block), 0)
        self._received[call, body.block] = max(received, body.offset + len(body.text))
        if not (text := body.text[max(0, received - body.offset) :]):
            return
        yield from self._announce(ToolCall(id=call, name=""))
        self._outputs[call] = (self._outputs.get(call, "") + text)[-LIVE_OUTPUT_LENGTH:]
        yield {
            "sessionUpdate": "tool_call_update",
            "toolCallId": call,
            "status": "in_progress",
            "content": [text_content(self._outputs[call])],
        }

    def _encode_tool(self, body: _ToolBody) -> Iterator[JsonObject]:
        if _call_id(body) in self._ended:
            return
        match body:
            case progress.ToolCalled(call=call):
                yield from self._announce(call)
            case progress.ToolStarted(call=call, effect=effect):
                yield from self._announce(call, effect)
                known, shape = self._calls[call.id], self._describe(call, effect)
                self._calls[call.id] = shape
                changed = {name: value for name, value in shape.items() if known.get(name) != value}
                update = {"sessionUpdate": "tool_call_update", "toolCallId": call.id, "status": "in_progress"}
                yield update | changed
            case progress.SubagentStarted(call=call, agent=agent):
                yield from self._announce(ToolCall(id=call, name=agent))
                yield {"sessionUpdate": "tool_call_update", "toolCallId": call, "kind": "think", "title": agent}
            case progress.ToolCompleted(result=result) | progress.ToolFailed(result=result):
                yield from self._announce(ToolCall(id=result.call, name=""))
                del self._calls[result.call]
                self._outputs.pop(result.call, None)
                self._ended.add(result.call)
                yield _result_update(result)

    def _announce(self, call: ToolCall, effect: str = "") -> Iterator[JsonObject]:
        """Return the ``tool_call`` of a call that the client does not know."""
        if call.id in self._calls:
            return
        shape = self._calls[call.id] = self._describe(call, effect)
        yield shape | {"sessionUpdate": "tool_call", "title": shape.get("title") or "Tool call", "status": "pending"}

    def _describe(self, call: ToolCall, effect: str) -> JsonObject:
        return describe_call(call, effect=effect, root=self._root, kinds=self._kinds, traits=self._traits)


def _call_id(body: _ToolBody) -> CallId:
    match body:
        case progress.ToolCalled(call=call) | progress.ToolStarted(call=call):
            return call.id
        case progress.SubagentStarted(call=id):
            return id
        case progress.ToolCompleted(result=result) | progress.ToolFailed(result=result):
            return result.call


def _chunk(update: str, block: JsonObject, message: str) -> JsonObject:
    return {"sessionUpdate": update, "content": block, "messageId": message}


def _result_update(result: ToolResult) -> JsonObject:
    blocks = [block for part in result.content if (block := content_block_of(part))]
    return {
        "sessionUpdate": "tool_call_update",
        "toolCallId": result.call,
        "status": "failed" if result.failed else "completed",
        "content": [{"type": "content", "content": block} for block in blocks],
        "rawOutput": result.value,
        "_meta": {"vaka": {"reason": result.reason}} if result.reason else None,
    }


def _todo_key(event: Event) -> str:
    """Return the key of the session value in which the todo tool keeps the list of the agent."""
    return "/".join(("todos", *event.path))


def _plan_entries(todos: list[JSON]) -> Iterator[JsonObject]:
    """Return the entries of a list of the todo tool; items of another form are left out."""
    for todo in todos:
        match todo:
            case {"content": str(content), "status": "pending" | "in_progress" | "completed" as status}:
                yield {"content": content, "priority": "medium", "status": status}
            case _:
                pass


def _usage_of(usage: Usage) -> JsonObject:
    return {
        "totalTokens": usage.total,
        "inputTokens": usage.input,
        "outputTokens": usage.output,
        "thoughtTokens": usage.reasoning,
        "cachedReadTokens": usage.cache_read,
        "cachedWriteTokens": usage.cache_write,
    }
