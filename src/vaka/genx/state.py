"""The state of a GenX agent: a session, or the conversation of a child agent in one, read from the log."""

from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any

import msgspec

from vaka.agents.react import Agent, AgentTool
from vaka.core.loop.blobs import restore_messages
from vaka.core.loop.script_journal import unfinished_script
from vaka.core.ports.agent import AgentKind
from vaka.core.ports.log import conversation_key
from vaka.core.session.branches import TimedEntry, live_events_of
from vaka.core.session.context_window import ContextWindow
from vaka.core.session.snapshot import OpenedSession, reopen
from vaka.core.types import progress
from vaka.core.types.control import InputAdded, StateChanged
from vaka.core.types.errors import InvalidInput
from vaka.core.types.event import Event
from vaka.core.types.ids import JSON, AgentPath, Cursor, EventScope, SessionId
from vaka.core.types.imported_turns import LogEntry
from vaka.core.types.message import AssistantMessage, Message, ToolMessage, UserMessage
from vaka.core.types.monitor import OPEN_OUTCOMES
from vaka.core.types.state import SessionState, agent_key
from vaka.genx.agent_events import state_id_of
from vaka.genx.imported_messages import GenxTurns
from vaka.genx.match.router import MatchAgent
from vaka.genx.match.router_state import RouterState, read_router_state
from vaka.genx.prompt_layers import SUMMARY_KEY, find_related
from vaka.genx.quit_tools import FINISHED_KEY
from vaka.genx.quit_tools import is_finished as is_log_finished
from vaka.genx.services import GenxHost, GenxSession, work_of
from vaka.genx.state_document import (
    GenxMessage,
    MatchedIntent,
    MemoryOptions,
    MemoryQuery,
    MemorySegment,
    StateDocument,
    StateToolResult,
    StateType,
    call_ids_of,
    merge_messages,
    message_times,
    messages_of,
)

PENDING_KEY = "$genx.pending"
"""The key of the session value with stored calls that have no result yet."""


class PromptText(msgspec.Struct, frozen=True):
    """A part of a system prompt under its name."""

    name: str
    text: str


class ModelContext(msgspec.Struct, frozen=True, kw_only=True):
    """The context of a model: parts of the system prompt, and messages."""

    prompts: tuple[PromptText, ...] = ()
    messages: tuple[GenxMessage, ...] = ()


class ConversationView(msgspec.Struct, frozen=True):
    """The conversation of one agent in the log."""

    opened: OpenedSession
    window: ContextWindow
    path: AgentPath
    """The path of the last run of the agent: the root, or the child that continued its conversation last."""
    agent: str


