"""Prompts as requests to Anthropic Messages: options, tools, thinking, shapes and the cache."""

import itertools
from typing import Any

import pytest

from tests.models.anthropic_prompts import (
    ADAPTIVE,
    BUDGET,
    EFFORT,
    LOOK,
    MARK,
    NEVER_QUIET,
    OLD,
    OPEN,
    PNG,
    SCHEMA,
    ask,
    body,
    call,
    result,
    results,
    said,
    text,
    user,
    with_options,
)
from vaka.core.types.content import Image
from vaka.core.types.errors import BadRequest
from vaka.core.types.tool import ToolSpec
from vaka.models.anthropic import to_request
from vaka.testing.models import PROMPT


def test_a_whole_request() -> None:
    assert body(BUDGET, PROMPT, cache=True) == {
        "model": BUDGET,
        "max_tokens": 32_000,
        "stream": True,
        "system": [text("Be brief.") | {"cache_control": MARK}],
        "tools": [
            {
                "name": "weather",
                "description": "Return today's weather.",
                "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
                "cache_control": MARK,
            }
        ],
        "temperature": 0.5,
        "messages": [
            {"role": "user", "content": [text("Is it raining in Hilo? 🌧") | {"cache_control": MARK}]},
            {
                "role": "assistant",
                "content": [
                    text("Let me look."),
                    {"type": "tool_use", "id": "call_1", "name": "weather", "input": {"city": "Hilo"}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "call_1", "content": [text("rain")]},
                    text("And tomorrow?") | {"cache_control": MARK},
                ],
            },
        ],
    }


def test_the_least_request_says_nothing_it_need_not() -> None:
    assert body("some-server", ask()) == {
        "model": "some-server", "max_tokens": 8192, "stream": True,
        "messages": [{"role": "user", "content": [text("Hi.")]}],
    }  # fmt: skip


def test_every_option_has_its_place_or_none() -> None:
    made = with_options(
        OLD, max_tokens=100, temperature=1.7, top_p=0.5, top_k=7, stop=["END", "STOP"], seed=1, frequency_penalty=1,
        presence_penalty=1, user="u-1", metadata={"run": "x"}, service_tier="standard_only", headers={"x-a": "b"},
        extra={
            "inference_geo": "us", "metadata": {"more": "y"},
            "tools": [{"type": "web_search_20250305", "name": "web_search"}],
        },
    )  # fmt: skip
    del made["messages"]
    assert made == {
        "model": OLD, "max_tokens": 100, "stream": True, "temperature": 1.0, "top_p": 0.5, "top_k": 7,
        "stop_sequences": ["END", "STOP"], "metadata": {"user_id": "u-1", "more": "y"},
        "service_tier": "standard_only", "inference_geo": "us",
        "tools": [
            {"name": "look", "description": "Look.", "input_schema": {"type": "object", "properties": {}}},
            {"type": "web_search_20250305", "name": "web_search"},
        ],
    }  # fmt: skip
    assert to_request(OLD, ask(options={"headers": {"x-a": "b"}})).headers == {"x-a": "b"}
    assert body(OLD, ask(options={"metadata": {"user_id": "u-2"}}))["metadata"] == {"user_id": "u-2"}
    assert body(OLD, ask(options={"extra": {"tools": []}}))["tools"] == []
    assert body(OLD, ask(), max_tokens=77)["max_tokens"] == 77


@pytest.mark.parametrize(
    ("model", "tokens"),
    [
        ("claude-3-haiku-20240307", 4096), ("claude-3-5-sonnet-latest", 8192), ("claude-3-7-sonnet-20250219", 32_000),
        ("claude-opus-4-20250514", 32_000), ("claude-opus-4@20250514", 32_000), ("claude-haiku-4-5", 32_000),
        ("claude-sonnet-4-6", 64_000), ("claude-fable-5-2", 64_000), ("claude-mythos-preview", 64_000),
        ("us.anthropic.claude-opus-4-7-v1:0", 64_000), ("claude-haiku-9", 64_000), ("claude-2.1", 8192),
        ("claude-opus-1", 8192), ("glm-5", 8192),
    ],
)  # fmt: skip
def test_an_answer_is_bounded_by_what_the_model_can_write(model: str, tokens: int) -> None:
    assert body(model, ask())["max_tokens"] == tokens


