"""Events as traces: the tree of spans of a turn, its times, tokens and errors."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from vaka.core.session.hash_chain import seal
from vaka.core.types import control, monitor, progress
from vaka.core.types.context import ContextCompacted
from vaka.core.types.decode import decode
from vaka.core.types.event import Body, Event
from vaka.core.types.ids import AgentPath, CallId, CallKey, DecisionId, Digest, MessageId, SessionId, TurnId
from vaka.core.types.message import Text, ToolCall, ToolResult, Usage
from vaka.views.trace import Trace, TraceFold, describe_session

GOLDEN = Path(__file__).parents[1] / "golden"
TURN = TurnId("trn_1")
NONE = TurnId("")
DIGEST = Digest("0" * 64)
CALL = ToolCall(id=CallId("call_1"), name="deploy", arguments={"to": "prod"})
START = datetime(2026, 1, 1, tzinfo=UTC)
BEGIN = progress.TurnStarted(agent="assistant", inputs=("k",))
STEP = progress.StepStarted(agent="assistant", number=1, model="m")
ANSWER = progress.MessageCompleted(message_id=MessageId("msg_1"), content=(), model="m-1", stop="end")


def fold(*entries: tuple[int, Body] | tuple[int, Body, AgentPath]) -> TraceFold:
    """Fold bodies with their times in milliseconds, and the paths of their agents."""
    events: list[Event] = []
    for seq, (at, body, *path) in enumerate(entries, start=1):
        ts = (START + timedelta(milliseconds=at)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        outside = isinstance(body, control.ApprovalResolved | control.QuestionAnswered | control.ApprovalExpired)
        event = Event(
            data=body, session=SessionId("s"), ts=ts, turn=NONE if outside else TURN, path=path[0] if path else ()
        )
        events.append(seal(event, epoch=1, seq=seq, prev="0" * 64))
    return TraceFold().add_all(events)


def the_trace(traces: TraceFold) -> Trace:
    (trace,) = traces.traces.values()
    return trace


def data(trace: Trace) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(trace.describe()))
    return plain


def tree(trace: Trace) -> list[str]:
    """Return the spans as an indented list."""
    depths = {"": -1}
    lines: list[str] = []
    for span in trace.spans:
        depths[span.id] = depths[span.parent] + 1
        error = f" {span.error.code}" if span.error else ""
        lines.append(f"{'  ' * depths[span.id]}{span.kind} {span.name} {span.status}{error}")
    return lines


def golden(name: str) -> TraceFold:
    return TraceFold().add_all(decode(line) for line in (GOLDEN / f"{name}.jsonl").read_bytes().splitlines())


def test_a_turn_with_child_agents_is_a_tree() -> None:
    trace = the_trace(golden("child"))
    assert tree(trace) == [
        "turn assistant ok",
        "  step step 1 ok",
        "    model scripted ok",
        "    tool helper ok",
        "    tool helper ok",
        "      subagent helper ok",
        "        step step 1 ok",
        "          model scripted ok",
        "      subagent helper ok",
        "        step step 1 ok",
        "          model scripted ok",
        "          tool look ok",
        "          tool remove ok",
        "            approval remove ok",
        "        step step 2 ok",
        "          model scripted ok",
        "        step step 2 ok",
        "          model scripted ok",
        "  step step 2 ok",
        "    model scripted ok",
    ]
    summary = data(trace)
    assert summary["tokens"] == {"input": 156, "output": 33, "cached": 0, "reasoning": 0, "total": 189}
    assert (summary["id"], summary["session"], summary["status"]) == ("trn_1", "child", "ok")
    assert summary["spans"][0]["detail"] == {"resumed": 1, "stop": "end"}
    assert summary["spans"][-1]["cursor"] == "1.44"
    assert summary["spans"][-1]["end_cursor"] == "1.45"


@pytest.mark.parametrize("name", ["approval", "branches", "fork", "grants", "tools"])
def test_every_golden_log_has_closed_spans_whose_parents_exist(name: str) -> None:
    for trace in golden(name).traces.values():
        known = {""}
        for span in trace.spans:
            assert span.parent in known
            assert span.end is not None
            known.add(span.id)
        assert not trace.open


def test_times_are_relative_to_the_turn_and_the_first_piece_of_text_counts() -> None:
    usage = Usage(input=100, output=20, cache_read=80, reasoning=5, cost=0.5)
    trace = the_trace(
        fold(
            (0, BEGIN),
            (5, STEP),
            (400, ANSWER),
            (400, monitor.UsageRecorded(model="m-1", usage=usage, first_ms=120)),
            (400, progress.StepCompleted(number=1)),
            (401, progress.TurnCompleted(text="Hi.", stop="limit", limit="steps")),
        )
    )
    described = data(trace)
    assert (described["started"], described["duration_ms"], described["ttft_ms"]) == (
        "2026-01-01T00:00:00.000Z",
        401,
        125,
    )
    assert described["cost"] == 0.5
    assert described["tokens"] == {"input": 100, "output": 20, "cached": 80, "reasoning": 5, "total": 120}
    assert described["spans"][2] == {
        "id": "model:1.2",
        "parent": "step:1.2",
        "kind": "model",
        "name": "m-1",
        "path": [],
        "start_ms": 5,
        "end_ms": 400,
        "status": "ok",
        "cursor": "1.2",
        "end_cursor": "1.3",
        "detail": {"stop": "end"},
        "tokens": described["tokens"],
        "cost": 0.5,
        "ttft_ms": 120,
    }
    assert described["spans"][0]["detail"] == {"stop": "steps"}


def test_a_call_knows_how_long_it_waited_for_a_person() -> None:
    asked = control.ApprovalRequested(approval=DecisionId("apr_1"), call=CALL, digest=DIGEST, spec=DIGEST, rule="r")
    entries: list[tuple[int, Body]] = [
        (0, BEGIN),
        (0, STEP),
        (10, ANSWER),
        (10, progress.ToolCalled(call=CALL, message_id=MessageId("msg_1"))),
        (20, asked),
    ]
    waiting = the_trace(fold(*entries))
    assert waiting.status == "waiting"
    assert tree(waiting)[-2:] == ["    tool deploy waiting", "      approval deploy waiting"]
    assert data(waiting)["duration_ms"] == 20
    result = ToolResult(call=CALL.id, content=(Text(text="done"),))
    entries += [
        (1020, control.ApprovalResolved(approval=DecisionId("apr_1"), decision="approve", by="Kai")),
        (1025, progress.ToolStarted(call=CALL, key=CallKey("s/call_1"), effect="once", attempt=2)),
        (1100, progress.ToolCompleted(result=result)),
    ]
    trace = the_trace(fold(*entries))
    tool, approval = data(trace)["spans"][-2:]
    assert trace.status == "running"
    assert tool["detail"] == {"arguments": '{"to":"prod"}', "waiting_ms": 1000, "started_ms": 1015, "attempt": 2}
    assert (tool["start_ms"], tool["end_ms"], tool["status"]) == (10, 1100, "ok")
    assert approval["detail"] == {"rule": "r", "decision": "approve", "by": "Kai"}
    late = fold(*entries, (2000, control.ApprovalExpired(approval=DecisionId("apr_9"))))
    assert data(the_trace(late)) == data(trace)


def test_refusals_failures_and_retries_are_errors() -> None:
    asked = control.ApprovalRequested(approval=DecisionId("apr_1"), call=CALL, digest=DIGEST, spec=DIGEST)
    failed = ToolResult(call=CALL.id, content=(Text(text="x" * 1000),), failed=True, reason="denied")
    other = ToolCall(id=CallId("call_2"), name="odd", raw='{"a":')
    trace = the_trace(
        fold(
            (0, BEGIN),
            (0, STEP),
            (5, progress.MessageDiscarded(message_id=MessageId("m"), reason="overloaded")),
            (5, monitor.UsageRecorded(model="m", usage=Usage(input=1))),
            (5, monitor.ModelFailed(model="m", code="overloaded", message="busy", retried=True)),
            (9, ANSWER),
            (9, progress.ToolCalled(call=CALL, message_id=MessageId("m"))),
            (9, progress.ToolCalled(call=other, message_id=MessageId("m"))),
            (9, asked),
            (10, control.ApprovalExpired(approval=DecisionId("apr_1"))),
            (11, progress.ToolFailed(result=failed)),
            (12, monitor.HookRan(event="PostToolUse", command="check", status=2, duration_ms=5, output="no")),
            (13, monitor.HookRan(event="Stop", command="check", status=0)),
            (14, progress.TurnFailed(code="model", message="broken")),
        )
    )
    assert tree(trace) == [
        "turn assistant error model",
        "  step step 1 error model",
        "    model m error discarded",
        "    model m-1 ok",
        "    tool deploy error denied",
        "    tool odd error model",
        "      approval deploy error expired",
        "    hook PostToolUse error 2",
        "    hook Stop ok",
    ]
    described = data(trace)
    assert described["error"] == {"code": "model", "message": "broken"}
    assert len(described["spans"][4]["error"]["message"]) == 300
    assert described["spans"][5]["detail"] == {"arguments": '{"a":'}
    hook = next(span for span in described["spans"] if span["name"] == "PostToolUse")
    assert (hook["start_ms"], hook["end_ms"], hook["detail"]) == (7, 12, {"command": "check"})
    assert described["tokens"]["input"] == 1


def test_a_model_that_fails_for_good_is_an_error() -> None:
    trace = the_trace(fold((0, BEGIN), (0, STEP), (5, monitor.ModelFailed(model="m", code="model", message="broken"))))
    assert tree(trace)[-1] == "    model m error model"


@pytest.mark.parametrize(
    ("end", "code"),
    [(progress.TurnInterrupted(note="Stop."), "interrupted"), (progress.TurnCancelled(note="Stop."), "cancelled")],
)
def test_a_turn_that_was_stopped_says_so(end: Body, code: str) -> None:
    trace = the_trace(fold((0, BEGIN), (0, STEP), (7, end)))
    assert data(trace)["error"] == {"code": code, "message": "Stop."}
    assert [span.end is not None for span in trace.spans] == [True] * 3


def test_a_rewind_ends_the_turn_that_it_cuts() -> None:
    entries: list[tuple[int, Body]] = [(0, BEGIN), (0, STEP)]
    cut = the_trace(fold(*entries, (3, control.SessionReverted(to=1))))
    assert (cut.status, cut.root.detail) == ("ok", {"stop": "reverted"})
    onward = control.Onward(turn=TURN, step=1, rewinds=1)
    assert the_trace(fold(*entries, (3, control.SessionReverted(to=1, onward=onward)))).status == "running"


def test_a_script_is_a_span_with_its_calls_below_it() -> None:
    inner = ToolCall(id=CallId("call_1.1"), name="look")
    path = ("agent-1",)
    question = control.QuestionAsked(question=DecisionId("qst_1"), text="Sure?", call=CALL.id)
    trace = the_trace(
        fold(
            (0, BEGIN),
            (0, STEP),
            (1, progress.ToolCalled(call=CALL, message_id=MessageId("m"))),
            (2, monitor.ScriptAnswered(number=0, name="start", digest=DIGEST), path),
            (3, monitor.ScriptCalled(number=1, name="tools.look", digest=DIGEST, call=inner.id), path),
            (3, progress.ToolCalled(call=inner, message_id=MessageId("")), path),
            (4, progress.ToolCompleted(result=ToolResult(call=inner.id)), path),
            (4, monitor.ScriptAnswered(number=1, name="tools.look", digest=DIGEST, call=inner.id), path),
            (5, monitor.ScriptCalled(number=2, name="generate", digest=DIGEST, model=1), path),
            (9, monitor.UsageRecorded(model="small", usage=Usage(input=3)), path),
            (9, monitor.ScriptAnswered(number=2, name="generate", digest=DIGEST, error="refused"), path),
            (9, monitor.UsageRecorded(model="embedder", usage=Usage(input=4), call=CALL.id), path),
            (10, question, path),
            (12, control.QuestionAnswered(question=DecisionId("qst_1"), answer="yes")),
            (13, monitor.ScriptAnswered(number=0, name="end", digest=DIGEST), path),
            (14, monitor.ScriptAnswered(number=3, name="late", digest=DIGEST), path),
            (15, progress.ToolCompleted(result=ToolResult(call=CALL.id))),
            (16, progress.TurnCompleted(text="")),
        )
    )
    assert tree(trace)[3:] == [
        "    tool deploy ok",
        "      script script ok",
        "        tool look ok",
        "        model generate error failed",
        "      model embedder ok",
        "      approval question ok",
    ]
    assert trace.usage.input == 7
    assert trace.by_id["script:1.4"].detail == {"requests": 2}


def test_a_compaction_is_a_span_with_the_sizes_of_the_context() -> None:
    compacted = ContextCompacted(summary="So far.", keep_from=1, before=900, after=80, model="small")
    trace = the_trace(fold((0, BEGIN), (6, compacted), (8, STEP), (9, ANSWER)))
    assert tree(trace)[1] == "  compaction 900 → 80 tokens ok"


def test_what_a_child_has_open_ends_with_it() -> None:
    child = ("agent-1",)
    trace = the_trace(
        fold(
            (0, BEGIN),
            (0, STEP),
            (1, progress.ToolCalled(call=CALL, message_id=MessageId("m"))),
            (2, progress.SubagentStarted(call=CALL.id, agent="scout", child="agent-1")),
            (2, monitor.ScriptAnswered(number=0, name="start", digest=DIGEST), child),
            (3, STEP, child),
            (7, progress.SubagentCompleted(call=CALL.id, agent="scout", child="agent-1", failed=True, text="no")),
            (9, progress.ToolCompleted(result=ToolResult(call=CALL.id))),
        )
    )
    assert [(span.kind, span.end and span.end - trace.start, span.status) for span in trace.spans[3:]] == [
        ("tool", 9, "ok"),
        ("subagent", 7, "error"),
        ("script", 7, "error"),
        ("step", 7, "error"),
        ("model", 7, "error"),
    ]


def test_events_of_turns_that_began_earlier_and_live_events_are_ignored() -> None:
    traces = fold((0, STEP), (1, progress.TurnCompleted(text="")))
    assert traces.traces == {}
    live = Event(data=progress.MessageStarted(message_id=MessageId("m")), session=SessionId("s"), ts="")
    assert TraceFold().add_all([live]).traces == {}
    assert describe_session("s", []) is None


def test_all_turns_of_a_session_are_one_trace() -> None:
    traces = golden("branches").traces
    whole = msgspec.json.decode(msgspec.json.encode(describe_session("branches", traces.values())))
    assert whole["id"] == whole["session"] == "branches"
    assert len(whole["spans"]) == sum(len(trace.spans) for trace in traces.values())
    assert [span["id"] for span in whole["spans"] if not span["parent"]] == list(traces)
    assert whole["tokens"]["total"] == sum(trace.usage.total for trace in traces.values())
