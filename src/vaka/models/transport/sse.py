"""Parse server-sent events from bytes, with limits and timeouts; a stream cut inside an event raises StreamCut."""

import asyncio
import math
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any, NamedTuple

import msgspec

from vaka.core.types.errors import InvalidInput, StreamCut

BOM = b"\xef\xbb\xbf"
FIELD_NAMES = (b"", b"data", b"event", b"id", b"retry")
"""The field names of an event stream; the empty name marks a comment."""
HEAD_BYTES = 1024
"""Bytes of a body for an error message; more than the excerpt, so that a secret at its end is recognized."""
EXCERPT_CHARACTERS = 200

_WHOLE_EVENT = re.compile(rb"(?:event: ([A-Za-z_.-]+)\n)?data: ([^\r\n]*+)\n\n")
"""An event of the usual form: one line of data, at most one name before it."""

_ESCAPE = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(?P<lone>\\u[dD][89a-fA-F][0-9a-fA-F]{2})|\\."
)
"""An escape in JSON: a surrogate pair, half of one, or another."""
_BODY_KINDS = (("{", "a JSON object"), ("[", "a JSON array"), ("<?xml", "an XML document"), ("<", "an HTML page"))
_LABELLED_SECRET_PATTERN = r"""(?ix)
    \b(?:bearer|basic)\s+[^\s"',}<]+
    | (?:key|token|secret|password|authorization)["']?\s*[:=]\s*["']?(?:(?:bearer|basic)\s+)?[^\s"',}<&]+
    | \b(?:sk|pk|rk|gsk|xai|hf|ghp|gho|xox[a-z])[-_][\w*.-]{4,}
    | \bAIza[\w*-]{4,}
    """  # noqa: S105  # nosec B105  # a pattern that finds secrets
_LABELLED_SECRET = re.compile(_LABELLED_SECRET_PATTERN)
_LIKELY_SECRET = re.compile(
    _LABELLED_SECRET_PATTERN + r"| (?<![\w+=~-])(?=[a-z_+=~-]*[0-9])(?=[0-9_+=~-]*[a-z])[\w+=~-]{16,}"
)


class StreamLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of an event and of a stream, beyond which it is aborted."""

    event_bytes: int = 16 * 1024 * 1024
    total_bytes: int = 128 * 1024 * 1024
    idle_seconds: float = 300.0
    """Longest silence; a comment is a sign of life."""
    total_seconds: float = 3600.0

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if not value > 0:  # also true for NaN
                raise InvalidInput(f"{name} must be more than 0, not {value!r}")


class ServerSentEvent(NamedTuple):
    """One dispatched event: its data, its name, and the last id of the stream."""

    data: bytes
    event: str
    id: str


class SSEParser:
    """Bytes in, events out, without I/O.

    An error in a stream is raised after the events before it: by the ``feed`` that found it if that has no events to
    return, else by the next call. ``failure`` has it at once.

    The standard ignores unknown lines. With ``strict`` they are an error: in a model's answer such a line is a piece
    with garbled first bytes, and the answer without it would look complete.
    """

    def __init__(self, limits: StreamLimits = StreamLimits(), *, strict: bool = False) -> None:
        self.limits = limits
        self._strict = strict
        self.retry: int | None = None
        """The ``retry:`` field of the stream, in milliseconds."""
        self.failure: StreamCut | None = None
        self._total_bytes = 0
        self._first_bytes = b""  # for error messages, until the body is known to be an event stream
        self._is_event_stream = False
        self._has_unknown_lines = False  # only lines that are not of an event stream have arrived
        self._bom_checked = False
        self._after_cr = False  # a following LF belongs to the CR
        self._partial_line = bytearray()  # grows in place, for chunks of any size
        self._data: list[bytes] = []
        self._data_bytes = 0
        self._event, self._id = "", ""
        self._in_event = False  # fields since the last blank line

    def feed(self, chunk: bytes) -> list[ServerSentEvent]:
        """Return the events that end in ``chunk``. Raises ``StreamCut`` for an invalid or too large one."""
        if self.failure is not None:
            raise self.failure
        self._total_bytes += len(chunk)
        excess = self._total_bytes - self.limits.total_bytes
        if excess > 0:
            chunk = chunk[:-excess]  # events within the limit are returned
        if not self._is_event_stream and len(self._first_bytes) < HEAD_BYTES:
            self._first_bytes += chunk[: HEAD_BYTES - len(self._first_bytes)]
        items: list[ServerSentEvent] = []
        if self._is_event_stream and not (self._in_event or self._partial_line or self._after_cr):
            chunk = self._read_whole_events(chunk, items)
        try:
            if chunk:
                self._read_lines(self._split_lines(chunk), items)
            if len(self._partial_line) > self.limits.event_bytes:
                raise self._too_large_error()
            if excess > 0:
                limit = self.limits.total_bytes
                raise self.make_error(f"the model's answer is larger than the {limit} bytes it may have")
        except StreamCut as failure:
            self.failure = failure
            if not items:
                raise
        return items

    def end(self) -> None:
        """Check the end of the stream. Raises ``StreamCut`` when it is inside an event, or was not an event stream."""
        if self.failure is not None:
            raise self.failure
        in_line = self._partial_line and not self._partial_line.startswith(b":")
        if self._in_event or self._has_unknown_lines or in_line:
            raise self.make_error(
                "the stream was cut: it ended inside an event, before the blank line that completes one"
            )

    def make_error(self, message: str) -> StreamCut:
        """Return an error with ``message``, or with a description of a body that is not an event stream."""
        if not self._is_event_stream and (self._has_unknown_lines or not _may_be_field(bytes(self._partial_line[:16]))):
            message = f"expected an event stream, got {describe_body(self._first_bytes)}"
        return StreamCut(message, retry_after=None if self.retry is None else self.retry / 1000)

    def _read_whole_events(self, chunk: bytes, items: list[ServerSentEvent]) -> bytes:
        """Read the events of the usual form at the start of ``chunk``, and return the rest: nearly always nothing."""
        at = 0
        end = len(chunk)
        most = self.limits.event_bytes
        while at < end:
            found = _WHOLE_EVENT.match(chunk, at)
            if found is None or found.end() - at > most:
                break
            name, data = found.groups()
            data = replace_lone_surrogates(data)
            items.append(ServerSentEvent(data, name.decode() if name else "message", self._id))
            at = found.end()
        return chunk[at:] if at else chunk

    def _split_lines(self, chunk: bytes) -> list[bytes]:
        """Return the lines that end in ``chunk``; the rest stays in ``_partial_line``."""
        if not self._bom_checked:
            chunk = self._strip_bom(chunk)
        if self._after_cr and chunk.startswith(b"\n"):
            self._after_cr = False
            chunk = chunk[1:]
        if not chunk:
            return []
        lines = chunk.splitlines()  # of bytes: at LF, CR and CRLF only
        last = chunk[-1]
        rest = b"" if last in b"\r\n" else lines.pop()
        self._after_cr = last == 0x0D
        if lines and self._partial_line:
            lines[0] = bytes(self._partial_line + lines[0])
            self._partial_line.clear()
        self._partial_line += rest
        return lines

    def _strip_bom(self, chunk: bytes) -> bytes:
        """Remove a byte order mark at the start of the stream, also if it arrives in pieces."""
        start = bytes(self._partial_line) + chunk
        self._partial_line.clear()
        if len(start) < len(BOM) and BOM.startswith(start):
            self._partial_line += start
            return b""
        self._bom_checked = True
        return start.removeprefix(BOM)

    def _read_lines(self, lines: list[bytes], items: list[ServerSentEvent]) -> None:
        for line in lines:
            if line.startswith(b"data: "):
                self._add_data(line, line[6:])
            elif line:
                self._read_field(line)
            else:
                if self._data:
                    data = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
                    items.append(ServerSentEvent(replace_lone_surrogates(data), self._event or "message", self._id))
                    self._data, self._data_bytes = [], 0
                self._event, self._in_event = "", False

    def _add_data(self, line: bytes, value: bytes) -> None:
        if self._has_unknown_lines and self._strict:
            raise self._garbled_error()
        self._is_event_stream = True
        self._has_unknown_lines = False
        self._in_event = True
        self._data_bytes += len(line)
        if self._data_bytes > self.limits.event_bytes:
            raise self._too_large_error()
        self._data.append(value)

    def _read_field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        if value.startswith(b" "):
            value = value[1:]
        if name == b"data":
            self._add_data(line, value)
            return
        if self._strict and self._is_event_stream and (name not in FIELD_NAMES or (name == b"event" and b"{" in value)):
            raise self._garbled_error()
        self._is_event_stream = self._is_event_stream or name in FIELD_NAMES
        self._has_unknown_lines = not self._is_event_stream
        if len(line) > self.limits.event_bytes:
            raise self._too_large_error()
        if name:
            self._in_event = True
        if name == b"event":
            self._event = self._decode_field("name", value)
        elif name == b"id" and b"\0" not in value:
            self._id = self._decode_field("id", value)
        elif name == b"retry" and value.isdigit() and len(value) < 10:
            self.retry = int(value)

    def _decode_field(self, field: str, value: bytes) -> str:
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise self.make_error(f"the {field} of an event is not UTF-8: {value[:EXCERPT_CHARACTERS]!r}") from None

    def _garbled_error(self) -> StreamCut:
        return self.make_error("the stream is garbled: one of its lines is not a line of an event stream")

    def _too_large_error(self) -> StreamCut:
        return self.make_error(f"an event of the stream is larger than the {self.limits.event_bytes} bytes it may have")


async def read_events(
    chunks: AsyncIterator[bytes],
    *,
    first: bytes = b"",
    limits: StreamLimits = StreamLimits(),
    clock: Callable[[], float] = time.monotonic,
    strict: bool = False,
) -> AsyncGenerator[ServerSentEvent]:
    """Yield the events of a stream and close ``chunks`` at its end; to be closed with ``aclosing``.

    ``first`` are bytes of the stream that were read before.

    Raises ``StreamCut`` when the stream is cut inside an event, is not an event stream, or exceeds a limit. The caller
    checks whether the last event ends an answer.
    """
    parser = SSEParser(limits, strict=strict)
    idle_timeout = _IdleTimeout(parser)
    deadline, chunk = clock() + limits.total_seconds, first
    try:
        while True:
            if chunk:
                for item in parser.feed(chunk):
                    yield item
                if parser.failure is not None:
                    raise parser.failure
            with idle_timeout.limit_wait(deadline - clock()):
                try:
                    chunk = await anext(chunks)
                except StopAsyncIteration:
                    break
        parser.end()
    finally:
        idle_timeout.close()
        close = getattr(chunks, "aclose", None)
        if close is not None:
            await close()


class _IdleTimeout:
    """Limits each wait for bytes as ``asyncio.timeout`` does, with one timer for all waits of a stream.

    A timer per wait would cost more than parsing the events that arrive. Outside a wait the task is not cancelled, so
    that an event may be yielded while the timer runs.
    """

    def __init__(self, parser: SSEParser) -> None:
        self._parser = parser
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = math.inf
        self._deadline = math.inf
        self._task: asyncio.Task[Any] | None = None  # the waiting task
        self._cancelling = 0
        self._total_limit_first = False  # less time is left than the idle limit
        self._has_expired = False

    def limit_wait(self, seconds_left: float) -> "_IdleTimeout":
        """Return this as the context of one wait, limited by the idle time and by ``seconds_left``."""
        idle = self._parser.limits.idle_seconds
        self._total_limit_first = seconds_left < idle
        if seconds_left <= 0:
            raise self._timeout_error()
        self._deadline = self._loop.time() + (seconds_left if self._total_limit_first else idle)
        return self

    def __enter__(self) -> None:
        self._task = task = asyncio.current_task()
        self._cancelling = task.cancelling() if task else 0
        if self._deadline < self._timer_due:
            self._schedule()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        task, self._task = self._task, None
        if self._has_expired and task:
            self._has_expired = False
            # another cancellation of the task takes precedence
            if task.uncancel() <= self._cancelling and isinstance(error, asyncio.CancelledError):
                raise self._timeout_error() from None

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _schedule(self) -> None:
        self.close()
        self._timer_due = self._deadline
        self._timer = self._loop.call_at(self._timer_due, self._on_timer)

    def _on_timer(self) -> None:
        self._timer_due = math.inf
        if self._task is None:
            return
        if self._loop.time() < self._deadline:  # bytes have arrived since it was scheduled
            self._schedule()
        else:
            self._has_expired = True
            self._task.cancel()

    def _timeout_error(self) -> StreamCut:
        limits = self._parser.limits
        message = f"the model sent nothing for {limits.idle_seconds:g} seconds"
        if self._total_limit_first:
            message = f"the model's answer took longer than the {limits.total_seconds:g} seconds it may"
        return self._parser.make_error(message)


def replace_lone_surrogates(data: bytes) -> bytes:
    """Return JSON with U+FFFD in place of escapes of half a surrogate pair, which are not text."""
    return _ESCAPE.sub(_replace_surrogate, data) if b"\\ud" in data or b"\\uD" in data else data


def _replace_surrogate(escape: re.Match[bytes]) -> bytes:
    return b"\\ufffd" if escape["lone"] else escape[0]


def describe_body(body: bytes) -> str:
    """Return the kind of a body that is not an event stream, and its beginning with likely secrets redacted."""
    body = body[:HEAD_BYTES].removeprefix(BOM).strip()
    if not body:
        return "an empty body"
    if body.startswith(b"\x1f\x8b"):
        return "gzip data that was not unpacked"
    text = body.decode(errors="replace")
    if "\0" in text or text.count("\ufffd") > 4 + len(text) // 16:  # fewer may be text in another encoding
        return "binary data"
    kind = next((kind for start, kind in _BODY_KINDS if text.startswith(start)), "plain text")
    return f"{kind}: {_redacted_excerpt(text)!r}"


def redact_secrets(text: str) -> str:
    """Return ``text`` without labelled secrets; other long words, such as names of models, stay."""
    return _LABELLED_SECRET.sub("[redacted]", text)


def _redacted_excerpt(text: str) -> str:
    text = " ".join(text.split())
    end = EXCERPT_CHARACTERS
    for secret in _LIKELY_SECRET.finditer(text):
        if secret.start() < end < secret.end():
            end = secret.end()  # the first half of a secret would not be recognized
    excerpt = _LIKELY_SECRET.sub("[redacted]", text[:end])
    return excerpt if len(text) <= end else f"{excerpt}…"


def _may_be_field(line: bytes) -> bool:
    """Whether an unfinished line can become a line of an event stream."""
    name, colon, _ = line.partition(b":")
    return name in FIELD_NAMES if colon else any(field.startswith(name) for field in FIELD_NAMES)
