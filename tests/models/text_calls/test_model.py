"""Tool calls of a model without function calling: text is streamed, calls are not shown, and no text is lost."""

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import vaka
from tests.models.text_calls.test_scanner import NAMES, NOT_CALLS, TEXTS
from tests.models.wrappers.test_retry import FailingModel
from tests.runtime.runtime_fixtures import agent, read_log, runtime
from vaka.core.ports.model import (
    CallChunk,
    Chunk,
    Estimate,
    Prompt,
    ReasoningChunk,
    RetryChunk,
    StopChunk,
    TextChunk,
    UsageChunk,
)
from vaka.core.types.errors import BadRequest, ModelUnavailable
from vaka.core.types.ids import CallId, MessageId
from vaka.core.types.message import (
    AssistantMessage,
    CallRef,
    Image,
    Text,
    ToolCall,
    ToolMessage,
    ToolResult,
    Usage,
    UserMessage,
)
from vaka.core.types.progress import ToolCalled
from vaka.core.types.tool import ToolSpec
from vaka.models.text_calls.model import TextCalls, parse_tool_calls, render_tools
from vaka.models.text_calls.scanner import CallScanner
from vaka.stores.memory import MemoryStore
from vaka.testing.models import PROMPT, ScriptedModel, drain_stream, join_chunks, say

# ----------------------------------------------------------------------------------------------- as the text comes in


def drain_answer(chunks: Iterable[Chunk], stop: str = "end", prompt: Prompt = PROMPT) -> list[Chunk]:
    """Return what becomes of an answer, chunk by chunk."""
    model = TextCalls(FailingModel([*chunks, StopChunk(stop)]))
    came: list[Chunk] = run_coroutine(drain_stream(model, prompt))
    return came


def run_coroutine(waited: Any) -> Any:
    """Drive a coroutine that waits for nothing."""
    try:
        waited.send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError("it waits")


TOOLS = tuple(ToolSpec(name=name) for name in NAMES)
PROMPT_WITH_TOOLS = Prompt(messages=(UserMessage(content=(Text(text="Go."),)),), tools=TOOLS)


def text_and_calls(text: str, cuts: Iterable[int] = (), stop: str = "end") -> tuple[list[str], list[tuple[str, str]]]:
    """Return the text that is shown, as one, and the calls, of a text that comes in pieces."""
    edges = [0, *sorted(cuts), len(text)]
    pieces = [TextChunk(text[start:end]) for start, end in pairwise(edges)]
    said = join_chunks(drain_answer(pieces, stop, PROMPT_WITH_TOOLS))
    return [said.text] if said.text else [], said.calls


@given(TEXTS, st.data())
def test_any_split_of_a_text_gives_the_same_calls_and_text(text: str, data: st.DataObject) -> None:
    cuts = data.draw(st.lists(st.integers(0, len(text)), max_size=20))
    whole = parse_tool_calls(text, NAMES)
    words, calls = text_and_calls(text, cuts)
    assert calls == [(call.name, call.arguments) for call in whole]
    assert text_and_calls(text) == (words, calls)
    if not whole:
        assert "".join(words) == text
    scanner = CallScanner(NAMES)
    scanner.feed(text)
    scanner.end()
    kept, start = "", 0
    for found in scanner.calls():
        kept, start = kept + scanner.text(start, found.start), found.end
    kept += scanner.text(start)
    assert "".join("".join(words).split()) == "".join(kept.split())


@given(TEXTS, st.sampled_from(["length", "refusal", "content_filter"]))
def test_an_unfinished_answer_has_no_calls_and_loses_no_text(text: str, stop: str) -> None:
    chunks = drain_answer([TextChunk(char) for char in text], stop, PROMPT_WITH_TOOLS)
    said = join_chunks(chunks)
    assert (said.text, said.calls, said.stops) == (text, [], [stop])


