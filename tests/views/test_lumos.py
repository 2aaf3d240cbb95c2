"""Lumosai events: whole runs in their shape, the way back, and events of other servers."""
# ruff: noqa: E501  # an event is one line

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import msgspec
import pytest
from inline_snapshot import snapshot

import vaka
from tests.views import recorded_runs as runs
from vaka.core.types.ids import CallId
from vaka.core.types.message import Usage
from vaka.errors import InvalidInput
from vaka.events import (
    Body,
    Custom,
    MessageCompleted,
    MessageSnapshot,
    SubagentCompleted,
    TextDelta,
    TurnCancelled,
    TurnCompleted,
)
from vaka.testing import ScriptedModel
from vaka.views.lumos import LumosEncoder, LumosEvent, StreamingConfig, from_lumos, to_lumos

RUNS = [
    runs.record_tools,
    runs.record_output,
    runs.record_child,
    runs.record_interrupt,
    runs.record_retry,
    runs.record_failure,
    runs.record_resumed,
    runs.record_router,
]


def encode(
    events: Iterable[vaka.Event], path: tuple[str, ...] = (), routers: tuple[str, ...] = (), **config: Any
) -> list[LumosEvent]:
    encoder = LumosEncoder(StreamingConfig(**config), path=path, routers=routers)
    return [lumos_event for event in events for lumos_event in encoder.encode(event)]


def outline(events: Iterable[LumosEvent]) -> list[str]:
    """Return the JSON of each event, without the steps that its result repeats and the time, which stands still."""
    lines: list[str] = []
    for event in events:
        data = {name: value for name, value in event.data.items() if name != "timestamp"}
        if event.type == "GenerationComplete":
            data["result"] = {**data["result"], "steps": [step["id"] for step in data["result"]["steps"]]}
        lines.append(f"{event.type} {msgspec.json.encode(data).decode()}")
    return lines


async def test_a_run_with_text_and_calls() -> None:
    events = await runs.record_tools()
    shown = encode(events)
    assert outline(shown) == snapshot(
        [
            'AgentStarted {"agent_id":"guide"}',
            'TextDelta {"delta":"Let ","step_id":"trn_1.1"}',
            'TextDelta {"delta":"me ","step_id":"trn_1.1"}',
            'TextDelta {"delta":"see.","step_id":"trn_1.1"}',
            'ToolCallStart {"call":{"id":"call_1","name":"weather","arguments":{"city":"Hilo"}},"step_id":"trn_1.1"}',
            'ToolCallStart {"call":{"id":"call_2","name":"weather","arguments":{"city":"Atlantis"}},"step_id":"trn_1.1"}',
            'ToolCallStart {"call":{"id":"call_3","name":"tide","arguments":{}},"step_id":"trn_1.1"}',
            'ToolCallStart {"call":{"id":"call_4","name":"fly","arguments":{},"raw":"{}"},"step_id":"trn_1.1"}',
            'ToolCallComplete {"call_id":"call_3","result":{"call_id":"call_3","name":"tide","result":"tide is not allowed here","status":"error"},"reason":"denied","step_id":"trn_1.1"}',
            'ToolCallComplete {"call_id":"call_4","result":{"call_id":"call_4","name":"fly","result":"there is no tool \'fly\'; the tools are: weather","status":"error"},"reason":"unknown_tool","step_id":"trn_1.1"}',
            'ToolCallComplete {"call_id":"call_1","result":{"call_id":"call_1","name":"weather","result":"sunny in Hilo","status":"success"},"step_id":"trn_1.1"}',
            'ToolCallComplete {"call_id":"call_2","result":{"call_id":"call_2","name":"weather","result":"ValueError: there is no Atlantis","status":"error"},"reason":"error","step_id":"trn_1.1"}',
            'StepComplete {"step":{"id":"trn_1.1","step_type":"initial","input":[{"role":"user","content":"Go."}],"output":{"role":"assistant","content":"Let me see."},"tool_calls":[{"id":"call_1","name":"weather","arguments":{"city":"Hilo"}},{"id":"call_2","name":"weather","arguments":{"city":"Atlantis"}},{"id":"call_3","name":"tide","arguments":{}},{"id":"call_4","name":"fly","arguments":{},"raw":"{}"}],"tool_results":[{"call_id":"call_3","name":"tide","result":"tide is not allowed here","status":"error"},{"call_id":"call_4","name":"fly","result":"there is no tool \'fly\'; the tools are: weather","status":"error"},{"call_id":"call_1","name":"weather","result":"sunny in Hilo","status":"success"},{"call_id":"call_2","name":"weather","result":"ValueError: there is no Atlantis","status":"error"}],"metadata":{"model":"scripted","usage":{"prompt_tokens":10,"completion_tokens":2,"total_tokens":12}}},"step_id":"trn_1.1"}',
            'TextDelta {"delta":"Grüße, ","step_id":"trn_1.2"}',
            'TextDelta {"delta":"世界.","step_id":"trn_1.2"}',
            'StepComplete {"step":{"id":"trn_1.2","step_type":"final","input":[{"role":"tool","content":"tide is not allowed here","name":"tide"},{"role":"tool","content":"there is no tool \'fly\'; the tools are: weather","name":"fly"},{"role":"tool","content":"sunny in Hilo","name":"weather"},{"role":"tool","content":"ValueError: there is no Atlantis","name":"weather"}],"output":{"role":"assistant","content":"Grüße, 世界."},"tool_calls":[],"tool_results":[],"metadata":{"model":"scripted","usage":{"prompt_tokens":10,"completion_tokens":2,"total_tokens":12}}},"step_id":"trn_1.2"}',
            'GenerationComplete {"result":{"response":"Grüße, 世界.","steps":["trn_1.1","trn_1.2"],"usage":{"prompt_tokens":20,"completion_tokens":4,"total_tokens":24},"metadata":{"run_id":"trn_1","session_id":"s","stop":"end"}}}',
            'AgentStopped {"agent_id":"guide"}',
        ]
    )
    result = shown[-2].data["result"]
    assert result["steps"] == [event.data["step"] for event in shown if event.type == "StepComplete"]


