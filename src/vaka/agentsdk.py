"""The names that users of agentsdk know: options, requests and responses, and a runtime that runs them.

::

    options = Options(model="anthropic/claude-sonnet-5-5", project_root=".", max_iterations=20)
    async with Runtime(options, store="sqlite:///vaka.db") as runtime:
        response = await runtime.run(Request(prompt="When do you close?", session_id="hours"))
        async for event in runtime.run_stream(Request(prompt="And tomorrow?", session_id="hours")): ...
"""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Unpack, cast

import msgspec

from vaka.agents.react import Agent, ToolLike
from vaka.config.options import (
    Models,
    PermissionRequest,
    PermissionRequestHandler,
    Permissions,
    Storage,
    TokenStats,
    Workspace,
)
from vaka.core.loop.middleware import Middleware
from vaka.core.ports.model import Model
from vaka.core.ports.store import Store
from vaka.core.types.context import Compaction
from vaka.core.types.ending import Response as _Response
from vaka.core.types.event import Event
from vaka.core.types.keywords import UnevaluatedSignature
from vaka.core.types.limits import Limits
from vaka.core.types.message import Content, Part, as_content
from vaka.core.types.type_parameters import Out, Out_co
from vaka.project.content import ProjectSource
from vaka.runtime.one_shot import RuntimeOptions
from vaka.runtime.options import EntryPoint, Environment, ModeContext, OnBusy, Project, ToolSelection
from vaka.runtime.runtime import Runtime as _Runtime
from vaka.runtime.turn_stream import TurnStream

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

    from vaka.config.hook_definition import Hook
    from vaka.hooks.engine import HookMiddleware
    from vaka.mcp.definition import McpServer

__all__ = [
    "ModeContext",
    "Options",
    "PermissionRequest",
    "Request",
    "Response",
    "Runtime",
    "TokenStats",
]


class AgentsdkOptions(msgspec.Struct, frozen=True, kw_only=True, metaclass=UnevaluatedSignature):
    """The options of agentsdk as one flat value. What is not set is as ``vaka.Runtime`` has it."""

    entry_point: EntryPoint = "cli"
    """How the program is used: ``ci`` refuses calls that a person would have to approve."""
    mode: ModeContext | None = None
    """The mode of requests that set none; tools read it as ``context.metadata["mode"]``."""
    project_root: str | None = None
    """The folder of tools, whose ``.claude`` content and settings count. ``""`` and ``.`` search for it upwards;
    ``None``: the current folder, without its ``.claude`` content."""
    embed_fs: "Traversable | str | None" = None
    """Content of an application that stands in for files that the project does not have."""
    settings_path: str = ""
    """One more settings file of the project, or JSON."""
    settings_overrides: Mapping[str, Any] | None = None
    """Settings that are stronger than the files of the project."""
    agent: Agent[Any, Any] | None = None
    """The agent of requests that set none; default: one made from the model, the prompt and the tools below."""
    model: Model | str | None = None
    """The default model: a model, or a name such as ``anthropic/claude-sonnet-5-5``."""
    model_factory: Callable[[], Model] | None = None
    """Creates the default model on first use, unless ``model`` is set."""
    model_pool: Mapping[str, Model | str] = {}
    """Models by tier: ``low``, ``mid`` and ``high``."""
    subagent_model_mapping: Mapping[str, str] = {}
    """The tier of subagents that set no model, by the name of the agent in lower case."""
    default_enable_cache: bool | None = None
    """Whether prompts are marked for the provider's cache; default: as the adapter of the provider does."""
    system_prompt: str = ""
    """The instructions of the default agent."""
    tools: Sequence[ToolLike[Any]] = ()
    """All tools of the default agent. When it is set, the next two fields have no effect."""
    enabled_builtin_tools: Sequence[str] | None = None
    """Names of the built-in tools to offer; default: the standard set, ``()`` for none."""
    custom_tools: Sequence[ToolLike[Any]] = ()
    """Tools to offer in addition to the built-in ones."""
    disallowed_tools: Sequence[str] = ()
    """Names of tools that are not offered to the model, wherever they come from."""
    task_store: Store | str | None = None
    """Where the task board is kept that all sessions share; default: each session has a board of its own."""
    mcp_servers: "Mapping[str, Any] | Sequence[McpServer]" = {}
    """MCP servers whose tools agents get: definitions as in ``.mcp.json``, or ``McpServer`` values."""
    typed_hooks: "Sequence[Hook]" = ()
    """Hooks that run in addition to the hooks of the settings."""
    hook_middleware: "Sequence[HookMiddleware]" = ()
    """Functions around the run of each hook, the first outermost."""
    middleware: Sequence[Middleware] = ()
    """The middleware of the default agent, in order."""
    middleware_timeout: float | None = None
    """Seconds that one call of one middleware may take."""
    max_iterations: int | None = None
    """The number of model calls that one turn may make; 0 for no limit, default: 50."""
    timeout: float | None = None
    """Seconds that one turn may take."""
    auto_compact: Compaction = Compaction()
    """When contexts are compacted, and what is kept."""
    permission_request_handler: PermissionRequestHandler | None = None
    """Called with each approval that a turn in this process requests: ``allow`` and ``deny`` decide it, ``ask`` leaves
    it to a person."""
    approval_approver: str = "host"
    """The name that signs decisions of ``permission_request_handler``."""
    approval_whitelist_ttl: float | None = None
    """Seconds that an approval for the session lasts; ``None`` for the rest of the session."""
    approval_wait: float | None = 7 * 24 * 3600.0
    """Seconds until an undecided approval counts as denied; ``None`` for no limit."""
    token_callback: Callable[[TokenStats], None] | None = None
    """Called with the usage of each model call of a turn in this process."""

    def to_runtime(self) -> dict[str, Any]:
        """Return the keyword arguments of ``vaka.Runtime`` with the meaning of these options."""
        given = {name: value for name, value in msgspec.structs.asdict(self).items() if value != _DEFAULTS[name]}
        content = ProjectSource(
            settings=True,
            settings_file=given.pop("settings_path", ""),
            overrides=given.pop("settings_overrides", None),
            overlay=given.pop("embed_fs", None),
        )
        if self.project_root is not None:
            given["content"] = content
        if "max_iterations" in given:
            given["max_iterations"] = given["max_iterations"] or None
        given.pop("tools", None)
        arguments: dict[str, Any] = {name: given[name] for name in ("agent", "model", "middleware") if name in given}
        if self.system_prompt:
            arguments["instructions"] = self.system_prompt
        for argument, (group, fields) in _GROUPS.items():
            values = {field: given[name] for name, field in fields.items() if name in given}
            if values:
                arguments[argument] = group(**values)
        return arguments | ({"tools": self.tools} if self.tools else {})


