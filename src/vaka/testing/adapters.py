"""Contract suites for model adapters and embedders."""

# ruff: noqa: S101  # a contract suite is made of asserts

import asyncio
import math
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any, TypeAlias, cast

import msgspec
import pytest

from vaka.core.loop.assemble import MessageAssembly, RawToolCall
from vaka.core.ports.model import (
    CallChunk,
    Chunk,
    Closeable,
    Embedder,
    Model,
    Prompt,
    ReasoningChunk,
    StopChunk,
    UsageChunk,
)
from vaka.core.types import errors, message
from vaka.core.types.ids import CallId, MessageId
from vaka.testing.fake_provider import AnswerSource, FakeProvider, Fault, ProviderRequest, render_events
from vaka.testing.models import (
    PROMPT,
    ModelContract,
    ModelMaker,
    ScriptLine,
    call,
    calls,
    drain_stream,
    fail,
    join_chunks,
    say,
    try_stream,
)

TOLERANCE = 1e-4
"""Maximum distance of two vectors of one text: networks round differently in batches."""

UNUSUAL_TEXTS = (
    "",
    " ",
    "\n\t",
    "\0",
    "?!",
    "a",
    "…",
    "🌧️",
    "👩‍👩‍👧",
    "\u202eabc",
    "e\u0301",
    "日本語のテキスト",
    "हिन्दी",
    "نص",
    "ภาษาไทย",
    "\ud83d",
    "\udc80 half",
    "x" * 20_000,
    "word " * 4_000,
)


def cosine_similarity(one: Sequence[float], other: Sequence[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True)) / (math.hypot(*one) * math.hypot(*other))


class EmbedderContract:
    """The contract of every embedder; a fixture ``embedder`` returns yours."""

    async def test_no_texts_give_no_vectors(self, embedder: Embedder) -> None:
        assert await embedder.embed([]) == []

    async def test_each_text_has_a_vector_of_one_length_in_order(self, embedder: Embedder) -> None:
        """All are unit vectors of floats."""
        texts = [f"text number {number}" for number in range(40)]
        vectors = await embedder.embed(texts)
        assert len(vectors) == 40
        assert len({len(vector) for vector in vectors}) == 1
        assert all(type(number) is float for vector in vectors for number in vector)
        assert all(abs(math.hypot(*vector) - 1) < TOLERANCE for vector in vectors)
        for at in (0, 17, 39):
            assert math.dist((await embedder.embed([texts[at]]))[0], vectors[at]) < TOLERANCE

    async def test_a_text_has_the_same_vector_in_any_batch(self, embedder: Embedder) -> None:
        """Twice in one call, in another order, as a tuple, between texts of other lengths."""
        first, second, third = await embedder.embed(("rain in Hilo", "y" * 3_000, "rain in Hilo"))
        assert math.dist(first, third) < TOLERANCE
        again = await embedder.embed(["y" * 3_000, "rain in Hilo"])
        assert math.dist(again[0], second) < TOLERANCE
        assert math.dist(again[1], first) < TOLERANCE

    async def test_similar_texts_have_nearer_vectors(self, embedder: Embedder) -> None:
        question, answer, other = await embedder.embed(
            ["How do I reset my password?", "You can reset your password in the settings.", "The moon is full tonight."]
        )
        assert cosine_similarity(question, answer) > cosine_similarity(question, other) + 0.1

    async def test_any_text_has_a_vector(self, embedder: Embedder) -> None:
        """Also empty texts, all scripts, lone surrogates and very long texts."""
        vectors = await embedder.embed(UNUSUAL_TEXTS)
        assert len(vectors) == len(UNUSUAL_TEXTS)
        assert all(math.isfinite(number) for vector in vectors for number in vector)
        assert all(abs(math.hypot(*vector) - 1) < TOLERANCE for vector in vectors)

    async def test_a_single_string_is_refused(self, embedder: Embedder) -> None:
        for wrong in ("rain", ["rain", None], [b"rain"]):
            assert "list of texts" in await _refusal_message(embedder, wrong)

    async def test_texts_are_not_changed(self, embedder: Embedder) -> None:
        texts = ["", "Rain", "\ud83d"]
        await embedder.embed(texts)
        assert texts == ["", "Rain", "\ud83d"]

    async def test_concurrent_calls_do_not_mix(self, embedder: Embedder) -> None:
        texts = [f"text number {number}" for number in range(10)]
        alone = await embedder.embed(texts)
        together = await asyncio.gather(*(embedder.embed([text]) for text in texts))
        assert all(math.dist(vector, many[0]) < TOLERANCE for vector, many in zip(alone, together, strict=True))


