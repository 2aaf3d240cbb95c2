"""The journal of a script: its numbered requests and their answers in the log, replayed after a crash."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from vaka.core.loop.blobs import BLOB_THRESHOLD, put_blob, restore_content
from vaka.core.loop.calls import CallBatch, Done, Permitted
from vaka.core.loop.context import Turn
from vaka.core.loop.stop import TurnStopped
from vaka.core.ports.values import BlobStore
from vaka.core.types import progress
from vaka.core.types.control import QuestionAsked
from vaka.core.types.errors import NotFound, ReplayError, ScriptLimit
from vaka.core.types.event import Body, Event
from vaka.core.types.ids import JSON, CallId, DecisionId, Digest, MessageId, digest_of
from vaka.core.types.message import Stored, ToolCall, ToolResult, replace_surrogates, text_of
from vaka.core.types.monitor import SCRIPT_END, ScriptAnswered, ScriptCalled
from vaka.core.types.state import OpenCall, call_id, child_name
from vaka.core.types.tool import ParsedArguments
from vaka.core.types.tool_result import result_event

SCRIPT_START = "start"
"""The name of the first answer in a journal, which holds what the script starts with."""
MODEL_ANSWER = "model_answer"
"""The name of the complete answer of a model that the script receives in pieces; it is not replayed by itself."""


class ScriptRequest(NamedTuple):
    """The ``number``-th request of a script since its start: the name of the function and a digest of its arguments."""

    number: int
    name: str
    digest: Digest

    @classmethod
    def from_arguments(cls, number: int, name: str, arguments: JSON) -> "ScriptRequest":
        """Return the request; equal arguments have one digest."""
        return cls(number, name, digest_of(arguments))


class ScriptAnswer(NamedTuple):
    """An answer as the script received it: a value or an error, and its clock from then on, in milliseconds."""

    request: ScriptRequest
    value: JSON
    error: str
    at: int
    result: ToolResult | None = None
    """The result of the tool call that gave the answer."""


class ScriptJournal:
    """The requests and answers of one script. ``events`` are those the log has of it."""

    def __init__(self, turn: Turn, events: Sequence[Event], code_digest: Digest, call: CallId | None = None) -> None:
        self.turn, self.call = turn, call
        self.answers: list[ScriptAnswered] = []
        """The answers the script has received, in that order; the first is its start."""
        self._calls: dict[int, ScriptCalled] = {}
        self._results: dict[CallId, ToolResult] = {}
        self._model_answers: dict[int, ScriptAnswered] = {}
        self._constants: dict[str, JSON] = {}
        self._slots = asyncio.Semaphore(turn.limits.max_tool_concurrency)
        for event in events:
            self._load(event.data)
        if self.answers and (self.answers[0].name != SCRIPT_START or self.answers[0].digest != code_digest):
            raise ReplayError("the script, its libraries or its options are not those this run began with")
        self.code_digest = code_digest
        self.replaying = len(self.answers) > 1
        """True while recorded answers are replayed: the effects of the script have then happened already."""

    def _load(self, body: Body) -> None:
        if isinstance(body, ScriptAnswered) and body.name == MODEL_ANSWER:
            self._model_answers[body.number] = body
        elif isinstance(body, ScriptAnswered):
            self.answers.append(body)
        elif isinstance(body, ScriptCalled):
            self._calls[body.number] = body
        elif isinstance(body, progress.ToolCompleted | progress.ToolFailed):
            self._results[body.result.call] = body.result

    @property
    def now_ms(self) -> int:
        """Milliseconds since 1970."""
        return int(self.turn.env.clock.time() * 1000)

    def constant(self, name: str, value: JSON) -> JSON:
        """Return a value that a replay of the script does not change: from its recorded start, else ``value``."""
        if self.answers:
            return self.answers[0].answer.get(name)
        self._constants[name] = value
        return value

    def record_start(self, detail: dict[str, JSON]) -> ScriptAnswer:
        """Return the start of the script: the one in the log, or a new one, deferred to the next write."""
        if not self.answers:
            detail = {**detail, **self._constants}
            body = ScriptAnswered(number=0, name=SCRIPT_START, digest=self.code_digest, answer=detail, at=self.now_ms)
            self.turn.log.defer(self.turn.scope, body)
            self.answers.append(body)
        first = self.answers[0]
        return ScriptAnswer(ScriptRequest(0, SCRIPT_START, first.digest), first.answer, "", first.at)

    async def replay(self) -> AsyncGenerator[ScriptAnswer]:
        """Yield the recorded answers after the start, in order."""
        last = self.answers[-1] if self.answers else None
        for body in self.answers[1:]:
            self.replaying = body is not last
            request = ScriptRequest(body.number, body.name, body.digest)
            value = body.answer if body.blob is None else await self._load_blob(body, body.blob)
            result = self._results.get(body.call) if body.call else None
            if body.call and result is None:
                raise ReplayError(f"the log does not have the result of {body.call}, which answered {body.name}")
            result = result and await restore_result(self.turn.log.store.blobs, result)
            yield ScriptAnswer(request, value, body.error, body.at, result)

    async def _load_blob(self, body: ScriptAnswered, blob: Digest) -> JSON:
        try:
            return msgspec.json.decode(await self.turn.log.store.blobs.get(blob))
        except NotFound as error:
            raise ReplayError(f"what {body.name!r} was answered as request {body.number} was erased") from error

    def model_call_number(self, request: ScriptRequest) -> int:
        """Return the number of the model call that a request makes; the same number after a crash."""
        recorded = self._calls.get(request.number)
        if recorded is not None:
            self._check_same(recorded, request)
            return recorded.model
        limit = self.turn.budget.exhausted_limit()
        if limit:
            raise TurnStopped("limit", limit)
        agent = self.turn.agent_progress.agent or self.turn.agent
        model = max(self.turn.state.models.get(agent, 0), self.turn.log.pending.script_model_calls) + 1
        recorded = ScriptCalled(number=request.number, name=request.name, digest=request.digest, model=model)
        self._calls[request.number] = recorded
        self.turn.log.defer(self.turn.scope, recorded)
        return model

    async def save_model_answer(self, request: ScriptRequest, text: str, error: str = "") -> None:
        """Write the complete answer to a model call whose pieces the script receives one by one."""
        await self.record_answer(ScriptRequest(request.number, MODEL_ANSWER, request.digest), text, error)
        await self.commit()

    async def saved_model_answer(self, request: ScriptRequest) -> ScriptAnswer | None:
        """Return what ``save_model_answer`` wrote for a request before a crash, ``None`` if it wrote nothing."""
        body = self._model_answers.get(request.number)
        if body is None:
            return None
        value = body.answer if body.blob is None else await self._load_blob(body, body.blob)
        return ScriptAnswer(request, value, body.error, body.at)

    async def call_tool(
        self,
        request: ScriptRequest,
        tool: str,
        arguments: dict[str, Any],
        *,
        repeatable: bool = False,
        after: str | None = None,
    ) -> ToolResult:
        """Call a tool under the rules that apply to a model's call. Raises ``DecisionPending``.

        The result is in the log when this returns, unless the call is ``repeatable``: made again after a crash.
        With ``after`` the call's child agent keeps its conversation, and continues the conversation of that child.
        """
        check_script_count(self.turn)
        recorded = self._calls.get(request.number)
        open = None
        secrets = self.turn.log.secrets
        if recorded is not None and recorded.call is not None:
            self._check_same(recorded, request)
            known = self._results.get(recorded.call)
            if known is not None:
                return await restore_result(self.turn.log.store.blobs, known)
            open = self.turn.state.open.get(recorded.call)
            open = self._restore_secrets(open, arguments) if open and secrets.is_active else open
        async with self._slots:
            open = open or self._open_call(request, tool, arguments)
            if after is not None:
                self.turn.conversations = {**(self.turn.conversations or {}), open.call.id: after}
            end = await _run_script_call(self.turn, open, lambda id: self._call_event(request, id))
        if not repeatable:
            await self.commit()
        return await restore_result(self.turn.log.store.blobs, secrets.redact_struct(end) if secrets.is_active else end)

    def child_of(self, request: ScriptRequest) -> str:
        """Return the name of the child agent that a request runs, ``""`` before its call is made."""
        recorded = self._calls.get(request.number)
        call = recorded.call if recorded is not None else None
        return child_name(int(call.removeprefix("call_").rpartition(".")[2])) if call else ""

    async def ask_person(self, request: ScriptRequest, text: str, options: Sequence[str] = ()) -> JSON:
        """Ask a person and return the answer, ``None`` when no person can be asked. Raises ``DecisionPending``."""
        turn = self.turn
        id = DecisionId(f"qst_{turn.id}_{'.'.join((*turn.path, str(request.number)))}")
        asked = QuestionAsked(question=id, text=replace_surrogates(text), options=tuple(options), call=self.call)
        return await turn.decision_waits.ask(asked, turn.timer)

    async def record_answer(
        self, request: ScriptRequest, value: JSON, error: str = "", result: ToolResult | None = None
    ) -> ScriptAnswer:
        """Defer an answer to the next write, and return it as the log will have it: redacted."""
        value, at = self.turn.log.secrets.redact_data(value), self.now_ms
        error = self.turn.log.secrets.redact_data(error)
        blob = None
        if result is None and value is not None:
            encoded = msgspec.json.encode(value)
            value = msgspec.json.decode(encoded)
            blob = await put_blob(self.turn.log, encoded) if len(encoded) > BLOB_THRESHOLD else None
        body = ScriptAnswered(
            number=request.number,
            name=request.name,
            digest=request.digest,
            error=error,
            at=at,
            blob=blob,
            answer=None if blob or result else value,
            call=result.call if result else None,
        )
        self.turn.log.defer(self.turn.scope, body)
        return ScriptAnswer(request, value, error, at, result)

    async def commit(self, *bodies: Body) -> None:
        """Write the deferred events, and ``bodies`` after them."""
        if bodies or self.turn.log.deferred:
            await self.turn.log.append(self.turn.scope, *bodies)

    def record_end(self, outcome: JSON) -> None:
        """Defer the end of the script; the next script under this path starts a new journal."""
        end = ScriptAnswered(number=0, name=SCRIPT_END, digest=self.code_digest, answer=outcome, at=self.now_ms)
        self.turn.log.defer(self.turn.scope, end)

    def _open_call(self, request: ScriptRequest, tool: str, arguments: dict[str, Any]) -> OpenCall:
        turn, log = self.turn, self.turn.log
        number = log.pending.next_call_number(log.state, turn.path)
        call = ToolCall(id=call_id(turn.path, number), name=tool, raw=msgspec.json.encode(arguments).decode())
        self.turn.log.defer(turn.scope, self._call_event(request, call.id))
        self.turn.log.defer(turn.scope, progress.ToolCalled(call=call, message_id=MessageId("")))
        return OpenCall(call=call, path=turn.path, message=MessageId(""), step=turn.scope.step, number=number)

    def _call_event(self, request: ScriptRequest, call: CallId) -> ScriptCalled:
        """Return the event that links a request to its tool call."""
        recorded = ScriptCalled(number=request.number, name=request.name, digest=request.digest, call=call)
        self._calls[request.number] = recorded
        return recorded

    def _restore_secrets(self, open_call: OpenCall, arguments: dict[str, Any]) -> OpenCall:
        """Return a call with the secrets that are redacted in the log, taken from the script's own arguments."""
        if open_call.phase == "called":
            raw = msgspec.json.encode(arguments).decode()
            return msgspec.structs.replace(open_call, call=msgspec.structs.replace(open_call.call, raw=raw))
        tool = self.turn.tools.get(open_call.call.name)
        parsed = tool.parse(arguments) if tool else None
        redacted = msgspec.json.encode(open_call.call.arguments)
        if (
            isinstance(parsed, ParsedArguments)
            and msgspec.json.encode(self.turn.log.secrets.redact_data(parsed.value)) == redacted
        ):
            return msgspec.structs.replace(
                open_call, call=msgspec.structs.replace(open_call.call, arguments=parsed.value)
            )
        return open_call

    def _check_same(self, recorded: ScriptCalled, request: ScriptRequest) -> None:
        if (recorded.name, recorded.digest) != (request.name, request.digest):
            raise mismatch_error(request, recorded.name)


