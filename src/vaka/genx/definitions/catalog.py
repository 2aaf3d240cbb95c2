"""The agents of a folder with definitions, by name; a change of a file counts from the next turn on."""

import copy
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import msgspec

from vaka.agents.react import Agent, ToolLike, tool_name_of
from vaka.config.documents import read_errors
from vaka.core.loop.context import Turn
from vaka.core.loop.middleware import Middleware
from vaka.core.types.errors import ConfigError
from vaka.core.types.keywords import unknown_name_message
from vaka.core.types.message import Content, ToolCall
from vaka.core.types.monitor import Logged
from vaka.core.types.tool import Ask
from vaka.core.types.traits import find_traits
from vaka.genx.definitions.builder import DefinitionBuilder, DefinitionError, DefinitionSources
from vaka.genx.definitions.codecs import FORMATS, read_document
from vaka.genx.definitions.definition_set import DefinitionSet
from vaka.genx.definitions.fields import ParseSettings
from vaka.genx.definitions.folder import FOLDERS, list_files, load_definitions
from vaka.genx.definitions.references import DefinitionKind
from vaka.genx.definitions.tools import ScriptDefinition
from vaka.genx.services import DefinitionParts
from vaka.system.file_states import FileStates, states_of

MAX_PROBLEMS = 8
"""The problems of files that an error shows at most."""
MAX_COPIES = 512
"""The changed copies of agents that are remembered for one agent."""


def open_catalog(
    folder: "str | Path",
    parts: DefinitionParts,
    *,
    trusted: bool,
    tools: Sequence[ToolLike],
    variables: Mapping[str, str] | None,
) -> "AgentCatalog":
    """Return the agents of a folder. Raises ``ConfigError`` if it does not exist."""
    root = Path(folder).expanduser().absolute()
    if not root.is_dir():
        raise ConfigError(f"{folder}: there is no such folder")
    named = {tool_name_of(tool): tool for tool in tools}
    sources = DefinitionSources(parts=parts, trusted=trusted, tools=named, variables=dict(variables or {}))
    return AgentCatalog(root, sources)


