"""Messages between a worker and its parent: frames of JSON, each after its length in four bytes."""

from collections.abc import Iterator
from typing import Generic, TypeAlias, TypeVar

import msgspec

from vaka.core.types.ids import JSON
from vaka.luau.program import Program

MAX_FRAME_BYTES = 256 << 20
_LENGTH_BYTES = 4


class LoadProgram(msgspec.Struct, tag="load", array_like=True):
    """Store a program under a number."""

    program: int
    content: Program


class ForgetProgram(msgspec.Struct, tag="forget", array_like=True):
    """Forget a stored program."""

    program: int


class StartScript(msgspec.Struct, tag="start", array_like=True):
    """Start a script."""

    script: int
    program: int
    arguments: list[JSON]
    seed: int
    at: int


class AnswerCall(msgspec.Struct, tag="answer", array_like=True):
    """Answer a host call and resume the script."""

    script: int
    call: int
    values: list[JSON]
    at: int


class FailCall(msgspec.Struct, tag="fail", array_like=True):
    """Raise an error where a host call was made and resume the script."""

    script: int
    call: int
    error: JSON
    at: int


class CloseScript(msgspec.Struct, tag="close", array_like=True):
    """Free a script; there is no report."""

    script: int


StepCommand: TypeAlias = StartScript | AnswerCall | FailCall
WorkerCommand: TypeAlias = LoadProgram | ForgetProgram | StepCommand | CloseScript


class WorkerReady(msgspec.Struct, tag="ready", array_like=True):
    """The first report of a worker: it can run scripts."""

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
    """A script has failed; ``limit``: because it exceeded a limit."""

    script: int
    message: str
    traceback: str
    limit: bool
    printed: list[str]


StepReport: TypeAlias = ScriptWaiting | ScriptEnded | ScriptFailed
WorkerReport: TypeAlias = WorkerReady | StepReport

T = TypeVar("T")


class FrameReader(Generic[T]):
    """Decodes frames from a stream of bytes. Raises ``ValueError`` for an invalid frame."""

    def __init__(self, decoder: "msgspec.json.Decoder[T]") -> None:
        self._decoder = decoder
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[T]:
        """Yield the frames that ``data`` completes."""
        buffer = self._buffer
        buffer += data
        start = 0
        while len(buffer) - start >= _LENGTH_BYTES:
            size = int.from_bytes(buffer[start : start + _LENGTH_BYTES], "big")
            if size > MAX_FRAME_BYTES:
                raise ValueError(f"a frame of {size} bytes is more than {MAX_FRAME_BYTES}")
            end = start + _LENGTH_BYTES + size
            if len(buffer) < end:
                break
            yield self._decode(bytes(buffer[start + _LENGTH_BYTES : end]))
            start = end
        del buffer[:start]

    def _decode(self, content: bytes) -> T:
        try:
            return self._decoder.decode(content)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            raise ValueError(f"a frame is invalid: {error}") from error


_encoder = msgspec.json.Encoder()


def encode_frame(message: WorkerCommand | WorkerReport) -> bytes:
    content = _encoder.encode(message)
    return len(content).to_bytes(_LENGTH_BYTES, "big") + content


def command_reader() -> FrameReader[WorkerCommand]:
    return FrameReader(msgspec.json.Decoder(WorkerCommand))


def report_reader() -> FrameReader[WorkerReport]:
    return FrameReader(msgspec.json.Decoder(WorkerReport))
