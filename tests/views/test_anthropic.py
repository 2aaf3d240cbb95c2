"""Stream events in Anthropic's shape: whole runs, and events that come in another order than usual."""
# ruff: noqa: E501  # an event is one line

from collections.abc import Iterable
from typing import Any

import msgspec
from inline_snapshot import snapshot

import vaka
from tests.views import recorded_runs as runs
from vaka.content import AssistantMessage, Image
from vaka.core.types.body import BODY_TYPES
from vaka.core.types.ids import CallId, SessionId, TurnId
from vaka.testing import ScriptedModel, call, say
from vaka.views.anthropic import StreamEncoder, StreamEvent


def encode(
    events: Iterable[vaka.Event], path: tuple[str, ...] = (), routers: tuple[str, ...] = ()
) -> list[StreamEvent]:
    encoder = StreamEncoder(path, routers=routers)
    return [stream_event for event in events for stream_event in encoder.encode(event)]


def json_of(event: StreamEvent) -> str:
    """Return the JSON of an event without what all events of a recorded run share."""
    fields: dict[str, Any] = msgspec.to_builtins(event)
    assert fields.pop("session_id") == "s"
    if event.message is not None:
        fields["message"] = {"id": event.message["id"]}
    return msgspec.json.encode(fields).decode()


def outline(events: Iterable[StreamEvent]) -> list[str]:
    """Return one short line for each event."""
    lines: list[str] = []
    for event in events:
        index = "" if event.index is None else str(event.index)
        details = [index, event.name, event.delta, event.output, "failed" if event.is_error else ""]
        lines.append(" ".join([event.type, *(str(detail) for detail in details if detail)]))
    return lines


async def test_a_run_with_reasoning_text_and_calls() -> None:
    assert [json_of(event) for event in encode(await runs.record_tools())] == snapshot(
        [
            '{"type":"agent_start"}',
            '{"type":"iteration_start","iteration":1}',
            '{"type":"message_start","message":{"id":"msg_1"}}',
            '{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}',
            '{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"hm"}}',
            '{"type":"content_block_stop","index":0}',
            '{"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}}',
            '{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"Let "}}',
            '{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"me "}}',
            '{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"see."}}',
            '{"type":"content_block_stop","index":1}',
            '{"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"msg_1_2","name":"weather","input":{}}}',
            '{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{\\"city\\":\\"Hilo\\"}"}}',
            '{"type":"content_block_stop","index":2}',
            '{"type":"content_block_start","index":3,"content_block":{"type":"tool_use","id":"msg_1_3","name":"weather","input":{}}}',
            '{"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":"{\\"city\\":\\"Atlantis\\"}"}}',
            '{"type":"content_block_stop","index":3}',
            '{"type":"content_block_start","index":4,"content_block":{"type":"tool_use","id":"msg_1_4","name":"tide","input":{}}}',
            '{"type":"content_block_delta","index":4,"delta":{"type":"input_json_delta","partial_json":"{}"}}',
            '{"type":"content_block_stop","index":4}',
            '{"type":"content_block_start","index":5,"content_block":{"type":"tool_use","id":"msg_1_5","name":"fly","input":{}}}',
            '{"type":"content_block_delta","index":5,"delta":{"type":"input_json_delta","partial_json":"{}"}}',
            '{"type":"content_block_stop","index":5}',
            '{"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"input_tokens":10,"output_tokens":2}}',
            '{"type":"message_stop"}',
            '{"type":"tool_execution_output","tool_use_id":"msg_1_4","name":"tide","output":"tide is not allowed here","is_error":true,"iteration":1}',
            '{"type":"tool_execution_result","tool_use_id":"msg_1_4","name":"tide","output":{"output":"tide is not allowed here","metadata":{"reason":"denied"}},"is_error":true,"iteration":1}',
            '{"type":"tool_execution_output","tool_use_id":"msg_1_5","name":"fly","output":"there is no tool \'fly\'; the tools are: weather","is_error":true,"iteration":1}',
            '{"type":"tool_execution_result","tool_use_id":"msg_1_5","name":"fly","output":{"output":"there is no tool \'fly\'; the tools are: weather","metadata":{"reason":"unknown_tool"}},"is_error":true,"iteration":1}',
            '{"type":"tool_execution_start","tool_use_id":"msg_1_2","name":"weather","iteration":1}',
            '{"type":"tool_execution_start","tool_use_id":"msg_1_3","name":"weather","iteration":1}',
            '{"type":"tool_execution_output","tool_use_id":"msg_1_2","name":"weather","output":"sunny in Hilo","iteration":1}',
            '{"type":"tool_execution_result","tool_use_id":"msg_1_2","name":"weather","output":{"output":"sunny in Hilo","metadata":{}},"iteration":1}',
            '{"type":"tool_execution_output","tool_use_id":"msg_1_3","name":"weather","output":"ValueError: there is no Atlantis","is_error":true,"iteration":1}',
            '{"type":"tool_execution_result","tool_use_id":"msg_1_3","name":"weather","output":{"output":"ValueError: there is no Atlantis","metadata":{"reason":"error"}},"is_error":true,"iteration":1}',
            '{"type":"iteration_stop","iteration":1}',
            '{"type":"iteration_start","iteration":2}',
            '{"type":"message_start","message":{"id":"msg_2"}}',
            '{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}',
            '{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Grüße, "}}',
            '{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"世界."}}',
            '{"type":"content_block_stop","index":0}',
            '{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"input_tokens":10,"output_tokens":2}}',
            '{"type":"message_stop"}',
            '{"type":"iteration_stop","iteration":2}',
            '{"type":"agent_stop","total_iterations":2}',
        ]
    )


