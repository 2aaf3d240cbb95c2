"""Agents and single tools as tools of an MCP server: each call is a turn of a session, governed as any other."""

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, cast
from weakref import WeakValueDictionary

import msgspec

from vaka.core.loop.blobs import restore_content
from vaka.core.ports.store import PendingDecision
from vaka.core.session.index_rows import find_asked_decisions
from vaka.core.types import progress
from vaka.core.types.control import RunSettings, decision_of
from vaka.core.types.errors import Busy, InvalidInput, NotFound, Suspended, TurnError, VakaError
from vaka.core.types.event import Event
from vaka.core.types.ids import SessionId
from vaka.core.types.message import Text, ToolResult
from vaka.core.types.pending_decisions import PendingDecisions
from vaka.core.types.tool import ToolSpec
from vaka.mcp.server import Report, ToolOutcome, ToolRun
from vaka.mcp.serving import (
    DescribeFailure,
    ServableAgent,
    ServedResponse,
    ServedSession,
    ServedTurn,
    ServingRuntime,
)

CALLS_OPTION = "calls"
"""The option of a turn that has the calls which it makes."""
INSTRUCTIONS = (
    "Each tool ask_NAME gives a prompt to an agent and returns its answer and a session_id; give the session_id to the "
    "next call to continue that conversation. Transcripts are the resources session://ID/transcript."
)
MAX_PROMPT_CHARS = 1_000_000
MAX_LINE_CHARS = 200
"""Characters of a line of progress."""
_CANCEL_NOTE = "the client cancelled the request"

_ANSWER_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "answer": {"type": "string"},
        "session_id": {"type": "string", "description": "Give it to the next call to continue the conversation."},
        "turn": {"type": "string"},
        "stop": {"type": "string", "description": "end, limit, failed, cancelled, interrupted or waiting"},
        "error": {"type": "string"},
        "output": {"description": "The answer as data, if the agent has an output type."},
    },
    "required": ["answer", "session_id", "turn", "stop"],
}


class AskArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The arguments of ``ask_<agent>``."""

    prompt: str
    session_id: str | None = None


class ServedTurns:
    """Runs the turns of an MCP server: one call of a session after the other, each stopped when it is cancelled."""

    def __init__(
        self,
        runtime: ServingRuntime,
        hint: Callable[[PendingDecision], str],
        describe_failure: DescribeFailure,
        *,
        owner: str = "",
        own_only: bool = False,
        admit: Callable[[str], None] = lambda session: None,
    ) -> None:
        """``hint`` returns an open decision in one line, with the command that takes it.

        New sessions belong to ``owner``; with ``own_only`` sessions of others do not exist. ``admit`` is called with
        the session of each call before anything is stored; it raises a ``VakaError`` to refuse the call.
        """
        self.runtime = runtime
        self.describe_failure = describe_failure
        self._admit = admit
        self._hint = hint
        self._owner = owner
        self._own_only = own_only
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._stopping: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """Wait until the cancelled turns have their interrupt."""
        await asyncio.gather(*self._stopping)

    async def open(self, agent: ServableAgent, id: str, run_settings: RunSettings | None = None) -> ServedSession:
        """Return a new session, or the session with an id, for a call.

        Raises ``NotFound``, ``InvalidInput``, and what ``admit`` raises.
        """
        session = await agent.open(id=id or self.runtime.env.ids.new_id("ses_mcp"), run_settings=run_settings)
        info = await self.runtime.store.sessions.find(session.id) if id else None
        if id and (info is None or (self._own_only and info.owner != self._owner)):
            raise NotFound(f"there is no session {id!r}; leave session_id out to begin a new one")
        if info is not None and info.agent not in ("", agent.name):
            raise InvalidInput(f"session {id!r} belongs to agent {info.agent!r}, not to {agent.name!r}")
        self._admit(session.id)
        if self._owner and not id:
            await session.update(owner=self._owner, by=self._owner)
        return session

    async def run(
        self,
        session: ServedSession,
        stream: Callable[[], ServedTurn],
        run: ToolRun,
        report: Report,
        take: Callable[[Event], None] = lambda event: None,
    ) -> ToolOutcome | ServedResponse:
        """Run a turn; return its response, or the decisions it waits for. Raises ``TurnError``.

        A turn that waits goes on in the background as soon as it can. While another process runs one, this waits.
        """
        async with self._one_at_a_time(session.id):
            while True:
                try:
                    return await self._run_turn(session, stream, run, report, take)
                except Busy:
                    if rows := await self.runtime.decisions(session.id):
                        return ToolOutcome(session=session.id, decisions=tuple(rows), seen=run.seen)
                    await self._wait_for_events(session.id)

    async def _run_turn(
        self,
        session: ServedSession,
        stream: Callable[[], ServedTurn],
        run: ToolRun,
        report: Report,
        take: Callable[[Event], None],
    ) -> ToolOutcome | ServedResponse:
        lines, pending = _ProgressLines(run, self._hint), PendingDecisions()
        try:
            async with stream() as turn:
                async for event in turn:
                    take(event)
                    for line in lines.take(event):
                        await report(line)
                    pending.note(event)
                    if pending.is_waiting_after(event.data) and (rows := await self._open_rows(session, pending)):
                        return ToolOutcome(session=session.id, decisions=rows, seen=lines.seen)
                return turn.response
        except Suspended as suspended:
            rows = tuple(row for row in await self.runtime.decisions(session.id) if row.id in suspended.decisions)
            return ToolOutcome(session=session.id, decisions=rows, seen=lines.seen)
        except asyncio.CancelledError:
            self._stop_later(session, run.key, started=lines.started)
            raise

    async def _wait_for_events(self, session: SessionId) -> None:
        info = await self.runtime.store.sessions.find(session)
        with suppress(TimeoutError):
            async with asyncio.timeout(1.0):  # a writer that dies sends no notification
                await self.runtime.store.events.wait(session, after=info.head if info else 0)

    async def _open_rows(self, session: ServedSession, pending: PendingDecisions) -> tuple[PendingDecision, ...]:
        """Return the open decisions that a turn waits for; none if turns suspend themselves instead of waiting."""
        if self.runtime.env.ask != "wait":
            return ()
        asked = {decision_of(each) for _, each in pending.asked}
        return tuple(row for row in await self.runtime.decisions(session.id) if row.id in asked)

    @asynccontextmanager
    async def _one_at_a_time(self, session: str) -> AsyncGenerator[None]:
        """Hold the calls of a session apart, so that a person is asked once about what one of them needs."""
        lock = self._locks.setdefault(session, asyncio.Lock())
        async with lock:
            yield

    def abandon(self, agent: ServableAgent, id: str) -> None:
        """Interrupt a turn that waits for a person, and let it end."""

        async def stop() -> None:
            with suppress(VakaError):
                session = await agent.open(id=id)
                await session.interrupt(_CANCEL_NOTE, by="mcp")
                await session.resume().wait()

        self._start(stop())

    def _stop_later(self, session: ServedSession, key: str, *, started: bool) -> None:
        async def stop() -> None:
            with suppress(VakaError):
                if started or not await session.withdraw(key):
                    await session.interrupt(_CANCEL_NOTE, by="mcp")

        self._start(stop())

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something in a task of its own: everything that a cancelled request awaits is cancelled as well."""
        task = asyncio.create_task(work)
        self._stopping.add(task)
        task.add_done_callback(self._stopping.discard)


