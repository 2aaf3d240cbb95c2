"""Vendors of the Chat Completions API: addresses, keys and peculiarities of each, read from vendors.toml."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
"""All reasoning efforts, from the least to the most."""


class VendorProfile(msgspec.Struct, frozen=True, kw_only=True):
    """The requirements and features of a vendor of Chat Completions. The defaults are OpenAI's own API."""

    name: str = "openai-chat"
    base_url: str = "https://api.openai.com/v1"
    """Empty where every customer has a URL of their own."""
    base_env: str = "OPENAI_BASE_URL"
    """The environment variable that replaces the base URL."""
    key_env: tuple[str, ...] = ("OPENAI_API_KEY",)
    """The environment variables of the key; the first that is set is used."""
    query_env: Mapping[str, str] = {}
    """Query parameters and the environment variables of their values."""
    local: bool = False
    """A server of one's own, which may need no key."""
    key_header: str = ""
    """The header of the key; without it the key is a bearer token."""
    deployments: bool = False
    """URLs are Azure's: each model is a deployment with a path of its own, unless the base URL ends in ``/v1``."""

    system_role: Literal["system", "developer"] = "developer"
    max_tokens: Literal["max_completion_tokens", "max_tokens"] = "max_completion_tokens"
    usage: bool = True
    """Sends usage only with ``stream_options.include_usage``; other vendors always send it."""
    cost: bool = False
    """``usage.cost`` is the cost of the call in US dollars."""
    done: bool = True
    """``[DONE]`` ends a stream; without it, a finish reason and the end of the connection do."""
    reasoning: Literal["reasoning_effort", "thinking", "reasoning", "enable_thinking", ""] = "reasoning_effort"
    """The field for thinking: an effort, ``thinking.type``, ``reasoning.effort``, a switch with a budget, or none."""
    efforts: tuple[str, ...] = EFFORTS
    """The supported efforts, the weakest first."""
    reasoning_back: Literal["", "reasoning_content", "reasoning", "reasoning_details", "thinking"] = ""
    """Where earlier reasoning is sent back: a field of the message, or ``thinking`` parts of its content."""
    strict: bool = True
    """Schemas may have ``strict``."""
    output: Literal["json_schema", "json_object", "tool"] = "json_schema"
    """How an output schema is sent: as a schema, in the system prompt with JSON mode, or as a tool to be called."""
    choice_none: bool = True
    required: str = "required"
    """The value of ``tool_choice`` for "call some tool"; empty where there is none."""
    choice_named: bool = True
    parallel: bool = True
    tagged_calls: bool = False
    """Calls may come as text in tags, because the server does not know how its model writes them."""
    images: bool = True
    audio: bool = True
    documents: bool = True
    document_urls: bool = False
    stops: int = 4
    """The number of stop texts at most; 0 for any number."""
    seed: Literal["seed", "random_seed", ""] = "seed"
    top_k: bool = False
    penalties: bool = True
    user: Literal["user", ""] = "user"
    cache_key: bool = True
    """``prompt_cache_key`` is the session, so that its requests share a cache."""
    tiers: bool = True
    metadata: bool = True
    call_id: str = "[A-Za-z0-9_-]{1,64}"
    """The pattern of the id of a call."""
    merge: bool = False
    """Adjacent messages of one role are merged, for chat templates in which roles must alternate."""
    bridge: bool = False
    """An assistant message must stand between tool results and a user message."""
    empty: Literal["null", "text", "omit"] = "null"
    """The content of an answer that has only calls: null, an empty text, or no field."""
    headers: Mapping[str, str] = {}
    body: Mapping[str, Any] = {}
    """Fields of every request."""


def _read_profiles() -> dict[str, VendorProfile]:
    tables = tomllib.loads(Path(__file__).with_name("vendors.toml").read_text("utf-8"))
    defaults = tables.pop("defaults")
    profiles = {"openai-chat": VendorProfile()}
    for name, facts in tables.items():
        prefix = name.upper().replace("-", "_")
        names = {"name": name, "base_url": "", "base_env": f"{prefix}_BASE_URL", "key_env": [f"{prefix}_API_KEY"]}
        profiles[name] = msgspec.convert({**names, **defaults, **facts}, VendorProfile)
    return profiles


PROFILES = _read_profiles()
"""Every known vendor, by the name before the ``/`` in the name of a model."""

COMPATIBLE = PROFILES.pop("compatible")
"""A server at an address of one's own, of which nothing is known but that it speaks Chat Completions."""

ALIASES = {"glm": "zhipu", "kimi": "moonshot", "dashscope": "qwen", "github": "github-models", "hf": "huggingface"}


def find_vendor(name: str) -> VendorProfile | None:
    """Return the profile of a vendor, in any case or by an alias; ``None`` for an unknown one."""
    name = name.lower()
    return PROFILES.get(ALIASES.get(name, name))
