"""AG-UI: the events of whole runs, of decisions and of streams that begin anywhere, and the requests of clients."""
# ruff: noqa: E501  # an event is one line

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest
from ag_ui.core import PROTOCOL_VERSION, RunAgentInput
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot

import vaka
from tests.views import recorded_runs as runs
from tests.views.agui_streams import AguiStreamCheck, texts_of
from vaka.content import Audio, Document, Image, Text
from vaka.core.types import control, progress
from vaka.core.types.ids import CallId, DecisionId, MessageId, SessionId, TurnId
from vaka.core.types.message import Stored, ToolResult
from vaka.errors import InvalidInput
from vaka.views import agui
from vaka.views.agui import AguiEncoder, to_sse
from vaka.views.agui_input import AguiAnswer, parse_agui_input


def encode(events: Iterable[vaka.Event], **options: Any) -> list[dict[str, Any]]:
    """Return the AG-UI events, which must be valid and in order."""
    encoder = AguiEncoder(**options)
    encoded = [one for event in events for one in encoder.encode(event)]
    AguiStreamCheck().check(encoded)
    return encoded


def outline(events: Iterable[dict[str, Any]]) -> list[str]:
    """Return one short line for each event."""
    hidden = ("type", "threadId", "protocolVersion", "role", "usage", "responseSchema")
    lines: list[str] = []
    for event in events:
        details = [str(value) for name, value in event.items() if name not in hidden]
        lines.append(" ".join([event["type"], *details]))
    return lines


async def test_a_run_has_reasoning_text_calls_results_and_usage() -> None:
    encoded = encode(await runs.record_tools(), run_id="run-7", state={"steps": 1})
    assert encoded[0] == {"type": "RUN_STARTED", "threadId": "s", "runId": "run-7", "protocolVersion": PROTOCOL_VERSION}
    assert outline(encoded)[1:] == snapshot(
        [
            "STATE_SNAPSHOT {'steps': 1}",
            "STEP_STARTED guide 1",
            "REASONING_START msg_1-reasoning-0",
            "REASONING_MESSAGE_START msg_1-reasoning-0",
            "REASONING_MESSAGE_CONTENT msg_1-reasoning-0 hm",
            "REASONING_MESSAGE_END msg_1-reasoning-0",
            "REASONING_END msg_1-reasoning-0",
            "TEXT_MESSAGE_START msg_1",
            "TEXT_MESSAGE_CONTENT msg_1 Let ",
            "TEXT_MESSAGE_CONTENT msg_1 me ",
            "TEXT_MESSAGE_CONTENT msg_1 see.",
            "TEXT_MESSAGE_END msg_1",
            "TOOL_CALL_START call_1 weather msg_1",
            'TOOL_CALL_ARGS call_1 {"city":"Hilo"}',
            "TOOL_CALL_END call_1",
            "TOOL_CALL_START call_2 weather msg_1",
            'TOOL_CALL_ARGS call_2 {"city":"Atlantis"}',
            "TOOL_CALL_END call_2",
            "TOOL_CALL_START call_3 tide msg_1",
            "TOOL_CALL_ARGS call_3 {}",
            "TOOL_CALL_END call_3",
            "TOOL_CALL_START call_4 fly msg_1",
            "TOOL_CALL_ARGS call_4 {}",
            "TOOL_CALL_END call_4",
            "TOOL_CALL_RESULT call_3-result call_3 tide is not allowed here {'failed': True, 'reason': 'denied'}",
            "TOOL_CALL_RESULT call_4-result call_4 there is no tool 'fly'; the tools are: weather {'failed': True, 'reason': 'unknown_tool'}",
            "TOOL_CALL_RESULT call_1-result call_1 sunny in Hilo",
            "TOOL_CALL_RESULT call_2-result call_2 ValueError: there is no Atlantis {'failed': True, 'reason': 'error'}",
            "STEP_FINISHED guide 1",
            "STEP_STARTED guide 2",
            "TEXT_MESSAGE_START msg_2",
            "TEXT_MESSAGE_CONTENT msg_2 Grüße, ",
            "TEXT_MESSAGE_CONTENT msg_2 世界.",
            "TEXT_MESSAGE_END msg_2",
            "STEP_FINISHED guide 2",
            "RUN_FINISHED run-7 {'type': 'success'} Grüße, 世界.",
        ]
    )
    assert encoded[-1]["usage"] == [{"model": "scripted", "inputTokens": 20, "outputTokens": 4, "totalTokens": 24}]
    assert (
        to_sse(encoded[-4]) == 'data: {"type":"TEXT_MESSAGE_CONTENT","messageId":"msg_2","delta":"世界."}\n\n'.encode()
    )