async def test_a_log_without_deltas_gives_the_same_blocks() -> None:
    events = await runs.record_tools()
    live, replayed = encode(events), encode(event for event in events if event.seq)

    def without_deltas(stream_events: list[StreamEvent]) -> list[StreamEvent]:
        return [event for event in stream_events if event.type != "content_block_delta"]

    assert without_deltas(replayed) == without_deltas(live)
    assert texts_of(replayed) == texts_of(live)


def texts_of(events: Iterable[StreamEvent]) -> list[str]:
    """Return the joined deltas of each block, in order."""
    texts: list[str] = []
    for event in events:
        if event.type == "content_block_start":
            texts.append("")
        elif event.type == "content_block_delta":
            delta = event.delta or {}
            texts[-1] += delta.get("text") or delta.get("thinking") or delta.get("partial_json") or ""
    return texts


async def test_what_a_tool_prints_is_output_while_it_runs() -> None:
    assert outline(encode(await runs.record_output())) == snapshot(
        [
            "agent_start",
            "iteration_start",
            "message_start",
            "content_block_start 0",
            "content_block_delta 0 {'type': 'input_json_delta', 'partial_json': '{\"to\":2}'}",
            "content_block_stop 0",
            "message_delta {'stop_reason': 'tool_use', 'stop_sequence': None}",
            "message_stop",
            "tool_execution_start count",
            "tool_execution_output count 1\n",
            "tool_execution_output count 2\n",
            "tool_execution_output count done",
            "tool_execution_result count {'output': 'done', 'metadata': {}}",
            "iteration_stop",
            "iteration_start",
            "message_start",
            "content_block_start 0",
            "content_block_delta 0 {'type': 'text_delta', 'text': 'Counted.'}",
            "content_block_stop 0",
            "message_delta {'stop_reason': 'end_turn', 'stop_sequence': None}",
            "message_stop",
            "iteration_stop",
            "agent_stop",
        ]
    )


async def test_a_child_agent_is_a_tool_call_and_has_a_stream_of_its_own() -> None:
    events = await runs.record_child()
    assert outline(encode(events)) == snapshot(
        [
            "agent_start",
            "iteration_start",
            "message_start",
            "content_block_start 0",
            "content_block_delta 0 {'type': 'input_json_delta', 'partial_json': '{\"prompt\":\"Look.\"}'}",
            "content_block_stop 0",
            "message_delta {'stop_reason': 'tool_use', 'stop_sequence': None}",
            "message_stop",
            "tool_execution_start scout",
            "tool_execution_output scout It shines.",
            "tool_execution_result scout {'output': 'It shines.', 'metadata': {}}",
            "iteration_stop",
            "iteration_start",
            "message_start",
            "content_block_start 0",
            "content_block_delta 0 {'type': 'text_delta', 'text': 'Sunny.'}",
            "content_block_stop 0",
            "message_delta {'stop_reason': 'end_turn', 'stop_sequence': None}",
            "message_stop",
            "iteration_stop",
            "agent_stop",
        ]
    )
    assert outline(encode(events, ("agent-1",))) == snapshot(
        [
            "agent_start",
            "iteration_start",
            "message_start",
            "content_block_start 0",
            "content_block_delta 0 {'type': 'input_json_delta', 'partial_json': '{\"city\":\"Hilo\"}'}",
            "content_block_stop 0",
            "message_delta {'stop_reason': 'tool_use', 'stop_sequence': None}",
            "message_stop",
            "tool_execution_start weather",
            "tool_execution_output weather sunny in Hilo",
            "tool_execution_result weather {'output': 'sunny in Hilo', 'metadata': {}}",
            "iteration_stop",
            "iteration_start",
            "message_start",
            "content_block_start 0",
            "content_block_delta 0 {'type': 'text_delta', 'text': 'It '}",
            "content_block_delta 0 {'type': 'text_delta', 'text': 'shines.'}",
            "content_block_stop 0",
            "message_delta {'stop_reason': 'end_turn', 'stop_sequence': None}",
            "message_stop",
            "iteration_stop",
            "agent_stop",
        ]
    )
    assert encode(events, ("agent-2",)) == []


