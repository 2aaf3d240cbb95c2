"""An agent that is a script: ``run(ctx)``, or ``on_start``, ``on_input`` and ``on_close``.

A script with ``run`` is replayed from its start when its next turn begins. A script with ``on_input`` starts again with
each input and stores what it needs in ``ctx.agent.state``.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, aclosing

from vaka.core.loop.blobs import offload, restore_content
from vaka.core.loop.context import Turn
from vaka.core.loop.prompt import turn_input_content
from vaka.core.loop.script_journal import (
    ScriptAnswer,
    ScriptJournal,
    ScriptRequest,
    unfinished_script,
)
from vaka.core.loop.stop import TurnStopped
from vaka.core.loop.wait import DecisionPending
from vaka.core.types.ending import Ending
from vaka.core.types.errors import Closed, ReplayError, ScriptError, Suspended
from vaka.core.types.event import Event
from vaka.core.types.ids import JSON, Digest, MessageId
from vaka.core.types.message import Content, Part, Text, ToolResult, text_of
from vaka.core.types.monitor import OPEN_OUTCOMES, SCRIPT_END, Logged, ScriptAnswered
from vaka.core.types.progress import MessageCompleted, MessageStarted, SubagentStarted, TextDelta
from vaka.luau.host import surface_functions
from vaka.luau.host.io import chunk_of_content, parse_chunk
from vaka.luau.program import Program
from vaka.luau.scheduler import drive
from vaka.luau.services import ScriptIo, ScriptServices
from vaka.luau.session_host import build_host_services
from vaka.luau.tool import ScriptSource

RECV = "recv"


class ScriptBody:
    """The body of a turn of a Luau agent."""

    def __init__(self, source: ScriptSource, services: ScriptServices, layer: str = "code") -> None:
        self._layer = layer
        self._source, self._services = source, services if source.trusted else services.for_untrusted()

    async def __call__(self, turn: Turn) -> Ending:
        """Run the script with the turn's input until it waits for the next input or has ended."""
        await turn.log.append(turn.scope)  # the input must be in the log before the script receives it
        events = _recent_events(turn)
        own = [event.data for event in events if event.turn == turn.id and event.path == turn.path]
        answers = [body for body in own if isinstance(body, ScriptAnswered)]
        if any(answer.name == SCRIPT_END for answer in answers):
            return Ending(text=turn.last_text)  # a crash after the script's end and before the turn's
        program = await self._source.program()
        script_events, how = unfinished_script(events)
        if how not in OPEN_OUTCOMES and not script_events:
            raise Closed("the script of this agent has ended; it accepts no more input")
        journal = _AgentJournal(turn, script_events, program.digest)
        content = await restore_content(turn.log.store.blobs, turn_input_content(events, turn.path, turn.id))
        turn_input = _TurnInput(content, was_delivered=any(answer.name == RECV for answer in answers))
        startup_info = self._source.startup_info("agent", program, journal, turn.path, self._services.user)
        startup_info["begin"] = how != "input"
        try:
            how = await self._run(program, journal, turn_input, startup_info)
        except (TurnStopped, ScriptError) as error:
            await journal.output.close_truncated()
            if turn_input.style == "input":  # the script starts again with the next input
                journal.record_end("input" if turn_input.was_delivered else "closed")
            elif isinstance(error, ScriptError) and not isinstance(error, ReplayError):
                journal.record_end("failed")
            raise
        await journal.output.close()
        if how is not None:
            journal.record_end(how)
        return Ending(text=turn.last_text)

    async def _run(
        self, program: Program, journal: "_AgentJournal", turn_input: "_TurnInput", startup_info: JSON
    ) -> JSON:
        """Drive the script until it has ended, and return how; ``None`` when it waits for the next input."""
        turn = journal.turn

        def log_line(line: str) -> None:
            if not journal.replaying:
                turn.log.defer(turn.scope, Logged(level="info", message=line))

        try:
            async with AsyncExitStack() as exit_stack:
                io = ScriptIo(
                    recv=turn_input.recv,
                    emit=journal.output.emit,
                    set_style=turn_input.set_style,
                    has_open_message=lambda: journal.output.is_open,
                )
                storage = self._source.storage_prefix(turn.session)
                host = surface_functions(
                    build_host_services(self._services, journal, turn.path, exit_stack, io, storage, self._layer)
                )
                script = self._services.runner.open(program, log_line)
                with turn.stop.cancellable():
                    values = await drive(script, host, journal, [startup_info, None])
        except DecisionPending as pending:
            if pending.decisions:
                raise Suspended(pending.decisions) from pending
            return None
        return values[0] if values else "main"


def _recent_events(turn: Turn) -> list[Event]:
    """Return the events of the agent, for a child from the end of its last script on: earlier ones do not matter."""
    found: list[Event] = []
    path = turn.path
    for event in reversed(turn.log.window.events) if path else ():
        body = event.data
        if isinstance(body, SubagentStarted) and (*event.path, body.child) == path:
            found.append(event)
            if not body.after:
                return found[::-1]
            path = tuple(body.after.split("/")) if "/" in body.after else (*event.path, body.after)
        elif event.path == path:
            found.append(event)
            if isinstance(body, ScriptAnswered) and body.name == SCRIPT_END:
                return found[::-1]
    return list(turn.log.window.events_at(turn.path))


