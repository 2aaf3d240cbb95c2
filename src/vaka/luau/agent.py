"""An agent that is a script: ``run(ctx)``, or ``on_start``, ``on_input`` and ``on_close``.

A script that runs on from one thing it hears to the next is told everything again when its next turn begins; one with
``on_input`` begins anew with each, and keeps what it needs in ``ctx.agent.state``.
"""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing

from vaka.core.loop.blobs import offload, restore_content
from vaka.core.loop.children.script_journal import (
    DecisionPending,
    ScriptAnswer,
    ScriptJournal,
    ScriptRequest,
    unfinished_script,
)
from vaka.core.loop.context import Turn
from vaka.core.loop.finish import Ending
from vaka.core.loop.prompt import turn_input_content
from vaka.core.loop.stop import TurnStopped
from vaka.core.session.context_window import SCRIPT_END
from vaka.core.types.errors import Closed, ReplayError, ScriptError, Suspended
from vaka.core.types.event import Body
from vaka.core.types.ids import JSON, MessageId
from vaka.core.types.message import Content, Part, Text, ToolResult, text_of
from vaka.core.types.monitor import Logged, ScriptAnswered
from vaka.core.types.progress import MessageCompleted, MessageStarted, TextDelta
from vaka.luau.host.compat import surface_functions
from vaka.luau.host.host_services import HostServices
from vaka.luau.host.io import chunk_of_content, parse_chunk
from vaka.luau.program import Program
from vaka.luau.scheduler import drive
from vaka.luau.services import ScriptServices
from vaka.luau.session_host import build_host_services
from vaka.luau.tool import ScriptSource

RECV = "recv"


class ScriptBody:
    """What a Luau agent does in a turn."""

    def __init__(self, source: ScriptSource, services: ScriptServices) -> None:
        self._source, self._services = source, services if source.trusted else services.for_untrusted()

    async def __call__(self, turn: Turn) -> Ending:
        """Let the script hear what was said, and work until it wants to hear more or has ended."""
        await turn.log.append(turn.scope)  # what was said is in the log before the script hears it
        mine = list(turn.log.window.events_at(turn.path))
        if any(event.turn == turn.id and _is_end(event.data) for event in mine):
            return Ending(text=turn.last_text)  # only the end of the turn was not written
        program = await self._source.program()
        events, how = unfinished_script(mine)
        if how not in (None, "input", "closed") and not events:
            raise Closed("the script of this agent has ended; it hears nothing more")
        nest = ScriptJournal(turn, events, program.digest)
        content = await restore_content(turn.log.store.blobs, turn_input_content(mine, turn.path, turn.id))
        mouth, ear = _TurnOutput(turn, nest), _TurnInput(turn, content)
        given = self._source.startup_info("agent", nest) | {"begin": how != "input"}
        try:
            how = await self._run(program, nest, mouth, ear, given)
        except (TurnStopped, ScriptError) as error:
            await mouth.close_truncated()
            if ear.style == "input":
                nest.record_end(
                    "input" if ear.was_delivered else "closed"
                )  # it begins anew with the next thing it hears
            elif isinstance(error, ScriptError) and not isinstance(error, ReplayError):
                nest.record_end("failed")
            raise
        await mouth.close()
        if how is not None:
            nest.record_end(how)
        return Ending(text=turn.last_text)

    async def _run(
        self,
        program: Program,
        journal: ScriptJournal,
        turn_output: "_TurnOutput",
        turn_input: "_TurnInput",
        startup_info: JSON,
    ) -> JSON:
        """Drive the script until it has ended, and return how; ``None`` when it waits for what is said next."""
        turn = journal.turn

        def log_line(line: str) -> None:
            if not journal.replaying:
                turn.log.defer(turn.scope, Logged(level="info", message=line))

        try:
            async with AsyncExitStack() as closing:
                talk = HostServices(recv=turn_input.recv, emit=turn_output.emit, style=turn_input.set_style)
                parts = build_host_services(self._services, journal, turn.path, closing, talk)
                script = self._services.runner.open(program, log_line)
                with turn.stop.cancellable():
                    values = await drive(
                        script, surface_functions(parts), _AgentJournal(journal, turn_output), [startup_info, None]
                    )
        except DecisionPending as waits:
            if waits.decisions:
                raise Suspended(waits.decisions) from waits
            return None
        return values[0] if values else "main"


def _is_end(body: Body) -> bool:
    return isinstance(body, ScriptAnswered) and body.name == SCRIPT_END


