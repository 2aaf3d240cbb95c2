"""A conversation as a program holds it: say something, watch, interrupt, fork, rewind."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from vaka.agents.react import Agent
from vaka.core.loop.prompt import messages
from vaka.core.loop.texts import restore
from vaka.core.session.cursor import Cursor
from vaka.core.session.fanout import Follower
from vaka.core.session.follow import Following, Hub
from vaka.core.session.snapshot import reopen
from vaka.core.types.content import as_content
from vaka.core.types.control import CheckpointSaved, Conflict, InputAdded, InterruptRequested, SessionClosed
from vaka.core.types.errors import Busy, Closed, InvalidInput, TurnError
from vaka.core.types.event import Event
from vaka.core.types.ids import SessionId
from vaka.core.types.message import Message
from vaka.runtime.branch import last_turn
from vaka.runtime.build import shape_of
from vaka.runtime.options import OnBusy, Response, Says
from vaka.runtime.outcome import Watcher

if TYPE_CHECKING:
    from vaka.runtime.runtime import Runtime

_POLICIES: dict[str, Conflict] = {
    "queue": "queue", "enqueue": "queue", "interrupt": "interrupt", "rollback": "interrupt", "steer": "steer",
}  # fmt: skip


_DECISIONS = ("apr_", "qst_")
"""How the ids of decisions begin: they share the keys of a session with its inputs."""


class Session:
    """One conversation with one agent. The log is the session; this is only a handle."""

    def __init__(self, runtime: "Runtime", agent: Agent, id: SessionId, metadata: dict[str, Any]) -> None:
        self.id, self.agent = id, agent
        self._runtime, self._metadata = runtime, metadata

    async def run(
        self, says: Says, *, on_busy: OnBusy = "queue", key: str = "", model: str = "",
        options: Mapping[str, Any] | None = None,
    ) -> Response:  # fmt: skip
        """Say something and return what it came to; a turn that ends without an answer raises ``TurnError``.

        ``model`` names who shall answer, ``options`` what is asked of it, in this turn only.
        """
        watcher = Watcher(self.id)
        try:
            added = self._input(says, on_busy, key, model, options)
            async with await self._say(
                added, watcher, on_busy, known=bool(key), follower=Follower(patient=True)
            ) as reading:
                while not watcher.ended:
                    await reading.batch()
        except asyncio.CancelledError:
            driver = self._runtime.driver(self.id)
            if driver is not None:
                await driver.withdraw(watcher.key)
            raise
        return self._read(watcher.response())

    async def stream(
        self, says: Says, *, on_busy: OnBusy = "queue", key: str = "", model: str = "",
        options: Mapping[str, Any] | None = None,
    ) -> AsyncGenerator[Event]:  # fmt: skip
        """Say something and yield the events of the turn that answers it, its end included.

        Whoever stops reading does not stop the turn. Raises ``Suspended`` after the last event when only a person can
        go on. ``model`` and ``options`` are for this turn, as in ``run``.
        """
        watcher = Watcher(self.id)
        async with await self._say(
            self._input(says, on_busy, key, model, options), watcher, on_busy, known=bool(key)
        ) as reading:
            while not watcher.ended:
                for event in await reading.batch():
                    yield event

    async def resume(self) -> AsyncGenerator[Event]:
        """Finish the unfinished turn, or begin the one that waits, and yield its events; nothing when there is none."""
        follower = Follower()
        after, watcher = await self._runtime.wake(self, follower)
        if watcher is None:
            return
        async with _Reading(self._runtime.hub, watcher, after, follower) as reading:
            while not watcher.ended:
                for event in await reading.batch():
                    yield event

    async def send(
        self, says: Says, *, on_busy: OnBusy = "queue", key: str = "", model: str = "",
        options: Mapping[str, Any] | None = None,
    ) -> str:  # fmt: skip
        """Say something and return when it is kept, with the key of the input; the turn runs in the background."""
        watcher = Watcher(self.id)
        async with await self._say(
            self._input(says, on_busy, key, model, options), watcher, on_busy, known=bool(key)
        ) as reading:
            while not await reading.batch():
                pass
        return watcher.key

    async def steer(self, says: Says) -> None:
        """Say something to the turn that is running: it joins with its next step."""
        await self.send(says, on_busy="steer")

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
        return await restore(self._runtime.store.blobs, messages(opened.window.at(()), ()))

    async def last_turn(self) -> tuple[Event, ...]:
        """Return the events of the last turn of the conversation, none when there was none."""
        return await last_turn(self._runtime.store, self.id)

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
            await self._tell_end()
        await self._runtime.write(self.id, SessionClosed(reason=reason))
        await self._runtime.end_commands(self.id)

    @property
    def metadata(self) -> dict[str, Any]:
        """What the first event will say of the session."""
        return self._metadata

    def _read(self, response: Response) -> Response:
        """Return a response with its answer as a value, where the agent says what that is to be."""
        shape = shape_of(self.agent)
        if shape is None or response.stop != "end":
            return response
        try:
            return msgspec.structs.replace(response, data=shape.read(response.text))
        except TurnError as error:
            error.result = response
            raise

    async def _tell_end(self) -> None:
        watcher, follower = Watcher(self.id), Follower(patient=True)
        over = InputAdded(key=self._runtime.env.ids.new("inp"), content=(), source="close")
        watcher.key = over.key
        after = await self._runtime.submit(self, over, follower, reject=True, known=False)
        async with _Reading(self._runtime.hub, watcher, after, follower) as reading:
            while not watcher.ended:
                await reading.batch()
        if watcher.summary().code != Closed.code:  # a script that had ended needs not be told
            watcher.response()

    def _input(
        self, says: Says, on_busy: OnBusy, key: str, model: str, options: Mapping[str, Any] | None
    ) -> InputAdded:
        content = as_content(says)
        if not content or content == as_content(""):
            raise InvalidInput("nothing was said: the input is empty")
        if on_busy != "reject" and on_busy not in _POLICIES:
            raise InvalidInput(f"on_busy {on_busy!r} must be one of reject, {', '.join(_POLICIES)}")
        if key.startswith(_DECISIONS):
            raise InvalidInput(f"key {key[:80]!r} begins like the id of a decision; choose another")
        policy = _POLICIES.get(on_busy, "queue")
        if model:
            self._runtime.models.find(model)  # a name that means nothing is told to whoever said it
        return InputAdded(
            key=key or self._runtime.env.ids.new("inp"), content=content, policy=policy, model=model,
            options=dict(options or {}),
        )  # fmt: skip

    async def _say(
        self, added: InputAdded, watcher: Watcher, on_busy: OnBusy, *, known: bool, follower: Follower | None = None
    ) -> "_Reading":
        watcher.key = added.key
        follower = follower or Follower()
        after = await self._runtime.submit(self, added, follower, reject=on_busy == "reject", known=known)
        return _Reading(self._runtime.hub, watcher, after, follower)


class _Reading:
    """The events of one turn, batch by batch, until its end."""

    def __init__(self, hub: Hub, watcher: Watcher, after: int, follower: Follower) -> None:
        self._watcher, self._follower = watcher, follower
        self._following = Following(hub, watcher.session, Cursor(0, after), follower)

    async def __aenter__(self) -> "_Reading":
        await self._following.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._following.__aexit__()

    async def batch(self) -> list[Event]:
        """Return the next events of the turn; raise what kept it from its end."""
        events = await self._following.batch()
        if not events:
            session = self._watcher.session
            raise self._follower.error or Closed(f"session {session!r} stopped before its turn had ended; resume it")
        return self._watcher.of_turn(events)
