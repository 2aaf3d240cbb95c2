"""The sessions of a server with the methods that the terminal uses of a runtime and a session."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Unpack, cast

import msgspec

from vaka.cli.remote.client import ServerClient, address_of
from vaka.cli.turn.approval_prompt import DecisionPrompter
from vaka.core.ports.store import PendingDecision, SessionInfo, SessionPage, SessionQuery
from vaka.core.types.control import ApprovalRequested, ApprovalResolved
from vaka.core.types.decode import decode
from vaka.core.types.errors import InvalidInput, NotFound
from vaka.core.types.event import Event
from vaka.core.types.ids import JSON, Cursor, DecisionId, SessionId
from vaka.core.types.message import as_content
from vaka.runtime.clock import RandomIds
from vaka.runtime.file_rewind import FileRewind
from vaka.runtime.options import ApprovalAnswer, OnBusy, UserInput

if TYPE_CHECKING:
    from vaka.cli.turn.approval_prompt import PromptFace
    from vaka.runtime.runtime import Runtime

_CONFLICTS: Mapping[str, str] = {"queue": "enqueue"}
_PAGE, _EVENTS = 200, 1000


class RemoteAgent(NamedTuple):
    """The agent of a session, as far as it is known here."""

    name: str
    model: None = None
    tools: tuple[str, ...] = ()


class RemoteSessions:
    """The index of the sessions of a server."""

    def __init__(self, client: ServerClient) -> None:
        self._client = client

    async def find(self, id: str) -> SessionInfo | None:
        """Return the description of a session, ``None`` if there is none."""
        try:
            return _info_of(await self._client.get(address_of(id)))
        except NotFound:
            return None

    async def list(self, query: SessionQuery) -> SessionPage:
        """Return a page of sessions; a server does not select them by folder."""
        page = await self._client.get("/sessions", q=query.text, limit=query.limit, cursor=query.after)
        return SessionPage(sessions=tuple(map(_info_of, page["data"])), next=page["next_cursor"] or "")

    async def delete(self, id: str) -> None:
        await self._client.delete(address_of(id))


class RemoteEvents:
    """The logs of the sessions of a server."""

    def __init__(self, client: ServerClient) -> None:
        self._client = client

    async def read(self, session: str, *, after: int = 0, upto: int | None = None) -> AsyncGenerator[Event]:
        """Yield the stored events after a position, up to another one."""
        more, place = True, address_of(session, "events")
        while more:
            page = await self._client.get(place, after=str(after), limit=_EVENTS)
            for document in page["data"]:
                event = _event_of(document)
                after = event.seq
                if upto is not None and after > upto:
                    return
                yield event
            more = page["has_more"]


class RemoteStore(NamedTuple):
    """The part of a server's store that the terminal reads."""

    sessions: RemoteSessions
    events: RemoteEvents


class RemoteEnv(NamedTuple):
    """The ids that inputs get."""

    ids: RandomIds


