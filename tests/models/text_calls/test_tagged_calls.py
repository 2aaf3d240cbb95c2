"""Calls in ``<tool_call>`` tags, as small models write them: with a real HTTP provider, and piece by piece."""

from itertools import pairwise
from typing import Any

import msgspec
import pytest

import vaka
from tests.models.wrappers.test_retry import FailingModel
from vaka.config.options import Models
from vaka.core.ports.model import CallChunk, Chunk, Prompt, RetryChunk, StopChunk, TextChunk
from vaka.core.types.tool import ToolSpec
from vaka.models.text_calls.model import TaggedCalls, TextCalls, parse_tool_calls
from vaka.runtime.options import Environment
from vaka.testing.fake_provider import FakeProvider, Fault
from vaka.testing.models import PROMPT, drain_stream, say

LOOK = '<tool_call>\n{"name": "look", "arguments": {"place": "Hilo"}}\n</tool_call>'
SPEC = ToolSpec(name="look", parameters={"type": "object", "properties": {"place": {"type": "string"}}})
WITH_TOOLS: Prompt = msgspec.structs.replace(PROMPT, tools=(SPEC,))

CALLS = {
    "alone": (LOOK, [("look", '{"place": "Hilo"}')]),
    "after a text": (f"I look.\n{LOOK}", [("look", '{"place": "Hilo"}')]),
    "two": (f"{LOOK}\n{LOOK}", [("look", '{"place": "Hilo"}')] * 2),
    "two in a line": (f"{LOOK}{LOOK}", [("look", '{"place": "Hilo"}')] * 2),
    "without the closing tag": (LOOK.removesuffix("</tool_call>"), [("look", '{"place": "Hilo"}')]),
    "with parameters": ('<tool_call>{"name": "look", "parameters": {}}</tool_call>', [("look", "{}")]),
    "with arguments as text": ('<tool_call>{"name": "look", "arguments": "{}"}</tool_call>', [("look", "{}")]),
    "with single quotes": ("<tool_call>{'name': 'look', 'arguments': {}}</tool_call>", [("look", "{}")]),
}
QUOTATIONS = {
    "within a line": f"Write {LOOK} to look.",
    "in code": f"Write this:\n```\n{LOOK}\n```\n",
    "in code of a language": f"Write this:\n```xml\n{LOOK}\n```\nDone.",
    "in ticks": f"`{LOOK}`",
    "of an unknown tool": LOOK.replace("look", "fly"),
    "without JSON": "<tool_call>look</tool_call>",
    "without a name": '<tool_call>{"arguments": {}}</tool_call>',
    "without an end": '<tool_call>{"name": "look", "arguments": {"pl',
    "with something between": LOOK.replace("\n</tool_call>", " and </tool_call>"),
    "of the tag alone": "The tag is\n<tool_call>\nand no more.",
    "of half a tag": "a < b <tool",
}


async def drain(model: Any, prompt: Prompt = WITH_TOOLS) -> tuple[str, list[tuple[str, str]], str]:
    """Return the text, the calls and the stop reason of an answer."""
    chunks: list[Chunk] = await drain_stream(model, prompt)
    text = "".join(chunk.text for chunk in chunks if isinstance(chunk, TextChunk))
    calls = [(chunk.name, chunk.arguments) for chunk in chunks if isinstance(chunk, CallChunk)]
    [stop] = [chunk.reason for chunk in chunks if isinstance(chunk, StopChunk)]
    return text, calls, stop


def pieces_of(text: str, size: int) -> list[Chunk]:
    cuts = [*range(0, len(text), size), len(text)]
    return [TextChunk(text[start:end]) for start, end in pairwise(cuts)]


@pytest.mark.parametrize("size", [1, 7, 1000])
@pytest.mark.parametrize("name", CALLS)
async def test_a_call_in_tags_is_a_call(name: str, size: int) -> None:
    text, calls = CALLS[name]
    for wrap in (TaggedCalls, TextCalls):
        shown, found, stop = await drain(wrap(FailingModel([*pieces_of(text, size), StopChunk("end")])))
        assert (found, stop) == (calls, "calls")
        assert shown.strip() == text.partition("<")[0].strip()
    assert [(made.name, made.arguments) for made in parse_tool_calls(text, [SPEC])] == calls


