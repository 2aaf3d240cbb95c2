"""Unpacking of bodies in small pieces, so that what a few bytes blow up to is counted before it is held."""

import zlib
from collections.abc import Iterator
from typing import Protocol

from vaka.core.types.errors import NetworkError

ACCEPTED = "gzip, deflate"
"""What we ask servers for, and all we can unpack."""

_PIECE = 64 * 1024


class Unpacker(Protocol):
    """Takes a body as it was sent, gives it as it was meant."""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield what ``data`` adds, in pieces of bounded size."""
        ...

    def finish(self) -> None:
        """Raise unless the body is whole."""
        ...


class _Inflater(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    @property
    def unconsumed_tail(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


class Plain:
    """A body that is not packed."""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the data itself."""
        yield data

    def finish(self) -> None:
        """A body that is not packed is whole when the connection says so."""


class Inflate:
    """gzip, of one member or several, and deflate with its header or without."""

    def __init__(self, coding: str) -> None:
        self.coding = coding
        self._inflate: _Inflater | None = None

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield what ``data`` unpacks to."""
        more = False
        while data or more:
            inflate = self._open(data)
            try:
                piece = inflate.decompress(data, _PIECE)
            except zlib.error as error:
                raise NetworkError(f"the body is not valid {self.coding}: {error}", reason="encoding") from error
            # A full piece may leave output behind although all input is taken.
            more = len(piece) == _PIECE and not inflate.eof
            data = inflate.unused_data if inflate.eof else inflate.unconsumed_tail
            if piece:
                yield piece

    def finish(self) -> None:
        """Raise when the data ended too early."""
        if self._inflate is not None and not self._inflate.eof:
            raise NetworkError(f"the {self.coding} body ends too early", reason="cut")

    def _open(self, data: bytes) -> "_Inflater":
        if self._inflate is None or (self._inflate.eof and self.coding == "gzip"):
            self._inflate = zlib.decompressobj(self._window(data))
        elif self._inflate.eof:
            raise NetworkError(f"the {self.coding} body goes on after its end", reason="encoding")
        return self._inflate

    def _window(self, data: bytes) -> int:
        if self.coding == "gzip":
            return 16 + zlib.MAX_WBITS
        # Many servers say deflate and leave its header out. The header's first byte names method 8.
        return zlib.MAX_WBITS if data[0] & 0x0F == 8 else -zlib.MAX_WBITS


def unpacker(codings: tuple[str, ...]) -> Unpacker:
    """Return what undoes the ``Content-Encoding`` headers of an answer; one coding at most."""
    names = [name.strip().lower() for coding in codings for name in coding.split(",")]
    packed = [name.removeprefix("x-") for name in names if name not in ("", "identity")]
    if not packed:
        return Plain()
    if len(packed) > 1 or packed[0] not in ("gzip", "deflate"):
        raise NetworkError(f"the body is packed as {', '.join(names)!r}; expected {ACCEPTED}", reason="encoding")
    return Inflate(packed[0])