async def test_the_agents_of_a_router_answer_in_its_place() -> None:
    events = await runs.record_router()
    assert outline(encode(events, routers=runs.ROUTERS)) == snapshot(
        [
            "agent_start",
            "iteration_start",
            "message_start",
            "content_block_start 0",
            "content_block_delta 0 {'type': 'input_json_delta', 'partial_json': '{\"city\":\"Hilo\"}'}",
            "content_block_stop 0",
            "message_delta {'stop_reason': 'tool_use', 'stop_sequence': None}",
            "message_stop",
            "tool_execution_start weather",
            "tool_execution_output weather sunny in Hilo",
            "tool_execution_result weather {'output': 'sunny in Hilo', 'metadata': {}}",
            "iteration_stop",
            "iteration_start",
            "message_start",
            "content_block_start 0",
            "content_block_delta 0 {'type': 'input_json_delta', 'partial_json': '{}'}",
            "content_block_stop 0",
            "message_delta {'stop_reason': 'tool_use', 'stop_sequence': None}",
            "message_stop",
            "tool_execution_start leave",
            "tool_execution_output leave ok",
            "tool_execution_result leave {'output': 'ok', 'metadata': {}}",
            "iteration_stop",
            "iteration_start",
            "message_start",
            "content_block_start 0",
            "content_block_delta 0 {'type': 'text_delta', 'text': 'Booked.'}",
            "content_block_stop 0",
            "message_delta {'stop_reason': 'end_turn', 'stop_sequence': None}",
            "message_stop",
            "iteration_stop",
            "iteration_start",
            "message_start",
            "content_block_start 0",
            "content_block_delta 0 {'type': 'text_delta', 'text': 'Playing.'}",
            "content_block_stop 0",
            "message_delta {'stop_reason': 'end_turn', 'stop_sequence': None}",
            "message_stop",
            "iteration_stop",
            "agent_stop",
        ]
    )
    assert outline(encode(events)) == snapshot(
        [
            "agent_start",
            "tool_execution_start desk",
            "tool_execution_output desk Booked.",
            "tool_execution_result desk {'output': 'Booked.', 'metadata': {}}",
            "tool_execution_start player",
            "tool_execution_output player Playing.",
            "tool_execution_result player {'output': 'Playing.', 'metadata': {}}",
            "message_start",
            "content_block_start 0",
            "content_block_delta 0 {'type': 'text_delta', 'text': 'Booked.\\n\\nPlaying.'}",
            "content_block_stop 0",
            "message_delta {'stop_reason': 'end_turn', 'stop_sequence': None}",
            "message_stop",
            "agent_stop",
        ]
    )


async def test_a_discarded_message_ends_and_another_one_begins() -> None:
    assert outline(encode(await runs.record_retry())) == snapshot(
        [
            "agent_start",
            "iteration_start",
            "message_start",
            "content_block_start 0",
            "content_block_delta 0 {'type': 'text_delta', 'text': 'Hel'}",
            "content_block_stop 0",
            "message_delta {'stop_reason': 'discarded', 'stop_sequence': None}",
            "message_stop",
            "message_start",
            "content_block_start 0",
            "content_block_delta 0 {'type': 'text_delta', 'text': 'Hello.'}",
            "content_block_stop 0",
            "message_delta {'stop_reason': 'end_turn', 'stop_sequence': None}",
            "message_stop",
            "iteration_stop",
            "agent_stop",
        ]
    )


