"""The requests of a conversation that grows begin with the same bytes on every wire, which providers cache."""

from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.models.conversations import THOUGHTS, WIRES, Wire
from vaka.core.ports.model import Prompt
from vaka.core.types.errors import BadRequest
from vaka.core.types.ids import CallId, Digest, MessageId
from vaka.core.types.message import (
    AssistantMessage,
    CallRef,
    Content,
    Document,
    Image,
    Message,
    Part,
    Stored,
    Text,
    ToolCall,
    ToolMessage,
    ToolResult,
    UserMessage,
)
from vaka.core.types.tool import ToolSpec

TOOLS = tuple(ToolSpec(name=name, description="Do it.", parameters={"type": "object"}) for name in ("read", "write"))
TEXTS = st.sampled_from(["a", "end  ", " ", "", 'é"]}', "long " * 9])
PARTS: st.SearchStrategy[Part] = st.one_of(
    TEXTS.map(lambda text: Text(text=text)),
    st.sampled_from(
        [
            Image(data="iVBORw0KGgoAAA"),
            Document(data="YQ==", media_type="text/plain", name="a.txt"),
            Stored(blob=Digest("d"), size=9, preview="Once"),
        ]
    ),
)
CONTENTS: st.SearchStrategy[Content] = st.lists(PARTS, max_size=2).map(tuple)


class Step(msgspec.Struct, frozen=True):
    """One answer of the model with calls, what they returned, and an input that came meanwhile."""

    before: tuple[Part, ...]
    results: tuple[tuple[Content, bool], ...]
    steered: Content | None


class Turn(msgspec.Struct, frozen=True):
    """A turn: the input, steps with calls, and the last answer."""

    asked: Content
    steps: tuple[Step, ...]
    answer: tuple[Part, ...]


ANSWERS: st.SearchStrategy[tuple[Part, ...]] = st.tuples(
    st.sampled_from([(), THOUGHTS, THOUGHTS[:1]]), TEXTS.map(lambda text: (Text(text=text),))
).map(lambda parts: (*parts[0], *parts[1]))
STEPS = st.builds(
    Step,
    before=ANSWERS,
    results=st.lists(st.tuples(CONTENTS, st.booleans()), min_size=1, max_size=2).map(tuple),
    steered=st.none() | CONTENTS,
)
QUESTIONS: st.SearchStrategy[Content] = CONTENTS.map(lambda content: (Text(text="Well?"), *content))
TURNS = st.builds(Turn, asked=QUESTIONS, steps=st.lists(STEPS, max_size=2).map(tuple), answer=ANSWERS)


def prompts_of(turns: list[Turn], **more: Any) -> list[Prompt]:
    """Return the prompts of all model calls."""
    messages: list[Message] = []
    prompts: list[Prompt] = []

    def ask(content: tuple[Part, ...], calls: tuple[ToolCall, ...] = ()) -> None:
        prompts.append(Prompt(messages=tuple(messages), system="Be brief.", tools=TOOLS, session="s", **more))
        parts = (*content, *[CallRef(id=call.id) for call in calls])
        id, stop = MessageId(f"m{len(messages)}"), "calls" if calls else "end"
        messages.append(AssistantMessage(id=id, content=parts, calls=calls, model="claude-sonnet-5-5", stop=stop))

    for turn in turns:
        messages.append(UserMessage(content=turn.asked))
        for step in turn.steps:
            ids = [CallId(f"call_{len(messages)}_{number}") for number in range(len(step.results))]
            ask(step.before, tuple(ToolCall(id=id, name="read", arguments={"a": 1}) for id in ids))
            results = [
                ToolResult(call=id, content=content, failed=failed)
                for id, (content, failed) in zip(ids, step.results, strict=True)
            ]
            messages.append(ToolMessage(results=tuple(results)))
            if step.steered is not None:
                messages.append(UserMessage(content=step.steered))
        ask(turn.answer)
    return prompts


def split_body(wire: Wire, body: bytes) -> tuple[dict[str, Any], bytes]:
    """Return a request without its messages, and the messages without what closes their last one."""
    fields = msgspec.json.decode(body)
    messages = msgspec.json.encode(fields.pop(wire.field)).removesuffix(b"]")
    return fields, messages.rstrip(b']}"')


@pytest.mark.parametrize("name", WIRES)
@given(st.lists(TURNS, min_size=2, max_size=4))
def test_each_request_begins_with_the_one_before_also_in_a_new_process(name: str, turns: list[Turn]) -> None:
    wire, memo = WIRES[name], WIRES[name].new_memo()
    bodies: list[bytes] = []
    for prompt in prompts_of(turns, options={"cache": False}):
        try:
            bodies.append(wire.encode(prompt, memo))
        except BadRequest:  # this wire does not accept images in an input
            return
        assert bodies[-1] == wire.encode(prompt)
    for before, after in pairwise(bodies):
        (fields, messages), (next_fields, next_messages) = split_body(wire, before), split_body(wire, after)
        assert fields == next_fields
        assert next_messages.startswith(messages)
