"""Server-sent events from a model's bytes: any split of them gives the same events, and no cut passes for an end.

Everything stays bytes: only names and ids are decoded here, so that data is decoded once, by whoever knows its type.
Lines end at LF, CR or CRLF and nowhere else; U+2028 and its kind are ordinary characters of JSON.
"""

import asyncio
import math
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any, NamedTuple

import msgspec

from vaka.core.types.errors import InvalidInput, StreamCut

BOM = b"\xef\xbb\xbf"
FIELDS = (b"", b"data", b"event", b"id", b"retry")
"""The names a line of an event stream may begin with; a comment has an empty one."""
HEAD = 1024
"""How much of a body is kept to say what it is; more than is shown, so that no secret is shown by half."""
SHOWN = 200

_KINDS = (("{", "a JSON object"), ("[", "a JSON array"), ("<?xml", "an XML document"), ("<", "an HTML page"))
_MARKED = r"""(?ix)
    \b(?:bearer|basic)\s+[^\s"',}<]+
    | (?:key|token|secret|password|authorization)["']?\s*[:=]\s*["']?(?:(?:bearer|basic)\s+)?[^\s"',}<&]+
    | \b(?:sk|pk|rk|gsk|xai|hf|ghp|gho|xox[a-z])[-_][\w*.-]{4,}
    | \bAIza[\w*-]{4,}
    """