@given(TEXTS)
def test_a_cut_answer_has_no_calls_and_loses_no_text(text: str) -> None:
    chunks = run_coroutine(drain_stream(TextCalls(FailingModel([TextChunk(char) for char in text])), PROMPT_WITH_TOOLS))
    assert (join_chunks(chunks).text, join_chunks(chunks).calls, join_chunks(chunks).stops) == (text, [], [])


def shown_pieces(text: str) -> list[str]:
    """Return what is shown at once, character by character, until the answer ends."""
    scanner = CallScanner(NAMES)
    seen = 0
    pieces = list[str]()
    for char in text:
        scanner.feed(char)
        pieces.append(scanner.text(seen, scanner.text_end))
        seen = scanner.text_end
    return pieces


def test_ordinary_text_is_streamed_at_once_except_trailing_blanks() -> None:
    assert shown_pieces("Hi, you. So?") == ["H", "i", ",", "", " y", "o", "u", ".", "", " S", "o", "?"]


def test_text_that_may_begin_a_call_is_withheld_until_it_cannot() -> None:
    assert shown_pieces("I weathers") == ["I", "", "", "", "", "", "", "", "", " weathers"]
    assert "".join(shown_pieces("I weather")) == "I"
    assert "".join(shown_pieces("I weather it")) == "I weather it"
    assert "".join(shown_pieces("I weather(city=Hilo")) == "I"
    assert "".join(shown_pieces("I weather(city is Hilo")) == "I weather(city is Hilo"
    assert "".join(shown_pieces("So using the tool 'x' with")) == "So"
    assert "".join(shown_pieces("So using the tools")) == "So using the tools"
    assert "".join(shown_pieces('A ```json\n{"tool": "x", "par')) == "A"
    assert "".join(shown_pieces('A ```json\n{"tool": x,')) == 'A ```json\n{"tool": x,'
    assert "".join(shown_pieces("A ```python\nx = 1")) == "A ```python\nx = 1"


def test_text_after_a_call_is_withheld_until_the_end() -> None:
    assert "".join(shown_pieces("A time() B C")) == "A"
    assert text_and_calls("A time() B C") == (["A B C"], [("time", "{}")])
    assert text_and_calls("A\n\ntime()\n") == (["A"], [("time", "{}")])


def test_other_chunks_pass_and_a_retry_resets_the_scanner() -> None:
    usage = UsageChunk(Usage(input=3))
    assert drain_answer(
        [
            ReasoningChunk("Hm."),
            TextChunk("Half ```json"),
            RetryChunk("stream_cut", "cut"),
            TextChunk("time()"),
            usage,
        ],
        prompt=PROMPT_WITH_TOOLS,
    ) == [
        ReasoningChunk("Hm."),
        TextChunk("Half"),
        RetryChunk("stream_cut", "cut"),
        usage,
        CallChunk(0, "time", "{}", "call_2_1"),
        StopChunk("calls"),
    ]


def test_native_calls_pass_and_text_calls_follow_them() -> None:
    assert drain_answer([CallChunk(3, "weather", "{}", "a1"), TextChunk("time()")], prompt=PROMPT_WITH_TOOLS) == [
        CallChunk(3, "weather", "{}", "a1"),
        CallChunk(4, "time", "{}", "call_1_5"),
        StopChunk("calls"),
    ]
    assert drain_answer([CallChunk(0, "weather", "{}", "a1")], prompt=PROMPT_WITH_TOOLS)[-1] == StopChunk("calls")


def test_a_chunk_that_is_shown_whole_is_the_same_chunk() -> None:
    chunk = TextChunk("Hello.")
    assert drain_answer([chunk], prompt=PROMPT_WITH_TOOLS)[0] is chunk


def test_text_that_resembles_a_call_is_streamed_unchanged() -> None:
    streamed = {text: text_and_calls(text, range(len(text))) for text in NOT_CALLS}
    assert [item for item in streamed.items() if item[1] != ([item[0]] if item[0] else [], [])] == []


# ------------------------------------------------------------------------------------------------ what a model reads


