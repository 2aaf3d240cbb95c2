"""Middleware that gives agents the content of a project: memory in the prompt, skills, commands and child agents."""

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, cast
from weakref import WeakKeyDictionary

import msgspec

from vaka.agents.react import Agent
from vaka.config.claude_settings import MODEL_TIERS
from vaka.config.components import AgentFile, CommandFile, Component, Components, Skill
from vaka.config.project_content import ProjectContent, ProjectSource
from vaka.core.decisions.permission import PermittedCall
from vaka.core.decisions.wait import DecisionPending
from vaka.core.loop.children.subagent import child_result, run_subagent
from vaka.core.loop.context import Recipe, Turn
from vaka.core.loop.middleware import Middleware
from vaka.core.loop.tools.context import CallContext
from vaka.core.loop.tools.run import run_in_context
from vaka.core.ports.model import Model
from vaka.core.ports.policy import GrantingPolicy
from vaka.core.ports.tool import Tool, ToolContext
from vaka.core.session.state import OpenCall
from vaka.core.types.control import StateChanged
from vaka.core.types.errors import ConfigError, InvalidInput
from vaka.core.types.ids import CallId, MessageId
from vaka.core.types.message import Content, Text, ToolCall, ToolResult, as_content
from vaka.core.types.monitor import Logged
from vaka.core.types.tool import Allow, Deny, Grant, InvalidArguments, ParsedArguments, ToolSpec
from vaka.runtime.model_registry import ModelRegistry
from vaka.tools.function import FunctionTool, ToolReturn, tool

RELOAD_SECONDS = 1.0
"""The content is loaded again at most so often."""
MENU_CHARACTERS = 15_000
"""Characters of the names and descriptions of skills, commands or agents in the description of a tool."""
GIVEN_KEY = "memory.given"
"""The session value that lists the nested memory files and rules that the model has read."""
GENERAL_AGENT = "general-purpose"
FILE_TOOLS = ("Read", "Write", "Edit", "MultiEdit", "NotebookEdit")
MAX_INLINED_BYTES = 256 * 1024

_GENERAL_PROMPT = (
    "You are an agent that does one task for another agent. Do all of it, use the tools you need, and answer with "
    "everything the other agent has to know; it sees nothing but your last answer."
)
_COMMAND_LINE = re.compile(r"/([\w:.-]+)(?:\s+(.*))?\s*", re.DOTALL)
_SHELL_BLOCK = re.compile(r"!`([^`\n]+)`")
_FILE_REFERENCE = re.compile(r"(?<!\S)@((?:\\ |[^\s\\]){1,1000})")

BuildRecipe = Callable[[Agent, Model | None], Recipe]
ChooseModel = Callable[[str, str, Model], Model]
"""Returns the model for the model name and the agent name of a file, and the model of the calling agent."""


