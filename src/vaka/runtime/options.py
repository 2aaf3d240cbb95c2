"""Options of a runtime as one frozen value, with their defaults; the request and response of one turn."""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict

import msgspec

from vaka.agents.react import Agent, ToolLike, tool_name_of
from vaka.core.loop.budget.limits import Limits
from vaka.core.loop.context import AskMode
from vaka.core.loop.middleware import Middleware
from vaka.core.ports.clock import Clock, IdGenerator
from vaka.core.ports.files import Files
from vaka.core.ports.model import Model
from vaka.core.ports.net import Network, SearchEngine
from vaka.core.ports.policy import Policy
from vaka.core.ports.sandbox import ResourceLimits, Sandbox
from vaka.core.ports.store import Store
from vaka.core.types.control import ApprovalScope
from vaka.core.types.errors import ConfigError
from vaka.core.types.message import Content, Part, Usage
from vaka.policy.decision import Mode
from vaka.policy.policy import LayeredPolicy
from vaka.policy.rules import Layer
from vaka.runtime import lazy
from vaka.runtime.lazy import Durability
from vaka.runtime.model_registry import TIERS, ModelConfig, tier_of

if TYPE_CHECKING:
    from vaka.config.claude_settings import PermissionLayer
    from vaka.config.model_tables import ModelEntry, PriceEntry
    from vaka.tools.builtin.shell.supervisor import CommandOptions


class SystemClock:
    """The machine's clocks."""

    monotonic = staticmethod(time.monotonic)
    time = staticmethod(time.time)

    async def sleep(self, seconds: float) -> None:
        """Return after ``seconds``."""
        await asyncio.sleep(seconds)


class RandomIds:
    """Names that sort by time and are not guessed."""

    def __init__(self) -> None:
        self._pool = ""
        self._offset = 0

    def new_id(self, prefix: str) -> str:
        """Return ``prefix_`` with the time in milliseconds and 40 random bits."""
        if self._offset + 10 > len(self._pool):
            self._pool, self._offset = os.urandom(1000).hex(), 0  # one system call for two hundred names
        drawn = self._pool[self._offset : self._offset + 10]
        self._offset += 10
        return f"{prefix}_{time.time_ns() // 1_000_000:011x}{drawn}"


def policy_from_layers(layers: "Iterable[PermissionLayer]", *, cwd: str = "", home: str = "") -> LayeredPolicy:
    """Return the policy of layers, the weakest first. Raises ``ConfigError`` or ``InvalidInput`` for a wrong rule."""
    return LayeredPolicy((Layer(**msgspec.structs.asdict(layer)) for layer in layers), cwd=cwd, home=home)


def policy_from_rules(
    mode: str = "", allow: Iterable[str] = (), ask: Iterable[str] = (), deny: Iterable[str] = (), *, cwd: str = "",
    directories: Iterable[str] = (),
) -> LayeredPolicy:  # fmt: skip
    """Return the policy of a program that gives its rules itself. Raises ``InvalidInput`` for a wrong one."""
    given = Layer(
        name="flag",
        mode=mode,
        allow=_as_tuple(allow),
        ask=_as_tuple(ask),
        deny=_as_tuple(deny),
        directories=_as_tuple(directories),
    )
    return LayeredPolicy([given], cwd=cwd)


def _as_tuple(rules: Iterable[str]) -> tuple[str, ...]:
    return (rules,) if isinstance(rules, str) else tuple(rules)


EntryPoint: TypeAlias = Literal["cli", "ci", "platform"]

UserInput: TypeAlias = "str | Part | Content | list[Part]"
"""What can be said to a session: words, or parts."""

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


class PermissionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """An approval that a turn requests, for ``Options.permission_request_handler``."""

    tool_name: str
    tool_params: Mapping[str, Any]
    session_id: str
    rule: str
    reason: str
    approval: str
    """The id of the approval."""


PermissionRequestHandler: TypeAlias = Callable[[PermissionRequest], Awaitable[Literal["allow", "deny", "ask"]]]


