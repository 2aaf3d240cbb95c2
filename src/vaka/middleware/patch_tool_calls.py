"""PatchToolCalls: give every call of an imported history exactly one result."""

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from itertools import islice

import msgspec

from vaka.core.loop.context import Turn
from vaka.core.loop.middleware import Middleware
from vaka.core.ports.model import Prompt
from vaka.core.types.ids import CallId
from vaka.core.types.message import (
    AssistantMessage,
    CallRef,
    FailureReason,
    Message,
    Text,
    ToolCall,
    ToolMessage,
    ToolResult,
)

CANCELLED = "This call has no result: the conversation went on before there was one."
MALFORMED = "This call was not run: its arguments could not be read."


class PatchToolCalls(Middleware):
    """Gives every call in the prompt exactly one result, right behind the message that made it.

    A session's own log always has them; histories that other middleware brings in may not.
    """

    async def before_model(self, turn: Turn, prompt: Prompt) -> Prompt:
        """Return the prompt with whole pairs; the same one when nothing was missing."""
        messages = patch_messages(prompt.messages)
        return prompt if messages == prompt.messages else msgspec.structs.replace(prompt, messages=messages)


def patch_messages(messages: Iterable[Message]) -> tuple[Message, ...]:
    """Return messages in which each call has its one result and each result its call; the first of several counts.

    Calls of one message that have the same id, or none, get ids of their own, and the results in their order.
    """
    given = list(messages)
    made: list[Message] = []
    for at, message in enumerate(given):
        if isinstance(message, ToolMessage):
            continue
        if not isinstance(message, AssistantMessage) or not message.calls:
            made.append(message)
            continue
        found = _results_of_calls(given, at)
        calls = _with_unique_ids(message.calls)
        results = [_result_for(new, found[old.id]) for old, new in zip(message.calls, calls, strict=True)]
        made.append(message if calls == message.calls else _rename_calls(message, calls))
        made.append(ToolMessage(results=tuple(results)))
    return tuple(made)


def _results_of_calls(given: Sequence[Message], at: int) -> dict[str, deque[ToolResult]]:
    """Return the results of a message's calls, up to where another message makes calls of the same names."""
    message = given[at]
    wanted = Counter(call.id for call in message.calls) if isinstance(message, AssistantMessage) else Counter[str]()
    found: dict[str, deque[ToolResult]] = {id: deque() for id in wanted}
    for later in islice(given, at + 1, None):
        if isinstance(later, AssistantMessage) and any(call.id in wanted for call in later.calls):
            break
        if isinstance(later, ToolMessage):
            for result in later.results:
                if result.call in found:
                    found[result.call].append(result)
        if all(len(found[id]) >= count for id, count in wanted.items()):
            break
    return found


def _with_unique_ids(calls: Sequence[ToolCall]) -> tuple[ToolCall, ...]:
    """Return calls of which no two have the same id."""
    taken = {call.id for call in calls}
    seen: set[str] = {""}
    made: list[ToolCall] = []
    for call in calls:
        id, number = call.id, 1
        while id in seen or (id != call.id and id in taken):
            number += 1
            id = CallId(f"{call.id or 'call'}_{number}")
        seen.add(id)
        made.append(call if id == call.id else msgspec.structs.replace(call, id=id, provider_id=""))
    return tuple(made)


def _rename_calls(message: AssistantMessage, calls: tuple[ToolCall, ...]) -> AssistantMessage:
    """Return a message with its calls under other ids, also where its content names them, in their order."""
    names = {call.id: deque[CallId]() for call in message.calls}
    for old, new in zip(message.calls, calls, strict=True):
        names[old.id].append(new.id)
    content = [
        CallRef(id=names[part.id].popleft()) if isinstance(part, CallRef) else part
        for part in message.content
        if not isinstance(part, CallRef) or names.get(part.id)
    ]
    return msgspec.structs.replace(message, content=tuple(content), calls=calls)


def _result_for(call: ToolCall, found: deque[ToolResult]) -> ToolResult:
    if not found:
        return _missing_result(call)
    result = found.popleft()
    return result if result.call == call.id else msgspec.structs.replace(result, call=call.id)


def _missing_result(call: ToolCall) -> ToolResult:
    unread = bool(call.raw and not call.repaired)
    text = MALFORMED if unread else CANCELLED
    reason: FailureReason = "invalid_arguments" if unread else "cancelled"
    return ToolResult(call=call.id, content=(Text(text=text),), failed=True, reason=reason)
