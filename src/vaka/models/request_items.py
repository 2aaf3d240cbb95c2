"""The items of a request: each message is written and encoded once in a conversation, each list of tools once."""

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Generic, TypeAlias, TypeVar

import msgspec

from vaka.core.ports.model import Prompt
from vaka.core.types.errors import ModelError
from vaka.core.types.ids import CallId
from vaka.core.types.message import AssistantMessage, Message, ToolCall, ToolMessage
from vaka.core.types.tool import ToolSpec
from vaka.models.compatibility import CALL_ID_PATTERN, call_ids, choose_call_id
from vaka.models.prefixes import Comparison, PrefixMemo
from vaka.models.tool_lists import ToolListMemo

_T = TypeVar("_T")
_Mark: TypeAlias = tuple[int, _T | None, int]
"""How many items there are, the last one, and how many calls are known."""

MAX_PIECES = 32
"""Pieces of encoded items that are kept before they are joined."""

_ENCODER = msgspec.json.Encoder()


EncodedItems: TypeAlias = list[msgspec.Raw]
"""A list of a request body: each ``Raw`` has one or more items as JSON, with commas between them."""


def encode_body(body: dict[str, Any]) -> bytes:
    """Return a request body as JSON; the bytes of ``EncodedItems`` in it are copied once."""
    return _ENCODER.encode(body)


class LaterMessageMatters(Exception):
    """An earlier item depends on a later message, so that the whole conversation has to be written at once."""


class ItemFold(Generic[_T]):
    """Items that are written for one message after another; a message adds items or replaces the last one.

    With ``messages`` the ids of all their calls are known from the beginning; otherwise ``LaterMessageMatters`` is
    raised where that would make a difference.
    """

    def __init__(self, messages: Sequence[Message] | None = None, allowed: re.Pattern[str] = CALL_ID_PATTERN) -> None:
        self.items: list[_T] = []
        self.ids: dict[CallId, str] = {}
        """The ids of calls as they are sent."""
        self.knows_all = messages is not None
        self._allowed = allowed
        self._taken: set[str] = set()
        self._unknown: set[CallId] = set()
        """Calls that have a result, and are not known."""
        self._compacted: int = 0
        if messages is not None:
            self.ids = call_ids(messages, allowed)
            for message in messages:
                for call in message.calls if isinstance(message, AssistantMessage) else ():
                    self.learn_call(call)

    def write(self, message: Message) -> None:
        """Write the items of a message."""
        raise NotImplementedError

    def learn_call(self, call: ToolCall) -> None:
        """Handle a call before its message is written."""

    def forget_call(self, call: CallId) -> None:
        """Handle the rollback of a call."""

    def append(self, item: _T) -> None:
        """Add an item."""
        self.items.append(item)

    def replace_last(self, item: _T) -> None:
        """Replace the last item."""
        self.items[-1] = item

    def write_all(self, messages: Sequence[Message]) -> list[_T]:
        """Write all messages and return the items."""
        for message in messages:
            self.write(message)
        return self.items

    def add(self, message: Message) -> None:
        """Write the next message of a conversation whose later messages are not known."""
        if isinstance(message, AssistantMessage):
            for call in message.calls:
                self._add_call(call)
        elif isinstance(message, ToolMessage):
            self._unknown.update([result.call for result in message.results if result.call not in self.ids])
        self.write(message)

    def mark(self) -> _Mark[_T]:
        """Return a mark of the current state."""
        return self._compacted + len(self.items), self.items[-1] if self.items else None, len(self.ids)

    def rollback(self, mark: _Mark[_T]) -> None:
        """Return to the state of a mark."""
        count, last, calls = mark
        del self.items[count - self._compacted :]
        if last is not None and self.items[-1] is not last:
            self.replace_last(last)
        while len(self.ids) > calls:
            call, id = self.ids.popitem()
            self._taken.discard(id)
            self.forget_call(call)

    def settle(self, mark: _Mark[_T]) -> None:
        """Keep the items as they are."""

    def _add_call(self, call: ToolCall) -> None:
        id = choose_call_id(call, len(self.ids), self._taken, self._allowed)
        if call.id in self.ids or call.id in self._unknown or id in self._taken:
            raise LaterMessageMatters
        self.ids[call.id] = id
        self._taken.add(id)
        self.learn_call(call)


