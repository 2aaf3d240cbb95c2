"""What OpenAI's Responses API streams, as chunks. Pure.

Everything comes several times: in deltas, when a part is done, when its item is done, and in the whole response at the
end. What was not told yet is told then, never twice; where one contradicts another, an event was lost or garbled.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias, cast

import msgspec

from vaka.core.ports.model import CallChunk, Chunk, CitationChunk, ReasoningChunk, StopChunk, TextChunk, UsageChunk
from vaka.core.types.content import Citation
from vaka.core.types.usage import Usage
from vaka.models import faults
from vaka.models.openai_responses_request import WIRE
from vaka.models.openai_responses_wire import (
    Call,
    Event,
    Head,
    Message,
    Part,
    Response,
    Thought,
    decode,
    failure,
    garbled,
    plain,
    read,
    same,
)

_Key: TypeAlias = tuple[str, int]
_ARGUMENTS: _Key = ("arguments", 0)
_TEXT = "response.output_text.delta"


class _Item:
    """An item of the answer, as far as it was told."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.known = False  # announced by the server, not only spoken of
        self.closed = False  # everything of it was told
        self.partial = False  # the server says that it is not whole
        self.told: dict[_Key, list[str]] = {}
        self.cited: dict[int, int] = {}
        self.phase = ""  # of a message
        self.number = -1  # of a call: which of the calls it is
        self.name = self.id = ""
        self.shown = self.finished = False

    def add(self, key: _Key, text: str) -> None:
        """Remember what was told of a part."""
        pieces = self.told.get(key)
        if pieces is None:
            self.told[key] = [text]
        else:
            pieces.append(text)

    def rest(self, key: _Key, whole: str) -> str | None:
        """Return what was not told yet of a part that is ``whole`` now; ``None`` if something else was told."""
        told = "".join(self.told.get(key, ()))
        if not whole.startswith(told):
            return "" if not whole or whole.strip() == told.strip() else None
        self.told[key] = [whole]
        return whole[len(told) :]

    def lead(self, key: _Key) -> str:
        """Return what stands between one part of reasoning and the next."""
        return "\n\n" if self.told and key not in self.told else ""