_KEY = re.compile(_MARKED)
_SECRET = re.compile(_MARKED + r"| (?<![\w+=~-])(?=[a-z_+=~-]*[0-9])(?=[0-9_+=~-]*[a-z])[\w+=~-]{16,}")


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How large an event and how long a stream may get before it is given up."""

    event_bytes: int = 16 * 1024 * 1024
    total_bytes: int = 128 * 1024 * 1024
    idle_seconds: float = 300.0
    """Longest silence; a comment is a sign of life."""
    total_seconds: float = 3600.0

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if not value > 0:  # said this way round, NaN is refused too
                raise InvalidInput(f"{name} must be more than 0, not {value!r}")


class Item(NamedTuple):
    """One dispatched event: its data as it came, its name, and the last id that was given."""

    data: bytes
    event: str
    id: str


class Parser:
    """Bytes in, events out, without I/O.

    What is wrong with a stream is raised after the events that came before it: by the ``feed`` that met it when that
    has none to return, by the next call otherwise. ``failure`` has it at once.

    The standard passes over lines it does not know. With ``strict`` they are an error: of a model's answer such a line
    is a piece whose first bytes were garbled, and what is left of the answer would look whole.
    """

    def __init__(self, limits: Limits = Limits(), *, strict: bool = False) -> None:
        self.limits = limits
        self._strict = strict
        self.retry: int | None = None
        """Milliseconds to wait before asking again, if the server named some."""
        self.failure: StreamCut | None = None
        self._total = 0
        self._head = b""  # the beginning of the body until it has shown to be an event stream
        self._known = False
        self._strange = False  # lines came, and none of them was of an event stream
        self._begun = False
        self._after_cr = False  # an LF that comes next belongs to the CR before
        self._rest = bytearray()  # the line that has not ended; it grows in place, whatever size the chunks are
        self._data: list[bytes] = []
        self._size = 0
        self._event, self._id = "", ""
        self._open = False  # fields since the last blank line

    def feed(self, chunk: bytes) -> list[Item]:
        """Return the events that end in ``chunk``. Raises ``StreamCut`` for what is none or too large."""
        if self.failure is not None:
            raise self.failure
        self._total += len(chunk)
        excess = self._total - self.limits.total_bytes
        if excess > 0:
            chunk = chunk[:-excess]  # what is allowed counts, wherever chunks end
        if not self._known and len(self._head) < HEAD:
            self._head += chunk[: HEAD - len(self._head)]
        items: list[Item] = []
        try:
            self._read(self._lines(chunk), items)
            if len(self._rest) > self.limits.event_bytes:
                raise self._too_large()
            if excess > 0:
                raise self.error(f"the model's answer is larger than the {self.limits.total_bytes} bytes it may have")
        except StreamCut as failure:
            self.failure = failure
            if not items:
                raise
        return items

    def end(self) -> None:
        """Say that no more comes. Raises ``StreamCut`` when the stream was cut inside an event or was none."""
        if self.failure is not None:
            raise self.failure
        if self._open or self._strange or (self._rest and not self._rest.startswith(b":")):
            raise self.error("the stream was cut: it ended inside an event, before the blank line that completes one")

    def error(self, words: str) -> StreamCut:
        """Return what to raise for this stream; one that is not an event stream at all is told as that."""
        if not self._known and (self._strange or not _may_be_field(bytes(self._rest[:16]))):
            words = f"expected an event stream, got {looks_like(self._head)}"
        return StreamCut(words, retry_after=None if self.retry is None else self.retry / 1000)

    def _lines(self, chunk: bytes) -> list[bytes]:
        """Return the lines that end in ``chunk`` and keep what follows the last of them."""
        if not self._begun:
            chunk = self._begin(chunk)
        if self._after_cr and chunk.startswith(b"\n"):
            self._after_cr = False
            chunk = chunk[1:]
        if not chunk:
            return []
        lines = chunk.splitlines()  # of bytes: at LF, CR and CRLF only
        last = chunk[-1]
        rest = b"" if last in b"\r\n" else lines.pop()
        self._after_cr = last == 0x0D
        if lines and self._rest:
            lines[0] = bytes(self._rest + lines[0])
            self._rest.clear()
        self._rest += rest
        return lines

    def _begin(self, chunk: bytes) -> bytes:
        """Take a byte order mark off the very start, also when it comes in pieces."""
        start = bytes(self._rest) + chunk
        self._rest.clear()
        if len(start) < len(BOM) and BOM.startswith(start):
            self._rest += start
            return b""
        self._begun = True
        return start.removeprefix(BOM)

    def _read(self, lines: list[bytes], items: list[Item]) -> None:
        for line in lines:
            if line.startswith(b"data: "):
                self._add(line, line[6:])
            elif line:
                self._field(line)
            else:
                if self._data:
                    data = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
                    items.append(Item(data, self._event or "message", self._id))
                    self._data, self._size = [], 0
                self._event, self._open = "", False

    def _add(self, line: bytes, value: bytes) -> None:
        if self._strange and self._strict:
            raise self._garbled()
        self._known, self._strange, self._open = True, False, True
        self._size += len(line)
        if self._size > self.limits.event_bytes:
            raise self._too_large()
        self._data.append(value)

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        if value.startswith(b" "):
            value = value[1:]
        if name == b"data":
            self._add(line, value)
            return
        if self._strict and self._known and (name not in FIELDS or (name == b"event" and b"{" in value)):
            raise self._garbled()
        self._known = self._known or name in FIELDS
        self._strange = not self._known
        if len(line) > self.limits.event_bytes:
            raise self._too_large()
        if name:
            self._open = True
        if name == b"event":
            self._event = self._text("name", value)
        elif name == b"id" and b"\0" not in value:
            self._id = self._text("id", value)
        elif name == b"retry" and value.isdigit() and len(value) < 10:  # longer is no wait anyone means
            self.retry = int(value)

    def _text(self, what: str, value: bytes) -> str:
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise self.error(f"the {what} of an event is not UTF-8: {value[:SHOWN]!r}") from None

    def _garbled(self) -> StreamCut:
        return self.error("the stream is garbled: a line of it is none of an event stream")

    def _too_large(self) -> StreamCut:
        return self.error(f"an event of the stream is larger than the {self.limits.event_bytes} bytes it may have")


async def read(
    chunks: AsyncIterator[bytes],
    *,
    limits: Limits = Limits(),
    clock: Callable[[], float] = time.monotonic,
    strict: bool = False,
) -> AsyncGenerator[Item]:
    """Yield the events of a stream and close ``chunks`` however it ends; to be closed with ``aclosing``.

    Raises ``StreamCut`` when the stream is cut inside an event, is none, or goes over a limit. Whether the last
    event was the one that ends an answer is for the caller to see.
    """
    parser = Parser(limits, strict=strict)
    patience = _Patience(parser)
    deadline = clock() + limits.total_seconds
    try:
        while True:
            with patience.of(deadline - clock()):
                try:
                    chunk = await anext(chunks)
                except StopAsyncIteration:
                    break
            for item in parser.feed(chunk):
                yield item
            if parser.failure is not None:
                raise parser.failure
        parser.end()
    finally:
        patience.close()
        close = getattr(chunks, "aclose", None)
        if close is not None:
            await close()


class _Patience:
    """Ends a wait for bytes that lasts too long, as ``asyncio.timeout`` does, with one timer for all waits of a stream.

    A timer per wait costs more than reading the events that it brings. Outside a wait nobody is cancelled, so that an
    event may be yielded while the timer runs.
    """

    def __init__(self, parser: Parser) -> None:
        self._parser = parser
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._due = math.inf  # when the timer rings; not before the wait is over, unless it is set anew
        self._until = math.inf
        self._task: asyncio.Task[Any] | None = None  # who waits
        self._cancelling = 0
        self._late = False  # no time is left for silence of the whole length
        self._rang = False

    def of(self, left: float) -> "_Patience":
        """Return this for a wait that ends with the longest silence, or with what is left of the whole time."""
        idle = self._parser.limits.idle_seconds
        self._late = left < idle
        if left <= 0:
            raise self._error()
        self._until = self._loop.time() + (left if self._late else idle)
        return self

    def __enter__(self) -> None:
        self._task = task = asyncio.current_task()
        self._cancelling = task.cancelling() if task else 0
        if self._until < self._due:
            self._set()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        task, self._task = self._task, None
        if self._rang and task:
            self._rang = False
            # Whoever else cancelled the task meanwhile is to be obeyed.
            if task.uncancel() <= self._cancelling and isinstance(error, asyncio.CancelledError):
                raise self._error() from None

    def close(self) -> None:
        """Let the timer go."""
        if self._timer is not None:
            self._timer.cancel()

    def _set(self) -> None:
        self.close()
        self._due = self._until
        self._timer = self._loop.call_at(self._due, self._ring)

    def _ring(self) -> None:
        self._due = math.inf
        if self._task is None:
            return
        if self._loop.time() < self._until:  # bytes came since it was set
            self._set()
        else:
            self._rang = True
            self._task.cancel()

    def _error(self) -> StreamCut:
        limits = self._parser.limits
        if self._late:
            return self._parser.error(
                f"the model's answer took longer than the {limits.total_seconds:g} seconds it may"
            )
        return self._parser.error(f"the model sent nothing for {limits.idle_seconds:g} seconds")


def looks_like(body: bytes) -> str:
    """Say what a body that is no event stream seems to be, and how it begins; what looks like a secret is left out."""
    body = body[:HEAD].removeprefix(BOM).strip()
    if not body:
        return "an empty body"
    if body.startswith(b"\x1f\x8b"):
        return "gzip data that was not unpacked"
    text = body.decode(errors="replace")
    if "\0" in text or text.count("\ufffd") > 4 + len(text) // 16:  # a few are text in another encoding, or cut
        return "binary data"
    kind = next((kind for start, kind in _KINDS if text.startswith(start)), "plain text")
    return f"{kind}: {_excerpt(text)!r}"


def hide(text: str) -> str:
    """Return ``text`` without what is marked as a secret; names of models, long as they are, stay."""
    return _KEY.sub("[redacted]", text)


def _excerpt(text: str) -> str:
    text = " ".join(text.split())
    end = SHOWN
    for secret in _SECRET.finditer(text):
        if secret.start() < end < secret.end():
            end = secret.end()  # cut after it, or its first half would not be known for what it is
    shown = _SECRET.sub("[redacted]", text[:end])
    return shown if len(text) <= end else f"{shown}…"


def _may_be_field(line: bytes) -> bool:
    """Whether a line that has not ended can still become one of an event stream."""
    name, colon, _ = line.partition(b":")
    return name in FIELDS if colon else any(field.startswith(name) for field in FIELDS)
