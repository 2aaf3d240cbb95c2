"""Chat completions of whole runs and of events that come in another order, and the requests of OpenAI's clients."""

from collections.abc import Iterable
from typing import Any, Literal

import msgspec
import pytest
from inline_snapshot import snapshot

import vaka
from tests.views import recorded_runs as runs
from tests.views.openai_clients import check, join_texts, read_with_client
from vaka.content import AssistantMessage, Audio, Document, Image, Text, ToolCall, ToolMessage, ToolResult, UserMessage
from vaka.core.types.body import BODY_TYPES
from vaka.core.types.control import ApprovalResolved
from vaka.core.types.ids import CallId, DecisionId, SessionId, TurnId
from vaka.errors import InvalidInput
from vaka.testing import ScriptedModel, say
from vaka.views.chat_input import parse_reply
from vaka.views.openai import DONE, ChatEncoder, to_completion, to_sse
from vaka.views.openai_requests import parse_chat_request


def decided(decision: Literal["approve", "reject"], approval: str = "", message: str = "") -> ApprovalResolved:
    return ApprovalResolved(approval=DecisionId(approval), decision=decision, message=message)


def encode(events: Iterable[vaka.Event], encoder: ChatEncoder | None = None, **options: Any) -> list[dict[str, Any]]:
    encoder = encoder or ChatEncoder(**options)
    chunks = [chunk for event in events for chunk in encoder.encode(event)]
    for chunk in chunks:
        if "error" not in chunk:
            check("ChatCompletionChunk", chunk)
    return chunks


def made(type: str, /, path: tuple[str, ...] = (), **fields: Any) -> vaka.Event:
    """Return a live event of the turn ``t``."""
    body = msgspec.convert(fields, BODY_TYPES[type])
    return vaka.Event(data=body, session=SessionId("s"), ts="", turn=TurnId("t"), path=path)


def text(message: str, offset: int, text: str, block: int = 0) -> vaka.Event:
    return made("text.delta", message_id=message, block=block, offset=offset, text=text)


def completed(message: str, *texts: str, stop: str = "end") -> vaka.Event:
    content = [{"type": "text", "text": text} for text in texts]
    return made("message.completed", message_id=message, content=content, stop=stop)


def deltas(chunks: Iterable[dict[str, Any]]) -> list[Any]:
    """Return the deltas, the last one with its ``finish_reason``, or the error."""
    shown: list[Any] = []
    for chunk in chunks:
        if "error" in chunk:
            shown.append((chunk["error"]["code"], chunk["error"]["message"]))
        shown += [choice["delta"] or choice["finish_reason"] for choice in chunk.get("choices", ())]
    return shown


async def test_openais_client_reads_a_run_with_reasoning_and_tools() -> None:
    events = await runs.record_tools()
    chunks = encode(events, include_usage=True, reasoning=True)

    def read(client: Any) -> Any:
        with client.chat.completions.stream(model="m", messages=[{"role": "user", "content": "?"}]) as stream:
            return stream.get_final_completion()

    whole = read_with_client(b"".join(map(to_sse, chunks)) + DONE, read)
    message, usage = whole.choices[0].message, whole.usage
    assert (message.content, message.reasoning_content) == ("Let me see.\n\nGrüße, 世界.", "hm")
    assert (message.tool_calls, whole.choices[0].finish_reason) == (None, "stop")
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (20, 4, 24)
    assert (whole.id, whole.model, whole.created) == ("chatcmpl-trn_1", "guide", 1_700_000_000)
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant"}

    completion = to_completion(events, reasoning=True)
    check("ChatCompletion", completion)
    assert completion["choices"][0]["message"] == {
        "role": "assistant",
        "refusal": None,
        "content": message.content,
        "reasoning_content": "hm",
    }
    assert completion["usage"] == chunks[-1]["usage"]
    replayed = encode([event for event in events if event.seq], include_usage=True, reasoning=True)
    assert join_texts(replayed) == message.content
    assert replayed[-2:] == chunks[-2:]
    assert join_texts(encode(events)) == message.content  # without reasoning and usage
    assert not any("usage" in chunk for chunk in encode(events))


