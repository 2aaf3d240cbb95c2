"""The model port: prompts, chunks of an answer, cost estimates and embeddings."""

from collections.abc import AsyncGenerator, Sequence
from typing import Any, Protocol, TypeAlias, runtime_checkable

import msgspec

from vaka.core.types.ids import JSON, AgentPath
from vaka.core.types.message import Citation, Message, Usage
from vaka.core.types.monitor import Notice
from vaka.core.types.tool import ToolChoice, ToolSpec


class Prompt(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a model sees for one call."""

    messages: tuple[Message, ...]
    system: str = ""
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: ToolChoice = "auto"
    options: dict[str, Any] = {}
    """Model options, named as in the models guide."""
    agent: str = ""
    path: AgentPath = ()
    number: int = 1
    """The number of the model call among the calls of its agent, on the live branch of the session."""
    session: str = ""
    """The session; providers may use it as the key of a prompt cache."""


class TextChunk(msgspec.Struct, frozen=True, gc=False):
    """A piece of the text of the answer."""

    text: str


class ReasoningChunk(msgspec.Struct, frozen=True, gc=False):
    """A piece of reasoning; ``signature`` and ``opaque`` end a block and are stored unchanged."""

    text: str = ""
    signature: str = ""
    opaque: JSON = None


class CitationChunk(msgspec.Struct, frozen=True, gc=False):
    """The source of the text before it."""

    citation: Citation


class CallChunk(msgspec.Struct, frozen=True, gc=False):
    """A piece of a tool call; pieces of one call share an ``index``, and their ``arguments`` join to JSON text."""

    index: int
    name: str = ""
    arguments: str = ""
    id: str = ""
    repaired: str = ""
    """The repairs, if the model did not write its arguments as JSON."""


class UsageChunk(msgspec.Struct, frozen=True, gc=False):
    """The usage of the call so far; the last chunk counts."""

    usage: Usage
    model: str = ""
    """The model as the provider names it, which may be a dated version of the called model."""
    miss_price: float = 0.0
    """US dollars that a token of the prompt costs more when it is not read from the provider's cache; 0 if unknown."""
    counted_as: str = ""
    """The name of the model that was called, if a wrapper has chosen it; the usage is counted under this name."""


class RetryChunk(msgspec.Struct, frozen=True, gc=False):
    """Discards the chunks so far, because a wrapper asks again; with the failure."""

    code: str
    message: str
    model: str = ""


class NoticeChunk(msgspec.Struct, frozen=True, gc=False):
    """An event for operators that is added to the log; it is not part of the answer."""

    event: Notice


class StopChunk(msgspec.Struct, frozen=True, gc=False):
    """The end of the answer. ``reason``: ``end``, ``calls``, ``length``, ``refusal`` or the provider's own word."""

    reason: str = "end"


Chunk: TypeAlias = (
    TextChunk | ReasoningChunk | CitationChunk | CallChunk | UsageChunk | RetryChunk | NoticeChunk | StopChunk
)


@runtime_checkable
class Model(Protocol):
    """Something that answers prompts.

    ``stream`` yields the answer in pieces and ends with exactly one ``StopChunk``; a stream without it was cut and
    counts as failed. It raises ``ModelError`` and nothing else, and stops its work when it is closed.
    """

    @property
    def name(self) -> str:
        """The name of the model in logs."""
        ...

    def stream(self, prompt: Prompt) -> AsyncGenerator[Chunk]:
        """Yield the answer to ``prompt``."""
        ...


DEFAULT_CONTEXT_WINDOW = 200_000
"""The tokens of a context window that is not known."""


def context_window_of(model: object) -> int:
    """Return the tokens that a model can read in one call: its attribute ``context_window``, if it has one."""
    window: int | None = getattr(model, "context_window", None)
    return window or DEFAULT_CONTEXT_WINDOW


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """The least cost of a call: its prompt, and the price of each token of its answer."""

    usage: Usage
    output_price: float = 0.0
    """US dollars for one token of the answer."""
    max_tokens: int | None = None
    """The longest answer to a prompt without a limit; ``None`` when unknown."""
    takes: int | None = None
    """The highest limit that a prompt may set, where it is lower than that."""
    unpriced: str = ""
    """Why the price is unknown and what to do about it; the token counts are valid all the same."""


@runtime_checkable
class CostEstimator(Protocol):
    """A model that can estimate the cost of a prompt, so that a budget is enforced before the call."""

    def estimate(self, prompt: Prompt) -> Estimate:
        """Return the estimated cost of ``prompt`` without a request."""
        ...


@runtime_checkable
class Closeable(Protocol):
    """A model that holds connections or processes; its creator closes it."""

    async def close(self) -> None:
        """Release all connections and processes; safe to call twice."""
        ...


class Embedder(Protocol):
    """Turns texts into vectors of one length."""

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return one vector for each text, in order."""
        ...
