"""What is said between a worker and its owner: frames of JSON, each after its length in four bytes."""

from collections.abc import Iterator
from typing import Generic, TypeAlias, TypeVar

import msgspec

from vaka.core.types.ids import JSON
from vaka.luau.program import Program

MAX_FRAME_BYTES = 256 << 20
_LENGTH_BYTES = 4


class LoadProgram(msgspec.Struct, tag="load", array_like=True):
    """Keep a program under a number."""

    program: int
    content: Program


class ForgetProgram(msgspec.Struct, tag="forget", array_like=True):
    """Do not keep a program any more."""

    program: int


class StartScript(msgspec.Struct, tag="start", array_like=True):
    """Start a script."""

    script: int
    program: int
    arguments: list[JSON]
    seed: int
    at: int


class AnswerCall(msgspec.Struct, tag="answer", array_like=True):
    """Give a call its results."""

    script: int
    call: int
    values: list[JSON]
    at: int


class FailCall(msgspec.Struct, tag="fail", array_like=True):
    """Raise an error where a call was made."""

    script: int
    call: int
    error: JSON
    at: int


class CloseScript(msgspec.Struct, tag="close", array_like=True):
    """Let go of a script; nothing is said in return."""

    script: int


WorkerCommand: TypeAlias = LoadProgram | ForgetProgram | StartScript | AnswerCall | FailCall | CloseScript


class WorkerReady(msgspec.Struct, tag="ready", array_like=True):
    """The first word of a worker."""

    version: str


class ScriptWaiting(msgspec.Struct, tag="waits", array_like=True):
    """All coroutines of a script wait."""

    script: int
    calls: list[tuple[int, str, list[JSON]]]
    dropped: list[int]
    printed: list[str]


class ScriptEnded(msgspec.Struct, tag="ended", array_like=True):
    """A script has ended with these values."""

    script: int
    values: list[JSON]
    printed: list[str]


class ScriptFailed(msgspec.Struct, tag="failed", array_like=True):
    """A script has failed: by itself, or by a limit."""

    script: int
    message: str
    traceback: str
    limit: bool
    printed: list[str]


StepReport: TypeAlias = ScriptWaiting | ScriptEnded | ScriptFailed
WorkerReport: TypeAlias = WorkerReady | StepReport

T = TypeVar("T")


class FrameReader(Generic[T]):
    """Puts frames together from pieces as they come. Raises ``ValueError`` for what is no frame."""

    def __init__(self, decoder: "msgspec.json.Decoder[T]") -> None:
        self._decoder = decoder
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[T]:
        """Yield what is complete now."""
        held = self._buffer
        held += data
        start = 0
        while len(held) - start >= _LENGTH_BYTES:
            size = int.from_bytes(held[start : start + _LENGTH_BYTES], "big")
            if size > MAX_FRAME_BYTES:
                raise ValueError(f"a frame of {size} bytes is more than {MAX_FRAME_BYTES}")
            end = start + _LENGTH_BYTES + size
            if len(held) < end:
                break
            yield self._decode(bytes(held[start + _LENGTH_BYTES : end]))
            start = end
        del held[:start]

    def _decode(self, content: bytes) -> T:
        try:
            return self._decoder.decode(content)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            raise ValueError(f"a frame is not what it should be: {error}") from error


_encoder = msgspec.json.Encoder()


def encode_frame(message: WorkerCommand | WorkerReport) -> bytes:
    """Return a message as it is sent."""
    content = _encoder.encode(message)
    return len(content).to_bytes(_LENGTH_BYTES, "big") + content


def command_reader() -> FrameReader[WorkerCommand]:
    """Return the reader of a worker."""
    return FrameReader(msgspec.json.Decoder(WorkerCommand))


def report_reader() -> FrameReader[WorkerReport]:
    """Return the reader of its owner."""
    return FrameReader(msgspec.json.Decoder(WorkerReport))