async def test_metadata_shows_the_run_its_reasoning_and_each_tool_that_starts() -> None:
    events = await runs.record_tools()
    plain = outline(encode(events))
    assert [line for line in outline(encode(events, emit_metadata=True)) if line not in plain] == snapshot(
        [
            'Metadata {"key":"run_id","value":"trn_1"}',
            'Metadata {"key":"streaming_mode","value":"direct"}',
            'Metadata {"key":"reasoning","value":"hm","step_id":"trn_1.1"}',
            'MessageSent {"message":"Let me see."}',
            'ToolCalled {"tool_name":"weather","arguments":{"city":"Hilo"}}',
            'ToolCalled {"tool_name":"weather","arguments":{"city":"Atlantis"}}',
            'MessageSent {"message":"Grüße, 世界."}',
        ]
    )


async def test_changes_of_state_are_memory_updates_unless_they_are_switched_off() -> None:
    events = await runs.record_output()
    updates = [event for event in encode(events) if event.type == "MemoryUpdate"]
    assert outline(updates) == ['MemoryUpdate {"key":"counted","operation":{"Set":{"value":2}}}']
    assert "MemoryUpdate" not in {event.type for event in encode(events, emit_memory_updates=False)}


async def test_a_child_agent_is_a_collaboration_and_has_a_stream_of_its_own() -> None:
    events = await runs.record_child()
    assert outline(encode(events)) == snapshot(
        [
            'AgentStarted {"agent_id":"guide"}',
            'ToolCallStart {"call":{"id":"call_1","name":"scout","arguments":{"prompt":"Look."}},"step_id":"trn_1.1"}',
            'CollaborationStarted {"task_description":"Look.","session_id":"agent-1","participants":["scout"]}',
            'CollaborationCompleted {"results":{"scout":"It shines."},"session_id":"agent-1","participants":["scout"]}',
            'ToolCallComplete {"call_id":"call_1","result":{"call_id":"call_1","name":"scout","result":"It shines.","status":"success"},"step_id":"trn_1.1"}',
            'StepComplete {"step":{"id":"trn_1.1","step_type":"initial","input":[{"role":"user","content":"Go."}],"output":null,"tool_calls":[{"id":"call_1","name":"scout","arguments":{"prompt":"Look."}}],"tool_results":[{"call_id":"call_1","name":"scout","result":"It shines.","status":"success"}],"metadata":{"model":"scripted","usage":{"prompt_tokens":10,"completion_tokens":6,"total_tokens":16}}},"step_id":"trn_1.1"}',
            'TextDelta {"delta":"Sunny.","step_id":"trn_1.2"}',
            'StepComplete {"step":{"id":"trn_1.2","step_type":"final","input":[{"role":"tool","content":"It shines.","name":"scout"}],"output":{"role":"assistant","content":"Sunny."},"tool_calls":[],"tool_results":[],"metadata":{"model":"scripted","usage":{"prompt_tokens":18,"completion_tokens":2,"total_tokens":20}}},"step_id":"trn_1.2"}',
            'GenerationComplete {"result":{"response":"Sunny.","steps":["trn_1.1","trn_1.2"],"usage":{"prompt_tokens":53,"completion_tokens":17,"total_tokens":70},"metadata":{"run_id":"trn_1","session_id":"s","stop":"end"}}}',
            'AgentStopped {"agent_id":"guide"}',
        ]
    )
    assert outline(encode(events, ("agent-1",))) == snapshot(
        [
            'AgentStarted {"agent_id":"scout"}',
            'ToolCallStart {"call":{"id":"call_1.1","name":"weather","arguments":{"city":"Hilo"}},"step_id":"trn_1.agent-1.1"}',
            'ToolCallComplete {"call_id":"call_1.1","result":{"call_id":"call_1.1","name":"weather","result":"sunny in Hilo","status":"success"},"step_id":"trn_1.agent-1.1"}',
            'StepComplete {"step":{"id":"trn_1.agent-1.1","step_type":"initial","input":[{"role":"user","content":"Look."}],"output":null,"tool_calls":[{"id":"call_1.1","name":"weather","arguments":{"city":"Hilo"}}],"tool_results":[{"call_id":"call_1.1","name":"weather","result":"sunny in Hilo","status":"success"}],"metadata":{"model":"scripted","usage":{"prompt_tokens":8,"completion_tokens":6,"total_tokens":14}}},"step_id":"trn_1.agent-1.1"}',
            'TextDelta {"delta":"It ","step_id":"trn_1.agent-1.2"}',
            'TextDelta {"delta":"shines.","step_id":"trn_1.agent-1.2"}',
            'StepComplete {"step":{"id":"trn_1.agent-1.2","step_type":"final","input":[{"role":"tool","content":"sunny in Hilo","name":"weather"}],"output":{"role":"assistant","content":"It shines."},"tool_calls":[],"tool_results":[],"metadata":{"model":"scripted","usage":{"prompt_tokens":17,"completion_tokens":3,"total_tokens":20}}},"step_id":"trn_1.agent-1.2"}',
            'GenerationComplete {"result":{"response":"It shines.","steps":["trn_1.agent-1.1","trn_1.agent-1.2"],"usage":{"prompt_tokens":25,"completion_tokens":9,"total_tokens":34},"metadata":{"run_id":"trn_1","session_id":"s","stop":"end"}}}',
            'AgentStopped {"agent_id":"scout"}',
        ]
    )


