"""An agent that is a script: ``run(ctx)``, or ``on_start``, ``on_input`` and ``on_close``.

A script that runs on from one thing it hears to the next is told everything again when its next turn begins; one with
``on_input`` begins anew with each, and keeps what it needs in ``ctx.agent.state``.
"""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing

from vaka.core.loop.ending import Ending
from vaka.core.loop.nest import Nest, Request, Told, Waits, unfinished
from vaka.core.loop.prompt import told
from vaka.core.loop.scope import Turn
from vaka.core.loop.texts import offload, restored
from vaka.core.types.content import Content, Part, Text
from vaka.core.types.errors import Closed, Suspended
from vaka.core.types.ids import JSON, MessageId
from vaka.core.types.message import ToolResult
from vaka.core.types.monitor import Logged, ScriptAnswered
from vaka.core.types.progress import MessageCompleted, MessageStarted, TextDelta
from vaka.luau.compat import surface_functions
from vaka.luau.host.chunks import heard, said
from vaka.luau.host.parts import Parts
from vaka.luau.lent import Lent
from vaka.luau.place import furnish
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
        program = await self._source.program()
        events, how = unfinished(turn.log.window.at(turn.path))
        if how not in (None, "input", "closed") and not events:
            raise Closed("the script of this agent has ended; it hears nothing more")
        nest = Nest(turn, events, program.digest)
        content = await restored(turn.log.store.blobs, told(turn.log.window.at(turn.path), turn.id))
        mouth, ear = _Mouth(turn, nest), _Ear(turn, content)

        def printed(line: str) -> None:
            if not nest.replaying:
                turn.log.later(turn.at, Logged(level="info", message=line))

        try:
            async with AsyncExitStack() as closing:
                parts = furnish(self._lent, nest, turn.path, closing, Parts(recv=ear.recv, emit=mouth.emit))
                script = self._lent.home.open(program, printed)
                given = self._source.given("agent", nest) | {"begin": how != "input"}
                with turn.stop.region():
                    values = await drive(script, surface_functions(parts), _Spoken(nest, mouth), [given, None])
        except Waits as waits:
            if waits.decisions:
                raise Suspended(waits.decisions) from waits
        else:
            nest.finish(values[0] if values else "main")
        await mouth.close()
        return Ending(text=turn.text)


class _Ear:
    """What a script hears in one turn: what was said, once."""

    def __init__(self, turn: Turn, content: Content) -> None:
        self._content = content  # nothing was said: it is the end
        bodies = [event.data for event in turn.log.window.events if event.turn == turn.id and event.path == turn.path]
        self._heard = any(isinstance(body, ScriptAnswered) and body.name == RECV for body in bodies)

    async def recv(self, request: Request) -> JSON:
        """Return what was said; when it was heard, the turn is over as soon as there is nothing else to do."""
        if self._heard:
            raise Waits(())
        self._heard = True
        return heard(self._content) if self._content else None


class _Mouth:
    """What a script says. A message has the same id whenever the script is replayed, so that nothing is said twice."""

    def __init__(self, turn: Turn, nest: Nest) -> None:
        self._turn, self._nest = turn, nest
        events = turn.log.window.at(turn.path)
        self._said = {event.data.message_id for event in events if isinstance(event.data, MessageCompleted)}
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
        id, content = self._id, tuple(self._content)
        self.cut()
        if id is not None and id not in self._said:
            self._said.add(id)
            kept = await offload(self._turn, content)
            await self._nest.commit(MessageCompleted(message_id=id, content=kept, stop="end"))

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
