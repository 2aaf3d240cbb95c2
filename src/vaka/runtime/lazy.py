"""Lazy imports: one small function for each part that most programs never load.

Imports stand inside functions only here, in ``lazy_memory`` and in ``lazy_models``: start-up stays cheap, the type
checkers know every result, and an editor can jump to the definition.
"""

import os
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast
from urllib.parse import unquote, urlsplit

from vaka.core.ports.store import Store
from vaka.core.ports.tool import Tool, World
from vaka.core.types.errors import ConfigError, InvalidInput

if TYPE_CHECKING:
    from contextlib import AsyncExitStack

    from vaka.core.loop.middleware import Middleware
    from vaka.core.ports.backup import StoreBackup
    from vaka.core.ports.env import Clock, Env
    from vaka.core.ports.log import SecretFinder
    from vaka.core.ports.store import PendingDecision
    from vaka.core.ports.tool import CommandBackups
    from vaka.core.types.event import Event
    from vaka.core.types.ids import Cursor, SessionId
    from vaka.core.types.message import ToolCall, Usage
    from vaka.core.types.monitor import ScriptAnswered
    from vaka.hooks.engine import HookEngine
    from vaka.luau.tool import LuauTool
    from vaka.mcp.definition import McpServer
    from vaka.middleware.compactor import Compactor
    from vaka.models.given_calls import GivenCalls
    from vaka.models.scripted import Scripted
    from vaka.models.wrappers.pool import ModelPool, SelectedModel
    from vaka.net.connector import Connector
    from vaka.runtime.agent_builder import AgentBuilder
    from vaka.runtime.agent_services import ServiceHost
    from vaka.runtime.child_tool import ChildTool
    from vaka.runtime.client_calls import ClientResult
    from vaka.runtime.drivers import SessionDrivers
    from vaka.runtime.file_rewind import FileRewind, NetChanges
    from vaka.runtime.hook_sources import ComponentUse
    from vaka.runtime.live_settings import LiveSettings, SettingsSource
    from vaka.runtime.mcp_tools import McpTools
    from vaka.runtime.model_factory import ModelFactory
    from vaka.runtime.model_registry import ModelRegistry
    from vaka.runtime.options import ApprovalAnswer, Options
    from vaka.runtime.project_tools import ProjectTools
    from vaka.runtime.remembered_rules import RememberedRules
    from vaka.runtime.scripts import LuauAgent
    from vaka.runtime.session import Session
    from vaka.runtime.session_compaction import CompactionResult
    from vaka.runtime.shared_values import SharedValues
    from vaka.runtime.stats import SessionStats
    from vaka.runtime.structured_output import OutputSchema
    from vaka.runtime.task_tool import TaskTool
    from vaka.runtime.tool_world import WorldFactory

Durability: TypeAlias = Literal["power", "process"]

_EXTRAS = {
    "asyncpg": "postgres",
    "mcp": "mcp",
    "mcp_types": "mcp",
    "prompt_toolkit": "tui",
    "rich": "tui",
    "httptools": "server",
    "jwt": "server",
    "starlette": "server",
    "uvicorn": "server",
}


@contextmanager
def explain_missing_extra() -> Generator[None]:
    """Turn the ``ModuleNotFoundError`` of an optional library into a ``ConfigError`` that names the extra."""
    try:
        yield
    except ModuleNotFoundError as error:
        extra = _EXTRAS.get(error.name or "")
        if extra is None:
            raise
        raise ConfigError(f"{error.name} is not installed; add it with: pip install 'vaka[{extra}]'") from error


# ------------------------------------------------------------------------------------------------------------- stores


def open_store(url: str, *, durability: Durability = "power", namespace: str = "") -> Store:
    """Return the store of a URL: ``memory:``, ``sqlite:///PATH`` or ``postgresql://…``."""
    scheme = url.partition(":")[0]
    if scheme == "memory":
        from vaka.stores.memory import MemoryStore

        return MemoryStore(namespace=namespace)
    if scheme == "sqlite":
        from vaka.stores.sqlite import SqliteStore

        return SqliteStore(_sqlite_path(url), durability=durability, namespace=namespace)
    if scheme in ("postgresql", "postgres"):
        with explain_missing_extra():
            from vaka.stores.postgres import PostgresStore

        return PostgresStore(url, durability=durability, namespace=namespace)
    raise ConfigError(f"store {url!r} is not known; expected memory:, sqlite:///PATH or postgresql://…")


