"""Eviction: long inputs are stored as blobs and shown in part; the limit of results."""

from vaka.core.loop.context import Turn
from vaka.core.loop.middleware import Middleware
from vaka.core.types.errors import ConfigError
from vaka.core.types.limits import MIN_RESULT_TOKENS
from vaka.core.types.message import Content, Part, Text
from vaka.core.types.tokens import BYTES_PER_TOKEN
from vaka.middleware.long_results import record_cut_text, shorten_part

MAX_RESULT_TOKENS = 20_000
MAX_INPUT_TOKENS = 50_000


class Eviction(Middleware):
    """Sets ``Limits.max_result_tokens`` of its agent to ``tokens``, and shortens long inputs.

    Each text of an input with more than ``input_tokens`` is stored; the model sees its beginning and its end. The log
    has all of it. An input that joins a running turn is not shortened.
    """

    inherited = ()
    admits_steering = True

    def __init__(self, tokens: int | None = MAX_RESULT_TOKENS, *, input_tokens: int | None = MAX_INPUT_TOKENS) -> None:
        """Create the middleware; ``None`` for no limit."""
        for name, value in (("tokens", tokens), ("input_tokens", input_tokens)):
            if value is not None and value < MIN_RESULT_TOKENS:
                raise ConfigError(f"{name} must be at least {MIN_RESULT_TOKENS}, or None for no limit, not {value!r}")
        self.result_tokens = tokens
        self._max_input_bytes = None if input_tokens is None else input_tokens * BYTES_PER_TOKEN

    async def before_agent(self, turn: Turn, content: Content) -> Content:
        if not any(self._is_too_long(part) for part in content):
            return content
        record_cut_text(turn)
        return tuple(
            [
                await shorten_part(turn, part) if isinstance(part, Text) and self._is_too_long(part) else part
                for part in content
            ]
        )

    def _is_too_long(self, part: Part) -> bool:
        # A character has at most four bytes: short texts need not be encoded.
        most = self._max_input_bytes
        if most is None or not isinstance(part, Text) or 4 * len(part.text) <= most:
            return False
        return len(part.text.encode()) > most
