"""Which events a filter selects."""

from vaka.core.types import context, control, monitor, progress
from vaka.core.types.event import Body, Event
from vaka.core.types.ids import MessageId, SessionId
from vaka.server.event_filter import EventFilter


def event(body: Body, *path: str) -> Event:
    return Event(data=body, session=SessionId("s"), ts="", path=path)


TEXT = progress.TextDelta(message_id=MessageId("m"), block=0, offset=0, text="x")
SNAPSHOT = progress.MessageSnapshot(message_id=MessageId("m"), block=0, of="text.delta", text="x")


def test_without_conditions_everything_is_selected() -> None:
    assert EventFilter().selects_all
    assert EventFilter().selects(event(TEXT, "agent-1"))


def test_channels_and_types_select_and_events_about_the_stream_always_pass() -> None:
    chosen = EventFilter(channels=("progress",), types=("text.delta", "turn.completed"))
    bodies: list[Body] = [
        TEXT,
        SNAPSHOT,
        progress.TurnCompleted(text=""),
        progress.StepCompleted(number=1),
        context.CheckpointSaved(label="x"),
        control.StreamReset(),
        control.StreamEnd(),
        monitor.Logged(level="info", message="x"),
    ]
    assert [body.type for body in bodies if chosen.selects(event(body))] == [
        "text.delta",
        "message.snapshot",
        "turn.completed",
        "stream.reset",
        "stream.end",
    ]
    assert not chosen.selects_all
    assert not EventFilter(types=("reasoning.delta",)).selects(event(SNAPSHOT))


def test_a_path_selects_an_agent_and_those_below_it_to_a_depth() -> None:
    paths = ((), ("a",), ("a", "b"), ("a", "b", "c"), ("x",))

    def selected(chosen: EventFilter) -> list[tuple[str, ...]]:
        return [path for path in paths if chosen.selects(event(TEXT, *path))]

    assert selected(EventFilter(path=("a",))) == [("a",), ("a", "b"), ("a", "b", "c")]
    assert selected(EventFilter(path=("a",), depth=1)) == [("a",), ("a", "b")]
    assert selected(EventFilter(depth=0)) == [()]
