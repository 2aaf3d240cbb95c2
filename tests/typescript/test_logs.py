"""The reducer of the TypeScript client reads from a log what vaka reads from it."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.typescript.client_build import NODE, ROOT, needs_packages, run
from tests.views.recorded_runs import recorded_runs
from vaka.core.ports.store import SessionInfo
from vaka.core.session.branches import live_events_of
from vaka.core.session.index_rows import advance_row
from vaka.core.types import control, monitor, progress
from vaka.core.types.decode import decode
from vaka.core.types.event import Event
from vaka.core.types.message import CallRef, text_of

pytestmark = needs_packages

Line = list[Any]


class Conversation:
    """The messages of a live branch, in the order in which they became part of it."""

    def __init__(self, events: Sequence[Event]) -> None:
        self.messages: list[Line] = []
        self._calls: dict[str, Line] = {}
        self._inputs: dict[str, control.InputAdded] = {}
        for event in live_events_of(events):
            self._add(event)

    def _add(self, event: Event) -> None:
        path = "/".join(event.path)
        match event.data:
            case control.InputAdded():
                self._inputs[event.data.key] = event.data
            case progress.TurnStarted(inputs=inputs) | progress.StepStarted(inputs=inputs):
                for key in inputs:
                    self.messages.append(["user", key, path, text_of(self._inputs[key].content), []])
            case progress.MessageCompleted(message_id=id, content=content):
                calls: list[Line] = [[part.id, "", {}, "pending"] for part in content if isinstance(part, CallRef)]
                self._calls |= {call[0]: call for call in calls}
                self.messages.append(["assistant", id, path, text_of(content), calls])
            case progress.ToolCalled(call=call) | progress.ToolStarted(call=call):
                self._calls[call.id][1:3] = call.name, call.arguments
            case progress.ToolCompleted(result=result) | progress.ToolFailed(result=result):
                self._calls[result.call][3] = "failed" if isinstance(event.data, progress.ToolFailed) else "completed"
            case _:
                return


def expect(events: Sequence[Event]) -> dict[str, Any]:
    row = advance_row(SessionInfo(id=events[0].session), events)
    usage = [event.data.usage.total for event in events if isinstance(event.data, monitor.UsageRecorded)]
    return {
        "title": row.title,
        "cursor": events[-1].id,
        "tokens": sum(usage),
        "messages": Conversation(events).messages,
        "decisions": [],
    }


def test_the_reducer_has_the_conversation_of_every_recorded_log(client_package: Path, tmp_path: Path) -> None:
    golden = sorted((ROOT / "tests" / "golden").glob("*.jsonl"))
    logs = [[decode(line) for line in file.read_bytes().splitlines()] for file in golden]
    logs += [[event for event in turn if event.seq] for turn in recorded_runs() if _calls_have_messages(turn)]
    files: list[str] = []
    for number, events in enumerate(logs):
        file = tmp_path / f"{number}.jsonl"
        file.write_bytes(b"\n".join(event.to_json() for event in events))
        files.append(str(file))
    found = json.loads(run(NODE, client_package / "test" / "fold_logs.mjs", *files))
    assert found == [expect(events) for events in logs]


def _calls_have_messages(events: Sequence[Event]) -> bool:
    """Whether each call belongs to a message; those of a router do not."""
    messages = {event.data.message_id for event in events if isinstance(event.data, progress.MessageCompleted)}
    return all(event.data.message_id in messages for event in events if isinstance(event.data, progress.ToolCalled))
