"""Build settings, policy and runtime from flags."""

import os
import sys
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast
from urllib.parse import unquote, urlsplit

import click
import msgspec

from vaka.agents.coding_prompt import is_coding_agent
from vaka.agents.react import Agent
from vaka.cli.kit.errors import UsageError
from vaka.cli.kit.event_loop import run_loop
from vaka.cli.kit.render import StatusLine, as_printable
from vaka.cli.strings import translate, use_language
from vaka.config.options import Commands, Models, NetworkAccess, Permissions, Scripts, Storage, Workspace
from vaka.config.setting_keys import SETTING_KEYS
from vaka.config.settings import (
    MANAGED,
    ConfigContext,
    LoadedPermissions,
    SettingLayer,
    Settings,
    SettingsFile,
    SettingValue,
    data_folder,
    keys_folder,
    layers_from_settings,
    load_settings,
    settings_folder,
    trust_root_of,
)
from vaka.core.ports.env import AskMode
from vaka.core.ports.sandbox import ResourceLimits
from vaka.core.ports.store import SessionInfo, Store
from vaka.core.session.redaction import MIN_SECRET_LENGTH
from vaka.core.types.errors import ConfigError, NotFound
from vaka.core.types.ids import parse_session_id
from vaka.feature import has_feature, require_feature
from vaka.policy.decision import parse_mode
from vaka.policy.policy import LayeredPolicy
from vaka.policy.rules import resolve_mode
from vaka.runtime.options import Environment, ModeContext, Project
from vaka.runtime.runtime import Runtime

if TYPE_CHECKING:
    from vaka.mcp.definition import McpServer, ParsedServers
    from vaka.runtime.model_registry import ModelRegistry
    from vaka.runtime.server_settings import FolderSettings

T = TypeVar("T")


def config_context() -> ConfigContext:
    """Return where settings are read from. Raises ``ConfigError`` when there is no home directory."""
    home = os.environ.get("HOME")
    if sys.platform != "win32" and home is not None and not Path(home).is_absolute():
        problem = f"is {home!r}, which is not an absolute path" if home else "is empty"
        raise ConfigError(f"the variable HOME {problem}; set it to your home directory, or unset it")
    return ConfigContext(cwd=settings_folder(), home=Path.home(), environ=os.environ)


def settings_from_flags(flags: Mapping[str, Any]) -> Settings:
    """Return the settings in force, ``flags`` included; other keys of ``flags`` are ignored. Prints notes."""
    settings = load_flag_settings(flags)
    print_notes(settings.notes)
    return settings


def load_file_settings() -> Settings:
    """Return the settings of files and variables, without applying what ``.claude`` files say."""
    return load_settings(config_context(), {})


def load_flag_settings(flags: Mapping[str, Any], before: Settings | None = None) -> Settings:
    """Return the settings in force as ``settings_from_flags`` does, without printing notes.

    ``before`` are the settings with other flags: their files are not read again if they are of the same folder.
    """
    known = {name: value for name, value in flags.items() if name in SETTING_KEYS}
    if flags.get("ephemeral"):
        if known.get("store"):
            raise UsageError("--ephemeral stores nothing, so it cannot be used with --store; leave one of them out")
        known["store"] = "memory:"
    known_context = before.context if before is not None and before.context.cwd == settings_folder() else None
    context = known_context or config_context()
    settings = load_settings(context, known, trust=bool(flags.get("trust")))
    settings.flags = dict(flags)
    settings.claude_file = flags.get("settings") or ""
    settings.plugin_dirs = tuple(map(Path, flags.get("plugin_dir") or ()))
    settings.mcp_configs = tuple(flags.get("mcp_config") or ())
    settings.strict_mcp = bool(flags.get("strict_mcp_config"))
    read = (context, settings.claude_file, settings.trusted)
    if before is not None and read == (before.context, before.claude_file, before.trusted):
        settings.claude_files = before.claude_files
    apply_claude_files(settings, claude_files_of(settings))
    use_language(settings["lang"])
    return settings


