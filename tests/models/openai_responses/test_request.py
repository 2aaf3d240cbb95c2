"""Prompts as requests to the Responses API, validated by OpenAI's own types."""

from typing import Any

import msgspec
import pytest

from tests.models.oracles.vendor_clients import request_type
from vaka.core.ports.model import Prompt
from vaka.core.types.errors import BadRequest
from vaka.core.types.ids import CallId, Digest, MessageId
from vaka.core.types.message import (
    AssistantMessage,
    Audio,
    CallRef,
    Content,
    Document,
    Image,
    Message,
    Part,
    Reasoning,
    Stored,
    Text,
    ToolCall,
    ToolMessage,
    ToolResult,
    UserMessage,
)
from vaka.core.types.tool import ToolSpec
from vaka.models.openai_responses.model import LLAMA, ResponsesCapabilities, to_request
from vaka.testing.models import PROMPT

WEATHER = PROMPT.tools[0]
THOUGHT = {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "gAAAA=="}
OPEN_THOUGHT = {
    "id": "rs_2",
    "type": "reasoning",
    "summary": [],
    "content": [{"type": "reasoning_text", "text": "Hm."}],
    "encrypted_content": "",
}
SEARCH = {"id": "ws_1", "type": "web_search_call", "status": "completed", "action": {"type": "search", "query": "Hilo"}}
QUESTION = {"id": "ctc_1", "type": "custom_tool_call", "call_id": "c9", "name": "sql", "input": "select 1"}
OUTPUT = {"type": "custom_tool_call_output", "call_id": "c9", "output": "1"}
HI = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]}]


def prompt_of(*parts: Part) -> UserMessage:
    return UserMessage(content=parts or (Text(text="Hi"),))


def assistant_message(*parts: Part, calls: tuple[ToolCall, ...] = ()) -> AssistantMessage:
    return AssistantMessage(id=MessageId("m"), content=parts, calls=calls)


def provider_block(block: Any, wire: str = "responses") -> Reasoning:
    return Reasoning(text="thoughts", opaque={wire: block})


def tool_call(number: int = 1, **more: Any) -> ToolCall:
    return ToolCall(**{"id": CallId(f"call_{number}"), "name": "weather", "arguments": {"city": "Hilo"}} | more)


def tool_result(*parts: Part, number: int = 1, **more: Any) -> ToolResult:
    return ToolResult(call=CallId(f"call_{number}"), content=parts, **more)


def request_body(
    prompt: Prompt, model: str = "gpt-6", facts: ResponsesCapabilities = ResponsesCapabilities()
) -> dict[str, Any]:
    """The request, after OpenAI's own types have looked at it."""
    made = to_request(model, prompt, facts)
    checked = request_type("responses").validate_python(made)
    assert checked.keys() == made.keys()
    assert len(list(checked.get("tools", ()))) == len(made.get("tools", ()))  # looked at only as they are taken
    return made


def input_items(
    *messages: Message, model: str = "gpt-6", facts: ResponsesCapabilities = ResponsesCapabilities()
) -> Any:
    return request_body(Prompt(messages=messages), model, facts)["input"]


def options_prompt(model: str = "gpt-6", **options: Any) -> dict[str, Any]:
    """What options add to the smallest request."""
    made = request_body(Prompt(messages=(prompt_of(),), options=options), model)
    return {name: value for name, value in made.items() if name not in {"model", "stream", "store", "include", "input"}}


def test_a_conversation_is_converted_in_full() -> None:
    assert request_body(msgspec.structs.replace(PROMPT, session="s1")) == {
        "model": "gpt-6",
        "stream": True,
        "store": False,
        "instructions": "Be brief.",
        "include": ["reasoning.encrypted_content"],
        "tools": [
            {
                "type": "function",
                "name": "weather",
                "description": "Return today's weather.",
                "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
                "strict": False,
            }
        ],
        "temperature": 0.5,
        "prompt_cache_key": "s1",
        "input": [
            {
                "type": "message",
                "role": "user",
                "content": [{"type": "input_text", "text": "Is it raining in Hilo? 🌧"}],
            },
            {"type": "message", "role": "assistant", "content": "Let me look."},
            {"type": "function_call", "call_id": "call_1", "name": "weather", "arguments": '{"city":"Hilo"}'},
            {"type": "function_call_output", "call_id": "call_1", "output": "rain"},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "And tomorrow?"}]},
        ],
    }


