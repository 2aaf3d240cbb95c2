"""Events of a session as GenX agent events: order, ids, phases, and the JSON form."""

import base64
from pathlib import Path
from typing import Any

import pytest

import vaka
from tests.runtime.runtime_fixtures import agent, collect, collect_turn, runtime
from vaka.config.options import Models
from vaka.core.types import progress
from vaka.core.types.control import SessionClosed, SessionOpened, SessionReverted, StateChanged
from vaka.core.types.decode import decode
from vaka.core.types.errors import InvalidInput
from vaka.core.types.event import Body, Event
from vaka.core.types.ids import CallId, CallKey, MessageId, SessionId, TurnId
from vaka.core.types.message import Audio, Text, ToolCall, text_of
from vaka.genx.agent_events import (
    AgentEvent,
    AgentEventProjection,
    AgentEventType,
    Blob,
    RoundFailure,
    path_of_state_id,
    route_agent_event,
    state_id_of,
)
from vaka.genx.demux import StreamPiece
from vaka.stores.memory import MemoryStore
from vaka.testing.models import ScriptedModel, call, calls, fail, say

GOLDEN = Path(__file__).parents[1] / "golden"
NOW = "2026-01-02T03:04:05.678Z"


@vaka.tool(effect="read")
async def look(at: str = "") -> str:
    """Look at something."""
    if at == "nothing":
        raise ValueError("there is nothing")
    return f"seen {at}"


def project(events: list[Event], **options: Any) -> list[AgentEvent | RoundFailure]:
    projection = AgentEventProjection(events[0].session, **options)
    return [made for event in events for made in projection.feed(event)]


def lines(events: list[AgentEvent | RoundFailure]) -> list[str]:
    """Return one line per event: type, phase, agent, and its text, tool or error."""
    rows: list[str] = []
    for event in events:
        if isinstance(event, RoundFailure):
            rows.append(f"failure {event.agent_def} {event.code}: {event.message}")
            continue
        tool = f" {event.tool_call.func_call.name}{event.tool_call.func_call.arguments}" if event.tool_call else ""
        result = f" -> {event.tool_result.result}" if event.tool_result else ""
        part = ""
        if event.chunk is not None and event.chunk.ctrl is not None:
            marks = "b" * event.chunk.ctrl.begin_of_stream + "e" * event.chunk.ctrl.end_of_stream
            part = f" {event.chunk.part!r}{marks}"
        rows.append(f"{event.type} {event.phase or '-'} {event.agent_def}{part}{tool}{result}")
    return rows


def live(body: Body, path: tuple[str, ...] = ()) -> Event:
    return Event(data=body, session=SessionId("s"), ts=NOW, turn=TurnId("t"), path=path)


async def test_a_round_with_tools_keeps_the_order_of_the_log() -> None:
    model = ScriptedModel(
        calls(call("look", at="here"), call("look", at="nothing"), call("fly"), text="Looking."),
        {"chunks": ["He", "llo"]},
    )
    async with runtime() as rt:
        session = await rt.open(agent(model, look), id="s")
        events = project(await collect_turn(session))
    shown = lines(events)
    assert shown[:2] == ["chunk thinking assistant 'Looking.'b", "chunk thinking assistant ''e"]
    assert shown[-4:] == [
        "chunk thinking assistant 'He'b",
        "chunk thinking assistant 'llo'",
        "chunk thinking assistant ''e",
        "eof - assistant",
    ]
    tools = shown[2:-4]
    assert tools.index('tool_start tool assistant look{"at":"here"}') < tools.index(
        'tool_done tool assistant look{"at":"here"} -> seen here'
    )
    failed = [row for row in tools if row.startswith("tool_error")]
    assert len(failed) == 2
    assert any("look" in row and "there is nothing" in row for row in failed)
    assert any("fly{}" in row for row in failed)
    assert {event.agent_state_id for event in events} == {"s"}
    assert [event.type.ordinal for event in events if isinstance(event, AgentEvent)][-1] == 1


async def test_the_stored_log_alone_projects_to_whole_messages() -> None:
    store = MemoryStore()
    async with runtime(store) as rt:
        session = await rt.open(agent(ScriptedModel({"chunks": ["He", "llo"]})), id="s")
        await session.run("Go.")
        events = await collect(store.events.read(SessionId("s")))
    assert lines(project(events)) == ["chunk thinking assistant 'Hello'be", "eof - assistant"]


