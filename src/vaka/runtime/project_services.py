"""What a runtime gives to the content of a project: its tools, its models and its child agents."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Concatenate, ParamSpec

from vaka.agents.subagents import SubAgent
from vaka.core.loop.middleware import Middleware
from vaka.core.ports.env import Clock
from vaka.core.ports.model import Model
from vaka.core.ports.tool import Tool, ToolContext
from vaka.core.types.traits import ToolTraits
from vaka.project.components import AgentFile
from vaka.project.content import ProjectSource
from vaka.project.project_tools import CompleteArguments, ProjectTools
from vaka.runtime.agent_builder import AgentBuilder
from vaka.runtime.model_registry import ModelRegistry
from vaka.runtime.options import Options
from vaka.runtime.task_tool import PROJECT_AGENTS, BuildRecipe, RuntimeTool, TaskTool, find_file_model, menu_text
from vaka.tools.function import tool

if TYPE_CHECKING:
    from vaka.project.hook_sources import ComponentUse

P = ParamSpec("P")


class ContentServices:
    """Implements ``ProjectServices`` with the models and the child agents of a runtime."""

    def __init__(self, build_recipe: BuildRecipe, models: ModelRegistry) -> None:
        self._build_recipe, self._models = build_recipe, models
        self._files: Sequence[AgentFile] | None = None
        self._agents: Sequence[SubAgent] = ()

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
        made = tool(function, name=name, description=menu_text(about, items), effect="read", traits=traits)
        return RuntimeTool(made, complete)

    def make_task_tool(self, files: Sequence[AgentFile], read_prompt: Callable[[AgentFile], str]) -> Tool:
        agents = (*self.child_agents(files, read_prompt), *PROJECT_AGENTS)
        return TaskTool(agents, self._build_recipe, self._models)

    def find_model(self, name: str) -> Model | None:
        model, tier = find_file_model(self._models, name)
        has_tier = model is None and tier in self._models.config.tiers
        return self._models.choose(tier=tier) if has_tier else model

    def child_agents(self, files: Sequence[AgentFile], read_prompt: Callable[[AgentFile], str]) -> Sequence[SubAgent]:
        """Return the agents of files, the same ones as long as the files are the same."""
        if self._files is not files:
            self._files, self._agents = files, [_make_child(file, read_prompt) for file in files]
        return self._agents


def project_middleware(
    source: ProjectSource, options: Options, builder: AgentBuilder, models: ModelRegistry, clock: Clock
) -> tuple[ProjectTools, *tuple[Middleware, ...]]:
    """Return the middleware that gives agents the content of a project."""
    services = ContentServices(builder.build_recipe, models)
    project = ProjectTools(source, options.workspace.folder, services)
    builder.project_agents = lambda: services.child_agents(project.content.components.agents, project.read_prompt)
    builder.model_of_prompt = lambda content: project.find_prompt_model(content, clock.monotonic())
    return (project, *project.middleware())


def component_use(project: ProjectTools) -> "ComponentUse | None":
    """Return the middleware that notes the use of skills, commands and agents with hooks.

    ``None`` if no such hooks may run.
    """
    if not project.has_hooks:
        return None
    from vaka.project.hook_sources import component_use_of

    return component_use_of(lambda: project.content)


def _make_child(file: AgentFile, read_prompt: Callable[[AgentFile], str]) -> SubAgent:
    return SubAgent(
        name=file.name,
        description=file.description,
        instructions=lambda _: read_prompt(file),
        model=file.model,
        allowed_tools=file.tools,
        disallowed_tools=file.disallowed_tools,
        max_steps=file.max_turns,
        permission_mode=file.permission_mode,
        mcp_servers=file.mcp_servers,
        options={"reasoning": file.effort} if file.effort else {},
    )
