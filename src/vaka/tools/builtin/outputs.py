"""Names for long texts that were put away: what a tool printed can be read again, piece by piece."""

import re

import msgspec

from vaka.core.ports.tool import ToolContext
from vaka.core.types.content import Stored
from vaka.core.types.ids import Digest

PREFIX = "output:"
HEAD, TAIL = 2_000, 2_000
"""Characters that are shown of the beginning and of the end."""
_NAME = re.compile(r"output:([0-9a-f]{64})\Z")


def name_of(digest: Digest) -> str:
    """Return the name under which ``Read`` finds a text that was put away."""
    return f"{PREFIX}{digest}"


def digest_in(name: str) -> Digest | None:
    """Return the digest that a name stands for, ``None`` when it is the name of something else."""
    found = _NAME.match(name.strip())
    return Digest(found[1]) if found else None


async def put_away(context: ToolContext, text: str, *, head: int = HEAD, tail: int = TAIL) -> Stored:
    """Keep a text and return a part that shows how it begins and ends, and says how to read the rest."""
    part = await context.put_away(text)
    kept = await context.put_back(part.blob)  # without secrets, of which a cut could leave half
    return msgspec.structs.replace(part, preview=preview(kept, name_of(part.blob), head=head, tail=tail))


def preview(text: str, name: str, *, head: int = HEAD, tail: int = TAIL) -> str:
    """Return the beginning and the end of a text, with the name of the whole between them."""
    left = len(text) - head - tail
    if left <= 0:
        return text
    lines = text.count("\n", head, len(text) - tail)
    said = f"[… {left} characters ({lines} lines) left out; the whole is {name}: give Read that as file_path …]"
    return f"{text[:head]}\n{said}\n{text[len(text) - tail :]}"