async def test_the_agents_of_a_router_answer_in_its_place() -> None:
    events = await runs.record_router()
    shown = encode(events, routers=runs.ROUTERS)
    assert [line[:100] for line in outline(shown)] == snapshot(
        [
            'AgentStarted {"agent_id":"front"}',
            'CollaborationStarted {"task_description":"Book a room and play music.","session_id":"agent-1","parti',
            'CollaborationStarted {"task_description":"Book a room and play music.","session_id":"agent-1/agent-1',
            'ToolCallStart {"call":{"id":"call_1.1.1","name":"weather","arguments":{"city":"Hilo"}},"step_id":"tr',
            'ToolCallComplete {"call_id":"call_1.1.1","result":{"call_id":"call_1.1.1","name":"weather","result":',
            'StepComplete {"step":{"id":"trn_1.agent-1.agent-1.1","step_type":"initial","input":[{"role":"user","',
            'ToolCallStart {"call":{"id":"call_1.1.2","name":"leave","arguments":{}},"step_id":"trn_1.agent-1.age',
            'ToolCallComplete {"call_id":"call_1.1.2","result":{"call_id":"call_1.1.2","name":"leave","result":"o',
            'StepComplete {"step":{"id":"trn_1.agent-1.agent-1.2","step_type":"tool","input":[{"role":"tool","con',
            'TextDelta {"delta":"Booked.","step_id":"trn_1.agent-1.agent-1.3"}',
            'StepComplete {"step":{"id":"trn_1.agent-1.agent-1.3","step_type":"final","input":[{"role":"tool","co',
            'CollaborationCompleted {"results":{"booking":"Booked."},"session_id":"agent-1/agent-1","participants',
            'CollaborationCompleted {"results":{"desk":"Booked."},"session_id":"agent-1","participants":["desk"]}',
            'CollaborationStarted {"task_description":"Book a room and play music.","session_id":"agent-2","parti',
            'TextDelta {"delta":"Playing.","step_id":"trn_1.agent-2.1"}',
            'StepComplete {"step":{"id":"trn_1.agent-2.1","step_type":"final","input":[],"output":{"role":"assist',
            'CollaborationCompleted {"results":{"player":"Playing."},"session_id":"agent-2","participants":["play',
            'GenerationComplete {"result":{"response":"Booked.\\n\\nPlaying.","steps":["trn_1.agent-1.agent-1.1","t',
            'AgentStopped {"agent_id":"front"}',
        ]
    )
    unknown = encode(events, text_buffer_size=100)
    assert [event.data for event in unknown if event.type == "TextDelta"] == snapshot(
        [
            {
                "delta": """\
Booked.

Playing.\
""",
                "simulated": True,
            }
        ]
    )