def apply_claude_files(settings: Settings, files: Sequence[SettingsFile]) -> None:
    """Apply what ``.claude`` files say about the model, the sandbox and variables, unless vaka's own settings do.

    Nothing overrides the administrator's. A tier counts only if vaka's settings define it.
    """
    if not files:
        _apply_variables({}, {})
        return
    from vaka.project.apply_settings import apply_claude_settings
    from vaka.project.claude_settings import settings_env

    apply_claude_settings(settings, files)
    _apply_variables(settings_env(files), settings_env(file for file in files if file.layer == MANAGED))


_applied_variables: dict[str, str] = {}
"""The environment variables of this process that settings files have set."""


def _apply_variables(wanted: Mapping[str, str], forced: Mapping[str, str]) -> None:
    """Set the variables of settings files; only ``forced`` ones replace those that the process was started with.

    Those that were set before, and are not wanted any more, are removed.
    """
    for name in [name for name in _applied_variables if name not in wanted]:
        del _applied_variables[name]
        os.environ.pop(name, None)
    for name, value in wanted.items():
        if name in _applied_variables or name in forced or name not in os.environ:
            _applied_variables[name] = os.environ[name] = value


def permission_mode_of(settings: Settings) -> SettingValue:
    """Return the permission mode in force, of vaka's settings or ``.claude`` files, and its origin."""
    layers = load_permissions_of(settings).layers
    mode = resolve_mode(layers, [])
    known = settings.values["permission_mode"]
    setting = [layer for layer in layers if layer.mode and parse_mode(layer.mode) == mode]
    if known.value == mode or not setting:
        return known if known.value == mode else SettingValue(mode)
    return SettingValue(mode, setting[-1].locate("mode"), cast("SettingLayer", setting[-1].name))


def policy_from_settings(settings: Settings) -> LayeredPolicy:
    """Return the permission rules in force, of ``.claude`` files, vaka's settings and flags. Prints notes."""
    permissions = load_permissions_of(settings)
    cwd, home = str(settings.context.cwd), str(settings.context.home)
    policy = LayeredPolicy(permissions.layers, cwd=cwd, home=home, trusted=settings.trusted)
    if permissions.notes or policy.notes:
        print_notes(permissions.notes, policy.notes)
    return policy


def load_permissions_of(settings: Settings) -> LoadedPermissions:
    """Return the permission layers in force. Raises ``ConfigError``."""
    files = claude_files_of(settings)
    if not files:
        return LoadedPermissions(layers=tuple(layers_from_settings(settings)))
    from vaka.project.claude_settings import load_permissions

    return load_permissions(settings.context, files=files, flags=settings)


def claude_files_of(settings: Settings) -> list[SettingsFile]:
    """Return the ``.claude`` settings files in force, the weakest first. They are read once."""
    if settings.claude_files is not None:
        return settings.claude_files
    further = settings.claude_file or None
    settings.claude_files = []
    if has_feature("project"):
        from vaka.project.claude_settings import load_settings_files

        settings.claude_files = load_settings_files(settings.context, settings=further, trust=settings.trusted)
    elif further is not None:
        require_feature("project", "--settings")
    return settings.claude_files


def transcript_folder() -> Path:
    """Return the folder of the transcripts that hooks read."""
    return data_folder(os.environ, config_context().home) / "transcripts"


def hook_options(settings: Settings) -> dict[str, Any]:
    """Return the hooks of settings files and plugins as options of a runtime. Prints notes."""
    context, files = settings.context, claude_files_of(settings)
    options = {"transcript_folder": str(data_folder(os.environ, context.home) / "transcripts")}
    if not may_have_plugins_of(settings) and not (files and any("hooks" in file.document for file in files)):
        return options
    from vaka.project.hook_sources import hooks_in_force

    parsed = hooks_in_force(context, files, trusted=settings.trusted, plugin_dirs=settings.plugin_dirs)
    print_notes(parsed.problems)
    return {**options, "hooks": tuple(hook for hook in parsed.hooks if not hook.disabled)}