class _TurnInput:
    """The input of one turn, delivered to the script once."""

    def __init__(self, content: Content, *, was_delivered: bool) -> None:
        self._content = content  # empty when the agent is closed
        self.was_delivered = was_delivered
        """Whether the script has received the input."""
        self.style = ""
        """``run``, ``input`` for ``on_input``, or ``main`` for neither."""

    def set_style(self, style: str) -> None:
        self.style = style

    async def recv(self, request: ScriptRequest) -> JSON:
        """Return the input once; a second call ends the turn as soon as no other call is running."""
        if self.was_delivered:
            raise DecisionPending
        self.was_delivered = True
        return chunk_of_content(self._content) if self._content else None


class _TurnOutput:
    """The messages of a script. Replaying the script gives a message the same id, so that it is logged only once."""

    def __init__(self, turn: Turn, journal: ScriptJournal, events: Sequence[Event]) -> None:
        self._turn, self._journal = turn, journal
        done = [event.data for event in events if isinstance(event.data, MessageCompleted)]
        self._logged_lengths = {body.message_id: len(text_of(body.content)) if body.cut else None for body in done}
        """The messages in the log: the length of a truncated one, ``None`` for a complete one."""
        self._number = 0
        self.reset()

    @property
    def is_open(self) -> bool:
        """Whether a message has begun and not ended."""
        return self._id is not None

    async def emit(self, chunk: JSON) -> None:
        """Append a chunk to the message; its last chunk writes the message to the log."""
        parsed = parse_chunk(chunk)
        if parsed.content and self._id is None:
            self._begin_message()
        for part in parsed.content:
            await self._append_part(part)
        if parsed.eof:
            await self.close()

    async def close(self) -> None:
        """End the open message, if any, and write it to the log."""
        body = await self._take_message("end")
        if body is not None:
            await self._journal.commit(body)

    async def close_truncated(self) -> None:
        """End the open message of a turn that was stopped."""
        body = await self._take_message("cut")
        if body is not None:
            self._turn.log.defer(self._turn.scope, body)

    async def _take_message(self, stop: str) -> MessageCompleted | None:
        self._end_block()
        id, content = self._id, tuple(self._content)
        self.reset()
        if id is None or id in self._logged_lengths:
            return None
        self._logged_lengths[id] = None
        stored = await offload(self._turn.log, content)
        return MessageCompleted(message_id=id, content=stored, stop=stop, cut=stop == "cut")

    def reset(self) -> None:
        """Start a new message with the next chunk."""
        self._id: MessageId | None = None
        self._content: list[Part] = []
        self._block: list[str] = []
        """The pieces of the text that follows ``_content``."""
        self._block_chars = self._text_chars = 0

    def _end_block(self) -> None:
        if self._block:
            self._content.append(Text(text="".join(self._block)))
        self._block, self._block_chars = [], 0

    def _begin_message(self) -> None:
        start = self._journal.answers[0]
        self._number += 1
        self._id = MessageId(f"msg_{start.at:011x}{start.answer['seed']:x}_{self._number}")
        if self._id not in self._logged_lengths:
            self._turn.log.publish_live(self._turn.scope, MessageStarted(message_id=self._id))

    async def _append_part(self, part: Part) -> None:
        cut = self._logged_lengths.get(self._id) if self._id is not None else None
        if cut is not None and self._text_chars >= cut:
            self.reset()  # the logged message was truncated here; the rest is a new message
            self._begin_message()
        if not isinstance(part, Text):
            self._end_block()
            self._content.append(part)
            return
        offset = self._block_chars
        self._block.append(part.text)
        self._block_chars, self._text_chars = offset + len(part.text), self._text_chars + len(part.text)
        if part.text and self._id is not None and self._id not in self._logged_lengths:
            await self._journal.commit()  # followers must not see output before the answers it depends on are durable
            delta = TextDelta(message_id=self._id, block=len(self._content), offset=offset, text=part.text)
            self._turn.log.publish_live(self._turn.scope, delta)


class _AgentJournal(ScriptJournal):
    """The journal of an agent, which ends the open message before each input."""

    def __init__(self, turn: Turn, events: Sequence[Event], code_digest: Digest) -> None:
        super().__init__(turn, events, code_digest)
        self.output = _TurnOutput(turn, self, events)

    async def replay(self) -> AsyncGenerator[ScriptAnswer]:
        async with aclosing(super().replay()) as answers:
            async for answer in answers:
                if answer.request.name == RECV:
                    self.output.reset()
                yield answer

    async def record_answer(
        self, request: ScriptRequest, value: JSON, error: str = "", result: ToolResult | None = None
    ) -> ScriptAnswer:
        if request.name == RECV:
            await self.output.close()
        return await super().record_answer(request, value, error, result)
