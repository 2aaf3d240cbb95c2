"""A small model on this machine: llama.cpp's server in a process of its own.

Here are its settings, and what the owner and the server process exchange: a launch spec and a launch report.
"""

import msgspec

from vaka.core.types.errors import InvalidInput
from vaka.models.catalog import LOCAL_MAX_TOKENS

DEFAULT_CONTEXT = 8192
"""The context of SmolLM2; beyond it answers are noise."""


class LocalSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How the model is run. Equal settings share a process."""

    context: int = DEFAULT_CONTEXT
    """Tokens of a conversation."""
    max_tokens: int = LOCAL_MAX_TOKENS
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


class LaunchReport(msgspec.Struct, frozen=True, kw_only=True):
    """The first line on stdout."""

    url: str = ""
    """The address at which the server answers."""
    failure: str = ""
    """Why the server cannot be started."""
