"""Which name means which part. Optional parts are named by path, so nobody pays for what they do not use."""

import importlib
from pathlib import Path
from typing import Any, Literal, TypeAlias
from urllib.parse import unquote, urlsplit

from vaka.core.ports.model import Model
from vaka.core.ports.store import Store
from vaka.core.types.errors import ConfigError

Durability: TypeAlias = Literal["power", "process"]

MODELS = {"scripted": "vaka.models.scripted:Scripted"}
"""The part of a model name before ``:`` or ``/``."""

STORES = {
    "memory": "vaka.stores.memory:MemoryStore",
    "sqlite": "vaka.stores.sqlite:SqliteStore",
    "postgresql": "vaka.stores.postgres:PostgresStore",
    "postgres": "vaka.stores.postgres:PostgresStore",
}

SCRIPTS = "vaka.runtime.scripts:Scripts"
"""What runs scripts; most runtimes have none."""

_EXTRAS = {"asyncpg": "postgres"}


def model(name: str) -> Model:
    """Return the model a name stands for, such as ``scripted:FILE``."""
    kind, colon, rest = name.partition(":")
    if colon and kind in MODELS:
        made: Model = load(MODELS[kind])(rest)
        return made
    known = ", ".join(f"{kind}:…" for kind in MODELS)
    raise ConfigError(f"model {name!r} is not known; expected one of {known}, or a Model object")


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
