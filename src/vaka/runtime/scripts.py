"""Scripts in a runtime: where they run and what they are lent. Loaded when the first script is used."""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from vaka.agents.react import Agent
from vaka.core.loop.ending import Ending
from vaka.core.loop.scope import Turn
from vaka.core.ports.model import Model
from vaka.core.ports.net import Network
from vaka.core.ports.store import Store
from vaka.core.ports.tool import Tool
from vaka.core.types.errors import InvalidInput
from vaka.core.types.ids import JSON
from vaka.luau.agent import ScriptBody
from vaka.luau.compat import Cache
from vaka.luau.engine import Engine
from vaka.luau.lent import Lent
from vaka.luau.limits import ScriptLimits
from vaka.luau.tool import Source
from vaka.net.connector import Connector
from vaka.net.rules import Rules
from vaka.runtime.options import Options
from vaka.tools.reader import Reader
from vaka.tools.validate import Validator
from vaka.tools.values import is_object


class LuauAgent(Agent):
    """An agent that is a script: ``run(ctx)``, or ``on_start``, ``on_input`` and ``on_close``. It needs no model."""

    __slots__ = ("source",)

    def __init__(
        self, name: str, script: "str | Path", *, libs: Sequence["str | Path"] = (), limits: ScriptLimits | None = None,
        trusted: bool = True, **more: Any,
    ) -> None:  # fmt: skip
        """Read and compile a script. Also takes what any agent takes; ``turn_limits`` are the limits of its turns."""
        self.source = Source(script, libs, limits, trusted=trusted)
        turn_limits = more.pop("turn_limits", None)
        super().__init__(name, **more, **({"limits": turn_limits} if turn_limits else {}))

    def bind(self, lent: Lent) -> "Callable[[Turn], Awaitable[Ending]]":
        """Return what the agent does in a turn."""
        return ScriptBody(self.source, lent)

    def __repr__(self) -> str:
        return f"LuauAgent({self.name!r})"


class Scripts:
    """The VMs, workers and network that the scripts of one runtime share; each made when it is needed."""

    def __init__(self, options: Options, store: Store) -> None:
        self._store, self._env = store, dict(options.script_env)
        self._network, self._trusted = options.network, options.trusted_hosts
        self._own: Connector | None = None
        self._engine = Engine()
        self._cache = Cache()

    @property
    def network(self) -> Network:
        """The network, to public addresses only unless the runtime was given another."""
        if self._network is None:
            self._own = self._network = Connector(Rules(trusted=self._trusted))
        return self._network

    def lend(self, models: Callable[[str], Model], agents: Callable[[str, JSON], Tool | None]) -> Lent:
        """Return what one agent's scripts are run with."""
        return Lent(
            home=self._engine, models=models, network=self.network, values=self._store.values, cache=self._cache,
            reader=lambda schema: Reader(schema).read, fits=_fits, agents=agents, env=self._env,
        )  # fmt: skip

    async def close(self) -> None:
        """End every worker and connection."""
        await self._engine.close()
        if self._own is not None:
            await self._own.close()


def _fits(schema: JSON, value: JSON) -> str:
    if not is_object(schema):
        raise InvalidInput(f"a JSON Schema is a table, got {schema!r}")
    return "; ".join(Validator(schema).faults(value))
