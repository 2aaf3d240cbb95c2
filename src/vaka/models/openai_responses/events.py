"""Decode the event stream of OpenAI Responses into chunks. Pure.

The stream repeats its content (delta, part, item, response); each text is emitted once, and a contradiction raises
StreamCut.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, TypeAlias, TypeVar

import msgspec

from vaka.core.ports.model import CallChunk, Chunk, CitationChunk, ReasoningChunk, StopChunk, TextChunk, UsageChunk
from vaka.core.types.errors import StreamCut
from vaka.core.types.message import Citation, Usage
from vaka.models.compatibility import DECODE_ERRORS, as_object, count_of, unused_name
from vaka.models.transport import errors

WIRE = "responses"
"""The key of this provider's items in ``opaque``."""

_EMPTY = msgspec.Raw()
_T = TypeVar("_T")


class ResponsesEvent(msgspec.Struct, gc=False):
    """Any event; which of the fields it has depends on its type."""

    type: str = ""
    delta: str | None = None
    output_index: int | None = None
    content_index: int | None = None
    summary_index: int | None = None
    item_id: str | None = None
    text: str | None = None
    refusal: str | None = None
    arguments: str | None = None
    name: str | None = None
    item: msgspec.Raw = _EMPTY
    part: msgspec.Raw = _EMPTY
    annotation: msgspec.Raw = _EMPTY
    response: msgspec.Raw = _EMPTY
    error: msgspec.Raw = _EMPTY


class ItemHeader(msgspec.Struct):
    """The fields that every item has."""

    type: str = ""
    id: str | None = None
    status: str | None = None
    phase: str | None = None


class ItemPart(msgspec.Struct):
    """A part of a message or of reasoning."""

    type: str = ""
    text: str | None = None
    refusal: str | None = None
    annotations: list[msgspec.Raw] | None = None


class ItemBody(msgspec.Struct):
    """The fields of a message, of reasoning and of a call."""

    content: list[ItemPart] | None = None
    summary: list[ItemPart] | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: Any = None


class ResponseBody(msgspec.Struct):
    """The complete answer, as the last event repeats it."""

    status: str | None = None
    model: str | None = None
    usage: Any = None
    output: list[msgspec.Raw] | None = None
    incomplete_details: Any = None
    error: Any = None

    @property
    def token_usage(self) -> Usage:
        count = partial(count_of, self.usage)
        return Usage(
            input=count("input_tokens"),
            output=count("output_tokens"),
            cache_read=count("input_tokens_details", "cached_tokens"),
            cache_write=count("input_tokens_details", "cache_write_tokens"),
            reasoning=count("output_tokens_details", "reasoning_tokens"),
        )


_EVENT_DECODER = msgspec.json.Decoder(ResponsesEvent)


def decode_event(data: bytes, name: str, known: frozenset[str]) -> ResponsesEvent | None:
    """Return an event; ``None`` for an invalid one of a type that is not ``known``, which would be ignored anyway."""
    if data == b"[DONE]":
        raise StreamCut("the answer was cut: the stream ended before response.completed")
    try:
        return _EVENT_DECODER.decode(data)
    except msgspec.ValidationError as error:
        kind: object = decode_part(data, dict[str, object]).get("type") or name
        if not isinstance(kind, str) or kind in known:
            raise garbled_error(f"an event {kind} cannot be read: {error}") from error
        return None
    except DECODE_ERRORS as error:
        raise garbled_error(f"an event cannot be read: {error}") from error


def decode_part(raw: bytes | msgspec.Raw, kind: type[_T]) -> _T:
    """Return a part of an event. Raises ``StreamCut`` when it is malformed."""
    try:
        return msgspec.json.decode(raw, type=kind)
    except DECODE_ERRORS as error:
        raise garbled_error(f"a part of an event cannot be read: {error}") from error


def decode_object(raw: bytes | msgspec.Raw) -> dict[str, Any]:
    """Return an object with all its fields; an empty one for anything else."""
    return as_object(decode_part(raw, object))


