"""The message index of a store: what was said in sessions, listed by session and searched across them.

Its rows are written in the transaction of the events they are made of, and rebuilt from them by ``Store.reindex``.
"""

import base64
import binascii
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

import msgspec

from vaka.core.types.errors import InvalidInput
from vaka.core.types.ids import AgentPath, SessionId
from vaka.core.types.message import Content

MessageRole: TypeAlias = Literal["user", "assistant", "tool", "call"]
"""Who said it: ``tool`` is the result of a tool call, ``call`` its arguments, which the assistant wrote."""

MAX_QUERY_LENGTH = 1000
"""The number of characters that the text of a search may have."""


class MessageRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One message of a session."""

    session: SessionId
    seq: int
    """The seq of its event."""
    epoch: int = 1
    role: MessageRole
    id: str
    """The key of an input, the message id of an answer, or the id of a tool call for its arguments and its result."""
    turn: str = ""
    path: AgentPath = ()
    """The agent whose conversation it is part of."""
    ts: str = ""
    name: str = ""
    """The name of the tool of a call or a result."""
    text: str = ""
    """Its text, without reasoning. Of a part that is stored as a blob, how it begins."""
    content: Content = ()
    metadata: dict[str, Any] = {}
    failed: bool = False
    """Whether a tool call has failed."""

    @property
    def cursor(self) -> str:
        """The cursor of its event, ``<epoch>.<seq>``."""
        return f"{self.epoch}.{self.seq}"


class MessageFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which messages to list. All given conditions must hold."""

    role: str = ""
    """Case does not matter. ``call`` rows are listed only if it is ``call``."""
    since: str = ""
    """The earliest time (RFC 3339), inclusive."""
    until: str = ""
    """The latest time, inclusive."""
    keywords: tuple[str, ...] = ()
    """Texts of which one is part of the message; case does not matter. A text in a blob is read as by a search."""
    metadata: dict[str, Any] = {}
    """Keys and values that its metadata have, compared as in ``SessionQuery``; lists and objects, too."""
    path: AgentPath | None = ()
    """The agent whose conversation is listed; ``None`` for the root agent and all its children."""


NO_FILTER = MessageFilter()


class MessageQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A page of the messages of one session, oldest first."""

    filter: MessageFilter = NO_FILTER
    limit: int = 50
    cursor: str = ""
    """The ``next`` or ``prev`` of another page of the same query."""
    reverse: bool = False
    """Whether the newest message comes first."""
    include_content: bool = True
    """Whether rows have ``text`` and ``content``."""


class MessagePage(msgspec.Struct, frozen=True, kw_only=True):
    """Some messages, and the cursors of the pages around them (``""`` where there is none).

    Cursors name a position in the log, so messages that are added meanwhile neither repeat nor hide others.
    """

    messages: tuple[MessageRow, ...] = ()
    next: str = ""
    prev: str = ""

    @property
    def has_more(self) -> bool:
        """Whether there is a next page."""
        return bool(self.next)


def encode_cursor(value: object) -> str:
    """Return a position as an opaque text."""
    return base64.urlsafe_b64encode(msgspec.json.encode(value)).decode()


def decode_cursor(text: str, kind: Any) -> Any:
    """Return the position that ``encode_cursor`` encoded; ``InvalidInput`` for any other text."""
    try:
        return msgspec.json.decode(base64.b64decode(text, altchars=b"-_", validate=True), type=kind)
    except (binascii.Error, msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise InvalidInput(f"{text[:60]!r} is not the cursor of a page") from error


class ListPosition(NamedTuple):
    """Where a page of a list begins: right after ``seq``, in the direction of ``backward``."""

    seq: int
    backward: bool = False


def parse_list_cursor(query: MessageQuery) -> ListPosition | None:
    """Return the position of a page, ``None`` for the first one."""
    if query.limit < 1:
        raise InvalidInput(f"limit {query.limit} must be at least 1")
    if not query.cursor:
        return None
    seq, backward = decode_cursor(query.cursor, tuple[int, bool])
    if not 0 <= seq < 1 << 63:
        raise InvalidInput(f"{query.cursor[:60]!r} is not the cursor of a page")
    return ListPosition(seq, backward)


class MessageStats(msgspec.Struct, frozen=True, kw_only=True):
    """How much was said in a session; ``call`` rows do not count."""

    message_count: int = 0
    user_message_count: int = 0
    assistant_message_count: int = 0
    tool_message_count: int = 0
    first_message_at: str = ""
    last_message_at: str = ""
    size_bytes: int = 0
    """The sum of the sizes of the events."""


class MessageSearch(msgspec.Struct, frozen=True, kw_only=True):
    """What to search for, in which messages.

    A message is found if it has all words of ``text``, in any order. ``"a phrase"`` in quotation marks must occur as it
    is, ``-word`` must not occur, ``begin*`` stands for all words that begin so. Case, accents and punctuation do not
    matter, nor do the vowel marks of Arabic and Hebrew. Texts in scripts without spaces, such as Chinese, Japanese and
    Thai, are found by any part of them. Each emoji is a word.
    """

    text: str
    session: str = ""
    owner: str = ""
    """The owner of the session."""
    agent: str = ""
    """The agent of the session."""
    role: str = ""
    since: str = ""
    """The earliest time, inclusive."""
    until: str = ""
    """The latest time, inclusive."""
    path: AgentPath | None = None
    """The agent whose conversation it is part of; ``None`` for any."""
    limit: int = 20
    after: str = ""
    """The ``next`` of the page before."""


class SearchHit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A message that was found."""

    message: MessageRow
    """Without its text and content."""
    snippet: str
    """The part of its text around the words that were found."""
    matches: tuple[tuple[int, int], ...] = ()
    """Where they are in the snippet: the offsets of their first character and of the one after their last."""
    score: float = 0.0
    """How well it matches; comparable within one store only."""


class SearchPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of hits, best first, and the cursor of the next page (``""`` on the last).

    Of a search with more than ``SEARCH_WINDOW`` hits the newest so many come first, best first; then the next ones.
    """

    hits: tuple[SearchHit, ...] = ()
    next: str = ""


SEARCH_WINDOW = 1000


class MessageIndex(Protocol):
    """The messages of one namespace."""

    async def list(self, session: SessionId, query: MessageQuery) -> MessagePage:
        """Return a page of messages: filtered, then ordered, then limited.

        ``NotFound`` for an unknown session, ``InvalidInput`` for a cursor that is not of a page.
        """
        ...

    async def find(self, session: SessionId, id: str) -> MessageRow | None:
        """Return the message with this id, ``None`` when there is none; of a tool call, its result."""
        ...

    async def stats(self, session: SessionId) -> MessageStats:
        """Return how much was said in a session. ``NotFound`` for an unknown session."""
        ...

    async def search(self, query: MessageSearch) -> SearchPage:
        """Return the messages that match, best first. Any text is a valid query; a text without words finds nothing.

        ``InvalidInput`` for a text of more than ``MAX_QUERY_LENGTH`` characters and a cursor that is not of a page.
        """
        ...
