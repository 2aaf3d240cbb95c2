"""The blobs of an event are found wherever its body names them."""

from tests.core.session.log_harness import NOW, S, log_line, turn_started
from vaka.core.ports.tool import CHANGED_FILE_KEY
from vaka.core.session.hash_chain import seal_chain
from vaka.core.types import control, progress
from vaka.core.types.context import ContextCompacted, ShortenedCall
from vaka.core.types.event import Body, Event
from vaka.core.types.ids import NO_SCOPE, CallId, Digest, MessageId
from vaka.core.types.message import Image, Stored, Text, ToolResult
from vaka.stores.blob_references import blobs_of


def sealed_events(body: Body) -> list[Event]:
    return seal_chain(S, None, [(NO_SCOPE, body)], NOW)


def test_every_blob_of_an_event_is_found() -> None:
    a = Digest("a")
    b = Digest("b")
    c = Digest("c")
    content = (Text(text="x"), Image(blob=a), Stored(blob=b, size=1), Image(data="AA=="))
    result = ToolResult(call=CallId("call_1"), content=content)
    bodies: list[Body] = [
        control.InputAdded(key="k", content=content),
        progress.TurnStarted(agent="a", inputs=(), content=content),
        progress.ToolReturned(result=result),
        progress.ToolCompleted(result=result),
        progress.ToolFailed(result=result),
        progress.SubagentStarted(call=CallId("call_1"), agent="a", child="c", content=content),
    ]
    for body in bodies:
        assert list(blobs_of(sealed_events(body)[0])) == [a, b], body.type
    step = progress.StepStarted(agent="a", number=1, system=a, tools=c)
    message = progress.MessageCompleted(message_id=MessageId("m"), content=content, system=c)
    assert list(blobs_of(sealed_events(step)[0])) == [a, c]
    token = {"path": "x", "was": "a" * 64, "becomes": "c" * 64}
    assert blobs_of(sealed_events(control.StateChanged(key=CHANGED_FILE_KEY, value=token))[0]) == ["a" * 64]
    for other in ({"was": "gone"}, {"was": 1}, "x", None):
        assert blobs_of(sealed_events(control.StateChanged(key=CHANGED_FILE_KEY, value=other))[0]) == []
    assert list(blobs_of(sealed_events(message)[0])) == [c, a, b]
    short = ShortenedCall(call=CallId("call_1"), blobs=(c,), content=content)
    compacted = ContextCompacted(summary="s", keep_from=1, opening=(content,), inputs=(content,), calls=(short,))
    assert blobs_of(sealed_events(compacted)[0]) == [a, b, a, b, a, b, c]
    assert list(blobs_of(sealed_events(log_line("x"))[0])) == []
    assert list(blobs_of(sealed_events(turn_started())[0])) == []