def open_backup(url: str) -> "StoreBackup":
    """Return what backs up and restores the store of a URL. Raises ``InvalidInput`` for one in memory."""
    scheme = url.partition(":")[0]
    if scheme == "sqlite":
        from vaka.stores.sqlite.backup import SqliteBackup

        return SqliteBackup(_sqlite_path(url))
    if scheme in ("postgresql", "postgres"):
        with explain_missing_extra():
            from vaka.stores.postgres.backup import PostgresBackup

        return PostgresBackup(url)
    raise InvalidInput("only stores of SQLite and PostgreSQL have backups; name one with --store")


def _sqlite_path(url: str) -> Path:
    """Return the path of a URL: ``sqlite:///vaka.db`` is relative, ``sqlite:////var/vaka.db`` absolute."""
    parts = urlsplit(url)
    if parts.netloc or not parts.path.startswith("/") or len(parts.path) == 1:
        raise ConfigError(f"store {url!r} names no file; expected sqlite:///PATH (four slashes for an absolute path)")
    return Path(unquote(parts.path[1:]))


# ---------------------------------------------------------------------------------------------------------- redaction


def secret_finders() -> "tuple[SecretFinder, ...]":
    """Return what finds secrets by their format."""
    from vaka.matching.secrets import SECRET_FORMATS

    return (SECRET_FORMATS,)


# -------------------------------------------------------------------------------------------------------------- hooks


def start_hooks(
    options: "Options", env: "Env", models: "ModelRegistry", use: "ComponentUse | None"
) -> "tuple[HookEngine, tuple[Middleware, ...]]":
    """Return the engine that runs the hooks of the options and of components in use, and its middleware."""
    from vaka.hooks import HookEngine, HookSettings, make_middleware
    from vaka.hooks.command import run_command
    from vaka.hooks.transcript import Transcripts
    from vaka.sandbox.sensitive import drop_secrets

    cwd = str(Path(options.workspace.folder or ".").absolute())
    transcripts = Transcripts(options.project.transcript_folder, cwd)
    if "hooks" in options.commands.sandboxed:
        from vaka.runtime.sandboxed_programs import sandboxed_hooks

        run_command = sandboxed_hooks(lambda: env.world, str(transcripts.folder))
    remote = {"CLAUDE_CODE_REMOTE": "true"} if options.environment.entry_point == "platform" else {}
    settings = HookSettings(
        cwd=cwd,
        find_model=models.find,
        middleware=tuple(options.project.hook_middleware),
        failure=options.project.hook_failure,
        environ=lambda: {**drop_secrets(os.environ, options.commands.env), **remote},
        run_command=run_command,
        component_events=use.events if use else frozenset(),
        component_hooks=use.active_hooks if use else None,
        permission_mode=lambda: str(getattr(env.policy, "mode", "default")),
    )
    engine = HookEngine(tuple(options.project.hooks), settings, transcripts)
    return engine, (*make_middleware(engine), *(() if use is None else (use,)))


def hook_middleware(engine: "HookEngine") -> "tuple[Middleware, ...]":
    """Return the middleware for the hooks that an engine has now."""
    from vaka.hooks import make_middleware

    return make_middleware(engine)


def live_settings() -> "type[LiveSettings]":
    from vaka.runtime.live_settings import LiveSettings

    return LiveSettings


def remembered_rules() -> "type[RememberedRules]":
    from vaka.runtime.remembered_rules import RememberedRules

    return RememberedRules


def shared_values() -> "type[SharedValues]":
    from vaka.runtime.shared_values import SharedValues

    return SharedValues


def project_settings(options: "Options") -> "SettingsSource":
    """Return the settings of the project of the options."""
    from vaka.runtime.project_settings import ProjectSettings

    return ProjectSettings(options)


def component_use(options: "Options", project: "Sequence[Middleware]") -> "ComponentUse | None":
    """Return what notes the use of skills, commands and agents with hooks; ``None`` if no such hooks may run."""
    if options.project.content is None or not options.project.content.hooks:
        return None
    tools = cast("ProjectTools", project[0])
    found = tools.content.components
    if not any(component.hooks for component in (*found.skills, *found.commands, *found.agents)):
        return None
    from vaka.runtime.hook_sources import component_use_of

    return component_use_of(lambda: tools.content)


