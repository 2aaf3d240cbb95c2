"""Middleware that gives agents the content of a project: memory in the prompt, skills, commands and child agents."""

import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Protocol, TypeAlias, cast

import msgspec

from vaka.core.loop.call_context import CallContext
from vaka.core.loop.context import Turn
from vaka.core.loop.middleware import Middleware
from vaka.core.ports.model import Model
from vaka.core.ports.tool import Tool, ToolContext
from vaka.core.ports.turn_protocols import ToolSource
from vaka.core.types.control import StateChanged
from vaka.core.types.errors import ConfigError, InvalidInput, VakaError
from vaka.core.types.message import Content, Text, ToolCall, ToolResult
from vaka.core.types.monitor import Logged
from vaka.core.types.state import agent_key
from vaka.core.types.traits import ToolTraits, find_traits
from vaka.project.command_text import AllowedTools, CommandTexts
from vaka.project.components import AgentFile, CommandFile, Components, Skill
from vaka.project.content import ProjectContent, ProjectSource

RELOAD_SECONDS = 1.0
"""The content is loaded again at most so often."""
GIVEN_KEY = "memory.given"
"""The session value that lists the nested memory files and rules that an agent has read; with the path of a child."""
SKILL_TOOL, COMMAND_TOOL = "Skill", "SlashCommand"
SKILL_TRAITS = ToolTraits(commands=True, summary=("command", "skill"), rule_arguments=("args",))
COMMAND_TRAITS = ToolTraits(commands=True, summary=("command",))
"""The text of a command or skill may contain the output of commands, which run when it is used."""

_COMMAND_LINE = re.compile(r"/([\w:.-]+)(?:\s+(.*))?\s*", re.DOTALL)

P = ParamSpec("P")
CompleteArguments: TypeAlias = Callable[[dict[str, Any]], dict[str, Any]]
"""Returns the arguments of a call with the whole names of what they name."""


class ProjectServices(Protocol):
    """What the content of a project needs of a runtime."""

    def make_menu_tool(
        self,
        function: Callable[Concatenate[ToolContext, P], Awaitable[str]],
        complete: CompleteArguments,
        *,
        name: str,
        about: str,
        items: Iterable[tuple[str, str]],
        traits: ToolTraits,
    ) -> Tool:
        """Return a function as a tool that rules treat as a built-in one; its description lists names and texts.

        Rules match the arguments that ``complete`` returns.
        """
        ...

    def make_task_tool(self, files: Sequence[AgentFile], read_prompt: Callable[[AgentFile], str]) -> Tool:
        """Return the tool that runs the agents of files and the agents of the runtime as child agents."""
        ...

    def find_model(self, name: str) -> Model | None:
        """Return the model that a file names; ``None`` for the model of the session. Raises ``VakaError``."""
        ...


