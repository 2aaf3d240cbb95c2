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
"""Bytes that are about a token."""
HEAD_CHARS, TAIL_CHARS = 4_000, 2_000
READ_TOOL = "Read"
"""The tool that reads again what was put away."""


class Eviction(Middleware):
    """Puts away the texts of a result that have more than ``tokens``, and says how to read them again.

    Of what people say each text with more than ``said`` tokens is told to the model in the same way; the log has all of
    it.
    """

    def __init__(self, tokens: int = MAX_RESULT_TOKENS, *, input_tokens: int = MAX_INPUT_TOKENS) -> None:
        for name, given in (("tokens", tokens), ("said", input_tokens)):
            if given * BYTES_PER_TOKEN <= HEAD_CHARS + TAIL_CHARS:
                raise ConfigError(f"{name} is more than {(HEAD_CHARS + TAIL_CHARS) // BYTES_PER_TOKEN}, not {given!r}")
        self._max_result_bytes, self._max_input_bytes = tokens * BYTES_PER_TOKEN, input_tokens * BYTES_PER_TOKEN

    async def before_model(self, turn: Turn, prompt: Prompt) -> Prompt:
        """Return the prompt with what people said at too great length told in part; the same one if they did not."""
        if not any(isinstance(message, UserMessage) and self._has_long_part(message) for message in prompt.messages):
            return prompt
        messages = tuple([await self._shorten_message(turn, message) for message in prompt.messages])
        return msgspec.structs.replace(prompt, messages=messages)

    async def after_tool(self, turn: Turn, call: ToolCall, result: ToolResult) -> ToolResult:
        """Return the result with its texts put away, as one, if they are too long together."""
        if call.name == READ_TOOL or sum(map(_text_bytes, result.content)) <= self._max_result_bytes:
            return result  # what is read again in pieces is as long as its reader wants it
        texts = [part for part in result.content if _text_bytes(part)]
        part = texts[0] if len(texts) == 1 else await _join_texts(turn, texts)
        away, first = await _store_shortened(turn, part), result.content.index(texts[0])
        content: Content = tuple(
            away if at == first else other
            for at, other in enumerate(result.content)
            if at == first or not _text_bytes(other)
        )  # fmt: skip
        return msgspec.structs.replace(result, content=content)

    def _has_long_part(self, message: UserMessage) -> bool:
        return any(self._too_long(part) for part in message.content)

    def _too_long(self, part: Part) -> bool:
        # No character has more than four bytes: most texts need not be counted exactly.
        return (
            isinstance(part, Text)
            and 4 * len(part.text) > self._max_input_bytes
            and _text_bytes(part) > self._max_input_bytes
        )

    async def _shorten_message(self, turn: Turn, message: Message) -> Message:
        if not isinstance(message, UserMessage) or not self._has_long_part(message):
            return message
        parts = [
            Text(text=(await _store_shortened(turn, part)).preview) if self._too_long(part) else part
            for part in message.content
        ]
        return UserMessage(content=tuple(parts))


async def _join_texts(turn: Turn, parts: list[Part]) -> Text:
    """Return several texts as one, each from a new line on."""
    whole = ""
    for part in parts:
        text = await _text_of_part(turn, part)
        whole += f"\n{text}" if whole and not whole.endswith("\n") and not text.startswith("\n") else text
    return Text(text=whole)


async def _store_shortened(turn: Turn, part: Part) -> Stored:
    text = await _text_of_part(turn, part)
    if isinstance(part, Stored):
        stored = part
    else:
        data = text.encode()
        stored = Stored(blob=await turn.log.store.blobs.put(data), size=len(data))
    how = f"give {READ_TOOL} output:{stored.blob} as file_path" if READ_TOOL in turn.tools else "ask for less at a time"
    left = len(text) - HEAD_CHARS - TAIL_CHARS
    said = f"[… {left} characters left out; to see them {how} …]"
    preview = f"{text[:HEAD_CHARS]}\n{said}\n{text[-TAIL_CHARS:]}" if left > 0 else text
    return msgspec.structs.replace(stored, cut=True, preview=preview)


async def _text_of_part(turn: Turn, part: Part) -> str:
    """Return what a part says, without registered secrets."""
    if isinstance(part, Text):
        return turn.log.secrets.redact_struct(part).text
    assert isinstance(part, Stored)  # noqa: S101  # nothing else has a size
    try:
        return (await turn.log.store.blobs.get(part.blob)).decode("utf-8", "replace")
    except NotFound:
        return part.preview


def _text_bytes(part: Part) -> int:
    """Return the bytes of a text that the model would be told, 0 for anything else."""
    if isinstance(part, Text):
        return len(part.text.encode("utf-8", "replace"))
    return part.size if isinstance(part, Stored) and not part.cut else 0