_DEFAULTS = msgspec.structs.asdict(AgentsdkOptions())
_GROUPS: Mapping[str, tuple[type[msgspec.Struct], Mapping[str, str]]] = {
    "tools": (
        ToolSelection,
        {"enabled_builtin_tools": "builtin", "disallowed_tools": "without", "custom_tools": "extra"},
    ),
    "limits": (
        Limits,
        {
            "max_iterations": "max_steps",
            "timeout": "timeout",
            "middleware_timeout": "middleware_timeout",
            "approval_wait": "approval_ttl",
            "approval_whitelist_ttl": "grant_ttl",
        },
    ),
    "permissions": (
        Permissions,
        {"permission_request_handler": "handler", "approval_approver": "approver"},
    ),
    "models": (
        Models,
        {
            "model_factory": "factory",
            "model_pool": "tiers",
            "subagent_model_mapping": "subagents",
            "default_enable_cache": "cache",
            "auto_compact": "compaction",
            "token_callback": "on_usage",  # nosec B105  # the name of a field
        },
    ),
    "workspace": (Workspace, {"project_root": "project_root"}),
    "project": (
        Project,
        {
            "content": "content",
            "mcp_servers": "mcp",
            "typed_hooks": "hooks",
            "hook_middleware": "hook_middleware",
        },
    ),
    "storage": (Storage, {"task_store": "task_store"}),
    "environment": (Environment, {"entry_point": "entry_point", "mode": "mode"}),
}
"""The arguments of ``vaka.Runtime`` that are groups, with the names of their fields in agentsdk."""


def _merge(mapped: Any, given: Any) -> Any:
    """Return a given argument; a group has the fields that it does not set from the mapped one."""
    if not isinstance(given, msgspec.Struct) or type(mapped) is not type(given):
        return given
    defaults = msgspec.structs.asdict(type(given)())
    changes = {name: value for name, value in msgspec.structs.asdict(given).items() if value != defaults[name]}
    return msgspec.structs.replace(mapped, **changes)