@pytest.mark.parametrize(
    ("model", "reasoning", "thinking", "effort"),
    [
        (OLD, "high", None, None),
        (BUDGET, None, None, None),
        (BUDGET, "none", None, None),
        (BUDGET, "minimal", 1024, None),
        (BUDGET, "low", 4096, None),
        (BUDGET, "medium", 10_000, None),
        (BUDGET, "high", 20_000, None),
        (BUDGET, "max", 24_000, None),
        (BUDGET, 5000, 5000, None),
        (BUDGET, 5, 1024, None),
        (BUDGET, 99_000, 24_000, None),
        (EFFORT, None, None, None),
        (EFFORT, "none", None, None),
        (EFFORT, "minimal", ADAPTIVE, "low"),
        (EFFORT, "max", ADAPTIVE, "max"),
        (EFFORT, 9000, ADAPTIVE, "medium"),
        (OPEN, None, ADAPTIVE, None),
        (OPEN, "none", {"type": "disabled"}, None),
        (OPEN, "high", ADAPTIVE, "high"),
        ("claude-sonnet-5-5", "none", {"type": "between_tools"}, None),
        ("claude-haiku-5-5", "none", {"type": "disabled"}, None),
        (NEVER_QUIET, None, ADAPTIVE, None),
        (NEVER_QUIET, "none", ADAPTIVE, "low"),
        (NEVER_QUIET, "medium", ADAPTIVE, "medium"),
        ("claude-fable-5", "none", ADAPTIVE, "low"),
        ("some-server", "low", 4096, None),
    ],
)
def test_each_model_is_told_to_think_in_its_own_way(model: str, reasoning: Any, thinking: Any, effort: Any) -> None:
    options = {} if reasoning is None else {"reasoning": reasoning}
    made = body(model, ask(options=options), max_tokens=32_000)
    wanted = {"type": "enabled", "budget_tokens": thinking} if isinstance(thinking, int) else thinking
    assert made.get("thinking") == wanted
    assert made.get("output_config", {}).get("effort") == effort


@pytest.mark.parametrize(
    ("model", "tokens", "thinking"),
    [
        (BUDGET, 1024, None),
        (BUDGET, 1025, 1024),
        (BUDGET, 4000, 3000),
        (EFFORT, 1024, None),
        (OPEN, 500, {"type": "disabled"}),
        (NEVER_QUIET, 500, ADAPTIVE),
    ],
)
def test_thinking_leaves_room_for_the_answer(model: str, tokens: int, thinking: Any) -> None:
    made = body(model, ask(options={"reasoning": "high", "max_tokens": tokens}))
    wanted = {"type": "enabled", "budget_tokens": thinking} if isinstance(thinking, int) else thinking
    assert made.get("thinking") == wanted


@pytest.mark.parametrize(
    ("model", "options", "left"),
    [
        (OLD, {}, "temperature top_k top_p"),
        (BUDGET, {}, "temperature top_k"),
        (BUDGET, {"reasoning": "low"}, ""),
        (EFFORT, {"reasoning": "low"}, ""),
        (OPEN, {"reasoning": "none"}, ""),
        ("claude-opus-4-7", {}, ""),
    ],
)
def test_sampling_is_left_out_where_it_would_be_refused(model: str, options: dict[str, Any], left: str) -> None:
    made = body(model, ask(options={"temperature": 0.3, "top_p": 0.9, "top_k": 5, **options}))
    assert sorted(made.keys() & {"temperature", "top_p", "top_k"}) == left.split()