class ProjectTools(Middleware):
    """Adds the content of a project to every agent of a runtime."""

    admits_steering = True

    def __init__(
        self, source: ProjectSource, folder: str, build_recipe: BuildRecipe, choose_model: ChooseModel
    ) -> None:
        self._source, self._folder = source, folder
        self._build_recipe, self._choose_model = build_recipe, choose_model
        self._loaded_at = -RELOAD_SECONDS
        self._tools: tuple[Tool, ...] = ()
        self._agents: WeakKeyDictionary[Recipe, dict[str, Agent]] = WeakKeyDictionary()
        """Agents of the files, by the calling recipe and name, so that their recipes are cached."""
        self._definitions: WeakKeyDictionary[Recipe, AgentFile] = WeakKeyDictionary()

    @property
    def name(self) -> str:
        return "project"

    @cached_property
    def content(self) -> ProjectContent:
        """The content as it was loaded last."""
        return self._source.load(self._folder)

    def _refresh(self, turn: Turn) -> None:
        """Load the content again when some time has passed; what did not change stays the same object."""
        now = turn.env.clock.monotonic()
        if now - self._loaded_at < RELOAD_SECONDS:
            return
        self._loaded_at = now
        try:
            content = self._source.load(self._folder)
        except ConfigError as error:  # a file is being edited: what was loaded before still holds
            turn.log.defer(turn.scope, Logged(level="warning", message=str(error)))
            content = self.content
        if content != self.content or not self._tools:
            self.content = content
            self._tools = tuple(_ProjectTool(function) for function in self._make_functions(content.components))
            self._agents.clear()
            self._definitions.clear()

    def _make_functions(self, components: Components) -> Iterator[FunctionTool[..., Any]]:
        """Yield the functions of the tools, which list what there is in their descriptions."""
        skills = [skill for skill in components.skills if skill.model_invocable]
        commands = [command for command in components.commands if command.model_invocable]
        if skills:
            about = "Read the instructions of a skill, before you do what it is about. The skills are:"
            yield tool(self._use_skill, name="Skill", description=_menu(about, skills), effect="read")
        if commands:
            about = "Read the prompt of a command that the user has prepared, and follow it. The commands are:"
            text = _menu(about, commands, prefix="/")
            yield tool(self._use_command, name="SlashCommand", description=text, effect="read")
        about = f"Hand a task to another agent, which works alone and answers once. The agents are:\n- {GENERAL_AGENT}"
        text = _menu(about, components.agents)
        yield tool(self._run_agent, name="Task", description=text, effect="resume", timeout=None)

    async def tools_for_step(self, turn: Turn) -> Sequence[Tool]:
        self._refresh(turn)
        definition = self._definitions.get(turn.recipe)
        if definition is None or definition.tools is None:
            return self._tools
        allowed = {_tool_name(text) for text in definition.tools}
        return [tool for tool in self._tools if tool.spec.name in allowed]

    async def prompt_for_step(self, turn: Turn) -> str:
        return self.content.prompt

    async def before_agent(self, turn: Turn, content: Content) -> Content:
        """Replace a prompt that begins with the name of a command or skill by its text."""
        self._refresh(turn)
        first = content[0] if content and not turn.path else None
        match = _COMMAND_LINE.fullmatch(first.text.strip()) if isinstance(first, Text) else None
        found = self._find_command(match[1]) if match else None
        if match is None or found is None:
            return content
        return (Text(text=await self._expand(turn, found, match[2] or "")), *content[1:])

    def _find_command(self, name: str) -> CommandFile | Skill | None:
        components = self.content.components
        command = components.find_command(name)
        skill = components.find_skill(name) if command is None else None
        return command or (skill if skill is not None and skill.user_invocable else None)

    async def _use_skill(self, context: ToolContext, skill: str = "", args: str = "", command: str = "") -> str:
        name = (skill or command).strip().removeprefix("/")
        found = self.content.components.find_skill(name)
        if found is None or not found.model_invocable:
            raise InvalidInput(f"there is no skill {name!r}")
        return await self._expand(cast("CallContext", context).owner_turn, found, args)

    async def _use_command(self, context: ToolContext, command: str) -> str:
        match = _COMMAND_LINE.fullmatch(f"/{command.strip().removeprefix('/')}")
        found = self.content.components.find_command(match[1]) if match else None
        if match is None or found is None or not found.model_invocable:
            raise InvalidInput(f"there is no command {command!r}")
        return await self._expand(cast("CallContext", context).owner_turn, found, match[2] or "")

    async def _run_agent(
        self,
        context: ToolContext,
        prompt: Annotated[str, "What the agent should do, in full: it sees nothing else."],
        description: Annotated[str, "The task in three to five words."] = "",
        subagent_type: str = GENERAL_AGENT,
    ) -> ToolResult:
        if not prompt.strip():
            raise InvalidInput("the prompt of the agent is empty")
        parent = cast("CallContext", context).owner_turn
        definition = self.content.components.find_agent(subagent_type)
        if definition is None and subagent_type != GENERAL_AGENT:
            names = ", ".join(dict.fromkeys([GENERAL_AGENT, *(file.name for file in self.content.components.agents)]))
            raise InvalidInput(f"there is no agent {subagent_type!r}; there are: {names}")
        agent = self._agent_for(definition, parent)
        recipe = self._build_recipe(agent, parent.recipe.model)
        if definition is not None:
            self._definitions[recipe] = definition
        ending = await run_subagent(context, recipe, as_content(prompt))
        return child_result(context.call, agent.name, ending)

    def _agent_for(self, definition: AgentFile | None, parent: Turn) -> Agent:
        """Return the agent of a definition, with the tools that it may use of those of the calling agent."""
        name = definition.name if definition is not None else GENERAL_AGENT
        agents = self._agents.setdefault(parent.recipe, {})
        if name not in agents:
            own = {tool.spec.name for tool in self._tools}
            tools = [tool for tool in parent.tools.values() if tool.spec.name not in own]
            agents[name] = (
                Agent(name, instructions=_GENERAL_PROMPT, tools=tools, limits=parent.limits)
                if definition is None
                else self._make_agent(definition, parent, tools)
            )
        return agents[name]

    def _make_agent(self, definition: AgentFile, parent: Turn, tools: list[Tool]) -> Agent:
        if definition.tools is not None:
            allowed = {_tool_name(text) for text in definition.tools}
            tools = [tool for tool in tools if tool.spec.name in allowed]
        denied = {_tool_name(text) for text in definition.disallowed_tools}
        bodies = [self._skill_text(name) for name in definition.skills]
        instructions = "\n\n".join(text for text in (definition.read_body().strip(), *bodies) if text)
        limits = msgspec.structs.replace(parent.limits, max_steps=definition.max_turns or parent.limits.max_steps)
        return Agent(
            definition.name, instructions=instructions, limits=limits,
            model=self._choose_model(definition.model, definition.name, parent.recipe.model),
            tools=[tool for tool in tools if tool.spec.name not in denied],
            middleware=[NarrowedMode(definition.permission_mode)] if definition.permission_mode else [],
        )  # fmt: skip

    def _skill_text(self, name: str) -> str:
        skill = self.content.components.find_skill(name)
        return f"# Skill: {name}\n\n{skill.read_body().strip()}" if skill is not None else ""

    async def _expand(self, turn: Turn, component: CommandFile | Skill, arguments: str) -> str:
        """Return the text of a command or skill, with arguments, outputs of commands and files inserted."""
        body = component.read_body().strip()
        if isinstance(component, Skill):
            body = body.replace("${CLAUDE_SKILL_DIR}", str(component.folder))
        text = insert_arguments(body, arguments)
        parts = _SHELL_BLOCK.split(text)
        parts[1::2] = [await self._run_block(turn, component, command) for command in parts[1::2]]
        text = _FILE_REFERENCE.sub(lambda match: _inline_file(turn, self.content.root, match), "".join(parts))
        if isinstance(component, Skill):
            return f"Base folder of this skill: {component.folder}\n\n{text}"
        return text

    async def _run_block(self, turn: Turn, component: CommandFile | Skill, command: str) -> str:
        """Run a command of a text as a governed call of Bash, and return its output; one that would ask is not run."""
        bash = turn.tools.get("Bash")
        if bash is None:
            return f"[{command}: not run, there is no tool Bash]"
        given = ToolCall(id=CallId(f"block_{component.name}"), name="Bash", arguments={"command": command})
        call, end, verdict = await turn.middleware.before_tool(turn, given)
        if end is not None:
            return f"[{command}: not run, {end.text if isinstance(end, ToolResult) else end.reason}]"
        judged = self._judge(turn, component, call, bash.spec)
        if not isinstance(judged, Allow) and not isinstance(verdict, Allow):
            return f"[{command}: not run, it is not allowed; add it to allowed-tools or to the permission rules]"
        folder = judged.folder if isinstance(judged, Allow) else None
        permitted = PermittedCall(bash, call, folder)
        open_call = OpenCall(call=call, path=turn.path, message=MessageId(""), step=0, number=0)
        turn.log.defer(turn.scope, Logged(level="info", message=f"/{component.name} runs: {command}"))
        try:
            result = await run_in_context(permitted, CallContext(turn, open_call, permitted))
        except DecisionPending:
            return f"[{command}: not run, it waits for a person]"
        return result.text.strip().removesuffix("[exit code 0]").rstrip()

    def _judge(self, turn: Turn, component: CommandFile | Skill, call: ToolCall, spec: ToolSpec) -> object:
        """Return the verdict of the policy, with the allowed tools of a component of a trusted folder."""
        policy = turn.env.policy
        if self._source.trusted and component.allowed_tools and hasattr(policy, "with_grants"):
            grants = [Grant(rule="\n".join(component.allowed_tools))]
            policy = cast("GrantingPolicy", policy).with_grants(grants)
        return policy.judge(call, spec, turn.path)


