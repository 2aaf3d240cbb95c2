"""DMail: rewind this turn to a checkpoint, with a message for the model."""

from typing import Annotated

import msgspec

from vaka.core.loop.children.dmail import send_dmail
from vaka.core.ports.tool import ToolContext
from vaka.tools.builtin.builtin_tool import builtin_tool

MAX_MESSAGE_LENGTH = 8_000


@builtin_tool("DMail", effect="idempotent")
async def d_mail(
    context: ToolContext,
    message: Annotated[
        str, "What you should know there: what you found out, what you did, what to do now.",
        msgspec.Meta(min_length=1, max_length=MAX_MESSAGE_LENGTH),
    ],
    checkpoint_id: Annotated[int, "The number of a checkpoint of this turn.", msgspec.Meta(ge=0)],
) -> str:  # fmt: skip
    """Go back to an earlier place of this turn, with a message to oneself."""
    return send_dmail(context, message, checkpoint_id)
