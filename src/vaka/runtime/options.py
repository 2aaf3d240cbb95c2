"""Options of a runtime as one frozen value, with their defaults; the input of one turn."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict

import msgspec

from vaka.agents.react import Agent, ToolLike, tool_name_of
from vaka.config.options import (
    Commands,
    Models,
    NetworkAccess,
    OptionGroup,
    Permissions,
    Scripts,
    Storage,
    Workspace,
    is_store,
)
from vaka.core.loop.middleware import Middleware
from vaka.core.ports.env import AskMode, Clock, IdGenerator
from vaka.core.ports.model import Model
from vaka.core.ports.store import Store
from vaka.core.types.control import ApprovalScope
from vaka.core.types.errors import ConfigError
from vaka.core.types.limits import Limits
from vaka.core.types.message import Content, Part
from vaka.core.types.tool import SANDBOX_ONLY_RULE
from vaka.policy.policy import LayeredPolicy
from vaka.policy.rules import Layer
from vaka.runtime.model_registry import TIERS, ModelConfig, tier_of

if TYPE_CHECKING:
    from vaka.config.hook_definition import Hook
    from vaka.hooks.engine import HookMiddleware
    from vaka.mcp.definition import McpServer
    from vaka.project.content import ProjectSource


def policy_from_rules(
    mode: str = "",
    allow: Iterable[str] = (),
    ask: Iterable[str] = (),
    deny: Iterable[str] = (),
    *,
    cwd: str = "",
    directories: Iterable[str] = (),
    trusted: bool = True,
) -> LayeredPolicy:
    """Return a policy of one layer, made from rules. Raises ``InvalidInput`` for a bad rule."""
    layer = Layer(
        name="flag",
        mode=mode,
        allow=_as_tuple(allow),
        ask=_as_tuple(ask),
        deny=_as_tuple(deny),
        directories=_as_tuple(directories),
    )
    return LayeredPolicy([layer], cwd=cwd, trusted=trusted)


def _as_tuple(rules: Iterable[str]) -> tuple[str, ...]:
    return (rules,) if isinstance(rules, str) else tuple(rules)


EntryPoint: TypeAlias = Literal["cli", "ci", "platform"]

UserInput: TypeAlias = "str | Part | Content | list[Part]"
"""An input of a session: a text, one content part, or a sequence of parts."""

OnBusy: TypeAlias = Literal["queue", "reject", "interrupt", "steer", "enqueue", "rollback"]
"""What an input does when the session is busy; ``enqueue`` is ``queue``, ``rollback`` is ``interrupt``."""


class ModeContext(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a runtime is used: a terminal, a pipeline or a platform."""

    entry_point: EntryPoint = "cli"
    cli: Mapping[str, Any] = {}
    """``user``, ``workspace``, ``args``, ``flags``."""
    ci: Mapping[str, Any] = {}
    """``provider``, ``pipeline``, ``run_id``, ``sha``, ``ref``, ``matrix``, ``metadata``."""
    platform: Mapping[str, Any] = {}
    """``organization``, ``project``, ``environment``, ``labels``."""


class ToolSelection(OptionGroup, frozen=True, kw_only=True):
    """A choice of the built-in tools for the default agent, and further tools."""

    builtin: Sequence[str] | None = None
    """Names of the built-in tools to offer; default: the standard set, ``()`` for none."""
    without: Sequence[str] = ()
    """Names of tools that are not offered to the model, built-in or not."""
    extra: "Sequence[ToolLike]" = ()
    """Tools to offer in addition to the built-in ones."""

    def select(self) -> "tuple[ToolLike, ...]":
        """Return the names of the selected built-in tools, followed by the further tools."""
        from vaka.tools.builtin import normalize_name, select_tools

        names = () if self.builtin == () else select_tools(self.builtin, self.without)
        taken = {normalize_name(name) for name in (*names, *self.without)}
        return (*names, *(tool for tool in self.extra if normalize_name(tool_name_of(tool)) not in taken))


class Project(OptionGroup, frozen=True, kw_only=True):
    """Additions to the agents' own tools: content of ``.claude`` folders, child agents, servers and hooks."""

    content: "ProjectSource | None" = None
    """Gives agents the memory files, rules, skills, commands and agents of ``.claude`` folders; default: none."""
    child_agents: bool = False
    """Gives agents the tool ``Task`` with the child agents ``general-purpose``, ``explore`` and ``plan``. With
    ``content`` they have it in any case."""
    mcp: "Mapping[str, Any] | Sequence[McpServer]" = {}
    """MCP servers whose tools agents get: definitions as in ``.mcp.json``, or ``McpServer`` values."""
    hooks: "Sequence[Hook]" = ()
    """Commands that run at fixed points of every session, and may decide there. See the guide on hooks."""
    hook_middleware: "Sequence[HookMiddleware]" = ()
    """Functions around the hooks of each event, the outermost first."""
    hook_failure: "Literal['open', 'closed']" = "open"
    """The effect of a failure of the administrator's hooks: none, or it refuses what the hook guards."""
    transcript_folder: str = ""
    """Where the transcripts for hooks are written; default: a temporary folder."""


