"""Models: one folder for each wire API, wrappers around a model, embedders, and the catalog of vendors and prices.

The names below are loaded when they are first used.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vaka.core.ports.model import CallChunk as CallChunk
    from vaka.core.ports.model import Chunk as Chunk
    from vaka.core.ports.model import CitationChunk as CitationChunk
    from vaka.core.ports.model import Embedder as Embedder
    from vaka.core.ports.model import Model as Model
    from vaka.core.ports.model import NoticeChunk as NoticeChunk
    from vaka.core.ports.model import Prompt as Prompt
    from vaka.core.ports.model import ReasoningChunk as ReasoningChunk
    from vaka.core.ports.model import RetryChunk as RetryChunk
    from vaka.core.ports.model import StopChunk as StopChunk
    from vaka.core.ports.model import TextChunk as TextChunk
    from vaka.core.ports.model import UsageChunk as UsageChunk
    from vaka.models.anthropic.model import Anthropic as Anthropic
    from vaka.models.catalog import Price as Price
    from vaka.models.catalog import PriceList as PriceList
    from vaka.models.completion import Completion as Completion
    from vaka.models.completion import SimulatedStream as SimulatedStream
    from vaka.models.completion import complete as complete
    from vaka.models.embedders import HashingEmbedder as HashingEmbedder
    from vaka.models.embedders import MiniLMEmbedder as MiniLMEmbedder
    from vaka.models.gemini.model import Gemini as Gemini
    from vaka.models.local import LocalSettings as LocalSettings
    from vaka.models.local.model import LocalModel as LocalModel
    from vaka.models.local.model import missing_install_command as missing_install_command
    from vaka.models.openai_chat.model import OpenAIChat as OpenAIChat
    from vaka.models.openai_chat.vendors import VendorProfile as VendorProfile
    from vaka.models.openai_embeddings import EmbeddingOptions as EmbeddingOptions
    from vaka.models.openai_embeddings import OpenAIEmbedder as OpenAIEmbedder
    from vaka.models.openai_responses.model import OpenAIResponses as OpenAIResponses
    from vaka.models.scripted import Scripted as Scripted
    from vaka.models.text_calls.model import TextCalls as TextCalls
    from vaka.models.text_calls.model import parse_tool_calls as parse_tool_calls
    from vaka.models.transport.client import Account as Account
    from vaka.models.transport.client import ConnectionPool as ConnectionPool
    from vaka.models.wrappers.meter import MeteredModel as MeteredModel
    from vaka.models.wrappers.pool import ModelPool as ModelPool
    from vaka.models.wrappers.resilience import CircuitBreaker as CircuitBreaker
    from vaka.models.wrappers.resilience import FallbackModel as FallbackModel
    from vaka.models.wrappers.resilience import RateLimitedModel as RateLimitedModel
    from vaka.models.wrappers.resilience import RetryingModel as RetryingModel

_NAMES = {
    "vaka.core.ports.model": (
        "CallChunk", "Chunk", "CitationChunk", "Embedder", "Model", "NoticeChunk", "Prompt", "ReasoningChunk",
        "RetryChunk", "StopChunk", "TextChunk", "UsageChunk",
    ),
    "vaka.models.anthropic.model": ("Anthropic",),
    "vaka.models.catalog": ("Price", "PriceList"),
    "vaka.models.completion": ("Completion", "SimulatedStream", "complete"),
    "vaka.models.embedders": ("HashingEmbedder", "MiniLMEmbedder"),
    "vaka.models.gemini.model": ("Gemini",),
    "vaka.models.local": ("LocalSettings",),
    "vaka.models.local.model": ("LocalModel", "missing_install_command"),
    "vaka.models.openai_chat.model": ("OpenAIChat",),
    "vaka.models.openai_chat.vendors": ("VendorProfile",),
    "vaka.models.openai_embeddings": ("EmbeddingOptions", "OpenAIEmbedder"),
    "vaka.models.openai_responses.model": ("OpenAIResponses",),
    "vaka.models.scripted": ("Scripted",),
    "vaka.models.text_calls.model": ("TextCalls", "parse_tool_calls"),
    "vaka.models.transport.client": ("Account", "ConnectionPool"),
    "vaka.models.wrappers.meter": ("MeteredModel",),
    "vaka.models.wrappers.pool": ("ModelPool",),
    "vaka.models.wrappers.resilience": ("CircuitBreaker", "FallbackModel", "RateLimitedModel", "RetryingModel"),
}  # fmt: skip
_MODULES = {name: module for module, names in _NAMES.items() for name in names}

__all__ = [
    "Account", "Anthropic", "CallChunk", "Chunk", "CircuitBreaker", "CitationChunk", "Completion",
    "ConnectionPool", "Embedder", "EmbeddingOptions", "FallbackModel", "Gemini", "HashingEmbedder", "LocalModel",
    "LocalSettings", "MeteredModel", "MiniLMEmbedder", "Model", "ModelPool", "NoticeChunk", "OpenAIChat",
    "OpenAIEmbedder", "OpenAIResponses", "Price", "PriceList", "Prompt", "RateLimitedModel", "ReasoningChunk",
    "RetryChunk", "RetryingModel", "Scripted", "SimulatedStream", "StopChunk", "TextCalls", "TextChunk",
    "UsageChunk", "VendorProfile", "complete", "missing_install_command", "parse_tool_calls",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module 'vaka.models' has no attribute {name!r}")
    value = getattr(importlib.import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
