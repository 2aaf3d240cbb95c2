"""The events of one turn: found in the session, streamed to a caller, and folded into the ``Response``."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from typing import Any, Generic, Self

from vaka.core.loop.blobs import restore_content
from vaka.core.ports.values import BlobStore
from vaka.core.session.fanout import Follower
from vaka.core.session.follow import FollowerHub, Subscription
from vaka.core.types import progress
from vaka.core.types.control import InputAdded, InputWithdrawn, SessionOpened, SessionUpdated
from vaka.core.types.ending import Response
from vaka.core.types.errors import Cancelled, Closed, Interrupted, InvalidInput, NotFound, Rejected, TurnError
from vaka.core.types.event import Event
from vaka.core.types.ids import AgentPath, Cursor, SessionId
from vaka.core.types.message import Content, text_of
from vaka.core.types.monitor import ScriptAnswered
from vaka.core.types.type_parameters import Out_co

_TURN_ENDS = (progress.TurnCompleted, progress.TurnFailed, progress.TurnCancelled, progress.TurnInterrupted)

_COUNTED_TYPES = frozenset[type](
    {*_TURN_ENDS, progress.StepStarted, progress.ToolCalled, progress.ToolFailed, progress.MessageCompleted}
)

_REFUSAL_REASONS = ("denied", "expired")


class TurnCollector:
    """Finds the turn that answers an input among the events of a session, and folds it into a ``Response``."""

    def __init__(self, session: SessionId, *, key: str = "", turn: str = "", earlier: bool = False) -> None:
        """``earlier``: also take the events of turns that end before this turn begins."""
        self.session = session
        self.key = key
        self.turn = turn
        self.earlier = earlier
        self.end_event: Event | None = None
        self.withdrawn = False
        """Whether the input was taken back, so that no turn answers it."""
        self.steps = 0
        self.tool_names: list[str] = []
        self.denied_calls: list[str] = []
        self._answer: Content = ()
        self._answer_text = ""
        self._full_text = ""

    @property
    def ended(self) -> bool:
        """Whether the last event of the turn was read, or there will be none."""
        return self.end_event is not None or self.withdrawn

    def take_events(self, events: Sequence[Event]) -> list[Event]:
        """Return the events that belong to the turn."""
        if self.earlier and not self.turn:
            return self._take_until_turn(events)
        turn_events = [event for event in events if event.turn == self.turn != "" or self._belongs_to_turn(event)]
        for event in turn_events:
            if type(event.data) in _COUNTED_TYPES:
                self.record(event)
        return turn_events

    def _take_until_turn(self, events: Sequence[Event]) -> list[Event]:
        """Return all events before the turn, then the events of the turn."""
        for index, event in enumerate(events):
            self._belongs_to_turn(event)
            if self.turn:
                return [*events[:index], *self.take_events(events[index:])]
        return list(events)

    def _belongs_to_turn(self, event: Event) -> bool:
        """Return whether an event belongs to the turn; the event that takes the input sets the turn id."""
        if self.turn:
            return isinstance(event.data, InputAdded) and event.data.key == self.key
        match event.data:
            case progress.TurnStarted(inputs=inputs) | progress.StepStarted(inputs=inputs) if self.key in inputs:
                self.turn = event.turn
                return True
            case InputAdded(key=key) | progress.TurnQueued(input=key):
                return key == self.key
            case InputWithdrawn(input=key):
                self.withdrawn = self.withdrawn or key == self.key
                return key == self.key
            case SessionOpened() | SessionUpdated():
                return True
            case _:
                return False

    def record(self, event: Event) -> None:
        """Count an event of the turn."""
        match event.data:
            case progress.StepStarted():
                self.steps += not event.path
            case progress.ToolCalled(call=call):
                self.tool_names.append(call.name)
            case progress.ToolFailed(result=result):
                if result.reason in _REFUSAL_REASONS:
                    self.denied_calls.append(result.call)
            case progress.MessageCompleted(content=content):
                if not event.path and (text := text_of(content)):
                    self._answer, self._answer_text = content, text
            case body:
                if isinstance(body, _TURN_ENDS) and not event.path:
                    self.end_event = event

    async def restore_text(self, blobs: BlobStore) -> None:
        """Read the text of an answer that is too large for an event; the last event of the turn has its beginning."""
        text = getattr(self.end_event.data, "text", "") if self.end_event is not None else ""
        if text and text == self._answer_text:
            content = await restore_content(blobs, self._answer)
            self._full_text = text if content is self._answer else text_of(content)

    def set_full_text(self, text: str) -> None:
        """Use a text of the answer that was read elsewhere, in place of its beginning in the last event."""
        self._full_text = text

    def summarize(self) -> Response[Any]:
        """Return the response of the turn, whether it succeeded or not."""
        if self.withdrawn:
            error = "the input was withdrawn"
            return Response(text="", session_id=self.session, turn_id="", stop="cancelled", error=error)
        if self.end_event is None:
            raise TurnError("the turn has not ended")
        body = self.end_event.data
        assert isinstance(body, _TURN_ENDS)  # noqa: S101  # record() stores no other type
        stop = {"turn.failed": "failed", "turn.cancelled": "cancelled", "turn.interrupted": "interrupted"}
        return Response(
            text=self._full_text or body.text,
            session_id=self.session,
            turn_id=self.end_event.turn,
            stop=getattr(body, "stop", None) or stop[body.type],  # type: ignore[arg-type]  # one of the literals
            limit=getattr(body, "limit", ""),
            usage=body.usage,
            steps=self.steps,
            tool_calls=tuple(self.tool_names),
            denied=tuple(self.denied_calls),
            code=getattr(body, "code", ""),
            error=getattr(body, "message", "") or getattr(body, "note", ""),
        )

    def to_response(self) -> Response[Any]:
        """Return the response. Raises ``TurnError`` for a turn that failed, was cancelled or interrupted."""
        summary = self.summarize()
        if summary.stop in ("end", "limit"):
            return summary
        kinds: dict[str, type[TurnError]] = {"cancelled": Cancelled, "interrupted": Interrupted}
        kind = Rejected if summary.code == Rejected.code else kinds.get(summary.stop, TurnError)
        raise kind(summary.error or summary.stop, code=summary.code, result=summary)


class TurnReader(Subscription):
    """The events of one turn, batch by batch, until its end."""

    def __init__(self, hub: FollowerHub, collector: TurnCollector, after: int, follower: Follower) -> None:
        super().__init__(hub, collector.session, Cursor(0, after), follower)
        self._collector = collector

    async def next_batch(self) -> list[Event]:
        """Return the next events of the turn. Raises the error that ended its driver before the turn ended."""
        events = await super().next_batch()
        if not events:
            session = self._collector.session
            raise self._follower.error or Closed(f"session {session!r} stopped before its turn had ended; resume it")
        turn_events = self._collector.take_events(events)
        if self._collector.ended:
            await self._collector.restore_text(self._hub.store.blobs)
        return turn_events


class _AnswerTexts:
    """The texts that answer a turn: the texts of the root agent, or of the agents of a router."""

    def __init__(self) -> None:
        self._streamed: set[str] = set()
        self._routers: set[AgentPath] = set()
        self._last_path: AgentPath | None = None

    def add(self, event: Event) -> Iterator[str]:
        """Yield what an event adds to the answer."""
        body, path = event.data, event.path
        if path and path[:-1] not in self._routers:
            return
        if isinstance(body, ScriptAnswered) and not body.number and _is_router_start(body):
            self._routers.add(path)
        elif isinstance(body, progress.TextDelta):
            self._streamed.add(body.message_id)
            yield from self._join(path, body.text)
        elif isinstance(body, progress.MessageCompleted) and body.message_id not in self._streamed:
            yield from self._join(path, text_of(body.content))  # written by a middleware, or before the reader began

    def _join(self, path: AgentPath, text: str) -> Iterator[str]:
        if not text:
            return
        if self._last_path not in (None, path):
            yield "\n\n"
        self._last_path = path
        yield text


class TurnStream(Generic[Out_co]):
    """The events of one turn, as an async iterator and as an async context manager.

    ``async for event in session.stream("…")`` reads the events. ``async with session.stream("…") as turn`` also
    closes the subscription on every path, and has ``turn.response`` once the last event was read. A turn goes on when
    its reader leaves; ``session.resume()`` or ``session.follow()`` read the rest.
    """

    def __init__(
        self,
        open_reader: Callable[[], Awaitable[tuple[TurnReader | None, TurnCollector]]],
        finish: Callable[[Response[Any]], Response[Out_co]],
    ) -> None:
        self._open_reader, self._finish = open_reader, finish
        self._collector: TurnCollector | None = None
        self._has_turn = True
        self._events = self._read_events()

    def __aiter__(self) -> AsyncGenerator[Event]:
        return self._events

    def __anext__(self) -> Awaitable[Event]:
        return self._events.__anext__()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Stop reading. The turn goes on."""
        await self._events.aclose()

    @property
    def key(self) -> str:
        """The key of the input, for ``Session.withdraw``; ``""`` before the first event was read."""
        return self._collector.key if self._collector is not None else ""

    @property
    def response(self) -> Response[Out_co]:
        """The response of the turn, once its last event was read.

        Raises ``InvalidInput`` before that, ``NotFound`` if the session has no turn to resume, and ``TurnError`` for a
        turn that failed, was cancelled or interrupted.
        """
        if self._collector is not None and not self._collector.ended and not self._has_turn:
            raise NotFound(f"session {self._collector.session!r} has no turn to resume; give it a prompt")
        if self._collector is None or not self._collector.ended:
            raise InvalidInput("the turn has no response yet: read its events to the end, or await turn.wait()")
        return self._finish(self._collector.to_response())

    async def wait(self) -> Response[Out_co]:
        """Read the remaining events and return the response. Raises ``TurnError`` as ``response`` does."""
        async for _ in self._events:
            pass
        return self.response

    async def text(self) -> AsyncGenerator[str]:
        """Yield the text of the root agent's answers as it arrives; nothing else of the turn.

        The answers of a router are its agents' answers, with an empty line between two agents. Raises ``TurnError`` at
        the end as ``response`` does.
        """
        answers = _AnswerTexts()
        async for event in self._events:
            for text in answers.add(event):
                yield text
        if self._collector is not None and self._collector.ended:
            _ = self.response  # raises the error of a turn that has no answer

    async def _read_events(self) -> AsyncGenerator[Event]:
        reader, collector = await self._open_reader()
        self._collector = collector
        if reader is None:
            self._has_turn = collector.ended
            return
        async with reader:
            while not collector.ended:
                for event in await reader.next_batch():
                    yield event


def _is_router_start(body: ScriptAnswered) -> bool:
    from vaka.agents.routing import ROUTER_DIGEST

    return body.digest == ROUTER_DIGEST
