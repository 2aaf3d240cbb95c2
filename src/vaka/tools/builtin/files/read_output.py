"""The tool of agents without Read: it reads texts that were too long to be shown whole."""

from typing import Annotated

from msgspec import Meta

from vaka.core.ports.tool import ToolContext
from vaka.core.types.message import ToolResult
from vaka.core.types.tool import READ_OUTPUT_TOOL
from vaka.tools.builtin.builtin_tool import OUTPUT_PREFIX
from vaka.tools.builtin.files.read import LinePage, read_stored_text
from vaka.tools.function import tool

MAX_CHARACTERS = 32_000
"""Characters shown at once."""


@tool(name=READ_OUTPUT_TOOL, effect="read")
async def read_output(
    context: ToolContext,
    output: Annotated[str, "The name of the text: output:<digest>."],
    offset: Annotated[int, "First line.", Meta(ge=1)] = 1,
    limit: Annotated[int, "Number of lines.", Meta(ge=1)] = 500,
) -> ToolResult:
    """Return lines of a text that was too long to be shown whole, each with its number."""
    name = output.strip()
    if not name.startswith(OUTPUT_PREFIX):
        name = f"{OUTPUT_PREFIX}{name}"  # the digest alone
    return await read_stored_text(context, name, LinePage(offset, limit, MAX_CHARACTERS))
