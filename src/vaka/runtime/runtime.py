"""The runtime: it creates the store, models and drivers, opens sessions, and owns every task."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack, overload

from vaka.agents.react import Agent
from vaka.config.options import Commands, Models, NetworkAccess, Permissions, Scripts, Storage, Workspace
from vaka.core.ports.env import Env
from vaka.core.ports.store import BACKGROUND_TAG, PendingDecision, Store
from vaka.core.session.follow import FollowerHub
from vaka.core.session.redaction import Secrets
from vaka.core.session.snapshot import reopen
from vaka.core.types.control import QuestionAnswered, RunSettings, SessionUpdated, SessionWorkspace
from vaka.core.types.errors import AccessDenied, InvalidInput, NotFound
from vaka.core.types.event import Event
from vaka.core.types.ids import JSON, Cursor, DecisionId, SessionId, parse_session_id
from vaka.core.types.keywords import fold_signatures, suggest_keywords
from vaka.core.types.limits import Limits
from vaka.core.types.type_parameters import Deps, Out
from vaka.policy.policy import LayeredPolicy
from vaka.policy.tool_targets import find_file_use
from vaka.runtime.agent_builder import AgentBuilder
from vaka.runtime.clock import RandomIds, SystemClock
from vaka.runtime.drivers import SessionDrivers
from vaka.runtime.governance import Governance
from vaka.runtime.model_registry import ModelRegistry
from vaka.runtime.options import (
    ApprovalAnswer,
    Environment,
    Options,
    Project,
    ToolSelection,
    policy_from_rules,
)
from vaka.runtime.session import Session
from vaka.runtime.session_binding import SessionBinding
from vaka.runtime.session_edits import check_version, fork, make_update, open_boundary, require_owner, rewind
from vaka.runtime.workspace import describe_folder, relocate_run, require_same_folder

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vaka.agents.react import ToolLike
    from vaka.core.loop.middleware import Middleware
    from vaka.core.ports.log import SecretFinder
    from vaka.core.ports.model import Model
    from vaka.core.ports.policy import Policy
    from vaka.core.ports.tool import Tool, World
    from vaka.core.types.state import SessionState
    from vaka.core.types.tool import FileUse
    from vaka.genx.services import DefinitionParts
    from vaka.mcp.client import McpStatus
    from vaka.memory.memories import Memories
    from vaka.runtime.agent_services import ServiceHost
    from vaka.runtime.client_calls import ClientResult
    from vaka.runtime.erase import ErasureReport
    from vaka.runtime.file_rewind import FileRewind, NetChanges
    from vaka.runtime.live_settings import LiveSettings, LoadedSettings, SettingsSource
    from vaka.runtime.remembered_rules import RememberedRules
    from vaka.runtime.stats import SessionStats
    from vaka.runtime.tool_world import WorldFactory
    from vaka.threads.threads import Threads


TASK_SESSION = SessionId("_tasks")
"""The session of ``Storage.task_store`` whose log has the board."""


@fold_signatures
class Runtime:
    """Runs agents on one store: opens sessions, decides calls, owns the turns.

    Use it with ``async with``; leaving the block waits for running turns::

        agent = vaka.Agent("assistant", model="anthropic/claude-sonnet-5-5")
        async with vaka.Runtime(store="sqlite:///vaka.db") as runtime:
            session = await runtime.open(agent, id="demo")
            print((await session.run("Is it raining in Hilo?")).text)
    """

    @suggest_keywords
    def __init__(  # noqa: PLR0913  # a public constructor spells out every group of options
        self,
        store: "Store | str" = "memory:",
        *,
        model: "Model | str | None" = None,
        agent: "Agent[Any, Any] | None" = None,
        instructions: str = "",
        tools: "Sequence[ToolLike] | ToolSelection" = (),
        middleware: "Sequence[Middleware]" = (),
        limits: Limits = Limits(),
        permissions: Permissions = Permissions(),
        models: Models = Models(),
        workspace: Workspace = Workspace(),
        commands: Commands = Commands(),
        network: NetworkAccess = NetworkAccess(),
        scripts: Scripts = Scripts(),
        project: Project = Project(),
        storage: Storage = Storage(),
        environment: Environment = Environment(),
    ) -> None:
        """Create a runtime.

        Args:
            store: Where sessions are kept: a store, or a URL (``memory:``,
                ``sqlite:///PATH``, ``postgresql://…``).
            model: The model of agents that set none: a model, or a name such as
                ``anthropic/claude-sonnet-5-5``.
            agent: The agent of inputs that name none; default: one made of
                ``model`` and the next four arguments.
            instructions: The instructions of the default agent.
            tools: All tools of the default agent, or a selection; default: the
                standard set of built-in tools.
            middleware: The middleware of the default agent, in order.
            limits: The limits of a turn of the default agent.
            permissions: Which tool calls run, and what happens when a person
                must decide.
            models: The models that agents can name, what they cost, and how
                they are called.
            workspace: The folders in which tools work.
            commands: How commands run: their sandbox, and the hosts, variables
                and resources they may use.
            network: What tools and scripts reach on the network.
            scripts: What Luau scripts can use.
            project: Content of ``.claude`` folders, child agents, MCP servers
                and hooks.
            storage: How the store is used, and what must not be stored.
            environment: Where the runtime is used; tests replace the clock, the
                ids and the variables.

        Raises ``TypeError`` for an unknown or wrong argument, and
        ``ConfigError`` for a store or model that cannot be used.
        """
        self.options = options = Options(
            store=store,
            model=model,
            agent=agent,
            instructions=instructions,
            tools=tools,
            middleware=middleware,
            limits=limits,
            permissions=permissions,
            models=models,
            workspace=workspace,
            commands=commands,
            network=network,
            scripts=scripts,
            project=project,
            storage=storage,
            environment=environment,
        )
        self._owned_stores: list[Store] = []
        self.store: Store = self._open_store(options.store)
        self._task_store = None if options.storage.task_store is None else self._open_store(options.storage.task_store)
        self.hub = FollowerHub(self.store)
        policy = options.permissions.policy or policy_from_rules(
            mode=options.permissions.mode,
            allow=options.permissions.allow,
            ask=options.permissions.confirm,
            deny=options.deny_rules,
            cwd=options.workspace.folder,
            directories=options.workspace.add_dirs,
            trusted=options.project.content is None or options.project.content.trusted,
        )
        if options.workspace.tools is not None and isinstance(policy, LayeredPolicy):
            policy = policy.in_workspace(options.workspace.tools.folder)
        self.env = Env(
            options.environment.clock or SystemClock(),
            options.environment.ids or RandomIds(),
            policy,
            options.ask_mode,
        )
        self.secrets = Secrets(
            options.storage.secrets, finders=_secret_finders() if options.storage.redact_patterns else ()
        )
        self._service_host: ServiceHost | None = None
        self._world_factory: WorldFactory | None = None
        self.env.make_world, self.env.find_file_use = self._create_world, self._find_file_use
        self.models = ModelRegistry(options.build_model_config(), self.secrets, self.env.clock)
        self._builder = AgentBuilder(
            services=self._get_service_host,
            models=self.models,
            cache=options.models.cache,
            compaction=options.models.compaction,
        )
        self._governance = Governance(options, self.env, self._builder, self.models, self.store, self.secrets)
        self._default_agent = options.default_agent()
        self._closing: asyncio.Task[None] | None = None
        self._drivers = SessionDrivers(self.store, self.hub, self.env, self.secrets, self._builder, options)
        self._governance.connect(self._drivers, self._replace_policy)

    async def __aenter__(self) -> Self:
        """Return the runtime."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the runtime; after an error, cancel the running turns first."""
        await self.close(cancel=error is not None)

    @overload
    async def open(
        self,
        agent: Agent[Deps, Out],
        *,
        id: str = "",
        metadata: dict[str, Any] | None = None,
        deps: Deps | None = None,
        run_settings: RunSettings | None = None,
        owner: str = "",
    ) -> Session[Deps, Out]: ...

    @overload
    async def open(
        self,
        agent: None = None,
        *,
        id: str = "",
        metadata: dict[str, Any] | None = None,
        deps: Any = None,
        run_settings: RunSettings | None = None,
        owner: str = "",
    ) -> Session[Any, Any]: ...

    @suggest_keywords
    async def open(
        self,
        agent: Agent[Any, Any] | None = None,
        *,
        id: str = "",
        metadata: dict[str, Any] | None = None,
        deps: Any = None,
        run_settings: RunSettings | None = None,
        owner: str = "",
    ) -> Session[Any, Any]:
        """Return the session ``id``, or a new one.

        Nothing is written until the first input.

        Args:
            agent: The agent that answers; default: the agent of the runtime's
                options.
            id: The id of the session; default: a new one.
            metadata: Plain data that the first event records; tools read it as
                ``context.metadata``.
            deps: Dependencies of tools and instructions (``context.deps``,
                ``turn.deps``); they are never logged.
            run_settings: How the session is run, for its log; ``vaka run``
                applies them again when it continues it.
            owner: The person or program that a new session belongs to, for
                ``SessionQuery(owner=…)``. An existing session of another owner,
                or of none, raises ``AccessDenied``.

        A session belongs to the folder in which its tools work. Its turns raise
        ``InvalidInput`` in a runtime that works in another one.
        """
        self._drivers.require_open()
        agent = agent or self._default_agent
        if agent is None:
            raise InvalidInput("no agent: pass one to open(), or set Runtime(agent=…) or Runtime(model=…)")
        id = id or self.env.ids.new_id(f"ses_{self.options.environment.entry_point}")
        session = parse_session_id(id)
        if owner:
            await require_owner(self.store, session, owner)
        binding = SessionBinding(self, self._drivers, agent, session, metadata or {}, deps)
        binding.run_settings = run_settings
        binding.owner = owner
        return Session(binding)

    def follow(self, session: str, *, after: "Cursor | str | None" = None) -> AsyncGenerator[Event]:
        """Yield the events of a session after a cursor, then new ones.

        New events may come from any process.

        Never claims the session.
        """
        cursor = after if isinstance(after, Cursor) else Cursor.parse(after)
        return self.hub.follow(parse_session_id(session), cursor)

    async def stats(self, session: str) -> "SessionStats":
        """Return the usage of a session, its subagents included.

        Raises ``NotFound``.
        """
        from vaka.runtime.stats import read_session_stats

        return await read_session_stats(self.store, parse_session_id(session))

    async def total_stats(self) -> "SessionStats":
        """Return the usage of all sessions of the store.

        The usage of the embedders of this process is included.
        """
        from vaka.runtime.stats import read_total_stats

        return await read_total_stats(self.store, self.models.embedder_usage)

    async def decisions(self, session: str | None = None, *, id: str | None = None) -> Sequence[PendingDecision]:
        """Return the open approvals and questions, oldest first.

        ``session`` selects the decisions of one session, ``id`` one decision.
        """
        return await self.store.sessions.decisions(parse_session_id(session) if session else None, id=id)

    def mcp_status(self) -> "tuple[McpStatus, ...]":
        """Return the connections to MCP servers.

        They start with the first model call.
        """
        if self._governance.mcp is None:
            return ()
        from vaka.mcp.middleware import McpTools

        return self._governance.mcp.status() if isinstance(self._governance.mcp, McpTools) else ()

    async def resolve(
        self, approval: str, decision: Literal["approve", "reject"], **details: Unpack[ApprovalAnswer]
    ) -> Event:
        """Decide an approval, and return the event of the first decision.

        An approval that is decided or has expired is searched for in the
        sessions that changed last; ``NotFound`` when it is in none of them.

        ``message`` is the reason for a rejection, ``edit`` replaces the
        arguments, ``by`` names the person. A ``scope`` other than ``once``
        stores a rule: the suggested one, or ``rule`` (several, one per line),
        which must match the call. ``ttl`` limits a grant for the session to
        some seconds. Raises ``InvalidInput`` or ``ConfigError`` for a decision
        that is not possible; the approval then stays open.
        """
        try:
            return await self._drivers.decide(approval, decision, **details)
        except NotFound as error:
            return await self._find_settlement(approval, error)

    async def answer(self, question: str, answer: JSON, *, by: str = "") -> Event:
        """Answer a question, and return the event of the first answer."""
        answered = QuestionAnswered(question=DecisionId(question), answer=answer, by=by)
        try:
            pending = await self._drivers.find_pending(question)
        except NotFound as error:
            return await self._find_settlement(question, error)
        return await self._drivers.offer(pending.session, answered, question)

    async def answer_call(
        self, session: str, call: str, result: "ClientResult", *, failed: bool = False, by: str = ""
    ) -> Event:
        """Give the result of a call of a ``ClientTool``.

        See ``Session.answer_call``.
        """
        from vaka.runtime.client_calls import answer_call

        return await answer_call(self._drivers, parse_session_id(session), call, result, failed=failed, by=by)

    async def _find_settlement(self, decision: str, error: NotFound) -> Event:
        from vaka.runtime.resolve_approval import find_settlement

        settled = await find_settlement(self.store, decision)
        if settled is None:
            raise error
        return settled

    async def fork(self, origin: str, *, at: "Cursor | str | None" = None, id: str = "") -> SessionId:
        """Copy a session up to a cursor or checkpoint; return the copy's id."""
        new_session = parse_session_id(id or self.env.ids.new_id("ses_fork"))
        await fork(self.store, parse_session_id(origin), at, new_session, self._drivers.timestamp())
        return new_session

    async def rewind(
        self, session: str, to: "Cursor | str", *, interrupt: bool = False, files: bool = False, force: bool = False
    ) -> Event:
        """Rewind a session to a cursor or checkpoint between two turns.

        Raises ``Busy`` while a turn runs, unless ``interrupt`` is set, and
        ``InvalidInput`` for a position inside a turn: the message has the
        positions before and after that turn.

        ``files`` also restores the files that file tools and commands have
        changed since, if snapshots were on. Raises ``FileChanged`` for files
        that another program has changed since, unless ``force`` is set.
        """
        id = parse_session_id(session)
        if files:
            return (await self._rewind_files(id, to, interrupt, force))[0]
        prefix = await self._prepare_rewind(id, to, interrupt)
        return await rewind(self.store, id, prefix, self._drivers.timestamp())

    async def rewind_files(
        self, session: str, to: "Cursor | str", *, interrupt: bool = False, force: bool = False
    ) -> "FileRewind":
        """Rewind a session with its files, and return the effect on them.

        See ``rewind``.
        """
        return (await self._rewind_files(parse_session_id(session), to, interrupt, force))[1]

    async def _rewind_files(
        self, id: SessionId, to: "Cursor | str", interrupt: bool, force: bool
    ) -> "tuple[Event, FileRewind]":
        await self._prepare_rewind(id, to, interrupt)
        await self._require_folder(id)
        now = self._drivers.timestamp()
        from vaka.runtime.file_rewind import make_access, rewind_with_files

        access = make_access(self.store, self.env.world)
        return await rewind_with_files(access, id, to, now, force=force)

    async def _prepare_rewind(self, id: SessionId, to: "Cursor | str", interrupt: bool) -> "SessionState":
        prefix = await open_boundary(self.store, id, to)  # before the interrupt: a wrong position stops no turn
        if interrupt:
            await self._drivers.interrupt_and_wait(id)
        await self._drivers.require_idle(id)
        return prefix

    async def preview_rewind(self, session: str, to: "Cursor | str", *, force: bool = False) -> "FileRewind":
        """Return the files that ``rewind_files`` would restore.

        The result also has what would block it.
        """
        id = parse_session_id(session)
        await self._require_folder(id)
        from vaka.runtime.file_rewind import make_access, preview_file_rewind

        return await preview_file_rewind(make_access(self.store, self.env.world), id, to, force=force)

    async def file_changes(self, session: str) -> "NetChanges":
        """Return the files that a session has changed.

        The result has the contents of each file before and now. Files that have
        their former content again, such as after a rewind with files, are left
        out.
        """
        if (info := await self.store.sessions.find(parse_session_id(session))) is not None:
            await self._require_folder(info.id)
        from vaka.runtime.file_rewind import make_access, read_net_changes

        return await read_net_changes(make_access(self.store, self.env.world), parse_session_id(session))

    @suggest_keywords
    async def erase(
        self, session: str = "", *, owner: str = "", by: str = "", dry_run: bool = False
    ) -> "ErasureReport":
        """Erase a session, or everything that is stored of an owner.

        It cannot be undone.

        Args:
            session: The session. Its memory of the scope ``thread`` is erased
                with it, the memories of its owner stay.
            owner: The owner: all their sessions, forks included, and their
                text, working and semantic memory.
            by: The name of the caller, for the logs.
            dry_run: Only report what would be erased.

        The hashes of events stay, so that an erased log can be verified; it can
        be listed, exported and deleted, but not continued. Sessions with a
        writer are reported in ``failed``; call it again when their turns have
        ended. A second call also completes an interrupted erasure.
        """
        from vaka.runtime.erase import Erasure  # most programs erase nothing

        hooks, caches = self._governance.hooks, self._drivers.edit_caches
        erasure = Erasure(
            self.store, caches, self.options.project.transcript_folder, hooks.transcripts if hooks else None
        )
        return await erasure.erase(session, owner, by=by, dry_run=dry_run)

    async def workspace(self, session: str) -> SessionWorkspace | None:
        """Return the folder of a session, ``None`` if it is not bound to one."""
        return (await reopen(self.store, parse_session_id(session))).state.workspace

    async def move(self, session: str, folder: str = "", *, add_dirs: Sequence[str] = ()) -> Event:
        """Bind a session to another folder, by default the folder of this runtime.

        Raises ``Busy`` while a turn runs.

        Grants for the session end, and approvals that were given for the old
        folder do not hold in the new one. Paths below the old folder in the
        flags of its last run become paths below the new one.
        """
        workspace = describe_folder(folder or self.options.workspace.tool_folder, tuple(add_dirs))
        if workspace is None or not workspace.inode:
            raise InvalidInput(f"there is no folder {folder!r}, or its name is not valid UTF-8")
        id = parse_session_id(session)
        state = (await reopen(self.store, id)).state
        run = relocate_run(state.run, state.workspace, workspace) if state.run and state.workspace else None
        return await self._drivers.write(id, SessionUpdated(workspace=workspace, run=run))

    @suggest_keywords
    async def update_session(
        self,
        session: str,
        *,
        title: str | None = None,
        owner: str | None = None,
        tags: Sequence[str] | None = None,
        metadata: "Mapping[str, Any] | None" = None,
        by: str = "",
        version: int | None = None,
    ) -> Event:
        """Describe an existing session anew, as ``Session.update`` does.

        Raises ``NotFound``.

        With ``version`` it is changed only if that is still its
        ``SessionInfo.version``; otherwise ``HeadMoved``.
        """
        id, body = parse_session_id(session), make_update(title, owner, tags, metadata, by)
        return await self._drivers.update(id, body, check=check_version(id, version))

    @cached_property
    def memories(self) -> "Memories":
        """The memories of owners and sessions, to read and change."""
        from vaka.feature import require_feature

        require_feature("memory", "runtime.memories")
        from vaka.memory.memories import Memories
        from vaka.runtime.agent_services import RecordServices

        return Memories(self.store, self.env.clock, self.secrets, RecordServices(self.models.embedder))

    @cached_property
    def threads(self) -> "Threads[Agent[Any, Any]]":
        """The sessions as threads of messages, to list, search and continue."""
        from vaka.feature import require_feature

        require_feature("threads", "runtime.threads")
        from vaka.runtime.thread_host import RuntimeThreadHost
        from vaka.threads.threads import Threads

        return Threads(RuntimeThreadHost(self, self._drivers))

    @property
    def _definition_parts(self) -> "DefinitionParts":
        """What definitions get from other folders, for ``vaka.genx``."""
        from vaka.runtime.definition_parts import RuntimeParts

        return RuntimeParts()

    async def _require_folder(self, session: SessionId) -> None:
        """Raise ``InvalidInput`` if the folder of a session is not the folder of this runtime."""
        recorded, here = await self.workspace(session), self._drivers.workspace
        if recorded is not None and here is not None:
            require_same_folder(session, recorded, here)

    async def close(self, *, cancel: bool = False) -> None:
        """Close what the runtime opened, after its turns have ended.

        ``cancel`` ends the running turns.

        A turn that waits for a decision stays in the log and can be resumed
        afterwards. A caller that is cancelled does not stop the closing;
        another call waits for its end.
        """
        self._drivers.begin_close(cancel=cancel)
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())
            self._closing.add_done_callback(lambda task: task.cancelled() or task.exception())  # marks it as retrieved
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        await self._drivers.close()
        await self._governance.close()
        for stray in self.env.stray_tasks:
            stray.cancel()
        await self.env.end_commands()
        if self._world_factory is not None:
            await self._world_factory.close()
        if self._service_host is not None:
            await self._service_host.close()
        await self.models.close()
        await self.hub.close()
        for store in self._owned_stores:
            await store.close()

    async def finish_turns(self) -> None:
        """Wait until no turn runs here, without closing the runtime.

        What is stored can still be read and followed.

        A turn that waits for a decision is suspended, as ``close`` does. Start
        no turns while this waits.
        """
        await self._drivers.finish_turns()

    def is_running(self, session: str) -> bool:
        """Return whether this process runs a turn of a session."""
        driver = self._drivers.active.get(parse_session_id(session))
        return driver is not None and driver.started

    def _open_store(self, place: "Store | str") -> Store:
        namespace = self.options.storage.namespace
        if not isinstance(place, str):
            return place if namespace in ("", place.namespace) else place.with_namespace(namespace)
        from vaka.runtime.open_store import open_store

        store = open_store(place, durability=self.options.storage.durability, namespace=namespace)
        self._owned_stores.append(store)
        return store

    def _create_world(self) -> "World":
        from vaka.runtime.shared_values import SharedValues
        from vaka.runtime.tool_world import WorldFactory

        store, clock = self._task_store, self.env.clock
        factory = WorldFactory(
            self.options, self.env.policy, self.models, self.store, store, self._drivers.workspace, self.env.variables
        )
        self._world_factory = factory
        tasks = SharedValues(store, TASK_SESSION, clock, self.secrets) if store else None
        hooks = self._governance.hooks
        has_variables = hooks is not None and hooks.handles("SessionStart")
        return factory.create_world(tasks, hooks.transcripts.read_env_files if hooks and has_variables else None)

    def follow_settings(self, source: "SettingsSource", loaded: "LoadedSettings | None" = None) -> "LiveSettings":
        """Apply permissions, hooks, variables and servers of settings.

        They apply again before a turn if their files have changed; while a turn
        runs, only changes that restrict apply. ``loaded`` are settings that the
        options have already.
        """
        return self._governance.follow_settings(source, loaded)

    def follow_settings_of(self, other: "Runtime") -> None:
        """Apply the settings that another runtime with the same options follows."""
        self._governance.follow_settings_of(other._governance)  # noqa: SLF001  # same class

    def keep_rules_in_store(self) -> "RememberedRules":
        """Keep the rules of approvals in the store, for the owner of the session.

        Without it, they are added to settings files, which count for all that
        read them. Returns the rules.
        """
        rules = self._drivers.remembered_rules
        if rules is None:
            from vaka.runtime.remembered_rules import RememberedRules

            rules = self._drivers.remembered_rules = RememberedRules(self.store)
            self._builder.govern((*self._builder.governing, rules))
        return rules

    def _find_file_use(self, tool: "Tool", arguments: "Mapping[str, Any]") -> "FileUse | None":
        files = self.options.workspace.files if self.options.workspace.tools is None else None
        return find_file_use(tool, arguments, self.options.workspace.tool_folder if files is None else files.root)

    def _replace_policy(self, policy: "Policy") -> None:
        if self._world_factory is not None and self.env.world_created:
            self.env.world = self._world_factory.replace_policy(self.env.world, policy)

    def _get_service_host(self) -> "ServiceHost":
        if self._service_host is None:
            from vaka.runtime.agent_services import ServiceHost

            self._service_host = ServiceHost(self.options, self.store, self._submit)
        return self._service_host

    async def _submit(self, agent: Agent, session: str, prompt: str, key: str, owner: str) -> None:
        """Store an input of a session, which gets an owner when it is new; its turn runs in the background."""
        opened = await self.open(agent, id=session)
        info = await self.store.sessions.find(opened.id)
        if info is not None and info.owner != owner:
            raise AccessDenied(f"session {session!r} has another owner than {owner!r}")
        if info is None:
            await opened.update(owner=owner or None, tags=[BACKGROUND_TAG])
        await opened.send(prompt, key=key)


def _secret_finders() -> "tuple[SecretFinder, ...]":
    from vaka.matching.secrets import SECRET_FORMATS

    return (SECRET_FORMATS,)
