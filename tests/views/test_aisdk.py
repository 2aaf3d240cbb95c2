"""The AI SDK's UI message stream: whole turns, decisions, streams that begin anywhere, and the requests of chats."""
# ruff: noqa: E501  # a chunk is one line

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot

import vaka
from tests.views import recorded_runs as runs
from tests.views.ui_streams import UiMessageCheck
from vaka.content import Audio, Document, Image, Text
from vaka.core.types import control, progress
from vaka.core.types.ids import CallId, DecisionId, MessageId, SessionId, TurnId
from vaka.core.types.message import ToolResult
from vaka.errors import InvalidInput
from vaka.views.aisdk import DONE, HEADERS, UiStreamEncoder, to_sse
from vaka.views.aisdk_input import parse_ui_chat_request


def encode(events: Iterable[vaka.Event], **options: Any) -> tuple[list[dict[str, Any]], UiMessageCheck]:
    """Return the chunks, which must be valid and in order, and the message that they make."""
    encoder, message = UiStreamEncoder(**options), UiMessageCheck(options.get("known_calls", ()))
    chunks = [chunk for event in events for chunk in encoder.encode(event)]
    message.check(chunks)
    return chunks, message


def outline(chunks: Iterable[dict[str, Any]]) -> list[str]:
    """Return one short line for each chunk."""
    return [" ".join(str(value) for name, value in chunk.items() if name != "transient") for chunk in chunks]


async def test_a_turn_has_steps_with_reasoning_text_calls_and_results() -> None:
    chunks, message = encode(await runs.record_tools())
    assert outline(chunks) == snapshot(
        [
            "start trn_1",
            "start-step",
            "reasoning-start msg_1-0",
            "reasoning-delta msg_1-0 hm",
            "reasoning-end msg_1-0",
            "text-start msg_1-1",
            "text-delta msg_1-1 Let ",
            "text-delta msg_1-1 me ",
            "text-delta msg_1-1 see.",
            "text-end msg_1-1",
            "tool-input-available call_1 weather {'city': 'Hilo'} True",
            "tool-input-available call_2 weather {'city': 'Atlantis'} True",
            "tool-input-available call_3 tide {} True",
            "tool-input-available call_4 fly {} True",
            "tool-output-error call_3 tide is not allowed here",
            "tool-output-error call_4 there is no tool 'fly'; the tools are: weather",
            "tool-output-available call_1 sunny in Hilo",
            "tool-output-error call_2 ValueError: there is no Atlantis",
            "finish-step",
            "start-step",
            "text-start msg_2-0",
            "text-delta msg_2-0 Grüße, ",
            "text-delta msg_2-0 世界.",
            "text-end msg_2-0",
            "finish-step",
            "finish stop {'usage': {'inputTokens': 20, 'outputTokens': 4, 'totalTokens': 24}}",
        ]
    )
    assert message.text == "Let me see.Grüße, 世界."
    assert to_sse(chunks[0]) == b'data: {"type":"start","messageId":"trn_1"}\n\n'
    assert (HEADERS["x-vercel-ai-ui-message-stream"], DONE) == ("v1", b"data: [DONE]\n\n")


async def test_a_log_without_deltas_makes_the_same_message() -> None:
    for record in (runs.record_tools, runs.record_child, runs.record_router):
        events = await record()
        _, live = encode(events)
        _, replayed = encode(event for event in events if event.seq)
        assert replayed.parts == live.parts


async def test_child_agents_are_data_parts_and_those_of_routers_answer_in_its_place() -> None:
    chunks, message = encode(await runs.record_child())
    assert [chunk for chunk in chunks if chunk["type"] == "data-subagent"] == snapshot(
        [
            {
                "type": "data-subagent",
                "id": "agent-1",
                "data": {"name": "scout", "toolCallId": "call_1", "status": "running"},
            },
            {
                "type": "data-subagent",
                "id": "agent-1",
                "data": {"name": "scout", "toolCallId": "call_1", "status": "completed", "text": "It shines."},
            },
        ]
    )
    assert (message.text, list(message.calls)) == ("Sunny.", ["call_1"])
    events = await runs.record_router()
    routed, message = encode(events, routers=runs.ROUTERS)
    assert (message.text, list(message.calls)) == ("Booked.Playing.", ["call_1.1.1", "call_1.1.2"])
    assert not [chunk for chunk in routed if chunk["type"].startswith("data-")]
    assert encode(events)[1].text == "Booked.\n\nPlaying."


