"""Prompts as requests to Gemini, validated by Google's own types."""

from typing import Any

import msgspec
import pytest

from tests.models.oracles.vendor_clients import check_request
from vaka.core.ports.model import Prompt
from vaka.core.types.errors import BadRequest
from vaka.core.types.ids import CallId, Digest, MessageId
from vaka.core.types.message import (
    AssistantMessage,
    Audio,
    CallRef,
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
from vaka.models.gemini.model import PLACEHOLDER_SIGNATURE, answer_tool_name, generation_of, to_request
from vaka.models.options import ModelOptions, read_options
from vaka.testing.models import PROMPT

NEW_MODEL, OLD_MODEL = "gemini-3.8-flash", "gemini-2.5-flash"
HI = UserMessage(content=(Text(text="Hi."),))
WEATHER = PROMPT.tools[0]
SHAPE = {"type": "object", "properties": {"rain": {"type": "boolean"}}, "required": ["rain"]}


def request_body(model: str, *messages: Message, **fields: Any) -> dict[str, Any]:
    """The body for a prompt, after Google's types have read it."""
    body = to_request(model, Prompt(messages=messages or (HI,), **fields))
    check_request("gemini", body)
    return body


def request_contents(model: str, *messages: Message) -> list[Any]:
    return [(content["role"], content["parts"]) for content in request_body(model, *messages)["contents"]]


def assistant_message(*parts: Part, calls: tuple[ToolCall, ...] = (), model: str = "") -> AssistantMessage:
    return AssistantMessage(id=MessageId("m"), content=parts, calls=calls, model=model)


def tool_call(number: int, name: str = "weather", **fields: Any) -> ToolCall:
    return ToolCall(id=CallId(f"c{number}"), name=name, **fields)


def tool_result(number: int, *parts: Part, **fields: Any) -> ToolResult:
    return ToolResult(call=CallId(f"c{number}"), content=parts, **fields)


def signed_block(signature: str, text: str = "") -> Reasoning:
    return Reasoning(text=text, opaque={"gemini": {"thoughtSignature": signature}})


def test_a_conversation_is_converted_in_full() -> None:
    assert request_body(
        OLD_MODEL, *PROMPT.messages, system=PROMPT.system, tools=PROMPT.tools, options=PROMPT.options
    ) == {
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "tools": [
            {
                "functionDeclarations": [
                    {
                        "name": "weather",
                        "description": "Return today's weather.",
                        "parametersJsonSchema": {
                            "type": "object",
                            "properties": {"city": {"type": "string"}},
                            "required": ["city"],
                        },
                    }
                ]
            }
        ],
        "contents": [
            {"role": "user", "parts": [{"text": "Is it raining in Hilo? 🌧"}]},
            {
                "role": "model",
                "parts": [
                    {"text": "Let me look."},
                    {"functionCall": {"name": "weather", "args": {"city": "Hilo"}}},
                ],
            },
            {
                "role": "user",
                "parts": [
                    {"functionResponse": {"name": "weather", "response": {"output": "rain"}}},
                    {"text": "And tomorrow?"},
                ],
            },
        ],
        "generationConfig": {"temperature": 0.5},
    }


def test_equal_prompts_give_equal_bytes_and_stay_as_they_were() -> None:
    before = msgspec.json.encode(PROMPT)
    first = msgspec.json.encode(to_request(NEW_MODEL, PROMPT))
    assert msgspec.json.encode(to_request(NEW_MODEL, PROMPT)) == first
    assert msgspec.json.encode(PROMPT) == before


def test_every_option_has_its_field() -> None:
    options: dict[str, Any] = {
        "max_tokens": 9,
        "temperature": 0,
        "top_p": 0.5,
        "top_k": 4,
        "seed": 7,
        "stop": ["a", "b"],
        "presence_penalty": 0.1,
        "frequency_penalty": 0.2,
        "metadata": {"team": "x"},
        "service_tier": "flex",
        "reasoning": "high",
        "parallel_calls": False,
        "cache": True,
        "user": "u",
        "headers": {"x-y": "z"},
        "extra": {"generationConfig": {"seed": 8, "mediaResolution": "MEDIA_RESOLUTION_LOW"}, "safetySettings": []},
    }
    assert request_body(NEW_MODEL, options=options) == {
        "contents": [{"role": "user", "parts": [{"text": "Hi."}]}],
        "generationConfig": {
            "maxOutputTokens": 9,
            "temperature": 0,
            "topP": 0.5,
            "topK": 4,
            "seed": 8,
            "stopSequences": ["a", "b"],
            "presencePenalty": 0.1,
            "frequencyPenalty": 0.2,
            "thinkingConfig": {"includeThoughts": True, "thinkingLevel": "HIGH"},
            "mediaResolution": "MEDIA_RESOLUTION_LOW",
        },
        "labels": {"team": "x"},
        "serviceTier": "flex",
        "safetySettings": [],
    }


def test_provider_tools_are_sent_with_the_tools_of_the_agent() -> None:
    body = request_body(NEW_MODEL, tools=(WEATHER,), options={"extra": {"tools": [{"googleSearch": {}}]}})
    assert [*body["tools"][0], *body["tools"][1]] == ["functionDeclarations", "googleSearch"]


@pytest.mark.parametrize(
    ("model", "asked", "config"),
    [
        (NEW_MODEL, None, None),
        (NEW_MODEL, "none", {"includeThoughts": False, "thinkingLevel": "MINIMAL"}),
        (NEW_MODEL, "minimal", {"includeThoughts": True, "thinkingLevel": "MINIMAL"}),
        (NEW_MODEL, "medium", {"includeThoughts": True, "thinkingLevel": "MEDIUM"}),
        (NEW_MODEL, "max", {"includeThoughts": True, "thinkingLevel": "HIGH"}),
        (NEW_MODEL, 1000, {"includeThoughts": True, "thinkingLevel": "LOW"}),
        ("gemini-3.1-pro-preview", "none", {"includeThoughts": False, "thinkingLevel": "LOW"}),
        ("gemini-4-argon", 30000, {"includeThoughts": True, "thinkingLevel": "HIGH"}),
        ("gemini-flash-latest", "low", {"includeThoughts": True, "thinkingLevel": "LOW"}),
        (OLD_MODEL, "none", {"includeThoughts": False, "thinkingBudget": 0}),
        (OLD_MODEL, "low", {"includeThoughts": True, "thinkingBudget": 1024}),
        (OLD_MODEL, "max", {"includeThoughts": True, "thinkingBudget": 24576}),
        (OLD_MODEL, 77, {"includeThoughts": True, "thinkingBudget": 77}),
        ("gemini-2.5-pro", "none", {"includeThoughts": False, "thinkingBudget": 128}),
        ("gemini-2.5-pro", "max", {"includeThoughts": True, "thinkingBudget": 32768}),
        ("gemini-2.0-flash", "high", None),
        ("my-own-endpoint", "high", {"includeThoughts": True, "thinkingLevel": "HIGH"}),
        ("my-own-endpoint", 500, {"includeThoughts": True, "thinkingBudget": 500}),
    ],
)
def test_thinking_fields_depend_on_the_generation(model: str, asked: Any, config: Any) -> None:
    body = request_body(model, options={} if asked is None else {"reasoning": asked})
    assert body.get("generationConfig", {}).get("thinkingConfig") == config


@pytest.mark.parametrize(
    ("name", "version"),
    [
        (NEW_MODEL, (3, 8)),
        (OLD_MODEL, (2, 5)),
        ("models/gemini-3-pro-preview", (3, 0)),
        ("gemini-4-argon", (4, 0)),
        ("gemini-pro-latest", (3, 0)),
        ("gemma-3-27b-it", None),
        ("gemini-exp", None),
        ("latest", None),
        ("", None),
    ],
)
def test_the_generation_is_read_from_the_name(name: str, version: Any) -> None:
    assert generation_of(name) == version


@pytest.mark.parametrize(
    ("choice", "config"),
    [
        ("auto", None),
        ("none", {"mode": "NONE"}),
        ("required", {"mode": "ANY"}),
        ("weather", {"mode": "ANY", "allowedFunctionNames": ["weather"]}),
    ],
)
def test_tool_choices_are_mapped(choice: str, config: Any) -> None:
    body = request_body(NEW_MODEL, tools=(WEATHER,), tool_choice=choice)
    assert body.get("toolConfig") == (config and {"functionCallingConfig": config})


@pytest.mark.parametrize(
    ("fields", "error_text"),
    [
        ({"tool_choice": "fly", "tools": (WEATHER,)}, "tool_choice names 'fly', which is not among the tools: weather"),
        ({"tool_choice": "fly"}, "tool_choice names 'fly', which is not among the tools: none"),
        ({"tool_choice": "required"}, "tool_choice is 'required', but there is no tool to call"),
        ({"tools": (ToolSpec(name="größe"),)}, "tool 'größe' cannot be offered to Gemini: a name is at most 64"),
        ({"tools": (ToolSpec(name="1st"),)}, "tool '1st' cannot be offered to Gemini: a name is at most 64"),
        ({"options": {"temprature": 1}}, "there is no model option 'temprature'; did you mean 'temperature'?"),
    ],
)
def test_an_invalid_prompt_is_refused_before_it_is_sent(fields: dict[str, Any], error_text: str) -> None:
    with pytest.raises(BadRequest) as caught:
        request_body(NEW_MODEL, **fields)
    assert str(caught.value).startswith(error_text)


def test_without_tools_there_is_no_tool_choice() -> None:
    assert "toolConfig" not in request_body(NEW_MODEL, tool_choice="none")


def test_a_tool_without_description_or_type_gets_one() -> None:
    (tool,) = request_body(NEW_MODEL, tools=(ToolSpec(name="now", parameters={}),))["tools"][0]["functionDeclarations"]
    assert tool == {"name": "now", "description": "now", "parametersJsonSchema": {"type": "object"}}


@pytest.mark.parametrize("fields", [{}, {"tools": (WEATHER,), "tool_choice": "none"}])
def test_an_output_schema_is_native(fields: dict[str, Any]) -> None:
    output = {"schema": SHAPE, "description": "The forecast."}
    body = request_body(OLD_MODEL, options={"output": output}, **fields)
    assert body["generationConfig"] == {
        "responseMimeType": "application/json",
        "responseJsonSchema": {"description": "The forecast.", **SHAPE},
    }
    assert "tools" not in body
    assert "toolConfig" not in body


def test_an_output_schema_with_tools_is_native_since_gemini_3_and_a_tool_before() -> None:
    fields: dict[str, Any] = {"tools": (WEATHER,), "options": {"output": SHAPE, "temperature": 1}}
    assert request_body(NEW_MODEL, **fields)["generationConfig"]["responseJsonSchema"] == SHAPE
    body = request_body(OLD_MODEL, **fields)
    assert body["generationConfig"] == {"temperature": 1}
    assert body["toolConfig"] == {"functionCallingConfig": {"mode": "ANY"}}
    assert body["tools"][0]["functionDeclarations"][1] == {
        "name": "answer",
        "description": "Give the final answer.",
        "parametersJsonSchema": SHAPE,
    }


def test_the_output_tool_has_a_unique_name() -> None:
    prompt = Prompt(messages=(HI,), tools=(ToolSpec(name="answer"),), options={"output": SHAPE})
    assert answer_tool_name(OLD_MODEL, prompt, read_options(prompt.options)) == "answer_"
    assert answer_tool_name(NEW_MODEL, prompt, read_options(prompt.options)) == ""
    assert answer_tool_name(OLD_MODEL, prompt, ModelOptions()) == ""


def test_a_signature_is_sent_with_the_part_after_it() -> None:
    calls = (tool_call(1, arguments={"city": "Hilo"}), tool_call(2))
    message = assistant_message(
        signed_block("c2cx"),
        Text(text="One."),
        signed_block("c2cy", "hm"),
        CallRef(id=CallId("c1")),
        CallRef(id=CallId("c2")),
        calls=calls,
        model="gemini-3.8-flash-001",
    )
    assert request_contents(NEW_MODEL, HI, message)[1] == (
        "model",
        [
            {"text": "One.", "thoughtSignature": "c2cx"},
            {"functionCall": {"name": "weather", "args": {"city": "Hilo"}}, "thoughtSignature": "c2cy"},
            {"functionCall": {"name": "weather", "args": {}}},
        ],
    )


def test_a_lone_signature_is_sent_with_the_first_call_or_the_last_text() -> None:
    asked = assistant_message(Text(text="One."), CallRef(id=CallId("c1")), signed_block("c2ln"), calls=(tool_call(1),))
    spoken = assistant_message(Text(text="One."), Text(text="Two."), signed_block("c2ln"))
    twice = assistant_message(Text(text="One."), signed_block("c2cx"), signed_block("c2cy"), Text(text="Two."))
    nothing = assistant_message(signed_block("c2ln"))
    assert request_contents(OLD_MODEL, HI, asked)[1][1][1]["thoughtSignature"] == "c2ln"
    assert request_contents(OLD_MODEL, HI, spoken)[1][1] == [
        {"text": "One."},
        {"text": "Two.", "thoughtSignature": "c2ln"},
    ]
    assert [part["thoughtSignature"] for part in request_contents(OLD_MODEL, HI, twice)[1][1]] == ["c2cx", "c2cy"]
    assert request_contents(OLD_MODEL, HI, nothing) == [("user", [{"text": "Hi."}])]


def test_provider_blocks_are_sent_back_unchanged() -> None:
    code = {"executableCode": {"language": "PYTHON", "code": "1"}, "thoughtSignature": "c2ln"}
    thought = Reasoning(text="Let me see.", opaque={"gemini": {"thought": True, "thoughtSignature": "dGhv"}})
    message = assistant_message(thought, Reasoning(opaque={"gemini": code}), Text(text="1"))
    assert request_contents(NEW_MODEL, HI, message)[1][1] == [
        {"text": "Let me see.", "thought": True, "thoughtSignature": "dGhv"},
        code,
        {"text": "1"},
    ]


def test_reasoning_of_other_providers_is_left_out() -> None:
    theirs = Reasoning(text="hm", signature="x", opaque={"anthropic": {"type": "thinking", "signature": "x"}})
    odd = Reasoning(text="hm", opaque={"gemini": "what"})
    assert request_contents(NEW_MODEL, HI, assistant_message(Reasoning(text="hm"), theirs, odd, Text(text="Yes.")))[1][
        1
    ] == [{"text": "Yes."}]


@pytest.mark.parametrize(
    ("model", "signature"),
    [(NEW_MODEL, PLACEHOLDER_SIGNATURE), ("gemini-pro-latest", PLACEHOLDER_SIGNATURE), (OLD_MODEL, None)],
)
def test_the_first_call_of_each_step_is_signed_where_required(model: str, signature: str | None) -> None:
    one = assistant_message(
        calls=(tool_call(1, provider_id="toolu_1"), tool_call(2, provider_id="toolu_2")), model="claude-x"
    )
    two = assistant_message(calls=(tool_call(3),), model="claude-x")
    results = ToolMessage(results=(tool_result(1), tool_result(2)))
    written = request_contents(model, HI, one, results, two)
    found = [part.get("thoughtSignature") for at in (1, 3) for part in written[at][1]]
    assert found == [signature, None, signature]


def test_signatures_of_another_generation_are_not_sent() -> None:
    message = assistant_message(signed_block("c2ln"), calls=(tool_call(1),), model="gemini-2.5-flash")
    assert request_contents(NEW_MODEL, HI, message)[1][1][0]["thoughtSignature"] == PLACEHOLDER_SIGNATURE
    assert request_contents("gemini-2.5-pro", HI, message)[1][1][0]["thoughtSignature"] == "c2ln"


def test_ids_are_sent_back_when_a_provider_gave_them() -> None:
    calls = (
        tool_call(1, provider_id="fc-1"),
        tool_call(2, provider_id="call_gemini_1"),
        tool_call(3),
        tool_call(4, provider_id="fc-1"),
    )
    results = ToolMessage(results=tuple(tool_result(number, Text(text="x")) for number in (1, 2, 3, 4)))
    _, (_, asked), (_, answered) = request_contents(OLD_MODEL, HI, assistant_message(calls=calls), results)
    assert [part["functionCall"].get("id") for part in asked] == ["fc-1", None, None, "c4"]
    assert [part["functionResponse"].get("id") for part in answered] == ["fc-1", None, None, "c4"]


def test_an_invalid_tool_name_of_a_model_is_sent_in_an_accepted_form() -> None:
    results = ToolMessage(results=(tool_result(1, Text(text="no")),))
    _, (_, [asked]), (_, [answered]) = request_contents(
        OLD_MODEL, HI, assistant_message(calls=(tool_call(1, "look up!"),)), results
    )
    assert asked["functionCall"]["name"] == answered["functionResponse"]["name"] == "look_up_"


def test_results_have_the_names_and_the_order_of_their_calls() -> None:
    calls = (tool_call(1, "a"), tool_call(2, "b"))
    results = ToolMessage(results=(tool_result(1, Text(text="fine")), tool_result(2, Text(text="broken"), failed=True)))
    assert request_contents(OLD_MODEL, HI, assistant_message(calls=calls), results)[2] == (
        "user",
        [
            {"functionResponse": {"name": "a", "response": {"output": "fine"}}},
            {"functionResponse": {"name": "b", "response": {"error": "broken"}}},
        ],
    )


def test_a_result_without_its_call_is_sent_as_text() -> None:
    picture = Image(data="iVBORw0KGgo=")
    results = ToolMessage(results=(tool_result(9, Text(text="rain"), picture),))
    assert request_contents(NEW_MODEL, results) == [
        (
            "user",
            [{"text": "Result of a call: rain"}, {"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}}],
        )
    ]


def test_media_of_results_are_inside_them_if_supported_and_otherwise_after_them() -> None:
    picture, sound = Image(data="iVBORw0KGgo="), Audio(data="SUQz", media_type="audio/mpeg")
    inline = {"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}}
    played = {"inlineData": {"mimeType": "audio/mpeg", "data": "SUQz"}}
    calls = assistant_message(calls=(tool_call(1, "look"), tool_call(2, "see")))
    results = ToolMessage(results=(tool_result(1, Text(text="ok"), picture, sound), tool_result(2, Text(text="ok"))))
    first = {"functionResponse": {"name": "look", "response": {"output": "ok"}}}
    second = {"functionResponse": {"name": "see", "response": {"output": "ok"}}}
    word = {"text": "Part of result 1 (look):"}
    assert request_contents(OLD_MODEL, HI, calls, results)[2][1] == [first, second, word, inline, played]
    nested = {"functionResponse": {"name": "look", "response": {"output": "ok"}, "parts": [inline]}}
    assert request_contents(NEW_MODEL, HI, calls, results)[2][1] == [nested, second, word, played]


def test_media_are_sent_by_their_bytes_or_their_address() -> None:
    parts: list[Any] = [
        (Image(data="/9j/4A=="), {"inlineData": {"mimeType": "image/jpeg", "data": "/9j/4A=="}}),
        (
            Image(url="https://x.example/a.png"),
            {"fileData": {"mimeType": "image/png", "fileUri": "https://x.example/a.png"}},
        ),
        (
            Document(url="https://x.example/a.PDF?b=c.d"),
            {"fileData": {"mimeType": "application/pdf", "fileUri": "https://x.example/a.PDF?b=c.d"}},
        ),
        (Document(url="https://youtu.be/x"), {"fileData": {"fileUri": "https://youtu.be/x"}}),
        (Image(url="data:image/webp;base64,UklG"), {"inlineData": {"mimeType": "image/webp", "data": "UklG"}}),
        (Audio(data="AAAA", media_type="audio/ogg"), {"inlineData": {"mimeType": "audio/ogg", "data": "AAAA"}}),
        (Document(data="JVBERi0="), {"inlineData": {"mimeType": "application/pdf", "data": "JVBERi0="}}),
        (
            Document(url="gs://b/v.mp4", media_type="video/mp4"),
            {"fileData": {"mimeType": "video/mp4", "fileUri": "gs://b/v.mp4"}},
        ),
        (
            Document(data="e30=", media_type="application/json; charset=utf-8"),
            {"inlineData": {"mimeType": "text/plain", "data": "e30="}},
        ),
        (Document(data="IyB4", media_type="text/markdown"), {"inlineData": {"mimeType": "text/plain", "data": "IyB4"}}),
        (Stored(blob=Digest("sha256:0"), size=9, preview="It begins"), {"text": "It begins"}),
    ]
    message = UserMessage(content=tuple(part for part, _ in parts))
    assert request_contents(NEW_MODEL, message) == [("user", [written for _, written in parts])]


@pytest.mark.parametrize(
    ("part", "error_text"),
    [
        (Document(data="UEs=", media_type="application/zip"), "its type is 'application/zip'"),
        (Document(url="https://x/a.zip", media_type="application/zip"), "its type is 'application/zip'"),
        (Image(blob=Digest("sha256:0")), "it has neither data nor a URL"),
        (Image(url="data:image/png,abc"), "the data in its URL is not base64"),
    ],
)
def test_unsupported_media_are_refused_before_anything_is_sent(part: Any, error_text: str) -> None:
    with pytest.raises(BadRequest, match=error_text):
        to_request(NEW_MODEL, Prompt(messages=(UserMessage(content=(part,)),)))


def test_adjacent_messages_of_one_role_are_merged_and_empty_ones_dropped() -> None:
    empty = UserMessage(content=(Text(text=""),))
    written = request_contents(
        OLD_MODEL,
        HI,
        empty,
        HI,
        assistant_message(Text(text="")),
        assistant_message(Text(text="A")),
        assistant_message(Text(text="B")),
        HI,
    )
    assert written == [
        ("user", [{"text": "Hi."}, {"text": "Hi."}]),
        ("model", [{"text": "A"}, {"text": "B"}]),
        ("user", [{"text": "Hi."}]),
    ]


def test_a_conversation_without_a_first_user_message_gets_one() -> None:
    assert request_contents(OLD_MODEL, assistant_message(Text(text="A"))) == [
        ("user", [{"text": "."}]),
        ("model", [{"text": "A"}]),
    ]
    assert request_contents(OLD_MODEL, UserMessage(content=())) == [("user", [{"text": "."}])]


def test_invalid_arguments_are_sent_back_unchanged() -> None:
    calls = (tool_call(1, raw='{"city": "Hi', truncated=True), tool_call(2, raw="[1]"))
    _, (_, parts) = request_contents(OLD_MODEL, HI, assistant_message(calls=calls))
    assert [part["functionCall"]["args"] for part in parts] == [{"raw": '{"city": "Hi'}, {"value": [1]}]
