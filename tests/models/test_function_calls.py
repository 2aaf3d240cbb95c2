"""Function calling as data, and calls read from the answers of four providers."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vaka.core.types.errors import InvalidInput, Truncated
from vaka.core.types.ids import CallId
from vaka.core.types.message import ToolCall, Usage
from vaka.core.types.tool import ToolSpec
from vaka.models.function_calls import (
    FunctionCall,
    FunctionCallingResponse,
    FunctionCallResult,
    FunctionDefinition,
    LlmOptions,
    choice_from_wire,
    choice_to_wire,
    parse_anthropic,
    parse_function_calls,
    parse_gemini,
    parse_openai_function_calls,
    parse_responses_items,
    parse_role,
    read_response,
)

WEATHER = FunctionDefinition(
    name="weather",
    description="Return the weather.",
    parameters={
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "array", "items": {"type": "integer"}}},
        "required": ["city"],
        "additionalProperties": False,
    },
)


def make_call(arguments: str = '{"city": "Hilo", "days": [1, 2], "unit": null}') -> FunctionCall:
    return FunctionCall(name="weather", arguments=arguments, id="a1")


def test_a_tool_becomes_a_function_of_an_object() -> None:
    spec = ToolSpec(name="look", description="Look.", parameters={"properties": {"at": {"type": "string"}}})
    definition = FunctionDefinition.from_tool(spec)
    assert definition.parameters == {"type": "object", "properties": {"at": {"type": "string"}}, "required": []}
    assert definition.to_wire() == {
        "type": "function",
        "function": {"name": "look", "description": "Look.", "parameters": definition.parameters},
    }
    with pytest.raises(InvalidInput, match="must be an object, got 'array'"):
        FunctionDefinition.from_tool(ToolSpec(name="look", parameters={"type": "array"}))


def test_arguments_are_read_as_data() -> None:
    assert make_call("[1, 2]").parse() == [1, 2]
    assert make_call().as_map() == {"city": "Hilo", "days": [1, 2], "unit": None}
    assert FunctionCall(name="time").as_map() == {}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("{oh", "are not valid JSON: Expecting property name"),
        ("", "are not valid JSON"),
        ('{"a": 1, "a": 2}', "the key 'a' appears twice"),
        ('{"a": NaN}', "NaN is not a JSON number"),
        ("[" * 100_000, "are not valid JSON"),
        ("9" * 10_000, "are not valid JSON"),
        ("[1]", "must be an object, got list"),
        ("null", "must be an object, got NoneType"),
    ],
)
def test_ambiguous_arguments_are_an_error_with_the_reason(arguments: str, said: str) -> None:
    with pytest.raises(InvalidInput, match="the arguments of 'weather'") as caught:
        make_call(arguments).as_map()
    assert said in str(caught.value)
    assert len(str(caught.value)) < 500


@given(st.text())
def test_any_text_is_parsed_or_is_an_error_with_the_reason(text: str) -> None:
    try:
        json.dumps(make_call(text).parse())
    except InvalidInput:
        pass


def test_a_call_that_does_not_match_its_definition_names_each_mismatch() -> None:
    assert make_call('{"city": "Hilo"}').validate(WEATHER) == {"city": "Hilo"}
    with pytest.raises(InvalidInput) as caught:
        make_call('{"days": [1, "x"], "sky": 1}').validate(WEATHER)
    assert str(caught.value).startswith("the arguments of 'weather' do not fit: ")
    for said in ('days[1]: "x" is not of type "integer"', "arguments: Additional", '"city" is a required property'):
        assert said in str(caught.value)
    with pytest.raises(InvalidInput, match="the call is of 'time', the definition is of 'weather'"):
        FunctionCall(name="time").validate(WEATHER)
    with pytest.raises(InvalidInput, match="are not a JSON Schema"):
        FunctionCall(name="x").validate(FunctionDefinition(name="x", parameters={"type": 3}))


def test_one_argument_is_read_by_name_and_kind() -> None:
    assert make_call().get_parameter("city") == "Hilo"
    assert make_call().get_parameter("days", list[int]) == [1, 2]
    assert make_call().get_parameter("unit") is None
    with pytest.raises(InvalidInput, match="has no argument 'sky'; it has 'city', 'days', 'unit'"):
        make_call().get_parameter("sky")
    with pytest.raises(InvalidInput, match="it has none"):
        make_call("{}").get_parameter("sky")
    with pytest.raises(InvalidInput, match="argument 'city' of 'weather': Expected `int`, got `str`"):
        make_call().get_parameter("city", int)


def test_an_optional_argument_that_is_missing_or_null_is_none() -> None:
    assert make_call().get_optional_parameter("city", str) == "Hilo"
    assert make_call().get_optional_parameter("unit", str) is None
    assert make_call().get_optional_parameter("sky") is None
    with pytest.raises(InvalidInput):
        make_call().get_optional_parameter("city", int)


def test_a_call_in_a_message_has_the_text_of_the_model() -> None:
    id = CallId("c1")
    read = ToolCall(id=id, name="weather", arguments={"a": 1}, provider_id="a1")
    assert make_call('{"a": 1}').as_tool_call(id) == read
    assert make_call("{oh").as_tool_call(id) == ToolCall(id=id, name="weather", raw="{oh", provider_id="a1")
    mended = FunctionCall(name="weather", arguments='{"a": 1}', repaired="single quotes")
    assert mended.as_tool_call(id) == ToolCall(
        id=id, name="weather", arguments={"a": 1}, raw='{"a": 1}', repaired="single quotes"
    )


def test_a_result_has_the_id_of_its_call() -> None:
    assert FunctionCallResult.from_result(make_call(), {"sky": "grey"}) == FunctionCallResult(
        name="weather", call_id="a1", result={"sky": "grey"}, success=True
    )
    assert FunctionCallResult.from_error(make_call(), "no such city") == FunctionCallResult(
        name="weather", call_id="a1", result=None, success=False, error="no such city"
    )


@pytest.mark.parametrize("choice", ["auto", "none", "required", "weather"])
def test_a_tool_choice_is_parsed_from_the_wire(choice: str) -> None:
    assert choice_from_wire(choice_to_wire(choice)) == choice


def test_tool_choices_are_written_in_the_form_of_the_wire() -> None:
    assert choice_to_wire("required") == "required"
    assert choice_to_wire("weather") == {"type": "function", "function": {"name": "weather"}}


@pytest.mark.parametrize(
    "wrong",
    ["any", {}, {"type": "function"}, {"type": "function", "function": {"name": ""}}, {"function": {"name": "x"}}],
)
def test_unknown_tool_choices_are_refused(wrong: Any) -> None:
    with pytest.raises(InvalidInput, match="must be 'auto', 'none', 'required' or"):
        choice_from_wire(wrong)


def test_roles_are_case_insensitive_and_unknown_ones_are_kept() -> None:
    assert [parse_role(text) for text in ("User", " ASSISTANT ", "tool", "Narrator")] == [
        "user",
        "assistant",
        "tool",
        "Narrator",
    ]


def test_options_have_defaults_and_extra_fields() -> None:
    assert LlmOptions().to_request() == {"temperature": 0.7, "max_tokens": 1000, "stream": False}
    given = LlmOptions(temperature=None, stop=("END",), model="m", extra={"seed": 7, "stream": True})
    assert given.to_request() == {"max_tokens": 1000, "stream": True, "stop": ["END"], "model": "m", "seed": 7}


CHAT: dict[str, Any] = {
    "id": "chatcmpl-1",
    "model": "gpt-x-2026",
    "choices": [
        {
            "finish_reason": "tool_calls",
            "message": {
                "role": "assistant",
                "content": "Let me look.",
                "reasoning_content": "Wet side.",
                "tool_calls": [
                    {"id": "a1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Hi'}},
                    {"id": "a2", "type": "function", "function": {"name": "time"}},
                ],
            },
        }
    ],
    "usage": {
        "prompt_tokens": 12,
        "completion_tokens": 5,
        "prompt_tokens_details": {"cached_tokens": 4},
        "completion_tokens_details": {"reasoning_tokens": 2},
    },
}
RESPONSES: dict[str, Any] = {
    "id": "resp_1",
    "model": "gpt-x-2026",
    "status": "completed",
    "output": [
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Wet side."}]},
        {"type": "message", "content": [{"type": "output_text", "text": "Let me look."}]},
        {"type": "function_call", "id": "fc_1", "call_id": "a1", "name": "weather", "arguments": '{"city": "Hi'},
        {"type": "function_call", "id": "a2", "name": "time", "arguments": "{}"},
        {"type": "web_search_call"},
    ],
    "usage": {
        "input_tokens": 12,
        "output_tokens": 5,
        "input_tokens_details": {"cached_tokens": 4},
        "output_tokens_details": {"reasoning_tokens": 2},
    },
}
ANTHROPIC: dict[str, Any] = {
    "id": "msg_1",
    "type": "message",
    "model": "claude-x",
    "stop_reason": "tool_use",
    "content": [
        {"type": "thinking", "thinking": "Wet side.", "signature": "s"},
        {"type": "text", "text": "Let me look."},
        {"type": "tool_use", "id": "a1", "name": "weather", "input": {"city": "Hilo"}},
        {"type": "tool_use", "id": "a2", "name": "time"},
    ],
    "usage": {
        "input_tokens": 6,
        "output_tokens": 5,
        "cache_read_input_tokens": 4,
        "cache_creation_input_tokens": 2,
    },
}
GEMINI: dict[str, Any] = {
    "responseId": "r1",
    "modelVersion": "gemini-x",
    "candidates": [
        {
            "finishReason": "STOP",
            "content": {
                "role": "model",
                "parts": [
                    {"text": "Wet side.", "thought": True},
                    {"text": "Let me look."},
                    {"functionCall": {"name": "weather", "args": {"city": "Hilo"}, "id": "a1"}},
                    {"functionCall": {"name": "time"}},
                ],
            },
        }
    ],
    "usageMetadata": {
        "promptTokenCount": 12,
        "candidatesTokenCount": 3,
        "thoughtsTokenCount": 2,
        "cachedContentTokenCount": 4,
    },
}
BROKEN, GOOD = '{"city": "Hi', '{"city":"Hilo"}'


def expected_response(
    model: str, id: str, arguments: str, usage: Usage, last: str | None = "a2"
) -> FunctionCallingResponse:
    return FunctionCallingResponse(
        content="Let me look.",
        function_calls=(
            FunctionCall(id="a1", name="weather", arguments=arguments),
            FunctionCall(id=last, name="time"),
        ),
        finish_reason="tool_calls",
        usage=usage,
        model=model,
        provider_response_id=id,
        reasoning="Wet side.",
    )


SPENT = Usage(input=12, output=5, cache_read=4, reasoning=2)


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        (CHAT, expected_response("gpt-x-2026", "chatcmpl-1", BROKEN, SPENT)),
        (RESPONSES, expected_response("gpt-x-2026", "resp_1", BROKEN, SPENT)),
        (
            ANTHROPIC,
            expected_response("claude-x", "msg_1", GOOD, Usage(input=12, output=5, cache_read=4, cache_write=2)),
        ),
        (GEMINI, expected_response("gemini-x", "r1", GOOD, SPENT, last=None)),
    ],
    ids=["chat", "responses", "anthropic", "gemini"],
)
def test_an_answer_of_every_wire_is_parsed(body: dict[str, Any], wanted: FunctionCallingResponse) -> None:
    assert read_response(body) == wanted
    assert read_response(json.dumps(body)) == wanted
    assert read_response(json.dumps(body).encode()) == wanted
    assert parse_function_calls(body) == list(wanted.function_calls)


def test_each_wire_has_a_parser_of_its_own() -> None:
    broken = [FunctionCall(id="a1", name="weather", arguments=BROKEN), FunctionCall(id="a2", name="time")]
    good = [FunctionCall(id="a1", name="weather", arguments=GOOD), FunctionCall(id="a2", name="time")]
    assert parse_openai_function_calls(CHAT) == broken
    assert parse_responses_items(RESPONSES) == broken
    assert parse_responses_items(RESPONSES["output"]) == broken
    assert parse_anthropic(ANTHROPIC) == good
    assert parse_gemini(GEMINI)[0] == good[0]


def test_objects_of_the_vendors_clients_are_parsed() -> None:
    class Answer:
        def model_dump(self) -> dict[str, Any]:
            return CHAT

    assert read_response(Answer()) == read_response(CHAT)
    snake = {
        "response_id": "r1",
        "candidates": [
            {"content": {"parts": [{"function_call": {"name": "time", "args": None}}]}, "finish_reason": "STOP"}
        ],
        "usage_metadata": {"prompt_token_count": 3, "candidates_token_count": 2, "thoughts_token_count": None},
    }
    assert read_response(snake) == FunctionCallingResponse(
        function_calls=(FunctionCall(name="time"),),
        finish_reason="tool_calls",
        usage=Usage(input=3, output=2),
        provider_response_id="r1",
    )


def chat_response(message: dict[str, Any], finish: str = "stop") -> dict[str, Any]:
    return {"choices": [{"finish_reason": finish, "message": message}]}


def test_the_old_single_call_has_no_id() -> None:
    old = chat_response({"content": None, "function_call": {"name": "weather", "arguments": "{}"}}, "function_call")
    assert read_response(old) == FunctionCallingResponse(
        function_calls=(FunctionCall(name="weather"),), finish_reason="tool_calls"
    )
    both = chat_response(
        {"tool_calls": [{"id": "a1", "function": {"name": "time"}}], "function_call": {"name": "weather"}}
    )
    assert parse_openai_function_calls(both) == [FunctionCall(id="a1", name="time")]


def test_arguments_given_as_data_are_written_down() -> None:
    given = chat_response({"tool_calls": [{"id": "a1", "function": {"name": "look", "arguments": {"at": ["x"]}}}]})
    assert parse_openai_function_calls(given) == [FunctionCall(id="a1", name="look", arguments='{"at":["x"]}')]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (chat_response({"content": "Hi."}), "stop"),
        (chat_response({"content": "Hi."}, "length"), "length"),
        (chat_response({"content": [{"type": "text", "text": "Hi."}]}, "content_filter"), "content_filter"),
        (chat_response({"refusal": "Hi."}), "stop"),
        ({"content": [{"type": "text", "text": "Hi."}], "stop_reason": "end_turn"}, "stop"),
        ({"content": [{"type": "text", "text": "Hi."}], "stop_reason": "max_tokens"}, "length"),
        ({"content": [{"type": "text", "text": "Hi."}], "stop_reason": "refusal"}, "content_filter"),
        ({"content": [{"type": "text", "text": "Hi."}], "stop_reason": "pause_turn"}, "pause_turn"),
        ({"candidates": [{"content": {"parts": [{"text": "Hi."}]}, "finishReason": "SAFETY"}]}, "content_filter"),
        ({"output": [{"type": "message", "content": [{"text": "Hi."}]}], "status": "completed"}, "stop"),
        (
            {
                "output": [{"type": "message", "content": [{"type": "refusal", "refusal": "Hi."}]}],
                "incomplete_details": {"reason": "max_output_tokens"},
            },
            "length",
        ),
    ],
)
def test_stop_reasons_are_the_same_for_every_wire(body: dict[str, Any], reason: str) -> None:
    assert read_response(body) == FunctionCallingResponse(content="Hi.", finish_reason=reason)


def test_an_answer_without_choices_is_empty() -> None:
    assert read_response({"choices": []}) == FunctionCallingResponse()
    assert read_response({"candidates": []}) == FunctionCallingResponse()


@pytest.mark.parametrize(
    "body",
    [
        chat_response({"tool_calls": [{"id": "a1", "function": {"name": "weather", "arguments": "{"}}]}, "length"),
        {"content": [{"type": "tool_use", "id": "a1", "name": "weather", "input": {}}], "stop_reason": "max_tokens"},
    ],
)
def test_calls_of_an_answer_at_its_length_limit_are_dropped(body: dict[str, Any]) -> None:
    with pytest.raises(Truncated, match="in the call of 'weather'"):
        parse_function_calls(body)
    assert len(read_response(body).function_calls) == 1  # but they can be looked at


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (
            chat_response({"tool_calls": [{"id": "a1", "function": {}}]}),
            "tool_calls[0].function is a call without a name",
        ),
        (chat_response({"tool_calls": [{"id": "a1"}]}), "tool_calls[0].function is a call without a name"),
        (chat_response({"tool_calls": [1]}), "tool_calls[0] must be an object, got int"),
        (chat_response({"tool_calls": {}}), "'tool_calls' must be a list, got dict"),
        (chat_response({"function_call": {"name": 3}}), "function_call is a call without a name"),
        ({"output": [{"type": "function_call"}]}, "output[0] is a call without a name"),
        ({"content": [{"type": "tool_use", "name": ""}]}, "content[0] is a call without a name"),
        ({"content": [{"type": "tool_use", "name": "x", "input": {"a": {1, 2}.__iter__}}]}, "is not JSON data"),
        (
            {"candidates": [{"content": {"parts": [{"functionCall": {"args": {}}}]}}]},
            "parts[0].functionCall is a call without a name",
        ),
        ({"error": {"message": "no"}}, "expected an answer with 'choices', 'output', 'content' or 'candidates'"),
        ({}, "got one with nothing"),
        ("{", "the answer is not JSON"),
        ("[" * 100_000, "the answer is not JSON"),
        ("[]", "the answer must be an object, got list"),
        (None, "the answer must be an object, got NoneType"),
    ],
)
def test_an_invalid_answer_is_refused_with_the_place(body: Any, said: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_function_calls(body)
    assert said in str(caught.value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "choices",
                    "message",
                    "tool_calls",
                    "function",
                    "name",
                    "arguments",
                    "content",
                    "type",
                    "output",
                    "parts",
                    "candidates",
                    "functionCall",
                    "usage",
                    "finish_reason",
                    "id",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(JSON)
def test_any_data_is_parsed_or_is_an_error_with_the_reason(body: Any) -> None:
    try:
        read_response(body)
    except InvalidInput:
        pass
