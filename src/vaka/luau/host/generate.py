"""``ctx.generate``, ``ctx.invoke`` and child agents."""

import asyncio
import re
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from itertools import count
from typing import Any

import msgspec

from vaka.core.loop.budget import Reservation, estimate_partial_usage
from vaka.core.loop.script_journal import ScriptJournal, ScriptRequest
from vaka.core.ports.model import (
    Model,
    NoticeChunk,
    Prompt,
    ReasoningChunk,
    RetryChunk,
    StopChunk,
    TextChunk,
    UsageChunk,
)
from vaka.core.types.errors import ConfigError, ScriptError, VakaError
from vaka.core.types.ids import JSON, MessageId
from vaka.core.types.message import AssistantMessage, Message, Usage, UserMessage, as_content
from vaka.core.types.monitor import UsageRecorded
from vaka.luau.protocol import (
    HostFunction,
    HostFunctions,
    MultipleResults,
    as_count,
    as_list,
    as_string,
    as_table,
    is_list,
    is_table,
    type_name,
)
from vaka.luau.services import HostServices, unavailable_function


def invoke_functions(services: HostServices) -> HostFunctions:
    """``invoke``: calls a tool by name with a table of arguments."""
    journal, call_tool = services.journal, services.invoke
    if journal is not None:
        call_tool = journal.call_tool
    if call_tool is None:
        return {"invoke": unavailable_function("invoke", "this script has no tools")}

    async def invoke(request: ScriptRequest, tool: JSON, arguments: JSON = None) -> JSON:
        return await call_tool(request, as_string(tool, "invoke: tool"), as_table(arguments, "invoke: args"))

    return {"invoke": HostFunction(invoke, wants_request=True)}


def agent_functions(services: HostServices) -> HostFunctions:
    """``agent.open`` returns a handle; ``agent.send`` an answer and its child; ``agent.next`` the next piece of it."""
    agents = services.agents
    if agents is None:
        return {"agent.open": unavailable_function("create_agent", "this script has no other agents to talk to")}
    running: dict[int, ScriptRequest] = {}

    async def open(request: ScriptRequest) -> JSON:
        return request.number

    async def send(request: ScriptRequest, handle: JSON, name: JSON, config: JSON, after: JSON, message: JSON) -> JSON:
        text, number = as_string(message, "agent.send: the message"), as_count(handle, "agent.send: the handle")
        running[number] = request
        try:
            return MultipleResults(
                await agents.send(request, as_string(name, "create_agent: name"), config, str(after or ""), text)
            )
        finally:
            del running[number]
            agents.wake()

    async def next_piece(handle: JSON, child: JSON, delivered: JSON, tail: JSON) -> JSON:
        """Return what the agent has said since; ``child`` is given when its answer is known. Nil at the end."""
        count, number = (
            as_count(delivered, "agent.next: what was delivered"),
            as_count(handle, "agent.next: the handle"),
        )
        while True:
            request = None if child else running.get(number)
            name = str(child or "") or (agents.child_of(request) if request is not None else "")
            text = await agents.text_of(name) if name else ""
            if len(text) > count:
                if not text[:count].endswith(as_string(tail, "agent.next: tail")):
                    raise ScriptError("the agent began its answer again after a part of it was delivered")
                return text[count:]
            if request is None:
                return None
            await agents.wait()

    return {
        "agent.open": HostFunction(open, wants_request=True, local=True),
        "agent.send": HostFunction(send, wants_request=True),
        "agent.next": HostFunction(next_piece),
    }


ReadPieces = Callable[[], AsyncGenerator[str | None]]
"""Asks the model, and yields its answer in pieces; ``None`` discards the pieces so far."""