class RequestItems(ItemFold[dict[str, Any]]):
    """Items as they are sent. Those that can no longer change are kept encoded."""

    open_items = 1
    """How many items at the end may still change in a later request."""

    def __init__(self, messages: Sequence[Message] | None = None, allowed: re.Pattern[str] = CALL_ID_PATTERN) -> None:
        super().__init__(messages, allowed)
        self._closed: EncodedItems = []
        """Encoded items that can no longer change, with commas between them."""
        self._encoded: list[bytes] = []
        """The first of the items, encoded."""

    def replace_last(self, item: dict[str, Any]) -> None:
        """Replace the last item."""
        del self._encoded[len(self.items) - 1 :]
        super().replace_last(item)

    def rollback(self, mark: _Mark[dict[str, Any]]) -> None:
        """Return to the state of a mark."""
        del self._encoded[mark[0] - self._compacted :]
        super().rollback(mark)

    def settle(self, mark: _Mark[dict[str, Any]]) -> None:
        """Drop items that can no longer change; only their bytes are kept."""
        count = mark[0] - self.open_items - self._compacted
        if count > 0:
            self._closed.append(msgspec.Raw(b",".join(self.encode()[:count])))
            if len(self._closed) > MAX_PIECES:
                self._closed = [msgspec.Raw(b",".join(self._closed))]
            del self.items[:count], self._encoded[:count]
            self._compacted += count

    def encode(self) -> list[bytes]:
        """Return the encoded items, without dropped items."""
        self._encoded += [_ENCODER.encode(item) for item in self.items[len(self._encoded) :]]
        return self._encoded

    def encode_list(self, *, first: bytes = b"", last: Sequence[bytes] | None = None) -> EncodedItems:
        """Return the list of all items, ``first`` before them; ``last`` replaces the items that may still change."""
        end = b",".join(self.encode() if last is None else last)
        return [*([msgspec.Raw(first)] if first else ()), *self._closed, *([msgspec.Raw(end)] if end else ())]


class AlternatingItems(RequestItems):
    """Items that alternate between the user, who begins, and the model: neighbours of one role become one."""

    def __init__(self, field: str, placeholder: dict[str, Any], messages: Sequence[Message] | None = None) -> None:
        super().__init__(messages)
        self._field, self._placeholder = field, placeholder

    def add_parts(self, role: str, parts: list[dict[str, Any]]) -> None:
        """Add the parts of a message, if there are any."""
        if parts and not self.items and role != "user":
            self.append(self.placeholder_item())
        last = self.items[-1] if parts and self.items else {}
        if last.get("role") == role:
            self.replace_last({"role": role, self._field: self.arrange_parts(role, [*last[self._field], *parts])})
        elif parts:
            self.append({"role": role, self._field: self.arrange_parts(role, parts)})

    def arrange_parts(self, role: str, parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the parts of an item in the order in which they are sent."""
        return parts

    def placeholder_item(self) -> dict[str, Any]:
        """Return the item of a conversation that is empty or begins with the model."""
        return {"role": "user", self._field: [dict(self._placeholder)]}


_Items = TypeVar("_Items", bound=RequestItems)


class RequestMemo(PrefixMemo[_Items]):
    """The items of the last conversations, and the lists of tools that were sent last."""

    def __init__(self, new: Callable[[], _Items], comparison: Comparison | None = None, **limits: int) -> None:
        super().__init__(new, comparison, **limits)
        self.tools: ToolListMemo[EncodedItems] = ToolListMemo()

    def encode(self, prompt: Prompt, encode: Callable[[_Items], EncodedItems]) -> EncodedItems | None:
        """Return what ``encode`` makes of the items of a prompt.

        Returns ``None`` where that is not possible or there are no items: then the caller writes the whole
        conversation, which also reports an invalid one.
        """
        try:
            kept = self.take(prompt)
            encoded = encode(kept.fold) if kept.fold.items else None
        except (LaterMessageMatters, ModelError, TypeError, ValueError, RecursionError):
            return None
        self.put(prompt, kept)
        return encoded


ToolDefinition: TypeAlias = dict[str, Any] | msgspec.Raw
"""A tool as it is sent, or an element of ``EncodedItems``."""


def write_tools(
    memo: RequestMemo[Any] | None,
    tools: tuple[ToolSpec, ...],
    define: Callable[[ToolSpec], dict[str, Any]],
    added: ToolSpec | None = None,
) -> list[ToolDefinition]:
    """Return what ``define`` makes of each tool, ``added`` after the others.

    With ``memo`` a list that was sent before is already encoded, its last tool apart; ``added`` never is.
    """
    try:
        known = memo.tools.get(tools, partial(_encode_tools, define)) if memo is not None else None
    except (TypeError, ValueError, RecursionError):  # reported when the whole body is encoded
        known = None
    written = [define(tool) for tool in tools] if known is None else known
    return [*written, define(added)] if added is not None else [*written]


def _encode_tools(define: Callable[[ToolSpec], dict[str, Any]], tools: tuple[ToolSpec, ...]) -> EncodedItems:
    encoded = [_ENCODER.encode(define(tool)) for tool in tools]
    return [msgspec.Raw(piece) for piece in (b",".join(encoded[:-1]), *encoded[-1:]) if piece]
