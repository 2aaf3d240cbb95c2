"""Trimming: a context that is too large loses its oldest turns, without a summary."""

import msgspec

from vaka.core.types.context import Compaction
from vaka.middleware.compaction import ContextCompaction
from vaka.middleware.compactor import Compactor


class Trimming(ContextCompaction):
    """Leaves out the oldest turns when the context is too large; no model is asked for a summary.

    Whole turns are left out, and the last one always stays. Long results of old calls are shown in part first. What is
    left out stays in the log. An agent with this middleware is not compacted in another way, also not by
    ``Session.compact``.
    """

    asks_models = False

    def __init__(self, settings: Compaction | None = None) -> None:
        """Trim as ``settings`` say; without them from 85 % of the model's window on."""
        without_model = msgspec.structs.replace(settings or Compaction(), max_retries=0)
        compactor = Compactor(without_model, ())
        super().__init__(without_model, lambda: compactor)