def test_top_p_alone_is_sent() -> None:
    assert body(BUDGET, ask(options={"top_p": 0.9}))["top_p"] == 0.9


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
def test_which_tool_is_called(choice: str, options: dict[str, Any], wanted: Any) -> None:
    assert with_options(BUDGET, choice, **options).get("tool_choice") == wanted


def test_a_model_that_thinks_by_itself_is_quiet_when_a_tool_is_forced() -> None:
    assert with_options(OPEN, "required")["thinking"] == {"type": "disabled"}
    assert "thinking" not in with_options(EFFORT, "look")


@pytest.mark.parametrize(
    ("model", "choice", "options", "words"),
    [
        (BUDGET, "look", {"reasoning": "low"}, "cannot think while it is forced to call a tool"),
        (EFFORT, "required", {"reasoning": 4000}, "cannot think while it is forced to call a tool"),
        (OPEN, "required", {"reasoning": "high"}, "cannot think while it is forced to call a tool"),
        (NEVER_QUIET, "required", {}, "claude-opus-5-5 cannot be forced to call a tool"),
        ("claude-sonnet-5-5", "look", {}, "cannot be forced to call a tool"),
        (BUDGET, "fly", {}, "names no tool; there are look"),
        (BUDGET, "look", {"reasonin": 1}, "did you mean 'reasoning'"),
        (OLD, "auto", {"output": {"type": "array", "items": {"type": "string"}}}, "a schema of the type 'object'"),
        (NEVER_QUIET, "auto", {"output": {"type": "object"}}, "give each object of it its properties"),
    ],
)  # fmt: skip
def test_what_a_model_cannot_do_is_said_before_anything_is_sent(
    model: str, choice: str, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(BadRequest, match=words):
        with_options(model, choice, **options)


def test_a_tool_must_be_there_to_be_required_and_have_a_name_that_is_one() -> None:
    with pytest.raises(BadRequest, match="'required', but there are no tools"):
        body(BUDGET, ask(tool_choice="required"))
    for name in ("bad name", "", "x" * 65, "naïve"):
        with pytest.raises(BadRequest, match="a tool cannot be called"):
            body(BUDGET, ask(tools=(ToolSpec(name=name),)))


def test_a_tool_without_a_type_takes_an_object() -> None:
    made = body(BUDGET, ask(tools=(ToolSpec(name="look", parameters={"properties": {}}),)))
    assert made["tools"] == [{"name": "look", "input_schema": {"type": "object", "properties": {}}}]


def test_the_shape_of_an_answer_is_the_providers_business_where_it_can_be() -> None:
    made = with_options(NEVER_QUIET, output={"schema": SCHEMA, "name": "place"}, reasoning="low")
    assert made["output_config"] == {
        "effort": "low",
        "format": {"type": "json_schema", "schema": {**SCHEMA, "additionalProperties": False}},
    }
    assert [tool["name"] for tool in made["tools"]] == ["look"]
    assert "tool_choice" not in made


def test_the_shape_of_an_answer_is_a_tool_elsewhere() -> None:
    request = to_request(OLD, ask(options={"output": {"schema": SCHEMA, "description": "A place."}}), cache=False)
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
    made = with_options(OLD, choice, output={"schema": SCHEMA, "name": "look"})
    assert [tool["name"] for tool in made["tools"]] == ["look", "look_"]
    assert made["tool_choice"] == wanted


def test_a_shape_that_need_not_be_kept_strictly_is_a_tool() -> None:
    made = with_options(BUDGET, tools=(), output={"schema": SCHEMA, "strict": False})
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
        ({"$ref": "#/$defs/nobody"}, None),
        ({"$ref": "https://example.com/x"}, None),
        ({"type": "object", "properties": {"next": {"$ref": "#"}}}, None),
        ({"$defs": {"n": {"type": "object", "properties": {"n": {"$ref": "#/$defs/n"}}}}, "$ref": "#/$defs/n"}, None),
    ],
)  # fmt: skip
def test_a_schema_is_closed_or_not_used(schema: dict[str, Any], form: dict[str, Any] | None) -> None:
    inner = {
        "type": "object",
        "properties": {"x": schema},
        "additionalProperties": False,
        "$defs": schema.get("$defs", {}),
    }
    made = with_options(BUDGET, tools=(), output={"schema": inner})
    if form is None:
        assert ("output_config" in made, made["tools"][0]["input_schema"]) == (False, inner)
    else:
        assert made["output_config"]["format"]["schema"]["properties"] == {"x": form}