async def test_a_log_without_deltas_gives_the_same_texts() -> None:
    for record in (runs.record_tools, runs.record_child, runs.record_router):
        events = await record()
        live, replayed = encode(events), encode(event for event in events if event.seq)
        assert texts_of(replayed) == texts_of(live)
        assert [one for one in replayed if one["type"] != "TEXT_MESSAGE_CONTENT"] == [
            one for one in live if one["type"] != "TEXT_MESSAGE_CONTENT"
        ]


async def test_child_agents_are_subagents_with_events_of_their_own() -> None:
    assert outline(encode(await runs.record_child())) == snapshot(
        [
            "RUN_STARTED trn_1",
            "STEP_STARTED guide 1",
            "TOOL_CALL_START call_1 scout msg_1",
            'TOOL_CALL_ARGS call_1 {"prompt":"Look."}',
            "TOOL_CALL_END call_1",
            "SUBAGENT_STARTED agent-1 scout call_1",
            "STEP_STARTED agent-1 scout 1",
            "TOOL_CALL_START agent-1 call_1.1 weather msg_2",
            'TOOL_CALL_ARGS agent-1 call_1.1 {"city":"Hilo"}',
            "TOOL_CALL_END agent-1 call_1.1",
            "TOOL_CALL_RESULT agent-1 call_1.1-result call_1.1 sunny in Hilo",
            "STEP_FINISHED agent-1 scout 1",
            "STEP_STARTED agent-1 scout 2",
            "TEXT_MESSAGE_START agent-1 msg_3",
            "TEXT_MESSAGE_CONTENT agent-1 msg_3 It ",
            "TEXT_MESSAGE_CONTENT agent-1 msg_3 shines.",
            "TEXT_MESSAGE_END agent-1 msg_3",
            "STEP_FINISHED agent-1 scout 2",
            "SUBAGENT_FINISHED agent-1 It shines.",
            "TOOL_CALL_RESULT call_1-result call_1 It shines.",
            "STEP_FINISHED guide 1",
            "STEP_STARTED guide 2",
            "TEXT_MESSAGE_START msg_4",
            "TEXT_MESSAGE_CONTENT msg_4 Sunny.",
            "TEXT_MESSAGE_END msg_4",
            "STEP_FINISHED guide 2",
            "RUN_FINISHED trn_1 {'type': 'success'} Sunny.",
        ]
    )


async def test_the_agents_of_a_router_answer_in_its_place() -> None:
    events = await runs.record_router()
    shown = encode(events, routers=runs.ROUTERS)
    assert not [one for one in shown if "subagentRunId" in one]
    assert texts_of(shown) == {
        "call_1.1.1": '{"city":"Hilo"}',
        "call_1.1.2": "{}",
        "msg_3": "Booked.",
        "msg_4": "Playing.",
    }
    unnamed = encode(events)
    assert texts_of(unnamed)["trn_1"] == "Booked.\n\nPlaying."
    assert [one["subagentRunId"] for one in unnamed if one["type"] == "SUBAGENT_STARTED"] == [
        "agent-1",
        "agent-1/agent-1",
        "agent-2",
    ]


