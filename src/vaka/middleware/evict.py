"""Eviction: a result too long for the model's window is put away, and how it begins and ends is told."""

import msgspec

from vaka.core.loop.middleware import Middleware
from vaka.core.loop.scope import Turn
from vaka.core.types.content import Content, Part, Stored, Text
from vaka.core.types.errors import ConfigError, NotFound
from vaka.core.types.message import ToolCall, ToolResult

TOKENS = 20_000
BYTES = 4
"""Bytes that are about a token."""
HEAD, TAIL = 4_000, 2_000
READ = "Read"
"""The tool that reads again what was put away."""


class Eviction(Middleware):
    """Puts away each text of a result that has more than ``tokens``, and says how to read it again."""

    def __init__(self, tokens: int = TOKENS) -> None:
        if tokens * BYTES <= HEAD + TAIL:
            raise ConfigError(f"tokens is more than {(HEAD + TAIL) // BYTES}, not {tokens!r}")
        self._most = tokens * BYTES

    async def after_tool(self, turn: Turn, call: ToolCall, result: ToolResult) -> ToolResult:
        """Return the result with what is too long put away."""
        if call.name == READ or not any(_size(part) > self._most for part in result.content):
            return result  # what is read again in pieces is as long as its reader wants it
        content: Content = tuple([await self._away(turn, part) for part in result.content])
        return msgspec.structs.replace(result, content=content)

    async def _away(self, turn: Turn, part: Part) -> Part:
        if _size(part) <= self._most:
            return part
        if isinstance(part, Text):
            text = turn.log.secrets.clean(part).text
            data = text.encode()
            stored = Stored(blob=await turn.log.store.blobs.put(data), size=len(data))
        else:
            assert isinstance(part, Stored)  # noqa: S101  # nothing else has a size
            stored = part
            try:
                text = (await turn.log.store.blobs.get(part.blob)).decode("utf-8", "replace")
            except NotFound:
                text = part.preview
        how = f"give {READ} output:{stored.blob} as file_path" if READ in turn.tools else "ask for less at a time"
        left = len(text) - HEAD - TAIL
        said = f"[… {left} characters left out; to see them {how} …]"
        preview = f"{text[:HEAD]}\n{said}\n{text[-TAIL:]}" if left > 0 else text
        return msgspec.structs.replace(stored, cut=True, preview=preview)


def _size(part: Part) -> int:
    if isinstance(part, Text):
        return len(part.text.encode())
    return part.size if isinstance(part, Stored) and not part.cut else 0