class AgentState:
    """The state of one agent. The methods that write raise ``Busy`` while a turn of the session runs."""

    state_type: StateType = "react"

    def __init__(
        self, runtime: GenxHost, session: GenxSession, path: AgentPath, agent_def: str, parent_state_id: str
    ) -> None:
        self._runtime = runtime
        self._session = session
        self._path = path
        self.agent_def, self.parent_state_id = agent_def, parent_state_id

    @property
    def id(self) -> str:
        return state_id_of(self._session.id, self._path)

    async def load_recent(self, limit: int | None = None) -> list[GenxMessage]:
        """Return the messages of the conversation, or the last messages; parts of one message are merged."""
        merged = await self._read_messages()
        return merged if limit is None else merged[max(len(merged) - limit, 0) :]

    async def store_message(self, message: GenxMessage) -> None:
        """Add a message to the conversation without a round; a call is added to it with its result.

        Raises ``InvalidInput`` for a message whose fields do not fit its role, and for a result without a call.
        """
        message.check()
        self._require_root("store messages")

        def compose(now: OpenedSession) -> list[LogEntry]:
            pending = msgspec.convert(now.state.values.get(PENDING_KEY) or [], list[GenxMessage])
            turns = GenxTurns(self.agent_def, self._runtime.env.ids.new_id, now.state.calls)
            kept = _add_stored(turns, pending, message)
            value = msgspec.to_builtins(kept) if kept else None
            change = [(0, EventScope(), StateChanged(key=PENDING_KEY, value=value))] if kept or pending else []
            return [*change, *turns.entries]  # in this order a rewind to a message has no call twice

        await work_of(self._session).append_imported(compose)

    async def revert(self) -> None:
        """Take back the last user messages in a row and everything after them. Without one nothing happens."""
        self._require_root("revert")
        await revert_round(self._runtime, self._session)

    async def summary(self) -> str:
        """Return the summary of the conversation, which ``$mem`` layers with ``summary`` show to the model."""
        view = await self._view()
        return str(view.opened.state.values.get(conversation_key(view.window, view.path, SUMMARY_KEY)) or "")

    async def set_summary(self, text: str) -> None:
        view = await self._view()
        await self._set_value(conversation_key(view.window, view.path, SUMMARY_KEY), text or None)

    async def properties(self) -> dict[str, JSON]:
        """Return the values that were set with ``set_property``, or by a script."""
        view = await self._view()
        values, prefix = view.opened.state.values, self._property_prefix(view)
        found = {key.removeprefix(prefix): value for key, value in values.items() if key.startswith(prefix)}
        return {key: value for key, value in found.items() if not key.startswith("$") and value is not None}

    async def get_property(self, key: str) -> JSON:
        """Return a value, ``None`` if there is none."""
        return (await self.properties()).get(key)

    async def set_property(self, key: str, value: JSON) -> None:
        """Store a value; ``None`` deletes it. Raises ``InvalidInput`` for a key that is empty or begins with ``$``."""
        if not key or key.startswith("$"):
            raise InvalidInput(f"the key {key!r} of a property must not be empty or begin with $")
        await self._set_value(self._property_prefix(await self._view()) + key, value)

    async def delete_property(self, key: str) -> None:
        await self.set_property(key, None)

    async def query(self, query: MemoryQuery) -> list[MemorySegment]:
        """Return the messages of the conversation that fit a time and share words with a text, oldest first.

        Raises ``InvalidInput`` for a time that is not one of the calendar.
        """
        query.check()
        view = await self._view()
        messages = self._messages_of(view)
        times = message_times(view.window.events, messages)
        fitting = [at for at, time in enumerate(times) if _is_in_time(query, time)]
        texts = await restore_messages(self._runtime.store.blobs, tuple(messages[at] for at in fitting))
        segments: list[MemorySegment] = []
        for at, message in zip(fitting, texts, strict=True):
            text = "\n".join(part.content for part in messages_of([message]) if part.content)
            if text and (not query.text or find_related([message], query.text)):
                segments.append(MemorySegment(id=f"{self.id}#{at}", summary=text, unix_epoch=times[at]))
        return segments

    async def build_memory_context(self, options: MemoryOptions | None = None) -> ModelContext:
        """Return what a ``$mem`` layer shows a model: the summary, related messages, and the last messages."""
        options = options or MemoryOptions()
        messages = await self.load_recent()
        first = max(len(messages) - options.recent, 0)
        prompts: list[PromptText] = []
        if options.summary and (summary := await self.summary()):
            prompts.append(PromptText("summary", summary))
        question = next((message.content for message in reversed(messages) if message.role == "user"), "")
        if options.query and question:
            view = await self._view()
            older = await restore_messages(self._runtime.store.blobs, self._messages_of(view)[:first])
            prompts += [PromptText("query", "\n".join(found)) for found in [find_related(older, question)] if found]
        return ModelContext(prompts=tuple(prompts), messages=tuple(messages[first:]))

    async def is_finished(self) -> bool:
        """Return whether the agent accepts no more input: it has called a quit tool, or is a script that has ended."""
        return has_finished(await self._view())

    async def set_finished(self, finished: bool) -> None:
        """Finish the agent, or let it accept input again."""
        view = await self._view()
        value = {"turn": "", "path": agent_key(view.path), "tool": ""} if finished else None
        await self._set_value(conversation_key(view.window, view.path, FINISHED_KEY), value)

    async def phase(self) -> str:
        """Return what the agent does now: ``thinking``, ``tool``, ``agent``, ``finished`` or ``""``."""
        view = await self._view()
        state = view.opened.state
        if has_finished(view):
            return "finished"
        if state.turn is None or (view.path and agent_key(view.path) not in state.lanes):
            return ""
        if not (calls := state.open_calls_of(view.path)):
            return "thinking"
        has_child = any(len(key.split("/")) == len(view.path) + 1 for key in state.lanes if key)
        return "agent" if has_child and all(call.effect == "resume" for call in calls) else "tool"

    async def to_document(self) -> StateDocument:
        """Return the state as a document, which ``GenxRuntime.import_state`` reads."""
        return StateDocument(
            state_type=self.state_type,
            id=self.id,
            agent_def=self.agent_def,
            parent_state_id=self.parent_state_id,
            messages=tuple(await self.load_recent()),
            summary=await self.summary(),
            properties=await self.properties(),
            phase=await self.phase(),
            finished=await self.is_finished(),
            tool_results=await self._open_results(),
        )

    async def _open_results(self) -> tuple[StateToolResult, ...]:
        """Return the results of the round that has not ended."""
        view = await self._view()
        if view.opened.state.turn is None:
            return ()
        messages = self._messages_of(view)
        ids = call_ids_of(messages)
        first = max((at for at, message in enumerate(messages) if isinstance(message, UserMessage)), default=0)
        restored = await restore_messages(self._runtime.store.blobs, messages[first:])
        names = {call.id: call.name for one in restored if isinstance(one, AssistantMessage) for call in one.calls}
        return tuple(
            StateToolResult(id=ids[result.call], name=names[result.call], content=result.text, is_error=result.failed)
            for message in restored
            if isinstance(message, ToolMessage)
            for result in message.results
        )

    async def _view(self) -> ConversationView:
        view = await read_conversation(self._runtime, self._session.id, self._path)
        if view is None:
            raise InvalidInput(f'state "{self.id}" not found')
        return view

    async def _read_messages(self) -> list[GenxMessage]:
        view = await self._view()
        messages = self._messages_of(view)
        times = message_times(view.window.events, messages)
        stored = messages_of(await restore_messages(self._runtime.store.blobs, messages), times)
        pending = view.opened.state.values.get(PENDING_KEY) if not self._path else None
        return merge_messages([*stored, *msgspec.convert(pending or [], list[GenxMessage])])

    def _messages_of(self, view: ConversationView) -> tuple[Message, ...]:
        return self._agent_of_state().build_messages(view.window.events_at(view.path), view.path)

    def _agent_of_state(self) -> Agent[Any, Any]:
        """Return the agent with the name of this state's definition: the session's agent or an agent below it."""
        found = find_agents(self._session.agent).get(self.agent_def)
        return found if found is not None else Agent(self.agent_def)

    def _property_prefix(self, view: ConversationView) -> str:
        return conversation_key(view.window, view.path, "")

    def _require_root(self, what: str) -> None:
        if self._path:
            raise InvalidInput(f"{self.id} is the state of a child agent; {what} in the state of {self._session.id}")

    async def _set_value(self, key: str, value: JSON) -> None:
        change = StateChanged(key=key, value=value)

        async def compose(_: OpenedSession) -> list[TimedEntry]:
            return [("", EventScope(), change)]

        await work_of(self._session).append_entries(compose)


