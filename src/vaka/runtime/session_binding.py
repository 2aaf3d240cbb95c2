"""``SessionBinding``: a session with its agent, and the work behind ``Session`` that other parts of vaka share."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic

from vaka.core.ports.store import SessionInfo, Store
from vaka.core.session.branches import TimedEntry
from vaka.core.session.fanout import Follower
from vaka.core.session.snapshot import OpenedSession
from vaka.core.types.control import InputAdded, InputPolicy, RunSettings
from vaka.core.types.errors import Closed, InvalidInput
from vaka.core.types.event import Event
from vaka.core.types.ids import SessionId
from vaka.core.types.message import Text, as_content
from vaka.core.types.type_parameters import DefaultParameters, Deps, Out
from vaka.runtime.options import OnBusy, UserInput
from vaka.runtime.session_edits import ComposeEntries, append_entries, find_boundary_before, read_last_turn
from vaka.runtime.turn_stream import TurnCollector, TurnReader

if TYPE_CHECKING:
    from vaka.agents.react import Agent
    from vaka.core.types.imported_turns import LogEntry
    from vaka.runtime.drivers import SessionDrivers
    from vaka.runtime.runtime import Runtime


_CONFLICT_POLICIES: dict[str, InputPolicy] = {
    "queue": "queue",
    "enqueue": "queue",
    "interrupt": "interrupt",
    "rollback": "interrupt",
    "steer": "steer",
}
_DECISION_PREFIXES = ("apr_", "qst_")
"""The prefixes of decision ids, which share the keys of a session with its inputs."""


class SessionBinding(DefaultParameters, Generic[Deps, Out]):
    """One session as it was opened: its agent, dependencies and metadata, and the drivers that run its turns."""

    def __init__(
        self,
        runtime: "Runtime",
        drivers: "SessionDrivers",
        agent: "Agent[Deps, Out]",
        id: SessionId,
        metadata: dict[str, Any],
        deps: Deps | None = None,
    ) -> None:
        self.runtime = runtime
        self.drivers = drivers
        self.agent = agent
        self.id = id
        self.metadata = metadata
        """The metadata passed to ``open``; from the log once a turn of an existing session has run."""
        self.deps = deps
        self.run_settings: RunSettings | None = None
        """How the session is run, for its log."""
        self.owner = ""
        """The owner that ``Runtime.open`` was given, for the first event of a new session."""
        self.row: SessionInfo | None = None
        """The index row of the session, if it was read to open it."""
        self.must_begin = False
        """Whether the first input creates the session: ``HeadMoved`` is raised if another caller has created it."""
        self._metadata_read = False

    @property
    def store(self) -> Store:
        return self.runtime.store

    @property
    def metadata_known(self) -> bool:
        """Whether the metadata was passed to ``open`` or read from the log."""
        return bool(self.metadata) or self._metadata_read

    def set_metadata(self, metadata: dict[str, Any]) -> None:
        self.metadata = metadata
        self._metadata_read = True

    def make_input(
        self, prompt: UserInput, on_busy: OnBusy, key: str, model: str, options: Mapping[str, Any] | None
    ) -> InputAdded:
        """Return the event that stores an input. Raises ``InvalidInput`` if it cannot be stored."""
        content = as_content(prompt)
        for part in content:
            if not isinstance(part, Text) or part.text.strip():
                break
        else:
            raise InvalidInput("the input is empty; write what to do")
        if on_busy != "reject" and on_busy not in _CONFLICT_POLICIES:
            raise InvalidInput(f"on_busy {on_busy!r} must be one of reject, {', '.join(_CONFLICT_POLICIES)}")
        if key.startswith(_DECISION_PREFIXES):
            raise InvalidInput(f"key {key[:80]!r} begins with the prefix of a decision id; choose another")
        policy = _CONFLICT_POLICIES.get(on_busy, "queue")
        if model:
            self.runtime.models.find(model)  # an unknown name fails here, in the call that passed it
        return InputAdded(
            key=key or self.runtime.env.ids.new_id("inp"),
            content=content,
            policy=policy,
            model=model,
            options=dict(options or {}),
        )

    async def submit_input(
        self,
        added: InputAdded,
        collector: TurnCollector,
        on_busy: OnBusy,
        *,
        caller_key: bool,
        follower: Follower | None = None,
    ) -> TurnReader:
        """Store an input and return the reader of the turn that answers it."""
        collector.key = added.key
        follower = follower or Follower()
        follower.input = added.key
        after = await self.drivers.submit(self, added, follower, reject=on_busy == "reject", caller_key=caller_key)
        return TurnReader(self.drivers.hub, collector, after, follower)

    async def submit(
        self,
        prompt: UserInput,
        follower: Follower,
        *,
        on_busy: OnBusy = "queue",
        key: str = "",
        model: str = "",
        options: Mapping[str, Any] | None = None,
    ) -> tuple[str, int]:
        """Store an input whose turn ``follower`` reads; return its key and the seq after which its events follow."""
        added = self.make_input(prompt, on_busy, key, model, options)
        follower.input = added.key
        reject = on_busy == "reject"
        return added.key, await self.drivers.submit(self, added, follower, reject=reject, caller_key=bool(key))

    async def open_turn(
        self, prompt: UserInput, on_busy: OnBusy = "queue", collector: TurnCollector | None = None
    ) -> tuple[TurnReader, TurnCollector]:
        """Store an input and return the reader of the turn that answers it, which collects it in ``collector``."""
        collector = collector or TurnCollector(self.id)
        added = self.make_input(prompt, on_busy, "", "", None)
        return await self.submit_input(added, collector, on_busy, caller_key=False), collector

    async def open_unfinished_turn(self) -> tuple[TurnReader | None, TurnCollector]:
        """Continue unfinished work and return the reader of its turn, or without such work the last turn alone."""
        while True:
            follower = Follower()
            after, collector = await self.drivers.wake(self, follower)
            if collector is not None:
                return TurnReader(self.drivers.hub, collector, after, follower), collector
            last = TurnCollector(self.id)
            for event in await read_last_turn(self.runtime.store, self.id):
                last.record(event)
            await last.restore_text(self.runtime.store.blobs)
            info = None if last.ended else await self.runtime.store.sessions.find(self.id)
            if info is None or not info.turn:  # otherwise a turn has begun since
                return None, last
            await asyncio.sleep(0)

    async def wake(self, follower: Follower) -> TurnCollector | None:
        """Continue unfinished work for ``follower``; return the collector of its turn, or ``None`` without such work.

        Raises ``Busy`` while another process runs the session.
        """
        return (await self.drivers.wake(self, follower))[1]

    async def notify_close(self) -> None:
        """Run the last turn of an agent of a kind, which has no input."""
        collector, follower = TurnCollector(self.id), Follower(turn_ends_only=True)
        closing = InputAdded(key=self.runtime.env.ids.new_id("inp"), content=(), source="close")
        collector.key = closing.key
        after = await self.drivers.submit(self, closing, follower, reject=True, caller_key=False)
        async with TurnReader(self.drivers.hub, collector, after, follower) as reader:
            while not collector.ended:
                await reader.next_batch()
        if collector.summarize().code != Closed.code:  # the script had ended before
            collector.to_response()

    async def append_entries(self, compose: ComposeEntries, info: SessionInfo | None = None) -> list[Event]:
        """Append the events that ``compose`` returns for the current state; the session exists afterwards.

        ``info`` is its index row, if it was just read. Raises ``Busy`` while a turn runs.
        """
        redact = self.drivers.secrets.redact_struct

        async def compose_redacted(now: OpenedSession) -> list[TimedEntry]:
            return [(time, scope, redact(body)) for time, scope, body in await compose(now)]

        lock = self.drivers.edit_lock(self.id)
        if lock.locked():  # the edit that holds it changes the row
            info = None
        async with lock:
            await self.drivers.require_idle(self.id)
            caches, now = self.drivers.edit_caches, self.drivers.timestamp()
            return await append_entries(self.runtime.store, self.id, compose_redacted, now, caches, info)

    async def append_imported(self, compose: "Callable[[OpenedSession], Sequence[LogEntry]]") -> None:
        """Append the entries that ``compose`` returns for the current state; large texts become blobs first.

        Raises as ``store_entries`` does.
        """
        from vaka.runtime.log_imports import store_entries

        async def compose_stored(now: OpenedSession) -> list[TimedEntry]:
            return await store_entries(self.runtime, self.id, now.state, compose(now))

        await self.append_entries(compose_stored)

    async def find_boundary_before(self, started: int) -> int:
        """Return the last position before a turn, given its ``turn.started``, and before the inputs directly before."""
        return await find_boundary_before(self.store, self.id, started)