@pytest.mark.parametrize("size", [1, 7, 1000])
@pytest.mark.parametrize("name", QUOTATIONS)
async def test_a_quotation_of_tags_is_text(name: str, size: int) -> None:
    text = QUOTATIONS[name]
    answer = [*pieces_of(text, size), StopChunk("end")]
    assert await drain(TaggedCalls(FailingModel(answer))) == (text, [], "end")


@pytest.mark.parametrize("prompt", [PROMPT, msgspec.structs.replace(WITH_TOOLS, tool_choice="none")])
async def test_without_tools_nothing_is_a_call(prompt: Prompt) -> None:
    model = TaggedCalls(FailingModel([TextChunk(LOOK), StopChunk("end")]))
    assert await drain(model, prompt) == (LOOK, [], "end")


@pytest.mark.parametrize("reason", ["length", "refusal"])
async def test_an_answer_that_is_not_complete_has_no_calls(reason: str) -> None:
    model = TaggedCalls(FailingModel([TextChunk(LOOK), StopChunk(reason)]))
    assert await drain(model) == (LOOK, [], reason)


async def test_an_answer_with_calls_of_its_own_keeps_its_text() -> None:
    own = CallChunk(0, "look", '{"place": "Kona"}', "call_own")
    model = TaggedCalls(FailingModel([TextChunk(f"As {LOOK}\n{LOOK}"), own, StopChunk("calls")]))
    assert await drain(model) == (f"As {LOOK}\n{LOOK}", [("look", '{"place": "Kona"}')], "calls")


async def test_text_is_streamed_up_to_the_first_tag_and_another_attempt_begins_anew() -> None:
    answer: list[Chunk] = [TextChunk("I lo"), TextChunk(f"ok.\n{LOOK[:20]}"), RetryChunk("stream_cut", "again")]
    chunks = await drain_stream(TaggedCalls(FailingModel([*answer, TextChunk("No."), StopChunk("end")])), WITH_TOOLS)
    texts = [chunk.text for chunk in chunks if isinstance(chunk, TextChunk)]
    assert texts == ["I lo", "ok.\n", "No."]
    assert not [chunk for chunk in chunks if isinstance(chunk, CallChunk)]


async def test_a_stream_without_an_end_shows_what_was_held_back() -> None:
    chunks = await drain_stream(TaggedCalls(FailingModel([TextChunk(f"I look.\n{LOOK}")])), WITH_TOOLS)
    assert "".join(chunk.text for chunk in chunks if isinstance(chunk, TextChunk)) == f"I look.\n{LOOK}"


async def test_a_local_server_that_passes_calls_on_as_text_works_with_tools() -> None:
    seen: list[str] = []

    @vaka.tool(effect="read")
    def look(place: str) -> str:
        """Look."""
        seen.append(place)
        return "sunny"

    async with FakeProvider(say(f"I look.\n{LOOK}"), say("It is sunny.")) as provider:
        async with vaka.Runtime(environment=Environment(environ={"VLLM_BASE_URL": f"{provider.url}/v1"})) as runtime:
            session = await runtime.open(vaka.Agent("a", model="vllm/qwen", tools=[look]))
            response = await session.run("Weather?")
        assert (response.text, seen) == ("It is sunny.", ["Hilo"])
        called, returned = provider.requests[-1].body["messages"][-2:]
        assert called["tool_calls"][0]["function"] == {"name": "look", "arguments": '{"place":"Hilo"}'}
        assert returned["content"] == "sunny"


async def test_a_call_of_a_stream_that_is_cut_does_not_run() -> None:
    @vaka.tool(effect="read")
    def look(place: str) -> str:
        """Look."""
        raise AssertionError(place)

    async with (
        FakeProvider(say(LOOK), fault=Fault(cut=-40)) as provider,
        vaka.Runtime(
            environment=Environment(environ={"VLLM_BASE_URL": f"{provider.url}/v1"}), models=Models(retries=0)
        ) as runtime,
    ):
        session = await runtime.open(vaka.Agent("a", model="vllm/qwen", tools=[look]))
        with pytest.raises(vaka.TurnError) as failed:
            await session.run("Weather?")
        assert failed.value.code == "stream_cut"
