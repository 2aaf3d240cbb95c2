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
    """Opens scripts in a VM of some process."""

    def open(self, program: Program, print_line: PrintLine | None = None) -> Script:
        """Return a script that can be started once; ``print_line`` receives each line it prints."""
        ...

    async def close(self) -> None:
        """Free all VMs and processes; a second call does nothing."""
        ...


class ScriptEngine:
    """Runs trusted scripts in this process and untrusted ones in workers, which start on first use."""

    def __init__(self, *, trusted: ScriptRunner | None = None, untrusted: ScriptRunner | None = None) -> None:
        self._trusted_runner = trusted or VmRunner()
        self._untrusted_runner = untrusted or WorkerPool()

    def open(self, program: Program, print_line: PrintLine | None = None) -> Script:
        """Return a script that can be started once; ``print_line`` receives each line it prints."""
        return (self._trusted_runner if program.trusted else self._untrusted_runner).open(program, print_line)

    async def close(self) -> None:
        """End the workers and free the idle VMs."""
        await self._untrusted_runner.close()
        await self._trusted_runner.close()


ToolArgumentParser: TypeAlias = Callable[["str | dict[str, Any]"], "ParsedArguments | InvalidArguments"]
"""Parses the arguments of a tool call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptServices:
    """The services of the runtime that scripts use."""

    runner: ScriptRunner
    find_model: Callable[[str], Model]
    """Finds a model by name; ``default`` is the agent's own."""
    network: Network
    values: KeyValueStore
    cache: ScriptCache
    argument_parser: Callable[[dict[str, Any]], ToolArgumentParser]
    """Makes a parser from a JSON Schema."""
    find_schema_problem: Callable[[JSON, JSON], str]
    """Returns why a value does not fit a JSON Schema (schema, value), ``""`` when it fits."""
    find_agent: Callable[[str, JSON], Tool | None]
    """Finds an agent by name and configuration, as a tool that takes a prompt."""
    env: Mapping[str, str] = field(default_factory=dict[str, str])

    def for_untrusted(self) -> "ScriptServices":
        """Return the services of an untrusted script: only its agent's own model, whose name cannot be a file."""

        def find_own_model(name: str) -> Model:
            model = self.find_model("default")
            if name not in ("default", model.name):
                raise ScriptError(f"generate: this script may ask the model 'default' only, not {name!r}")
            return model

        def find_agent(name: str, config: JSON) -> Tool | None:
            model = config["model"] if hasattr(config, "keys") and "model" in config else None
            if model not in (None, "default"):
                raise ScriptError(f"create_agent: this script may name the model 'default' only, not {model!r}")
            return self.find_agent(name, config)

        return replace(self, find_model=find_own_model, find_agent=find_agent)
