"""The handle of a session (run, stream, steer, interrupt, fork, rewind) and the collector that folds a turn's events into a response."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from vaka.agents.react import Agent
from vaka.core.loop.blobs import restore_messages
from vaka.core.loop.prompt import build_messages
from vaka.core.session.fanout import Follower
from vaka.core.session.follow import FollowerHub, Subscription
from vaka.core.session.snapshot import reopen
from vaka.core.types import progress
from vaka.core.types.control import (
    CheckpointSaved,
    InputAdded,
    InputPolicy,
    InterruptRequested,
    SessionClosed,
    SessionOpened,
)
from vaka.core.types.errors import Busy, Cancelled, Closed, Interrupted, InvalidInput, Rejected, TurnError
from vaka.core.types.event import Event
from vaka.core.types.ids import Cursor, SessionId
from vaka.core.types.message import Message, as_content
from vaka.runtime.agent_builder import output_schema_of
from vaka.runtime.options import OnBusy, Response, UserInput
from vaka.runtime.session_edits import read_last_turn

if TYPE_CHECKING:
    from vaka.runtime.runtime import Runtime


_TURN_ENDS = (progress.TurnCompleted, progress.TurnFailed, progress.TurnCancelled, progress.TurnInterrupted)

_COUNTED_TYPES = frozenset[type]({*_TURN_ENDS, progress.StepStarted, progress.ToolCalled, progress.ToolFailed})

_REFUSAL_REASONS = ("denied", "expired")


class TurnCollector:
    """Finds the turn that answers an input among the events of a session, and sums it up."""

    def __init__(self, session: SessionId, *, key: str = "", turn: str = "") -> None:
        self.session, self.key, self.turn = session, key, turn
        self.end_event: Event | None = None
        self.steps = 0
        self.tool_names: list[str] = []
        self.denied_calls: list[str] = []

    @property
    def ended(self) -> bool:
        """Whether the turn's last event was seen."""
        return self.end_event is not None

    def take_events(self, events: Sequence[Event]) -> list[Event]:
        """Return those of some events that belong to the turn."""
        mine: list[Event] = []
        for event in events:
            if event.turn == self.turn if self.turn else self._belongs_to_turn(event):
                mine.append(event)
                if type(event.data) in _COUNTED_TYPES:
                    self.record(event)
        return mine

    def _belongs_to_turn(self, event: Event) -> bool:
        """Whether an event belongs to the turn, which is known from the event that takes the input on."""
        body = event.data
        if isinstance(body, progress.TurnStarted | progress.StepStarted) and self.key in body.inputs:
            self.turn = event.turn
            return True
        if isinstance(body, InputAdded):
            return body.key == self.key
        if isinstance(body, progress.TurnQueued):
            return body.input == self.key
        return isinstance(body, SessionOpened)

    def record(self, event: Event) -> None:
        """Count an event of the turn."""
        body = event.data
        if type(body) not in _COUNTED_TYPES:
            return
        if isinstance(body, _TURN_ENDS) and not event.path:
            self.end_event = event
        elif isinstance(body, progress.StepStarted) and not event.path:
            self.steps += 1
        elif isinstance(body, progress.ToolCalled):
            self.tool_names.append(body.call.name)
        elif isinstance(body, progress.ToolFailed) and body.result.reason in _REFUSAL_REASONS:
            self.denied_calls.append(body.result.call)

    def summarize(self) -> Response:
        """Return what the turn came to."""
        if self.end_event is None:
            raise TurnError("the turn has not ended")
        body = self.end_event.data
        assert isinstance(body, _TURN_ENDS)  # noqa: S101  # see() keeps nothing else
        stop = {"turn.failed": "failed", "turn.cancelled": "cancelled", "turn.interrupted": "interrupted"}
        return Response(
            text=body.text, session_id=self.session, turn_id=self.end_event.turn,
            stop=getattr(body, "stop", None) or stop[body.type],  # type: ignore[arg-type]  # one of the literals
            limit=getattr(body, "limit", ""), usage=body.usage, steps=self.steps, tool_calls=tuple(self.tool_names),
            denied=tuple(self.denied_calls), code=getattr(body, "code", ""),
            error=getattr(body, "message", "") or getattr(body, "note", ""),
        )  # fmt: skip

    def to_response(self) -> Response:
        """Return what the turn came to; raise ``TurnError`` when that is no answer."""
        summary = self.summarize()
        if summary.stop in ("end", "limit"):
            return summary
        kinds: dict[str, type[TurnError]] = {"cancelled": Cancelled, "interrupted": Interrupted}
        kind = Rejected if summary.code == Rejected.code else kinds.get(summary.stop, TurnError)
        raise kind(summary.error or summary.stop, code=summary.code, result=summary)