async def test_child_agents_are_hidden_and_have_completions_of_their_own() -> None:
    events = await runs.record_child()
    assert join_texts(encode(events)) == "Sunny."
    assert deltas(encode(events, path=("agent-1",), model="scout")) == snapshot(
        [{"role": "assistant"}, {"content": "It "}, {"content": "shines."}, "stop"]
    )
    usage = encode(events, path=("agent-1",), include_usage=True)[-1]["usage"]
    assert 0 < usage["total_tokens"] < encode(events, include_usage=True)[-1]["usage"]["total_tokens"]
    assert encode(events, path=("agent-2",)) == []
    failed = [
        made("subagent.started", call="c", agent="scout", child="agent-1"),
        made("subagent.completed", call="c", agent="scout", child="agent-1", failed=True, stop="lost", reason="error"),
        made("turn.failed", code="x", message="y"),
    ]
    assert deltas(encode(failed, path=("agent-1",))) == [{"role": "assistant"}, ("error", "lost")]
    cut = [failed[0], made("turn.cancelled", note="gone")]
    assert deltas(encode(cut, path=("agent-1",))) == [{"role": "assistant"}, ("cancelled", "gone")]


async def test_the_agents_of_a_router_answer_in_its_place() -> None:
    events = await runs.record_router()
    assert deltas(encode(events, routers=runs.ROUTERS)) == snapshot(
        [
            {"role": "assistant"},
            {"content": "Booked."},
            {
                "content": """\


Playing.\
"""
            },
            "stop",
        ]
    )
    assert deltas(encode(events)) == snapshot(
        [
            {"role": "assistant"},
            {
                "content": """\
Booked.

Playing.\
"""
            },
            "stop",
        ]
    )


async def test_text_that_was_withdrawn_is_continued_or_followed_by_the_new_one() -> None:
    assert deltas(encode(await runs.record_retry())) == snapshot(
        [{"role": "assistant"}, {"content": "Hel"}, {"content": "lo."}, "stop"]
    )
    start = [made("turn.started", agent="a", inputs=[]), text("m1", 0, "Hello there")]
    discarded = made("message.discarded", message_id="m1")
    end = made("turn.completed", text="")

    def answer(*events: vaka.Event) -> str:
        return join_texts(encode([*start, discarded, *events, end]))

    assert answer(text("m2", 0, "Hello "), text("m2", 6, "you"), completed("m2", "Hello you")) == (
        "Hello there\n\nHello you"
    )
    assert answer(text("m2", 0, "Hello "), completed("m2", "Hello ")) == "Hello there\n\nHello "
    assert answer(completed("m2", "Hello there"), completed("m3", "Bye")) == "Hello there\n\nBye"
    assert answer(completed("m2"), completed("m3", "Bye")) == "Hello there\n\nBye"
    again = (text("m2", 0, "Hello"), made("message.discarded", message_id="m2"), completed("m3", "Hello there!"))
    assert answer(*again) == "Hello there!"
    lost = (made("step.started", agent="a", number=2), completed("m2", "Bye"))
    assert join_texts(encode([*start, *lost, end])) == "Hello there\n\nBye"


