"""The events of an agent as the stream of an A2A task, and the task that they come to."""

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import TypeAlias

from vaka.core.types import control, progress
from vaka.core.types.control import Asked
from vaka.core.types.event import Body, Event
from vaka.core.types.ids import TurnId
from vaka.core.types.message import Content, Part, Reasoning, Text, Usage, as_content
from vaka.core.types.pending_decisions import PendingDecisions
from vaka.views.a2a.content import JsonObject, parts_of
from vaka.views.a2a.replies import parts_for
from vaka.views.failures import failure_of
from vaka.views.message_blocks import UnsentParts
from vaka.views.routed_agents import RoutedAgents

_TurnEnd: TypeAlias = progress.TurnCompleted | progress.TurnFailed | progress.TurnCancelled | progress.TurnInterrupted
_WaitingBody: TypeAlias = (
    control.ApprovalRequested
    | control.ApprovalResolved
    | control.ApprovalExpired
    | control.QuestionAsked
    | control.QuestionAnswered
    | progress.ToolStarted
    | progress.ToolCompleted
    | progress.ToolFailed
)
"""The events with which a task begins or ceases to wait for the client."""
SUBMITTED = "TASK_STATE_SUBMITTED"
WORKING = "TASK_STATE_WORKING"
INPUT_REQUIRED = "TASK_STATE_INPUT_REQUIRED"


class A2aEncoder:
    """Turns the events of the root agent of a session into stream responses: ``task``, then updates of it.

    Each message of the agent is an artifact. Tool calls are named in the metadata of status updates; their arguments
    and results, reasoning and child agents are not shown. ``routers`` are the names of the agents that are routers:
    what the agents of their routes write is shown as theirs. Feed the events of one turn after another, live or from
    the log, from any event on. ``task_id`` returns the id of a task for a session and a turn; default: the turn alone.
    """

    def __init__(
        self, *, routers: Collection[str] = (), task_id: Callable[[str, str], str] = lambda _, turn: turn
    ) -> None:
        self._routed = RoutedAgents((), routers)
        self._unsent = UnsentParts()
        self._pending = PendingDecisions()
        self._inputs: dict[str, Content] = {}
        self._turn, self._state = TurnId(""), ""
        self._make_task_id, self._task = task_id, ""
        self._artifacts: dict[str, bool] = {}
        """The artifacts that the client knows, and whether they are complete."""
        self._asked: list[Asked] = []

    def encode(self, event: Event) -> list[JsonObject]:
        """Return the stream responses of an event, often none."""
        return list(self._encode(event, event.data))

    def _encode(self, event: Event, body: Body) -> Iterator[JsonObject]:
        self._pending.note(event)
        if isinstance(body, control.InputAdded):
            self._inputs[body.key] = body.content
        elif isinstance(body, control.InputWithdrawn):
            self._inputs.pop(body.input, None)
        if event.turn and (event.turn != self._turn or isinstance(body, progress.TurnStarted)):
            yield from self._start_task(event, body)
        if self._turn and not self._state:  # the task has ended
            return
        if self._turn and self._routed.answers(event):
            yield from self._encode_body(event, body)
        if self._turn and isinstance(body, _WaitingBody):
            yield from self._encode_waiting(event)

    def _start_task(self, event: Event, body: Body) -> Iterator[JsonObject]:
        if event.turn == self._turn and self._state:  # a repeated event
            return
        self._turn, self._asked = event.turn, []
        self._task = self._make_task_id(event.session, event.turn)
        self._state = SUBMITTED if isinstance(body, progress.TurnStarted) else WORKING
        self._artifacts.clear()
        self._unsent.clear()
        task: JsonObject = {"id": self._task, "contextId": event.session, "status": self._status(event)}
        inputs = body.inputs if isinstance(body, progress.TurnStarted) else ()
        given = [(key, self._inputs.pop(key)) for key in inputs if key in self._inputs]
        if history := [self._message(event, key, "ROLE_USER", parts_of(content)) for key, content in given]:
            task["history"] = history
        yield {"task": task}

    def _encode_body(self, event: Event, body: Body) -> Iterator[JsonObject]:
        match body:
            case progress.TurnStarted() | progress.TurnResumed() if self._state != WORKING:
                yield self._set_state(event, WORKING)
            case progress.StepStarted(inputs=inputs):
                for key in inputs:
                    self._inputs.pop(key, None)
            case progress.TextDelta() | progress.ReasoningDelta() | progress.MessageSnapshot():
                yield from self._write(event, body.message_id, self._unsent.add_delta(body))
            case progress.MessageCompleted(message_id=id):
                yield from self._write(event, id, self._unsent.complete(body), is_last=True)
            case progress.MessageDiscarded(message_id=id) if self._unsent.discard(id) and id in self._artifacts:
                del self._artifacts[id]  # the artifact is replaced by an empty one
                yield from self._write(event, id, as_content(""), is_last=True)
            case _ if isinstance(body, _TurnEnd):
                yield from self._end_task(event, body)
            case _ if not self._routed.is_router(event.path):
                yield from self._encode_tool(event, body)
            case _:
                pass

    def _encode_tool(self, event: Event, body: Body) -> Iterator[JsonObject]:
        match body:
            case progress.ToolCalled(call=call):
                tool = {"id": call.id, "name": call.name, "status": "called"}
            case progress.ToolStarted(call=call):
                tool = {"id": call.id, "name": call.name, "status": "running"}
            case progress.ToolCompleted(result=result):
                tool = {"id": result.call, "status": "completed"}
            case progress.ToolFailed(result=result):
                tool = {"id": result.call, "status": "failed", "reason": result.reason or "error"}
            case _:
                return
        yield self._set_state(event, WORKING, metadata={"tool": tool})

    def _encode_waiting(self, event: Event) -> Iterator[JsonObject]:
        """Return the update for a task that has begun or ceased to wait for the client."""
        asked = [body for _, body in self._pending.asked] if self._pending.is_waiting() else []
        if asked and (asked != self._asked or self._state != INPUT_REQUIRED):
            yield self._set_state(event, INPUT_REQUIRED, parts_for(asked))
        elif not asked and self._state == INPUT_REQUIRED:
            yield self._set_state(event, WORKING)
        self._asked = asked

    def _end_task(self, event: Event, body: _TurnEnd) -> Iterator[JsonObject]:
        metadata: JsonObject = {"usage": _usage_of(body.usage)}
        parts: list[JsonObject] = []
        state = "TASK_STATE_CANCELED"
        match body:
            case progress.TurnCompleted(text=text, stop=stop, limit=limit):
                state = "TASK_STATE_COMPLETED"
                if stop == "limit":
                    metadata |= {"stop": stop, "limit": limit}
                if text and not self._artifacts:  # the answer of a router, for example
                    yield from self._write(event, event.turn, as_content(text), is_last=True)
            case progress.TurnFailed(withdrawn=withdrawn):
                state = "TASK_STATE_REJECTED" if withdrawn else "TASK_STATE_FAILED"
                failure = failure_of(body)
                metadata |= failure.details
                parts = [{"text": failure.message}]
            case progress.TurnCancelled(note=note) | progress.TurnInterrupted(note=note):
                parts = [{"text": note}] if note else []
        yield self._set_state(event, state, parts, metadata)
        self._state = ""
        self._unsent.clear()

    # ---------------------------------------------------------------------------------------------------------- updates

    def _write(self, event: Event, id: str, parts: Iterable[Part], *, is_last: bool = False) -> Iterator[JsonObject]:
        """Return the update that adds parts to an artifact; the last one of an artifact may add an empty text."""
        shapes = parts_of(tuple(part for part in parts if not isinstance(part, Reasoning)))
        is_known = id in self._artifacts
        if not shapes and not (is_last and is_known and not self._artifacts[id]):
            return
        self._artifacts[id] = is_last
        artifact = {"artifactId": id, "parts": shapes or parts_of((Text(text=""),))}
        flags = {"append": is_known, "lastChunk": is_last}
        update = {"taskId": self._task, "contextId": event.session, "artifact": artifact}
        yield {"artifactUpdate": update | {name: True for name, is_set in flags.items() if is_set}}

    def _set_state(
        self, event: Event, state: str, parts: list[JsonObject] | None = None, metadata: JsonObject | None = None
    ) -> JsonObject:
        self._state = state
        update: JsonObject = {"taskId": self._task, "contextId": event.session, "status": self._status(event, parts)}
        return {"statusUpdate": update | ({"metadata": metadata} if metadata else {})}

    def _status(self, event: Event, parts: list[JsonObject] | None = None) -> JsonObject:
        status: JsonObject = {"state": self._state, "timestamp": event.ts}
        if parts:
            status["message"] = self._message(event, f"{self._turn}-{event.seq}", "ROLE_AGENT", parts)
        return status

    def _message(self, event: Event, id: str, role: str, parts: list[JsonObject]) -> JsonObject:
        return {"messageId": id, "contextId": event.session, "taskId": self._task, "role": role, "parts": parts}