class ModelAnswerStream:
    """A model's answer, delivered to a script in pieces.

    A task reads the answer as fast as the model sends it, and saves it when it is complete, before the script receives
    its end. After a crash a complete answer is not asked for again. An incomplete one is: the script passes how many
    characters it has received and the last of them, so that they are skipped, or the stream fails if they differ.
    """

    def __init__(self, read: ReadPieces, journal: ScriptJournal | None, request: ScriptRequest) -> None:
        self._read = read
        self._journal = journal
        self._request = request
        self._reader: asyncio.Task[None] | None = None
        self._buffer: deque[str] = deque()
        self._has_delivered = False
        self._changed = asyncio.Event()
        self._lock = asyncio.Lock()
        self._closed = False

    async def next_piece(self, delivered: int, tail: str) -> str | None:
        """Return the next piece, ``None`` at the end."""
        async with self._lock:
            if self._reader is None and not self._closed:
                self._reader = asyncio.create_task(self._read_answer())
                self._reader.add_done_callback(lambda _: self._changed.set())
                await self._skip_delivered(delivered, tail)
            return await self._next_buffered()

    async def close(self) -> None:
        self._closed = True
        self._buffer.clear()
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.wait([self._reader])
            if not self._reader.cancelled():
                self._reader.exception()  # retrieved, or asyncio would log it

    async def _read_answer(self) -> None:
        """Fill the buffer with the answer of an earlier run, or of the model. Raises ``ScriptError``."""
        saved = await self._journal.saved_model_answer(self._request) if self._journal is not None else None
        if saved is None:
            await self._ask_model()
            return
        if saved.value:
            self._buffer.append(saved.value)
        if saved.error:
            raise ScriptError(saved.error)

    async def _ask_model(self) -> None:
        answer: list[str] = []
        error: ScriptError | None = None
        try:
            async with aclosing(self._read()) as pieces:
                async for piece in pieces:
                    self._add_piece(piece, answer)
        except ScriptError as failure:
            error = failure
        if self._journal is not None:
            await self._journal.save_model_answer(self._request, "".join(answer), str(error) if error else "")
        if error is not None:
            raise error

    def _add_piece(self, piece: str | None, answer: list[str]) -> None:
        if piece is None and self._has_delivered:
            raise ScriptError("the model started its answer again after a part of it was delivered")
        if piece is None:
            self._buffer.clear()
            answer.clear()
        elif piece:
            self._buffer.append(piece)
            answer.append(piece)
            self._changed.set()

    async def _skip_delivered(self, delivered: int, tail: str) -> None:
        """Skip what the script received before a crash."""
        text = ""
        while len(text) < delivered:
            piece = await self._next_buffered()
            if piece is None:
                break
            text += piece
        if len(text) < delivered or not text[:delivered].endswith(tail):
            await self.close()
            raise ScriptError("the answer was interrupted, and the model's second answer differs from it")
        if text[delivered:]:
            self._buffer.appendleft(text[delivered:])

    async def _next_buffered(self) -> str | None:
        while not self._buffer:
            if self._reader is None or self._closed:
                return None
            if self._reader.done():
                self._reader.result()  # raises the error that ended the answer
                return None
            self._changed.clear()
            await self._changed.wait()
        self._has_delivered = True
        return self._buffer.popleft()


_SCHEMA_INSTRUCTION = (
    "Answer with one JSON value and nothing else: no words around it, no code fence. "
    "It must fit this JSON Schema:\n{schema}"
)

_RETRY_INSTRUCTION = "That answer cannot be used: {problem}. Answer again, with one JSON value that fits the schema."

_ROLES = {"user": "user", "assistant": "assistant", "model": "assistant", "system": "system"}

_PROMPT_FIELDS = {"system", "messages", "prompt"}


def parse_prompt(prompt: JSON, options: JSON = None) -> Prompt:
    """Return the prompt of a script's arguments; raise ``ScriptError`` for invalid ones.

    ``prompt`` is a text, a list of messages, or a table with ``system``, ``messages`` and ``prompt``; ``options`` may
    have ``system`` and ``messages`` that come before it, and settings of the model.
    """
    settings = as_table(options, "generate: options")
    texts: list[tuple[str, str]] = []  # roles, and what they said
    for fields in ({field: settings.pop(field, None) for field in ("system", "messages")}, _prompt_fields(prompt)):
        if fields.get("system") is not None:
            texts.append(("system", as_string(fields["system"], "generate: system")))
        texts += [_parse_message(item) for item in as_list(fields.get("messages"), "generate: messages")]
        if fields.get("prompt") is not None:
            texts.append(("user", as_string(fields["prompt"], "generate: prompt")))
    system = "\n\n".join(text for role, text in texts if role == "system" and text)
    messages = tuple(_make_message(role, text) for role, text in texts if role != "system")
    if not messages:
        raise ScriptError("generate: the prompt has no message")
    return Prompt(messages=messages, system=system, options=settings)


def _prompt_fields(prompt: JSON) -> dict[str, Any]:
    if isinstance(prompt, str):
        return {"prompt": prompt}
    if isinstance(prompt, list):
        return {"messages": prompt}
    if not isinstance(prompt, dict):
        raise ScriptError(f"generate: the prompt must be a string or a table, not {type_name(prompt)}")
    fields = as_table(prompt, "generate: prompt")
    unknown = sorted(fields.keys() - _PROMPT_FIELDS)
    if unknown:
        raise ScriptError(f"generate: unknown prompt field {unknown[0]!r}; expected system, messages or prompt")
    return fields