def project_middleware(
    options: "Options", builder: "AgentBuilder", models: "ModelRegistry", clock: "Clock"
) -> "tuple[Middleware, ...]":
    """Return the middleware that gives agents the content of a project."""
    from vaka.config.project_content import ProjectSource
    from vaka.runtime.command_text import AllowedTools
    from vaka.runtime.project_tools import FileMemory, ProjectTools

    source = options.project.content or ProjectSource()
    project = ProjectTools(source, options.workspace.folder, builder.build_recipe, models)
    builder.project_agents = project.child_agents
    builder.model_of_prompt = lambda content: project.find_prompt_model(content, clock.monotonic())
    components = project.content.components
    more: list[Middleware] = [FileMemory(project)] if project.content.has_file_texts else []
    more += [AllowedTools(project.find_called)] if components.skills or components.commands else []
    return (project, *more)


def child_tool() -> "type[ChildTool]":
    from vaka.runtime.child_tool import ChildTool

    return ChildTool


def task_tool() -> "type[TaskTool]":
    """Return the class of the tool that runs child agents."""
    from vaka.runtime.task_tool import TaskTool

    return TaskTool


def builtin_task_tool(builder: "AgentBuilder", models: "ModelRegistry") -> "TaskTool":
    """Return the tool that runs the built-in child agents."""
    from vaka.runtime.task_tool import PROJECT_AGENTS, TaskTool

    return TaskTool(PROJECT_AGENTS, builder.build_recipe, models)


def mcp_middleware(options: "Options", store: Store, env: "Env", on_secret: "Callable[[str], None]") -> "McpTools":
    """Return the middleware that connects to the MCP servers of the options. Raises ``ConfigError``."""
    from vaka.runtime.mcp_tools import connect_servers

    start = None
    if "mcp" in options.commands.sandboxed:
        from vaka.runtime.sandboxed_programs import sandboxed_servers

        start = sandboxed_servers(lambda: env.world, options.workspace.folder)
    return connect_servers(
        options.project.mcp, store.values, options.workspace.folder, tuple(options.commands.env), start, on_secret
    )


def select_servers(servers: "Sequence[McpServer]") -> "tuple[McpServer, ...]":
    """Return one server of each name, if there are any."""
    if not servers:
        return ()
    from vaka.runtime.mcp_sources import select_servers as select

    return select(servers)


# ------------------------------------------------------------------------------------------------------------- models


def model_factory() -> "type[ModelFactory]":
    from vaka.runtime.model_factory import ModelFactory

    return ModelFactory


def key_environment() -> Mapping[str, str]:
    """Return the variables of this process, and behind them the keys that ``vaka login`` stored."""
    from vaka.runtime.stored_keys import key_environment as environment

    return environment()


def keyring_package() -> Any:
    """Return the package ``keyring``, ``None`` if it is not installed."""
    try:
        import keyring  # pyright: ignore[reportMissingImports]  # an optional package, and not one of development
    except ImportError:
        return None
    return keyring


def scripted_model() -> "type[Scripted]":
    from vaka.models.scripted import Scripted

    return Scripted


def given_calls_model() -> "type[GivenCalls]":
    from vaka.models.given_calls import GivenCalls

    return GivenCalls


def missing_install_command() -> str:
    """Return the command that installs what the local model lacks, ``""`` when it lacks nothing."""
    from vaka.models.local.model import missing_install_command as missing

    return missing()


async def serve_local(host: str, port: int, **options: Any) -> None:
    """Serve the local model over HTTP until cancelled; for ``options`` see ``vaka.models.local.model.serve``."""
    from vaka.models.local.model import serve

    await serve(host, port, **options)


def model_pool() -> "type[ModelPool]":
    from vaka.models.wrappers.pool import ModelPool

    return ModelPool


def selected_model() -> "type[SelectedModel]":
    from vaka.models.wrappers.pool import SelectedModel

    return SelectedModel


