"""Quit tools: after a successful call of one, the agent writes its final text and accepts no more input."""

from collections.abc import Iterator
from typing import Protocol

from vaka.core.loop.context import Turn
from vaka.core.loop.middleware import Middleware
from vaka.core.ports.log import EventWindow, conversation_key
from vaka.core.ports.model import Prompt
from vaka.core.types.control import StateChanged
from vaka.core.types.ending import Outcome, Reject
from vaka.core.types.errors import Closed, InvalidInput
from vaka.core.types.event import Body
from vaka.core.types.ids import AgentPath
from vaka.core.types.message import Content
from vaka.core.types.progress import MessageCompleted, ToolCalled, ToolCompleted
from vaka.core.types.state import SessionState, agent_key

FINISHED_KEY = "$finished"
"""The value of a conversation that names its quit call; see ``conversation_key``."""
_REFERENCE_KINDS = ("tool:", "agent:")


class FoldedLog(Protocol):
    """The log of a session, or what ``reopen`` has read of one."""

    @property
    def state(self) -> SessionState: ...
    @property
    def window(self) -> EventWindow: ...


class QuitTools(Middleware):
    """Finishes the agent after a turn in which one of the tools has succeeded.

    The tool runs like any other and the model still writes its final text. A call that failed, or was refused,
    finishes nothing. ``names`` may be references such as ``tool:goodbye``. A finished agent rejects its next input
    with ``agent: closed``; a rewind to before the call takes that back, and a fork inherits it.
    """

    inherited = ()
    admits_steering: bool = True

    def __init__(self, *names: str) -> None:
        self.names = frozenset(_tool_name(name) for name in names)

    async def before_agent(self, turn: Turn, content: Content) -> Content | Reject:
        if turn.path or not is_finished(turn.log):
            return content
        return Reject(_closed_text(turn), code=Closed.code)

    async def before_model(self, turn: Turn, prompt: Prompt) -> Prompt:
        # Only now the log says which conversation a child agent continues.
        if turn.path and turn.scope.step == 1 and is_finished(turn.log, turn.path):
            raise Closed(_closed_text(turn))
        return prompt

    async def after_step(self, turn: Turn) -> str:
        self._record_quit(turn)
        return ""

    async def after_agent(self, turn: Turn, outcome: Outcome) -> Outcome:
        self._record_quit(turn)  # a limit ends a turn without ``after_step``
        return outcome

    def _record_quit(self, turn: Turn) -> None:
        if not self.names.intersection(turn.admitted_calls):
            return
        bodies = list(_bodies_of_step(turn))
        completed = {body.result.call for body in bodies if isinstance(body, ToolCompleted)}
        key = conversation_key(turn.log.window, turn.path, FINISHED_KEY)
        for body in bodies:
            if (
                isinstance(body, ToolCalled)
                and body.call.name in self.names
                and body.call.id in completed
                and turn.get_state(key) is None
            ):
                value = {"turn": turn.id, "path": agent_key(turn.path), "tool": body.call.name}
                turn.log.defer(turn.scope, StateChanged(key=key, value=value))


def _closed_text(turn: Turn) -> str:
    what = "start a new conversation" if turn.path else "start a new session, or rewind this one"
    return f"agent: closed; the agent {turn.agent!r} has finished and accepts no more input; {what}"


def is_finished(log: FoldedLog, path: AgentPath = ()) -> bool:
    """Return whether the agent at ``path`` has called a quit tool, and the turn or run of that call has ended."""
    value = log.state.values.get(conversation_key(log.window, path, FINISHED_KEY))
    if value is None:
        return False
    running = log.state.turn
    if running is None or running.id != value["turn"]:
        return True
    lane = log.state.lanes.get(value["path"])
    return bool(value["path"]) and (lane is None or lane.done is not None)


def _bodies_of_step(turn: Turn) -> Iterator[Body]:
    """Yield what the agent did in the current step, deferred events included."""
    for scope, body in turn.log.deferred:
        if scope == turn.scope:
            yield body
    for event in reversed(turn.log.window.events):
        if event.path == turn.path and event.turn == turn.id:
            if type(event.data) is MessageCompleted:
                return
            if event.step == turn.scope.step:
                yield event.data


def _tool_name(reference: str) -> str:
    kind = next((kind for kind in _REFERENCE_KINDS if reference.startswith(kind)), "")
    name = reference.removeprefix(kind).strip()
    if not name:
        raise InvalidInput(f"a quit tool needs a name, not {reference!r}")
    return name
