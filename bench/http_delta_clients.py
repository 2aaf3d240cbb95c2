"""The clients that read the same stream, each in its own process.

``python -m bench.http_delta_clients NAME URL WORDS REPEATS`` prints the CPU microseconds of one delta in each of
``MODES``, of each repeat, as JSON."""

import asyncio
import json
import sys
import time
import warnings
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import msgspec

from bench.http_delta_server import WORD

ReadStream = Callable[[str], Awaitable[int]]
"""Requests an address and returns the number of characters received."""
SHORT_ANSWER_WORDS = 20
MODES = ("b1", "b1-fast", "b20")
"""One event in a segment with pauses; the same without pauses; twenty events in a segment."""


@asynccontextmanager
async def open_adapter(wire: str, url: str, *, use_aiohttp: bool = True) -> AsyncGenerator[Any]:
    """Yield vaka's adapter for a wire API, with the connections of a server, or those of the command line."""
    from vaka.models.transport.aiohttp_transport import AiohttpTransport
    from vaka.models.transport.pool import ConnectionPool

    http = ConnectionPool(direct=AiohttpTransport if use_aiohttp else None)
    model = _make_adapter(wire, url, http)
    try:
        yield model
    finally:
        await model.close()
        await http.close()


def _make_adapter(wire: str, url: str, http: Any) -> Any:
    from vaka.models.transport.client import Account

    prefix = "/v1beta" if wire == "gemini" else "/v1"
    account = Account(base_url=url + prefix, key="k")
    if wire == "chat":
        from vaka.models.openai_chat.model import OpenAIChat

        return OpenAIChat("m", account, http=http)
    if wire == "responses":
        from vaka.models.openai_responses.model import OpenAIResponses

        return OpenAIResponses("m", account, http=http)
    if wire == "anthropic":
        from vaka.models.anthropic.model import Anthropic

        return Anthropic("m", account, http=http)
    from vaka.models.gemini.model import Gemini

    return Gemini("m", account, http=http)


def read_through_runtime(wire: str, *, use_aiohttp: bool = True) -> ReadStream:
    """vaka, from the socket to one follower of the session."""

    async def read(url: str) -> int:
        import vaka
        from vaka.core.types.progress import MessageSnapshot, TextDelta

        seen = 0
        async with open_adapter(wire, url, use_aiohttp=use_aiohttp) as model, vaka.Runtime() as runtime:
            session = await runtime.open(vaka.Agent("talker", model=model))
            async for event in session.stream("hi"):
                if isinstance(event.data, TextDelta):
                    seen += len(event.data.text)
                elif isinstance(event.data, MessageSnapshot):
                    seen = len(event.data.text)
        return seen

    return read


def read_with_adapter(wire: str) -> ReadStream:
    """vaka, from the socket to chunks."""

    async def read(url: str) -> int:
        from vaka.core.ports.model import Prompt, TextChunk
        from vaka.core.types.message import Text, UserMessage

        seen = 0
        prompt = Prompt(messages=(UserMessage(content=(Text(text="hi"),)),))
        async with open_adapter(wire, url) as model:
            async for chunk in model.stream(prompt):
                if isinstance(chunk, TextChunk):
                    seen += len(chunk.text)
        return seen

    return read


class _Delta(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    delta: _Delta


class _Chunk(msgspec.Struct):
    choices: list[_Choice]


class _Piece(msgspec.Struct):
    text: str = ""


class _Event(msgspec.Struct):
    type: str
    delta: _Piece | None = None


class _ResponseEvent(msgspec.Struct):
    type: str
    delta: str = ""


class _Content(msgspec.Struct):
    parts: list[_Piece] = []


class _Candidate(msgspec.Struct):
    content: _Content


class _Answer(msgspec.Struct):
    candidates: list[_Candidate]


_KINDS: dict[str, tuple[str, Any, Callable[[Any], str | None]]] = {
    "chat": ("/v1/chat/completions", _Chunk, lambda got: got.choices[0].delta.content if got.choices else None),
    "responses": ("/v1/responses", _ResponseEvent, lambda got: got.delta if got.type.endswith("text.delta") else None),
    "anthropic": ("/v1/messages", _Event, lambda got: got.delta.text if got.delta else None),
    "gemini": (
        "/v1beta/models/m:streamGenerateContent?alt=sse",
        _Answer,
        lambda got: got.candidates[0].content.parts[0].text,
    ),
}


def read_with_httpx(wire: str) -> ReadStream:
    """httpx2 and msgspec only: no limits, errors, end marker or follower."""
    path, kind, text_of = _KINDS[wire]
    decode = msgspec.json.Decoder(kind).decode

    async def events(url: str) -> AsyncGenerator[bytes]:
        rest = b""
        async with (
            httpx2.AsyncClient() as client,
            client.stream("POST", url + path, json={"model": "m", "stream": True}) as response,
        ):
            async for data in response.aiter_bytes():
                *whole, rest = (rest + data).split(b"\n\n")
                for event in whole:
                    yield event[event.index(b"data: ") + 6 :]

    async def read(url: str) -> int:
        seen = 0
        async for data in events(url):
            if data != b"[DONE]":
                seen += len(text_of(decode(data)) or "")
        return seen

    return read


class _Sink(asyncio.Protocol):
    """Receives data and discards it."""

    def __init__(self) -> None:
        self.end: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        if data.endswith(b"0\r\n\r\n"):
            self.end.set_result(None)


async def receive_only(url: str) -> int:
    """Receive the segments with asyncio, without parsing them."""
    host, _, path = url.removeprefix("http://").partition("/")
    name, _, port = host.partition(":")
    transport, sink = await asyncio.get_running_loop().create_connection(_Sink, name, int(port))
    transport.write(f"POST /{path}/v1/chat/completions HTTP/1.1\r\ncontent-length: 0\r\n\r\n".encode())
    await sink.end
    transport.close()
    return int(path.removeprefix("w").partition("-")[0]) * len(WORD)


async def read_openai_chat(url: str) -> int:
    """OpenAI's client, Chat Completions."""
    from openai import AsyncOpenAI

    seen = 0
    async with AsyncOpenAI(api_key="k", base_url=url + "/v1") as client:
        said = await client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "hi"}], stream=True
        )
        async for chunk in said:
            if chunk.choices and chunk.choices[0].delta.content:
                seen += len(chunk.choices[0].delta.content)
    return seen