def _usage_of(usage: Usage) -> JsonObject:
    counts = {"input": usage.input, "output": usage.output, "total": usage.total}
    return counts | ({"cost": usage.cost} if usage.cost else {})


def task_of(
    events: Iterable[Event],
    *,
    routers: Collection[str] = (),
    task_id: Callable[[str, str], str] = lambda _, turn: turn,
) -> JsonObject | None:
    """Return the task of the last turn of ``events``, as ``GetTask`` gives it; ``None`` if no turn has begun.

    For the parameters see ``A2aEncoder``.
    """
    encoder, task = A2aEncoder(routers=routers, task_id=task_id), None
    artifacts: dict[str, JsonObject] = {}
    for response in (response for event in events for response in encoder.encode(event)):
        match response:
            case {"task": started}:
                task = dict(started)
                artifacts.clear()
            case {"statusUpdate": update} if task is not None:
                task["status"] = update["status"]
                task["metadata"] = task.get("metadata", {}) | _lasting_metadata(update)
            case {"artifactUpdate": {"artifact": artifact} as update}:
                known = artifacts.get(artifact["artifactId"]) if "append" in update else None
                _add_parts(artifacts, artifact, known)
            case _:
                pass
    if task is None:
        return None
    shown = [artifact for artifact in artifacts.values() if any(part != {"text": ""} for part in artifact["parts"])]
    given = {"artifacts": shown, "metadata": task.get("metadata")}
    return task | {name: value for name, value in given.items() if value}


def _lasting_metadata(update: JsonObject) -> JsonObject:
    return {name: value for name, value in update.get("metadata", {}).items() if name != "tool"}


def _add_parts(artifacts: dict[str, JsonObject], artifact: JsonObject, known: JsonObject | None) -> None:
    """Add an artifact, or add its parts to the known artifact; texts are joined."""
    parts: list[JsonObject] = [*known["parts"]] if known else []
    for part in artifact["parts"]:
        if parts and parts[-1].keys() == part.keys() == {"text"}:
            parts[-1] = {"text": parts[-1]["text"] + part["text"]}
        else:
            parts.append(part)
    artifacts[artifact["artifactId"]] = artifact | {"parts": parts}
