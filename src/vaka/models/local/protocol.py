"""What the owner and the server process exchange: the launch spec on stdin, the launch report on stdout."""

import msgspec

from vaka.core.types.errors import InvalidInput

DEFAULT_CONTEXT = 8192
"""The context of SmolLM2; beyond it answers are noise."""
DEFAULT_MAX_TOKENS = 512
"""The length limit of an answer whose request has none: a model this small may not stop by itself."""


class LocalSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How the model is run. Equal settings share a process."""

    context: int = DEFAULT_CONTEXT
    """Tokens of a conversation."""
    max_tokens: int = DEFAULT_MAX_TOKENS
    """Tokens of an answer whose request has no limit."""
    threads: int = 1
    """CPU threads: on a busy machine more of them make it slower."""
    parallel: int = 1
    """Concurrent answers; further requests wait. Each needs the memory of a whole context."""
    weights: str = ""
    """A GGUF file of another model with the ChatML format; by default SmolLM2-135M."""

    def __post_init__(self) -> None:
        for name in ("context", "max_tokens", "threads", "parallel"):
            value = getattr(self, name)
            if value < 1:
                raise InvalidInput(f"{name} of the local model must be 1 or more, not {value!r}")


class LaunchSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The first line on stdin. It has the key, which other users could read in the arguments of a command."""

    owner: int
    """The process with which this one exits."""
    weights: str
    host: str
    port: int
    key: str
    settings: LocalSettings


class ServerReady(msgspec.Struct, frozen=True, tag="loaded"):
    """The server answers at this URL."""

    url: str


class ServerFailed(msgspec.Struct, frozen=True, tag="failed"):
    """The server cannot be started."""

    message: str


LaunchReport = ServerReady | ServerFailed
