"""Requests of a conversation: old bytes and new bytes, equal to those of a conversation that is written at once."""

import gc
import re
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.models.conversations import THOUGHTS, WIRES, conversation, exchange
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
from vaka.models.catalog import PriceList
from vaka.models.compatibility import HistoryAdapter
from vaka.models.prefixes import WINDOW
from vaka.models.text_calls.model import TextCalls, write_calls_as_text
from vaka.models.tokens import TokenCounter, estimate_prompt_tokens
from vaka.models.wrappers.meter import MeteredModel
from vaka.testing.models import ScriptedModel

TEXTS = st.sampled_from(["", " ", "a", "end  ", 'é\x00"', "long " * 9])
PARTS: st.SearchStrategy[Part] = st.one_of(
    TEXTS.map(lambda text: Text(text=text)),
    st.sampled_from(
        [
            Image(data="iVBORw0KGgoAAA"),
            Document(data="YQ==", media_type="text/plain", name="a.txt"),
            Document(data="JVBERi0x"),
            Stored(blob=Digest("d"), size=9, preview="Once"),
            Audio(data="SUQzAw"),
        ]
    ),
)
CONTENTS: st.SearchStrategy[Content] = st.lists(PARTS, max_size=3).map(tuple)
CALLS = st.builds(
    ToolCall,
    id=st.sampled_from([CallId(f"call_{number}") for number in range(6)]),
    name=st.sampled_from(["read", "a b"]),
    arguments=st.sampled_from([{"a": 1}, {"a": True, "b": {}}]),
    raw=st.sampled_from(["", "[1]", "{"]),
    provider_id=st.sampled_from(["", "toolu_1", "c00000001", "p 1", "gen-1"]),
)
OWN_ITEMS = st.sampled_from(
    [
        *THOUGHTS,
        Reasoning(opaque={"openai": {"type": "custom_tool_call", "call_id": "x"}}),
        Reasoning(opaque={"openai": {"type": "custom_tool_call_output", "call_id": "x", "output": ""}}),
    ]
)
ANSWERS = st.builds(
    AssistantMessage,
    id=st.just(MessageId("m")),
    content=st.lists(
        TEXTS.map(lambda text: Text(text=text)) | OWN_ITEMS | CALLS.map(lambda call: CallRef(id=call.id)), max_size=4
    ).map(tuple),
    calls=st.lists(CALLS, max_size=2, unique_by=lambda call: call.id).map(tuple),
    model=st.sampled_from(["", "claude-sonnet-5-5", "gemini-2.5-pro"]),
    stop=st.sampled_from(["end", "calls", "pause"]),
)
RESULTS = st.builds(
    ToolResult,
    call=st.sampled_from([CallId(f"call_{number}") for number in range(7)]),
    content=CONTENTS,
    failed=st.booleans(),
)
MESSAGES: st.SearchStrategy[Message] = st.one_of(
    CONTENTS.map(lambda content: UserMessage(content=content)),
    ANSWERS,
    st.lists(RESULTS, max_size=2).map(lambda results: ToolMessage(results=tuple(results))),
)


class Change(msgspec.Struct, frozen=True):
    """A change from the messages of a prompt to those of the next: some are replaced, others follow."""

    start: int | None = None
    replaced: int = 0
    new: tuple[Message, ...] = ()
    exchanges: int = 0

    def apply(self, messages: tuple[Message, ...]) -> tuple[Message, ...]:
        start = len(messages) if self.start is None else self.start
        end = len(messages) if start < 0 else start + self.replaced
        added = [message for number in range(self.exchanges) for message in exchange(100 + 9 * len(messages) + number)]
        return (*messages[:start], *self.new, *messages[end:], *added)


NEW_MESSAGES: st.SearchStrategy[tuple[Message, ...]] = st.lists(MESSAGES, max_size=2).map(tuple)
CHANGES = st.one_of(
    st.builds(Change, exchanges=st.integers(1, 4)),
    st.builds(Change, new=NEW_MESSAGES),
    st.builds(Change, start=st.integers(-WINDOW - 2, -1), new=NEW_MESSAGES),
    st.builds(Change, start=st.integers(0, 9), replaced=st.integers(0, 2), new=NEW_MESSAGES),
)
OPTIONS: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [
        {},
        {},
        {"cache": False},
        {"extra": {"x": {"cache_control": {}}, "y": [{"cache_control": {}}] * 2}},
        {"extra": {"messages": [], "input": [], "contents": []}},
        {"reasoning": "low"},
    ]
)