def _parse_message(value: JSON) -> tuple[str, str]:
    fields = as_table(value, "generate: a message")
    role = _ROLES.get(str(fields.get("role")))
    if role is None:
        raise ScriptError(f"generate: unknown role {fields.get('role')!r}; expected user, assistant or system")
    return role, as_string(fields.get("content"), "generate: the content of a message")


def _make_message(role: str, text: str) -> Message:
    if role == "user":
        return UserMessage(content=as_content(text))
    return AssistantMessage(id=MessageId(""), content=as_content(text))


_FENCE = re.compile(r"\A\s*```[a-zA-Z]*\s*\n(.*?)\n?```\s*\Z", re.DOTALL)


class ModelCaller:
    """Calls models within the budgets of the turn, and records their usage."""

    def __init__(self, services: HostServices) -> None:
        self._services, self._journal = services, services.journal
        self._call_numbers = count(1)

    def find_model(self, name: JSON) -> Model:
        """Return the model of that name; raise ``ScriptError`` if there is none."""
        try:
            return self._services.runtime.find_model(as_string(name, "generate: model"))
        except VakaError as error:
            raise ScriptError(str(error)) from error

    def number_prompt(self, request: ScriptRequest, prompt: Prompt) -> Prompt:
        """Return a prompt numbered among the model calls of this agent."""
        if self._journal is None:
            return msgspec.structs.replace(prompt, number=next(self._call_numbers))
        turn = self._journal.turn
        return msgspec.structs.replace(
            prompt,
            agent=turn.agent_progress.agent or turn.agent,
            path=turn.path,
            number=self._journal.model_call_number(request),
            session=turn.session,
        )

    async def stream_answer(self, model: Model, prompt: Prompt) -> AsyncGenerator[str | None]:
        """Yield an answer in pieces, ``None`` to discard those so far; raise ``ScriptError`` if the model fails.

        The budgets of the turn apply; the caller must read the answer to its end without a pause.
        """
        journal = self._journal
        reservation = Reservation(prompt)
        if journal is not None:
            try:
                reservation = await journal.turn.budget.reserve(model, prompt)
            except ConfigError as error:
                raise ScriptError(str(error)) from error
        try:
            async with aclosing(self._stream_pieces(model, reservation)) as pieces:
                async for piece in pieces:
                    if piece is None and journal is not None:
                        journal.turn.budget.check_retry(model, reservation)
                    yield piece
        finally:
            reservation.release()

    async def _stream_pieces(self, model: Model, reservation: Reservation) -> AsyncGenerator[str | None]:
        stop: StopChunk | None = None
        cost, written = UsageChunk(Usage()), 0
        try:
            async with aclosing(model.stream(reservation.prompt)) as chunks:
                async for chunk in chunks:
                    if isinstance(chunk, TextChunk | ReasoningChunk):
                        written += len(chunk.text)
                        if isinstance(chunk, TextChunk):
                            yield chunk.text
                    elif isinstance(chunk, RetryChunk):
                        self._record_usage(model, reservation, cost, written)
                        cost, written = UsageChunk(Usage()), 0
                        yield None
                    elif isinstance(chunk, StopChunk):
                        stop = chunk
                    elif isinstance(chunk, UsageChunk):
                        cost = chunk  # usage is cumulative
                    elif isinstance(chunk, NoticeChunk) and self._journal is not None:
                        turn = self._journal.turn
                        turn.log.defer(turn.scope, chunk.event)
        except VakaError as error:
            raise ScriptError(f"{model.name}: {error}") from error
        finally:
            self._record_usage(model, reservation, cost, None if stop else written)
        if stop is None or stop.reason == "refusal":
            raise ScriptError(f"{model.name}: {'the model refused to answer' if stop else 'the answer was cut off'}")

    def _record_usage(
        self, model: Model, reservation: Reservation, cost: UsageChunk, written_chars: int | None
    ) -> None:
        """Record the usage of one attempt; ``written_chars`` is ``None`` for a complete one."""
        usage, prompt = cost.usage, reservation.prompt
        if written_chars is not None:
            usage = estimate_partial_usage(model, prompt, usage, written_chars)
        if self._services.record_usage is not None and (written_chars is None or usage != Usage()):
            call = self._journal.call if self._journal is not None else None
            name = cost.counted_as or model.name
            self._services.record_usage(UsageRecorded(model=name, usage=usage, agent=prompt.agent, call=call))

    async def read_answer(self, model: Model, prompt: Prompt) -> str:
        pieces: list[str] = []
        async with aclosing(self.stream_answer(model, prompt)) as stream:
            async for piece in stream:
                if piece is None:
                    pieces.clear()
                else:
                    pieces.append(piece)
        return "".join(pieces)


