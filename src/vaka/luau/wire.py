"""What is said between a worker and its owner: frames of JSON, each after its length in four bytes."""

from collections.abc import Iterator
from typing import Generic, TypeAlias, TypeVar

import msgspec

from vaka.core.types.ids import JSON
from vaka.luau.program import Program

MOST_FRAME = 256 << 20
_HEAD = 4


class Load(msgspec.Struct, tag="load", array_like=True):
    """Keep a program under a number."""

    program: int
    content: Program


class Forget(msgspec.Struct, tag="forget", array_like=True):
    """Do not keep a program any more."""

    program: int


class Start(msgspec.Struct, tag="start", array_like=True):
    """Start a script."""

    script: int
    program: int
    arguments: list[JSON]
    seed: int
    at: int


class Answer(msgspec.Struct, tag="answer", array_like=True):
    """Give a call its results."""

    script: int
    call: int
    values: list[JSON]
    at: int


class Fail(msgspec.Struct, tag="fail", array_like=True):
    """Raise an error where a call was made."""

    script: int
    call: int
    error: JSON
    at: int


class Close(msgspec.Struct, tag="close", array_like=True):
    """Let go of a script; nothing is said in return."""

    script: int


Order: TypeAlias = Load | Forget | Start | Answer | Fail | Close


class Ready(msgspec.Struct, tag="ready", array_like=True):
    """The first word of a worker."""

    version: str


class Waits(msgspec.Struct, tag="waits", array_like=True):
    """All coroutines of a script wait."""

    script: int
    calls: list[tuple[int, str, list[JSON]]]
    dropped: list[int]
    printed: list[str]


class Ended(msgspec.Struct, tag="ended", array_like=True):
    """A script has ended with these values."""

    script: int
    values: list[JSON]
    printed: list[str]


class Failed(msgspec.Struct, tag="failed", array_like=True):
    """A script has failed: by itself, or by a limit."""

    script: int
    message: str
    traceback: str
    limit: bool
    printed: list[str]


Said: TypeAlias = Waits | Ended | Failed
Report: TypeAlias = Ready | Said

T = TypeVar("T")


class Frames(Generic[T]):
    """Puts frames together from pieces as they come. Raises ``ValueError`` for what is no frame."""

    def __init__(self, decoder: "msgspec.json.Decoder[T]") -> None:
        self._decoder = decoder
        self._held = bytearray()

    def feed(self, piece: bytes) -> Iterator[T]:
        """Yield what is complete now."""
        held = self._held
        held += piece
        start = 0
        while len(held) - start >= _HEAD:
            size = int.from_bytes(held[start : start + _HEAD], "big")
            if size > MOST_FRAME:
                raise ValueError(f"a frame of {size} bytes is more than {MOST_FRAME}")
            end = start + _HEAD + size
            if len(held) < end:
                break
            yield self._decode(bytes(held[start + _HEAD : end]))
            start = end
        del held[:start]

    def _decode(self, content: bytes) -> T:
        try:
            return self._decoder.decode(content)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            raise ValueError(f"a frame is not what it should be: {error}") from error


_encoder = msgspec.json.Encoder()


def frame(message: Order | Report) -> bytes:
    """Return a message as it is sent."""
    content = _encoder.encode(message)
    return len(content).to_bytes(_HEAD, "big") + content


def orders() -> Frames[Order]:
    """Return the reader of a worker."""
    return Frames(msgspec.json.Decoder(Order))


def reports() -> Frames[Report]:
    """Return the reader of its owner."""
    return Frames(msgspec.json.Decoder(Report))