class AgentCatalog(Mapping[str, Agent]):
    """The agents of a folder. Their files are read on first use, and again when they have changed.

    An agent that was taken from here before is still valid: its next turn uses the new definition. A change that cannot
    be read, or an agent that is gone, changes nothing; a warning in the log of the session says so.
    """

    def __init__(self, folder: Path, sources: DefinitionSources) -> None:
        self.folder = folder
        self._sources = sources
        self._places: tuple[Path, ...] | None = None
        self._states: FileStates = {}
        self._definitions = DefinitionSet()
        self._bases: dict[str, Agent] = {}
        """The agents as the files define them."""
        self._agents: dict[str, Agent] = {}
        """The agents as programs get them, and may change them."""
        self._warnings: list[str] = []
        self._files: tuple[str, ...] = ()
        self._middleware = (DefinitionGuard(self, sources.parts, self._warnings),)
        self._builder = DefinitionBuilder(self._definitions, sources, self, self._middleware)

    @property
    def definitions(self) -> DefinitionSet:
        """The definitions as they were read last."""
        self.refresh()
        return self._definitions

    @property
    def names_server_tools(self) -> bool:
        """Whether an agent that was built names tools of MCP servers."""
        return bool(self._builder.server_tools)

    @property
    def notes(self) -> tuple[str, ...]:
        """The errors of files, and the variables that are not set."""
        return (*self._definitions.problems, *self._builder.notes)

    def __getitem__(self, name: str) -> Agent:
        """Return an agent. Raises ``KeyError`` with names that are near, and ``ConfigError`` for a wrong definition."""
        agent = self.find(name)
        if agent is None:
            raise KeyError(self.explain_missing(name))
        return agent

    def explain_missing(self, name: str, others: Iterable[str] = ()) -> str:
        """Return that there is no such agent, the names that are near, and which files cannot be used."""
        message = unknown_name_message("agent", name, [*self._definitions.table("agent"), *others])
        problems = self._definitions.problems
        listed = "; ".join(problems[:MAX_PROBLEMS])
        return f"{message} (some definitions cannot be used: {listed})" if problems else message

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self.definitions.table("agent")

    def __iter__(self) -> Iterator[str]:
        return iter(self.definitions.table("agent"))

    def __len__(self) -> int:
        return len(self.definitions.table("agent"))

    def find(self, name: str) -> Agent | None:
        """Return an agent as its files are now, ``None`` if there is none. Raises ``ConfigError``."""
        self.refresh()
        if self._definitions.find("agent", name) is None:
            self._definitions.require_valid("agent", name)
            return None
        if name not in self._agents:
            base = self._bases[name] = self._build(name)
            agent = self._agents[name] = copy.copy(base)
            agent.origin = DefinedOrigin(self, base)
        return self._agents[name]

    def _build(self, name: str) -> Agent:
        """Build an agent. An error that the check found in its file is more precise and is raised instead."""
        try:
            return self._builder.build_agent(name)
        except DefinitionError as error:
            file = error.place.rpartition(":")[0]
            known = [text for text in self._definitions.problems if file and text.startswith(f"{file}:")]
            if not known:
                raise
            raise DefinitionError("; ".join(known)) from error

    def find_base(self, name: str) -> Agent | None:
        """Return an agent that was built before as the files define it now."""
        self.refresh()
        return self._bases.get(name)

    def find_agent(self, name: str) -> Agent | None:
        """Return another agent, for an agent of this catalog."""
        return self.find(name)

    def own_files(self) -> Sequence[str]:
        """Return the files of the definitions, of what they include, and of their scripts."""
        return self._files

    def is_definition(self, path: Path) -> bool:
        """Return whether a file is a definition or a script, or would be a definition if it existed."""
        real = Path(os.path.realpath(path))
        folders = {os.path.realpath(self.folder / name) for name in FOLDERS}
        return str(real) in self._files or (real.suffix.lower() in FORMATS and str(real.parent) in folders)

    def current_agent(self, agent: Agent) -> Agent:
        """Return a child agent, which belongs to its parent, unchanged."""
        return agent

    def refresh(self) -> None:
        """Read the files if they have changed; what was built before stays if they cannot be used."""
        before = self._definitions if self._places is not None else None
        if self._places is not None:
            states = states_of(self._places)
            if states == self._states:
                return
            self._states = states
        try:
            with read_errors(self.folder):
                found = self._load()
            problems = [text for text in found.problems if before is not None and text not in before.problems]
            models = self._sources.models | (self._read_file_models() if found.model_files else frozenset[str]())
            sources = msgspec.structs.replace(self._sources, models=models)
            builder = DefinitionBuilder(found, sources, self, self._middleware)
            bases = {} if problems else {name: builder.build_agent(name) for name in self._bases}
        except ConfigError as error:
            if before is None:
                raise
            problems = [str(error)]
            found = before
            builder = self._builder
            bases = self._bases
        if problems:
            reason = "the agents stay as they were, since a change of their files cannot be used"
            self._warnings += [f"{reason}: {text}" for text in problems]
            return
        for name, base in bases.items():
            agent = self._agents[name] = apply_changes(self._agents[name], self._bases[name], base)
            agent.origin = DefinedOrigin(self, base)
        self._definitions = found
        self._builder = builder
        self._bases = bases

    def _load(self) -> DefinitionSet:
        """Read the files, and remember what tells whether they have changed since."""
        files = tuple(_find_files(self.folder))
        self._places, self._states = files, states_of(files)
        settings = ParseSettings(trusted=self._sources.trusted)
        found = load_definitions(self.folder, settings, is_known=self._knows)
        used = (*found.included, *(path for definition in found for path in _script_paths(definition.value)))
        self._places, self._states = (*files, *used), self._states | states_of(used)
        self._files = tuple(os.path.realpath(path) for path in self._places if path.is_file())
        return found

    def _knows(self, kind: DefinitionKind, name: str) -> bool:
        known = self._sources.knows(kind, name)
        return known or (kind == "generator" and name in self._read_file_models())

    def _read_file_models(self) -> frozenset[str]:
        """Return the names of the models in files of ``models/`` that name providers."""
        names: set[str] = set()
        for path in list_files(self.folder / "models"):
            with suppress(ConfigError, msgspec.ValidationError):
                found = msgspec.convert(read_document(path).value, _ModelFile)
                names.update(model.name for model in found.models)
        return frozenset(names)