class Request(msgspec.Struct, Generic[Out_co], frozen=True, kw_only=True):
    """The input and settings of one turn, for ``Runtime.run`` and ``Runtime.run_stream``."""

    prompt: str | Content = ""
    """The input: a text, or content parts."""
    content_blocks: tuple[Part, ...] = ()
    """Content parts that follow the prompt."""
    agent: Agent[Any, Out_co] | None = None
    """The agent that answers; default: the agent of the runtime."""
    session_id: str = ""
    """The session to continue; default: a new one."""
    request_id: str = ""
    """Makes the request safe to repeat: a second request with the same id returns the turn of the first."""
    on_busy: OnBusy = "queue"
    """What the input does while another turn of the session runs."""
    metadata: Mapping[str, Any] = {}
    """Plain data for the first event of a new session; tools read it as ``context.metadata``."""
    mode: ModeContext | None = None
    """Where the request comes from; default: the mode of the runtime."""
    tags: Mapping[str, str] = {}
    """Labels that the metadata of a new session and the response repeat."""
    traits: tuple[str, ...] = ()
    """Traits of the session, for its metadata."""
    channels: tuple[str, ...] = ()
    """Channels of the session, for its metadata."""
    tool_whitelist: tuple[str, ...] = ()
    """Names of the tools that this turn may use, its child agents included; default: all tools of the agent."""
    model: str = ""
    """The tier or name of the model that answers; default: the model of the agent."""
    enable_prompt_cache: bool | None = None
    """Whether prompts are marked for the provider's cache; default: the setting of the agent or the runtime."""
    options: Mapping[str, Any] = {}
    """Model options of this turn; they take precedence over the options of the agent."""

    def session_metadata(self, mode: ModeContext | None) -> dict[str, Any]:
        """Return the metadata of a new session: the request's metadata with its mode, tags, traits and channels."""
        mode = self.mode or mode
        extra = {"tags": dict(self.tags), "traits": list(self.traits), "channels": list(self.channels)}
        named = {name: value for name, value in extra.items() if value}
        return {**self.metadata, **named, **({"mode": msgspec.to_builtins(mode)} if mode is not None else {})}

    @property
    def content(self) -> str | Content:
        """The prompt with the content blocks."""
        return (*as_content(self.prompt), *self.content_blocks) if self.content_blocks else self.prompt

    @property
    def model_options(self) -> dict[str, Any]:
        """The options of the input: model options, the cache setting and the tool whitelist."""
        cache = {} if self.enable_prompt_cache is None else {"cache": self.enable_prompt_cache}
        tools = {"tool_whitelist": sorted(set(self.tool_whitelist))} if self.tool_whitelist else {}
        return {**self.options, **cache, **tools}


class AgentsdkResponse(_Response[Out_co], Generic[Out_co], frozen=True, kw_only=True):
    """The result of one request: a ``vaka.Response`` with the id, the mode and the tags of the request."""

    request_id: str = ""
    """The ``request_id`` of the request, or the id that was generated for it."""
    mode: ModeContext | None = None
    """The mode of the request."""
    tags: Mapping[str, str] = {}
    """The tags of the request."""


class AgentsdkRuntime(_Runtime):
    """A ``vaka.Runtime`` that also runs requests: each opens or continues a session and runs one turn of it.

    It is made from ``Options``; keyword arguments of ``vaka.Runtime`` add to them and win over them, those that are
    groups field by field.
    """

    def __init__(self, options: AgentsdkOptions | None = None, **more: Unpack[RuntimeOptions]) -> None:
        arguments = (options or AgentsdkOptions()).to_runtime()
        for name, value in more.items():
            arguments[name] = _merge(arguments.get(name), value)
        super().__init__(**arguments)

    async def run(self, request: Request[Out]) -> AgentsdkResponse[Out]:
        """Run one turn and return its response. Raises ``TurnError`` when the turn ends without an answer."""
        turn = await self._start(request)
        response = await turn.wait()
        answered = {name: getattr(response, name) for name in response.__struct_fields__}
        mode = request.mode or self.options.environment.mode
        return AgentsdkResponse(**answered, request_id=turn.key, mode=mode, tags=dict(request.tags))

    async def run_stream(self, request: Request[Any]) -> AsyncGenerator[Event]:
        """Run one turn and yield its events."""
        async with await self._start(request) as turn:
            async for event in turn:
                yield event

    async def _start(self, request: Request[Out]) -> TurnStream[Out]:
        session = await self.open(
            cast("Agent[Any, Out]", request.agent),
            id=request.session_id,
            metadata=request.session_metadata(self.options.environment.mode),
        )
        return session.stream(
            request.content,
            on_busy=request.on_busy,
            key=request.request_id,
            model=request.model,
            options=request.model_options,
        )


Options = AgentsdkOptions
Response = AgentsdkResponse
Runtime = AgentsdkRuntime
