"""Edit: exchange a passage of a file."""

from typing import Annotated

from vaka.core.ports.tool import ToolContext
from vaka.core.types.message import ToolResult
from vaka.tools.builtin.change import exchange, in_turn
from vaka.tools.builtin.declare import declare
from vaka.tools.builtin.passage import Exchange


@declare("Edit", effect="idempotent")
async def edit(
    context: ToolContext,
    file_path: Annotated[str, "The file: absolute, or from the working folder."],
    old_string: Annotated[str, "The passage to replace, letter by letter as it is in the file."],
    new_string: Annotated[str, "What to put in its place."],
    replace_all: Annotated[bool, "Replace every place where the passage is, instead of the only one."] = False,
) -> ToolResult:
    """Exchange a passage of a file."""
    async with in_turn(context):
        return await exchange(context, file_path, [Exchange(old=old_string, new=new_string, every=replace_all)])
