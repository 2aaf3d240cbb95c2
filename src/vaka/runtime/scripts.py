"""Scripts in a runtime: the Luau agent, and the services that scripts share. Imported on first use."""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from vaka.agents.react import Agent
from vaka.core.loop.context import Turn
from vaka.core.ports.model import Model
from vaka.core.ports.net import Network
from vaka.core.ports.store import Store
from vaka.core.ports.tool import Tool
from vaka.core.types.ending import Ending
from vaka.core.types.errors import InvalidInput
from vaka.core.types.ids import JSON
from vaka.luau.agent import ScriptBody
from vaka.luau.program import ScriptLimits
from vaka.luau.services import MemoryCache, ScriptEngine, ScriptServices
from vaka.luau.tool import ScriptSource, StorageScope
from vaka.net.connector import Connector
from vaka.net.rules import NetworkRules
from vaka.runtime.options import Options
from vaka.tools.arguments import ArgumentReader
from vaka.tools.schema.json_types import is_object
from vaka.tools.validate import Validator
from vaka.transformers import builtin_transformers


class LuauAgent(Agent):
    """An agent that is a script: ``run(ctx)``, or ``on_start``, ``on_input`` and ``on_close``. It needs no model."""

    __slots__ = ("source",)

    def __init__(
        self, name: str, script: "str | Path", *, libs: Sequence["str | Path"] = (), limits: ScriptLimits | None = None,
        trusted: bool | None = None, storage: StorageScope = "script", **more: Any,
    ) -> None:  # fmt: skip
        """Read and compile a script. ``more`` are arguments of ``Agent``; ``turn_limits`` limit its turns.

        ``storage`` is who shares its ``kvs`` and ``cache``, as for ``LuauTool``.
        """
        self.source = ScriptSource(script, libs, limits, trusted=trusted, owner=f"agent {name}", storage=storage)
        turn_limits = more.pop("turn_limits", None)
        super().__init__(name, **more, **({"limits": turn_limits} if turn_limits else {}))

    def bind(self, services: ScriptServices) -> "Callable[[Turn], Awaitable[Ending]]":
        """Return the function that runs a turn of the agent."""
        return ScriptBody(self.source, services)

    def __repr__(self) -> str:
        return f"LuauAgent({self.name!r})"


class ScriptHost:
    """The VMs, workers and network that the scripts of one runtime share, each created on first use."""

    def __init__(self, options: Options, store: Store) -> None:
        self._store, self._env = store, dict(options.script_env)
        self._network, self._trusted_hosts = options.network, options.trusted_hosts
        self._own_network: Connector | None = None
        self._user = str(options.mode.cli.get("user", "")) if options.mode is not None else ""
        self._engine = ScriptEngine()
        self._cache = MemoryCache()
        self._transformers = dict(options.transformers)

    @property
    def network(self) -> Network:
        """The network of the options; default: one for public addresses and trusted hosts only."""
        if self._network is None:
            self._own_network = self._network = Connector(NetworkRules(trusted=self._trusted_hosts))
        return self._network

    def make_services(
        self, models: Callable[[str], Model], agents: Callable[[str, JSON], Tool | None]
    ) -> ScriptServices:
        """Return the services of the scripts of one agent."""
        return ScriptServices(
            runner=self._engine,
            find_model=models,
            network=self.network,
            values=self._store.values,
            cache=self._cache,
            argument_parser=lambda schema: ArgumentReader(schema).read,
            find_schema_problem=_schema_errors,
            find_agent=agents,
            env=self._env,
            user=self._user,
            builtin_transformers=builtin_transformers(),
            transformers=self._transformers,
        )

    async def close(self) -> None:
        await self._engine.close()
        if self._own_network is not None:
            await self._own_network.close()


def _schema_errors(schema: JSON, value: JSON) -> str:
    if not is_object(schema):
        raise InvalidInput(f"a JSON Schema must be a table, not {schema!r}")
    return "; ".join(Validator(schema).find_faults(value))
