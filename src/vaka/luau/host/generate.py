"""``ctx.generate``, ``ctx.invoke`` and child agents."""

import asyncio
import re
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from itertools import count

import msgspec

from vaka.core.loop.budget.reservations import Reservation
from vaka.core.loop.budget.spending import check_retry_budget, estimate_partial_usage, reserve
from vaka.core.loop.children.script_journal import ScriptJournal, ScriptRequest
from vaka.core.ports.model import (
    Chunk,
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
from vaka.core.types.ids import JSON
from vaka.core.types.message import Usage
from vaka.core.types.monitor import UsageRecorded
from vaka.luau.host.host_services import HostServices, unavailable_function
from vaka.luau.host.prompt_args import PromptArgs, as_list, as_string, as_table, is_list, is_table, parse_prompt_args
from vaka.luau.protocol import HostFunction, HostFunctions, MultipleResults


def invoke_functions(services: HostServices) -> HostFunctions:
    """``invoke``: the name of a tool and its arguments as a table."""
    nest, direct = services.nest, services.invoke
    if nest is None and direct is None:
        return {"invoke": unavailable_function("invoke", "this script has no tools")}

    async def invoke(request: ScriptRequest, tool: JSON, arguments: JSON = None) -> JSON:
        name = as_string(tool, "invoke: tool")
        given = as_table(arguments, "invoke: args")
        if nest is not None:
            return await nest.call_tool(request, name, given)
        assert direct is not None  # noqa: S101  # one of them is there
        return await direct(request, name, given)

    return {"invoke": HostFunction(invoke, wants_request=True)}


def agent_functions(services: HostServices) -> HostFunctions:
    """``agent.send``: name, configuration, the conversation so far and what is said; returns the answer."""
    chat = services.agents
    if chat is None:
        return {"agent.send": unavailable_function("create_agent", "this script has no other agents to talk to")}

    async def send(request: ScriptRequest, name: JSON, config: JSON, history: JSON, said: JSON) -> JSON:
        so_far, words = as_list(history, "agent.send: the conversation"), as_string(said, "agent.send: what is sent")
        return await chat(request, as_string(name, "create_agent: name"), config, so_far, words)

    return {"agent.send": HostFunction(send, wants_request=True)}


ReadPieces = Callable[[], AsyncGenerator[str | None]]
"""Asks the model, and yields its answer in pieces; ``None`` when what came so far does not count."""


class ModelAnswerStream:
    """An answer as far as it has come.

    The script says how much it was told and how that ended, so that a host that had to ask anew goes on from there, or
    says that it cannot. ``whole``: nobody will close this, so nothing may be left open between two pieces.
    """

    def __init__(self, read: ReadPieces, *, read_ahead: bool = False) -> None:
        self._read, self._read_ahead = read, read_ahead
        self._pieces: AsyncGenerator[str | None] | None = None
        self._buffer: deque[str] = deque()
        self._has_delivered = False
        self._ended = False
        self._problem: ScriptError | None = None
        self._lock = asyncio.Lock()

    async def next_piece(self, delivered: int, tail: str) -> str | None:
        """Return the next piece, ``None`` when there is no more."""
        async with self._lock:
            if self._pieces is None and not self._ended:
                self._pieces = self._read()
                await self._skip_delivered(delivered, tail)
            return await self._next_buffered(self._pieces)

    async def close(self) -> None:
        """Ask for no more."""
        self._ended = True
        self._buffer.clear()
        if self._pieces is not None:
            await self._pieces.aclose()

    async def _skip_delivered(self, delivered: int, tail: str) -> None:
        """Go over what the script was told by an earlier host."""
        text = ""
        while len(text) < delivered:
            piece = await self._next_buffered(self._pieces)
            if piece is None:
                break
            text += piece
        if len(text) < delivered or not text[:delivered].endswith(tail):
            await self.close()
            raise ScriptError("the answer was interrupted, and asked again the model says something else")
        if text[delivered:]:
            self._buffer.appendleft(text[delivered:])

    async def _next_buffered(self, pieces: AsyncGenerator[str | None] | None) -> str | None:
        while not self._buffer:
            if self._problem is not None:
                raise self._problem
            if self._ended or pieces is None:
                return None
            await self._pull(pieces)
        self._has_delivered = True
        return self._buffer.popleft()

    async def _pull(self, pieces: AsyncGenerator[str | None]) -> None:
        try:
            if self._read_ahead:
                await self._pull_all(pieces)
            else:
                self._buffer_piece(await anext(pieces))
        except StopAsyncIteration:
            self._ended = True
        except ScriptError as error:
            self._problem = error  # told after what came before it

    async def _pull_all(self, pieces: AsyncGenerator[str | None]) -> None:
        self._ended = True
        async with aclosing(pieces):
            async for piece in pieces:
                self._buffer_piece(piece)

    def _buffer_piece(self, piece: str | None) -> None:
        if piece:
            self._buffer.append(piece)
        elif piece is None and self._has_delivered:
            raise ScriptError("the model had to begin again after some of its answer was handed over")
        elif piece is None:
            self._buffer.clear()


_FENCE = re.compile(r"\A\s*```[a-zA-Z]*\s*\n(.*?)\n?```\s*\Z", re.DOTALL)


class ModelCaller:
    """Puts questions to models, counts them, and says what they cost."""

    def __init__(self, services: HostServices) -> None:
        self._services = services
        self._call_numbers = count(1)

    def find_model(self, name: JSON) -> Model:
        """Return the model of that name, or raise what the script may catch."""
        find = self._services.models
        if find is None:
            raise ScriptError("generate is not available here: this script has no models")
        try:
            return find(as_string(name, "generate: model"))
        except VakaError as error:
            raise ScriptError(str(error)) from error

    def make_prompt(self, request: ScriptRequest, prompt_args: PromptArgs) -> Prompt:
        """Return a question as a model takes it, with its number among those of this agent."""
        nest = self._services.nest
        made = Prompt(messages=prompt_args.messages, system=prompt_args.system, options=prompt_args.options)
        if nest is None:
            return msgspec.structs.replace(made, number=next(self._call_numbers))
        turn = nest.turn
        return msgspec.structs.replace(
            made,
            agent=turn.agent_progress.agent or turn.agent,
            path=turn.path,
            number=nest.model_call_number(request),
            session=turn.session,
        )

    async def stream_answer(
        self, model: Model, prompt: Prompt, *, without_pause: bool = False
    ) -> AsyncGenerator[str | None]:
        """Yield an answer in pieces, ``None`` when what came so far does not count; raise what the script may catch.

        The answer is kept within the budgets of the turn. ``steady``: it is read to its end without a pause.
        """
        nest = self._services.nest
        hold = (
            Reservation(prompt)
            if nest is None
            else await _reserve_budget(nest, model, prompt, without_pause=without_pause)
        )
        try:
            async with aclosing(self._stream_pieces(model, hold)) as pieces:
                async for piece in pieces:
                    if piece is None and nest is not None:
                        check_retry_budget(nest.turn, model, hold)
                    yield piece
        finally:
            hold.release()

    async def _stream_pieces(self, model: Model, reservation: Reservation) -> AsyncGenerator[str | None]:
        stop: StopChunk | None = None
        cost, written = UsageChunk(Usage()), 0
        try:
            async with aclosing(model.stream(reservation.prompt)) as chunks:
                async for chunk in chunks:
                    if isinstance(chunk, TextChunk):
                        written += len(chunk.text)
                        yield chunk.text
                    elif isinstance(chunk, ReasoningChunk):
                        written += len(chunk.text)
                    elif isinstance(chunk, RetryChunk):
                        self._record_usage(model, reservation, cost, written)
                        cost, written = UsageChunk(Usage()), 0
                        yield None
                    elif isinstance(chunk, StopChunk):
                        stop = chunk
                    elif isinstance(chunk, UsageChunk):
                        cost = chunk  # the last one counts
                    else:
                        self._log_notice(chunk)
        except VakaError as error:
            raise ScriptError(f"{model.name}: {error}") from error
        finally:
            self._record_usage(model, reservation, cost, None if stop else written)
        if stop is None or stop.reason == "refusal":
            raise ScriptError(f"{model.name}: {'the model refused to answer' if stop else 'the answer was cut off'}")

    def _record_usage(
        self, model: Model, reservation: Reservation, cost: UsageChunk, written_chars: int | None
    ) -> None:
        """What a try has cost was spent, also when it broke off after it had ``written`` so much."""
        usage = (
            cost.usage
            if written_chars is None
            else estimate_partial_usage(model, reservation.prompt, cost.usage, written_chars)
        )
        if self._services.usage is not None and (written_chars is None or usage != Usage()):
            call = self._services.nest.call if self._services.nest is not None else None
            named = cost.model or model.name
            self._services.usage(UsageRecorded(model=named, usage=usage, agent=reservation.prompt.agent, call=call))

    def _log_notice(self, chunk: Chunk) -> None:
        nest = self._services.nest
        if isinstance(chunk, NoticeChunk) and nest is not None:
            nest.turn.log.defer(nest.turn.scope, chunk.event)

    async def read_answer(self, model: Model, prompt: Prompt) -> str:
        """Return an answer."""
        pieces: list[str] = []
        async with aclosing(self.stream_answer(model, prompt, without_pause=True)) as stream:
            async for piece in stream:
                if piece is None:
                    pieces.clear()
                else:
                    pieces.append(piece)
        return "".join(pieces)


async def _reserve_budget(journal: ScriptJournal, model: Model, prompt: Prompt, *, without_pause: bool) -> Reservation:
    try:
        return await reserve(journal.turn, model, prompt, waitable=without_pause)
    except ConfigError as error:
        raise ScriptError(str(error)) from error


def generate_functions(services: HostServices) -> HostFunctions:
    """``generate``, ``generate_json``, and ``generate.open``, ``.next`` and ``.close`` for an answer in pieces."""
    if services.models is None:
        names = ("generate", "generate_json", "generate.open", "generate.next", "generate.close")
        return {name: unavailable_function(name, "this script has no models") for name in names}
    asker = ModelCaller(services)
    streams: dict[int, ModelAnswerStream] = {}

    async def generate(request: ScriptRequest, model: JSON, prompt: JSON, options: JSON = None) -> JSON:
        chosen, question = asker.find_model(model), parse_prompt_args(prompt, options)
        return await asker.read_answer(chosen, asker.make_prompt(request, question))

    async def open(request: ScriptRequest, model: JSON, prompt: JSON, options: JSON = None) -> JSON:
        chosen = asker.find_model(model)
        asked = asker.make_prompt(request, parse_prompt_args(prompt, options))
        stream = streams[request.number] = ModelAnswerStream(
            lambda: asker.stream_answer(chosen, asked), read_ahead=services.closing is None
        )
        if services.closing is not None:
            services.closing.push_async_callback(stream.close)
        return request.number

    def find_stream(stream: JSON) -> ModelAnswerStream:
        found = streams.get(stream) if isinstance(stream, int) else None
        if found is None:
            raise ScriptError("there is no such stream")
        return found

    async def next_piece(stream: JSON, told: JSON = 0, tail: JSON = "") -> JSON:
        return await find_stream(stream).next_piece(
            told if isinstance(told, int) else 0, as_string(tail, "what was told")
        )

    async def close(stream: JSON) -> None:
        await find_stream(stream).close()

    return {
        "generate": HostFunction(generate, wants_request=True),
        "generate_json": _generate_json_function(services, asker),
        # A stream is opened again when the script is replayed: what was not told yet still has to come from somewhere.
        "generate.open": HostFunction(open, wants_request=True, local=True),
        "generate.next": HostFunction(next_piece),
        "generate.close": HostFunction(close, local=True),
    }


def _generate_json_function(services: HostServices, model_caller: ModelCaller) -> HostFunction:
    fits = services.fits
    if fits is None:
        return unavailable_function("generate_json", "nothing here can tell whether an answer fits a schema")

    async def generate_json(
        request: ScriptRequest, model: JSON, prompt: JSON, schema: JSON, options: JSON = None, said: JSON = None,
        problem: JSON = None,
    ) -> JSON:  # fmt: skip
        wanted = restore_empty_lists(as_table(schema, "generate_json: schema"))
        question = parse_prompt_args(prompt, options).with_schema(wanted)
        if isinstance(said, str) and isinstance(problem, str):
            question = question.with_retry(said, problem)
        chosen = model_caller.find_model(model)
        answer = await model_caller.read_answer(chosen, model_caller.make_prompt(request, question))
        value, fault = _parse_json_answer(answer)
        fault = fault or fits(wanted, value)
        return MultipleResults((None, fault, answer)) if fault else MultipleResults((value,))

    return HostFunction(generate_json, wants_request=True)


def _parse_json_answer(answer: str) -> tuple[JSON, str]:
    """Return the data of an answer, or what is wrong with it."""
    fenced = _FENCE.match(answer)
    try:
        return msgspec.json.decode(fenced.group(1) if fenced else answer.strip()), ""
    except msgspec.DecodeError as error:
        return None, f"the answer is not JSON: {error}"


_LIST_KEYWORDS = frozenset({"required", "enum", "examples", "anyOf", "oneOf", "allOf", "prefixItems"})


def restore_empty_lists(schema: JSON) -> JSON:
    """Return a schema whose lists are lists: a script's empty table could be either."""
    if is_list(schema):
        return [restore_empty_lists(item) for item in schema]
    if not is_table(schema):
        return schema
    nothing: JSON = []
    return {
        key: nothing if key in _LIST_KEYWORDS and item == {} else restore_empty_lists(item)
        for key, item in schema.items()
    }