async def test_turns_without_an_answer_end_in_an_error() -> None:
    assert outline(encode(await runs.record_failure())) == snapshot(
        [
            'AgentStarted {"agent_id":"greeter"}',
            'Error {"error":"no such model (status 400)","code":"model_refused","step_id":"trn_1.1"}',
            'AgentStopped {"agent_id":"greeter"}',
        ]
    )
    assert outline(encode(await runs.record_interrupt(), text_buffer_size=100)) == snapshot(
        [
            'AgentStarted {"agent_id":"counter"}',
            'TextDelta {"delta":"I am count","step_id":"trn_1.1"}',
            'Error {"error":"enough","code":"interrupted","step_id":"trn_1.1"}',
            'AgentStopped {"agent_id":"counter"}',
        ]
    )


async def test_text_that_does_not_count_is_taken_back() -> None:
    assert outline(encode(await runs.record_retry())) == snapshot(
        [
            'AgentStarted {"agent_id":"greeter"}',
            'TextDelta {"delta":"Hel","step_id":"trn_1.1"}',
            'Metadata {"key":"text_discarded","value":{"characters":3,"reason":"the answer of scripted was cut: it ended without its end marker","step_id":"trn_1.1"}}',
            'TextDelta {"delta":"Hello.","step_id":"trn_1.1"}',
            'StepComplete {"step":{"id":"trn_1.1","step_type":"final","input":[{"role":"user","content":"Go."}],"output":{"role":"assistant","content":"Hello."},"tool_calls":[],"tool_results":[],"metadata":{"model":"scripted","usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3}}},"step_id":"trn_1.1"}',
            'GenerationComplete {"result":{"response":"Hello.","steps":["trn_1.1"],"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3},"metadata":{"run_id":"trn_1","session_id":"s","stop":"end"}}}',
            'AgentStopped {"agent_id":"greeter"}',
        ]
    )


