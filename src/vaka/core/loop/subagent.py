"""Run an agent or a script as a child of a tool call, under its own path in the same log."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import NamedTuple

import msgspec

from vaka.core.loop.blobs import BLOB_THRESHOLD, put_blob
from vaka.core.loop.call_context import CallContext
from vaka.core.loop.context import Recipe, Turn
from vaka.core.loop.script_journal import ScriptJournal, check_script_count
from vaka.core.loop.steps import restore_answer
from vaka.core.loop.stop import StopSignal
from vaka.core.loop.turn import TurnInput, run_agent, seal_open_calls
from vaka.core.loop.wait import DecisionPending
from vaka.core.ports.tool import Tool, ToolContext
from vaka.core.ports.values import BlobStore
from vaka.core.types.control import StateChanged
from vaka.core.types.ending import Ending
from vaka.core.types.errors import InvalidInput, Suspended
from vaka.core.types.event import Event
from vaka.core.types.ids import JSON, AgentPath, CallId, Digest, EventScope
from vaka.core.types.message import Content, FailureReason, Text, ToolResult
from vaka.core.types.progress import SubagentCompleted, SubagentStarted
from vaka.core.types.state import agent_key
from vaka.core.types.tool_result import failed_result

MAX_DEPTH = 16
"""The deepest nesting of agents and scripts."""


def check_depth(path: AgentPath) -> None:
    """Raise ``InvalidInput`` for a path deeper than ``MAX_DEPTH``, the sign of endless recursion."""
    if len(path) > MAX_DEPTH:
        raise InvalidInput(f"agents and scripts are nested deeper than {MAX_DEPTH}: one of them calls itself")


class PastChild(NamedTuple):
    """A child agent that has ended, as the log has it; another one may continue its conversation."""

    path: AgentPath
    agent: str
    events: list[Event]
    """The events of the log from the start of its conversation on."""

    def values_for(self, path: AgentPath, start: AgentPath) -> dict[str, JSON]:
        """Return the values of the session that belong to it, by their keys for the child at ``path``.

        The values of a script agent have the path ``start`` of the child that began the conversation.
        """
        values: dict[str, JSON] = {}
        for change in [event.data for event in self.events if isinstance(event.data, StateChanged)]:
            name, _, owner = change.key.partition("/")
            if owner == agent_key(self.path):
                values[f"{name}/{agent_key(path)}"] = change.value
            elif owner.startswith(f"{agent_key(start)}/:"):
                values[change.key] = change.value
        return values


async def find_past_child(context: CallContext, id: str) -> PastChild:
    """Return an ended child of the calling agent, or of an agent whose conversation it continues.

    Raises ``InvalidInput`` for an unknown id, and for a child that has not ended.
    """
    log, path = context.owner_turn.log, tuple(id.strip().split("/"))
    parents = set(log.window.conversation_paths(context.path))
    base = max(log.window.conversation_seq(path) - 1, 0)  # the window may begin later than the conversation
    live = await log.read_branch(base)
    started = [e.data for e in live if isinstance(e.data, SubagentStarted) and (*e.path, e.data.child) == path]
    if not started or path[:-1] not in parents:
        raise InvalidInput(f"there is no agent {id!r} to resume; leave out resume to start a new one")
    ended = [e.data for e in live if isinstance(e.data, SubagentCompleted) and (*e.path, e.data.child) == path]
    if not ended:
        raise InvalidInput(f"the agent {id!r} has not ended yet; resume it after its result")
    return PastChild(path, started[-1].agent, live)


async def run_subagent(context: ToolContext, recipe: Recipe, content: Content, past: PastChild | None = None) -> Ending:
    """Run an agent as a child of a tool call and return its ending; it continues the conversation of ``past``.

    When the call runs again after a crash, its children resume from the log; a completed child does not run again.
    """
    if not isinstance(context, CallContext):
        raise InvalidInput("a child agent needs the context of the call that starts it")
    name = context.next_child_name()
    if past is not None:
        _continue_past_child(context.owner_turn, (*context.path, name), past)
    ending = await context.run_child_task(_run_in_call(context, recipe, content, name, past))
    if isinstance(ending, Suspended):
        raise asyncio.CancelledError  # the call stays open; it runs again after the decision
    assert isinstance(ending, Ending)  # noqa: S101  # the other return type of _run_in_call
    return ending


def _continue_past_child(parent: Turn, path: AgentPath, past: PastChild) -> None:
    """Give the child at ``path`` the conversation and, if it has not started, the values of an ended one."""
    parent.log.window.restore(path, past.path, past.events)
    if agent_key(path) not in parent.state.lanes:
        values = past.values_for(path, parent.log.window.conversation_start(past.path))
        parent.log.defer(parent.scope, *(StateChanged(key=key, value=value) for key, value in values.items()))


async def _run_in_call(
    context: CallContext, recipe: Recipe, content: Content, name: str, past: PastChild | None
) -> Ending | Suspended:
    parent = context.owner_turn
    path = (*parent.path, name)
    check_depth(path)
    progress = parent.state.lanes.get(agent_key(path))
    if progress is not None and progress.done is not None:
        return _ending_of_completed(progress.done)
    if progress is None:
        if (refused := _check_child_limits(parent, recipe.name)) is not None:
            return refused
        parent.started["agents"] += 1
    stop = StopSignal(context.stop)
    turn = Turn(parent.log, recipe, parent.env, EventScope(parent.id, 0, path), stop, parent, context.timer)
    after = parent.conversations.get(context.call) if parent.conversations is not None else None
    continued = (past.path[-1] if past.path[:-1] == parent.path else agent_key(past.path)) if past else after or ""
    started = SubagentStarted(call=context.call, agent=turn.agent, child=name, after=continued)
    turn_input = TurnInput(content=content, started=started) if progress is None else None
    try:
        ending = await run_agent(turn, turn_input)
    except Suspended as suspended:
        context.suspended.extend(suspended.decisions)  # type: ignore[arg-type]  # ids of decisions, as they were raised
        return suspended
    finally:
        stop.close()
    text = await restore_answer(turn.log, turn.scope, ending.text)
    await _write_completion(context, turn, ending, kept=after is not None)
    return msgspec.structs.replace(ending, text=text)


def _check_child_limits(parent: Turn, name: str) -> Ending | None:
    """Return the ending of a child agent that ``parent`` may not start."""
    limits = parent.limits
    if parent.depth >= limits.max_depth:
        return _refused_child("depth", f"child agents may be nested {limits.max_depth} deep (max_depth)", name)
    if parent.started["agents"] >= limits.max_children:
        return _refused_child("children", f"a turn may start {limits.max_children} child agents (max_children)", name)
    return None


def _refused_child(limit: str, rule: str, name: str) -> Ending:
    return Ending(kind="failed", limit=limit, message=f"the agent {name} was not started: {rule}")


async def _write_completion(context: CallContext, turn: Turn, ending: Ending, *, kept: bool) -> None:
    await seal_open_calls(turn, ending, "The agent ended before this call did.")
    reason = _failure_reason(ending)
    completed = SubagentCompleted(
        call=context.call,
        agent=turn.agent,
        child=turn.path[-1],
        text=ending.text,
        failed=bool(reason),
        reason=reason,
        stop=ending.message or ending.limit or "end",
        kept=kept,
    )
    await turn.log.append(context.owner_turn.scope, completed)


def _failure_reason(ending: Ending) -> FailureReason:
    """Return why a child agent has no complete answer, ``""`` when it has one."""
    if ending.limit:
        return "limit"
    if ending.kind == "failed":
        return "denied" if ending.withdrawn else "error"
    if ending.kind != "completed":
        return ending.kind
    return "" if ending.text else "error"


def _ending_of_completed(done: SubagentCompleted) -> Ending:
    """Return the ending of a child agent that the log has."""
    if done.stop != "end" and (done.reason == "limit" or not done.failed):
        return Ending(text=done.text, limit=done.stop)
    message = done.stop if done.stop != "end" else ""
    if not (done.failed and (done.text or message or done.reason != "error")):
        return Ending(text=done.text)
    kind = done.reason if done.reason in ("cancelled", "interrupted") else "failed"
    return Ending(kind=kind, text=done.text, message=message, withdrawn=done.reason == "denied")


def child_result(call: CallId, agent: str, ending: Ending) -> ToolResult:
    """Return the result of the call that ran a child agent; without a complete answer it has failed."""
    reason = _failure_reason(ending)
    if not reason:
        return ToolResult(call=call, content=(Text(text=ending.text),))
    cause = f"the agent {agent} ended without an answer"
    if ending.limit and not ending.message:
        cause = f"the agent {agent} stopped before it was done, at the limit {ending.limit!r}"
    elif ending.kind != "completed":
        cause = ending.message or f"the agent {agent} was {ending.kind}"
    partial = f"\n\nIts answer up to then:\n{ending.text}" if ending.text else ""
    return failed_result(call, reason, cause + partial)


@asynccontextmanager
async def open_script_journal(
    context: ToolContext, agent: str, code_digest: Digest, tools: Mapping[str, Tool]
) -> AsyncGenerator[tuple[ScriptJournal, SubagentCompleted | None]]:
    """Yield the journal of a script that a tool call runs, and its completion if the log has one.

    The script may call ``tools`` in addition to the agent's tools.
    """
    if not isinstance(context, CallContext):
        raise InvalidInput("a script needs the context of the call that runs it")
    parent, child = context.owner_turn, context.next_child_name()
    path = (*parent.path, child)
    check_depth(path)
    progress = parent.state.lanes.get(agent_key(path))
    stop = StopSignal(context.stop)
    turn = Turn(parent.log, parent.recipe, parent.env, EventScope(parent.id, 0, path), stop, parent, context.timer)
    turn.agent, turn.depth = agent, parent.depth
    turn.budget.agent = agent
    turn.tools = {**parent.tools, **tools}
    if progress is None:
        if len(parent.path) > parent.depth:  # the caller is a script: only agents add to the depth
            parent.started["scripts"] += 1
            check_script_count(parent)
        parent.log.defer(parent.scope, SubagentStarted(call=context.call, agent=agent, child=child))
    try:
        done = await _load_value(parent.log.store.blobs, progress.done) if progress and progress.done else None
        yield ScriptJournal(turn, list(parent.log.window.events_at(path)), code_digest, context.call), done
    except DecisionPending as pending:
        context.suspended.extend(pending.decisions)
        raise asyncio.CancelledError from pending  # the call stays open; it runs again after the decision
    finally:
        stop.close()


async def record_script_end(
    context: ToolContext, journal: ScriptJournal, agent: str, value: JSON, error: str = ""
) -> None:
    """Defer the completion of a script that a tool call has run."""
    encoded = msgspec.json.encode(journal.turn.log.secrets.redact_data(value))
    blob = await put_blob(journal.turn.log, encoded) if len(encoded) > BLOB_THRESHOLD else None
    body = SubagentCompleted(
        call=context.call,
        agent=agent,
        child=journal.turn.path[-1],
        failed=bool(error),
        stop=error or "end",
        value=None if blob else value,
        blob=blob,
    )
    journal.turn.log.defer(EventScope(journal.turn.id, 0, journal.turn.path[:-1]), body)


async def _load_value(blobs: BlobStore, done: SubagentCompleted) -> SubagentCompleted:
    if done.blob is None:
        return done
    return msgspec.structs.replace(done, value=msgspec.json.decode(await blobs.get(done.blob)))
