"""A turn of a client: it can be cancelled, and the client is asked about the decisions that the turn waits for."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from vaka.core.types.control import ApprovalRequested, ApprovalResolved, Asked, decision_of
from vaka.core.types.errors import InvalidInput, VakaError
from vaka.core.types.event import Event
from vaka.core.types.traits import ToolTraits
from vaka.runtime.runtime import Runtime
from vaka.runtime.session import Session
from vaka.server.json_rpc import JsonRpcConnection, JsonRpcError
from vaka.views.acp import read_answer, request_of

CANCEL_NOTE = "the client cancelled the turn"


class PendingPrompt:
    """A request ``session/prompt`` that has no result yet."""

    def __init__(self, key: str) -> None:
        self.key, self.is_cancelled = key, False
        self.session: Session[Any] | None = None
        """The session while its turn is streamed."""
        self.compaction: asyncio.Task[str] | None = None
        """The compaction that the prompt asks for in place of a turn, while it runs."""

    async def stop(self, note: str, by: str) -> None:
        """Take the input back if no turn has read it, else interrupt the turn; cancel a compaction."""
        self.is_cancelled = True
        if self.compaction is not None:
            self.compaction.cancel()
        if self.session is not None:
            with suppress(VakaError):
                await self.session.withdraw(self.key, by=by)
                await self.session.interrupt(note, by=by)


class Client:
    """The client of a connection, as it has introduced itself."""

    def __init__(self, connection: JsonRpcConnection) -> None:
        self.connection = connection
        self.name = "acp"
        self.has_forms = False


class TurnDecisions:
    """The decisions that a turn waits for: the client is asked about each in a task of its own."""

    def __init__(
        self, client: Client, runtime: Runtime, prompt: PendingPrompt, traits: Mapping[str, ToolTraits]
    ) -> None:
        """``traits`` has the traits of tools that are not built in."""
        self._client = client
        self._runtime = runtime
        self._prompt = prompt
        self._traits = traits
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._answered: set[str] = set()

    def take(self, event: Event) -> None:
        """Ask about the decision that an event requests, once."""
        if isinstance(event.data, Asked):
            id = decision_of(event.data)
            if id not in self._tasks:
                self._tasks[id] = asyncio.create_task(self._decide(event, event.data))

    async def close(self) -> None:
        """Wait for no more answers; received answers are still applied."""
        for id, task in self._tasks.items():
            if id not in self._answered:
                task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _decide(self, event: Event, body: Asked) -> None:
        """Ask the client about an approval or a question, and offer its answer to the session."""
        request = request_of(event, elicitation=self._client.has_forms, traits=self._traits)
        by = self._client.name
        try:
            if request is None:
                raise InvalidInput("the client cannot be asked this question: it shows no forms")
            result = await self._client.connection.request(request.method, request.params)
            self._answered.add(decision_of(body))
            answer = read_answer(event, result)
            if answer is None:
                await self._prompt.stop(CANCEL_NOTE, by)
            elif isinstance(answer, ApprovalResolved):
                await self._runtime.resolve(answer.approval, answer.decision, scope=answer.scope, by=by)
            else:
                await self._runtime.answer(answer.question, answer.answer, by=by)
        except (JsonRpcError, VakaError) as error:
            await self._refuse(event, body, str(error))

    async def _refuse(self, event: Event, body: Asked, problem: str) -> None:
        """Decide against a call, or leave a question without an answer, so that the turn goes on."""
        by = self._client.name
        with suppress(VakaError):  # it is decided already, or has expired
            if isinstance(body, ApprovalRequested):
                reason = f"it could not be approved: {problem}"
                await self._runtime.resolve(body.approval, "reject", message=reason, by=by)
            elif body.kind == "result" and body.call is not None:
                await self._runtime.answer_call(event.session, body.call, problem, failed=True, by=by)
            else:
                await self._runtime.answer(body.question, None, by=by)
