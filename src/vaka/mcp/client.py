"""A connection to one MCP server, which one task owns: it starts on first use, and again after the server ended."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

import msgspec

from vaka.core.types.errors import ConfigError, McpError
from vaka.mcp.definition import McpServer
from vaka.mcp.logins import LoginStore, describe_refusal
from vaka.mcp.running_call import CallHandlers
from vaka.mcp.stdio import ServerLog, StartServer
from vaka.mcp.tools import ListedTool, SessionExpired, SessionLost

if TYPE_CHECKING:
    from vaka.mcp.session import McpSession, SessionRun

ServerState: TypeAlias = Literal["idle", "connecting", "ready", "failed", "closed"]

FIRST_PAUSE_SECONDS = 5.0
"""How long no connection is tried after a failure; twice as long after each further one in a row."""
LONGEST_PAUSE_SECONDS = 60.0
MIN_HIDDEN = 4
"""Values of variables and headers that are at least so long are removed from messages."""

_PUBLIC_OAUTH = frozenset(("callbackPort", "scope", "scopes"))
_R = TypeVar("_R")
_loading = threading.Lock()


class McpStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the connection to one server."""

    server: str
    state: ServerState = "idle"
    reason: str = ""
    """Why it failed, or is not started."""
    protocol: str = ""
    software: str = ""
    """The name and version that the server gives itself."""
    tools: int = 0


