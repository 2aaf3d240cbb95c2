"""Prompts as requests to vendors of Chat Completions, validated by OpenAI's own types."""

import re
from collections.abc import Iterator
from typing import Any, cast

import msgspec
import pytest
from inline_snapshot import snapshot

from tests.models.openai_chat.prompts import (
    FULL_PROMPT,
    LOOSE_TOOL,
    OUTPUT_SCHEMA,
    WEATHER_TOOL,
    prompt_of,
    request_body,
    request_messages,
)
from tests.models.oracles.vendor_clients import request_type
from vaka.core.types.errors import BadRequest
from vaka.core.types.tool import ToolSpec
from vaka.models.openai_chat.vendors import COMPATIBLE, PROFILES, VendorProfile
from vaka.testing.models import PROMPT


def read_to_the_end(value: Any) -> Any:
    """Return what a validator made; it looks at some lists only when they are read."""
    if isinstance(value, dict):
        return {name: read_to_the_end(item) for name, item in cast("dict[str, Any]", value).items()}
    if isinstance(value, Iterator | list):
        return [read_to_the_end(item) for item in cast("Iterator[Any]", value)]
    return value


def option_fields(profile: "str | VendorProfile" = "openai-chat", **given: Any) -> dict[str, Any]:
    """Return what options add to a request."""
    plain = request_body(prompt_of(), profile)
    return {
        name: value
        for name, value in request_body(prompt_of(options=given), profile).items()
        if plain.get(name) != value
    }


def tool_fields(
    choice: str,
    profile: "str | VendorProfile" = "openai-chat",
    specs: "tuple[ToolSpec, ...]" = (WEATHER_TOOL, LOOSE_TOOL),
) -> Any:
    """Return the names of the tools that are sent and the choice among them."""
    made = request_body(prompt_of(tools=specs, tool_choice=choice), profile)
    return [tool["function"]["name"] for tool in made.get("tools", [])], made.get("tool_choice")


def test_a_conversation_is_converted_in_full() -> None:
    assert request_body(msgspec.structs.replace(PROMPT, session="ses_1")) == snapshot(
        {
            "model": "m",
            "messages": [
                {"role": "developer", "content": "Be brief."},
                {"role": "user", "content": "Is it raining in Hilo? 🌧"},
                {
                    "role": "assistant",
                    "content": "Let me look.",
                    "tool_calls": [
                        {
                            "id": "call_1",
                            "type": "function",
                            "function": {"name": "weather", "arguments": '{"city":"Hilo"}'},
                        }
                    ],
                },
                {"role": "tool", "tool_call_id": "call_1", "content": "rain"},
                {"role": "user", "content": "And tomorrow?"},
            ],
            "stream": True,
            "stream_options": {"include_usage": True},
            "tools": [
                {
                    "type": "function",
                    "function": {
                        "name": "weather",
                        "description": "Return today's weather.",
                        "parameters": {
                            "type": "object",
                            "properties": {"city": {"type": "string"}},
                            "required": ["city"],
                        },
                    },
                }
            ],
            "temperature": 0.5,
            "prompt_cache_key": "ses_1",
        }
    )


def test_equal_prompts_give_equal_bytes_and_stay_as_they_were() -> None:
    before = msgspec.json.encode(PROMPT)
    for profile in (*PROFILES.values(), COMPATIBLE):
        once, again = (msgspec.json.encode(request_body(PROMPT, profile)) for _ in range(2))
        assert once == again
    assert msgspec.json.encode(PROMPT) == before


def test_every_field_is_accepted_by_the_types_of_openai() -> None:
    made = request_body(FULL_PROMPT)
    assert read_to_the_end(request_type("chat").validate_python(made)) == made
    assert {name: value for name, value in made.items() if name not in {"messages", "tools"}} == snapshot(
        {
            "model": "m",
            "stream": True,
            "stream_options": {"include_usage": True, "include_obfuscation": False},
            "tool_choice": {"type": "function", "function": {"name": "weather"}},
            "parallel_tool_calls": False,
            "response_format": {
                "type": "json_schema",
                "json_schema": {
                    "name": "answer",
                    "schema": {
                        "type": "object",
                        "required": ["city"],
                        "properties": {"city": {"type": "string"}},
                        "additionalProperties": False,
                    },
                    "strict": True,
                },
            },
            "max_completion_tokens": 10,
            "temperature": 0.0,
            "top_p": 0.5,
            "frequency_penalty": 1.0,
            "presence_penalty": 1.0,
            "stop": ["a", "b"],
            "seed": 1,
            "reasoning_effort": "low",
            "user": "u",
            "metadata": {"a": "b"},
            "service_tier": "flex",
            "prompt_cache_key": "ses_1",
            "store": True,
        }
    )


