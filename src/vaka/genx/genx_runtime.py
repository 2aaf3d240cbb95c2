"""The GenX runtime: definitions, states and agents under the names that GenX programs use."""

import asyncio
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import msgspec

from vaka.agents.react import Agent, ToolLike, tool_name_of
from vaka.core.session.snapshot import OpenedSession
from vaka.core.types.control import SessionOpened
from vaka.core.types.errors import ConfigError, InvalidInput, NotFound
from vaka.core.types.ids import EventScope, SessionId, parse_session_id
from vaka.core.types.imported_turns import LogEntry
from vaka.core.types.keywords import unknown_name_message
from vaka.genx.agent_events import path_of_state_id, state_id_of
from vaka.genx.definitions.agents import AgentDefinition
from vaka.genx.definitions.builder import DefinitionBuilder, DefinitionSources
from vaka.genx.definitions.definition_set import Definition, DefinitionSet
from vaka.genx.definitions.fields import ParseSettings
from vaka.genx.definitions.folder import load_definitions
from vaka.genx.definitions.references import DefinitionKind, split_reference
from vaka.genx.definitions.tools import ToolDefinition
from vaka.genx.document_import import import_entries
from vaka.genx.genx_agent import GenxAgent
from vaka.genx.match.rules import MatchRule, parse_rule
from vaka.genx.services import GenxHost, GenxSession, parts_of, work_of
from vaka.genx.state import (
    AgentState,
    LuaState,
    MatchState,
    ModelContext,
    PromptText,
    ReActState,
    read_conversation,
    state_class_of,
)
from vaka.genx.state_document import MemoryOptions, StateDocument, StateType

T = TypeVar("T")

METADATA_KEY = "genx"
"""The key in the metadata of a session with the type of its state and its parent."""
ARCHIVE_PREFIX = "genx/archive/"
"""The prefix of the keys of archived states in the key-value store."""
_STATE_CLASSES: dict[str, type[AgentState]] = {"react": ReActState, "match": MatchState, "lua": LuaState}


class ContextBuilder(msgspec.Struct, frozen=True):
    """Builds the model context of a context definition: its prompt under its name."""

    name: str
    prompt: str

    async def build(self, state: AgentState | None = None, options: MemoryOptions | None = None) -> ModelContext:
        """Return the prompt; with a state also what a ``$mem`` layer shows of it."""
        prompts = (PromptText(self.name, self.prompt),) if self.prompt else ()
        memory = await state.build_memory_context(options) if state is not None else ModelContext()
        return ModelContext(prompts=(*prompts, *memory.prompts), messages=memory.messages)


def _load(definitions: "DefinitionSet | str | Path | None", sources: DefinitionSources) -> DefinitionSet:
    if not isinstance(definitions, str | Path):
        return definitions or DefinitionSet()
    loaded = load_definitions(Path(definitions), ParseSettings(trusted=sources.trusted), is_known=sources.knows)
    if loaded.problems:
        raise ConfigError("\n".join(loaded.problems))
    return loaded


def _new_state_id(text: str) -> SessionId:
    """Return the id of a new state. Raises ``InvalidInput`` if it names a child agent."""
    session, path = path_of_state_id(text)
    if path:
        raise InvalidInput(f"the state id {text!r} belongs to a child agent of {session!r}; use another id")
    return parse_session_id(text)


def _name_in(reference: str) -> str:
    """Return the name of a reference such as ``agent:concierge``, or a name as it is."""
    return split_reference(reference)[1]


def _require(kind: DefinitionKind, name: str, found: T | None, definitions: DefinitionSet) -> T:
    if found is None:
        raise NotFound(unknown_name_message(kind, _name_in(name), definitions.table(kind)))
    return found


