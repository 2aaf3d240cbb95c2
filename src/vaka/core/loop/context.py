"""What a running tool may reach."""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

import msgspec

from vaka.core.loop.consult import consult
from vaka.core.loop.scope import Timer, Turn
from vaka.core.loop.stop import Stop
from vaka.core.ports.files import Files
from vaka.core.ports.model import Model, Prompt
from vaka.core.ports.world import World
from vaka.core.session.decision import decided, expire, overdue
from vaka.core.session.log import stamp
from vaka.core.session.state import OpenCall, child_name
from vaka.core.types.content import Stored, Text, clean
from vaka.core.types.control import QuestionAsked, StateChanged
from vaka.core.types.errors import ConfigError, InvalidInput
from vaka.core.types.ids import JSON, DecisionId, Digest, MessageId
from vaka.core.types.progress import ToolOutputDelta

LARGE = 256 * 1024
"""Bytes of one value that a session keeps."""


def key_of(turn: Turn, open: OpenCall) -> str:
    """Return the key of a call: the same for every attempt."""
    return f"{turn.session}/{open.call.id}"


class Context:
    """The door of one call to the world; implements ``ToolContext``."""

    def __init__(self, turn: Turn, open: OpenCall, timeout: float | None, block: int = 0) -> None:
        self.owner, self.open = turn, open
        self.session, self.turn, self.path = turn.session, turn.id, turn.path
        self.call, self.attempt, self.values = open.call.id, open.attempt + 1, turn.values
        self.key = key_of(turn, open)
        self.folder = ""
        self.stop = Stop(turn.stop)
        self.suspended: list[DecisionId] = []
        self._loop = asyncio.get_running_loop()
        self.gate: asyncio.Future[None] = self._loop.create_future()
        """Done when the tool has ended or its time is over."""
        self.timer = Timer(timeout, self.over, turn.timer)
        self._children: list[asyncio.Task[Any]] = []
        self._asked = self._consulted = 0
        self._started = 0
        self._block, self._sent = block, 0
        self.closed = False

    @property
    def world(self) -> World:
        """What this runtime lends to tools."""
        return self.owner.env.world

    @property
    def files(self) -> Files:
        """The files tools may touch."""
        files = self.world.files
        if files is None:
            raise ConfigError("this runtime lends no files to tools; give it some with Options(files=…) or cwd=…")
        return files

    def kept(self, key: str) -> JSON:
        """Return a value the session keeps, written already or about to be."""
        return self.owner.kept(key)

    def keep(self, key: str, value: JSON) -> None:
        """Keep a value with the next write, which is the one that has the result of this call."""
        self.owner.log.later(self.owner.at, _kept(key, value))

    async def keep_first(self, key: str, value: JSON) -> None:
        """Keep a value with a write of its own, before anything else is done."""
        await self.owner.log.append(self.owner.at, _kept(key, value))

    async def put_away(self, text: str) -> Stored:
        """Keep a text beside the log, without the registered secrets in it."""
        whole: Text = self.owner.log.secrets.clean(Text(text=clean(text)))
        data = whole.text.encode()
        return Stored(blob=await self.owner.log.store.blobs.put(data), size=len(data), cut=True)

    async def put_back(self, digest: Digest) -> str:
        """Return a text that was put away."""
        return (await self.owner.log.store.blobs.get(digest)).decode("utf-8", "replace")

    @property
    def stopping(self) -> bool:
        """True once the call is being stopped."""
        return self.stop.reason is not None

    def emit(self, text: str) -> None:
        """Show a piece of output to whoever is watching."""
        try:
            here = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            here = False
        if here:
            self._show(text)
        else:
            self._loop.call_soon_threadsafe(self._show, text)

    async def consult(self, model: Model, prompt: Prompt) -> str:
        """Put a question of this call to a model and return its whole answer."""
        self._consulted += 1
        return await consult(self.owner, model, prompt, call=self.open, ordinal=self._consulted)

    async def ask(self, question: str, *, options: Sequence[str] = (), expires_in: float | None = None) -> JSON:
        """Ask a person and return the answer, ``None`` when nobody answers in time or may be asked any more."""
        turn = self.owner
        self._asked += 1
        id = DecisionId(f"qst_{turn.id}_{self.call}_{self._asked}")
        if id not in turn.state.decisions:
            if turn.env.ask == "deny" or turn.refused:
                return None
            expires = stamp(turn.env.clock.time() + expires_in) if expires_in is not None else ""
            asked = QuestionAsked(
                question=id, text=clean(question), options=tuple(options), call=self.call, expires=expires
            )
            await turn.log.append(turn.at, asked)
        while (decision := turn.state.decisions[id]).waiting and not turn.refused:
            if turn.env.ask == "wait":
                with self.timer.paused():
                    await decided(turn.log, turn.at, id, turn.patient)
            elif turn.env.ask == "suspend" and not overdue(turn.log, decision):
                self.suspended.append(id)
                raise asyncio.CancelledError  # the call stays open; it runs again when there is an answer
            else:
                await expire(turn.log, turn.at, decision)
        return decision.answered.answer if decision.answered else None

    def child(self) -> str:
        """Return the name of the next child this call starts; the same names after a restart."""
        self._started += 1
        return child_name(self.open.number, self._started)

    async def shelter(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run a child's work so that it is told to stop, and never cut through a write."""
        task = asyncio.create_task(work)
        self._children.append(task)
        return await asyncio.shield(task)

    async def close(self) -> None:
        """Stop the children that are left, and wait until they have written their end."""
        self.timer.cancel()
        self.stop.trigger("cancelled", "the tool that started it has ended")
        left = [task for task in self._children if not task.done()]
        if left:
            await asyncio.wait(left)
        for task in self._children:
            if not task.cancelled():
                task.exception()  # seen: the tool that waited for it was told
        self.stop.close()
        self.closed = True

    def over(self, _: object = None) -> None:
        """There is nothing more to wait for."""
        if not self.gate.done():
            self.gate.set_result(None)

    def _show(self, text: str) -> None:
        if self.closed:
            return  # a tool that was left behind: its call has its result
        text = clean(text)
        body = ToolOutputDelta(message_id=MessageId(self.call), block=self._block, offset=self._sent, text=text)
        self._sent += len(text)
        self.owner.log.live(self.owner.at, body)


def _kept(key: str, value: JSON) -> StateChanged:
    size = len(msgspec.json.encode(value))
    if size > LARGE:
        raise InvalidInput(f"a value the session keeps has at most {LARGE} bytes, {key!r} has {size}")
    return StateChanged(key=key, value=value)
