"""Vendors of the Chat Completions API: addresses, keys and peculiarities of each, read from vendors.toml."""

import tomllib
from collections.abc import Mapping
from importlib import resources
from typing import Any, Literal

import msgspec

EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
"""Every word there is for how much to think, from the least to the most."""


class VendorProfile(msgspec.Struct, frozen=True, kw_only=True):
    """What a vendor of Chat Completions wants and can do. The defaults are OpenAI's own API."""

    name: str = "openai-chat"
    base_url: str = "https://api.openai.com/v1"
    """Empty where every customer has an address of their own."""
    base_env: str = "OPENAI_BASE_URL"
    """The variable that has another address."""
    key_env: tuple[str, ...] = ("OPENAI_API_KEY",)
    """The variables that may have the key; the first that is set counts."""
    query_env: Mapping[str, str] = {}
    """Parameters of the address and the variables they come from."""
    local: bool = False
    """A server of one's own, which may want no key."""
    key_header: str = ""
    """The header that has the key; without it the key is a bearer token."""
    deployments: bool = False
    """Addresses are Azure's: each model is a deployment with a path of its own, unless the address ends in ``/v1``."""

    system_role: Literal["system", "developer"] = "developer"
    max_tokens: Literal["max_completion_tokens", "max_tokens"] = "max_completion_tokens"
    usage: bool = True
    """``stream_options.include_usage`` is understood; other vendors count tokens unasked."""
    cost: bool = False
    """``usage.cost`` is what the call cost in US dollars."""
    done: bool = True
    """``[DONE]`` ends a stream; without it, a finish reason and the end of the connection do."""
    reasoning: Literal["reasoning_effort", "thinking", "reasoning", "enable_thinking", ""] = "reasoning_effort"
    """How thinking is asked for: an effort, ``thinking.type``, ``reasoning.effort``, a switch with a budget, or not."""
    efforts: tuple[str, ...] = EFFORTS
    """The words for efforts that are understood, the weakest first."""
    reasoning_back: Literal["", "reasoning_content", "reasoning", "reasoning_details", "thinking"] = ""
    """Where earlier thoughts are wanted back: a field of the message, or ``thinking`` parts of its content."""
    strict: bool = True
    """Schemas may say ``strict``."""
    output: Literal["json_schema", "json_object", "tool"] = "json_schema"
    """How a shape is asked for: as a schema, as JSON with the schema told in words, or as a tool to be called."""
    choice_none: bool = True
    required: str = "required"
    """The word for "call some tool"; empty where there is none."""
    choice_named: bool = True
    parallel: bool = True
    images: bool = True
    audio: bool = True
    documents: bool = True
    document_urls: bool = False
    stops: int = 4
    """How many stop texts are taken; 0 for any number."""
    seed: Literal["seed", "random_seed", ""] = "seed"
    top_k: bool = False
    penalties: bool = True
    user: Literal["user", ""] = "user"
    cache_key: bool = True
    """``prompt_cache_key`` names the session, so that its requests meet the same cache."""
    tiers: bool = True
    metadata: bool = True
    call_id: str = "[A-Za-z0-9_-]{1,64}"
    """What an id of a call must look like."""
    merge: bool = False
    """Messages of one role that follow each other are sent as one, for chat templates that want them to alternate."""
    bridge: bool = False
    """Results of tools must be answered before the user says more."""
    empty: Literal["null", "text", "omit"] = "null"
    """What stands for the text of an answer that has calls only."""
    headers: Mapping[str, str] = {}
    body: Mapping[str, Any] = {}
    """Fields that every request has."""


def _read_profiles() -> dict[str, VendorProfile]:
    tables = tomllib.loads(resources.files(__package__).joinpath("vendors.toml").read_text("utf-8"))
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
