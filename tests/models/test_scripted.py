"""The scripted model: line n answers call n, exactly as written."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from vaka.core.ports.model import (
    DEFAULT_CONTEXT_WINDOW,
    CallChunk,
    Prompt,
    ReasoningChunk,
    StopChunk,
    TextChunk,
    UsageChunk,
    context_window_of,
)
from vaka.core.types.errors import ConfigError, ContextTooLong, ModelRefused, ModelUnavailable
from vaka.core.types.ids import CallId, MessageId
from vaka.core.types.message import AssistantMessage, Text, ToolCall, ToolMessage, ToolResult, Usage, UserMessage
from vaka.core.types.tool import ToolSpec
from vaka.models.scripted import MAX_FILE_BYTES, Scripted
from vaka.testing.clock import FakeClock
from vaka.testing.models import PROMPT, collect_stream, drain_stream


def prompt_of(number: int = 1, *, agent: str = "root", path: tuple[str, ...] = (), **more: Any) -> Prompt:
    return Prompt(messages=(), number=number, agent=agent, path=path, **more)


def write_script(folder: Path, *lines: str) -> Path:
    path = folder / "script.jsonl"
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


async def answer_text(model: Scripted, number: int = 1, *, agent: str = "root", path: tuple[str, ...] = ()) -> str:
    return (await collect_stream(model, prompt_of(number, agent=agent, path=path))).text


async def refusal_of(model: Scripted, asked: Prompt) -> str:
    with pytest.raises(ModelRefused) as caught:
        await drain_stream(model, asked)
    return str(caught.value)


def config_error_of(*lines: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        Scripted(lines)
    return str(caught.value)


# -------------------------------------------------------------------------------- what a line says


async def test_a_text_is_split_between_words_and_keeps_its_blanks() -> None:
    chunks = await drain_stream(Scripted([{"text": "  It will\n rain. "}]), prompt_of())
    assert [c.text for c in chunks if isinstance(c, TextChunk)] == ["  ", "It ", "will\n ", "rain. "]


async def test_a_long_text_comes_in_a_few_pieces() -> None:
    text = "word " * 1000
    chunks = [c for c in await drain_stream(Scripted([{"text": text}]), prompt_of()) if isinstance(c, TextChunk)]
    assert len(chunks) == 20
    assert "".join(c.text for c in chunks) == text


async def test_chunks_come_as_they_are_written() -> None:
    chunks = await drain_stream(Scripted([{"chunks": ["He", "", "llo"]}]), prompt_of())
    assert chunks == [
        TextChunk("He"),
        TextChunk(""),
        TextChunk("llo"),
        UsageChunk(Usage(input=0, output=2)),
        StopChunk("end"),
    ]


async def test_reasoning_comes_before_the_text() -> None:
    chunks = await drain_stream(Scripted([{"reasoning": "Wet side.", "text": "Yes."}]), prompt_of())
    assert chunks[:3] == [ReasoningChunk("Wet "), ReasoningChunk("side."), TextChunk("Yes.")]


async def test_calls_come_after_the_text_with_ids_of_their_own() -> None:
    line = {
        "text": "Look.",
        "tool_calls": [
            {"name": "a", "arguments": {"x": [1, None]}},
            {"name": "b", "arguments": '{"x": ', "id": "me"},
            {"name": "c"},
        ],
    }
    chunks = await drain_stream(Scripted([{"text": "-"}, line]), prompt_of(2))
    assert chunks[:4] == [
        TextChunk("Look."),
        CallChunk(0, "a", '{"x":[1,null]}', "scripted-2-1"),
        CallChunk(1, "b", '{"x": ', "me"),
        CallChunk(2, "c", "{}", "scripted-2-3"),
    ]
    assert chunks[-1] == StopChunk("calls")


async def test_stop_is_the_stop_reason_of_the_answer() -> None:
    assert (await drain_stream(Scripted([{"text": "a", "stop": "length"}]), prompt_of()))[-1] == StopChunk("length")


async def test_usage_is_taken_from_the_line() -> None:
    tokens = {"input": 1, "output": 2, "cache_read": 3, "cache_write": 4, "reasoning": 5, "cost": 0.5}
    assert (await collect_stream(Scripted([{"text": "a", "usage": tokens}]), prompt_of())).usage == Usage(**tokens)  # type: ignore[arg-type]  # as in a file


async def test_usage_not_given_is_a_quarter_of_the_characters_the_same_each_time() -> None:
    model = Scripted([{"reasoning": "1234", "text": "12345678", "tool_calls": [{"name": "ab", "arguments": {}}]}])
    asked = msgspec.structs.replace(
        prompt_of(system="1234"),
        tools=(ToolSpec(name="1234", description="1234"),),
        messages=(
            UserMessage(content=(Text(text="1234"),)),
            AssistantMessage(
                id=MessageId("msg_1"),
                content=(Text(text="1234"),),
                calls=(
                    ToolCall(id=CallId("call_1"), name="1234", arguments={"a": 1}),
                    ToolCall(id=CallId("call_2"), name="1234", raw="1234"),
                ),
            ),
            ToolMessage(results=(ToolResult(call=CallId("call_1"), content=(Text(text="1234"),)),)),
        ),
    )
    first, second = (await collect_stream(model, asked)).usage, (await collect_stream(model, asked)).usage
    assert first == second == Usage(input=(4 * 9 + 7 + 3) // 4, output=4, reasoning=1)


async def test_an_empty_text_is_an_answer() -> None:
    assert await drain_stream(Scripted([{"text": ""}]), prompt_of()) == [UsageChunk(Usage()), StopChunk("end")]


# -------------------------------------------------------------------------------- what goes wrong


@pytest.mark.parametrize("status", [408, 409, 429, 500, 503, 529])
async def test_a_transient_error_is_model_unavailable(status: int) -> None:
    model = Scripted([{"error": {"status": status, "message": "busy", "retry_after": 2.5}}])
    with pytest.raises(ModelUnavailable) as caught:
        await drain_stream(model, prompt_of())
    assert (caught.value.status, caught.value.retry_after) == (status, 2.5)
    assert str(caught.value) == f"busy (status {status})"


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (400, "no (status 400)"),
        (401, "authentication failed: no (status 401)"),
        (403, "authentication failed: no (status 403)"),
        (404, "no (status 404)"),
    ],
)
async def test_a_permanent_error_is_model_refused(status: int, message: str) -> None:
    assert await refusal_of(Scripted([{"error": {"status": status, "message": "no"}}]), prompt_of()) == message


async def test_an_answer_may_fail_after_its_first_piece() -> None:
    stream = Scripted([{"chunks": ["He"], "error": {"status": 529}}]).stream(prompt_of())
    assert await anext(stream) == TextChunk("He")
    with pytest.raises(ModelUnavailable, match="status 529"):
        await anext(stream)


@pytest.mark.parametrize(("after", "left"), [(0, []), (1, ["He"]), (2, ["He", "llo"]), (9, ["He", "llo"])])
async def test_a_cut_answer_has_no_end_marker_and_loses_its_calls(after: int, left: list[str]) -> None:
    line = {"chunks": ["He", "llo"], "cut_after": after, "tool_calls": [{"name": "a"}]}
    assert await drain_stream(Scripted([line]), prompt_of()) == [TextChunk(piece) for piece in left]


async def test_a_text_is_cut_between_words() -> None:
    assert await drain_stream(Scripted([{"text": "one two", "cut_after": 1}]), prompt_of()) == [TextChunk("one ")]


async def test_a_stall_alone_ends_in_a_cut() -> None:
    clock = FakeClock(auto=True)
    assert await drain_stream(Scripted([{"stall": 30}], clock=clock), prompt_of()) == []
    assert clock.monotonic() == 30


async def test_after_a_stall_the_rest_of_the_line_follows() -> None:
    clock = FakeClock(auto=True)
    model = Scripted([{"stall": 30, "text": "Sorry."}, {"stall": 5, "error": {"status": 400}}], clock=clock)
    assert await answer_text(model) == "Sorry."
    await refusal_of(model, prompt_of(2))
    assert clock.monotonic() == 35


async def test_a_delay_is_before_the_first_chunk() -> None:
    clock = FakeClock()
    stream = Scripted([{"text": "a b", "delay": 2}], clock=clock).stream(prompt_of())
    first = asyncio.ensure_future(anext(stream))
    await clock.wait_for_sleeps()
    clock.advance(1.9)
    await asyncio.sleep(0)
    assert not first.done()
    clock.advance(0.1)
    assert await first == TextChunk("a ")
    assert await anext(stream) == TextChunk("b")
    await stream.aclose()


async def test_a_delay_without_a_clock_uses_real_time() -> None:
    assert await answer_text(Scripted([{"text": "a", "delay": 0.001}])) == "a"


async def test_other_tasks_run_between_two_pieces() -> None:
    order: list[str] = []

    async def read(name: str) -> None:
        stream = Scripted([{"chunks": ["1", "2"]}]).stream(prompt_of())
        for _ in range(2):
            await anext(stream)
            order.append(name)
        await stream.aclose()

    await asyncio.gather(read("a"), read("b"))
    assert order == ["a", "b", "a", "b"]


# -------------------------------------------------------------------------------- which line


async def test_line_n_answers_call_n_however_often_it_is_asked() -> None:
    model = Scripted([{"text": "one"}, {"text": "two"}])
    assert [await answer_text(model, n) for n in (2, 1, 1, 2)] == ["two", "one", "one", "two"]


async def test_a_call_after_the_last_line_is_refused() -> None:
    model = Scripted([{"text": "one"}, {"text": "two"}], name="demo")
    assert await refusal_of(model, prompt_of(3)) == (
        "scripted model demo has 2 lines for agent 'root', call 3 has none; add a line or \"repeat\": true"
    )
    assert "has 1 line for agent 'root', call 7 has none" in await refusal_of(Scripted([{"text": "one"}]), prompt_of(7))
    assert "has 0 lines for agent 'root'" in await refusal_of(Scripted([]), prompt_of())


async def test_the_last_line_can_repeat() -> None:
    model = Scripted([{"text": "one"}, {"text": "more", "repeat": True}])
    assert [await answer_text(model, n) for n in (1, 2, 3, 99)] == ["one", "more", "more", "more"]


async def test_agents_have_lists_of_their_own() -> None:
    model = Scripted(
        [
            {"text": "root 1"},
            {"text": "child 1", "agent": "child"},
            {"text": "root 2"},
            {"text": "child 2", "agent": "child", "repeat": True},
        ]
    )
    assert [await answer_text(model, n) for n in (1, 2)] == ["root 1", "root 2"]
    assert [await answer_text(model, n, agent="child", path=("agent-1",)) for n in (1, 2, 3)] == [
        "child 1",
        "child 2",
        "child 2",
    ]
    assert await answer_text(model, 1, agent="child", path=("agent-1", "agent-4")) == "child 1"


async def test_a_root_agent_with_lines_of_its_own_uses_those() -> None:
    model = Scripted([{"text": "anyone"}, {"text": "mine", "agent": "root"}])
    assert await answer_text(model, 1) == "mine"
    assert await answer_text(model, 1, agent="other") == "anyone"
    assert "has 1 line for agent 'root', call 2 has none" in await refusal_of(model, prompt_of(2))


async def test_a_child_without_lines_is_refused_with_a_hint() -> None:
    text = await refusal_of(Scripted([{"text": "root"}], name="demo"), prompt_of(agent="child", path=("agent-1",)))
    assert text == 'scripted model demo has no lines for agent \'child\'; add lines with "agent": "child"'


# -------------------------------------------------------------------------------- expectations


@pytest.mark.parametrize(
    "expect",
    [
        {},
        {"last_user_contains": "tomorrow"},
        {"last_user_contains": ["And", "tomorrow?"]},
        {"tools_include": ["weather"]},
        {"tools_include": "weather"},
        {"messages_at_least": 4},
    ],
)
async def test_a_prompt_as_expected_is_answered(expect: dict[str, Any]) -> None:
    assert (await collect_stream(Scripted([{"text": "Yes.", "expect": expect}]), PROMPT)).text == "Yes."


@pytest.mark.parametrize(
    ("expect", "message"),
    [
        ({"last_user_contains": "rain"}, "a last user message that contains 'rain'; it is 'And tomorrow?'"),
        ({"last_user_contains": ["And", "x"]}, "a last user message that contains 'x'; it is 'And tomorrow?'"),
        ({"tools_include": ["weather", "fly"]}, "a tool 'fly'; there are weather"),
        ({"messages_at_least": 5}, "at least 5 messages; there are 4"),
    ],
)
async def test_a_prompt_that_was_not_expected_is_refused(tmp_path: Path, expect: dict[str, Any], message: str) -> None:
    path = write_script(tmp_path, "", msgspec.json.encode({"text": "Yes.", "expect": expect}).decode())
    assert await refusal_of(Scripted(path), PROMPT) == f"scripted model {path}:2 expected {message}"


async def test_an_expectation_error_describes_an_empty_prompt() -> None:
    assert "a last user message that contains 'x'; there is none" in await refusal_of(
        Scripted([{"text": "", "expect": {"last_user_contains": "x"}}]), prompt_of()
    )
    assert "a tool 'x'; there are none" in await refusal_of(
        Scripted([{"text": "", "expect": {"tools_include": ["x"]}}]), prompt_of()
    )
    long = msgspec.structs.replace(prompt_of(), messages=(UserMessage(content=(Text(text="y" * 5000),)),))
    assert len(await refusal_of(Scripted([{"text": "", "expect": {"last_user_contains": "x"}}]), long)) < 400


# -------------------------------------------------------------------------------- files


async def test_a_file_is_read_at_once_and_blank_lines_do_not_count(tmp_path: Path) -> None:
    path = write_script(tmp_path, "\ufeff", '{"text": "one"}', "   ", '{"text": "two\u2028"}\r', "")
    model = Scripted(path)
    path.unlink()
    assert [await answer_text(model, n) for n in (1, 2)] == ["one", "two\u2028"]
    assert model.name == "scripted"


async def test_a_path_can_be_a_string(tmp_path: Path) -> None:
    model = Scripted(str(write_script(tmp_path, '{"text": "one"}')), name="mine")
    assert (await answer_text(model), model.name) == ("one", "mine")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"text": ', "not JSON: Input data was truncated"),
        ("# a comment", "not JSON: JSON is malformed"),
        pytest.param("[" * 100_000, "not JSON: maximum recursion depth", id="deep"),
        ('["text"]', "a line must be an object"),
        ('"text"', "a line must be an object"),
        ('{"txt": "a"}', "unknown key 'txt'; did you mean 'text'?"),
        ('{"zzz": "a"}', "unknown key 'zzz'; the keys are text, chunks,"),
        ('{"tool_calls": [{"name": "a", "args": {}}]}', "'args' in 'tool_calls'; did you mean 'arguments'?"),
        ('{"error": {"satus": 500}}', "unknown key 'satus' in 'error'; did you mean 'status'?"),
        ('{"text": "", "usage": {"inputs": 5}}', "unknown key 'inputs' in 'usage'; did you mean 'input'?"),
        ('{"text": "", "expect": {"tools": 5}}', "unknown key 'tools' in 'expect'; "),
        ('{"text": 5}', "Expected `str | null`, got `int` - at `$.text`"),
        ('{"chunks": "a"}', "Expected `array | null`, got `str` - at `$.chunks`"),
        ('{"tool_calls": 5}', "Expected `array`, got `int` - at `$.tool_calls`"),
        ('{"tool_calls": [5]}', "Expected `object`, got `int`"),
        ('{"tool_calls": [{"name": "a", "arguments": []}]}', "got `array` - at `$.tool_calls[0].arguments`"),
        ('{"tool_calls": [{}]}', "missing required field `name`"),
        ('{"error": {}}', "missing required field `status`"),
        ('{"error": {"status": 7}}', "Expected `int` >= 100"),
        ('{"error": 5}', "Expected `object | null`, got `int` - at `$.error`"),
        ('{"stall": -1}', "Expected `float` >= 0"),
        ('{"stall": true}', "Expected `float | null`, got `bool`"),
        ('{"text": "", "usage": {"input": -1}}', "Expected `int` >= 0"),
        ('{"text": "", "agent": ""}', "Expected `str` of length >= 1"),
        ('{"text": "a", "chunks": ["a"]}', "'text' and 'chunks' exclude each other"),
        ('{"cut_after": 1, "reasoning": "a"}', "'cut_after' needs 'chunks'"),
        ("{}", "the line has no answer"),
        ('{"delay": 1, "stop": "end"}', "the line has no answer"),
    ],
)
def test_an_invalid_line_is_an_error_with_its_place(tmp_path: Path, line: str, message: str) -> None:
    path = write_script(tmp_path, '{"text": "one"}', "", line)
    with pytest.raises(ConfigError) as caught:
        Scripted(path)
    assert str(caught.value).startswith(f"{path}:3: ")
    assert message in str(caught.value)


def test_invalid_utf8_is_an_error_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "script.jsonl"
    path.write_bytes(b'{"text": "one"}\n{"text": "\xff"}\n')
    with pytest.raises(ConfigError, match=r"script\.jsonl:2: not JSON: 'utf-8' codec"):
        Scripted(path)


def test_repeat_is_for_the_last_line_of_a_list() -> None:
    assert config_error_of({"text": "a", "repeat": True}, {"text": "b"}) == (
        'scripted:1: "repeat" is for the last line of an agent; scripted:2 follows'
    )
    Scripted([{"text": "a", "repeat": True}, {"text": "b", "agent": "x", "repeat": True}])


def test_data_that_is_not_plain_is_refused_at_once() -> None:
    assert config_error_of({"tool_calls": [{"name": "a", "arguments": {"x": object()}}]}).startswith("scripted:1: ")
    assert "surrogates" in config_error_of({"tool_calls": [{"name": "a", "arguments": {"x": "\ud800"}}]})


def test_a_missing_empty_or_too_large_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.jsonl cannot be read: No such file"):
        Scripted(tmp_path / "none.jsonl")
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        Scripted(tmp_path)
    with pytest.raises(ConfigError, match="no lines"):
        Scripted(write_script(tmp_path, "", "  "))
    path = tmp_path / "large.jsonl"
    path.write_bytes(b" " * (MAX_FILE_BYTES + 1))
    with pytest.raises(ConfigError, match="larger than 10 MB"):
        Scripted(path)


async def test_a_line_with_a_context_window_limits_the_prompts_and_answers_no_call() -> None:
    model = Scripted([{"context_window": 20}, {"text": "Yes.", "repeat": True}])
    assert context_window_of(model) == 20
    assert await answer_text(model) == "Yes."
    with pytest.raises(ContextTooLong, match="the prompt has 25 tokens, the window of scripted 20"):
        await drain_stream(model, prompt_of(system="x" * 100))
    assert context_window_of(Scripted([{"text": "Yes."}])) == DEFAULT_CONTEXT_WINDOW
    assert "must be alone in its line" in config_error_of({"context_window": 20, "text": "Yes."})
    assert "context_window" in config_error_of({"context_window": 0})