def test_a_reader_that_joins_in_a_message_gets_its_whole_text() -> None:
    snapshot_of: dict[str, Any] = {"message_id": "m", "block": 1, "of": "text.delta", "text": "Grü"}
    events = [
        text("m", 1, "rü", block=1),  # the text before it was lost
        made("message.snapshot", **snapshot_of),
        made("message.snapshot", **snapshot_of),
        text("m", 3, "ße", block=1),
        text("m", 4, "e, 世", block=1),
        made("tool.args.delta", message_id="m", block=2, offset=0, text="{}", name="f"),
        text("other", 0, "At the same time", block=0),
        completed("other", "At the same time."),
        made(
            "message.completed",
            message_id="m",
            content=[
                {"type": "reasoning", "text": "hm"},
                {"type": "text", "text": "Grüße, 世界."},
                {"type": "call", "id": "c"},
            ],
            stop="length",
        ),
        made("turn.completed", text="Grüße, 世界."),
    ]
    assert deltas(encode(events)) == snapshot(
        [
            {"role": "assistant"},
            {"content": "Grü"},
            {"content": "ße"},
            {"content": ", 世"},
            {"content": "界."},
            {
                "content": """\


At the same time.\
"""
            },
            "stop",
        ]
    )
    assert deltas(encode(events[:-2]))[1:] == [{"content": "Grü"}, {"content": "ße"}, {"content": ", 世"}]
    assert join_texts(encode([events[-1], events[-1]])) == "Grüße, 世界."
    parts = [{"type": "reasoning", "text": "hm"}, {"type": "image", "url": "x"}, {"type": "text", "text": "!"}]
    changed = [text("m", 0, "hm"), made("message.completed", message_id="m", content=parts)]
    assert deltas(encode(changed, reasoning=True))[1:] == [
        {"content": "hm"},
        {"reasoning_content": "hm"},
        {"content": "!"},
    ]


async def test_a_turn_without_an_answer_ends_in_an_error_that_the_client_raises() -> None:
    openai = pytest.importorskip("openai")
    chunks = encode(await runs.record_failure())
    assert deltas(chunks) == snapshot([{"role": "assistant"}, ("model_refused", "no such model (status 400)")])
    with pytest.raises(openai.APIError, match="no such model"):
        read_with_client(
            b"".join(map(to_sse, chunks)),
            lambda client: list(client.chat.completions.create(model="m", messages=[], stream=True)),
        )
    assert deltas(encode(await runs.record_interrupt())) == snapshot(
        [{"role": "assistant"}, {"content": "I am count"}, ("interrupted", "enough")]
    )
    assert to_completion(await runs.record_interrupt())["error"]["code"] == "interrupted"
    assert to_completion([])["error"]["code"] == "no_turn"
    cancelled = [made("turn.started", agent="a", inputs=[]), text("m", 0, "Hi"), made("turn.cancelled")]
    assert deltas(encode(cancelled))[-1] == ("cancelled", "cancelled")
    limited = [made("turn.started", agent="a", inputs=[]), made("turn.completed", text="So", stop="limit")]
    assert deltas(encode(limited)) == [{"role": "assistant"}, {"content": "So"}, "length"]
    refused = [completed("m", "No.", stop="refusal"), made("turn.completed", text="No.")]
    assert deltas(encode(refused))[-1] == "content_filter"


async def test_a_turn_that_waits_ends_with_what_is_asked_and_goes_on_in_another_completion() -> None:
    events = await runs.record_resumed()
    asked = next(at for at, event in enumerate(events) if event.type == "approval.requested") + 1
    encoder = ChatEncoder(include_usage=True)
    assert encoder.finish() == []
    chunks = encode(events[:asked], encoder) + encoder.finish()
    assert deltas(chunks) == snapshot(
        [
            {"role": "assistant"},
            {
                "content": 'weather {"city":"Hilo"} needs an approval (the rule weather asks about weather). '
                "Reply 'approve apr_1' or 'reject apr_1'."
            },
            "stop",
        ]
    )
    assert chunks[-1]["usage"]["total_tokens"] == 14
    assert to_completion(events[:asked])["choices"][0]["message"]["content"] == join_texts(chunks)
    assert parse_reply("approve apr_1") == decided("approve", "apr_1")
    goes_on = encode(events[asked:], encoder)
    assert deltas(goes_on) == [{"role": "assistant"}, {"content": "Sunny."}, "stop"]
    assert {chunk["id"] for chunk in goes_on} == {"chatcmpl-trn_1-10"}
    assert encode(events[asked:], include_usage=True)[:-1] == goes_on[:-1]
    assert join_texts(encode(events)) == "Sunny."  # the decision came while the completion was open


