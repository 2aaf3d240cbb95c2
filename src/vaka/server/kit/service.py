"""``AgentService``: the agents and sessions that a server offers, with a runtime for each tenant."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import cached_property
from typing import Any, Unpack, cast

import msgspec

from vaka import __version__
from vaka.agents.react import Agent, ToolLike
from vaka.core.ports.store import PendingDecision, SessionInfo, SessionQuery
from vaka.core.session.fanout import Follower
from vaka.core.types.errors import Busy, ConfigError, HeadMoved, InvalidInput, NotFound, VakaError
from vaka.core.types.event import Event
from vaka.core.types.ids import JSON, Cursor, TurnId, parse_session_id
from vaka.core.types.message import ToolResult
from vaka.core.types.progress import GIVEN_CALLS
from vaka.core.types.tool import ToolSpec
from vaka.models.given_calls import GivenCalls
from vaka.runtime.agent_builder import AgentBuilder
from vaka.runtime.client_calls import ClientResult
from vaka.runtime.model_registry import SCRIPTED_PREFIX
from vaka.runtime.options import ApprovalAnswer, OnBusy, UserInput
from vaka.runtime.runtime import Runtime
from vaka.runtime.session import Session, binding_of
from vaka.runtime.session_binding import SessionBinding
from vaka.runtime.turn_stream import TurnCollector
from vaka.server.decision_feed import DecisionFeed
from vaka.server.kit.guard import Guard, require_scope
from vaka.server.kit.identifiers import MAX_KEY_CHARS, check_id
from vaka.server.kit.principal import Principal
from vaka.server.kit.problems import Problem, not_found
from vaka.server.request_agent import ClientToolText, extend_agent, make_client_tools
from vaka.server.sse import OpenStreams
from vaka.server.turn_events import DecisionCollector, TurnEvents
from vaka.server.usage_totals import UsageTotals
from vaka.server.workspaces import TenantWorkspaces

_log = logging.getLogger("vaka.server")

NAMESPACE_PREFIX = "server/namespaces/"
"""Keys of the default namespace that name the tenants, so that their unfinished turns are found after a restart."""
MAX_REMEMBERED_FAILURES = 10_000
MAX_CHOSEN_MODELS = 200
SWEEP_PAGE = 100
STOP_SECONDS = 5.0
"""Seconds that a turn which waits for decisions gets to stop."""


class PromptInput(msgspec.Struct, frozen=True, kw_only=True):
    """The input of a turn; the fields are the parameters of ``Session.stream``."""

    prompt: UserInput
    on_busy: OnBusy = "queue"
    key: str = ""
    model: str = ""
    options: Mapping[str, Any] = {}


def require_model(runtime: Runtime, agent: Agent) -> None:
    """Raise why an agent has no usable model, if so: an input with a key would be stored, and its turn never begin."""
    if type(agent) is Agent and not isinstance(agent.model, str):
        _ = agent.model or runtime.models.default
    elif isinstance(agent.model, str):
        runtime.models.resolve(agent.model)


def refuse_blobs(content: object, field: str = "input") -> None:
    """Raise a ``Problem`` for content with a part that names stored bytes: they may belong to another owner."""
    parts = cast("Sequence[object]", content) if isinstance(content, list | tuple) else [content]
    for index, part in enumerate(parts):
        if getattr(part, "blob", None) is not None:
            errors = [{"field": f"{field}[{index}].blob", "message": "send the bytes as data, or a url"}]
            raise Problem(422, "invalid_body", f"a part of the {field} may not name a blob", errors=errors)


def _require_access(principal: Principal, info: SessionInfo, agent: str = "") -> None:
    """Raise a ``Problem`` for a session that the caller may not see, or that has another agent than the named one."""
    if not principal.may_see(info):
        raise not_found(f"session {info.id!r}")
    if agent and info.agent not in ("", agent):
        raise Problem(409, "other_agent", f"session {info.id!r} belongs to agent {info.agent!r}, not to {agent!r}")


def _refuse_stored_result(answer: JSON) -> None:
    """Raise a ``Problem`` for an answer that would be read as the result of a call with stored bytes."""
    try:
        result = msgspec.convert(answer, ToolResult)
    except msgspec.ValidationError:
        return
    refuse_blobs(result.content, "answer.content")


class AgentService:
    """Runs the turns of every caller. ``run`` is entered while the server accepts requests."""

    version = __version__

    def __init__(
        self,
        runtime: Runtime,
        agents: Mapping[str, Agent],
        guard: Guard,
        *,
        default_agent: str = "",
        make_runtime: Callable[[str], Runtime] | None = None,
        describe_settings: Callable[[], Sequence[Mapping[str, Any]]] = tuple,
    ) -> None:
        """Serve agents on the store of a runtime, which the caller closes.

        Args:
            runtime: The runtime of the default namespace.
            agents: The agents by name; the mapping may change, for example with the files of a folder.
            guard: Authenticates callers; has the settings.
            default_agent: The agent of a request that names none; default: the first one.
            make_runtime: Makes the runtime of a tenant; default: a runtime with the options of ``runtime``, whose
                tools work in the tenant's own folder or are off.
            describe_settings: Returns key, value, origin and layer of each setting, for the console.
        """
        self.runtime = runtime
        self.agents = agents
        self.guard = guard
        self.settings = guard.settings
        self.default_agent, self.describe_settings = default_agent, describe_settings
        self.streams, self.decision_feed = OpenStreams(self.settings), DecisionFeed()
        self._usage: dict[str, UsageTotals] = {}
        self.draining = False
        self._drain_end = 0.0
        self._hurry = asyncio.Event()
        self._make_runtime = make_runtime or self._copy_runtime
        runtime.keep_rules_in_store()
        self._workspaces = TenantWorkspaces(
            self.settings.workspaces, runtime.options.workspace.folder, self.settings.private_folders
        )
        self._runtimes: dict[str, Runtime] = {runtime.store.namespace: runtime}
        self._turns: dict[tuple[str, str], set[str]] = {}
        """The sessions whose turns each credential, of a namespace, has started here; ended ones are removed late."""
        self._models: dict[str, set[str]] = {}
        """The models that requests of each namespace have chosen."""
        self._failures: OrderedDict[tuple[str, str], int] = OrderedDict()
        """The sessions that could not be continued, and their heads at that time."""
        self._unusable: dict[str, str] = {}
        """The agents that could not be used, and why."""

    @asynccontextmanager
    async def run(self) -> AsyncGenerator[None]:
        """Continue unfinished turns now and from time to time, and close the runtimes of tenants at the end.

        Running turns get some seconds to end. The others are left as they are: the next start continues them.
        """
        repeated = [asyncio.create_task(work) for work in (self._sweep_repeatedly(), self._end_expired_streams())]
        try:
            yield
        finally:
            for task in repeated:
                task.cancel()
            await asyncio.wait(repeated)
            await self._close_tenants()

    async def _close_tenants(self) -> None:
        tenants = [runtime for runtime in self._runtimes.values() if runtime is not self.runtime]
        if tenants:
            hurrying = asyncio.create_task(self._hurry.wait())
            waited: list[asyncio.Future[Any]] = [hurrying, asyncio.gather(*(runtime.close() for runtime in tenants))]
            await asyncio.wait(waited, timeout=self.drain_time_left(), return_when=asyncio.FIRST_COMPLETED)
            hurrying.cancel()

    def refuse_turns(self) -> None:
        """Accept no more turns, and answer probes that the server is not ready; all that is stored can be read."""
        if not self.draining:
            self.draining, self._drain_end = True, self.runtime.env.clock.monotonic() + self.settings.drain_seconds

    async def finish_turns(self) -> None:
        """Wait until the turns that run here have ended, at most the seconds that they have for that."""
        hurrying = asyncio.create_task(self._hurry.wait())
        finishing = asyncio.create_task(self._finish_all_turns())
        waited: list[asyncio.Future[Any]] = [hurrying, finishing]
        try:
            await asyncio.wait(waited, timeout=self.drain_time_left(), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waited:
                task.cancel()
            await asyncio.wait(waited)

    async def _finish_all_turns(self) -> None:
        await asyncio.gather(*(runtime.finish_turns() for runtime in self._runtimes.values()))

    def drain(self) -> None:
        """Accept no more turns, and end the streams that clients open again at another process."""
        self.refuse_turns()
        self.streams.end_followers()

    def drain_time_left(self) -> float:
        """Return the seconds that running turns still have to end, when the server stops."""
        left = self._drain_end - self.runtime.env.clock.monotonic() if self.draining else self.settings.drain_seconds
        return 0.0 if self._hurry.is_set() else max(left, 0.0)

    def hurry(self) -> None:
        """Wait no more for turns that run: the next start continues them."""
        self._hurry.set()

    # ---------------------------------------------------------------------------------------------- runtimes and agents

    async def runtime_of(self, principal: Principal) -> Runtime:
        """Return the runtime of a caller's tenant."""
        known = self._runtimes.get(principal.namespace)
        return known or await self._runtime_of_namespace(principal.namespace)

    async def _runtime_of_namespace(self, namespace: str) -> Runtime:
        known = self._runtimes.get(namespace)
        if known is None:
            await self.runtime.store.values.put_if_absent(f"{NAMESPACE_PREFIX}{namespace}", {"namespace": namespace})
            known = self._runtimes.get(namespace)
        if known is None:
            known = self._runtimes[namespace] = self._make_runtime(namespace)
            known.keep_rules_in_store()
        return known

    def _copy_runtime(self, namespace: str) -> Runtime:
        workspace = self._workspaces.find(namespace)
        options = self.runtime.options
        own = msgspec.structs.replace(
            options,
            store=self.runtime.store,
            storage=msgspec.structs.replace(options.storage, namespace=namespace),
            workspace=msgspec.structs.replace(options.workspace, tools=workspace),
        )
        made = Runtime(**msgspec.structs.asdict(own))
        made.follow_settings_of(self.runtime)
        return made

    def usage_of(self, runtime: Runtime) -> UsageTotals:
        """Return the usage of the sessions of a tenant."""
        return self._usage.setdefault(runtime.store.namespace, UsageTotals(runtime.store))

    def find_agent(self, name: str = "") -> Agent:
        """Return an agent by name, or the default one. Raises a ``Problem`` with status 404."""
        name = name or self.default_agent or next(iter(self.agents), "")
        try:
            agent = self.agents.get(name)
        except VakaError as error:
            raise self._report_unusable(name, error) from error
        if agent is None:
            known = ", ".join(list(self.agents)[:20])
            raise Problem(404, "not_found", f"there is no agent {name[:100]!r}; there are: {known}")
        return agent

    def usable_agents(self) -> Iterator[Agent]:
        """Yield the agents that can be used; the log says why another one cannot."""
        for name in self.agents:
            try:
                yield self.find_agent(name)
            except Problem as problem:
                _log.warning("agent %s is not offered to clients: %s", name, problem)

    def _report_unusable(self, name: str, error: VakaError) -> Problem:
        """Log why an agent cannot be used, once, and return the problem for callers: the reason may name files here."""
        if self._unusable.get(name) != str(error):
            self._unusable[name] = str(error)
            _log.warning("agent %s cannot be used: %s", name, error)
        return Problem(500, "config", f"agent {name!r} cannot be used; the log of the server says why")

    def find_tools(self, name: str) -> tuple[Agent, Sequence[ToolSpec]]:
        """Return an agent and its tools as its model sees them, without the tools of MCP servers.

        Raises a ``Problem`` for an agent that does not exist or cannot be built.
        """
        agent = self.find_agent(name)
        try:
            return agent, [tool.spec for tool in self._spec_builder.build_recipe(agent).tools.values()]
        except VakaError as error:
            raise self._report_unusable(agent.name, error) from error

    @cached_property
    def _spec_builder(self) -> AgentBuilder:
        """Builds agents for their tools alone: nothing is run."""
        from vaka.runtime.agent_services import ServiceHost

        return AgentBuilder(GivenCalls(), lambda: ServiceHost(self.runtime.options, self.runtime.store))

    # --------------------------------------------------------------------------------------------------------- sessions

    async def find_session(self, principal: Principal, id: str) -> SessionInfo:
        """Return the index row of a session that the caller may see. Raises a ``Problem`` with status 404."""
        runtime = await self.runtime_of(principal)
        info = await runtime.store.sessions.find(parse_session_id(id))
        if info is None:
            raise not_found(f"session {id!r}")
        _require_access(principal, info)
        return info

    async def may_see(self, principal: Principal, session: str) -> bool:
        """Return whether a session of the caller's tenant exists for the caller."""
        if not principal.own_sessions_only:
            return True
        info = await (await self.runtime_of(principal)).store.sessions.find(parse_session_id(session))
        return info is not None and principal.may_see(info)

    async def open_session(
        self, principal: Principal, id: str, *, agent: str = "", tools: Sequence[ToolLike] = (), instructions: str = ""
    ) -> Session[Any]:
        """Return an existing session with its agent. Raises a ``Problem`` when there is none (404).

        Args:
            principal: The caller.
            id: The session.
            agent: The agent that it must have, if the caller names one.
            tools: Tools of this request in addition to the agent's tools, for example tools that the client runs.
            instructions: A text of this request that follows the instructions of the agent.
        """
        info = await self.find_session(principal, id)
        _require_access(principal, info, agent)
        runtime = await self.runtime_of(principal)
        found = extend_agent(self.find_agent(info.agent or agent), tools, instructions)
        session = await runtime.open(found, id=info.id)
        binding_of(session).row = info
        return session

    async def open_for_turn(
        self,
        principal: Principal,
        id: str,
        *,
        agent: str = "",
        tools: Sequence[ClientToolText] = (),
        begin: bool = True,
    ) -> Session[Any]:
        """Return a session with its agent, and with tools that the client runs.

        The first turn of a session that does not exist creates it, for the caller: nothing is written before. Raises a
        ``Problem`` (404) for such a session without an agent, or with ``begin=False``.
        """
        runtime = await self.runtime_of(principal)
        info = await runtime.store.sessions.find(parse_session_id(id))
        if begin and not agent and (info is None or not principal.may_see(info)):
            raise Problem(404, "not_found", f"there is no session {id!r}; a request with an `agent` creates it")
        if info is not None:
            _require_access(principal, info, agent)
        elif not begin:
            raise not_found(f"session {id!r}")
        else:
            check_id(id)
        found = self.find_agent(agent if info is None else info.agent or agent)
        if tools:
            found = extend_agent(found, make_client_tools(found, tools))
        session = await runtime.open(found, id=id)
        binding = binding_of(session)
        binding.row, binding.must_begin = info, info is None
        binding.owner = principal.id if info is None else ""
        return session

    async def enter_session(
        self, principal: Principal, id: str, *, agent: str, tools: Sequence[ToolLike] = (), instructions: str = ""
    ) -> Session[Any]:
        """Return a session with an agent; create it for the caller if it does not exist.

        For the parameters see ``open_session``.
        """
        runtime = await self.runtime_of(principal)
        if await runtime.store.sessions.find(parse_session_id(id)) is None:
            try:
                await self.create_session(principal, agent=agent, id=id)
            except Problem as problem:
                if problem.code != "exists":  # another request has just created it
                    raise
        return await self.open_session(principal, id, agent=agent, tools=tools, instructions=instructions)

    async def create_session(
        self,
        principal: Principal,
        *,
        agent: str = "",
        id: str = "",
        title: str | None = None,
        tags: Sequence[str] | None = None,
        metadata: Mapping[str, Any] | None = None,
        owner: str = "",
    ) -> Session[Any]:
        """Create a session of the caller, or of ``owner``. Raises a ``Problem`` when the id is taken (409)."""
        runtime, found = await self.runtime_of(principal), self.find_agent(agent)
        if id:
            check_id(id)
        if id and await runtime.store.sessions.find(parse_session_id(id)) is not None:
            raise Problem(409, "exists", f"there is a session {id!r} already; choose another id")
        session, owner = await runtime.open(found, id=id), owner or principal.id
        try:
            await session.update(title=title, owner=owner, tags=tags, metadata=metadata, by=principal.id, create=True)
        except HeadMoved as error:  # another caller has just created it
            raise Problem(409, "exists", f"there is a session {id!r} already; choose another id") from error
        return session

    # ------------------------------------------------------------------------------------------------------------ turns

    async def start_turn(
        self, principal: Principal, session: Session[Any], input: PromptInput, *, until_waiting: bool = False
    ) -> TurnEvents:
        """Store an input and return the events of the turn that answers it; the turn needs no reader.

        Use the result with ``async with``; ``until_waiting`` as for ``TurnEvents``. Raises a ``Problem`` when the
        server stops (503) or the caller has too many turns (429).
        """
        if input.model:
            self._check_model(principal, input.model)
        if input.key:
            check_id(input.key, "key", field="key", max_chars=MAX_KEY_CHARS)
        if not isinstance(input.prompt, str):
            refuse_blobs(input.prompt)
        runtime = await self.runtime_of(principal)
        self.admit_turn(principal, session.id)
        binding, follower = binding_of(session), Follower()
        if not binding.must_begin and (binding.row is None or not binding.row.owner):
            # the server continues unfinished turns of sessions that have an owner
            await session.update(owner=principal.id, by=principal.id)
        key, after = await self._submit(principal, binding, follower, input)
        if input.model:
            self._models.setdefault(principal.namespace, set()).add(input.model)
        collector = DecisionCollector(session.id, key=key)
        return TurnEvents(runtime.hub, collector, Cursor(0, after), follower, until_waiting=until_waiting)

    async def _submit(
        self, principal: Principal, binding: SessionBinding[Any, Any], follower: Follower, input: PromptInput
    ) -> tuple[str, int]:
        """Store an input; return its key, and the seq after which the events of its turn follow."""
        while True:
            try:
                return await binding.submit(
                    input.prompt,
                    follower,
                    on_busy=input.on_busy,
                    key=input.key,
                    model=input.model,
                    options=input.options,
                )
            except ConfigError as error:
                if not input.model:
                    raise
                raise Problem(422, error.code, str(error)) from error  # the caller has named the model
            except HeadMoved:  # another request has just created the session
                info = await binding.runtime.store.sessions.find(binding.id)
            if info is not None:
                _require_access(principal, info, binding.agent.name)
                binding.row, binding.must_begin = info, False

    async def attach_turn(
        self,
        principal: Principal,
        session: Session[Any],
        *,
        turn: str = "",
        key: str = "",
        after: Cursor | None = None,
        until_waiting: bool = False,
        wake: bool = True,
    ) -> TurnEvents:
        """Return the events of a turn after a cursor, which must not be behind its input; continue it if it stopped.

        The turn is known by its id, by the key of its input, or is the unfinished one. With ``wake=False`` a turn that
        has stopped is only read.
        """
        runtime, follower = await self.runtime_of(principal), Follower()
        info = await self.find_session(principal, session.id)
        collector: TurnCollector = DecisionCollector(session.id, key=key, turn=turn)
        if wake and not self.draining and (info.turn or info.inputs):
            await self._wake(session, follower)
        if not turn and not key:
            if not info.turn:
                raise Problem(409, "no_turn", f"session {session.id!r} has no unfinished turn")
            collector.turn = TurnId(info.turn)
        return TurnEvents(runtime.hub, collector, after or Cursor(), follower, until_waiting=until_waiting)

    async def stop_turn(
        self, principal: Principal, session: Session[Any], *, turn: str = "", key: str = "", note: str = ""
    ) -> None:
        """Stop a turn that has not ended, or withdraw its input if no turn has taken it.

        A turn that waits for decisions has ended when this returns.
        """
        if key and not turn and await session.withdraw(key, by=principal.id):
            return
        info = await self.find_session(principal, session.id)
        if turn and turn != info.turn:
            return
        await session.interrupt(note, by=principal.id)
        if info.pending:
            events = await self.attach_turn(principal, session, turn=info.turn, after=Cursor(0, info.head))
            with suppress(TimeoutError):
                async with asyncio.timeout(STOP_SECONDS), events:
                    while not events.ended:
                        await events.next_batch()

    async def leave_turn(self, principal: Principal, session: Session[Any], events: TurnEvents) -> None:
        """Stop a turn whose client has left, unless the server stops: then the turn goes on at the next start."""
        if self.draining or events.ended:
            return
        try:
            await self.stop_turn(principal, session, turn=events.turn, key=events.key, note="the client has left")
        except (VakaError, Problem) as error:  # there is no client to tell
            _log.warning("the turn of session %s could not be stopped: %s", session.id, error)

    def _check_model(self, principal: Principal, model: str) -> None:
        """Refuse a model that the caller may not choose. A model stays in memory once it was used."""
        if model == GIVEN_CALLS:
            require_scope(principal, "tools:execute", f"the model {GIVEN_CALLS}")
        if model.startswith(SCRIPTED_PREFIX):
            raise Problem(403, "forbidden", "a request cannot choose a model that is a file of the server")
        used = self._models.get(principal.namespace, ())
        if model not in used and len(used) >= MAX_CHOSEN_MODELS:
            raise Problem(429, "too_many_models", f"requests have chosen {len(used)} models; choose one of them")

    def admit_turn(self, principal: Principal, session: str) -> None:
        """Count a turn that begins.

        Raises a ``Problem`` when the server stops (503) or the caller has too many turns (429).
        """
        if self.draining:
            raise Problem(503, "draining", "the server is stopping; try again", headers={"Retry-After": "1"})
        limit, credential = self.settings.concurrent_turns, (principal.namespace, principal.key)
        if not limit:
            return
        if len(self._turns.get(credential, ())) >= limit:
            self._forget_ended_turns(credential)
        turns = self._turns.setdefault(credential, set())
        if len(turns) >= limit and session not in turns:
            detail = f"{limit} turns of this credential are running; wait for one of them to end"
            raise Problem(429, "too_many_turns", detail, headers={"Retry-After": "1", "retry-after-ms": "1000"})
        turns.add(session)

    def _forget_ended_turns(self, credential: tuple[str, str]) -> None:
        runtime = self._runtimes[credential[0]]
        running = {session for session in self._turns[credential] if runtime.is_running(session)}
        if running:
            self._turns[credential] = running
        else:
            del self._turns[credential]

    # -------------------------------------------------------------------------------------------------------- decisions

    async def find_decision(self, principal: Principal, decision: str) -> PendingDecision:
        """Return an open approval or question that the caller may see. Raises a ``Problem`` with status 404."""
        runtime = await self.runtime_of(principal)
        for row in await runtime.decisions(id=decision):
            if await self.may_see(principal, row.session):
                return row
        raise not_found(f"open decision {decision!r}; it may have been decided, or have expired")

    async def resolve(
        self, principal: Principal, approval: str, *, approve: bool, **details: Unpack[ApprovalAnswer]
    ) -> Event:
        """Decide an approval, as ``Runtime.resolve`` does, and continue its turn.

        A rule for the project or the user belongs to the owner of the session, in the caller's tenant. Raises a
        ``Problem`` (403) for a rule of another owner than the caller, unless the caller is an administrator.
        """
        runtime = await self.runtime_of(principal)
        if details.get("scope", "once") not in ("once", "session") and not principal.may("admin"):
            row = await self.find_decision(principal, approval)
            info = await runtime.store.sessions.find(row.session)
            if info is None or info.owner != principal.id:
                detail = "a rule for all sessions of another owner needs the scope admin; use session"
                raise Problem(403, "forbidden", detail)
        details["by"] = principal.id
        event = await runtime.resolve(approval, "approve" if approve else "reject", **details)
        await self._continue(principal, event.session)
        return event

    async def answer(self, principal: Principal, question: str, answer: JSON) -> Event:
        """Answer a question and continue its turn."""
        runtime = await self.runtime_of(principal)
        _refuse_stored_result(answer)
        event = await runtime.answer(question, answer, by=principal.id)
        await self._continue(principal, event.session)
        return event

    async def answer_call(
        self, principal: Principal, session: str, call: str, result: ClientResult, *, failed: bool = False
    ) -> Event:
        """Give the result of a call of a client-side tool and continue its turn."""
        refuse_blobs(result.content if isinstance(result, ToolResult) else result, "result")
        runtime = await self.runtime_of(principal)
        event = await runtime.answer_call(session, call, result, failed=failed, by=principal.id)
        await self._continue(principal, event.session)
        return event

    async def _continue(self, principal: Principal, id: str) -> None:
        """Continue the unfinished turn of a session if no process runs it."""
        runtime = await self.runtime_of(principal)
        if self.draining or runtime.is_running(id):
            return  # a server that drains leaves it to the other processes and the next start
        info = await runtime.store.sessions.find(parse_session_id(id))
        if info is not None and not info.live and (info.turn or info.inputs):
            await self._wake(await self.open_session(principal, id), Follower())

    async def _wake(self, session: Session[Any], follower: Follower) -> None:
        try:
            await binding_of(session).wake(follower)
        except Busy:
            _log.debug("session %s is run by another process", session.id)

    # --------------------------------------------------------------------------------------------------------- recovery

    async def _sweep_repeatedly(self) -> None:
        while True:
            try:
                await self.sweep()
            except VakaError as error:
                _log.warning("unfinished turns could not be searched for: %s", error)
            if not self.settings.sweep_seconds:
                return
            await asyncio.sleep(self.settings.sweep_seconds)

    async def _end_expired_streams(self) -> None:
        while True:
            await asyncio.sleep(self.settings.credential_seconds)
            try:
                await self.streams.end_expired(self.guard.authenticator.is_valid)
            except VakaError as error:
                _log.warning("the credentials of open streams could not be checked: %s", error)

    async def sweep(self) -> int:
        """Continue the unfinished turns that no process runs; return their number.

        Only sessions with an owner count: a server has created them, or has run a turn of them. What a stopped command
        has left is its user's to resume.
        """
        for credential in list(self._turns):
            self._forget_ended_turns(credential)
        keys = await self.runtime.store.values.keys(NAMESPACE_PREFIX)
        count = 0
        for namespace in {"", *(key.removeprefix(NAMESPACE_PREFIX) for key in keys)}:
            try:
                runtime = await self._runtime_of_namespace(namespace)
            except ConfigError as error:  # the turns of other tenants go on
                _log.warning("unfinished turns of tenant %r cannot be continued: %s", namespace, error)
                continue
            for status in ("running", "queued"):
                after: str | None = ""
                while after is not None and not self.draining:
                    page = await runtime.store.sessions.list(SessionQuery(status=status, limit=SWEEP_PAGE, after=after))
                    for info in page.sessions:
                        count += await self._recover(runtime, info)
                    after = page.next or None
        return count

    async def _recover(self, runtime: Runtime, info: SessionInfo) -> bool:
        mark = (runtime.store.namespace, info.id)
        if (
            self.draining
            or info.live
            or not info.owner
            or runtime.is_running(info.id)
            or self._failures.get(mark) == info.head
        ):
            return False
        try:
            session = await runtime.open(self.find_agent(info.agent), id=info.id)
            await binding_of(session).wake(Follower())
        except (Busy, NotFound):
            return False
        except (InvalidInput, Problem) as error:
            _log.warning("the unfinished turn of session %s cannot be continued: %s", info.id, error)
            self._failures[mark] = info.head
            if len(self._failures) > MAX_REMEMBERED_FAILURES:
                self._failures.popitem(last=False)
            return False
        return True