def may_have_plugins_of(settings: Settings) -> bool:
    """Return whether there may be plugins: a look at few names."""
    if settings.plugin_dirs or not has_feature("project"):
        return bool(settings.plugin_dirs)
    from vaka.project.claude_settings import may_have_plugins

    return may_have_plugins(settings.context)


def project_options(settings: Settings, agent: Agent) -> dict[str, Any]:
    """Return the option that gives the coding agent the content of ``.claude`` folders, or only child agents."""
    if not is_coding_agent(agent.instructions):
        return {}
    if not has_feature("project"):
        return {"child_agents": True}
    from vaka.project.claude_settings import hooks_are_disabled, may_have_content

    if not settings.plugin_dirs and not may_have_content(settings.context):
        return {"child_agents": True}
    from vaka.project.content import ProjectSource

    source = ProjectSource(
        trusted=settings.trusted,
        settings_file=settings.claude_file,
        hooks=not hooks_are_disabled(claude_files_of(settings)),
        plugin_dirs=tuple(str(folder) for folder in settings.plugin_dirs),
    )
    return {"content": source}


def load_servers(settings: Settings) -> "ParsedServers":
    """Return the MCP servers of all files and flags, started or not. Raises ``ConfigError``."""
    from vaka.feature import require_feature

    require_feature("mcp", "a definition of MCP servers")
    from vaka.mcp.sources import ServerFlags, servers_in_force

    flags = ServerFlags(
        configs=settings.mcp_configs,
        strict=settings.strict_mcp,
        plugin_dirs=settings.plugin_dirs,
        documents=settings.server_documents,
    )
    return servers_in_force(server_settings(settings), flags)


def server_settings(settings: Settings | None = None) -> "FolderSettings":
    """Return what the settings of a command say about MCP servers; without settings, where the folder has its files."""
    from vaka.runtime.server_settings import FolderSettings

    if settings is None:
        return FolderSettings(config_context())
    return FolderSettings(settings.context, claude_files_of(settings), trusted=settings.trusted)


def uses_servers(settings: Settings, agent: Agent | None) -> bool:
    """Return whether an agent has the MCP servers of files: the coding agent, or any where a flag names some."""
    is_coding = agent is not None and is_coding_agent(agent.instructions)
    return bool(settings.mcp_configs) or ((settings.wants_servers or is_coding) and not settings.strict_mcp)


def find_servers(settings: Settings) -> "tuple[tuple[McpServer, ...], list[str]]":
    """Return the MCP servers of all files and flags, and notes on files and servers that do not count."""
    if not settings.mcp_configs and not _may_have_servers(settings):
        return (), []
    from vaka.feature import has_feature

    if not has_feature("mcp") and not settings.mcp_configs and not server_settings(settings).has_named_servers():
        return (), []
    parsed = load_servers(settings)
    from vaka.mcp.sources import explain_missing_servers

    return parsed.servers, [*parsed.unreadable, *explain_missing_servers(parsed.servers)]


def _may_have_servers(settings: Settings) -> bool:
    if settings.plugin_dirs or not has_feature("project"):
        return bool(settings.plugin_dirs)
    from vaka.project.claude_settings import may_have_servers

    return may_have_servers(settings.context, claude_files_of(settings))


def server_options(settings: Settings, agent: Agent) -> dict[str, Any]:
    """Return the MCP servers as an option of a runtime. Prints notes."""
    servers, settings.server_notes = find_servers(settings) if uses_servers(settings, agent) else ((), [])
    if settings.server_notes:
        print_notes(settings.server_notes)
    if not servers:
        return {}
    from vaka.mcp.sources import select_servers

    selected = select_servers(servers)
    needed = any(server.approved or server.required for server in selected)
    return {"mcp": selected} if needed else {}


