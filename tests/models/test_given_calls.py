"""The model that makes the tool calls a person has given."""

from typing import Any

import pytest

from vaka.core.ports.model import CallChunk, Prompt, StopChunk, TextChunk
from vaka.core.types.errors import ModelRefused
from vaka.core.types.ids import CallId, MessageId
from vaka.core.types.message import AssistantMessage, Message, Text, ToolCall, ToolMessage, ToolResult, UserMessage
from vaka.core.types.progress import GIVEN_CALLS
from vaka.models.given_calls import END_TEXT, GivenCalls

CALLS = [{"name": "Read", "arguments": {"file_path": "a"}}, {"name": "Edit", "arguments": "{}"}]
USER = UserMessage(content=(Text(text="#note"),))


def step(number: int, *, failed: bool = False) -> tuple[Message, Message]:
    """Return a call that was made, and its result."""
    id = CallId(f"call_{number}")
    made = AssistantMessage(id=MessageId("m"), content=(), model=GIVEN_CALLS, calls=(ToolCall(id=id, name="Read"),))
    return made, ToolMessage(results=(ToolResult(call=id, content=(), failed=failed),))


async def answer(*messages: Message, calls: Any = CALLS) -> list[Any]:
    prompt = Prompt(messages=messages, options={"calls": calls})
    return [chunk async for chunk in GivenCalls().stream(prompt)]


async def test_calls_are_made_one_in_each_step_and_a_failure_ends_them() -> None:
    end = [TextChunk(END_TEXT), StopChunk("end")]
    assert await answer(*step(1), USER) == [
        CallChunk(index=0, name="Read", arguments='{"file_path":"a"}'),
        StopChunk("calls"),
    ]
    assert await answer(USER, *step(1)) == [CallChunk(index=0, name="Edit", arguments="{}"), StopChunk("calls")]
    assert await answer(USER, *step(1), *step(2)) == end
    assert await answer(USER, *step(1, failed=True)) == end


async def test_an_option_that_does_not_describe_calls_is_refused() -> None:
    with pytest.raises(ModelRefused, match="must be a list of tool calls"):
        await answer(USER, calls=[{"tool": "Read"}])
