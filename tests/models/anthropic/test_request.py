"""Prompts as requests to Anthropic Messages: options, tools, thinking, output schemas and the cache."""

import itertools
from typing import Any

import pytest

from tests.models.anthropic.prompts import (
    ADAPTIVE,
    ALWAYS_THINKING_MODEL,
    BUDGET_MODEL,
    CACHE_MARK,
    DEFAULT_THINKING_MODEL,
    EFFORT_MODEL,
    LOOK_TOOL,
    NO_THINKING_MODEL,
    PNG,
    SCHEMA,
    assistant_message,
    body_with_options,
    prompt_of,
    request_body,
    text_block,
    tool_call,
    tool_message,
    tool_result,
    user_message,
)
from vaka.core.types.errors import BadRequest
from vaka.core.types.message import Image
from vaka.core.types.tool import ToolSpec
from vaka.models.anthropic.model import to_request
from vaka.testing.models import PROMPT


def test_a_request_has_all_fields() -> None:
    assert request_body(BUDGET_MODEL, PROMPT, cache=True) == {
        "model": BUDGET_MODEL,
        "max_tokens": 32_000,
        "stream": True,
        "system": [text_block("Be brief.") | {"cache_control": CACHE_MARK}],
        "tools": [
            {
                "name": "weather",
                "description": "Return today's weather.",
                "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
                "cache_control": CACHE_MARK,
            }
        ],
        "temperature": 0.5,
        "messages": [
            {"role": "user", "content": [text_block("Is it raining in Hilo? 🌧") | {"cache_control": CACHE_MARK}]},
            {
                "role": "assistant",
                "content": [
                    text_block("Let me look."),
                    {"type": "tool_use", "id": "call_1", "name": "weather", "input": {"city": "Hilo"}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "call_1", "content": [text_block("rain")]},
                    text_block("And tomorrow?") | {"cache_control": CACHE_MARK},
                ],
            },
        ],
    }


def test_the_smallest_request_has_no_optional_fields() -> None:
    assert request_body("some-server", prompt_of()) == {
        "model": "some-server",
        "max_tokens": 8192,
        "stream": True,
        "messages": [{"role": "user", "content": [text_block("Hi.")]}],
    }


def test_every_option_has_its_field_or_is_ignored() -> None:
    made = body_with_options(
        NO_THINKING_MODEL,
        max_tokens=100,
        temperature=1.7,
        top_p=0.5,
        top_k=7,
        stop=["END", "STOP"],
        seed=1,
        frequency_penalty=1,
        presence_penalty=1,
        user="u-1",
        metadata={"run": "x"},
        service_tier="standard_only",
        headers={"x-a": "b"},
        extra={
            "inference_geo": "us",
            "metadata": {"more": "y"},
            "tools": [{"type": "web_search_20250305", "name": "web_search"}],
        },
    )
    del made["messages"]
    assert made == {
        "model": NO_THINKING_MODEL,
        "max_tokens": 100,
        "stream": True,
        "temperature": 1.0,
        "top_p": 0.5,
        "top_k": 7,
        "stop_sequences": ["END", "STOP"],
        "metadata": {"user_id": "u-1", "more": "y"},
        "service_tier": "standard_only",
        "inference_geo": "us",
        "tools": [
            {"name": "look", "description": "Look.", "input_schema": {"type": "object", "properties": {}}},
            {"type": "web_search_20250305", "name": "web_search"},
        ],
    }
    assert to_request(NO_THINKING_MODEL, prompt_of(options={"headers": {"x-a": "b"}})).headers == {"x-a": "b"}
    assert request_body(NO_THINKING_MODEL, prompt_of(options={"metadata": {"user_id": "u-2"}}))["metadata"] == {
        "user_id": "u-2"
    }
    assert request_body(NO_THINKING_MODEL, prompt_of(options={"extra": {"tools": []}}))["tools"] == []
    assert request_body(NO_THINKING_MODEL, prompt_of(), max_tokens=77)["max_tokens"] == 77


