"""A script at work inside a turn: what it asks for is numbered, and what it is told is in the log.

A script's next request depends only on the answers to the earlier ones. So after a crash it is told the same again, in
the same order, and goes on from there; what it had asked for and was not told is asked again, each by its effect.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any, NamedTuple

import msgspec

from vaka.core.loop.budget import exhausted
from vaka.core.loop.dispatch import settle_one
from vaka.core.loop.execute import Left
from vaka.core.loop.scope import Turn
from vaka.core.loop.stop import Stopped
from vaka.core.loop.texts import LARGE
from vaka.core.session.decision import decided
from vaka.core.session.state import OpenCall, call_id
from vaka.core.session.window import END
from vaka.core.types import progress
from vaka.core.types.content import clean
from vaka.core.types.control import QuestionAsked
from vaka.core.types.errors import NotFound, ReplayError
from vaka.core.types.event import Body, Event
from vaka.core.types.ids import JSON, CallId, DecisionId, Digest, MessageId, digest_of
from vaka.core.types.message import ToolCall, ToolResult
from vaka.core.types.monitor import ScriptAnswered, ScriptCalled
from vaka.core.types.tool import Arguments

START = "start"
"""What the first thing is called that a script is told."""


class Request(NamedTuple):
    """What a script asks for: the ``number``-th thing since it began, by name."""

    number: int
    name: str
    digest: Digest

    @classmethod
    def of(cls, number: int, name: str, arguments: JSON) -> "Request":
        """Return the request; equal arguments have one digest."""
        return cls(number, name, digest_of(arguments))


class Told(NamedTuple):
    """An answer as the script was told it: a value or an error, and its clock from then on, in milliseconds."""

    request: Request
    value: JSON
    error: str
    at: int
    result: ToolResult | None = None
    """The result of the tool call that gave the answer."""


class Waits(Exception):  # not an error: a person is asked
    """A call waits for people, and this is no place to wait."""

    def __init__(self, decisions: Sequence[DecisionId]) -> None:
        super().__init__(", ".join(decisions))
        self.decisions = tuple(decisions)


class Nest:
    """The place a script works at. ``events`` are what the log has of it."""

    def __init__(self, turn: Turn, events: Sequence[Event], code: Digest, call: CallId | None = None) -> None:
        self.turn, self.call = turn, call
        self.answered: list[ScriptAnswered] = []
        """What the script was told, in that order; the first is its start."""
        self._begun: dict[int, ScriptCalled] = {}
        self._results: dict[CallId, ToolResult] = {}
        self._slots = asyncio.Semaphore(turn.recipe.limits.max_tool_concurrency)
        for event in events:
            self._take(event.data)
        if self.answered and (self.answered[0].name != START or self.answered[0].digest != code):
            raise ReplayError("the script, its libraries or its options are not those this run began with")
        self.code = code
        self.replaying = len(self.answered) > 1
        """True while the script is told again what it was told before: what it does then was done before."""

    def _take(self, body: Body) -> None:
        if isinstance(body, ScriptAnswered):
            self.answered.append(body)
        elif isinstance(body, ScriptCalled):
            self._begun[body.number] = body
        elif isinstance(body, progress.ToolCompleted | progress.ToolFailed):
            self._results[body.result.call] = body.result

    @property
    def now(self) -> int:
        """Milliseconds since 1970."""
        return int(self.turn.env.clock.time() * 1000)

    def start(self, detail: JSON) -> Told:
        """Return the start of the script: the one in the log, or one that goes there with the next write."""
        if not self.answered:
            body = ScriptAnswered(number=0, name=START, digest=self.code, answer=detail, at=self.now)
            self.turn.log.later(self.turn.at, body)
            self.answered.append(body)
        first = self.answered[0]
        return Told(Request(0, START, first.digest), first.answer, "", first.at)

    async def replay(self) -> AsyncGenerator[Told]:
        """Yield what the script was told after its start, in order."""
        last = self.answered[-1] if self.answered else None
        for body in self.answered[1:]:
            self.replaying = body is not last
            request = Request(body.number, body.name, body.digest)
            value = body.answer if body.blob is None else await self._large(body, body.blob)
            result = self._results.get(body.call) if body.call else None
            if body.call and result is None:
                raise ReplayError(f"the log does not have the result of {body.call}, which {body.name} was told")
            yield Told(request, value, body.error, body.at, result)

    async def _large(self, body: ScriptAnswered, blob: Digest) -> JSON:
        try:
            return msgspec.json.decode(await self.turn.log.store.blobs.get(blob))
        except NotFound as error:
            raise ReplayError(f"what {body.name!r} was answered as request {body.number} was erased") from error

    def asks(self, request: Request) -> int:
        """Return which model call of its agent a request is; it is the same one after a crash."""
        begun = self._begun.get(request.number)
        if begun is not None:
            self._same(begun, request)
            return begun.model
        limit = exhausted(self.turn)
        if limit:
            raise Stopped("limit", limit)
        agent = self.turn.lane.agent or self.turn.agent
        waiting = [body.model for _, body in self.turn.log.deferred if isinstance(body, ScriptCalled)]
        model = max([self.turn.state.models.get(agent, 0), *waiting]) + 1
        begun = ScriptCalled(number=request.number, name=request.name, digest=request.digest, model=model)
        self._begun[request.number] = begun
        self.turn.log.later(self.turn.at, begun)
        return model

    async def invoke(self, request: Request, tool: str, arguments: dict[str, Any]) -> ToolResult:
        """Call a tool as a model would: the same rules, the same effects, one result. Raises ``Waits``.

        The result of what does more than read is in the log when this returns.
        """
        begun, open, secrets = self._begun.get(request.number), None, self.turn.log.secrets
        if begun is not None and begun.call is not None:
            self._same(begun, request)
            known = self._results.get(begun.call)
            if known is not None:
                return known
            open = self.turn.state.open.get(begun.call)
            open = self._said_again(open, arguments) if open and secrets.forms else open
        async with self._slots:
            open = open or self._call(request, tool, arguments)
            end = await settle_one(self.turn, open, lambda id: self._named(request, id))
        if isinstance(end, Left):
            raise Waits(end.decisions)
        found = self.turn.tools.get(tool)
        if found is None or found.spec.effect != "read":
            await self.commit()
        return secrets.clean(end) if secrets.forms else end

    async def ask(self, request: Request, text: str, options: Sequence[str] = ()) -> JSON:
        """Ask a person and return the answer, ``None`` when there is nobody to ask. Raises ``Waits``."""
        turn = self.turn
        id = DecisionId(f"qst_{turn.id}_{'.'.join((*turn.path, str(request.number)))}")
        if id not in turn.state.decisions:
            if turn.env.ask == "deny" or turn.refused:
                return None
            await self.commit(QuestionAsked(question=id, text=clean(text), options=tuple(options), call=self.call))
        while (decision := turn.state.decisions[id]).waiting and not turn.refused:
            if turn.env.ask != "wait":
                raise Waits([id])
            with turn.timer.paused():
                await decided(turn.log, turn.at, id, turn.patient)
        return decision.answered.answer if decision.answered else None

    async def tell(self, request: Request, value: JSON, error: str = "", result: ToolResult | None = None) -> Told:
        """Put down an answer with the next write, and return it as the log will have it."""
        value, at = self.turn.log.secrets.cleaned(value), self.now
        error = self.turn.log.secrets.cleaned(error)
        blob = None
        if result is None and value is not None:
            written = msgspec.json.encode(value)
            value = msgspec.json.decode(written)
            blob = await self.turn.log.store.blobs.put(written) if len(written) > LARGE else None
        body = ScriptAnswered(
            number=request.number, name=request.name, digest=request.digest, error=error, at=at, blob=blob,
            answer=None if blob or result else value, call=result.call if result else None,
        )  # fmt: skip
        self.turn.log.later(self.turn.at, body)
        return Told(request, value, error, at, result)

    async def commit(self, *bodies: Body) -> None:
        """Write everything that was put down, and ``bodies`` after it."""
        if bodies or self.turn.log.deferred:
            await self.turn.log.append(self.turn.at, *bodies)

    def finish(self, how: JSON) -> None:
        """Put down that the script has ended; the next one at this place begins anew."""
        end = ScriptAnswered(number=0, name=END, digest=self.code, answer=how, at=self.now)
        self.turn.log.later(self.turn.at, end)

    def _call(self, request: Request, tool: str, arguments: dict[str, Any]) -> OpenCall:
        turn, number = self.turn, self.turn.next_call
        call = ToolCall(id=call_id(turn.path, number), name=tool, raw=msgspec.json.encode(arguments).decode())
        self.turn.log.later(turn.at, self._named(request, call.id))
        self.turn.log.later(turn.at, progress.ToolCalled(call=call, message_id=MessageId("")))
        return OpenCall(call=call, path=turn.path, message=MessageId(""), step=turn.at.step, number=number)

    def _named(self, request: Request, call: CallId) -> ScriptCalled:
        """Return what says which call a request has become."""
        begun = ScriptCalled(number=request.number, name=request.name, digest=request.digest, call=call)
        self._begun[request.number] = begun
        return begun

    def _said_again(self, open: OpenCall, arguments: dict[str, Any]) -> OpenCall:
        """Return a call with the secrets the log does not have; the script says them again."""
        if open.phase == "called":
            raw = msgspec.json.encode(arguments).decode()
            return msgspec.structs.replace(open, call=msgspec.structs.replace(open.call, raw=raw))
        tool = self.turn.tools.get(open.call.name)
        parsed = tool.parse(arguments) if tool else None
        kept = msgspec.json.encode(open.call.arguments)
        if isinstance(parsed, Arguments) and msgspec.json.encode(self.turn.log.secrets.cleaned(parsed.value)) == kept:
            return msgspec.structs.replace(open, call=msgspec.structs.replace(open.call, arguments=parsed.value))
        return open

    def _same(self, begun: ScriptCalled, request: Request) -> None:
        if (begun.name, begun.digest) != (request.name, request.digest):
            raise mismatch(request, begun.name)


def mismatch(request: Request, told: str) -> ReplayError:
    """Return the error for a script that asks for something else than it did."""
    return ReplayError(f"request {request.number} is {request.name!r} now, and was {told!r} or had other arguments")
