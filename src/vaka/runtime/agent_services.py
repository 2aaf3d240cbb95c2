"""The services of a runtime for the kinds of agents and tools. Imported on first use."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeVar

from vaka.agents.react import Agent
from vaka.core.ports.agent import RunnableAgent, SharedService, ToolArgumentParser
from vaka.core.ports.files import Files
from vaka.core.ports.model import Embedder, Model
from vaka.core.ports.net import Network
from vaka.core.ports.store import Store
from vaka.core.ports.tool import Tool
from vaka.core.ports.transformer import TransformerFactory
from vaka.core.ports.values import KeyValueStore
from vaka.core.types.errors import ConfigError, InvalidInput
from vaka.core.types.ids import JSON
from vaka.runtime.options import Options
from vaka.tools.arguments import ArgumentReader
from vaka.tools.schema.json_types import is_object
from vaka.tools.validate import Validator
from vaka.transformers import builtin_transformers

S = TypeVar("S", bound=SharedService)
SubmitInput = Callable[[Any, str, str, str, str], Awaitable[None]]
"""Stores an input of a session: the agent, the id of the session, the text, the key of the input, and the owner."""


SEARCH_SECONDS = 20.0
"""The longest search of a memory with a regular expression."""


async def find_lines(
    files: Files, folder: str, pattern: str, limit: int, *, seconds: float = SEARCH_SECONDS
) -> Sequence[tuple[str, int, str]]:
    """Return path, number and text of the lines below a folder that match a regular expression, up to a limit.

    Raises ``InvalidInput`` for a pattern that is not valid, or takes too long.
    """
    from vaka.tools.builtin.search.grep import run_grep

    given = {"pattern": pattern, "path": folder, "output_mode": "content", "head_limit": limit}
    found = await run_grep(files, given, seconds=seconds)
    if found.value.get("timed_out"):
        raise InvalidInput(f"the search for {pattern[:200]!r} took too long; use a simpler pattern")
    return [(match["file"], match["line"], match["match"]) for match in found.value.get("matches", ())]


def find_schema_problem(schema: JSON, value: JSON) -> str:
    """Return why a value does not fit a schema. Raises ``InvalidInput`` for a schema that is not an object."""
    if not is_object(schema):
        raise InvalidInput(f"a JSON Schema must be a table, not {schema!r}")
    return "; ".join(Validator(schema).find_faults(value))


class ServiceHost:
    """The services of one runtime, each created on first use and closed with the runtime."""

    def __init__(self, options: Options, store: Store, submit: SubmitInput | None = None) -> None:
        self.values = store.values
        self.env, self.transformers = dict(options.scripts.env), dict(options.scripts.transformers)
        mode = options.environment.mode
        self.user = str(mode.cli.get("user", "")) if mode is not None else ""
        self._network, self._trusted_hosts = options.network.client, tuple(options.network.trusted_hosts)
        self._submit = submit
        self._shared: dict[Callable[[], Any], Any] = {}
        self._owned: list[SharedService] = []

    @property
    def network(self) -> Network:
        """The network of the options; default: a network for public addresses and trusted hosts only."""
        if self._network is None:
            from vaka.net.connector import Connector
            from vaka.net.rules import NetworkRules

            self._network = connector = Connector(NetworkRules(trusted=self._trusted_hosts))
            self._owned.append(connector)
        return self._network

    @cached_property
    def builtin_transformers(self) -> Mapping[str, TransformerFactory]:
        return builtin_transformers()

    def share(self, make: Callable[[], S]) -> S:
        """Return the object that ``make`` creates, one for all agents and tools of the runtime."""
        found: S | None = self._shared.get(make)
        if found is None:
            found = self._shared[make] = make()
            self._owned.append(found)
        return found

    def make_services(
        self,
        find_model: Callable[[str], Model],
        find_agent: Callable[[str, JSON], RunnableAgent | None],
        build_tool: Callable[[Any], Tool],
        find_embedder: Callable[[str], Embedder],
    ) -> "HostedServices":
        """Return the services of one agent."""
        return HostedServices(self, find_model, find_agent, build_tool, find_embedder)

    async def submit(self, agent: Any, session: str, prompt: str, key: str, owner: str) -> None:
        """Store an input of a session of the runtime. Raises ``ConfigError`` without a runtime."""
        if self._submit is None:
            raise ConfigError("turns of other sessions need a runtime, and these services have none")
        await self._submit(agent, session, prompt, key, owner)

    async def close(self) -> None:
        while self._owned:
            await self._owned.pop().close()


class RecordServices:
    """What stored records need: embedders, files in values, searches in files, and checks of schemas."""

    def __init__(self, find_embedder: Callable[[str], Embedder]) -> None:
        self._find_embedder = find_embedder

    def find_embedder(self, name: str) -> Embedder:
        return self._find_embedder(name)

    def open_value_files(self, values: KeyValueStore, prefix: str) -> Files:
        from vaka.files.kv import KeyValueFiles

        return KeyValueFiles(values, prefix=prefix)

    async def find_lines(self, files: Files, folder: str, pattern: str, limit: int) -> Sequence[tuple[str, int, str]]:
        return await find_lines(files, folder, pattern, limit)

    def find_schema_problem(self, schema: JSON, value: JSON) -> str:
        return find_schema_problem(schema, value)


class HostedServices(RecordServices):
    """The services of one agent; implements ``AgentServices``."""

    def __init__(
        self,
        host: ServiceHost,
        find_model: Callable[[str], Model],
        find_agent: Callable[[str, JSON], RunnableAgent | None],
        build_tool: Callable[[Any], Tool],
        find_embedder: Callable[[str], Embedder],
    ) -> None:
        super().__init__(find_embedder)
        self._host = host
        self._find_model = find_model
        self._find_agent = find_agent
        self._build_tool = build_tool

    @property
    def network(self) -> Network:
        return self._host.network

    @property
    def values(self) -> KeyValueStore:
        return self._host.values

    @property
    def env(self) -> Mapping[str, str]:
        return self._host.env

    @property
    def user(self) -> str:
        return self._host.user

    @property
    def builtin_transformers(self) -> Mapping[str, TransformerFactory]:
        return self._host.builtin_transformers

    @property
    def transformers(self) -> Mapping[str, TransformerFactory]:
        return self._host.transformers

    def find_model(self, name: str) -> Model:
        return self._find_model(name)

    def find_agent(self, name: str, config: JSON = None) -> RunnableAgent | None:
        return self._find_agent(name, config)

    def make_agent(self, name: str, /, **options: Any) -> Agent:
        return Agent(name, **options)

    async def submit(self, agent: Any, session: str, prompt: str, *, key: str, owner: str = "") -> None:
        await self._host.submit(agent, session, prompt, key, owner)

    def build_tool(self, tool: Any) -> Tool:
        return self._build_tool(tool)

    def argument_parser(self, schema: dict[str, Any]) -> ToolArgumentParser:
        return ArgumentReader(schema).read

    def share(self, make: Callable[[], S]) -> S:
        return self._host.share(make)