def rewrite_prompt(prompt: Prompt, **options: bool) -> Prompt:
    return TextCalls(ScriptedModel(say("")), **options).rewrite(prompt)


async def test_the_model_gets_tools_calls_and_results_as_text() -> None:
    inner = ScriptedModel(say("Yes."))
    before = msgspec.json.encode(PROMPT)
    await drain_stream(TextCalls(inner), PROMPT)
    assert inner.prompts == [
        Prompt(
            messages=(
                PROMPT.messages[0],
                AssistantMessage(
                    id=MessageId("msg_1"),
                    content=(
                        Text(text="Let me look."),
                        Text(text='\n\n```json\n{"tool":"weather","parameters":{"city":"Hilo"}}\n```'),
                    ),
                ),
                UserMessage(content=(Text(text="The tool weather returned:\nrain\n\n"), Text(text="And tomorrow?"))),
            ),
            system=SYSTEM,
            options={"temperature": 0.5},
            agent="assistant",
        )
    ]
    assert msgspec.json.encode(PROMPT) == before


SYSTEM = """\
Be brief.

You can call tools. To call one, write a JSON object in a fenced block of its own:

```json
{"tool":"NAME","parameters":{"PARAMETER":"VALUE"}}
```

Write one such block for each call. "parameters" is an object and is always there, {} when there is nothing to say. \
End your answer after the calls: their results come in the next message, so never make one up. \
When you need no tool, answer without such a block.

The tools:

### weather
Return today's weather.
Parameters:
- `city` (string, required)
Example:
```json
{"tool":"weather","parameters":{"city":"text"}}
```"""


def test_the_form_of_the_instructions_is_read_as_a_call() -> None:
    assert [call.name for call in parse_tool_calls(SYSTEM, [])] == ["NAME", "weather"]


def test_calls_keep_their_position_and_invalid_ones_are_included() -> None:
    calls = (
        ToolCall(id=CallId("c1"), name="time", raw="{oh", provider_id="a1"),
        ToolCall(id=CallId("c2"), name="weather", arguments={"city": "Hilo"}),
    )
    content = (CallRef(id=CallId("c1")), Text(text="Hm."), CallRef(id=CallId("gone")))
    said = AssistantMessage(id=MessageId("m"), content=content, calls=calls)
    picture = Image(url="https://hilo.example/sky.png")
    results = ToolMessage(
        results=(
            ToolResult(call=CallId("c1"), content=(Text(text="not JSON"),), failed=True),
            ToolResult(call=CallId("c2"), content=(picture,)),
            ToolResult(call=CallId("c3")),
        )
    )
    shown = rewrite_prompt(Prompt(messages=(said, results, results)))
    assert shown.messages[0] == AssistantMessage(
        id=MessageId("m"),
        content=(
            Text(text='```json\n{"tool":"time","parameters":{"raw":"{oh"}}\n```'),
            Text(text="Hm."),
            Text(text='\n\n```json\n{"tool":"weather","parameters":{"city":"Hilo"}}\n```'),
        ),
    )
    rendered = Text(
        text="The tool time failed:\nnot JSON\n\nThe tool weather returned:\nsee above\n\n"
        "The tool that was called returned:\nnothing"
    )
    again = Text(text=f"{rendered.text}\n\n")
    assert shown.messages[1:] == (
        UserMessage(content=(picture,)),
        UserMessage(content=(again, picture)),
        UserMessage(content=(rendered,)),
    )
    assert shown.system == ""