async def test_an_approval_is_a_custom_event_and_the_run_goes_on() -> None:
    assert [line[:90] for line in outline(encode(await runs.record_resumed()))] == snapshot(
        [
            'AgentStarted {"agent_id":"guide"}',
            'ToolCallStart {"call":{"id":"call_1","name":"weather","arguments":{"city":"Hilo"}},"step_i',
            'Custom {"event_name":"approval.requested","data":{"approval":"apr_1","call":{"id":"call_1"',
            'ToolCallComplete {"call_id":"call_1","result":{"call_id":"call_1","name":"weather","result',
            'StepComplete {"step":{"id":"trn_1.1","step_type":"initial","input":[{"role":"user","conten',
            'TextDelta {"delta":"Sunny.","step_id":"trn_1.2"}',
            'StepComplete {"step":{"id":"trn_1.2","step_type":"final","input":[{"role":"tool","content"',
            'GenerationComplete {"result":{"response":"Sunny.","steps":["trn_1.1","trn_1.2"],"usage":{"',
            'AgentStopped {"agent_id":"guide"}',
        ]
    )


async def test_a_buffer_counts_characters_and_an_answer_that_was_not_streamed_is_marked() -> None:
    model = ScriptedModel({"chunks": ["Grü", "ße", ", 世", "界 und ", "🌊🌊🌊", "."]})
    events = await runs.record(vaka.Agent("a", model=model))
    text = [event for event in events if event.type == "text.delta"]
    assert len(text) == 6
    for size in (1, 4, 5, 100):
        shown = [event.data for event in encode(events, text_buffer_size=size) if event.type == "TextDelta"]
        assert "".join(data["delta"] for data in shown) == "Grüße, 世界 und 🌊🌊🌊."
        assert all(len(data["delta"]) >= size for data in shown[:-1])
        assert not any("simulated" in data for data in shown)
        stored = encode((event for event in events if event.seq), text_buffer_size=size)
        pieces = [event.data for event in stored if event.type == "TextDelta"]
        assert "".join(data["delta"] for data in pieces) == "Grüße, 世界 und 🌊🌊🌊."
        assert all(len(data["delta"]) == size for data in pieces[:-1])
        assert all(data["simulated"] for data in pieces)


@pytest.mark.parametrize("record", RUNS)
async def test_events_survive_the_way_through_the_wire(record: Callable[[], Awaitable[list[vaka.Event]]]) -> None:
    events = await record()
    for path in ((), ("agent-1",)):
        wire = [event.to_json() for event in to_lumos(events, path=path)]
        assert list(from_lumos(wire)) == events
        assert [event.to_json() for event in from_lumos(map(msgspec.json.decode, wire))] == [
            event.to_json() for event in events
        ]


def live(*bodies: Body, path: tuple[str, ...] = ()) -> list[vaka.Event]:
    place: dict[str, Any] = {"session": "s", "ts": "2026-01-01T00:00:00.000Z", "turn": "t"}
    return [vaka.Event(data=body, path=path, **place) for body in bodies]


def test_a_reader_may_join_within_a_message_and_sees_no_text_twice() -> None:
    fields: dict[str, Any] = {"message_id": "m", "block": 0}
    events = live(
        MessageSnapshot(of="text.delta", text="Grüße", **fields),
        MessageSnapshot(of="reasoning.delta", text="hm", message_id="m", block=1),  # type: ignore[arg-type]  # an id
        MessageSnapshot(of="tool.args.delta", text="{", message_id="m", block=2),  # type: ignore[arg-type]  # an id
        TextDelta(offset=4, text="e, 世", **fields),
        TextDelta(offset=20, text="lost", **fields),
        MessageCompleted(message_id="m", content=(vaka.Text(text="Grüße, 世界."),)),  # type: ignore[arg-type]  # an id
    )
    assert [event.data["delta"] for event in encode(events)] == ["Grüße", ", 世", "界."]