class McpConnection:
    """The connection to one server. Its methods may be called from any task of the loop."""

    def __init__(
        self,
        server: McpServer,
        start: StartServer,
        *,
        logins: LoginStore | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.server, self.log = server, ServerLog()
        self._start = start
        self._logins = logins
        self._clock = clock
        self.state: ServerState = "idle"
        self.reason = server.refusal
        self.revision = 0
        """Grows with each change of the state or the tools."""
        self._session: McpSession | None = None
        self._run: SessionRun | None = None
        self._owner: asyncio.Task[None] | None = None
        self._settled: asyncio.Future[None] | None = None
        self._failures = 0
        self._was_ready = False
        self._retry_at = 0.0
        self._listing = asyncio.Lock()
        self.tools: tuple[ListedTool, ...] = ()
        """The tools that the server listed last; they stay while it is away."""
        self.has_resources = self.has_prompts = False

    @property
    def status(self) -> McpStatus:
        session = self._session
        return McpStatus(
            server=self.server.name,
            state=self.state,
            reason=self.reason,
            tools=len(self.tools),
            protocol=session.protocol if session is not None else "",
            software=session.software if session is not None else "",
        )

    @property
    def is_awaited(self) -> bool:
        """Whether it is worth waiting for: it connects for the first time, or has been ready before."""
        return self.state == "connecting" and (self._failures == 0 or self._was_ready)

    @property
    def is_stale(self) -> bool:
        """Whether the server has announced other tools."""
        return self._session is not None and self._session.stale

    def begin(self) -> None:
        """Start to connect, unless there is a connection or it is too early after a failure."""
        if self.state in ("idle", "failed") and self.server.approved and self._clock() >= self._retry_at:
            self._set_state("connecting")
            self._settled = asyncio.get_running_loop().create_future()
            self._owner = asyncio.create_task(self._hold_session(), name=f"mcp {self.server.name}")
            self._owner.add_done_callback(self._note_end)

    async def start(self) -> None:
        """Connect and wait until the server is ready or has failed, which ``status`` tells."""
        self.begin()
        if self._settled is not None and not self._settled.done():
            await asyncio.shield(self._settled)

    async def refresh(self) -> None:
        """List the tools again if the server has announced a change."""
        session = self._session
        if session is None or not session.stale:
            return
        async with self._listing:
            if session is self._session:
                with suppress(McpError, TimeoutError):  # the tools stay as they were
                    async with asyncio.timeout(self.server.connect_timeout):
                        await session.list_tools()
                    self._take_tools(session)

    async def call(self, tool: ListedTool, arguments: dict[str, Any], handlers: CallHandlers) -> dict[str, Any]:
        """Call a tool and return its result as the server sent it. Raises ``McpError``.

        A call whose session had expired, or whose connection ended, is repeated once if the server calls the tool safe
        to repeat. Otherwise the error is final, and the next call opens a session again.
        """
        return await self.request(
            lambda session: session.call_tool(tool.name, arguments, handlers), repeat=tool.reads or tool.idempotent
        )

    async def request(self, send: "Callable[[McpSession], Awaitable[_R]]", *, repeat: bool = False) -> _R:
        """Send a request in the session, which is opened if there is none. Raises ``McpError``."""
        session = await self._ready_session()
        try:
            return await self._send(session, send)
        except (SessionExpired, SessionLost) as error:
            await self._drop(session, str(error))
            if not repeat:
                verify = (
                    "" if isinstance(error, SessionExpired) else "; verify whether it happened before you repeat it"
                )
                raise McpError(self.hide(f"{error}, the call was not repeated{verify}")) from error
        return await self._send(await self._ready_session(), send)

    async def _send(self, session: "McpSession", send: "Callable[[McpSession], Awaitable[_R]]") -> _R:
        try:
            result = await send(session)
        except (SessionExpired, SessionLost):
            raise
        except McpError as error:
            raise McpError(self.hide(str(error))) from error
        self._failures = 0
        return result

    async def _ready_session(self) -> "McpSession":
        await self.start()
        if self._session is not None:
            return self._session
        wait = self._retry_at - self._clock()
        again = f"; the next attempt is in {wait:.0f} s" if wait > 0 else ""
        raise McpError(f"the MCP server {self.server.name!r} is not available: {self.reason or self.state}{again}")

    async def _drop(self, session: "McpSession", reason: str) -> None:
        """End a session that failed, unless another request has done so."""
        if session is self._session and self._run is not None:
            self._session = None
            self.reason = self.hide(reason)
            self._run.close()
        if self._session is None and self._owner is not None:
            await asyncio.wait([self._owner])

    async def _hold_session(self) -> None:
        """Open the session, hold it, and leave it, all in this task."""
        self._run = run = (await asyncio.to_thread(_load_session_run))(self.server, self._start, self.log, self._logins)
        if self.state != "closed":
            await run.run(self._accept_session)

    def _accept_session(self, session: "McpSession") -> None:
        if self.state == "closed":
            return
        self._session = session
        self._was_ready = True
        self.reason = ""
        self.has_resources, self.has_prompts = session.has_resources, session.has_prompts
        self._take_tools(session)
        self._set_state("ready")
        self._settle()

    def _settle(self) -> None:
        if self._settled is not None and not self._settled.done():
            self._settled.set_result(None)

    def _note_end(self, owner: "asyncio.Task[None]") -> None:
        """Take the end of the task that held the session; whatever it raised, other servers go on."""
        error = None if owner.cancelled() else owner.exception()
        if self.state != "closed":
            self._note_failure(self._describe(error) if error else self.reason or "the server has ended")
        self._session = self._run = None
        self._settle()

    def _take_tools(self, session: "McpSession") -> None:
        if session.tools != self.tools:
            self.tools = session.tools
            self.revision += 1

    def _note_failure(self, reason: str) -> None:
        self._failures += 1
        self.reason = self.hide(reason)
        lost = self._failures == 1 and self._was_ready  # a server that ended is started again at once
        pause = 0.0 if lost else min(FIRST_PAUSE_SECONDS * 2.0 ** min(self._failures - 1, 9), LONGEST_PAUSE_SECONDS)
        self._retry_at = self._clock() + pause
        self._set_state("failed")

    def _describe(self, error: BaseException) -> str:
        text = str(error) or type(error).__name__
        status = self._run.http_status if self._run is not None and not self._run.opened else 0
        if status in (401, 403):
            return describe_refusal(self.server, status)
        if status:
            return f"HTTP {status}: {text}"
        line = self.log.last_line if self.server.transport == "stdio" else ""
        return f"{text} ({line})" if line and line not in text else text

    def hide(self, text: str) -> str:
        """Return a message without the values of the server's variables and headers, and without tokens."""
        server = self.server
        credentials = [value for name, value in server.oauth.items() if name not in _PUBLIC_OAUTH]
        tokens = self._logins.secrets if self._logins is not None else ()
        return hide_values(text, (*server.env.values(), *server.headers.values(), *credentials, *tokens))

    def _set_state(self, state: ServerState) -> None:
        if self.state != state:
            self.state = state
            self.revision += 1

    @property
    def has_ended(self) -> bool:
        """Whether no session and no process is left."""
        return self._owner is None or self._owner.done()

    def end(self, reason: str = "") -> None:
        """Begin to end the session and the process of the server; from now on every request fails with the reason."""
        self._set_state("closed")
        self._session, self.reason = None, reason or self.reason
        if self._run is not None:
            self._run.close()

    async def aclose(self) -> None:
        """End the session and the process of the server."""
        self.end()
        if self._owner is not None:
            await asyncio.wait([self._owner])


def hide_values(text: str, values: Iterable[str]) -> str:
    """Replace values, and the credentials in them, by dots."""
    words = {word for value in values for word in (value, value.partition(" ")[2]) if len(word) >= MIN_HIDDEN}
    for word in sorted(words, key=len, reverse=True):
        text = text.replace(word, "[hidden]")
    return text


def _load_session_run() -> "type[SessionRun]":
    """Import the library, in a thread, since that takes a while."""
    with _loading:  # a thread that waits for an import which fails would get a module without its names
        try:
            from vaka.mcp.session import SessionRun  # noqa: PLC0415  # heavy; programs without servers need none
        except ModuleNotFoundError as error:
            raise ConfigError("the library for MCP servers is not installed: pip install 'vaka[mcp]'") from error
    return SessionRun
