"""Lazy imports of the parts of models: wires, connections and embedders, each loaded when a model first needs it."""

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vaka.models.embedders import HashingEmbedder, MiniLMEmbedder
    from vaka.models.local.model import LocalModel
    from vaka.models.openai_embeddings import OpenAIEmbedder
    from vaka.models.text_calls.model import TaggedCalls, TextCalls
    from vaka.models.transport.client import Account
    from vaka.models.transport.pool import ConnectionPool, TransportFactory


def wire_adapter(wire: str) -> Any:
    """Return the class that speaks a provider's wire; their constructors differ in keyword arguments."""
    if wire == "chat":
        from vaka.models.openai_chat.model import OpenAIChat

        return OpenAIChat
    if wire == "responses":
        from vaka.models.openai_responses.model import OpenAIResponses

        return OpenAIResponses
    if wire == "anthropic":
        from vaka.models.anthropic.model import Anthropic

        return Anthropic
    from vaka.models.gemini.model import Gemini

    return Gemini


def local_model() -> "type[LocalModel]":
    from vaka.models.local.model import LocalModel

    return LocalModel


def connection_pool() -> "type[ConnectionPool]":
    from vaka.models.transport.pool import ConnectionPool

    return ConnectionPool


def aiohttp_transport() -> "TransportFactory | None":
    """Return the transport for direct connections of a server, ``None`` if aiohttp is not installed."""
    if find_spec("aiohttp") is None:
        return None
    from vaka.models.transport.aiohttp_transport import AiohttpTransport

    return AiohttpTransport


def account() -> "type[Account]":
    from vaka.models.transport.client import Account

    return Account


def tagged_calls() -> "type[TaggedCalls]":
    from vaka.models.text_calls.model import TaggedCalls

    return TaggedCalls


def text_calls() -> "type[TextCalls]":
    from vaka.models.text_calls.model import TextCalls

    return TextCalls


def hashing_embedder() -> "type[HashingEmbedder]":
    from vaka.models.embedders import HashingEmbedder

    return HashingEmbedder


def minilm_embedder() -> "type[MiniLMEmbedder]":
    from vaka.models.embedders import MiniLMEmbedder

    return MiniLMEmbedder


def openai_embedder() -> "type[OpenAIEmbedder]":
    from vaka.models.openai_embeddings import OpenAIEmbedder

    return OpenAIEmbedder