def test_equal_prompts_give_equal_bytes_and_stay_as_they_were() -> None:
    before = msgspec.json.encode(PROMPT)
    first = msgspec.json.encode(to_request("gpt-6", PROMPT))
    assert first == msgspec.json.encode(to_request("gpt-6", msgspec.json.decode(before, type=Prompt)))
    assert msgspec.json.encode(PROMPT) == before


def test_a_longer_conversation_begins_with_the_bytes_of_the_shorter_one() -> None:
    shorter = msgspec.json.encode(to_request("gpt-6", PROMPT))
    longer = to_request(
        "gpt-6", msgspec.structs.replace(PROMPT, messages=(*PROMPT.messages, assistant_message(Text(text="Dry."))))
    )
    assert msgspec.json.encode(longer).startswith(shorter.removesuffix(b"]}"))


# Options


@pytest.mark.parametrize(
    ("options", "added"),
    [
        ({}, {}),
        ({"max_tokens": 9, "top_p": 0.5}, {"max_output_tokens": 9, "top_p": 0.5}),
        ({"reasoning": "high"}, {"reasoning": {"effort": "high", "summary": "auto"}}),
        ({"reasoning": "none"}, {"reasoning": {"effort": "none"}}),
        ({"reasoning": 8000}, {"reasoning": {"effort": "medium", "summary": "auto"}}),
        (
            {"metadata": {"a": "b"}, "user": "u", "service_tier": "flex"},
            {"metadata": {"a": "b"}, "safety_identifier": "u", "service_tier": "flex"},
        ),
        ({"seed": 1, "top_k": 5, "frequency_penalty": 1, "presence_penalty": 1}, {}),
        ({"parallel_calls": False}, {}),
        (
            {"extra": {"truncation": "auto", "text": {"verbosity": "low"}}},
            {"truncation": "auto", "text": {"verbosity": "low"}},
        ),
    ],
)
def test_options_are_written_in_the_fields_of_this_api(options: dict[str, Any], added: dict[str, Any]) -> None:
    assert options_prompt(**options) == added


def test_the_stop_option_is_refused_with_an_alternative() -> None:
    with pytest.raises(BadRequest, match="openai-chat"):
        options_prompt(stop="END")


def test_extra_fields_are_merged_over_ours_and_its_tools_join_ours() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    extra = {"text": {"verbosity": "low"}, "tools": [{"type": "web_search"}], "include": ["file_search_call.results"]}
    options = {"output": schema, "extra": extra}
    prompt = Prompt(messages=(prompt_of(),), tools=(WEATHER,), options=options)
    made = request_body(prompt)
    assert [tool["type"] for tool in made["tools"]] == ["function", "web_search"]
    assert made["include"] == ["reasoning.encrypted_content", "file_search_call.results"]
    assert made["text"]["verbosity"] == "low"
    assert made["text"]["format"]["name"] == "answer"
    assert extra == {
        "text": {"verbosity": "low"},
        "tools": [{"type": "web_search"}],
        "include": ["file_search_call.results"],
    }


