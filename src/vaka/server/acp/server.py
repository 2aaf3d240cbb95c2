"""The Agent Client Protocol (ACP), version 1: an editor starts the agent, and they exchange JSON-RPC messages."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeAlias

from vaka import __version__
from vaka.agents.routing import RoutingAgent
from vaka.core.ports.store import SessionInfo, SessionQuery
from vaka.core.session.branches import live_events_of
from vaka.core.types.errors import Busy, InvalidInput, NotFound, Suspended, VakaError
from vaka.core.types.event import Event
from vaka.core.types.ids import SessionId, parse_session_id
from vaka.core.types.message import Content
from vaka.core.types.progress import StepStarted, TurnStarted
from vaka.core.types.traits import declared_traits
from vaka.runtime.clock import RandomIds
from vaka.runtime.session_edits import delete_session
from vaka.runtime.workspace import describe_folder, require_same_folder
from vaka.server.acp.commands import compact_session, list_commands, read_compact_command
from vaka.server.acp.turns import CANCEL_NOTE, Client, PendingPrompt, TurnDecisions
from vaka.server.acp.workspaces import (
    MODES,
    AcpPlace,
    AcpWorkspace,
    AcpWorkspaces,
    choose_mode,
    describe_options,
    read_place,
)
from vaka.server.json_rpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    JsonObject,
    JsonRpcConnection,
    JsonRpcError,
    ReadLine,
    RpcReply,
    WriteLine,
)
from vaka.views.acp import AcpEncoder, read_prompt
from vaka.views.media import as_object, read_field

PROTOCOL_VERSION = 1
MAX_RUNTIMES = 32
"""The most sessions with a runtime at the same time; the least recently used runtime is closed first."""
PAGE_SIZE = 50
RESOURCE_NOT_FOUND = -32002

_GONE_NOTE = "the client has ended the connection"
_CANCELLED = RpcReply({"stopReason": "cancelled"})

_Method: TypeAlias = Callable[[JsonObject], Awaitable[RpcReply]]


class _OpenSession:
    """A session that the client has opened; its runtime may have been closed, to be made again when it is needed."""

    def __init__(self, id: SessionId, place: AcpPlace) -> None:
        self.id, self.place = id, place
        self.workspace: AcpWorkspace | None = None
        self.mode = self.model = ""
        """The choice of the client; ``""``: the settings decide."""
        self.prompts: list[PendingPrompt] = []
        self.lock = asyncio.Lock()
        """Held by the prompt whose turn runs; the next one waits for it."""

    async def close_runtime(self) -> None:
        workspace, self.workspace = self.workspace, None
        if workspace is not None:
            await workspace.runtime.close()


class AcpServer:
    """Serves one client: the methods of an agent in the protocol, for any number of sessions at once."""

    def __init__(
        self, workspaces: AcpWorkspaces, read: ReadLine, write: WriteLine, *, max_runtimes: int = MAX_RUNTIMES
    ) -> None:
        self._workspaces, self._max_runtimes = workspaces, max_runtimes
        self._connection = JsonRpcConnection(read, write, self._handle)
        self._client = Client(self._connection)
        self._ids = RandomIds()
        self._sessions: dict[str, _OpenSession] = {}
        """By id, the session that was used least recently first."""
        self._methods: dict[str, _Method] = {
            "initialize": self._initialize,
            "authenticate": self._authenticate,
            "session/new": self._create,
            "session/load": self._load,
            "session/resume": self._resume,
            "session/fork": self._fork,
            "session/list": self._list,
            "session/close": self._close_session,
            "session/delete": self._delete,
            "session/prompt": self._prompt,
            "session/cancel": self._cancel,
            "session/set_mode": self._set_mode,
            "session/set_config_option": self._set_option,
        }

    async def serve(self) -> None:
        """Serve until the client ends the connection. Turns that run then are interrupted; a turn that waits for a
        decision stays in the log and can be continued.
        """
        try:
            await self._connection.serve()
        finally:
            await asyncio.gather(*(self._leave(opened) for opened in self._sessions.values()))

    async def _leave(self, opened: _OpenSession) -> None:
        workspace, opened.workspace = opened.workspace, None
        if workspace is None:
            return
        runtime = workspace.runtime
        runs = runtime.is_running(opened.id)
        with suppress(VakaError):
            if runs and not await runtime.decisions(opened.id):
                session = await runtime.open(workspace.agent, id=opened.id)
                await session.interrupt(_GONE_NOTE, by=self._client.name)
        await runtime.close(cancel=not runs)  # a turn that is about to start stays in the log as an input

    async def _handle(self, method: str, params: JsonObject) -> RpcReply | None:
        handler = self._methods.get(method)
        if handler is None:
            raise JsonRpcError(METHOD_NOT_FOUND, f"there is no method {method!r}", {"method": method})
        try:
            return await handler(params)
        except VakaError as error:
            known = {"code": error.code}
            if isinstance(error, NotFound):
                raise JsonRpcError(RESOURCE_NOT_FOUND, str(error), known) from error
            code = INVALID_PARAMS if isinstance(error, InvalidInput) else INTERNAL_ERROR
            raise JsonRpcError(code, str(error), known) from error

    async def _initialize(self, params: JsonObject) -> RpcReply:
        capabilities = as_object(params.get("clientCapabilities"))
        self._client.has_forms = as_object(capabilities.get("elicitation")).get("form") is not None
        name = as_object(params.get("clientInfo")).get("name")
        self._client.name = name if isinstance(name, str) and name else "acp"
        sessions: JsonObject = {
            name: {} for name in ("list", "delete", "additionalDirectories", "fork", "resume", "close")
        }
        return RpcReply(
            {
                "protocolVersion": PROTOCOL_VERSION,
                "agentInfo": {"name": "vaka", "title": "vaka", "version": __version__},
                "agentCapabilities": {
                    "loadSession": True,
                    "sessionCapabilities": sessions,
                    "promptCapabilities": {"image": True, "audio": True, "embeddedContext": True},
                    "mcpCapabilities": {"http": True, "sse": True},
                },
                "authMethods": [],
            }
        )

    async def _authenticate(self, params: JsonObject) -> RpcReply:
        raise InvalidInput("there is no method of authentication; `vaka login PROVIDER` stores the key of a model")

    # ------------------------------------------------------------------------------------------------- open and close

    async def _create(self, params: JsonObject) -> RpcReply:
        opened = _OpenSession(SessionId(self._ids.new_id("ses_acp")), read_place(params))
        workspace = await self._start_runtime(opened)
        self._sessions[opened.id] = opened
        return _reply_opened(opened, workspace, new=True)

    async def _load(self, params: JsonObject) -> RpcReply:
        opened, workspace = await self._reopen(params)
        encoder = _encoder_for(opened, workspace, inputs=True)
        stored = [event async for event in workspace.runtime.store.events.read(opened.id)]
        for event in live_events_of(stored):
            await self._show(encoder, event)
        return _reply_opened(opened, workspace)

    async def _resume(self, params: JsonObject) -> RpcReply:
        return _reply_opened(*await self._reopen(params))

    async def _fork(self, params: JsonObject) -> RpcReply:
        opened = _OpenSession(SessionId(self._ids.new_id("ses_acp")), read_place(params))
        origin = _read_session_id(params)
        workspace = await self._open_stored(opened, origin)
        await workspace.runtime.fork(origin, id=opened.id)
        self._sessions[opened.id] = opened
        return _reply_opened(opened, workspace, new=True)

    async def _reopen(self, params: JsonObject) -> tuple[_OpenSession, AcpWorkspace]:
        """Open a stored session. If it is already open with the same folders and servers, it stays open unchanged."""
        opened = _OpenSession(_read_session_id(params), read_place(params))
        before = self._sessions.get(opened.id)
        if before is not None and before.place == opened.place:
            return before, await self._enter(before)
        if before is not None and before.prompts:
            raise Busy(f"session {opened.id!r} runs a turn in {before.place.folder!r}; cancel it first")
        workspace = await self._open_stored(opened, opened.id)
        self._sessions[opened.id] = opened
        if before is not None:
            await before.close_runtime()
        return opened, workspace

    async def _open_stored(self, opened: _OpenSession, stored: SessionId) -> AcpWorkspace:
        """Start the runtime for a stored session or for a copy of it. Raises ``NotFound`` or ``InvalidInput``."""
        workspace = await self._start_runtime(opened)
        try:
            await self._require_usable(workspace, stored, opened.place)
        except VakaError:
            await opened.close_runtime()
            raise
        return workspace

    async def _require_usable(self, workspace: AcpWorkspace, id: SessionId, place: AcpPlace) -> None:
        """Raise ``NotFound`` or ``InvalidInput`` unless there is such a session of this agent in this folder."""
        info = await workspace.runtime.store.sessions.find(id)
        if info is None:
            raise NotFound(f"there is no session {id!r}")
        if info.agent not in ("", workspace.agent.name):
            raise InvalidInput(f"session {id!r} belongs to agent {info.agent!r}, not to {workspace.agent.name!r}")
        recorded, here = await workspace.runtime.workspace(id), describe_folder(place.folder)
        if recorded is not None and here is not None:
            require_same_folder(id, recorded, here)

    async def _enter(self, opened: _OpenSession) -> AcpWorkspace:
        """Return the workspace of an open session, with a new runtime if the last one was closed."""
        self._sessions[opened.id] = self._sessions.pop(opened.id)
        workspace = opened.workspace
        if workspace is None:
            workspace = await self._start_runtime(opened)
            if opened.mode:
                workspace.set_mode(opened.mode)
        return workspace

    async def _start_runtime(self, opened: _OpenSession) -> AcpWorkspace:
        """Make the runtime of a session. If there are too many, close runtimes of sessions that run no turn."""
        with_runtime = [other for other in self._sessions.values() if other.workspace is not None]
        idle = [other for other in with_runtime if not other.prompts]
        excess = max(len(with_runtime) - self._max_runtimes + 1, 0)
        if excess > len(idle):
            count = self._max_runtimes
            raise Busy(f"{count} sessions run turns at the same time; wait until one has ended, or cancel it")
        workspace = opened.workspace = self._workspaces.open(opened.place)
        for other in idle[:excess]:
            await other.close_runtime()
        return workspace

    async def _list(self, params: JsonObject) -> RpcReply:
        folder, cursor = params.get("cwd") or "", params.get("cursor") or ""
        if not isinstance(folder, str) or not isinstance(cursor, str):
            raise InvalidInput("params: 'cwd' and 'cursor' must be strings")
        folder = os.path.realpath(folder) if folder else ""  # noqa: ASYNC240  # no longer than a stat
        store = self._workspaces.find_store(folder)
        page = await store.sessions.list(SessionQuery(folder=folder, limit=PAGE_SIZE, after=cursor))
        infos = [
            info for info in page.sessions if not info.erased and not info.id.startswith("_")
        ]  # "_": of vaka itself
        rows = [_describe_row(info, folder) for info in infos if not folder or info.folder in ("", folder)]
        return RpcReply({"sessions": rows, **({"nextCursor": page.next} if page.next else {})})

    async def _close_session(self, params: JsonObject) -> RpcReply:
        opened = self._find(params)
        await self._end_session(opened)
        return RpcReply({})

    async def _delete(self, params: JsonObject) -> RpcReply:
        id = _read_session_id(params)
        opened = self._sessions.get(id)
        store = self._workspaces.find_store(opened.place.folder if opened is not None else "")
        if opened is not None:
            await self._end_session(opened)
        with suppress(NotFound):  # nothing is stored before the first prompt, and a repeated request changes nothing
            await delete_session(store, id)
        return RpcReply({})

    async def _end_session(self, opened: _OpenSession) -> None:
        """Cancel what runs, and close the runtime; the session stays in the store."""
        del self._sessions[opened.id]
        await self._stop(opened)
        async with opened.lock:
            await opened.close_runtime()

    def _find(self, params: JsonObject) -> _OpenSession:
        id = _read_session_id(params)
        opened = self._sessions.get(id)
        if opened is None:
            raise NotFound(f"session {id!r} is not open; open it with session/load or session/resume first")
        return opened

    # ------------------------------------------------------------------------------------------------ mode and options

    async def _set_mode(self, params: JsonObject) -> RpcReply:
        opened = self._find(params)
        workspace = await self._enter(opened)
        opened.mode = choose_mode(workspace, read_field(params, "modeId", "params"))
        options = {"sessionUpdate": "config_option_update", "configOptions": describe_options(workspace, opened.model)}
        return RpcReply({}, (_update(opened, options),))

    async def _set_option(self, params: JsonObject) -> RpcReply:
        opened = self._find(params)
        name, value = (read_field(params, field, "params") for field in ("configId", "value"))
        workspace = await self._enter(opened)
        notes: tuple[tuple[str, JsonObject], ...] = ()
        if name == "mode":
            opened.mode = choose_mode(workspace, value)
            notes = (_update(opened, {"sessionUpdate": "current_mode_update", "currentModeId": value}),)
        elif name == "model" and value in workspace.models:
            opened.model = "" if value == workspace.models[0] else value
        else:
            known = {option["id"]: option for option in describe_options(workspace, opened.model)}
            values = [choice["value"] for choice in known.get(name, {}).get("options", ())]
            what = f"the option {name!r} has no value {value!r}" if name in known else f"there is no option {name!r}"
            raise InvalidInput(f"{what}; there are {', '.join(values or known)}")
        return RpcReply({"configOptions": describe_options(workspace, opened.model)}, notes)

    # ----------------------------------------------------------------------------------------------------------- turns

    async def _prompt(self, params: JsonObject) -> RpcReply:
        opened = self._find(params)
        content = read_prompt(params.get("prompt"))
        prompt = PendingPrompt(self._ids.new_id("inp_acp"))
        opened.prompts.append(prompt)  # before anything is awaited, so that a later cancellation finds it
        try:
            async with opened.lock:
                if prompt.is_cancelled:
                    return _CANCELLED
                workspace = await self._enter(opened)
                instructions = read_compact_command(workspace, content)
                if instructions is not None:
                    return await self._compact(opened, workspace, prompt, instructions)
                return await self._run_turn(opened, workspace, prompt, content)
        finally:
            opened.prompts.remove(prompt)

    async def _run_turn(
        self, opened: _OpenSession, workspace: AcpWorkspace, prompt: PendingPrompt, content: Content
    ) -> RpcReply:
        runtime = workspace.runtime
        session = await runtime.open(workspace.agent, id=opened.id, run_settings=workspace.run_settings)
        info = await runtime.store.sessions.find(opened.id)
        encoder = _encoder_for(opened, workspace)
        decisions = TurnDecisions(self._client, runtime, prompt, declared_traits(workspace.agent.tools))
        is_unfinished = info is not None and bool(info.turn or info.inputs)
        for row in await runtime.decisions(opened.id) if is_unfinished else ():
            decisions.take(row.event)
        prompt.session = session
        try:
            turn = session.stream(content, key=prompt.key, model=opened.model, earlier=is_unfinished)
            async with turn:
                async for event in turn:
                    await self._show(encoder, event)
                    decisions.take(event)
                    if prompt.is_cancelled and isinstance(event.data, TurnStarted | StepStarted):
                        await prompt.stop(CANCEL_NOTE, self._client.name)
        except Suspended as suspended:
            waits = "; ".join(f"vaka approvals resolve {id}" for id in suspended.decisions)
            known = {"code": suspended.code}
            raise JsonRpcError(INTERNAL_ERROR, f"the turn waits for a person: {waits}", known) from None
        finally:
            prompt.session = None
            await decisions.close()
        outcome = encoder.outcome or {"result": _CANCELLED.result}
        if "error" in outcome:
            error = outcome["error"]
            raise JsonRpcError(error["code"], error["message"], error["data"])
        return RpcReply(outcome["result"])

    async def _compact(
        self, opened: _OpenSession, workspace: AcpWorkspace, prompt: PendingPrompt, instructions: str
    ) -> RpcReply:
        """Compact a session, and show the result as a message of the agent."""
        session = await workspace.runtime.open(workspace.agent, id=opened.id)
        prompt.compaction = asyncio.create_task(compact_session(workspace, session, instructions))
        try:
            text = await prompt.compaction
        except asyncio.CancelledError:
            if not prompt.is_cancelled:
                raise
            return _CANCELLED
        finally:
            prompt.compaction = None
        message = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}
        await self._connection.notify(*_update(opened, message))
        return RpcReply({"stopReason": "end_turn"})

    async def _show(self, encoder: AcpEncoder, event: Event) -> None:
        for update in encoder.encode(event):
            await self._connection.notify("session/update", update)

    async def _cancel(self, params: JsonObject) -> RpcReply:
        await self._stop(self._find(params))
        return RpcReply({})

    async def _stop(self, opened: _OpenSession) -> None:
        """Cancel every prompt that has no result yet."""
        for prompt in [*opened.prompts]:
            await prompt.stop(CANCEL_NOTE, self._client.name)


def _encoder_for(opened: _OpenSession, workspace: AcpWorkspace, *, inputs: bool = False) -> AcpEncoder:
    agent = workspace.agent
    routers = [agent.name] if isinstance(agent, RoutingAgent) else []
    traits = declared_traits(agent.tools)
    return AcpEncoder(routers=routers, inputs=inputs, root=opened.place.folder, traits=traits)


def _reply_opened(opened: _OpenSession, workspace: AcpWorkspace, *, new: bool = False) -> RpcReply:
    """Return the result of a request that has opened a session, followed by its commands."""
    modes = [{"id": id, "name": name, "description": about} for id, (name, about) in MODES.items()]
    result: JsonObject = {
        "modes": {"currentModeId": workspace.find_mode(), "availableModes": modes},
        "configOptions": describe_options(workspace, opened.model),
    }
    commands = list_commands(workspace)
    update: JsonObject = {"sessionUpdate": "available_commands_update", "availableCommands": commands}
    return RpcReply(
        {"sessionId": opened.id, **result} if new else result, (_update(opened, update),) if commands else ()
    )


def _update(opened: _OpenSession, update: JsonObject) -> tuple[str, JsonObject]:
    return "session/update", {"sessionId": opened.id, "update": update}


def _describe_row(info: SessionInfo, folder: str) -> JsonObject:
    row = {"sessionId": info.id, "cwd": info.folder or folder or os.getcwd()}  # noqa: PTH109  # a text is wanted
    return row | ({"title": info.title} if info.title else {}) | ({"updatedAt": info.updated} if info.updated else {})


def _read_session_id(params: JsonObject) -> SessionId:
    return parse_session_id(read_field(params, "sessionId", "params"))