def print_notes(*notes: Iterable[str]) -> None:
    """Print each note once, on stderr."""
    for note in dict.fromkeys(note for group in notes for note in group):
        click.echo(f"note: {as_printable(note)}", err=True)


def current_user() -> str:
    """Return the name that decisions made here are recorded under."""
    named = next(filter(None, map(os.environ.get, ("LOGNAME", "USER", "LNAME", "USERNAME"))), "")
    if named:
        return named
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return "unknown"


def has_terminal() -> bool:
    """Whether the user can be prompted."""
    return bool(sys.stdin and sys.stdin.isatty() and sys.stderr and sys.stderr.isatty())


def can_ask() -> bool:
    """Whether a person can be asked, at stdin or, if that is a pipe or a file, at the controlling terminal."""
    if has_terminal():
        return True
    if sys.stderr is None or not sys.stderr.isatty() or (descriptor := open_controlling_terminal()) is None:
        return False
    os.close(descriptor)
    return True


def open_controlling_terminal() -> int | None:
    """Return a descriptor of the controlling terminal, ``None`` if there is none or this is a background job."""
    if sys.platform == "win32":
        return None
    try:
        descriptor = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        in_foreground = os.tcgetpgrp(descriptor) == os.getpgrp()
    except OSError:
        in_foreground = False
    if not in_foreground:
        os.close(descriptor)
        return None
    return descriptor


def ask_trust_once(context: ConfigContext) -> None:
    """Ask at the terminal whether to trust a folder that has settings of its own, unless there is a decision."""
    root = trust_root_of(context.cwd)
    if not has_terminal() or context.trust.lookup(root) is not None:
        return
    files = [context.project_file]
    if has_feature("project"):
        from vaka.project.claude_settings import project_server_files, project_trust_places

        files += [*project_trust_places(context), *project_server_files(context)]
    inside = [file for file in files if file is not None and file.resolve().is_relative_to(root)]
    if not inside:
        return
    click.echo(translate("{folder} has settings of its own:", folder=as_printable(str(root))), err=True)
    for path in inside:
        click.echo(f"  {as_printable(str(path))}", err=True)
    click.echo(
        translate("Until you trust it they can only tighten what is allowed. `vaka trust` changes your answer."),
        err=True,
    )
    context.trust.record(root, click.confirm(translate("Trust this folder?"), default=False, err=True))


def create_default_store_folder(settings: Settings) -> None:
    """Create the folder of the default store. The folder of a store that the user names must exist."""
    if settings.values["store"].layer != "default":
        return
    folder = data_folder(os.environ, settings.context.home)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"the folder {str(folder)!r} of the store cannot be created: {error.strerror}") from error


def runtime_from_settings(
    settings: Settings, agent: Agent | None = None, *, quiet: bool = False, ask: str = "", store: Store | None = None
) -> Runtime:
    """Return the runtime the settings describe; the caller closes it. ``ask`` and ``store`` replace theirs."""
    create_default_store_folder(settings)
    options = model_options(settings, quiet=quiet)
    mode = ModeContext(cli={"user": current_user()})
    options["environment"] = msgspec.structs.replace(options["environment"], mode=mode)
    secrets = collect_secrets(os.environ, settings["store"])
    scripts = settings.fields_of(Scripts)
    scripts["env"] = script_environment(settings)
    runtime = Runtime(
        store or settings["store"],
        agent=agent,
        permissions=_permissions_of(settings, agent, ask),
        storage=Storage(**settings.fields_of(Storage), secrets=secrets),
        network=NetworkAccess(**settings.fields_of(NetworkAccess)),
        scripts=Scripts(**scripts),
        project=_project_of(settings, agent) if agent is not None else Project(),
        **options,
        **world_options(settings),
    )
    if agent is not None:
        from vaka.cli.settings_source import follow_settings

        follow_settings(runtime, settings)
    return runtime


