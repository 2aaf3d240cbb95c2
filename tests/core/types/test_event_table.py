"""Every event type: its name, its channel, and whether it is durable."""

import inspect

import pytest

from vaka.core.session.hash_chain import seal
from vaka.core.types import context, control, event, monitor, progress
from vaka.core.types.body import BODY_TYPES
from vaka.core.types.control import key_of
from vaka.core.types.event import Body, Channel, Control, Custom, Event, Monitor, Progress, Unknown

STORED: dict[Channel, str] = {
    "progress": """
        turn.queued turn.started turn.resumed turn.completed turn.failed turn.cancelled turn.interrupted
        step.started step.completed message.completed message.discarded tool.called tool.started tool.returned
        tool.completed tool.failed subagent.started subagent.completed output.rejected agent.continued
    """,
    "control": """
        input.added input.withdrawn interrupt.requested approval.requested approval.resolved approval.expired
        question.asked question.answered session.opened session.updated session.forked session.reverted session.closed
        session.erased
        context.compacted checkpoint.saved handoff state.changed
    """,
    "monitor": """
        usage model.selected model.failed hook.ran budget.warning cache.busted mcp.changed log error
        script.called script.answered custom
    """,
}
LIVE: dict[Channel, str] = {
    "progress": """
        message.started text.delta reasoning.delta message.snapshot tool.args.delta tool.output.delta
    """,
    "control": "stream.reset stream.end",
    "monitor": "",
}
TABLE = [
    (name, channel, durable)
    for durable, half in ((True, STORED), (False, LIVE))
    for channel, names in half.items()
    for name in names.split()
]


def test_each_event_has_its_channel_and_durability() -> None:
    bodies = [(body.type, body.channel, body.durable) for body in (BODY_TYPES[name] for name, _, _ in TABLE)]
    assert bodies == TABLE
    bases: dict[Channel, type[Body]] = {"progress": Progress, "control": Control, "monitor": Monitor}
    assert [name for name, channel, _ in TABLE if not issubclass(BODY_TYPES[name], bases[channel])] == []


def test_every_event_type_is_in_the_table() -> None:
    assert {name for name, _, _ in TABLE} | {"unknown"} == set(BODY_TYPES)


def test_every_event_has_a_docstring_of_whole_sentences() -> None:
    for module in (progress, control, context, monitor, event):
        for _, kind in inspect.getmembers(module, inspect.isclass):
            if issubclass(kind, Body):
                assert kind.__doc__
                assert kind.__doc__.strip()[-1] in ".)"


def test_bodies_are_immutable_and_have_no_methods() -> None:
    body = progress.TurnQueued(input="k")
    with pytest.raises(AttributeError):
        body.input = "other"
    for kind in BODY_TYPES.values():
        own = {name for name, value in vars(kind).items() if inspect.isfunction(value) and not name.startswith("__")}
        assert own == set(), f"{kind.__name__} has methods"


def test_custom_and_unknown_events_take_type_and_channel_from_their_body() -> None:
    custom = Event(data=Custom(name="mine", value=1), session="s", ts="")  # type: ignore[arg-type]  # an id is a string
    assert (custom.type, custom.channel, custom.id) == ("custom.mine", "monitor", "")
    unknown = Event(data=Unknown(name="new.kind", raw=b"{}", of="control"), session="s", ts="")  # type: ignore[arg-type]  # an id is a string
    unknown = seal(unknown, epoch=1, seq=3, prev="")
    assert (unknown.type, unknown.channel, unknown.id) == ("new.kind", "control", "1.3")


@pytest.mark.parametrize(
    ("body", "key"),
    [
        (control.InputAdded(key="a", content=()), "a"),
        (control.InterruptRequested(key="b"), "b"),
        (control.ApprovalResolved(approval="c", decision="reject"), "c"),  # type: ignore[arg-type]  # an id is a string
        (control.ApprovalExpired(approval="d"), "d"),  # type: ignore[arg-type]  # an id is a string
        (control.QuestionAnswered(question="e"), "e"),  # type: ignore[arg-type]  # an id is a string
        (progress.StepCompleted(number=1), ""),
    ],
)
def test_a_body_that_can_be_offered_has_a_key(body: Body, key: str) -> None:
    assert key_of(body) == key