def test_an_answer_that_is_nothing_but_calls_begins_with_one() -> None:
    said = AssistantMessage(id=MessageId("m"), calls=(ToolCall(id=CallId("c1"), name="time"),))
    twice = msgspec.structs.replace(said, calls=(*said.calls, ToolCall(id=CallId("c2"), name="fly")))
    block = '```json\n{"tool":"time","parameters":{}}\n```'
    again = '\n\n```json\n{"tool":"fly","parameters":{}}\n```'
    plain = AssistantMessage(id=MessageId("m"), content=(Text(text="Hi."),))
    empty = UserMessage(content=())
    messages = rewrite_prompt(Prompt(messages=(said, empty, empty, twice, plain))).messages
    assert messages[0] == AssistantMessage(id=MessageId("m"), content=(Text(text=block),))
    assert messages[1:] == (
        empty,
        AssistantMessage(id=MessageId("m"), content=(Text(text=block), Text(text=again))),
        plain,
    )


WIDE = ToolSpec(
    name="mcp__maps__route",
    description="Find a way.",
    layer="mcp",
    parameters={
        "type": "object",
        "properties": {
            "to": {"$ref": "#/$defs/Place", "description": "ignored"},
            "by": {"enum": ["car", "boat"], "default": "car", "description": "How."},
            "stops": {"type": "array", "items": {"$ref": "#/$defs/Place"}},
            "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "limit": {"type": ["integer", "null"]},
            "loose": True,
        },
        "required": ["to", "stops", "limit", "note", "gone"],
        "$defs": {
            "Place": {
                "type": "object",
                "description": "Where.",
                "properties": {"lat": {"type": "number"}, "open": {"type": "boolean"}, "in": {"$ref": "#/$defs/Place"}},
                "required": ["lat", "open"],
            }
        },
    },
)


def test_nested_parameters_are_described_with_their_types() -> None:
    rendered = render_tools([WIDE], include_examples=False).splitlines()
    assert rendered[:9] == [
        "### mcp__maps__route",
        "Find a way.",
        "Parameters:",
        "- `to` (object, required): Where.",
        "  - `lat` (number, required)",
        "  - `open` (boolean, required)",
        "  - `in` (object, optional): Where.",
        "    - `lat` (number, required)",
        "    - `open` (boolean, required)",
    ]
    assert [line for line in rendered if line.startswith("- `")][1:] == [
        '- `by` (one of "car", "boat", optional, default "car"): How.',
        "- `stops` (array of object, required)",
        "- `note` (string or null, required)",
        "- `limit` (integer or null, required)",
        "- `loose` (any value, optional)",
    ]
    assert len(rendered) < 60  # a recursive schema is described to some depth


def test_an_example_fits_the_parameters() -> None:
    rendered = render_tools([WIDE], include_parameters=False)
    place = {"lat": 1.5, "open": True}
    (call,) = parse_tool_calls(rendered, [])
    assert call.as_map() == {"to": place, "stops": [place], "limit": 1, "note": "text"}
    choices = ToolSpec(
        name="x",
        parameters={
            "properties": {
                "a": {"const": 5},
                "b": {"examples": ["hi"]},
                "c": {"type": "null"},
                "d": {"type": "array"},
                "e": {"properties": {}},
                "f": {"$ref": "elsewhere"},
            },
            "required": ["a", "b", "c", "d", "e", "f"],
        },
    )
    (call,) = parse_tool_calls(render_tools([choices]), [])
    assert call.as_map() == {"a": 5, "b": "hi", "c": None, "d": ["text"], "e": {}, "f": "text"}


def test_tools_are_described_in_plain_text_briefly_or_by_category() -> None:
    tools = [ToolSpec(name="time", description="Tell the time."), WIDE, ToolSpec(name="weather")]
    plain = render_tools(
        tools, include_parameters=False, include_examples=False, markdown=False, group_by_category=True
    )
    assert plain == "code:\n\nTool time\nTell the time.\n\nTool weather\n\nmaps:\n\nTool mcp__maps__route\nFind a way."
    assert render_tools([tools[0]], include_examples=False) == "### time\nTell the time.\nParameters: none"
    grouped = render_tools(tools, include_parameters=False, include_examples=False, group_by_category=True)
    assert "## maps\n\n### mcp__maps__route" in grouped
    short = rewrite_prompt(
        PROMPT_WITH_TOOLS, include_parameters=False, include_examples=False, markdown=False, group_by_category=True
    )
    assert short.system.endswith("The tools:\n\ncode:\n\nTool weather\n\nTool time\n\nTool read-file")