def test_tools_are_strict_only_if_lossless_and_supported_by_the_vendor() -> None:
    made = request_body(prompt_of(tools=(WEATHER_TOOL, LOOSE_TOOL)))["tools"]
    assert made == snapshot(
        [
            {
                "type": "function",
                "function": {
                    "name": "weather",
                    "description": "Return the weather.",
                    "parameters": {
                        "type": "object",
                        "required": ["city", "days"],
                        "properties": {
                            "city": {"type": "string"},
                            "days": {"anyOf": [{"type": "integer"}, {"type": "null"}], "description": "Default: 1."},
                        },
                        "additionalProperties": False,
                    },
                    "strict": True,
                },
            },
            {
                "type": "function",
                "function": {
                    "name": "loose",
                    "parameters": {"type": "object", "properties": {}, "additionalProperties": True},
                },
            },
        ]
    )
    plain = request_body(prompt_of(tools=(WEATHER_TOOL,)), "together")["tools"][0]["function"]
    assert plain == {"name": "weather", "description": "Return the weather.", "parameters": WEATHER_TOOL.parameters}


def test_an_invalid_tool_name_is_refused() -> None:
    with pytest.raises(BadRequest, match=re.escape("'a.b' needs a name of 1 to 64 letters")):
        request_body(prompt_of(tools=(ToolSpec(name="a.b"),)))


def test_tool_choices_are_mapped() -> None:
    both = ["weather", "loose"]
    named = {"type": "function", "function": {"name": "loose"}}
    assert tool_fields("auto") == (both, None)
    assert tool_fields("none") == (both, "none")
    assert tool_fields("required") == (both, "required")
    assert tool_fields("loose") == (both, named)
    assert tool_fields("required", "mistral") == (both, "any")
    assert tool_fields("required", "qwen", (LOOSE_TOOL,)) == (["loose"], named)
    assert tool_fields("loose", "lmstudio") == (["loose"], "required")
    assert tool_fields("none", "zai") == ([], None)
    assert tool_fields("none", specs=()) == ([], None)


@pytest.mark.parametrize(
    ("choice", "profile", "specs", "words"),
    [
        ("required", "openai-chat", (), "there are none"),
        ("wheather", "openai-chat", (WEATHER_TOOL, LOOSE_TOOL), "there are 'weather', 'loose'"),
        ("required", "qwen", (WEATHER_TOOL, LOOSE_TOOL), "qwen cannot be made to call a tool"),
        ("required", "zai", (WEATHER_TOOL,), "zai cannot be made to call a tool"),
        ("weather", "zai", (WEATHER_TOOL,), "zai cannot be made to call a tool"),
    ],
)
def test_an_unsupported_tool_choice_is_refused(
    choice: str, profile: str, specs: tuple[ToolSpec, ...], words: str
) -> None:
    with pytest.raises(BadRequest, match=words):
        tool_fields(choice, profile, specs)


def test_parallel_calls_is_sent_only_with_tools() -> None:
    assert option_fields(parallel_calls=True) == {}
    asked = prompt_of(tools=(WEATHER_TOOL,), options={"parallel_calls": True})
    assert request_body(asked)["parallel_tool_calls"] is True
    assert "parallel_tool_calls" not in request_body(asked, "cerebras")


def test_an_output_schema_without_a_strict_form_is_sent_unchanged() -> None:
    loose = {"type": "object", "properties": {"a": {"type": "string"}}}
    wanted = {"schema": loose, "name": "thing", "description": "A thing."}
    form = {"name": "thing", "schema": loose, "description": "A thing."}
    asked = option_fields(output=wanted)["response_format"]["json_schema"]
    assert asked == {**form, "strict": False}
    assert (
        option_fields(output={"schema": OUTPUT_SCHEMA, "strict": False})["response_format"]["json_schema"]["strict"]
        is False
    )
    assert option_fields("xai", output=wanted) == {"response_format": {"type": "json_schema", "json_schema": form}}


def test_an_output_schema_is_in_the_prompt_where_only_json_mode_exists() -> None:
    made = request_body(prompt_of(system="Be brief.", options={"output": OUTPUT_SCHEMA}), "deepseek")
    assert made["response_format"] == {"type": "json_object"}
    assert made["messages"][0] == snapshot(
        {
            "role": "system",
            "content": """\
Be brief.

Answer with one JSON object and nothing else. It must be valid against this JSON Schema:
{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}\
""",
        }
    )
    assert request_messages(prompt_of(options={"output": OUTPUT_SCHEMA}), "deepseek")[0]["content"].startswith(
        "Answer with one JSON object"
    )