async def test_a_turn_without_an_answer_ends_in_one_error() -> None:
    assert outline(encode(await runs.record_failure())) == snapshot(
        [
            "agent_start",
            "iteration_start",
            "message_start",
            "message_delta {'stop_reason': 'discarded', 'stop_sequence': None}",
            "message_stop",
            "error no such model (status 400) failed",
        ]
    )
    assert outline(encode(await runs.record_interrupt())) == snapshot(
        [
            "agent_start",
            "iteration_start",
            "message_start",
            "content_block_start 0",
            "content_block_delta 0 {'type': 'text_delta', 'text': 'I am count'}",
            "content_block_stop 0",
            "message_delta {'stop_reason': 'cut', 'stop_sequence': None}",
            "message_stop",
            "error enough failed",
        ]
    )


async def test_an_interrupted_parent_ends_the_stream_of_its_child() -> None:
    scout = vaka.Agent("scout", model=runs.Hanging())
    model = ScriptedModel(call("scout", prompt="Look."))
    events = await runs.record(vaka.Agent("guide", model=model, tools=[scout]))
    assert outline(encode(events, ("agent-1",))) == snapshot(
        [
            "agent_start",
            "iteration_start",
            "message_start",
            "content_block_start 0",
            "content_block_delta 0 {'type': 'text_delta', 'text': 'I am count'}",
            "content_block_stop 0",
            "message_delta {'stop_reason': 'cut', 'stop_sequence': None}",
            "message_stop",
            "error enough failed",
        ]
    )


async def test_a_turn_that_waited_for_an_approval_goes_on_in_the_same_stream() -> None:
    events = await runs.record_resumed()
    assert outline(encode(events)) == snapshot(
        [
            "agent_start",
            "iteration_start",
            "message_start",
            "content_block_start 0",
            "content_block_delta 0 {'type': 'input_json_delta', 'partial_json': '{\"city\":\"Hilo\"}'}",
            "content_block_stop 0",
            "message_delta {'stop_reason': 'tool_use', 'stop_sequence': None}",
            "message_stop",
            "tool_execution_start weather",
            "tool_execution_output weather sunny in Hilo",
            "tool_execution_result weather {'output': 'sunny in Hilo', 'metadata': {}}",
            "iteration_stop",
            "iteration_start",
            "message_start",
            "content_block_start 0",
            "content_block_delta 0 {'type': 'text_delta', 'text': 'Sunny.'}",
            "content_block_stop 0",
            "message_delta {'stop_reason': 'end_turn', 'stop_sequence': None}",
            "message_stop",
            "iteration_stop",
            "agent_stop",
        ]
    )
    resumed = next(at for at, event in enumerate(events) if event.type == "turn.resumed")
    assert outline(encode(events[resumed:]))[:2] == ["agent_start", "tool_execution_start weather"]


async def test_a_limit_is_in_the_last_event() -> None:
    model = ScriptedModel(call("weather", city="Hilo"), say("never"))
    agent = vaka.Agent("guide", model=model, tools=[runs.weather], limits=vaka.Limits(max_steps=1))
    assert outline(encode(await runs.record(agent)))[-1] == snapshot("agent_stop {'stop': 'limit', 'limit': 'steps'}")


def live(kind: str, **fields: Any) -> vaka.Event:
    """Return an event, one of message ``m`` if it belongs to a message and its fields name no other."""
    named = {"message_id": "m"} if "message_id" in BODY_TYPES[kind].__struct_fields__ else {}
    body = BODY_TYPES[kind](**{**named, **fields})
    return vaka.Event(data=body, session=SessionId("s"), ts="2026-01-01T00:00:00.000Z", turn=TurnId("t"), step=1)


def test_interleaved_arguments_are_sent_block_by_block() -> None:
    pieces = [(0, 0, '{"a": {}'), (1, 0, '{"b": 2'), (0, 8, ", "), (0, 10, '"c": 1}'), (1, 7, "}")]
    events = [live("tool.args.delta", block=block, offset=at, text=text, name="look") for block, at, text in pieces]
    assert outline(encode([live("message.started"), *events])) == snapshot(
        [
            "message_start",
            "content_block_start 0",
            "content_block_delta 0 {'type': 'input_json_delta', 'partial_json': '{\"a\": {}'}",
            "content_block_delta 0 {'type': 'input_json_delta', 'partial_json': ', '}",
            "content_block_delta 0 {'type': 'input_json_delta', 'partial_json': '\"c\": 1}'}",
            "content_block_stop 0",
            "content_block_start 1",
            "content_block_delta 1 {'type': 'input_json_delta', 'partial_json': '{\"b\": 2'}",
            "content_block_delta 1 {'type': 'input_json_delta', 'partial_json': '}'}",
        ]
    )