class Environment(OptionGroup, frozen=True, kw_only=True):
    """Where a runtime is used; tests replace the clock, the ids and the variables of the process."""

    entry_point: EntryPoint = "cli"
    """How the program is used. It selects the default of ``Permissions.ask`` and is part of the ids of new sessions."""
    mode: "ModeContext | None" = None
    """The mode of requests that set none; tools read it as ``context.metadata["mode"]``."""
    clock: Clock | None = None
    """The source of time; default: the clock of the system."""
    ids: IdGenerator | None = None
    """The generator of ids; default: ids with a timestamp and random bits."""
    environ: Mapping[str, str] | None = None
    """The variables that hold keys and base URLs of models; default: the process's, then stored keys."""
    progress: Callable[[str], None] | None = None
    """Called with a line of text while a model is being loaded."""


class Options(OptionGroup, frozen=True, kw_only=True):
    """The options of a runtime, which are the arguments of ``Runtime``. Every field has a safe default."""

    store: "Store | str" = "memory:"
    """Where sessions are kept: a store, or a URL (``memory:``, ``sqlite:///PATH``, ``postgresql://…``)."""
    model: "Model | str | None" = None
    """The model of agents that set none: a model, or a name such as ``anthropic/claude-sonnet-5-5``."""
    agent: Agent[Any, Any] | None = None
    """The agent of inputs that name none; default: one made of ``model`` and the next four fields."""
    instructions: str = ""
    """The instructions of the default agent."""
    tools: "Sequence[ToolLike] | ToolSelection" = ()
    """All tools of the default agent, or a selection; default: the standard set of built-in tools."""
    middleware: "Sequence[Middleware]" = ()
    """The middleware of the default agent, in order."""
    limits: Limits = Limits()
    """The limits of a turn of the default agent."""
    permissions: Permissions = Permissions()
    """Which tool calls run, and what happens when a person must decide."""
    models: Models = Models()
    """The models that agents can name, what they cost, and how they are called."""
    workspace: Workspace = Workspace()
    """The folders in which tools work."""
    commands: Commands = Commands()
    """How commands run: their sandbox, and the hosts, variables and resources they may use."""
    network: NetworkAccess = NetworkAccess()
    """The network access of tools and scripts."""
    scripts: Scripts = Scripts()
    """The resources of Luau scripts."""
    project: Project = Project()
    """Content of ``.claude`` folders, child agents, MCP servers and hooks."""
    storage: Storage = Storage()
    """How the store is used, and what must not be stored."""
    environment: Environment = Environment()
    """Where the runtime is used; tests replace the clock, the ids and the variables of the process."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (isinstance(self.store, str) or is_store(self.store)):
            raise TypeError(f"store must be a store or a URL, not {type(self.store).__name__}")
        for name, default in zip(self.__struct_fields__, self.__struct_defaults__, strict=True):
            value = getattr(self, name)
            if isinstance(default, OptionGroup | Limits) and not isinstance(value, type(default)):
                expected, given = type(default).__name__, type(value).__name__
                raise TypeError(f"{name} must be {expected}, not {given}: {repr(value)[:80]}")

    @property
    def deny_rules(self) -> tuple[str, ...]:
        """The rules of ``permissions.deny``; if a sandbox is required, also the rule that keeps commands in it."""
        is_required = self.commands.sandbox not in ("auto", "off")
        return (*self.permissions.deny, *((SANDBOX_ONLY_RULE,) if is_required else ()))

    def default_agent(self) -> Agent[Any, Any] | None:
        """Return the agent of inputs that name none; ``None`` when the options have neither an agent nor a model."""
        if self.agent is not None or (self.model is None and self.models.factory is None):
            return self.agent
        selection = self.tools if isinstance(self.tools, ToolSelection) else ToolSelection()
        tools = (() if isinstance(self.tools, ToolSelection) else tuple(self.tools)) or selection.select()
        middleware = tuple(self.middleware)
        return Agent("agent", instructions=self.instructions, tools=tools, middleware=middleware, limits=self.limits)

    def build_model_config(self) -> ModelConfig:
        """Return the configuration of the model registry. Raises ``ConfigError`` for an invalid entry."""
        models, environment = self.models, self.environment
        return ModelConfig(
            models=_check_table("models", models.entries),
            prices=_check_table("prices", models.prices),
            tiers={_require_tier(name): model for name, model in models.tiers.items()},
            subagents={name.lower(): _require_tier(tier) for name, tier in models.subagents.items()},
            files=tuple(models.files),
            retries=models.retries,
            default=self.model,
            factory=models.factory,
            environ=environment.environ,
            progress=environment.progress,
        )

    @property
    def ask_mode(self) -> AskMode:
        """The value of ``permissions.ask``, or its default for the entry point."""
        decided_here = self.permissions.handler is not None
        return self.permissions.ask or ("deny" if self.environment.entry_point == "ci" and not decided_here else "wait")


class ApprovalAnswer(TypedDict, total=False):
    """The optional details of a decision on an approval."""

    message: str
    """The reason for a rejection, which the model reads."""
    edit: dict[str, Any] | None
    """Arguments that replace the arguments of the call."""
    scope: ApprovalScope
    rule: str
    """The rules that an approval grants, one per line; default: the rule that the approval suggests."""
    ttl: float | None
    """Seconds that a grant for the session lasts."""
    by: str


def _require_tier(name: str) -> str:
    tier = tier_of(name)
    if not tier:
        raise ConfigError(f"there is no tier {name!r}; the tiers are {', '.join(TIERS)}")
    return tier


def _check_table(name: str, value: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table of model settings, checked like a table of a settings file. Raises ``ConfigError``."""
    if not value:
        return {}
    from vaka.config.model_tables import check_table

    return check_table(name, value)
