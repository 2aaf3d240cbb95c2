"""PatchToolCalls: a history that came from elsewhere is made whole, so that no provider refuses it."""

from collections.abc import Iterable

import msgspec

from vaka.core.loop.middleware import Middleware
from vaka.core.loop.scope import Turn
from vaka.core.ports.model import Prompt
from vaka.core.types.content import Text
from vaka.core.types.message import AssistantMessage, Message, Reason, ToolCall, ToolMessage, ToolResult

CANCELLED = "This call has no result: the conversation went on before there was one."
MALFORMED = "This call was not run: its arguments could not be read."


class PatchToolCalls(Middleware):
    """Gives every call in the prompt exactly one result, right behind the message that made it.

    A session's own log always has them; histories that other middleware brings in may not.
    """

    async def before_model(self, turn: Turn, prompt: Prompt) -> Prompt:
        """Return the prompt with whole pairs; the same one when nothing was missing."""
        messages = patched(prompt.messages)
        return prompt if messages == prompt.messages else msgspec.structs.replace(prompt, messages=messages)


def patched(messages: Iterable[Message]) -> tuple[Message, ...]:
    """Return messages in which each call has its one result and each result its call; the first of several counts."""
    given = list(messages)
    made: list[Message] = []
    for at, message in enumerate(given):
        if isinstance(message, ToolMessage):
            continue
        made.append(message)
        if isinstance(message, AssistantMessage) and message.calls:
            found = _results(given[at + 1 :], message)
            made.append(ToolMessage(results=tuple(found.get(call.id) or _missing(call) for call in message.calls)))
    return tuple(made)


def _results(after: list[Message], message: AssistantMessage) -> dict[str, ToolResult]:
    """Return the results of a message's calls, up to where another message makes calls of the same names."""
    wanted = {call.id for call in message.calls}
    found: dict[str, ToolResult] = {}
    for later in after:
        if isinstance(later, AssistantMessage) and wanted & {call.id for call in later.calls}:
            break
        if isinstance(later, ToolMessage):
            for result in later.results:
                if result.call in wanted:
                    found.setdefault(result.call, result)
        if len(found) == len(wanted):
            break
    return found


def _missing(call: ToolCall) -> ToolResult:
    unread = bool(call.raw and not call.repaired)
    text = MALFORMED if unread else CANCELLED
    reason: Reason = "invalid_arguments" if unread else "cancelled"
    return ToolResult(call=call.id, content=(Text(text=text),), failed=True, reason=reason)