def garbled_error(message: str) -> StreamCut:
    """Return the error for a stream that contradicts itself."""
    return StreamCut(f"the answer was garbled: {message}")


def is_same_json(one: str, other: str) -> bool:
    """Whether two texts are the same JSON: a server may format it differently when it repeats it."""
    try:
        return bool(msgspec.json.decode(one) == msgspec.json.decode(other))
    except (*DECODE_ERRORS, UnicodeEncodeError):
        return False


_PartKey: TypeAlias = tuple[str, int]
_ARGUMENTS_KEY: _PartKey = ("arguments", 0)
_TEXT_DELTA = "response.output_text.delta"


class _ItemState:
    """An item of the answer, as far as it was emitted."""

    def __init__(self, kind: str, call_number: int) -> None:
        self.kind, self.call_number = kind, call_number
        self.is_announced = False  # the server sent the item itself, not only deltas for it
        self.closed = False  # all of it was emitted
        self.incomplete = False  # the server marked it as incomplete
        self.emitted_texts: dict[_PartKey, list[str]] = {}
        self.citation_counts: dict[int, int] = {}
        self.phase = ""  # of a message
        self.name = self.id = ""  # of a call
        self.call_emitted = self.arguments_complete = False

    def append_text(self, key: _PartKey, text: str) -> None:
        self.emitted_texts.setdefault(key, []).append(text)

    def take_remaining(self, key: _PartKey, text: str) -> str | None:
        """Return what was not emitted yet of a part whose complete ``text`` is known; ``None`` if it contradicts."""
        emitted = "".join(self.emitted_texts.get(key, ()))
        if not text.startswith(emitted):
            return "" if not text or text.strip() == emitted.strip() else None
        self.emitted_texts[key] = [text]
        return text[len(emitted) :]

    def separator_before(self, key: _PartKey) -> str:
        """Return the separator between one part of reasoning and the next."""
        return "\n\n" if self.emitted_texts and key not in self.emitted_texts else ""


