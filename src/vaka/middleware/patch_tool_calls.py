"""PatchToolCalls: give every call of an imported history exactly one result."""

from collections import Counter, deque
from collections.abc import Iterable, Sequence

import msgspec

from vaka.core.loop.context import Turn
from vaka.core.loop.middleware import Middleware
from vaka.core.messages.tool_result import failed_result
from vaka.core.ports.model import Prompt
from vaka.core.types.ids import CallId
from vaka.core.types.message import AssistantMessage, CallRef, FailureReason, Message, ToolCall, ToolMessage, ToolResult

CANCELLED = "This call has no result: the conversation went on before there was one."
MALFORMED = "This call was not run: its arguments could not be read."


class PatchToolCalls(Middleware):
    """Gives every call in the prompt exactly one result, right after the message that made it.

    The log of a session always has them; a history that other middleware imports may not.
    """

    async def before_model(self, turn: Turn, prompt: Prompt) -> Prompt:
        messages = patch_messages(prompt.messages)
        return prompt if messages == prompt.messages else msgspec.structs.replace(prompt, messages=messages)


def patch_messages(messages: Iterable[Message]) -> tuple[Message, ...]:
    """Return messages with exactly one result for each call; of several the first counts, unmatched ones are dropped.

    Calls of one message that have the same id, or none, get unique ids, and the results are matched in order.
    """
    history = list(messages)
    patched: list[Message] = []
    for at, message in enumerate(history):
        if isinstance(message, ToolMessage):
            continue
        if not isinstance(message, AssistantMessage) or not message.calls:
            patched.append(message)
            continue
        by_id = _results_of_calls(message, history[at + 1 :])
        calls = _with_unique_ids(message.calls)
        results = [_result_for(new, by_id[old.id]) for old, new in zip(message.calls, calls, strict=True)]
        patched.append(message if calls == message.calls else _rename_calls(message, calls))
        patched.append(ToolMessage(results=tuple(results)))
    return tuple(patched)


def _results_of_calls(message: AssistantMessage, later: Sequence[Message]) -> dict[str, deque[ToolResult]]:
    """Return the results of a message's calls by id, up to the next message that uses one of the ids again."""
    counts = Counter(call.id for call in message.calls)
    results: dict[str, deque[ToolResult]] = {id: deque() for id in counts}
    for other in later:
        if isinstance(other, AssistantMessage) and any(call.id in counts for call in other.calls):
            break
        for result in other.results if isinstance(other, ToolMessage) else ():
            if result.call in results:
                results[result.call].append(result)
        if all(len(results[id]) >= count for id, count in counts.items()):
            break
    return results


def _with_unique_ids(calls: Sequence[ToolCall]) -> tuple[ToolCall, ...]:
    original_ids = {call.id for call in calls}
    used_ids: set[str] = {""}
    unique: list[ToolCall] = []
    for call in calls:
        id, number = call.id, 1
        while id in used_ids or (id != call.id and id in original_ids):
            number += 1
            id = CallId(f"{call.id or 'call'}_{number}")
        used_ids.add(id)
        unique.append(call if id == call.id else msgspec.structs.replace(call, id=id, provider_id=""))
    return tuple(unique)


def _rename_calls(message: AssistantMessage, calls: tuple[ToolCall, ...]) -> AssistantMessage:
    """Return a message with renamed calls; references in its content are renamed in the same order."""
    new_ids = {call.id: deque[CallId]() for call in message.calls}
    for old, new in zip(message.calls, calls, strict=True):
        new_ids[old.id].append(new.id)
    content = [
        CallRef(id=new_ids[part.id].popleft()) if isinstance(part, CallRef) else part
        for part in message.content
        if not isinstance(part, CallRef) or new_ids.get(part.id)
    ]
    return msgspec.structs.replace(message, content=tuple(content), calls=calls)


def _result_for(call: ToolCall, results: deque[ToolResult]) -> ToolResult:
    if not results:
        return _missing_result(call)
    result = results.popleft()
    return result if result.call == call.id else msgspec.structs.replace(result, call=call.id)


def _missing_result(call: ToolCall) -> ToolResult:
    malformed = bool(call.raw and not call.repaired)
    text = MALFORMED if malformed else CANCELLED
    reason: FailureReason = "invalid_arguments" if malformed else "cancelled"
    return failed_result(call.id, reason, text)