async def is_finished(session: GenxSession) -> bool:
    """Return whether the agent of a session has called one of its ``QuitTools``; it then refuses all input."""
    return is_log_finished(await reopen(work_of(session).store, session.id))


class ReActState(AgentState):
    """The state of an agent that calls tools in a loop."""


class LuaState(AgentState):
    """The state of an agent that is a script."""

    state_type: StateType = "lua"


class MatchState(AgentState):
    """The state of a router: the matched intents, and the state of the agent that is active."""

    state_type: StateType = "match"

    async def matches(self) -> list[MatchedIntent]:
        """Return the intents of the last input that are not done, the active one first."""
        state = await self._router_state()
        return [
            MatchedIntent(rule_name=intent.rule_name, agent_name=intent.agent_name, args=intent.args)
            for intent in (state.matches if state is not None else ())
        ]

    async def current_index(self) -> int:
        state = await self._router_state()
        return state.current_index if state is not None else 0

    async def is_matched(self) -> bool:
        """Return whether an agent is active."""
        return await self._router_state() is not None

    async def input(self) -> str:
        """Return the last input, ``""`` when no agent is active."""
        messages = await self.load_recent() if await self.is_matched() else []
        return next((message.content for message in reversed(messages) if message.role == "user"), "")

    async def calling_state(self) -> AgentState | None:
        """Return the state of the active agent, ``None`` without one."""
        view = await self._view()
        state = read_router_state(view.opened, view.path)
        if state is None or not state.child:
            return None
        path = view.window.conversation_start(tuple(state.child.split("/")))
        kind = state_class_of(find_agents(self._session.agent).get(state.current.agent_name))
        return kind(self._runtime, self._session, path, state.current.agent_name, self.id)

    async def phase(self) -> str:
        """Return what the router does now: ``matching``, ``executing`` or ``""``."""
        view = await self._view()
        state = view.opened.state
        if state.turn is None or (view.path and agent_key(view.path) not in state.lanes):
            return "executing" if read_router_state(view.opened, view.path) is not None else ""
        return "executing" if state.open_calls_of(view.path) else "matching"

    async def to_document(self) -> StateDocument:
        calling = await self.calling_state()
        return msgspec.structs.replace(
            await super().to_document(),
            input=await self.input(),
            matches=tuple(await self.matches()),
            current_index=await self.current_index(),
            matched=await self.is_matched(),
            calling_state=await calling.to_document() if calling is not None else None,
        )

    async def _router_state(self) -> RouterState | None:
        view = await self._view()
        return read_router_state(view.opened, view.path)