@pytest.mark.parametrize(
    ("model", "tokens"),
    [
        ("claude-3-haiku-20240307", 4096),
        ("claude-3-5-sonnet-latest", 8192),
        ("claude-3-7-sonnet-20250219", 32_000),
        ("claude-opus-4-20250514", 32_000),
        ("claude-opus-4@20250514", 32_000),
        ("claude-haiku-4-5", 32_000),
        ("claude-sonnet-4-6", 64_000),
        ("claude-fable-5-2", 64_000),
        ("claude-mythos-preview", 64_000),
        ("us.anthropic.claude-opus-4-7-v1:0", 64_000),
        ("claude-haiku-9", 64_000),
        ("claude-2.1", 8192),
        ("claude-opus-1", 8192),
        ("glm-5", 8192),
    ],
)
def test_the_default_length_limit_depends_on_the_model(model: str, tokens: int) -> None:
    assert request_body(model, prompt_of())["max_tokens"] == tokens


@pytest.mark.parametrize(
    ("model", "reasoning", "thinking", "effort"),
    [
        (NO_THINKING_MODEL, "high", None, None),
        (BUDGET_MODEL, None, None, None),
        (BUDGET_MODEL, "none", None, None),
        (BUDGET_MODEL, "minimal", 1024, None),
        (BUDGET_MODEL, "low", 4096, None),
        (BUDGET_MODEL, "medium", 10_000, None),
        (BUDGET_MODEL, "high", 20_000, None),
        (BUDGET_MODEL, "max", 24_000, None),
        (BUDGET_MODEL, 5000, 5000, None),
        (BUDGET_MODEL, 5, 1024, None),
        (BUDGET_MODEL, 99_000, 24_000, None),
        (EFFORT_MODEL, None, None, None),
        (EFFORT_MODEL, "none", None, None),
        (EFFORT_MODEL, "minimal", ADAPTIVE, "low"),
        (EFFORT_MODEL, "max", ADAPTIVE, "max"),
        (EFFORT_MODEL, 9000, ADAPTIVE, "medium"),
        (DEFAULT_THINKING_MODEL, None, ADAPTIVE, None),
        (DEFAULT_THINKING_MODEL, "none", {"type": "disabled"}, None),
        (DEFAULT_THINKING_MODEL, "high", ADAPTIVE, "high"),
        ("claude-sonnet-5-5", "none", {"type": "between_tools"}, None),
        ("claude-haiku-5-5", "none", {"type": "disabled"}, None),
        (ALWAYS_THINKING_MODEL, None, ADAPTIVE, None),
        (ALWAYS_THINKING_MODEL, "none", ADAPTIVE, "low"),
        (ALWAYS_THINKING_MODEL, "medium", ADAPTIVE, "medium"),
        ("claude-fable-5", "none", ADAPTIVE, "low"),
        ("some-server", "low", 4096, None),
    ],
)
def test_each_model_has_its_own_thinking_fields(model: str, reasoning: Any, thinking: Any, effort: Any) -> None:
    options = {} if reasoning is None else {"reasoning": reasoning}
    made = request_body(model, prompt_of(options=options), max_tokens=32_000)
    wanted = {"type": "enabled", "budget_tokens": thinking} if isinstance(thinking, int) else thinking
    assert made.get("thinking") == wanted
    assert made.get("output_config", {}).get("effort") == effort


@pytest.mark.parametrize(
    ("model", "tokens", "thinking"),
    [
        (BUDGET_MODEL, 1024, None),
        (BUDGET_MODEL, 1025, 1024),
        (BUDGET_MODEL, 4000, 3000),
        (EFFORT_MODEL, 1024, None),
        (DEFAULT_THINKING_MODEL, 500, {"type": "disabled"}),
        (ALWAYS_THINKING_MODEL, 500, ADAPTIVE),
    ],
)
def test_thinking_leaves_room_for_the_answer(model: str, tokens: int, thinking: Any) -> None:
    made = request_body(model, prompt_of(options={"reasoning": "high", "max_tokens": tokens}))
    wanted = {"type": "enabled", "budget_tokens": thinking} if isinstance(thinking, int) else thinking
    assert made.get("thinking") == wanted