class ProjectTools(Middleware, ToolSource):
    """Adds the content of a project to every agent of a runtime."""

    admits_steering = True

    def __init__(self, source: ProjectSource, folder: str, services: ProjectServices) -> None:
        self._source, self._folder = source, folder
        self._services = services
        self._loaded_at = -RELOAD_SECONDS
        self._tools: tuple[Tool, ...] = ()
        self._texts = CommandTexts(Path(folder).absolute(), trusted=source.trusted)

    @property
    def name(self) -> str:
        return "project"

    @cached_property
    def content(self) -> ProjectContent:
        """The content as it was loaded last."""
        return self._source.load(self._folder)

    def set_trust(self, trusted: bool) -> None:
        """Let the hooks and ``allowed-tools`` of the project count from now on, or no longer."""
        if trusted == self._source.trusted:
            return
        self._source = msgspec.structs.replace(self._source, trusted=trusted)
        self._texts = CommandTexts(Path(self._folder).absolute(), trusted=trusted)
        scope = msgspec.structs.replace(self.content.scope, trusted=trusted)
        self.content = msgspec.structs.replace(self.content, scope=scope)
        self._loaded_at = -RELOAD_SECONDS

    def _refresh(self, turn: Turn) -> None:
        if problem := self._load_again(turn.env.clock.monotonic()):
            turn.log.defer(turn.scope, Logged(level="warning", message=problem))

    def _load_again(self, now: float) -> str:
        """Load the content when some time has passed, and return why it could not be read, ``""`` if it could.

        What did not change stays the same object.
        """
        if now - self._loaded_at < RELOAD_SECONDS:
            return ""
        self._loaded_at, problem = now, ""
        try:
            content = self._source.load(self._folder, self.content)
        except ConfigError as error:  # a file is being edited: what was loaded before still holds
            content, problem = self.content, str(error)
        if content != self.content or not self._tools:
            self.content = content
            functions = list(self._make_tools(content.components))
            self._tools = (*functions, self._services.make_task_tool(content.components.agents, self.read_prompt))
        return problem

    def _make_tools(self, components: Components) -> Iterator[Tool]:
        """Yield the tools for skills and commands, which list what there is in their descriptions."""
        skills = [skill for skill in components.skills if skill.model_invocable]
        commands = [command for command in components.commands if command.model_invocable]
        if skills:
            yield self._services.make_menu_tool(
                self._use_skill,
                self._complete_skill,
                name=SKILL_TOOL,
                about="Read the instructions of a skill, before you do what it is about. The skills are:",
                items=[(skill.name, skill.description) for skill in skills],
                traits=SKILL_TRAITS,
            )
        if commands:
            yield self._services.make_menu_tool(
                self._use_command,
                self._complete_command,
                name=COMMAND_TOOL,
                about="Read the prompt of a command that the user has prepared, and follow it. The commands are:",
                items=[(f"/{command.name}", command.description) for command in commands],
                traits=COMMAND_TRAITS,
            )

    async def tools_for_step(self, turn: Turn) -> Sequence[Tool]:
        self._refresh(turn)
        return self._tools

    async def prompt_for_step(self, turn: Turn) -> str:
        return self.content.prompt

    async def before_agent(self, turn: Turn, content: Content) -> Content:
        """Replace a prompt that begins with the name of a command or skill by its text."""
        self._refresh(turn)
        match = _match_command(content) if not turn.path else None
        found = self._find_command(match[1]) if match else None
        if match is None or found is None:
            return content
        if problem := self._resolve_model(found)[1]:
            turn.log.defer(turn.scope, Logged(level="warning", message=problem))
        return (Text(text=await self._texts.expand(turn, found, match[2] or "")), *content[1:])

    def find_prompt_model(self, content: Content, now: float) -> Model | None:
        """Return the model that the head of a called command or skill names; ``None``: the model of the session."""
        match = _match_command(content)
        if match is None:
            return None
        self._load_again(now)
        found = self._find_command(match[1])
        return self._resolve_model(found)[0] if found is not None else None

    def _resolve_model(self, component: CommandFile | Skill) -> tuple[Model | None, str]:
        """Return the model that a command or skill names, and why it cannot be used."""
        try:
            return self._services.find_model(component.model), ""
        except VakaError as error:
            return None, f"{component.path}: model {component.model!r} is not used: {error}"

    def _find_command(self, name: str) -> CommandFile | Skill | None:
        components = self.content.components
        command = components.find_command(name)
        skill = components.find_skill(name) if command is None else None
        return command or (skill if skill is not None and skill.user_invocable else None)

    def find_called(self, call: ToolCall) -> CommandFile | Skill | None:
        """Return what a call of ``Skill`` or ``SlashCommand`` uses, ``None`` for any other call."""
        if call.name == SKILL_TOOL:
            return self._find_used_skill(str(call.arguments.get("skill") or call.arguments.get("command") or ""))
        return self._find_used_command(str(call.arguments.get("command")))[0] if call.name == COMMAND_TOOL else None

    def _find_used_skill(self, name: str) -> Skill | None:
        found = self.content.components.find_skill(name.strip().removeprefix("/"))
        return found if found is not None and found.model_invocable else None

    def _find_used_command(self, text: str) -> tuple[CommandFile | None, str]:
        """Return the command that a text begins with, and the arguments."""
        match = _COMMAND_LINE.fullmatch(f"/{text.strip().removeprefix('/')}")
        found = self.content.components.find_command(match[1]) if match else None
        usable = found if found is not None and found.model_invocable else None
        return usable, (match[2] or "") if match else ""

    def _complete_skill(self, arguments: dict[str, Any]) -> dict[str, Any]:
        found = self._find_used_skill(str(arguments.get("skill") or arguments.get("command") or ""))
        rest = {name: value for name, value in arguments.items() if name != "command"}
        return arguments if found is None else {**rest, "skill": found.name}

    def _complete_command(self, arguments: dict[str, Any]) -> dict[str, Any]:
        found, rest = self._find_used_command(str(arguments.get("command")))
        return arguments if found is None else {**arguments, "command": f"/{found.name} {rest}".strip()}

    async def _use_skill(
        self, context: ToolContext, skill: str = "", args: str = "", command: str = "", file: str = ""
    ) -> str:
        found = self._find_used_skill(skill or command)
        if found is None:
            raise InvalidInput(f"there is no skill {(skill or command).strip()!r}")
        if file:
            if found.embedded is None:
                raise InvalidInput(f"read {found.folder / file} with another tool")
            return str(found.embedded.read_file(file))
        return await self._texts.expand(cast("CallContext", context).owner_turn, found, args)

    async def _use_command(self, context: ToolContext, command: str) -> str:
        found, arguments = self._find_used_command(command)
        if found is None:
            raise InvalidInput(f"there is no command {command!r}")
        return await self._texts.expand(cast("CallContext", context).owner_turn, found, arguments)

    @property
    def has_hooks(self) -> bool:
        """Whether hooks in the heads of skills, commands or agents may run."""
        found = self.content.components
        return self._source.hooks and any(one.hooks for one in (*found.skills, *found.commands, *found.agents))

    def read_prompt(self, file: AgentFile) -> str:
        """Return the prompt of an agent as its files are now. Raises ``ConfigError``."""
        return read_agent_prompt(file, self.content.components)

    def middleware(self) -> tuple[Middleware, ...]:
        """Return the middleware that the content needs besides this one."""
        components = self.content.components
        more: list[Middleware] = [FileMemory(self)] if self.content.has_file_texts else []
        return (*more, *([AllowedTools(self.find_called)] if components.skills or components.commands else []))