async def test_open_decisions_end_the_run_and_another_one_continues_it() -> None:
    encoded = encode(await runs.record_decisions())
    assert outline(encoded)[-21:] == snapshot(
        [
            "STEP_FINISHED guide 1",
            "STEP_FINISHED agent-1 scout 1",
            "SUBAGENT_FINISHED agent-1 {'type': 'suspended', 'interruptIds': ['apr_1']}",
            "RUN_FINISHED trn_1 {'type': 'interrupt', 'interrupts': [{'id': 'qst_trn_1_call_2_1', 'reason': 'input_required', 'message': 'East or west?', 'responseSchema': {'type': 'string', 'enum': ['east', 'west']}, 'toolCallId': 'call_2'}, {'id': 'apr_1', 'reason': 'tool_call', 'toolCallId': 'call_1.1', 'responseSchema': {'type': 'object', 'properties': {'approved': {'type': 'boolean'}, 'message': {'type': 'string'}, 'editedArgs': {'type': 'object'}}, 'required': ['approved']}, 'message': 'the rule weather asks about weather', 'metadata': {'toolName': 'weather', 'arguments': {'city': 'Hilo'}, 'rule': 'weather'}, 'expiresAt': '2023-11-21T22:13:20.000Z', 'subagentRunId': 'agent-1'}]}",
            "RUN_STARTED trn_1-2",
            "SUBAGENT_STARTED agent-1 scout call_1",
            "TOOL_CALL_RESULT agent-1 call_1.1-result call_1.1 sunny in Hilo",
            "STEP_STARTED agent-1 scout 2",
            "TOOL_CALL_RESULT call_2-result call_2 east",
            "TEXT_MESSAGE_START agent-1 msg_3",
            "TEXT_MESSAGE_CONTENT agent-1 msg_3 It shines.",
            "TEXT_MESSAGE_END agent-1 msg_3",
            "STEP_FINISHED agent-1 scout 2",
            "SUBAGENT_FINISHED agent-1 It shines.",
            "TOOL_CALL_RESULT call_1-result call_1 It shines.",
            "STEP_STARTED guide 2",
            "TEXT_MESSAGE_START msg_4",
            "TEXT_MESSAGE_CONTENT msg_4 <script>alert(1)</script>",
            "TEXT_MESSAGE_END msg_4",
            "STEP_FINISHED guide 2",
            "RUN_FINISHED trn_1-2 {'type': 'success'} <script>alert(1)</script>",
        ]
    )
    [interrupted] = [one for one in encoded if one.get("outcome", {}).get("type") == "interrupt"]
    question, approval = interrupted["outcome"]["interrupts"]
    assert question["responseSchema"] == {"type": "string", "enum": ["east", "west"]}
    assert approval["responseSchema"]["required"] == ["approved"]
    assert b"<script>" in b"".join(map(to_sse, encoded))


async def test_a_suspended_turn_is_resumed_with_another_encoder() -> None:
    events = await runs.record_decisions()
    middle = next(at for at, event in enumerate(events) if event.type == "turn.resumed")
    continued = encode(events[middle:], run_id="second")
    assert outline(continued)[:4] == snapshot(
        [
            "RUN_STARTED second",
            "SUBAGENT_STARTED agent-1 agent-1",
            "TOOL_CALL_RESULT agent-1 call_1.1-result call_1.1 sunny in Hilo",
            "STEP_STARTED agent-1 scout 2",
        ]
    )


async def test_calls_of_client_tools_are_pending_and_their_results_are_not_sent_back() -> None:
    events = await runs.record_client_tool()
    encoded = encode(events)
    assert [one["outcome"] for one in encoded if one["type"] == "RUN_FINISHED"] == [
        {"type": "success", "pendingToolCallIds": ["call_1"]},
        {"type": "success"},
    ]
    middle = next(at for at, event in enumerate(events) if event.type == "turn.resumed")
    for shown in (encoded, encode(events[middle:], answered=["call_1"])):
        assert "TOOL_CALL_RESULT" not in [one["type"] for one in shown]
    assert "TOOL_CALL_RESULT" in [one["type"] for one in encode(events[middle:])]


async def test_interrupts_failures_retries_and_output() -> None:
    recorders = (runs.record_interrupt, runs.record_failure, runs.record_retry, runs.record_output)
    assert [outline(encode(await record()))[2:] for record in recorders] == snapshot(
        [
            [
                "TEXT_MESSAGE_START msg_1",
                "TEXT_MESSAGE_CONTENT msg_1 I am count",
                "TEXT_MESSAGE_END msg_1",
                "STEP_FINISHED counter 1",
                "RUN_FINISHED trn_1 {'type': 'cancelled'} {'note': 'enough'}",
            ],
            ["STEP_FINISHED greeter 1", "RUN_ERROR no such model (status 400) model_refused {'status': 400}"],
            [
                "TEXT_MESSAGE_START msg_1",
                "TEXT_MESSAGE_CONTENT msg_1 Hel",
                "TEXT_MESSAGE_END msg_1",
                "CUSTOM message.discarded {'messageId': 'msg_1', 'reason': 'the answer of scripted was cut: it ended without its end marker'}",
                "TEXT_MESSAGE_START msg_2",
                "TEXT_MESSAGE_CONTENT msg_2 Hello.",
                "TEXT_MESSAGE_END msg_2",
                "STEP_FINISHED greeter 1",
                "RUN_FINISHED trn_1 {'type': 'success'} Hello.",
            ],
            [
                "TOOL_CALL_START call_1 count msg_1",
                'TOOL_CALL_ARGS call_1 {"to":2}',
                "TOOL_CALL_END call_1",
                "CUSTOM tool.output {'toolCallId': 'call_1', 'stream': 'stdout', 'offset': 0, 'text': '1\\n'}",
                "CUSTOM tool.output {'toolCallId': 'call_1', 'stream': 'stdout', 'offset': 2, 'text': '2\\n'}",
                "STATE_DELTA [{'op': 'add', 'path': '/counted', 'value': 2}]",
                "TOOL_CALL_RESULT call_1-result call_1 done",
                "STEP_FINISHED counter 1",
                "STEP_STARTED counter 2",
                "TEXT_MESSAGE_START msg_2",
                "TEXT_MESSAGE_CONTENT msg_2 Counted.",
                "TEXT_MESSAGE_END msg_2",
                "STEP_FINISHED counter 2",
                "RUN_FINISHED trn_1 {'type': 'success'} Counted.",
            ],
        ]
    )