def test_questions_and_calls_of_client_tools_end_a_completion() -> None:
    started = made("turn.started", agent="a", inputs=[])
    question = made("question.asked", question="q1", text="Which one?", options=["red", "blue"])
    encoder = ChatEncoder()
    chunks = encode([started, text("m", 0, "Hm."), completed("m", "Hm."), question, question], encoder)
    ended = encode([made("stream.end")], encoder)
    assert deltas(chunks + ended) == snapshot(
        [
            {"role": "assistant"},
            {"content": "Hm."},
            {
                "content": """\


Which one? (red, blue)\
"""
            },
            "stop",
        ]
    )
    answered = [started, question, made("question.answered", question="q1", answer="red")]
    assert deltas([*encode(answered, encoder), *encoder.finish()]) == [{"role": "assistant"}, "stop"]
    expired = made("approval.expired", approval="gone")
    assert encode([expired]) == []

    calls: list[dict[str, Any]] = [
        {"id": "c1", "name": "locate", "arguments": {"city": "世界<script>"}},
        {"id": "c2", "name": "locate", "raw": "{oops"},
    ]
    events = [started, *(made("tool.called", call=call, message_id="m") for call in calls)]
    for call_made in calls:
        id = call_made["id"]
        events.append(made("question.asked", question=f"q_{id}", text="", call=id, kind="result"))
    chunks = [*encode(events, encoder), *encoder.finish()]
    assert deltas(chunks) == snapshot(
        [
            {"role": "assistant"},
            {
                "tool_calls": [
                    {
                        "index": 0,
                        "id": "c1",
                        "type": "function",
                        "function": {"name": "locate", "arguments": '{"city":"世界<script>"}'},
                    }
                ]
            },
            {
                "tool_calls": [
                    {"index": 1, "id": "c2", "type": "function", "function": {"name": "locate", "arguments": "{oops"}}
                ]
            },
            "tool_calls",
        ]
    )
    whole = read_with_client(
        msgspec.json.encode(to_completion(events)),
        lambda client: client.chat.completions.create(model="m", messages=[]),
    )
    functions = [(made.id, made.function.name, made.function.arguments) for made in whole.choices[0].message.tool_calls]
    assert functions == [("c1", "locate", '{"city":"世界<script>"}'), ("c2", "locate", "{oops")]
    assert whole.choices[0].finish_reason == "tool_calls"


async def test_decisions_of_child_agents_and_client_calls_of_a_stored_log_are_shown() -> None:
    for record in (runs.record_decisions, runs.record_client_tool):
        events = await record()
        at = next(at for at, event in enumerate(events) if event.type in {"approval.resolved", "question.answered"})
        choice = to_completion(events[:at])["choices"][0]
        if record is runs.record_client_tool:
            (made_call,) = choice["message"]["tool_calls"]
            assert (choice["finish_reason"], made_call["function"]["arguments"]) == ("tool_calls", '{"name":"map"}')
            assert join_texts(encode(events[at:])) == "Thanks."
        else:
            question, _, approval = choice["message"]["content"].partition("\n\n")
            assert (choice["finish_reason"], question) == ("stop", "East or west? (east, west)")
            assert approval.startswith('weather {"city":"Hilo"} needs an approval')
            assert join_texts(encode(events[at:])) == "<script>alert(1)</script>"


async def test_markup_in_an_answer_stays_data() -> None:
    markup = "</script><script>alert(1)</script>\r\n\ndata: [DONE]\u2028"
    chunks = encode(await runs.record(vaka.Agent("a", model=ScriptedModel(say(markup)))))
    lines = b"".join(map(to_sse, chunks)).split(b"\n\n")
    assert all(line.startswith(b"data: {") and b"\n" not in line and b"\r" not in line for line in lines[:-1])
    assert join_texts([msgspec.json.decode(line[6:]) for line in lines[:-1]]) == markup


