"""The state of a router between turns, and its history, from the log."""

from collections.abc import Iterable
from typing import Any

import msgspec

from vaka.core.types.control import InputAdded
from vaka.core.types.event import Event
from vaka.core.types.ids import JSON, AgentPath, MessageId
from vaka.core.types.message import AssistantMessage, Content, Message, UserMessage, as_content
from vaka.core.types.progress import MessageCompleted, SubagentStarted, ToolCompleted, ToolFailed, TurnStarted
from vaka.core.types.state import agent_key
from vaka.genx.quit_tools import FoldedLog

ROUTER_KEY = "$router"
"""The key of the session value with the ``RouterState`` of the root agent; for a child see ``router_key``."""


class Intent(msgspec.Struct, frozen=True, omit_defaults=True):
    """A matched rule, and the agent that its route names; ``rule_name`` is empty for the default agent."""

    rule_name: str
    agent_name: str
    args: dict[str, JSON] = {}
    turn: str = ""
    """The turn whose input has matched, and the path that the router had then."""
    path: str = ""


class RouterState(msgspec.Struct, frozen=True, omit_defaults=True):
    """The state of a router between turns: the intents in order, and the active agent."""

    matches: tuple[Intent, ...]
    current_index: int = 0
    child: str = ""
    """The path of the active agent's last run, its parts joined by ``/``; ``""`` before its first run."""

    @property
    def current(self) -> Intent:
        return self.matches[self.current_index]

    def without_current_input(self) -> "RouterState":
        """Return the state without the input that the active agent has received; intents that wait need theirs."""
        current = Intent(self.current.rule_name, self.current.agent_name, self.current.args)
        return RouterState((current, *self.matches[self.current_index + 1 :]), child=self.child)

    def advance(self) -> "RouterState | None":
        """Return the state after the active agent has finished; ``None`` after the last intent."""
        following = self.matches[self.current_index + 1 :]
        return RouterState(following) if following else None


def router_key(log: FoldedLog, path: AgentPath) -> str:
    """Return the key of the value with the state of the router at ``path``."""
    return f"$agent/{agent_key(log.window.conversation_start(path))}/:{ROUTER_KEY}" if path else ROUTER_KEY


def read_router_state(log: FoldedLog, path: AgentPath = ()) -> RouterState | None:
    """Return the state of the router at ``path``; ``None`` when no agent is active."""
    value = log.state.values.get(router_key(log, path))
    return None if value is None else msgspec.convert(value, RouterState)


def build_history(events: Iterable[Event], path: AgentPath) -> tuple[Message, ...]:
    """Return the inputs of a router and the answers of its agents; ``events`` are the events of its path."""
    inputs: dict[str, Content] = {}
    messages: list[Message] = []
    for event in events:
        body = event.data
        match body:
            case InputAdded():
                inputs[body.key] = body.content
            case TurnStarted():
                given = tuple(part for key in body.inputs for part in inputs.get(key, ()))
                asked = given if body.content is None else body.content
                messages += [UserMessage(content=asked)] if asked else []
            case SubagentStarted() if (*event.path, body.child) == path:
                messages.append(UserMessage(content=body.content))
            case ToolCompleted() | ToolFailed() if content := _answer_of(body):
                messages.append(AssistantMessage(id=MessageId(f"msg_{body.result.call}"), content=content))
            case MessageCompleted() if body.content:  # an answer of a middleware, or an imported one
                messages.append(AssistantMessage(id=body.message_id, content=body.content))
            case _:
                continue
    return tuple(messages)


def is_ending(value: object) -> bool:
    """Return whether the value of a failed result is the ``Ending`` of an agent."""
    return isinstance(value, dict) and {"kind", "text"} <= value.keys()


def _answer_of(body: ToolCompleted | ToolFailed) -> Content:
    """Return the answer of an agent. The answer of a failed agent is its last text, in the value of its result."""
    if isinstance(body, ToolCompleted):
        return body.result.content
    value: Any = body.result.value
    text = value["text"] if is_ending(value) else ""
    return as_content(text) if text else ()
