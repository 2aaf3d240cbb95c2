"""An agent that is a script: ``run(ctx)``, or ``on_start``, ``on_input`` and ``on_close``.

A script that runs on from one thing it hears to the next is told everything again when its next turn begins; one with
``on_input`` begins anew with each, and keeps what it needs in ``ctx.agent.state``.
"""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing

from vaka.core.loop.ending import Ending
from vaka.core.loop.nest import Nest, Request, Told, Waits
from vaka.core.loop.nested import unfinished
from vaka.core.loop.prompt import told
from vaka.core.loop.scope import Turn
from vaka.core.loop.stop import Stopped
from vaka.core.loop.texts import offload, restored
from vaka.core.session.window import END
from vaka.core.types.content import Content, Part, Text, text_of
from vaka.core.types.errors import Closed, ReplayError, ScriptError, Suspended
from vaka.core.types.event import Body
from vaka.core.types.ids import JSON, MessageId
from vaka.core.types.message import ToolResult
from vaka.core.types.monitor import Logged, ScriptAnswered
from vaka.core.types.progress import MessageCompleted, MessageStarted, TextDelta
from vaka.luau.compat import surface_functions
from vaka.luau.host.chunks import heard, said
from vaka.luau.host.parts import Parts
from vaka.luau.lent import Lent
from vaka.luau.place import furnish
from vaka.luau.program import Program
from vaka.luau.scheduler import drive
from vaka.luau.tool import Source

RECV = "recv"


class ScriptBody:
    """What a Luau agent does in a turn."""

    def __init__(self, source: Source, lent: Lent) -> None:
        self._source, self._lent = source, lent if source.trusted else lent.to_strangers()

    async def __call__(self, turn: Turn) -> Ending:
        """Let the script hear what was said, and work until it wants to hear more or has ended."""
        await turn.log.append(turn.at)  # what was said is in the log before the script hears it
        mine = list(turn.log.window.at(turn.path))
        if any(event.turn == turn.id and _is_end(event.data) for event in mine):
            return Ending(text=turn.text)  # only the end of the turn was not written
        program = await self._source.program()
        events, how = unfinished(mine)
        if how not in (None, "input", "closed") and not events:
            raise Closed("the script of this agent has ended; it hears nothing more")
        nest = Nest(turn, events, program.digest)
        content = await restored(turn.log.store.blobs, told(mine, turn.path, turn.id))
        mouth, ear = _Mouth(turn, nest), _Ear(turn, content)
        given = self._source.given("agent", nest) | {"begin": how != "input"}
        try:
            how = await self._run(program, nest, mouth, ear, given)
        except (Stopped, ScriptError) as error:
            await mouth.break_off()
            if ear.style == "input":
                nest.finish("input" if ear.heard else "closed")  # it begins anew with the next thing it hears
            elif isinstance(error, ScriptError) and not isinstance(error, ReplayError):
                nest.finish("failed")
            raise
        await mouth.close()
        if how is not None:
            nest.finish(how)
        return Ending(text=turn.text)

    async def _run(self, program: Program, nest: Nest, mouth: "_Mouth", ear: "_Ear", given: JSON) -> JSON:
        """Drive the script until it has ended, and return how; ``None`` when it waits for what is said next."""
        turn = nest.turn

        def printed(line: str) -> None:
            if not nest.replaying:
                turn.log.later(turn.at, Logged(level="info", message=line))

        try:
            async with AsyncExitStack() as closing:
                talk = Parts(recv=ear.recv, emit=mouth.emit, style=ear.be)
                parts = furnish(self._lent, nest, turn.path, closing, talk)
                script = self._lent.home.open(program, printed)
                with turn.stop.region():
                    values = await drive(script, surface_functions(parts), _Spoken(nest, mouth), [given, None])
        except Waits as waits:
            if waits.decisions:
                raise Suspended(waits.decisions) from waits
            return None
        return values[0] if values else "main"


def _is_end(body: Body) -> bool:
    return isinstance(body, ScriptAnswered) and body.name == END