async def test_a_child_has_its_own_ids_and_its_end_is_not_that_of_the_caller() -> None:
    child = agent(ScriptedModel(say("Rain.", agent="weather")), name="weather", description="Knows the weather.")
    model = ScriptedModel(call("weather", prompt="Hilo?"), say("Rains."))
    async with runtime() as rt:
        session = await rt.open(agent(model, child), id="s")
        events = project(await collect_turn(session), agent_tools=["weather"])
    assert lines(events) == [
        'tool_start agent assistant weather{"prompt":"Hilo?"}',
        "chunk thinking weather 'Rain.'b",
        "chunk thinking weather ''e",
        'tool_done agent assistant weather{"prompt":"Hilo?"} -> Rain.',
        "chunk thinking assistant 'Rains.'b",
        "chunk thinking assistant ''e",
        "eof - assistant",
    ]
    [child_id] = {event.agent_state_id for event in events if event.agent_def == "weather"}
    session_id, path = path_of_state_id(child_id)
    assert (session_id, state_id_of(session_id, path)) == ("s", child_id)
    assert path


async def test_a_round_without_an_answer_is_a_failure() -> None:
    async with runtime(models=Models(retries=0)) as rt:
        session = await rt.open(agent(ScriptedModel(fail(400, "no such model"))), id="s")
        [failure] = project(await collect_turn(session))
        limited = await rt.open(
            agent(ScriptedModel(call("look"), call("look")), look, limits=vaka.Limits(max_steps=1)), id="limited"
        )
        *_, limit = project(await collect_turn(limited))
    assert isinstance(failure, RoundFailure)
    assert "no such model" in failure.message
    assert isinstance(limit, RoundFailure)
    assert (limit.code, "steps" in limit.message) == ("limit", True)


def test_a_router_shows_only_its_own_end_and_whether_an_agent_waits() -> None:
    def turn(*more: Event, child: str = "1", after: str = "") -> list[Event]:
        started = progress.SubagentStarted(
            call=CallId("c"), agent="music", child=child, content=(Text(text="Play."),), after=after
        )
        call = ToolCall(id=CallId("c"), name="music")
        return [
            live(progress.TurnStarted(agent="router", inputs=("i",))),
            live(progress.TextDelta(message_id=MessageId("r"), block=0, offset=0, text="music: play")),
            live(progress.ToolCalled(call=call, message_id=MessageId(""))),
            live(progress.ToolStarted(call=call, key=CallKey("k"), effect="resume")),
            live(started),
            live(progress.TextDelta(message_id=MessageId(f"m{child}"), block=0, offset=0, text="La"), (child,)),
            *more,
            live(progress.SubagentCompleted(call=CallId("c"), agent="music", child=child)),
            live(progress.TurnCompleted(text="La")),
        ]

    finished = live(StateChanged(key="$agent/1/:$finished", value={"turn": "t"}), ("2",))
    undone = live(StateChanged(key="$agent/1/:$finished", value=None))
    idle = [live(progress.TurnStarted(agent="router", inputs=("i",))), live(progress.TurnCompleted(text=""))]
    other = live(StateChanged(key="mood", value="good"))
    events = project(
        [*turn(other), *turn(finished, child="2", after="1"), *idle, undone, *turn(child="3", after="2")],
        routers=["router"],
    )
    assert lines(events) == [
        "chunk thinking music 'La'b",
        "eof executing router",
        "chunk thinking music 'La'b",
        "eof - router",
        "eof - router",
        "chunk thinking music 'La'b",
        "eof executing router",
    ]
    assert {event.agent_state_id for event in events} == {"s", "s/agent-1"}


def test_a_finished_agent_is_closed_until_it_is_rewound() -> None:
    projection = AgentEventProjection(SessionId("s"))
    ends: list[str] = []
    for body in (
        SessionOpened(agent="guide"),
        StateChanged(key="$finished", value={"turn": "t"}),
        progress.TurnCompleted(text="Bye."),
        SessionReverted(to=-1),
        progress.TurnCompleted(text="Hi."),
        progress.TurnInterrupted(),
        progress.TurnCancelled(note="the caller withdrew"),
        SessionClosed(),
    ):
        ends += lines(projection.feed(live(body)))
    assert ends == [
        "closed finished guide",
        "eof - guide",
        "interrupted - guide",
        "failure guide cancelled: the caller withdrew",
        "closed finished guide",
    ]