async def _refusal_message(embedder: Embedder, texts: Any) -> str:
    try:
        vectors = await embedder.embed(texts)
    except errors.InvalidInput as error:
        return str(error)
    raise AssertionError(f"expected an error for {texts!r}, got {vectors!r}")


AdapterMaker: TypeAlias = Callable[[str, str], Model]
"""Makes an adapter from the address of a provider and the name of a model."""

FULL_ANSWER = calls(
    call("weather", city="Hilo 🌺"),
    call("weather", city="Kona"),
    text="Let me look.",
    reasoning="It is the wet side.",
    usage={"input": 100, "output": 20, "cache_read": 40, "reasoning": 6},
)
"""An answer with every kind of content that a provider may send."""


@asynccontextmanager
async def connect_adapter(
    make_adapter: AdapterMaker, *answers: AnswerSource, fault: Fault | None = None
) -> AsyncGenerator[tuple[Model, FakeProvider]]:
    """Yield an adapter and the fake provider it is connected to."""
    async with FakeProvider(*answers, fault=fault) as provider:
        model = make_adapter(provider.url, "some-model")
        try:
            yield model, provider
        finally:
            if isinstance(model, Closeable):
                await model.close()


def follow_up_prompt(chunks: list[Chunk], prompt: Prompt = PROMPT) -> Prompt:
    """Return the prompt after an answer: the answer, results for its calls, and another question."""
    assembly = MessageAssembly(MessageId("msg_2"))
    for chunk in chunks:
        assembly.feed(chunk)
    content: list[message.Part] = []
    tool_calls: list[message.ToolCall] = []
    for part in assembly.parts():
        if isinstance(part, RawToolCall):
            id = CallId(f"call_{len(tool_calls) + 2}")
            arguments = msgspec.json.decode(part.arguments or "{}")
            tool_calls.append(
                message.ToolCall(id=id, name=part.name, arguments=arguments, provider_id=part.provider_id)
            )
            content.append(message.CallRef(id=id))
        else:
            content.append(part)
    answer = message.AssistantMessage(id=assembly.message_id, content=tuple(content), calls=tuple(tool_calls))
    results = tuple(message.ToolResult(call=one.id, content=(message.Text(text="sun"),)) for one in tool_calls)
    after = (message.ToolMessage(results=results),) if tool_calls else ()
    question = message.UserMessage(content=(message.Text(text="Are you sure?"),))
    return msgspec.structs.replace(prompt, messages=(*prompt.messages, answer, *after, question))


