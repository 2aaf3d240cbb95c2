"""Models for tests: scripted, recording, made of a function, unreliable; and the contract suite of models.

::

    model = ScriptedModel(call("fly"), say("I cannot."))

Subclass ``ModelContract`` and give it a fixture ``answering``: a function that takes a scripted line and returns your
model, which answers every prompt as that line says.
"""
# ruff: noqa: S101  # asserts are what a contract is made of

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, TypeAlias

import msgspec

from vaka.core.ports.env import Clock
from vaka.core.ports.model import CallChunk, Chunk, Model, Prompt, ReasoningChunk, StopChunk, TextChunk, UsageChunk
from vaka.core.types.errors import ModelError, ModelRefused, ModelUnavailable
from vaka.core.types.ids import CallId, MessageId
from vaka.core.types.message import AssistantMessage, Text, ToolCall, ToolMessage, ToolResult, Usage, UserMessage
from vaka.core.types.tool import ToolSpec
from vaka.models.scripted import Scripted
from vaka.testing.clock import FakeRandom

ScriptLine: TypeAlias = dict[str, Any]
"""A line of the scripted model; ``say("Hi.") | {"usage": {"input": 3}}`` adds to one."""

FOREVER = 1e9


def say(text: str, **more: Any) -> ScriptLine:
    """Return the answer ``text``; ``more`` are other keys of a line, such as ``reasoning`` or ``usage``."""
    return {"text": text, **more}


def call(name: str, /, **arguments: Any) -> ScriptLine:
    """Return an answer that calls one tool."""
    return {"tool_calls": [{"name": name, "arguments": arguments}]}


def calls(*answers: ScriptLine, **more: Any) -> ScriptLine:
    """Return an answer that makes the calls of several answers at once."""
    return {"tool_calls": [tool_call for answer in answers for tool_call in answer["tool_calls"]], **more}


def fail(status: int = 500, message: str = "the model failed", *, retry_after: float | None = None) -> ScriptLine:
    """Return an answer that is an error."""
    after = {} if retry_after is None else {"retry_after": retry_after}
    return {"error": {"status": status, "message": message, **after}}


def stall(seconds: float = FOREVER, **more: Any) -> ScriptLine:
    """Return an answer that is silent for a time, then ends without an end marker unless ``more`` has content."""
    return {"stall": seconds, **more}


class ScriptedModel(Scripted):
    """The n-th call of the root agent gets the n-th answer; ``agents`` has the answers of other agents, by name.

    ``prompts`` are the prompts it was called with, in order.
    """

    def __init__(
        self,
        *answers: ScriptLine,
        agents: Mapping[str, Sequence[ScriptLine]] | None = None,
        name: str = "scripted",
        clock: Clock | None = None,
        context_window: int | None = None,
    ) -> None:
        others = [line | {"agent": agent} for agent, lines in (agents or {}).items() for line in lines]
        window = [{"context_window": context_window}] if context_window is not None else []
        super().__init__([*window, *answers, *others], name=name, clock=clock)
        self.prompts: list[Prompt] = []

    def stream(self, prompt: Prompt) -> AsyncGenerator[Chunk]:
        self.prompts.append(prompt)
        return super().stream(prompt)


class RecordingModel:
    """A wrapper that records the ``prompts`` another model is called with, in order."""

    def __init__(self, inner: Model) -> None:
        self._inner = inner
        self.prompts: list[Prompt] = []

    @property
    def name(self) -> str:
        return self._inner.name

    def stream(self, prompt: Prompt) -> AsyncGenerator[Chunk]:
        self.prompts.append(prompt)
        return self._inner.stream(prompt)