@pytest.mark.parametrize(
    ("model", "options", "left"),
    [
        (NO_THINKING_MODEL, {}, "temperature top_k top_p"),
        (BUDGET_MODEL, {}, "temperature top_k"),
        (BUDGET_MODEL, {"reasoning": "low"}, ""),
        (EFFORT_MODEL, {"reasoning": "low"}, ""),
        (DEFAULT_THINKING_MODEL, {"reasoning": "none"}, ""),
        ("claude-opus-4-7", {}, ""),
    ],
)
def test_sampling_is_left_out_where_it_would_be_refused(model: str, options: dict[str, Any], left: str) -> None:
    made = request_body(model, prompt_of(options={"temperature": 0.3, "top_p": 0.9, "top_k": 5, **options}))
    assert sorted(made.keys() & {"temperature", "top_p", "top_k"}) == left.split()


def test_top_p_alone_is_sent() -> None:
    assert request_body(BUDGET_MODEL, prompt_of(options={"top_p": 0.9}))["top_p"] == 0.9


@pytest.mark.parametrize(
    ("choice", "options", "wanted"),
    [
        ("auto", {}, None),
        ("auto", {"parallel_calls": True}, None),
        ("auto", {"parallel_calls": False}, {"type": "auto", "disable_parallel_tool_use": True}),
        ("none", {"parallel_calls": False}, {"type": "none"}),
        ("required", {}, {"type": "any"}),
        ("required", {"parallel_calls": False}, {"type": "any", "disable_parallel_tool_use": True}),
        ("look", {}, {"type": "tool", "name": "look"}),
    ],
)
def test_tool_choices_are_mapped(choice: str, options: dict[str, Any], wanted: Any) -> None:
    assert body_with_options(BUDGET_MODEL, choice, **options).get("tool_choice") == wanted


def test_thinking_is_turned_off_when_a_tool_is_forced() -> None:
    assert body_with_options(DEFAULT_THINKING_MODEL, "required")["thinking"] == {"type": "disabled"}
    assert "thinking" not in body_with_options(EFFORT_MODEL, "look")