def check_script_count(turn: Turn) -> None:
    """Raise ``ScriptLimit`` if the scripts of this turn have started too many scripts, the sign of a recursion."""
    if turn.started["scripts"] > turn.limits.max_scripts:
        raise ScriptLimit(
            f"the scripts of this turn may start {turn.limits.max_scripts} scripts (max_scripts): does one call itself?"
        )


def mismatch_error(request: ScriptRequest, recorded: str) -> ReplayError:
    """Return the error for a script whose request differs from the recorded one."""
    return ReplayError(f"request {request.number} is {request.name!r} now, and was {recorded!r} or had other arguments")


def unfinished_script(events: Iterable[Event]) -> tuple[list[Event], JSON]:
    """Return the events of the script that has not ended yet, and the outcome of the previous script, if any.

    ``events`` are the events of one path. Scripts of one path run one after the other.
    """
    current: list[Event] = []
    previous_outcome: JSON = None
    for event in events:
        body = event.data
        if isinstance(body, ScriptAnswered) and body.name == SCRIPT_START:
            current = [event]
        elif isinstance(body, ScriptAnswered) and body.name == SCRIPT_END:
            current, previous_outcome = [], body.answer
        elif current:
            current.append(event)
    return current, previous_outcome


async def _run_script_call(turn: Turn, open_call: OpenCall, rename_event: Callable[[CallId], Body]) -> ToolResult:
    """Run one call of a script to its result, which is deferred to the next write. Raises ``DecisionPending``.

    A ``read`` call is not written before it runs: it has no effect. ``rename_event`` returns the event of another id.
    """
    batch = CallBatch(turn, rename_event=rename_event)
    events: list[Body] = []
    open_call = msgspec.structs.replace(open_call, streak=1)  # the limit of repeated calls is for models only
    state = await batch.admit(open_call, events)
    is_read = isinstance(state, Permitted) and state.permitted.tool.spec.effect == "read"
    if isinstance(state, Permitted):
        state = batch.start(state, events)
    if is_read:
        turn.log.defer(turn.scope, *events)
    elif not isinstance(state, Done):
        await turn.log.append(turn.scope, *events)
    result = await batch.result_of(state)
    turn.log.defer(turn.scope, result_event(result))
    return result


async def restore_result(blobs: BlobStore, result: ToolResult) -> ToolResult:
    """Return ``result`` with the content of its blobs, and its value."""
    content = await restore_content(blobs, result.content)
    if content is result.content:
        return result
    restored = msgspec.structs.replace(result, content=content)
    if not result.value_in_content:
        return restored
    whole = tuple(msgspec.structs.replace(p, cut=False) if isinstance(p, Stored) else p for p in result.content)
    try:
        value = msgspec.json.decode(text_of(await restore_content(blobs, whole)))
    except msgspec.DecodeError:
        return restored  # the blob was erased
    return msgspec.structs.replace(restored, value=value)
