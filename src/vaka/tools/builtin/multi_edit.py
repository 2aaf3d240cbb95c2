"""MultiEdit: exchange several passages of a file, all or none."""

from typing import Annotated

import msgspec

from vaka.core.ports.tool import ToolContext
from vaka.core.types.message import ToolResult
from vaka.tools.builtin.change import exchange, in_turn
from vaka.tools.builtin.declare import declare
from vaka.tools.builtin.passage import Exchange


class Replacement(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One passage for another."""

    old_string: Annotated[str, msgspec.Meta(description="The passage to replace, letter by letter.")]
    new_string: Annotated[str, msgspec.Meta(description="What to put in its place.")]
    replace_all: Annotated[bool, msgspec.Meta(description="Replace every place where the passage is.")] = False


@declare("MultiEdit", effect="idempotent")
async def multi_edit(
    context: ToolContext,
    file_path: Annotated[str, "The file: absolute, or from the working folder."],
    edits: Annotated[
        list[Replacement], "The replacements, made one after the other.", msgspec.Meta(min_length=1, max_length=1000)
    ],
) -> ToolResult:
    """Exchange several passages of a file, all or none."""
    wanted = [Exchange(old=one.old_string, new=one.new_string, every=one.replace_all) for one in edits]
    async with in_turn(context):
        return await exchange(context, file_path, wanted)
