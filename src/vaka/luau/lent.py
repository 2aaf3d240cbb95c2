"""What the runtime lends to scripts: the parts of vaka that this one may not know itself."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from vaka.core.ports.model import Model
from vaka.core.ports.net import Network
from vaka.core.ports.store import KeyValue
from vaka.core.ports.tool import Tool
from vaka.core.types.errors import ScriptError
from vaka.core.types.ids import JSON
from vaka.core.types.tool import Arguments, Problem
from vaka.luau.engine import Home
from vaka.luau.host.parts import Cached

Reads: TypeAlias = Callable[["str | dict[str, Any]"], "Arguments | Problem"]
"""Reads the arguments of a tool, as its schema says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lent:
    """Everything a script in a session is run with."""

    home: Home
    models: Callable[[str], Model]
    """Finds a model by name; ``default`` is the agent's own."""
    network: Network
    values: KeyValue
    cache: Cached
    reader: Callable[[dict[str, Any]], Reads]
    """Makes a reader of a JSON Schema."""
    fits: Callable[[JSON, JSON], str]
    """Says what is wrong with a value by a JSON Schema; nothing when it fits."""
    agents: Callable[[str, JSON], Tool | None]
    """Finds an agent by name, as a tool that is called with a prompt."""
    env: Mapping[str, str] = field(default_factory=dict[str, str])

    def to_strangers(self) -> "Lent":
        """Return what a script nobody trusts is run with: its agent's own model, and no name that could be a file."""

        def own(name: str) -> Model:
            model = self.models("default")
            if name not in ("default", model.name):
                raise ScriptError(f"generate: this script may ask the model 'default' only, not {name!r}")
            return model

        def find(name: str, config: JSON) -> Tool | None:
            model = config["model"] if hasattr(config, "keys") and "model" in config else None
            if model not in (None, "default"):
                raise ScriptError(f"create_agent: this script may name the model 'default' only, not {model!r}")
            return self.agents(name, config)

        return replace(self, models=own, agents=find)
