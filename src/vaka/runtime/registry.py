"""Which name means which part. Optional parts are named by path, so nobody pays for what they do not use."""

import importlib
from pathlib import Path
from typing import Any, Literal, TypeAlias
from urllib.parse import unquote, urlsplit

from vaka.core.ports.store import Store
from vaka.core.types.errors import ConfigError

Durability: TypeAlias = Literal["power", "process"]

WIRES = {
    "chat": "vaka.models.openai_chat:OpenAIChat",
    "responses": "vaka.models.openai_responses:OpenAIResponses",
    "anthropic": "vaka.models.anthropic:Anthropic",
    "gemini": "vaka.models.gemini:Gemini",
}
"""What speaks to a provider, by the name of the wire."""

MAKER = "vaka.runtime.maker:Maker"
"""What makes models that are more than a file."""
SHAPE = "vaka.runtime.shape:shape"
TABLE = "vaka.config.model_tables:table"

SCRIPTED = "vaka.models.scripted:Scripted"
LOCAL = "vaka.models.local:Local"
LOCAL_MISSING = "vaka.models.local:missing"
SERVE_LOCAL = "vaka.models.local:serve"
HTTP = "vaka.models.http:Http"
ACCOUNT = "vaka.models.http:Account"
OPTIONS = "vaka.models.options:read"
PROFILE = "vaka.models.profiles:find"
PROFILES = "vaka.models.profiles:PROFILES"
COMPATIBLE = "vaka.models.profiles:COMPATIBLE"

RETRY = "vaka.models.retry:Retry"
LIMITED = "vaka.models.limit:Limited"
FALLBACK = "vaka.models.fallback:Fallback"
TEXT_CALLS = "vaka.models.text_calls:TextCalls"
METERED = "vaka.models.meter:Metered"
PRICES = "vaka.models.prices:Prices"
PRICE = "vaka.models.prices:Price"
FREE = "vaka.models.prices:FREE"
LEDGER = "vaka.models.meter:Ledger"
HASHING = "vaka.models.hashing:HashingEmbedder"
MINILM = "vaka.models.minilm:MiniLMEmbedder"
EMBEDDINGS = "vaka.models.embeddings:OpenAIEmbedder"
POOL = "vaka.models.pool:ModelPool"
CHOSEN = "vaka.models.pool:Chosen"

STORES = {
    "memory": "vaka.stores.memory:MemoryStore",
    "sqlite": "vaka.stores.sqlite:SqliteStore",
    "postgresql": "vaka.stores.postgres:PostgresStore",
    "postgres": "vaka.stores.postgres:PostgresStore",
}

BUILTIN = "vaka.tools.builtin:find"
"""What knows vaka's own tools by their names."""
CHOOSE_TOOLS = "vaka.tools.builtin.choose:choose"
PLAIN_NAME = "vaka.tools.builtin.choose:plain"
LENDER = "vaka.runtime.world:Lender"
"""What makes the files, commands and network that tools are lent."""

SCRIPTS = "vaka.runtime.scripts:Scripts"
"""What runs scripts; most runtimes have none."""

FILES_BACK = "vaka.runtime.restore:preview"
REWIND_FILES = "vaka.runtime.restore:rewind_with_files"
"""What puts files back; most runtimes never do."""

_EXTRAS = {"asyncpg": "postgres", "markdownify": "web"}


def store(url: str, *, durability: Durability = "power", namespace: str = "") -> Store:
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