class AdapterContract(ModelContract):
    """The contract of every provider adapter, in addition to the contract of every model."""

    @pytest.fixture
    async def answering(self, connecting: AdapterMaker) -> AsyncGenerator[ModelMaker]:
        """A maker of models that share one fake provider, each with its own answer."""
        answers: dict[str, ScriptLine] = {}
        models: list[Model] = []

        def answer(request: ProviderRequest) -> ScriptLine:
            return answers[request.model]

        async with FakeProvider(answer) as provider:

            def model(answer: ScriptLine) -> Model:
                name = f"model-{len(answers)}"
                answers[name] = answer
                models.append(connecting(provider.url, name))
                return models[-1]

            yield model
            for opened in models:
                if isinstance(opened, Closeable):
                    await opened.close()

    async def test_everything_of_an_answer_arrives(self, connecting: AdapterMaker) -> None:
        async with connect_adapter(connecting, FULL_ANSWER) as (model, _):
            chunks = await drain_stream(model)
        content = join_chunks(chunks)
        assert (content.text, content.reasoning, content.stops) == ("Let me look.", "It is the wet side.", ["calls"])
        assert [(name, msgspec.json.decode(arguments)) for name, arguments in content.calls] == [
            ("weather", {"city": "Hilo 🌺"}),
            ("weather", {"city": "Kona"}),
        ]
        assert content.usage == message.Usage(input=100, output=20, cache_read=40, reasoning=6)

    async def test_usage_with_the_model_name_comes_before_the_stop(self, connecting: AdapterMaker) -> None:
        async with connect_adapter(connecting, FULL_ANSWER) as (model, _):
            usage, stop = (await drain_stream(model))[-2:]
        assert isinstance(usage, UsageChunk)
        assert usage.model == "some-model"
        assert stop == StopChunk("calls")

    async def test_a_call_begins_with_its_name_and_id(self, connecting: AdapterMaker) -> None:
        """So that it can be displayed before it is complete."""
        async with connect_adapter(connecting, FULL_ANSWER) as (model, _):
            pieces = [chunk for chunk in await drain_stream(model) if isinstance(chunk, CallChunk)]
        first = {piece.index: piece for piece in reversed(pieces)}
        assert len(first) == 2
        assert all(piece.name == "weather" and piece.id for piece in first.values())

    async def test_a_call_cut_at_the_length_limit_stops_with_length(self, connecting: AdapterMaker) -> None:
        """An incomplete call must not run."""
        async with connect_adapter(connecting, call("weather", city="Hilo") | {"stop": "length"}) as (model, _):
            assert join_chunks(await drain_stream(model)).stops == ["length"]

    async def test_a_refusal_stops_with_refusal(self, connecting: AdapterMaker) -> None:
        for words in ("I would rather not.", ""):
            async with connect_adapter(connecting, say(words, stop="refusal")) as (model, _):
                assert join_chunks(await drain_stream(model)).stops == ["refusal"]

    async def test_each_choice_of_tools_is_asked_for(self, connecting: AdapterMaker) -> None:
        """``auto``, ``none``, ``required`` and the name of a tool are four different requests."""
        async with connect_adapter(connecting, say("Yes.")) as (model, provider):
            for choice in ("auto", "none", "required", "weather"):
                await drain_stream(model, msgspec.structs.replace(PROMPT, tool_choice=choice))
        assert len({request.raw for request in provider.requests}) == 4

    async def test_equal_prompts_are_equal_requests(self, connecting: AdapterMaker) -> None:
        """Byte for byte, so that the provider's cache matches them, also from another model object."""
        bodies: set[bytes] = set()
        for _ in range(2):
            copied = msgspec.json.decode(msgspec.json.encode(PROMPT), type=Prompt)
            async with connect_adapter(connecting, FULL_ANSWER) as (model, provider):
                await drain_stream(model)
                await drain_stream(model, copied)
            bodies |= {request.raw for request in provider.requests}
        assert len(bodies) == 1

    async def test_the_whole_conversation_is_sent(self, connecting: AdapterMaker) -> None:
        async with connect_adapter(connecting, say("Yes.")) as (model, provider):
            await drain_stream(model)
        sent = provider.requests[0].raw.decode()
        wanted = ("Be brief.", "Is it raining in Hilo? 🌧", "Let me look.", "weather", "rain", "And tomorrow?")
        assert [words for words in wanted if words not in sent] == []

    async def test_opaque_reasoning_is_sent_back_unchanged(self, connecting: AdapterMaker) -> None:
        """Signatures and encrypted reasoning, each exactly once."""
        async with connect_adapter(connecting, FULL_ANSWER) as (model, provider):
            chunks = await drain_stream(model)
            await drain_stream(model, follow_up_prompt(chunks))
        sent = provider.requests[1].raw.decode()
        secrets = [
            words
            for chunk in chunks
            if isinstance(chunk, ReasoningChunk)
            for words in _strings_in(chunk.opaque)
            if len(words) >= 24  # names of fields and kinds are shorter
        ]
        assert [sent.count(words) for words in secrets] == [1] * len(secrets)

    async def test_errors_are_distinguished_by_type(self, connecting: AdapterMaker) -> None:
        cases: list[tuple[int, str, type[errors.ModelError]]] = [
            (429, "slow down", errors.RateLimited),
            (401, "who are you", errors.AuthenticationFailed),
            (403, "not for you", errors.AuthenticationFailed),
            (400, "prompt is too long: 212345 tokens > 200000 maximum", errors.ContextTooLong),
            (400, "temperature must be at most 2", errors.BadRequest),
            (500, "oops", errors.ModelUnavailable),
            (529, "overloaded", errors.ModelUnavailable),
        ]
        for status, words, kind in cases:
            async with connect_adapter(connecting, fail(status, words)) as (model, _):
                chunks, error = await try_stream(model)
            assert (chunks, type(error)) == ([], kind), status
            assert words in str(error)

    async def test_an_error_in_the_middle_of_a_stream_is_raised(self, connecting: AdapterMaker) -> None:
        """It has the provider's message, and there is no stop chunk."""
        async with connect_adapter(connecting, say("It is") | fail(529, "too many")) as (model, _):
            chunks, error = await try_stream(model)
        assert join_chunks(chunks).text == "It is"
        assert join_chunks(chunks).stops == []
        assert isinstance(error, errors.ModelUnavailable)
        assert "too many" in str(error)

    async def test_a_refused_connection_is_model_unavailable(self, connecting: AdapterMaker) -> None:
        async with FakeProvider(say("Hi.")) as provider:
            pass
        model = connecting(provider.url, "some-model")
        chunks, error = await try_stream(model)
        assert (chunks, type(error)) == ([], errors.ModelUnavailable)
        if isinstance(model, Closeable):
            await model.close()

    async def test_a_stream_cut_after_any_event_raises_stream_cut(self, connecting: AdapterMaker) -> None:
        """A body that is complete for HTTP but not for the wire format may be retried."""
        async with connect_adapter(connecting, FULL_ANSWER) as (model, provider):
            await drain_stream(model)
        events = render_events(FULL_ANSWER, provider.requests[0])
        for count in range(len(events)):
            fault = Fault(cut=sum(map(len, events[:count])))
            async with connect_adapter(connecting, FULL_ANSWER, fault=fault) as (model, _):
                chunks, error = await try_stream(model)
            assert (join_chunks(chunks).stops, type(error)) == ([], errors.StreamCut), count

    async def test_closing_a_stream_early_disconnects(self, connecting: AdapterMaker) -> None:
        answer = {"chunks": ["word "] * 20}
        async with connect_adapter(connecting, answer) as (model, provider):
            await drain_stream(model)
            events = render_events(answer, provider.requests[0])
        size = sum(map(len, events[: len(events) // 2]))
        async with connect_adapter(connecting, answer, fault=Fault(stall_after=size)) as (model, provider):
            async with aclosing(model.stream(PROMPT)) as chunks:
                await anext(chunks)
                assert provider.abandoned_count == 0
            await provider.wait_until(lambda seen: seen.abandoned_count == 1)


def _strings_in(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    items = cast("list[Any]", value)
    if isinstance(value, dict):
        items = list(cast("dict[str, Any]", value).values())
    return [word for item in items for word in _strings_in(item)] if isinstance(value, dict | list) else []