# ----------------------------------------------------------------------------------------------------------- requests


def test_a_request_is_an_input_with_history_tools_and_options() -> None:
    request = parse_chat_request(
        {
            "model": "guide",
            "stream": True,
            "stream_options": {"include_usage": True},
            "metadata": {"k": "v"},
            "messages": [
                {"role": "developer", "content": "Be brief."},
                {"role": "user", "content": "Where am I?"},
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [
                        {"id": "c1", "type": "function", "function": {"name": "locate", "arguments": '{"fine":true}'}},
                        {"id": "c2", "type": "function", "function": {"name": "locate", "arguments": "{oops"}},
                    ],
                },
                {"role": "tool", "tool_call_id": "c1", "content": "Hilo"},
                {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": "?"}]},
                {
                    "role": "assistant",
                    "content": [
                        {"type": "text", "text": "In Hilo."},
                        {"type": "refusal", "refusal": "!"},
                    ],
                },
                {"role": "system", "content": [{"type": "text", "text": "Be kind."}]},
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "And these?"},
                        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
                        {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
                        {"type": "input_audio", "input_audio": {"data": "BBBB", "format": "mp3"}},
                        {"type": "file", "file": {"filename": "b.pdf", "file_url": "https://example.org/b.pdf"}},
                        {
                            "type": "file",
                            "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,CCCC"},
                        },
                    ],
                },
            ],
            "tools": [
                {"type": "function", "function": {"name": "locate", "parameters": {"type": "object"}}},
                {"type": "function", "function": {"name": "tide", "description": "The tide.", "strict": True}},
            ],
            "tool_choice": {"type": "function", "function": {"name": "locate"}},
            "response_format": {"type": "json_schema", "json_schema": {"name": "place", "schema": {"type": "string"}}},
            "max_completion_tokens": 9,
            "temperature": 0.5,
            "stop": ["END"],
            "seed": 1,
            "reasoning_effort": "xhigh",
            "parallel_tool_calls": False,
            "service_tier": "auto",
        }
    )
    assert request.instructions == "Be brief.\n\nBe kind."
    assert request.content == (
        Text(text="And these?"),
        Image(media_type="image/png", data="AAAA"),
        Image(url="https://example.org/a.png"),
        Audio(media_type="audio/mp3", data="BBBB"),
        Document(name="b.pdf", url="https://example.org/b.pdf"),
        Document(name="a.pdf", media_type="application/pdf", data="CCCC"),
    )
    asked, called, results, answer = request.history
    assert isinstance(asked, UserMessage)
    assert isinstance(called, AssistantMessage)
    assert called.calls == (
        ToolCall(id=CallId("c1"), name="locate", arguments={"fine": True}),
        ToolCall(id=CallId("c2"), name="locate", raw="{oops"),
    )
    assert isinstance(results, ToolMessage)
    assert [(result.call, result.text) for result in results.results] == [("c1", "Hilo"), ("c2", "?")]
    assert isinstance(answer, AssistantMessage)
    assert answer.text == "In Hilo.!"
    assert [(tool.name, tool.description, tool.strict, tool.effect) for tool in request.tools] == [
        ("locate", "", False, "resume"),
        ("tide", "The tide.", True, "resume"),
    ]
    assert request.options == {
        "temperature": 0.5,
        "stop": ["END"],
        "seed": 1,
        "max_tokens": 9,
        "parallel_calls": False,
        "reasoning": "max",
        "output": {"schema": {"type": "string"}, "name": "place", "strict": False},
    }
    assert (request.tool_choice, request.stream, request.include_usage) == ("locate", True, True)
    assert (request.model, request.metadata) == ("guide", {"k": "v"})