class TokenStats(msgspec.Struct, frozen=True, kw_only=True):
    """The usage of one model call, for ``Options.token_callback``."""

    session_id: str
    turn_id: str
    agent: str
    model: str
    usage: Usage
    timestamp: str


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How a runtime works. Every field has a default that is safe."""

    entry_point: EntryPoint = "cli"
    """Who is asking: it sets what happens when a person is needed, and begins the ids of sessions."""
    mode: "ModeContext | None" = None
    """Where the runtime is used, for requests that do not say it; tools read it as ``context.metadata["mode"]``."""
    store: "Store | str" = "memory:"
    durability: Durability = "power"
    namespace: str = ""
    model: "Model | str | None" = None
    """For agents that name none: a model, or the name of one such as ``anthropic/claude-sonnet-5-5``."""
    model_factory: Callable[[], Model] | None = None
    """Makes the model of agents that name none, when it is first needed; ``model`` wins. It is closed in the end."""
    model_pool: "Mapping[str, Model | str]" = {}
    """Models by tier: ``low``, ``mid`` and ``high``. A tier's name stands for its model wherever a model's name can."""
    subagent_model_mapping: Mapping[str, str] = {}
    """The tier of agents that others start and that name no model, by name in lower case."""
    default_enable_cache: bool | None = None
    """Whether prompts are marked for the provider's cache; without it as each provider's model does."""
    models: "Mapping[str, ModelEntry | Mapping[str, Any]]" = {}
    """Models under names of one's own, as ``[models.NAME]`` in a file says it."""
    model_files: tuple[str, ...] = ()
    """Files and folders that define models in the GenX format."""
    prices: "Mapping[str, PriceEntry | Mapping[str, Any]]" = {}
    """US dollars for a million tokens, by model, over what is known already."""
    retries: int | None = None
    """How often a model that cannot answer is asked again."""
    environ: Mapping[str, str] | None = None
    """Where keys and addresses of models come from; without it the environment of the process."""
    progress: Callable[[str], None] | None = None
    """Called with a line of text while a model is being loaded."""
    agent: Agent | None = None
    """For requests that name none. Without it one is made of the model and the next nine fields."""
    system_prompt: str = ""
    tools: "tuple[ToolLike, ...]" = ()
    """Exactly these tools; if there are any, the next three fields say nothing."""
    enabled_builtin_tools: tuple[str, ...] | None = None
    """Which of vaka's own tools: all that come by themselves, or those of these names (``()`` for none)."""
    disallowed_tools: tuple[str, ...] = ()
    """Names of tools that are not offered to the model, wherever they come from."""
    custom_tools: "tuple[ToolLike, ...]" = ()
    """Tools besides the built-in ones."""
    middleware: tuple[Middleware, ...] = ()
    middleware_timeout: float | None = None
    max_steps: int | None = 50
    """Model calls one turn may make; ``None`` or 0 for any number."""
    max_iterations: int | None = None
    """The seed's name of ``max_steps``; it wins where it is given."""
    timeout: float | None = None
    """Seconds one turn may take."""
    ask: AskMode | None = None
    """What to do when a person is needed. Default: ``wait``, but ``deny`` for the entry point ``ci``."""
    question_timeout: float | None = None
    """Seconds a person has for a question of the model, which is then told to decide itself; any time without it."""
    policy: Policy | None = None
    permission_mode: Mode = "default"
    allow: tuple[str, ...] = ()
    ask_for: tuple[str, ...] = ()
    """Rules of calls that a person must approve, each time or for the session."""
    deny: tuple[str, ...] = ()
    permission_request_handler: "PermissionRequestHandler | None" = None
    """Called with each approval that a turn in this process requests. ``allow`` and ``deny`` decide it, ``ask`` leaves
    it to a person."""
    approval_approver: str = "host"
    """The name that signs decisions of ``permission_request_handler``."""
    approval_wait: float | None = 7 * 24 * 3600.0
    """Seconds until an unanswered approval counts as denied, for the default agent; ``None`` for any time."""
    approval_whitelist_ttl: float | None = None
    """Seconds that an approval for the session lasts, for the default agent; ``None`` for the rest of the session."""
    token_callback: "Callable[[TokenStats], None] | None" = None
    """Called with the usage of each model call of a turn in this process, after the log has it."""
    secrets: tuple[str, ...] = ()
    """Values that must never be written down."""
    cwd: str = ""
    """The folder tools work in; default: the current folder of the process."""
    project_root: str | None = None
    """The folder of the project, in place of ``cwd``. ``""`` and ``.`` find it: ``AGENTSDK_PROJECT_ROOT``, else the
    nearest folder above with ``.claude``, ``.git`` or ``pyproject.toml``, else the current folder."""
    add_dirs: tuple[str, ...] = ()
    """More folders that tools may touch."""
    files: Files | None = None
    """The files of tools, in place of those of the folders."""
    snapshots: bool = True
    """Whether what file tools change is copied first, so that it can go back with the session."""
    sandbox: "Sandbox | Literal['auto', 'on', 'off']" = "auto"
    """What commands run in: the best of this machine; ``on`` refuses to run any without one."""
    command_hosts: tuple[str, ...] = ()
    """Hosts that commands may reach, through a proxy; ``*`` for the whole network. Without any, none."""
    command_env: tuple[str, ...] = ()
    """Variables that commands may see though they look like secrets, by name or with ``*``."""
    command_limits: ResourceLimits = ResourceLimits()
    command_habits: "CommandOptions | None" = None
    """How long commands may take, whether one that takes longer goes on, and how much of them is kept."""
    search: SearchEngine | None = None
    """The search engine of the WebSearch tool."""
    network: Network | None = None
    """How tools and scripts reach the network. Without it, public addresses and ``trusted_hosts`` only."""
    trusted_hosts: tuple[str, ...] = ()
    """Hosts that tools and scripts may reach though they are not public, such as ``127.0.0.1:8080``."""
    script_env: Mapping[str, str] = {}
    """The variables of the environment that scripts may see."""
    clock: Clock | None = None
    ids: IdGenerator | None = None

    def __post_init__(self) -> None:
        for name in _TUPLE_FIELDS:
            value = getattr(self, name)
            if isinstance(value, str | bytes) or not hasattr(value, "__iter__"):
                raise TypeError(f"{name} must be a sequence, not {type(value).__name__}: {repr(value)[:80]}")
            if not isinstance(value, tuple):
                msgspec.structs.force_setattr(self, name, tuple(value))

    @property
    def working_folder(self) -> str:
        """The folder tools work in: ``cwd``, or else ``project_root``; ``""`` for that of the process."""
        if self.cwd or self.project_root is None:
            return self.cwd
        return find_project_root(self.project_root)

    def default_agent(self) -> Agent | None:
        """Return the agent of requests that name none; ``None`` when there is not even a model."""
        if self.agent is not None or (self.model is None and self.model_factory is None):
            return self.agent
        limits = Limits(
            max_steps=(self.max_steps if self.max_iterations is None else self.max_iterations) or None,
            timeout=self.timeout,
            middleware_timeout=self.middleware_timeout,
            approval_ttl=self.approval_wait,
            grant_ttl=self.approval_whitelist_ttl,
        )
        return Agent(
            "agent",
            instructions=self.system_prompt,
            tools=self.tools or self._select_tools(),
            middleware=self.middleware,
            limits=limits,
        )

    def _select_tools(self) -> "tuple[ToolLike, ...]":
        """Return the built-in tools that are wanted, by name, and then those that were added."""
        plain = lazy.normalize_tool_name
        names = () if self.enabled_builtin_tools == () else lazy.select_builtin_tools(
            self.enabled_builtin_tools, self.disallowed_tools
        )  # fmt: skip
        taken = {plain(name) for name in (*names, *self.disallowed_tools)}
        return (*names, *(tool for tool in self.custom_tools if plain(tool_name_of(tool)) not in taken))

    def build_model_config(self) -> ModelConfig:
        """Return what the names of models mean. Raises ``ConfigError`` when that makes no sense."""
        read = lazy.check_model_table if self.models or self.prices else None
        return ModelConfig(
            models=read("models", self.models) if read else {}, prices=read("prices", self.prices) if read else {},
            tiers={_require_tier(name): model for name, model in self.model_pool.items()},
            subagents={name.lower(): _require_tier(tier) for name, tier in self.subagent_model_mapping.items()},
            files=self.model_files, retries=self.retries, default=self.model, factory=self.model_factory,
            environ=self.environ, progress=self.progress,
        )  # fmt: skip

    @property
    def ask_mode(self) -> AskMode:
        """What happens when a person is needed."""
        decided_here = self.permission_request_handler is not None
        return self.ask or ("deny" if self.entry_point == "ci" and not decided_here else "wait")


