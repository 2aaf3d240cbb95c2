"""The ToolContext of a running call."""

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

import msgspec

from vaka.core.loop.ask_model import ask_model
from vaka.core.loop.context import Turn
from vaka.core.loop.stop import StopSignal
from vaka.core.loop.timer import Timer
from vaka.core.ports.files import Files
from vaka.core.ports.model import Model, Prompt
from vaka.core.ports.tool import World
from vaka.core.session.await_decision import expire_decision, is_overdue, wait_for_decision
from vaka.core.session.log import format_timestamp
from vaka.core.session.state import OpenCall, child_name
from vaka.core.types.control import QuestionAsked, StateChanged
from vaka.core.types.errors import ConfigError, InvalidInput
from vaka.core.types.ids import JSON, DecisionId, Digest, MessageId
from vaka.core.types.message import Stored, Text, replace_surrogates
from vaka.core.types.progress import ToolOutputDelta

MAX_STATE_BYTES = 256 * 1024
"""The largest size of one value of the session state, as JSON."""


def idempotency_key(turn: Turn, open_call: OpenCall) -> str:
    """Return the idempotency key of a call: the same for every attempt."""
    return f"{turn.session}/{open_call.call.id}"


class CallContext:
    """What a tool may use while one call runs; implements ``ToolContext``."""

    def __init__(self, turn: Turn, open_call: OpenCall, timeout: float | None, block: int = 0) -> None:
        self.owner_turn, self.open_call = turn, open_call
        self.session, self.turn, self.path = turn.session, turn.id, turn.path
        self.call, self.attempt, self.values = open_call.call.id, open_call.attempt + 1, turn.values
        self.key = idempotency_key(turn, open_call)
        self.folder = ""
        self.stop = StopSignal(turn.stop)
        self.suspended: list[DecisionId] = []
        self._loop = asyncio.get_running_loop()
        self._done_future: asyncio.Future[None] | None = None
        self.timer = Timer(timeout, self.finish, turn.timer)
        self._children: list[asyncio.Task[Any]] = []
        self._question_count = self._model_question_count = 0
        self._child_count = 0
        self._block, self._output_length = block, 0
        self.closed = False

    @property
    def deps(self) -> Any:
        """The dependencies of the session in this process."""
        return self.owner_turn.deps

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The metadata of the session."""
        return self.owner_turn.metadata

    @property
    def world(self) -> World:
        """The files, commands and network of this runtime."""
        return self.owner_turn.env.world

    @property
    def files(self) -> Files:
        """The files tools may touch."""
        files = self.world.files
        if files is None:
            raise ConfigError("this runtime lends no files to tools; give it some with Options(files=…) or cwd=…")
        return files

    def get_state(self, key: str) -> JSON:
        """Return a value of the session state, deferred changes included."""
        return self.owner_turn.get_state(key)

    def set_state(self, key: str, value: JSON) -> None:
        """Defer a value of the session state to the next write, at the latest that of this call's result."""
        self.owner_turn.log.defer(self.owner_turn.scope, _state_changed_event(key, value))

    async def set_state_now(self, key: str, value: JSON) -> None:
        """Write a value of the session state at once."""
        await self.owner_turn.log.append(self.owner_turn.scope, _state_changed_event(key, value))

    async def store_text(self, text: str) -> Stored:
        """Store a text as a blob, with the registered secrets redacted."""
        redacted: Text = self.owner_turn.log.secrets.redact_struct(Text(text=replace_surrogates(text)))
        data = redacted.text.encode()
        return Stored(blob=await self.owner_turn.log.store.blobs.put(data), size=len(data), cut=True)

    async def load_text(self, digest: Digest) -> str:
        """Return a text that ``store_text`` stored."""
        return (await self.owner_turn.log.store.blobs.get(digest)).decode("utf-8", "replace")

    @property
    def stopping(self) -> bool:
        """True once the call is being stopped."""
        return self.stop.reason is not None

    def emit(self, text: str) -> None:
        """Publish a piece of output to the followers of the session."""
        try:
            in_loop = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            in_loop = False
        if in_loop:
            self._publish_output(text)
        else:
            self._loop.call_soon_threadsafe(self._publish_output, text)

    async def ask_model(self, model: Model, prompt: Prompt) -> str:
        """Call a model on behalf of this call and return its complete answer."""
        self._model_question_count += 1
        return await ask_model(self.owner_turn, model, prompt, call=self.open_call, ordinal=self._model_question_count)

    async def ask(self, question: str, *, options: Sequence[str] = (), expires_in: float | None = None) -> JSON:
        """Ask a person and return the answer, ``None`` when it expires or no person may be asked."""
        turn = self.owner_turn
        self._question_count += 1
        id = DecisionId(f"qst_{turn.id}_{self.call}_{self._question_count}")
        if id not in turn.state.decisions:
            if turn.env.ask == "deny" or turn.asking_disabled:
                return None
            expires = format_timestamp(turn.env.clock.time() + expires_in) if expires_in is not None else ""
            asked = QuestionAsked(
                question=id, text=replace_surrogates(question), options=tuple(options), call=self.call, expires=expires
            )
            await turn.log.append(turn.scope, asked)
        while (decision := turn.state.decisions[id]).waiting and not turn.asking_disabled:
            if turn.env.ask == "wait":
                with self.timer.pause():
                    await wait_for_decision(turn.log, turn.scope, id, turn.can_wait)
            elif turn.env.ask == "suspend" and not is_overdue(turn.log, decision):
                self.suspended.append(id)
                raise asyncio.CancelledError  # the call stays open; it runs again when there is an answer
            else:
                await expire_decision(turn.log, turn.scope, decision)
        return decision.answered.answer if decision.answered else None

    def next_child_name(self) -> str:
        """Return the name of the next child this call starts; the same names after a restart."""
        self._child_count += 1
        return child_name(self.open_call.number, self._child_count)

    async def run_child_task(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run a child's work shielded from the cancellation of the tool: it ends by ``stop``, between writes."""
        task = asyncio.create_task(work)
        self._children.append(task)
        return await asyncio.shield(task)

    async def close(self) -> None:
        """Stop the children that still run, and wait until they have written their end."""
        self.timer.close()
        self.stop.trigger("cancelled", "the tool that started it has ended")
        running = [task for task in self._children if not task.done()]
        if running:
            await asyncio.wait(running)
        for task in self._children:
            if not task.cancelled():
                task.exception()  # retrieved, so that asyncio does not log it: the tool that awaited it has raised it
        self.stop.close()
        self.closed = True

    @property
    def done_future(self) -> "asyncio.Future[None]":
        """Completes when the tool has ended or its timeout has expired; created on first use."""
        if self._done_future is None:
            self._done_future = self._loop.create_future()
        return self._done_future

    def finish(self, _: object = None) -> None:
        """Complete ``done_future``."""
        if self._done_future is not None and not self._done_future.done():
            self._done_future.set_result(None)

    def _publish_output(self, text: str) -> None:
        if self.closed:
            return  # an abandoned tool: its call has its result already
        text = replace_surrogates(text)
        body = ToolOutputDelta(
            message_id=MessageId(self.call), block=self._block, offset=self._output_length, text=text
        )
        self._output_length += len(text)
        self.owner_turn.log.publish_live(self.owner_turn.scope, body)


def _state_changed_event(key: str, value: JSON) -> StateChanged:
    size = len(msgspec.json.encode(value))
    if size > MAX_STATE_BYTES:
        raise InvalidInput(f"a value the session keeps has at most {MAX_STATE_BYTES} bytes, {key!r} has {size}")
    return StateChanged(key=key, value=value)