def test_a_cancelled_turn_and_a_failed_child_end_in_errors() -> None:
    assert [event.data.get("error") for event in encode(live(TurnCancelled(), TurnCancelled(note="gone")))] == [
        "cancelled",
        None,
        "gone",
        None,
    ]
    failed = SubagentCompleted(call=CallId("c"), agent="scout", child="agent-1", failed=True, stop="broken")
    assert outline(encode(live(failed)))[0] == snapshot(
        'CollaborationCompleted {"results":{"scout":"broken"},"session_id":"agent-1","participants":["scout"]}'
    )
    assert [event.type for event in encode(live(failed), ("agent-1",))] == ["Error", "AgentStopped"]
    assert encode(live(failed), ("agent-2",)) == []


def test_custom_events_are_metadata() -> None:
    events = live(Custom(name="mood", value="calm"), Custom(name="lumos.mood", value="calm"))
    assert outline(encode(events, emit_metadata=True)) == snapshot(
        ['Metadata {"key":"mood","value":"calm"}', 'Metadata {"key":"lumos.mood","value":"calm"}']
    )
    assert encode(events) == []


FOREIGN: list[dict[str, Any]] = [
    {"type": "AgentStarted", "data": {"agent_id": "a", "timestamp": "2026-01-01T00:00:00Z"}},
    {"type": "TextDelta", "data": {"delta": "Let ", "step_id": "s1"}},
    {"type": "TextDelta", "data": {"delta": "me.", "step_id": "s1"}},
    {
        "type": "ToolCallStart",
        "data": {"tool_call": {"id": "c1", "name": "look", "arguments": {"x": 1}}, "step_id": "s1"},
    },
    {
        "type": "ToolCallComplete",
        "data": {
            "tool_result": {"call_id": "c1", "name": "look", "result": {"y": 2}, "status": "success"},
            "step_id": "s1",
        },
    },
    {"type": "ToolCallStart", "data": {"call": {"id": "c2", "name": "look", "arguments": {}}, "step_id": "s1"}},
    {
        "type": "ToolCallComplete",
        "data": {"call_id": "c2", "result": {"call_id": "c2", "name": "look", "result": "no", "status": "error"}},
    },
    {"type": "ToolCallComplete", "data": {"call_id": "c3", "result": "plain"}},
    {
        "type": "StepComplete",
        "data": {
            "step": {
                "id": "s1",
                "step_type": "initial",
                "input": [],
                "output": None,
                "tool_calls": [],
                "tool_results": [],
                "metadata": {},
            },
            "step_id": "s1",
        },
    },
    {"type": "TextDelta", "data": {"delta": "Done.", "step_id": "s2"}},
    {"type": "StepComplete", "data": {"step": {"id": "s2", "output": {"role": "assistant", "content": "Done."}}}},
    {"type": "MemoryUpdate", "data": {"key": "k", "operation": {"Set": {"value": [1]}}}},
    {"type": "MemoryUpdate", "data": {"key": "k", "operation": "Delete"}},
    {"type": "MemoryUpdate", "data": {"key": "k", "operation": "Clear"}},
    {"type": "Metadata", "data": {"key": "run_id", "value": "r"}},
    {"type": "Telepathy", "data": {"from": "afar"}},
    {
        "type": "GenerationComplete",
        "data": {
            "result": {
                "response": "Done.",
                "steps": [],
                "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
            }
        },
    },
    {"type": "AgentStopped", "data": {"agent_id": "a", "timestamp": "2026-01-01T00:00:01Z"}},
    {"type": "GenerationComplete", "data": {"final_response": "Short.", "total_steps": 1}},
    {"type": "Error", "data": {"error": "broken"}},
]


@pytest.mark.parametrize("usage", [None, {}, {"prompt_tokens": 3}])
def test_a_generation_without_counts_of_tokens_is_complete(usage: dict[str, int] | None) -> None:
    event = {"type": "GenerationComplete", "data": {"result": {"response": "Done.", "steps": [], "usage": usage}}}
    body = list(from_lumos([event], session="s"))[-1].data
    assert body == TurnCompleted(text="Done.", usage=Usage(input=(usage or {}).get("prompt_tokens", 0)))