def outcome(write: Callable[[Prompt], bytes], prompt: Prompt) -> bytes | str:
    try:
        return write(prompt)
    except BadRequest as error:
        return str(error)


@pytest.mark.parametrize("name", WIRES)
@given(st.lists(st.tuples(CHANGES, OPTIONS), min_size=1, max_size=12), st.sampled_from(["", "s"]))
def test_a_request_has_the_bytes_of_a_conversation_that_is_written_at_once(
    name: str, changes: list[tuple[Change, dict[str, Any]]], session: str
) -> None:
    wire, messages = WIRES[name], conversation(5)
    memo = wire.new_memo()
    for change, options in changes:
        messages = change.apply(messages)
        prompt = Prompt(messages=messages, system="Be brief.", options=options, session=session)
        plain = outcome(lambda prompt: msgspec.json.encode(wire.write(prompt, None)), prompt)
        assert outcome(lambda prompt: wire.encode(prompt, memo), prompt) == plain


@given(st.lists(CHANGES, min_size=1, max_size=12))
def test_messages_with_calls_as_text_equal_those_that_are_written_at_once(
    changes: list[Change],
) -> None:
    model = TextCalls(ScriptedModel({"text": "Hi."}))
    counter = TokenCounter()
    messages = conversation(5)
    for change in changes:
        messages = change.apply(messages)
        prompt = Prompt(messages=messages, session="s")
        assert model.rewrite(prompt).messages == write_calls_as_text(messages)
        assert counter.count(prompt) == estimate_prompt_tokens(prompt)


@given(st.lists(CHANGES, min_size=1, max_size=12))
def test_an_adapted_history_equals_that_of_a_new_adapter(
    changes: list[Change],
) -> None:
    def refuse_audio(part: object) -> None:
        if isinstance(part, Audio):
            raise BadRequest("no audio")

    kept, messages = HistoryAdapter("m", "https://a.example", refuse_audio), conversation(5)
    for change in changes:
        messages = change.apply(messages)
        prompt = Prompt(messages=messages)
        assert kept.adapt(prompt) == HistoryAdapter("m", "https://a.example", refuse_audio).adapt(prompt)


def test_an_adapted_message_is_the_same_object_in_the_next_prompt() -> None:
    foreign = Reasoning(text="hm", opaque={"anthropic": {"type": "thinking"}, "from": "elsewhere"})
    history = HistoryAdapter("m", "https://a.example", lambda part: part)
    messages = (*exchange(1), AssistantMessage(id=MessageId("m"), content=(foreign, Text(text="a"))), *exchange(2))
    first, _ = history.adapt(Prompt(messages=messages))
    second, _ = history.adapt(Prompt(messages=(*messages, *exchange(3))))
    assert first.messages[4] != messages[4]
    assert all(map(lambda old, new: old is new, first.messages, second.messages))


@pytest.mark.parametrize("name", WIRES)
def test_a_request_begins_with_the_bytes_of_the_one_before(name: str) -> None:
    wire, memo = WIRES[name], WIRES[name].new_memo()
    before = b""
    for count in (1, 3, 5, 7, 21, 23, 40 * 4 + 1):
        prompt = Prompt(messages=conversation(count), system="Be brief.", options={"cache": False}, session="s")
        body = wire.encode(prompt, memo)
        items = msgspec.json.encode(msgspec.json.decode(body)[wire.field]).removesuffix(b"]")
        start = body.index(b'"%b":' % wire.field.encode())
        assert body.startswith(before)
        before = body[: body.index(items, start) + len(items)]


def test_cache_marks_are_set_at_the_end_of_the_prefix_that_the_next_request_shares() -> None:
    wire, messages = WIRES["anthropic"], conversation(41)
    memo = wire.new_memo()
    bodies = [wire.encode(Prompt(messages=messages[:count], session="s"), memo) for count in (37, 39, 41)]
    for body, following in pairwise(bodies):
        assert body.count(b"cache_control") == 3
        assert following.startswith(body[: body.index(b',"cache_control"')])
        unmarked = following.replace(b',"cache_control":{"type":"ephemeral"}', b"")
        assert unmarked.startswith(body.replace(b',"cache_control":{"type":"ephemeral"}', b"").removesuffix(b"]}"))
        marked, marked_next = (re.findall(rb"content (\d+)|file (\d+)", one)[-3:] for one in (body, following))
        assert marked[1:] == marked_next[:-1]