def test_an_output_is_strict_where_its_schema_can_be() -> None:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {"a": {"type": "string"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    assert options_prompt(output={"schema": schema, "name": "city", "description": "A."}) == {
        "text": {
            "format": {
                "type": "json_schema",
                "name": "city",
                "schema": schema,
                "strict": True,
                "description": "A.",
            }
        }
    }
    free = {"type": "object", "additionalProperties": {"type": "string"}}
    assert options_prompt(output=free) == {
        "text": {"format": {"type": "json_schema", "name": "answer", "schema": free, "strict": False}}
    }
    loose = options_prompt(output={"schema": schema, "strict": False})
    assert loose["text"]["format"]["strict"] is False


@pytest.mark.parametrize(
    ("choice", "sent"),
    [("auto", None), ("none", "none"), ("required", "required"), ("weather", {"type": "function", "name": "weather"})],
)
def test_a_tool_choice_is_written_in_the_request(choice: str, sent: Any) -> None:
    prompt = Prompt(messages=(prompt_of(),), tools=(WEATHER,), tool_choice=choice, options={"parallel_calls": False})
    made = request_body(prompt)
    assert made.get("tool_choice") == sent
    assert made["parallel_tool_calls"] is False


def test_a_call_that_must_be_made_needs_a_tool_which_may_be_the_providers_own() -> None:
    assert "tool_choice" not in request_body(Prompt(messages=(prompt_of(),), tool_choice="none"))
    with pytest.raises(BadRequest, match="'required', but there is no tool to call"):
        request_body(Prompt(messages=(prompt_of(),), tool_choice="required"))
    built_in = Prompt(
        messages=(prompt_of(),), tool_choice="required", options={"extra": {"tools": [{"type": "web_search"}]}}
    )
    assert request_body(built_in)["tool_choice"] == "required"


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        (Prompt(messages=(), tool_choice="fly", tools=(WEATHER,)), "'fly'.*'weather'"),
        (Prompt(messages=(), tool_choice="fly"), "none at all"),
        (Prompt(messages=(), tools=(ToolSpec(name="a b"),)), "'a b'"),
        (Prompt(messages=(), options={"output": {"schema": {}, "name": "ä"}}), "'ä'"),
        (Prompt(messages=(), options={"temprature": 1}), "temperature"),
    ],
)
def test_an_unsupported_prompt_is_refused_before_anything_is_sent(prompt: Prompt, words: str) -> None:
    with pytest.raises(BadRequest, match=words):
        to_request("gpt-6", prompt)


def test_a_strict_tool_is_marked_strict() -> None:
    made = request_body(Prompt(messages=(prompt_of(),), tools=(msgspec.structs.replace(WEATHER, strict=True),)))
    assert made["tools"][0]["strict"] is True


def test_optional_arguments_of_a_strict_tool_may_be_null() -> None:
    parameters = {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer", "default": 1}},
        "required": ["city"],
        "additionalProperties": False,
    }
    tool = msgspec.structs.replace(WEATHER, strict=True, parameters=parameters)
    [sent] = request_body(Prompt(messages=(prompt_of(),), tools=(tool,)))["tools"]
    assert sent["strict"] is True
    assert sent["parameters"]["required"] == ["city", "days"]
    assert {"type": "null"} in sent["parameters"]["properties"]["days"]["anyOf"]


def test_the_cache_key_is_the_session_unless_the_cache_is_not_wanted() -> None:
    long = request_body(Prompt(messages=(prompt_of(),), session="x" * 65))["prompt_cache_key"]
    assert len(long) == 64
    assert long != request_body(Prompt(messages=(prompt_of(),), session="x" * 66))["prompt_cache_key"]
    assert "prompt_cache_key" not in request_body(
        Prompt(messages=(prompt_of(),), session="s", options={"cache": False})
    )


@pytest.mark.parametrize(
    "model", ["gpt-4.1", "gpt-4o-mini", "gpt-3.5-turbo", "ft:gpt-4o:me", "openai/gpt-4o", "gpt-5-chat-latest"]
)
def test_a_model_that_does_not_reason_is_not_asked_for_reasoning(model: str) -> None:
    assert "include" not in request_body(Prompt(messages=(prompt_of(),)), model)
    assert input_items(assistant_message(provider_block(THOUGHT), Text(text="Hi")), model=model) == [
        {"type": "message", "role": "assistant", "content": "Hi"}
    ]


# History


def test_an_empty_conversation_is_sent_as_a_dot() -> None:
    dot = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "."}]}]
    assert input_items() == input_items(prompt_of(Text(text=""))) == dot
    assert input_items(prompt_of(Text(text="")), prompt_of()) == HI


def test_reasoning_keeps_its_place_before_the_call_that_it_led_to() -> None:
    first, second = tool_call(1, provider_id="call_a"), tool_call(2, provider_id="call_b")
    made = input_items(
        assistant_message(
            provider_block(THOUGHT),
            Text(text="Look. "),
            CallRef(id=first.id),
            provider_block(SEARCH),
            CallRef(id=second.id),
            calls=(first, second),
        ),
        ToolMessage(results=(tool_result(Text(text="rain")), tool_result(Text(text="sun"), number=2))),
    )
    assert made == [
        THOUGHT,
        {"type": "message", "role": "assistant", "content": "Look. "},
        {"type": "function_call", "call_id": "call_a", "name": "weather", "arguments": '{"city":"Hilo"}'},
        SEARCH,
        {"type": "function_call", "call_id": "call_b", "name": "weather", "arguments": '{"city":"Hilo"}'},
        {"type": "function_call_output", "call_id": "call_a", "output": "rain"},
        {"type": "function_call_output", "call_id": "call_b", "output": "sun"},
    ]