class RuntimeOptions(TypedDict, total=False):
    """The fields of ``Options`` but ``agent``, as keyword arguments of ``run``; a test compares both lists."""

    entry_point: "EntryPoint"
    mode: "ModeContext | None"
    store: "Store | str"
    durability: "Durability"
    namespace: "str"
    model: "Model | str | None"
    model_factory: "Callable[[], Model] | None"
    model_pool: "Mapping[str, Model | str]"
    subagent_model_mapping: "Mapping[str, str]"
    default_enable_cache: "bool | None"
    models: "Mapping[str, ModelEntry | Mapping[str, Any]]"
    model_files: "Sequence[str]"
    prices: "Mapping[str, PriceEntry | Mapping[str, Any]]"
    retries: "int | None"
    environ: "Mapping[str, str] | None"
    progress: "Callable[[str], None] | None"
    system_prompt: "str"
    tools: "Sequence[ToolLike]"
    enabled_builtin_tools: "Sequence[str] | None"
    disallowed_tools: "Sequence[str]"
    custom_tools: "Sequence[ToolLike]"
    middleware: "Sequence[Middleware]"
    middleware_timeout: "float | None"
    max_steps: "int | None"
    max_iterations: "int | None"
    timeout: "float | None"
    ask: "AskMode | None"
    question_timeout: "float | None"
    policy: "Policy | None"
    permission_mode: "Mode"
    allow: "Sequence[str]"
    ask_for: "Sequence[str]"
    deny: "Sequence[str]"
    permission_request_handler: "PermissionRequestHandler | None"
    approval_approver: "str"
    approval_wait: "float | None"
    approval_whitelist_ttl: "float | None"
    token_callback: "Callable[[TokenStats], None] | None"
    secrets: "Sequence[str]"
    cwd: "str"
    project_root: "str | None"
    add_dirs: "Sequence[str]"
    files: "Files | None"
    snapshots: "bool"
    sandbox: "Sandbox | Literal['auto', 'on', 'off']"
    command_hosts: "Sequence[str]"
    command_env: "Sequence[str]"
    command_limits: "ResourceLimits"
    command_habits: "CommandOptions | None"
    search: "SearchEngine | None"
    network: "Network | None"
    trusted_hosts: "Sequence[str]"
    script_env: "Mapping[str, str]"
    clock: "Clock | None"
    ids: "IdGenerator | None"


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One turn, asked for in one call."""

    prompt: "str | Content" = ""
    agent: Agent | None = None
    session_id: str = ""
    key: str = ""
    """Makes the request safe to send twice: the second one gets the turn of the first."""
    request_id: str = ""
    """The seed's name of ``key``."""
    on_busy: OnBusy = "queue"
    metadata: Mapping[str, Any] = {}
    """Plain data for the first event of a new session; tools read it as ``context.metadata``."""
    mode: "ModeContext | None" = None
    tags: Mapping[str, str] = {}
    traits: tuple[str, ...] = ()
    channels: tuple[str, ...] = ()
    tool_whitelist: tuple[str, ...] = ()
    """The tools this turn may use, by name; default: all of the agent's."""
    model: str = ""
    """Who shall answer: a tier, or a model's name. Without it, the agent's own model."""
    enable_prompt_cache: bool | None = None
    """Whether this turn's prompts are marked for the provider's cache; without it as the agent or the runtime says."""
    options: Mapping[str, Any] = {}
    """Model options for this turn, over those of the agent."""

    def session_metadata(self, mode: "ModeContext | None") -> dict[str, Any]:
        """Return the metadata of a new session: that of the request, with its mode, tags, traits and channels."""
        mode = self.mode or mode
        extra = {"tags": dict(self.tags), "traits": list(self.traits), "channels": list(self.channels)}
        named = {name: value for name, value in extra.items() if value}
        return {**self.metadata, **named, **({"mode": msgspec.to_builtins(mode)} if mode is not None else {})}

    @property
    def model_options(self) -> dict[str, Any]:
        """What is asked of the model in this turn."""
        cache = {} if self.enable_prompt_cache is None else {"cache": self.enable_prompt_cache}
        tools = {"tool_whitelist": sorted(set(self.tool_whitelist))} if self.tool_whitelist else {}
        return {**self.options, **cache, **tools}