class FileMemory(Middleware):
    """Adds the rules and nested memory files of a file when a tool has read or changed it, each once in a session."""

    inherited = ()

    def __init__(self, project: ProjectTools) -> None:
        self._project = project

    async def after_tool(self, turn: Turn, call: ToolCall, result: ToolResult) -> ToolResult:
        """Add the texts to the result of a file tool."""
        path = call.arguments.get("file_path") or call.arguments.get("notebook_path") or call.arguments.get("path")
        if call.name not in FILE_TOOLS or result.failed or not isinstance(path, str):
            return result
        given = cast("list[str]", turn.get_state(GIVEN_KEY) or [])
        content = self._project.content
        texts = content.texts_for(Path(content.root, path), given)
        if not texts:
            return result
        turn.log.defer(turn.scope, StateChanged(key=GIVEN_KEY, value=[*given, *(str(text.path) for text in texts)]))
        added = [Text(text=f"\n\n# Memory for this file: {text.path}\n\n{text.text}") for text in texts]
        return msgspec.structs.replace(result, content=(*result.content, *added))


class NarrowedMode(Middleware):
    """Narrows the permissions of an agent: ``plan`` only reads, ``dontAsk`` refuses what would ask."""

    def __init__(self, mode: str) -> None:
        self._mode = mode

    async def before_tool(self, turn: Turn, call: ToolCall) -> ToolCall | Deny:
        called = turn.tools.get(call.name)
        if self._mode == "plan" and called is not None and called.spec.effect != "read":
            return Deny("this agent only reads (permissionMode: plan)")
        return call