def test_reasoning_of_other_providers_is_not_sent() -> None:
    thought = Reasoning(text="Hm.", signature="s", opaque={"anthropic": {"type": "thinking"}})
    assert input_items(
        assistant_message(thought, Text(text="Hi"), Reasoning(text="plain"), provider_block("nonsense"))
    ) == [{"type": "message", "role": "assistant", "content": "Hi"}]


def test_reasoning_without_an_item_after_it_is_left_out() -> None:
    assert input_items(prompt_of(), assistant_message(provider_block(THOUGHT)), prompt_of()) == [*HI, *HI]
    assert input_items(assistant_message(Text(text="Hi"), provider_block(THOUGHT)))[-1]["content"] == "Hi"


def test_only_reasoning_that_the_server_can_read_goes_back() -> None:
    history = (assistant_message(provider_block(THOUGHT), provider_block(OPEN_THOUGHT), Text(text="Hi")),)
    assert [item.get("id") for item in input_items(*history)] == ["rs_1", None]
    assert [item.get("id") for item in input_items(*history, facts=LLAMA)] == ["rs_2", None]
    assert input_items(assistant_message(provider_block(SEARCH), Text(text="Hi")), facts=LLAMA)[0]["type"] == "message"


def test_a_message_is_sent_back_with_its_phase() -> None:
    phase = provider_block({"type": "message", "phase": "commentary"})
    history = (
        assistant_message(
            phase, Text(text="Let me "), Text(text="look."), provider_block({"type": "message"}), Text(text="It rains.")
        ),
    )
    assert input_items(*history) == [
        {"type": "message", "role": "assistant", "content": "Let me look.", "phase": "commentary"},
        {"type": "message", "role": "assistant", "content": "It rains."},
    ]
    assert "phase" not in input_items(*history, facts=LLAMA)[0]


def test_a_question_to_the_client_goes_back_only_with_its_answer() -> None:
    assert input_items(assistant_message(provider_block(QUESTION), Text(text="Hi")))[0]["type"] == "message"
    assert input_items(assistant_message(provider_block(QUESTION), provider_block(OUTPUT), Text(text="Hi")))[:2] == [
        QUESTION,
        OUTPUT,
    ]
    approval = {"type": "mcp_approval_request", "id": "a1", "arguments": "{}", "name": "n", "server_label": "l"}
    answer = {"type": "mcp_approval_response", "approval_request_id": "a1", "approve": True}
    assert input_items(assistant_message(provider_block(approval), provider_block(answer), Text(text="Hi")))[:2] == [
        approval,
        answer,
    ]


def test_calls_without_a_reference_follow_the_text() -> None:
    assert [item["type"] for item in input_items(assistant_message(Text(text="Hi"), calls=(tool_call(),)))] == [
        "message",
        "function_call",
    ]
    assert input_items(assistant_message(CallRef(id=CallId("gone")), Text(text="Hi"))) == input_items(
        assistant_message(Text(text="Hi"))
    )


def test_calls_with_invalid_arguments_or_unknown_names_are_sent() -> None:
    odd = tool_call(name="functions.weather report", raw='{"city": "Hi', arguments={}, truncated=True)
    sent = input_items(assistant_message(calls=(odd,)))[0]
    assert (sent["name"], msgspec.json.decode(sent["arguments"])) == (
        "functions_weather_report",
        {"raw": '{"city": "Hi'},
    )
    assert input_items(assistant_message(calls=(tool_call(name=""),)))[0]["name"] == "_"


