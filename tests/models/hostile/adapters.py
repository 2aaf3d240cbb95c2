"""All four adapters against a faulty provider: the chunks or error they return, and the events of an agent run."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary

import httpx2
import msgspec
import pytest
import uvloop

import vaka
from vaka.core.ports.model import Chunk, Closeable, Model, Prompt
from vaka.core.types import progress
from vaka.core.types.errors import ModelError
from vaka.core.types.event import Event
from vaka.core.types.tool import ToolSpec
from vaka.models.anthropic.model import Anthropic
from vaka.models.gemini.model import Gemini
from vaka.models.openai_chat.model import OpenAIChat
from vaka.models.openai_responses.model import OpenAIResponses
from vaka.models.transport.aiohttp_transport import AiohttpTransport
from vaka.models.transport.client import Account
from vaka.models.transport.pool import ConnectionPool
from vaka.models.transport.sse import StreamLimits
from vaka.testing.fake_provider import FakeProvider, Fault, ProviderRequest, render_events
from vaka.testing.models import PROMPT, ScriptLine, call, calls, say, try_stream

KEY = "sk-hostile-0123456789abcdef"
ADAPTERS: dict[str, Callable[[str, Account, ConnectionPool | None], Model]] = {
    "chat": lambda model, account, http: OpenAIChat(model, account, http=http),
    "responses": lambda model, account, http: OpenAIResponses(model, account, http=http),
    "anthropic": lambda model, account, http: Anthropic(model, account, http=http),
    "gemini": lambda model, account, http: Gemini(model, account, http=http),
}
WIRES = pytest.mark.parametrize("wire", ADAPTERS)
PREFIX = {"gemini": "/v1beta"}

ANSWER = calls(
    call("note", words="the trade winds are back 🌺"),
    call("note", words="it rains in Hilo, not in Kona"),
    text="Let me write that down.",
    reasoning="They want two notes.",
)
"""What is said, unless a test says otherwise: everything that can go wrong is in it."""
PARAMETERS = {
    "type": "object",
    "properties": {"words": {"type": "string"}},
    "required": ["words"],
    "additionalProperties": False,
}
PROMPT_WITH_NOTE: Prompt = msgspec.structs.replace(
    PROMPT, tools=(*PROMPT.tools, ToolSpec(name="note", parameters=PARAMETERS))
)


def adapter(
    wire: str,
    url: str,
    *,
    limits: StreamLimits = StreamLimits(),
    http: ConnectionPool | None = None,
    model: str = "some-model",
) -> Model:
    """Return the adapter for a wire, connected to a provider: on uvloop through aiohttp, as in a server."""
    account = Account(base_url=url + PREFIX.get(wire, "/v1"), key=KEY, limits=limits)
    if http is not None or not _runs_on_uvloop():
        return ADAPTERS[wire](model, account, http)
    pool = ConnectionPool(direct=AiohttpTransport)
    made = ADAPTERS[wire](model, account, pool)
    _POOLS[made] = pool
    return made


def _runs_on_uvloop() -> bool:
    try:
        return isinstance(asyncio.get_running_loop(), uvloop.Loop)
    except RuntimeError:
        return False


_POOLS: WeakKeyDictionary[Model, ConnectionPool] = WeakKeyDictionary()
"""The pools of adapters that do not own one."""


Outcome = tuple[list[Chunk], ModelError | None]


async def ask_each(
    wire: str, *faults: Fault | None, answer: ScriptLine = ANSWER, limits: StreamLimits = StreamLimits()
) -> AsyncGenerator[Outcome]:
    """Ask once for each fault, and yield what came."""
    async with FakeProvider(answer, fault=faults) as provider:
        model = adapter(wire, provider.url, limits=limits)
        try:
            for _ in faults:
                yield await try_stream(model, PROMPT_WITH_NOTE)
        finally:
            await close_model(model)


async def ask_once(
    wire: str, fault: Fault | None = None, *, answer: ScriptLine = ANSWER, limits: StreamLimits = StreamLimits()
) -> Outcome:
    """Ask, and return what came."""
    async with aclosing(ask_each(wire, fault, answer=answer, limits=limits)) as heard:
        return await anext(heard)


async def close_model(model: Model) -> None:
    """Let a model go."""
    if isinstance(model, Closeable):
        await model.close()
    pool = _POOLS.pop(model, None)
    if pool is not None:
        await pool.close()


def answer_events(wire: str, answer: ScriptLine = ANSWER) -> list[bytes]:
    """Return the events of an answer, as the provider sends them when ``ask`` asks."""
    return render_events(answer, _request_of(wire))


def answer_body(wire: str, answer: ScriptLine = ANSWER) -> bytes:
    """Return all bytes of an answer to ``ask``."""
    return b"".join(answer_events(wire, answer))


def agent_answer_size(wire: str) -> int:
    """Return how many bytes the answer to an agent in ``live`` has."""
    return sum(map(len, render_events(ANSWER, _agent_request_of(wire))))


@cache
def _request_of(wire: str) -> ProviderRequest:
    async def request_once() -> ProviderRequest:
        async with FakeProvider(say("Hi.")) as provider:
            model = adapter(wire, provider.url)
            await try_stream(model, PROMPT_WITH_NOTE)
            await close_model(model)
        return provider.requests[0]

    return _run_in_thread(request_once())


@cache
def _agent_request_of(wire: str) -> ProviderRequest:
    async def request_once() -> ProviderRequest:
        async with aclosing(run_agent(wire, None)) as lives:
            return (await anext(lives)).request

    return _run_in_thread(request_once())


def _run_in_thread(work: Coroutine[Any, Any, ProviderRequest]) -> ProviderRequest:
    """Run something in a thread, since the test may have a loop of its own."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