def test_a_schema_without_end_is_not_used() -> None:
    deep: dict[str, Any] = {"type": "string"}
    for _ in range(200):
        deep = {"type": "object", "properties": {"x": deep}}
    assert "output_config" not in with_options(BUDGET, output={"schema": deep})


def marks(made: dict[str, Any]) -> list[str]:
    """Return where a request is marked: the words or the kind of each marked block."""
    blocks = [*made.get("tools", []), *made.get("system", [])]
    blocks += [block for message in made["messages"] for block in message["content"]]
    return [block.get("name") or block.get("text") or block["type"] for block in blocks if "cache_control" in block]


LONG = (
    user("1"), said("a"), user("2"), said("b"), user("3", Image(data=PNG)), said("c", calls=(call("x"),)),
    results(result("x", "X")),
)  # fmt: skip


@pytest.mark.parametrize(
    ("more", "wanted"),
    [
        ({"tools": (ToolSpec(name="t1"), ToolSpec(name="t2")), "system": "S"}, ["t2", "S", "image", "tool_result"]),
        ({"system": "S"}, ["S", "2", "image", "tool_result"]),
        ({"tools": (LOOK,)}, ["look", "2", "image", "tool_result"]),
        ({}, ["2", "image", "tool_result"]),
    ],
)
def test_at_most_four_places_are_marked_for_the_cache(more: dict[str, Any], wanted: list[str]) -> None:
    assert marks(body(BUDGET, ask(*LONG, **more), cache=True)) == wanted


@pytest.mark.parametrize(
    ("own", "wanted"),
    [(1, ["look", "S", "tool_result", "o0"]), (2, ["S", "tool_result", "o0", "o1"]),
     (3, ["tool_result", "o0", "o1", "o2"]), (4, ["o0", "o1", "o2", "o3"])],
)  # fmt: skip
def test_places_that_somebody_marked_by_hand_are_among_the_four(own: int, wanted: list[str]) -> None:
    shape = {"input_schema": {"type": "object"}, "cache_control": MARK}
    tools = [{"name": f"o{number}", **shape} for number in range(own)]
    made = body(BUDGET, ask(*LONG, tools=(LOOK,), system="S", options={"extra": {"tools": tools}}), cache=True)
    assert sorted(marks(made)) == sorted(wanted)


def test_a_prompt_may_say_otherwise_about_the_cache() -> None:
    assert marks(body(BUDGET, ask(options={"cache": False}), cache=True)) == []
    assert marks(body(BUDGET, ask(options={"cache": True}), cache=False)) == ["Hi."]
    kept = body(BUDGET, ask(system="S"), cache=True, cache_ttl="1h")
    assert kept["system"][0]["cache_control"] == {"type": "ephemeral", "ttl": "1h"}


def test_a_longer_conversation_begins_with_the_same_bytes() -> None:
    def plain(made: dict[str, Any]) -> list[Any]:
        blocks = [(m["role"], [{k: v for k, v in b.items() if k != "cache_control"} for b in m["content"]])
                  for m in made["messages"]]  # fmt: skip
        return [made["tools"], made["system"], *blocks]

    asked = [ask(*LONG[:count], tools=(LOOK,), system="S") for count in (1, 3, 5, 7)]
    made = [plain(body(BUDGET, prompt, cache=True)) for prompt in asked]
    for shorter, longer in itertools.pairwise(made):
        assert longer[: len(shorter)] == shorter