async def test_a_limit_is_named_and_a_cancelled_turn_ends_its_child_agents() -> None:
    events = await runs.record_child()
    cut = [event for event in events if event.type not in ("subagent.completed", "turn.completed")]
    [limit, cancelled] = live(
        progress.TurnCompleted(text="", stop="limit", limit="max_steps"), progress.TurnCancelled(), turn="trn_1"
    )
    limited = encode([*cut, limit])
    assert outline(limited)[-2:] == [
        "SUBAGENT_FINISHED agent-1",
        "RUN_FINISHED trn_1 {'type': 'success'}  {'stop': 'limit', 'limit': 'max_steps'}",
    ]
    encoded = encode([*cut, cancelled])
    assert outline(encoded)[-2:] == ["SUBAGENT_ERROR agent-1 cancelled", "RUN_FINISHED trn_1 {'type': 'cancelled'}"]
    assert encode([*cut, cancelled, *cut[-3:]]) == encoded, "what comes after the end of the turn is not shown"


def live(*bodies: Any, turn: str = "t", path: tuple[str, ...] = ()) -> list[vaka.Event]:
    return [vaka.Event(data=body, session=SessionId("s"), ts="", turn=TurnId(turn), path=path) for body in bodies]


def text_delta(text: str, offset: int = 0, block: int = 0) -> progress.TextDelta:
    return progress.TextDelta(message_id=MessageId("m"), block=block, offset=offset, text=text)


def completed(*content: Any, cut: bool = False) -> progress.MessageCompleted:
    return progress.MessageCompleted(message_id=MessageId("m"), content=content, cut=cut)


def test_a_reader_that_joins_late_gets_the_whole_message() -> None:
    snapshot_of_block = progress.MessageSnapshot(message_id=MessageId("m"), block=0, of="text.delta", text="Hel")
    repeated = [snapshot_of_block, text_delta("lo", 3), text_delta("lo", 3), completed(Text(text="Hello"))]
    with_gap = [text_delta("Hel"), text_delta("!", 9), text_delta("x", 0, 1), completed(Text(text="Hello"))]
    for bodies in (repeated, with_gap, [completed(Text(text="Hello"))]):
        encoded = encode(live(*bodies))
        assert texts_of(encoded) == {"m": "Hello"}
    only_the_end = encode(live(progress.TurnCompleted(text="Hello")))
    assert texts_of(only_the_end) == {"t": "Hello"}


def test_a_message_that_middleware_has_changed_is_shown_anew() -> None:
    call = vaka.ToolCall(id=CallId("c"), name="look")
    for bodies in (
        [text_delta("Secret"), completed(Text(text="Public"))],
        [text_delta("b", 0, 1), completed(Text(text="Pub"), Text(text="lic"))],
        [text_delta("a", 0, 0), text_delta("b", 0, 1), completed(Text(text="Public"))],
    ):
        called = progress.ToolCalled(call=call, message_id=MessageId("m"))
        encoded = encode(live(*bodies, called))
        assert texts_of(encoded)["m-final"] == "Public"
        assert {"name": "message.discarded", "value": {"messageId": "m", "reason": "changed"}}.items() <= next(
            one for one in encoded if one["type"] == "CUSTOM"
        ).items()
        assert encoded[-3]["parentMessageId"] == "m-final"


def test_a_message_that_was_cut_or_is_stored_is_not_repeated() -> None:
    stored = Stored(blob="0" * 64, size=9, preview="Long [cut]")  # type: ignore[arg-type]  # a digest
    for bodies, text in (
        ([text_delta("Long text"), completed(stored)], "Long text"),
        ([text_delta("Long te"), completed(Text(text="Long"), cut=True)], "Long te"),
        ([text_delta("Long"), completed(Text(text="Long text"), cut=True)], "Long text"),
        ([completed(Text(text="Long"), cut=True)], "Long"),
    ):
        assert texts_of(encode(live(*bodies))) == {"m": text}