def test_repeated_deltas_change_nothing_and_a_reader_may_join_within_a_message() -> None:
    joined = live("message.snapshot", block=0, of="text.delta", text="Grüße")
    pieces = [(3, "ße"), (4, "e, 世"), (4, "e, 世"), (9, "lost")]
    later = [live("text.delta", block=0, offset=offset, text=text) for offset, text in pieces]
    assert texts_of(encode([joined, *later])) == ["Grüße, 世"]
    printed = live("message.snapshot", message_id="call_1", block=0, of="tool.output.delta", text="1\n")
    assert encode([printed]) == [
        StreamEvent(type="tool_execution_output", session_id="s", tool_use_id="call_1", output="1\n")
    ]


def test_what_has_no_stream_event_is_left_out() -> None:
    image = Image(media_type="image/png", data="aGk=")
    shown = live("message.completed", content=(image, vaka.Text(text="Look.")), stop="end")
    call = vaka.ToolCall(id=CallId("call_1"), name="look")
    started = live("tool.started", call=call, key="k", effect="read")
    cancelled = live("turn.cancelled")
    assert outline(encode([shown, started, started, cancelled])) == [
        "message_start",
        "content_block_start 0",
        "content_block_delta 0 {'type': 'text_delta', 'text': 'Look.'}",
        "content_block_stop 0",
        "message_delta {'stop_reason': 'end_turn', 'stop_sequence': None}",
        "message_stop",
        "tool_execution_start look",
        "error cancelled failed",
    ]


def test_a_call_without_a_name_waits_for_it() -> None:
    unnamed = live("tool.args.delta", block=0, offset=0, text="")
    assert outline(encode([unnamed])) == ["message_start"]
    named = live("tool.args.delta", block=0, offset=0, text="{}", name="look")
    assert len(encode([unnamed, named])) == 3


def test_a_new_message_ends_one_that_a_crash_has_left_open() -> None:
    text = live("text.delta", block=0, offset=0, text="Hel")
    assert outline(encode([text, live("message.started", message_id="n")])) == snapshot(
        [
            "message_start",
            "content_block_start 0",
            "content_block_delta 0 {'type': 'text_delta', 'text': 'Hel'}",
            "content_block_stop 0",
            "message_delta {'stop_reason': 'discarded', 'stop_sequence': None}",
            "message_stop",
            "message_start",
        ]
    )


async def test_calls_that_middleware_adds_and_drops_are_those_of_the_log() -> None:
    async def swap(turn: vaka.Turn, message: AssistantMessage) -> AssistantMessage:
        if not message.calls:
            return message
        added = vaka.ToolCall(id=CallId("call_9"), name="weather", arguments={"city": "Kona"})
        return msgspec.structs.replace(message, content=message.content[:1], calls=(added,))

    model = ScriptedModel(say("So.", **call("tide")), say("Done."))
    middleware = vaka.Middleware.from_functions("swap", after_model=swap)
    agent = vaka.Agent("guide", model=model, tools=[runs.weather, runs.tide], middleware=[middleware])
    assert outline(encode(await runs.record(agent)))[3:19] == snapshot(
        [
            "content_block_start 0",
            "content_block_delta 0 {'type': 'text_delta', 'text': 'So.'}",
            "content_block_stop 0",
            "content_block_start 1",
            "content_block_delta 1 {'type': 'input_json_delta', 'partial_json': '{}'}",
            "content_block_stop 1",
            "content_block_start 2",
            "content_block_delta 2 {'type': 'input_json_delta', 'partial_json': '{\"city\":\"Kona\"}'}",
            "content_block_stop 2",
            "message_delta {'stop_reason': 'tool_use', 'stop_sequence': None}",
            "message_stop",
            "tool_execution_start weather",
            "tool_execution_output weather sunny in Kona",
            "tool_execution_result weather {'output': 'sunny in Kona', 'metadata': {}}",
            "iteration_stop",
            "iteration_start",
        ]
    )