class _TurnInput:
    """What a script hears in one turn: what was said, once."""

    def __init__(self, turn: Turn, content: Content) -> None:
        self._content = content  # nothing was said: it is the end
        bodies = [event.data for event in turn.log.window.events if event.turn == turn.id and event.path == turn.path]
        self.was_delivered = any(isinstance(body, ScriptAnswered) and body.name == RECV for body in bodies)
        """Whether the script was told."""
        self.style = ""
        """What the script has: ``run``, ``input`` for ``on_input``, or ``main`` for neither."""

    def set_style(self, style: str) -> None:
        """Take note of what kind of script it is."""
        self.style = style

    async def recv(self, request: ScriptRequest) -> JSON:
        """Return what was said; when it was heard, the turn is over as soon as there is nothing else to do."""
        if self.was_delivered:
            raise DecisionPending(())
        self.was_delivered = True
        return chunk_of_content(self._content) if self._content else None


class _TurnOutput:
    """What a script says. A message has the same id whenever the script is replayed, so that nothing is said twice."""

    def __init__(self, turn: Turn, journal: ScriptJournal) -> None:
        self._turn, self._journal = turn, journal
        events = turn.log.window.events_at(turn.path)
        done = [event.data for event in events if isinstance(event.data, MessageCompleted)]
        self._logged_lengths = {body.message_id: len(text_of(body.content)) if body.cut else None for body in done}
        """The messages that are in the log; of one that was cut short, how much of it."""
        self._number = 0
        self._id: MessageId | None = None
        self._content: list[Part] = []

    async def emit(self, chunk: JSON) -> None:
        """Say something more; with its end the message is in the log."""
        more = parse_chunk(chunk)
        if more.content and self._id is None:
            self._begin_message()
        for part in more.content:
            await self._append_part(part)
        if more.eof:
            await self.close()

    async def close(self) -> None:
        """Let the message end here, if there is one."""
        body = await self._take_message("end")
        if body is not None:
            await self._journal.commit(body)

    async def close_truncated(self) -> None:
        """The turn is stopped: what was said of the message is kept."""
        body = await self._take_message("cut")
        if body is not None:
            self._turn.log.defer(self._turn.scope, body)

    async def _take_message(self, stop: str) -> MessageCompleted | None:
        id, content = self._id, tuple(self._content)
        self.reset()
        if id is None or id in self._logged_lengths:
            return None
        self._logged_lengths[id] = None
        kept = await offload(self._turn, content)
        return MessageCompleted(message_id=id, content=kept, stop=stop, cut=stop == "cut")

    def reset(self) -> None:
        """What comes next is another message."""
        self._id, self._content = None, []

    def _begin_message(self) -> None:
        start = self._journal.answers[0]
        self._number += 1
        self._id = MessageId(f"msg_{start.at:011x}{start.answer['seed']:x}_{self._number}")
        if self._id not in self._logged_lengths:
            self._turn.log.publish_live(self._turn.scope, MessageStarted(message_id=self._id))

    async def _append_part(self, part: Part) -> None:
        cut = self._logged_lengths.get(self._id) if self._id is not None else None
        if cut is not None and len(text_of(tuple(self._content))) >= cut:
            self.reset()  # it was cut short here; what comes now is another message
            self._begin_message()
        last = self._content[-1] if self._content else None
        if isinstance(part, Text) and isinstance(last, Text):
            block, offset = len(self._content) - 1, len(last.text)
            self._content[-1] = Text(text=last.text + part.text)
        else:
            block, offset = len(self._content), 0
            self._content.append(part)
        if isinstance(part, Text) and part.text and self._id is not None and self._id not in self._logged_lengths:
            await self._journal.commit()  # what was told before is known before anyone sees what came of it
            delta = TextDelta(message_id=self._id, block=block, offset=offset, text=part.text)
            self._turn.log.publish_live(self._turn.scope, delta)


class _AgentJournal:
    """The ledger of an agent: what it said before it heard the next thing is a message of its own."""

    def __init__(self, journal: ScriptJournal, turn_output: _TurnOutput) -> None:
        self._journal, self._turn_output = journal, turn_output

    def record_start(self, detail: JSON) -> ScriptAnswer:
        """Return the start of the script."""
        return self._journal.record_start(detail)

    async def replay(self) -> AsyncGenerator[ScriptAnswer]:
        """Yield what the script was told after its start."""
        async with aclosing(self._journal.replay()) as log:
            async for told in log:
                if told.request.name == RECV:
                    self._turn_output.reset()
                yield told

    async def record_answer(
        self, request: ScriptRequest, value: JSON, error: str = "", result: ToolResult | None = None
    ) -> ScriptAnswer:
        """Remember an answer."""
        if request.name == RECV:
            await self._turn_output.close()
        return await self._journal.record_answer(request, value, error, result)

    async def commit(self) -> None:
        """Write what was put down."""
        await self._journal.commit()