async def read_openai_responses(url: str) -> int:
    """OpenAI's client, Responses."""
    from openai import AsyncOpenAI

    seen = 0
    async with AsyncOpenAI(api_key="k", base_url=url + "/v1") as client:
        async for event in await client.responses.create(model="m", input="hi", stream=True):
            if event.type == "response.output_text.delta":
                seen += len(event.delta)
    return seen


async def read_anthropic_create(url: str) -> int:
    """Anthropic's client with its cheapest interface, the raw events."""
    from anthropic import AsyncAnthropic

    seen = 0
    async with AsyncAnthropic(api_key="k", base_url=url) as client:
        said = await client.messages.create(
            model="m", max_tokens=10, messages=[{"role": "user", "content": "hi"}], stream=True
        )
        async for event in said:
            if event.type == "content_block_delta" and event.delta.type == "text_delta":
                seen += len(event.delta.text)
    return seen


async def read_anthropic_stream(url: str) -> int:
    """Anthropic's client as in its documentation."""
    from anthropic import AsyncAnthropic

    seen = 0
    async with (
        AsyncAnthropic(api_key="k", base_url=url) as client,
        client.messages.stream(model="m", max_tokens=10, messages=[{"role": "user", "content": "hi"}]) as said,
    ):
        async for text in said.text_stream:
            seen += len(text)
    return seen


async def read_google_genai(url: str) -> int:
    """Google's client."""
    from google import genai
    from google.genai.types import HttpOptions

    seen = 0
    client = genai.Client(api_key="k", http_options=HttpOptions(base_url=url))
    async for chunk in await client.aio.models.generate_content_stream(model="m", contents="hi"):
        seen += len(chunk.text or "")
    await client.aio.aclose()
    client.close()
    return seen


WIRES = ("chat", "responses", "anthropic", "gemini")
CLIENTS: dict[str, ReadStream] = {
    **{f"ours {wire}": read_through_runtime(wire) for wire in WIRES},
    **{f"httpx2 {wire}": read_through_runtime(wire, use_aiohttp=False) for wire in WIRES},
    **{f"alone {wire}": read_with_adapter(wire) for wire in WIRES},
    **{f"bare {wire}": read_with_httpx(wire) for wire in WIRES},
    "nothing": receive_only,
    "openai chat": read_openai_chat,
    "openai responses": read_openai_responses,
    "anthropic create": read_anthropic_create,
    "anthropic stream": read_anthropic_stream,
    "google-genai": read_google_genai,
}


def measure_cost(read: ReadStream, url: str, words: int, mode: str) -> float:
    """Return the CPU microseconds of one delta: the difference between a long and a short answer."""

    def once(count: int) -> float:
        begun = time.process_time()
        seen = asyncio.run(_count_characters(read, f"{url}/w{count}-{mode}"))
        taken = time.process_time() - begun
        assert seen == count * len(WORD), f"{seen} characters of {count * len(WORD)}"
        return taken

    once(SHORT_ANSWER_WORDS)
    return (once(words) - once(SHORT_ANSWER_WORDS)) / (words - SHORT_ANSWER_WORDS) * 1e6


async def _count_characters(read: ReadStream, url: str) -> int:
    return await read(url)


def main(name: str, url: str, words: str, repeats: str) -> None:
    """Measure one client."""
    warnings.simplefilter("ignore")  # of the vendors' clients
    read = CLIENTS[name]
    measure_cost(read, url, 500, "b1")
    found = {mode: [measure_cost(read, url, int(words), mode) for _ in range(int(repeats))] for mode in MODES}
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
