"""How long one answer of a model can get, in tokens, thoughts included. Of its day, as prices are.

What is doubtful is left out: a budget that relies on a bound which is too low is overrun, and a provider refuses to be
asked for more than its model writes.
"""

import re

from vaka.models import anthropic_facts
from vaka.models.llama.order import ANSWER

_WRITES: dict[str, int] = {
    "gpt-5-pro": 272_000, "gpt-5": 128_000, "gpt-5.1": 128_000, "gpt-5.2": 128_000,
    "gpt-4.1": 32_768, "gpt-4o-2024-05-13": 4096, "gpt-4o": 16_384, "o1-mini": 65_536, "o1-preview": 32_768,
    "o1": 100_000, "o3": 100_000, "o4-mini": 100_000, "gemini-2.5": 65_536,
    "gemini-3": 65_536, "gemini-3.1": 65_536,
}  # fmt: skip
"""By how ids begin, of vendors whose models are called so wherever they are served; the first that fits counts."""

_SPECIAL = re.compile(r"-(?:chat|image|tts|audio|native|live|realtime|transcribe|search|computer)(?:-|$)")
"""Kinds of a model that write less than it does; how much is not known well enough."""


def find(wire: str, model: str) -> int | None:
    """Return how long an answer can get when nobody bounds it, ``None`` when that is not known."""
    if wire == "anthropic":  # where every request has a bound
        return anthropic_facts.find(model).tokens
    if wire == "local":
        return ANSWER
    id = model.rpartition("/")[2]
    if _SPECIAL.search(id):
        return None
    return next((most for begins, most in _WRITES.items() if _is(id, begins)), None)


def _is(id: str, begins: str) -> bool:
    """Whether an id is that model or one of its kind: ``gpt-5-mini`` is of ``gpt-5``, ``gpt-5.4`` is not."""
    return id == begins or id.startswith(f"{begins}-")
