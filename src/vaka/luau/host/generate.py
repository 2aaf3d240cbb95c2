"""``ctx.generate`` and its sisters: a model's answer as text, as data, or in pieces."""

import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from itertools import count

import msgspec

from vaka.core.loop.budget import afford, broken_off, check
from vaka.core.loop.nest import Nest, Request
from vaka.core.loop.purse import Hold
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
from vaka.core.types.monitor import UsageRecorded
from vaka.core.types.usage import Usage
from vaka.luau.host.arguments import is_list, is_table, table, text
from vaka.luau.host.parts import Parts, missing
from vaka.luau.host.question import Question, question_of
from vaka.luau.host.stream import Stream
from vaka.luau.script import Functions, HostFunction, Several

_FENCE = re.compile(r"\A\s*```[a-zA-Z]*\s*\n(.*?)\n?```\s*\Z", re.DOTALL)


class Asker:
    """Puts questions to models, counts them, and says what they cost."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._asked = count(1)

    def model(self, name: JSON) -> Model:
        """Return the model of that name, or raise what the script may catch."""
        find = self._parts.models
        if find is None:
            raise ScriptError("generate is not available here: this script has no models")
        try:
            return find(text(name, "generate: model"))
        except VakaError as error:
            raise ScriptError(str(error)) from error

    def prompt(self, request: Request, question: Question) -> Prompt:
        """Return a question as a model takes it, with its number among those of this agent."""
        nest = self._parts.nest
        made = Prompt(messages=question.messages, system=question.system, options=question.options)
        if nest is None:
            return msgspec.structs.replace(made, number=next(self._asked))
        turn = nest.turn
        return msgspec.structs.replace(
            made,
            agent=turn.lane.agent or turn.agent,
            path=turn.path,
            number=nest.asks(request),
            session=turn.session,
        )

    async def read(self, model: Model, prompt: Prompt, *, steady: bool = False) -> AsyncGenerator[str | None]:
        """Yield an answer in pieces, ``None`` when what came so far does not count; raise what the script may catch.

        The answer is kept within the budgets of the turn. ``steady``: it is read to its end without a pause.
        """
        nest = self._parts.nest
        hold = Hold(prompt) if nest is None else await _affordable(nest, model, prompt, steady=steady)
        try:
            async with aclosing(self._pieces(model, hold)) as pieces:
                async for piece in pieces:
                    if piece is None and nest is not None:
                        check(nest.turn, model, hold)
                    yield piece
        finally:
            hold.release()

    async def _pieces(self, model: Model, hold: Hold) -> AsyncGenerator[str | None]:
        stop: StopChunk | None = None
        cost, written = UsageChunk(Usage()), 0
        try:
            async with aclosing(model.stream(hold.prompt)) as chunks:
                async for chunk in chunks:
                    if isinstance(chunk, TextChunk):
                        written += len(chunk.text)
                        yield chunk.text
                    elif isinstance(chunk, ReasoningChunk):
                        written += len(chunk.text)
                    elif isinstance(chunk, RetryChunk):
                        self._spent(model, hold, cost, written)
                        cost, written = UsageChunk(Usage()), 0
                        yield None
                    elif isinstance(chunk, StopChunk):
                        stop = chunk
                    elif isinstance(chunk, UsageChunk):
                        cost = chunk  # the last one counts
                    else:
                        self._notice(chunk)
        except VakaError as error:
            raise ScriptError(f"{model.name}: {error}") from error
        finally:
            self._spent(model, hold, cost, None if stop else written)
        if stop is None or stop.reason == "refusal":
            raise ScriptError(f"{model.name}: {'the model refused to answer' if stop else 'the answer was cut off'}")

    def _spent(self, model: Model, hold: Hold, cost: UsageChunk, written: int | None) -> None:
        """What a try has cost was spent, also when it broke off after it had ``written`` so much."""
        usage = cost.usage if written is None else broken_off(model, hold.prompt, cost.usage, written)
        if self._parts.usage is not None and (written is None or usage != Usage()):
            call = self._parts.nest.call if self._parts.nest is not None else None
            named = cost.model or model.name
            self._parts.usage(UsageRecorded(model=named, usage=usage, agent=hold.prompt.agent, call=call))

    def _notice(self, chunk: Chunk) -> None:
        nest = self._parts.nest
        if isinstance(chunk, NoticeChunk) and nest is not None:
            nest.turn.log.later(nest.turn.at, chunk.event)

    async def whole(self, model: Model, prompt: Prompt) -> str:
        """Return an answer."""
        pieces: list[str] = []
        async with aclosing(self.read(model, prompt, steady=True)) as stream:
            async for piece in stream:
                if piece is None:
                    pieces.clear()
                else:
                    pieces.append(piece)
        return "".join(pieces)


async def _affordable(nest: Nest, model: Model, prompt: Prompt, *, steady: bool) -> Hold:
    try:
        return await afford(nest.turn, model, prompt, steady=steady)
    except ConfigError as error:
        raise ScriptError(str(error)) from error


def generate_functions(parts: Parts) -> Functions:
    """``generate``, ``generate_json``, and ``generate.open``, ``.next`` and ``.close`` for an answer in pieces."""
    if parts.models is None:
        names = ("generate", "generate_json", "generate.open", "generate.next", "generate.close")
        return {name: missing(name, "this script has no models") for name in names}
    asker = Asker(parts)
    streams: dict[int, Stream] = {}

    async def generate(request: Request, model: JSON, prompt: JSON, options: JSON = None) -> JSON:
        chosen, question = asker.model(model), question_of(prompt, options)
        return await asker.whole(chosen, asker.prompt(request, question))

    async def open(request: Request, model: JSON, prompt: JSON, options: JSON = None) -> JSON:
        chosen = asker.model(model)
        asked = asker.prompt(request, question_of(prompt, options))
        stream = streams[request.number] = Stream(lambda: asker.read(chosen, asked), whole=parts.closing is None)
        if parts.closing is not None:
            parts.closing.push_async_callback(stream.close)
        return request.number

    def opened(stream: JSON) -> Stream:
        found = streams.get(stream) if isinstance(stream, int) else None
        if found is None:
            raise ScriptError("there is no such stream")
        return found

    async def take(stream: JSON, told: JSON = 0, tail: JSON = "") -> JSON:
        return await opened(stream).take(told if isinstance(told, int) else 0, text(tail, "what was told"))

    async def close(stream: JSON) -> None:
        await opened(stream).close()

    return {
        "generate": HostFunction(generate, asks=True),
        "generate_json": _json_function(parts, asker),
        # A stream is opened again when the script is replayed: what was not told yet still has to come from somewhere.
        "generate.open": HostFunction(open, asks=True, local=True),
        "generate.next": HostFunction(take),
        "generate.close": HostFunction(close, local=True),
    }


def _json_function(parts: Parts, asker: Asker) -> HostFunction:
    fits = parts.fits
    if fits is None:
        return missing("generate_json", "nothing here can tell whether an answer fits a schema")

    async def generate_json(
        request: Request, model: JSON, prompt: JSON, schema: JSON, options: JSON = None, said: JSON = None,
        problem: JSON = None,
    ) -> JSON:  # fmt: skip
        wanted = mended(table(schema, "generate_json: schema"))
        question = question_of(prompt, options).with_schema(wanted)
        if isinstance(said, str) and isinstance(problem, str):
            question = question.again(said, problem)
        chosen = asker.model(model)
        answer = await asker.whole(chosen, asker.prompt(request, question))
        value, fault = _data(answer)
        fault = fault or fits(wanted, value)
        return Several((None, fault, answer)) if fault else Several((value,))

    return HostFunction(generate_json, asks=True)


def _data(answer: str) -> tuple[JSON, str]:
    """Return the data of an answer, or what is wrong with it."""
    fenced = _FENCE.match(answer)
    try:
        return msgspec.json.decode(fenced.group(1) if fenced else answer.strip()), ""
    except msgspec.DecodeError as error:
        return None, f"the answer is not JSON: {error}"


_LISTS = frozenset({"required", "enum", "examples", "anyOf", "oneOf", "allOf", "prefixItems"})


def mended(schema: JSON) -> JSON:
    """Return a schema whose lists are lists: a script's empty table could be either."""
    if is_list(schema):
        return [mended(item) for item in schema]
    if not is_table(schema):
        return schema
    nothing: JSON = []
    return {key: nothing if key in _LISTS and item == {} else mended(item) for key, item in schema.items()}
