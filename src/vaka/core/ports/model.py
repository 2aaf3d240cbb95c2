"""The socket for models."""

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
    """Sampling and the like, in the words of the models guide."""
    agent: str = ""
    path: AgentPath = ()
    number: int = 1
    """Which model call of this agent this is, on the live branch of the session."""
    session: str = ""
    """The session that asks: a name under which providers may keep a cache."""


class TextChunk(msgspec.Struct, frozen=True, gc=False):
    """Some words of the answer."""

    text: str


class ReasoningChunk(msgspec.Struct, frozen=True, gc=False):
    """Some reasoning; ``signature`` and ``opaque`` end a block and are kept word for word."""

    text: str = ""
    signature: str = ""
    opaque: JSON = None


class CitationChunk(msgspec.Struct, frozen=True, gc=False):
    """Where the words just said come from."""

    citation: Citation


class CallChunk(msgspec.Struct, frozen=True, gc=False):
    """Some of a tool call; pieces of one call share an ``index``, ``arguments`` is JSON text in pieces."""

    index: int
    name: str = ""
    arguments: str = ""
    id: str = ""
    repaired: str = ""
    """What was mended on the way here, when the model did not write its arguments as JSON."""


class UsageChunk(msgspec.Struct, frozen=True, gc=False):
    """What the call costs so far; the last one counts."""

    usage: Usage
    model: str = ""


class RetryChunk(msgspec.Struct, frozen=True, gc=False):
    """What came so far does not count: a wrapper asks again. Says what failed."""

    code: str
    message: str
    model: str = ""


class NoticeChunk(msgspec.Struct, frozen=True, gc=False):
    """Something an operator should know; it becomes that event in the log and is no part of the answer."""

    event: Notice


class StopChunk(msgspec.Struct, frozen=True, gc=False):
    """The answer is whole. ``reason``: ``end``, ``calls``, ``length``, ``refusal`` or the provider's own word."""

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
        """What this model is called in logs."""
        ...

    def stream(self, prompt: Prompt) -> AsyncGenerator[Chunk]:
        """Answer ``prompt``."""
        ...


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """What a call will cost at least: its prompt, and each token of its answer."""

    usage: Usage
    output_price: float = 0.0
    """US dollars for one token of the answer."""
    max_tokens: int | None = None
    """How long an answer can get when the prompt has no bound; ``None`` when nobody knows."""
    takes: int | None = None
    """The highest bound that may be asked for, where it is lower than that."""
    unpriced: str = ""
    """Why the price is not known and what to do about it; tokens are known all the same."""


@runtime_checkable
class CostEstimator(Protocol):
    """A model that can tell beforehand what a prompt will cost, so that a budget is kept and not only noticed."""

    def estimate(self, prompt: Prompt) -> Estimate:
        """Say what ``prompt`` would cost, without asking anyone."""
        ...


@runtime_checkable
class Closeable(Protocol):
    """A model that holds connections or processes; whoever made it closes it."""

    async def close(self) -> None:
        """Let go of everything; safe to call twice."""
        ...


class Embedder(Protocol):
    """Something that turns texts into vectors of one length."""

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return one vector for each text, in order."""
        ...