class RemoteRuntime:
    """The operations of the terminal on the sessions of a server: open and follow them, and decide."""

    def __init__(self, client: ServerClient, agent: str = "") -> None:
        """``agent``: the agent of new sessions; ``""``: the default of the server."""
        self.client, self._agent = client, agent
        self.ids = RandomIds()
        self.env, self.store = RemoteEnv(self.ids), RemoteStore(RemoteSessions(client), RemoteEvents(client))
        self._requests: dict[str, PendingDecision] = {}
        """The decisions that were open at the last look."""

    async def open(self, *, id: str = "") -> "RemoteSession":
        """Return a session; create it if it does not exist. Raises ``VakaError``."""
        info = await self.store.sessions.find(id) if id else None
        if info is None:
            body = {name: value for name, value in {"id": id, "agent": self._agent}.items() if value}
            info = _info_of(await self.client.post("/sessions", body, key=self.ids.new_id("req")))
        elif self._agent not in ("", info.agent):
            raise InvalidInput(f"session {id!r} belongs to agent {info.agent!r}, not to {self._agent!r}")
        return RemoteSession(self, info)

    def is_running(self, session: str) -> bool:
        """Return ``False``: the turns of a server go on when this process ends."""
        return False

    def follow(self, session: str, *, after: "Cursor | str | None" = None) -> AsyncGenerator[Event]:
        """Yield the events of a session after a cursor, then new ones, without end."""
        return self.client.follow(address_of(session, "events"), after=str(after or ""), ends=False)

    async def decisions(self, session: str | None = None) -> Sequence[PendingDecision]:
        """Return the open approvals and questions of a session, oldest first."""
        page = await self.client.get("/approvals", session=session or "", limit=_PAGE)
        rows = [self._requests.get(each["id"]) or await self._read_request(each) for each in page["data"]]
        self._requests = {row.id: row for row in rows}
        return rows

    async def _read_request(self, document: Mapping[str, Any]) -> PendingDecision:
        """Return a decision with the event that asks for it."""
        session, cursor = SessionId(document["session"]), Cursor.parse(document["cursor"])
        place = address_of(session, "events")
        page = await self.client.get(place, after=f"{cursor.epoch}.{cursor.seq - 1}", limit=1)
        event = _event_of(page["data"][-1])
        return PendingDecision(id=DecisionId(document["id"]), session=session, seq=cursor.seq, event=event)

    async def resolve(
        self, approval: str, decision: Literal["approve", "reject"], **details: Unpack[ApprovalAnswer]
    ) -> Event:
        """Decide an approval; see ``Runtime.resolve``. A time limit cannot be given."""
        if details.get("ttl") is not None:
            raise InvalidInput("a server takes no time limit of an approval; approve it once or for the session")
        edit, scope = details.get("edit"), details.get("scope", "once")
        body: dict[str, Any] = {
            "decision": "edit" if edit is not None else decision,
            "message": details.get("message", ""),
        }
        body |= {"edited_args": edit} if edit is not None else {}
        if scope != "once" and decision == "approve":
            body["remember"] = {"scope": scope, "rule": details.get("rule", "")}
        return await self._decide(approval, body)

    async def answer(self, question: str, answer: JSON, *, by: str = "") -> Event:
        """Answer a question. The server records the owner of the key as the person."""
        return await self._decide(question, {"decision": "answer", "answer": answer})

    async def _decide(self, id: str, body: Mapping[str, Any]) -> Event:
        result = await self.client.post(f"/approvals/{id}/resolve", body, key=self.ids.new_id("req"))
        return _event_of(result["event"])


class RemoteCompaction(NamedTuple):
    """The result of a compaction."""

    event: str | None
    """The cursor of ``context.compacted``; the chat shows the event as it follows the session."""
    skipped: str


