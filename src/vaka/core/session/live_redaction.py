"""Redaction of secrets in the live events of a session."""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from vaka.core.ports.log import SecretFinder
from vaka.core.session.redaction import REDACTED, Secrets, has_text
from vaka.core.types import progress
from vaka.core.types.event import Body, Event
from vaka.core.types.ids import EventScope, MessageId

_CLOSING_TYPES = frozenset[type](
    {
        progress.MessageCompleted,
        progress.ToolCompleted,
        progress.ToolFailed,
        progress.MessageDiscarded,
        *progress.TURN_ENDS,
    }
)
"""Events that complete or discard open blocks."""


class StreamRedactor:
    """Redacts a text in pieces with one finder; the joined output equals ``redact_text`` of the whole text."""

    def __init__(self, finder: SecretFinder) -> None:
        self._finder = finder
        self._withheld: str = ""
        self._context: str = ""
        self._enough: int = 0

    def context_after(self, text: str) -> str | None:
        """Return the context after ``text`` if nothing of it is or may become part of a secret, otherwise ``None``."""
        if self._withheld:
            return None
        at = len(self._context)
        text = self._context + text
        keep = self._finder.clear_context(text, at)
        return None if keep < 0 else text[-keep:] if keep else ""

    def skip(self, context: str) -> None:
        """Go on after a text for which ``context_after`` has returned ``context``."""
        self._context = context

    def feed(self, text: str, *, last: bool = False) -> str:
        """Add a piece; return the text that is settled now, and with ``last`` the rest."""
        if not text and not self._withheld:
            return ""
        if len(self._withheld) + len(text) < self._enough and not last:
            self._withheld += text  # a long text is looked at again only when it has grown by an eighth
            return ""
        new = text
        finder = self._finder
        at = len(self._context)
        text = self._context + self._withheld + new
        keep = -1 if self._withheld else finder.clear_context(text, at)
        if keep >= 0:  # the common case
            self._context = text[-keep:] if keep else ""
            return new
        hold = len(text) if last else finder.possible_start(text, at)
        pieces: list[str] = []
        for start, end in finder.find_spans(text, at):
            if hold < end:
                hold = min(hold, start)  # more text may yield a match that begins earlier or is longer
                break
            pieces += (text[at:start], REDACTED)
            at = end
        pieces.append(text[at:hold])
        self._withheld, self._context = text[hold:], text[max(hold - finder.context, 0) : hold]
        self._enough = len(self._withheld) * 9 // 8 - 16
        return "".join(pieces)


class _BlockRedactor:
    def __init__(self, secrets: Secrets, scope: EventScope, body: progress.Delta) -> None:
        self.scope = scope
        self.body = body
        self.offset = body.offset
        self._redactors = [StreamRedactor(finder) for finder in secrets.active_finders()]

    def skip_clean(self, deltas: Sequence[tuple[EventScope, progress.Delta]]) -> bool:
        """Skip deltas that are the next ones of this block and have no secret; return false if that is not certain.

        Most deltas have none, and many arrive together: one search of their joined text is cheaper.
        """
        message, number = self.body.message_id, self.body.block
        for _, body in deltas:
            if body.block != number or body.message_id != message:
                return False
        if deltas[0][1].offset != self.offset:  # text was withheld or replaced
            return False
        text = "".join([body.text for _, body in deltas])
        contexts = [redactor.context_after(text) for redactor in self._redactors]
        if None in contexts:
            return False
        for redactor, context in zip(self._redactors, contexts, strict=True):
            redactor.skip(context or "")
        self.offset += len(text)
        return True

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

    def redact(self, secrets: Secrets, body: Body) -> Body:
        """Return the body to publish for a body other than a delta."""
        return secrets.redact_struct(body) if secrets.is_active and has_text(body) else body

    def redact_deltas(
        self, secrets: Secrets, deltas: Sequence[tuple[EventScope, progress.Delta]]
    ) -> Sequence[tuple[EventScope, Body]]:
        """Return the bodies to publish for deltas, which follow each other."""
        if not secrets.is_active:
            return deltas
        scope, first = deltas[0]
        if len(deltas) == 1:
            return self._redact_delta(secrets, scope, first)
        block = self.blocks.get((first.message_id, first.block))
        if block is not None and block.skip_clean(deltas):
            return deltas
        return [entry for at, body in deltas for entry in self._redact_delta(secrets, at, body)]

    def _redact_delta(
        self, secrets: Secrets, scope: EventScope, body: progress.Delta
    ) -> Sequence[tuple[EventScope, Body]]:
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
    """Whether the next block of a message completes an open one; arguments of calls and streams of output alternate."""
    alternating = isinstance(old, progress.ToolArgsDelta | progress.ToolOutputDelta)
    return old.message_id == new.message_id and not alternating
