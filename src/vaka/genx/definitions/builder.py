"""Build agents and tools from definitions: resolve their references, and decide what an untrusted folder may do."""

import re
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, cast

import msgspec

from vaka.agents.react import Agent, AgentOrigin, ToolLike, tool_name_of
from vaka.core.loop.middleware import Middleware
from vaka.core.types.errors import ConfigError, InvalidInput, NotFound, ScriptError
from vaka.core.types.keywords import unknown_name_message
from vaka.core.types.tool import UNTRUSTED_LAYER
from vaka.genx.definitions.agents import (
    AgentDefinition,
    AgentToolDefinition,
    LuaAgentDefinition,
    MatchDefinition,
    ReactDefinition,
    RuleDocument,
    RuleSlot,
)
from vaka.genx.definitions.context_layers import (
    THIS_FIELDS,
    ContextLayer,
    ContextLayerReference,
    EnvironmentLayer,
    FieldLayer,
    InlineLayer,
    MemoryLayer,
)
from vaka.genx.definitions.definition_set import Definition, DefinitionSet
from vaka.genx.definitions.generators import ContextDefinition, GeneratorDefinition
from vaka.genx.definitions.references import DefinitionKind, Reference, Slot
from vaka.genx.definitions.tools import (
    BuiltinToolDefinition,
    CompositeToolDefinition,
    GeneratorToolDefinition,
    HttpToolDefinition,
    LuaToolDefinition,
    ScriptDefinition,
    TextProcessorDefinition,
    ToolDefinition,
    ToolSlot,
)
from vaka.genx.definitions.variables import DefinitionVariables
from vaka.genx.prompt_layers import ConversationMemory, EnvironmentText, TextLayer, build_instructions, join_layers
from vaka.genx.quit_tools import QuitTools
from vaka.genx.services import DefinitionParts
from vaka.tools.function import sanitize_name

DEFINITION_LAYER = "definition"
"""The layer of tools of a trusted folder: the permission mode decides on calls that no rule matches."""

OFFLINE_MODEL = "offline"
"""The model of a router that matches without one."""

SERVER_PREFIX = "mcp__"
"""The beginning of the names of MCP tools."""
_VARIABLE = re.compile(r"\$\$|\$\{(\w+)\}|\$([A-Za-z_]\w*)")


class DefinitionError(ConfigError):
    """A definition that cannot be used; ``place`` is its file and line."""

    def __init__(self, message: str, place: str = "") -> None:
        super().__init__(f"{place}: {message}" if place else message)
        self.place = place


class DefinitionSources(msgspec.Struct, frozen=True, kw_only=True):
    """The sources that definitions may use in addition to each other."""

    parts: DefinitionParts
    """What other folders make."""
    trusted: bool = False
    """Whether scripts may run in this process, and variables be read."""
    tools: "Mapping[str, ToolLike]" = {}
    """Tools of the program by name, for definitions of built-in tools."""
    variables: Mapping[str, str] = {}
    """The environment variables that definitions of a trusted folder may read."""
    models: frozenset[str] = frozenset()
    """Names of models that references may use, in addition to the names of generators."""

    def knows(self, kind: DefinitionKind, name: str) -> bool:
        """Return whether a reference can name something that is not defined in the folder."""
        if kind == "generator":
            return "/" in name or name in self.models
        return kind == "tool" and (name.startswith(SERVER_PREFIX) or self.find_tool(name) is not None)

    def find_tool(self, name: str) -> "ToolLike | None":
        """Return a tool of the program, or the name of a built-in one."""
        if name in self.tools:
            return self.tools[name]
        with suppress(InvalidInput):
            return self.parts.select_builtin_tools([name])[0]
        return None


