"""The committed schema of events is up to date, and real events match it."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import jsonschema_rs
import msgspec
import pytest

from scripts import schema
from vaka.core.session.hash_chain import seal
from vaka.core.types import context, control, monitor, progress
from vaka.core.types.event import Body, Custom, Event, Unknown
from vaka.core.types.ids import CallId, CallKey, DecisionId, Digest, MessageId, SessionId, TurnId
from vaka.core.types.message import (
    Audio,
    CallRef,
    Document,
    Image,
    Reasoning,
    Stored,
    Text,
    ToolCall,
    ToolResult,
    Usage,
)
from vaka.stores.erased_events import erase_event

CALL = ToolCall(id=CallId("call_1"), name="look", arguments={"at": [1, None]}, raw="{", repaired="r", provider_id="p")
CONTENT = (
    Text(text="hi"),
    Image(media_type="image/png", data="AA=="),
    Audio(url="https://example.com/a"),
    Document(blob=Digest("d"), name="x.pdf"),
    Stored(blob=Digest("d"), size=9, preview="p"),
    Reasoning(text="hm", signature="s", opaque={"x": 1}),
    CallRef(id=CallId("call_1")),
)
RESULT = ToolResult(call=CallId("call_1"), content=CONTENT, failed=True, reason="denied", value={"n": 1})
USAGE = Usage(input=1, output=2, cache_read=3, cache_write=4, reasoning=5, cost=0.5)
M, D = MessageId("m"), DecisionId("d")

EXAMPLES: list[Body] = [
    progress.TurnQueued(input="k"),
    progress.TurnStarted(agent="a", inputs=("k",), content=CONTENT),
    progress.TurnResumed(agent="a"),
    progress.TurnCompleted(text="t", stop="limit", limit="steps", usage=USAGE),
    progress.TurnFailed(code="c", message="m", text="t", withdrawn=True, usage=USAGE),
    progress.TurnCancelled(note="n", text="t", usage=USAGE),
    progress.TurnInterrupted(note="n", text="t", usage=USAGE),
    progress.StepStarted(agent="a", number=1, model="m", system=Digest("s"), tools=Digest("t"), inputs=("k",)),
    progress.StepCompleted(number=1),
    progress.MessageStarted(message_id=M, model="m"),
    progress.TextDelta(message_id=M, block=0, offset=0, text="t"),
    progress.ReasoningDelta(message_id=M, block=0, offset=0, text="t"),
    progress.ToolArgsDelta(message_id=M, block=0, offset=0, text="t", name="n"),
    progress.ToolOutputDelta(message_id=M, block=0, offset=0, text="t"),
    progress.MessageSnapshot(message_id=M, block=0, of="text.delta", text="t", name="n", offset=1),
    progress.MessageCompleted(message_id=M, content=CONTENT, model="m", stop="end", cut=True, system=Digest("s")),
    progress.MessageDiscarded(message_id=M, reason="r"),
    progress.ToolCalled(call=CALL, message_id=M),
    progress.ToolStarted(call=CALL, key=CallKey("k"), effect="read", deadline="x", attempt=2),
    progress.ToolReturned(result=RESULT),
    progress.ToolCompleted(result=RESULT),
    progress.ToolFailed(result=RESULT),
    progress.SubagentStarted(call=CALL.id, agent="a", child="c", content=CONTENT, session=SessionId("x")),
    progress.SubagentCompleted(call=CALL.id, agent="a", child="c", text="t", failed=True, stop="s", value=[1]),
    progress.OutputRejected(number=1, feedback="f"),
    progress.AgentContinued(number=1, text="t", by="b"),
    monitor.ScriptCalled(number=1, name="invoke", digest=Digest("d"), call=CALL.id, model=2),
    monitor.ScriptAnswered(
        number=1, name="invoke", digest=Digest("d"), answer={"a": [1]}, error="e", call=CALL.id, blob=Digest("b"), at=5
    ),
    control.InputAdded(key="k", content=CONTENT, policy="steer", source="s"),
    control.InputWithdrawn(input="k", by="b"),
    control.InterruptRequested(key="k", note="n", by="b"),
    control.ApprovalRequested(
        approval=D,
        call=CALL,
        digest=Digest("d"),
        spec=Digest("s"),
        reason="r",
        rule="u",
        layer="l",
        message="m",
        expires="e",
    ),
    control.ApprovalResolved(approval=D, decision="reject", message="m", edit={"a": 1}, scope="session", by="b"),
    control.ApprovalExpired(approval=D),
    control.QuestionAsked(question=D, text="t", options=("a",), call=CALL.id, expires="e", kind="outcome"),
    control.QuestionAnswered(question=D, answer={"a": 1}, by="b"),
    control.SessionOpened(
        agent="a",
        metadata={"m": 1},
        run=control.RunSettings(agent="x.py", digests={"/x.py": Digest("d")}),
        workspace=control.SessionWorkspace(root="/w", directories=("/d",), device=1, inode=2),
    ),
    control.SessionUpdated(workspace=control.SessionWorkspace(root="/w"), run=control.RunSettings(flags={"f": [1]})),
    control.SessionForked(origin="s", cursor="1.2"),
    control.SessionReverted(to=1, calls=2, reason="r"),
    control.SessionClosed(reason="r"),
    control.SessionErased(events=3, blobs=1, by="b"),
    context.ContextCompacted(summary="s", keep_from=1, before=2, after=3),
    context.CheckpointSaved(label="l"),
    control.Handoff(source="a", target="b", reason="r"),
    control.StateChanged(key="k", value={"v": None}),
    control.StreamReset(reason="r"),
    control.StreamEnd(reason="r"),
    monitor.UsageRecorded(model="m", usage=USAGE, agent="a"),
    monitor.ModelSelected(model="m", tier="t", reason="r"),
    monitor.ModelFailed(model="m", code="c", message="m", agent="a", message_id=M, retried=True),
    monitor.HookRan(event="e", command="c", status=1, duration_ms=2, output="o"),
    monitor.BudgetWarning(budget="b", used=0.5, limit=1),
    monitor.CacheBusted(part="p", tokens=1),
    monitor.McpChanged(server="s", change="c", detail=[1]),
    monitor.Logged(level="info", message="m", detail={}),
    monitor.ErrorReported(code="c", message="m", phase="tool"),
    Custom(name="mine", value=[1]),
]


def wire(body: Body) -> dict[str, Any]:
    event = Event(
        data=body, session=SessionId("s"), ts="2026-01-01T00:00:00.000Z", turn=TurnId("t"), step=1, path=("agent-1",)
    )
    bytes_ = seal(event, epoch=1, seq=2, prev="0" * 64).stored if body.durable else event.to_json()
    fields: dict[str, Any] = msgspec.json.decode(bytes_)
    return fields


@pytest.fixture(scope="module")
def validator() -> jsonschema.Draft202012Validator:
    committed = json.loads((schema.FOLDER / "events.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(committed)
    return jsonschema.Draft202012Validator(committed)


@pytest.fixture(scope="module")
def compiled() -> jsonschema_rs.Draft202012Validator:
    """The same schema, compiled: thousands of changed events are checked in the time the other takes for ten."""
    return jsonschema_rs.Draft202012Validator(json.loads((schema.FOLDER / "events.schema.json").read_text()))


@pytest.mark.parametrize("file", list(schema.FILES), ids=lambda file: file.name)
def test_the_committed_schema_is_up_to_date(file: Path) -> None:
    assert file.read_text() == schema.render_schema(schema.FILES[file]), "run: python -m scripts.schema"


def test_there_is_an_example_of_every_event() -> None:
    assert {type(body) for body in EXAMPLES} == set(schema.list_bodies())


def test_every_event_is_valid_and_needs_all_its_fields(
    validator: jsonschema.Draft202012Validator, compiled: jsonschema_rs.Draft202012Validator
) -> None:
    failures: list[str] = []
    for body in EXAMPLES:
        event = wire(body)
        failures += [f"{body.type}: {error.message}" for error in validator.iter_errors(event)]
        changes = {f"without {field}": {name: event[name] for name in event if name != field} for field in event}
        changes["on another channel"] = {**event, "channel": "other"}
        if not isinstance(body, Custom):
            changes["with a list as data"] = {**event, "data": [1]}
        failures += [f"{body.type}: valid {how}" for how, changed in changes.items() if compiled.is_valid(changed)]
        if not compiled.is_valid({**event, "more": 1}):
            failures.append(f"{body.type}: not valid with an unknown field")
    assert failures == []


def test_an_event_from_another_version_is_valid_as_unknown(validator: jsonschema.Draft202012Validator) -> None:
    event = wire(Unknown(name="from.tomorrow", raw=b'{"x":1}', of="control"))
    validator.validate(event)
    assert not validator.is_valid({**event, "type": "turn.started"})


def test_an_erased_event_is_valid_without_its_data(validator: jsonschema.Draft202012Validator) -> None:
    event = Event(data=progress.TurnQueued(input="k"), session=SessionId("s"), ts="2026-01-01T00:00:00.000Z")
    erased = msgspec.json.decode(erase_event(seal(event, epoch=1, seq=1, prev="")).stored)
    validator.validate(erased)
    assert not validator.is_valid({**erased, "erased": "x"})
    assert not validator.is_valid({**erased, "data": {}})


@pytest.mark.parametrize(
    "change",
    [{"seq": 0}, {"seq": "2"}, {"id": "1"}, {"id": "1.2.3"}, {"v": 0}, {"path": "x"}, {"prev": "zz"}, {"step": -1}],
)
def test_a_broken_envelope_is_not_valid(change: dict[str, Any], validator: jsonschema.Draft202012Validator) -> None:
    assert not validator.is_valid({**wire(progress.TurnQueued(input="k")), **change})
