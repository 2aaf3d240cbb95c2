"""An answer that is handed to a script in pieces."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from vaka.core.types.errors import ScriptError

Read = Callable[[], AsyncGenerator[str | None]]
"""Asks the model, and yields its answer in pieces; ``None`` when what came so far does not count."""


class Stream:
    """An answer as far as it has come.

    The script says how much it was told and how that ended, so that a host that had to ask anew goes on from there, or
    says that it cannot. ``whole``: nobody will close this, so nothing may be left open between two pieces.
    """

    def __init__(self, read: Read, *, whole: bool = False) -> None:
        self._read, self._whole = read, whole
        self._pieces: AsyncGenerator[str | None] | None = None
        self._ready: deque[str] = deque()
        self._given = False
        self._over = False
        self._problem: ScriptError | None = None
        self._turn = asyncio.Lock()

    async def take(self, told: int, tail: str) -> str | None:
        """Return the next piece, ``None`` when there is no more."""
        async with self._turn:
            if self._pieces is None and not self._over:
                self._pieces = self._read()
                await self._skip(told, tail)
            return await self._next(self._pieces)

    async def close(self) -> None:
        """Ask for no more."""
        self._over = True
        self._ready.clear()
        if self._pieces is not None:
            await self._pieces.aclose()

    async def _skip(self, told: int, tail: str) -> None:
        """Go over what the script was told by an earlier host."""
        text = ""
        while len(text) < told:
            piece = await self._next(self._pieces)
            if piece is None:
                break
            text += piece
        if len(text) < told or not text[:told].endswith(tail):
            await self.close()
            raise ScriptError("the answer was interrupted, and asked again the model says something else")
        if text[told:]:
            self._ready.appendleft(text[told:])

    async def _next(self, pieces: AsyncGenerator[str | None] | None) -> str | None:
        while not self._ready:
            if self._problem is not None:
                raise self._problem
            if self._over or pieces is None:
                return None
            await self._pull(pieces)
        self._given = True
        return self._ready.popleft()

    async def _pull(self, pieces: AsyncGenerator[str | None]) -> None:
        try:
            if self._whole:
                await self._pull_all(pieces)
            else:
                self._keep(await anext(pieces))
        except StopAsyncIteration:
            self._over = True
        except ScriptError as error:
            self._problem = error  # told after what came before it

    async def _pull_all(self, pieces: AsyncGenerator[str | None]) -> None:
        self._over = True
        async with aclosing(pieces):
            async for piece in pieces:
                self._keep(piece)

    def _keep(self, piece: str | None) -> None:
        if piece:
            self._ready.append(piece)
        elif piece is None and self._given:
            raise ScriptError("the model had to begin again after some of its answer was handed over")
        elif piece is None:
            self._ready.clear()