class Reader:
    """The events of one answer go in, chunks come out; ``done`` when the answer is whole.

    With ``limit`` an answer of that many tokens counts as one that reached its length limit, whatever the server says.
    """

    def __init__(self, limit: int | None = None) -> None:
        self.done = False
        self._limit = limit
        self._items: dict[int, _Item] = {}
        self._ids: dict[str, int] = {}
        self._last = 0
        self._calls: list[_Item] = []
        self._refused = False
        self._acts: dict[str, Callable[[Event], Iterable[Chunk]]] = {
            "response.output_item.added": self._added,
            "response.output_item.done": self._item_done,
            "response.output_text.done": self._text_done,
            "response.output_text.annotation.added": self._annotated,
            "response.content_part.done": self._part_done,
            "response.refusal.delta": self._refusal_delta,
            "response.refusal.done": self._refusal_done,
            "response.function_call_arguments.delta": self._arguments_delta,
            "response.function_call_arguments.done": self._arguments_done,
            "response.reasoning_summary_text.delta": self._thinking_delta,
            "response.reasoning_summary_text.done": self._thinking_done,
            "response.reasoning_text.delta": self._thinking_delta,
            "response.reasoning_text.done": self._thinking_done,
            "response.completed": self._end,
            "response.incomplete": self._end,
            "response.failed": self._end,
        }
        self._known = frozenset({*self._acts, _TEXT, "error"})

    def feed(self, data: bytes, name: str = "") -> Iterable[Chunk]:
        """Return the chunks of one event, to be drained before the next. Raises ``ModelError`` for what is none."""
        event = read(data, name, self._known)
        if event is None:
            return ()
        if event.type == _TEXT:
            delta = event.delta or ""
            self._at(event, "message").add(("text", event.content_index or 0), delta)
            return (TextChunk(delta),)
        act = self._acts.get(event.type or name)
        if act is not None:
            return act(event)
        if event.type == "error" or (not event.type and (name == "error" or event.error)):
            raise failure(data)
        return ()

    # Which item an event is about

    def _at(self, event: Event, kind: str) -> _Item:
        """Return the item that an event speaks of: by its place, its id, or the latest one."""
        index, known = event.output_index, self._ids.get(event.item_id or "")
        if index is None:
            index = self._last if known is None else known
        elif known is not None and known != index:
            raise garbled(f"{event.type} came for {event.item_id!r} in another place")
        item = self._items.get(index)
        if item is None:
            return self._new(index, kind)
        if item.kind != kind:
            raise garbled(f"{event.type} came for a {item.kind!r}")
        return item

    def _new(self, index: int, kind: str) -> _Item:
        item = self._items[index] = _Item(kind)
        self._last = index
        return item

    def _place(self, index: int | None, head: Head, but: set[int]) -> _Item:
        """Return the item that is announced: by its place, its id, or the first of its kind that is not in ``but``.

        Some servers give no place, some give an item another id each time they name it.
        """
        known = self._ids.get(head.id or "")
        if index is None:
            index = known
        elif known is not None and known != index:
            raise garbled(f"{head.id!r} stands in two places")
        if index is None:
            alike = (at for at, item in self._items.items() if item.kind == head.type and at not in but)
            index = next(alike, max(self._items, default=-1) + 1)
        item = self._items.get(index) or self._new(index, head.type)
        if item.kind != head.type:
            raise garbled(f"a {item.kind!r} became a {head.type!r}")
        but.add(index)
        if head.id:
            self._ids[head.id] = index
        self._last, item.known = index, True
        return item

    # Items

    def _added(self, event: Event) -> Iterator[Chunk]:
        head = decode(event.item, Head)
        item = self._place(event.output_index, head, {at for at, item in self._items.items() if item.known})
        if head.type == "function_call":
            yield from self._call(item, decode(event.item, Call))
        elif head.type == "message":
            yield from self._phase(item, head)

    def _item_done(self, event: Event) -> Iterator[Chunk]:
        head = decode(event.item, Head)
        closed = {at for at, item in self._items.items() if item.closed}
        yield from self._close(self._place(event.output_index, head, closed), head, event.item)

    def _close(self, item: _Item, head: Head, raw: msgspec.Raw) -> Iterator[Chunk]:
        """Tell what was not told yet of an item that is whole now."""
        item.partial = item.partial or head.status == "incomplete"
        if head.type == "message":
            yield from self._message(item, head, raw)
        elif head.type == "function_call":
            yield from self._call(item, decode(raw, Call), whole=True)
        elif not item.closed:
            if head.type == "reasoning":
                yield from self._thought(item, decode(raw, Thought))
            yield ReasoningChunk(opaque=cast("Any", {WIRE: plain(raw)}))
        item.closed = True

    # Words

    def _message(self, item: _Item, head: Head, raw: msgspec.Raw) -> Iterator[Chunk]:
        yield from self._phase(item, head)
        parts = decode(raw, Message).content or []
        if parts and any(at >= len(parts) for _, at in item.told):
            raise garbled("words came for a part of a message that it does not have")
        for at, part in enumerate(parts):
            yield from self._part(item, at, part)

    def _phase(self, item: _Item, head: Head) -> Iterator[Chunk]:
        """A message that has a phase is to be sent back with it, so the phase stands before the words."""
        if head.phase and not item.phase and not item.told:
            item.phase = head.phase
            yield ReasoningChunk(opaque={WIRE: {"type": "message", "phase": head.phase}})

    def _part_done(self, event: Event) -> Iterator[Chunk]:
        part, at = decode(event.part, Part), event.content_index or 0
        if part.type == "reasoning_text":
            yield from self._thinking(self._at(event, "reasoning"), ("content", at), part.text)
        else:
            yield from self._part(self._at(event, "message"), at, part)

    def _part(self, item: _Item, at: int, part: Part) -> Iterator[Chunk]:
        if part.type == "refusal":
            self._refused = True
            yield from self._words(item, ("refusal", at), part.refusal)
            return
        yield from self._words(item, ("text", at), part.text)
        for annotation in (part.annotations or [])[item.cited.get(at, 0) :]:
            yield from self._cite(item, at, annotation)

    def _text_done(self, event: Event) -> Iterator[Chunk]:
        yield from self._words(self._at(event, "message"), ("text", event.content_index or 0), event.text)

    def _refusal_delta(self, event: Event) -> Iterator[Chunk]:
        self._refused = True
        self._at(event, "message").add(("refusal", event.content_index or 0), event.delta or "")
        yield TextChunk(event.delta or "")

    def _refusal_done(self, event: Event) -> Iterator[Chunk]:
        self._refused = True
        yield from self._words(self._at(event, "message"), ("refusal", event.content_index or 0), event.refusal)

    def _words(self, item: _Item, key: _Key, whole: str | None) -> Iterator[Chunk]:
        rest = item.rest(key, whole or "")
        if rest is None:
            raise garbled("the words that came are not those that the model ended with")
        if rest:
            yield TextChunk(rest)

    def _annotated(self, event: Event) -> Iterator[Chunk]:
        yield from self._cite(self._at(event, "message"), event.content_index or 0, event.annotation)

    def _cite(self, item: _Item, at: int, raw: msgspec.Raw) -> Iterator[Chunk]:
        item.cited[at] = item.cited.get(at, 0) + 1
        found = plain(raw)
        if found:
            title = str(found.get("title") or found.get("filename") or "")
            yield CitationChunk(
                Citation(url=str(found.get("url") or ""), title=title, opaque=cast("Any", {WIRE: found}))
            )

    # Reasoning

    def _thinking_delta(self, event: Event) -> Iterator[Chunk]:
        item, key = self._at(event, "reasoning"), _thought_key(event)
        yield ReasoningChunk(item.lead(key) + (event.delta or ""))
        item.add(key, event.delta or "")

    def _thinking_done(self, event: Event) -> Iterator[Chunk]:
        yield from self._thinking(self._at(event, "reasoning"), _thought_key(event), event.text)

    def _thought(self, item: _Item, thought: Thought) -> Iterator[Chunk]:
        for field, parts in (("summary", thought.summary), ("content", thought.content)):
            for at, part in enumerate(parts or []):
                yield from self._thinking(item, (field, at), part.text)

    def _thinking(self, item: _Item, key: _Key, whole: str | None) -> Iterator[Chunk]:
        lead = item.lead(key)
        rest = item.rest(key, whole) if whole else ""
        if rest:  # other thoughts than were told are nobody's loss: the item itself is kept word for word
            yield ReasoningChunk(lead + rest)

    # Calls

    def _call(self, item: _Item, call: Call, *, whole: bool = False) -> Iterator[Chunk]:
        item.id = item.id or call.call_id or ""
        yield from self._tell(item, call.name, call.text)
        item.finished = item.finished or whole
        if whole and not item.name:
            raise garbled("a call names no tool")

    def _arguments_delta(self, event: Event) -> Iterator[Chunk]:
        item, delta = self._counted(self._at(event, "function_call")), event.delta or ""
        item.add(_ARGUMENTS, delta)
        if item.shown:
            yield CallChunk(item.number, arguments=delta)

    def _arguments_done(self, event: Event) -> Iterator[Chunk]:
        item = self._at(event, "function_call")
        yield from self._tell(item, event.name, event.arguments)
        item.finished = item.finished or event.arguments is not None

    def _tell(self, item: _Item, name: str | None, arguments: str | None) -> Iterator[Chunk]:
        """Tell a call as far as it is known; nothing of it before its name is."""
        self._counted(item)
        if name and item.name and name != item.name:
            raise garbled(f"a call of {item.name!r} became one of {name!r}")
        item.name = item.name or name or ""
        rest = "" if arguments is None else item.rest(_ARGUMENTS, arguments)
        told = "".join(item.told.get(_ARGUMENTS, ()))
        if rest is None and not same(told, arguments or ""):
            raise garbled(f"the arguments that came for {item.name!r} are not those that the model ended with")
        if not item.shown and item.name:
            item.id, item.shown = self._unique(item), True
            yield CallChunk(item.number, item.name, told, item.id)
        elif item.shown and rest:
            yield CallChunk(item.number, arguments=rest)

    def _counted(self, item: _Item) -> _Item:
        if item.number < 0:
            item.number = len(self._calls)
            self._calls.append(item)
        return item

    def _unique(self, item: _Item) -> str:
        taken = {other.id for other in self._calls if other is not item}
        wanted = item.id or f"call_{item.number + 1}"
        while wanted in taken:
            wanted += "_"
        return wanted

    # The end

    def _end(self, event: Event) -> Iterator[Chunk]:
        response = decode(event.response, Response) if event.response else Response()
        yield UsageChunk(response.cost, response.model or "")
        if event.type == "response.failed" or response.status == "failed" or response.error:
            raise faults.of_event(response.error)
        seen: set[int] = set()
        for raw in response.output or []:
            head = decode(raw, Head)
            yield from self._close(self._place(None, head, seen), head, raw)
        whole = event.type == "response.completed" and response.status != "incomplete"
        self._check(whole=whole)
        why = response.incomplete_details.reason if response.incomplete_details else None
        self.done = True
        yield StopChunk(self._reason(response.cost) if whole else self._unfinished(why))

    def _check(self, *, whole: bool) -> None:
        items = list(self._items.values())
        if any(item.known for item in items) and any(item.told and not item.known for item in items):
            raise garbled("words came for an item that the answer does not have")
        if whole and not all(call.finished and call.shown for call in self._calls):
            raise garbled("a call was begun and never finished")

    def _reason(self, cost: Usage) -> str:
        if self._refused:
            return "refusal"
        if any(call.partial for call in self._calls) or (self._limit is not None and cost.output >= self._limit):
            return "length"
        return "calls" if self._calls else "end"

    def _unfinished(self, why: str | None) -> str:
        if why == "content_filter" or self._refused:
            return "refusal"
        return "length" if why == "max_output_tokens" or self._calls else why or "incomplete"


def _thought_key(event: Event) -> _Key:
    if "summary" in event.type:
        return ("summary", event.summary_index or 0)
    return ("content", event.content_index or 0)