def read_agent_prompt(file: AgentFile, components: Components) -> str:
    """Return the text of an agent's file as it is now, and of the skills that it names. Raises ``ConfigError``."""
    skills = [(name, components.find_skill(name)) for name in file.skills]
    texts = [f"# Skill: {name}\n\n{skill.read_body().strip()}" for name, skill in skills if skill is not None]
    return "\n\n".join(text for text in (file.read_body().strip(), *texts) if text)


def _match_command(content: Content) -> "re.Match[str] | None":
    """Return the name and the arguments of a command that a prompt begins with."""
    first = content[0] if content else None
    return _COMMAND_LINE.fullmatch(first.text.strip()) if isinstance(first, Text) else None


class FileMemory(Middleware):
    """Adds the rules and nested memory files of a file when a tool has read or changed it, each once to an agent."""

    inherited = ()

    def __init__(self, project: ProjectTools) -> None:
        self._project = project

    async def after_tool(self, turn: Turn, call: ToolCall, result: ToolResult) -> ToolResult:
        """Add the texts to the result of a file tool."""
        traits = find_traits(turn.tools.get(call.name), call.name)
        path = next(filter(None, map(call.arguments.get, traits.paths)), None)
        if result.failed or not isinstance(path, str):
            return result
        key = f"{GIVEN_KEY}/{agent_key(turn.path)}" if turn.path else GIVEN_KEY
        given = cast("list[str]", turn.get_state(key) or [])
        content = self._project.content
        texts = content.texts_for(Path(content.root, path), given)
        if not texts:
            return result
        turn.log.defer(turn.scope, StateChanged(key=key, value=[*given, *(str(text.path) for text in texts)]))
        added = [Text(text=f"\n\n# Memory for this file: {text.path}\n\n{text.text}") for text in texts]
        return msgspec.structs.replace(result, content=(*result.content, *added))
