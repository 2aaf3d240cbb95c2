"""What the runtime supplies to scripts: the engine that runs them, models, network, stores and agents."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeAlias

from vaka.core.ports.model import Model
from vaka.core.ports.net import Network
from vaka.core.ports.store import KeyValueStore
from vaka.core.ports.tool import Tool
from vaka.core.types.errors import ScriptError
from vaka.core.types.ids import JSON
from vaka.core.types.tool import InvalidArguments, ParsedArguments
from vaka.luau.host.host_services import ScriptCache
from vaka.luau.program import Program
from vaka.luau.protocol import Script
from vaka.luau.vm import PrintLine, VmRunner
from vaka.luau.worker import WorkerPool


class ScriptRunner(Protocol):
    """A place where scripts run."""

    def open(self, program: Program, print_line: PrintLine | None = None) -> Script:
        """Return a script that can be started once; what it prints goes to ``printed``, line by line."""
        ...

    async def close(self) -> None:
        """Let go of everything; twice is once."""
        ...


class ScriptEngine:
    """Opens each script where it belongs. Nothing is started before it is needed."""

    def __init__(self, *, trusted: ScriptRunner | None = None, untrusted: ScriptRunner | None = None) -> None:
        self._trusted_runner = trusted or VmRunner()
        self._untrusted_runner = untrusted or WorkerPool()

    def open(self, program: Program, print_line: PrintLine | None = None) -> Script:
        """Return a script that can be started once; what it prints goes to ``printed``, line by line."""
        return (self._trusted_runner if program.trusted else self._untrusted_runner).open(program, print_line)

    async def close(self) -> None:
        """End the workers, and free the VMs that nobody uses."""
        await self._untrusted_runner.close()
        await self._trusted_runner.close()


ToolArgumentParser: TypeAlias = Callable[["str | dict[str, Any]"], "ParsedArguments | InvalidArguments"]
"""Reads the arguments of a tool, as its schema says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptServices:
    """Everything a script in a session is run with."""

    runner: ScriptRunner
    models: Callable[[str], Model]
    """Finds a model by name; ``default`` is the agent's own."""
    network: Network
    values: KeyValueStore
    cache: ScriptCache
    argument_parser: Callable[[dict[str, Any]], ToolArgumentParser]
    """Makes a reader of a JSON Schema."""
    fits: Callable[[JSON, JSON], str]
    """Says what is wrong with a value by a JSON Schema; nothing when it fits."""
    agents: Callable[[str, JSON], Tool | None]
    """Finds an agent by name, as a tool that is called with a prompt."""
    env: Mapping[str, str] = field(default_factory=dict[str, str])

    def for_untrusted(self) -> "ScriptServices":
        """Return what a script nobody trusts is run with: its agent's own model, and no name that could be a file."""

        def find_own_model(name: str) -> Model:
            model = self.models("default")
            if name not in ("default", model.name):
                raise ScriptError(f"generate: this script may ask the model 'default' only, not {name!r}")
            return model

        def find_agent(name: str, config: JSON) -> Tool | None:
            model = config["model"] if hasattr(config, "keys") and "model" in config else None
            if model not in (None, "default"):
                raise ScriptError(f"create_agent: this script may name the model 'default' only, not {model!r}")
            return self.agents(name, config)

        return replace(self, models=find_own_model, agents=find_agent)