def test_results_of_client_calls_are_read_by_their_ids() -> None:
    called = {"role": "assistant", "tool_calls": [{"id": "c1", "function": {"name": "locate", "arguments": ""}}]}
    request = parse_chat_request(
        msgspec.json.encode(
            {
                "model": "guide",
                "response_format": {"type": "json_object"},
                "tool_choice": "required",
                "messages": [called, {"role": "tool", "tool_call_id": "c1", "content": "Hilo"}],
            }
        )
    )
    assert request.results == (ToolResult(call=CallId("c1"), content=(Text(text="Hilo"),)),)
    assert (request.content, request.tool_choice) == ((), "required")
    assert request.options["output"] == {"schema": {"type": "object"}, "name": "answer", "strict": False}
    plain = parse_chat_request(
        {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "response_format": {"type": "text"}}
    )
    assert (plain.options, plain.tools, plain.stream, plain.tool_choice) == ({}, (), False, "auto")


USER = {"role": "user", "content": "Hi"}


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"model": 5}, r"Expected `str`, got `int` - at `\$.model`"),
    ({"messages": []}, "nothing to answer"),
    ({"messages": [USER, {"role": "assistant", "content": "Hello"}]}, "nothing to answer"),
    ({"messages": [{"role": ["user"], "content": "Hi"}]}, "not \\['user'\\]"),
    ({"messages": [{"role": "user", "content": [{"type": {}}]}]}, "cannot be read"),
    ({"messages": [{"role": "bot", "content": "Hi"}]}, "not 'bot'"),
    ({"messages": [{"role": "tool", "content": "Hi"}]}, "needs 'tool_call_id'"),
    ({"messages": [{"role": "user", "content": ["Hi"]}]}, "None cannot be read"),
    ({"messages": [{"role": "user", "content": 5}]}, "a text or a list of parts, not 5"),
    ({"messages": [{"role": "user", "content": [{"type": "video"}]}]}, "'video' cannot be read"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "'image_url' cannot be read"),
    (
        {"messages": [{"role": "user", "content": [{"type": "file", "file": {"file_id": "f"}}]}]},
        "needs 'file_data'",
    ),
    ({"messages": [{"role": "assistant", "tool_calls": [{"id": 1}]}, USER]}, r"at `\$.tool_calls"),
    ({"n": 2}, "'n'; leave it out"),
    ({"logprobs": True}, "'logprobs'"),
    ({"modalities": ["text", "audio"]}, "'modalities'"),
    ({"functions": [{"name": "f"}]}, "use 'tools' instead"),
    ({"tools": [{"type": "custom", "custom": {}}]}, "not 'custom'"),
    ({"tools": [{"type": "function", "function": {}}]}, "'tools' of the request cannot be read"),
    ({"tools": [{"type": "function", "function": {"name": "f"}}] * 2}, "two tools 'f'"),
    ({"tool_choice": "some"}, "not 'some'"),
    ({"tool_choice": {"type": "function", "function": {}}}, "a function with its name"),
    ({"response_format": {"type": "xml"}}, "not 'xml'"),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"schema": 5}}},
        "'response_format' of the request",
    ),
]


@pytest.mark.parametrize(("changes", "message"), REFUSED)
def test_a_request_that_cannot_be_used_is_refused_with_the_field(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        parse_chat_request({"model": "m", "messages": [USER], **changes})
    with pytest.raises(InvalidInput, match="cannot be read"):
        parse_chat_request(b'{"model": ')


def test_only_the_exact_words_are_a_decision() -> None:
    assert parse_reply(" Reject apr_1: too far \n") == decided("reject", "apr_1", "too far")
    assert parse_reply("approve") == decided("approve")
    assert parse_reply("reject: no") == decided("reject", "", "no")
    for other in ("approved", "yes", "approve apr_1 and apr_2", "do not approve", "", "approve, but ask first"):
        assert parse_reply(other) is None