class ResponsesStreamDecoder:
    """Decodes one answer; it is ``done`` when the answer is complete.

    With ``limit`` an answer of that many tokens counts as cut at its length limit, which some servers do not report.
    """

    def __init__(self, limit: int | None = None, name: str = "the model") -> None:
        self.done = False
        self._limit, self._name = limit, name
        self._items: dict[int, _ItemState] = {}
        self._ids: dict[str, int] = {}
        self._last_index = 0
        self._calls: list[_ItemState] = []
        self._refused = False
        self._handlers: dict[str, Callable[[ResponsesEvent], Iterable[Chunk]]] = {
            "response.output_item.added": self._item_added,
            "response.output_item.done": self._item_done,
            "response.output_text.done": self._text_done,
            "response.output_text.annotation.added": self._annotation_added,
            "response.content_part.done": self._part_done,
            "response.refusal.delta": self._refusal_delta,
            "response.refusal.done": self._refusal_done,
            "response.function_call_arguments.delta": self._arguments_delta,
            "response.function_call_arguments.done": self._arguments_done,
            "response.reasoning_summary_text.delta": self._thinking_delta,
            "response.reasoning_summary_text.done": self._thinking_done,
            "response.reasoning_text.delta": self._thinking_delta,
            "response.reasoning_text.done": self._thinking_done,
            "response.completed": self._finish,
            "response.incomplete": self._finish,
            "response.failed": self._finish,
        }
        self._known_events = frozenset({*self._handlers, _TEXT_DELTA, "error"})

    def feed(self, data: bytes, name: str = "") -> Iterable[Chunk]:
        """Return the chunks of one event, to be drained before the next. Raises ``ModelError`` for an invalid one."""
        event = decode_event(data, name, self._known_events)
        if event is None:
            return ()
        if event.type == _TEXT_DELTA:
            delta = event.delta or ""
            self._item_of(event, "message").append_text(("text", event.content_index or 0), delta)
            return (TextChunk(delta),)
        handler = self._handlers.get(event.type or name)
        if handler is not None:
            return handler(event)
        if event.type == "error" or (not event.type and (name == "error" or event.error)):
            fields = decode_object(data)
            reported = {name: fields[name] for name in ("code", "message") if name in fields}
            raise errors.error_from_event(fields.get("error") or reported)
        return ()

    def end(self) -> Iterable[Chunk]:
        """Raise ``StreamCut``: the stream ended before its last event."""
        raise StreamCut(f"the answer of {self._name} was cut: the stream ended before response.completed")

    # Which item an event is about

    def _item_of(self, event: ResponsesEvent, kind: str) -> _ItemState:
        """Return the item that an event belongs to: by its index, its id, or the latest one."""
        index, known = event.output_index, self._ids.get(event.item_id or "")
        if index is None:
            index = self._last_index if known is None else known
        elif known is not None and known != index:
            raise garbled_error(f"{event.type} came for {event.item_id!r} with another index")
        item = self._items.get(index)
        if item is None:
            return self._add_item(index, kind)
        if item.kind != kind:
            raise garbled_error(f"{event.type} came for a {item.kind!r}")
        return item

    def _add_item(self, index: int, kind: str) -> _ItemState:
        item = self._items[index] = _ItemState(kind, len(self._calls))
        if kind == "function_call":
            self._calls.append(item)
        self._last_index = index
        return item

    def _locate_item(self, index: int | None, head: ItemHeader, excluded: set[int]) -> _ItemState:
        """Return the item of a header: by its index, its id, or the first of its type that is not ``excluded``.

        Some servers send no index, some send another id each time they name an item.
        """
        known = self._ids.get(head.id or "")
        if index is None:
            index = known
        elif known is not None and known != index:
            raise garbled_error(f"{head.id!r} has two indexes")
        if index is None:
            candidates = (at for at, item in self._items.items() if item.kind == head.type and at not in excluded)
            index = next(candidates, max(self._items, default=-1) + 1)
        item = self._items.get(index) or self._add_item(index, head.type)
        if item.kind != head.type:
            raise garbled_error(f"a {item.kind!r} became a {head.type!r}")
        excluded.add(index)
        if head.id:
            self._ids[head.id] = index
        self._last_index, item.is_announced = index, True
        return item

    # Items

    def _item_added(self, event: ResponsesEvent) -> Iterator[Chunk]:
        head = decode_part(event.item, ItemHeader)
        announced = {at for at, item in self._items.items() if item.is_announced}
        item = self._locate_item(event.output_index, head, announced)
        if head.type == "function_call":
            yield from self._update_call(item, decode_part(event.item, ItemBody))
        elif head.type == "message":
            yield from self._emit_phase(item, head)

    def _item_done(self, event: ResponsesEvent) -> Iterator[Chunk]:
        head = decode_part(event.item, ItemHeader)
        closed = {at for at, item in self._items.items() if item.closed}
        yield from self._close_item(self._locate_item(event.output_index, head, closed), head, event.item)

    def _close_item(self, item: _ItemState, head: ItemHeader, raw: msgspec.Raw) -> Iterator[Chunk]:
        """Emit the rest of an item that is complete."""
        item.incomplete = item.incomplete or head.status == "incomplete"
        if head.type == "message":
            yield from self._close_message(item, head, raw)
        elif head.type == "function_call":
            yield from self._update_call(item, decode_part(raw, ItemBody), whole=True)
        elif not item.closed:
            if head.type == "reasoning":
                yield from self._emit_reasoning_item(item, decode_part(raw, ItemBody))
            yield ReasoningChunk(opaque={WIRE: decode_object(raw)})
        item.closed = True

    # Text

    def _close_message(self, item: _ItemState, head: ItemHeader, raw: msgspec.Raw) -> Iterator[Chunk]:
        yield from self._emit_phase(item, head)
        parts = decode_part(raw, ItemBody).content or []
        if parts and any(at >= len(parts) for _, at in item.emitted_texts):
            raise garbled_error("text came for a part that its message does not have")
        for at, part in enumerate(parts):
            yield from self._emit_part(item, at, part)

    def _emit_phase(self, item: _ItemState, head: ItemHeader) -> Iterator[Chunk]:
        """Emit the phase of a message before its text: it has to be sent back with it."""
        if head.phase and not item.phase and not item.emitted_texts:
            item.phase = head.phase
            yield ReasoningChunk(opaque={WIRE: {"type": "message", "phase": head.phase}})

    def _part_done(self, event: ResponsesEvent) -> Iterator[Chunk]:
        part, at = decode_part(event.part, ItemPart), event.content_index or 0
        if part.type == "reasoning_text":
            yield from self._emit_remaining_reasoning(self._item_of(event, "reasoning"), ("content", at), part.text)
        else:
            yield from self._emit_part(self._item_of(event, "message"), at, part)

    def _emit_part(self, item: _ItemState, at: int, part: ItemPart) -> Iterator[Chunk]:
        if part.type == "refusal":
            self._refused = True
            yield from self._emit_remaining_text(item, ("refusal", at), part.refusal)
            return
        yield from self._emit_remaining_text(item, ("text", at), part.text)
        for annotation in (part.annotations or [])[item.citation_counts.get(at, 0) :]:
            yield from self._emit_citation(item, at, annotation)

    def _text_done(self, event: ResponsesEvent) -> Iterator[Chunk]:
        key = ("text", event.content_index or 0)
        yield from self._emit_remaining_text(self._item_of(event, "message"), key, event.text)

    def _refusal_delta(self, event: ResponsesEvent) -> Iterator[Chunk]:
        self._refused = True
        self._item_of(event, "message").append_text(("refusal", event.content_index or 0), event.delta or "")
        yield TextChunk(event.delta or "")

    def _refusal_done(self, event: ResponsesEvent) -> Iterator[Chunk]:
        self._refused = True
        key = ("refusal", event.content_index or 0)
        yield from self._emit_remaining_text(self._item_of(event, "message"), key, event.refusal)

    def _emit_remaining_text(self, item: _ItemState, key: _PartKey, whole: str | None) -> Iterator[Chunk]:
        rest = item.take_remaining(key, whole or "")
        if rest is None:
            raise garbled_error("the deltas of a text differ from the complete text")
        if rest:
            yield TextChunk(rest)

    def _annotation_added(self, event: ResponsesEvent) -> Iterator[Chunk]:
        yield from self._emit_citation(self._item_of(event, "message"), event.content_index or 0, event.annotation)

    def _emit_citation(self, item: _ItemState, at: int, raw: msgspec.Raw) -> Iterator[Chunk]:
        item.citation_counts[at] = item.citation_counts.get(at, 0) + 1
        source = decode_object(raw)
        if source:
            title = str(source.get("title") or source.get("filename") or "")
            yield CitationChunk(Citation(url=str(source.get("url") or ""), title=title, opaque={WIRE: source}))

    # Reasoning

    def _thinking_delta(self, event: ResponsesEvent) -> Iterator[Chunk]:
        item, key = self._item_of(event, "reasoning"), _reasoning_key(event)
        yield ReasoningChunk(item.separator_before(key) + (event.delta or ""))
        item.append_text(key, event.delta or "")

    def _thinking_done(self, event: ResponsesEvent) -> Iterator[Chunk]:
        yield from self._emit_remaining_reasoning(self._item_of(event, "reasoning"), _reasoning_key(event), event.text)

    def _emit_reasoning_item(self, item: _ItemState, thought: ItemBody) -> Iterator[Chunk]:
        for field, parts in (("summary", thought.summary), ("content", thought.content)):
            for at, part in enumerate(parts or []):
                yield from self._emit_remaining_reasoning(item, (field, at), part.text)

    def _emit_remaining_reasoning(self, item: _ItemState, key: _PartKey, whole: str | None) -> Iterator[Chunk]:
        lead = item.separator_before(key)
        rest = item.take_remaining(key, whole) if whole else ""
        if rest:  # a contradiction is harmless: the item itself is sent back unchanged
            yield ReasoningChunk(lead + rest)

    # Calls

    def _update_call(self, item: _ItemState, call: ItemBody, *, whole: bool = False) -> Iterator[Chunk]:
        item.id, arguments = item.id or call.call_id or "", call.arguments
        if arguments is not None and not isinstance(arguments, str):  # some servers send an object
            arguments = msgspec.json.encode(arguments).decode()
        yield from self._emit_call(item, call.name, arguments)
        item.arguments_complete = item.arguments_complete or whole
        if whole and not item.name:
            raise garbled_error("a call names no tool")

    def _arguments_delta(self, event: ResponsesEvent) -> Iterator[Chunk]:
        item, delta = self._item_of(event, "function_call"), event.delta or ""
        item.append_text(_ARGUMENTS_KEY, delta)
        if item.call_emitted:
            yield CallChunk(item.call_number, arguments=delta)

    def _arguments_done(self, event: ResponsesEvent) -> Iterator[Chunk]:
        item = self._item_of(event, "function_call")
        yield from self._emit_call(item, event.name, event.arguments)
        item.arguments_complete = item.arguments_complete or event.arguments is not None

    def _emit_call(self, item: _ItemState, name: str | None, arguments: str | None) -> Iterator[Chunk]:
        """Emit a call as far as it is known, from its name on."""
        if name and item.name and name != item.name:
            raise garbled_error(f"a call of {item.name!r} became one of {name!r}")
        item.name = item.name or name or ""
        rest = "" if arguments is None else item.take_remaining(_ARGUMENTS_KEY, arguments)
        known = "".join(item.emitted_texts.get(_ARGUMENTS_KEY, ()))
        if rest is None and not is_same_json(known, arguments or ""):
            raise garbled_error(f"the deltas of the arguments for {item.name!r} differ from the complete arguments")
        if not item.call_emitted and item.name:
            taken = {other.id for other in self._calls if other is not item}
            item.id, item.call_emitted = unused_name(item.id or f"call_{item.call_number + 1}", taken), True
            yield CallChunk(item.call_number, item.name, known, item.id)
        elif item.call_emitted and rest:
            yield CallChunk(item.call_number, arguments=rest)

    # The end

    def _finish(self, event: ResponsesEvent) -> Iterator[Chunk]:
        response = decode_part(event.response, ResponseBody) if event.response else ResponseBody()
        yield UsageChunk(response.token_usage, response.model or "")
        if event.type == "response.failed" or response.status == "failed" or response.error:
            raise errors.error_from_event(response.error)
        closed: set[int] = set()
        for raw in response.output or []:
            head = decode_part(raw, ItemHeader)
            yield from self._close_item(self._locate_item(None, head, closed), head, raw)
        complete = event.type == "response.completed" and response.status != "incomplete"
        self._check_items(complete=complete)
        reason = as_object(response.incomplete_details).get("reason")
        self.done = True
        yield StopChunk(self._stop_reason(response.token_usage) if complete else self._incomplete_reason(reason))

    def _check_items(self, *, complete: bool) -> None:
        items = self._items.values()
        unannounced = any(item.emitted_texts and not item.is_announced for item in items)
        if unannounced and any(item.is_announced for item in items):
            raise garbled_error("text came for an item that the answer does not have")
        if complete and not all(call.arguments_complete and call.call_emitted for call in self._calls):
            raise garbled_error("a call began and never ended")

    def _stop_reason(self, usage: Usage) -> str:
        if self._refused:
            return "refusal"
        if any(call.incomplete for call in self._calls) or (self._limit is not None and usage.output >= self._limit):
            return "length"
        return "calls" if self._calls else "end"

    def _incomplete_reason(self, reason: object) -> str:
        if reason == "content_filter" or self._refused:
            return "refusal"
        return "length" if reason == "max_output_tokens" or self._calls else str(reason or "incomplete")


def _reasoning_key(event: ResponsesEvent) -> _PartKey:
    is_summary = "summary" in event.type
    return ("summary", event.summary_index or 0) if is_summary else ("content", event.content_index or 0)
