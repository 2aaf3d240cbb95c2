"""All four adapters before a provider that does its worst; what they heard, and what an agent made of it."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from functools import cache
from typing import Any

import httpx2
import msgspec
import pytest

import vaka
from vaka.core.ports.model import Chunk, Closes, Model, Prompt
from vaka.core.types import progress
from vaka.core.types.errors import ModelError
from vaka.core.types.event import Event
from vaka.core.types.tool import ToolSpec
from vaka.models.anthropic import Anthropic
from vaka.models.gemini import Gemini
from vaka.models.http import Account, Http
from vaka.models.openai_chat import OpenAIChat
from vaka.models.openai_responses import OpenAIResponses
from vaka.models.sse import Limits
from vaka.testing.adapters import attempt
from vaka.testing.models import PROMPT, Answer, call, calls, say
from vaka.testing.provider import Fault, Provider, Request, rendered

KEY = "sk-hostile-0123456789abcdef"
ADAPTERS: dict[str, Callable[[str, Account, Http | None], Model]] = {
    "chat": lambda model, account, http: OpenAIChat(model, account, http=http),
    "responses": lambda model, account, http: OpenAIResponses(model, account, http=http),
    "anthropic": lambda model, account, http: Anthropic(model, account, http=http),
    "gemini": lambda model, account, http: Gemini(model, account, http=http),
}
WIRES = pytest.mark.parametrize("wire", ADAPTERS)
PREFIX = {"gemini": "/v1beta"}

ANSWER = calls(
    call("note", words="the trade winds are back 🌺"), call("note", words="it rains in Hilo, not in Kona"),
    text="Let me write that down.", reasoning="They want two notes.",
)  # fmt: skip
"""What is said, unless a test says otherwise: everything that can go wrong is in it."""
PARAMETERS = {
    "type": "object", "properties": {"words": {"type": "string"}}, "required": ["words"], "additionalProperties": False,
}  # fmt: skip
ASKED: Prompt = msgspec.structs.replace(PROMPT, tools=(*PROMPT.tools, ToolSpec(name="note", parameters=PARAMETERS)))


def adapter(
    wire: str, url: str, *, limits: Limits = Limits(), http: Http | None = None, model: str = "some-model"
) -> Model:
    """Return the adapter for a wire, connected to a provider."""
    account = Account(base_url=url + PREFIX.get(wire, "/v1"), key=KEY, limits=limits)
    return ADAPTERS[wire](model, account, http)


Heard = tuple[list[Chunk], ModelError | None]


async def ask(
    wire: str, *faults: Fault | None, answer: Answer = ANSWER, limits: Limits = Limits()
) -> AsyncGenerator[Heard]:
    """Ask once for each fault, and yield what came."""
    async with Provider(answer, fault=faults) as provider:
        model = adapter(wire, provider.url, limits=limits)
        try:
            for _ in faults:
                yield await attempt(model, ASKED)
        finally:
            await close(model)


async def ask_once(
    wire: str, fault: Fault | None = None, *, answer: Answer = ANSWER, limits: Limits = Limits()
) -> Heard:
    """Ask, and return what came."""
    async with aclosing(ask(wire, fault, answer=answer, limits=limits)) as heard:
        return await anext(heard)


async def close(model: Model) -> None:
    """Let a model go."""
    if isinstance(model, Closes):
        await model.close()


def events(wire: str, answer: Answer = ANSWER) -> list[bytes]:
    """Return the events of an answer, as the provider sends them when ``ask`` asks."""
    return rendered(answer, _asked(wire))


def body(wire: str, answer: Answer = ANSWER) -> bytes:
    """Return all bytes of an answer to ``ask``."""
    return b"".join(events(wire, answer))


def size_alive(wire: str) -> int:
    """Return how many bytes the answer to an agent in ``live`` has."""
    return sum(map(len, rendered(ANSWER, _asked_alive(wire))))


@cache
def _asked(wire: str) -> Request:
    async def once() -> Request:
        async with Provider(say("Hi.")) as provider:
            model = adapter(wire, provider.url)
            await attempt(model, ASKED)
            await close(model)
        return provider.requests[0]

    return _apart(once())


@cache
def _asked_alive(wire: str) -> Request:
    async def once() -> Request:
        async with aclosing(live(wire, None)) as lives:
            return (await anext(lives)).asked

    return _apart(once())


def _apart(work: Coroutine[Any, Any, Request]) -> Request:
    """Run something in a thread, since the test may have a loop of its own."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


class _Pieces(httpx2.AsyncByteStream):
    def __init__(self, pieces: Sequence[bytes]) -> None:
        self._pieces = pieces

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            yield piece


class _Network(httpx2.AsyncBaseTransport):
    pieces: Sequence[bytes] = ()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, stream=_Pieces(self.pieces))


class Ear:
    """An adapter that hears the bytes it is given, in those pieces; for when a socket for each is too slow."""

    def __init__(self, wire: str) -> None:
        self._runner = asyncio.Runner()
        self._network = _Network()
        self._http = Http(self._network)
        self._model = adapter(wire, "http://127.0.0.1:9", http=self._http)

    def __enter__(self) -> "Ear":
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.run(self._http.close())
        self._runner.close()

    def hear(self, *pieces: bytes) -> Heard:
        """Return what the adapter made of it."""
        self._network.pieces = pieces
        return self._runner.run(attempt(self._model, ASKED))


def hear_bytes(wire: str, *pieces: bytes) -> Heard:
    """Return what an adapter hears when these bytes come in these pieces."""
    with Ear(wire) as ear:
        return ear.hear(*pieces)


class Lived(msgspec.Struct, frozen=True):
    """What an agent made of an answer."""

    events: list[Event]
    noted: list[str]
    """What the tool was given, each time it ran."""
    asked: Request

    @property
    def completed(self) -> list[progress.MessageCompleted]:
        """The messages that count as whole."""
        bodies = [event.data for event in self.events]
        return [body for body in bodies if isinstance(body, progress.MessageCompleted) and not body.cut]

    @property
    def types(self) -> set[str]:
        """The types of the events that are kept."""
        return {event.type for event in self.events if event.seq}


async def live(wire: str, *faults: Fault | None, answer: Answer = ANSWER) -> AsyncGenerator[Lived]:
    """Let an agent with a tool that writes down meet each fault once, in a session of its own."""
    noted: list[str] = []

    @vaka.tool(effect="read")
    async def note(words: str) -> str:
        """Write something down."""
        noted.append(words)
        return "written"

    meeting: list[Fault | None] = []
    answers: list[Answer] = []
    async with Provider(lambda _: answers.pop(0), fault=meeting) as provider, vaka.Runtime() as runtime:
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
                yield Lived(happened, list(noted), provider.requests[first])
        finally:
            await close(model)
