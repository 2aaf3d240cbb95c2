"""Redaction of secrets in the live events of a session."""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from vaka.core.session.redaction import Secrets, StreamRedactor, has_text
from vaka.core.types import progress
from vaka.core.types.event import Body, Event
from vaka.core.types.ids import EventScope, MessageId

_CLOSING_TYPES = frozenset[type]({
    progress.MessageCompleted, progress.ToolCompleted, progress.ToolFailed, progress.MessageDiscarded,
    *progress.TURN_ENDS,
})  # fmt: skip
"""Events that complete or discard open blocks."""


class _BlockRedactor:
    def __init__(self, secrets: Secrets, scope: EventScope, body: progress.Delta) -> None:
        self.scope, self.body, self.offset = scope, body, body.offset
        self._redactors = [StreamRedactor(finder) for finder in secrets.active_finders()]

    def feed(self, text: str, *, last: bool = False) -> str:
        for redactor in self._redactors:
            text = redactor.feed(text, last=last)
        return text

    def as_delta(self, body: progress.Delta, text: str) -> Body:
        offset, self.offset = self.offset, self.offset + len(text)
        if text is body.text and offset == body.offset:  # nothing was withheld or replaced so far
            return body
        return msgspec.structs.replace(body, offset=offset, text=text)


class LiveRedactor:
    """Redacts the live events of a session; withholds the end of an open block while it may be part of a secret."""

    def __init__(self) -> None:
        self.blocks: dict[tuple[MessageId, int], _BlockRedactor] = {}
        """The open blocks."""

    def redact(self, secrets: Secrets, scope: EventScope, body: Body) -> Sequence[tuple[EventScope, Body]]:
        """Return the bodies to publish for ``body``."""
        if not secrets.is_active:
            return ((scope, body),)
        if not isinstance(body, progress.DELTAS):
            return ((scope, secrets.redact_struct(body) if has_text(body) else body),)
        block = self.blocks.get((body.message_id, body.block))
        if block is None:
            return self._open_block(secrets, scope, body)
        text = block.feed(body.text)
        return ((scope, block.as_delta(body, text)),) if text or not body.text else ()

    def _open_block(
        self, secrets: Secrets, scope: EventScope, body: progress.Delta
    ) -> Sequence[tuple[EventScope, Body]]:
        """Return the first delta of a block, after the withheld text of the blocks that it completes."""
        finished = [key for key, old in self.blocks.items() if _is_finished_by(old.body, body)]
        withheld = list(self._flush(finished))
        block = self.blocks[body.message_id, body.block] = _BlockRedactor(secrets, scope, body)
        return [*withheld, (scope, block.as_delta(body, block.feed(body.text)))]

    def flush_closed(self, events: Iterable[Event]) -> list[tuple[EventScope, Body]]:
        """Return the withheld text of the blocks that these events complete; drop blocks that are discarded."""
        withheld: list[tuple[EventScope, Body]] = []
        for event in events:
            body = event.data
            if type(body) not in _CLOSING_TYPES:
                continue  # most events: the checks below are slower
            if isinstance(body, progress.MessageCompleted):
                withheld += self._flush([key for key in self.blocks if key[0] == body.message_id])
            elif isinstance(body, progress.ToolCompleted | progress.ToolFailed):
                withheld += self._flush([key for key in self.blocks if key[0] == MessageId(body.result.call)])
            elif isinstance(body, progress.MessageDiscarded):
                self.blocks = {key: block for key, block in self.blocks.items() if key[0] != body.message_id}
            elif isinstance(body, progress.TURN_ENDS):
                self.blocks = {key: block for key, block in self.blocks.items() if block.scope.turn != event.turn}
        return withheld

    def _flush(self, keys: list[tuple[MessageId, int]]) -> Iterator[tuple[EventScope, Body]]:
        for key in keys:
            block = self.blocks.pop(key)
            text = block.feed("", last=True)
            if text:
                yield block.scope, block.as_delta(block.body, text)


def _is_finished_by(old: progress.Delta, new: progress.Delta) -> bool:
    """Whether the next block of a message completes an open one; the arguments of several calls may alternate."""
    return old.message_id == new.message_id and not isinstance(old, progress.ToolArgsDelta)
