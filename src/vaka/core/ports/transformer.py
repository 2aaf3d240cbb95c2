"""The transformer port: turns one stream of content into another."""

from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Protocol, TypeAlias

import msgspec

from vaka.core.types.ids import JSON
from vaka.core.types.message import Part


class StreamChunk(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of a stream: content, a mark of its begin or end, or content with a mark."""

    part: Part | None = None
    stream: str = ""
    """The id of its stream; chunks of several streams may arrive interleaved."""
    begin: bool = False
    end: bool = False


class Transformer(Protocol):
    """Turns a stream into another one.

    The end of ``chunks`` ends the result: what was held back is yielded first, and no ``end`` is added. A chunk with
    ``end`` makes the transformer yield what it holds back of that stream, and is passed on. Content that it does not
    handle is passed on as it is. An error of ``chunks`` is raised to the reader of the result. Closing the result
    stops all work; the owner of ``chunks`` closes them.
    """

    def transform(self, chunks: AsyncGenerator[StreamChunk]) -> AsyncGenerator[StreamChunk]:
        """Yield the transformed stream."""
        ...


TransformerFactory: TypeAlias = Callable[[Mapping[str, JSON]], Transformer]
"""Makes a transformer from the configuration that a script gives; raises ``InvalidInput`` for a wrong one."""
