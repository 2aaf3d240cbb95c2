"""What the model sees of a conversation after its compactions, and the size of it."""

import pytest

from tests.core.session.log_harness import (
    T1,
    LogHarness,
    S,
    input_added,
    message_completed,
    scope_at,
    step_started,
    tool_called,
    tool_completed,
    turn_completed,
    turn_started,
)
from vaka.core.loop.prompt import Conversation, build_messages, turn_input_content
from vaka.core.session.log import SessionLog
from vaka.core.session.snapshot import reopen
from vaka.core.types.context import ContextCompacted, ShortenedCall
from vaka.core.types.errors import LogError
from vaka.core.types.event import Body
from vaka.core.types.ids import CallId, Digest, EventScope, TurnId
from vaka.core.types.message import (
    AssistantMessage,
    Audio,
    Content,
    Document,
    Image,
    Message,
    Reasoning,
    Stored,
    Text,
    ToolCall,
    ToolMessage,
    ToolResult,
    Usage,
    UserMessage,
    text_of,
)
from vaka.core.types.monitor import UsageRecorded
from vaka.core.types.progress import SubagentStarted, ToolCompleted
from vaka.core.types.tokens import tokens_of_content
from vaka.middleware.compaction import estimate_newer_tokens


def text(words: str) -> Content:
    return (Text(text=words),)


def texts_of(messages: tuple[Message, ...]) -> list[str]:
    return [
        " ".join(result.text for result in message.results)
        if isinstance(message, ToolMessage)
        else text_of(message.content)
        for message in messages
    ]


async def conversation_of(harness: LogHarness) -> Conversation:
    return Conversation((), (await reopen(harness.store, S)).window.events_at(()))


async def write_turn(log: SessionLog, number: int, *answers: Body) -> int:
    """Write a turn and return the seq of its ``turn.started``."""
    scope = scope_at(f"t{number}", 1)
    events = await log.append(
        scope,
        input_added(f"question {number}", f"k{number}"),
        turn_started(f"k{number}"),
        step_started(),
        *(answers or (message_completed(f"answer {number}", f"m{number}"),)),
        turn_completed(),
    )
    return next(event.seq for event in events if event.type == "turn.started")


async def test_the_prompt_is_opening_summary_kept_inputs_and_the_tail() -> None:
    harness = LogHarness()
    log = await harness.open()
    starts = [await write_turn(log, number) for number in (1, 2, 3)]
    compacted = ContextCompacted(
        summary="Much was said.", keep_from=starts[2], opening=(text("question 1"),), inputs=(text("question 2"),)
    )
    await log.append(EventScope(), compacted)
    await write_turn(log, 4)
    seen = ["question 1", "Much was said.", "question 2", "question 3", "answer 3", "question 4", "answer 4"]
    live = Conversation((), log.window.events_at(()))
    read = await conversation_of(harness)
    assert texts_of(live.messages()) == texts_of(read.messages()) == seen
    assert all(isinstance(message, UserMessage) for message in read.messages()[:3])
    assert read.seqs[:3] == (0, 0, 0)
    assert (read.turns, read.inputs) == ([3, 5], [3, 5])
    assert read.compacted is not None
    assert read.compacted.opening == (text("question 1"),)


async def test_a_compaction_without_a_summary_shortens_calls_and_keeps_all_messages() -> None:
    harness = LogHarness()
    log = await harness.open()
    long = "x" * 9_000
    await write_turn(log, 1, message_completed("", "m1"), tool_called("call_1", text=long), tool_completed(text=long))
    await write_turn(
        log, 2, message_completed("", "m2"), tool_called("call_2", text=long), tool_completed("call_2", long)
    )
    stored = Stored(blob=Digest("b" * 64), size=9_000, preview="x… read output:b", cut=True)
    first = ShortenedCall(call=CallId("call_1"), arguments={"text": "x…"}, blobs=(Digest("a" * 64),), content=(stored,))
    for body in (
        ContextCompacted(summary="", keep_from=1, calls=(first,)),
        ContextCompacted(summary="", keep_from=1, calls=(ShortenedCall(call=CallId("call_2"), content=(stored,)),)),
    ):
        await log.append(EventScope(), body)
    messages = (await conversation_of(harness)).messages()
    assert texts_of(messages)[0] == "question 1"
    [one, two] = [message for message in messages if isinstance(message, AssistantMessage)]
    assert one.calls == (ToolCall(id=CallId("call_1"), name="look", arguments={"text": "x…"}),)
    assert two.calls[0].arguments == {"text": long}
    results = [message.results[0] for message in messages if isinstance(message, ToolMessage)]
    assert [result.content for result in results] == [(stored,), (stored,)]
    with pytest.raises(LogError, match="keeps from 3, expected 1 to 1"):
        await log.append(EventScope(), ContextCompacted(summary="", keep_from=3))