def model_chooser(models: ModelRegistry) -> ChooseModel:
    """Return the function that chooses the models of agent files: by tier, by name, else that of the caller."""

    def choose(model: str, agent: str, parent: Model) -> Model:
        tier = MODEL_TIERS.get(model.lower(), "")
        if model and not tier and model.lower() != "inherit":
            return models.find(model)
        if tier in models.config.tiers or models.has_tier_for(agent):
            return models.choose(tier=tier, subagent=agent, fallback=parent)
        return parent

    return choose


def insert_arguments(body: str, arguments: str) -> str:
    """Replace ``$ARGUMENTS`` and ``$1`` to ``$9``; arguments that no placeholder takes follow the text."""
    try:
        words = shlex.split(arguments)
    except ValueError:
        words = arguments.split()
    has_place = re.search(r"\$(?:ARGUMENTS\b|[1-9])", body) is not None

    def value_of(match: "re.Match[str]") -> str:
        if match[1] == "ARGUMENTS":
            return arguments
        number = int(match[1])
        return words[number - 1] if number <= len(words) else ""

    text = re.sub(r"\$(ARGUMENTS\b|[1-9])", value_of, body)
    return text if has_place or not arguments.strip() else f"{text}\n\nArguments: {arguments}"


def _inline_file(turn: Turn, root: Path, match: "re.Match[str]") -> str:
    """Return a reference followed by the text of its file, if the rules allow reading it."""
    path = Path(root, match[1].replace("\\ ", " ")).resolve()
    may_read = getattr(turn.env.policy, "may_read", None)
    if may_read is None or not isinstance(may_read(str(path)), Allow):
        return match[0]
    try:
        if not path.is_file() or path.stat().st_size > MAX_INLINED_BYTES:
            return match[0]
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return match[0]
    return f'{match[0]}\n<file path="{path}">\n{text}\n</file>\n'


class _ProjectTool:
    """A tool that rules treat as a built-in one."""

    def __init__(self, function: FunctionTool[..., Any]) -> None:
        self._function = function
        self.spec = msgspec.structs.replace(function.spec, layer="builtin")

    def parse(self, raw: "str | dict[str, Any]") -> ParsedArguments | InvalidArguments:
        return self._function.parse(raw)

    async def call(self, context: ToolContext, arguments: dict[str, Any]) -> ToolReturn:
        return await self._function.call(context, arguments)


def _menu(about: str, items: Sequence[Component], prefix: str = "") -> str:
    """Return a description that lists components within the limit; descriptions are shortened first."""
    first: Mapping[str, Component] = {item.name: item for item in reversed(items)}
    unique = [item for item in items if first[item.name] is item]
    room = max(MENU_CHARACTERS // max(len(unique), 1) - 40, 40)
    lines = [f"- {prefix}{item.name}: {' '.join(item.description.split())[:room]}" for item in unique]
    return "\n".join([about, *lines])[: MENU_CHARACTERS + len(about)]


def _tool_name(text: str) -> str:
    """Return the name of the tool in ``Bash(git:*)``."""
    return text.partition("(")[0].strip()