async def test_a_turn_that_waits_finishes_and_goes_on_in_the_same_message() -> None:
    events = await runs.record_decisions()
    chunks, message = encode(events)
    assert outline(chunks) == snapshot(
        [
            "start trn_1",
            "start-step",
            "tool-input-available call_1 scout {'prompt': 'Look.'} True",
            "tool-input-available call_2 choose {} True",
            "data-question qst_trn_1_call_2_1 {'text': 'East or west?', 'options': ['east', 'west'], 'toolCallId': 'call_2'}",
            "data-subagent agent-1 {'name': 'scout', 'toolCallId': 'call_1', 'status': 'running'}",
            "finish-step",
            "start-step",
            "tool-input-available call_1.1 weather {'city': 'Hilo'} True",
            "tool-approval-request apr_1 call_1.1 the rule weather asks about weather",
            "finish-step",
            "finish tool-calls {'usage': {'inputTokens': 25, 'outputTokens': 14, 'totalTokens': 39}}",
            "start trn_1",
            "data-question qst_trn_1_call_2_1 {'text': 'East or west?', 'options': ['east', 'west'], 'toolCallId': 'call_2', 'answered': True}",
            "tool-approval-response apr_1 True",
            "tool-output-available call_1.1 sunny in Hilo",
            "tool-output-available call_2 east",
            "data-subagent agent-1 {'name': 'scout', 'toolCallId': 'call_1', 'status': 'completed', 'text': 'It shines.'}",
            "tool-output-available call_1 It shines.",
            "start-step",
            "text-start msg_4-0",
            "text-delta msg_4-0 <script>alert(1)</script>",
            "text-end msg_4-0",
            "finish-step",
            "finish stop {'usage': {'inputTokens': 45, 'outputTokens': 10, 'totalTokens': 55}}",
        ]
    )
    assert message.text == "<script>alert(1)</script>"
    middle = next(at for at, event in enumerate(events) if event.type == "turn.resumed")
    continued, _ = encode(events[middle:], known_calls=["call_1", "call_1.1", "call_2"])
    assert [chunk for chunk in continued if chunk["type"].startswith("tool-")] == snapshot(
        [
            {"type": "tool-output-available", "toolCallId": "call_1.1", "output": "sunny in Hilo"},
            {"type": "tool-output-available", "toolCallId": "call_2", "output": "east"},
            {"type": "tool-output-available", "toolCallId": "call_1", "output": "It shines."},
        ]
    )


async def test_calls_of_client_tools_wait_for_the_client() -> None:
    chunks, _ = encode(await runs.record_client_tool(), client_tools=["pick"])
    assert outline(chunks) == snapshot(
        [
            "start trn_1",
            "start-step",
            "tool-input-available call_1 pick {'name': 'map'}",
            "finish-step",
            "finish tool-calls {'usage': {'inputTokens': 5, 'outputTokens': 5, 'totalTokens': 10}}",
            "start trn_1",
            "tool-output-available call_1 {'path': 'map.png'}",
            "start-step",
            "text-start msg_2-0",
            "text-delta msg_2-0 Thanks.",
            "text-end msg_2-0",
            "finish-step",
            "finish stop {'usage': {'inputTokens': 14, 'outputTokens': 2, 'totalTokens': 16}}",
        ]
    )


async def test_interrupts_failures_retries_and_output() -> None:
    recorders = (runs.record_interrupt, runs.record_failure, runs.record_retry, runs.record_output)
    assert [outline(encode(await record())[0]) for record in recorders] == snapshot(
        [
            [
                "start trn_1",
                "start-step",
                "text-start msg_1-0",
                "text-delta msg_1-0 I am count",
                "text-end msg_1-0",
                "finish-step",
                "abort enough",
            ],
            [
                "start trn_1",
                "start-step",
                "finish-step",
                "error no such model (status 400)",
                "finish error {'usage': {'inputTokens': 0, 'outputTokens': 0, 'totalTokens': 0}}",
            ],
            [
                "start trn_1",
                "start-step",
                "text-start msg_1-0",
                "text-delta msg_1-0 Hel",
                "text-end msg_1-0",
                "reset-step",
                "text-start msg_2-0",
                "text-delta msg_2-0 Hello.",
                "text-end msg_2-0",
                "finish-step",
                "finish stop {'usage': {'inputTokens': 1, 'outputTokens': 2, 'totalTokens': 3}}",
            ],
            [
                "start trn_1",
                "start-step",
                "tool-input-available call_1 count {'to': 2} True",
                "data-tool-output {'toolCallId': 'call_1', 'stream': 'stdout', 'offset': 0, 'text': '1\\n'}",
                "data-tool-output {'toolCallId': 'call_1', 'stream': 'stdout', 'offset': 2, 'text': '2\\n'}",
                "data-state {'key': 'counted', 'value': 2}",
                "tool-output-available call_1 done",
                "finish-step",
                "start-step",
                "text-start msg_2-0",
                "text-delta msg_2-0 Counted.",
                "text-end msg_2-0",
                "finish-step",
                "finish stop {'usage': {'inputTokens': 12, 'outputTokens': 6, 'totalTokens': 18}}",
            ],
        ]
    )


