"""Secrets do not reach those who watch either: what arrives in pieces is shown as far as no secret may have begun."""

from collections.abc import Iterable, Iterator
from typing import TypeAlias

import msgspec

from vaka.core.session.place import Place
from vaka.core.session.redact import MARK, Finder, Secrets
from vaka.core.types import progress
from vaka.core.types.event import Body, Event
from vaka.core.types.ids import MessageId

_DELTAS = (progress.TextDelta, progress.ReasoningDelta, progress.ToolArgsDelta, progress.ToolOutputDelta)
_Delta: TypeAlias = progress.TextDelta | progress.ReasoningDelta | progress.ToolArgsDelta | progress.ToolOutputDelta
_OVER = (progress.TurnCompleted, progress.TurnFailed, progress.TurnCancelled, progress.TurnInterrupted)


class Stage:
    """One finder at work on a text in pieces: what comes out is what ``replaced`` makes of the whole."""

    def __init__(self, finder: Finder) -> None:
        self._finder = finder
        self._held: str = ""
        self._before: str = ""

    def feed(self, text: str, *, last: bool = False) -> str:
        """Take a piece, return what may be shown now; with ``last`` everything."""
        text = self._held + text
        if text and self._finder.clear(text):  # most pieces
            self._held, self._before = "", text[-1]
            return text
        text, at = self._before + text, len(self._before)
        pieces: list[str] = []
        size = len(text)
        hold = size if last else self._finder.open(text, at)
        for start, end in self._finder.spans(text, at):
            if hold <= start:
                break  # something that begins earlier, or is longer, may come of it
            pieces += (text[at:start], MARK)
            at = end
            if hold < at:
                hold = self._finder.open(text, at)
        pieces.append(text[at:hold])
        self._held, self._before = text[hold:], text[max(hold - 1, 0) : hold]
        return "".join(pieces)


class _Strand:
    """One open block."""

    def __init__(self, secrets: Secrets, place: Place, body: "_Delta") -> None:
        self.place, self.body, self.offset = place, body, body.offset
        self._stages = [Stage(finder) for finder in secrets.stages]

    def feed(self, text: str, *, last: bool = False) -> str:
        for stage in self._stages:
            text = stage.feed(text, last=last)
        return text

    def shown(self, body: "_Delta", text: str) -> Body:
        if text is body.text and self.offset == body.offset:  # nothing was held back so far, nothing replaced
            self.offset += len(text)
            return body
        made = msgspec.structs.replace(body, offset=self.offset, text=text)
        self.offset += len(text)
        return made


class Veil:
    """The open blocks of a session, as far as they may be seen."""

    def __init__(self) -> None:
        self._open: dict[tuple[MessageId, int], _Strand] = {}

    def __bool__(self) -> bool:
        return bool(self._open)

    def show(self, secrets: Secrets, place: Place, body: Body) -> Iterator[tuple[Place, Body]]:
        """Yield what may be shown now that ``body`` has happened."""
        if not isinstance(body, _DELTAS):
            yield place, secrets.clean(body)
            return
        key = (body.message_id, body.block)
        strand = self._open.get(key)
        fresh = strand is None
        if strand is None:
            yield from self._rest([key for key, old in self._open.items() if _goes_before(old.body, body)])
            strand = self._open[key] = _Strand(secrets, place, body)
        text = strand.feed(body.text)
        if text or fresh or not body.text:
            yield place, strand.shown(body, text)

    def close(self, events: Iterable[Event]) -> list[tuple[Place, Body]]:
        """Return what is left to show of the blocks these events bring to an end."""
        left: list[tuple[Place, Body]] = []
        for event in events:
            body = event.data
            if isinstance(body, progress.MessageCompleted):
                left += self._rest([key for key in self._open if key[0] == body.message_id])
            elif isinstance(body, progress.ToolCompleted | progress.ToolFailed):
                left += self._rest([key for key in self._open if key[0] == MessageId(body.result.call)])
            elif isinstance(body, progress.MessageDiscarded):
                self._forget([key for key in self._open if key[0] == body.message_id])
            elif isinstance(body, _OVER):
                self._forget([key for key, strand in self._open.items() if strand.place.turn == event.turn])
        return left

    def _rest(self, keys: list[tuple[MessageId, int]]) -> Iterator[tuple[Place, Body]]:
        for key in keys:
            strand = self._open.pop(key)
            text = strand.feed("", last=True)
            if text:
                yield strand.place, strand.shown(strand.body, text)

    def _forget(self, keys: list[tuple[MessageId, int]]) -> None:
        for key in keys:
            del self._open[key]


def _goes_before(old: "_Delta", new: Body) -> bool:
    """Whether a block is whole because another of its message begins; calls may be written side by side."""
    return old.message_id == getattr(new, "message_id", "") and not isinstance(old, progress.ToolArgsDelta)