def test_the_parts_of_a_result_keep_their_media() -> None:
    content = (
        Text(text="see"),
        Image(data="AA==", media_type="image/png"),
        Document(url="https://e.org/a.pdf"),
        Audio(blob="0" * 64, media_type="audio/wav"),  # type: ignore[arg-type]  # a digest
    )
    [_, shown] = encode(live(progress.ToolCompleted(result=ToolResult(call=CallId("c"), content=content))))
    assert shown["content"] == [
        {"type": "text", "text": "see"},
        {"type": "image", "source": {"type": "data", "value": "AA==", "mimeType": "image/png"}},
        {"type": "document", "source": {"type": "url", "value": "https://e.org/a.pdf"}},
        {"type": "audio", "source": {"type": "file", "value": "0" * 64, "provider": "vaka", "mimeType": "audio/wav"}},
    ]


def test_decisions_made_while_the_run_goes_on_are_shown() -> None:
    bodies = [
        progress.TurnStarted(agent="a", inputs=()),
        control.ApprovalResolved(approval=DecisionId("apr"), decision="reject", message="no"),
        control.ApprovalExpired(approval=DecisionId("apr")),
        control.StateChanged(key="a/b~c", value=1),
        progress.SubagentStarted(call=CallId("c"), agent="scout", child="agent-1"),
        progress.SubagentCompleted(call=CallId("c"), agent="scout", child="agent-1", failed=True, reason="timeout"),
        progress.SubagentCompleted(call=CallId("c"), agent="scout", child="agent-1"),
    ]
    assert outline(encode(live(*bodies)))[1:] == snapshot(
        [
            "CUSTOM approval.resolved {'interruptId': 'apr', 'decision': 'reject', 'message': 'no'}",
            "CUSTOM approval.expired {'interruptId': 'apr'}",
            "STATE_DELTA [{'op': 'add', 'path': '/a~1b~0c', 'value': 1}]",
            "SUBAGENT_STARTED agent-1 scout c",
            "SUBAGENT_ERROR agent-1 timeout timeout",
        ]
    )


def test_a_stream_that_ends_early_is_finished() -> None:
    encoder, check = AguiEncoder(), AguiStreamCheck()
    [asked] = live(control.QuestionAsked(question=DecisionId("q"), text="Why?", expires="2026-01-01T00:00:00Z"))
    for event in live(progress.StepStarted(agent="a", number=1), text_delta("Hel")):
        check.check(encoder.encode(event))
    check.check(encoder.encode(asked))
    ended = encoder.finish()
    check.check(ended)
    assert ended[-1]["outcome"]["interrupts"] == [
        {"id": "q", "reason": "input_required", "message": "Why?", "expiresAt": "2026-01-01T00:00:00Z"}
    ]
    assert encoder.finish() == []
    check.check(encoder.encode(live(text_delta("x"), turn="later")[0]))
    check.check(encoder.encode(live(text_delta("y"), turn="last")[0]))
    assert outline(encoder.finish("closed"))[-1] == "RUN_ERROR closed stream_ended"


@given(runs.parts_of_runs(), st.sampled_from([(), runs.ROUTERS]))
def test_any_part_of_a_run_is_a_well_formed_stream(events: list[vaka.Event], routers: tuple[str, ...]) -> None:
    encoder, check = AguiEncoder(routers=routers), AguiStreamCheck()
    for event in events:
        check.check(encoder.encode(event))
    check.check(encoder.finish())
    assert not check.is_open


REQUEST: dict[str, Any] = {
    "threadId": "s",
    "runId": "r",
    "state": {"a": 1},
    "forwardedProps": {"x": 1},
    "tools": [{"name": "pick", "description": "Pick.", "parameters": {"type": "object"}}],
    "context": [{"description": "page", "value": "home"}],
    "messages": [
        {"id": "0", "role": "system", "content": "Be kind."},
        {"id": "1", "role": "user", "content": "Old."},
        {
            "id": "2",
            "role": "assistant",
            "toolCalls": [{"id": "call_1", "type": "function", "function": {"name": "pick", "arguments": "{}"}}],
        },
        {"id": "call_9-result", "role": "tool", "content": "ours", "toolCallId": "call_9"},
        {"id": "3", "role": "tool", "content": "map.png", "toolCallId": "call_1"},
        {"id": "4", "role": "tool", "content": "", "toolCallId": "call_2", "error": "no file"},
        {
            "id": "5",
            "role": "user",
            "content": [
                {"type": "text", "text": "Grüße <b>"},
                {"type": "image", "source": {"type": "data", "value": "AA==", "mimeType": "image/png"}},
                {"type": "document", "source": {"type": "url", "value": "https://e.org/a.pdf"}},
            ],
        },
    ],
    "resume": [
        {"interruptId": "apr_1", "status": "resolved", "payload": {"approved": True, "editedArgs": {"city": "Hilo"}}}
    ],
}