def _permissions_of(settings: Settings, agent: Agent | None, ask: str) -> Permissions:
    """Return the permissions of a runtime; without an agent it only works on what is stored and needs no rules."""
    chosen = cast("AskMode", ask or settings["ask"] or ("wait" if can_ask() else "deny"))
    if agent is None:
        return Permissions(ask=chosen)
    fields: dict[str, Any] = settings.fields_of(Permissions)
    fields |= {"ask": chosen, "policy": policy_from_settings(settings)}
    return Permissions(**fields)


def _project_of(settings: Settings, agent: Agent) -> Project:
    """Return what files of the user and the project add to an agent."""
    return Project(**hook_options(settings), **project_options(settings, agent), **server_options(settings, agent))


def script_environment(settings: Settings) -> dict[str, str]:
    """Return the variables of this process that Luau scripts may read."""
    return {name: os.environ[name] for name in settings["script_env"] if name in os.environ}


def model_options(settings: Settings, *, quiet: bool = False) -> dict[str, Any]:
    """Return the settings about models as arguments of a runtime."""
    return {
        "model": settings["model"] or None,
        "models": Models(**settings.fields_of(Models)),
        "environment": Environment(progress=None if quiet else StatusLine()),
    }


def open_models(settings: Settings, *, quiet: bool = False) -> "ModelRegistry":
    """Return the models of the settings, for a command that needs no runtime."""
    from vaka.runtime.model_registry import ModelRegistry
    from vaka.runtime.options import Options

    return ModelRegistry(Options(**model_options(settings, quiet=quiet)).build_model_config())


def world_options(settings: Settings) -> dict[str, Any]:
    """Return the settings about files and commands as arguments of a runtime."""
    files, commands = claude_files_of(settings), settings.fields_of(Commands)
    if files:
        from vaka.project.claude_settings import sandboxed_programs, settings_env

        commands["env"] = (*commands["env"], *settings_env(files))
        commands["sandboxed"] = sandboxed_programs(files)
    limits = ResourceLimits(**settings.fields_of(ResourceLimits))
    return {
        "workspace": Workspace(cwd=str(settings.context.cwd), **settings.fields_of(Workspace)),
        "commands": Commands(**commands, limits=limits),
    }


def with_runtime(flags: Mapping[str, Any], work: Callable[[Runtime], Coroutine[Any, Any, T]]) -> T:
    """Run ``work`` with the runtime that flags and settings describe."""
    settings = settings_from_flags(flags)

    async def run_work() -> T:
        async with runtime_from_settings(settings) as runtime:
            return await work(runtime)

    return run_loop(run_work())


class StoreUser(Protocol):
    """A runtime, of which only the store is used."""

    @property
    def store(self) -> Store: ...


async def find_session(runtime: StoreUser, session: str, *, owner: str | None = None) -> SessionInfo:
    """Return a session's index row. Raises ``NotFound``, also for a session of another owner than the one given."""
    info = await runtime.store.sessions.find(parse_session_id(session))
    if info is None or (owner is not None and info.owner != owner):
        of_owner = f" of owner {owner!r}" if info is not None else ""
        hint = "`vaka sessions list --all` shows the sessions of this store"
        raise NotFound(f"there is no session {session!r}{of_owner}; {hint}")
    return info


def collect_secrets(environ: Mapping[str, str], store: str) -> tuple[str, ...]:
    """Return the values to redact everywhere: keys of the environment and of files, peppers, the store's password."""
    found = [unquote(urlsplit(store).password or "")]
    for name, value in environ.items():
        if name.endswith(("_API_KEY", "_PEPPER")):
            found.append(value)
    if keys_folder(environ, Path.home()).is_dir():
        from vaka.runtime.stored_keys import stored_keys_of

        found += stored_keys_of(environ).keys_in_files()
    return tuple(value for value in found if len(value) >= MIN_SECRET_LENGTH)
