"""Which parts of the messages of an agent a client has not been sent: deltas may be missing, repeated or overlap."""

from typing import TypeAlias

import msgspec

from vaka.core.types import progress
from vaka.core.types.ids import MessageId
from vaka.core.types.message import CallRef, Part, Reasoning, Stored, Text

MessageBody: TypeAlias = progress.TextDelta | progress.ReasoningDelta | progress.MessageSnapshot

_PART_TYPES: dict[str, type[Text | Reasoning]] = {
    progress.TextDelta.type: Text, progress.ReasoningDelta.type: Reasoning,
}  # fmt: skip


class UnsentParts:
    """Returns each piece of text and reasoning once, whether it comes in deltas or in the completed message."""

    def __init__(self) -> None:
        self._blocks: dict[MessageId, dict[int, tuple[type[Part], int]]] = {}
        """The kind of each block of the open messages, and the number of code points that were sent of it."""
        self._completed = MessageId("")

    def add(self, body: MessageBody) -> Text | Reasoning | None:
        """Return what a delta adds; ``None`` for a repeated one, one after a gap, and one of another kind."""
        kind = _PART_TYPES.get(body.of if isinstance(body, progress.MessageSnapshot) else body.type)
        if kind is None or body.message_id == self._completed:
            return None
        blocks = self._blocks.setdefault(body.message_id, {})
        known, sent = blocks.get(body.block, (kind, 0))
        text = body.text[sent - body.offset :] if known is kind and body.offset <= sent else ""
        blocks[body.block] = (known, sent + len(text))
        return kind(text=text) if text else None

    def complete(self, body: progress.MessageCompleted) -> list[Part]:
        """Return what the completed message has and no delta has carried; its calls are left out."""
        if body.message_id == self._completed:
            return []
        self._completed = body.message_id
        blocks = self._blocks.pop(body.message_id, {})
        if body.cut and blocks:
            return []  # the parts of a message that was cut have lost their numbers
        parts = (_cut_beginning(part, blocks.get(number)) for number, part in enumerate(body.content))
        return [part for part in parts if part is not None]

    def discard(self, message: MessageId) -> bool:
        """Forget a message. Returns whether a part of it was sent."""
        return any(sent for _, sent in self._blocks.pop(message, {}).values())

    def clear(self) -> None:
        self._blocks.clear()


def _cut_beginning(part: Part, known: tuple[type[Part], int] | None) -> Part | None:
    """Return ``part`` without what was sent of it, ``None`` when nothing is left."""
    if isinstance(part, CallRef):
        return None
    if isinstance(part, Stored):
        part = Text(text=part.preview)
    if not isinstance(part, Text | Reasoning):
        return part
    kind, sent = known or (type(part), 0)
    text = part.text[sent if kind is type(part) else 0 :]  # middleware may have changed the kind of the part
    return msgspec.structs.replace(part, text=text) if text else None
