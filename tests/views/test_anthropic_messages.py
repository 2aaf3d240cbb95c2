"""Messages of Anthropic's Messages API, for whole runs and parts of them, and the requests of its clients."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot

import vaka
from tests.views import decision_runs as decisions
from tests.views import recorded_runs as runs
from tests.views.test_openai_requests import VALUES
from vaka.content import AssistantMessage, Document, Image, Text, ToolMessage, UserMessage
from vaka.errors import InvalidInput
from vaka.testing import ScriptedModel, call
from vaka.views.anthropic_messages import MessagesEncoder, join_message
from vaka.views.anthropic_requests import MessagesRequest, parse_messages_request


def encode(events: list[vaka.Event], **options: Any) -> list[dict[str, Any]]:
    encoder = MessagesEncoder(**options)
    return [one for event in events for one in encoder.encode(event)]


def outline(events: list[dict[str, Any]]) -> list[str]:
    shown: list[str] = []
    for event in events:
        detail = event.get("delta") or event.get("content_block") or event.get("error") or {}
        texts = [
            str(detail[name]) for name in ("text", "thinking", "partial_json", "name", "stop_reason") if name in detail
        ]
        shown.append(" ".join(filter(None, [event["type"], detail.get("type", ""), *texts])))
    return shown


async def test_a_run_with_reasoning_and_tools_is_one_message() -> None:
    events = await runs.record_tools()
    stream = encode(events, model="guide", thinking=True)
    assert outline(stream) == snapshot(
        [
            "message_start",
            "ping",
            "content_block_start thinking",
            "content_block_delta thinking_delta hm",
            "content_block_stop",
            "content_block_start text",
            "content_block_delta text_delta Let ",
            "content_block_delta text_delta me ",
            "content_block_delta text_delta see.",
            "content_block_stop",
            "content_block_start text",
            "content_block_delta text_delta Grüße, ",
            "content_block_delta text_delta 世界.",
            "content_block_stop",
            "message_delta end_turn",
            "message_stop",
        ]
    )
    message = join_message(stream)
    assert message == join_message(encode([event for event in events if event.seq], model="guide", thinking=True))
    assert (message["id"], message["model"], message["stop_reason"]) == ("msg_trn_1", "guide", "end_turn")
    assert [block["type"] for block in message["content"]] == ["thinking", "text", "text"]
    assert message["usage"] == snapshot(
        {"input_tokens": 20, "output_tokens": 4, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0}
    )
    plain = join_message(encode(events))
    assert [block.get("text") for block in plain["content"]] == ["Let me see.", "Grüße, 世界."]


async def test_calls_of_the_client_are_tool_use_blocks() -> None:
    events = await runs.record_client_tool()
    encoder = MessagesEncoder()
    stream = [one for event in events for one in encoder.encode(event)]
    assert any(
        event["type"] == "content_block_start" and event["content_block"]["type"] == "tool_use" for event in stream
    )
    asked = next(at for at, event in enumerate(events) if event.type == "question.asked")
    encoder = MessagesEncoder()
    message = join_message([one for event in events[: asked + 1] for one in encoder.encode(event)] + encoder.finish())
    assert message["stop_reason"] == "tool_use"
    assert message["content"][-1] == snapshot(
        {"type": "tool_use", "id": "call_1", "name": "pick", "input": {"name": "map"}}
    )
    assert encoder.finish() == []
    rest = join_message([one for event in events[asked + 1 :] for one in encoder.encode(event)])
    assert rest["id"].startswith(f"{message['id']}-")


async def test_an_approval_is_asked_for_in_the_text() -> None:
    events = await decisions.record_approval()
    asked = next(at for at, event in enumerate(events) if event.type == "approval.requested")
    encoder = MessagesEncoder()
    message = join_message([one for event in events[: asked + 1] for one in encoder.encode(event)] + encoder.finish())
    assert message["stop_reason"] == "end_turn"
    assert "Reply 'approve apr_1' or 'reject apr_1'." in message["content"][-1]["text"]


async def test_a_discarded_message_ends_its_block_and_a_failure_is_an_error() -> None:
    assert outline(encode(await runs.record_retry())) == snapshot(
        [
            "message_start",
            "ping",
            "content_block_start text",
            "content_block_delta text_delta Hel",
            "content_block_stop",
            "content_block_start text",
            "content_block_delta text_delta Hello.",
            "content_block_stop",
            "message_delta end_turn",
            "message_stop",
        ]
    )
    failed = encode(await runs.record_failure())
    assert failed[-1]["type"] == "error"
    assert join_message(failed) == failed[-1]
    assert join_message([]) == {}


async def test_a_limit_ends_the_message_and_broken_arguments_are_empty() -> None:
    model = ScriptedModel(call("fly"), call("fly"))
    events = await runs.record(vaka.Agent("guide", model=model, limits=vaka.Limits(max_steps=1)))
    assert join_message(encode(events))["stop_reason"] == "max_tokens"
    use = {"type": "tool_use", "id": "call_1", "name": "look", "input": {}}
    broken = [
        {"type": "message_start", "message": {"id": "m"}},
        {"type": "content_block_start", "content_block": use},
        {"type": "content_block_delta", "delta": {"type": "input_json_delta", "partial_json": "{"}},
    ]
    assert join_message(broken)["content"] == [use]


def test_messages_of_a_request_are_history_and_what_is_new() -> None:
    request = parse_messages_request(
        {
            "model": "guide",
            "max_tokens": 100,
            "system": [{"type": "text", "text": "Be brief."}],
            "messages": [
                {"role": "user", "content": "Hi"},
                {
                    "role": "assistant",
                    "content": [
                        {"type": "thinking", "thinking": "hm", "signature": ""},
                        {"type": "text", "text": "Let me see."},
                        {"type": "tool_use", "id": "call_1", "name": "look", "input": {"at": 1}},
                    ],
                },
                {
                    "role": "user",
                    "content": [
                        {
                            "type": "tool_result",
                            "tool_use_id": "call_1",
                            "content": [{"type": "text", "text": "gone"}],
                            "is_error": True,
                        },
                        {"type": "text", "text": "Well?"},
                    ],
                },
                {"role": "assistant", "content": "So."},
                {
                    "role": "user",
                    "content": [
                        {"type": "tool_result", "tool_use_id": "call_2"},
                        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}},
                        {"type": "document", "title": "a.pdf", "source": {"type": "url", "url": "https://x.example/a"}},
                        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "words"}},
                    ],
                },
            ],
            "tools": [{"name": "look", "input_schema": {"type": "object", "properties": {}}}],
            "tool_choice": {"type": "any"},
            "stop_sequences": ["END"],
            "temperature": 0.5,
            "top_k": 3,
            "thinking": {"type": "enabled", "budget_tokens": 1024},
            "metadata": {"user_id": "u"},
            "stream": True,
            "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": {"type": "object"}}},
        }
    )
    assert [type(message) for message in request.history] == [
        UserMessage,
        AssistantMessage,
        ToolMessage,
        UserMessage,
        AssistantMessage,
    ]
    answer, results = request.history[1], request.history[2]
    assert isinstance(answer, AssistantMessage)
    assert isinstance(results, ToolMessage)
    assert [(call.id, call.arguments) for call in answer.calls] == [("call_1", {"at": 1})]
    assert results.results[0].failed
    assert request.content == (
        Image(media_type="image/png", data="AA=="),
        Document(name="a.pdf", url="https://x.example/a"),
        Text(text="words"),
    )
    assert [result.call for result in request.results] == ["call_2"]
    assert (request.instructions, request.tool_choice, request.thinking) == ("Be brief.", "required", True)
    assert [tool.name for tool in request.tools] == ["look"]
    assert request.options == {
        "max_tokens": 100,
        "temperature": 0.5,
        "top_k": 3,
        "stop": ["END"],
        "reasoning": "low",
        "user": "u",
        "output": {"schema": {"type": "object"}, "name": "answer", "strict": True},
    }


def test_messages_of_the_system_add_instructions_and_change_the_tools() -> None:
    schema = {"type": "object", "properties": {}}
    added = {"type": "tool_definition", "definition": {"name": "paint", "input_schema": schema}}
    request = parse_messages_request(
        {
            "model": "guide",
            "system": [{"type": "text", "text": "Be brief."}],
            "messages": [
                {"role": "user", "content": "Hi"},
                {"role": "system", "content": "Be kind."},
                {"role": "system", "content": [{"type": "tool_addition", "tool": added}]},
                {"role": "system", "content": [{"type": "tool_removal", "tool": {"name": "look"}}]},
            ],
            "tools": [{"name": "look", "input_schema": schema}, {"name": "keep", "input_schema": schema}],
        }
    )
    assert request.instructions == "Be brief.\n\nBe kind."
    assert [tool.name for tool in request.tools] == ["keep", "paint"]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"messages": []}, "the last message must be one of the user"),
        ({"messages": [{"role": "bot", "content": "x"}]}, "the role of a message is"),
        ({"messages": [{"role": "system", "content": [{"type": "image"}]}]}, "texts and changes of tools"),
        ({"thread": {"type": "fork"}}, "thread has the type 'create'"),
        ({"tools": [{"name": "a"}, {"name": "a"}]}, "two tools of the same name"),
        ({"messages": [{"role": "user", "content": 5}]}, "a text or a list of blocks"),
        ({"messages": [{"role": "user", "content": [{"type": "audio"}]}]}, "cannot be read; expected a text"),
        ({"messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "url"}}]}]}, "cannot be read"),
        ({"tools": [{"type": "bash_20250124", "name": "bash"}]}, "is one of the client"),
        ({"tool_choice": {"type": "tool"}}, "tool_choice has the type"),
        ({"output_config": {"format": {"type": "text"}}}, "output_config.format"),
    ],
)
def test_a_request_that_cannot_be_read_is_refused(fields: dict[str, Any], message: str) -> None:
    body = {"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": "Hi"}], **fields}
    with pytest.raises(InvalidInput, match=message):
        parse_messages_request(body)


@given(
    st.lists(st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant"]), "content": VALUES}), max_size=3),
    st.dictionaries(
        st.sampled_from(["tools", "tool_choice", "system", "thinking", "output_config"]), VALUES, max_size=2
    ),
)
def test_any_request_is_read_or_refused(messages: list[Any], fields: dict[str, Any]) -> None:
    try:
        request = parse_messages_request({"model": "m", **fields, "messages": messages})
    except InvalidInput:
        return
    assert isinstance(request, MessagesRequest)
    assert request.content or request.results


def test_the_choice_of_a_tool_is_its_name() -> None:
    hi = [{"role": "user", "content": "Hi"}]
    named = parse_messages_request({"model": "m", "messages": hi, "tool_choice": {"type": "tool", "name": "look"}})
    assert named.tool_choice == "look"
    assert parse_messages_request({"model": "m", "messages": hi, "system": "Be kind."}).instructions == "Be kind."