class _ProgressLines:
    """Turns the events of a turn into short lines; events that an earlier round has reported give none."""

    def __init__(self, run: ToolRun, hint: Callable[[PendingDecision], str]) -> None:
        self.seen, self.started = run.seen, False
        self._key = run.key
        self._hint = hint
        self._text = ""
        self._names: dict[str, str] = {}

    def take(self, event: Event) -> list[str]:
        """Return the lines of an event."""
        body = event.data
        if isinstance(body, progress.TurnStarted | progress.StepStarted) and self._key in body.inputs:
            self.started = True
        if event.seq:
            if event.seq <= self.seen:
                return []
            self.seen = event.seq
        if isinstance(body, progress.TextDelta | progress.ToolOutputDelta) and not event.path:
            return self._take_text(body.text)
        if line := self._line_of(event):
            rest, self._text = self._text, ""
            return [line for line in (rest.strip(), line) if line]
        return []

    def _take_text(self, text: str) -> list[str]:
        """Return the whole lines of a text that arrives in pieces; a long line is cut into several."""
        self._text += text
        *lines, self._text = self._text.split("\n")
        if len(self._text) > MAX_LINE_CHARS:
            lines.append(self._text)
            self._text = ""
        return [line.strip()[:MAX_LINE_CHARS] for line in lines if line.strip()]

    def _line_of(self, event: Event) -> str:
        match event.data:
            case progress.ToolStarted(call=call):
                self._names[call.id] = call.name
                arguments = msgspec.json.encode(call.arguments).decode()
                return _shorten(f"→ {call.name} {arguments}")
            case progress.ToolCompleted(result=result):
                return _shorten(f"← {self._names.get(result.call, result.call)}: {result.text}")
            case progress.ToolFailed(result=result):
                return _shorten(f"✗ {self._names.get(result.call, result.call)}: {result.text}")
            case progress.SubagentStarted(agent=agent):
                return _shorten(f"agent {agent}")
            case progress.TurnQueued():
                return "waiting for the turn before it"
            case _:
                asked = find_asked_decisions(event.session, [event])
                return "; ".join(f"waiting: {self._hint(row)}" for row in asked)