class ApprovalAnswer(TypedDict, total=False):
    """What a person may add to a yes or a no."""

    message: str
    """The reason of a rejection, which the model reads."""
    edit: dict[str, Any] | None
    """Other arguments for the call."""
    scope: ApprovalScope
    rule: str
    """What is allowed for longer than once, one rule per line; without it that of the question."""
    ttl: float | None
    """Seconds for which it is allowed in the session."""
    by: str


class Response(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one turn."""

    text: str
    session_id: str
    turn_id: str
    stop: Literal["end", "limit", "failed", "cancelled", "interrupted"] = "end"
    limit: str = ""
    usage: Usage = Usage()
    steps: int = 0
    tool_calls: tuple[str, ...] = ()
    """Names of the tools that were called, in order."""
    denied: tuple[str, ...] = ()
    """Ids of the calls that were refused."""
    code: str = ""
    error: str = ""
    output: Any = None
    """The answer as a value of the agent's ``output`` type."""
    request_id: str = ""
    """The ``key`` of the request, or the key that was made for it."""
    mode: "ModeContext | None" = None
    tags: Mapping[str, str] = {}


_TUPLE_FIELDS = tuple(
    name for name, default in zip(Options.__struct_fields__, Options.__struct_defaults__, strict=True) if default == ()
)
_PROJECT_MARKERS = (".claude", ".git", "pyproject.toml")


def find_project_root(folder: str) -> str:
    """Return a project's folder; ``""`` and ``.`` stand for the one around the current folder."""
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