def test_snapshots_and_repeated_deltas_add_no_text_twice() -> None:
    message = MessageId("m")
    events = project(
        [
            live(progress.TextDelta(message_id=message, block=0, offset=0, text="Hel")),
            live(progress.TextDelta(message_id=message, block=0, offset=1, text="ell")),
            live(progress.MessageSnapshot(message_id=message, block=0, of="text.delta", text="Hello, ")),
            live(progress.MessageSnapshot(message_id=message, block=1, of="reasoning.delta", text="Hm.")),
            live(progress.TextDelta(message_id=message, block=2, offset=0, text="you")),
            live(progress.MessageCompleted(message_id=message, content=(Text(text="Hello, "), Text(text="you.")))),
            live(progress.MessageDiscarded(message_id=message)),
            live(progress.TextDelta(message_id=MessageId("n"), block=0, offset=0, text="Oh")),
            live(progress.MessageDiscarded(message_id=MessageId("n"))),
        ]
    )
    parts = [event.chunk for event in events if isinstance(event, AgentEvent)]
    assert [chunk and chunk.part for chunk in parts] == ["Hel", "l", "o, ", "you", ".", "Oh", ""]
    assert [chunk.ctrl.end_of_stream for chunk in parts if chunk and chunk.ctrl] == [False] * 4 + [True, False, True]
    assert {chunk.ctrl.timestamp for chunk in parts if chunk and chunk.ctrl} == {1767323045678}


@pytest.mark.parametrize("name", sorted(path.stem for path in GOLDEN.glob("*.jsonl")))
def test_every_recorded_log_has_an_end_for_each_start(name: str) -> None:
    events = [decode(line) for line in (GOLDEN / f"{name}.jsonl").read_bytes().splitlines() if line]
    texts: dict[str, str] = {}
    open_calls: list[str] = []
    for event in project(events):
        if isinstance(event, RoundFailure):
            continue
        assert AgentEvent.from_json(event.to_json()) == event
        if event.chunk is not None and event.chunk.ctrl is not None:
            texts[event.chunk.ctrl.stream_id] = texts.get(event.chunk.ctrl.stream_id, "") + str(event.chunk.part)
        elif event.tool_call is not None:
            if event.type == AgentEventType.TOOL_START:
                open_calls.append(event.tool_call.id)
            open_calls = [
                id for id in open_calls if event.type == AgentEventType.TOOL_START or id != event.tool_call.id
            ]
        else:
            assert event.agent_state_id == events[0].session
            assert not open_calls
    completed = [event.data for event in events if isinstance(event.data, progress.MessageCompleted)]
    assert texts == {body.message_id: text for body in completed if (text := text_of(body.content))}


def test_sound_is_a_blob_and_every_event_survives_its_json_form() -> None:
    sound = Audio(media_type="audio/pcm", data=base64.b64encode(b"\x00\x01").decode())
    call = ToolCall(id=CallId("c"), name="look", arguments={"at": 1})
    events = project(
        [
            live(progress.MessageCompleted(message_id=MessageId("m"), content=(Text(text="La"), sound))),
            live(progress.ToolStarted(call=call, key=CallKey("k"), effect="read")),
            live(progress.TurnCompleted(text="")),
        ],
        agent="singer",
    )
    kept = [event for event in events if isinstance(event, AgentEvent)]
    assert kept[1].chunk is not None
    assert kept[1].chunk.part == Blob(mime_type="audio/pcm", data=b"\x00\x01")
    [sound_piece] = route_agent_event(kept[1])
    assert isinstance(sound_piece, StreamPiece)
    assert (sound_piece.key, sound_piece.data) == (("s", "m/1", "audio"), b"\x00\x01")
    assert [AgentEvent.from_json(event.to_json()) for event in kept] == kept
    assert [event.is_terminal for event in kept] == [False] * 4
    assert AgentEvent.from_json({"type": 6, "phase": "", "agent_def": "a", "agent_state_id": "s"}) == AgentEvent(
        type=AgentEventType.INTERRUPTED, phase="", agent_def="a", agent_state_id="s"
    )


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ('{"type": "tool_start", "phase": "", "agent_def": "a", "agent_state_id": "s"}', "agent: invalid tool call"),
        ('{"type": "chunk", "phase": "", "agent_def": "a", "agent_state_id": "s"}', "needs a chunk"),
        ('{"type": 7, "phase": "", "agent_def": "a", "agent_state_id": "s"}', "cannot be decoded"),
        ('{"type": "eof"}', "missing required field"),
        ("[]", "cannot be decoded"),
    ],
)
def test_an_event_that_is_not_valid_names_its_fault(raw: str, expected: str) -> None:
    with pytest.raises(InvalidInput, match=expected):
        AgentEvent.from_json(raw)