def count_calls(function: Callable[[], object]) -> int:
    """Return how many functions, of Python and of C, are called."""
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    gc.disable()  # Hypothesis has callbacks that run with each collection
    sys.setprofile(count)
    try:
        function()
    finally:
        sys.setprofile(before)
        gc.enable()
    return calls


def calls_of_next(write: Callable[[Prompt], object], count: int) -> int:
    """Return the function calls of the prompt that adds four messages to ``count``."""
    messages = conversation(count + 4)
    for end in range(1, count + 1, 4):
        write(Prompt(messages=messages[:end], session="s"))
    return count_calls(lambda: write(Prompt(messages=messages, session="s")))


@pytest.mark.parametrize("name", WIRES)
def test_a_request_costs_only_its_new_messages(name: str) -> None:
    wire = WIRES[name]
    short = WIRES[name].new_memo()
    long = WIRES[name].new_memo()
    new = calls_of_next(lambda prompt: wire.encode(prompt, short), 41)
    assert calls_of_next(lambda prompt: wire.encode(prompt, long), 401) == new
    assert new * 10 < calls_of_next(lambda prompt: wire.encode(prompt), 401)


@pytest.mark.parametrize(
    "new",
    [
        lambda: HistoryAdapter("m", "", lambda part: part).adapt,
        lambda: TextCalls(ScriptedModel({"text": "Hi."})).rewrite,
        lambda: TokenCounter().count,
        lambda: MeteredModel(ScriptedModel({"text": "Hi."}), PriceList({})).estimate,
    ],
)
def test_adapting_and_counting_cost_only_the_new_messages(new: Callable[[], Callable[[Prompt], object]]) -> None:
    assert calls_of_next(new(), 401) == calls_of_next(new(), 41)


def test_an_unchanged_tool_list_is_not_counted_again() -> None:
    tools = tuple(ToolSpec(name=f"tool_{number}", description="Do it.") for number in range(500))
    metered = MeteredModel(ScriptedModel({"text": "Hi."}), PriceList({}))
    for count in (TokenCounter().count, metered.estimate):
        for end, list_, is_counted in ((1, tools, True), (5, tools, False), (5, tools[1:], True)):
            prompt = Prompt(messages=conversation(end), tools=list_, session="s")
            assert (count_calls(partial(count, prompt)) > 500) == is_counted


def test_a_reminder_at_the_end_of_each_prompt_does_not_cost_the_old_messages() -> None:
    wire, memo = WIRES["chat"], WIRES["chat"].new_memo()

    def write(prompt: Prompt) -> bytes:
        reminder = UserMessage(content=(Text(text="Remember."),))
        return wire.encode(msgspec.structs.replace(prompt, messages=(*prompt.messages, reminder)), memo)

    assert calls_of_next(write, 401) < 400


def test_a_message_that_cannot_be_encoded_is_reported_when_the_request_is_sent() -> None:
    wire, memo = WIRES["chat"], WIRES["chat"].new_memo()
    prompt = Prompt(messages=(UserMessage(content=(Text(text="\ud800"),)),))
    body = wire.write(prompt, memo)
    assert body["messages"] == [{"role": "user", "content": "\ud800"}]
    assert len(memo) == 0


def test_a_conversation_that_is_too_long_is_written_and_not_kept() -> None:
    wire = WIRES["anthropic"]
    memo = wire.new_memo(max_conversation_size=20_000)
    prompt = Prompt(messages=(UserMessage(content=(Text(text="long" * 10_000),)),))
    assert wire.encode(prompt, memo) == wire.encode(prompt)
    assert (len(memo), memo.size) == (0, 0)


def test_threads_that_share_a_memo_get_the_bytes_of_their_conversations() -> None:
    wire, memo = WIRES["anthropic"], WIRES["anthropic"].new_memo()
    conversations = [conversation(60) for _ in range(4)]

    def write_all(number: int) -> bool:
        messages, session = conversations[number % 4], f"s{number % 4}"
        prompts = [Prompt(messages=messages[:count], session=session) for count in range(1, 60)]
        return all(wire.encode(prompt, memo) == wire.encode(prompt) for prompt in prompts)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(write_all, range(16)))
    assert len(memo) == 4