def generate_functions(services: HostServices) -> HostFunctions:
    """``generate``, ``generate_json``, and ``generate.open``, ``.next`` and ``.close`` for an answer in pieces."""
    caller = ModelCaller(services)
    streams: dict[int, ModelAnswerStream] = {}

    async def generate(request: ScriptRequest, model: JSON, prompt: JSON, options: JSON = None) -> JSON:
        chosen, parsed = caller.find_model(model), parse_prompt(prompt, options)
        return await caller.read_answer(chosen, caller.number_prompt(request, parsed))

    async def open(request: ScriptRequest, model: JSON, prompt: JSON, options: JSON = None) -> JSON:
        chosen = caller.find_model(model)
        full_prompt = caller.number_prompt(request, parse_prompt(prompt, options))
        stream = streams[request.number] = ModelAnswerStream(
            lambda: caller.stream_answer(chosen, full_prompt), services.journal, request
        )
        services.exit_stack.push_async_callback(stream.close)
        return request.number

    def find_stream(stream: JSON) -> ModelAnswerStream:
        found = streams.get(stream) if isinstance(stream, int) else None
        if found is None:
            raise ScriptError("there is no such stream")
        return found

    async def next_piece(stream: JSON, delivered: JSON = 0, tail: JSON = "") -> JSON:
        count = delivered if isinstance(delivered, int) else 0
        return await find_stream(stream).next_piece(count, as_string(tail, "generate.next: tail"))

    async def close(stream: JSON) -> None:
        await find_stream(stream).close()

    return {
        "generate": HostFunction(generate, wants_request=True, durable=True),
        "generate_json": _generate_json_function(services.runtime.find_schema_problem, caller),
        # A replayed script opens its streams again, to receive the pieces that are not in the log.
        "generate.open": HostFunction(open, wants_request=True, local=True),
        "generate.next": HostFunction(next_piece),
        "generate.close": HostFunction(close, local=True),
    }


def _generate_json_function(find_schema_problem: Callable[[JSON, JSON], str], caller: ModelCaller) -> HostFunction:
    async def generate_json(
        request: ScriptRequest,
        model: JSON,
        prompt: JSON,
        schema: JSON,
        options: JSON = None,
        rejected: JSON = None,
        problem: JSON = None,
    ) -> JSON:
        wanted = restore_empty_lists(as_table(schema, "generate_json: schema"))
        parsed = parse_prompt(prompt, options)
        system = f"{parsed.system}\n\n{_SCHEMA_INSTRUCTION.format(schema=msgspec.json.encode(wanted).decode())}".strip()
        messages = [*parsed.messages]
        if isinstance(rejected, str) and isinstance(problem, str):
            retry = _RETRY_INSTRUCTION.format(problem=problem)
            messages += [_make_message("assistant", rejected), _make_message("user", retry)]
        parsed = msgspec.structs.replace(parsed, system=system, messages=tuple(messages))
        answer = await caller.read_answer(caller.find_model(model), caller.number_prompt(request, parsed))
        value, fault = _parse_json_answer(answer)
        fault = fault or find_schema_problem(wanted, value)
        return MultipleResults((None, fault, answer)) if fault else MultipleResults((value,))

    return HostFunction(generate_json, wants_request=True, durable=True)


def _parse_json_answer(answer: str) -> tuple[JSON, str]:
    """Return the value of a JSON answer and ``""``, or ``None`` and why it cannot be parsed."""
    fenced = _FENCE.match(answer)
    try:
        return msgspec.json.decode(fenced.group(1) if fenced else answer.strip()), ""
    except msgspec.DecodeError as error:
        return None, f"the answer is not JSON: {error}"


_LIST_KEYWORDS = frozenset({"required", "enum", "examples", "anyOf", "oneOf", "allOf", "prefixItems"})


def restore_empty_lists(schema: JSON) -> JSON:
    """Return a schema with ``[]`` where a keyword needs a list: an empty Luau table arrives as ``{}``."""
    if is_list(schema):
        return [restore_empty_lists(item) for item in schema]
    if not is_table(schema):
        return schema
    empty: JSON = []
    return {
        key: empty if key in _LIST_KEYWORDS and item == {} else restore_empty_lists(item)
        for key, item in schema.items()
    }