class _ModelName(msgspec.Struct):
    name: str


class _ModelFile(msgspec.Struct):
    """The part of a model file that says which names it defines."""

    models: list[_ModelName]


def _find_files(folder: Path) -> Iterator[Path]:
    """Yield the folders of definitions, existing or not, and the files in them."""
    for name in FOLDERS:
        yield folder / name
        yield from list_files(folder / name)


def _script_paths(value: object) -> Iterator[Path]:
    """Yield the files of the scripts that a definition and those inside it name."""
    if isinstance(value, ScriptDefinition):
        yield from (value.path,) if value.path is not None else ()
    elif isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            yield from _script_paths(getattr(value, name))
    elif isinstance(value, tuple):
        for item in cast("tuple[object, ...]", value):
            yield from _script_paths(item)


class DefinedOrigin:
    """Where an agent of a catalog comes from; implements ``AgentOrigin``."""

    def __init__(self, catalog: AgentCatalog, base: Agent) -> None:
        self._catalog, self._base = catalog, base
        self._copies: dict[Agent, tuple[Agent, Agent]] = {}

    def current_agent(self, agent: Agent) -> Agent:
        """Return ``agent`` as the files define it now, with what was changed in this copy."""
        base = self._catalog.find_base(self._base.name)
        if base is None or base is self._base:
            return agent
        known = self._copies.get(agent)
        if known is None or known[0] is not base:
            if len(self._copies) >= MAX_COPIES:
                self._copies.clear()
            known = self._copies[agent] = base, apply_changes(agent, self._base, base)
        return known[1]

    def find_agent(self, name: str) -> Agent | None:
        """Return another agent of the catalog."""
        return self._catalog.find(name)

    def own_files(self) -> Sequence[str]:
        """Return the files of the catalog."""
        return self._catalog.own_files()


def apply_changes(agent: Agent, base: Agent, fresh: Agent) -> Agent:
    """Return a copy of ``fresh`` with what ``agent`` has other than ``base``."""
    changed = copy.copy(fresh)
    for name in ("model", "instructions", "limits", "tool_choice", "output"):
        value: Any = getattr(agent, name)
        if value != getattr(base, name):
            setattr(changed, name, value)
    names = {tool_name_of(tool) for tool in fresh.tools}
    added = [tool for tool in agent.tools if tool not in base.tools and tool_name_of(tool) not in names]
    changed.tools = (*fresh.tools, *added)
    changed.middleware = (*fresh.middleware, *(each for each in agent.middleware if each not in base.middleware))
    own = {name: value for name, value in agent.options.items() if base.options.get(name) != value}
    changed.options = {**fresh.options, **own}
    return changed


class DefinitionGuard(Middleware):
    """Asks before a tool writes definitions of the agent that it names, and reports changes that cannot be used."""

    inherited = ("before_tool",)
    admits_steering = True

    def __init__(self, catalog: AgentCatalog, parts: DefinitionParts, warnings: list[str]) -> None:
        self._catalog, self._warnings = catalog, warnings
        self._parts = parts

    @property
    def name(self) -> str:
        return "definitions"

    async def before_agent(self, turn: Turn, content: Content) -> Content:
        while self._warnings and not turn.path:
            turn.log.defer(turn.scope, Logged(level="warning", message=self._warnings.pop(0)))
        return content

    async def before_tool(self, turn: Turn, call: ToolCall) -> ToolCall | Ask:
        traits = find_traits(turn.tools.get(call.name), self._parts.builtin_name_of(call.name))
        named = (call.arguments.get(name) for name in traits.paths if traits.writes)
        written = [path for path in named if isinstance(path, str) and path]
        path = next((path for path in written if self._catalog.is_definition(Path(turn.env.world.cwd, path))), None)
        if path is None:
            return call
        return Ask(f"{path} defines this agent or its tools; a change counts from the next turn on", rule="definitions")
