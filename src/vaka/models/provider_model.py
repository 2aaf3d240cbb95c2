"""What the models behind a provider's API share: adapt the history, send the request, decode the event stream."""

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import aclosing
from typing import Any, NamedTuple, Protocol

from vaka.core.ports.model import Chunk, Prompt
from vaka.models.compatibility import HistoryAdapter, Media
from vaka.models.transport.client import Account, ConnectionPool, ProviderClient


class StreamDecoder(Protocol):
    """Events of one answer go in, chunks come out; ``done`` after the event that ends an answer."""

    done: bool

    def feed(self, data: bytes, name: str = ...) -> Iterable[Chunk]: ...
    def end(self) -> Iterable[Chunk]: ...


class HttpRequestParts(NamedTuple):
    """The body and headers to send, and the decoder of the answer."""

    body: dict[str, Any]
    headers: Mapping[str, str]
    decoder: StreamDecoder


class ProviderModel:
    """A model behind HTTP. A subclass writes the request for a prompt."""

    def __init__(
        self, name: str, account: Account, path: str, *, headers: Mapping[str, str], http: ConnectionPool | None,
        check_part: Callable[[Media], object],
    ) -> None:  # fmt: skip
        self.name = name
        self._path = path
        self._history = HistoryAdapter(name, account.base_url, check_part)
        self._client = ProviderClient(account, headers, http)

    def _write_request(self, prompt: Prompt) -> HttpRequestParts:
        raise NotImplementedError

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Chunk]:
        """Answer ``prompt``. Raises ``ModelError``: ``BadRequest`` before anything is sent for an invalid prompt."""
        prompt, notices = self._history.adapt(prompt)
        for notice in notices:
            yield notice
        body, headers, decoder = self._write_request(prompt)
        with self._client.redact_errors(headers):
            async with aclosing(self._client.stream_events(self._path, body, headers=headers)) as events:
                async for event in events:
                    for chunk in decoder.feed(event.data, event.event):
                        yield self._history.tag_origin(chunk)
                    if decoder.done:
                        return
            for chunk in decoder.end():
                yield self._history.tag_origin(chunk)

    async def close(self) -> None:
        """Close the connections, unless they are shared."""
        await self._client.close()
