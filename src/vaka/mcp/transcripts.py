"""Transcripts of sessions as resources: ``session://ID/transcript``."""

import os
import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote, unquote

import msgspec

from vaka.core.loop.prompt import build_messages
from vaka.core.ports.store import SessionInfo, SessionQuery, Store
from vaka.core.session.snapshot import reopen
from vaka.core.types.errors import InvalidInput
from vaka.core.types.ids import parse_session_id
from vaka.core.types.message import AssistantMessage, Content, Message, Stored, ToolMessage, text_of

TEMPLATE = "session://{id}/transcript"
PAGE_SIZE = 50
MAX_TRANSCRIPT_CHARS = 400_000
"""Characters of a transcript; of a longer one the end is returned."""
MAX_PART_CHARS = 4_000
"""Characters of the arguments or the result of one call."""

_URI = re.compile(r"session://([^/?#]+)/transcript")


class ResourcePage(msgspec.Struct, frozen=True):
    """A page of resources, and the cursor of the next one (``""`` on the last)."""

    resources: list[dict[str, Any]]
    next: str


class TranscriptResources:
    """The transcripts of the sessions of one folder, latest change first."""

    def __init__(self, store: Store, folder: str, *, owner: str = "") -> None:
        """``folder``: sessions of this folder, of its subfolders, and sessions without a folder.

        With ``owner`` only the sessions that belong to it.
        """
        self._store = store
        self._folder = folder
        self._owner = owner

    async def list(self, cursor: str = "") -> ResourcePage:
        """Return a page. Raises ``InvalidInput`` for a cursor that no page has returned."""
        query = SessionQuery(folder=self._folder, owner=self._owner, limit=PAGE_SIZE, after=cursor)
        page = await self._store.sessions.list(query)
        return ResourcePage([_describe(info) for info in page.sessions], page.next)

    async def read(self, uri: str) -> str | None:
        """Return a transcript as Markdown, ``None`` if there is no such resource."""
        found = _URI.fullmatch(uri)
        if found is None:
            return None
        try:
            session = parse_session_id(unquote(found[1]))
        except InvalidInput:
            return None
        info = await self._store.sessions.find(session)
        if info is None or not self.is_visible(info):
            return None
        opened = await reopen(self._store, session)
        return render_messages(build_messages(opened.window.events_at(()), ()))

    def is_visible(self, info: SessionInfo) -> bool:
        """Return whether a session is one of the folder and of the owner."""
        if self._owner and info.owner != self._owner:
            return False
        inside = f"{self._folder.rstrip(os.sep)}{os.sep}"
        return not info.folder or info.folder == self._folder or info.folder.startswith(inside)


def _describe(info: SessionInfo) -> dict[str, Any]:
    return {
        "uri": f"session://{quote(info.id, safe='')}/transcript",
        "name": info.id,
        "title": info.title or info.id,
        "description": f"Session of agent {info.agent or '?'}, {info.status}, last change {info.updated}",
        "mime_type": "text/markdown",
    }


def render_messages(messages: Iterable[Message]) -> str:
    """Return a conversation as Markdown; of a long one the end, after a line that says how much is left out."""
    blocks = [block for message in messages for block in _blocks_of(message)]
    kept, size = len(blocks), 0
    while kept and size + len(blocks[kept - 1]) <= MAX_TRANSCRIPT_CHARS:
        kept -= 1
        size += len(blocks[kept]) + 2
    if kept == len(blocks) and blocks:  # the last block alone is too long
        return _cut(blocks[-1], MAX_TRANSCRIPT_CHARS)
    left_out = [f"({kept} earlier parts are left out)"] if kept else []
    return "\n\n".join((*left_out, *blocks[kept:]))


def _blocks_of(message: Message) -> list[str]:
    if isinstance(message, ToolMessage):
        return [
            f"{'✗' if result.failed else '←'} {_cut(_full_text(result.content), MAX_PART_CHARS)}"
            for result in message.results
        ]
    who = "Agent" if isinstance(message, AssistantMessage) else "User"
    text = _full_text(message.content)
    blocks = [f"## {who}\n\n{text}"] if text else []
    if isinstance(message, AssistantMessage):
        for call in message.calls:
            arguments = msgspec.json.encode(call.arguments).decode()
            blocks.append(f"→ {call.name} {_cut(arguments, MAX_PART_CHARS)}")
    return blocks


def _full_text(content: Content) -> str:
    """Return the text of a content; of a text that is stored apart its beginning, and its size."""
    return "".join(
        f"{text_of((part,))} … ({part.size} bytes)" if isinstance(part, Stored) else text_of((part,))
        for part in content
    )


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]} … ({len(text) - limit} more characters)"
