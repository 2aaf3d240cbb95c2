"""The governance of every agent of a runtime: hooks, the content of a project, MCP servers, and changeable settings."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from vaka.core.ports.env import Env
from vaka.core.ports.store import Store
from vaka.core.session.redaction import Secrets
from vaka.policy.policy import LayeredPolicy
from vaka.runtime.agent_builder import AgentBuilder
from vaka.runtime.builtin_agents import BuiltinAgents
from vaka.runtime.drivers import SessionDrivers
from vaka.runtime.model_registry import ModelRegistry
from vaka.runtime.options import Options

if TYPE_CHECKING:
    from vaka.config.hook_definition import Hook
    from vaka.core.loop.feature_middleware import FeatureMiddleware
    from vaka.core.loop.middleware import Middleware
    from vaka.core.ports.policy import Policy
    from vaka.hooks.engine import HookEngine
    from vaka.mcp.definition import McpServer
    from vaka.project.hook_sources import ComponentUse
    from vaka.project.project_tools import ProjectTools
    from vaka.runtime.live_settings import LiveSettings, LoadedSettings, SettingsSource


class Governance:
    """Gives the builder the middleware of every agent, and replaces it when settings change."""

    def __init__(
        self, options: Options, env: Env, builder: AgentBuilder, models: ModelRegistry, store: Store, secrets: Secrets
    ) -> None:
        self._options = options
        self._env = env
        self._builder = builder
        self._models = models
        self._store, self._secrets = store, secrets
        self._drivers: SessionDrivers | None = None
        self._replace_policy: Callable[[Policy], None] | None = None
        self.hooks: HookEngine | None = None
        self.mcp: FeatureMiddleware | None = None
        self.live_settings: LiveSettings | None = None
        """The settings that are read again when their files change."""
        content: tuple[Middleware, ...] = ()
        use: ComponentUse | None = None
        self._project: ProjectTools | None = None
        if (source := options.project.content) is not None:
            from vaka.feature import require_feature

            require_feature("project", "Project(content=…)")
            from vaka.runtime.project_services import component_use, project_middleware

            self._project, *more = project_middleware(source, options, builder, models, env.clock)
            content, use = (self._project, *more), component_use(self._project)
        if options.project.hooks or use is not None:
            from vaka.runtime.start_hooks import start_hooks

            self.hooks, builder.governing = start_hooks(options, env, models, use)
        builder.governing += content
        if options.project.child_agents and not content:
            builder.governing += (BuiltinAgents(builder, models),)
        if options.project.mcp:
            self.mcp = self._connect_servers(options.project.mcp)
            builder.governing += (self.mcp,)
            self._register_server_secrets()

    def connect(self, drivers: SessionDrivers, replace_policy: "Callable[[Policy], None]") -> None:
        """Send the ends of sessions and notices to the hooks, and follow the settings of the project."""
        self._drivers, self._replace_policy = drivers, replace_policy
        self._connect_hooks()
        content = self._options.project.content
        if content is not None and content.settings:
            from vaka.runtime.project_settings import ProjectSettings

            self.follow_settings(ProjectSettings(content, self._options))
        programs = {"mcp": self.mcp, "hooks": self.hooks}
        commands = self._options.commands
        if commands.sandbox == "on" or any(programs[kind] is not None for kind in commands.sandboxed):
            _ = self._env.world  # now, so that a missing sandbox fails before the first turn

    def follow_settings(self, source: "SettingsSource", loaded: "LoadedSettings | None" = None) -> "LiveSettings":
        from vaka.runtime.live_settings import LiveSettings

        return self._follow(LiveSettings(source, self._env, self._apply_settings, loaded))

    def follow_settings_of(self, other: "Governance") -> None:
        """Follow the settings that another runtime with the same options follows, unless these options do already."""
        if other.live_settings is not None and self.live_settings is None:
            self._follow(other.live_settings.copy_for(self._env, self._apply_settings))

    def _follow(self, live: "LiveSettings") -> "LiveSettings":
        self.live_settings = live
        self._builder.govern((*self._builder.governing, live))
        self._builder.before_turn = live.refresh
        return live

    async def close(self) -> None:
        """End the programs of hooks and the connections to servers."""
        if self.hooks is not None:
            await self.hooks.close()
        if self.mcp is not None:
            await self.mcp.close()

    def _apply_settings(self, loaded: "LoadedSettings", policy: "Policy") -> None:
        tools = self._options.workspace.tools
        if tools is not None and isinstance(policy, LayeredPolicy):
            policy = policy.in_workspace(tools.folder)
        self._env.policy = policy
        if self._replace_policy is not None:
            self._replace_policy(policy)
        self._env.variables.clear()
        self._env.variables.update(loaded.variables)
        if self._project is not None and loaded.trusted is not None:
            self._project.set_trust(loaded.trusted)
        if loaded.hooks != (self.hooks.hooks if self.hooks is not None else ()):
            self._replace_hooks(loaded.hooks)
        if loaded.servers is not None:
            self._replace_servers(loaded.servers)

    def _replace_servers(self, servers: "tuple[McpServer, ...]") -> None:
        selected = _select_servers(servers)
        if self.mcp is not None:
            self.mcp.replace(selected)
        elif any(server.approved or server.required for server in selected):
            self.mcp = self._connect_servers(selected)
            self._builder.govern((*self._builder.governing, self.mcp))
        self._register_server_secrets()

    def _connect_servers(self, servers: object) -> "FeatureMiddleware":
        """Return the middleware for MCP servers, whose feature is imported only here. Raises ``ConfigError``."""
        from vaka.runtime.middleware_services import RuntimeServices, make_feature_middleware

        services = RuntimeServices(self._options, self._store, self._env, self._secrets.add)
        return make_feature_middleware("mcp", "Project(mcp=…)", servers, services)

    def _register_server_secrets(self) -> None:
        for value in self.mcp.secrets() if self.mcp is not None else ():
            self._secrets.add(value)

    def _replace_hooks(self, hooks: "tuple[Hook, ...]") -> None:
        if self.hooks is None:
            from vaka.runtime.start_hooks import start_hooks

            options = self._with_project(hooks=hooks)
            self.hooks, middleware = start_hooks(options, self._env, self._models, None)
        else:
            from vaka.hooks import make_middleware

            self.hooks.replace_hooks(hooks)
            middleware = make_middleware(self.hooks)
        self._builder.govern((*middleware, *(m for m in self._builder.governing if m.name != "hooks")))
        self._connect_hooks()

    def _with_project(self, **changes: object) -> Options:
        project = msgspec.structs.replace(self._options.project, **changes)
        return msgspec.structs.replace(self._options, project=project)

    def _connect_hooks(self) -> None:
        if self.hooks is None or self._drivers is None:
            return
        self._drivers.on_session_end = self.hooks.end_session
        if self.hooks.handles_stored_events:
            self._drivers.observers = [self.hooks.observe]


def _select_servers(servers: "tuple[McpServer, ...]") -> "tuple[McpServer, ...]":
    if not servers:
        return ()
    from vaka.mcp.sources import select_servers

    return select_servers(servers)