class GenxRuntime:
    """Agents with the GenX face on a ``vaka.Runtime``. A state is a session, or the conversation of a child in one."""

    def __init__(
        self,
        runtime: GenxHost,
        definitions: "DefinitionSet | str | Path | None" = None,
        *,
        agents: Iterable[Agent[Any, Any]] = (),
        tools: Iterable[ToolLike] = (),
        trusted: bool = True,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        """Create a GenX runtime.

        Args:
            runtime: A ``vaka.Runtime``, which runs the agents and has the store of their states.
            definitions: Definitions, or a folder with ``agents/``, ``tools/``, ``rules/``, ``contexts/`` and
                ``models/``.
            agents: Agents in Python, which come before definitions of the same name.
            tools: Tools of the program, which come before definitions of the same name.
            trusted: Whether scripts of definitions may run in this process, and definitions read ``variables``.
            variables: The environment variables that definitions may read.

        Raises:
            ConfigError: A definition of the folder is not valid.
        """
        self.runtime = runtime
        self._agents = {agent.name: agent for agent in agents}
        self._sources = DefinitionSources(
            parts=parts_of(runtime),
            trusted=trusted,
            tools={tool_name_of(tool): tool for tool in tools},
            variables=dict(variables or {}),
        )
        self._definitions = _load(definitions, self._sources)
        self._builder = DefinitionBuilder(self._definitions, self._sources)
        self._destructions: WeakValueDictionary[str, asyncio.Event] = WeakValueDictionary()
        """By its id, what ends the waiting agents of a state that is destroyed."""

    async def get_tool(self, name: str) -> ToolLike:
        """Return a tool that an ``Agent`` takes. Raises ``DefinitionError`` for an unknown name."""
        name = _name_in(name)
        found = self._sources.tools.get(name)
        return found if found is not None else self._builder.build_tool(name)

    async def get_tool_def(self, name: str) -> ToolDefinition:
        """Return the definition of a tool. Raises ``NotFound``."""
        return _require("tool", name, self._definitions.tool(_name_in(name)), self._definitions)

    async def create_tool_from_def(self, definition: ToolDefinition) -> ToolLike:
        """Return the tool of a definition. Raises ``DefinitionError``."""
        return self._builder.build_tool(definition)

    async def get_agent_def(self, name: str) -> "AgentDefinition | Agent[Any, Any]":
        """Return the definition of an agent, or the agent in Python. Raises ``NotFound``."""
        if (agent := self._agents.get(_name_in(name))) is not None:
            return agent
        return _require("agent", name, self._definitions.agent(_name_in(name)), self._definitions)

    async def get_context_builder(self, name: str) -> "ContextBuilder":
        """Return what builds the prompt of a context definition. Raises ``NotFound``."""
        found = _require("context", name, self._definitions.context(_name_in(name)), self._definitions)
        return ContextBuilder(found.name or _name_in(name), found.prompt)

    async def get_rule(self, name: str) -> MatchRule:
        """Return a match rule. Raises ``NotFound``, and ``ConfigError`` for a rule that is not well formed."""
        return parse_rule(_require("rule", name, self._definitions.rule(_name_in(name)), self._definitions))

    async def new_react_agent(
        self, agent: "Agent[Any, Any] | AgentDefinition | str", parent_state_id: str = ""
    ) -> GenxAgent:
        """Create an agent that calls tools in a loop; see ``new_agent``."""
        self._require_type(agent, "react")
        return await self.new_agent(agent, parent_state_id)

    async def new_match_agent(
        self, agent: "Agent[Any, Any] | AgentDefinition | str", parent_state_id: str = ""
    ) -> GenxAgent:
        """Create a router; see ``new_agent``."""
        self._require_type(agent, "match")
        return await self.new_agent(agent, parent_state_id)

    async def new_agent(
        self, agent: "Agent[Any, Any] | AgentDefinition | str", parent_state_id: str = "", *, state_id: str = ""
    ) -> GenxAgent:
        """Create an agent with a new state. An agent or definition that is passed is found by its name from then on.

        Raises ``NotFound`` for an unknown name, and ``InvalidInput`` for a name or a ``state_id`` that is in use.
        """
        built, definition = self._find_agent(agent)
        state = await self._create_state(built, parent_state_id, state_id)
        return self._open_agent(await self.runtime.open(built, id=state.id), definition, state)

    async def restore_agent(self, state_id: str) -> GenxAgent:
        """Return the agent of a state, which goes on where the log ends. An archived state is imported first.

        Raises ``NotFound`` for an unknown state or definition, and ``InvalidInput`` if the state belongs to a child
        agent or its type differs from the type of the definition.
        """
        state = await self.get_state(state_id) or await self._import_archived(state_id)
        if state is None:
            raise NotFound(f'state "{state_id}" not found')
        session, path = path_of_state_id(state.id)
        if path:
            raise InvalidInput(f'state "{state_id}" belongs to a child agent; restore "{session}"')
        built, definition = self._find_agent(state.agent_def)
        kind = state_class_of(built)
        if type(state) is not kind:
            raise InvalidInput(
                f'state "{state_id}" is of type {state.state_type}, but the agent {state.agent_def!r} is of type '
                f"{kind.state_type}"
            )
        restored = kind(self.runtime, await self.runtime.open(built, id=session), (), built.name, state.parent_state_id)
        agent = self._open_agent(await self.runtime.open(built, id=session), definition, restored)
        await agent.restore()
        return agent

    async def create_react_state(self, agent_def: str, parent_state_id: str = "") -> AgentState:
        """Create the state of an agent that calls tools in a loop."""
        return await self._create_typed_state(agent_def, parent_state_id, "react")

    async def create_match_state(self, agent_def: str, parent_state_id: str = "") -> AgentState:
        """Create the state of a router."""
        return await self._create_typed_state(agent_def, parent_state_id, "match")

    async def get_state(self, state_id: str) -> AgentState | None:
        """Return a state, ``None`` if there is none with this id."""
        name, path = path_of_state_id(state_id.removeprefix("state:"))
        session = parse_session_id(name)
        view = await read_conversation(self.runtime, session, path)
        if view is None:
            return None
        agent = self._try_agent(view.opened.state.agent)
        handle = await self.runtime.open(agent or Agent(view.opened.state.agent), id=session)
        if path:
            above = view.window.conversation_start(view.path[:-1])
            kind = self._class_of(view.agent, "")
            return kind(self.runtime, handle, path, view.agent, state_id_of(session, above))
        details = await self._read_details(session)
        kind = self._class_of(view.agent, details.get("state_type", ""))
        return kind(self.runtime, handle, (), view.agent, details.get("parent_state_id", ""))

    async def destroy_state(self, state_id: str, archive: bool = False) -> None:
        """Delete a state; with ``archive`` it is kept as a document that ``restore_agent`` imports.

        Raises ``NotFound`` for an unknown state, ``InvalidInput`` for a child agent, and ``Busy`` while a turn runs.
        """
        state = await self.get_state(state_id)
        values, key = self.runtime.store.values, ARCHIVE_PREFIX + state_id
        if state is None:
            if await values.get(key) is None:
                raise NotFound(f'state "{state_id}" not found')
            if not archive:
                await values.put(key, None)
            return
        session, path = path_of_state_id(state_id)
        if path:
            raise InvalidInput(f'state "{state_id}" belongs to a child agent; destroy "{session}"')
        document = msgspec.to_builtins(await state.to_document()) if archive else None
        await values.put(key, document)
        await self.runtime.store.sessions.delete(SessionId(session))
        if (destroyed := self._destructions.pop(session, None)) is not None:
            destroyed.set()

    async def export_state(self, state_id: str) -> StateDocument:
        """Return a state as a document. Raises ``NotFound``."""
        state = await self.get_state(state_id)
        if state is None:
            raise NotFound(f'state "{state_id}" not found')
        return await state.to_document()

    async def import_state(self, document: StateDocument, *, state_id: str = "") -> AgentState:
        """Create a state from a document, under its own id or another one. Raises ``InvalidInput`` if it exists."""
        id = _new_state_id(state_id or document.id)
        agent = self._try_agent(document.agent_def) or Agent(document.agent_def)
        session = await self.runtime.open(agent, id=id)
        opening = self._make_opening(document.agent_def, document.state_type, document.parent_state_id)
        imported = import_entries(document, self.runtime.env.ids.new_id)

        def compose(now: OpenedSession) -> list[LogEntry]:
            if now.last is not None:
                raise InvalidInput(f'state "{id}" exists; import the document with another state_id')
            return [(0, EventScope(), opening), *imported]

        await work_of(session).append_imported(compose)
        state = await self.get_state(id)
        assert state is not None  # noqa: S101  # it was written
        return state

    def _open_agent(self, session: GenxSession, definition: Any, state: AgentState) -> GenxAgent:
        destroyed = self._destructions.get(session.id)
        if destroyed is None or destroyed.is_set():  # set: another process destroyed an earlier state of this id
            destroyed = self._destructions[session.id] = asyncio.Event()
        return GenxAgent(self, session, definition, state, destroyed)

    def _find_agent(self, agent: "Agent[Any, Any] | AgentDefinition | str") -> tuple[Agent[Any, Any], Any]:
        """Return an agent, and its definition."""
        if isinstance(agent, Agent):
            if self._agents.setdefault(agent.name, agent) is not agent:
                raise InvalidInput(f"there is another agent {agent.name!r}; give this one another name")
            return agent, agent
        if isinstance(agent, AgentDefinition):
            self._add_definition(agent)
        name = _name_in(agent) if isinstance(agent, str) else agent.name
        if name in self._agents:
            return self._agents[name], self._agents[name]
        definition = _require("agent", name, self._definitions.agent(name), self._definitions)
        return self._builder.build_agent(name), definition

    def _add_definition(self, definition: AgentDefinition) -> None:
        known = self._definitions.agent(definition.name)
        if known == definition and definition.name not in self._agents:
            return
        if known is not None or definition.name in self._agents:
            raise InvalidInput(f"there is another agent {definition.name!r}; give this one another name")
        added = Definition(kind="agent", name=definition.name, value=definition)
        self._definitions = DefinitionSet([*self._definitions, added])
        self._builder = DefinitionBuilder(self._definitions, self._sources)

    def _try_agent(self, name: str) -> Agent[Any, Any] | None:
        """Return an agent, ``None`` if it is unknown or its definition cannot be used."""
        try:
            return self._find_agent(name)[0]
        except (ConfigError, NotFound):
            return None

    def _require_type(self, agent: "Agent[Any, Any] | AgentDefinition | str", state_type: StateType) -> None:
        built, _ = self._find_agent(agent)
        if state_class_of(built).state_type != state_type:
            raise InvalidInput(f"the agent {built.name!r} is not of type {state_type}")

    def _class_of(self, agent_def: str, state_type: str) -> type[AgentState]:
        if state_type in _STATE_CLASSES:
            return _STATE_CLASSES[state_type]
        return state_class_of(self._try_agent(agent_def))

    async def _create_typed_state(self, agent_def: str, parent_state_id: str, state_type: StateType) -> AgentState:
        self._require_type(agent_def, state_type)
        return await self._create_state(self._find_agent(agent_def)[0], parent_state_id, "")

    async def _create_state(self, agent: Agent[Any, Any], parent_state_id: str, state_id: str) -> AgentState:
        session = await self.runtime.open(agent, id=_new_state_id(state_id) if state_id else "")
        kind = state_class_of(agent)
        opening = self._make_opening(agent.name, kind.state_type, parent_state_id)

        async def compose(now: OpenedSession) -> list[tuple[str, EventScope, SessionOpened]]:
            if now.last is not None:
                raise InvalidInput(f'state "{session.id}" exists; use restore_agent')
            return [("", EventScope(), opening)]

        await work_of(session).append_entries(compose)
        return kind(self.runtime, session, (), agent.name, parent_state_id)

    def _make_opening(self, agent_def: str, state_type: str, parent_state_id: str) -> SessionOpened:
        details = {"state_type": state_type, "parent_state_id": parent_state_id}
        return SessionOpened(agent=agent_def, metadata={METADATA_KEY: details})

    async def _read_details(self, session: SessionId) -> Mapping[str, str]:
        async for event in self.runtime.store.events.read(session, upto=1):
            if isinstance(event.data, SessionOpened):
                return event.data.metadata.get(METADATA_KEY) or {}
        return {}

    async def _import_archived(self, state_id: str) -> AgentState | None:
        document = await self.runtime.store.values.get(ARCHIVE_PREFIX + state_id)
        if document is None:
            return None
        state = await self.import_state(StateDocument.from_json(document), state_id=state_id)
        await self.runtime.store.values.put(ARCHIVE_PREFIX + state_id, None)
        return state
