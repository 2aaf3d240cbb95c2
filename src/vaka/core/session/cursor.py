"""A place in a log: ``<epoch>.<seq>``, two numbers, compared as numbers."""

import msgspec

from vaka.core.types.errors import InvalidInput


class Cursor(msgspec.Struct, frozen=True, order=True):
    """After event ``seq`` of incarnation ``epoch``; epoch 0 stands for whichever the log has."""

    epoch: int = 0
    seq: int = 0

    @classmethod
    def parse(cls, text: str | None) -> "Cursor":
        """Read ``"1.42"``, or a bare ``"42"`` for a seq of the current epoch; nothing means the start."""
        if not text:
            return cls()
        epoch, dot, seq = text.rpartition(".")
        if not _number(seq) or (dot and not _number(epoch)):
            raise InvalidInput(f"cursor {text[:60]!r} must be <epoch>.<seq>, such as '1.42', or a bare seq")
        return cls(int(epoch) if dot else 0, int(seq))

    def __str__(self) -> str:
        return f"{self.epoch}.{self.seq}" if self.epoch else str(self.seq)


def _number(text: str) -> bool:
    """Whether this is a number a store can count to."""
    return text.isascii() and text.isdigit() and len(text) < 19