def check_model_table(name: str, value: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table of model settings, checked as one of a file is. Raises ``ConfigError``."""
    from vaka.config.model_tables import check_table

    return check_table(name, value)


# -------------------------------------------------------------------------------------------------- tools and sessions


def find_builtin(name: str) -> Tool:
    with explain_missing_extra():
        from vaka.tools.builtin import find_builtin as find

        return find(name)


def select_builtin_tools(enabled: Iterable[str] | None, disallowed: Iterable[str] = ()) -> tuple[str, ...]:
    from vaka.tools.builtin import select_tools

    return select_tools(enabled, disallowed)


def normalize_tool_name(name: str) -> str:
    from vaka.tools.builtin import normalize_name

    return normalize_name(name)


def world_factory() -> "type[WorldFactory]":
    from vaka.runtime.tool_world import WorldFactory

    return WorldFactory


def is_router_start(body: "ScriptAnswered") -> bool:
    from vaka.agents.match.router_state import ROUTER_DIGEST

    return body.digest == ROUTER_DIGEST


def service_host() -> "type[ServiceHost]":
    from vaka.runtime.agent_services import ServiceHost

    return ServiceHost


def network_connector(trusted: tuple[str, ...]) -> "Connector":
    from vaka.net.connector import Connector
    from vaka.net.rules import NetworkRules

    return Connector(NetworkRules(trusted=trusted))


def dmail_delivery() -> "Middleware":
    from vaka.tools.dmail import DELIVERY

    return DELIVERY


def luau_tool() -> "type[LuauTool]":
    from vaka.luau.tool import LuauTool

    return LuauTool


def luau_agent() -> "type[LuauAgent]":
    from vaka.runtime.scripts import LuauAgent

    return LuauAgent


async def compact_session(
    session: "Session[Any]", drivers: "SessionDrivers", instructions: str, *, interrupt: bool
) -> "CompactionResult":
    from vaka.runtime.session_compaction import compact_session

    return await compact_session(session, drivers, instructions, interrupt=interrupt)


def compactor() -> "type[Compactor]":
    from vaka.middleware.compactor import Compactor

    return Compactor


def read_output_tool() -> "Tool":
    from vaka.tools.builtin.files.read_output import read_output

    return read_output


def output_schema(output: Any) -> "OutputSchema":
    """Return the schema of an agent's ``output``. Raises ``InvalidInput`` when JSON cannot express it."""
    from vaka.runtime.structured_output import schema_for

    return schema_for(output)


def recorder_factory(
    store: Store, folders: "Sequence[str]", skipped: "Sequence[str]", resources: "AsyncExitStack", hidden: list[str]
) -> "Callable[[], CommandBackups]":
    """Return a function that makes the recorder of commands; nothing is loaded before it is called."""

    def make() -> "CommandBackups":
        from vaka.runtime.command_records import recorder_factory as load

        return load(store, folders, skipped, resources, hidden)()

    return make


async def preview_file_rewind(
    store: Store, world: "World", session: "SessionId", to: "Cursor | str", *, force: bool
) -> "FileRewind":
    from vaka.runtime.file_rewind import make_access, preview_file_rewind

    return await preview_file_rewind(make_access(store, world), session, to, force=force)


async def rewind_with_files(  # the parameters of the function it loads
    store: Store, world: "World", session: "SessionId", to: "Cursor | str", timestamp: str, *, force: bool
) -> "tuple[Event, FileRewind]":
    from vaka.runtime.file_rewind import make_access, rewind_with_files

    return await rewind_with_files(make_access(store, world), session, to, timestamp, force=force)


async def read_net_changes(store: Store, world: "World", session: "SessionId") -> "NetChanges":
    from vaka.runtime.file_rewind import make_access, read_net_changes

    return await read_net_changes(make_access(store, world), session)


async def read_session_stats(store: "Store", session: "SessionId") -> "SessionStats":
    from vaka.runtime.stats import read_session_stats as read

    return await read(store, session)


async def read_total_stats(store: "Store", embedders: "Mapping[str, tuple[int, Usage]]") -> "SessionStats":
    from vaka.runtime.stats import read_total_stats as read

    return await read(store, embedders)


async def read_client_calls(store: "Store", session: "SessionId") -> "tuple[ToolCall, ...]":
    from vaka.runtime.client_calls import read_client_calls as read

    return await read(store, session)


async def answer_call(
    drivers: "SessionDrivers", session: "SessionId", call: str, result: "ClientResult", *, failed: bool, by: str
) -> "Event":
    from vaka.runtime.client_calls import answer_call as answer

    return await answer(drivers, session, call, result, failed=failed, by=by)


async def find_settlement(store: "Store", decision: str) -> "Event | None":
    from vaka.runtime.resolve_approval import find_settlement as find

    return await find(store, decision)


async def resolve_approval(
    drivers: "SessionDrivers",
    pending: "PendingDecision",
    decision: Literal["approve", "reject"],
    answer: "ApprovalAnswer",
) -> "Event":
    from vaka.runtime.resolve_approval import resolve_approval as resolve

    return await resolve(drivers, pending, decision, answer)