def live(*bodies: Any, turn: str = "t", path: tuple[str, ...] = ()) -> list[vaka.Event]:
    return [vaka.Event(data=body, session=SessionId("s"), ts="", turn=TurnId(turn), path=path) for body in bodies]


def text_delta(text: str, offset: int = 0) -> progress.TextDelta:
    return progress.TextDelta(message_id=MessageId("m"), block=0, offset=offset, text=text)


def result(call: str, **fields: Any) -> ToolResult:
    return ToolResult(call=CallId(call), **fields)


def test_a_reader_that_joins_late_gets_the_whole_message() -> None:
    completed = progress.MessageCompleted(message_id=MessageId("m"), content=(Text(text="Hello"),))
    snapshot_of_block = progress.MessageSnapshot(message_id=MessageId("m"), block=0, of="text.delta", text="Hel")
    for bodies in (
        [snapshot_of_block, text_delta("lo", 3), text_delta("lo", 3), completed],
        [text_delta("He"), text_delta("!", 9), completed],
        [text_delta("Secret"), completed],  # middleware has changed it
        [progress.TurnCompleted(text="Hello", stop="limit", limit="max_steps")],
    ):
        _, message = encode(live(*bodies))
        assert message.text == "Hello"


def test_rejections_denials_and_media_of_results() -> None:
    def asked(id: str) -> control.ApprovalRequested:
        call = vaka.ToolCall(id=CallId(id), name="pay", raw="{broken")
        return control.ApprovalRequested(approval=DecisionId(f"apr_{id}"), call=call, digest="", spec="")  # type: ignore[arg-type]  # digests

    bodies = [
        asked("c1"),
        control.ApprovalResolved(approval=DecisionId("apr_c1"), decision="reject", message="no"),
        control.ApprovalResolved(approval=DecisionId("other"), decision="reject"),
        progress.ToolFailed(result=result("c1", failed=True, reason="denied")),
        progress.ToolCalled(call=vaka.ToolCall(id=CallId("c2"), name="pay"), message_id=MessageId("m")),
        progress.ToolFailed(result=result("c2", failed=True, reason="denied")),
        progress.ToolCompleted(result=result("c2", content=(Image(url="https://e.org/a.png"),))),
        progress.ToolCompleted(result=result("unknown")),
        control.StateChanged(key="$own", value=1),
        control.StateChanged(key="colour", value="red"),
        progress.TurnCancelled(),
        progress.ToolCompleted(result=result("c2")),
    ]
    assert outline(encode(live(*bodies))[0]) == snapshot(
        [
            "start t",
            "start-step",
            "tool-input-available c1 pay {broken True",
            "tool-approval-request apr_c1 c1",
            "finish-step",
            "finish tool-calls {'usage': {'inputTokens': 0, 'outputTokens': 0, 'totalTokens': 0}}",
            "start t",
            "tool-approval-response apr_c1 False no",
            "tool-output-denied c1",
            "start-step",
            "tool-input-available c2 pay {} True",
            "tool-output-error c2 denied",
            "tool-output-available c2 [{'type': 'image', 'url': 'https://e.org/a.png'}]",
            "data-state {'key': 'colour', 'value': 'red'}",
            "finish-step",
            "abort",
        ]
    )


def test_a_stream_that_ends_early_is_finished() -> None:
    encoder, message = UiStreamEncoder(), UiMessageCheck()
    for event in live(
        progress.StepStarted(agent="a", number=1),
        text_delta("Hel"),
        control.QuestionAsked(question=DecisionId("q"), text="Why?"),
    ):
        message.check(encoder.encode(event))
    ended = encoder.finish()
    message.check(ended)
    assert ended[-1]["finishReason"] == "tool-calls"
    assert encoder.finish() == []
    for turn in ("later", "last"):
        message.check(encoder.encode(live(text_delta("x"), turn=turn)[0]))
    assert [chunk["type"] for chunk in encoder.finish("closed")] == ["text-end", "finish-step", "error", "finish"]


@given(runs.parts_of_runs(), st.sampled_from([(), runs.ROUTERS]))
def test_any_part_of_a_turn_is_a_well_formed_stream(events: list[vaka.Event], routers: tuple[str, ...]) -> None:
    encoder, message = UiStreamEncoder(routers=routers), UiMessageCheck()
    for event in events:
        message.check(encoder.encode(event))
    message.check(encoder.finish())
    assert not message.is_open