def test_events_of_another_server_become_live_events() -> None:
    decoded = list(from_lumos(FOREIGN, session="s"))
    assert [f"{event.type} {event.step} {msgspec.json.encode(event.data).decode()}" for event in decoded] == snapshot(
        [
            'turn.started 0 {"agent":"a","inputs":[]}',
            'step.started 1 {"agent":"a","number":1}',
            'text.delta 1 {"message_id":"s1","block":0,"offset":0,"text":"Let "}',
            'text.delta 1 {"message_id":"s1","block":0,"offset":4,"text":"me."}',
            'tool.called 1 {"call":{"id":"c1","name":"look","arguments":{"x":1}},"message_id":"s1"}',
            'tool.completed 1 {"result":{"call":"c1","content":[{"type":"text","text":"{\\"y\\":2}"}],"value":{"y":2}}}',
            'tool.called 1 {"call":{"id":"c2","name":"look"},"message_id":"s1"}',
            'tool.failed 1 {"result":{"call":"c2","content":[{"type":"text","text":"no"}],"failed":true,"reason":"error"}}',
            'tool.completed 1 {"result":{"call":"c3","content":[{"type":"text","text":"plain"}]}}',
            'message.completed 1 {"message_id":"s1","content":[{"type":"text","text":"Let me."},{"type":"call","id":"c1"},{"type":"call","id":"c2"}]}',
            'step.completed 1 {"number":1}',
            'step.started 2 {"agent":"a","number":2}',
            'text.delta 2 {"message_id":"s2","block":0,"offset":0,"text":"Done."}',
            'message.completed 2 {"message_id":"s2","content":[{"type":"text","text":"Done."}]}',
            'step.completed 2 {"number":2}',
            'state.changed 2 {"key":"k","value":[1]}',
            'state.changed 2 {"key":"k"}',
            'custom.lumos.MemoryUpdate 2 {"name":"lumos.MemoryUpdate","value":{"key":"k","operation":"Clear"}}',
            'custom.lumos.Metadata 2 {"name":"lumos.Metadata","value":{"key":"run_id","value":"r"}}',
            'custom.lumos.Telepathy 2 {"name":"lumos.Telepathy","value":{"from":"afar"}}',
            'turn.completed 2 {"text":"Done.","usage":{"input":3,"output":2}}',
            'turn.completed 2 {"text":"Short.","usage":{}}',
            'turn.failed 2 {"code":"lumos","message":"broken"}',
        ]
    )
    assert {(event.session, event.seq, event.turn) for event in decoded} == {("s", 0, "run_1")}


def test_events_of_another_server_keep_their_meaning_on_the_way_back() -> None:
    first = encode(from_lumos(FOREIGN))
    again = encode(from_lumos(event.to_json() for event in first))
    assert outline(again) == outline(first)
    names = {event["type"] for event in FOREIGN}
    assert {event.type for event in first} == names


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        (b"{", "this is not a Lumosai event"),
        (b"[]", "this is not a Lumosai event"),
        ('{"data": {}}', "missing required field `type`"),
        ({"type": "TextDelta", "data": {"text": "x"}}, "TextDelta has no field 'delta'"),
        ({"type": "TextDelta", "data": {"delta": 1}}, "TextDelta has a field of the wrong type"),
        ({"type": "StepComplete", "data": {"step": []}}, "StepComplete has a field of the wrong type"),
        ({"type": "MemoryUpdate", "data": {"key": "k", "operation": 1}}, "MemoryUpdate has a field of the wrong type"),
        ({"type": "TextDelta", "data": {"delta": "", "timestamp": 1}}, "TextDelta has a field of the wrong type"),
    ],
)
def test_what_is_not_a_lumosai_event_is_refused(message: Any, problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        list(from_lumos([message]))


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(InvalidInput, match="text_buffer_size must be at least 1"):
        StreamingConfig(text_buffer_size=0)
    with pytest.raises(InvalidInput, match="text_delta_delay_ms must not be negative"):
        StreamingConfig(text_delta_delay_ms=-1)