async def test_old_media_become_a_note_and_newer_media_stay() -> None:
    harness = LogHarness()
    log = await harness.open()
    media: Content = (Image(data="AA=="), Audio(data="AA=="), Document(data="AA==", name="plan.pdf"))
    shown = ToolResult(call=CallId("call_1"), content=media)
    start = await write_turn(log, 1, message_completed("", "m1"), tool_called(), ToolCompleted(result=shown))
    scope = scope_at("t2", 1)
    added = input_added("look", "k2")
    await log.append(scope, type(added)(key="k2", content=media), turn_started("k2"), turn_completed())
    await log.append(EventScope(), ContextCompacted(summary="", keep_from=1, media_from=start + 3))
    messages = (await conversation_of(harness)).messages()
    [tool] = [message for message in messages if isinstance(message, ToolMessage)]
    note = "left out: it was shown earlier in the conversation"
    assert tool.results[0].text == f"[image {note}][audio {note}][document plan.pdf {note}]"
    assert messages[-1] == UserMessage(content=media)


async def test_a_turn_that_was_cut_inside_keeps_its_input_for_a_restart() -> None:
    harness = LogHarness()
    log = await harness.open()
    await log.append(T1, input_added("do it", "k1"), turn_started("k1"), step_started(), message_completed("", "m1"))
    await log.append(T1, tool_called(), tool_completed(), step_started(2))
    [message, *_] = await log.append(T1, message_completed("", "m2"), tool_called("call_2"), tool_completed("call_2"))
    body = ContextCompacted(summary="It began.", keep_from=message.seq, inputs=(text("do it"),))
    await log.append(T1, body, step_started(3))
    opened = await reopen(harness.store, S)
    assert texts_of(build_messages(opened.window.events_at(()))) == ["It began.", "do it", "", "done"]
    assert turn_input_content(opened.window.events_at(()), (), TurnId("t1")) == text("do it")
    assert [event.seq for event in opened.window.events] == [event.seq for event in log.window.events]


async def test_the_size_is_what_the_provider_reported_and_an_estimate_of_newer_messages() -> None:
    harness = LogHarness()
    log = await harness.open()
    usage = UsageRecorded(model="m", usage=Usage(input=900, output=100, cache_read=500), agent="a")
    of_a_tool = UsageRecorded(model="m", usage=Usage(input=7, output=7), agent="WebFetch", number=1)
    await log.append(T1, input_added("q" * 40), turn_started("k"), step_started(), message_completed("hi"), usage)
    assert log.state.contexts[""].tokens == 1000
    reported = log.state.contexts[""].seq
    conversation = await conversation_of(harness)
    assert (estimate_newer_tokens(conversation), estimate_newer_tokens(conversation, reported)) == (11, 0)
    await log.append(T1, tool_called(), tool_completed(text="r" * 400), of_a_tool)
    conversation = await conversation_of(harness)
    assert log.state.contexts[""].tokens == 1000
    assert estimate_newer_tokens(conversation, reported) == 100
    await log.append(T1, turn_completed())
    await write_turn(log, 2)
    assert estimate_newer_tokens(await conversation_of(harness), reported) == 100 + 3 + 2
    await log.append(EventScope(), ContextCompacted(summary="s", keep_from=log.head))
    assert log.state.contexts == {}


async def test_the_size_of_a_child_is_its_own_and_ends_with_it() -> None:
    log = await LogHarness().open()
    below = scope_at("t1", 1, ("agent-1",))
    await log.append(T1, input_added("q"), turn_started("k"), step_started(), message_completed("hi"), tool_called())
    started = SubagentStarted(call=CallId("call_1"), agent="c", child="agent-1", content=text("help"))
    usage = UsageRecorded(model="m", usage=Usage(input=90, output=10), agent="c")
    await log.append(T1, started)
    await log.append(below, step_started(agent="c"), message_completed("yes", "m2"), usage)
    assert log.state.contexts["agent-1"].tokens == 100
    await log.append(T1, tool_completed())
    assert log.state.contexts == {}


def test_an_estimate_counts_reasoning_stored_texts_and_characters_of_more_than_one_byte() -> None:
    assert tokens_of_content((Reasoning(text="r" * 40),)) == 10
    assert tokens_of_content((Reasoning(opaque={"anthropic": "x" * 40}),)) > 10
    assert tokens_of_content((Stored(blob=Digest("b"), size=4_000, preview="x"),)) == 1_000
    assert tokens_of_content((Stored(blob=Digest("b"), size=4_000, preview="x" * 8, cut=True),)) == 2
    assert tokens_of_content(text("会话很长" * 10)) == 30
