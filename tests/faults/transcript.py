"""The transcript that a follower builds from events: the same text, however often it reconnects."""

from collections.abc import Iterable

from vaka.core.types.event import Event
from vaka.core.types.ids import MessageId
from vaka.core.types.message import text_of
from vaka.core.types.progress import MessageCompleted, MessageDiscarded, MessageSnapshot, TextDelta, TurnCompleted


class Transcript:
    """Completed messages, and the text of the open one; applying an event twice changes nothing."""

    def __init__(self) -> None:
        self.messages: list[str] = []
        self.seqs: list[int] = []
        self.cursor = "0.0"
        self.ended = False
        self.open: dict[tuple[MessageId, int], str] = {}
        self.open_text = ""
        """The last text of a message that was still open."""

    @classmethod
    def from_log(cls, log: Iterable[Event]) -> "Transcript":
        transcript = cls()
        for event in log:
            transcript.add_event(event)
        return transcript

    def add_event(self, event: Event) -> None:
        body = event.data
        if event.seq:
            assert not self.seqs or event.seq == self.seqs[-1] + 1, f"{event.seq} after {self.seqs[-1]}"
            self.seqs.append(event.seq)
            self.cursor = event.id
        if isinstance(body, TextDelta):
            self._apply_delta(body)
        elif isinstance(body, MessageSnapshot) and body.of == "text.delta":
            self._set_text((body.message_id, body.block), body.text)
        elif isinstance(body, MessageCompleted):
            self._close_message(body.message_id)
            self.messages.append(text_of(body.content))
        elif isinstance(body, MessageDiscarded):
            self._close_message(body.message_id)
        elif isinstance(body, TurnCompleted):
            self.ended = True

    def _apply_delta(self, body: TextDelta) -> None:
        known = self.open.get((body.message_id, body.block), "")
        assert body.offset <= len(known), f"a gap: {body.offset} after {len(known)}"
        self._set_text((body.message_id, body.block), known[: body.offset] + body.text)

    def _set_text(self, block: tuple[MessageId, int], text: str) -> None:
        known = self.open.get(block, "")
        assert text.startswith(known) or known.startswith(text), f"{text!r} does not go on from {known!r}"
        self.open[block] = self.open_text = max(known, text, key=len)

    def _close_message(self, message: MessageId) -> None:
        for block in [block for block in self.open if block[0] == message]:
            del self.open[block]
