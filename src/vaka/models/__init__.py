"""Models: one folder for each wire API, wrappers around a model, and the catalog of vendors and prices.

The classes below are loaded when they are first used.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vaka.models.anthropic.model import Anthropic as Anthropic
    from vaka.models.gemini.model import Gemini as Gemini
    from vaka.models.local.model import LocalModel as LocalModel
    from vaka.models.openai_chat.model import OpenAIChat as OpenAIChat
    from vaka.models.openai_responses.model import OpenAIResponses as OpenAIResponses
    from vaka.models.scripted import Scripted as Scripted
    from vaka.models.text_calls.model import TextCalls as TextCalls
    from vaka.models.transport.client import Account as Account
    from vaka.models.transport.client import ConnectionPool as ConnectionPool
    from vaka.models.wrappers.meter import MeteredModel as MeteredModel
    from vaka.models.wrappers.resilience import FallbackModel as FallbackModel
    from vaka.models.wrappers.resilience import RateLimitedModel as RateLimitedModel
    from vaka.models.wrappers.resilience import RetryingModel as RetryingModel

_MODULES = {
    "Account": "transport.client", "Anthropic": "anthropic.model", "ConnectionPool": "transport.client",
    "FallbackModel": "wrappers.resilience", "Gemini": "gemini.model", "LocalModel": "local.model",
    "MeteredModel": "wrappers.meter", "OpenAIChat": "openai_chat.model", "OpenAIResponses": "openai_responses.model",
    "RateLimitedModel": "wrappers.resilience", "RetryingModel": "wrappers.resilience", "Scripted": "scripted",
    "TextCalls": "text_calls.model",
}  # fmt: skip

__all__ = [
    "Account", "Anthropic", "ConnectionPool", "FallbackModel", "Gemini", "LocalModel", "MeteredModel", "OpenAIChat",
    "OpenAIResponses", "RateLimitedModel", "RetryingModel", "Scripted", "TextCalls",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module 'vaka.models' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"vaka.models.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