def _shorten(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= MAX_LINE_CHARS else f"{line[: MAX_LINE_CHARS - 1]}…"


class ServedAgent:
    """An agent as the tool ``ask_<agent>``."""

    continues = True

    def __init__(self, turns: ServedTurns, agent: ServableAgent, run_settings: RunSettings | None = None) -> None:
        """``run_settings``: how the sessions are run, for their logs."""
        self._turns = turns
        self._agent = agent
        self._run_settings = run_settings
        name = re.sub(r"[^A-Za-z0-9_.-]", "_", f"ask_{agent.name}")[:128]
        about = agent.description or f"Ask the agent {agent.name}; it works with its own tools and returns an answer."
        self.spec = ToolSpec(
            name=name, description=about, parameters=_ask_schema(), output=_ANSWER_SCHEMA, timeout=None
        )

    async def run(self, run: ToolRun, report: Report) -> ToolOutcome:
        """Run a turn of a new session or of ``session_id``; with an empty prompt the unfinished turn alone."""
        asked = _parse_ask(run.arguments)
        id = run.session or asked.session_id or ""
        session = await self._turns.open(self._agent, id, self._run_settings)
        if not id:
            await report(f"session {session.id}")
        try:
            ended = await self._turns.run(session, lambda: _stream(session, asked.prompt, run.key), run, report)
        except TurnError as error:
            return _failed_turn(session.id, error, self._turns.describe_failure)
        return ended if isinstance(ended, ToolOutcome) else _answer_of(ended)

    def abandon(self, run: ToolRun) -> None:
        """Interrupt the turn, which waits for a person."""
        self._turns.abandon(self._agent, run.session)


def _ask_schema() -> dict[str, Any]:
    prompt = "What the agent shall do. With a session_id it may be empty: the session then finishes its open turn."
    session = "The session to continue, from the result of an earlier call; without it a new one begins."
    return {
        "type": "object",
        "properties": {
            "prompt": {"type": "string", "description": prompt},
            "session_id": {"type": "string", "description": session},
        },
        "required": ["prompt"],
        "additionalProperties": False,
    }


def _parse_ask(arguments: Mapping[str, Any]) -> AskArguments:
    try:
        asked = msgspec.convert(dict(arguments), AskArguments)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"the arguments are not valid: {error}") from error
    if len(asked.prompt) > MAX_PROMPT_CHARS:
        raise InvalidInput(f"the prompt has {len(asked.prompt)} characters, more than {MAX_PROMPT_CHARS}")
    if not asked.prompt.strip() and not asked.session_id:
        raise InvalidInput("the prompt is empty; write what to do")
    return asked


def _stream(session: ServedSession, prompt: str, key: str) -> ServedTurn:
    return session.stream(prompt, key=key, earlier=True) if prompt.strip() else session.resume()


def _answer_of(response: ServedResponse) -> ToolOutcome:
    value = {
        "answer": response.text,
        "session_id": response.session_id,
        "turn": response.turn_id,
        "stop": response.stop,
    }
    if response.output is not None:
        value["output"] = msgspec.to_builtins(response.output)
    notes = f"\nsession_id: {response.session_id}"
    if response.stop == "limit":
        notes += f"\nThe turn has reached its limit ({response.limit}); the answer may be incomplete."
    return ToolOutcome(session=response.session_id, content=(Text(text=response.text), Text(text=notes)), value=value)


def _failed_turn(session: str, error: TurnError, describe: DescribeFailure) -> ToolOutcome:
    known: ServedResponse | None = error.result if isinstance(error.result, ServedResponse) else None
    answer, turn, stop = (known.text, known.turn_id, known.stop) if known is not None else ("", "", "failed")
    reason = describe(error.code, str(error))
    value = {"answer": answer, "session_id": session, "turn": turn, "stop": stop, "error": reason}
    text = f"The turn has no answer ({stop}): {reason}\nsession_id: {session}"
    return ToolOutcome(session=session, content=(Text(text=text),), value=value, failed=True)


def _is_object(result: ToolResult) -> bool:
    return isinstance(result.value, dict) and not result.failed


class ServedToolCall:
    """One tool of an agent as a tool of the server; its calls are judged and logged as the agent's calls are."""

    continues = False

    def __init__(self, turns: ServedTurns, agent: ServableAgent, spec: ToolSpec) -> None:
        """``agent`` must make the calls of the option ``calls``, and ask no model."""
        self._turns, self.spec = turns, spec
        self._agent = agent

    async def run(self, run: ToolRun, report: Report) -> ToolOutcome:
        """Make the call in a session of its own."""
        name = self.spec.name
        session = await self._turns.open(self._agent, run.session)
        options = {CALLS_OPTION: [{"name": name, "arguments": dict(run.arguments)}]}
        results: list[ToolResult] = []

        def take(event: Event) -> None:
            if isinstance(event.data, progress.ToolCompleted | progress.ToolFailed) and not event.path:
                results.append(event.data.result)

        ended = await self._turns.run(
            session, lambda: session.stream(f"MCP call of {name}", key=run.key, options=options), run, report, take
        )
        if isinstance(ended, ToolOutcome):
            return ended
        if not results:
            raise TurnError(f"the call of {name} has no result: {ended.error or ended.stop}")
        result = results[-1]
        content = await restore_content(self._turns.runtime.store.blobs, result.content)
        value = cast("dict[str, Any]", result.value) if _is_object(result) else None
        return ToolOutcome(session=session.id, content=content, value=value, failed=result.failed)

    def abandon(self, run: ToolRun) -> None:
        """Interrupt the turn, which waits for a person."""
        self._turns.abandon(self._agent, run.session)