@pytest.mark.parametrize(
    ("given", "output"),
    [
        (tool_result(Text(text="a"), Text(text="b")), "ab"),
        (tool_result(), ""),
        (tool_result(failed=True), "The call failed."),
        (tool_result(failed=True, reason="timeout"), "The call failed (timeout)."),
        (tool_result(Text(text="no such city"), failed=True), "no such city"),
        (tool_result(Stored(blob=Digest("d"), size=9, preview="begin")), "begin"),
    ],
)
def test_results_are_sent_as_text(given: ToolResult, output: str) -> None:
    assert input_items(ToolMessage(results=(given,)))[0]["output"] == output


def test_media_stay_in_a_result_if_the_server_supports_it() -> None:
    shown: Content = (Text(text="See"), Image(data="iVBORw0KGgoAAAA"), Document(url="https://x/y.pdf"))
    picture = {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgoAAAA", "detail": "auto"}
    assert input_items(ToolMessage(results=(tool_result(*shown),)))[0]["output"] == [
        {"type": "input_text", "text": "See"},
        picture,
        {"type": "input_file", "file_url": "https://x/y.pdf"},
    ]
    apart = ToolMessage(
        results=(tool_result(*shown[:2]), tool_result(Text(text="no"), number=2), tool_result(shown[1], number=3))
    )
    assert input_items(apart, facts=LLAMA) == [
        {"type": "function_call_output", "call_id": "call_1", "output": "See"},
        {"type": "function_call_output", "call_id": "call_2", "output": "no"},
        {"type": "function_call_output", "call_id": "call_3", "output": "The result follows."},
        {
            "type": "message",
            "role": "user",
            "content": [{"type": "input_text", "text": "The result of the call call_1:"}, picture],
        },
        {
            "type": "message",
            "role": "user",
            "content": [{"type": "input_text", "text": "The result of the call call_3:"}, picture],
        },
    ]


@pytest.mark.parametrize(
    ("part", "sent"),
    [
        (Image(url="https://x/y.png"), {"type": "input_image", "image_url": "https://x/y.png", "detail": "auto"}),
        (
            Document(data="JVBERi0x"),
            {"type": "input_file", "filename": "document.pdf", "file_data": "data:application/pdf;base64,JVBERi0x"},
        ),
        (
            Document(data="YQ==", media_type="text/plain", name="a.txt"),
            {"type": "input_file", "filename": "a.txt", "file_data": "data:text/plain;base64,YQ=="},
        ),
        (
            Document(url="data:text/csv;base64,YQ==", media_type="text/csv"),
            {"type": "input_file", "filename": "document.csv", "file_data": "data:text/csv;base64,YQ=="},
        ),
        (Stored(blob=Digest("d"), size=9, preview="begin"), {"type": "input_text", "text": "begin"}),
    ],
)
def test_media_of_the_user_are_sent_as_parts(part: Part, sent: dict[str, Any]) -> None:
    assert input_items(prompt_of(part))[0]["content"] == [sent]


def test_audio_is_sent_if_the_server_supports_it() -> None:
    hears = ResponsesCapabilities(audio=True)
    heard = to_request("x", Prompt(messages=(prompt_of(Audio(data="SUQzBA", media_type="audio/mpeg")),)), hears)
    sent = heard["input"][0]["content"][0]
    assert sent == {"type": "input_audio", "input_audio": {"data": "SUQzBA", "format": "mp3"}}
    for part in (Audio(url="https://x/y.mp3"), Audio(data="T2dnUw")):
        with pytest.raises(BadRequest, match="MP3 and WAV"):
            to_request("x", Prompt(messages=(prompt_of(part),)), hears)


@pytest.mark.parametrize(
    ("message", "facts"),
    [
        (prompt_of(Audio(data="SUQz")), ResponsesCapabilities()),
        (prompt_of(Image(blob=Digest("d"))), ResponsesCapabilities()),
        (prompt_of(Image(data="/9j/")), ResponsesCapabilities(images=False)),
        (prompt_of(Document(data="JVBERi")), LLAMA),
        (ToolMessage(results=(tool_result(Audio(data="SUQz")),)), ResponsesCapabilities()),
        (assistant_message(Image(data="/9j/")), ResponsesCapabilities()),
    ],
)
def test_an_unsupported_part_is_refused_before_anything_is_sent(message: Message, facts: ResponsesCapabilities) -> None:
    with pytest.raises(BadRequest, match="gpt-6 cannot take this"):
        to_request("gpt-6", Prompt(messages=(message,)), facts)
