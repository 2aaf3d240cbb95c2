"""``Session``: the handle of one conversation. Run and stream turns, steer, interrupt, fork, rewind, close."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic

import msgspec

from vaka.core.loop.blobs import restore_messages
from vaka.core.ports.agent import AgentKind
from vaka.core.session.fanout import Follower
from vaka.core.session.index_rows import merge_metadata
from vaka.core.session.snapshot import reopen
from vaka.core.types.context import CheckpointSaved
from vaka.core.types.control import InputWithdrawn, InterruptRequested, SessionClosed, SessionOpened
from vaka.core.types.ending import Response
from vaka.core.types.errors import Busy, TurnError
from vaka.core.types.event import Event
from vaka.core.types.ids import JSON, Cursor
from vaka.core.types.keywords import fold_signatures, suggest_keywords
from vaka.core.types.message import Message, ToolCall
from vaka.core.types.type_parameters import DefaultParameters, Deps, Out
from vaka.runtime.agent_builder import output_schema_of
from vaka.runtime.options import OnBusy, UserInput
from vaka.runtime.session_binding import SessionBinding
from vaka.runtime.session_edits import make_update, read_last_turn
from vaka.runtime.turn_stream import TurnCollector, TurnReader, TurnStream

if TYPE_CHECKING:
    from vaka.runtime.client_calls import ClientResult
    from vaka.runtime.file_rewind import FileRewind
    from vaka.runtime.session_compaction import CompactionResult


@fold_signatures
class Session(DefaultParameters, Generic[Deps, Out]):
    """One conversation with one agent: run, steer, rewind or fork it.

    ``Runtime.open`` returns it. It is a handle: all state is in the log of the
    session, so another program can open the same session at any time::

        async with vaka.Runtime(store="sqlite:///vaka.db") as runtime:
            session = await runtime.open(agent, id="demo")
            response = await session.run("Is it raining in Hilo?")
            async for event in session.stream("And tomorrow?"):
                print(event.type)

    The attribute ``id`` is the id of the session, ``agent`` the agent that
    answers, and ``deps`` what ``open`` was given.
    """

    def __init__(self, binding: SessionBinding[Deps, Out]) -> None:
        """Make the handle of a session that ``Runtime.open`` has bound."""
        self.id = binding.id
        self.agent = binding.agent
        self.deps = binding.deps
        self._binding = binding
        self._runtime = binding.runtime
        self._drivers = binding.drivers

    @suggest_keywords
    async def run(
        self,
        prompt: UserInput,
        *,
        on_busy: OnBusy = "queue",
        key: str = "",
        model: str = "",
        options: Mapping[str, Any] | None = None,
    ) -> Response[Out]:
        """Run one turn and return its response.

        Raises ``TurnError`` when the turn ends without an answer.

        Args:
            prompt: A text, or parts such as ``Image``.
            on_busy: While a turn runs: ``queue`` the input behind it,
                ``interrupt`` it, ``steer`` it, or ``reject``.
            key: Makes the call safe to repeat: the same key again returns the
                response of the first turn.
            model: The model or tier that answers this turn only.
            options: Options of the model for this turn only.
        """
        collector = TurnCollector(self.id)
        try:
            added = self._binding.make_input(prompt, on_busy, key, model, options)
            async with await self._binding.submit_input(
                added, collector, on_busy, caller_key=bool(key), follower=Follower(turn_ends_only=True)
            ) as reader:
                while not collector.ended:
                    await reader.next_batch()
        except asyncio.CancelledError:
            driver = self._drivers.active.get(self.id)
            if driver is not None:
                await driver.withdraw(collector.key)
            raise
        return self._with_output(collector.to_response())

    @suggest_keywords
    def stream(
        self,
        prompt: UserInput,
        *,
        on_busy: OnBusy = "queue",
        key: str = "",
        model: str = "",
        options: Mapping[str, Any] | None = None,
        earlier: bool = False,
    ) -> TurnStream[Out]:
        """Run one turn and stream its events, its end included.

        The other parameters are as for ``run``.

        With ``earlier`` the stream begins with the events of the turns that end
        before it, such as an unfinished one. The turn goes on when its reader
        leaves. Iteration raises ``Suspended`` after the last event when only
        the decision of a person can continue the turn.
        """

        async def open_reader() -> tuple[TurnReader | None, TurnCollector]:
            collector = TurnCollector(self.id, earlier=earlier)
            added = self._binding.make_input(prompt, on_busy, key, model, options)
            return await self._binding.submit_input(added, collector, on_busy, caller_key=bool(key)), collector

        return TurnStream(open_reader, self._with_output)

    @suggest_keywords
    def stream_text(
        self,
        prompt: UserInput,
        *,
        on_busy: OnBusy = "queue",
        key: str = "",
        model: str = "",
        options: Mapping[str, Any] | None = None,
    ) -> AsyncGenerator[str]:
        """Run one turn and yield the text of its answers as it arrives.

        The parameters are as for ``run``.

        Raises ``TurnError`` at the end of a turn that has no answer.
        """
        return self.stream(prompt, on_busy=on_busy, key=key, model=model, options=options).text()

    def resume(self) -> TurnStream[Out]:
        """Finish the unfinished turn, or begin the queued one, as a stream.

        Without either, the stream is empty and its ``response`` is the
        response of the last turn.
        """
        return TurnStream(self._binding.open_unfinished_turn, self._with_output)

    @suggest_keywords
    async def send(
        self,
        prompt: UserInput,
        *,
        on_busy: OnBusy = "queue",
        key: str = "",
        model: str = "",
        options: Mapping[str, Any] | None = None,
    ) -> str:
        """Store an input and return its key; the turn runs in the background."""
        collector = TurnCollector(self.id)
        async with await self._binding.submit_input(
            self._binding.make_input(prompt, on_busy, key, model, options), collector, on_busy, caller_key=bool(key)
        ) as reader:
            while not await reader.next_batch():
                pass
        return collector.key

    async def steer(self, prompt: UserInput) -> None:
        """Add an input to the running turn, which reads it in its next step."""
        await self.send(prompt, on_busy="steer")

    async def interrupt(self, note: str = "", *, by: str = "") -> None:
        """Stop the running turn, in whichever process it runs.

        Without a running turn, do nothing.
        """
        key = self._runtime.env.ids.new_id("int")
        await self._drivers.interrupt(self.id, InterruptRequested(key=key, note=note, by=by))

    async def withdraw(self, key: str, *, by: str = "") -> bool:
        """Take back the input with a key.

        Returns ``False`` if a turn has taken it already.

        Raises ``Busy`` while another process runs the session: its queue cannot
        be changed from here.
        """
        return await self._drivers.withdraw(self.id, InputWithdrawn(input=key, by=by))

    async def client_calls(self) -> tuple[ToolCall, ...]:
        """Return the ``ClientTool`` calls that wait for a result, oldest first."""
        from vaka.runtime.client_calls import read_client_calls

        return await read_client_calls(self._runtime.store, self.id)

    @suggest_keywords
    async def answer_call(self, call: str, result: "ClientResult", *, failed: bool = False, by: str = "") -> Event:
        """Give the result of a call of a ``ClientTool``.

        Returns the event of the first result.

        Args:
            call: The id of the call, as in ``tool.started`` and
                ``client_calls``.
            result: A text, JSON data, parts such as ``Image``, or a
                ``ToolResult``.
            failed: The call has failed; the model reads ``result`` as the
                error.
            by: The name of the client, for the log.

        A suspended turn goes on with ``resume``. The same result again returns
        the first event. Raises ``NotFound`` for an unknown call, and
        ``InvalidInput`` if the call already has another result or no longer
        waits.
        """
        from vaka.runtime.client_calls import answer_call

        return await answer_call(self._drivers, self.id, call, result, failed=failed, by=by)

    def follow(self, after: "Cursor | str | None" = None) -> AsyncGenerator[Event]:
        """Yield the events after a cursor, then new ones as they are written."""
        return self._runtime.follow(self.id, after=after)

    async def messages(self) -> tuple[Message, ...]:
        """Return the conversation as the model sees it."""
        opened = await reopen(self._runtime.store, self.id)
        return await restore_messages(
            self._runtime.store.blobs, self.agent.build_messages(opened.window.events_at(()), ())
        )

    async def state_values(self) -> dict[str, JSON]:
        """Return the values that tools have set with ``context.state``."""
        driver = self._drivers.active.get(self.id)
        if driver is not None and driver.log.head:
            return dict(driver.log.state.values)
        return (await reopen(self._runtime.store, self.id)).state.values

    async def last_turn(self) -> tuple[Event, ...]:
        """Return the events of the last turn; an empty tuple before the first one."""
        return await read_last_turn(self._runtime.store, self.id)

    async def fork(self, at: "Cursor | str | None" = None, *, id: str = "") -> "Session[Deps, Out]":
        """Return a new session with the events of this one up to a cursor.

        Without a cursor it has all of them.
        """
        new_session = await self._runtime.fork(self.id, at=at, id=id)
        return Session(SessionBinding(self._runtime, self._drivers, self.agent, new_session, {}, self.deps))

    async def rewind(
        self, to: "Cursor | str", *, interrupt: bool = False, files: bool = False, force: bool = False
    ) -> "FileRewind | None":
        """Continue from an earlier cursor or checkpoint label.

        The events after it stay readable.

        ``files`` and ``force`` as for ``Runtime.rewind``; with ``files`` the
        effect on them is returned.
        """
        if files:
            return await self._runtime.rewind_files(self.id, to, interrupt=interrupt, force=force)
        await self._runtime.rewind(self.id, to, interrupt=interrupt)
        return None

    async def checkpoint(self, label: str) -> Cursor:
        """Store a label for the current position and return the position."""
        event = await self._drivers.write(self.id, CheckpointSaved(label=label))
        return Cursor(event.epoch, event.seq)

    async def compact(self, instructions: str = "", *, interrupt: bool = False) -> "CompactionResult":
        """Replace the older part of the context by a summary.

        Returns how many tokens the context had before and has after it.

        Args:
            instructions: What the summary is to keep in particular.
            interrupt: Stop a running turn first; otherwise it raises ``Busy``.

        The last turn stays word for word. The log keeps all messages, and a
        fork or rewind to a place before the compaction has them again. When no
        model writes a summary, nothing changes, and the result says why.
        """
        from vaka.runtime.session_compaction import compact_session

        return await compact_session(self, self._drivers, instructions, interrupt=interrupt)

    @suggest_keywords
    async def update(
        self,
        *,
        title: str | None = None,
        owner: str | None = None,
        tags: Sequence[str] | None = None,
        metadata: Mapping[str, Any] | None = None,
        by: str = "",
        create: bool = False,
    ) -> Event:
        """Describe the session anew, or begin it with a description.

        ``None`` changes nothing.

        Args:
            title: The title; after ``""`` the next input gives one.
            owner: The person or program that it belongs to, for
                ``SessionQuery(owner=…)``.
            tags: All tags from now on, for ``SessionQuery(tag=…)``.
            metadata: The keys that change; the value ``None`` removes a key.
                Tools of later turns read the result.
            by: The name of the caller, for the log.
            create: Only for a session that does not exist: of several callers
                one creates it, the others get ``HeadMoved``.

        It works while this process runs a turn of the session, and raises
        ``Busy`` while another one does. A rewind keeps the description, and a
        fork has a copy.
        """
        binding = self._binding
        opened = SessionOpened(
            agent=self.agent.name,
            metadata=dict(binding.metadata),
            workspace=self._drivers.workspace_of(binding),
            run=binding.run_settings,
            owner=binding.owner,
        )
        body = make_update(title, owner, tags, metadata, by)
        event = await self._drivers.update(self.id, body, opened, create=create)
        if metadata and binding.metadata_known:
            binding.set_metadata(merge_metadata(binding.metadata, metadata))
        return event

    async def close(self, reason: str = "") -> None:
        """Close the session; the next input opens it again.

        Raises ``Busy`` while a turn runs.

        A script that is the agent gets one last turn without an input: its
        ``recv`` returns nil, and ``on_close`` is called. Commands in the
        background are ended.
        """
        info = await self._runtime.store.sessions.find(self.id)
        if info is not None and (info.turn or info.inputs):
            raise Busy(f"session {self.id!r} has an unfinished turn or a queued input; finish or interrupt it first")
        if isinstance(self.agent, AgentKind) and info is not None:
            await self._binding.notify_close()
        await self._drivers.write(self.id, SessionClosed(reason=reason))
        await self._drivers.leave_session(self.id, reason or "other")
        await self._runtime.env.end_commands(self.id)

    async def leave(self, reason: str = "other", *, successor: "Session[Any, Any] | None" = None) -> None:
        """Run the ``SessionEnd`` hooks now.

        Otherwise they run when the session or the runtime is closed.

        Args:
            reason: ``clear``, ``logout``, ``prompt_input_exit`` or another
                text; hooks are matched with it.
            successor: The session that replaces this one; its ``SessionStart``
                hooks get the source ``clear``.

        Nothing is written, and the next input begins the session again for
        hooks.
        """
        await self._drivers.leave_session(self.id, reason, successor.id if successor is not None else None)

    @property
    def metadata(self) -> dict[str, Any]:
        """The metadata of the session, which tools read as ``context.metadata``.

        Before the first turn of an existing session it is the metadata that
        ``open`` was given.
        """
        return self._binding.metadata

    def _with_output(self, response: Response[Any]) -> Response[Out]:
        """Return a response with its parsed ``output``, if the agent has an output schema."""
        schema = output_schema_of(self.agent)
        if schema is None or response.stop != "end":
            return response
        try:
            return msgspec.structs.replace(response, output=schema.parse(response.text))
        except TurnError as error:
            error.result = response
            raise


def binding_of(session: Session[Deps, Out]) -> SessionBinding[Deps, Out]:
    """Return what is behind a session, for the parts of vaka that store its inputs and edit its log themselves."""
    # The two classes are the public and the internal face of one thing.
    return session._binding  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  # declared above
