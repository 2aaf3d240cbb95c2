"""Results that are too long for the model: stored as a blob, shown in part, with the way to read the rest."""

from collections.abc import Callable, Sequence

import msgspec

from vaka.core.loop.blobs import offload_result, put_blob
from vaka.core.loop.context import Turn
from vaka.core.ports.log import conversation_key
from vaka.core.ports.tool import Tool
from vaka.core.types.control import StateChanged
from vaka.core.types.errors import NotFound
from vaka.core.types.message import Content, Part, Stored, Text, ToolResult
from vaka.core.types.tokens import BYTES_PER_TOKEN, text_size
from vaka.core.types.tool import READ_OUTPUT_TOOL, ToolSpec

HEAD_CHARS, TAIL_CHARS = 4_000, 2_000
"""The characters that the model sees of the beginning and of the end."""
READ_TOOL = "Read"
"""The built-in tool that reads stored texts; agents without it get ``READ_OUTPUT_TOOL``."""
_STATE_NAME = "$stored_outputs"


def is_read_tool(spec: ToolSpec) -> bool:
    """Whether a tool is vaka's ``Read``, which opens stored texts; another tool may have that name."""
    return spec.name == READ_TOOL and spec.layer == "builtin"


class LongResults:
    """Shows the texts of a result in part if they are longer than ``Limits.max_result_tokens`` together.

    The results of the tools that read stored texts stay whole: those tools have limits of their own.
    """

    def __init__(self, make_read_output: Callable[[], Tool]) -> None:
        """Create the limit; ``make_read_output`` returns the tool of agents without ``Read``."""
        self._make_read_output = make_read_output

    def has_cut_texts(self, turn: Turn) -> bool:
        values = turn.state.values
        return bool(values) and conversation_key(turn.log.window, turn.path, _STATE_NAME) in values

    def reading_tools(self, turn: Turn) -> Sequence[Tool]:
        """Return ``read_output`` for an agent that has no ``Read``, or may not use it."""
        read = turn.recipe.tools.get(READ_TOOL)
        can_read = read is not None and is_read_tool(read.spec) and turn.env.policy.visible(read.spec)
        return () if can_read else (self._make_read_output(),)

    async def limit_result(self, turn: Turn, tool: str, result: ToolResult) -> ToolResult:
        """Return a result as the model gets it, and record when a part of it is left out."""
        most = turn.limits.max_result_tokens
        size = 0
        is_cut = False
        for part in result.content:
            if type(part) is Text:
                size += 4 * len(part.text)  # UTF-8 has at most 4 bytes for each
            elif type(part) is Stored:
                size, is_cut = (size, True) if part.cut else (size + part.size, is_cut)
        if most is not None and size > most * BYTES_PER_TOKEN and _exceeds(turn, tool, result.content):
            result, is_cut = await _shorten_result(turn, await offload_result(turn.log, result)), True
        if is_cut:
            record_cut_text(turn)
        return result


def record_cut_text(turn: Turn) -> None:
    """Write once that a text of the conversation is shown in part."""
    turn.has_cut_texts, key = True, conversation_key(turn.log.window, turn.scope.path, _STATE_NAME)
    if turn.log.get_value(key) is None:
        turn.log.defer(turn.scope, StateChanged(key=key, value=True))


def _exceeds(turn: Turn, tool: str, content: Content) -> bool:
    """Return whether the texts of a result are too long together; results of tools that read stored texts never are."""
    if tool == READ_OUTPUT_TOOL or (tool == READ_TOOL and any(map(is_read_tool, turn.tool_menu.specs))):
        return False
    size = sum(part.size for part in content if isinstance(part, Stored) and not part.cut)
    size += sum(text_size(part.text) for part in content if isinstance(part, Text))
    return size > (turn.limits.max_result_tokens or 0) * BYTES_PER_TOKEN


async def _shorten_result(turn: Turn, result: ToolResult) -> ToolResult:
    texts = [part for part in result.content if isinstance(part, Text) or (isinstance(part, Stored) and not part.cut)]
    return msgspec.structs.replace(result, content=await shorten_texts(turn, result.content, texts))


async def shorten_texts(
    turn: Turn, content: Content, texts: list[Text | Stored], head: int = HEAD_CHARS, tail: int = TAIL_CHARS
) -> Content:
    """Return a content with its parts ``texts`` as one text, at the place of the first; see ``shorten_part``."""
    cut = await shorten_part(turn, texts[0] if len(texts) == 1 else await _join_texts(turn, texts), head, tail)
    first = content.index(texts[0])
    return (*content[:first], cut, *[part for part in content[first:] if part not in texts])


async def _join_texts(turn: Turn, parts: list[Text | Stored]) -> Text:
    """Return several texts as one; each begins on a new line."""
    joined: list[str] = []
    for part in parts:
        text = await _text_of_part(turn, part)
        if joined and not joined[-1].endswith("\n") and not text.startswith("\n"):
            joined.append("\n")
        joined.append(text)
    return Text(text="".join(joined))


async def shorten_part(turn: Turn, part: Text | Stored, head: int = HEAD_CHARS, tail: int = TAIL_CHARS) -> Stored:
    """Store a text, without secrets; the model gets its beginning, its end, and the way to read the rest."""
    text = await _text_of_part(turn, part)
    if isinstance(part, Stored):
        stored = part
    else:
        data = text.encode()
        stored = Stored(blob=await put_blob(turn.log, data), size=len(data))
    name = f"output:{stored.blob}"
    can_read = any(map(is_read_tool, turn.tool_menu.specs))
    how = f"give Read {name} as file_path" if can_read else f"call {READ_OUTPUT_TOOL} with {name}"
    left_out, lines = len(text) - head - tail, text.count("\n", head, len(text) - tail)
    notice = f"[… {left_out} characters ({lines} lines) left out; to see them {how} …]"
    preview = f"{text[:head]}\n{notice}\n{text[len(text) - tail :]}" if left_out > 0 else text
    return msgspec.structs.replace(stored, cut=True, preview=preview)


async def _text_of_part(turn: Turn, part: Part) -> str:
    """Return the text of a part, without secrets."""
    if isinstance(part, Text):
        return turn.log.secrets.redact_struct(part).text
    assert isinstance(part, Stored)  # noqa: S101  # other parts have no text
    try:
        return (await turn.log.store.blobs.get(part.blob)).decode("utf-8", "replace")
    except NotFound:
        return part.preview