@pytest.mark.parametrize(
    ("model", "choice", "options", "words"),
    [
        (BUDGET_MODEL, "look", {"reasoning": "low"}, "cannot think while it is forced to call a tool"),
        (EFFORT_MODEL, "required", {"reasoning": 4000}, "cannot think while it is forced to call a tool"),
        (DEFAULT_THINKING_MODEL, "required", {"reasoning": "high"}, "cannot think while it is forced to call a tool"),
        (ALWAYS_THINKING_MODEL, "required", {}, "claude-opus-5-5 cannot be forced to call a tool"),
        ("claude-sonnet-5-5", "look", {}, "cannot be forced to call a tool"),
        (BUDGET_MODEL, "fly", {}, "names no tool; there are look"),
        (BUDGET_MODEL, "look", {"reasonin": 1}, "did you mean 'reasoning'"),
        (NO_THINKING_MODEL, "auto", {"output": {"type": "array", "items": {"type": "string"}}}, "of the type 'object'"),
        (ALWAYS_THINKING_MODEL, "auto", {"output": {"type": "object"}}, "list the properties of each object"),
    ],
)
def test_an_unsupported_option_is_refused_before_anything_is_sent(
    model: str, choice: str, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(BadRequest, match=words):
        body_with_options(model, choice, **options)


def test_a_required_tool_must_exist_and_have_a_valid_name() -> None:
    with pytest.raises(BadRequest, match="'required', but there are no tools"):
        request_body(BUDGET_MODEL, prompt_of(tool_choice="required"))
    for name in ("bad name", "", "x" * 65, "naïve"):
        with pytest.raises(BadRequest, match="a tool cannot be called"):
            request_body(BUDGET_MODEL, prompt_of(tools=(ToolSpec(name=name),)))


def test_a_tool_without_a_type_takes_an_object() -> None:
    made = request_body(BUDGET_MODEL, prompt_of(tools=(ToolSpec(name="look", parameters={"properties": {}}),)))
    assert made["tools"] == [{"name": "look", "input_schema": {"type": "object", "properties": {}}}]


def test_a_tool_of_the_provider_is_named_by_its_type_where_the_model_knows_it() -> None:
    tools = (ToolSpec(name="memory", native={"anthropic": "memory_20250818"}), ToolSpec(name="look"))
    for model, known in (("claude-sonnet-4-5", True), (NO_THINKING_MODEL, False), ("gateway-model", False)):
        memory, look = request_body(model, prompt_of(tools=tools))["tools"]
        assert (memory == {"type": "memory_20250818", "name": "memory"}) is known
        assert "input_schema" in look


def test_an_output_schema_is_native_where_the_model_supports_it() -> None:
    made = body_with_options(ALWAYS_THINKING_MODEL, output={"schema": SCHEMA, "name": "place"}, reasoning="low")
    assert made["output_config"] == {
        "effort": "low",
        "format": {"type": "json_schema", "schema": {**SCHEMA, "additionalProperties": False}},
    }
    assert [tool["name"] for tool in made["tools"]] == ["look"]
    assert "tool_choice" not in made


def test_an_output_schema_is_a_tool_for_other_models() -> None:
    request = to_request(
        NO_THINKING_MODEL, prompt_of(options={"output": {"schema": SCHEMA, "description": "A place."}}), cache=False
    )
    assert request.answer == "answer"
    assert request.body["tools"] == [{"name": "answer", "description": "A place.", "input_schema": SCHEMA}]
    assert request.body["tool_choice"] == {"type": "tool", "name": "answer", "disable_parallel_tool_use": True}


@pytest.mark.parametrize(
    ("choice", "wanted"),
    [
        ("auto", {"type": "any"}),
        ("required", {"type": "any"}),
        ("none", {"type": "tool", "name": "look_", "disable_parallel_tool_use": True}),
        ("look", {"type": "tool", "name": "look"}),
    ],
)
def test_a_tool_for_the_answer_stands_beside_the_others(choice: str, wanted: Any) -> None:
    made = body_with_options(NO_THINKING_MODEL, choice, output={"schema": SCHEMA, "name": "look"})
    assert [tool["name"] for tool in made["tools"]] == ["look", "look_"]
    assert made["tool_choice"] == wanted


def test_an_output_schema_that_is_not_strict_is_a_tool() -> None:
    made = body_with_options(BUDGET_MODEL, tools=(), output={"schema": SCHEMA, "strict": False})
    assert ("output_config" in made, made["tools"][0]["name"]) == (False, "answer")


@pytest.mark.parametrize(
    ("schema", "form"),
    [
        ({"type": "string"}, {"type": "string"}),
        (
            {"type": "integer", "minimum": 1, "maximum": 9, "description": "Of ten."},
            {"type": "integer", "description": "Of ten. (minimum: 1, maximum: 9)"},
        ),
        ({"type": "string", "format": "date", "examples": ["x"]}, {"type": "string", "format": "date"}),
        ({"type": "string", "format": "color"}, {"type": "string", "description": '(format: "color")'}),
        ({"enum": ["a", 1, None]}, {"enum": ["a", 1, None]}),
        ({"oneOf": [{"type": "string"}, {"const": 1}]}, {"anyOf": [{"type": "string"}, {"const": 1}]}),
        (
            {"type": ["array", "null"], "items": {"type": "number"}, "minItems": 1, "maxItems": 3},
            {"type": ["array", "null"], "items": {"type": "number"}, "minItems": 1, "description": "(maxItems: 3)"},
        ),
        (
            {"$ref": "#/$defs/a~1b", "description": "It.", "$defs": {"a/b": {"type": "string", "title": "B"}}},
            {"type": "string", "description": "It.", "title": "B"},
        ),
        ({"type": "object"}, None),
        ({"type": "object", "additionalProperties": {"type": "string"}}, None),
        ({"type": "object", "properties": {"a": {}}}, None),
        ({"type": "object", "properties": {"a": True}}, None),
        ({"type": "array"}, None),
        ({"$ref": "#/$defs/missing"}, None),
        ({"$ref": "https://example.com/x"}, None),
        ({"type": "object", "properties": {"next": {"$ref": "#"}}}, None),
        ({"$defs": {"n": {"type": "object", "properties": {"n": {"$ref": "#/$defs/n"}}}}, "$ref": "#/$defs/n"}, None),
    ],
)
def test_a_schema_is_closed_or_not_used(schema: dict[str, Any], form: dict[str, Any] | None) -> None:
    inner = {
        "type": "object",
        "properties": {"x": schema},
        "additionalProperties": False,
        "$defs": schema.get("$defs", {}),
    }
    made = body_with_options(BUDGET_MODEL, tools=(), output={"schema": inner})
    if form is None:
        assert ("output_config" in made, made["tools"][0]["input_schema"]) == (False, inner)
    else:
        assert made["output_config"]["format"]["schema"]["properties"] == {"x": form}


def test_a_recursive_schema_is_not_used() -> None:
    deep: dict[str, Any] = {"type": "string"}
    for _ in range(200):
        deep = {"type": "object", "properties": {"x": deep}}
    assert "output_config" not in body_with_options(BUDGET_MODEL, output={"schema": deep})


def count_marks(made: dict[str, Any]) -> list[str]:
    """Return where a request is marked: the words or the kind of each marked block."""
    blocks = [*made.get("tools", []), *made.get("system", [])]
    blocks += [block for message in made["messages"] for block in message["content"]]
    return [block.get("name") or block.get("text") or block["type"] for block in blocks if "cache_control" in block]


LONG = (
    user_message("1"),
    assistant_message("a"),
    user_message("2"),
    assistant_message("b"),
    user_message("3", Image(data=PNG)),
    assistant_message("c", calls=(tool_call("x"),)),
    tool_message(tool_result("x", "X")),
)


@pytest.mark.parametrize(
    ("more", "wanted"),
    [
        ({"tools": (ToolSpec(name="t1"), ToolSpec(name="t2")), "system": "S"}, ["t2", "S", "image", "tool_result"]),
        ({"system": "S"}, ["S", "2", "image", "tool_result"]),
        ({"tools": (LOOK_TOOL,)}, ["look", "2", "image", "tool_result"]),
        ({}, ["2", "image", "tool_result"]),
    ],
)
def test_at_most_four_cache_marks_are_set(more: dict[str, Any], wanted: list[str]) -> None:
    assert count_marks(request_body(BUDGET_MODEL, prompt_of(*LONG, **more), cache=True)) == wanted


@pytest.mark.parametrize(
    ("own", "wanted"),
    [
        (1, ["look", "S", "tool_result", "o0"]),
        (2, ["S", "tool_result", "o0", "o1"]),
        (3, ["tool_result", "o0", "o1", "o2"]),
        (4, ["o0", "o1", "o2", "o3"]),
    ],
)
def test_cache_marks_of_the_caller_are_among_the_four(own: int, wanted: list[str]) -> None:
    shape = {"input_schema": {"type": "object"}, "cache_control": CACHE_MARK}
    tools = [{"name": f"o{number}", **shape} for number in range(own)]
    made = request_body(
        BUDGET_MODEL, prompt_of(*LONG, tools=(LOOK_TOOL,), system="S", options={"extra": {"tools": tools}}), cache=True
    )
    assert sorted(count_marks(made)) == sorted(wanted)


def test_the_cache_option_of_a_prompt_takes_precedence() -> None:
    assert count_marks(request_body(BUDGET_MODEL, prompt_of(options={"cache": False}), cache=True)) == []
    assert count_marks(request_body(BUDGET_MODEL, prompt_of(options={"cache": True}), cache=False)) == ["Hi."]
    kept = request_body(BUDGET_MODEL, prompt_of(system="S"), cache=True, cache_ttl="1h")
    assert kept["system"][0]["cache_control"] == {"type": "ephemeral", "ttl": "1h"}


def test_a_longer_conversation_begins_with_the_same_bytes() -> None:
    def plain(made: dict[str, Any]) -> list[Any]:
        blocks = [
            (m["role"], [{k: v for k, v in b.items() if k != "cache_control"} for b in m["content"]])
            for m in made["messages"]
        ]
        return [made["tools"], made["system"], *blocks]

    asked = [prompt_of(*LONG[:count], tools=(LOOK_TOOL,), system="S") for count in (1, 3, 5, 7)]
    made = [plain(request_body(BUDGET_MODEL, prompt, cache=True)) for prompt in asked]
    for shorter, longer in itertools.pairwise(made):
        assert longer[: len(shorter)] == shorter
