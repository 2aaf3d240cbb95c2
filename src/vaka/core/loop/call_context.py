"""The ToolContext of a running call."""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

import msgspec

from vaka.core.loop.ask_model import ask_model
from vaka.core.loop.blobs import put_blob
from vaka.core.loop.context import Turn
from vaka.core.loop.permission import PermittedCall
from vaka.core.loop.stop import StopSignal, Timer
from vaka.core.loop.wait import DecisionPending
from vaka.core.ports.files import Files
from vaka.core.ports.log import Log
from vaka.core.ports.model import Model, Prompt
from vaka.core.ports.tool import World
from vaka.core.types.control import QuestionAsked, QuestionKind, StateChanged
from vaka.core.types.errors import ConfigError, InvalidInput
from vaka.core.types.ids import JSON, CallKey, DecisionId, Digest, EventScope, MessageId
from vaka.core.types.message import Stored, Text, replace_surrogates
from vaka.core.types.progress import OutputStream, ToolOutputDelta
from vaka.core.types.state import OpenCall, child_name

MAX_STATE_BYTES = 256 * 1024
"""The largest size of one value of the session state, as JSON."""


class SessionValues:
    """Reads and writes the values of a session under one scope of its log; implements ``StateValues``."""

    def __init__(self, log: Log, scope: EventScope) -> None:
        self._log, self._scope = log, scope

    def get(self, key: str) -> JSON:
        """Return a value, deferred changes included."""
        return self._log.get_value(key)

    def set(self, key: str, value: JSON) -> None:
        """Defer a value to the next write, at the latest the write of the call's result."""
        self._log.defer(self._scope, _state_changed_event(key, value))

    async def set_now(self, key: str, value: JSON) -> None:
        """Write a value at once."""
        await self._log.append(self._scope, _state_changed_event(key, value))


def _state_changed_event(key: str, value: JSON) -> StateChanged:
    size = len(msgspec.json.encode(value))
    if size > MAX_STATE_BYTES:
        raise InvalidInput(f"a value the session keeps has at most {MAX_STATE_BYTES} bytes, {key!r} has {size}")
    return StateChanged(key=key, value=value)


def idempotency_key(turn: Turn, open_call: OpenCall) -> CallKey:
    """Return the key of the earlier attempts of a call, or a new one, which no other call has."""
    return open_call.key or CallKey(f"{turn.session}/{open_call.call.id}/{turn.env.ids.new_id('key')}")


class CallContext:
    """The resources of a tool while one call runs; implements ``ToolContext``."""

    def __init__(self, turn: Turn, open_call: OpenCall, permitted: PermittedCall, retry: int = 0) -> None:
        self.owner_turn = turn
        self.open_call = open_call
        self.access = permitted.access
        self.session = turn.session
        self.turn = turn.id
        self.path = turn.path
        self.call = open_call.call.id
        self.attempt = open_call.attempt + 1
        self.values = turn.values
        self.key: str = open_call.key or idempotency_key(turn, open_call)
        self.folder = permitted.folder
        self.deps = turn.deps
        self.metadata = turn.metadata
        self.stop = StopSignal(turn.stop)
        self.suspended: list[DecisionId] = []
        self._loop = asyncio.get_running_loop()
        self._done_future: asyncio.Future[None] | None = None
        self.timer = Timer(permitted.tool.spec.timeout, self.finish, turn.timer)
        self._children: list[asyncio.Task[Any]] = []
        self._question_count = self._model_question_count = 0
        self._child_count = 0
        self._retry, self._printed = retry, {"stdout": 0, "stderr": 0}
        self.closed = False

    @property
    def world(self) -> World:
        """The files, commands and network of this runtime."""
        return self.owner_turn.env.world

    @property
    def files(self) -> Files:
        """The files tools may touch."""
        files = self.world.files
        if files is None:
            raise ConfigError("this runtime lends no files to tools; use Workspace(files=…) or Workspace(cwd=…)")
        return files

    @property
    def state(self) -> SessionValues:
        """The values of the session."""
        return SessionValues(self.owner_turn.log, self.owner_turn.scope)

    async def store_text(self, text: str) -> Stored:
        """Store a text as a blob, with the registered secrets redacted."""
        log = self.owner_turn.log
        data = log.secrets.redact_struct(Text(text=replace_surrogates(text))).text.encode()
        return Stored(blob=await put_blob(log, data), size=len(data), cut=True)

    async def load_text(self, digest: Digest) -> str:
        """Return a text that ``store_text`` stored."""
        return (await self.owner_turn.log.store.blobs.get(digest)).decode("utf-8", "replace")

    @property
    def stopping(self) -> bool:
        """True once the call is being stopped."""
        return self.stop.reason is not None

    def emit(self, text: str, *, stream: OutputStream = "stdout") -> None:
        """Publish a piece of output to the followers of the session."""
        try:
            in_loop = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            in_loop = False
        if in_loop:
            self._publish_output(text, stream)
        else:
            self._loop.call_soon_threadsafe(self._publish_output, text, stream)

    async def ask_model(self, model: Model, prompt: Prompt) -> str:
        """Call a model on behalf of this call and return its complete answer."""
        self._model_question_count += 1
        return await ask_model(
            self.owner_turn.budget, model, prompt, call=self.open_call, ordinal=self._model_question_count
        )

    async def ask(
        self,
        question: str,
        *,
        options: Sequence[str] = (),
        expires_in: float | None = None,
        kind: QuestionKind = "question",
    ) -> JSON:
        """Ask a person or the client and return the answer, ``None`` when it expires or there is no one to ask."""
        self._question_count += 1
        id = DecisionId(f"qst_{self.turn}_{self.call}_{self._question_count}")
        text = replace_surrogates(question)
        asked = QuestionAsked(question=id, text=text, options=tuple(options), call=self.call, kind=kind)
        try:
            return await self.owner_turn.decision_waits.ask(asked, self.timer, expires_in)
        except DecisionPending as pending:
            self.suspended.extend(pending.decisions)
            raise asyncio.CancelledError from None  # the call stays open; it runs again when there is an answer

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

    def _publish_output(self, text: str, stream: OutputStream) -> None:
        if self.closed:
            return  # an abandoned tool: its call has its result already
        text, offset = replace_surrogates(text), self._printed[stream]
        id, block = MessageId(self.call), 2 * self._retry + (stream == "stderr")
        body = ToolOutputDelta(message_id=id, block=block, offset=offset, text=text, stream=stream)
        self._printed[stream] += len(text)
        self.owner_turn.log.publish_live(self.owner_turn.scope, body)