def state_class_of(agent: object) -> type[AgentState]:
    """Return the type of the state of an agent."""
    if isinstance(agent, MatchAgent):
        return MatchState
    return LuaState if isinstance(agent, AgentKind) else ReActState


def find_agents(agent: Agent[Any, Any]) -> dict[str, Agent[Any, Any]]:
    """Return an agent and the agents below it by name; the first found has precedence over others of its name."""
    found: dict[str, Agent[Any, Any]] = {}
    waiting = [agent]
    while waiting:
        one = waiting.pop(0)
        if found.setdefault(one.name, one) is one:
            below = [tool.agent if isinstance(tool, AgentTool) else tool for tool in one.tools]
            waiting += [tool for tool in below if isinstance(tool, Agent) and tool.name not in found]
    return found


def _add_stored(turns: GenxTurns, pending: list[GenxMessage], message: GenxMessage) -> list[GenxMessage]:
    """Add a stored message to the turns, with the pending calls before it; return the calls that wait for results."""
    waiting = merge_messages([*pending, message]) if message.tool_call_id or message.tool_result_id else pending
    open_calls = {one.tool_call_id for one in waiting if one.tool_call_id}
    results = {one.tool_result_id for one in waiting if one.tool_result_id}
    is_part = waiting is not pending
    if is_part and results <= open_calls and open_calls - results:
        return waiting
    for one in [*waiting, *([] if is_part else [message])]:
        turns.add(one)
    turns.end_turn()
    return []


def _is_in_time(query: MemoryQuery, time: int) -> bool:
    when = datetime.fromtimestamp(time, UTC)
    wanted = ((query.year, when.year), (query.month, when.month), (query.day, when.day), (query.hour, when.hour + 1))
    return all(not expected or expected == actual for expected, actual in wanted)


def has_finished(view: ConversationView) -> bool:
    """Return whether an agent has called a quit tool, or is a script that has ended."""
    if is_log_finished(view.opened, view.path):
        return True
    events, outcome = unfinished_script(view.window.events_at(view.path))
    return not events and outcome not in OPEN_OUTCOMES


async def read_conversation(runtime: GenxHost, session: SessionId, path: AgentPath) -> ConversationView | None:
    """Return the conversation of an agent from the log; ``path`` names the child agent that began it."""
    if await runtime.store.sessions.find(session) is None:
        return None
    opened = await reopen(runtime.store, session)
    if not path:
        return ConversationView(opened, opened.window, (), opened.state.agent)
    window = opened.window
    found = _last_run_of(window, path)
    is_running = found is not None and agent_key(found[0]) in opened.state.lanes
    if not is_running and not any(found is not None and event.path == found[0] for event in window.events):
        # the window has dropped a child that has ended and whose conversation cannot be continued
        async with aclosing(runtime.store.events.read(session)) as events:
            live = live_events_of([event async for event in events])
        window = ContextWindow((), SessionState(), visible=live)
        found = _last_run_of(window, path)
    return None if found is None else ConversationView(opened, window, *found)


def _last_run_of(window: ContextWindow, path: AgentPath) -> tuple[AgentPath, str] | None:
    """Return the last child that continued the conversation that ``path`` began, and the name of its agent."""
    for event in reversed(window.events):
        body = event.data
        if isinstance(body, progress.SubagentStarted):
            child = (*event.path, body.child)
            if len(child) == len(path) and window.conversation_start(child) == path:
                return child, body.agent
    return None


async def revert_round(runtime: GenxHost, session: GenxSession) -> None:
    """Rewind a session to before the last inputs in a row that no answer divides; a running turn is interrupted."""
    if await runtime.store.sessions.find(session.id) is None:
        return
    started = _last_round(await reopen(runtime.store, session.id))
    if started:
        place = await work_of(session).find_boundary_before(started)
        await runtime.rewind(session.id, Cursor(0, place), interrupt=True)


_ANSWERS = (progress.MessageCompleted, progress.ToolCompleted, progress.ToolFailed)


def _last_round(opened: OpenedSession) -> int:
    """Return the ``turn.started`` of the first turn of the last round, 0 if there is none."""
    first: Event | None = None
    events = list(opened.window.events_at(()))
    said = {event.data.key for event in events if isinstance(event.data, InputAdded) and event.data.content}
    for event in reversed(events):
        body = event.data
        if isinstance(body, _ANSWERS) and first is not None:
            break
        if isinstance(body, progress.TurnStarted) and not said.isdisjoint(body.inputs):  # others close the session
            first = event
    return first.seq if first is not None else 0
