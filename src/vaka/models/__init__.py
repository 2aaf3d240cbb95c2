"""Models: one folder for each wire API, wrappers around a model, embedders, and the catalog of vendors and prices.

The names below are loaded when they are first used.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vaka.core.ports.model import (
        CallChunk,
        Chunk,
        CitationChunk,
        Embedder,
        Model,
        NoticeChunk,
        Prompt,
        ReasoningChunk,
        RetryChunk,
        StopChunk,
        TextChunk,
        UsageChunk,
    )
    from vaka.models.anthropic.model import Anthropic
    from vaka.models.catalog import Price, PriceList
    from vaka.models.completion import Completion, SimulatedStream, complete
    from vaka.models.embedders import HashingEmbedder, MiniLMEmbedder
    from vaka.models.gemini.model import Gemini
    from vaka.models.local import LocalSettings
    from vaka.models.local.model import LocalModel, missing_install_command
    from vaka.models.openai_chat.model import OpenAIChat
    from vaka.models.openai_chat.vendors import VendorProfile
    from vaka.models.openai_embeddings import EmbeddingOptions, OpenAIEmbedder
    from vaka.models.openai_responses.model import OpenAIResponses
    from vaka.models.scripted import Scripted
    from vaka.models.text_calls.model import TextCalls, parse_tool_calls
    from vaka.models.transport.client import Account
    from vaka.models.transport.pool import ConnectionPool
    from vaka.models.wrappers.meter import MeteredModel
    from vaka.models.wrappers.pool import ModelPool
    from vaka.models.wrappers.resilience import CircuitBreaker, FallbackModel, RateLimitedModel, RetryingModel

_NAMES = {
    "vaka.core.ports.model": "CallChunk Chunk CitationChunk Embedder Model NoticeChunk Prompt ReasoningChunk "
    "RetryChunk StopChunk TextChunk UsageChunk",
    "vaka.models.anthropic.model": "Anthropic",
    "vaka.models.catalog": "Price PriceList",
    "vaka.models.completion": "Completion SimulatedStream complete",
    "vaka.models.embedders": "HashingEmbedder MiniLMEmbedder",
    "vaka.models.gemini.model": "Gemini",
    "vaka.models.local": "LocalSettings",
    "vaka.models.local.model": "LocalModel missing_install_command",
    "vaka.models.openai_chat.model": "OpenAIChat",
    "vaka.models.openai_chat.vendors": "VendorProfile",
    "vaka.models.openai_embeddings": "EmbeddingOptions OpenAIEmbedder",
    "vaka.models.openai_responses.model": "OpenAIResponses",
    "vaka.models.scripted": "Scripted",
    "vaka.models.text_calls.model": "TextCalls parse_tool_calls",
    "vaka.models.transport.client": "Account",
    "vaka.models.transport.pool": "ConnectionPool",
    "vaka.models.wrappers.meter": "MeteredModel",
    "vaka.models.wrappers.pool": "ModelPool",
    "vaka.models.wrappers.resilience": "CircuitBreaker FallbackModel RateLimitedModel RetryingModel",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = [
    "Account",
    "Anthropic",
    "CallChunk",
    "Chunk",
    "CircuitBreaker",
    "CitationChunk",
    "Completion",
    "ConnectionPool",
    "Embedder",
    "EmbeddingOptions",
    "FallbackModel",
    "Gemini",
    "HashingEmbedder",
    "LocalModel",
    "LocalSettings",
    "MeteredModel",
    "MiniLMEmbedder",
    "Model",
    "ModelPool",
    "NoticeChunk",
    "OpenAIChat",
    "OpenAIEmbedder",
    "OpenAIResponses",
    "Price",
    "PriceList",
    "Prompt",
    "RateLimitedModel",
    "ReasoningChunk",
    "RetryChunk",
    "RetryingModel",
    "Scripted",
    "SimulatedStream",
    "StopChunk",
    "TextCalls",
    "TextChunk",
    "UsageChunk",
    "VendorProfile",
    "complete",
    "missing_install_command",
    "parse_tool_calls",
]


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module 'vaka.models' has no attribute {name!r}")
    value = getattr(importlib.import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
