"""Imports of optional parts, made on first use so that start-up does not pay for them."""

import importlib
from pathlib import Path
from typing import Any, Literal, TypeAlias
from urllib.parse import unquote, urlsplit

from vaka.core.ports.store import Store
from vaka.core.types.errors import ConfigError

Durability: TypeAlias = Literal["power", "process"]

WIRES = {
    "chat": "vaka.models.openai_chat.model:OpenAIChat",
    "responses": "vaka.models.openai_responses.model:OpenAIResponses",
    "anthropic": "vaka.models.anthropic.model:Anthropic",
    "gemini": "vaka.models.gemini.model:Gemini",
}
"""What speaks to a provider, by the name of the wire."""

MODEL_FACTORY = "vaka.runtime.model_factory:ModelFactory"
"""What makes models that are more than a file."""
OUTPUT_SCHEMA = "vaka.runtime.structured_output:schema_for"
MODEL_TABLE = "vaka.config.model_tables:check_table"

SCRIPTED = "vaka.models.scripted:Scripted"
LOCAL = "vaka.models.local.model:LocalModel"
LOCAL_MISSING = "vaka.models.local.model:missing_install_command"
SERVE_LOCAL = "vaka.models.local.model:serve"
HTTP = "vaka.models.transport.client:ConnectionPool"
ACCOUNT = "vaka.models.transport.client:Account"
OPTIONS = "vaka.models.options:read_options"
PROFILE = "vaka.models.catalog.vendors:find_vendor"
PROFILES = "vaka.models.catalog.vendors:PROFILES"
COMPATIBLE = "vaka.models.catalog.vendors:COMPATIBLE"

RETRY = "vaka.models.wrappers.resilience:RetryingModel"
LIMITED = "vaka.models.wrappers.resilience:RateLimitedModel"
FALLBACK = "vaka.models.wrappers.resilience:FallbackModel"
TEXT_CALLS = "vaka.models.text_calls.model:TextCalls"
METERED = "vaka.models.wrappers.meter:MeteredModel"
PRICES = "vaka.models.catalog.prices:PriceList"
PRICE = "vaka.models.catalog.prices:Price"
FREE = "vaka.models.catalog.prices:FREE"
LEDGER = "vaka.models.wrappers.meter:LastCalls"
HASHING = "vaka.models.embeddings.hashing:HashingEmbedder"
MINILM = "vaka.models.embeddings.minilm:MiniLMEmbedder"
EMBEDDINGS = "vaka.models.embeddings.openai:OpenAIEmbedder"
POOL = "vaka.models.wrappers.pool:ModelPool"
CHOSEN = "vaka.models.wrappers.pool:SelectedModel"

STORES = {
    "memory": "vaka.stores.memory:MemoryStore",
    "sqlite": "vaka.stores.sqlite:SqliteStore",
    "postgresql": "vaka.stores.postgres:PostgresStore",
    "postgres": "vaka.stores.postgres:PostgresStore",
}

BUILTIN = "vaka.tools.builtin:find_builtin"
"""What knows vaka's own tools by their names."""
CHOOSE_TOOLS = "vaka.tools.builtin:select_tools"
PLAIN_NAME = "vaka.tools.builtin:normalize_name"
WORLD_FACTORY = "vaka.runtime.tool_world:WorldFactory"
"""What makes the files, commands and network that tools are lent."""

SCRIPT_HOST = "vaka.runtime.scripts:ScriptHost"
"""What runs scripts; most runtimes have none."""

PREVIEW_FILE_REWIND = "vaka.runtime.file_rewind:preview_file_rewind"
REWIND_FILES = "vaka.runtime.file_rewind:rewind_with_files"
"""What puts files back; most runtimes never do."""

_EXTRAS = {"asyncpg": "postgres", "markdownify": "web"}


def open_store(url: str, *, durability: Durability = "power", namespace: str = "") -> Store:
    """Return the store a URL stands for: ``memory:``, ``sqlite:///PATH`` or ``postgresql://…``."""
    scheme = url.partition(":")[0]
    if scheme not in STORES:
        raise ConfigError(f"store {url!r} is not known; expected memory:, sqlite:///PATH or postgresql://…")
    make = load(STORES[scheme])
    made: Store
    if scheme == "memory":
        made = make(namespace=namespace)
    elif scheme == "sqlite":
        made = make(_sqlite_path(url), durability=durability, namespace=namespace)
    else:
        made = make(url, durability=durability, namespace=namespace)
    return made


def _sqlite_path(url: str) -> Path:
    """``sqlite:///vaka.db`` is relative, ``sqlite:////var/vaka.db`` absolute, as everywhere else."""
    parts = urlsplit(url)
    if parts.netloc or not parts.path.startswith("/") or len(parts.path) == 1:
        raise ConfigError(f"store {url!r} names no file; expected sqlite:///PATH (four slashes for an absolute path)")
    return Path(unquote(parts.path[1:]))


def load(dotted: str) -> Any:
    """Return what a dotted path names; an optional library that is missing is said by name."""
    module, _, name = dotted.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        extra = _EXTRAS.get(error.name or "")
        if extra is None:
            raise
        raise ConfigError(f"{error.name} is not installed; add it with: pip install 'vaka[{extra}]'") from error