class _ByteStream(httpx2.AsyncByteStream):
    def __init__(self, pieces: Sequence[bytes]) -> None:
        self._pieces = pieces

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            yield piece


class _InMemoryTransport(httpx2.AsyncBaseTransport):
    pieces: Sequence[bytes] = ()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, stream=_ByteStream(self.pieces))


class InMemoryAdapter:
    """An adapter that hears the bytes it is given, in those pieces; for when a socket for each is too slow."""

    def __init__(self, wire: str) -> None:
        self._runner = asyncio.Runner()
        self._network = _InMemoryTransport()
        self._http = ConnectionPool(self._network)
        self._model = adapter(wire, "http://127.0.0.1:9", http=self._http)

    def __enter__(self) -> "InMemoryAdapter":
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.run(self._http.close())
        self._runner.close()

    def feed(self, *pieces: bytes) -> Outcome:
        """Return what the adapter made of it."""
        self._network.pieces = pieces
        return self._runner.run(try_stream(self._model, PROMPT_WITH_NOTE))


def feed_bytes(wire: str, *pieces: bytes) -> Outcome:
    """Return what an adapter hears when these bytes come in these pieces."""
    with InMemoryAdapter(wire) as ear:
        return ear.feed(*pieces)


class AgentRun(msgspec.Struct, frozen=True):
    """What an agent made of an answer."""

    events: list[Event]
    notes: list[str]
    """What the tool was given, each time it ran."""
    request: ProviderRequest

    @property
    def completed(self) -> list[progress.MessageCompleted]:
        """The messages that count as whole."""
        bodies = [event.data for event in self.events]
        return [body for body in bodies if isinstance(body, progress.MessageCompleted) and not body.cut]

    @property
    def types(self) -> set[str]:
        """The types of the events that are kept."""
        return {event.type for event in self.events if event.seq}


async def run_agent(wire: str, *faults: Fault | None, answer: ScriptLine = ANSWER) -> AsyncGenerator[AgentRun]:
    """Let an agent with a tool that writes down meet each fault once, in a session of its own."""
    noted: list[str] = []

    @vaka.tool(effect="read")
    async def note(words: str) -> str:
        """Write something down."""
        noted.append(words)
        return "written"

    meeting: list[Fault | None] = []
    answers: list[ScriptLine] = []
    async with FakeProvider(lambda _: answers.pop(0), fault=meeting) as provider, vaka.Runtime() as runtime:
        model = adapter(wire, provider.url)
        try:
            for fault in faults:
                noted.clear()
                answers[:] = [answer, say("Done.")]
                first = len(provider.requests)
                meeting.extend([None] * (first - len(meeting)))
                meeting.append(fault)
                session = await runtime.open(vaka.Agent("writer", model=model, tools=[note]))
                async with aclosing(session.stream("Go.")) as stream:
                    happened = [event async for event in stream]
                yield AgentRun(happened, list(noted), provider.requests[first])
        finally:
            await close_model(model)