_CONFLICT_POLICIES: dict[str, InputPolicy] = {
    "queue": "queue", "enqueue": "queue", "interrupt": "interrupt", "rollback": "interrupt", "steer": "steer",
}  # fmt: skip


_DECISION_PREFIXES = ("apr_", "qst_")
"""How the ids of decisions begin: they share the keys of a session with its inputs."""


class Session:
    """One conversation with one agent. The log is the session; this is only a handle."""

    def __init__(self, runtime: "Runtime", agent: Agent, id: SessionId, metadata: dict[str, Any]) -> None:
        self.id, self.agent = id, agent
        self._runtime, self._metadata = runtime, metadata

    async def run(
        self, prompt: UserInput, *, on_busy: OnBusy = "queue", key: str = "", model: str = "",
        options: Mapping[str, Any] | None = None,
    ) -> Response:  # fmt: skip
        """Say something and return what it came to; a turn that ends without an answer raises ``TurnError``.

        ``model`` names who shall answer, ``options`` what is asked of it, in this turn only.
        """
        watcher = TurnCollector(self.id)
        try:
            added = self._make_input(prompt, on_busy, key, model, options)
            async with await self._submit_input(
                added, watcher, on_busy, caller_key=bool(key), follower=Follower(turn_ends_only=True)
            ) as reading:
                while not watcher.ended:
                    await reading.next_batch()
        except asyncio.CancelledError:
            driver = self._runtime.driver(self.id)
            if driver is not None:
                await driver.withdraw(watcher.key)
            raise
        return self._with_output(watcher.to_response())

    async def stream(
        self, prompt: UserInput, *, on_busy: OnBusy = "queue", key: str = "", model: str = "",
        options: Mapping[str, Any] | None = None,
    ) -> AsyncGenerator[Event]:  # fmt: skip
        """Say something and yield the events of the turn that answers it, its end included.

        Whoever stops reading does not stop the turn. Raises ``Suspended`` after the last event when only a person can
        go on. ``model`` and ``options`` are for this turn, as in ``run``.
        """
        watcher = TurnCollector(self.id)
        async with await self._submit_input(
            self._make_input(prompt, on_busy, key, model, options), watcher, on_busy, caller_key=bool(key)
        ) as reading:
            while not watcher.ended:
                for event in await reading.next_batch():
                    yield event

    async def resume(self) -> AsyncGenerator[Event]:
        """Finish the unfinished turn, or begin the one that waits, and yield its events; nothing when there is none."""
        follower = Follower()
        after, watcher = await self._runtime._wake(self, follower)
        if watcher is None:
            return
        async with _TurnReader(self._runtime.hub, watcher, after, follower) as reading:
            while not watcher.ended:
                for event in await reading.next_batch():
                    yield event

    async def send(
        self, prompt: UserInput, *, on_busy: OnBusy = "queue", key: str = "", model: str = "",
        options: Mapping[str, Any] | None = None,
    ) -> str:  # fmt: skip
        """Say something and return when it is kept, with the key of the input; the turn runs in the background."""
        watcher = TurnCollector(self.id)
        async with await self._submit_input(
            self._make_input(prompt, on_busy, key, model, options), watcher, on_busy, caller_key=bool(key)
        ) as reading:
            while not await reading.next_batch():
                pass
        return watcher.key

    async def steer(self, prompt: UserInput) -> None:
        """Say something to the turn that is running: it joins with its next step."""
        await self.send(prompt, on_busy="steer")

    async def interrupt(self, note: str = "", *, by: str = "") -> None:
        """Stop the running turn, in whichever process it runs; nothing when none is running."""
        key = self._runtime.env.ids.new("int")
        await self._runtime.interrupt(self.id, InterruptRequested(key=key, note=note, by=by))

    def follow(self, after: "Cursor | str | None" = None) -> AsyncGenerator[Event]:
        """Yield everything after a cursor, then everything as it happens."""
        return self._runtime.follow(self.id, after=after)

    async def messages(self) -> tuple[Message, ...]:
        """Return the conversation as the model sees it."""
        opened = await reopen(self._runtime.store, self.id)
        return await restore_messages(self._runtime.store.blobs, build_messages(opened.window.events_at(()), ()))

    async def last_turn(self) -> tuple[Event, ...]:
        """Return the events of the last turn of the conversation, none when there was none."""
        return await read_last_turn(self._runtime.store, self.id)

    async def fork(self, at: "Cursor | str | None" = None, *, id: str = "") -> "Session":
        """Return a new session that begins as this one was at a cursor (default: now)."""
        made = await self._runtime.fork(self.id, at=at, id=id)
        return Session(self._runtime, self.agent, made, {})

    async def rewind(
        self, to: "Cursor | str", *, interrupt: bool = False, files: bool = False, force: bool = False
    ) -> None:
        """Go on from an earlier place: a cursor, or the label of a checkpoint. What came after stays readable.

        ``files`` and ``force`` as for ``Runtime.rewind``.
        """
        await self._runtime.rewind(self.id, to, interrupt=interrupt, files=files, force=force)

    async def checkpoint(self, label: str) -> Cursor:
        """Give this place a name and return it."""
        event = await self._runtime.write(self.id, CheckpointSaved(label=label))
        return Cursor(event.epoch, event.seq)

    async def close(self, reason: str = "") -> None:
        """Say that nothing more is expected here. ``Busy`` while a turn runs. Saying something opens it again.

        A script is told first, in a turn of its own: its ``recv`` gives nil, its ``on_close`` is called. Commands in
        the background are ended.
        """
        info = await self._runtime.store.sessions.find(self.id)
        if info is not None and (info.turn or info.inputs):
            raise Busy(f"session {self.id!r} has something unfinished; finish or interrupt it first")
        if hasattr(self.agent, "bind") and info is not None:
            await self._notify_close()
        await self._runtime.write(self.id, SessionClosed(reason=reason))
        await self._runtime._end_commands(self.id)

    @property
    def metadata(self) -> dict[str, Any]:
        """What the first event will say of the session."""
        return self._metadata

    def _with_output(self, response: Response) -> Response:
        """Return a response with its answer as a value, where the agent says what that is to be."""
        shape = output_schema_of(self.agent)
        if shape is None or response.stop != "end":
            return response
        try:
            return msgspec.structs.replace(response, output=shape.parse(response.text))
        except TurnError as error:
            error.result = response
            raise

    async def _notify_close(self) -> None:
        watcher, follower = TurnCollector(self.id), Follower(turn_ends_only=True)
        over = InputAdded(key=self._runtime.env.ids.new("inp"), content=(), source="close")
        watcher.key = over.key
        after = await self._runtime._submit(self, over, follower, reject=True, caller_key=False)
        async with _TurnReader(self._runtime.hub, watcher, after, follower) as reading:
            while not watcher.ended:
                await reading.next_batch()
        if watcher.summarize().code != Closed.code:  # a script that had ended needs not be told
            watcher.to_response()

    def _make_input(
        self, prompt: UserInput, on_busy: OnBusy, key: str, model: str, options: Mapping[str, Any] | None
    ) -> InputAdded:
        content = as_content(prompt)
        if not content or content == as_content(""):
            raise InvalidInput("nothing was said: the input is empty")
        if on_busy != "reject" and on_busy not in _CONFLICT_POLICIES:
            raise InvalidInput(f"on_busy {on_busy!r} must be one of reject, {', '.join(_CONFLICT_POLICIES)}")
        if key.startswith(_DECISION_PREFIXES):
            raise InvalidInput(f"key {key[:80]!r} begins like the id of a decision; choose another")
        policy = _CONFLICT_POLICIES.get(on_busy, "queue")
        if model:
            self._runtime.models.find(model)  # a name that means nothing is told to whoever said it
        return InputAdded(
            key=key or self._runtime.env.ids.new("inp"), content=content, policy=policy, model=model,
            options=dict(options or {}),
        )  # fmt: skip

    async def _submit_input(
        self,
        added: InputAdded,
        watcher: TurnCollector,
        on_busy: OnBusy,
        *,
        caller_key: bool,
        follower: Follower | None = None,
    ) -> "_TurnReader":
        watcher.key = added.key
        follower = follower or Follower()
        after = await self._runtime._submit(self, added, follower, reject=on_busy == "reject", caller_key=caller_key)
        return _TurnReader(self._runtime.hub, watcher, after, follower)


class _TurnReader:
    """The events of one turn, batch by batch, until its end."""

    def __init__(self, hub: FollowerHub, watcher: TurnCollector, after: int, follower: Follower) -> None:
        self._watcher, self._follower = watcher, follower
        self._following = Subscription(hub, watcher.session, Cursor(0, after), follower)

    async def __aenter__(self) -> "_TurnReader":
        await self._following.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._following.__aexit__()

    async def next_batch(self) -> list[Event]:
        """Return the next events of the turn; raise what kept it from its end."""
        events = await self._following.next_batch()
        if not events:
            session = self._watcher.session
            raise self._follower.error or Closed(f"session {session!r} stopped before its turn had ended; resume it")
        return self._watcher.take_events(events)