class _Ear:
    """What a script hears in one turn: what was said, once."""

    def __init__(self, turn: Turn, content: Content) -> None:
        self._content = content  # nothing was said: it is the end
        bodies = [event.data for event in turn.log.window.events if event.turn == turn.id and event.path == turn.path]
        self.heard = any(isinstance(body, ScriptAnswered) and body.name == RECV for body in bodies)
        """Whether the script was told."""
        self.style = ""
        """What the script has: ``run``, ``input`` for ``on_input``, or ``main`` for neither."""

    def be(self, style: str) -> None:
        """Take note of what kind of script it is."""
        self.style = style

    async def recv(self, request: Request) -> JSON:
        """Return what was said; when it was heard, the turn is over as soon as there is nothing else to do."""
        if self.heard:
            raise Waits(())
        self.heard = True
        return heard(self._content) if self._content else None


class _Mouth:
    """What a script says. A message has the same id whenever the script is replayed, so that nothing is said twice."""

    def __init__(self, turn: Turn, nest: Nest) -> None:
        self._turn, self._nest = turn, nest
        events = turn.log.window.at(turn.path)
        done = [event.data for event in events if isinstance(event.data, MessageCompleted)]
        self._said = {body.message_id: len(text_of(body.content)) if body.cut else None for body in done}
        """The messages that are in the log; of one that was cut short, how much of it."""
        self._number = 0
        self._id: MessageId | None = None
        self._content: list[Part] = []

    async def emit(self, chunk: JSON) -> None:
        """Say something more; with its end the message is in the log."""
        more = said(chunk)
        if more.content and self._id is None:
            self._begin()
        for part in more.content:
            await self._add(part)
        if more.eof:
            await self.close()

    async def close(self) -> None:
        """Let the message end here, if there is one."""
        body = await self._whole("end")
        if body is not None:
            await self._nest.commit(body)

    async def break_off(self) -> None:
        """The turn is stopped: what was said of the message is kept."""
        body = await self._whole("cut")
        if body is not None:
            self._turn.log.later(self._turn.at, body)

    async def _whole(self, stop: str) -> MessageCompleted | None:
        id, content = self._id, tuple(self._content)
        self.cut()
        if id is None or id in self._said:
            return None
        self._said[id] = None
        kept = await offload(self._turn, content)
        return MessageCompleted(message_id=id, content=kept, stop=stop, cut=stop == "cut")

    def cut(self) -> None:
        """What comes next is another message."""
        self._id, self._content = None, []

    def _begin(self) -> None:
        start = self._nest.answered[0]
        self._number += 1
        self._id = MessageId(f"msg_{start.at:011x}{start.answer['seed']:x}_{self._number}")
        if self._id not in self._said:
            self._turn.log.live(self._turn.at, MessageStarted(message_id=self._id))

    async def _add(self, part: Part) -> None:
        cut = self._said.get(self._id) if self._id is not None else None
        if cut is not None and len(text_of(tuple(self._content))) >= cut:
            self.cut()  # it was cut short here; what comes now is another message
            self._begin()
        last = self._content[-1] if self._content else None
        if isinstance(part, Text) and isinstance(last, Text):
            block, offset = len(self._content) - 1, len(last.text)
            self._content[-1] = Text(text=last.text + part.text)
        else:
            block, offset = len(self._content), 0
            self._content.append(part)
        if isinstance(part, Text) and part.text and self._id is not None and self._id not in self._said:
            await self._nest.commit()  # what was told before is known before anyone sees what came of it
            delta = TextDelta(message_id=self._id, block=block, offset=offset, text=part.text)
            self._turn.log.live(self._turn.at, delta)


class _Spoken:
    """The ledger of an agent: what it said before it heard the next thing is a message of its own."""

    def __init__(self, nest: Nest, mouth: _Mouth) -> None:
        self._nest, self._mouth = nest, mouth

    def start(self, detail: JSON) -> Told:
        """Return the start of the script."""
        return self._nest.start(detail)

    async def replay(self) -> AsyncGenerator[Told]:
        """Yield what the script was told after its start."""
        async with aclosing(self._nest.replay()) as log:
            async for told in log:
                if told.request.name == RECV:
                    self._mouth.cut()
                yield told

    async def tell(self, request: Request, value: JSON, error: str = "", result: ToolResult | None = None) -> Told:
        """Remember an answer."""
        if request.name == RECV:
            await self._mouth.close()
        return await self._nest.tell(request, value, error, result)

    async def commit(self) -> None:
        """Write what was put down."""
        await self._nest.commit()
