"""The Luau agent. Imported on first use."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vaka.agents.react import Agent
from vaka.core.loop.context import Turn
from vaka.core.ports.agent import AgentBody, AgentServices
from vaka.luau.agent import ScriptBody
from vaka.luau.program import ScriptLimits
from vaka.luau.services import make_script_services
from vaka.luau.tool import ScriptSource, StorageScope


class LuauAgent(Agent):
    """An agent that is a script: ``run(ctx)``, or ``on_start``, ``on_input`` and ``on_close``. It needs no model."""

    __slots__ = ("layer", "source")

    needs_model = False

    def __init__(
        self,
        name: str,
        script: "str | Path",
        *,
        libs: Sequence["str | Path"] = (),
        limits: ScriptLimits | None = None,
        trusted: bool | None = None,
        storage: StorageScope = "script",
        layer: str = "code",
        **more: Any,
    ) -> None:
        """Read and compile a script. ``more`` are arguments of ``Agent``; ``turn_limits`` limit its turns.

        ``storage`` is who shares its ``kvs`` and ``cache``, as for ``LuauTool``; ``layer`` is where the script comes
        from, for the rules on its requests.
        """
        self.layer = layer
        trusted = layer == "code" if trusted is None else trusted
        self.source = ScriptSource(script, libs, limits, trusted=trusted, owner=f"agent {name}", storage=storage)
        turn_limits = more.pop("turn_limits", None)
        super().__init__(name, **more, **({"limits": turn_limits} if turn_limits else {}))

    def bind(self, services: AgentServices) -> AgentBody[Turn]:
        """Return the body that runs a turn of the agent."""
        return ScriptBody(self.source, make_script_services(services), self.layer)

    def __repr__(self) -> str:
        return f"LuauAgent({self.name!r})"