def tool_part(id: str, state: str, **fields: Any) -> dict[str, Any]:
    return {"type": "dynamic-tool", "toolName": "t", "toolCallId": id, "state": state, "input": {}, **fields}


def test_a_request_has_the_new_user_messages() -> None:
    body = {
        "id": "s",
        "trigger": "submit-message",
        "messages": [
            {"id": "1", "role": "user", "parts": [{"type": "text", "text": "Old."}]},
            {"id": "2", "role": "assistant", "parts": [tool_part("call_1", "output-available", output=1)]},
            {
                "id": "3",
                "role": "user",
                "parts": [
                    {"type": "text", "text": "Grüße <b>"},
                    {"type": "data-page", "data": {}},
                    {"type": "file", "mediaType": "image/png", "url": "data:image/png;base64,AA=="},
                    {"type": "file", "mediaType": "audio/wav", "url": "https://e.org/a.wav"},
                    {"type": "file", "mediaType": "application/pdf", "url": "https://e.org/a.pdf", "filename": "a.pdf"},
                ],
            },
        ],
    }
    given = parse_ui_chat_request(msgspec.json.encode(body))
    content = (
        Text(text="Grüße <b>"),
        Image(media_type="image/png", data="AA=="),
        Audio(media_type="audio/wav", url="https://e.org/a.wav"),
        Document(media_type="application/pdf", url="https://e.org/a.pdf", name="a.pdf"),
    )
    assert given.inputs == (control.InputAdded(key="3", content=content, source="ai-sdk"),)
    assert (given.session, given.decisions, given.results, given.known_calls) == ("s", (), (), frozenset())


def test_a_request_has_the_decisions_and_results_of_the_message_that_goes_on() -> None:
    parts = [
        {"type": "step-start"},
        tool_part("call_1", "output-available", output="old"),
        {"type": "step-start"},
        {"type": "text", "text": "I may."},
        tool_part("call_2", "approval-responded", approval={"id": "apr_1", "approved": True}),
        tool_part("call_3", "approval-responded", approval={"id": "apr_2", "approved": False, "reason": "no"}),
        tool_part("call_4", "output-available", output={"path": "a"}),
        tool_part("call_5", "output-available", output="b"),
        tool_part("call_6", "output-error", errorText="no file"),
        tool_part("call_7", "output-available", output="part", preliminary=True),
        tool_part("call_8", "input-available"),
    ]
    given = parse_ui_chat_request(
        {"id": "s", "messages": [{"id": "2", "role": "assistant", "parts": parts}], "answers": {"qst_1": "east"}}
    )
    assert [(one.approval, one.decision, one.message) for one in given.approvals] == [
        ("apr_1", "approve", ""),
        ("apr_2", "reject", "no"),
    ]
    assert given.results == (
        result("call_1", content=(Text(text="old"),)),
        result("call_4", content=(Text(text='{"path":"a"}'),), value={"path": "a"}),
        result("call_5", content=(Text(text="b"),)),
        result("call_6", content=(Text(text="no file"),), failed=True, reason="error"),
    )
    assert given.decisions[-1] == control.QuestionAnswered(question=DecisionId("qst_1"), answer="east")
    assert given.known_calls == {f"call_{number}" for number in range(1, 9)}
    again = parse_ui_chat_request({"id": "s", "messages": [], "trigger": "regenerate-message", "messageId": "2"})
    assert (again.trigger, again.message_id, again.inputs) == ("regenerate-message", "2", ())


def user(*parts: dict[str, Any], id: str = "1") -> dict[str, Any]:
    return {"messages": [{"id": id, "role": "user", "parts": list(parts)}]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"id": 1}, "not one of an AI SDK chat"),
        ({"id": ""}, "session id"),
        (user({"type": "text", "text": "x"}, id=""), "empty id"),
        (user(), "neither text nor files"),
        (user({"type": "reasoning", "text": "x"}), "'reasoning' are not supported"),
        (user({"type": "file", "url": "https://e.org"}), "needs a 'mediaType'"),
        (user({"type": "file", "mediaType": "image/png", "url": "data:image/png,x"}), "must be 'data:TYPE;base64"),
        (
            {"messages": [{"id": "2", "role": "assistant", "parts": [tool_part("c", "approval-responded")]}]},
            "an approval needs",
        ),
    ],
)
def test_a_request_that_cannot_be_read_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        parse_ui_chat_request({"id": "s", "messages": [], **change})
    with pytest.raises(InvalidInput, match="not one of an AI SDK chat"):
        parse_ui_chat_request(b"\xff")
