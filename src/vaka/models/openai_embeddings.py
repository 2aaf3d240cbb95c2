"""Embeddings from a provider with an OpenAI-compatible /embeddings."""

import asyncio
import base64
import binascii
import math
import sys
from array import array
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any, Literal

import msgspec

from vaka.core.ports.env import Clock
from vaka.core.types.errors import ModelUnavailable, StreamCut
from vaka.core.types.message import Usage
from vaka.core.types.tokens import estimate_text_tokens
from vaka.models.compatibility import DECODE_ERRORS, count_of
from vaka.models.embedders import check_texts, split_batches
from vaka.models.transport import errors
from vaka.models.transport.client import Account, ProviderClient
from vaka.models.transport.pool import ConnectionPool

FIRST_RETRY_SECONDS = 0.5
"""Seconds before the second attempt; the delay doubles with each further one."""
MAX_RETRY_AFTER = 60.0
"""The longest ``retry_after`` of a provider that is waited for, in seconds."""

_Positive = Annotated[int, msgspec.Meta(ge=1)]


class EmbeddingOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of requests for vectors, and the size of batches."""

    dimensions: _Positive | None = None
    """The length of vectors, for models that support several."""
    encoding: Literal["base64", "float"] | None = "base64"
    """The requested encoding of vectors; ``None`` for servers without the field. Both are decoded."""
    batch_count: _Positive = 256
    batch_bytes: _Positive = 300_000
    """Below OpenAI's limit of tokens per request: a text has at most as many tokens as bytes."""
    attempts: _Positive = 3
    extra: dict[str, Any] = {}
    """Fields of one provider, added to each request unchanged."""


def to_request(model: str, texts: Sequence[str], facts: EmbeddingOptions = EmbeddingOptions()) -> dict[str, Any]:
    """Return the body of a request; an empty text, which providers refuse, is sent as a space."""
    body: dict[str, Any] = {"model": model, "input": [text or " " for text in texts]}
    if facts.encoding is not None:
        body["encoding_format"] = facts.encoding
    if facts.dimensions is not None:
        body["dimensions"] = facts.dimensions
    return body | facts.extra


class _Vector(msgspec.Struct):
    embedding: list[float] | str
    index: int | None = None


class _Answer(msgspec.Struct):
    data: list[_Vector] | None = None
    error: Any = None
    usage: Any = None


_ANSWER_DECODER = msgspec.json.Decoder(_Answer)


def parse_vectors(body: bytes, count: int, dimensions: int | None = None) -> list[list[float]]:
    """Return the ``count`` vectors of an answer, in the order of the texts. Raises ``ModelError`` otherwise."""
    return _vectors_of(_decode_answer(body), count, dimensions)


def _decode_answer(body: bytes) -> _Answer:
    try:
        return _ANSWER_DECODER.decode(body)
    except DECODE_ERRORS as error:
        raise StreamCut(f"expected vectors, got an answer that cannot be decoded: {error}") from error


def _vectors_of(answer: _Answer, count: int, dimensions: int | None) -> list[list[float]]:
    if answer.data is None:
        missing = StreamCut("expected vectors, got an answer without any")
        raise errors.error_from_event(answer.error) if answer.error else missing
    vectors = [_decode_vector(vector.embedding) for vector in _sort_by_index(answer.data, count)]
    length = dimensions or len(vectors[0])
    if any(len(vector) != length for vector in vectors):
        raise StreamCut(f"expected vectors of {length} numbers, got {sorted({len(vector) for vector in vectors})}")
    return vectors


def _sort_by_index(data: list[_Vector], count: int) -> list[_Vector]:
    if len(data) != count:
        raise StreamCut(f"expected {count} vectors, got {len(data)}")
    if all(vector.index is None for vector in data):
        return data
    places = {vector.index: vector for vector in data}
    try:
        return [places[index] for index in range(count)]
    except KeyError as error:
        raise StreamCut(f"expected a vector for each of {count} texts, got none for text {error}") from None


def _decode_vector(embedding: list[float] | str) -> list[float]:
    if isinstance(embedding, str):
        packed = array("f")
        try:
            packed.frombytes(base64.b64decode(embedding, validate=True))
        except (binascii.Error, ValueError) as error:
            raise StreamCut(f"expected a vector in base64: {error}") from error
        if sys.byteorder == "big":
            packed.byteswap()
        embedding = packed.tolist()
    if not embedding or not all(map(math.isfinite, embedding)):
        raise StreamCut("expected a vector of finite numbers, got an empty vector or a number that is not finite")
    return embedding


def _usage_of(answer: _Answer, batch: Sequence[str]) -> Usage:
    """Return the usage of a request as the provider counted it, else an estimate."""
    tokens = count_of(answer.usage, "prompt_tokens") or count_of(answer.usage, "total_tokens")
    return Usage(input=tokens) if tokens else _estimate_usage(batch)


def _estimate_usage(batch: Sequence[str]) -> Usage:
    return Usage(input=estimate_text_tokens(sum(map(len, batch))))


class OpenAIEmbedder:
    """A model behind ``/embeddings``; an unavailable one is called again, after a delay of ``clock``.

    ``record`` is called with the usage of each request.
    """

    def __init__(
        self,
        model: str,
        account: Account,
        *,
        http: ConnectionPool | None = None,
        name: str = "",
        facts: EmbeddingOptions = EmbeddingOptions(),
        clock: Clock | None = None,
        record: Callable[[Usage], None] | None = None,
    ) -> None:
        self.name = name or f"openai/{model}"
        self.allow: Callable[[Usage], Awaitable[None]] | None = None
        """Called with the estimated usage before each request is sent; may raise."""
        self._model = model
        self._facts = facts
        self._record = record
        self._sleep = clock.sleep if clock else asyncio.sleep
        self._client = ProviderClient(account, {"authorization": f"Bearer {account.key}"} if account.key else {}, http)

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return one vector for each text, in order. Raises ``ModelError``, or ``InvalidInput`` for other values."""
        vectors: list[list[float]] = []
        for batch in split_batches(check_texts(texts), count=self._facts.batch_count, size=self._facts.batch_bytes):
            vectors += await self._embed_with_retries(batch)
            if len(vectors[-1]) != len(vectors[0]):
                raise StreamCut(f"{self.name} gave vectors of {len(vectors[0])} and of {len(vectors[-1])} numbers")
        return vectors

    async def close(self) -> None:
        """Close the connections, unless they are shared."""
        await self._client.close()

    async def _embed_with_retries(self, batch: list[str]) -> list[list[float]]:
        for attempt in range(1, self._facts.attempts):
            try:
                return await self._embed_once(batch)
            except ModelUnavailable as error:
                wait = FIRST_RETRY_SECONDS * 2 ** (attempt - 1) if error.retry_after is None else error.retry_after
                if wait > MAX_RETRY_AFTER:
                    raise
            await self._sleep(wait)
        return await self._embed_once(batch)

    async def _embed_once(self, batch: list[str]) -> list[list[float]]:
        if self.allow is not None:
            await self.allow(_estimate_usage(batch))
        body = await self._client.post("embeddings", to_request(self._model, batch, self._facts))
        answer = _decode_answer(body)
        if self._record is not None and answer.data is not None:
            self._record(_usage_of(answer, batch))
        return _vectors_of(answer, len(batch), self._facts.dimensions)