class FunctionModel:
    """A model made of a function that returns a text, an answer such as ``call("fly")``, or the chunks themselves."""

    def __init__(
        self, answer: Callable[[Prompt], Awaitable[str | ScriptLine | Sequence[Chunk]]], *, name: str = "function"
    ) -> None:
        self._answer, self._name = answer, name

    @property
    def name(self) -> str:
        return self._name

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Chunk]:
        answer = await self._answer(prompt)
        if isinstance(answer, str):
            answer = say(answer)
        if not isinstance(answer, dict):
            for chunk in answer:
                yield chunk
            return
        line = Scripted([answer | {"repeat": True}], name=self._name)
        async with aclosing(line.stream(msgspec.structs.replace(prompt, agent="", path=()))) as chunks:
            async for chunk in chunks:
                yield chunk


class ChaosModel:
    """A wrapper that disturbs another model's stream; the same seed and prompt give the same disturbance.

    Pieces are split anywhere, empty ones come between them, other tasks run in between, usage is sent twice. With
    probability ``cut`` the answer ends early, with probability ``error`` it ends with ``ModelUnavailable``.
    """

    def __init__(self, inner: Model, *, seed: int = 0, cut: float = 0.1, error: float = 0.1) -> None:
        self._inner = inner
        self._seed = seed
        self._cut = cut
        self._error = error

    @property
    def name(self) -> str:
        return self._inner.name

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Chunk]:
        chance = FakeRandom(seed=f"{self._seed}/{prompt.agent}/{'/'.join(prompt.path)}/{prompt.number}")
        draw = chance.random()
        left = chance.randint(0, 8) if draw < self._cut + self._error else -1
        async with aclosing(self._inner.stream(prompt)) as chunks:
            async for original in chunks:
                for chunk in _distort_chunk(original, chance):
                    for _ in range(chance.randint(0, 2)):
                        await asyncio.sleep(0)
                    if left == 0 or (left > 0 and isinstance(chunk, StopChunk)):
                        if draw >= self._cut:
                            raise ModelUnavailable("the connection broke (chaos)", status=529)
                        return
                    left -= 1
                    yield chunk


def _distort_chunk(chunk: Chunk, chance: FakeRandom) -> Iterator[Chunk]:
    if isinstance(chunk, TextChunk):
        yield from (TextChunk(piece) for piece in _split_text(chunk.text, chance))
    elif isinstance(chunk, CallChunk):
        for at, piece in enumerate(_split_text(chunk.arguments, chance)):
            yield msgspec.structs.replace(chunk, arguments=piece) if not at else CallChunk(chunk.index, "", piece)
    elif isinstance(chunk, ReasoningChunk):
        *pieces, last = _split_text(chunk.text, chance)
        yield from (ReasoningChunk(piece) for piece in pieces)
        yield msgspec.structs.replace(chunk, text=last)
    elif isinstance(chunk, UsageChunk):
        yield msgspec.structs.replace(chunk, usage=Usage(input=chunk.usage.input))
        yield chunk
    else:
        yield chunk


def _split_text(text: str, chance: FakeRandom) -> list[str]:
    """Cut a text into one to four pieces, some of them perhaps empty."""
    cuts = sorted(chance.randint(0, len(text)) for _ in range(chance.randint(0, 3)))
    return [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]