def test_an_output_schema_is_a_forced_tool_where_nothing_else_is_supported() -> None:
    plain, bare = VendorProfile(output="tool"), VendorProfile(output="tool", choice_named=False)

    def sent(choice: str, *specs: ToolSpec, profile: VendorProfile = plain) -> Any:
        made = request_body(prompt_of(tools=specs, tool_choice=choice, options={"output": OUTPUT_SCHEMA}), profile)
        assert "response_format" not in made
        return [tool["function"]["name"] for tool in made["tools"]], made["tool_choice"]

    answer = {"type": "function", "function": {"name": "answer"}}
    assert sent("auto") == (["answer"], answer)
    assert sent("none", WEATHER_TOOL) == (["answer"], answer)
    assert sent("auto", WEATHER_TOOL) == (["weather", "answer"], "required")
    assert sent("auto", profile=bare) == (["answer"], "required")
    assert sent("weather", WEATHER_TOOL) == (
        ["weather", "answer"],
        {"type": "function", "function": {"name": "weather"}},
    )
    assert sent("auto", ToolSpec(name="answer"))[0] == ["answer", "answer_"]


@pytest.mark.parametrize(
    ("profile", "asked", "sent"),
    [
        ("openai-chat", "max", {"reasoning_effort": "max"}),
        ("openai-chat", 20_000, {"reasoning_effort": "high"}),
        ("groq", "minimal", {"reasoning_effort": "low"}),
        ("groq", "none", {"reasoning_effort": "none"}),
        ("xai", "none", {"reasoning_effort": "low"}),
        ("xai", "medium", {"reasoning_effort": "high"}),
        ("mistral", "minimal", {"reasoning_effort": "high"}),
        ("deepseek", "medium", {"thinking": {"type": "enabled"}, "reasoning_effort": "high"}),
        ("deepseek", "none", {"thinking": {"type": "disabled"}}),
        ("moonshot", "max", {"thinking": {"type": "enabled"}}),
        ("openrouter", "max", {"reasoning": {"effort": "xhigh"}}),
        ("openrouter", 2000, {"reasoning": {"max_tokens": 2000}}),
        ("qwen", "low", {"enable_thinking": True}),
        ("qwen", "none", {"enable_thinking": False}),
        ("qwen", 500, {"enable_thinking": True, "thinking_budget": 500}),
        ("llamacpp", "high", {}),
    ],
)
def test_reasoning_is_requested_in_the_fields_of_the_vendor(profile: str, asked: Any, sent: dict[str, Any]) -> None:
    assert option_fields(profile, reasoning=asked) == sent


def test_options_are_sent_under_the_names_of_the_vendor_or_left_out() -> None:
    given: dict[str, Any] = {
        "max_tokens": 9,
        "seed": 1,
        "top_k": 3,
        "frequency_penalty": 1,
        "presence_penalty": 1,
        "user": "u",
        "service_tier": "flex",
        "metadata": {"a": "b"},
    }
    penalties = {"frequency_penalty": 1.0, "presence_penalty": 1.0}
    assert option_fields(**given) == {
        "max_completion_tokens": 9,
        "seed": 1,
        **penalties,
        "user": "u",
        "service_tier": "flex",
    }
    assert option_fields("mistral", **given) == {"max_tokens": 9, "random_seed": 1, **penalties}
    assert option_fields("zhipu", **given) == {"max_tokens": 9}
    assert option_fields("vllm", **given) == {"max_tokens": 9, "seed": 1, "top_k": 3, **penalties}


def test_too_many_stop_texts_are_refused_with_the_number_allowed() -> None:
    assert option_fields(stop="x") == {"stop": ["x"]}
    assert option_fields("vllm", stop=list("abcdefgh")) == {"stop": list("abcdefgh")}
    with pytest.raises(BadRequest, match="openai-chat/m takes at most 4 stop texts, not 5"):
        option_fields(stop=list("abcde"))


def test_the_cache_key_is_the_session_unless_the_cache_is_off() -> None:
    assert request_body(prompt_of(session="s" * 70))["prompt_cache_key"] == "s" * 64
    assert "prompt_cache_key" not in request_body(prompt_of(session="s", options={"cache": False}))
    assert "prompt_cache_key" not in request_body(prompt_of(session="s"), "groq")


def test_extra_fields_override_the_request() -> None:
    extra = {"stream_options": {"x": 1}, "model": "other", "logit_bias": {"50256": -100}}
    before = repr(extra)
    made = request_body(prompt_of(options={"extra": extra}))
    assert (made["model"], made["logit_bias"]) == ("other", {"50256": -100})
    assert made["stream_options"] == {"include_usage": True, "x": 1}
    assert repr(extra) == before
    assert request_body(prompt_of(), "minimax")["reasoning_split"] is True
    assert "stream_options" not in request_body(prompt_of(), "cohere")
