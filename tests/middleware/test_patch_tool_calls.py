"""PatchToolCalls: histories from elsewhere are made whole."""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

import vaka
from tests.runtime.runtime_fixtures import agent, runtime
from vaka.core.types.ids import CallId, MessageId
from vaka.core.types.message import (
    AssistantMessage,
    CallRef,
    Message,
    Text,
    ToolCall,
    ToolMessage,
    ToolResult,
    UserMessage,
)
from vaka.middleware import PatchToolCalls
from vaka.middleware.patch_tool_calls import CANCELLED, MALFORMED, patch_messages
from vaka.testing.models import ScriptedModel, say


def user(text: str) -> UserMessage:
    return UserMessage(content=(Text(text=text),))


def assistant_calls(*ids: str, raw: str = "") -> AssistantMessage:
    calls = tuple(ToolCall(id=CallId(id), name="look", raw=raw) for id in ids)
    return AssistantMessage(id=MessageId("m"), calls=calls)


def tool_results(*ids: str) -> ToolMessage:
    return ToolMessage(results=tuple(ToolResult(call=CallId(id), content=(Text(text=id),)) for id in ids))


def summarize(messages: tuple[Message, ...]) -> list[Any]:
    return [
        [(result.call, result.reason) for result in message.results]
        if isinstance(message, ToolMessage)
        else type(message).__name__[0]
        for message in messages
    ]


def test_a_call_without_a_result_gets_one_right_behind_its_message() -> None:
    made = patch_messages([user("a"), assistant_calls("1", "2"), tool_results("2"), user("b"), assistant_calls("3")])
    assert summarize(made) == ["U", "A", [("1", "cancelled"), ("2", "")], "U", "A", [("3", "cancelled")]]
    assert made[2].results[0].text == CANCELLED  # type: ignore[union-attr]  # a tool message, see above


def test_arguments_that_could_not_be_read_are_named_as_the_reason() -> None:
    made = patch_messages([assistant_calls("1", raw="{oops")])
    assert made[1].results[0].text == MALFORMED  # type: ignore[union-attr]  # a tool message


def test_results_nobody_asked_for_go_and_late_ones_come_to_their_call() -> None:
    made = patch_messages(
        [
            tool_results("0"),
            assistant_calls("1"),
            user("b"),
            tool_results("1", "1"),
            assistant_calls("2"),
            tool_results("2"),
        ]
    )
    assert summarize(made) == ["A", [("1", "")], "U", "A", [("2", "")]]


def test_an_id_that_is_used_again_keeps_its_own_result() -> None:
    assert summarize(patch_messages([assistant_calls("1"), assistant_calls("1"), tool_results("1")])) == [
        "A",
        [("1", "cancelled")],
        "A",
        [("1", "")],
    ]


def test_the_content_of_a_message_names_its_calls_as_they_are_told_apart() -> None:
    content = tuple(CallRef(id=CallId(id)) if id in "ab" else Text(text=id) for id in ("so", "a", "b", "and", "a", "a"))
    made = patch_messages(
        [msgspec.structs.replace(assistant_calls("a", "a", "b"), content=content), tool_results("a", "a", "b")]
    )[0]
    assert isinstance(made, AssistantMessage)
    assert [part.id if isinstance(part, CallRef) else part for part in made.content] == [
        Text(text="so"), "a", "b", Text(text="and"), "a_2",
    ]  # fmt: skip


def test_calls_of_one_message_that_share_an_id_are_told_apart_with_their_results() -> None:
    made = patch_messages([assistant_calls("1", "1", "1_2", ""), tool_results("1_2", "1", "", "1"), user("b")])
    assert summarize(made) == ["A", [("1", ""), ("1_3", ""), ("1_2", ""), ("call_2", "")], "U"]
    assert summarize(patch_messages([assistant_calls("1", "1"), tool_results("1")])) == [
        "A",
        [("1", ""), ("1_2", "cancelled")],
    ]


ids = st.lists(st.sampled_from(["a", "b", "c", "a_2", ""]), min_size=1, max_size=4)
histories = st.lists(
    st.one_of(ids.map(lambda i: assistant_calls(*i)), ids.map(lambda i: tool_results(*i)), st.just(user("x")))
)


@given(histories)
def test_every_call_has_one_result_and_every_result_its_call(history: list[Message]) -> None:
    made = patch_messages(history)
    for at, message in enumerate(made):
        if isinstance(message, AssistantMessage) and message.calls:
            behind = made[at + 1]
            assert isinstance(behind, ToolMessage)
            assert [result.call for result in behind.results] == [call.id for call in message.calls]
            assert len({call.id for call in message.calls} - {""}) == len(message.calls)
        if isinstance(message, ToolMessage):
            assert isinstance(made[at - 1], AssistantMessage)
    assert patch_messages(made) == made


async def test_the_model_sees_a_whole_history_when_another_middleware_brings_one() -> None:
    async def imported(turn: Any, prompt: Any) -> Any:
        return msgspec.structs.replace(prompt, messages=(assistant_calls("1"), *prompt.messages))

    model = ScriptedModel(say("Hello."))
    middleware = [vaka.Middleware.from_functions("imported", before_model=imported), PatchToolCalls()]
    async with runtime() as rt:
        await (await rt.open(agent(model, middleware=middleware))).run("Hi.")
    assert summarize(model.prompts[0].messages) == ["A", [("1", "cancelled")], "U"]
