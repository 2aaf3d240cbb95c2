"""Options of a runtime as one frozen value, with their defaults; the request and response of one turn."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypedDict, TypeGuard, cast

import msgspec

from vaka.agents.react import Agent, ToolLike, tool_name_of
from vaka.config.options import Permissions
from vaka.core.loop.middleware import Middleware
from vaka.core.ports.env import AskMode, Clock, IdGenerator
from vaka.core.ports.files import Files
from vaka.core.ports.model import Model
from vaka.core.ports.net import Network, SearchEngine
from vaka.core.ports.sandbox import ResourceLimits, Sandbox
from vaka.core.ports.store import Store
from vaka.core.types.context import Compaction
from vaka.core.types.control import ApprovalScope
from vaka.core.types.errors import ConfigError
from vaka.core.types.keywords import UnevaluatedSignature
from vaka.core.types.limits import Limits
from vaka.core.types.message import Content, Part, Usage
from vaka.core.types.tool import SANDBOX_ONLY_RULE
from vaka.core.types.type_parameters import Out_co
from vaka.policy.policy import LayeredPolicy
from vaka.policy.rules import Layer
from vaka.runtime import lazy
from vaka.runtime.lazy import Durability
from vaka.runtime.model_registry import TIERS, ModelConfig, tier_of

if TYPE_CHECKING:
    from vaka.config.model_tables import ModelEntry, PriceEntry
    from vaka.config.project_content import ProjectSource
    from vaka.core.ports.transformer import TransformerFactory
    from vaka.hooks.definition import Hook
    from vaka.hooks.engine import HookMiddleware
    from vaka.mcp.definition import McpServer
    from vaka.tools.builtin.shell.supervisor import CommandOptions


def is_store(value: object) -> bool:
    """Whether a value has the parts of a ``Store``."""
    return hasattr(getattr(value, "events", None), "claim") and hasattr(getattr(value, "sessions", None), "find")


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


class TokenStats(msgspec.Struct, frozen=True, kw_only=True):
    """The usage of one model call, for ``Options.token_callback``."""

    session_id: str
    turn_id: str
    agent: str
    model: str
    usage: Usage
    timestamp: str


class ToolWorkspace(msgspec.Struct, frozen=True, kw_only=True):
    """A folder of tools apart from the working folder of a runtime, for ``Options.workspace``."""

    folder: str = ""
    """The folder that file tools and commands work in; ``""``: they are off."""
    masked: tuple[str, ...] = ()
    """Folders that commands see empty, except for ``folder``, such as those of other users."""


class Options(msgspec.Struct, frozen=True, kw_only=True, metaclass=UnevaluatedSignature):
    """The settings of a runtime. Every field has a safe default."""

    entry_point: EntryPoint = "cli"
    """How the program is used. It selects the default of ``ask`` and is part of the ids of new sessions."""
    mode: "ModeContext | None" = None
    """The mode of requests that set none; tools read it as ``context.metadata["mode"]``."""
    store: "Store | str" = "memory:"
    """Where sessions are kept: a store, or a URL (``memory:``, ``sqlite:///PATH``, ``postgresql://…``)."""
    durability: Durability = "power"
    """What an acknowledged event survives: a ``power`` cut, or only the death of the ``process``, which is faster."""
    namespace: str = ""
    """The namespace of the store, also of a ``Store`` that is given; sessions of other namespaces are not visible."""
    task_store: "Store | str | None" = None
    """Where the task board is kept that all sessions share: a store, which you close, or a URL. Default: every session
    has a board of its own in its log."""
    model: "Model | str | None" = None
    """The model of agents that set none: a model, or a name such as ``anthropic/claude-sonnet-5-5``."""
    model_factory: Callable[[], Model] | None = None
    """Creates the default model on first use, unless ``model`` is set. The runtime closes that model."""
    model_pool: "Mapping[str, Model | str]" = {}
    """Models by tier: ``low``, ``mid`` and ``high``. A tier is accepted wherever the name of a model is."""
    subagent_model_mapping: Mapping[str, str] = {}
    """The tier of subagents that set no model, by the name of the agent in lower case."""
    default_enable_cache: bool | None = None
    """Whether prompts are marked for the provider's cache; default: as the adapter of the provider does."""
    compaction: Compaction = Compaction()
    """When the contexts of agents that do not say it themselves are compacted, and what is kept."""
    models: "Mapping[str, ModelEntry | Mapping[str, Any]]" = {}
    """Models under names that you choose; each has the fields of ``[models.NAME]`` in a settings file."""
    model_files: tuple[str, ...] = ()
    """Files and folders that define models in the GenX format."""
    prices: "Mapping[str, PriceEntry | Mapping[str, Any]]" = {}
    """US dollars per million tokens, by model; these replace the built-in prices."""
    retries: int | None = None
    """How often a failed model call is repeated; default: 4 times."""
    environ: Mapping[str, str] | None = None
    """The variables that hold keys and base URLs of models; default: the process's, then stored keys."""
    progress: Callable[[str], None] | None = None
    """Called with a line of text while a model is being loaded."""
    agent: Agent[Any, Any] | None = None
    """The agent of requests that set none; default: an agent made from the model and the following fields."""
    system_prompt: str = ""
    """The instructions of the default agent."""
    tools: "tuple[ToolLike, ...]" = ()
    """All tools of the default agent. When it is set, the next three fields have no effect."""
    enabled_builtin_tools: tuple[str, ...] | None = None
    """Names of the built-in tools to offer; default: the standard set, ``()`` for none."""
    disallowed_tools: tuple[str, ...] = ()
    """Names of tools that are not offered to the model, wherever they come from."""
    custom_tools: "tuple[ToolLike, ...]" = ()
    """Tools to offer in addition to the built-in ones."""
    middleware: tuple[Middleware, ...] = ()
    """The middleware of the default agent, in order."""
    middleware_timeout: float | None = None
    """Seconds that one call of one middleware may take, for the default agent."""
    project: "ProjectSource | None" = None
    """Gives agents the memory files, rules, skills, commands and agents of ``.claude`` folders; default: none."""
    child_agents: bool = False
    """Gives agents the tool ``Task`` with the child agents ``general-purpose``, ``explore`` and ``plan``. With a
    ``project`` they have it in any case."""
    mcp: "Mapping[str, Any] | Sequence[McpServer]" = {}
    """MCP servers whose tools agents get: definitions as in ``.mcp.json``, or ``McpServer`` values."""
    hooks: "tuple[Hook, ...]" = ()
    """Commands that run at fixed points of every session, and may decide there. See the guide on hooks."""
    hook_middleware: "tuple[HookMiddleware, ...]" = ()
    """Functions around the hooks of each event, the outermost first."""
    hook_failure: "Literal['open', 'closed']" = "open"
    """What a failure of the administrator's hooks does: nothing, or it refuses what the hook guards."""
    transcript_folder: str = ""
    """Where the transcripts for hooks are written; default: a temporary folder."""
    max_steps: int | None = 50
    """The number of model calls that one turn may make; ``None`` or 0 for no limit."""
    max_iterations: int | None = None
    """An alias of ``max_steps``; it takes precedence when both are set."""
    timeout: float | None = None
    """Seconds that one turn may take."""
    permissions: Permissions = Permissions()
    """Which tool calls run, and what happens when a person must decide."""
    approval_wait: float | None = 7 * 24 * 3600.0
    """Seconds until an undecided approval counts as denied, for the default agent; ``None`` for no limit."""
    approval_whitelist_ttl: float | None = None
    """Seconds that an approval for the session lasts, for the default agent; ``None`` for the rest of the session."""
    token_callback: "Callable[[TokenStats], None] | None" = None
    """Called with the usage of each model call of a turn in this process, after the log has it."""
    secrets: tuple[str, ...] = ()
    """Values that are redacted from everything that is stored or shown; each has at least 8 characters."""
    redact_patterns: bool = True
    """Redact what looks like a token, a key or a password too, by the formats of known kinds."""
    cwd: str = ""
    """The folder in which tools work; default: the current folder of the process."""
    project_root: str | None = None
    """The folder of the project, in place of ``cwd``. ``""`` and ``.`` find it: ``AGENTSDK_PROJECT_ROOT``, else the
    nearest folder above with ``.claude``, ``.git`` or ``pyproject.toml``, else the current folder."""
    add_dirs: tuple[str, ...] = ()
    """Further folders that tools may read and change."""
    files: Files | None = None
    """The file system of tools, in place of ``cwd`` and ``add_dirs``."""
    workspace: "ToolWorkspace | None" = None
    """The folder of tools, in place of ``cwd``, ``add_dirs`` and ``files``, for callers that must not reach those.
    Hooks, MCP servers and the content of the project stay in ``cwd``. Commands need a sandbox that hides files."""
    snapshots: bool = True
    """Whether files are copied before a tool changes them, so that ``rewind`` can restore them."""
    sandbox: "Sandbox | Literal['auto', 'on', 'off']" = "auto"
    """The sandbox of commands: ``auto`` uses the best one of this machine, ``on`` fails when there is none."""
    sandboxed: "tuple[Literal['mcp', 'hooks'], ...]" = ()
    """What besides commands runs in their sandbox: ``mcp`` for servers that are programs, ``hooks`` for hooks."""
    command_hosts: tuple[str, ...] = ()
    """Hosts that commands may reach through a proxy; ``*`` for the whole network, ``()`` for no network."""
    command_env: tuple[str, ...] = ()
    """Names of environment variables that commands may read although they look like secrets; ``*`` matches any text."""
    command_limits: ResourceLimits = ResourceLimits()
    """The CPU time, memory, processes and files that one command may use."""
    command_habits: "CommandOptions | None" = None
    """Time limits of commands, whether a slow one moves to the background, and how much output is kept."""
    search: SearchEngine | None = None
    """The search engine of the WebSearch tool."""
    network: Network | None = None
    """The network of tools and scripts; default: one that reaches public addresses and ``trusted_hosts`` only."""
    trusted_hosts: tuple[str, ...] = ()
    """Hosts that tools and scripts may reach although they are not public, such as ``127.0.0.1:8080``."""
    script_env: Mapping[str, str] = {}
    """The environment variables that scripts can read."""
    transformers: "Mapping[str, TransformerFactory]" = {}
    """Transformers that trusted scripts can open by name, besides the built-in ones."""
    clock: Clock | None = None
    """The source of time; default: the clock of the system."""
    ids: IdGenerator | None = None
    """The generator of ids; default: ids with a timestamp and random bits."""

    def __post_init__(self) -> None:
        if not (self.task_store is None or isinstance(self.task_store, str) or is_store(self.task_store)):
            raise TypeError(f"task_store must be a store or a URL, not {type(self.task_store).__name__}")
        if unknown := [name for name in self.sandboxed if name not in ("mcp", "hooks")]:
            raise ConfigError(f"sandboxed: expected mcp or hooks, not {unknown[0]!r}")
        for name in _TUPLE_FIELDS:
            value = getattr(self, name)
            if isinstance(value, str | bytes) or not hasattr(value, "__iter__"):
                raise TypeError(f"{name} must be a sequence, not {type(value).__name__}: {repr(value)[:80]}")
            if not isinstance(value, tuple):
                msgspec.structs.force_setattr(self, name, tuple(value))

    @property
    def deny_rules(self) -> tuple[str, ...]:
        """The rules of ``permissions.deny``, and the one that keeps commands in a sandbox that is required."""
        is_required = self.sandbox not in ("auto", "off")
        return (*self.permissions.deny, *((SANDBOX_ONLY_RULE,) if is_required else ()))

    @property
    def working_folder(self) -> str:
        """The folder in which tools work: ``cwd``, else ``project_root``; ``""`` for that of the process."""
        if self.cwd or self.project_root is None:
            return self.cwd
        return find_project_root(self.project_root)

    @property
    def tool_folder(self) -> str:
        """The folder in which tools work: that of ``workspace``, else ``working_folder``; ``""`` for none."""
        return self.working_folder if self.workspace is None else self.workspace.folder

    def default_agent(self) -> Agent[Any, Any] | None:
        """Return the agent of requests that set none; ``None`` when the options have neither an agent nor a model."""
        if self.agent is not None or (self.model is None and self.model_factory is None):
            return self.agent
        limits = Limits(
            max_steps=(self.max_steps if self.max_iterations is None else self.max_iterations) or None,
            timeout=self.timeout,
            middleware_timeout=self.middleware_timeout,
            approval_ttl=self.approval_wait,
            grant_ttl=self.approval_whitelist_ttl,
        )
        tools = self.tools or self._select_tools()
        return Agent("agent", instructions=self.system_prompt, tools=tools, middleware=self.middleware, limits=limits)

    def _select_tools(self) -> "tuple[ToolLike, ...]":
        """Return the names of the selected built-in tools, followed by the custom tools."""
        normalize = lazy.normalize_tool_name
        names = () if self.enabled_builtin_tools == () else lazy.select_builtin_tools(
            self.enabled_builtin_tools, self.disallowed_tools
        )  # fmt: skip
        taken = {normalize(name) for name in (*names, *self.disallowed_tools)}
        return (*names, *(tool for tool in self.custom_tools if normalize(tool_name_of(tool)) not in taken))

    def build_model_config(self) -> ModelConfig:
        """Return the configuration of the model registry. Raises ``ConfigError`` for an invalid entry."""
        check = lazy.check_model_table if self.models or self.prices else None
        return ModelConfig(
            models=check("models", self.models) if check else {}, prices=check("prices", self.prices) if check else {},
            tiers={_require_tier(name): model for name, model in self.model_pool.items()},
            subagents={name.lower(): _require_tier(tier) for name, tier in self.subagent_model_mapping.items()},
            files=self.model_files, retries=self.retries, default=self.model, factory=self.model_factory,
            environ=self.environ, progress=self.progress,
        )  # fmt: skip

    @property
    def ask_mode(self) -> AskMode:
        """The value of ``permissions.ask``, or its default for the entry point."""
        decided_here = self.permissions.handler is not None
        return self.permissions.ask or ("deny" if self.entry_point == "ci" and not decided_here else "wait")


class ApprovalAnswer(TypedDict, total=False):
    """The optional details of a decision on an approval."""

    message: str
    """The reason for a rejection, which the model reads."""
    edit: dict[str, Any] | None
    """Arguments that replace those of the call."""
    scope: ApprovalScope
    rule: str
    """The rules that an approval grants, one per line; default: the rule that the approval suggests."""
    ttl: float | None
    """Seconds that a grant for the session lasts."""
    by: str


class Response(msgspec.Struct, Generic[Out_co], frozen=True, kw_only=True):
    """The result of one turn. Type checkers know ``Response[Out]`` by the ``output`` of the agent."""

    text: str
    """The text of the answer."""
    session_id: str
    """The id of the session."""
    turn_id: str
    """The id of the turn."""
    stop: Literal["end", "limit", "failed", "cancelled", "interrupted"] = "end"
    """Why the turn ended; ``end`` when the model finished its answer."""
    limit: str = ""
    """The limit that ended the turn, when ``stop`` is ``limit``."""
    usage: Usage = Usage()
    """Tokens and cost of all model calls of the turn, those of child agents included."""
    steps: int = 0
    """The number of steps; each is one model call and the tool calls it requests."""
    tool_calls: tuple[str, ...] = ()
    """Names of the tools that were called, in order."""
    denied: tuple[str, ...] = ()
    """Ids of the calls that were refused."""
    code: str = ""
    """The code of the error, when the turn failed."""
    error: str = ""
    """The error message of a turn that failed, or the note of one that was cancelled or interrupted."""
    output: Out_co = cast("Any", None)
    """The answer as a value of the agent's ``output`` type; ``None`` for an agent without one, and in a response whose
    ``stop`` is not ``end``."""


def is_response(value: object) -> TypeGuard[Response[Any]]:
    """Return whether a value, such as ``TurnError.result``, is a response."""
    return isinstance(value, Response)


_TUPLE_FIELDS = tuple(
    name for name, default in zip(Options.__struct_fields__, Options.__struct_defaults__, strict=True) if default == ()
)
_PROJECT_MARKERS = (".claude", ".git", "pyproject.toml")


def find_project_root(folder: str) -> str:
    """Return the root of a project; ``""`` and ``.`` search upwards from the current folder."""
    if folder not in ("", "."):
        return str(Path(folder).resolve())
    named = os.environ.get("AGENTSDK_PROJECT_ROOT")
    here = Path(named).resolve() if named else Path.cwd()
    if named:
        return str(here)
    marked = (place for place in (here, *here.parents) if any((place / name).exists() for name in _PROJECT_MARKERS))
    return str(next(marked, here))


def _require_tier(name: str) -> str:
    tier = tier_of(name)
    if not tier:
        raise ConfigError(f"there is no tier {name!r}; the tiers are {', '.join(TIERS)}")
    return tier
