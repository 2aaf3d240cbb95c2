"""One turn in a runtime of its own."""

import asyncio
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack

import msgspec

from vaka.agents.react import Agent
from vaka.config.options import Permissions
from vaka.core.types.errors import InvalidInput
from vaka.core.types.type_parameters import Deps, Out
from vaka.runtime.options import Response, UserInput
from vaka.runtime.runtime import Runtime

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from vaka.agents.react import ToolLike
    from vaka.config.model_tables import ModelEntry, PriceEntry
    from vaka.config.project_content import ProjectSource
    from vaka.core.loop.middleware import Middleware
    from vaka.core.ports.env import Clock, IdGenerator
    from vaka.core.ports.files import Files
    from vaka.core.ports.model import Model
    from vaka.core.ports.net import Network, SearchEngine
    from vaka.core.ports.sandbox import ResourceLimits, Sandbox
    from vaka.core.ports.store import Store
    from vaka.core.ports.transformer import TransformerFactory
    from vaka.core.types.context import Compaction
    from vaka.hooks.definition import Hook
    from vaka.hooks.engine import HookMiddleware
    from vaka.mcp.definition import McpServer
    from vaka.runtime.lazy import Durability
    from vaka.runtime.options import EntryPoint, ModeContext, TokenStats, ToolWorkspace
    from vaka.tools.builtin.shell.supervisor import CommandOptions


class RuntimeOptions(TypedDict, total=False):
    """The fields of ``Options`` except ``agent``, as keyword arguments of ``run``; a test compares both lists."""

    entry_point: "EntryPoint"
    mode: "ModeContext | None"
    store: "Store | str"
    durability: "Durability"
    namespace: "str"
    task_store: "Store | str | None"
    model: "Model | str | None"
    model_factory: "Callable[[], Model] | None"
    model_pool: "Mapping[str, Model | str]"
    subagent_model_mapping: "Mapping[str, str]"
    default_enable_cache: "bool | None"
    compaction: "Compaction"
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
    project: "ProjectSource | None"
    child_agents: "bool"
    mcp: "Mapping[str, Any] | Sequence[McpServer]"
    hooks: "Sequence[Hook]"
    hook_middleware: "Sequence[HookMiddleware]"
    hook_failure: "Literal['open', 'closed']"
    transcript_folder: "str"
    max_steps: "int | None"
    max_iterations: "int | None"
    timeout: "float | None"
    permissions: "Permissions"
    approval_wait: "float | None"
    approval_whitelist_ttl: "float | None"
    token_callback: "Callable[[TokenStats], None] | None"
    secrets: "Sequence[str]"
    redact_patterns: "bool"
    cwd: "str"
    project_root: "str | None"
    add_dirs: "Sequence[str]"
    files: "Files | None"
    workspace: "ToolWorkspace | None"
    snapshots: "bool"
    sandbox: "Sandbox | Literal['auto', 'on', 'off']"
    sandboxed: "Sequence[Literal['mcp', 'hooks']]"
    command_hosts: "Sequence[str]"
    command_env: "Sequence[str]"
    command_limits: "ResourceLimits"
    command_habits: "CommandOptions | None"
    search: "SearchEngine | None"
    network: "Network | None"
    trusted_hosts: "Sequence[str]"
    script_env: "Mapping[str, str]"
    transformers: "Mapping[str, TransformerFactory]"
    clock: "Clock | None"
    ids: "IdGenerator | None"


async def run(
    agent: Agent[Deps, Out], prompt: UserInput, *, deps: Deps | None = None, **options: Unpack[RuntimeOptions]
) -> Response[Out]:
    """Run one turn in a new session of a runtime of its own, in memory unless ``store`` is set.

    Args:
        agent: The agent that answers.
        prompt: A text, or parts such as ``Image``.
        deps: Dependencies of tools and instructions.
        options: The keyword arguments of ``Runtime``. ``Permissions.ask`` is ``deny`` by default, since no person can
            decide an approval; a ``Permissions.handler`` changes that default.

    Raises:
        TurnError: The turn ended without an answer.
        TypeError: An option is unknown or of the wrong kind.
    """
    permissions = options.get("permissions", Permissions())
    if permissions.ask is None and permissions.handler is None:
        options["permissions"] = msgspec.structs.replace(permissions, ask="deny")
    async with Runtime(**options) as runtime:
        session = await runtime.open(agent, deps=deps)
        return await session.run(prompt)


def run_sync(
    agent: Agent[Deps, Out], prompt: UserInput, *, deps: Deps | None = None, **options: Unpack[RuntimeOptions]
) -> Response[Out]:
    """Run one turn as ``run`` does, without an event loop. Raises ``InvalidInput`` inside a running loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(run(agent, prompt, deps=deps, **options))
    raise InvalidInput("run_sync was called inside an event loop; use: await vaka.run(...)")
