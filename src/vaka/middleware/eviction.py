"""Eviction: texts too long for the context window are stored as blobs and shown in part."""

import msgspec

from vaka.core.loop.context import Turn
from vaka.core.loop.middleware import Middleware
from vaka.core.ports.model import Prompt
from vaka.core.types.errors import ConfigError, NotFound
from vaka.core.types.message import Content, Message, Part, Stored, Text, ToolCall, ToolResult, UserMessage

MAX_RESULT_TOKENS = 20_000
MAX_INPUT_TOKENS = 50_000
BYTES_PER_TOKEN = 4
"""An estimate."""
HEAD_CHARS, TAIL_CHARS = 4_000, 2_000
READ_TOOL = "Read"
"""The tool that reads stored texts."""


class Eviction(Middleware):
    """Stores the texts of a result that have more than ``tokens`` together, and shows their beginning and end.

    Each text of an input with more than ``input_tokens`` is shortened in the prompt in the same way; the log has all of
    it.
    """

    inherited = ()

    def __init__(self, tokens: int = MAX_RESULT_TOKENS, *, input_tokens: int = MAX_INPUT_TOKENS) -> None:
        least = (HEAD_CHARS + TAIL_CHARS) // BYTES_PER_TOKEN
        for name, value in (("tokens", tokens), ("input_tokens", input_tokens)):
            if value <= least:
                raise ConfigError(f"{name} must be more than {least}, not {value!r}")
        self._max_result_bytes, self._max_input_bytes = tokens * BYTES_PER_TOKEN, input_tokens * BYTES_PER_TOKEN

    async def before_model(self, turn: Turn, prompt: Prompt) -> Prompt:
        if not any(self._has_long_part(message) for message in prompt.messages):
            return prompt
        messages = tuple([await self._shorten_message(turn, message) for message in prompt.messages])
        return msgspec.structs.replace(prompt, messages=messages)

    async def after_tool(self, turn: Turn, call: ToolCall, result: ToolResult) -> ToolResult:
        if call.name == READ_TOOL or sum(map(_text_bytes, result.content)) <= self._max_result_bytes:
            return result  # Read has limits of its own
        texts = [part for part in result.content if _text_bytes(part)]
        stored = await _store_shortened(turn, texts[0] if len(texts) == 1 else await _join_texts(turn, texts))
        first = result.content.index(texts[0])
        others: Content = tuple(part for part in result.content[first:] if not _text_bytes(part))
        return msgspec.structs.replace(result, content=(*result.content[:first], stored, *others))

    def _has_long_part(self, message: Message) -> bool:
        return isinstance(message, UserMessage) and any(self._too_long(part) for part in message.content)

    def _too_long(self, part: Part) -> bool:
        # A character has at most four bytes: short texts need not be encoded.
        most = self._max_input_bytes
        return isinstance(part, Text) and 4 * len(part.text) > most and _text_bytes(part) > most

    async def _shorten_message(self, turn: Turn, message: Message) -> Message:
        if not isinstance(message, UserMessage) or not self._has_long_part(message):
            return message
        parts = [
            Text(text=(await _store_shortened(turn, part)).preview) if self._too_long(part) else part
            for part in message.content
        ]
        return UserMessage(content=tuple(parts))


async def _join_texts(turn: Turn, parts: list[Part]) -> Text:
    """Return several texts as one; each begins on a new line."""
    joined = ""
    for part in parts:
        text = await _text_of_part(turn, part)
        joined += f"\n{text}" if joined and not joined.endswith("\n") and not text.startswith("\n") else text
    return Text(text=joined)


async def _store_shortened(turn: Turn, part: Part) -> Stored:
    text = await _text_of_part(turn, part)
    if isinstance(part, Stored):
        stored = part
    else:
        data = text.encode()
        stored = Stored(blob=await turn.log.store.blobs.put(data), size=len(data))
    how = f"give {READ_TOOL} output:{stored.blob} as file_path" if READ_TOOL in turn.tools else "ask for less at a time"
    left_out = len(text) - HEAD_CHARS - TAIL_CHARS
    notice = f"[… {left_out} characters left out; to see them {how} …]"
    preview = f"{text[:HEAD_CHARS]}\n{notice}\n{text[-TAIL_CHARS:]}" if left_out > 0 else text
    return msgspec.structs.replace(stored, cut=True, preview=preview)


async def _text_of_part(turn: Turn, part: Part) -> str:
    """Return the text of a part, without secrets."""
    if isinstance(part, Text):
        return turn.log.secrets.redact_struct(part).text
    assert isinstance(part, Stored)  # noqa: S101  # _text_bytes is 0 for other parts
    try:
        return (await turn.log.store.blobs.get(part.blob)).decode("utf-8", "replace")
    except NotFound:
        return part.preview


def _text_bytes(part: Part) -> int:
    """Return the size of a text that the prompt would contain, 0 for other parts."""
    if isinstance(part, Text):
        return len(part.text.encode("utf-8", "replace"))
    return part.size if isinstance(part, Stored) and not part.cut else 0
