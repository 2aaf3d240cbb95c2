"""The decisions that a turn waits for, and whether it waits for nothing else."""

from vaka.core.types import control, progress
from vaka.core.types.control import Asked
from vaka.core.types.event import Body, Event
from vaka.core.types.ids import AgentPath, CallId, TurnId

_LAST_BEFORE_WAITING = (control.ApprovalRequested, control.QuestionAsked, progress.ToolCompleted, progress.ToolFailed)


class PendingDecisions:
    """Follows the calls of a turn: which wait for a person or the client, and whether anything else still runs."""

    def __init__(self) -> None:
        self._turn = TurnId("")
        self._pending: dict[str, tuple[AgentPath, Asked]] = {}
        self._open: dict[AgentPath, set[CallId]] = {}
        self._asking_models: set[AgentPath] = set()
        self._children: dict[CallId, set[AgentPath]] = {}

    @property
    def asked(self) -> list[tuple[AgentPath, Asked]]:
        """The open approvals and questions with the agents that asked, oldest first."""
        return list(self._pending.values())

    def note(self, event: Event) -> None:
        path, body = event.path, event.data
        if event.turn and event.turn != self._turn:
            self._turn = event.turn
            self._clear()
        match body:
            case control.ApprovalRequested(approval=id, call=call):
                self._pending[id] = (path, body)
                self._open.setdefault(path, set()).add(call.id)
            case control.QuestionAsked(question=id):
                self._pending[id] = (path, body)
            case control.ApprovalResolved(approval=id) | control.ApprovalExpired(approval=id):
                self._pending.pop(id, None)
            case control.QuestionAnswered(question=id):
                self._pending.pop(id, None)
            case progress.SubagentStarted(call=call, child=child):
                self._children.setdefault(call, set()).add((*path, child))
            case progress.SubagentCompleted(call=call, child=child):
                self._children.get(call, set()).discard((*path, child))
            case _:
                self._note_progress(path, body)

    def _note_progress(self, path: AgentPath, body: Body) -> None:
        match body:
            case progress.StepStarted():
                self._asking_models.add(path)
            case progress.MessageCompleted() | progress.StepCompleted():
                self._asking_models.discard(path)
            case progress.ToolCalled(call=call):
                self._open.setdefault(path, set()).add(call.id)
            case progress.ToolStarted(call=call):  # an approval of it has been given
                self._drop(call.id, control.ApprovalRequested)
            case progress.ToolCompleted(result=result) | progress.ToolFailed(result=result):
                self._open.get(path, set()).discard(result.call)
                self._children.pop(result.call, None)
                self._drop(result.call, control.ApprovalRequested, control.QuestionAsked)
            case progress.TurnResumed():
                self._asking_models.clear()
            case _ if isinstance(body, progress.TURN_ENDS):
                self._clear()
            case _:
                pass

    def is_waiting_after(self, body: Body) -> bool:
        """Return whether ``body`` may be what the turn did last, and the turn waits for decisions alone."""
        return isinstance(body, _LAST_BEFORE_WAITING) and self.is_waiting()

    def is_waiting(self, path: AgentPath = ()) -> bool:
        """Return whether the agent at ``path`` waits for decisions alone, its child agents included."""
        if not self._pending or path in self._asking_models:
            return False
        open_calls = self._open.get(path, set())
        asked = any(asking == path for asking, _ in self._pending.values())
        return bool(open_calls or asked) and all(self._waits(call, path) for call in open_calls)

    def _waits(self, call: CallId, path: AgentPath) -> bool:
        """Return whether a call waits: for a decision of its own, or of a call or child agent that it has started."""
        if any(_call_of(asked) == call for _, asked in self._pending.values()):
            return True
        children = self._children.get(call, ())
        nested = [other for other in self._open.get(path, ()) if other.startswith(f"{call}.")]
        return bool(children or nested) and all(map(self.is_waiting, children))

    def _drop(self, call: CallId, *kinds: type[Body]) -> None:
        for id, (_, asked) in list(self._pending.items()):
            if isinstance(asked, kinds) and _call_of(asked) == call:
                del self._pending[id]

    def _clear(self) -> None:
        self._pending.clear()
        self._open.clear()
        self._asking_models.clear()
        self._children.clear()


def _call_of(asked: Asked) -> CallId | None:
    return asked.call.id if isinstance(asked, control.ApprovalRequested) else asked.call
