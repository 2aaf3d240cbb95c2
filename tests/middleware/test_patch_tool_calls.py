"""PatchToolCalls: every call of an imported history gets exactly one result."""

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
from vaka.middleware.tool_calls import CANCELLED, MALFORMED, patch_messages
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


def test_a_call_without_a_result_gets_one_right_after_its_message() -> None:
    patched = patch_messages([user("a"), assistant_calls("1", "2"), tool_results("2"), user("b"), assistant_calls("3")])
    assert summarize(patched) == ["U", "A", [("1", "cancelled"), ("2", "")], "U", "A", [("3", "cancelled")]]
    assert patched[2].results[0].text == CANCELLED  # type: ignore[union-attr]  # a tool message, see above


def test_a_call_with_malformed_arguments_gets_that_as_its_reason() -> None:
    patched = patch_messages([assistant_calls("1", raw="{oops")])
    assert patched[1].results[0].text == MALFORMED  # type: ignore[union-attr]  # a tool message


def test_unmatched_results_are_dropped_and_late_ones_are_moved_to_their_call() -> None:
    patched = patch_messages(
        [
            tool_results("0"),
            assistant_calls("1"),
            user("b"),
            tool_results("1", "1"),
            assistant_calls("2"),
            tool_results("2"),
        ]
    )
    assert summarize(patched) == ["A", [("1", "")], "U", "A", [("2", "")]]


def test_two_messages_with_the_same_call_id_keep_their_own_results() -> None:
    assert summarize(patch_messages([assistant_calls("1"), assistant_calls("1"), tool_results("1")])) == [
        "A",
        [("1", "cancelled")],
        "A",
        [("1", "")],
    ]


def test_references_in_the_content_follow_renamed_calls() -> None:
    content = tuple(CallRef(id=CallId(id)) if id in "ab" else Text(text=id) for id in ("so", "a", "b", "and", "a", "a"))
    patched = patch_messages(
        [msgspec.structs.replace(assistant_calls("a", "a", "b"), content=content), tool_results("a", "a", "b")]
    )[0]
    assert isinstance(patched, AssistantMessage)
    assert [part.id if isinstance(part, CallRef) else part for part in patched.content] == [
        Text(text="so"),
        "a",
        "b",
        Text(text="and"),
        "a_2",
    ]


def test_calls_of_one_message_with_the_same_id_get_unique_ids_and_their_results() -> None:
    patched = patch_messages([assistant_calls("1", "1", "1_2", ""), tool_results("1_2", "1", "", "1"), user("b")])
    assert summarize(patched) == ["A", [("1", ""), ("1_3", ""), ("1_2", ""), ("call_2", "")], "U"]
    assert summarize(patch_messages([assistant_calls("1", "1"), tool_results("1")])) == [
        "A",
        [("1", ""), ("1_2", "cancelled")],
    ]


ids = st.lists(st.sampled_from(["a", "b", "c", "a_2", ""]), min_size=1, max_size=4)
histories = st.lists(
    st.one_of(ids.map(lambda i: assistant_calls(*i)), ids.map(lambda i: tool_results(*i)), st.just(user("x")))
)


@given(histories)
def test_in_any_patched_history_every_call_has_exactly_one_result(history: list[Message]) -> None:
    patched = patch_messages(history)
    for at, message in enumerate(patched):
        if isinstance(message, AssistantMessage) and message.calls:
            behind = patched[at + 1]
            assert isinstance(behind, ToolMessage)
            assert [result.call for result in behind.results] == [call.id for call in message.calls]
            assert len({call.id for call in message.calls} - {""}) == len(message.calls)
        if isinstance(message, ToolMessage):
            assert isinstance(patched[at - 1], AssistantMessage)
    assert patch_messages(patched) == patched


async def test_a_history_that_another_middleware_imports_is_patched() -> None:
    async def imported(turn: Any, prompt: Any) -> Any:
        return msgspec.structs.replace(prompt, messages=(assistant_calls("1"), *prompt.messages))

    model = ScriptedModel(say("Hello."))
    middleware = [vaka.Middleware.from_functions("imported", before_model=imported), PatchToolCalls()]
    async with runtime() as rt:
        await (await rt.open(agent(model, middleware=middleware))).run("Hi.")
    assert summarize(model.prompts[0].messages) == ["A", [("1", "cancelled")], "U"]
