"""The text and reasoning of a message as a client is shown them: each piece once, and in order."""

from collections.abc import Iterator
from operator import itemgetter
from typing import Literal, NamedTuple, TypeAlias

from vaka.core.types import progress
from vaka.core.types.ids import MessageId
from vaka.core.types.message import Audio, Content, Document, Image, Part, Reasoning, Stored, Text, text_of

BlockKind: TypeAlias = Literal["text", "reasoning"]

_DELTA_KINDS: dict[str, BlockKind] = {
    progress.TextDelta.type: "text",
    progress.ReasoningDelta.type: "reasoning",
}


class Piece(NamedTuple):
    """The next piece of a block of a message."""

    kind: BlockKind
    block: int
    text: str


def kind_of(body: progress.Delta | progress.MessageSnapshot) -> BlockKind | None:
    """Return the kind of the block that a delta belongs to; ``None`` for the arguments and the output of a call."""
    return _DELTA_KINDS.get(body.of if isinstance(body, progress.MessageSnapshot) else body.type)


class _ShownBlock:
    """The text of a block that the client has."""

    def __init__(self, kind: BlockKind) -> None:
        self.kind: BlockKind = kind
        self.pieces: list[str] = []
        self.length = 0

    @property
    def text(self) -> str:
        return "".join(self.pieces)


class MessageBlocks:
    """Returns each piece of one message once: from its deltas, and what they did not carry from the whole message.

    After a gap, such as a delta that the reader missed, nothing of the block and of later ones is shown until a
    snapshot or the whole message has what is missing: so the pieces are in the order of the message.
    """

    def __init__(self) -> None:
        self._shown: dict[int, _ShownBlock] = {}
        self._gaps: set[int] = set()
        """The blocks of which text is missing."""

    def add_delta(self, body: progress.Delta | progress.MessageSnapshot) -> list[Piece]:
        """Return what a delta of text or reasoning adds; nothing if its block is of another kind."""
        kind, shown = kind_of(body), self._shown.get(body.block)
        if kind is None or (shown is not None and shown.kind != kind):
            return []
        return self._add(kind, body.block, body.offset, body.text)

    def fits(self, completed: progress.MessageCompleted) -> bool:
        """Return whether the text shown so far is the beginning of the message; middleware may have changed it."""
        shown = {number: block for number, block in self._shown.items() if block.kind == "text"}
        if completed.cut:  # the blocks of a message that was cut have lost their numbers
            whole, text = text_of(completed.content), self._shown_text()
            return whole.startswith(text) or text.startswith(whole)
        last = max(shown, default=-1)
        for number, kind, text in _blocks_of(completed.content):
            block = shown.pop(number, None)
            if block is None:
                if kind == "text" and text and number < last:
                    return False
            elif isinstance(completed.content[number], Stored):  # only the beginning of its text; the deltas had it all
                continue
            elif kind != "text" or not text.startswith(block.text) or (number < last and len(text) > block.length):
                return False
        return not shown

    def complete(self, completed: progress.MessageCompleted) -> list[Piece]:
        """Return what was not shown yet."""
        self._gaps.clear()
        if completed.cut and self._shown:
            return self._add("text", max(self._shown) + 1, 0, self.rest_of(completed.content))
        pieces: list[Piece] = []
        for number, kind, text in _blocks_of(completed.content):
            if number not in self._shown or not isinstance(completed.content[number], Stored):
                pieces += self._add(kind, number, 0, text)
        return pieces

    def rest_of(self, content: Content) -> str:
        """Return the text of ``content`` that was not shown, whatever its blocks are."""
        return text_of(content)[len(self._shown_text()) :]

    @property
    def is_empty(self) -> bool:
        """Whether nothing was shown."""
        return not self._shown

    @property
    def has_text(self) -> bool:
        return any(block.kind == "text" for block in self._shown.values())

    def _shown_text(self) -> str:
        return "".join(block.text for _, block in sorted(self._shown.items()) if block.kind == "text")

    def _add(self, kind: BlockKind, number: int, offset: int, text: str) -> list[Piece]:
        shown = self._shown.get(number)
        received = shown.length if shown is not None and shown.kind == kind else 0
        if offset > received or any(gap < number for gap in self._gaps):
            self._gaps.add(number)
            return []
        self._gaps.discard(number)
        text = text[received - offset :]
        if not text:
            return []
        if shown is None or shown.kind != kind:
            shown = self._shown[number] = _ShownBlock(kind)
        shown.pieces.append(text)
        shown.length += len(text)
        return [Piece(kind, number, text)]


def _blocks_of(content: Content) -> Iterator[tuple[int, BlockKind, str]]:
    for number, part in enumerate(content):
        if isinstance(part, Text | Stored):
            yield number, "text", part.text if isinstance(part, Text) else part.preview
        elif isinstance(part, Reasoning):
            yield number, "reasoning", part.text


class UnsentParts:
    """Returns each part of the messages of an agent once. Several messages may be open at the same time."""

    def __init__(self) -> None:
        self._open: dict[MessageId, MessageBlocks] = {}
        self._completed = MessageId("")

    def add_delta(self, body: progress.Delta | progress.MessageSnapshot) -> list[Part]:
        if body.message_id == self._completed:
            return []
        blocks = self._open.setdefault(body.message_id, MessageBlocks())
        return [_part_of(piece) for piece in blocks.add_delta(body)]

    def complete(self, body: progress.MessageCompleted) -> list[Part]:
        """Return what the completed message has and no delta has carried; its calls are left out."""
        if body.message_id == self._completed:
            return []
        self._completed = body.message_id
        pieces = self._open.pop(body.message_id, MessageBlocks()).complete(body)
        parts: list[tuple[int, Part]] = [(piece.block, _part_of(piece)) for piece in pieces]
        parts += [
            (number, part) for number, part in enumerate(body.content) if isinstance(part, Image | Audio | Document)
        ]
        return [part for _, part in sorted(parts, key=itemgetter(0))]

    def discard(self, message: MessageId) -> bool:
        """Forget a message. Returns whether a part of it was sent."""
        return not self._open.pop(message, MessageBlocks()).is_empty

    def clear(self) -> None:
        self._open.clear()


def _part_of(piece: Piece) -> Part:
    return Text(text=piece.text) if piece.kind == "text" else Reasoning(text=piece.text)