class RemoteSession:
    """One session of a server."""

    def __init__(self, runtime: RemoteRuntime, info: SessionInfo) -> None:
        self.id = info.id
        self.info = info
        self._runtime = runtime
        self._client, self.agent = runtime.client, RemoteAgent(info.agent)

    async def send(
        self,
        prompt: UserInput,
        *,
        on_busy: OnBusy = "queue",
        key: str = "",
        model: str = "",
        options: Mapping[str, Any] | None = None,
    ) -> str:
        """Store an input and return its key; the server runs the turn."""
        key = key or self._runtime.ids.new_id("inp")
        content: Any = prompt if isinstance(prompt, str) else msgspec.to_builtins(as_content(prompt))
        body = {
            "input": content,
            "on_conflict": _CONFLICTS.get(on_busy, on_busy),
            "model": model,
            "options": dict(options or {}),
            "background": True,
        }
        await self._client.post(address_of(self.id, "turns"), body, key=key)
        return key

    def follow_turn(self, turn: str) -> AsyncGenerator[Event]:
        """Yield the events of a turn, by its id or the key of its input, from its beginning to its end."""
        return self._client.follow(address_of(self.id, "turns", turn))

    async def find_turn(self, turn: str = "") -> dict[str, Any]:
        """Return the description of a turn, by default of the last one. Raises ``NotFound``."""
        if turn:
            found: dict[str, Any] = await self._client.get(address_of(self.id, "turns", turn))
            return found
        page = await self._client.get(address_of(self.id, "turns"), limit=1)
        if not page["data"]:
            raise NotFound(f"session {self.id!r} has no turn to resume")
        last: dict[str, Any] = page["data"][0]
        return last

    async def cancel(self, turn: str, note: str) -> None:
        """Stop a turn, or take its input back if none has begun."""
        await self._client.post(address_of(self.id, "turns", turn, "cancel"), {"note": note})

    async def interrupt(self, note: str = "", *, by: str = "") -> None:
        """Stop the running turn. Raises ``Busy`` if there is none."""
        await self.cancel("current", note)

    async def withdraw(self, key: str, *, by: str = "") -> bool:
        """Take back a queued input; return ``False`` if a turn has taken it."""
        turn = await self.find_turn(key)
        if turn["id"]:
            return False
        await self.cancel(key, "")
        return True

    def resume(self) -> AsyncGenerator[Event]:
        """Yield the events of the unfinished turn, which the server runs."""
        return self.follow_turn("current")

    async def fork(self) -> "RemoteSession":
        """Return a copy of the session."""
        copied = await self._client.post(address_of(self.id, "fork"), {}, key=self._runtime.ids.new_id("req"))
        return RemoteSession(self._runtime, _info_of(copied))

    async def rewind(
        self, to: "Cursor | str", *, interrupt: bool = False, files: bool = False, force: bool = False
    ) -> FileRewind | None:
        """Continue from an earlier event; with ``files``, return the effect on the files of the server."""
        body = {"to": str(to), "interrupt": interrupt, "files": files, "force": force}
        done = await self._client.post(address_of(self.id, "rewind"), body)
        return msgspec.convert(done["files"], FileRewind) if files else None

    async def compact(self, instructions: str = "", *, interrupt: bool = False) -> "RemoteCompaction":
        """Summarize older messages; the server writes the event."""
        body = {"instructions": instructions, "interrupt": interrupt}
        done = await self._client.post(address_of(self.id, "compact"), body)
        return RemoteCompaction(done["cursor"] if done["compacted"] else None, done["skipped"])

    async def leave(self, reason: str = "", *, successor: "RemoteSession | None" = None) -> None:
        """Do nothing: the server ends the sessions of its hooks itself."""


class RemotePrompter(DecisionPrompter):
    """Prompts for the decisions of a session on a server."""

    def __init__(self, runtime: RemoteRuntime, session: str, face: "PromptFace") -> None:
        # It lists and settles decisions, and does no more with the runtime.
        super().__init__(cast("Runtime", runtime), SessionId(session), face)

    def _sandbox_text(self, body: ApprovalRequested) -> str:
        """Return nothing: the sandbox is on the server."""
        return ""

    def _report_stored_rule(self, body: ApprovalRequested, resolution: ApprovalResolved) -> None:
        """Print nothing: the files are on the server."""


class RemoteSessionRow(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a session's description that the terminal reads."""

    id: str
    cursor: str
    status: str = ""
    title: str = ""
    agent: str = ""
    turn: str = ""
    inputs: int = 0
    pending: int = 0
    created: str = ""
    updated: str = ""


def _info_of(document: Any) -> SessionInfo:
    try:
        row = msgspec.convert(document, RemoteSessionRow)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"the server does not describe a session as one of vaka does: {error}") from error
    cursor = Cursor.parse(row.cursor)
    return SessionInfo(
        id=SessionId(row.id),
        head=cursor.seq,
        epoch=cursor.epoch or 1,
        title=row.title,
        agent=row.agent,
        turn=row.turn,
        inputs=row.inputs,
        pending=row.pending,
        created=row.created,
        updated=row.updated,
        closed=row.status == "closed",
        live=bool(row.turn),
    )


def _event_of(document: Any) -> Event:
    return decode(msgspec.json.encode(document))