# ---------------------------------------------------------------------------------------------------------- tool choice


def prompt_with_choice(choice: str, **options: Any) -> Prompt:
    return msgspec.structs.replace(PROMPT_WITH_TOOLS, tool_choice=choice, options=options)


def test_without_tools_the_prompt_and_the_answer_are_unchanged() -> None:
    for prompt in (prompt_with_choice("none"), Prompt(messages=PROMPT_WITH_TOOLS.messages)):
        assert rewrite_prompt(prompt).system == ""
        assert drain_answer([TextChunk("time() "), TextChunk("```json")], prompt=prompt) == [
            TextChunk("time() "),
            TextChunk("```json"),
            StopChunk(),
        ]


def test_a_missing_required_call_is_an_error_that_may_be_retried() -> None:
    assert "Your next answer must call at least one tool." in rewrite_prompt(prompt_with_choice("required")).system
    named = rewrite_prompt(prompt_with_choice("time"))
    assert "Your next answer must call the tool time." in named.system
    assert "weather" not in named.system
    for choice, what in (("required", "a tool"), ("time", "'time'")):
        with pytest.raises(ModelUnavailable, match=f"trying had to call {what} and called none"):
            drain_answer([TextChunk("No.")], prompt=prompt_with_choice(choice))
        assert drain_answer([TextChunk("time()")], prompt=prompt_with_choice(choice))[-1] == StopChunk("calls")
        assert drain_answer([TextChunk("Once upon")], "length", prompt=prompt_with_choice(choice))[-1] == StopChunk(
            "length"
        )


def test_a_tool_choice_without_such_a_tool_is_a_bad_request() -> None:
    with pytest.raises(BadRequest, match="tool_choice 'fly' needs a tool to call; there are weather, time, read-file"):
        drain_answer([], prompt=prompt_with_choice("fly"))
    with pytest.raises(BadRequest, match="there are none"):
        drain_answer([], prompt=Prompt(messages=(), tool_choice="required"))


def test_a_limit_of_one_call_is_in_the_instructions() -> None:
    prompt = rewrite_prompt(prompt_with_choice("auto", parallel_calls=False, temperature=0.1))
    assert "Call one tool at a time." in prompt.system
    assert prompt.options == {"temperature": 0.1}


def test_the_cost_estimate_is_of_the_prompt_that_is_sent() -> None:
    class Priced(ScriptedModel):
        def estimate(self, prompt: Prompt) -> Estimate:
            return Estimate(usage=Usage(input=len(prompt.system)))

    model = TextCalls(Priced(say("")))
    assert model.estimate(PROMPT).usage.input == len(SYSTEM)


# ------------------------------------------------------------------------------------------------------ the whole way


async def test_an_agent_uses_tools_with_a_model_without_function_calling() -> None:
    seen: list[str] = []

    @vaka.tool(effect="read")
    async def weather(city: str) -> str:
        """Return today's weather."""
        seen.append(city)
        return f"rain in {city}"

    first = "Let me look.\n\n```json\n{'tool': 'weather', 'parameters': {'city': 'Hilo',}}\n```"
    inner = ScriptedModel(say(first), say("It rains."))
    store = MemoryStore()
    async with runtime(store) as rt:
        session = await rt.open(agent(TextCalls(inner), weather), id="s")
        assert (await session.run("Is it raining in Hilo?")).text == "It rains."
    assert seen == ["Hilo"]
    assert inner.prompts[1].messages[-1] == UserMessage(
        content=(Text(text="The tool weather returned:\nrain in Hilo"),)
    )
    (made,) = [event.data.call for event in await read_log(store, "s") if isinstance(event.data, ToolCalled)]
    assert (made.arguments, made.repaired) == ({"city": "Hilo"}, "single quotes; trailing comma")
