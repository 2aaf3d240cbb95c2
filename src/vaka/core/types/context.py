"""Events about what the model sees of a conversation: compactions of its context, and named checkpoints."""

from typing import Any, Literal, TypeAlias

import msgspec

from vaka.core.types.event import Control
from vaka.core.types.ids import CallId, Digest
from vaka.core.types.message import Content

CompactionTrigger: TypeAlias = Literal["auto", "manual"]
"""The size of the context, or a caller."""


class ShortenedCall(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A call and its result as the model sees them after a compaction; the events of the call have all of it."""

    call: CallId
    arguments: dict[str, Any] | None = None
    """The arguments with shortened texts; ``None`` when they are unchanged."""
    blobs: tuple[Digest, ...] = ()
    """The blobs that the shortened arguments name."""
    content: Content | None = None
    """The content of the result, with ``Stored`` parts that are cut; ``None`` when it is unchanged."""


class ContextCompacted(Control, tag="context.compacted"):
    """From here on the model sees ``opening``, ``summary`` and ``inputs`` in place of what came before ``keep_from``.

    Without a summary the messages stay, with the calls of ``calls`` and the media before ``media_from`` shortened.
    """

    summary: str
    keep_from: int
    before: int = 0
    after: int = 0
    """The tokens of the context before and after, as estimated."""
    trigger: CompactionTrigger = "auto"
    instructions: str = ""
    """What the caller or a middleware asked the summary to keep."""
    model: str = ""
    """The model that wrote the summary; ``""`` when none did."""
    opening: tuple[Content, ...] = ()
    """The first inputs of the conversation, shown before the summary."""
    inputs: tuple[Content, ...] = ()
    """Later inputs that are kept word for word, shown after the summary."""
    calls: tuple[ShortenedCall, ...] = ()
    media_from: int = 0
    """Media of messages that begin before this event are left out of the prompt."""
    failure: str = ""
    """Why no model wrote the summary, although one was asked."""


class CheckpointSaved(Control, tag="checkpoint.saved"):
    """This place has a name to come back to."""

    label: str
    number: int | None = None
    """The number of the checkpoint, if the model may go back to it; such checkpoints last until the next turn."""
    told: Content = ()
    """The text about it in the prompt."""
