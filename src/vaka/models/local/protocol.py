"""What the owner and the server process exchange: the launch spec on stdin, the launch report on stdout."""

import msgspec

from vaka.core.types.errors import InvalidInput

DEFAULT_CONTEXT = 8192
"""Tokens that SmolLM2 was made for; more would be noise."""
DEFAULT_MAX_TOKENS = 512
"""Tokens of an answer for which nobody set another limit: a model this small does not know when to stop."""


class LocalSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How the model is run. Equal settings share a process."""

    context: int = DEFAULT_CONTEXT
    """Tokens of a conversation."""
    max_tokens: int = DEFAULT_MAX_TOKENS
    """Tokens of an answer whose request says nothing about it."""
    threads: int = 1
    """Processors to use: on a busy machine more of them make it slower."""
    parallel: int = 1
    """Answers that are written at the same time; others wait. Each has the whole context, and costs its memory."""
    weights: str = ""
    """A GGUF file of another model that talks ChatML; by default SmolLM2-135M."""

    def __post_init__(self) -> None:
        for name in ("context", "max_tokens", "threads", "parallel"):
            value = getattr(self, name)
            if value < 1:
                raise InvalidInput(f"{name} of the local model must be 1 or more, not {value!r}")


class LaunchSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The first line on stdin. It has the key, which would be seen by everyone in the arguments of a command."""

    owner: int
    """The process that this one must not outlive."""
    weights: str
    host: str
    port: int
    key: str
    settings: LocalSettings


class ServerReady(msgspec.Struct, frozen=True, tag="loaded"):
    """It answers at this address."""

    url: str


class ServerFailed(msgspec.Struct, frozen=True, tag="failed"):
    """It cannot be started."""

    message: str


LaunchReport = ServerReady | ServerFailed