PROMPT = Prompt(
    messages=(
        UserMessage(content=(Text(text="Is it raining in Hilo? 🌧"),)),
        AssistantMessage(
            id=MessageId("msg_1"),
            content=(Text(text="Let me look."),),
            calls=(ToolCall(id=CallId("call_1"), name="weather", arguments={"city": "Hilo"}),),
        ),
        ToolMessage(results=(ToolResult(call=CallId("call_1"), content=(Text(text="rain"),)),)),
        UserMessage(content=(Text(text="And tomorrow?"),)),
    ),
    system="Be brief.",
    tools=(
        ToolSpec(
            name="weather",
            description="Return today's weather.",
            parameters={"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        ),
    ),
    options={"temperature": 0.5},
    agent="assistant",
)
"""A conversation with every kind of message that a model may have to send."""

ModelMaker: TypeAlias = Callable[[ScriptLine], Model]


class StreamContent(msgspec.Struct, frozen=True):
    """The joined content of a stream."""

    text: str
    reasoning: str
    calls: list[tuple[str, str]]
    ids: list[str]
    usage: Usage
    stops: list[str]


async def collect_stream(model: Model, prompt: Prompt = PROMPT) -> StreamContent:
    """Drain a stream and join its chunks."""
    return join_chunks(await drain_stream(model, prompt))


async def drain_stream(model: Model, prompt: Prompt = PROMPT) -> list[Chunk]:
    async with aclosing(model.stream(prompt)) as chunks:
        return [chunk async for chunk in chunks]


def join_chunks(chunks: Sequence[Chunk]) -> StreamContent:
    call_chunks: dict[int, list[CallChunk]] = {}
    for chunk in chunks:
        if isinstance(chunk, CallChunk):
            call_chunks.setdefault(chunk.index, []).append(chunk)
    return StreamContent(
        text="".join(chunk.text for chunk in chunks if isinstance(chunk, TextChunk)),
        reasoning="".join(chunk.text for chunk in chunks if isinstance(chunk, ReasoningChunk)),
        calls=[("".join(p.name for p in parts), "".join(p.arguments for p in parts)) for parts in call_chunks.values()],
        ids=[next((part.id for part in parts if part.id), "") for parts in call_chunks.values()],
        usage=next((chunk.usage for chunk in reversed(chunks) if isinstance(chunk, UsageChunk)), Usage()),
        stops=[chunk.reason for chunk in chunks if isinstance(chunk, StopChunk)],
    )


async def try_stream(model: Model, prompt: Prompt = PROMPT) -> tuple[list[Chunk], ModelError | None]:
    """Return the chunks of a stream, and its error if it failed."""
    chunks: list[Chunk] = []
    try:
        async with aclosing(model.stream(prompt)) as stream:
            async for chunk in stream:
                chunks.append(chunk)  # noqa: PERF401  # chunks before an error count
    except ModelError as error:
        return chunks, error
    return chunks, None


class ModelContract:
    """The contract of every model. The fixture ``answering`` turns a scripted line into your model's answer."""

    async def test_the_name_of_a_model_does_not_change(self, answering: ModelMaker) -> None:
        model = answering(say("Hi."))
        assert isinstance(model, Model)
        name = model.name
        async with aclosing(model.stream(PROMPT)) as chunks:
            async for _ in chunks:
                assert model.name == name
        assert name
        assert model.name == name

    async def test_text_arrives_whole_and_ends_with_exactly_one_stop(self, answering: ModelMaker) -> None:
        pieces = ["It", " will", "", " rain", " 🌧️\n", "\u202e日本", "語. "]
        chunks = await drain_stream(answering({"chunks": pieces}))
        assert isinstance(chunks[-1], StopChunk)
        assert join_chunks(chunks).text == "".join(pieces)
        assert join_chunks(chunks).stops == ["end"]
        assert join_chunks(chunks).calls == []

    async def test_an_empty_answer_ends_with_a_stop(self, answering: ModelMaker) -> None:
        content = await collect_stream(answering(say("")))
        assert (content.text, content.calls, content.stops) == ("", [], ["end"])

    async def test_calls_arrive_with_names_arguments_and_ids_of_their_own(self, answering: ModelMaker) -> None:
        """Arguments are JSON text; two calls of one tool differ by id and index."""
        made = calls(call("weather", city="Hilo 🌺"), call("weather", city='say "x"\n'), call("weather"))
        content = await collect_stream(answering(made))
        decoded = [(name, msgspec.json.decode(arguments or "{}")) for name, arguments in content.calls]
        assert decoded == [("weather", {"city": "Hilo 🌺"}), ("weather", {"city": 'say "x"\n'}), ("weather", {})]
        assert len({*content.ids}) == 3
        assert "" not in content.ids
        assert content.stops == ["calls"]

    async def test_broken_arguments_are_passed_on_unchanged(self, answering: ModelMaker) -> None:
        broken = '{"city": "Hilo"'
        content = await collect_stream(answering({"tool_calls": [{"name": "weather", "arguments": broken}]}))
        assert content.calls == [("weather", broken)]

    async def test_text_before_a_call_arrives(self, answering: ModelMaker) -> None:
        content = await collect_stream(answering(call("weather", city="Hilo") | {"text": "Let me look."}))
        assert content.text == "Let me look."
        assert [name for name, _ in content.calls] == ["weather"]

    async def test_reasoning_is_separate_from_text(self, answering: ModelMaker) -> None:
        content = await collect_stream(answering(say("Yes.", reasoning="It is the wet side.")))
        assert (content.text, content.reasoning) == ("Yes.", "It is the wet side.")

    async def test_the_last_usage_is_what_the_call_cost(self, answering: ModelMaker) -> None:
        content = await collect_stream(answering(say("Yes.", usage={"input": 12, "output": 3})))
        assert (content.usage.input, content.usage.output) == (12, 3)

    async def test_an_answer_at_its_length_limit_stops_with_length(self, answering: ModelMaker) -> None:
        assert (await collect_stream(answering(say("Once upon a", stop="length")))).stops == ["length"]

    async def test_a_transient_error_is_model_unavailable(self, answering: ModelMaker) -> None:
        """Overload, rate limits, timeouts and server errors may be retried."""
        for status in (408, 409, 429, 500, 502, 503, 529):
            chunks, error = await try_stream(answering(fail(status, "busy", retry_after=7)))
            assert isinstance(error, ModelUnavailable), f"{status}: expected an error, got {error or chunks!r}"
            assert error.status == status
            assert error.retry_after == 7

    async def test_a_permanent_error_is_model_refused(self, answering: ModelMaker) -> None:
        """A retry does not help; a rejected key is named as the cause."""
        for status in (400, 401, 403, 404, 413, 422):
            chunks, error = await try_stream(answering(fail(status, "no such thing")))
            assert isinstance(error, ModelRefused), f"{status}: expected an error, got {error or chunks!r}"
            assert "no such thing" in str(error)
            assert status not in {401, 403} or "authentication" in str(error)

    async def test_a_stream_that_was_cut_has_no_end_marker(self, answering: ModelMaker) -> None:
        """It ends without a stop chunk or raises ``ModelUnavailable``; it never looks complete."""
        chunks, error = await try_stream(answering({"chunks": ["He", "llo"], "cut_after": 1}))
        assert error is None or isinstance(error, ModelUnavailable)
        assert join_chunks(chunks).stops == []
        assert "llo" not in join_chunks(chunks).text

    async def test_closing_a_stream_leaves_no_task(self, answering: ModelMaker) -> None:
        """The model also answers again."""
        model = answering({"chunks": ["a", "b", "c", "d"]})
        await collect_stream(model)
        for _ in range(20):  # the provider may run in this loop and have a task for each connection
            await asyncio.sleep(0)
        before = asyncio.all_tasks()
        chunks = model.stream(PROMPT)
        await anext(chunks)
        await chunks.aclose()
        assert asyncio.all_tasks() - before == set()
        assert [chunk async for chunk in chunks] == []
        assert (await collect_stream(model)).text == "abcd"

    async def test_a_cancelled_stream_raises_cancellation(self, answering: ModelMaker) -> None:
        """A stalled call ends in ``CancelledError``, not in an error of the model."""
        task = asyncio.create_task(collect_stream(answering(stall())))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not task.done()
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()

    async def test_concurrent_streams_do_not_mix(self, answering: ModelMaker) -> None:
        model = answering({"chunks": ["a", "b", "c", "d"], "usage": {"input": 1, "output": 2}})
        alone = await collect_stream(model)
        many = await asyncio.gather(*(collect_stream(model) for _ in range(20)))
        assert [(one.text, one.stops, one.usage) for one in many] == [(alone.text, alone.stops, alone.usage)] * 20

    async def test_prompts_are_not_changed(self, answering: ModelMaker) -> None:
        before = msgspec.json.encode(PROMPT)
        await collect_stream(answering(call("weather", city="Hilo")))
        assert msgspec.json.encode(PROMPT) == before