class DefinitionBuilder:
    """Builds the agents of one set of definitions, each once. Raises ``DefinitionError``."""

    def __init__(
        self,
        definitions: DefinitionSet,
        sources: DefinitionSources,
        origin: AgentOrigin | None = None,
        middleware: Sequence[Middleware] = (),
    ) -> None:
        """Every agent gets ``origin`` and ``middleware``."""
        self._definitions = definitions
        self._sources = sources
        self._middleware = tuple(middleware)
        self._origin = origin
        self._layer = DEFINITION_LAYER if sources.trusted else UNTRUSTED_LAYER
        self._agents: dict[str, Agent] = {}
        self._tools: dict[str, ToolLike] = {}
        self._open: list[str] = []
        """The agents and tools that are being built, from the outermost on."""
        self._uses_servers = any(_names_server_tool(definition.value) for definition in definitions)
        self.server_tools: set[str] = set()
        """The tools of MCP servers that the agents name."""
        self.notes: list[str] = []
        """Fields that have no effect, each with its file and line."""
        self._variables = DefinitionVariables(sources.variables, trusted=sources.trusted, note=self.notes.append)

    def build_agent(self, name: str) -> Agent:
        """Return the agent with a name."""
        if name not in self._agents:
            found = self._definitions.find("agent", name)
            if found is None:
                raise DefinitionError(unknown_name_message("agent", name, self._definitions.table("agent")))
            with self._enter(f"agent {name}", found.origin):
                self._agents[name] = self._make_agent(found.value)
        return self._agents[name]

    def build_tool(self, tool: str | ToolDefinition) -> ToolLike:
        """Return the tool with a name, or the tool of a definition, which may be outside the set."""
        name = tool if isinstance(tool, str) else tool.name
        if isinstance(tool, str):
            slot = ToolSlot(Reference("tool", name))
            found = self._definitions.find("tool", name)
            with self._enter(f"use of tool {name}", found.origin if found is not None else ""):
                return self._tool_of(slot)
        with self._enter(f"tool {name}", ""):
            return self._make_tool(tool)

    @contextmanager
    def _enter(self, what: str, origin: str) -> Generator[None]:
        """Build one definition: refuse a definition that refers to itself, and add the file and line to its errors."""
        place = origin or what
        if what in self._open:
            chain = " → ".join([*self._open[self._open.index(what) :], what])
            raise DefinitionError(f"{what} refers to itself: {chain}", place)
        if len(self._open) >= MAX_NESTING:
            raise DefinitionError(f"{self._open[0]} refers to definitions more than {MAX_NESTING} deep", place)
        self._open.append(what)
        try:
            yield
        except DefinitionError:
            raise
        except (ConfigError, InvalidInput, NotFound, ScriptError) as error:
            raise DefinitionError(str(error), place) from error
        finally:
            self._open.pop()

    # ------------------------------------------------------------------------------------------------------- agents

    def _agent_of(self, slot: Slot[AgentDefinition]) -> Agent:
        if slot.reference is not None:
            return self.build_agent(self._find(slot.reference).name)
        if slot.definition is None:
            raise ConfigError("an agent is missing; write its definition, or $ref: agent:NAME")
        return self._make_agent(slot.definition)

    def _find(self, reference: Reference) -> Definition:
        found = self._definitions.resolve(reference)
        if found is None:
            self._definitions.require_valid(reference.kind, reference.name)
            known = self._definitions.table(reference.kind)
            raise ConfigError(unknown_name_message(reference.kind, reference.name, known))
        return found

    def _make_agent(self, definition: AgentDefinition) -> Agent:
        agent = self._make_agent_of_kind(definition)
        agent.origin = self._origin
        return agent

    def _make_agent_of_kind(self, definition: AgentDefinition) -> Agent:
        generator = self._generator_of(definition.generator)
        layers, memory = self._layers_of(definition, definition.context_layers)
        prompt = layers if definition.context_layers else [self._variables.layer_of(definition.prompt, "prompt")]
        common: dict[str, Any] = {
            "model": generator.model or None,
            "options": generator.options,
            "description": self._variables.expand(definition.description, "description"),
            "instructions": build_instructions(prompt, self._sources.variables),
        }
        match definition:
            case ReactDefinition():
                (tools, added), memory = self._tools_of(definition.tools), memory or MemoryLayer()
                middleware = [
                    *self._middleware,
                    *added,
                    ConversationMemory(recent=memory.recent, summary=memory.summary, query=memory.query),
                ]
                return Agent(definition.name, tools=tools, middleware=middleware, **common)
            case LuaAgentDefinition():
                script, libs = _script_of(definition.script)
                return self._sources.parts.make_script_agent(
                    definition.name,
                    script,
                    libs=libs,
                    trusted=self._sources.trusted,
                    layer="code" if self._sources.trusted else UNTRUSTED_LAYER,
                    tools=self._tools_of(definition.tools)[0],
                    middleware=self._middleware,
                    **common,
                )
            case MatchDefinition():
                del common["instructions"]
                if common["model"] == OFFLINE_MODEL:
                    common |= {"model": None, "matcher": "offline"}
                from vaka.genx.match.router import MatchAgent, Route  # noqa: PLC0415  # a router is rarely used

                return MatchAgent(
                    definition.name,
                    rules=[self._rule_of(slot) for slot in definition.rules],
                    routes=[Route(route.rules, self._agent_of(route.agent)) for route in definition.route],
                    default=None if definition.default.is_empty else self._agent_of(definition.default),
                    middleware=self._middleware,
                    **common,
                )
            case _:
                raise ConfigError(f"agents of the type {definition.type!r} cannot be run here")

    def _rule_of(self, slot: RuleSlot) -> RuleDocument:
        found: RuleDocument = self._find(slot.reference).value if slot.reference is not None else slot.definition or {}
        return found

    def _generator_of(self, slot: Slot[GeneratorDefinition]) -> GeneratorDefinition:
        """Return the model and options of an agent; a model may have the name of a generator."""
        named = slot.reference
        found: GeneratorDefinition = slot.definition or GeneratorDefinition()
        if named is not None:
            is_model = self._definitions.resolve(named) is None and self._sources.knows(named.kind, named.name)
            found = GeneratorDefinition(model=named.name) if is_model else self._find(named).value
        passed, found = {found.name}, self._expand_generator(found)
        while (below := self._definitions.generator(found.model)) is not None and below.name not in passed:
            passed.add(below.name)
            options = {name: getattr(found, name) for name in found.options}
            found = msgspec.structs.replace(self._expand_generator(below), **options)
        if self._sources.parts.reads_file(found.model) and not self._sources.trusted:
            refusal = "reads a file, which only a trusted folder may do; `vaka trust` trusts it"
            raise ConfigError(f"the model {found.model!r} {refusal}")
        return found

    def _expand_generator(self, generator: GeneratorDefinition) -> GeneratorDefinition:
        model, extra = generator.model, generator.extra
        return msgspec.structs.replace(
            generator, model=self._variables.expand(model, "model"), extra=self._variables.expand_all(extra, "extra")
        )

    # ----------------------------------------------------------------------------------------------- context layers

    def _layers_of(
        self, owner: msgspec.Struct, layers: Iterable[ContextLayer]
    ) -> tuple[list[TextLayer], MemoryLayer | None]:
        """Return the layers that have a text, and the first ``$mem`` layer."""
        texts: list[TextLayer] = []
        memory: MemoryLayer | None = None
        for layer in layers:
            match layer:
                case InlineLayer():
                    texts.append(self._variables.layer_of(layer.text, "a context layer"))
                case FieldLayer():
                    text = str(getattr(owner, layer.field, "")) if layer.field in THIS_FIELDS else ""
                    texts.append(self._variables.layer_of(text, layer.field))
                case ContextLayerReference():
                    context: ContextDefinition = self._find(layer.reference).value
                    texts.append(self._variables.layer_of(context.prompt, f"the context {context.name}"))
                case EnvironmentLayer():
                    self._variables.require(layer.variable, "$env")
                    texts.append(EnvironmentText(layer.variable))
                case MemoryLayer():
                    memory = memory or layer
        return texts, memory

    # -------------------------------------------------------------------------------------------------------- tools

    def _tools_of(self, slots: Iterable[ToolSlot]) -> tuple[list[ToolLike], list[Middleware]]:
        """Return the tools of an agent without MCP tools, and the middleware for its MCP servers and quit tools."""
        tools: dict[str, ToolLike] = {}
        served: dict[str, None] = {}
        quitting: list[str] = []
        for slot in slots:
            tool = None if self._is_of_server(slot) else self._tool_of(slot)
            name = slot.name if tool is None else tool_name_of(tool)
            if name in tools or name in served:
                raise ConfigError(f"two tools are named {name!r}")
            if tool is None:
                served[name] = None
            else:
                tools[name] = tool
            quitting += [name] if slot.quit else []
        self.server_tools.update(served)
        filters = [self._sources.parts.keep_server_tools([*served])] if self._uses_servers else []
        return [*tools.values()], [*([QuitTools(*quitting)] if quitting else []), *filters]

    def _is_of_server(self, slot: ToolSlot) -> bool:
        """Return whether a slot names a tool of an MCP server, which the agent gets from the server."""
        is_name = slot.reference is not None or isinstance(slot.definition, BuiltinToolDefinition)
        known = slot.name in self._sources.tools or self._definitions.find("tool", slot.name) is not None
        return is_name and slot.name.startswith(SERVER_PREFIX) and not known

    def _tool_of(self, slot: ToolSlot) -> ToolLike:
        reference, definition = slot.reference, slot.definition
        if definition is not None:
            return self._make_tool(definition)
        if reference is None:
            raise ConfigError("a tool is missing; write its definition, or $ref: tool:NAME")
        found = self._definitions.resolve(reference)
        if found is None:
            self._definitions.require_valid("tool", reference.name)
            return self._find_known_tool(reference.name)
        if found.name not in self._tools:
            with self._enter(f"tool {found.name}", found.origin):
                self._tools[found.name] = self._make_tool(found.value)
        return self._tools[found.name]

    def _find_known_tool(self, name: str) -> ToolLike:
        found = self._sources.find_tool(name)
        if found is not None:
            return found
        known = [
            *self._definitions.table("tool"),
            *self._sources.tools,
            *self._sources.parts.select_builtin_tools(None),
        ]
        raise ConfigError(unknown_name_message("tool", name, known))

    def _make_tool(self, definition: ToolDefinition) -> ToolLike:
        description = self._variables.expand(definition.description, "description")
        definition = msgspec.structs.replace(definition, description=description)
        match definition:
            case BuiltinToolDefinition():
                return self._find_known_tool(definition.name)
            case LuaToolDefinition():
                script, libs = _script_of(definition.script)
                return self._sources.parts.make_script_tool(
                    script,
                    name=definition.name,
                    description=definition.description,
                    params=definition.params,
                    libs=libs,
                    trusted=self._sources.trusted,
                    layer=self._layer,
                )
            case AgentToolDefinition():
                agent = self._agent_of(definition.agent)
                about = definition.description or agent.description or f"Hand a task to the agent {agent.name}."
                return agent.as_tool(name=sanitize_name(definition.name), description=about)
            case HttpToolDefinition():
                return self._make_http_tool(definition)
            case GeneratorToolDefinition() | TextProcessorDefinition():
                return self._make_model_tool(definition)
            case CompositeToolDefinition():
                from vaka.genx.kinds.composite import CompositeTool, ToolStep  # noqa: PLC0415  # with its first tool

                steps = [ToolStep(step.id, self._tool_of(step.tool), step.input_jq) for step in definition.steps]
                return CompositeTool(
                    definition.name,
                    steps=steps,
                    description=definition.description,
                    mode=definition.mode,
                    layer=self._layer,
                )
            case _:
                raise ConfigError(f"tools of the type {definition.type!r} cannot be used here")

    def _make_http_tool(self, definition: HttpToolDefinition) -> ToolLike:
        auth = definition.auth
        fields = {name: value for name, value in msgspec.structs.asdict(auth).items() if value} if auth else None
        texts = [definition.endpoint]
        for table in (definition.query, definition.headers, fields or {}):
            texts += table.values()
        for found in (found for text in texts for found in _VARIABLE.finditer(text)):
            if name := found[1] or found[2]:
                self._variables.require(name, "a request")
        timeout: dict[str, Any] = {"timeout": definition.timeout} if definition.timeout is not None else {}
        from vaka.genx.kinds.http import HttpTool  # noqa: PLC0415  # with its first tool

        return HttpTool(
            definition.name,
            endpoint=definition.endpoint,
            description=definition.description,
            method=definition.method,
            params=definition.params,
            query=definition.query,
            headers=definition.headers,
            auth=fields,
            req_body_jq=definition.req_body_jq,
            resp_body_jq=definition.resp_body_jq,
            max_response_size_mb=definition.max_response_size_mb,
            layer=self._layer,
            variables=self._sources.variables,
            **timeout,
        )

    def _make_model_tool(self, definition: GeneratorToolDefinition | TextProcessorDefinition) -> ToolLike:
        generator = self._generator_of(Slot(definition=GeneratorDefinition(model=definition.model)))
        common: dict[str, Any] = {
            "model": generator.model,
            "options": generator.options,
            "description": definition.description,
            "output_schema": definition.output_schema,
            "layer": self._layer,
            "prompt": self._variables.expand(definition.prompt, "prompt"),
        }
        from vaka.genx.kinds.generator import GeneratorTool, TextProcessorTool  # noqa: PLC0415  # with its first tool

        if isinstance(definition, TextProcessorDefinition):
            return TextProcessorTool(definition.name, output_mode=definition.output_mode, **common)
        layers, _ = self._layers_of(definition, definition.context_layers)
        context = join_layers(layers, self._sources.variables)
        return GeneratorTool(definition.name, mode=definition.mode, context=[context], **common)


def _names_server_tool(value: object) -> bool:
    """Return whether a definition, or one inside it, names a tool of an MCP server."""
    if isinstance(value, ToolSlot) and value.name.startswith(SERVER_PREFIX):
        return True
    if isinstance(value, msgspec.Struct):
        return any(_names_server_tool(getattr(value, name)) for name in value.__struct_fields__)
    return isinstance(value, tuple) and any(_names_server_tool(item) for item in cast("tuple[object, ...]", value))


def _script_of(script: ScriptDefinition) -> tuple[str | Path, tuple[Path, ...]]:
    """Return the file or the text of a script, and the folder of its library, if it has one."""
    if script.path is None:
        return f"{script.text}\n", ()  # a text without white space would be a path
    return script.path, (script.libs,) if script.libs is not None else ()


MAX_NESTING = 64
"""The definitions that may need each other in a row."""