def test_a_request_has_the_new_messages_results_and_answers() -> None:
    RunAgentInput.model_validate(REQUEST)
    given = parse_agui_input(msgspec.json.encode(REQUEST))
    assert (given.session, given.run_id, given.state) == ("s", "r", {"a": 1})
    assert given.instructions == (
        'Be kind.\n\nContext of the application:\n- page: home\n\nState of the application, as JSON:\n{"a":1}'
    )
    assert given.inputs == (
        control.InputAdded(
            key="5",
            source="ag-ui",
            content=(
                Text(text="Grüße <b>"),
                Image(data="AA==", media_type="image/png"),
                Document(url="https://e.org/a.pdf"),
            ),
        ),
    )
    assert given.results == (
        ToolResult(call=CallId("call_1"), content=(Text(text="map.png"),)),
        ToolResult(call=CallId("call_2"), content=(Text(text="no file"),), failed=True, reason="error"),
    )
    assert given.decisions[0] == control.ApprovalResolved(
        approval=DecisionId("apr_1"), decision="approve", edit={"city": "Hilo"}
    )
    assert (given.tools[0].name, given.stops_on_disconnect) == ("pick", True)
    assert parse_agui_input({"threadId": "s", "runId": "r", "messages": []}).inputs == ()


def test_answers_approve_reject_or_cancel() -> None:
    def answer(status: Any, payload: Any = None) -> AguiAnswer:
        return AguiAnswer(interrupt_id="i", status=status, payload=payload)

    assert [
        (decided.decision, decided.message)
        for decided in (
            answer("resolved", True).to_approval(),
            answer("resolved", {"approved": False, "message": "no"}).to_approval(),
            answer("cancelled").to_approval(),
        )
    ] == [("approve", ""), ("reject", "no"), ("reject", "cancelled")]
    assert answer("resolved", "east").to_answer() == control.QuestionAnswered(question=DecisionId("i"), answer="east")
    assert answer("cancelled", "east").to_answer().answer is None
    payloads: list[Any] = [None, "yes", {}, {"approved": "yes"}, {"approved": False, "editedArgs": {}}]
    for payload in payloads:
        with pytest.raises(InvalidInput, match="the answer to approval i"):
            answer("resolved", payload).to_approval()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"threadId": 1}, "not an AG-UI RunAgentInput"),
        ({"threadId": " "}, "session id"),
        ({"runId": ""}, "empty runId"),
        ({"resume": REQUEST["resume"] * 2}, "answers an interrupt twice"),
        ({"messages": [{"id": "", "role": "user", "content": "x"}]}, "empty id"),
        ({"messages": [{"id": "1", "role": "user", "content": 1}]}, "must be a text or a list of parts"),
        ({"messages": [{"id": "1", "role": "system", "content": 1}]}, "must be a text"),
        ({"messages": [{"id": "1", "role": "tool", "content": "x"}]}, "no toolCallId"),
        ({"messages": [{"id": "1", "role": "user", "content": [{"type": "video"}]}]}, "'video' is not supported"),
        ({"messages": [{"id": "1", "role": "user", "content": [{"type": "image"}]}]}, "needs a 'source'"),
        (
            {
                "messages": [
                    {
                        "id": "1",
                        "role": "user",
                        "content": [{"type": "audio", "source": {"type": "data", "value": "A"}}],
                    }
                ]
            },
            "without a 'mimeType'",
        ),
    ],
)
def test_a_request_that_cannot_be_read_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        parse_agui_input(REQUEST | change)


def test_bytes_that_are_not_json_are_refused() -> None:
    for request in (b"{", b"\xff", "[]", b"[" * 5000):
        with pytest.raises(InvalidInput, match="not an AG-UI RunAgentInput"):
            parse_agui_input(request)


def test_the_version_is_that_of_the_protocol() -> None:
    assert agui.PROTOCOL_VERSION == PROTOCOL_VERSION
